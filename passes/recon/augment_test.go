package recon

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/ir/tensor"
)

func TestImagesAreMirroredAndMoved(t *testing.T) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const size = 16
	x := tensor.New(tensor.F32, 1, 2, size, size)
	for i := range x.F32s() {
		x.F32s()[i] = float32(i)
	}
	mirrored, moved := 0, 0
	for range 100 {
		y := tensor.New(tensor.F32, x.Shape()...)
		augment(y, x, x, rng)
		// The element in the middle tells where it came from, and its neighbours how.
		mid := y.F32s()[size*size+size/2*size+size/2:]
		step := int(mid[1] - mid[0])
		if step == -1 {
			mirrored++
		} else if step != 1 {
			t.Fatalf("neighbours differ by %d", step)
		}
		from := int(mid[0]) - size*size
		dy, dx := from/size-size/2, from%size-size/2
		if step == -1 {
			dx = size - 1 - from%size - size/2
		}
		if dy < -size/8 || dy > size/8 || dx < -size/8 || dx > size/8 {
			t.Fatalf("moved by %d, %d, want at most %d", dy, dx, size/8)
		}
		if dy != 0 || dx != 0 {
			moved++
		}
	}
	if mirrored < 30 || mirrored > 70 || moved < 70 {
		t.Errorf("%d of 100 mirrored, %d moved", mirrored, moved)
	}
}

func TestTokensAreJoined(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed, 0))
	x, other := tensor.Ints(1, 1, 1, 1, 1).Reshape(1, 5), tensor.Ints(2, 2, 2, 2, 2).Reshape(1, 5)
	lengths := map[int]bool{}
	for range 100 {
		y := x.Clone()
		augment(y, x, other, rng)
		if ids := y.Ints(); !slices.IsSorted(ids) {
			t.Fatalf("%v, want some of one and then some of the other", ids)
		}
		lengths[slices.Index(append(y.Ints(), 2), 2)] = true
	}
	if len(lengths) != 6 {
		t.Errorf("joined after %v tokens, want all of 0 to 5", lengths)
	}
}

func TestTokensAreDrawnAsScoresSay(t *testing.T) {
	t.Logf("seed %d", seed)
	const n, v = 200, 4
	draws := func() []*rand.Rand {
		return []*rand.Rand{rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))}
	}
	scores := tensor.New(tensor.F32, 2, n, v)
	for i := range 2 * n {
		scores.F32s()[i*v+2+i/n] = 50 // the first row is to become 2, the second 3
	}
	ids := tensor.New(tensor.I32, 2, n)
	redraw(ids, scores, draws())
	for k := range 2 {
		row := ids.Ints()[k*n:][:n]
		drawn := 0
		for _, id := range row {
			switch id {
			case 2 + k:
				drawn++
			case 0:
			default:
				t.Fatalf("row %d has token %d", k, id)
			}
		}
		if row[0] != 0 || drawn < n*2/5 || drawn > n*3/5 {
			t.Errorf("%d of %d tokens of row %d were drawn, the first one became %d", drawn, n, k, row[0])
		}
	}
	beyond := tensor.Ints(slices.Repeat([]int{v}, 2*n)...).Reshape(2, n)
	kept := beyond.Clone()
	if redraw(beyond, scores, draws()); !beyond.Equal(kept) {
		t.Error("tokens that have no score were drawn anew")
	}
}
