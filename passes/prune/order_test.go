package prune

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSortAndSelectKeys(t *testing.T) {
	const seed = 31
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	draw := []func() uint32{
		func() uint32 { return math.Float32bits(float32(math.Abs(rng.NormFloat64()))) },
		func() uint32 { return uint32(rng.IntN(4)) },
		func() uint32 { return rng.Uint32() >> 1 },
		func() uint32 { return 1 << 30 },
		func() uint32 { return 1<<30 + uint32(rng.IntN(300)) },
	}
	for _, n := range []int{1, 2, 31, 32, 33, smallSort - 1, smallSort, 300, 1000} {
		for kind, next := range draw {
			keys := make([]uint32, n)
			for i := range keys {
				keys[i] = next()
			}
			given := slices.Clone(keys)
			want := slices.Sorted(slices.Values(keys))
			a, b := make([]uint32, n), make([]uint32, n)
			if !slices.Equal(sortKeys(keys, a, b), want) {
				t.Fatalf("%d keys of kind %d are not sorted", n, kind)
			}
			for _, k := range []int{1, (n + 1) / 2, n} {
				key, larger := nthLargest(keys, k, a)
				wantLarger := 0
				for _, v := range keys {
					if v > want[n-k] {
						wantLarger++
					}
				}
				if key != want[n-k] || larger != wantLarger {
					t.Fatalf("%d-th largest of %d of kind %d: %d with %d larger, want %d with %d", k, n, kind, key, larger, want[n-k], wantLarger)
				}
			}
			if !slices.Equal(keys, given) {
				t.Fatal("the keys were written to")
			}
		}
	}
}
