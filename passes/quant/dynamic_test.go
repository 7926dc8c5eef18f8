package quant_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
	"spc/passes/quant"
	"spc/tests/graphtest"
)

// dynamicProducts makes a graph of products of one value that is quantised as the model runs, in
// the forms that exporters write.
func dynamicProducts(t *testing.T, r *rand.Rand) *ir.Graph {
	g := ir.NewGraph("g")
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	node := func(kind string, attrs map[string]any, outputs int, in ...*ir.Value) []*ir.Value {
		o, err := op.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range attrs {
			if err := ir.SetAttr(o, name, v); err != nil {
				t.Fatal(err)
			}
		}
		n := g.NewNode(kind, o, in, []string{"a", "b", "c"}[:outputs]...)
		if err := n.Infer(); err != nil {
			t.Fatal(err)
		}
		return n.Outputs
	}
	floats := func(scale float32, shape ...int) *ir.Value {
		c := tensor.New(tensor.F32, shape...)
		for i := range c.F32s() {
			c.F32s()[i] = scale * (0.1 + r.Float32())
		}
		return g.NewConst("f", c)
	}
	octets := func(dt tensor.DType, zero bool, shape ...int) *ir.Value {
		c := tensor.New(dt, shape...)
		for i := range c.Bytes() {
			if c.Bytes()[i] = byte(r.Uint32()); zero {
				c.Bytes()[i] = map[tensor.DType]byte{tensor.U8: 128, tensor.I8: 0}[dt]
			}
		}
		return g.NewConst("w", c)
	}
	conv := r.IntN(2) == 0
	k := pick(1, 3, 4, 16, 70)
	shape := []int{pick(1, 2), k, pick(5, 8), 9}
	if !conv {
		shape = [][]int{{pick(1, 2, 17, 65), k}, {2, 3, k}}[r.IntN(2)]
	}
	x := g.NewInput("x", ir.Shaped(tensor.F32, shape...))
	q := node("DynamicQuantizeLinear", nil, 3, x)
	for range 1 + r.IntN(3) {
		m, dt, symmetric := pick(1, 3, 16, 66), []tensor.DType{tensor.U8, tensor.I8}[r.IntN(2)], r.IntN(2) == 0
		scales, zeros, bias := [][]int{{}, {1}, {m}, {1, m}}[r.IntN(4)], [][]int{{}, {m}}[r.IntN(2)], []int{m}
		kind, w, attrs := "MatMulInteger", []int{k, m}, map[string]any{}
		if conv {
			scales, zeros, bias = [][]int{{}, {1}, {m, 1, 1}, {1, m, 1, 1}}[r.IntN(4)], [][]int{{}, {1}, {m}}[r.IntN(3)], []int{1, m, 1, 1}
			kind, w = "ConvInteger", []int{m, k, 3, 2}
			attrs = map[string]any{"pads": []int{1, r.IntN(2), 1, 1}, "strides": []int{pick(1, 2), 1}}
		}
		in := []*ir.Value{q[0], octets(dt, false, w...), q[2]}
		if dt == tensor.U8 || r.IntN(2) == 0 {
			in = append(in, octets(dt, symmetric, zeros...))
		}
		y := node("Cast", map[string]any{"to": 1}, 1, node(kind, attrs, 1, in...)[0])[0]
		s := floats(0.01, scales...)
		mul := func(a, b *ir.Value) *ir.Value {
			if r.IntN(2) == 0 {
				a, b = b, a
			}
			return node("Mul", nil, 1, a, b)[0]
		}
		switch r.IntN(3) {
		case 0:
			y = mul(y, mul(q[1], s))
		case 1:
			y = mul(mul(y, q[1]), s)
		case 2:
			y = mul(mul(y, s), q[1])
		}
		if r.IntN(2) == 0 {
			y = node("Add", nil, 1, y, floats(1, bias...))[0]
		}
		g.Outputs = append(g.Outputs, y)
	}
	return g
}

// names are those of a graph's outputs.
func names(g *ir.Graph) (list []string) {
	for i := range g.Outputs {
		list = append(list, g.OutputName(i))
	}
	return list
}

func TestDynamicProductsComputeInIntegers(t *testing.T) {
	const seed = 12
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	ctx := context.Background()
	for i := range 200 {
		g := dynamicProducts(t, r)
		before := g.Clone()
		outputs := names(g)
		if n, err := quant.Products(g, true); err != nil || n != len(g.Outputs) {
			t.Fatalf("%d: %d products, %v in\n%s", i, n, err, before)
		}
		if err := g.Verify(); err != nil {
			t.Fatalf("%d: %v in\n%s", i, err, g)
		}
		if have := names(g); !slices.Equal(have, outputs) {
			t.Fatalf("%d: outputs %v, want %v", i, have, outputs)
		}
		if s := kinds(g); strings.Contains(s, "Integer") || strings.Contains(s, "DequantizeLinear") || strings.Count(s, "Dynamic") != 1 {
			t.Fatalf("%d: %s", i, s)
		}
		p, err := cpu.Device{}.Load(g, backend.Options{Threads: 1 + i%2})
		if err != nil {
			t.Fatal(err)
		}
		for run := range uint64(2) { // of other scales and zero points
			in := graphtest.Inputs(g, seed+run)
			for j := range in[0].F32s() {
				in[0].F32s()[j] += float32(run)
			}
			want, err := (&ref.Interpreter{}).Run(ctx, before, in)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := (&ref.Interpreter{}).Run(ctx, g, in)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]*tensor.Tensor, len(g.Outputs))
			if err := p.Run(ctx, in, got); err != nil {
				t.Fatal(err)
			}
			for k := range want {
				// Products of three floats may round otherwise in another order.
				if d := graphtest.Difference(want[k], plain[k]); d > 1e-6 {
					t.Errorf("%d: the operator's output %d differs by %v from\n%s", i, k, d, before)
				}
				if !got[k].Equal(plain[k]) {
					t.Errorf("%d: the kernel's output %d differs by %v in\n%s", i, k, graphtest.Difference(plain[k], got[k]), g)
				}
			}
		}
		p.Close()
		if t.Failed() {
			return
		}
	}
}

// What others read stays; what has other scales, or none, computes in integers and is scaled behind
// that.
func TestPartsOfDynamicProducts(t *testing.T) {
	const head = `graph "g"(%x: f32[2,4,5,5], %r: f32[2,4]) {
  %w: i8[4,2] = const {1, 2, 3, 4, 5, 6, -7, 8}
  %k: u8[4,2,1,1] = const {1, 2, 3, 4, 5, 6, 7, 80}
  %kk: u8[4,4,1,1] = const {1, 2, 3, 4, 5, 6, 7, 80, 1, 2, 3, 4, 5, 6, 7, 80}
  %kz: u8[] = const {7}
  %ws: f32[] = const {0.5}
  %cz: u8[] = const {100}
  %q: u8[2,4], %s: f32[], %z: u8[] = DynamicQuantizeLinear "q" (%r)
  %i: u8[2,4,5,5], %is: f32[], %iz: u8[] = DynamicQuantizeLinear "i" (%x)
`
	for _, c := range []struct{ name, text, want string }{
		{"sums that others read", `%p: i32[2,2] = MatMulInteger "p" (%q, %w, %z)
  %y: f32[2,2] = Cast "c" (%p) {to = 1}
  return %y, %p`, "MatMulInteger:i32 Cast:f32"},
		{"no scale of the weight", `%p: i32[2,2] = MatMulInteger "p" (%q, %w, %z)
  %c: f32[2,2] = Cast "c" (%p) {to = 1}
  %y: f32[2,2] = Mul "y" (%c, %s)
  return %y`, "MatMul:f32 Mul:f32"},
		{"no zero point", `%p: i32[2,2] = MatMulInteger "p" (%q, %w)
  %c: f32[2,2] = Cast "c" (%p) {to = 1}
  %a: f32[] = Mul "a" (%s, %ws)
  %y: f32[2,2] = Mul "y" (%c, %a)
  return %y`, "MatMul:f32 Mul:f32 Mul:f32"},
		{"scales of the rows of x", `%p: i32[2,2] = MatMulInteger "p" (%q, %w, %z)
  %c: f32[2,2] = Cast "c" (%p) {to = 1}
  %rs: f32[2,1] = const {1, 2}
  %y: f32[2,2] = Mul "y" (%c, %rs)
  return %y`, "MatMul:f32 Mul:f32"},
		{"a constant zero point beside one of the weight", `%p: i32[2,4,5,5] = ConvInteger "p" (%i, %kk, %cz, %kz)
  %y: f32[2,4,5,5] = Cast "c" (%p) {to = 1}
  return %y`, "ConvInteger:i32 Cast:f32"},
		{"groups", `%p: i32[2,4,5,5] = ConvInteger "p" (%i, %k, %iz, %kz) {group = 2}
  %c: f32[2,4,5,5] = Cast "c" (%p) {to = 1}
  %a: f32[] = Mul "a" (%is, %ws)
  %y: f32[2,4,5,5] = Mul "y" (%c, %a)
  return %y`, "DequantizeLinear:f32 DequantizeLinear:f32 Conv:f32 Mul:f32 Mul:f32"},
		{"three axes", `%v: i64[5] = const {2, 4, 1, 5, 5}
  %u: u8[2,4,1,5,5] = Reshape "u" (%i, %v)
  %k3: u8[2,4,1,1,1] = const {1, 2, 3, 4, 5, 6, 7, 80}
  %p: i32[2,2,1,5,5] = ConvInteger "p" (%u, %k3, %iz, %kz)
  %y: f32[2,2,1,5,5] = Cast "c" (%p) {to = 1}
  return %y`, "Reshape:u8 DequantizeLinear:f32 DequantizeLinear:f32 Conv:f32"},
	} {
		g := graphtest.Parse(t, head+"  "+c.text+"\n}")
		before := g.Clone()
		if _, err := quant.Products(g, true); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		fold.Dead(g)
		if have := strings.ReplaceAll(kinds(g), "DynamicQuantizeLinear:u8 ", ""); have != c.want {
			t.Errorf("%s: %s, want %s", c.name, have, c.want)
		}
		in := graphtest.Inputs(g, 3)
		want, err := (&ref.Interpreter{}).Run(t.Context(), before, in)
		if err != nil {
			t.Fatal(err)
		}
		have, err := (&ref.Interpreter{}).Run(t.Context(), g, in)
		if err != nil || !have[0].Equal(want[0]) {
			t.Errorf("%s: %v, %v, want %v", c.name, err, have[0].Float64s(), want[0].Float64s())
		}
	}
}
