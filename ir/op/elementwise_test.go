package op

import (
	"errors"
	"math"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// eval runs the only node of a graph text on inputs and checks its outputs'
// types against those inferred.
func eval(t *testing.T, text string, in ...*tensor.Tensor) ([]*tensor.Tensor, error) {
	t.Helper()
	g, err := ir.Parse(text, Registry)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := g.Infer(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	n := g.Nodes[0]
	types, err := n.InferFor(in)
	if err != nil {
		return nil, err
	}
	out, err := n.Op.Eval(&ir.Eval{Outputs: len(n.Outputs)}, in)
	for i, y := range out {
		shape, ok := types[i].Shape()
		if y.DType() != types[i].DType || ok && !ir.TypeOf(y).Equal(ir.Shaped(y.DType(), shape...)) {
			t.Errorf("output %d is %v, but %v is inferred", i, y, types[i])
		}
	}
	return out, err
}

// inferError infers a graph and returns the error.
func inferError(t *testing.T, text string) error {
	t.Helper()
	g, err := ir.Parse(text, lenient{})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return g.Infer()
}

// lenient is the Registry for tests of what operators make of nodes that Parse and
// the importer refuse.
type lenient struct{ registry }

func (lenient) Check(*ir.Node) error { return nil }

// unary1 is the text of a graph of one node with one input of dtype[n].
func unary1(dt tensor.DType, kind string) string {
	return "graph \"g\"(%x: " + dt.String() + "[n]) {\n  %y: " + dt.String() + "[n] = " + kind + " \"node\" (%x)\n  return %y\n}\n"
}

func TestIntegerElementwiseEdges(t *testing.T) {
	for _, c := range []struct {
		kind string
		a, b []int64
		dt   tensor.DType
		want []int64
	}{
		{"Div", []int64{-7, 7, 7, math.MinInt64}, []int64{2, -2, 0, -1}, tensor.I64, []int64{-3, -3, 0, math.MinInt64}},
		{"Div", []int64{-128, 100}, []int64{-1, 7}, tensor.I8, []int64{-128, 14}},
		{"Div", []int64{-1, 10}, []int64{2, 0}, tensor.U64, []int64{math.MaxInt64, 0}},
		{"Mod", []int64{-7, 7, -7, 3}, []int64{3, -3, -3, 0}, tensor.I64, []int64{2, -2, -1, 0}},
		{`Mod {fmod = 1}`, []int64{-7, 7, -7, 3}, []int64{3, -3, -3, 0}, tensor.I32, []int64{-1, 1, -1, 0}},
		{"Add", []int64{200, 100}, []int64{100, 27}, tensor.U8, []int64{44, 127}},
		{"Pow", []int64{2, -1, -1, 3, 0, 5}, []int64{10, -3, -2, -1, 0, 1}, tensor.I64, []int64{1024, -1, 1, 0, 1, 5}},
		{`BitShift {direction = "LEFT"}`, []int64{255, 1, 1}, []int64{1, 7, 200}, tensor.U8, []int64{254, 128, 0}},
		{`BitShift {direction = "RIGHT"}`, []int64{-1, 4, 4}, []int64{63, 64, 1}, tensor.U64, []int64{1, 0, 2}},
		{"Max", []int64{-1, 5}, []int64{1, 6}, tensor.U64, []int64{-1, 6}},
		{"PRelu", []int64{-3, 3}, []int64{2, 2}, tensor.I32, []int64{-6, 3}},
	} {
		kind, attrs, _ := strings.Cut(c.kind, " ")
		text := "graph \"g\"(%a: " + c.dt.String() + "[n], %b: " + c.dt.String() + "[n]) {\n  %y: " + c.dt.String() + "[n] = " +
			kind + " \"node\" (%a, %b) " + attrs + "\n  return %y\n}\n"
		a, b := tensor.FromInt64s(c.dt, c.a, len(c.a)), tensor.FromInt64s(c.dt, c.b, len(c.b))
		out, err := eval(t, text, a, b)
		if err != nil {
			t.Errorf("%s: %v", c.kind, err)
			continue
		}
		if want := tensor.FromInt64s(c.dt, c.want, len(c.want)); !out[0].Equal(want) {
			t.Errorf("%s of %v and %v (%v) is %v, want %v", c.kind, c.a, c.b, c.dt, out[0].Int64s(), c.want)
		}
	}
}

func TestBroadcastingAgreesWithExpand(t *testing.T) {
	shapes := [][2][]int{
		{{2, 3, 4}, {4}}, {{2, 3, 4}, {3, 1}}, {{2, 1, 4}, {1, 3, 1}}, {{1}, {2, 2}}, {{}, {3}}, {{2, 3}, {2, 3}},
		{{0, 3}, {1, 3}}, {{2, 1, 1, 5}, {3, 4, 1}}, {{}, {}}, {{3, 1, 2, 1}, {1, 4, 2, 5}},
	}
	for _, s := range shapes {
		a, b := ramp(s[0]), ramp(s[1])
		got := binaryFuncs["Sub"].zip(a, b)
		shape := broadcastShapes(s[0], s[1])
		x, y := a.Expand(shape...).F32s(), b.Expand(shape...).F32s()
		want := tensor.New(tensor.F32, shape...)
		for i := range want.F32s() {
			want.F32s()[i] = x[i] - y[i]
		}
		if !got.Equal(want) {
			t.Errorf("%v - %v: %v, want %v", s[0], s[1], got.F32s(), want.F32s())
		}
		cond := compareFuncs["Greater"].zip(a, tensor.Scalar[float32](2))
		out, err := new(Where).Eval(nil, []*tensor.Tensor{cond, a, b})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range out[0].F32s() {
			w := y[i]
			if x[i] > 2 {
				w = x[i]
			}
			if v != w {
				t.Errorf("Where of %v and %v: element %d is %v, want %v", s[0], s[1], i, v, w)
			}
		}
	}
}

// ramp returns an f32 tensor of 1, 2, 3 and so on.
func ramp(shape []int) *tensor.Tensor {
	x := tensor.New(tensor.F32, shape...)
	for i := range x.F32s() {
		x.F32s()[i] = float32(i + 1)
	}
	return x
}

func TestLegacyAxisAlignsTheSecondInput(t *testing.T) {
	text := `graph "g"(%a: f32[2,3,4], %b: f32[3]) {
  %y: f32[2,3,4] = Add "node" (%a, %b) {axis = 1}
  return %y
}
`
	a, b := tensor.New(tensor.F32, 2, 3, 4), ramp([]int{3})
	out, err := eval(t, text, a, b)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range out[0].F32s() {
		if want := float32(i/4%3 + 1); v != want {
			t.Errorf("element %d is %v, want %v", i, v, want)
		}
	}
	err = inferError(t, strings.ReplaceAll(text, "axis = 1", "axis = 3"))
	if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "node (Add)") {
		t.Errorf("axis 3: %v", err)
	}
}

func TestElementsAreTracked(t *testing.T) {
	text := `graph "g"(%s: i64[2]) {
  %two: i64[] = const {2}
  %sum: i64[2] = Add "add" (%s, %s)
  %half: i64[2] = Div "div" (%sum, %two)
  %none: i64[2] = Sub "sub" (%half, %s)
  %minus: i64[] = const {-1}
  %eq: bool[2] = Equal "equal" (%s, %minus)
  %pick: i64[2] = Where "where" (%eq, %none, %sum)
  %big: i64[2] = Max "max" (%pick, %s)
  %narrow: i32[2] = Cast "cast" (%big) {to = 6}
  return %narrow
}
`
	g, err := ir.Parse(text, Registry)
	if err != nil {
		t.Fatal(err)
	}
	g.Inputs[0].Elems = []ir.Dim{ir.Sym("batch"), ir.Size(3)}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	elems := g.Outputs[0].Elems
	want := []ir.Dim{ir.Mul(ir.Size(2), ir.Sym("batch")), ir.Size(6)}
	if len(elems) != 2 || elems[1] != want[1] {
		t.Errorf("elements are %v, want %v", elems, want)
	}
	for i, v := range g.Nodes[2].Outputs[0].Elems {
		if v != ir.Size(0) {
			t.Errorf("element %d of a difference of equals is %v", i, v)
		}
	}
	if e := g.Nodes[4].Outputs[0].Elems; e[0] != want[0] {
		t.Errorf("Where picked %v, want %v", e, want)
	}
}

// A symbol may be zero, and then x/x is not one.
func TestElementsAreNotDividedBySymbols(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%s: i64[2]) {
  %one: i64[2] = Div "div" (%s, %s)
  return %one
}
`, Registry)
	if err != nil {
		t.Fatal(err)
	}
	g.Inputs[0].Elems = []ir.Dim{ir.Sym("batch"), ir.Size(3)}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	if e := g.Outputs[0].Elems; len(e) == 2 && e[0].Known() {
		t.Errorf("batch/batch is %v", e[0])
	}
}

func TestUnaryOnEdges(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		kind    string
		in, out []float64
	}{
		{"Sigmoid", []float64{-1000, 0, 1000}, []float64{0, 0.5, 1}},
		{"Softplus", []float64{-1000, 0, 1000}, []float64{0, math.Ln2, 1000}},
		{"Round", []float64{0.5, 1.5, -2.5, -0.4}, []float64{0, 2, -2, 0}},
		{"Sign", []float64{-inf, 0, 3}, []float64{-1, 0, 1}},
		{"Gelu", []float64{-50, 0, 30}, []float64{0, 0, 30}},
		{"Celu", []float64{-1e30, 2}, []float64{-1, 2}},
		{"HardSwish", []float64{-4, 0, 4}, []float64{0, 0, 4}},
		{"Selu", []float64{0, 1}, []float64{0, 1.05070102214813232421875}},
		{"Relu", []float64{-1, 2}, []float64{0, 2}},
	} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16} {
			x := tensor.FromFloat64s(dt, c.in, len(c.in))
			out, err := eval(t, unary1(dt, c.kind), x)
			if err != nil {
				t.Error(err)
				continue
			}
			want := tensor.FromFloat64s(dt, c.out, len(c.out)).Float64s()
			for i, v := range out[0].Float64s() {
				if math.Abs(v-want[i]) > 1e-6*math.Abs(want[i]) {
					t.Errorf("%s(%v) is %v, want %v (%v)", c.kind, c.in[i], v, want[i], dt)
				}
			}
		}
	}
}

func TestElementwiseRefusals(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{unary1(tensor.Bool, "Abs"), "node (Abs): inputs of type bool"},
		{unary1(tensor.U8, "Neg"), "inputs of type u8"},
		{unary1(tensor.F8E5M2, "Exp"), "inputs of type f8e5m2"},
		{unary1(tensor.I32, "Exp"), "inputs of type i32"},
		{unary1(tensor.String, "Not"), "want bool"},
		{unary1(tensor.I64, "IsNaN"), "inputs of type i64"},
		{`graph "g"(%a: f32[2], %b: f64[2]) {
  %y: f32[2] = Mul "node" (%a, %b)
  return %y
}
`, "input 1 is f64, want f32"},
		{`graph "g"(%a: f32[2], %b: f32[3]) {
  %y: f32[2] = Mul "node" (%a, %b)
  return %y
}
`, "do not broadcast"},
		{`graph "g"(%a: f32[2], %b: f32[2]) {
  %y: f32[2] = Clip "node" (%a, %b)
  return %y
}
`, "want a scalar"},
		{`graph "g"(%a: bool[2], %b: f32[2], %c: i64[2]) {
  %y: f32[2] = Where "node" (%a, %b, %c)
  return %y
}
`, "input 2 is i64, want f32"},
		{`graph "g"(%a: c64[2]) {
  %y: f32[2] = Cast "node" (%a) {to = 1}
  return %y
}
`, "want real numbers"},
		{`graph "g"(%a: f32[2]) {
  %y: i64[2] = BitCast "node" (%a) {to = 7}
  return %y
}
`, "same width"},
	} {
		err := inferError(t, c.text)
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one that says %q", err, c.want)
		}
	}
}

func TestCastStrings(t *testing.T) {
	text := `graph "g"(%x: string[n]) {
  %y: f32[n] = Cast "node" (%x) {to = 1}
  return %y
}
`
	out, err := eval(t, text, tensor.FromStrings([]string{"1.5", " -2e3 ", "INF", "-inf", "NaN"}, 5))
	if err != nil {
		t.Fatal(err)
	}
	inf := float32(math.Inf(1))
	for i, want := range []float32{1.5, -2000, inf, -inf} {
		if v := out[0].F32s()[i]; v != want {
			t.Errorf("element %d is %v, want %v", i, v, want)
		}
	}
	if _, err := eval(t, text, tensor.FromStrings([]string{"twelve"}, 1)); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("a word: %v", err)
	}
	if got := texts(tensor.From([]float32{0.1, 1e10, -inf, 314.15926}, 4)); strings.Join(got, " ") != "0.1 10000000000 -INF 314.15927" {
		t.Errorf("texts %q", got)
	}
	if got := texts(tensor.From([]uint64{math.MaxUint64}, 1))[0]; got != "18446744073709551615" {
		t.Errorf("text %q", got)
	}
}
