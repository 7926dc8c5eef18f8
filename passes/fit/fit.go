// Package fit prunes a graph so that what is left computes what the graph did: it sees
// the layers' inputs on calibration samples, spreads the sparsity over the layers,
// solves for the weights of one layer after another on the inputs that the pruned
// layers before it give, and reconstructs blocks by gradients. Whole channels stay until
// then, with zeros in the columns that read them, and are removed last. It imports ir,
// ir/op, ir/tensor, passes/calib, passes/obs, passes/permute, passes/prune and passes/recon.
package fit

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/passes/permute"
	"spc/passes/prune"
	"spc/passes/recon"
)

// Options say how to prune.
type Options struct {
	prune.GraphOptions                          // Allocate is not used
	Method             Method                   // empty is OBS with an observer, else Magnitude
	Refine             Refinement               // of the masks that Method chose; empty is Unrefined
	Allocate           prune.Allocation         // one of Allocations; empty is Auto with an observer, else prune.PerLayer
	Aim                Aim                      // what a layer stays near; empty is Outputs where Method updates weights, else Weights
	Permute            permute.Choice           // empty is permute.None
	Fixed              func(v *ir.Value) string // why channels of a weight must keep their places, empty where they need not; nil for no such
	Uncorrected        bool                     // keeps the outputs' means and variances as pruning leaves them
	Observer           *calib.Observer          // nil sees nothing, which leaves Magnitude
	Reconstruct        recon.Recipe             // by gradients, afterwards, unless it is nil
	Unjudged           bool                     // leaves Result.Distances out, which take some runs of both models
	Budget             int                      // bytes for values of samples; 0 is calib's own
	Cache              string                   // a file for what allocations see of the dense model; empty for none
	Samples            string                   // identifies the observer's samples in that file
	Count              int                      // of samples, by which Stages plans; 0 where that is not known
	Progress           func(stage string, done, total int)
}

// Result is what pruning did.
type Result struct {
	*prune.GraphResult
	Method string `json:"method"`
	// Dropped says why the masks of Method gave way to those of OBS, which it started from; empty where they did not.
	Dropped string `json:"dropped,omitempty"`
	// Runs is the number of inputs that calibration yielded, 0 where none were seen, and
	// Samples of the samples in them, which whoever makes the inputs knows. Files made before
	// Runs was kept have it in Samples.
	Runs    int `json:"runs,omitempty"`
	Samples int `json:"samples,omitempty"`
	// Trials are the allocations that were built, the chosen one first.
	Trials []Trial `json:"trials,omitempty"`
	// Permuted tells what an order of channels gives, nil where none was looked for.
	Permuted *permute.Result `json:"permuted,omitempty"`
	// Blocks are those that were refined or reconstructed, in this order.
	Blocks []recon.Block `json:"blocks,omitempty"`
	// Rebuilt is recon.Report's divergence before and after.
	Rebuilt [2]float64 `json:"rebuilt,omitzero"`
	// Distances tell how far the outputs are from the dense model's on Judged runs of the
	// samples; there are none where no samples were seen.
	Distances []calib.Distance `json:"distances,omitempty"`
	Judged    int              `json:"judged,omitempty"`
}

// Trial is an allocation that was built.
type Trial struct {
	Allocate string `json:"allocate"`
	// Divergence is that of the outputs from the dense model's, on samples that the
	// trial was not built on; 0 where there was but one.
	Divergence float64 `json:"divergence,omitempty"`
	// Short is set where layers cannot take as many zeros as were asked for. Such a trial
	// is chosen only where all are short.
	Short bool `json:"short,omitempty"`
}

// less orders trials by what makes them better.
func (t *Trial) less(u *Trial) bool {
	if t.Short != u.Short {
		return u.Short
	}
	return t.Divergence < u.Divergence
}

// Check sets what is left open, and refuses options that contradict each other.
func (o *Options) Check() error {
	if o.Method == "" {
		o.Method = Magnitude
		if o.Observer != nil {
			o.Method = OBS
		}
	}
	if o.Allocate == "" {
		o.Allocate = prune.PerLayer
		if o.Observer != nil {
			o.Allocate = Auto
		}
	}
	if o.Refine == "" {
		o.Refine = Unrefined
	}
	if _, err := ParseMethod(string(o.Method)); err != nil {
		return err
	}
	if o.Aim == "" {
		o.Aim = Weights
		if o.Observer != nil && o.method().updates {
			o.Aim = Outputs
		}
	}
	if o.Permute == "" {
		o.Permute = permute.None
	}
	if err := o.checkNames(); err != nil {
		return err
	}
	if err := o.checkDepth(); err != nil {
		return err
	}
	if o.refines() && !o.Pattern.Masks() {
		return option.Errorf("%v %s: %v %v has no masks of weights, want another", option.Refine, o.Refine, option.Pattern, o.Pattern)
	}
	if o.Method == Gates && !o.Pattern.Masks() {
		return option.Errorf("%v %s: %v %v has no masks of weights, want another", option.Method, o.Method, option.Pattern, o.Pattern)
	}
	if _, own := o.Pattern.OwnSparsity(); own && o.Allocate != prune.PerLayer && o.Allocate != Auto {
		return option.Errorf("%v %s: %v %v sets the zeros of each layer itself, want layer or auto", option.Allocate, o.Allocate, option.Pattern, o.Pattern)
	}
	if o.Observer != nil {
		if o.Cache != "" && !o.surveys() {
			return o.noSurvey()
		}
		return nil
	}
	needs := func(choice option.Name, value any) error {
		return option.Errorf("%v%v needs calibration samples, which %v gives", choice, value, option.Calibration)
	}
	switch {
	case o.Cache != "":
		return needs(option.CalibrationCache, " "+o.Cache)
	case o.method().sees != seesNothing:
		return needs(option.Method, " "+o.Method)
	case find(o.Allocate) == nil || find(o.Allocate).sees:
		return needs(option.Allocate, " "+o.Allocate)
	case o.refines():
		return needs(option.Refine, " "+o.Refine)
	case o.Reconstruct != nil:
		return needs(option.Reconstruct, "")
	case o.Aim == Outputs:
		return needs(option.Aim, " "+o.Aim)
	case o.Uncorrected:
		return needs(option.Uncorrected, "")
	}
	return nil
}

// checkNames says which of what is chosen by name there is not.
func (o *Options) checkNames() error {
	_, aim := ParseAim(string(o.Aim))
	_, refinement := ParseRefinement(string(o.Refine))
	_, order := permute.Parse(string(o.Permute))
	_, allocation := ParseAllocation(string(o.Allocate))
	return cmp.Or(aim, refinement, order, allocation, o.Reconstruct.Check())
}

// noSurvey says what to ask for instead so that surveys is true.
func (o *Options) noSurvey() error {
	const unread = "%v %s: nothing is pruned by what the dense model shows, want "
	var names []string
	for _, a := range Allocations() {
		other := *o
		other.Allocate = a
		if r := find(a); other.surveys() && !(o.Pattern.Removes() && r != nil && r.curves) {
			names = append(names, string(a))
		}
	}
	_, own := o.Pattern.OwnSparsity()
	switch {
	case len(names) > 0:
		return option.Errorf(unread+"%v %s", option.CalibrationCache, o.Cache, option.Allocate, strings.Join(names, ", "))
	case own || !o.Asks():
		return option.Errorf(unread+"%v, and a %v that does not set its own", option.CalibrationCache, o.Cache, option.Sparsity, option.Pattern)
	}
	return option.Errorf(unread+"%v wanda or obs", option.CalibrationCache, o.Cache, option.Method)
}

// sightless reports whether nothing that is asked for depends on samples.
func (o *Options) sightless() bool {
	r := find(o.Allocate)
	return o.Pattern.Kind != prune.Depth && o.method().sees == seesNothing && o.Uncorrected && o.Aim == Weights && !o.refines() && o.Reconstruct == nil && r != nil && !r.sees
}

// allocations lists the rules to build and compare.
func (o *Options) allocations() []prune.Allocation {
	if _, own := o.Pattern.OwnSparsity(); own {
		return []prune.Allocation{prune.PerLayer}
	}
	if o.Allocate != Auto {
		return []prune.Allocation{o.Allocate}
	}
	var names []prune.Allocation
	for _, r := range rules {
		if r.name != prune.Global {
			names = append(names, r.name)
		}
	}
	return names
}

// surveys reports whether the moments of the dense model's values are needed before
// anything is pruned.
func (o *Options) surveys() bool {
	switch r := find(o.Allocate); {
	case !o.Asks() || o.sightless():
		return false
	case o.Pattern.Removes():
		return o.method().sees == seesMoments || o.method().sees == seesNothing && (r == nil || r.sees)
	}
	return slices.ContainsFunc(o.allocations(), func(n prune.Allocation) bool {
		return find(n).sees || n == prune.Global && o.method().sees == seesMoments
	})
}

// Run prunes g in place.
func Run(ctx context.Context, g *ir.Graph, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	p, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil {
		return nil, err
	}
	if err := p.CheckPrunable(); err != nil {
		return nil, err
	}
	if o.Reconstruct != nil {
		if _, err := o.Reconstruct.Of(g); err != nil {
			return nil, err
		}
	}
	out := &Result{Method: string(o.Method)}
	f := &fitter{ctx: ctx, Options: o, graph: g, plan: p, exact: exactWork}
	if !f.layerwise() { // what has all weights in memory, and more than once, gains nothing
		f.Settle = nil
	}
	var dense *ir.Graph
	if o.Asks() && o.Observer != nil && !o.Unjudged && !o.sightless() {
		dense = g.Clone()
	}
	switch {
	case !o.Asks():
	case o.Observer == nil || o.sightless():
		err = f.blindly(out)
	case o.Pattern.Removes():
		err = f.channels(out)
	case o.Pattern.Kind == prune.Depth:
		err = f.depth(out)
	default:
		err = f.run(out)
	}
	if err != nil {
		return nil, err
	}
	if dense != nil {
		if err := f.judge(dense, out); err != nil && ctx.Err() != nil {
			return nil, err
		}
	}
	out.Permuted.Note(p)
	out.GraphResult = p.Result()
	out.Allocate = string(o.Allocate)
	return out, nil
}

// fitter is the state of one Run.
type fitter struct {
	ctx context.Context
	Options
	graph  *ir.Graph
	plan   *prune.Plan
	layers []*layer // those of plan.Prunable

	surveyed *ir.Graph        // the graph as it was before its channels were put in order, where a file is kept
	moved    *prune.Exchanges // what that did, nil where nothing moved

	samples int             // that calibration sees
	saw     bool            // permute saw the moments of what layers see
	gone    []*prune.Branch // under prune.Depth
	trying  bool            // allocations, of models that are not refined
	best    *trial          // of those built so far to compare allocations
	exact   float64         // layers for which the method takes more multiplications are left to SparseGPT
}

// layer is a weight to prune, as it is in the dense model.
type layer struct {
	ir.WeightUse
	at         int           // in the plan
	pattern    prune.Pattern // its own, or that of all
	rows, cols int
	weights    []float32 // [rows, cols]
	target     *float64  // the layer's own sparsity

	stays  *prune.Mask // what is left, where that was decided before
	gone   []bool      // rows that will be removed, nil where none
	stream *stream     // what its sum is to give, nil where that does not matter
	gated  string      // how gates decided that, empty where none did

	// Means over the calibration samples.
	power     []float64 // x_k^2
	saliency  []float32 // [rows, cols], obs.Solver's, where channels are ordered by it
	variance  []float64 // of y_m
	positions float64   // columns that the weight multiplies, of all samples
	sweep     []point   // relative errors of the layer by sparsity
	loss      float64   // the relative error of trial
	trial     []float32 // the weights at the sparsity asked for, pruned in the dense model
	shift     []float32 // what the bias takes over then, nil where it stays
	effect    float64   // divergence of the outputs for a relative error of 1

	slope []float64 // [rows, cols], roots of the sums of recon.Squares
}

// edit is what becomes of a layer.
type edit struct {
	w    []float32 // [rows, cols]
	bias []float32 // nil where it stays
	prune.LayerResult
	how    string
	unseen string // why magnitudes decided
}

// list lists the layers.
func (f *fitter) list() {
	f.layers = nil
	for _, i := range f.plan.Prunable() {
		f.layers = append(f.layers, f.layer(i))
	}
}

// open lists the layers and counts the samples.
func (f *fitter) open() (err error) {
	f.list()
	front := f.Observer.Frontier(f.graph, f.Budget)
	defer front.Close()
	f.samples, err = front.Samples(f.ctx)
	return err
}

// layer is layer i of the plan.
func (f *fitter) layer(i int) *layer {
	m := f.plan.Matrix(i)
	l := &layer{WeightUse: f.plan.Use(i), at: i, rows: m.Rows, cols: m.Cols, weights: m.Weights, pattern: f.plan.Pattern(i), target: f.plan.Target(i)}
	if m.Transposed {
		l.weights = tensor.From(m.Weights, m.Cols, m.Rows).Permute(1, 0).F32s()
	}
	if t := tensor.From(l.weights, len(l.weights)); f.Settle != nil && !t.Overlaps(l.Value.Const) {
		f.Settle(t)
		l.weights = t.F32s()
	}
	return l
}

// layerwise reports whether layers are pruned one after the other, once, and nothing but that keeps anything of the size of all weights.
func (f *fitter) layerwise() bool {
	names := f.allocations()
	return len(names) == 1 && names[0] == prune.PerLayer && f.Pattern.Masks() && f.Method != Gates && f.method().sees != seesSlopes && !f.trains() && !f.permutes()
}

// settle has the weights of an edit, and the constant of its model, lie where Settle has them; they are only to be read from now on.
func (f *fitter) settle(l *layer, e *edit, c *tensor.Tensor) {
	if f.Settle == nil {
		return
	}
	t := tensor.From(e.w, len(e.w))
	if bytes.Equal(t.Bytes(), tensor.From(l.weights, len(l.weights)).Bytes()) { // which slices.Equal does not tell of zeros
		t = tensor.From(l.weights, len(l.weights))
	}
	f.Settle(t)
	e.w = t.F32s()
	if c != l.Value.Const {
		f.Settle(c)
	}
}

func (f *fitter) run(out *Result) error {
	if err := f.open(); err != nil {
		return err
	}
	out.Runs, out.Samples = f.samples, f.samples
	if err := f.permute(out); err != nil {
		return err
	}
	if f.method().sees == seesSlopes {
		if err := f.slopes(); err != nil {
			return err
		}
	}
	names := f.allocations()
	curves := slices.ContainsFunc(names, func(n prune.Allocation) bool { return find(n).curves })
	if f.surveys() && (curves || !f.saw) { // else permute saw what is needed
		if err := f.survey("survey", curves); err != nil {
			return err
		}
	}
	var sparsities []float64
	f.exact = f.trialBound(len(names))
	for _, name := range names {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		s, err := find(name).allocate(f)
		if err != nil {
			return err
		}
		t := Trial{Allocate: string(name), Short: f.short(s)}
		var built *trial
		if len(names) > 1 {
			if built, t.Divergence, err = f.try(string(name), s); err != nil {
				return err
			}
		}
		at := 0
		for at < len(out.Trials) && !t.less(&out.Trials[at]) {
			at++
		}
		if out.Trials = slices.Insert(out.Trials, at, t); at == 0 {
			sparsities, f.best = s, built
		}
	}
	f.best, f.exact = nil, exactWork
	best, err := f.final(sparsities)
	if err != nil {
		return err
	}
	if err := f.adopt(best, out); err != nil {
		return err
	}
	out.Dropped = best.dropped
	for k, l := range f.layers {
		e := best.edits[k]
		f.plan.Note(l.at, &e.LayerResult)
		f.plan.Layers[l.at].Unseen = e.unseen
		f.plan.Layers[l.at].How = note(e.how, f.shared(l, out))
	}
	return nil
}

// shared says by what the layer has its share of zeros.
func (f *fitter) shared(l *layer, out *Result) string {
	if l.target != nil {
		if l.pattern != f.Pattern {
			return "a sparsity of its own, " + l.pattern.String()
		}
		return "a sparsity of its own"
	}
	if _, own := f.Pattern.OwnSparsity(); own {
		return ""
	}
	r := find(prune.Allocation(out.Trials[0].Allocate))
	if r.curves {
		return fmt.Sprintf("sparsity by %s: as much error as output would diverge the model's by %.2g", r.name, l.effect)
	}
	return "sparsity by " + string(r.name) + ": " + r.doc
}

// slack is how much an allocation may stay below the sparsity asked for: layers are
// sparse in steps.
const slack = 0.005

// short reports whether the sparsities of layers add up to less than was asked for.
func (f *fitter) short(sparsities []float64) bool {
	have, want, all := 0.0, 0.0, 0.0
	for k, l := range f.layers {
		n := float64(len(l.weights))
		have, want, all = have+sparsities[k]*n, want+f.own(l)*n, all+n
	}
	return have < want-slack*all
}

// adopt puts a model as it was built into the graph, and refines and reconstructs it where
// that is asked for.
func (f *fitter) adopt(t *trial, out *Result) error {
	dense := f.graph.Clone()
	for k, l := range f.layers {
		if c := t.twins.Pruned(l.Value).Const; f.Settle != nil && c != l.Value.Const && c.DType() == l.Value.Const.DType() {
			l.Value.SetConst(c) // the same as what Set makes, which lies elsewhere
		} else {
			f.plan.Set(l.at, t.edits[k].w)
		}
		if b := t.edits[k].bias; b != nil {
			setBias(l.Node, b)
		}
	}
	f.plan.Detach(f.gone)
	if err := f.graph.Infer(); err != nil {
		return err
	}
	for _, r := range f.asked() {
		if r.after == nil {
			continue
		}
		if err := r.after(f, dense, out); err != nil {
			return err
		}
	}
	if f.Reconstruct == nil {
		return nil
	}
	o, err := f.Options.Reconstruct.Of(f.graph)
	if err != nil {
		return err
	}
	return f.rebuild(dense, o, out)
}

// rebuild changes the weights that are left by gradients.
func (f *fitter) rebuild(dense *ir.Graph, o recon.Options, out *Result) error {
	o.Workers, o.Budget, o.Progress = f.Workers, f.Budget, f.Progress
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Fixed = f.untrained()
	if f.Pattern.Removes() {
		o.Gone = f.plan.GoneOf
	}
	r, err := recon.Run(f.ctx, f.Observer, f.graph, dense, o)
	if err != nil {
		return err
	}
	out.Blocks = append(out.Blocks, r.Blocks...)
	if r.Before != 0 || r.After != 0 {
		if out.Rebuilt == [2]float64{} {
			out.Rebuilt[0] = r.Before
		}
		out.Rebuilt[1] = r.After
	}
	return nil
}

// note joins what is worth saying.
func note(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}
