package fit

import (
	"context"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"spc/ir"
	"spc/passes/prune"
)

// hidden has one layer whose channels may go, and one that reads them.
const hidden = `graph "g"(%x: f32[n,3,6,6]) {
  WEIGHTS
  %f: f32[n,108] = Flatten "flat" (%x)
  %h: f32[n,12] = Gemm "hidden" (%f, %w1, %b1)
  %r: f32[n,12] = Relu "relu" (%h)
  %y: f32[n,5] = Gemm "last" (%r, %w2, %b2)
  return %y
}
`

var hiddenShapes = map[string][]int{"w1": {108, 12}, "b1": {12}, "w2": {12, 5}, "b2": {5}}

// halved prunes half of the channels of hidden, which edit changes before.
func halved(t *testing.T, edit func(g *ir.Graph), change func(o *Options)) (dense, g *ir.Graph, r *Result) {
	t.Helper()
	t.Logf("seed %d", seed)
	o := options(t, "channel", 0.5)
	o.Observer, o.Allocate = observer(24), Auto
	change(&o)
	dense = drawn(t, hidden, hiddenShapes)
	edit(dense)
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

// stayed lists the channels of hidden that are left.
func stayed(t *testing.T, dense, g *ir.Graph) (at []int) {
	t.Helper()
	for _, b := range constant(t, g, "b1").Const.F32s() {
		at = append(at, slices.Index(constant(t, dense, "b1").Const.F32s(), b))
	}
	if len(at) != 6 || slices.Contains(at, -1) {
		t.Fatalf("channels %v are left, want 6", at)
	}
	return at
}

func TestBiasesTakeOverTheMeansOfChannels(t *testing.T) {
	same := func(*ir.Graph) {}
	dense, g, _ := halved(t, same, func(o *Options) { o.Allocate = Normalised })
	stay := stayed(t, dense, g)
	// The least squares fit with a constant, damped as passes/obs documents.
	x := columns(seen(t, dense, "r"), 1)
	k, n := 12, float64(len(x))
	mean := make([]float64, k)
	for _, v := range x {
		for i := range k {
			mean[i] += v[i] / n
		}
	}
	c := mat.NewDense(k, k, nil)
	for _, v := range x {
		d := mat.NewVecDense(k, nil)
		for i := range k {
			d.SetVec(i, v[i]-mean[i])
		}
		c.RankOne(c, 1, d, d)
	}
	damp := 0.01 * mat.Trace(c) / float64(k)
	for i := range k {
		c.Set(i, i, c.At(i, i)+damp)
	}
	a, b := mat.NewDense(6, 6, nil), mat.NewDense(6, 5, nil)
	w := constant(t, dense, "w2").Const.F32s()
	for i, p := range stay {
		for j, q := range stay {
			a.Set(i, j, c.At(p, q))
		}
		for m := range 5 {
			for q := range k {
				b.Set(i, m, b.At(i, m)+c.At(p, q)*float64(w[q*5+m]))
			}
		}
	}
	var v mat.Dense
	if err := v.Solve(a, b); err != nil {
		t.Fatal(err)
	}
	last := g.Nodes[len(g.Nodes)-1]
	have, bias := last.Inputs[1].Const.F32s(), last.Inputs[2].Const.F32s()
	for m := range 5 {
		want := float64(constant(t, dense, "b2").Const.F32s()[m])
		for q := range k {
			want += mean[q] * float64(w[q*5+m])
		}
		for i, p := range stay {
			want -= mean[p] * v.At(i, m)
			if d := math.Abs(float64(have[i*5+m]) - v.At(i, m)); d > 1e-4 {
				t.Fatalf("weight %d of output %d is off by %v", i, m, d)
			}
		}
		if math.Abs(float64(bias[m])-want) > 1e-4 {
			t.Errorf("bias %d is %v, want %v", m, bias[m], want)
		}
	}
	plain, p, _ := halved(t, same, func(o *Options) { o.Allocate, o.Uncorrected = Normalised, true })
	if with, without := apartBy(t, dense, g), apartBy(t, plain, p); with >= without {
		t.Errorf("a squared error of %v with constants, %v without", with, without)
	}
}

// apartBy is the sum of the squared errors of the outputs y.
func apartBy(t *testing.T, dense, g *ir.Graph) (sum float64) {
	t.Helper()
	want, have := seen(t, dense, "y"), seen(t, g, "y")
	for i := range want {
		for k, v := range want[i].F32s() {
			sum += math.Pow(float64(v-have[i].F32s()[k]), 2)
		}
	}
	return sum
}

// doubled makes the last six channels of hidden the double of the first six, in another order.
func doubled(g *ir.Graph) {
	for _, v := range g.Constants() {
		cols := map[string]int{"w1": 12, "b1": 12}[v.Name]
		if cols == 0 {
			continue
		}
		w := v.Const.Clone()
		for r := range w.Len() / cols {
			for c := range 6 {
				w.F32s()[r*cols+11-c] = 2 * w.F32s()[r*cols+c]
			}
		}
		v.SetConst(w)
	}
}

func TestOfChannelsThatAreTheSameOneGoes(t *testing.T) {
	dense, g, r := halved(t, doubled, func(*Options) {})
	stay := stayed(t, dense, g)
	for c := range 6 {
		if slices.Contains(stay, c) == slices.Contains(stay, 11-c) {
			t.Errorf("channels %v stay: of %d and %d, which are the same, one must", stay, c, 11-c)
		}
	}
	ranked, n, _ := halved(t, doubled, func(o *Options) { o.Allocate = Normalised })
	if have, other := between(t, dense, g), between(t, ranked, n); have > 1e-3 || have > other/20 {
		t.Errorf("divergence %v, want about none; %v where channels are ranked by themselves", have, other)
	}
	if len(r.Trials) != 2 || r.Trials[0].Allocate != string(Curves) || r.Trials[0].Divergence >= r.Trials[1].Divergence {
		t.Errorf("%+v, want curves to be found better than normalised", r.Trials)
	}
}

func TestBundlesGoByWhatReadersMiss(t *testing.T) {
	long(t)
	for _, a := range []prune.Allocation{Curves, prune.PerLayer} {
		dense, g, r := without(t, func(o *Options) { o.Allocate = a })
		old, h, _ := without(t, func(o *Options) { o.Allocate, o.Method = prune.PerLayer, Wanda })
		if have, other := between(t, dense, g), between(t, old, h); have >= other || math.Abs(r.Prunable.Sparsity()-0.5) > 0.1 {
			t.Errorf("%s: divergence %v at %v zeros, %v where channels are ranked by themselves", a, have, r.Prunable.Sparsity(), other)
		}
		if want := betweenOn(t, observer(24), dense, g); r.Judged != 24 || len(r.Distances) != 1 || math.Abs(r.Distances[0].Divergence/want-1) > 1e-3 {
			t.Errorf("%s: judged as %+v on %d runs, want %v on 24", a, r.Distances, r.Judged, want)
		}
	}
	o := options(t, "channel", 0.5)
	for _, c := range []struct {
		a prune.Allocation
		m Method
	}{{Joint, OBS}, {Curves, Wanda}} {
		o.Allocate, o.Method = c.a, c.m
		if _, err := Run(context.Background(), model(t), o); err == nil {
			t.Errorf("%v by %v is no error", c.a, c.m)
		}
	}
}

func TestCentredMomentsOfWhatDoesNotVaryAreZero(t *testing.T) {
	o := options(t, "channel", 0.5)
	o.Allocate = Curves
	g := drawn(t, hidden, hiddenShapes)
	b := constant(t, g, "b1")
	w := constant(t, g, "w1")
	fixed, rows := b.Const.Clone(), w.Const.Clone()
	fixed.F32s()[4] = 3 // a channel that is always 3
	for r := range 108 {
		rows.F32s()[r*12+4] = 0
	}
	b.SetConst(fixed)
	w.SetConst(rows)
	dense := g.Clone()
	o.Sparsity = 1. / 12
	if _, err := Run(context.Background(), g, o); err != nil {
		t.Fatal(err)
	}
	if have := constant(t, g, "b1").Const.F32s(); len(have) != 11 || slices.Contains(have, 3) {
		t.Errorf("biases %v, want the channel that does not vary to go", have)
	}
	if d := between(t, dense, g); d > 1e-9 {
		t.Errorf("divergence %v, want the bias to take it over", d)
	}
}
