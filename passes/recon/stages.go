package recon

import (
	"fmt"

	"spc/internal/pace"
	"spc/ir"
)

// Backward is how much longer a step of training takes than to evaluate what is trained.
const Backward = 9

// Stages plans the stages of Run on so many samples. forward is the seconds in which a weight's product is evaluated on one of them.
func Stages(g *ir.Graph, o Options, samples int, forward func(u ir.WeightUse) float64) []pace.Stage {
	of := map[*ir.Node]float64{}
	whole := 0.0
	for _, u := range g.WeightUses() {
		s := forward(u)
		of[u.Node] += s
		whole += s
	}
	var list []pace.Stage
	if epochs := float64(o.Epochs) + o.newtonEpochs(samples); epochs > 0 {
		// What was trained is tried in the whole model on the samples held out.
		search := float64(len(shares)) * whole * float64(samples) / HeldOut
		if o.Newton > 0 || o.Gates != nil {
			search = 0 // once, after the last block, or not at all
		}
		for i, b := range blocks(g, max(1, o.Window)) {
			seconds := 0.0
			for _, n := range g.Nodes[b.lo:b.hi] {
				seconds += of[n]
			}
			if seconds > 0 {
				list = append(list, pace.Stage{
					Name: o.blockStage(i), Kind: "blocks", Steps: []float64{Backward * seconds * float64(samples) * epochs}, Rest: search,
				})
			}
		}
	}
	all := func(name string, epochs int) {
		if epochs > 0 {
			list = append(list, pace.Stage{Name: name, Kind: "model", Steps: []float64{(Backward + 1) * whole * float64(samples*epochs)}})
		}
	}
	all(gainsStage, o.GainEpochs)
	all(o.modelStage(), o.WholeEpochs)
	return list
}

// newtonEpochs is how many epochs of training steps of Newton's method take about as long as.
func (o *Options) newtonEpochs(samples int) float64 {
	const product = 4. / 3 // two evaluations in the place of one, and gradients
	some := min(1, curvatureLeast/float64(max(1, samples)))
	return float64(o.Newton) * (2 + some*(1+conjugate*product))
}

// The names of stages.
const gainsStage = "reconstruct the sizes of rows"

func (o *Options) modelStage() string { return o.doing() + " the model" }

func (o *Options) blockStage(i int) string {
	if o.Newton > 0 {
		return fmt.Sprintf("%s block %d", OfSnows, i+1)
	}
	return fmt.Sprintf("%s block %d", o.doing(), i+1)
}

func (o *Options) doing() string {
	if o.Gates != nil {
		return "gates of"
	}
	return "reconstruct"
}
