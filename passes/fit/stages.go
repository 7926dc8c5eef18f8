package fit

import (
	"math"
	"runtime"
	"slices"

	"spc/internal/pace"
	"spc/ir"
	"spc/passes/permute"
	"spc/passes/prune"
	"spc/passes/recon"
)

// The multiply-adds a second of a core, by which stages are planned. What machines take corrects them.
const (
	forwardRate = 20e9 // of products, and of moments
	curveRate   = 2.5e9
	sparseRate  = 5e9
	exactRate   = 11e9
)

// assumedSamples is the number of samples where nobody tells.
const assumedSamples = 64

// costs are the seconds that a layer takes in stages.
type costs struct{ forward, gram, curve, sparse, exact, refine float64 }

// Stages plans the stages of Run on g, in the order in which they begin.
func (o Options) Stages(g *ir.Graph) []pace.Stage {
	elements := 0.0
	for _, u := range g.WeightUses() {
		if shape, ok := u.Value.Type.Shape(); ok {
			rows, cols := u.View.Dims(shape)
			elements += float64(rows) * float64(cols)
		}
	}
	simple := []pace.Stage{pace.Even("prune", 1, 40e-9*elements)}
	if !o.Asks() {
		return []pace.Stage{pace.Even("prune", 1, 0)}
	}
	p, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil || o.Check() != nil {
		return simple
	}
	var order []pace.Stage
	if o.permutes() {
		order = append(order, permute.Stage(p, ordering))
	}
	if o.Observer == nil || o.sightless() {
		return append(order, simple...)
	}
	samples := float64(o.Count)
	if samples == 0 {
		samples = assumedSamples
	}
	s := stager{Options: o, graph: g, order: order, samples: samples, cores: float64(runtime.GOMAXPROCS(0))}
	s.measure(p)
	return s.stages()
}

// stager plans stages.
type stager struct {
	Options
	graph   *ir.Graph
	order   []pace.Stage // of channels
	samples float64
	cores   float64
	layers  []costs
	forward float64 // of all
	exact   bool    // trials use exact OBS where the model does
}

// measure finds the costs of the layers.
func (s *stager) measure(p *prune.Plan) {
	sum := 0.0
	bounded := s.method().work
	for _, i := range p.Prunable() {
		u := p.Use(i)
		shape, _ := u.Value.Type.Shape()
		r, c := u.View.Dims(shape)
		rows, cols := float64(r), float64(c)
		positions := s.samples * float64(u.Columns()) * float64(max(1, u.Reuse.AtOne()))
		some := min(rows, max(curveRows, curveWork/(cols*cols)))
		exact := math.Inf(1)
		if bounded != nil {
			exact = bounded(p.Pattern(i), r, c)
		}
		cost := costs{
			forward: rows * cols * positions / forwardRate, gram: cols * cols * positions / forwardRate,
			curve:  (cols*cols*cols + (float64(len(grid))*some+rows)*cols*cols) / curveRate,
			sparse: (2*cols*cols*cols + rows*cols*cols) / sparseRate,
		}
		if cost.exact = cost.sparse; exact <= exactWork {
			cost.exact = cost.sparse + exact/exactRate
			sum += exact
		}
		for _, a := range s.asked() {
			if a.work == nil {
				continue
			}
			if n := a.work(p.Pattern(i), r, c); n <= refineWork {
				cost.refine += n / exactRate
			}
		}
		for _, x := range []*float64{&cost.forward, &cost.gram, &cost.curve, &cost.sparse, &cost.exact, &cost.refine} {
			*x /= s.cores
		}
		s.layers = append(s.layers, cost)
		s.forward += cost.forward
	}
	s.exact = sum*float64(len(s.allocations())) <= trialWork
}

// survey names the stage that sees the inputs of layers before anything is pruned, and reports whether there is one.
func (s *stager) survey(names []prune.Allocation, curves bool) (stage string, does bool) {
	if s.Pattern.Removes() && s.solves() && (names[0] == Curves || names[0] == prune.PerLayer) {
		return bundling, true
	}
	return "survey", s.surveys() && (curves || !s.permutes() || s.method().sees == seesNothing)
}

// stages lists them.
func (s *stager) stages() (list []pace.Stage) {
	each := func(name, kind string, rest float64, of func(c costs) float64) {
		stage := pace.Stage{Name: name, Kind: kind, Rest: rest}
		for _, c := range s.layers {
			stage.Steps = append(stage.Steps, of(c))
		}
		list = append(list, stage)
	}
	if s.Pattern.Kind == prune.Depth {
		return s.depth()
	}
	names := s.allocations()
	channels := s.Pattern.Removes()
	if channels {
		names = s.channelRules()
	}
	seen := func(c costs) float64 { return c.forward + c.gram }
	if s.surveys() && s.Cache != "" {
		each("calibration statistics", "survey", 0, seen)
		seen = func(costs) float64 { return 0 }
	}
	if s.permutes() && s.method().sees != seesNothing {
		each(saliencies, "survey", 0, seen)
	}
	list = append(list, s.order...)
	if s.method().sees == seesSlopes {
		list = append(list, pace.Even("gradients", int(s.samples), 3*s.forward/s.samples))
	}
	curves := false
	for _, n := range names {
		curves = curves || find(n) != nil && find(n).curves
	}
	if stage, does := s.survey(names, curves); does {
		each(stage, "survey", 0, func(c costs) float64 {
			if curves {
				return seen(c) + c.curve
			}
			return seen(c)
		})
		if curves {
			s.effects(each, "effects")
		}
	}
	// Trials see some of the runs, and are compared on a fourth of these.
	run := s.forward / s.samples * forwardRate * s.cores
	part := min(1, max(trialRuns, passWork/max(1, run))/s.samples)
	trial := func(name prune.Allocation) {
		each("prune, "+string(name), "trial", part*s.forward/2, func(c costs) float64 {
			solve := c.sparse
			if s.exact {
				solve = c.exact
			}
			return 0.75*part*(2*c.forward+2*c.gram) + solve
		})
	}
	for _, n := range names {
		if channels && len(names) > 1 && n == Normalised {
			each("survey", "survey", 0, seen)
		}
		if n == Joint {
			if len(names) == 1 {
				trial(Curves)
			}
			s.effects(each, "effects together")
		}
		if len(names) > 1 {
			trial(n)
		}
	}
	if s.Method == Gates {
		each("prune", "prune", 0, func(c costs) float64 { return 2*c.forward + 2*c.gram + c.exact + c.refine })
		list = append(list, s.gates(run)...)
		each("solve", "prune", 0, func(c costs) float64 { return 2*c.forward + 2*c.gram + c.sparse + c.refine })
	} else {
		each("prune", "prune", 0, func(c costs) float64 { return 2*c.forward + 2*c.gram + c.exact + c.refine })
	}
	return append(list, s.rebuilt()...)
}

// gates plans how gates are trained, where a run takes so many multiplications.
func (s *stager) gates(run float64) []pace.Stage {
	o, err := gatesOf(s.graph)
	if err != nil {
		return nil
	}
	runs := o.course(run, int(s.samples))
	return recon.Stages(s.graph, o.Options, runs, s.product)
}

// rebuilt plans what follows when all layers are pruned.
func (s *stager) rebuilt() (list []pace.Stage) {
	if slices.ContainsFunc(s.asked(), func(r *refinement) bool { return r.Refinement == Snows }) {
		list = append(list, recon.Stages(s.graph, snowing, int(s.samples), s.product)...)
	}
	if s.Reconstruct != nil {
		if r, err := s.Options.Reconstruct.Of(s.graph); err == nil {
			list = append(list, recon.Stages(s.graph, r, int(s.samples), s.product)...)
		}
	}
	return list
}

// product is how many seconds a weight's product takes on a sample.
func (s *stager) product(u ir.WeightUse) float64 {
	shape, _ := u.Value.Type.Shape()
	rows, cols := u.View.Dims(shape)
	return float64(rows) * float64(cols) * float64(u.Columns()) * float64(max(1, u.Reuse.AtOne())) / forwardRate / s.cores
}

// effects plans how what layers do to the outputs is seen, on some runs: for a layer about half of the model is evaluated.
func (s *stager) effects(each func(name, kind string, rest float64, of func(c costs) float64), name string) {
	layers := float64(len(s.layers))
	work := s.forward / s.samples * forwardRate * s.cores * layers / 2
	runs := min(s.samples, max(leastRuns, min(effectRuns, effectWork/max(1, work))))
	each(name, "effects", 0, func(costs) float64 { return s.forward / s.samples * runs / 2 })
}

// depth plans the stages of fitter.depth, with as many rounds as the sparsity lets expect.
func (s *stager) depth() []pace.Stage {
	run := s.forward / s.samples
	solve := pace.Stage{Name: "prune"}
	for _, c := range s.layers {
		solve.Steps = append(solve.Steps, 2*c.forward+2*c.gram+c.sparse)
	}
	branches := float64(len(s.layers)) / 2
	runs := min(s.samples, effectRuns)
	return append([]pace.Stage{
		pace.Even(branchMeans, 1, s.forward), pace.Even(branchLosses, 1, s.Sparsity*branches*branches/2*run*runs), solve,
	}, s.rebuilt()...)
}
