package format

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend"
	"spc/backend/predict"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Of the formats with kernels for 8-bit weights each wins what it is made for, where there is work enough.
func TestIntegerFormatsForGPUs(t *testing.T) {
	rates := backend.RatesOf("sm_90")
	rng := rand.New(rand.NewPCG(3, 0))
	const m, k, n = 2048, 2048, 4096
	for _, f := range []struct {
		want string
		keep func(r, c int) bool
	}{
		{"dense", func(int, int) bool { return true }},
		{"nm", func(_, c int) bool { return c%4 < 2 }},
		{"block", func(r, c int) bool { return (r/128+c/128)%4 == 0 }},
	} {
		want, keep := f.want, f.keep
		w := tensor.New(tensor.F32, m, k)
		for i := range w.F32s() {
			if keep(i/k, i%k) {
				w.F32s()[i] = float32(1 + rng.IntN(127))
			}
		}
		best, least := "", 0.0
		matrix := choose.NewMatrix(w, "")
		matrix.Type = tensor.I8
		for _, f := range GPUChoices(rates, tensor.F16) {
			for _, c := range f.Costs(matrix, n) {
				if s, _ := predict.GPU(rates).Predict(c, m, k, n); best == "" || s < least {
					best, least = f.Name(), s
				}
			}
		}
		if best != want {
			t.Errorf("%s wins what %s is made for", best, want)
		}
	}
}

// Costs say what limits a kernel: nothing but its launch, the bytes of the weight, and where there are
// many columns neither.
func TestCostsSayWhatLimitsKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	for _, c := range []struct {
		m, k, n int
		want    []string
	}{
		{64, 64, 1, []string{"the launch"}},
		{8192, 4096, 1, []string{"the bytes"}},
		{2048, 2048, 4096, []string{"", "reads from the cache", "reads from shared memory"}},
	} {
		w := tensor.New(tensor.F32, c.m, c.k)
		for i := range w.F32s() {
			w.F32s()[i] = rng.Float32() + 1
		}
		for _, f := range GPUChoices(backend.DataSheet("sm_90"), tensor.F16) {
			if f.Name() != "dense" {
				continue
			}
			costs := f.Costs(choose.NewMatrix(w, ""), c.n)
			if len(costs) != 1 || !slices.Contains(c.want, costs[0].Bound) {
				t.Errorf("%d x %d by %d columns: %+v, want bound by one of %q", c.m, c.k, c.n, costs, c.want)
			}
		}
	}
}
