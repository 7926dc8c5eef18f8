package format

import (
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/tune"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Of the formats of 8-bit weights each wins what it is made for, where there is work enough.
func TestIntegerFormatsForGPUs(t *testing.T) {
	rates := backend.RatesOf("sm_90")
	rng := rand.New(rand.NewPCG(3, 0))
	const m, k, n = 2048, 2048, 4096
	for want, keep := range map[string]func(r, c int) bool{
		"dense":  func(int, int) bool { return true },
		"nm8":    func(_, c int) bool { return c%4 < 2 },
		"block8": func(r, c int) bool { return (r/128+c/128)%4 == 0 },
	} {
		w := tensor.New(tensor.F32, m, k)
		for i := range w.F32s() {
			if keep(i/k, i%k) {
				w.F32s()[i] = float32(1 + rng.IntN(127))
			}
		}
		best, least := "", 0.0
		for _, f := range GPUChoices8(rates) {
			for _, c := range f.Costs(choose.NewMatrix(w, ""), n) {
				if s, _ := tune.GPU(rates).Predict(c, m, k, n); best == "" || s < least {
					best, least = f.Name(), s
				}
			}
		}
		if best != want {
			t.Errorf("%s wins what %s is made for", best, want)
		}
	}
}
