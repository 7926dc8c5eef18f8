package quant

import (
	"runtime"

	"spc/internal/pace"
	"spc/ir"
	"spc/ir/tensor"
)

// The names of stages.
const (
	rangesStage    = "ranges"
	sensitiveStage = "sensitive products"
)

// stageRate is the multiply-adds a second of a core, by which stages are planned.
const stageRate = 20e9

// Stages plans the stages of Run on so many samples.
func (o *Options) Stages(g *ir.Graph, samples int) []pace.Stage {
	if o.Type != tensor.I8 {
		return []pace.Stage{pace.Even("quantize", 1, 0.01)}
	}
	const observed = 6 // times as long as to run takes to run twice and count the values of each tensor
	run := 0.0
	for _, u := range g.WeightUses() {
		run += u.Products(1)
	}
	run /= stageRate * float64(runtime.GOMAXPROCS(0))
	list := []pace.Stage{pace.Even(rangesStage, 1, observed*run*float64(samples))}
	if !o.All {
		list = append(list, pace.Even(sensitiveStage, maxTrials, run*min(trialRows, float64(samples))))
	}
	return list
}

func (o *Options) report(stage string, done, total int) {
	if o.Progress != nil {
		o.Progress(stage, done, total)
	}
}
