package fit

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/passes/recon"
)

// attention has four heads of three channels, of whose values one weight with those of queries and keys makes
// [3,4,3] channels.
const attention = `graph "g"(%x: f32[n,3,6,6]) {
  WEIGHTS
  %tokens: i64[3] = const {0, 9, 12}
  %five: i64[5] = const {0, 9, 3, 4, 3}
  %join: i64[3] = const {0, 9, 12}
  %i0: i64[] = const {0}
  %i1: i64[] = const {1}
  %i2: i64[] = const {2}
  %mean: i64[1] = const {1}
  %t: f32[*] = Reshape "t" (%x, %tokens)
  %p: f32[*] = MatMul "p" (%t, %wp, %bp)
  %ph: f32[*] = Reshape "ph" (%p, %five)
  %pt: f32[*] = Transpose "pt" (%ph) {perm = [2, 0, 3, 1, 4]}
  %q: f32[*] = Gather "q" (%pt, %i0)
  %kg: f32[*] = Gather "kg" (%pt, %i1)
  %k: f32[*] = Transpose "k" (%kg) {perm = [0, 1, 3, 2]}
  %v: f32[*] = Gather "v" (%pt, %i2)
  %s: f32[*] = MatMul "scores" (%q, %k)
  %a: f32[*] = Softmax "soft" (%s)
  %m: f32[*] = MatMul "mix" (%a, %v)
  %mt: f32[*] = Transpose "mt" (%m) {perm = [0, 2, 1, 3]}
  %mj: f32[*] = Reshape "mj" (%mt, %join)
  %o: f32[*] = MatMul "o" (%mj, %wo, %bo)
  %r: f32[*] = Relu "r" (%o)
  %z: f32[*] = ReduceMean "mean" (%r, %mean) {keepdims = 0}
  %y: f32[*] = MatMul "last" (%z, %wl)
  return %y
}
`

var attentionShapes = map[string][]int{"wp": {12, 36}, "bp": {36}, "wo": {12, 12}, "bo": {12}, "wl": {12, 5}}

// fewer prunes half of the heads of attention.
func fewer(t *testing.T, change func(o *Options)) (dense, g *ir.Graph, r *Result) {
	t.Helper()
	t.Logf("seed %d", seed)
	o := options(t, "head", 0.5)
	o.Observer = observer(24)
	change(&o)
	dense = drawn(t, attention, attentionShapes)
	g = dense.Clone()
	r, err := Run(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	return dense, g, r
}

// leastSquares is the damped least squares problem, with a constant, of a weight w[K,M] and the rows of its inputs.
type leastSquares struct {
	c    *mat.Dense // [K,K]
	mean []float64
	w    *mat.Dense
}

func newLeastSquares(rows [][]float64, w *tensor.Tensor) *leastSquares {
	k, n := len(rows[0]), float64(len(rows))
	l := &leastSquares{c: mat.NewDense(k, k, nil), mean: make([]float64, k), w: mat.NewDense(k, w.Dim(1), w.Float64s())}
	for _, x := range rows {
		for i, v := range x {
			l.mean[i] += v / n
		}
	}
	for _, x := range rows {
		d := mat.NewVecDense(k, nil)
		for i, v := range x {
			d.SetVec(i, v-l.mean[i])
		}
		l.c.RankOne(l.c, 1, d, d)
	}
	damp := 0.01 * mat.Trace(l.c) / float64(k)
	for i := range k {
		l.c.Set(i, i, l.c.At(i, i)+damp)
	}
	return l
}

// solve returns the weights that are nearest w on the inputs that stay, and how far off they are.
func (l *leastSquares) solve(t *testing.T, stay []int) (v *mat.Dense, loss float64) {
	t.Helper()
	k, m := l.w.Dims()
	a, b, x := mat.NewDense(len(stay), len(stay), nil), mat.NewDense(len(stay), m, nil), new(mat.Dense)
	var cw mat.Dense
	cw.Mul(l.c, l.w)
	for i, p := range stay {
		for j, q := range stay {
			a.Set(i, j, l.c.At(p, q))
		}
		b.SetRow(i, cw.RawRowView(p))
	}
	if err := x.Solve(a, b); err != nil {
		t.Fatal(err)
	}
	v = mat.NewDense(k, m, nil)
	for i, p := range stay {
		v.SetRow(p, x.RawRowView(i))
	}
	var d, cd, e mat.Dense
	d.Sub(l.w, v)
	cd.Mul(l.c, &d)
	e.Mul(d.T(), &cd)
	return v, mat.Trace(&e)
}

// Every head that might go next is tried, by solving for all that stays, and the first two that cost least go. What reads them is the
// least squares solution, and the model is the dense one with these weights.
func TestHeadsGoByWhatTheOutputMisses(t *testing.T) {
	dense, g, r := fewer(t, func(*Options) {})
	var rows [][]float64
	for _, x := range seen(t, dense, "mj") {
		for i := 0; i < x.Len(); i += 12 {
			rows = append(rows, x.Float64s()[i:i+12])
		}
	}
	l := newLeastSquares(rows, constant(t, dense, "wo").Const)
	left := []int{0, 1, 2, 3}
	for range 2 {
		best, least := 0, math.Inf(1)
		for i := range left {
			if _, loss := l.solve(t, taps(slices.Delete(slices.Clone(left), i, i+1), 3)); loss < least {
				best, least = i, loss
			}
		}
		left = slices.Delete(left, best, best+1)
	}
	v, _ := l.solve(t, taps(left, 3))
	var biases []float32
	for part := range 3 {
		for _, c := range taps(left, 3) {
			biases = append(biases, constant(t, dense, "bp").Const.F32s()[part*12+c])
		}
	}
	if have := constant(t, g, "bp").Const.F32s(); !slices.Equal(have, biases) {
		t.Fatalf("biases %v are left, want heads %v, %v", have, left, biases)
	}
	want := dense.Clone()
	w, b := tensor.New(tensor.F32, 12, 12), constant(t, dense, "bo").Const.Clone()
	for c := range 12 {
		for m := range 12 {
			w.F32s()[c*12+m] = float32(v.At(c, m))
			b.F32s()[m] += float32(l.mean[c] * (l.w.At(c, m) - v.At(c, m)))
		}
	}
	constant(t, want, "wo").SetConst(w)
	constant(t, want, "bo").SetConst(b)
	if d := apartBy(t, want, g); d > 1e-8 {
		t.Errorf("a squared error of %v of the model with the solution, want about none", d)
	}
	if r.Prunable != (prune.Tally{Weights: 576, Zeros: 288}) || r.Judged != 24 {
		t.Errorf("%v of the weights are gone, judged on %d", r.Prunable, r.Judged)
	}
}

func TestHeadsGoByOtherMethods(t *testing.T) {
	_, plain, _ := fewer(t, func(o *Options) { o.Method, o.Uncorrected = Magnitude, true })
	for name, change := range map[string]func(o *Options){
		"auto":        func(o *Options) { o.Allocate = Auto },
		"curves":      func(o *Options) { o.Allocate = Curves },
		"wanda":       func(o *Options) { o.Method, o.Allocate = Wanda, Auto },
		"taylor":      func(o *Options) { o.Method = Taylor },
		"aim dense":   func(o *Options) { o.Aim = Outputs },
		"alps":        func(o *Options) { o.Method = ALPS },
		"reconstruct": func(o *Options) { o.Reconstruct = recon.Recipe{} },
	} {
		dense, g, r := fewer(t, change)
		if r.Prunable.Zeros != 288 || constant(t, g, "wo").Const.Len() != 72 {
			t.Errorf("%s: %v of the weights are gone, want half", name, r.Prunable)
		}
		if have, other := apartBy(t, dense, g), apartBy(t, dense, plain); have >= other {
			t.Errorf("%s: a squared error of %v, by magnitude %v", name, have, other)
		}
	}
}

func TestHeadsHaveNoMasks(t *testing.T) {
	o := options(t, "head", 0.5)
	o.Method = Gates
	if _, err := Run(context.Background(), drawn(t, attention, attentionShapes), o); err == nil || !strings.Contains(err.Error(), "head has no masks of weights") {
		t.Errorf("error %v, want one that says why gates are none for heads", err)
	}
}
