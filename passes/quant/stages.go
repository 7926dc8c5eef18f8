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
	roundStage     = "round"
)

// stageRate is the multiply-adds a second of a core, by which stages are planned.
const stageRate = 20e9

// Stages plans the stages of Run on so many samples.
func (o *Options) Stages(g *ir.Graph, samples int) []pace.Stage {
	if o.Rounds() {
		return []pace.Stage{o.rounding(g, samples)}
	}
	if !o.Integers() {
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

// rounding plans how weights are rounded: by themselves, or after what multiplies them was seen.
func (o *Options) rounding(g *ir.Graph, samples int) pace.Stage {
	const search, solve = 3e6, 2.5e9 // weights a second of a core, and multiply-adds
	stage := pace.Stage{Name: roundStage}
	cores := float64(runtime.GOMAXPROCS(0))
	for _, u := range g.WeightUses() {
		shape, ok := u.Value.Type.Shape()
		if !ok || u.Value.Type.DType != tensor.F32 {
			continue
		}
		r, c := u.View.Dims(shape)
		rows, cols := float64(r), float64(c)
		s := rows * cols / search
		if o.Observer != nil {
			s += u.Products(1)*float64(samples)*(1+cols/max(1, rows))/stageRate + (cols*cols*cols+rows*cols*cols)/solve
		}
		stage.Steps = append(stage.Steps, s/cores)
	}
	return stage
}

func (o *Options) report(stage string, done, total int) {
	if o.Progress != nil {
		o.Progress(stage, done, total)
	}
}
