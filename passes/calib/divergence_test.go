package calib_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// diverge is the divergence of a model with one output of a type on one sample.
func diverge(t *testing.T, typ string, want, got *tensor.Tensor) float64 {
	t.Helper()
	d := calib.NewDivergence(graphtest.Parse(t, `graph "g"(%x: `+typ+`) { return %x }`))
	if err := d.Add([]*tensor.Tensor{want}, []*tensor.Tensor{got}); err != nil {
		t.Fatal(err)
	}
	return d.Value()
}

func TestDivergenceOfScores(t *testing.T) {
	inf := float32(math.Inf(1))
	log := func(p float64) float32 { return float32(math.Log(p)) }
	// Rows (1/2, 1/4, 1/4) and (1/4, 1/4, 1/2), as logits with any offset.
	logits := tensor.From([]float32{log(2), 0, 0, 5, 5, 5 + log(2)}, 2, 3)
	other := tensor.From([]float32{0, 0, log(2), 0, 0, log(2)}, 2, 3)
	want := 0.5 * (0.5*math.Log(2) - 0.25*math.Log(2)) // the second row is the same
	if got := diverge(t, "f32[n,3]", logits, other); math.Abs(got-want) > 1e-6 {
		t.Errorf("logits diverge by %g, want %g", got, want)
	}
	if got := diverge(t, "f32[n,3,1,1]", logits.Reshape(2, 3, 1, 1), other.Reshape(2, 3, 1, 1)); math.Abs(got-want) > 1e-6 {
		t.Errorf("logits of images diverge by %g, want %g", got, want)
	}
	p := tensor.From([]float32{0.5, 0.25, 0.25, 0.25, 0.25, 0.5}, 2, 3)
	q := tensor.From([]float32{0.25, 0.25, 0.5, 0.25, 0.25, 0.5}, 2, 3)
	if got := diverge(t, "f32[n,3]", p, q); math.Abs(got-want) > 1e-6 {
		t.Errorf("probabilities diverge by %g, want %g", got, want)
	}
	if got := diverge(t, "f32[n,3]", p, p); got != 0 {
		t.Errorf("equal probabilities diverge by %g", got)
	}
	masked := tensor.From([]float32{0, -inf, 0}, 1, 3)
	if got := diverge(t, "f32[n,3]", masked, masked); got != 0 {
		t.Errorf("equal logits, one masked, diverge by %g", got)
	}
}

func TestDivergenceOfValues(t *testing.T) {
	want := tensor.From([]float32{1, 3, 1, 3}, 1, 2, 2) // variance 1
	got := tensor.From([]float32{1, 3.5, 1, 3}, 1, 2, 2)
	if d := diverge(t, "f32[n,2,2]", want, got); math.Abs(d-0.25/4) > 1e-7 {
		t.Errorf("values diverge by %g, want %g", d, 0.25/4)
	}
	same := tensor.From([]float32{2, 2, 2, 2}, 1, 2, 2)
	if d := diverge(t, "f32[n,2,2]", same, want); math.Abs(d-0.25) > 1e-7 {
		t.Errorf("a constant output diverges by %g, want %g", d, 0.25)
	}
	if d := diverge(t, "f32[n,2,2]", want, same.Reshape(1, 4, 1)); d == 0 {
		t.Error("outputs that differ do not diverge")
	}
	nan := tensor.From([]float32{1, 3, 1, float32(math.NaN())}, 1, 2, 2)
	if d := diverge(t, "f32[n,2,2]", want, nan); !math.IsInf(d, 1) {
		t.Errorf("NaN diverges by %g, want infinity", d)
	}
	d := calib.NewDivergence(graphtest.Parse(t, `graph "g"(%x: f32[n,2,2]) { return %x }`))
	err := d.Add([]*tensor.Tensor{nan}, []*tensor.Tensor{want})
	if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "output x: element NaN") {
		t.Errorf("error %v, want one about the NaN", err)
	}
}

func TestDivergenceIsThatOfTheWorstOutput(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%a: f32[n,2,2], %b: i64[n], %c: f32[n,2,2]) { return %a, %b, %c }`)
	d := calib.NewDivergence(g)
	x := tensor.From([]float32{1, 3, 1, 3}, 1, 2, 2)
	y := tensor.From([]float32{2, 3, 1, 3}, 1, 2, 2)
	i, j := tensor.From([]int64{1}, 1), tensor.From([]int64{2}, 1)
	if err := d.Add([]*tensor.Tensor{x, i, x}, []*tensor.Tensor{x, j, y}); err != nil || !d.Counts() {
		t.Fatal(err, d.Counts())
	}
	if got := d.Value(); math.Abs(got-0.25) > 1e-7 {
		t.Errorf("%g, want %g", got, 0.25)
	}
	if calib.NewDivergence(graphtest.Parse(t, `graph "g"(%b: i64[n]) { return %b }`)).Counts() {
		t.Error("integers count")
	}
	tokens := calib.NewDivergence(graphtest.Parse(t, `graph "g"(%i: i64[n,s], %l: f32[n,s,2]) { return %l }`))
	l, m := tensor.From([]float32{0, 0}, 1, 1, 2), tensor.From([]float32{7, 7}, 1, 1, 2)
	if err := tokens.Add([]*tensor.Tensor{l}, []*tensor.Tensor{m}); err != nil {
		t.Fatal(err)
	}
	if got := tokens.Value(); got != 0 {
		t.Errorf("logits of tokens that are the same up to an offset diverge by %g", got)
	}
}
