package recon

import "math"

// rate is the learning rate of step t of n: it rises linearly over the first steps,
// the share warmup of all, and then follows a cosine to zero, as a training run from
// its start would (Renda et al., "Comparing rewinding and fine-tuning in neural
// network pruning", 2020, rewind the rate and train with its schedule again).
func rate(t, n int, peak, warmup float64) float64 {
	w := warmup * float64(n)
	if x := float64(t) + 1; x < w {
		return peak * x / w
	}
	return peak * (1 + math.Cos(math.Pi*(float64(t)-w)/max(1, float64(n)-w))) / 2
}
