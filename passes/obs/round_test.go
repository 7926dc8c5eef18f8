package obs

import (
	"math"
	"testing"

	"spc/ir/tensor"
	"spc/passes/steps"
)

// outputError is the sum of squares of (W-V) x over inputs, in float64.
func outputError(w, v []float32, k int, x [][]float64) float64 {
	sum := 0.0
	for _, in := range x {
		for r := 0; r < len(w); r += k {
			y := 0.0
			for j, e := range in {
				y += (float64(w[r+j]) - float64(v[r+j])) * e
			}
			sum += y * y
		}
	}
	return sum
}

// TestRound follows the columns of each row with least squares of all that are left, solved anew after each.
func TestRound(t *testing.T) {
	rng := newRand(t, 61)
	for _, c := range []struct {
		bits, block, cols int
		own               bool // rows with zeros have factors of their own
	}{{4, 16, 20, true}, {4, 32, 70, true}, {4, 32, 70, false}, {8, 16, 33, true}, {4, 64, 40, false}} {
		l := randomLayer(rng, 3, c.cols)
		dropZeros(rng, l.W[c.cols:])
		s := solver(t, l)
		st := steps.Steps{Bits: c.bits, Block: c.block}.Of(l.W)
		o := rounding{factors: math.Inf(1)}
		if !c.own {
			o.factors = 0
		}
		r, err := s.round(t.Context(), st, o)
		if err != nil {
			t.Fatal(err)
		}
		for row := range l.Rows {
			var columns []int
			for i, w := range rowOf(s, row) {
				if w != 0 || !c.own {
					columns = append(columns, i)
				}
			}
			followRow(t, s, r, st, row, columns)
		}
		if loss, err := s.Loss(t.Context(), r.W); err != nil || loss != r.Loss {
			t.Errorf("loss %v, want %v, %v", r.Loss, loss, err)
		}
	}
}

// TestPolish leaves codes of which none is better changed alone, with an error that is never more, and less in most cases.
func TestPolish(t *testing.T) {
	rng := newRand(t, 63)
	better, cases := 0, 12
	for range cases {
		l := randomLayer(rng, 2, 20+rng.IntN(50))
		dropZeros(rng, l.W)
		s := solver(t, l)
		st := steps.Steps{Bits: 4, Block: 16}.Of(l.W)
		before, err := s.round(t.Context(), st, rounding{factors: math.Inf(1)})
		if err != nil {
			t.Fatal(err)
		}
		after, err := s.Round(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		if g := st.Grid(after.Scales, l.Rows); g.Check([]int{l.Rows, l.Cols}) != nil {
			t.Fatal(g)
		} else if _, ok := g.Encode(tensor.From(after.W, l.Rows, l.Cols)); !ok {
			t.Fatal("weights are none of the grid")
		}
		was, is := damps(t, s, before.W), damps(t, s, after.W)
		if is > was*(1+1e-6) {
			t.Fatalf("polishing made an error of %g %g", was, is)
		}
		if is < 0.999*was {
			better++
		}
		for i, w := range l.W {
			if w == 0 && after.W[i] != 0 {
				t.Fatalf("a zero became %v", after.W[i])
			}
		}
	}
	if better < cases/2 {
		t.Errorf("polishing was of use in %d of %d cases", better, cases)
	}
}

// followRow checks the columns of a row, those that make up for others.
func followRow(t *testing.T, s *Solver, r *Rounded, st steps.Steps, row int, columns []int) {
	t.Helper()
	k := s.Cols
	d := make([]float64, k) // what columns that are settled changed by
	for i, c := range columns {
		left := columns[i:]
		n := len(left)
		a, b := make([]float64, n*n), make([]float64, n)
		for p, x := range left {
			for q, y := range left {
				a[p*n+q] = s.at(x, y)
			}
			for _, j := range columns[:i] {
				b[p] -= s.at(x, j) * d[j]
			}
		}
		w, got, scale := float64(s.W[row*k+c]), float64(r.W[row*k+c]), float64(r.Scales[row*st.Blocks(k)+c/st.Block])
		at := w - solveDense(a, b)[0]
		between := math.Abs(math.Abs(got-at)-math.Abs(scale)/2) < 1e-4*math.Abs(scale)
		if w == 0 && got != 0 || w != 0 && math.Abs(got-st.Round(at, scale)) > 1e-6*math.Abs(scale) && !between {
			t.Fatalf("%+v: row %d column %d, once %v, is %v, want %v rounded to steps of %v", st, row, c, w, got, at, scale)
		}
		d[c] = w - got
	}
}

// On correlated inputs the outputs of what Round leaves are nearer than those of weights that are rounded by themselves, dense and with zeros.
func TestRoundLosesLess(t *testing.T) {
	rng := newRand(t, 62)
	const rows, cols = 24, 96
	x := inputs(rng, cols, 400)
	l := Layer{Name: "fc (MatMul)", Rows: rows, Cols: cols, W: weights(rng, rows*cols), H: gramOf(x)}
	s := solver(t, l)
	half := mustPrune(t, s, Options{Pattern: parse(t, "uniform"), Keep: cols / 2})
	for name, w := range map[string][]float32{"dense": l.W, "half": half.W} {
		most := map[string]float64{"dense": 0.4, "half": 0.75}[name]
		from, err := s.With(w)
		if err != nil {
			t.Fatal(err)
		}
		st := steps.Steps{Bits: 4, Block: 32}.Of(w)
		r, err := from.Round(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		shared, err := from.round(t.Context(), st, rounding{})
		if err != nil {
			t.Fatal(err)
		}
		nearest, _, err := st.Nearest(t.Context(), w, rows, cols, 1)
		if err != nil {
			t.Fatal(err)
		}
		before := outputError(l.W, w, cols, x)
		alone, together := outputError(l.W, nearest, cols, x)-before, outputError(l.W, r.W, cols, x)-before
		t.Logf("%s: %.4g before, %.4g more rounded alone, %.4g together, %.4g with one factor", name, before, alone, together, outputError(l.W, shared.W, cols, x)-before)
		if !(together < most*alone) {
			t.Errorf("%s: rounded together the outputs are %.4g away, alone %.4g", name, together, alone)
		}
	}
}
