package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/obs"
	"spc/passes/prune"
	"spc/passes/recon"
)

// exactWork bounds the multiplications of a method in a layer, beyond which SparseGPT
// prunes it: about a minute of one core. Models that are built to compare allocations are
// left to SparseGPT altogether where the method would take more than trialWork in all of them,
// and see no more runs on samples than keep the multiplications of the model itself within
// passWork, but trialRuns.
const (
	exactWork = 60e9
	trialWork = 600e9
	passWork  = 400e9
	trialRuns = 16
)

// cost is what a layer takes, 0 where that is not known.
func (f *fitter) cost(w works, l *layer) float64 {
	if w == nil {
		return 0
	}
	return w(l.pattern, l.rows, l.cols)
}

// trialBound is exactWork for one of so many trials, or 0.
func (f *fitter) trialBound(trials int) float64 {
	sum := 0.0
	for _, l := range f.layers {
		if c := f.cost(f.method().work, l); c <= exactWork {
			sum += c
		}
	}
	if sum*float64(trials) > trialWork {
		return 0
	}
	return exactWork
}

// runWork is the multiplications of the layers in one run.
func (f *fitter) runWork() float64 {
	work := 0.0
	for _, l := range f.layers {
		work += float64(l.rows) * float64(l.cols) * l.positions / float64(f.samples)
	}
	return work
}

// spread returns the place of a run among so many of all that are evenly spread, and whether
// it is one of them.
func (f *fitter) spread(i, runs int) (at int, ok bool) {
	at = i * runs / f.samples
	return at, (i+1)*runs/f.samples > at
}

// heldOut says which samples measure an allocation that was built on the others.
func heldOut(i int) bool { return i%4 == 3 }

// try builds an allocation on some of the samples and measures on the others how far
// the outputs are from the dense model's.
func (f *fitter) try(name string, sparsities []float64) (*trial, float64, error) {
	on, measure := f.Observer, f.Observer
	if f.samples >= 4 { // else too few to hold any out
		runs := min(f.samples, max(trialRuns, int(passWork/max(1, f.runWork()))))
		side := func(held bool) *calib.Observer {
			return f.sees(func(i int) bool {
				at, ok := f.spread(i, runs)
				return ok && heldOut(at) == held
			})
		}
		on, measure = side(false), side(true)
	}
	f.trying = true
	t, front, err := f.build("prune, "+name, sparsities, on)
	f.trying = false
	if err != nil {
		return nil, 0, err
	}
	if measure != on {
		front.Close()
		front = measure.Frontier(t.twins.Graph, f.Budget)
	}
	defer front.Close()
	d, err := f.divergence(front, t.twins)
	return t, d, err
}

// sees is the observer of some of the samples.
func (f *fitter) sees(take func(i int) bool) *calib.Observer {
	o := *f.Observer
	o.Inputs = o.Inputs.Some(take)
	return &o
}

// learning is the observer of what layers are built on: all samples but, where what is left is trained afterwards, those that judge that, since
// weights that were solved for on these are hard to better there. Gates are judged against a model that has seen as much of them.
func (f *fitter) learning() *calib.Observer {
	if !f.trains() || f.samples < recon.HeldOut { // of fewer some rows of each judge
		return f.Observer
	}
	return f.sees(func(i int) bool { return !recon.Holds(i, f.samples) })
}

// trains reports whether weights are trained after they were chosen, which recon does.
func (f *fitter) trains() bool {
	return f.Reconstruct != nil || slices.ContainsFunc(f.asked(), func(r *refinement) bool { return r.after != nil })
}

// trial is a model as it was built.
type trial struct {
	twins      *calib.Twins
	edits      []*edit // of fitter.layers
	sparsities []float64
	dropped    string // Result.Dropped
}

// built is build without the frontier.
func (f *fitter) built(stage string, sparsities []float64, o *calib.Observer) (*trial, error) {
	t, front, err := f.build(stage, sparsities, o)
	front.Close()
	return t, err
}

// build prunes the layers one after another, each on the inputs that the pruned layers
// before it give. The caller closes the frontier, which is behind the last of them.
func (f *fitter) build(stage string, sparsities []float64, o *calib.Observer) (_ *trial, _ *calib.Frontier, err error) {
	t := &trial{twins: calib.NewTwins(f.graph), edits: make([]*edit, len(f.layers)), sparsities: sparsities}
	for _, b := range f.gone {
		t.twins.SetInput(b.Sum, b.Input, b.Constant)
	}
	front := o.Frontier(t.twins.Graph, f.Budget)
	defer func() {
		if err != nil {
			front.Close()
		}
	}()
	front.Keep(t.twins.Graph.Outputs...) // the position may pass some that no node reads
	for k, l := range f.layers {
		f.report(stage, k, len(f.layers))
		use := t.twins.Use(l.WeightUse)
		o := calib.GramOptions{Twins: t.twins, Cross: f.Aim == Outputs, Dense: !f.Uncorrected}
		if s := l.stream; s != nil {
			o = calib.GramOptions{Want: t.twins.Dense(s.want), Less: t.twins.Pruned(s.skip)}
		}
		gram, err := f.gram(front, use, o)
		if err != nil && !errors.Is(err, ir.ErrUnsupported) {
			return nil, nil, err
		}
		var e *edit
		if err != nil {
			e, err = f.blind(l, sparsities[k], err)
		} else {
			e, err = f.solve(l, gram, sparsities[k])
		}
		if err != nil {
			return nil, nil, err
		}
		t.edits[k] = e
		f.settle(l, e, e.put(t.twins, l))
	}
	f.report(stage, len(f.layers), len(f.layers))
	return t, front, nil
}

// put makes the edit in the pruned copy of the layer. Weights that are the dense model's
// are its very constant, so that both copies of the node are known to be the same. It returns the constant.
func (e *edit) put(t *calib.Twins, l *layer) *tensor.Tensor {
	c := l.Value.Const
	if !slices.Equal(e.w, l.weights) {
		c = l.View.Tensor(tensor.From(e.w, l.rows, l.cols), c.Shape())
	}
	t.SetConst(l.Value, c)
	if e.bias != nil {
		t.SetInput(l.Node, biasInput, tensor.From(e.bias, l.rows))
	}
	return c
}

func (f *fitter) report(stage string, done, total int) {
	if f.Progress != nil {
		f.Progress(stage, done, total)
	}
}

// gram advances to the node and sums up what the weight multiplies. Twins have no copies
// of the nodes of subgraphs that are known by their originals.
func (f *fitter) gram(front *calib.Frontier, use ir.WeightUse, o calib.GramOptions) (*calib.Gram, error) {
	if use.Node == nil {
		return nil, fmt.Errorf("a node of a subgraph: %w", ir.ErrUnsupported)
	}
	if use.Node.Graph() == front.Graph() {
		at := front.Index(use.Node)
		if o.Twins != nil {
			at-- // the dense copy stands before
		}
		if err := front.Advance(f.ctx, at); err != nil {
			return nil, err
		}
	}
	return calib.GramOf(f.ctx, front, use, o)
}

// blind prunes a layer whose inputs cannot be seen, by magnitude.
func (f *fitter) blind(l *layer, sparsity float64, why error) (*edit, error) {
	e, err := f.choose(l, l.weights, nil, sparsity)
	if err != nil {
		return nil, err
	}
	var n *ir.NodeError
	e.how = "its inputs cannot be seen"
	if errors.As(why, &n) {
		e.how = n.Msg
	}
	if l.stays == nil {
		e.unseen = e.how
		e.how = "magnitude: " + e.how
	}
	return e, nil
}

// choose selects a mask by saliency, nil for |w|, unless there is one already, and applies
// it to w.
func (f *fitter) choose(l *layer, w, saliency []float32, sparsity float64) (*edit, error) {
	if l.stays != nil {
		e := &edit{w: slices.Clone(w)}
		l.stays.Apply(e.w, false)
		return e, nil
	}
	r, err := prune.Select([]prune.Layer{{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, Weights: w, Saliency: saliency, Sparsity: &sparsity}},
		prune.Options{Pattern: l.pattern, Workers: f.Workers})
	if err != nil {
		return nil, err
	}
	e := &edit{w: slices.Clone(w), LayerResult: r.Layers[0], how: string(f.Method)}
	e.Mask.Apply(e.w, false)
	return e, nil
}

// aimDamp is the damping with which weights are aimed at the dense outputs, as a fraction of the mean diagonal element. All weights of a layer move, whose
// columns samples of a few hundred images tell only in part: with that of the solvers they fit these samples, and no others.
const aimDamp = 1

// aim returns the weights that give the dense outputs. Where inputs are gone, and the others take over what they did, they do so with the solvers' damping.
func (f *fitter) aim(l *layer, s *obs.Solver, h, cross []float64) ([]float32, error) {
	if f.Pattern.Masks() {
		var err error
		if s, err = obs.New(f.ctx, obs.Layer{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, W: l.weights, H: h, Damp: aimDamp}, f.Workers); err != nil {
			return nil, err
		}
	}
	return s.Aim(f.ctx, cross)
}

// solve prunes a layer.
func (f *fitter) solve(l *layer, g *calib.Gram, sparsity float64) (*edit, error) {
	h, cross := g.XX, g.DX
	if f.absorbs(l) {
		h = centred(g.XX, g.X, g.X, g)
		if cross != nil {
			cross = centred(g.DX, g.D, g.X, g)
		}
	}
	s, err := obs.New(f.ctx, obs.Layer{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, W: l.weights, H: h}, f.Workers)
	if err != nil {
		return nil, err
	}
	if l.stream != nil {
		return f.absorb(l, s, g)
	}
	from := s
	var how []string
	if f.Aim == Outputs {
		w, err := f.aim(l, s, h, cross)
		if err != nil {
			return nil, err
		}
		if from, err = s.With(w); err != nil {
			return nil, err
		}
		how = append(how, "aimed at the dense outputs")
	}
	e, err := f.method().prune(f, l, from, sparsity)
	if err != nil {
		return nil, err
	}
	refined, err := f.refine(l, from, e)
	if err != nil {
		return nil, err
	}
	how = append([]string{e.how, refined}, how...)
	if !f.Uncorrected {
		said, err := f.correct(l, s, g, e)
		if err != nil {
			return nil, err
		}
		how = append(how, said)
	}
	left, err := s.With(l.silenced(l.weights))
	if err != nil {
		return nil, err
	}
	energy, err := left.Energy(f.ctx)
	if err != nil {
		return nil, err
	}
	loss, err := left.Loss(f.ctx, l.silenced(e.w))
	if err != nil {
		return nil, err
	}
	if energy > 0 {
		how = append(how, fmt.Sprintf("%.2g of its output's energy is lost", loss/energy))
	}
	e.how = note(append(how, s.Note)...)
	return e, nil
}

// surgery returns what prunes by a solver of package obs, SparseGPT where the method's takes
// too long.
func surgery(m obs.Method, w works) func(f *fitter, l *layer, s *obs.Solver, sparsity float64) (*edit, error) {
	return func(f *fitter, l *layer, s *obs.Solver, sparsity float64) (*edit, error) {
		if l.gated != "" {
			return f.solveGated(l, s)
		}
		if l.stays != nil {
			return f.solveColumns(l, s)
		}
		if sparsity == 0 {
			return f.choose(l, s.W, nil, 0)
		}
		o := obs.Options{Pattern: l.pattern, Method: m, Keep: obs.Keep(l.pattern, l.rows, l.cols, sparsity)}
		if f.cost(w, l) > f.exact {
			o.Method = obs.SparseGPT
		}
		res, err := s.Prune(f.ctx, o)
		if err != nil {
			return nil, err
		}
		e := &edit{how: strings.ToUpper(string(f.Method)) + ", " + o.Method.String()}
		e.keep(l, res)
		return e, nil
	}
}

// solveColumns solves for what is left of a layer.
func (f *fitter) solveColumns(l *layer, s *obs.Solver) (*edit, error) {
	res, err := s.Solve(f.ctx, l.stays)
	if err != nil {
		return nil, err
	}
	e := &edit{w: res.W}
	if l.stays.Count() < len(l.weights) {
		e.how = strings.ToUpper(string(f.Method)) + " for the columns that stay"
	}
	return e, nil
}

// absorbs reports whether the bias of a layer takes over the means of the channels that go, so that the others need
// make up only for what varies.
func (f *fitter) absorbs(l *layer) bool {
	b, ok := biasOf(l)
	_, conv := l.Node.Op.(*op.Conv)
	return !f.Pattern.Masks() && !f.Uncorrected && ok && (b != nil || conv)
}

// centred returns the moments sum (a-E[a]) (x-E[x])^T of those [K,K], ax, and of the sums of a and x, the inputs of g: a column of
// these that hardly varies is taken not to vary at all.
func centred(ax, a, x []float64, g *calib.Gram) []float64 {
	const constant = 1e-9 // of its square
	k := g.K
	out := make([]float64, k*k)
	for j := range k {
		square := g.XX[j*k+j]
		if square-g.X[j]*g.X[j]/float64(g.N) <= constant*square {
			continue
		}
		for i := range k {
			if d := g.XX[i*k+i]; d-g.X[i]*g.X[i]/float64(g.N) > constant*d {
				out[i*k+j] = ax[i*k+j] - a[i]*x[j]/float64(g.N)
			}
		}
	}
	return out
}

// biasInput is the input of a product that is added to each output channel.
const biasInput = 2

// biasOf returns the bias of a product for each row, nil where it has none; ok is
// false where it cannot have one of that form.
func biasOf(l *layer) (b []float32, ok bool) {
	n := l.Node
	switch o := n.Op.(type) {
	case *op.Conv, *op.ConvTranspose:
	case *op.MatMul:
		if l.Input != 1 {
			return nil, false
		}
	case *op.Gemm:
		if l.Input != 1 || o.Beta != 1 || o.Alpha != 1 {
			return nil, false
		}
	default:
		return nil, false
	}
	v := n.Input(biasInput)
	if v == nil {
		return nil, true
	}
	if v.Const == nil || v.Const.DType() != tensor.F32 || v.Const.Rank() == 0 || v.Const.Len() != l.rows || v.Const.Dim(-1) != l.rows {
		return nil, false
	}
	return v.Const.F32s(), true
}

// setBias gives a product the bias.
func setBias(n *ir.Node, b []float32) {
	name := n.Name + ".bias"
	if v := n.Input(biasInput); v != nil {
		name = v.Name
	}
	n.SetInput(biasInput, n.Graph().NewConst(name, tensor.From(b, len(b))))
}

// correct restores the means of outputs that have a bias and, of convolutions, the
// variances.
func (f *fitter) correct(l *layer, s *obs.Solver, g *calib.Gram, e *edit) (string, error) {
	b, ok := biasOf(l)
	if !ok {
		return "no bias to correct", nil
	}
	_, conv := l.Node.Op.(*op.Conv)
	if b == nil && !conv {
		return "", nil // a bias would cost time
	}
	c, err := s.Correct(f.ctx, e.w, b, obs.Moments{N: g.N, X: g.X, XX: g.XX}, obs.Moments{N: g.N, X: g.D, XX: g.DD}, conv)
	if err != nil {
		return "", err
	}
	c.Apply(e.w)
	if b == nil {
		b = make([]float32, l.rows)
	}
	if !slices.Equal(c.Bias, b) {
		e.bias = c.Bias
	}
	return c.Note, nil
}

// grams returns what gives the moments of the dense model's inputs of layers, which ascend, and
// what ends it.
func (f *fitter) grams() (gram func(use ir.WeightUse) (*calib.Gram, error), done func(), err error) {
	if f.Cache == "" {
		front := f.Observer.Frontier(f.graph, f.Budget)
		return func(use ir.WeightUse) (*calib.Gram, error) { return f.gram(front, use, calib.GramOptions{}) }, front.Close, nil
	}
	graph := f.graph
	if f.moved != nil { // of which weights have the names that they had
		graph = f.surveyed
	}
	s, err := f.Observer.Survey(f.ctx, graph, f.Cache, calib.SurveyOptions{Samples: f.Samples, Budget: f.Budget,
		Progress: func(done, total int) { f.report("calibration statistics", done, total) }})
	if err != nil {
		return nil, nil, err
	}
	return func(use ir.WeightUse) (*calib.Gram, error) { return f.reordered(use, s.Gram) }, func() { s.Close() }, nil
}

// survey sees the inputs of all layers in the dense model, which is reported as the stage.
func (f *fitter) survey(stage string, curves bool) error {
	gram, done, err := f.grams()
	if err != nil {
		return err
	}
	defer done()
	for k, l := range f.layers {
		f.report(stage, k, len(f.layers))
		if stage == saliencies && !f.ordered(l) && !f.surveys() {
			continue
		}
		g, err := gram(l.WeightUse)
		if errors.Is(err, ir.ErrUnsupported) {
			g, err = made(l.cols), nil
		}
		if err != nil {
			return err
		}
		l.positions = float64(g.Seen)
		l.power = make([]float64, l.cols)
		for c := range l.cols {
			l.power[c] = g.XX[c*l.cols+c] / float64(g.N)
		}
		l.variance = variances(l, g)
		if stage == saliencies && f.ordersByOBS(l) {
			s, err := obs.New(f.ctx, obs.Layer{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, W: l.weights, H: g.XX}, f.Workers)
			if err != nil {
				return err
			}
			l.saliency = s.Saliency()
		}
		if curves {
			if err := f.curve(l, g); err != nil {
				return err
			}
		}
	}
	f.report(stage, len(f.layers), len(f.layers))
	if curves {
		return f.effects()
	}
	return nil
}

// made makes up moments of inputs that cannot be seen: independent, of variance 1.
func made(k int) *calib.Gram {
	g := &calib.Gram{K: k, N: 1, Seen: 1, XX: make([]float64, k*k), X: make([]float64, k)}
	for c := range k {
		g.XX[c*k+c] = 1
	}
	return g
}

// variances returns the variance of each output.
func variances(l *layer, g *calib.Gram) []float64 {
	out := make([]float64, l.rows)
	k, n := l.cols, float64(g.N)
	for r := range out {
		w := l.weights[r*k : (r+1)*k]
		mean, square := 0.0, 0.0
		for i, a := range w {
			if a == 0 {
				continue
			}
			mean += float64(a) * g.X[i]
			s := 0.0
			for j, x := range g.XX[i*k : (i+1)*k] {
				s += float64(w[j]) * x
			}
			square += float64(a) * s
		}
		mean /= n
		out[r] = math.Max(square/n-mean*mean, 0)
	}
	return out
}
