package calib_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// wide and narrow give the same scores but for a bias: a hidden channel of the first is
// never read.
const (
	wide = `graph "g"(%x: f32[n,2]) {
  %w1: f32[2,3] = const {1.0, 2.0, 3.0, -1.0, 0.5, 4.0}
  %w2: f32[3,2] = const {1.0, 0.0, 0.0, 1.0, 0.0, 0.0}
  %h: f32[n,3] = MatMul "one" (%x, %w1)
  %y: f32[n,2] = MatMul "two" (%h, %w2)
  return %y
}`
	narrow = `graph "g"(%x: f32[n,2]) {
  %w1: f32[2,2] = const {1.0, 2.0, -1.0, 0.5}
  %b: f32[2] = const {2.0, 0.0}
  %h: f32[n,2] = MatMul "one" (%x, %w1)
  %y: f32[n,2] = Add "shift" (%h, %b)
  return %y
}`
)

func TestBetweenIsTheDivergenceOfGraphsOfOtherNodes(t *testing.T) {
	dense, changed := graphtest.Parse(t, wide), graphtest.Parse(t, narrow)
	samples := [][]*tensor.Tensor{
		{tensor.From([]float32{1, 0, 0, 1}, 2, 2)}, // scores (1, 2) and (-1, 0.5): with the bias the first is (3, 2)
		{tensor.From([]float32{0, 0}, 1, 2)},
		{tensor.From([]float32{-1, 0}, 1, 2)}, // scores (-1, -2)
		{tensor.From([]float32{9, 9}, 1, 2)},
	}
	kl := func(a, b, c, d float64) float64 {
		p, q := 1/(1+math.Exp(b-a)), 1/(1+math.Exp(d-c))
		return p*math.Log(p/q) + (1-p)*math.Log((1-p)/(1-q))
	}
	for _, c := range []struct {
		most, runs   int
		want, others float64
	}{
		{9, 4, (kl(1, 2, 3, 2) + kl(-1, 0.5, 1, 0.5) + kl(0, 0, 2, 0) + kl(-1, -2, 1, -2) + kl(0, 22.5, 2, 22.5)) / 5, 2. / 5},
		{2, 2, (kl(0, 0, 2, 0) + kl(0, 22.5, 2, 22.5)) / 2, 0},
	} {
		d, runs, err := (&lab{samples: samples}).observer().Between(t.Context(), dense, changed, 0, c.most)
		if err != nil {
			t.Fatal(err)
		}
		list := d.Distances()
		if runs != c.runs || len(list) != 1 || list[0].Output != "y" || !list[0].Classes || list[0].Broken {
			t.Fatalf("%+v on %d runs, want output y on %d", list, runs, c.runs)
		}
		if math.Abs(list[0].Divergence-c.want) > 1e-6 || math.Abs(list[0].Others-c.others) > 1e-9 {
			t.Errorf("at most %d runs: %+v, want a divergence of %v and %v others", c.most, list[0], c.want, c.others)
		}
	}
	if _, _, err := (&lab{samples: samples}).observer().Between(t.Context(), dense, graphtest.Parse(t, `graph "g"(%x: f32[n,2]) { return %x, %x }`), 0, 9); err == nil {
		t.Error("graphs of other outputs are compared")
	}
}

// Where constants are large, few of them are read at a time, and the distances are the same, on some samples as on all.
func TestBetweenReadsFewConstantsAtATime(t *testing.T) {
	build := func(end string) *ir.Graph {
		text := "graph \"g\"(%x: f32[n,2]) {\n"
		last := "%x"
		for i := range 6 {
			text += fmt.Sprintf("  %%w%d: f32[2,2] = const {1.0, 0.%d, -0.5, %s}\n  %%h%d: f32[n,2] = MatMul \"m%d\" (%s, %%w%d)\n", i, i, end, i, i, last, i)
			last = fmt.Sprintf("%%h%d", i)
		}
		return graphtest.Parse(t, text+"  return "+last+"\n}")
	}
	dense, changed := build("1.0"), build("0.5")
	l := &lab{}
	for i := range 9 {
		l.samples = append(l.samples, []*tensor.Tensor{tensor.From([]float32{float32(i), 1, -1, float32(i) / 2}, 2, 2)})
	}
	most := 0
	watched := func(folder string) *calib.Observer {
		o := l.observer()
		run := o.Run
		o.Run = func(ctx context.Context, g *ir.Graph, in iter.Seq2[[]*tensor.Tensor, error], see func([]*tensor.Tensor) error) error {
			bytes := 0
			for _, v := range g.Constants() {
				bytes += len(v.Const.Bytes())
			}
			most = max(most, bytes)
			return run(ctx, g, in, see)
		}
		if folder != "" {
			o.Room = calib.NewRoom(1<<20, folder)
		}
		return o
	}
	for _, samples := range []int{4, 9} {
		whole, _, err := watched("").Between(t.Context(), dense, changed, 0, samples)
		if err != nil {
			t.Fatal(err)
		}
		if most != 2*6*16 {
			t.Errorf("%d bytes of constants are read together, want those of both", most)
		}
		back := calib.SetApproach(40)
		most = 0
		o := watched(t.TempDir())
		steps, runs, err := o.Between(t.Context(), dense, changed, 0, samples)
		back()
		if err != nil {
			t.Fatal(err)
		}
		if most != 2*16 || runs != samples {
			t.Errorf("%d samples of %d: %d bytes of constants are read together, want %d", runs, samples, most, 2*16)
		}
		if a, b := whole.Distances(), steps.Distances(); a[0].Divergence == 0 || math.Abs(a[0].Divergence-b[0].Divergence) > 1e-9 || a[0].Others != b[0].Others {
			t.Errorf("%d samples: %+v in steps, want %+v", samples, b, a)
		}
		if memory, file := o.Room.Left(); memory+int(file) > 0 {
			t.Errorf("%d and %d bytes are kept", memory, file)
		}
		most = 0
	}
}

func TestDistancesTellWhatIsNotFinite(t *testing.T) {
	d := calib.NewDivergence(graphtest.Parse(t, `graph "g"(%a: f32[n,2], %b: f32[n,1,2], %c: i64[n]) { return %a, %b, %c }`))
	nan := float32(math.NaN())
	x, v, i := tensor.From([]float32{1, 2}, 1, 2), tensor.From([]float32{1, 3}, 1, 1, 2), tensor.From([]int64{1}, 1)
	if err := d.Add([]*tensor.Tensor{x, v, i}, []*tensor.Tensor{tensor.From([]float32{nan, 2}, 1, 2), tensor.From([]float32{1, 4}, 1, 1, 2), i}); err != nil {
		t.Fatal(err)
	}
	list := d.Distances()
	if len(list) != 2 || !list[0].Broken || list[0].Divergence != 0 || list[0].Others != 1 || list[1].Classes || list[1].Broken || math.Abs(list[1].Divergence-0.5) > 1e-6 {
		t.Errorf("%+v", list)
	}
}
