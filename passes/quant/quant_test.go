package quant_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/quant"
	"spc/tests/graphtest"
)

// observer runs graphs by the interpreter on the given inputs.
func observer(samples ...*tensor.Tensor) *calib.Observer {
	return &calib.Observer{
		Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
			return func(yield func([]*tensor.Tensor, error) bool) {
				for _, s := range samples {
					if !yield([]*tensor.Tensor{s}, nil) {
						return
					}
				}
			}
		},
		Run: graphtest.Run,
	}
}

// quantise runs what the pipeline does.
func quantise(t *testing.T, g *ir.Graph, o quant.Options) {
	t.Helper()
	if _, err := quant.Insert(context.Background(), g, o); err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatalf("inserted: %v in\n%s", err, g)
	}
	if _, err := quant.Products(g, true); err != nil {
		t.Fatal(err)
	}
	if _, err := quant.Fuse(g); err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatalf("%v in\n%s", err, g)
	}
}

func kinds(g *ir.Graph) string {
	var s []string
	for _, n := range g.Nodes {
		s = append(s, n.Op.Kind()+":"+n.Outputs[0].Type.DType.String())
	}
	return strings.Join(s, " ")
}

const chain = `graph "g"(%x: f32[1,2,4,4]) {
  %w1: f32[4,2,1,1] = const {1, -1, 0.5, 0.25, -0.5, 1, 0, 2}
  %w2: f32[4,4,1,1] = const {1, 0, 0, 0.5, -0.25, 1, 0, 0, 0.5, 0.5, 1, 0, 0, 0, -1, 1}
  %a: f32[1,4,4,4] = Conv "a" (%x, %w1) {spc_act = "Relu"}
  %p: f32[1,4,3,3] = MaxPool "p" (%a) {kernel_shape = [2, 2], strides = [1, 1]}
  %b: f32[1,4,3,3] = Conv "b" (%p, %w2)
  %c: f32[1,4,3,3] = Conv "c" (%p, %w2, _, %b) {spc_act = "Relu"}
  return %c
}`

func ramp(n int, shape ...int) *tensor.Tensor {
	t := tensor.New(tensor.F32, shape...)
	for i := range t.F32s() {
		t.F32s()[i] = float32(i)/float32(n) - 0.3
	}
	return t
}

func TestChainsOfProductsExchangeU8(t *testing.T) {
	g := graphtest.Parse(t, chain)
	float := g.Clone()
	x := ramp(32, 1, 2, 4, 4)
	quantise(t, g, quant.Options{Observer: observer(x)})
	want := "QuantizeLinear:u8 Conv:u8 MaxPool:u8 Conv:f32 Conv:f32"
	if got := kinds(g); got != want {
		t.Errorf("%s, want %s in\n%s", got, want, g)
	}
	it := &ref.Interpreter{}
	y, err := it.Run(context.Background(), g, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	z, err := it.Run(context.Background(), float, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range z[0].F32s() {
		if d := math.Abs(float64(v - y[0].F32s()[i])); d > 0.03 {
			t.Errorf("element %d is %v, want about %v", i, y[0].F32s()[i], v)
		}
	}
}

func TestWhatInsertWritesIsRecognised(t *testing.T) {
	for _, portable := range []bool{false, true} {
		g := graphtest.Parse(t, `graph "g"(%x: f32[2,3]) {
  %w: f32[3,2] = const {1, 2, 3, 4, 5, 6}
  %b: f32[2] = const {0.5, -0.5}
  %m: f32[2,2] = Gemm "m" (%x, %w, %b)
  %r: f32[2,2] = Relu "r" (%m)
  %v: f32[2,2] = const {1, 0, 0, 1}
  %y: f32[2,2] = MatMul "y" (%r, %v)
  return %y
}`)
		o := quant.Options{Observer: observer(ramp(6, 2, 3)), Portable: portable}
		if r, err := quant.Insert(context.Background(), g, o); err != nil || r.Products != 2 {
			t.Fatalf("%+v, %v, want 2 products", r, err)
		}
		bias := g.Nodes[len(g.Nodes)-1] // the Gemm's
		for _, n := range g.Nodes {
			if n.Name == "m" {
				bias = n
			}
		}
		if from := bias.Input(2).Def; (from != nil) != portable {
			t.Errorf("portable %v: the bias comes from %v", portable, from)
		}
		back := graphtest.Parse(t, ir.Print(g))
		if n, err := quant.Products(back, true); err != nil || n != 2 {
			t.Fatalf("recognised %d products, %v in\n%s", n, err, back)
		}
	}
}

func TestSignedActivationsBecomeUnsigned(t *testing.T) {
	const text = `graph "g"(%x: f32[2,2]) {
  %s: f32[] = const {0.1}
  %z: i8[] = const {3}
  %w: u8[2,2] = const {138, 128, 118, 129}
  %ws: f32[] = const {0.5}
  %wz: u8[] = const {128}
  %q: i8[2,2] = QuantizeLinear "q" (%x, %s, %z)
  %d: f32[2,2] = DequantizeLinear "d" (%q, %s, %z)
  %f: f32[2,2] = DequantizeLinear "f" (%w, %ws, %wz)
  %y: f32[2,2] = MatMul "y" (%d, %f)
  return %y
}`
	g := graphtest.Parse(t, text)
	old := g.Clone()
	if n, err := quant.Products(g, true); err != nil || n != 1 {
		t.Fatalf("%d products, %v", n, err)
	}
	if got, want := kinds(g), "QuantizeLinear:u8 MatMul:f32"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	x := tensor.From([]float32{-1, 2, 0.25, 30}, 2, 2)
	it := &ref.Interpreter{}
	y, err := it.Run(context.Background(), g, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	z, err := it.Run(context.Background(), old, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range z[0].F32s() {
		if math.Abs(float64(v-y[0].F32s()[i])) > 1e-5 {
			t.Errorf("element %d is %v, want %v", i, y[0].F32s()[i], v)
		}
	}
}

func TestOtherReadersKeepTheFloat(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1, 2, 3, 4}
  %a: f32[2,2] = MatMul "a" (%x, %w)
  %s: f32[2,2] = Sigmoid "s" (%a)
  %b: f32[2,2] = MatMul "b" (%a, %w)
  return %s, %b
}`)
	quantise(t, g, quant.Options{Observer: observer(ramp(4, 2, 2))})
	want := "QuantizeLinear:u8 MatMul:f32 QuantizeLinear:u8 Sigmoid:f32 MatMul:f32"
	if got := kinds(g); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestCalibrationRefusesWhatHasNoRange(t *testing.T) {
	nan := ramp(32, 1, 2, 4, 4)
	nan.F32s()[7] = float32(math.NaN())
	for name, o := range map[string]*calib.Observer{"sample 2: value x": observer(ramp(32, 1, 2, 4, 4), nan), "no calibration samples": observer()} {
		_, err := quant.Insert(context.Background(), graphtest.Parse(t, chain), quant.Options{Observer: o})
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one that says %q", err, name)
		}
	}
}

func TestConstantActivationsAreQuantised(t *testing.T) {
	const text = `graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1, -1, 0.5, 2}
  %a: f32[2,2] = Relu "a" (%x)
  %y: f32[2,2] = MatMul "y" (%a, %w)
  return %y
}`
	for _, c := range []float32{-1, 0, 3} {
		x := tensor.From([]float32{c, c, c, c}, 2, 2)
		for _, ranges := range []string{"minmax", "percentile", "mse"} {
			r, err := quant.ParseRanges(ranges)
			if err != nil {
				t.Fatal(err)
			}
			g := graphtest.Parse(t, text)
			quantise(t, g, quant.Options{Observer: observer(x, x), Ranges: r})
			y, err := (&ref.Interpreter{}).Run(context.Background(), g, []*tensor.Tensor{x})
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range y[0].F32s() {
				if want := max(c, 0) * []float32{1.5, 1}[i%2]; math.Abs(float64(got-want)) > 0.03 {
					t.Errorf("%s of %v: element %d is %v, want %v", ranges, c, i, got, want)
				}
			}
		}
	}
}

func TestBiasesMakeUpForRoundedWeights(t *testing.T) {
	// Rows whose small weights all round down, by 0.4 of a step, with inputs around 3.
	for name, text := range map[string]string{
		"Conv": `graph "g"(%x: f32[n,4,2,2]) {
  %w: f32[2,4,1,1] = const {1.27, 0.004, 0.004, 0.004, -1.27, 0.014, 0.014, 0.004}
  %y: f32[n,2,2,2] = Conv "y" (%x, %w)
  return %y
}`,
		"Gemm": `graph "g"(%x: f32[n,4]) {
  %w: f32[2,4] = const {1.27, 0.004, 0.004, 0.004, -1.27, 0.014, 0.014, 0.004}
  %b: f32[2] = const {0.5, -1}
  %y: f32[n,2] = Gemm "y" (%x, %w, %b) {transB = 1}
  return %y
}`,
		"MatMul": `graph "g"(%x: f32[n,3,4]) {
  %w: f32[4,2] = const {1.27, -1.27, 0.004, 0.014, 0.004, 0.014, 0.004, 0.004}
  %y: f32[n,3,2] = MatMul "y" (%x, %w)
  return %y
}`,
	} {
		g := graphtest.Parse(t, text)
		float := g.Clone()
		shape := []int{50}
		for _, d := range g.Inputs[0].Type.Dims[1:] {
			shape = append(shape, d.Size())
		}
		x := tensor.New(tensor.F32, shape...)
		for i := range x.F32s() {
			x.F32s()[i] = 3 + float32(i*7%11-5)/5
		}
		quantise(t, g, quant.Options{Observer: observer(x)})
		mean := func(g *ir.Graph) (m [2]float64) {
			y, err := (&ref.Interpreter{}).Run(context.Background(), g, []*tensor.Tensor{x})
			if err != nil {
				t.Fatal(err)
			}
			inner := 1
			if name == "Conv" {
				inner = 4
			}
			for i, v := range y[0].F32s() {
				m[i/inner%2] += float64(v) / float64(y[0].Len()/2)
			}
			return m
		}
		want, got := mean(float), mean(g)
		for r := range want {
			// Without biases they would be 0.036 apart.
			if d := math.Abs(got[r] - want[r]); d > 0.005 {
				t.Errorf("%s: the mean of row %d is %v, want %v", name, r, got[r], want[r])
			}
		}
	}
}

// What cannot be computed in integers is named, with the reason.
func TestWhatIsNotQuantisedIsNamed(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[2,2,2,2]) {
  %d: f32[2,1,1,1] = const {1.0, 2.0}
  %p: f32[2,2,1,1] = const {1.0, 2.0, 3.0, 4.0}
  %left: f32[2,2] = const {1.0, 0.0, 0.5, 2.0}
  %zero: f32[] = const {0.0}
  %inner: f32[2,2] = const {1.0, 0.0, 0.5, 2.0}
  %a: f32[2,2,2,2] = Conv "depth" (%x, %d) {group = 2}
  %b: f32[2,2,2,2] = Conv "point" (%a, %p)
  %c: f32[2,2,2,2] = MatMul "before" (%left, %b)
  %s: f32[] = ReduceSum "sum" (%c) {keepdims = 0}
  %k: bool[] = Greater "large" (%s, %zero)
  %y: f32[2,2,2,2] = If "if" (%k) {then_branch = graph "t"() {
    %t: f32[2,2,2,2] = MatMul "inside" (%c, %inner)
    return %t
  }, else_branch = graph "e"() {
    return %c
  }}
  return %y
}`)
	r, err := quant.Insert(t.Context(), g, quant.Options{Observer: observer(tensor.New(tensor.F32, 2, 2, 2, 2)), All: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range r.Kept {
		got = append(got, k.Node+": "+k.Why)
	}
	want := "depth: a product of 2 groups; before: the weight is on the left; inside: it lies in a subgraph"
	if s := strings.Join(got, "; "); s != want || r.Products != 1 {
		t.Errorf("%d products, not %s; want 1, not %s", r.Products, s, want)
	}
}

func TestScaledBiasesStayInFloatingPoint(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[2,2]) {
  %s: f32[] = const {0.02}
  %z: u8[] = const {128}
  %wi: i8[2,2] = const {1, 2, 3, 4}
  %ws: f32[] = const {0.5}
  %wz: i8[] = const {0}
  %b: f32[2] = const {1, 2}
  %q: u8[2,2] = QuantizeLinear "q" (%x, %s, %z)
  %d: f32[2,2] = DequantizeLinear "d" (%q, %s, %z)
  %w: f32[2,2] = DequantizeLinear "w" (%wi, %ws, %wz)
  %y: f32[2,2] = Gemm "y" (%d, %w, %b) {beta = 0.5}
  return %y
}`)
	before := ir.Print(g)
	if n, err := quant.Products(g, true); n != 0 || err != nil || ir.Print(g) != before {
		t.Errorf("%d products, %v in\n%s", n, err, ir.Print(g))
	}
}
