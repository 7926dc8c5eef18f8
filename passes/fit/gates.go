package fit

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/obs"
	"spc/passes/prune"
	"spc/passes/recon"
)

// How gates are trained. gateWork bounds the multiplications of it: there are fewer epochs then, and samples where one is too many.
const (
	gateEpochs = 10
	gateRate   = 0.005
	gateTravel = 150
	gateWork   = 5e12
)

// final builds the model with the sparsities of its layers that were chosen. Gates start from
// the masks of exact OBS; the weights on those that they end with are the solution of the least
// squares of each layer, as OBS leaves them. Where that does not bring the model's outputs nearer
// to the dense one's, on samples that no gate was trained on, the model is the one that OBS left.
func (f *fitter) final(sparsities []float64) (*trial, error) {
	t, err := f.built("prune", sparsities, f.learning())
	if err != nil || f.Method != Gates {
		return t, err
	}
	measure, err := f.learn(t)
	if err != nil {
		return nil, err
	}
	learnt, err := f.built("solve", sparsities, f.learning())
	if err != nil {
		return nil, err
	}
	before, err := f.apart(measure, t.twins)
	if err != nil {
		return nil, err
	}
	after, err := f.apart(measure, learnt.twins)
	if err != nil {
		return nil, err
	}
	if !(after < before) { // neither may be a number
		t.dropped = fmt.Sprintf("the outputs' divergence of %.3g would be %.3g", before, after)
		for k, e := range t.edits {
			how, rest, _ := strings.Cut(strings.Replace(e.how, "GATES", "OBS", 1), "; ")
			said := f.layers[k].gated
			if !strings.Contains(said, "no gates") {
				said = note(how, "gates dropped: "+t.dropped)
			}
			e.how = note(said, rest)
		}
		return t, nil
	}
	for k, e := range learnt.edits {
		from := t.edits[k]
		if e.Mask == nil { // of inputs that cannot be seen
			learnt.edits[k] = from
			continue
		}
		e.Name, e.Tally, e.Note = from.Name, from.Tally, from.Note
		e.Kept, e.Allocated, e.Bounded = from.Kept, from.Allocated, from.Bounded
	}
	return learnt, nil
}

// learn trains gates, block by block or, in transformers, all at once, on the dense model's
// values, in a copy of a model as it was built, and leaves in each layer what stays. It returns
// the observer of the samples that it held out.
func (f *fitter) learn(t *trial) (*calib.Observer, error) {
	pruned, weights := f.copyOf(t)
	o, runs, err := f.gateOptions()
	if err != nil {
		return nil, err
	}
	learnt := make([]*gated, len(f.layers))
	for k, l := range f.layers {
		e, v := t.edits[k], weights[k]
		how, _, _ := strings.Cut(strings.Replace(e.how, "GATES", "OBS", 1), ";")
		l.stays, l.gated = e.Mask, how
		switch {
		case e.unseen != "":
		case v == nil:
			l.gated = note(how, "no gates: a node of a subgraph")
		case v.Type.DType != tensor.F32:
			l.gated = note(how, fmt.Sprintf("no gates: weights are %s", v.Type.DType))
		case slices.Contains(weights[:k], v):
			l.gated = note(how, "no gates: another layer has this weight")
		case e.Mask.Count() < len(l.weights):
			learnt[k] = f.gate(l, e, v, t.sparsities[k])
			o.Gates = append(o.Gates, learnt[k].Gates)
		}
	}
	if len(o.Gates) == 0 {
		return f.Observer, nil
	}
	side := func(held bool) *calib.Observer {
		return f.sees(func(i int) bool {
			at, ok := f.spread(i, runs)
			return ok && (!held || recon.Holds(at, runs))
		})
	}
	r, err := recon.Run(f.ctx, side(false), pruned, f.graph, o.Options)
	if err != nil {
		return nil, err
	}
	for k, g := range learnt {
		if g != nil {
			l := f.layers[k]
			l.gated = note(l.gated, g.settle(f.gateNote(r, l)))
		}
	}
	return side(true), nil
}

// copyOf is a copy of the graph with a model's weights and biases, and the values of its weights, nil where they are in a subgraph.
func (f *fitter) copyOf(t *trial) (*ir.Graph, []*ir.Value) {
	g := f.graph.Clone()
	at := map[*ir.Node]*ir.Node{}
	for i, n := range f.graph.Nodes {
		at[n] = g.Nodes[i]
	}
	weights := make([]*ir.Value, len(f.layers))
	for k, l := range f.layers {
		n, e := at[l.Node], t.edits[k]
		if n == nil {
			continue
		}
		v := n.Input(l.Input)
		v.SetConst(l.View.Tensor(tensor.From(e.w, l.rows, l.cols), v.Const.Shape()).To(v.Type.DType))
		if e.bias != nil {
			setBias(n, e.bias)
		}
		weights[k] = v
	}
	return g, weights
}

// gateOptions are those of the training of gates, and how many runs it sees.
func (f *fitter) gateOptions() (o gateCourse, runs int, err error) {
	if o, err = gatesOf(f.graph); err != nil {
		return o, 0, err
	}
	runs = o.course(f.runWork(), f.samples)
	o.Workers, o.Budget, o.Progress, o.Fixed = f.Workers, f.Budget, f.Progress, f.plan.Kept()
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return o, runs, nil
}

// gateCourse is how gates are trained.
type gateCourse struct{ recon.Options }

// gatesOf is the course that suits a graph.
func gatesOf(g *ir.Graph) (gateCourse, error) {
	o, err := recon.Recipe(nil).Of(g)
	o.Gates, o.GateTravel, o.Rate, o.WholeRate, o.GainEpochs = []*recon.Gates{}, gateTravel, gateRate, gateRate, 0
	return gateCourse{o}, err
}

// course sets the epochs, and returns over how many of the samples these are, one of which takes so many multiplications.
func (o *gateCourse) course(work float64, samples int) (runs int) {
	fit := gateWork / (recon.Backward * max(1, work)) // runs in all
	epochs := min(gateEpochs, int(fit/float64(samples)))
	if runs = samples; epochs < 1 {
		epochs, runs = 1, max(1, min(samples, int(fit)))
	}
	if o.Epochs > 0 {
		o.Epochs = epochs
	} else {
		o.WholeEpochs = epochs
	}
	return runs
}

// gateNote says why a layer's gates could not be trained, empty where they could.
func (f *fitter) gateNote(r *recon.Report, l *layer) string {
	place := func(name string) int {
		return slices.IndexFunc(f.graph.Nodes, func(n *ir.Node) bool { return n.Name == name })
	}
	at := slices.Index(f.graph.Nodes, l.Node)
	for _, b := range r.Blocks {
		if b.Note != "" && place(b.First) <= at && at <= place(b.Last) {
			return b.Note
		}
	}
	return ""
}

// gated is a layer with gates.
type gated struct {
	*recon.Gates
	l     *layer
	unit  []int32 // by weight [rows, cols], Gates.Unit
	start []bool  // the gates that were open
}

// gate gives each unit of a layer's pattern a gate: that of a weight, or of a block. v is the layer's weight in the copy.
func (f *fitter) gate(l *layer, e *edit, v *ir.Value, sparsity float64) *gated {
	r, c := l.pattern.Unit()
	wide := (l.cols + c - 1) / c
	n := wide * ((l.rows + r - 1) / r)
	g := &gated{l: l, unit: make([]int32, len(l.weights)), start: make([]bool, n), Gates: &recon.Gates{Weight: v, Group: make([]int32, n)}}
	values := slices.Clone(l.weights) // of what is gone; OBS's of what stays
	for i, w := range l.weights {
		row, col := i/l.cols, i%l.cols
		g.unit[i] = int32(row/r*wide + col/c)
		if e.Mask.Keeps(row, col) {
			g.start[g.unit[i]] = true
			values[i] = e.w[i]
		}
		if w == 0 {
			g.unit[i] = -1
		}
	}
	if inner, ok := l.pattern.Within(); ok {
		g.within(inner, e.Mask, f.rank(l))
	}
	for u := range g.Group {
		switch row, col := u/wide, u%wide; l.pattern.Kind {
		case prune.Uniform, prune.UniformBlock:
			g.Group[u] = int32(row)
		case prune.NM:
			m := l.pattern.M
			g.Group[u] = int32(row*((l.cols+m-1)/m) + col/m)
		}
	}
	shape := v.Const.Shape()
	g.Open = slices.Clone(g.start)
	g.Value = l.View.Tensor(tensor.From(values, l.rows, l.cols), shape).F32s()
	g.Unit = tensor.Data[int32](l.View.Tensor(tensor.From(g.unit, l.rows, l.cols), shape))
	g.Harden = func(p []float32) ([]bool, error) { return g.harden(p, sparsity, f.Workers) }
	return g
}

// within leaves without a gate what N:M in a block would not keep: weights of blocks that stay
// are kept as the mask has them, of others by the saliency, nil for |w|.
func (g *gated) within(inner prune.Pattern, mask *prune.Mask, saliency []float32) {
	l := g.l
	rank := func(i int) float64 {
		switch {
		case mask.Keeps(i/l.cols, i%l.cols):
			return math.Inf(1)
		case saliency != nil:
			return float64(saliency[i])
		}
		return math.Abs(float64(l.weights[i]))
	}
	for row := range l.rows {
		for lo := 0; lo < l.cols; lo += inner.M {
			hi := min(lo+inner.M, l.cols)
			var group []int
			for i := row*l.cols + lo; i < row*l.cols+hi; i++ {
				if g.unit[i] >= 0 {
					group = append(group, i)
				}
			}
			slices.SortStableFunc(group, func(i, j int) int { return cmp.Compare(rank(j), rank(i)) })
			// inner is not one of blocks, whose Kept this is.
			for _, i := range group[min(len(group), inner.Kept(hi-lo)):] {
				g.unit[i] = -1
			}
		}
	}
}

// harden picks the gates that the pattern keeps at a sparsity, by their probabilities.
func (g *gated) harden(p []float32, sparsity float64, workers int) ([]bool, error) {
	l := g.l
	s := make([]float32, len(g.unit))
	for i, u := range g.unit {
		if u >= 0 {
			s[i] = p[u]
		}
	}
	r, err := prune.Select([]prune.Layer{{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, Weights: l.weights, Saliency: s, Sparsity: &sparsity}},
		prune.Options{Pattern: l.pattern, Workers: workers})
	if err != nil {
		return nil, err
	}
	open := make([]bool, len(p))
	for i, u := range g.unit {
		if u >= 0 && r.Layers[0].Mask.Keeps(i/l.cols, i%l.cols) {
			open[u] = true
		}
	}
	return open, nil
}

// settle makes what the open gates let pass what stays of the layer, and says what changed; why is the reason why nothing did.
func (g *gated) settle(why string) string {
	if why != "" {
		return "no gates: " + why
	}
	if !g.Trained {
		return "no gates: it is not trained, as something else reads the weight"
	}
	moved, open := 0, 0
	for u, o := range g.Open {
		if o {
			open++
			if !g.start[u] {
				moved++
			}
		}
	}
	what := "weights"
	if r, c := g.l.pattern.Unit(); r*c > 1 {
		what = "blocks"
	}
	if moved > 0 { // else the mask is as it was
		g.l.stays = prune.NewMask(g.l.rows, g.l.cols)
		for i, u := range g.unit {
			if u >= 0 && g.Open[u] {
				g.l.stays.Set(i/g.l.cols, i%g.l.cols)
			}
		}
	}
	return fmt.Sprintf("gates replaced %d of %d %s", moved, open, what)
}

// solveGated solves for the weights on what gates have left.
func (f *fitter) solveGated(l *layer, s *obs.Solver) (*edit, error) {
	e := &edit{how: l.gated}
	if l.stays.Count() == len(l.weights) {
		e.keep(l, &obs.Result{W: slices.Clone(s.W), Mask: l.stays})
		return e, nil
	}
	res, err := s.Solve(f.ctx, l.stays)
	if err != nil {
		return nil, err
	}
	e.keep(l, res)
	return e, nil
}
