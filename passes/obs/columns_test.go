package obs

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// damped returns the least of tr((W-V) H' (W-V)^T) over the V without some columns, H' being
// the damped Gram matrix, and that V, by the normal equations.
func damped(t *testing.T, l *Layer, gone []int) (loss float64, v []float64) {
	t.Helper()
	k := l.Cols
	h := mat.NewDense(k, k, slices.Clone(l.H))
	for i := range k {
		h.Set(i, i, h.At(i, i)+l.Damp*mat.Trace(mat.NewDense(k, k, l.H))/float64(k))
	}
	var stay []int
	for c := range k {
		if !slices.Contains(gone, c) {
			stay = append(stay, c)
		}
	}
	a := mat.NewDense(len(stay), len(stay), nil)
	for i, p := range stay {
		for j, q := range stay {
			a.Set(i, j, h.At(p, q))
		}
	}
	v = make([]float64, len(l.W))
	for r := range l.Rows {
		w := mat.NewVecDense(k, nil)
		for c := range k {
			w.SetVec(c, float64(l.W[r*k+c]))
		}
		var hw mat.VecDense
		hw.MulVec(h, w)
		b := mat.NewVecDense(len(stay), nil)
		for i, p := range stay {
			b.SetVec(i, hw.AtVec(p))
		}
		var x mat.VecDense
		if err := x.SolveVec(a, b); err != nil {
			t.Fatal(err)
		}
		for i, p := range stay {
			v[r*k+p] = x.AtVec(i)
			w.SetVec(p, w.AtVec(p)-x.AtVec(i))
		}
		hw.MulVec(h, w)
		loss += mat.Dot(w, &hw)
	}
	return loss, v
}

func TestColumnsLoseWhatLeastSquaresLoses(t *testing.T) {
	rng := newRand(t, 5)
	for _, workers := range []int{1, 3} {
		l := randomLayer(rng, 7, 24)
		s, err := New(bg, l, workers)
		if err != nil {
			t.Fatal(err)
		}
		c := s.Columns()
		var gone []int
		before := 0.0
		for _, set := range [][]int{{3, 4, 5}, {0}, {23, 7, 11, 12, 13}, {1, 2}} {
			have := c.Loss(set)
			gone = append(gone, set...)
			want, v := damped(t, &l, gone)
			if math.Abs(have-(want-before)) > 1e-8*want {
				t.Errorf("without %v a loss of %v more, want %v", gone, have, want-before)
			}
			before = want
			pristine := c.Clone()
			if err := c.Remove(bg, set); err != nil {
				t.Fatal(err)
			}
			for i, w := range c.Weights() {
				if math.Abs(float64(w)-v[i]) > 1e-5 {
					t.Fatalf("without %v weight %d is %v, want %v", gone, i, w, v[i])
				}
			}
			if again := pristine.Loss(set); again != have {
				t.Errorf("a copy's loss is %v, was %v before the other one changed", again, have)
			}
		}
	}
}

func TestTheSecondOfTwoEqualColumnsIsMissed(t *testing.T) {
	rng := newRand(t, 6)
	x := inputs(rng, 8, 300)
	for _, v := range x {
		v[5] = 2 * v[1]
	}
	l := Layer{Name: "test (MatMul)", Rows: 4, Cols: 8, W: weights(rng, 32), H: gramOf(x), Damp: 1e-6}
	c := solver(t, l).Columns()
	alone := c.Loss([]int{1})
	if err := c.Remove(bg, []int{5}); err != nil {
		t.Fatal(err)
	}
	if after := c.Loss([]int{1}); after < 100*alone {
		t.Errorf("a loss of %v, with its double of %v, want much more", after, alone)
	}
	for r := range l.Rows {
		want := float64(l.W[r*8+1]) + 2*float64(l.W[r*8+5])
		if have := float64(c.Weights()[r*8+1]); math.Abs(have-want) > 1e-3*math.Abs(want) {
			t.Errorf("row %d: the weight is %v, want %v as of both", r, have, want)
		}
	}
}
