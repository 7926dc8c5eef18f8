package op

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// brute joins the elements of x along axes one output element at a time.
func brute(x *tensor.Tensor, axes []int, f func([]float64) float64) []float64 {
	groups := map[int][]float64{}
	kept := 1
	for i, v := range x.Float64s() {
		key, k := 0, 1
		for a := x.Rank() - 1; a >= 0; a-- {
			if d := x.Dim(a); !slices.Contains(axes, a) {
				key += i % d * k
				k *= d
				i /= d
			} else {
				i /= d
			}
		}
		kept = k
		groups[key] = append(groups[key], v)
	}
	out := make([]float64, kept)
	for i := range out {
		out[i] = f(groups[i])
	}
	return out
}

func TestReduceAgreesWithDefinition(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	fold := func(start float64, f func(a, v float64) float64) func([]float64) float64 {
		return func(x []float64) float64 {
			a := start
			for _, v := range x {
				a = f(a, v)
			}
			return a
		}
	}
	sum := fold(0, func(a, v float64) float64 { return a + v })
	square := fold(0, func(a, v float64) float64 { return a + v*v })
	exp := fold(0, func(a, v float64) float64 { return a + math.Exp(v) })
	defs := map[string]func([]float64) float64{
		"ReduceL1":        fold(0, func(a, v float64) float64 { return a + math.Abs(v) }),
		"ReduceL2":        func(x []float64) float64 { return math.Sqrt(square(x)) },
		"ReduceLogSum":    func(x []float64) float64 { return math.Log(sum(x)) },
		"ReduceLogSumExp": func(x []float64) float64 { return math.Log(exp(x)) },
		"ReduceMax":       fold(math.Inf(-1), math.Max),
		"ReduceMean":      func(x []float64) float64 { return sum(x) / float64(len(x)) },
		"ReduceMin":       fold(math.Inf(1), math.Min),
		"ReduceProd":      fold(1, func(a, v float64) float64 { return a * v }),
		"ReduceSum":       sum,
		"ReduceSumSquare": square,
	}
	for kind := range reduceFuncs {
		for _, axes := range [][]int{{}, {0}, {1}, {-1}, {0, 2}, {3, 1}, {0, 1, 2, 3}} {
			for _, dt := range []tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16} {
				shape := []int{1 + r.IntN(3), 1 + r.IntN(4), 1 + r.IntN(3), 1 + r.IntN(4)}
				v := make([]float64, product(shape))
				for i := range v {
					v[i] = 0.5 + r.Float64()
				}
				x := tensor.FromFloat64s(dt, v, shape...)
				text := fmt.Sprintf("graph \"g\"(%%x: %v[a,b,c,d], %%axes: i64[n]) {\n  %%y: %v[?1,?2,?3,?4] = %s \"node\" (%%x, %%axes)\n  return %%y\n}\n", dt, dt, kind)
				out, err := eval(t, text, x, tensor.Ints(axes...))
				if err != nil {
					t.Fatal(err)
				}
				positive := axes
				if len(axes) == 0 {
					positive = allAxes(4)
				}
				positive, _ = axesOf(positive, 4)
				want := tensor.FromFloat64s(dt, brute(x, positive, defs[kind]), out[0].Len()).Float64s()
				eps := map[tensor.DType]float64{tensor.F32: 1e-6, tensor.F64: 1e-14, tensor.F16: 2e-3, tensor.BF16: 1e-2}[dt]
				for i, got := range out[0].Float64s() {
					if math.Abs(got-want[i]) > eps*(1+math.Abs(want[i])) {
						t.Errorf("%s of %v over %v: element %d is %v, want %v", kind, x, axes, i, got, want[i])
					}
				}
			}
		}
	}
}

func TestReduceOfNothing(t *testing.T) {
	inf := math.Inf(1)
	for kind, want := range map[string]float64{
		"ReduceL1": 0, "ReduceL2": 0, "ReduceLogSum": -inf, "ReduceLogSumExp": -inf, "ReduceMax": -inf, "ReduceMin": inf,
		"ReduceProd": 1, "ReduceSum": 0, "ReduceSumSquare": 0,
	} {
		o, _ := New(kind)
		out, err := o.Eval(nil, []*tensor.Tensor{tensor.New(tensor.F32, 2, 0), tensor.Ints(1)})
		if err != nil || !out[0].Equal(tensor.From([]float32{float32(want), float32(want)}, 2, 1)) {
			t.Errorf("%s of nothing: %v, %v", kind, out, err)
		}
	}
	for dt, want := range map[tensor.DType][2]int64{
		tensor.I8: {-128, 127}, tensor.U16: {0, 65535}, tensor.I64: {math.MinInt64, math.MaxInt64}, tensor.U64: {0, -1},
	} {
		for i, kind := range []string{"ReduceMax", "ReduceMin"} {
			o, _ := New(kind)
			out, err := o.Eval(nil, []*tensor.Tensor{tensor.New(dt, 0), nil})
			if err != nil || out[0].Int64s()[0] != want[i] {
				t.Errorf("%s of no %v: %v, %v", kind, dt, out, err)
			}
		}
	}
}

func TestReduceTracksSizes(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%s: i64[3]) {
  %n: i64[1] = ReduceProd "prod" (%s)
  %m: i64[1] = ReduceSum "sum" (%s)
  return %n, %m
}
`, Registry)
	if err != nil {
		t.Fatal(err)
	}
	g.Inputs[0].Elems = []ir.Dim{ir.Size(2), ir.Sym("n"), ir.Size(5)}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	if got, want := g.Outputs[0].Elems[0], ir.Mul(ir.Size(10), ir.Sym("n")); got != want {
		t.Errorf("product %v, want %v", got, want)
	}
	if got, want := g.Outputs[1].Elems[0], ir.Add(ir.Sym("n"), 7); got != want {
		t.Errorf("sum %v, want %v", got, want)
	}
}

// evalOp evaluates an operator whose attributes are set by f.
func evalOp(t *testing.T, kind string, attrs map[string]any, in ...*tensor.Tensor) ([]*tensor.Tensor, error) {
	t.Helper()
	o, err := New(kind)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range attrs {
		if err := ir.SetAttr(o, k, v); err != nil {
			t.Fatal(err)
		}
	}
	g := ir.NewGraph("g")
	var values []*ir.Value
	for _, x := range in {
		if x == nil {
			values = append(values, nil)
		} else {
			values = append(values, g.NewConst("", x))
		}
	}
	d := Lookup(kind)
	outs := d.Out[1]
	n := g.NewNode("node", o, values, make([]string, outs)...)
	if err := n.Infer(); err != nil {
		return nil, err
	}
	out, err := o.Eval(&ir.Eval{Outputs: outs}, in)
	if err != nil {
		return nil, err
	}
	for i, y := range out {
		want := n.Outputs[i].Type
		if y.DType() != want.DType || want.Ranked && y.Rank() != len(want.Dims) {
			t.Errorf("%s: output %d is %v, but %v is inferred", kind, i, y, want)
			continue
		}
		for k, d := range want.Dims {
			if d.Known() && d.Size() != y.Dim(k) {
				t.Errorf("%s: output %d is %v, but %v is inferred", kind, i, y, want)
			}
		}
	}
	return out, nil
}

// ONNX Runtime takes a scalar for a list of one in these operators.
func TestScalarsStandForListsOfOne(t *testing.T) {
	x := tensor.FromFloat64s(tensor.F32, []float64{1, 2, 3, 4}, 4)
	for _, c := range []struct {
		kind string
		in   func(size *tensor.Tensor) []*tensor.Tensor
		size int64
	}{
		{"Expand", func(s *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{x, s} }, 1},
		{"CenterCropPad", func(s *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{x, s} }, 6},
		{"Resize", func(s *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{x, nil, nil, s} }, 8},
	} {
		got, err := evalOp(t, c.kind, nil, c.in(tensor.Scalar(c.size))...)
		if err != nil {
			t.Errorf("%s: %v", c.kind, err)
			continue
		}
		want, err := evalOp(t, c.kind, nil, c.in(tensor.Ints(int(c.size)))...)
		if err != nil || !got[0].Equal(want[0]) {
			t.Errorf("%s: %v, with a list of one %v (%v)", c.kind, got, want, err)
		}
	}
}

func TestArgOnTiesAndNaN(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		kind string
		last int
		in   []float32
		want int64
	}{
		{"ArgMax", 0, []float32{1, 3, 3, 2}, 1}, {"ArgMax", 1, []float32{1, 3, 3, 2}, 2},
		{"ArgMin", 0, []float32{2, 1, 1}, 1}, {"ArgMin", 1, []float32{2, 1, 1}, 2},
		{"ArgMax", 0, []float32{1, nan, 5, nan}, 1}, {"ArgMin", 1, []float32{nan, 1, nan, 5}, 2},
	} {
		out, err := evalOp(t, c.kind, map[string]any{"select_last_index": c.last}, tensor.From(c.in, len(c.in)))
		if err != nil || out[0].Int64s()[0] != c.want {
			t.Errorf("%s of %v: %v, %v, want %d", c.kind, c.in, out, err, c.want)
		}
	}
	if _, err := evalOp(t, "ArgMax", nil, tensor.New(tensor.F32, 0, 2)); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("ArgMax along an empty axis: %v", err)
	}
}

func TestCumulateAlongInnerAxis(t *testing.T) {
	x := ramp([]int{2, 3, 2})
	out, err := evalOp(t, "CumSum", map[string]any{"exclusive": 1, "reverse": 1}, x, tensor.Scalar(int64(-2)))
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{8, 10, 5, 6, 0, 0, 20, 22, 11, 12, 0, 0}
	if !slices.Equal(out[0].F32s(), want) {
		t.Errorf("%v, want %v", out[0].F32s(), want)
	}
	if x.F32s()[0] != 1 {
		t.Error("the input was overwritten")
	}
	prod, err := evalOp(t, "CumProd", nil, tensor.From([]int32{2, 3, 4}, 3), tensor.Scalar(int32(0)))
	if err != nil || !slices.Equal(prod[0].Int64s(), []int64{2, 6, 24}) {
		t.Errorf("%v, %v", prod, err)
	}
}

func TestTopKAndUniqueOnNaN(t *testing.T) {
	nan := float32(math.NaN())
	x := tensor.From([]float32{1, nan, 3, nan, 3, -1}, 6)
	out, err := evalOp(t, "TopK", nil, x, tensor.Ints(4))
	if err != nil || !slices.Equal(out[1].Ints(), []int{1, 3, 2, 4}) {
		t.Errorf("%v, %v", out, err)
	}
	out, err = evalOp(t, "Unique", nil, x)
	if err != nil || !slices.Equal(out[1].Ints(), []int{5, 0, 2, 1}) || !slices.Equal(out[3].Ints(), []int{1, 1, 2, 2}) {
		t.Errorf("%v, %v", out, err)
	}
	if _, err := evalOp(t, "TopK", nil, x, tensor.Ints(7)); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("k of 7 from 6: %v", err)
	}
	s, err := evalOp(t, "Unique", map[string]any{"sorted": 0, "axis": -1}, tensor.FromStrings([]string{"b", "a", "b", "c", "d", "c"}, 2, 3))
	if err != nil || strings.Join(s[0].Strings(), "") != "bacd" || !slices.Equal(s[2].Ints(), []int{0, 1, 0}) {
		t.Errorf("%v, %v", s, err)
	}
}

func TestRangeLengths(t *testing.T) {
	for _, c := range []struct{ start, limit, delta, n int64 }{
		{0, 10, 3, 4}, {10, 4, -2, 3}, {10, 6, -3, 2}, {5, 5, 1, 0}, {5, 1, 1, 0}, {math.MaxInt64 - 1, math.MaxInt64, 1, 1},
	} {
		out, err := evalOp(t, "Range", nil, tensor.Scalar(c.start), tensor.Scalar(c.limit), tensor.Scalar(c.delta))
		if err != nil || int64(out[0].Len()) != c.n {
			t.Errorf("%v: %v, %v", c, out, err)
		}
	}
	for _, c := range [][3]int64{{0, 1, 0}, {math.MinInt64, math.MaxInt64, 1}, {0, 1 << 40, 1}} {
		if _, err := evalOp(t, "Range", nil, tensor.Scalar(c[0]), tensor.Scalar(c[1]), tensor.Scalar(c[2])); !errors.Is(err, ir.ErrInvalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := evalOp(t, "Range", nil, tensor.Scalar(0.0), tensor.Scalar(math.Inf(1)), tensor.Scalar(1.0)); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("an infinite range: %v", err)
	}
	g, err := ir.Parse(`graph "g"(%n: i64[]) {
  %zero: i64[] = const {0}
  %one: i64[] = const {1}
  %y: i64[seq] = Range "node" (%zero, %n, %one)
  return %y
}
`, Registry)
	if err != nil {
		t.Fatal(err)
	}
	g.Inputs[0].Elems = []ir.Dim{ir.Sym("seq")}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	if d := g.Outputs[0].Type.Dims[0]; d != ir.Sym("seq") {
		t.Errorf("length %v, want seq", d)
	}
}

func TestHostileSizesAreRefused(t *testing.T) {
	huge := tensor.Ints(1<<40, 1<<40)
	for name, f := range map[string]func() error{
		"ConstantOfShape": func() error { _, err := evalOp(t, "ConstantOfShape", nil, huge); return err },
		"negative":        func() error { _, err := evalOp(t, "ConstantOfShape", nil, tensor.Ints(-1)); return err },
		"OneHot": func() error {
			_, err := evalOp(t, "OneHot", nil, tensor.Ints(1), tensor.Scalar(int64(1)<<50), tensor.Ints(0, 1))
			return err
		},
		"HannWindow": func() error { _, err := evalOp(t, "HannWindow", nil, tensor.Scalar(int64(1)<<50)); return err },
		"DFT": func() error {
			_, err := evalOp(t, "DFT", nil, ramp([]int{1, 4, 1}), tensor.Scalar(int64(1)<<50))
			return err
		},
	} {
		if err := f(); !errors.Is(err, ir.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSeededNumbersRepeat(t *testing.T) {
	for kind, attrs := range map[string]map[string]any{
		"RandomNormal":  {"shape": []int{1000}, "seed": float32(3), "mean": float32(2)},
		"RandomUniform": {"shape": []int{1000}, "seed": float32(3), "low": float32(1), "high": float32(3)},
	} {
		a, err := evalOp(t, kind, attrs)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := evalOp(t, kind, attrs)
		if !a[0].Equal(b[0]) {
			t.Errorf("%s gives other numbers for the same seed", kind)
		}
		if mean := sumRow(a[0].F32s()) / 1000; math.Abs(mean-2) > 0.15 {
			t.Errorf("%s: mean %v, want about 2", kind, mean)
		}
		attrs["seed"] = float32(4)
		if c, _ := evalOp(t, kind, attrs); c[0].Equal(a[0]) {
			t.Errorf("%s gives the same numbers for another seed", kind)
		}
	}
	x := tensor.From([]float32{float32(math.Inf(-1)), 0, float32(math.Log(3))}, 1, 3)
	out, err := evalOp(t, "Multinomial", map[string]any{"sample_size": 4000, "seed": float32(1)}, x)
	if err != nil {
		t.Fatal(err)
	}
	var count [3]int
	for _, k := range out[0].Ints() {
		count[k]++
	}
	if count[0] != 0 || count[1] < 850 || count[1] > 1150 {
		t.Errorf("counts %v, want about 0, 1000, 3000", count)
	}
}

func TestDFTInvertsItself(t *testing.T) {
	x := ramp([]int{2, 6, 3, 2})
	for _, axis := range []int64{0, 1, -2} {
		f, err := evalOp(t, "DFT", nil, x, nil, tensor.Scalar(axis))
		if err != nil {
			t.Fatal(err)
		}
		b, err := evalOp(t, "DFT", map[string]any{"inverse": 1}, f[0], nil, tensor.Scalar(axis))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range b[0].F32s() {
			if math.Abs(float64(v-x.F32s()[i])) > 1e-4 {
				t.Errorf("axis %d: element %d is %v, want %v", axis, i, v, x.F32s()[i])
			}
		}
	}
}

func TestEinsumOfThree(t *testing.T) {
	a, b, c := ramp([]int{2, 3}), ramp([]int{3, 4}), ramp([]int{4, 2})
	out, err := evalOp(t, "Einsum", map[string]any{"equation": "ij,jk,ki->"}, a, b, c)
	if err != nil {
		t.Fatal(err)
	}
	want := float32(0)
	for i := range 2 {
		for j := range 3 {
			for k := range 4 {
				want += a.F32s()[i*3+j] * b.F32s()[j*4+k] * c.F32s()[k*2+i]
			}
		}
	}
	if out[0].F32s()[0] != want {
		t.Errorf("%v, want %v", out[0].F32s(), want)
	}
	for _, eq := range []string{"ij->ijk", "ij,jk->ik", "i->i", "ij->ii", "i1->i", "ij->k"} {
		if _, err := evalOp(t, "Einsum", map[string]any{"equation": eq}, a); !errors.Is(err, ir.ErrInvalid) {
			t.Errorf("%s: %v", eq, err)
		}
	}
	if _, err := evalOp(t, "Einsum", map[string]any{"equation": "ij,jk"}, a, a); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("unequal axes: %v", err)
	}
}

func TestEinsumOverNothing(t *testing.T) {
	a, b := tensor.New(tensor.F32, 2, 0), tensor.New(tensor.F32, 0, 3)
	for eq, want := range map[string]*tensor.Tensor{"ij,jk->ik": tensor.New(tensor.F32, 2, 3), "ij,jk->i": tensor.New(tensor.F32, 2), "ij,jk->": tensor.New(tensor.F32)} {
		out, err := evalOp(t, "Einsum", map[string]any{"equation": eq}, a, b)
		if err != nil || !out[0].Equal(want) {
			t.Errorf("%s: %v, %v, want zeros", eq, out, err)
		}
	}
}
