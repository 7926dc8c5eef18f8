package recon

import "spc/ir"

// Recipe returns the options that suit a graph's family: those of convolutional models
// where most weights are of convolutions, else those of transformers, of which the
// whole model is trained at once. RATIONALE.md says how they were found, and that those
// of convolutions were not measured.
func Recipe(g *ir.Graph) Options {
	convs, products := 0, 0
	for _, u := range g.WeightUses() {
		if u.Slide != nil {
			convs++
		} else {
			products++
		}
	}
	o := Options{WholeEpochs: 60, WholeRate: 0.01, Inside: 1, Augment: true, Warmup: 0.1, Seed: 1}
	if convs > products {
		o.Epochs, o.Rate, o.WholeEpochs, o.WholeRate, o.Inside = 20, 0.01, 20, 0.005, 10
	}
	return o
}
