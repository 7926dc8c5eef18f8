package permute

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/tests/graphtest"
)

// drawn is an objective of random vectors, of which some elements are large.
func drawn(r *rand.Rand, pattern string, channels, width int) *objective {
	o := &objective{pattern: graphtest.Pattern(pattern), parts: []part{{0, width / 2, max(1, width/5)}, {width / 2, width, max(1, width/4)}}}
	for range channels {
		v := make([]float32, width)
		for i := range v {
			v[i] = float32(math.Exp(3 * r.NormFloat64()))
		}
		o.vectors = append(o.vectors, v)
	}
	if o.pattern.R == 1 {
		competing(r, o, width)
	}
	return o
}

// competing has the elements of vectors compete in a contest each, or all in one, with some rivals; but the last two that
// share one, as those of a channel that a row reads twice do.
func competing(r *rand.Rand, o *objective, width int) {
	o.contests = &contests{phases: []phase{{o.vectors, []span{{0, width}}}}}
	for i := range width {
		if o.pattern.Kind == prune.Block || i == width-1 {
			i = 0
		}
		o.contests.of = append(o.contests.of, i)
	}
	for range slices.Max(o.contests.of) + 1 {
		var rivals []float32
		for range r.IntN(3) {
			rivals = append(rivals, float32(math.Exp(3*r.NormFloat64())))
		}
		o.contests.rivals = append(o.contests.rivals, rivals)
		o.contests.keep = append(o.contests.keep, 1+r.IntN(2))
	}
}

// naiveSum is what all cells retain, and their rivals, in float64 and by sorting.
func naiveSum(o *objective, cells [][]int) (total float64) {
	if o.contests == nil {
		for _, c := range cells {
			total += naive(o, c)
		}
		return total
	}
	for contest, keep := range o.contests.keep {
		var sums []float64
		for _, x := range o.contests.rivals[contest] {
			sums = append(sums, float64(x))
		}
		for _, cell := range cells {
			for i, of := range o.contests.of {
				if of != contest {
					continue
				}
				sum := 0.0
				for _, c := range cell {
					sum += float64(o.vectors[c][i])
				}
				sums = append(sums, sum)
			}
		}
		slices.Sort(sums)
		for _, x := range sums[max(0, len(sums)-keep):] {
			total += x
		}
	}
	return total
}

// naive is what a cell retains, or is worth, in float64 and by sorting.
func naive(o *objective, cell []int) (total float64) {
	top := func(x []float64, n int) {
		slices.Sort(x)
		for _, v := range x[max(0, len(x)-n):] {
			total += v
		}
	}
	if o.pattern.Kind == prune.NM {
		for i := range o.width() {
			var x []float64
			for _, c := range cell {
				x = append(x, float64(o.vectors[c][i]))
			}
			top(x, int(math.Ceil(float64(o.pattern.N*len(cell))/float64(o.pattern.M))))
		}
		return total
	}
	if o.contests != nil {
		for i, of := range o.contests.of {
			sum := -float64(o.contests.limits[of])
			for _, c := range cell {
				sum += float64(o.vectors[c][i])
			}
			total += max(0, sum)
		}
		return total
	}
	for _, p := range o.parts {
		var sums []float64
		for i := p.lo; i < p.hi; i++ {
			sum := 0.0
			for _, c := range cell {
				sum += float64(o.vectors[c][i])
			}
			sums = append(sums, sum)
		}
		top(sums, p.keep)
	}
	return total
}

var patterns = []string{"2:4", "1:3", "3:4", "uniform-block:4x1", "block:2x1", "uniform-block:1x4", "block:1x4"}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Abs(b) }

func TestWhatCellsRetain(t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 0))
	for _, pattern := range patterns {
		for range 50 {
			scale := 0.0 // of what is subtracted from what
			o, s := drawn(r, pattern, 9, 2*(1+r.IntN(20))), &scratch{}
			all := r.Perm(9)
			n := 1 + r.IntN(4)
			cell := all[:n]
			if o.contests != nil {
				cells := [][]int{cell, all[n:]}
				o.contests.settle(cells)
				for _, of := range o.contests.of {
					scale += float64(o.contests.limits[of])
				}
				if have, want := o.contests.retained(cells), naiveSum(o, cells); !near(have, want, 1e-5) {
					t.Fatalf("seed %d, %s: %v retain %g, want %g", seed, pattern, cells, have, want)
				}
			}
			if have, want := scale+o.value(cell, s), scale+naive(o, cell); !near(have, want, 1e-5) {
				t.Fatalf("seed %d, %s: %v retains %g, want %g", seed, pattern, cell, have, want)
			}
			one := cell[r.IntN(len(cell))]
			thresholds := make([]float32, o.width())
			bound := o.without(cell, one, thresholds, s)
			for other := range o.vectors {
				if slices.Contains(cell, other) {
					continue
				}
				with := slices.Clone(cell)
				with[slices.Index(with, one)] = other
				have, want := scale+bound+float64(excess(o.vectors[other], thresholds)), scale+naive(o, with)
				if (o.pattern.Kind == prune.NM || o.contests != nil) && !near(have, want, 1e-5) || have < want*(1-1e-5) {
					t.Fatalf("seed %d, %s: %v with %d for %d retains %g, bound %g", seed, pattern, cell, other, one, want, have)
				}
			}
		}
	}
}

// partitions calls see with every partition of channels into cells of a size.
func partitions(left []int, size int, cells [][]int, see func(cells [][]int)) {
	if len(left) == 0 {
		see(cells)
		return
	}
	var choose func(cell []int, from int)
	choose = func(cell []int, from int) {
		if len(cell) == size {
			rest := slices.DeleteFunc(slices.Clone(left), func(c int) bool { return slices.Contains(cell, c) })
			partitions(rest, size, append(cells, slices.Clone(cell)), see)
			return
		}
		for i := from; i < len(left); i++ {
			choose(append(cell, left[i]), i+1)
		}
	}
	choose([]int{left[0]}, 1)
}

// The search comes near the best of all partitions, never below what it began with, and says what it found.
func TestSearchAgainstAllPartitions(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 0))
	found, cases := 0, 0
	for _, pattern := range []string{"2:4", "uniform-block:4x1", "uniform-block:1x4", "block:1x4"} {
		for range 20 {
			o := drawn(r, pattern, 8, 16)
			cells := [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}
			sum := func(cells [][]int) float64 { return naiveSum(o, cells) }
			most := 0.0
			partitions([]int{0, 1, 2, 3, 4, 5, 6, 7}, 4, nil, func(cells [][]int) { most = max(most, sum(cells)) })
			var first [][]int
			for workers := 1; workers <= 3; workers += 2 {
				s := &search{objective: o, ctx: context.Background(), workers: workers, budget: 1e9}
				best, before, after, err := s.run(cells)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = best
				}
				if fmt.Sprint(best) != fmt.Sprint(first) {
					t.Errorf("seed %d, %s: %v with %d workers, want %v as with one", seed, pattern, best, workers, first)
				}
				if !near(before, sum(cells), 1e-5) || !near(after, sum(best), 1e-5) || after < before {
					t.Errorf("seed %d, %s: from %g to %g, want from %g to %g", seed, pattern, before, after, sum(cells), sum(best))
				}
				if members := slices.Sorted(slices.Values(slices.Concat(best...))); !slices.Equal(members, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
					t.Errorf("seed %d: cells %v", seed, best)
				}
				if after < 0.97*most {
					t.Errorf("seed %d, %s: found %g, the best is %g", seed, pattern, after, most)
				}
				if near(after, most, 1e-6) {
					found++
				}
				cases++
			}
		}
	}
	if found < cases*2/3 {
		t.Errorf("seed %d: the best partition was found in %d of %d cases, want two of three", seed, found, cases)
	}
}

// chain is two products between an input and an output, with weights that draw makes.
func chain(t *testing.T, hidden int, draw func(row, col int) float32) *ir.Graph {
	t.Helper()
	g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[3,8]) {
  %%a: f32[8,%[1]d] = const {%[2]s}
  %%b: f32[%[1]d,6] = const {%[3]s}
  %%h: f32[3,%[1]d] = MatMul "first" (%%x, %%a)
  %%r: f32[3,%[1]d] = Relu "relu" (%%h)
  %%y: f32[3,6] = MatMul "second" (%%r, %%b)
  return %%y
}`, hidden, zeros(8*hidden), zeros(6*hidden)))
	for _, n := range g.Nodes {
		if _, ok := n.Op.(*op.MatMul); !ok {
			continue
		}
		shape := n.Inputs[1].Const.Shape()
		w := make([]float32, shape[0]*shape[1])
		for i := range w {
			w[i] = draw(i%shape[1], i/shape[1])
		}
		n.Inputs[1].SetConst(tensor.From(w, shape...))
	}
	return g
}

func zeros(n int) string {
	s := ""
	for i := range n {
		if i > 0 {
			s += ", "
		}
		s += "0.0"
	}
	return s
}

// ordered runs the package by |w| on all weights that may be pruned.
func ordered(t *testing.T, g *ir.Graph, pattern string, fixed func(*ir.Value) string) *Result {
	t.Helper()
	p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern(pattern)}, KeepNone: true})
	if err != nil {
		t.Fatal(err)
	}
	var weights []Weight
	for _, i := range p.Prunable() {
		l := p.Matrix(i)
		w := Weight{Layer: i, Sparsity: 0.5}
		for r := range l.Rows {
			for c := range l.Cols {
				x := l.Weights[c*l.Rows+r] // of MatMul
				w.Saliency = append(w.Saliency, max(x, -x))
			}
		}
		weights = append(weights, w)
	}
	r, _, err := Run(context.Background(), p, weights, Options{Fixed: fixed})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rows that want the same columns lie apart, and come to lie together.
func TestBlocksOfRowsThatWantTheSameColumns(t *testing.T) {
	g := chain(t, 16, func(row, col int) float32 {
		if row%4 == col%4 {
			return 4 + float32(row)/16
		}
		return 0.25
	})
	dense := g.Clone()
	r := ordered(t, g, "uniform-block:4x1", nil)
	graphtest.Same(t, dense, g, 1e-5)
	if len(r.Groups) != 1 || r.Groups[0].Channels != 16 || !slices.Equal(r.Groups[0].From, []string{"first"}) || !slices.Equal(r.Groups[0].To, []string{"second"}) {
		t.Errorf("groups %+v", r.Groups)
	}
	first, second := r.Layers[0], r.Layers[1]
	if first.Why != "" || first.Before > 0.6 || first.After < 0.99 {
		t.Errorf("%+v, want an order in which nearly all is kept", first)
	}
	if second.Why != "channels keep their order: they are an output of the model" || second.Before != second.After {
		t.Errorf("%+v", second)
	}
}

// Columns that the same rows want lie apart, and come to lie together.
func TestBlocksAlongARowThatIsWantedTogether(t *testing.T) {
	for _, pattern := range []string{"uniform-block:1x4", "block:1x4", "uniform-block:1x8"} {
		// Rows 0 and 1 want columns 0, 4, 8, ... and 1, 5, ..., rows 2 and 3 want the others, and so on.
		g := chain(t, 32, func(row, col int) float32 {
			if row/2%2 == col%4/2 {
				return 4 + float32(col)/32
			}
			return 0.25
		})
		dense := g.Clone()
		r := ordered(t, g, pattern, nil)
		graphtest.Same(t, dense, g, 1e-5)
		if len(r.Groups) != 1 || r.Groups[0].Channels != 32 || !slices.Equal(r.Groups[0].From, []string{"first"}) || !slices.Equal(r.Groups[0].To, []string{"second"}) {
			t.Errorf("%s: groups %+v", pattern, r.Groups)
		}
		first, second := r.Layers[0], r.Layers[1]
		if second.Why != "" || second.Before > 0.6 || second.After < 0.99 {
			t.Errorf("%s: %+v, want an order in which nearly all is kept", pattern, second)
		}
		if first.Why != "channels keep their order: its input channels are not followed" || first.Before != first.After {
			t.Errorf("%s: %+v", pattern, first)
		}
	}
}

// The parts of a concatenation have an order each, and compete for the places of the rows that read both.
func TestPartsOfAConcatenationCompete(t *testing.T) {
	const seed = 7
	for _, pattern := range []string{"uniform-block:1x4", "block:1x4"} {
		r := rand.New(rand.NewPCG(seed, 0))
		g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[3,8]) {
  %%a: f32[8,16] = const {%[1]s}
  %%b: f32[8,16] = const {%[1]s}
  %%c: f32[32,6] = const {%[2]s}
  %%p: f32[3,16] = MatMul "left" (%%x, %%a)
  %%q: f32[3,16] = MatMul "right" (%%x, %%b)
  %%s: f32[3,32] = Concat "both" (%%p, %%q) {axis = 1}
  %%y: f32[3,6] = MatMul "last" (%%s, %%c)
  return %%y
}`, zeros(8*16), zeros(32*6)))
		for _, n := range g.Nodes {
			if v := n.Input(1); v != nil && v.Const != nil {
				w := make([]float32, v.Const.Len())
				for i := range w {
					w[i] = float32(r.NormFloat64())
					if i < len(w)/2 {
						w[i] *= 3 // of last, what is of the left
					}
				}
				v.SetConst(tensor.From(w, v.Const.Shape()...))
			}
		}
		dense := g.Clone()
		res := ordered(t, g, pattern, nil)
		graphtest.Same(t, dense, g, 1e-4)
		if len(res.Groups) != 2 {
			t.Fatalf("seed %d, %s: groups %+v", seed, pattern, res.Groups)
		}
		last := res.Layers[2]
		if last.Node != "last" || last.After <= last.Before {
			t.Errorf("seed %d, %s: %+v, want more than before", seed, pattern, last)
		}
	}
}

// Columns of large weights lie in the same groups, and come to lie in different ones.
func TestGroupsOfColumnsThatAreLarge(t *testing.T) {
	g := chain(t, 16, func(_, col int) float32 {
		if col/4%2 == 0 {
			return 4
		}
		return 0.25
	})
	dense := g.Clone()
	r := ordered(t, g, "2:4", nil)
	graphtest.Same(t, dense, g, 1e-5)
	first, second := r.Layers[0], r.Layers[1]
	if second.Why != "" || second.Before > 0.6 || second.After < 0.99 {
		t.Errorf("%+v, want an order in which nearly all is kept", second)
	}
	if first.Why != "channels keep their order: its input channels are not followed" || first.Before != first.After {
		t.Errorf("%+v", first)
	}
	r = ordered(t, dense, "2:4", func(v *ir.Value) string {
		if v.Name == "b" {
			return "it has scales"
		}
		return ""
	})
	if len(r.Groups) != 0 || r.Layers[1].Why != "channels keep their order: it has scales" {
		t.Errorf("%+v", r)
	}
}

// Taps of one channel fill groups of columns, or blocks, which no order of channels changes.
func TestTapsOfAChannelLieSideBySide(t *testing.T) {
	w := zeros(8*4*9 + 8*4)
	g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[1,4,5,5]) {
  %%a: f32[8,4,1,1] = const {%s}
  %%b: f32[4,8,3,3] = const {%s}
  %%h: f32[1,8,5,5] = Conv "first" (%%x, %%a)
  %%y: f32[1,4,3,3] = Conv "second" (%%h, %%b)
  return %%y
}`, w[:len("0.0, ")*8*4-2], w[:len("0.0, ")*8*4*9-2]))
	for pattern, want := range map[string]string{
		"2:4":               "9 weights of a channel lie side by side, which groups of 4 cannot tell apart",
		"uniform-block:1x3": "9 weights of a channel lie side by side, of which blocks of 3 hold no others",
	} {
		p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern(pattern)}, KeepNone: true})
		if err != nil {
			t.Fatal(err)
		}
		s := make([]float32, 4*8*9)
		for i := range s {
			s[i] = float32(i % 17)
		}
		r, _, err := Run(context.Background(), p, []Weight{{Layer: 1, Saliency: s, Sparsity: 0.5}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Groups) != 0 || r.Layers[0].Why != want {
			t.Errorf("%s: %+v, want %q", pattern, r, want)
		}
	}
}

// In blocks of 4 that lie along a row, taps of a channel meet those of the next one: which one that is matters, and where in 36
// taps both lie.
func TestBlocksInWhichTapsOfTwoChannelsMeet(t *testing.T) {
	const seed, rows, channels, taps = 8, 4, 8, 9
	for _, pattern := range []string{"uniform-block:1x4", "block:1x4", "uniform-block:1x2"} {
		r := rand.New(rand.NewPCG(seed, 0))
		s := make([]float32, rows*channels*taps)
		for i := range s {
			s[i] = float32(math.Exp(r.NormFloat64()))
		}
		width := graphtest.Pattern(pattern).C
		kept := func(order []int) (total float64) { // of squares, where half of the blocks of a row, or of all, stay
			var blocks []float64
			half := func() {
				slices.Sort(blocks)
				for _, x := range blocks[len(blocks)/2:] {
					total += x
				}
				blocks = blocks[:0]
			}
			for row := range rows {
				for b := 0; b < channels*taps; b += width {
					x := 0.0
					for i := b; i < b+width; i++ {
						v := float64(s[(row*channels+order[i/taps])*taps+i%taps])
						x += v * v
					}
					blocks = append(blocks, x)
				}
				if !strings.HasPrefix(pattern, "block") {
					half()
				}
			}
			if len(blocks) > 0 {
				half()
			}
			return total
		}
		best := 0.0
		order := []int{0, 1, 2, 3, 4, 5, 6, 7}
		first := kept(order)
		var all func(k int)
		all = func(k int) {
			if k == channels {
				best = max(best, kept(order))
				return
			}
			for i := k; i < channels; i++ {
				order[k], order[i] = order[i], order[k]
				all(k + 1)
				order[k], order[i] = order[i], order[k]
			}
		}
		all(0)
		g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[1,4,5,5]) {
  %%a: f32[8,4,1,1] = const {%s}
  %%b: f32[4,8,3,3] = const {%s}
  %%h: f32[1,8,5,5] = Conv "first" (%%x, %%a)
  %%y: f32[1,4,3,3] = Conv "second" (%%h, %%b)
  return %%y
}`, zeros(8*4), zeros(len(s))))
		for _, n := range g.Nodes {
			w := n.Inputs[1].Const
			for i := range w.F32s() {
				w.F32s()[i] = float32(r.NormFloat64())
			}
		}
		dense := g.Clone()
		p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern(pattern)}, KeepNone: true})
		if err != nil {
			t.Fatal(err)
		}
		res, moved, err := Run(context.Background(), p, []Weight{{Layer: 1, Saliency: s, Sparsity: 0.5}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		graphtest.Same(t, dense, g, 1e-4)
		if len(res.Groups) != 1 {
			t.Fatalf("seed %d, %s: groups %+v", seed, pattern, res.Groups)
		}
		_, cols := moved.Moved(1)
		for i := range order {
			order[i] = cols[i*taps] / taps
		}
		l, have := res.Layers[0], kept(order)
		if !near(l.After/l.Before, have/first, 1e-5) || have < first || have < 0.97*best {
			t.Errorf("seed %d, %s: %+v with %v, which keeps %g, at first %g, at best %g", seed, pattern, l, order, have, first, best)
		}
	}
}

// Two producers of a sum are ordered together, by what both lose.
func TestSumsShareAnOrder(t *testing.T) {
	const seed = 6
	r := rand.New(rand.NewPCG(seed, 0))
	g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[3,8]) {
  %%a: f32[8,16] = const {%[1]s}
  %%b: f32[8,16] = const {%[1]s}
  %%c: f32[16,6] = const {%[2]s}
  %%p: f32[3,16] = MatMul "left" (%%x, %%a)
  %%q: f32[3,16] = MatMul "right" (%%x, %%b)
  %%s: f32[3,16] = Add "sum" (%%p, %%q)
  %%y: f32[3,6] = MatMul "last" (%%s, %%c)
  return %%y
}`, zeros(8*16), zeros(16*6)))
	for _, n := range g.Nodes {
		if v := n.Input(1); v != nil && v.Const != nil {
			w := make([]float32, v.Const.Len())
			for i := range w {
				w[i] = float32(r.NormFloat64())
			}
			v.SetConst(tensor.From(w, v.Const.Shape()...))
		}
	}
	dense := g.Clone()
	res := ordered(t, g, "uniform-block:4x1", nil)
	graphtest.Same(t, dense, g, 1e-5)
	if len(res.Groups) != 1 || !slices.Equal(res.Groups[0].From, []string{"left", "right"}) {
		t.Errorf("seed %d: groups %+v", seed, res.Groups)
	}
	if a, b := res.Layers[0], res.Layers[1]; a.After+b.After <= a.Before+b.Before {
		t.Errorf("seed %d: %+v and %+v, want more than before", seed, a, b)
	}
}
