package recon

import "spc/ir"

// Recipe returns the options that suit a graph's family: those of convolutional models
// where a convolution is among the prunable weights, else those of transformers. They
// were chosen on calibration samples; see RATIONALE.md.
func Recipe(g *ir.Graph) Options {
	convs, products := 0, 0
	for _, u := range g.WeightUses() {
		if u.Slide != nil {
			convs++
		} else {
			products++
		}
	}
	if convs > products {
		return Options{Epochs: 20, Rate: 0.01, WholeEpochs: 20, WholeRate: 0.005, Inside: 10, Augment: true, Warmup: 0.1, Batch: 16, Seed: 1}
	}
	return Options{Epochs: 40, Rate: 0.02, WholeEpochs: 100, WholeRate: 0.01, Inside: 10, Augment: true, Warmup: 0.1, Batch: 4, Seed: 1}
}
