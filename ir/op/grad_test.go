package op

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// plainGemm is GradContext.Gemm by its definition.
func plainGemm(tA, tB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	for i := range m {
		for j := range n {
			s := 0.0
			for p := range k {
				x, y := i*lda+p, p*ldb+j
				if tA {
					x = p*lda + i
				}
				if tB {
					y = j*ldb + p
				}
				s += float64(a[x]) * float64(b[y])
			}
			s *= float64(alpha)
			if beta != 0 {
				s += float64(beta) * float64(c[i*ldc+j])
			}
			c[i*ldc+j] = float32(s)
		}
	}
}

// gradCase is an operator with attributes, the shapes of its f32 inputs and the
// integer ones behind them. Gradients by those in fixed are not asked for.
type gradCase struct {
	op     string // text of the operator with its attributes
	shapes string // such as 2,3 3; - for an absent input
	ints   [][]int
	outs   int
	fixed  []int
	lo, hi float64 // where elements are drawn; standard normal where both are 0
}

var gradCases = []gradCase{
	{op: `Conv {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}`, shapes: "2,3,5,6 4,3,3,3 4"},
	{op: `Conv {kernel_shape = [1, 1]}`, shapes: "2,5,3,4 6,5,1,1 6"},
	{op: `Conv {kernel_shape = [1, 1], strides = [2, 2]}`, shapes: "1,5,5,4 6,5,1,1"},
	{op: `Conv {kernel_shape = [3, 2], strides = [2, 3], dilations = [2, 1], pads = [1, 0, 2, 1], group = 2}`, shapes: "2,4,7,8 6,2,3,2 6"},
	{op: `Conv {kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 4}`, shapes: "2,4,6,7 4,1,3,3 4"},
	{op: `Conv {kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 1, 1], group = 3}`, shapes: "1,3,8,7 3,1,3,3 3"},
	{op: `Conv {kernel_shape = [3, 3], pads = [2, 3, 3, 2], group = 3}`, shapes: "1,3,2,1 3,1,3,3"},
	{op: `Conv {kernel_shape = [5, 5], pads = [2, 2, 2, 2], strides = [1, 2], group = 2}`, shapes: "1,2,6,7 4,1,5,5 4"},
	{op: `Conv {kernel_shape = [3, 3], dilations = [2, 2], pads = [2, 2, 2, 2], group = 2}`, shapes: "1,2,6,7 2,1,3,3"},
	{op: `Conv {auto_pad = "SAME_UPPER", strides = [2, 2]}`, shapes: "1,2,5,6 3,2,3,3"},
	{op: `Conv {kernel_shape = [4], pads = [1, 2]}`, shapes: "2,3,9 2,3,4 2"},
	{op: `Conv {kernel_shape = [2, 3, 2], pads = [0, 1, 1, 1, 1, 0]}`, shapes: "1,2,3,4,3 2,2,2,3,2"},
	{op: `Conv {kernel_shape = [2, 3, 3], pads = [0, 1, 1, 1, 1, 1], group = 2}`, shapes: "1,2,3,4,5 2,1,2,3,3"},
	{op: `ConvTranspose {kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 1], output_padding = [1, 0]}`, shapes: "2,3,4,3 3,2,3,3 2"},
	{op: `ConvTranspose {kernel_shape = [2, 2], strides = [2, 2], group = 3}`, shapes: "1,3,3,4 3,1,2,2 3"},
	{op: `ConvTranspose {kernel_shape = [1, 1]}`, shapes: "1,3,3,4 3,2,1,1 2"},
	{op: `MatMul`, shapes: "2,3,4 4,5 5"},
	{op: `MatMul`, shapes: "2,3,4 2,4,5"},
	{op: `MatMul`, shapes: "3,1,3,4 2,4,2"},
	{op: `MatMul`, shapes: "3,4 2,4,2"},
	{op: `MatMul`, shapes: "4 4,3"},
	{op: `MatMul`, shapes: "2,3,4 4"},
	{op: `Gemm {alpha = 0.5, beta = 2.0}`, shapes: "3,4 4,5 5"},
	{op: `Gemm {transA = 1}`, shapes: "4,3 4,5 3,1"},
	{op: `Gemm {transB = 1}`, shapes: "3,4 5,4 1,5"},
	{op: `Gemm {transA = 1, transB = 1, alpha = -2.0}`, shapes: "4,3 5,4"},
	{op: `Add`, shapes: "2,3,4 3,1"},
	{op: `Add {axis = 1}`, shapes: "2,3,4 3"},
	{op: `Sub`, shapes: "4 2,3,4"},
	{op: `Mul`, shapes: "2,1,4 3,1"},
	{op: `Mul`, shapes: "2,3,4 1"},
	{op: `Div`, shapes: "2,3,4 3,1", lo: 0.5, hi: 2},
	{op: `Div`, shapes: "1 2,3", lo: 0.5, hi: 2},
	{op: `PRelu`, shapes: "2,3,4 3,1"},
	{op: `Max`, shapes: "2,3 3 2,1"},
	{op: `Min`, shapes: "2,3 2,3"},
	{op: `Sum`, shapes: "2,3 3 2,1"},
	{op: `Mean`, shapes: "2,3 3"},
	{op: `Pow`, shapes: "3,4 1", fixed: []int{1}, lo: 0.5, hi: 2},
	{op: `Abs`, shapes: "3,4"},
	{op: `Acos`, shapes: "3,4", lo: -0.9, hi: 0.9},
	{op: `Acosh`, shapes: "3,4", lo: 1.2, hi: 3},
	{op: `Asin`, shapes: "3,4", lo: -0.9, hi: 0.9},
	{op: `Asinh`, shapes: "3,4"},
	{op: `Atan`, shapes: "3,4"},
	{op: `Atanh`, shapes: "3,4", lo: -0.9, hi: 0.9},
	{op: `Cos`, shapes: "3,4"},
	{op: `Cosh`, shapes: "3,4"},
	{op: `Erf`, shapes: "3,4"},
	{op: `Exp`, shapes: "3,4"},
	{op: `HardSwish`, shapes: "6,8", lo: -5, hi: 5},
	{op: `Log`, shapes: "3,4", lo: 0.2, hi: 3},
	{op: `Mish`, shapes: "3,4"},
	{op: `Neg`, shapes: "3,4"},
	{op: `Reciprocal`, shapes: "3,4", lo: 0.3, hi: 3},
	{op: `Relu`, shapes: "5,4"},
	{op: `Sigmoid`, shapes: "3,4"},
	{op: `Sin`, shapes: "3,4"},
	{op: `Sinh`, shapes: "3,4"},
	{op: `Softplus`, shapes: "3,4"},
	{op: `Softsign`, shapes: "3,4"},
	{op: `Sqrt`, shapes: "3,4", lo: 0.3, hi: 3},
	{op: `Tan`, shapes: "3,4", lo: -1, hi: 1},
	{op: `Tanh`, shapes: "3,4"},
	{op: `Celu {alpha = 0.7}`, shapes: "3,4"},
	{op: `Elu {alpha = 0.7}`, shapes: "3,4"},
	{op: `Gelu`, shapes: "3,4"},
	{op: `Gelu {approximate = "tanh"}`, shapes: "3,4"},
	{op: `HardSigmoid`, shapes: "6,8", lo: -5, hi: 5},
	{op: `LeakyRelu {alpha = 0.3}`, shapes: "3,4"},
	{op: `Selu`, shapes: "3,4"},
	{op: `Swish {alpha = 1.5}`, shapes: "3,4"},
	{op: `ThresholdedRelu {alpha = 0.5}`, shapes: "3,4"},
	{op: `Clip`, shapes: "4,5", ints: [][]int{{-1}, {1}}},
	{op: `Where`, shapes: "2,3 3", ints: [][]int{{1, 0}}},
	{op: `Identity`, shapes: "2,3"},
	{op: `Dropout`, shapes: "2,3"},
	{op: `Cast {to = 1}`, shapes: "2,3"},
	{op: `CastLike`, shapes: "2,3 1", fixed: []int{1}},
	{op: `Softmax {axis = -1}`, shapes: "2,3,4"},
	{op: `Softmax {axis = 1}`, shapes: "2,3,4"},
	{op: `Softmax {axis = 1, coerce_2d = 1}`, shapes: "2,3,4"},
	{op: `LogSoftmax {axis = 1}`, shapes: "2,3,4"},
	{op: `ReduceMean`, shapes: "2,3,4", ints: [][]int{{-1}}},
	{op: `ReduceMean {keepdims = 0}`, shapes: "2,3,4", ints: [][]int{{1}}},
	{op: `ReduceSum {keepdims = 0}`, shapes: "2,3,4"},
	{op: `ReduceSum`, shapes: "2,3,4", ints: [][]int{{0, 2}}},
	{op: `ReduceL1`, shapes: "2,3,4", ints: [][]int{{2}}},
	{op: `ReduceL2`, shapes: "2,3,4", ints: [][]int{{2}}},
	{op: `ReduceLogSum`, shapes: "2,3,4", ints: [][]int{{2}}, lo: 0.3, hi: 2},
	{op: `ReduceLogSumExp`, shapes: "2,3,4", ints: [][]int{{2}}},
	{op: `ReduceSumSquare {keepdims = 0}`, shapes: "2,3,4", ints: [][]int{{0}}},
	{op: `MaxPool {kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]}`, shapes: "2,2,6,5"},
	{op: `MaxPool {kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1}`, shapes: "1,2,6,8"},
	{op: `AveragePool {kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]}`, shapes: "2,2,6,5"},
	{op: `AveragePool {kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], count_include_pad = 1}`, shapes: "2,2,6,5"},
	{op: `GlobalAveragePool`, shapes: "2,3,4,5"},
	{op: `GlobalMaxPool`, shapes: "2,3,4,5"},
	{op: `Concat {axis = 1}`, shapes: "2,3,4 2,1,4 2,2,4"},
	{op: `Split {axis = 1}`, shapes: "2,6,3", ints: [][]int{{1, 2, 3}}, outs: 3},
	{op: `Slice`, shapes: "4,5,6", ints: [][]int{{1, -1}, {4, -7}, {0, 2}, {2, -2}}},
	{op: `Transpose {perm = [2, 0, 1]}`, shapes: "2,3,4"},
	{op: `Transpose`, shapes: "2,3"},
	{op: `Reshape`, shapes: "2,6", ints: [][]int{{3, -1}}},
	{op: `Flatten {axis = 2}`, shapes: "2,3,4"},
	{op: `Squeeze`, shapes: "2,1,4", ints: [][]int{{1}}},
	{op: `Unsqueeze`, shapes: "2,4", ints: [][]int{{1}}},
	{op: `Expand`, shapes: "3,1", ints: [][]int{{2, 3, 4}}},
	{op: `Gather {axis = 1}`, shapes: "2,4,3", ints: [][]int{{2, 0, -2, 2}}},
	{op: `Gather`, shapes: "5,3", ints: [][]int{{4, 4}}},
	{op: `Pad`, shapes: "3,4", ints: [][]int{{1, -1, 0, 2}}},
	{op: `BatchNormalization`, shapes: "2,3,4 3 3 3 3", lo: 0.3, hi: 2},
	{op: `BatchNormalization {spatial = 0}`, shapes: "4,3 3 3 3 3", lo: 0.3, hi: 2},
	{op: `LayerNormalization`, shapes: "2,3,5 5 5"},
	{op: `LayerNormalization {axis = 1}`, shapes: "2,3,4 1,3,1 4"},
	{op: `LayerNormalization`, shapes: "2,3,4 3,4 2,1,4"},
	{op: `RMSNormalization`, shapes: "2,3,5 5"},
	{op: `RMSNormalization`, shapes: "2,3,4 3,1"},
	{op: `RMSNormalization {axis = 1, epsilon = 0.1}`, shapes: "2,3,4 3,4"},
}

// build returns the node of a case for a type of floats, with its inputs.
func (gc *gradCase) build(t *testing.T, dt tensor.DType, x [][]float64) (*ir.Node, []*tensor.Tensor) {
	t.Helper()
	var in []*tensor.Tensor
	for i, s := range strings.Fields(gc.shapes) {
		var shape []int
		for _, d := range strings.Split(s, ",") {
			n := 0
			fmt.Sscan(d, &n)
			shape = append(shape, n)
		}
		in = append(in, tensor.FromFloat64s(dt, x[i], shape...))
	}
	for i, v := range gc.ints {
		switch k := tensor.Ints(v...); {
		case strings.HasPrefix(gc.op, "Clip"):
			in = append(in, tensor.FromFloat64s(dt, []float64{float64(v[0])}))
		case strings.HasPrefix(gc.op, "Where"):
			in = append([]*tensor.Tensor{k.To(tensor.Bool).Reshape(2, 1)}, in...)
		case strings.HasPrefix(gc.op, "Pad") && i == 1:
			in = append(in, tensor.Scalar(float64(v[0])).To(dt))
		default:
			in = append(in, k)
		}
	}
	kind, attrs, _ := strings.Cut(gc.op, " ")
	if kind == "Cast" {
		attrs = fmt.Sprintf("{to = %d}", dt)
	}
	var params, args, outs []string
	for i, v := range in {
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(v.Shape()), "[]"), " ", ",")
		params = append(params, fmt.Sprintf("%%x%d: %v[%s]", i, v.DType(), shape))
		args = append(args, fmt.Sprintf("%%x%d", i))
	}
	for i := range max(1, gc.outs) {
		outs = append(outs, fmt.Sprintf("%%y%d: %v[*]", i, dt))
	}
	text := fmt.Sprintf("graph \"g\"(%s) {\n  %s = %s \"n\" (%s) %s\n  return %%y0\n}\n",
		strings.Join(params, ", "), strings.Join(outs, ", "), kind, strings.Join(args, ", "), attrs)
	g, err := ir.Parse(text, Registry)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if _, err := g.Nodes[0].InferFor(in); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return g.Nodes[0], in
}

func TestGradientsAreThoseOfFiniteDifferences(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	for _, gc := range gradCases {
		t.Run(gc.op+" "+gc.shapes, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			draw := func() float64 {
				if gc.lo != gc.hi {
					return gc.lo + (gc.hi-gc.lo)*r.Float64()
				}
				return r.NormFloat64()
			}
			var x [][]float64
			for _, s := range strings.Fields(gc.shapes) {
				n := 1
				for _, d := range strings.Split(s, ",") {
					k := 0
					fmt.Sscan(d, &k)
					n *= k
				}
				v := make([]float64, n)
				for i := range v {
					v[i] = float64(float32(draw()))
				}
				x = append(x, v)
			}
			n, in := gc.build(t, tensor.F32, x)
			d := n.Op.(Differentiable)
			c := &GradContext{Kernels: Kernels{Gemm: plainGemm}, Wants: make([]bool, len(in))}
			for i, v := range in {
				c.Wants[i] = v.DType() == tensor.F32 && i < len(x)+first(gc.op)
			}
			for _, i := range gc.fixed {
				c.Wants[i] = false
			}
			e := &ir.Eval{Outputs: len(n.Outputs)}
			out, err := d.Eval(e, in)
			if err != nil {
				t.Fatal(err)
			}
			dirty(c)
			if f, ok := d.(Forward); ok {
				quick, err := f.Forward(c, in)
				if err != nil {
					t.Fatal(err)
				}
				for i, y := range quick {
					if !y.Fits(out[i]) {
						t.Fatalf("Forward gives %v, Eval %v", y, out[i])
					}
					if k := apart(y.Float64s(), out[i].Float64s(), 1e-5); k >= 0 {
						t.Fatalf("element %d of output %d is %v from Forward, %v from Eval", k, i, y.F32s()[k], out[i].F32s()[k])
					}
				}
			}
			dout := make([]*tensor.Tensor, len(n.Outputs))
			for i := range n.Outputs {
				g := make([]float64, out[i].Len())
				for k := range g {
					g[k] = float64(float32(r.NormFloat64()))
				}
				dout[i] = tensor.FromFloat64s(tensor.F32, g, out[i].Shape()...)
			}
			before := make([]*tensor.Tensor, len(dout))
			for i, g := range dout {
				before[i] = g.Clone()
			}
			din, err := d.Grad(c, in, out, dout)
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range dout {
				if !g.Equal(before[i]) {
					t.Errorf("the gradient by output %d was written to", i)
				}
			}
			if len(din) != len(in) {
				t.Fatalf("%d gradients for %d inputs", len(din), len(in))
			}
			wide, win := gc.build(t, tensor.F64, x)
			loss := func() (s float64) {
				y, err := wide.Op.Eval(e, win)
				if err != nil {
					t.Fatal(err)
				}
				for i, g := range dout {
					for k, v := range y[i].Float64s() {
						s += v * float64(g.F32s()[k])
					}
				}
				return s
			}
			for i := range in {
				if !c.Wants[i] {
					if din[i] != nil {
						t.Errorf("a gradient by input %d, which is not wanted", i)
					}
					continue
				}
				if !din[i].Fits(in[i]) {
					t.Fatalf("the gradient by input %d is %v, want %v", i, din[i], in[i])
				}
				v := tensor.Data[float64](win[i])
				want := make([]float64, len(v))
				for k := range v {
					const h = 1e-5
					at := v[k]
					v[k] = at + h
					up := loss()
					v[k] = at - h
					want[k] = (up - loss()) / (2 * h)
					v[k] = at
				}
				if k := apart(din[i].Float64s(), want, 1e-4); k >= 0 {
					t.Fatalf("element %d of the gradient by input %d is %v, want %v", k, i, din[i].F32s()[k], want[k])
				}
			}
			for i := range dout {
				dout[i] = nil
			}
			if din, err = d.Grad(c, in, out, dout); err != nil {
				t.Fatal(err)
			}
			for _, g := range din {
				if g != nil && apart(g.Float64s(), make([]float64, g.Len()), 0) >= 0 {
					t.Errorf("a gradient of %v where that by the output is zero", g.F32s())
				}
			}
		})
	}
}

// first is the number of inputs before the floats.
func first(op string) int {
	if strings.HasPrefix(op, "Where") {
		return 1
	}
	return 0
}

// dirty fills a context's memory with numbers that nobody should read.
func dirty(c *GradContext) {
	for i := range c.Floats(slabSize) {
		c.slabs[0][i] = float32(math.NaN())
	}
	c.Reset()
}

// apart returns the first element that differs from the one wanted by more than the
// tolerance, of the largest one where that is above 1; -1 where there is none.
func apart(have, want []float64, tolerance float64) int {
	scale := 1.0
	for _, v := range want {
		scale = max(scale, math.Abs(v))
	}
	for i, v := range want {
		if !(math.Abs(have[i]-v) <= tolerance*scale) {
			return i
		}
	}
	return -1
}

func TestEveryDifferentiableOperatorHasACase(t *testing.T) {
	tested := map[string]bool{}
	for _, gc := range gradCases {
		kind, _, _ := strings.Cut(gc.op, " ")
		tested[kind] = true
	}
	for _, d := range Table {
		o, err := New(d.Kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := o.(Differentiable); !ok || tested[d.Kind] {
			continue
		}
		x := tensor.From([]float32{0.5, 0.25}, 1, 2)
		c := &GradContext{Kernels: Kernels{Gemm: plainGemm}, Wants: []bool{true}}
		if _, err := o.(Differentiable).Grad(c, []*tensor.Tensor{x, x}, []*tensor.Tensor{x}, []*tensor.Tensor{x}); !errors.Is(err, ir.ErrUnsupported) {
			t.Errorf("%s has a gradient (error %v) and no case", d.Kind, err)
		}
	}
}

func TestGradOfTheWrongInputIsUnsupported(t *testing.T) {
	x := tensor.From([]float32{1, 2}, 2)
	c := &GradContext{Kernels: Kernels{Gemm: plainGemm}, Wants: []bool{true, true}}
	for _, o := range []Differentiable{&Pow{}, &Clip{}, &Conv{Epilogue: Epilogue{Act: "Relu"}}} {
		if _, err := o.Grad(c, []*tensor.Tensor{x, x}, []*tensor.Tensor{x}, []*tensor.Tensor{x}); !errors.Is(err, ir.ErrUnsupported) {
			t.Errorf("%s: error %v, want one that is unsupported", o.Kind(), err)
		}
	}
}

func TestExp32IsExp(t *testing.T) {
	for x := float32(-87); x < 89; x += 0.00390625 {
		if want := math.Exp(float64(x)); !(math.Abs(float64(exp32(x))-want) <= 3e-7*want) && want < math.MaxFloat32 {
			t.Fatalf("exp32(%v) = %v, want %v", x, exp32(x), want)
		}
	}
	if v := exp32(float32(math.Inf(-1))); v != 0 {
		t.Errorf("exp32(-Inf) = %v", v)
	}
	if v := exp32(float32(math.NaN())); v == v {
		t.Errorf("exp32(NaN) = %v", v)
	}
}

func TestContextMemoryIsTakenAgainAfterReset(t *testing.T) {
	var c GradContext
	a := c.Floats(100)
	big := c.Floats(3 * slabSize)
	b := c.Floats(100)
	if len(a) != 100 || len(big) != 3*slabSize || &a[0] == &b[0] {
		t.Fatal("memory is shared or short")
	}
	release := c.scratch()
	d := &c.Floats(10)[0]
	release()
	if e := &c.Floats(10)[0]; e != d {
		t.Error("released memory is not taken again")
	}
	c.Reset()
	if f := c.Floats(100); &f[0] != &a[0] || len(c.slabs) != 3 {
		t.Errorf("%d slabs, want the first of 3", len(c.slabs))
	}
}
