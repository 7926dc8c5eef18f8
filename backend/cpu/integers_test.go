package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

func octets(r *rand.Rand, dt tensor.DType, shape ...int) *tensor.Tensor {
	t := tensor.New(dt, shape...)
	for i := range t.Bytes() {
		t.Bytes()[i] = byte(r.Uint32())
	}
	return t
}

// product8 makes a graph of one quantised product: a Conv, MatMul or Gemm of some
// shape, with any epilogue.
func product8(r *rand.Rand) (*ir.Graph, []*tensor.Tensor, error) {
	g := ir.NewGraph("q")
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	kind := []string{"Conv", "MatMul", "Gemm"}[r.IntN(3)]
	o, err := op.New(kind)
	if err != nil {
		return nil, nil, err
	}
	m, batch := pick(1, 5, 6, 7, 48, 49, 64, 65, 70), pick(1, 1, 2)
	var x, w *tensor.Tensor
	depthwise := false
	if kind == "Conv" {
		c, rank := pick(1, 3, 4, 9, 64, 64, 128), pick(1, 2, 2, 2)
		conv := o.(*op.Conv)
		in, kernel := []int{batch, c}, []int{m, c}
		depthwise = c > 1 && r.IntN(3) == 0
		if depthwise {
			m, conv.Group, kernel = c, c, []int{c, 1}
		}
		for range rank {
			k, s, d := pick(1, 1, 2, 3), pick(1, 1, 2, 3), pick(1, 1, 2)
			if depthwise {
				k, s, d = pick(1, 3, 3, 5, 9), pick(1, 1, 2, 3, 5), pick(1, 1, 2, 5)
			}
			conv.Strides, conv.Dilations = append(conv.Strides, s), append(conv.Dilations, d)
			in, kernel = append(in, pick(5, 7, 8, 9, 21, 70)), append(kernel, k)
		}
		for range 2 * rank {
			conv.Pads = append(conv.Pads, r.IntN(3))
		}
		switch r.IntN(6) {
		case 0, 1:
			conv.Strides, conv.Dilations, conv.Pads = nil, nil, nil
			for i := range rank {
				kernel[2+i] = 1
			}
		case 2: // windows that share no pixel
			for i := range rank {
				kernel[2+i] = pick(3, 3, 5)
				conv.Strides[i] = max(2, (kernel[2+i]-1)*conv.Dilations[i]+1+r.IntN(2))
			}
			clear(conv.Pads)
		}
		x, w = octets(r, tensor.U8, in...), octets(r, tensor.I8, kernel...)
	} else {
		tokens, k := pick(1, 2, 15, 16, 17, 63, 64, 65, 70), pick(1, 3, 4, 8, 21, 64, 72)
		x, w = octets(r, tensor.U8, tokens, k), octets(r, tensor.I8, k, m)
		if gemm, ok := o.(*op.Gemm); ok && r.IntN(2) == 0 {
			gemm.TransB = true
			w = octets(r, tensor.I8, m, k)
		}
	}
	q := o.(op.Quantisable).Integers()
	q.XScale, q.XZero = 0.02, r.IntN(256)
	q.WScale = []float32{0.01}
	if r.IntN(4) > 0 {
		q.WScale = make([]float32, m)
		for i := range q.WScale {
			q.WScale[i] = 0.001 + r.Float32()/100
		}
	}
	zeros := pick(0, 0, 1, m)
	if depthwise { // for which there is no kernel
		zeros = 0
	}
	for range zeros {
		q.WZero = append(q.WZero, r.IntN(256)-128)
	}
	if r.IntN(2) == 0 {
		q.YScale, q.YZero = 0.3, r.IntN(256)
	}
	e := o.(op.Fusable).Fused()
	switch r.IntN(5) {
	case 0:
		e.Act = "Relu"
	case 1:
		e.Act, e.ActArgs = "Clip", []float32{-1, 6}
	case 2:
		e.Act, e.ActArgs = "Swish", []float32{1}
	}
	inputs := []*ir.Value{g.NewInput("x", ir.TypeOf(x)), g.NewConst("w", w), nil, nil}
	args := []*tensor.Tensor{x}
	if r.IntN(2) == 0 {
		b := tensor.New(tensor.F32, m)
		for i := range b.F32s() {
			b.F32s()[i] = float32(r.NormFloat64())
		}
		inputs[2] = g.NewConst("b", b)
	}
	n := g.NewNode("p", o, inputs, "y")
	g.Outputs = n.Outputs
	if r.IntN(3) == 0 {
		scale, zero := tensor.Scalar(q.XScale), tensor.Scalar(uint8(q.XZero))
		q.XScale, q.XZero = 1, 0
		n.SetInput(op.DynamicScale, g.NewInput("scale", ir.TypeOf(scale)))
		n.SetInput(op.DynamicZero, g.NewInput("zero", ir.TypeOf(zero)))
		args = append(args, scale, zero)
	}
	if err := n.Infer(); err != nil {
		return nil, nil, err
	}
	shape, _ := n.Outputs[0].Type.Shape()
	switch r.IntN(3) {
	case 1:
		res := tensor.New(tensor.F32, shape...)
		for i := range res.F32s() {
			res.F32s()[i] = float32(r.NormFloat64())
		}
		n.SetInput(op.Residual, g.NewInput("r", ir.TypeOf(res)))
		args = append(args, res)
	case 2:
		q.RScale, q.RZero = 0.05, r.IntN(256)
		res := octets(r, tensor.U8, shape...)
		n.SetInput(op.Residual, g.NewInput("r", ir.TypeOf(res)))
		args = append(args, res)
	}
	return g, args, n.Infer()
}

// close8 compares results of a product whose u8 may differ by one, and what the
// interpreter and the kernels round differently in f32.
func close8(got, want *tensor.Tensor) error {
	if got.String() != want.String() {
		return fmt.Errorf("%v, want %v", got, want)
	}
	if want.DType() == tensor.U8 {
		for i, v := range want.Bytes() {
			if d := int(got.Bytes()[i]) - int(v); d < -1 || d > 1 {
				return fmt.Errorf("element %d is %d, want %d", i, got.Bytes()[i], v)
			}
		}
		return nil
	}
	for i, v := range want.F32s() {
		if d := math.Abs(float64(got.F32s()[i] - v)); d > 1e-4*(1+math.Abs(float64(v))) {
			return fmt.Errorf("element %d is %v, want %v", i, got.F32s()[i], v)
		}
	}
	return nil
}

func TestQuantisedProductsMatchTheOperator(t *testing.T) {
	const seed = 808
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	done := 0
	for i := range 600 {
		g, in, err := product8(r)
		if err != nil {
			if strings.Contains(err.Error(), "does not fit") {
				continue
			}
			t.Fatal(err)
		}
		done++
		want, err := (&ref.Interpreter{}).Run(context.Background(), g, in)
		if err != nil {
			t.Fatalf("%d: %v in\n%s", i, err, g)
		}
		p, err := Device{}.Load(g, backend.Options{Threads: 1 + i%2})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]*tensor.Tensor, 1)
		for range 2 { // the second finds what the first left in its buffers
			if err := p.Run(context.Background(), in, got); err != nil {
				t.Fatalf("%d: %v in\n%s", i, err, g)
			}
			if err := close8(got[0], want[0]); err != nil {
				t.Fatalf("%d: %v in\n%s", i, err, g)
			}
		}
		p.Close()
	}
	if done < 300 {
		t.Errorf("only %d graphs", done)
	}
}

func TestPoolsAndQuantizersOfU8MatchTheOperator(t *testing.T) {
	const seed = 809
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 60 {
		kernel, stride := [2]int{2 + r.IntN(2), 2 + r.IntN(2)}, [2]int{1 + r.IntN(3), 1 + r.IntN(3)}
		if i%3 == 0 { // which has a kernel of its own
			kernel, stride = [2]int{3, 3}, [2]int{2, 2}
		}
		text := fmt.Sprintf(`graph "g"(%%x: f32[1,3,%d,%d]) {
  %%s: f32[] = const {0.03}
  %%z: u8[] = const {%d}
  %%q: u8[?a,?b,?c,?d] = QuantizeLinear "q" (%%x, %%s, %%z)
  %%m: u8[?a,?b,?c,?d] = MaxPool "m" (%%q) {kernel_shape = [%d, %d], strides = [%d, %d], pads = [1, 1, 1, 1], ceil_mode = %d}
  %%y: f32[?a,?b,?c,?d] = DequantizeLinear "d" (%%m, %%s, %%z)
  return %%y
}`, 2+r.IntN(90), 2+r.IntN(90), r.IntN(256), kernel[0], kernel[1], stride[0], stride[1], r.IntN(2))
		if i%5 == 1 { // along one axis
			text = fmt.Sprintf(`graph "g"(%%x: f32[2,3,%d]) {
  %%s: f32[] = const {0.03}
  %%q: u8[?a,?b,?c] = QuantizeLinear "q" (%%x, %%s)
  %%m: u8[?a,?b,?c] = MaxPool "m" (%%q) {kernel_shape = [%d], strides = [%d], pads = [1, 0], ceil_mode = %d}
  %%y: f32[?a,?b,?c] = DequantizeLinear "d" (%%m, %%s)
  return %%y
}`, 3+r.IntN(90), kernel[0], stride[0], r.IntN(2))
		}
		g, err := ir.Parse(text, op.Registry)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if err := g.Infer(); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		shape, _ := g.Inputs[0].Type.Shape()
		x := tensor.New(tensor.F32, shape...)
		for j := range x.F32s() {
			x.F32s()[j] = float32(3 * r.NormFloat64())
		}
		in := []*tensor.Tensor{x}
		want, err := (&ref.Interpreter{}).Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Device{}.Load(g, backend.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]*tensor.Tensor, 1)
		if err := p.Run(context.Background(), in, got); err != nil {
			t.Fatal(err)
		}
		for j, v := range want[0].F32s() {
			if d := math.Abs(float64(got[0].F32s()[j] - v)); d > 0.031 {
				t.Fatalf("%d: element %d is %v, want %v in\n%s", i, j, got[0].F32s()[j], v, text)
			}
		}
		p.Close()
	}
}
