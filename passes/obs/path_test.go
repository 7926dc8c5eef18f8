package obs

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/passes/prune"
)

func TestPathsPassWhatPruneFinds(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, text := range []string{"uniform", "uniform-block:4x1", "uniform-block:2x3"} {
		p, err := prune.ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		l := randomLayer(rng, 11, 23)
		for i := range 8 { // some that came as zero
			l.W[i*13] = 0
		}
		s := solver(t, l)
		keeps := []int{3, 7, 5, 7, 1}
		path, err := s.Path(ctx, p, keeps)
		if err != nil {
			t.Fatal(err)
		}
		for i, keep := range keeps {
			want, err := s.Prune(ctx, Options{Pattern: p, Keep: keep})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(path[i].W, want.W) || path[i].Loss != want.Loss || path[i].Mask.Count() != want.Mask.Count() {
				t.Errorf("%s, keep %d: loss %v, want %v", text, keep, path[i].Loss, want.Loss)
			}
		}
	}
	if _, err := solver(t, randomLayer(rng, 4, 8)).Path(ctx, prune.Pattern{Kind: prune.NM, N: 2, M: 4}, []int{2}); err == nil {
		t.Error("N:M has one sparsity, and a path is found")
	}
}
