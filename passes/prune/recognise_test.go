package prune

import (
	"math/rand/v2"
	"testing"
)

func TestRecogniseFindsWhatSelectMade(t *testing.T) {
	const seed = 17
	t.Logf("seed %d", seed)
	for _, c := range []struct {
		pattern  string
		sparsity float64
		shape    [2]int
		want     string
	}{
		{"dense", 0, [2]int{64, 100}, "dense"},
		{"uniform", 0.5, [2]int{64, 100}, "uniform"},
		{"uniform", 0.95, [2]int{64, 576}, "uniform"},
		{"unstructured", 0.5, [2]int{64, 576}, "unstructured"},
		{"unstructured", 0.9, [2]int{64, 576}, "unstructured"},
		{"unstructured", 0.99, [2]int{64, 576}, "unstructured"},
		{"2:4", 0, [2]int{64, 147}, "2:4"},
		{"1:4", 0, [2]int{64, 128}, "1:4"},
		{"1:2", 0, [2]int{64, 128}, "1:2"},
		{"4:8", 0, [2]int{64, 130}, "4:8"},
		{"3:16", 0, [2]int{64, 130}, "3:16"},
		{"block:4x1", 0.5, [2]int{64, 147}, "block:4x1"},
		{"block:4x1", 0.9, [2]int{62, 147}, "block:4x1"},
		{"block:1x4", 0.7, [2]int{64, 147}, "block:1x4"},
		{"block:8x8", 0.6, [2]int{64, 150}, "block:8x8"},
		{"block:32x32", 0.5, [2]int{256, 320}, "block:32x32"},
		{"uniform-block:4x1", 0.5, [2]int{64, 147}, "uniform-block:4x1"},
		{"uniform-block:16x1", 0.8, [2]int{64, 300}, "uniform-block:16x1"},
		{"uniform-block:4x4", 0.75, [2]int{64, 256}, "uniform-block:4x4"},
		{"block:16x16+2:4", 0.7, [2]int{64, 320}, "block:16x16+2:4"},
		{"block:16x16+2:4", 0.9, [2]int{256, 320}, "block:16x16+2:4"},
		{"block:4x4+2:4", 0.8, [2]int{64, 147}, "block:4x4+2:4"},
		{"block:8x8+1:4", 0.9, [2]int{128, 256}, "block:8x8+1:4"},
		{"block:32x32+4:8", 0.75, [2]int{256, 320}, "block:32x32+4:8"},
		{"uniform-block:16x4+2:4", 0.8, [2]int{64, 256}, "uniform-block:16x4+2:4"},
		{"uniform-block:1x16+1:4", 0.9, [2]int{64, 320}, "uniform-block:1x16+1:4"},
		{"block:16x16+2:4", 0.5, [2]int{64, 320}, "2:4"},
		{"channel", 0.4, [2]int{64, 100}, "channel"},
	} {
		layers := dense(rand.New(rand.NewPCG(seed, 1)), c.shape)
		res := mustSelect(t, layers, Options{Pattern: mustPattern(t, c.pattern), Sparsity: c.sparsity})
		got := Recognise(res.Layers[0].Mask)
		if got.Pattern.String() != c.want {
			t.Errorf("%s at %v on %v is taken for %s, fill %.3f", c.pattern, c.sparsity, c.shape, got.Pattern, got.Fill)
		}
		if got.Tally != res.Total || got.RowMin != res.Layers[0].RowMin || got.RowMax != res.Layers[0].RowMax {
			t.Errorf("%s: counts %+v, want those of %+v", c.pattern, got, res.Layers[0])
		}
		res.Layers[0].Mask.Apply(layers[0].Weights, false)
		for _, l := range []Layer{layers[0], transposed(layers[0])} {
			m, err := l.Nonzeros()
			if err != nil {
				t.Fatal(err)
			}
			if again := Recognise(m); again != got {
				t.Errorf("%s: from the weights %+v, from the mask %+v", c.pattern, again, got)
			}
		}
	}
}

func TestRecogniseBearsAFewIncidentalZeros(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	for _, pattern := range []string{"2:4", "block:8x1", "uniform-block:4x4"} {
		l := dense(rng, [2]int{64, 160})[0]
		for j := range l.Weights {
			if rng.IntN(100) == 0 {
				l.Weights[j] = 0
			}
		}
		opts := Options{Pattern: mustPattern(t, pattern), Sparsity: 0.5}
		if got := Recognise(mustSelect(t, []Layer{l}, opts).Layers[0].Mask); got.Pattern != opts.Pattern {
			t.Errorf("%s is taken for %s, fill %.3f", pattern, got.Pattern, got.Fill)
		}
	}
}

func TestRecogniseExtremes(t *testing.T) {
	for _, c := range []struct {
		rows, cols int
		set        [][2]int
		want       string
	}{
		{1, 1, nil, "channel"},
		{1, 1, [][2]int{{0, 0}}, "dense"},
		{3, 70, nil, "channel"},
		{2, 3, [][2]int{{0, 1}, {1, 0}}, "uniform"},
		{1, 5, [][2]int{{0, 1}}, "uniform"},
		{2, 3, [][2]int{{0, 1}, {0, 2}, {1, 0}}, "unstructured"},
	} {
		m := NewMask(c.rows, c.cols)
		for _, at := range c.set {
			m.Set(at[0], at[1])
		}
		if got := Recognise(m); got.Pattern.String() != c.want {
			t.Errorf("%dx%d with %v is taken for %s, want %s", c.rows, c.cols, c.set, got.Pattern, c.want)
		}
	}
}

// The counts by words equal counts weight by weight.
func TestBlockAndGroupCounts(t *testing.T) {
	const seed = 29
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		m := NewMask(1+rng.IntN(40), 1+rng.IntN(200))
		for range rng.IntN(m.Rows*m.Cols/4 + 1) {
			m.Set(rng.IntN(m.Rows), rng.IntN(m.Cols))
		}
		for _, shape := range blockShapes {
			r, c := shape[0], shape[1]
			want := 0
			for r0 := 0; r0 < m.Rows; r0 += r {
				for c0 := 0; c0 < m.Cols; c0 += c {
					size, any := 0, false
					for y := r0; y < min(r0+r, m.Rows); y++ {
						for x := c0; x < min(c0+c, m.Cols); x++ {
							size++
							any = any || m.Keeps(y, x)
						}
					}
					if any {
						want += size
					}
				}
			}
			if got, _ := m.blocks(r, c); got != want {
				t.Fatalf("%dx%d blocks of a %dx%d mask hold %d weights, want %d", r, c, m.Rows, m.Cols, got, want)
			}
		}
		for _, g := range groupSizes {
			want := 0
			for y := range m.Rows {
				for x0 := 0; x0 < m.Cols; x0 += g {
					n, width := 0, min(g, m.Cols-x0)
					for x := x0; x < x0+width; x++ {
						if m.Keeps(y, x) {
							n++
						}
					}
					for tailLimit(want, g, width) < n {
						want++
					}
				}
			}
			if got := m.mostOf(g); got != want {
				t.Fatalf("groups of %d of a %dx%d mask have %d, want %d", g, m.Rows, m.Cols, got, want)
			}
		}
	}
}
