package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/passes/recon"
)

// branched has a depthwise convolution between what computes channels and what reads
// them, and a residual, whose two summands have the same channels.
const branched = `graph "g"(%x: f32[n,3,6,6]) {
  WEIGHTS
  %a: f32[n,6,6,6] = Conv "first" (%x, %w1, %b1) {pads = [1, 1, 1, 1]}
  %ar: f32[n,6,6,6] = Relu "ar" (%a)
  %e: f32[n,10,6,6] = Conv "expand" (%ar, %w2, %b2)
  %er: f32[n,10,6,6] = LeakyRelu "er" (%e) {alpha = 0.1}
  %d: f32[n,10,6,6] = Conv "depth" (%er, %w3) {pads = [1, 1, 1, 1], group = 10}
  %dr: f32[n,10,6,6] = LeakyRelu "dr" (%d) {alpha = 0.1}
  %p: f32[n,8,6,6] = Conv "project" (%dr, %w4, %b4)
  %q: f32[n,8,6,6] = Conv "inner" (%p, %w5, %b5) {pads = [1, 1, 1, 1]}
  %s: f32[n,8,6,6] = Add "s" (%p, %q)
  %sr: f32[n,8,6,6] = LeakyRelu "sr" (%s) {alpha = 0.1}
  %m: f32[n,8,1,1] = GlobalAveragePool "m" (%sr)
  %f: f32[n,8] = Flatten "f" (%m)
  %y: f32[n,5] = Gemm "last" (%f, %w6, %b6) {transB = 1}
  return %y
}
`

var branchedShapes = map[string][]int{
	"w1": {6, 3, 3, 3}, "b1": {6}, "w2": {10, 6, 1, 1}, "b2": {10}, "w3": {10, 1, 3, 3}, "w4": {8, 10, 1, 1}, "b4": {8},
	"w5": {8, 8, 3, 3}, "b5": {8}, "w6": {5, 8}, "b6": {5},
}

// without prunes half of the channels of branched, by what ranks the rows of layers unless change
// asks for another allocation.
func without(t *testing.T, change func(o *Options)) (dense, g *ir.Graph, r *Result) {
	t.Helper()
	t.Logf("seed %d", seed)
	o := options(t, "channel", 0.5)
	o.Observer, o.Allocate = observer(24), Normalised
	change(&o)
	dense = drawn(t, branched, branchedShapes)
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

func constant(t *testing.T, g *ir.Graph, name string) *ir.Value {
	t.Helper()
	for _, v := range g.Constants() {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no constant %s", name)
	return nil
}

// survivors returns which channels of branched are left after expand, and after project
// and inner, as biases that nothing changed tell.
func survivors(t *testing.T, dense, g *ir.Graph) (expanded, projected []int) {
	t.Helper()
	left := func(name string) (at []int) {
		for _, b := range constant(t, g, name).Const.F32s() {
			at = append(at, slices.Index(constant(t, dense, name).Const.F32s(), b))
		}
		if slices.Contains(at, -1) || len(at) == 0 || len(at) == constant(t, dense, name).Const.Len() {
			t.Fatalf("%s: channels %v are left", name, at)
		}
		return at
	}
	return left("b2"), left("b4")
}

// seen is a value of a graph on all samples.
func seen(t *testing.T, g *ir.Graph, name string) []*tensor.Tensor {
	t.Helper()
	c := g.Clone()
	for _, n := range c.Nodes {
		if n.Outputs[0].Name == name {
			c.Outputs = []*ir.Value{n.Outputs[0]}
		}
	}
	var out []*tensor.Tensor
	for in := range observer(24).Inputs(context.Background(), c) {
		y, err := ref.Run(context.Background(), c, in)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, y[0])
	}
	return out
}

// columns lists the patches of images x[n,c,h,w] for a kernel of 1 or 3 pixels each way,
// padded to keep the size, or the rows of x[n,c].
func columns(all []*tensor.Tensor, kernel int) (out [][]float64) {
	for _, x := range all {
		c, h, w := x.Dim(1), 1, 1
		if x.Rank() == 4 {
			h, w = x.Dim(2), x.Dim(3)
		}
		for i := range x.Dim(0) * h * w {
			n, y, z := i/(h*w), i/w%h, i%w
			var column []float64
			for k := range c * kernel * kernel {
				y, z := y+k/kernel%kernel-kernel/2, z+k%kernel-kernel/2
				v := 0.0
				if y >= 0 && y < h && z >= 0 && z < w {
					v = float64(x.F32s()[((n*c+k/kernel/kernel)*h+y)*w+z])
				}
				column = append(column, v)
			}
			out = append(out, column)
		}
	}
	return out
}

// squares solves for weights on the columns stay: v that minimises the distance of v xp
// from w xd, or from w xp, with the damping that passes/obs documents.
func squares(t *testing.T, w []float32, xd, xp [][]float64, stay []int, aim bool) []float32 {
	t.Helper()
	k := len(xp[0])
	h, dx := mat.NewDense(k, k, nil), mat.NewDense(k, k, nil)
	for n := range xp {
		p, d := mat.NewVecDense(k, xp[n]), mat.NewVecDense(k, xd[n])
		h.RankOne(h, 1, p, p)
		dx.RankOne(dx, 1, d, p)
	}
	if !aim {
		dx = mat.DenseCopyOf(h)
	}
	damp := 0.01 * mat.Trace(h) / float64(k)
	for i := range k {
		if h.At(i, i) == 0 {
			t.Fatalf("input %d is dead, want another seed", i)
		}
		h.Set(i, i, h.At(i, i)+damp)
		dx.Set(i, i, dx.At(i, i)+damp)
	}
	a := mat.NewDense(len(stay), len(stay), nil)
	for i, p := range stay {
		for j, q := range stay {
			a.Set(i, j, h.At(p, q))
		}
	}
	out := make([]float32, len(w))
	for r := 0; r < len(w); r += k {
		b := mat.NewVecDense(len(stay), nil)
		for i, p := range stay {
			for j := range k {
				b.SetVec(i, b.AtVec(i)+float64(w[r+j])*dx.At(j, p))
			}
		}
		var v mat.VecDense
		if err := v.SolveVec(a, b); err != nil {
			t.Fatal(err)
		}
		for i, p := range stay {
			out[r+p] = float32(v.AtVec(i))
		}
	}
	return out
}

// taps lists the columns of channels.
func taps(channels []int, each int) (out []int) {
	for _, c := range channels {
		for k := range each {
			out = append(out, c*each+k)
		}
	}
	return out
}

func TestWhatReadsChannelsIsTheLeastSquaresSolutionWithoutThem(t *testing.T) {
	long(t)
	for _, aim := range []Aim{Weights, Outputs} {
		dense, g, _ := without(t, func(o *Options) { o.Aim, o.Uncorrected = aim, true })
		expanded, projected := survivors(t, dense, g)
		// whole has all channels, and weights that do not read those that went.
		whole := dense.Clone()
		for _, l := range []struct {
			weight, reads string
			kernel        int
			rows, stay    []int
		}{
			{"w4", "dr", 1, projected, taps(expanded, 1)},
			{"w5", "p", 3, projected, taps(projected, 9)},
			{"w6", "f", 1, []int{0, 1, 2, 3, 4}, taps(projected, 1)},
		} {
			w := constant(t, whole, l.weight)
			v := squares(t, w.Const.F32s(), columns(seen(t, dense, l.reads), l.kernel), columns(seen(t, whole, l.reads), l.kernel), l.stay, aim == Outputs)
			w.SetConst(tensor.From(v, w.Const.Shape()...))
			var want []float32
			for _, r := range l.rows {
				for _, c := range l.stay {
					want = append(want, v[r*len(v)/w.Const.Dim(0)+c])
				}
			}
			have := constant(t, g, l.weight).Const.F32s()
			if len(have) != len(want) {
				t.Fatalf("%s has %d weights, want %d", l.weight, len(have), len(want))
			}
			for i := range want {
				if math.Abs(float64(have[i]-want[i])) > 1e-4 {
					t.Fatalf("aim %v: weight %d of %s is %v, want %v", aim, i, l.weight, have[i], want[i])
				}
			}
		}
		if d := between(t, whole, g); d > 1e-9 {
			t.Errorf("aim %v: divergence %v from the model with all channels of which some are not read", aim, d)
		}
	}
}

func TestReadersMakeUpForChannels(t *testing.T) {
	long(t)
	of := func(change func(o *Options)) (float64, *Result) {
		dense, g, r := without(t, change)
		return between(t, dense, g), r
	}
	removed, _ := of(func(o *Options) { o.Method, o.Uncorrected = Wanda, true })
	corrected, _ := of(func(o *Options) { o.Method = Wanda })
	solved, _ := of(func(o *Options) { o.Uncorrected = true })
	obs, r := of(func(o *Options) { o.Aim = Weights })
	rebuilt, b := of(func(o *Options) { o.Aim, o.Reconstruct = Weights, recon.Recipe{} })
	t.Logf("removed %.4g, corrected %.4g, solved for %.4g, both %.4g, reconstructed %.4g", removed, corrected, solved, obs, rebuilt)
	if !(rebuilt < obs && max(obs, solved, corrected) < removed) {
		t.Error("want reconstruction to be nearer the dense model than obs, and all nearer than removal")
	}
	if len(b.Blocks) == 0 || r.Prunable != b.Prunable || r.Prunable.Sparsity() < 0.4 {
		t.Errorf("%v are gone, %v after %d blocks of reconstruction", r.Prunable, b.Prunable, len(b.Blocks))
	}
	for _, l := range r.Layers {
		var want []string
		switch l.Node {
		case "expand":
			want = []string{"channels ranked by obs on 24 runs of samples; ", "energy is lost"}
		case "project", "inner":
			want = []string{"channels ranked by obs on 24 runs of samples; OBS for the columns that stay; ", "energy is lost"}
		case "last":
			want = []string{"OBS for the columns that stay; "}
		}
		for _, w := range want {
			if !strings.Contains(l.How, w) {
				t.Errorf("%s: %q, want %q", l.Node, l.How, w)
			}
		}
		if want == nil && l.How != "" {
			t.Errorf("%s: %q", l.Node, l.How)
		}
	}
}

// moments returns the mean and the variance of each channel of images.
func moments(all []*tensor.Tensor) (mean, variance []float64) {
	c := columns(all, 1)
	mean, variance = make([]float64, len(c[0])), make([]float64, len(c[0]))
	for _, x := range c {
		for i, v := range x {
			mean[i] += v / float64(len(c))
		}
	}
	for _, x := range c {
		for i, v := range x {
			variance[i] += (v - mean[i]) * (v - mean[i]) / float64(len(c))
		}
	}
	return mean, variance
}

func TestChannelsThatStayKeepTheirMeansAndVariances(t *testing.T) {
	long(t)
	var half []prune.LayerTarget // the same channels with corrections and without
	for _, weight := range []string{"w2", "w4", "w5"} {
		half = append(half, prune.LayerTarget{Glob: prune.Literal(weight), Sparsity: 0.5})
	}
	for _, m := range []Method{Wanda, OBS} {
		dense, plain, _ := without(t, func(o *Options) { o.Method, o.Uncorrected, o.Targets = m, true, half })
		_, projected := survivors(t, dense, plain)
		_, g, _ := without(t, func(o *Options) { o.Method, o.Targets = m, half })
		wantMean, wantVar := moments(seen(t, dense, "p"))
		mean, variance := moments(seen(t, g, "p"))
		for i, c := range projected {
			// Mere removal may take more of the variance than a scale of 4 restores.
			if math.Abs(mean[i]-wantMean[c]) > 1e-4 || m == OBS && math.Abs(variance[i]/wantVar[c]-1) > 1e-3 {
				t.Errorf("%s: channel %d has mean %v and variance %v, want %v and %v", m, c, mean[i], variance[i], wantMean[c], wantVar[c])
			}
		}
		if mean, _ := moments(seen(t, plain, "p")); math.Abs(mean[0]-wantMean[projected[0]]) < 1e-3 {
			t.Errorf("%s: channel %d keeps its mean without a correction", m, projected[0])
		}
	}
}

func TestReconstructionLeavesChannelsOut(t *testing.T) {
	long(t)
	sizes := func(g *ir.Graph) (out []string) {
		for _, u := range g.WeightUses() {
			out = append(out, fmt.Sprint(u.Value.Name, u.Value.Const.Shape()))
		}
		return out
	}
	dense, plain, _ := without(t, func(o *Options) { o.Uncorrected, o.Observer = true, unjudged(o.Observer) })
	// The first block that is off ends with project. Its loss is that of the channels
	// that stay, in every eighth run of two images, relative to their mean square.
	_, _, r := without(t, func(o *Options) { o.Uncorrected, o.Reconstruct = true, recon.Recipe{"blocks": 1, "model": 0} })
	_, projected := survivors(t, dense, plain)
	want, have := columns(seen(t, dense, "p"), 1), columns(seen(t, plain, "p"), 1)
	held, square := 0.0, 0.0
	for n, x := range want {
		for i, c := range projected {
			square += x[c] * x[c] / float64(len(want))
			if n/(2*36)%8 == 7 {
				held += (have[n][i] - x[c]) * (have[n][i] - x[c]) / float64(len(want)/8)
			}
		}
	}
	i := slices.IndexFunc(r.Blocks, func(b recon.Block) bool { return b.Steps > 0 })
	if i < 0 || r.Blocks[i].Last != "project" || math.Abs(r.Blocks[i].Before*square/held-1) > 1e-4 {
		t.Errorf("blocks %+v, want a loss of %v up to project", r.Blocks, held/square)
	}

	var first string
	for _, workers := range []int{1, 3} {
		_, g, _ := without(t, func(o *Options) { o.Reconstruct, o.Aim, o.Workers = recon.Recipe{}, Outputs, workers })
		if have, want := sizes(g), sizes(plain); !slices.Equal(have, want) {
			t.Errorf("weights %v, want %v as without reconstruction", have, want)
		}
		if text := ir.Print(g); first == "" {
			first = text
		} else if text != first {
			t.Error("three workers give other weights than one")
		}
	}
}

func TestChannelsGoAsTheyDoUnseenWhereNothingAsksForSamples(t *testing.T) {
	_, seen, _ := without(t, func(o *Options) { o.Method, o.Uncorrected, o.Allocate = Magnitude, true, prune.PerLayer })
	dense, blind, _ := without(t, func(o *Options) { o.Observer, o.Allocate = nil, prune.PerLayer })
	if ir.Print(seen) != ir.Print(blind) {
		t.Error("magnitudes without corrections depend on samples")
	}
	// The correction alone keeps the same channels.
	_, corrected, _ := without(t, func(o *Options) { o.Method, o.Allocate = Magnitude, prune.PerLayer })
	if a, b := between(t, dense, corrected), between(t, dense, blind); a >= b {
		t.Errorf("divergence %v, want less than the %v of mere removal", a, b)
	}
	for _, u := range corrected.WeightUses() {
		if w := constant(t, blind, u.Value.Name); !slices.Equal(w.Const.Shape(), u.Value.Const.Shape()) {
			t.Errorf("%s is %v, want %v", u.Value.Name, u.Value.Const, w.Const)
		}
	}
}

func TestKeptReadersAreNotChanged(t *testing.T) {
	keep, err := prune.ParseGlob("inner")
	if err != nil {
		t.Fatal(err)
	}
	dense, g, _ := without(t, func(o *Options) { o.Keep, o.Reconstruct = []prune.Glob{keep}, recon.Recipe{} })
	for _, name := range []string{"w5", "b5"} {
		if !constant(t, g, name).Const.Equal(constant(t, dense, name).Const) {
			t.Errorf("%s, which the user keeps, changed", name)
		}
	}
}

// What fails or is cancelled while channels are chosen is an error, whatever was decided by then.
func TestChannelsThatCannotBeChosenAreAnError(t *testing.T) {
	long(t)
	for _, a := range []prune.Allocation{Auto, Curves, Normalised, prune.PerLayer} {
		seen := map[string]bool{}
		for stop := 0; ; stop++ { // before each of its reports in turn
			ctx, cancel := context.WithCancel(context.Background())
			o, n := options(t, "channel", 0.5), 0
			o.Allocate = a
			o.Progress = func(stage string, _, _ int) {
				if n == stop {
					seen[stage] = true
					cancel()
				}
				n++
			}
			_, err := Run(ctx, model(t), o)
			cancel()
			if n <= stop {
				break
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: cancelled at report %d: %v", a, stop, err)
			}
		}
		if len(seen) < 2 {
			t.Errorf("%s: cancelled in %v", a, seen)
		}
	}
}
