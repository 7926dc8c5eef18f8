package prune

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
)

func mustPattern(t testing.TB, s string) Pattern {
	t.Helper()
	p, err := ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustSelect(t testing.TB, layers []Layer, opts Options) *Result {
	t.Helper()
	res, err := Select(layers, opts)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// randomLayers makes layers of uneven shapes and scales. With ties, weights are
// small integers, so that many are equal and some are zero.
func randomLayers(rng *rand.Rand, n int, ties bool) []Layer {
	layers := make([]Layer, n)
	for i := range layers {
		l := Layer{Name: fmt.Sprintf("layer%d", i), Rows: 1 + rng.IntN(12), Cols: 1 + rng.IntN(20)}
		l.Weights = make([]float32, l.Rows*l.Cols)
		scale := math.Exp(rng.NormFloat64())
		for j := range l.Weights {
			if l.Weights[j] = float32(scale * rng.NormFloat64()); ties {
				l.Weights[j] = float32(rng.IntN(7) - 3)
			}
		}
		layers[i] = l
	}
	return layers
}

// transposed returns the same layer stored column by column.
func transposed(l Layer) Layer {
	turn := func(s []float32) []float32 {
		if s == nil {
			return nil
		}
		out := make([]float32, len(s))
		for r := range l.Rows {
			for c := range l.Cols {
				out[c*l.Rows+r] = s[r*l.Cols+c]
			}
		}
		return out
	}
	l.Weights, l.Saliency, l.Transposed = turn(l.Weights), turn(l.Saliency), true
	return l
}

// score is the definition of a weight's rank.
func score(l *Layer, r, c int) float64 {
	w := l.Weights[r*l.Cols+c]
	switch {
	case w == 0:
		return 0
	case l.Saliency != nil:
		return math.Max(float64(l.Saliency[r*l.Cols+c]), math.SmallestNonzeroFloat32)
	}
	return math.Abs(float64(w))
}

// unit is what the definitions rank: some weights of one layer.
type unit struct {
	layer, bound int // units of equal bound share the promise that one stays
	score        float64
	weights      [][2]int
}

// blockUnits lists the R x C blocks of a layer in order of position.
func blockUnits(layers []Layer, i, r, c int) (units []unit) {
	l := &layers[i]
	for r0 := 0; r0 < l.Rows; r0 += r {
		for c0 := 0; c0 < l.Cols; c0 += c {
			u := unit{layer: i, bound: i*1000 + r0}
			sum := 0.0
			for y := r0; y < min(r0+r, l.Rows); y++ {
				for x := c0; x < min(c0+c, l.Cols); x++ {
					sum += score(l, y, x) * score(l, y, x)
					u.weights = append(u.weights, [2]int{y, x})
				}
			}
			u.score = float64(float32(math.Sqrt(sum * (float64(r*c) / float64(len(u.weights))))))
			units = append(units, u)
		}
	}
	return units
}

// unitsOf lists the units of a layer under a pattern of blocks: what N:M drops of a row of a block within it is none of
// the block's weights, while the block ranks by all.
func unitsOf(layers []Layer, i int, p Pattern, s float64) []unit {
	units := blockUnits(layers, i, p.R, p.C)
	if p.M == 0 || s == 0 {
		return units
	}
	l := &layers[i]
	for u := range units {
		groups := map[[2]int][][2]int{}
		for _, at := range units[u].weights {
			g := [2]int{at[0], at[1] / p.M}
			groups[g] = append(groups[g], at)
		}
		var kept [][2]int
		for _, at := range units[u].weights {
			g := groups[[2]int{at[0], at[1] / p.M}]
			better := 0
			for _, o := range g {
				if a, b := score(l, o[0], o[1]), score(l, at[0], at[1]); a > b || a == b && o[1] < at[1] {
					better++
				}
			}
			if better < (p.N*len(g)+p.M-1)/p.M {
				kept = append(kept, at)
			}
		}
		units[u].weights = kept
	}
	return units
}

// ofUnits is the share of the weights of units that goes where s of all weights of their layers do.
func ofUnits(layers []Layer, members []int, p Pattern, s float64) float64 {
	all, kept := 0, 0
	for _, i := range members {
		all += layers[i].Rows * layers[i].Cols
		for _, u := range unitsOf(layers, i, p, s) {
			kept += len(u.weights)
		}
	}
	if all == kept {
		return s
	}
	return max(0, float64(kept)-(1-s)*float64(all)) / float64(kept)
}

// keepBest returns the indices of the ranked units that stay: of all cuts of the
// ranking the one whose dropped weights are closest to drop, the smallest
// dropped among equals.
func keepBest(units []unit, ranking []int, drop float64) []int {
	best, bestCut, dropped := math.Inf(1), 0, 0
	for cut := len(ranking); ; cut-- {
		if d := math.Abs(float64(dropped) - drop); d < best {
			best, bestCut = d, cut
		}
		if cut == 0 {
			return ranking[:bestCut]
		}
		dropped += len(units[ranking[cut-1]].weights)
	}
}

// bestFirst compares the numbers of units by their scores.
func bestFirst(units []unit) func(a, b int) int {
	return func(a, b int) int { return cmp.Compare(units[b].score, units[a].score) }
}

// bruteThreshold is the definition of Unstructured, Block and Channel.
func bruteThreshold(layers []Layer, units []unit, s float64) (masks [][]bool, bounds map[int]bool) {
	total := 0
	ranking := make([]int, len(units))
	for i, u := range units {
		ranking[i] = i
		total += len(u.weights)
	}
	slices.SortStableFunc(ranking, bestFirst(units))
	keep := keepBest(units, ranking, s*float64(total))
	alive := map[int]bool{}
	for _, i := range keep {
		alive[units[i].bound] = true
	}
	bounds = map[int]bool{}
	first := map[int]int{} // best unit of each bound, plus one
	for _, i := range ranking {
		if u := units[i]; first[u.bound] == 0 && u.score > 0 {
			first[u.bound] = i + 1
			if !alive[u.bound] {
				bounds[u.bound] = true
			}
		}
	}
	if len(bounds) > 0 {
		var protected, rest []int
		for _, i := range ranking {
			if first[units[i].bound] == i+1 {
				protected = append(protected, i)
			} else {
				rest = append(rest, i)
			}
		}
		keep = append(protected, keepBest(units, rest, s*float64(total))...)
	}
	return masksOf(layers, units, keep), bounds
}

func masksOf(layers []Layer, units []unit, keep []int) [][]bool {
	masks := make([][]bool, len(layers))
	for i, l := range layers {
		masks[i] = make([]bool, l.Rows*l.Cols)
	}
	for _, i := range keep {
		l := &layers[units[i].layer]
		for _, at := range units[i].weights {
			j := at[0]*l.Cols + at[1]
			masks[units[i].layer][j] = l.Weights[j] != 0
		}
	}
	return masks
}

// brutePrefix is the definition of Uniform and UniformBlock.
func brutePrefix(layers []Layer, members []int, p Pattern, s float64) ([][]bool, map[int]bool) {
	_, c := p.Unit()
	type col struct {
		layer, rank int
		norm        float64
		units       []int
	}
	var units []unit
	var cols []col
	total := 0
	for _, i := range members {
		l := &layers[i]
		total += l.Rows * l.Cols
		blockCols := (l.Cols + c - 1) / c
		base, n := len(units), 0
		units = append(units, unitsOf(layers, i, p, s)...)
		n = (len(units) - base) / blockCols
		these := make([]col, blockCols)
		for row := range n {
			order := make([]int, blockCols)
			for j := range order {
				order[j] = base + row*blockCols + j
			}
			slices.SortStableFunc(order, bestFirst(units))
			for j, u := range order {
				these[j].units = append(these[j].units, u)
				these[j].norm += units[u].score * units[u].score
			}
		}
		for j := range these {
			these[j].layer, these[j].rank, these[j].norm = i, j, math.Sqrt(these[j].norm)
		}
		cols = append(cols, these...)
	}
	// Columns are units of the same ranking, with the layer as their bound.
	columns, ranking := make([]unit, len(cols)), make([]int, len(cols))
	for i, c := range cols {
		ranking[i] = i
		columns[i] = unit{layer: c.layer, bound: c.layer, score: c.norm}
		for _, u := range c.units {
			columns[i].weights = append(columns[i].weights, units[u].weights...)
		}
	}
	return bruteThreshold(layers, columns, ofUnits(layers, members, p, s))
}

func compareMask(t *testing.T, what string, l *Layer, got *Mask, want []bool) {
	t.Helper()
	for r := range l.Rows {
		for c := range l.Cols {
			if got.Keeps(r, c) != want[r*l.Cols+c] {
				t.Fatalf("%s: %s %dx%d: weight [%d,%d] stays: %v, want %v", what, l.Name, l.Rows, l.Cols, r, c, got.Keeps(r, c), want[r*l.Cols+c])
			}
		}
	}
}

// forRandomLayers runs a test on random layers, targets and worker counts.
func forRandomLayers(t *testing.T, patterns []string, check func(t *testing.T, layers []Layer, members [][]int, opts Options, got *Result)) {
	const seed = 20240611
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	sparsities := []float64{0, 0.1, 0.3, 0.5, 0.75, 0.9, 0.97, 0.9999}
	for trial := range 400 {
		layers := randomLayers(rng, 1+rng.IntN(4), trial%3 == 0)
		if trial%5 == 0 {
			clear(layers[0].Weights[:rng.IntN(len(layers[0].Weights)+1)])
		}
		if trial%4 == 1 {
			for i := range layers {
				layers[i].Saliency = make([]float32, len(layers[i].Weights))
				for j := range layers[i].Saliency {
					layers[i].Saliency[j] = float32(rng.IntN(50)) / 7
				}
			}
		}
		pattern := mustPattern(t, patterns[trial%len(patterns)])
		sparsities := slices.DeleteFunc(slices.Clone(sparsities), func(s float64) bool { return CheckSparsity(pattern, s) != nil })
		opts := Options{
			Pattern:  pattern,
			Sparsity: sparsities[rng.IntN(len(sparsities))],
			Allocate: []Allocation{PerLayer, Global}[rng.IntN(2)],
			Workers:  1 + rng.IntN(3),
		}
		var members [][]int // layers that share a target
		var shared []int
		for i := range layers {
			if opts.Allocate == Global && rng.IntN(4) != 0 {
				shared = append(shared, i)
				continue
			}
			if opts.Allocate == Global || rng.IntN(3) == 0 {
				own := sparsities[rng.IntN(len(sparsities))]
				layers[i].Sparsity = &own
			}
			members = append(members, []int{i})
		}
		if shared != nil {
			members = append(members, shared)
		}
		given := slices.Clone(layers)
		for i := range given {
			if rng.IntN(2) == 0 {
				given[i] = transposed(given[i])
			}
		}
		check(t, layers, members, opts, mustSelect(t, given, opts))
	}
}

func target(layers []Layer, members []int, opts Options) float64 {
	if own := layers[members[0]].Sparsity; own != nil {
		return *own
	}
	return opts.Sparsity
}

func TestThresholdPatternsMatchTheirDefinition(t *testing.T) {
	patterns := []string{"unstructured", "block:1x1", "block:4x1", "block:1x4", "block:2x3", "block:32x32",
		"block:1x4+2:4", "block:3x4+1:2", "block:2x6+2:3", "block:4x8+1:8", "block:2x2+2:2"}
	bounded := 0
	forRandomLayers(t, patterns, func(t *testing.T, layers []Layer, members [][]int, opts Options, got *Result) {
		p := opts.Pattern
		p.R, p.C = p.Unit()
		for _, group := range members {
			var units []unit
			s := target(layers, group, opts)
			for _, i := range group {
				units = append(units, unitsOf(layers, i, p, s)...)
			}
			masks, bounds := bruteThreshold(layers, units, ofUnits(layers, group, p, s))
			for _, i := range group {
				what := fmt.Sprintf("%v %v %v", opts.Pattern, opts.Allocate, s)
				compareMask(t, what, &layers[i], got.Layers[i].Mask, masks[i])
				want := 0
				for b := range bounds {
					if b/1000 == i {
						want++
					}
				}
				if got.Layers[i].Bounded != want {
					t.Fatalf("%s: %s: bound acted on %d rows, want %d", what, layers[i].Name, got.Layers[i].Bounded, want)
				}
				bounded += want
			}
		}
	})
	if bounded == 0 {
		t.Error("no trial reached the bound of one unit a row")
	}
}

func TestUniformPatternsMatchTheirDefinition(t *testing.T) {
	patterns := []string{"uniform", "uniform-block:1x1", "uniform-block:4x1", "uniform-block:1x4", "uniform-block:2x3", "uniform-block:16x16",
		"uniform-block:1x4+2:4", "uniform-block:3x4+1:2", "uniform-block:2x6+2:3", "uniform-block:4x8+1:8"}
	bounded := 0
	forRandomLayers(t, patterns, func(t *testing.T, layers []Layer, members [][]int, opts Options, got *Result) {
		p := opts.Pattern
		p.R, p.C = p.Unit()
		for _, group := range members {
			s := target(layers, group, opts)
			masks, bounds := brutePrefix(layers, group, p, s)
			for _, i := range group {
				what := fmt.Sprintf("%v %v %v", opts.Pattern, opts.Allocate, s)
				compareMask(t, what, &layers[i], got.Layers[i].Mask, masks[i])
				if acted := got.Layers[i].Bounded > 0; acted != bounds[i] {
					t.Fatalf("%s: %s: bound acted: %v, want %v", what, layers[i].Name, acted, bounds[i])
				}
				bounded += got.Layers[i].Bounded
			}
		}
	})
	if bounded == 0 {
		t.Error("no trial reached the bound of one column a layer")
	}
}

func TestChannelsMatchTheirDefinition(t *testing.T) {
	forRandomLayers(t, []string{"channel"}, func(t *testing.T, layers []Layer, members [][]int, opts Options, got *Result) {
		for _, group := range members {
			var units []unit
			for _, i := range group {
				l := &layers[i]
				for r := range l.Rows {
					u := unit{layer: i, bound: i}
					sum := 0.0
					for c := range l.Cols {
						sum += score(l, r, c) * score(l, r, c)
						u.weights = append(u.weights, [2]int{r, c})
					}
					u.score = math.Max(float64(float32(math.Sqrt(sum))), math.SmallestNonzeroFloat32)
					units = append(units, u)
				}
			}
			s := target(layers, group, opts)
			masks, bounds := bruteThreshold(layers, units, s)
			for _, i := range group {
				compareMask(t, fmt.Sprintf("channel %v %v", opts.Allocate, s), &layers[i], got.Layers[i].Mask, masks[i])
				if acted := got.Layers[i].Bounded > 0; acted != bounds[i] {
					t.Fatalf("bound acted: %v, want %v", acted, bounds[i])
				}
			}
		}
	})
}

func TestNMKeepsTheLargestNOfEachM(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for trial := range 200 {
		layers := randomLayers(rng, 2, trial%2 == 0)
		p := mustPattern(t, []string{"2:4", "1:4", "4:8", "1:2", "3:7", "5:40", "4:4"}[trial%7])
		given := []Layer{layers[0], transposed(layers[1])}
		got := mustSelect(t, given, Options{Pattern: p, Workers: 2})
		for i := range layers {
			l := &layers[i]
			want := make([]bool, len(l.Weights))
			for r := range l.Rows {
				for g := 0; g < l.Cols; g += p.M {
					width := min(p.M, l.Cols-g)
					n := int(math.Ceil(float64(p.N) * float64(width) / float64(p.M)))
					order := make([]int, width)
					for j := range order {
						order[j] = g + j
					}
					slices.SortStableFunc(order, func(a, b int) int {
						if score(l, r, a) > score(l, r, b) {
							return -1
						}
						if score(l, r, a) < score(l, r, b) {
							return 1
						}
						return 0
					})
					for _, c := range order[:n] {
						want[r*l.Cols+c] = l.Weights[r*l.Cols+c] != 0
					}
				}
			}
			compareMask(t, p.String(), l, got.Layers[i].Mask, want)
		}
	}
}

// dense returns layers without any zero or tie.
func dense(rng *rand.Rand, shapes ...[2]int) []Layer {
	var layers []Layer
	for i, shape := range shapes {
		l := Layer{Name: fmt.Sprintf("layer%d", i), Rows: shape[0], Cols: shape[1]}
		l.Weights = make([]float32, l.Rows*l.Cols)
		scale := math.Sqrt(2 / float64(l.Cols))
		for j := range l.Weights {
			l.Weights[j] = float32(scale * (rng.NormFloat64() + 1e-9))
		}
		layers = append(layers, l)
	}
	return layers
}

func TestMasksAreNestedAsSparsityGrows(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	for _, pattern := range []string{"uniform", "unstructured", "block:4x2", "uniform-block:4x1", "channel"} {
		for _, allocate := range []Allocation{PerLayer, Global} {
			layers := dense(rand.New(rand.NewPCG(seed, 3)), [2]int{32, 27}, [2]int{16, 200}, [2]int{50, 64})
			var before *Result
			for s := 0.0; s < 1; s += 0.07 {
				res := mustSelect(t, layers, Options{Pattern: mustPattern(t, pattern), Sparsity: s, Allocate: allocate})
				for i := range layers {
					for j, w := range res.Layers[i].Mask.words {
						if before != nil && w&^before.Layers[i].Mask.words[j] != 0 {
							t.Fatalf("%s %s: a weight of %s that was dropped is back at %v", pattern, allocate, layers[i].Name, s)
						}
					}
				}
				before = res
			}
		}
	}
}

func TestUniformRowsAreEqualAndMeetTheTarget(t *testing.T) {
	layers := dense(rand.New(rand.NewPCG(11, 4)), [2]int{64, 147}, [2]int{64, 576}, [2]int{256, 64}, [2]int{128, 1152})
	widest := 0
	for _, l := range layers {
		widest = max(widest, l.Rows)
	}
	for _, s := range []float64{0, 0.3, 0.5, 0.8, 0.95} {
		res := mustSelect(t, layers, Options{Pattern: Pattern{Kind: Uniform}, Sparsity: s, Allocate: Global})
		for _, l := range res.Layers {
			if l.RowMin != l.RowMax || l.RowMin != l.Kept {
				t.Errorf("%v: %s keeps %d to %d nonzeros a row, and says %d", s, l.Name, l.RowMin, l.RowMax, l.Kept)
			}
		}
		if off := math.Abs(res.Total.Sparsity()-s) * float64(res.Total.Weights); off > float64(widest)/2 {
			t.Errorf("sparsity %v for %v: %v weights off, more than half a column", res.Total.Sparsity(), s, off)
		}
		res = mustSelect(t, layers, Options{Pattern: Pattern{Kind: Uniform}, Sparsity: s})
		for i, l := range res.Layers {
			if want := int(math.Round((1 - s) * float64(layers[i].Cols))); l.Kept != want {
				t.Errorf("layer %s of %d columns at %v keeps %d a row, want %d", l.Name, layers[i].Cols, s, l.Kept, want)
			}
		}
	}
}

func TestUniformIsThePublishedGlobalThreshold(t *testing.T) {
	// Sorted columns: a has norms 5, sqrt(8), 1; b has 3 and 2.
	layers := []Layer{
		{Name: "a", Rows: 2, Cols: 3, Weights: []float32{3, 2, 1, 0, -2, 4}},
		{Name: "b", Rows: 1, Cols: 2, Weights: []float32{2, -3}},
	}
	res := mustSelect(t, layers, Options{Pattern: Pattern{Kind: Uniform}, Sparsity: 5. / 8, Allocate: Global})
	compareMask(t, "a", &layers[0], res.Layers[0].Mask, []bool{true, false, false, false, false, true})
	compareMask(t, "b", &layers[1], res.Layers[1].Mask, []bool{false, true})
	res = mustSelect(t, layers, Options{Pattern: Pattern{Kind: Uniform}, Sparsity: 3. / 8, Allocate: Global})
	compareMask(t, "a", &layers[0], res.Layers[0].Mask, []bool{true, true, false, false, true, true})
	compareMask(t, "b", &layers[1], res.Layers[1].Mask, []bool{false, true})
	if got := res.Total; got != (Tally{Weights: 8, Zeros: 3}) {
		t.Errorf("total %+v", got)
	}
}

func TestAllocatedAsOwnTargetGivesTheSameMasks(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	for _, pattern := range []string{"uniform", "unstructured", "block:4x2", "uniform-block:4x1", "block:4x4+2:4", "uniform-block:2x8+2:4", "channel"} {
		rng := rand.New(rand.NewPCG(seed, 5))
		layers := dense(rng, [2]int{32, 27}, [2]int{18, 101}, [2]int{50, 64})
		clear(layers[1].Weights[:400])
		first := mustSelect(t, layers, Options{Pattern: mustPattern(t, pattern), Sparsity: 0.6, Allocate: Global})
		for i := range layers {
			layers[i].Sparsity = &first.Layers[i].Allocated
		}
		again := mustSelect(t, layers, Options{Pattern: mustPattern(t, pattern)})
		for i := range layers {
			if !slices.Equal(first.Layers[i].Mask.words, again.Layers[i].Mask.words) {
				t.Errorf("%s: %s differs when given its allocated sparsity %v", pattern, layers[i].Name, first.Layers[i].Allocated)
			}
		}
	}
}

func TestSparsityZeroKeepsEveryNonzero(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	layers := dense(rng, [2]int{33, 21}, [2]int{5, 70})
	for i := 0; i < len(layers[0].Weights); i += 3 {
		layers[0].Weights[i] = 0
	}
	zero := 0.0
	for _, pattern := range []string{"dense", "uniform", "unstructured", "2:4", "block:4x4", "uniform-block:8x1", "block:4x4+2:4", "uniform-block:2x4+1:4", "channel"} {
		p := mustPattern(t, pattern)
		opts := Options{Pattern: p, Allocate: Global}
		if p.Kind == NM {
			layers[0].Sparsity, layers[1].Sparsity = &zero, &zero
		}
		res := mustSelect(t, layers, opts)
		layers[0].Sparsity, layers[1].Sparsity = nil, nil
		for i := range layers {
			want, err := layers[i].Nonzeros()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(res.Layers[i].Mask.words, want.words) {
				t.Errorf("%s changes %s at sparsity 0", pattern, layers[i].Name)
			}
			if res.Layers[i].Allocated != 0 || res.Layers[i].Bounded != 0 {
				t.Errorf("%s: %s reports allocated %v, bounded %d", pattern, layers[i].Name, res.Layers[i].Allocated, res.Layers[i].Bounded)
			}
		}
	}
}

func TestOwnTargetsAreOutsideTheGlobalCount(t *testing.T) {
	layers := dense(rand.New(rand.NewPCG(2, 7)), [2]int{40, 100}, [2]int{40, 100}, [2]int{40, 100})
	own := 0.9
	layers[1].Sparsity = &own
	for _, pattern := range []string{"unstructured", "uniform"} {
		res := mustSelect(t, layers, Options{Pattern: mustPattern(t, pattern), Sparsity: 0.25, Allocate: Global})
		if got := res.Layers[1].Sparsity(); got != own {
			t.Errorf("%s: own sparsity %v, want %v", pattern, got, own)
		}
		if got := res.Shared; got.Weights != 8000 || math.Abs(got.Sparsity()-0.25) > 0.0025 {
			t.Errorf("%s: the others have %v zeros of %d, want a quarter of 8000", pattern, got.Zeros, got.Weights)
		}
		if res.Total.Zeros != res.Shared.Zeros+3600 {
			t.Errorf("%s: total %+v", pattern, res.Total)
		}
	}
}

func TestSaliencyOrdersInPlaceOfMagnitude(t *testing.T) {
	l := Layer{Name: "a", Rows: 1, Cols: 4, Weights: []float32{9, 8, 7, 0}, Saliency: []float32{1, 2, 3, 4}}
	res := mustSelect(t, []Layer{l}, Options{Pattern: Pattern{Kind: Uniform}, Sparsity: 0.5})
	compareMask(t, "saliency", &l, res.Layers[0].Mask, []bool{false, true, true, false})
	// A saliency of zero ranks above a weight of zero.
	l.Saliency = []float32{0, 0, 0, 5}
	res = mustSelect(t, []Layer{l}, Options{Pattern: Pattern{Kind: Unstructured}, Sparsity: 0.75})
	compareMask(t, "no saliency", &l, res.Layers[0].Mask, []bool{true, false, false, false})
}

func TestNotesNameWhatThePatternDoesNotDivide(t *testing.T) {
	layers := dense(rand.New(rand.NewPCG(4, 8)), [2]int{10, 27})
	for pattern, want := range map[string]string{
		"uniform":              "",
		"2:4":                  "27 columns are not a multiple of 4: the last group keeps 2 of 3",
		"block:4x1":            "10 rows are not a multiple of 4: the last block row is 2 high",
		"uniform-block:5x9":    "",
		"uniform-block:32x2":   "10 rows are not a multiple of 32: the last block row is 10 high; 27 columns are not a multiple of 2: the last block column is 1 wide",
		"block:1x1":            "",
		"block:5x4+2:4":        "27 columns are not a multiple of 4: the last block column is 3 wide; 27 columns are not a multiple of 4: the last group keeps 2 of 3",
		"channel":              "",
		"uniform-block:1x1024": "27 columns are not a multiple of 1024: the last block column is 27 wide",
	} {
		res := mustSelect(t, layers, Options{Pattern: mustPattern(t, pattern)})
		if got := res.Layers[0].Note; got != want {
			t.Errorf("%s: note %q, want %q", pattern, got, want)
		}
	}
}

func TestSelectRejects(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	one, half := 1.0, 0.5
	good := func() Layer { return Layer{Name: "conv_3", Rows: 2, Cols: 2, Weights: []float32{1, 2, 3, 4}} }
	with := func(edit func(*Layer)) []Layer {
		l := good()
		edit(&l)
		return []Layer{good(), l}
	}
	uniform := Options{Pattern: Pattern{Kind: Uniform}}
	for _, c := range []struct {
		name   string
		layers []Layer
		opts   Options
		want   string
	}{
		{"nan", with(func(l *Layer) { l.Weights[2] = nan }), uniform, "conv_3: weight [1,0] is NaN"},
		{"infinity", with(func(l *Layer) { l.Weights[2] = inf; l.Transposed = true }), uniform, "conv_3: weight [0,1] is -Inf"},
		{"negative saliency", with(func(l *Layer) { l.Saliency = []float32{0, -1, 0, 0} }), uniform, "conv_3: saliency [0,1] is -1"},
		{"short saliency", with(func(l *Layer) { l.Saliency = []float32{0} }), uniform, "conv_3: 1 saliencies for 4 weights"},
		{"short weights", with(func(l *Layer) { l.Weights = l.Weights[:3] }), uniform, "conv_3: 3 weights for a 2x2 matrix"},
		{"huge shape", with(func(l *Layer) { l.Rows, l.Cols = 1<<62, 4 }), uniform, "conv_3: 4 weights for a 4611686018427387904x4 matrix"},
		{"no rows", with(func(l *Layer) { l.Rows = 0 }), uniform, "conv_3: weight matrix 0x2"},
		{"own sparsity", with(func(l *Layer) { l.Sparsity = &one }), uniform, "conv_3: Prune.Sparsity 1: want"},
		{"sparsity one", nil, Options{Pattern: Pattern{Kind: Uniform}, Sparsity: 1}, "Sparsity 1: want a fraction"},
		{"sparsity nan", nil, Options{Pattern: Pattern{Kind: Uniform}, Sparsity: math.NaN()}, "Sparsity NaN"},
		{"N:M sparsity", nil, Options{Pattern: Pattern{Kind: NM, N: 2, M: 4}, Sparsity: 0.6}, "Pattern 2:4 sets its own, 0.5"},
		{"N:M own sparsity", with(func(l *Layer) { l.Sparsity = &half }), Options{Pattern: Pattern{Kind: NM, N: 1, M: 4}}, "conv_3: Prune.Sparsity 0.5: Prune.Pattern 1:4 sets its own, 0.75"},
		{"N:M in blocks", nil, Options{Pattern: Pattern{Kind: Block, R: 4, C: 4, N: 2, M: 4}, Sparsity: 0.4}, "Sparsity 0.4: Prune.Pattern block:4x4+2:4 has 0.5 zeros within blocks, want at least that"},
		{"N:M across blocks", nil, Options{Pattern: Pattern{Kind: Block, R: 4, C: 6, N: 2, M: 4}, Sparsity: 0.6}, `"block:4x6+2:4": blocks are 6 columns wide, want a multiple of 4 for 2:4 within`},
		{"dense", nil, Options{Pattern: Pattern{Kind: Dense}, Sparsity: 0.5}, "Pattern dense keeps every weight"},
		{"allocation", nil, Options{Allocate: "fair"}, `Prune.Allocate fair`},
		{"bad pattern", nil, Options{Pattern: Pattern{Kind: Block}}, "block:0x0"},
		{"stray numbers", nil, Options{Pattern: Pattern{Kind: Uniform, R: 2}}, "do not belong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Select(c.layers, c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %v, want one line with %q", err, c.want)
			}
		})
	}
	_, err := Select(with(func(l *Layer) { l.Weights[0] = nan }), uniform)
	if !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("%v does not wrap ir.ErrInvalid", err)
	}
}

func TestResultDoesNotDependOnWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	layers := dense(rng, [2]int{300, 400}, [2]int{1000, 90}, [2]int{64, 2000})
	layers = append(layers, transposed(dense(rng, [2]int{500, 130})[0]))
	for _, pattern := range []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:4x3", "block:8x4+2:4", "uniform-block:8x8+4:8", "channel"} {
		p := mustPattern(t, pattern)
		opts := Options{Pattern: p, Allocate: Global, Sparsity: 0.7, Workers: 1}
		if p.Kind == NM {
			opts.Sparsity = 0
		}
		want := mustSelect(t, layers, opts)
		for opts.Workers = 2; opts.Workers < 6; opts.Workers++ {
			got := mustSelect(t, layers, opts)
			for i := range layers {
				if !slices.Equal(got.Layers[i].Mask.words, want.Layers[i].Mask.words) {
					t.Errorf("%s: %s differs between 1 and %d workers", pattern, layers[i].Name, opts.Workers)
				}
			}
		}
	}
}

func TestMaskApply(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 10))
	l := dense(rng, [2]int{70, 131})[0]
	res := mustSelect(t, []Layer{l}, Options{Pattern: Pattern{Kind: Unstructured}, Sparsity: 0.6})
	mask := res.Layers[0].Mask
	turned := transposed(l)
	w, wt := slices.Clone(l.Weights), slices.Clone(turned.Weights)
	mask.Apply(w, false)
	mask.Apply(wt, true)
	for r := range l.Rows {
		for c := range l.Cols {
			want := float32(0)
			if mask.Keeps(r, c) {
				want = l.Weights[r*l.Cols+c]
			}
			if w[r*l.Cols+c] != want || wt[c*l.Rows+r] != want {
				t.Fatalf("[%d,%d]: %v and transposed %v, want %v", r, c, w[r*l.Cols+c], wt[c*l.Rows+r], want)
			}
		}
	}
	if got, want := mask.Count(), res.Total.Weights-res.Total.Zeros; got != want {
		t.Errorf("mask counts %d, the result %d", got, want)
	}
}

func TestRowNorms(t *testing.T) {
	l := transposed(Layer{Name: "a", Rows: 2, Cols: 2, Weights: []float32{3, 4, 0, -2}})
	got, err := l.RowNorms()
	if err != nil || !slices.Equal(got, []float64{5, 2}) {
		t.Errorf("norms %v, %v", got, err)
	}
}
