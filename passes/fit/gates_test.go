package fit

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/prune"
	"spc/passes/recon"
	"spc/tests/graphtest"
)

// pairs is a layer whose inputs are alike in pairs, with weights of which magnitudes say little.
const pairs = `graph "pairs"(%x: f32[n,3,6,6]) {
  %w: f32[4,3,2,2] = const {0.9, -0.8, 0.7, -0.6, 0.5, 0.55, -0.4, 0.35, 0.2, 0.6, -0.5, 0.7, 0.9, -0.3, 0.4, 0.8, -0.7, 0.3, 0.85, 0.6, -0.45, 0.9, 0.5, -0.65, 0.3, -0.2, 0.7, 0.4, 0.5, 0.95, -0.4, 0.75, 0.2, 0.1, -0.5, 0.7, -0.9, -0.3, 0.45, 0.8, 0.7, 0.3, 0.85, -0.6, -0.45, 0.9, 0.5, 0.65}
  %y: f32[n,4,5,5] = Conv "y" (%x, %w) {kernel_shape = [2, 2]}
  return %y
}
`

func TestGatesLoseHardlyMoreThanTheBestMasksOfAll(t *testing.T) {
	t.Logf("seed %d", seed)
	g := graphtest.Parse(t, pairs)
	w := g.WeightUses()[0].Value.Const.F32s()
	const k, keep = 12, 4
	h := make([][]float64, k)
	for i := range h {
		h[i] = make([]float64, k)
	}
	o := options(t, "uniform", 1-float64(keep)/k)
	o.KeepNone = true
	o.Observer = observer(24)
	for in := range o.Observer.Inputs(context.Background(), g) {
		x := in[0].F32s()
		for n := range 2 {
			for p := range 25 {
				at := func(c int) float64 { return float64(x[n*108+c/4*36+(p/5+c%4/2)*6+p%5+c%2]) }
				for i := range k {
					for j := range k {
						h[i][j] += at(i) * at(j)
					}
				}
			}
		}
	}
	errorOf := func(m Method) (sum float64) {
		pruned := graphtest.Parse(t, pairs)
		o.Method = m
		if _, err := Run(context.Background(), pruned, o); err != nil {
			t.Fatal(err)
		}
		for i, row := range slices.Collect(slices.Chunk(pruned.WeightUses()[0].Value.Const.F32s(), k)) {
			mask := uint(0)
			for c, v := range row {
				if v != 0 {
					mask |= 1 << c
				}
			}
			if bits.OnesCount(mask) != keep {
				t.Fatalf("%s: a row keeps %b, want %d", m, mask, keep)
			}
			sum += graphtest.Leftover(h, w[i*k:][:k], mask)
		}
		return sum
	}
	best := 0.0
	for row := range 4 {
		least := math.Inf(1)
		for m := range uint(1 << k) {
			if bits.OnesCount(m) == keep {
				least = min(least, graphtest.Leftover(h, w[row*k:][:k], m))
			}
		}
		best += least
	}
	magnitude, obs, gates := errorOf(Magnitude), errorOf(OBS), errorOf(Gates)
	t.Logf("errors by magnitude %.4g, OBS %.4g, gates %.4g, the best masks %.4g", magnitude, obs, gates, best)
	if gates > obs {
		t.Errorf("the error of gates is %.4g, of the masks that they start from %.4g", gates, obs)
	}
	if gates > 1.1*best || gates > 0.95*magnitude {
		t.Errorf("the error of gates is %.4g, want within 1.1 of %.4g and below 0.95 of %.4g, that of magnitudes", gates, best, magnitude)
	}
}

// offOf is the Kullback-Leibler divergence of a pruned model's classes on the samples of an observer that are held
// out, every eighth, in sum.
func offOf(t *testing.T, o *calib.Observer, pruned *ir.Graph) (sum float64) {
	t.Helper()
	dense, i := model(t), 0
	logs := func(g *ir.Graph, in []*tensor.Tensor) []float64 { // of probabilities of 5 classes
		out, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		var p []float64
		for row := range slices.Chunk(out[0].F32s(), 5) {
			all := 0.0
			for _, v := range row {
				all += math.Exp(float64(v))
			}
			for _, v := range row {
				p = append(p, float64(v)-math.Log(all))
			}
		}
		return p
	}
	for in := range o.Inputs(context.Background(), dense) {
		if i++; i%8 != 0 {
			continue
		}
		have := logs(pruned, in)
		for k, p := range logs(dense, in) {
			sum += math.Exp(p) * (p - have[k])
		}
	}
	return sum
}

func TestGatesKeepEveryPatternAndItsZerosAndAreNeverWorse(t *testing.T) {
	long(t)
	moved, nearer := false, false
	for _, pattern := range []string{"uniform", "unstructured", "2:4", "block:2x2", "uniform-block:4x1", "block:2x2+1:2", "uniform-block:4x2+1:2"} {
		o := options(t, pattern, 0.6)
		o.Observer = observer(32)
		byOBS, want := fitted(t, o)
		o.Method = Gates
		f, g, r := gatedModel(t, o)
		for _, l := range f.layers { // what was learnt, whether or not the model has it
			mask := make([]float32, len(l.weights))
			for i := range mask {
				if l.stays.Keeps(i/l.cols, i%l.cols) {
					mask[i] = 1
				}
			}
			if !obeys(o.Pattern, mask, l.rows, l.cols) {
				t.Errorf("%s: the gates of %s do not have the pattern", pattern, l.Node)
			}
			if zeros := len(mask) - l.stays.Count(); zeros != want.Layers[l.at].Zeros {
				t.Errorf("%s: the gates of %s leave %d zeros, want %d", pattern, l.Node, zeros, want.Layers[l.at].Zeros)
			}
			moved = moved || !strings.Contains(l.gated, "gates replaced 0 of")
		}
		gates, obs := offOf(t, o.Observer, g), offOf(t, o.Observer, byOBS)
		if nearer = nearer || gates < obs; gates > obs {
			t.Errorf("%s: the divergence of the outputs held out is %v, of OBS %v", pattern, gates, obs)
		}
		for i, l := range r.Layers {
			if !l.Prunable {
				continue
			}
			if l.Zeros != want.Layers[i].Zeros || l.RowMin != want.Layers[i].RowMin && pattern == "uniform" {
				t.Errorf("%s: %s has %d zeros, and at least %d in a row, want %d and %d as by OBS", pattern, l.Node, l.Zeros, l.RowMin, want.Layers[i].Zeros, want.Layers[i].RowMin)
			}
			if kept := strings.Contains(l.How, "gates replaced"); kept == strings.Contains(l.How, "gates dropped") || kept == (r.Dropped != "") || !kept && gates != obs {
				t.Errorf("%s: %s says %q, the model %q", pattern, l.Node, l.How, r.Dropped)
			}
		}
		for _, u := range g.WeightUses() {
			rows, cols := u.View.Dims(u.Value.Const.Shape())
			at := slices.IndexFunc(r.Layers, func(l prune.GraphLayer) bool { return l.Node == u.Node.Name })
			if r.Layers[at].Prunable && !obeys(o.Pattern, u.View.Matrix(u.Value.Const).F32s(), rows, cols) {
				t.Errorf("%s: %s does not have the pattern", pattern, u.Node)
			}
		}
	}
	if !moved || !nearer {
		t.Errorf("under some pattern gates moved: %v, brought outputs nearer: %v", moved, nearer)
	}
}

// gatedModel is a pruned model, and the fitter that pruned it.
func gatedModel(t *testing.T, o Options) (*fitter, *ir.Graph, *Result) {
	t.Helper()
	g := model(t)
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	p, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil {
		t.Fatal(err)
	}
	f := &fitter{ctx: context.Background(), Options: o, graph: g, plan: p, exact: exactWork}
	r := &Result{}
	if err := f.run(r); err != nil {
		t.Fatal(err)
	}
	r.GraphResult = p.Result()
	return f, g, r
}

// obeys reports whether weights [rows, cols] have a pattern; those of N:M within blocks may be fewer where a block went.
func obeys(p prune.Pattern, w []float32, rows, cols int) bool {
	zero := func(r, c int) bool { return w[r*cols+c] == 0 }
	if p.M > 0 {
		for r := range rows {
			for lo := 0; lo < cols; lo += p.M {
				n := min(p.M, cols-lo)
				kept := 0
				for c := lo; c < lo+n; c++ {
					if !zero(r, c) {
						kept++
					}
				}
				if kept > (p.N*n+p.M-1)/p.M {
					return false
				}
			}
		}
	}
	if p.Kind == prune.NM {
		return true
	}
	high, wide := p.Unit()
	counts := map[int]bool{}
	for r0 := 0; r0 < rows; r0 += high {
		blocks := 0
		for c0 := 0; c0 < cols; c0 += wide {
			zeros, all := 0, 0
			for r := r0; r < min(r0+high, rows); r++ {
				for c := c0; c < min(c0+wide, cols); c++ {
					all++
					if zero(r, c) {
						zeros++
					}
				}
			}
			if zeros < all {
				blocks++
			}
			if p.M == 0 && zeros > 0 && zeros < all {
				return false
			}
		}
		counts[blocks] = true
	}
	return len(counts) == 1 || p.Kind != prune.Uniform && p.Kind != prune.UniformBlock
}

func TestGatesGiveTheSameBytesForAnyNumberOfWorkers(t *testing.T) {
	o := options(t, "uniform", 0.6)
	o.Method, o.Workers, o.Observer = Gates, 1, observer(32)
	a, _ := fitted(t, o)
	o.Workers = 3
	b, _ := fitted(t, o)
	for i, u := range a.WeightUses() {
		if !slices.Equal(u.Value.Const.Bytes(), b.WeightUses()[i].Value.Const.Bytes()) {
			t.Errorf("%s differs", u.Value.Name)
		}
	}
}

func TestGatesCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	o := options(t, "uniform", 0.6)
	o.Method = Gates
	o.Progress = func(stage string, done, total int) {
		if strings.HasPrefix(stage, "gates of") {
			cancel()
		}
	}
	if _, err := Run(ctx, model(t), o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
}

func TestGatesAreBoundedInTime(t *testing.T) {
	for _, c := range []struct {
		work         float64
		samples      int
		epochs, runs int // 0 where the bound decides
	}{{1e6, 500, gateEpochs, 500}, {1e8, 500, 0, 500}, {4e9, 500, 1, 0}, {1e13, 2, 1, 1}} {
		o, err := gatesOf(model(t))
		if err != nil {
			t.Fatal(err)
		}
		runs := o.course(c.work, c.samples)
		if o.Epochs < 1 || runs < 1 || o.Epochs > gateEpochs || runs > c.samples || c.epochs > 0 && o.Epochs != c.epochs || c.runs > 0 && runs != c.runs {
			t.Errorf("%+v: %d epochs of %d runs", c, o.Epochs, runs)
		}
		if work := float64(o.Epochs) * float64(runs) * c.work * recon.Backward; runs > 1 && work > gateWork {
			t.Errorf("%+v: %d epochs of %d runs take %v multiplications", c, o.Epochs, runs, work)
		}
	}
}

func TestLayersWithoutGatesSayWhy(t *testing.T) {
	o := options(t, "uniform", 0.6)
	o.Method = Gates
	g := drawn(t, strings.Replace(network, `Relu "cr"`, `Round "cr"`, 1), shapes)
	r, err := Run(context.Background(), g, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Layers {
		if has := strings.Contains(l.How, "no gates: cr (Round): no gradient"); has != (l.Node == "stride" || l.Node == "point") {
			t.Errorf("%s says %q", l.Node, l.How)
		}
	}
	o.Pattern = prune.Pattern{Kind: prune.Channel}
	if _, err := Run(context.Background(), model(t), o); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "gates") {
		t.Errorf("channels: error %v, want one that says gates have none", err)
	}
}
