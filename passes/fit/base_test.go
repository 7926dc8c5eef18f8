package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/passes/prune"
)

// choices are some that a database of the tests' network has.
func choices(t *testing.T) []Choice {
	t.Helper()
	var list []Choice
	for _, p := range []string{"uniform", "uniform-block:4x1"} {
		pattern, err := prune.ParsePattern(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []float64{0.25, 0.5, 0.75} {
			list = append(list, Choice{pattern, s})
		}
	}
	return list
}

func base(t *testing.T, g *ir.Graph, uncorrected bool) *Base {
	t.Helper()
	o := options(t, "uniform", 0.5)
	o.Uncorrected = uncorrected
	b, err := NewBase(context.Background(), g, o, choices(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// combined is the graph with the entries that pick says, made from the entries' fields alone.
func combined(t *testing.T, b *Base, g *ir.Graph, pick []int) *ir.Graph {
	t.Helper()
	g = g.Clone()
	for _, u := range g.WeightUses() {
		for k, l := range b.Layers {
			if l.Weight != u.Value.Name {
				continue
			}
			e := &l.Entries[pick[k]]
			rows, cols := u.View.Dims(u.Value.Const.Shape())
			w, at := u.View.Matrix(u.Value.Const).Clone(), 0
			for i := range rows * cols {
				switch {
				case e.mask == nil:
				case e.mask.Keeps(i/cols, i%cols):
					w.F32s()[i] = e.values[at]
					at++
				default:
					w.F32s()[i] = 0
				}
			}
			u.Value.SetConst(u.View.Tensor(w, u.Value.Const.Shape()))
			if e.bias != nil {
				setBias(u.Node, e.bias)
			}
		}
	}
	return g
}

func TestDatabaseComparesModelsAsTheyAre(t *testing.T) {
	g := model(t)
	for _, uncorrected := range []bool{true, false} {
		b := base(t, g, uncorrected)
		if len(b.Layers) != 3 {
			t.Fatalf("%d layers, want 3", len(b.Layers))
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 10 {
			pick := make([]int, len(b.Layers))
			for k := range pick {
				pick[k] = rng.IntN(len(b.Layers[k].Entries))
			}
			have, err := b.Divergence(context.Background(), pick)
			if err != nil {
				t.Fatal(err)
			}
			made := combined(t, b, g, pick)
			if !uncorrected {
				repair(t, g, made)
			}
			want := betweenOn(t, observer(12), g, made)
			if math.Abs(have-want) > 1e-3*want+1e-6 {
				t.Errorf("%v: divergence %v, want %v", pick, have, want)
			}
		}
		if d, err := b.Divergence(context.Background(), make([]int, len(b.Layers))); err != nil || d > 1e-6 {
			t.Errorf("divergence %v of the model itself, %v", d, err)
		}
	}
}

// repair gives the channels of what the layers of a changed model compute the means and variances that they have in the dense one, of a
// Gemm the means alone, one layer after another.
func repair(t *testing.T, dense, g *ir.Graph) {
	t.Helper()
	ctx := context.Background()
	for _, name := range []string{"point", "stride", "wide"} {
		var n *ir.Node
		// of is the mean and the variance of each channel of the node's output.
		of := func(g *ir.Graph) (mean, variance []float64) {
			g = g.Clone()
			for _, m := range g.Nodes {
				if m.Name == name {
					g.Outputs = []*ir.Value{m.Outputs[0]}
				}
			}
			var values [][]float64
			for in, err := range observer(12).Inputs(ctx, g) {
				if err != nil {
					t.Fatal(err)
				}
				out, err := ref.Run(ctx, g, in)
				if err != nil {
					t.Fatal(err)
				}
				y := out[0]
				inner := 1
				for _, d := range y.Shape()[2:] {
					inner *= d
				}
				if values == nil {
					values = make([][]float64, y.Dim(1))
				}
				for i, v := range y.F32s() {
					c := i / inner % y.Dim(1)
					values[c] = append(values[c], float64(v))
				}
			}
			for _, v := range values {
				m, q := 0.0, 0.0
				for _, x := range v {
					m += x / float64(len(v))
				}
				for _, x := range v {
					q += (x - m) * (x - m) / float64(len(v))
				}
				mean, variance = append(mean, m), append(variance, q)
			}
			return mean, variance
		}
		for _, m := range g.Nodes {
			if m.Name == name {
				n = m
			}
		}
		wantMean, wantVariance := of(dense)
		mean, variance := of(g)
		u := g.WeightUses()[slices.IndexFunc(g.WeightUses(), func(u ir.WeightUse) bool { return u.Node == n })]
		w := u.View.Matrix(u.Value.Const).Clone()
		rows, cols := u.View.Dims(u.Value.Const.Shape())
		bias := make([]float32, rows)
		if n.Input(2) != nil {
			copy(bias, n.Input(2).Const.F32s())
		}
		for r := range rows {
			f := 1.0
			if name != "wide" && variance[r] > 0 && wantVariance[r] > 0 {
				f = min(max(math.Sqrt(wantVariance[r]/variance[r]), 0.25), 4)
			}
			for c := range cols {
				w.F32s()[r*cols+c] *= float32(f)
			}
			bias[r] = float32(float64(bias[r])*f + wantMean[r] - f*mean[r])
		}
		u.Value.SetConst(u.View.Tensor(w, u.Value.Const.Shape()))
		setBias(n, bias)
	}
}

// An entry's error is what the layer's output loses where the weights are the entry's and their inputs the dense model's, before means
// and variances are put back.
func TestErrorsOfEntriesAreThoseOfOutputs(t *testing.T) {
	g := model(t)
	o := options(t, "uniform", 0.5)
	o.Uncorrected = true
	b, err := NewBase(context.Background(), g, o, choices(t))
	if err != nil {
		t.Fatal(err)
	}
	// point reads what no other layer that is pruned gives, and has nothing behind it in the graph cut there.
	k := 0
	if b.Layers[k].Node != "point" {
		t.Fatalf("layer %s, want point", b.Layers[k].Node)
	}
	for i, e := range b.Layers[k].Entries {
		pick := make([]int, len(b.Layers))
		pick[k] = i
		lost, energy := 0.0, 0.0
		for in, err := range observer(12).Inputs(context.Background(), g) {
			if err != nil {
				t.Fatal(err)
			}
			value := func(g *ir.Graph) []float32 {
				g = g.Clone()
				for _, n := range g.Nodes {
					if n.Name == "point" {
						n.SetInput(2, nil) // energy is that of products
						g.Outputs = []*ir.Value{n.Outputs[0]}
					}
				}
				out, err := ref.Run(context.Background(), g, in)
				if err != nil {
					t.Fatal(err)
				}
				return out[0].F32s()
			}
			dense, sparse := value(g), value(combined(t, b, g, pick))
			for j, v := range dense {
				lost += float64(v-sparse[j]) * float64(v-sparse[j])
				energy += float64(v) * float64(v)
			}
		}
		if have, want := e.Error, lost/energy; math.Abs(have-want) > 1e-4*want+1e-6 {
			t.Errorf("%v: error %v, want %v", e.Choice, have, want)
		}
	}
}

func TestEffectsTellWhichLayersMatter(t *testing.T) {
	g := model(t)
	b := base(t, g, false)
	ctx := context.Background()
	if err := b.Effects(ctx); err != nil {
		t.Fatal(err)
	}
	pick := []int{3, 3, 3}
	for k, l := range b.Layers {
		alone := make([]int, len(b.Layers))
		alone[k] = 3
		want, err := b.Divergence(ctx, alone)
		if err != nil {
			t.Fatal(err)
		}
		// The effect was measured at another entry of the layer, and is taken to be in proportion.
		if have := l.Effect * l.Entries[3].Error; have <= 0 || have > 10*want || have < want/10 {
			t.Errorf("%s: %v, alone %v", l.Node, have, want)
		}
	}
	all, err := b.Divergence(ctx, pick)
	if err != nil {
		t.Fatal(err)
	}
	alone := []float64{b.Layers[0].Effect, b.Layers[1].Effect, b.Layers[2].Effect}
	if err := b.Among(ctx, pick, nil); err != nil {
		t.Fatal(err)
	}
	for k, l := range b.Layers {
		without := []int{3, 3, 3}
		without[k] = 0
		d, err := b.Divergence(ctx, without)
		if err != nil {
			t.Fatal(err)
		}
		want := (alone[k] + max(0, all-d)/l.Entries[3].Error) / 2
		if math.Abs(l.Effect-want) > 1e-3*want {
			t.Errorf("%s: effect %v among others, want %v", l.Node, l.Effect, want)
		}
	}
}

func TestTargetsOfEntriesNameTheirLayers(t *testing.T) {
	g := model(t)
	b := base(t, g, false)
	pick := []int{2, 0, 6}
	o := options(t, "uniform", 0)
	o.Targets = b.Targets(pick)
	p, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil {
		t.Fatal(err)
	}
	for k, i := range p.Prunable() {
		e := b.Layers[k].Entries[pick[k]]
		if s := p.Target(i); s == nil || *s != e.Sparsity || pick[k] > 0 && p.Pattern(i) != e.Pattern {
			t.Errorf("%s: %v %v, want %v", b.Layers[k].Node, p.Target(i), p.Pattern(i), e.Choice)
		}
	}
	o = options(t, "uniform", 0.5)
	target, err := prune.ParseLayerTarget("wide=0.5,uniform-block:4x1")
	if err != nil {
		t.Fatal(err)
	}
	o.Targets = append(o.Targets, target)
	own, err := NewBase(context.Background(), g, o, choices(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range own.Layers {
		want := 7
		if l.Node == "wide" {
			want = 1
		}
		if len(l.Entries) != want {
			t.Errorf("%s: %d entries, want %d", l.Node, len(l.Entries), want)
		}
	}
}
