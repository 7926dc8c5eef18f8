// Package recon reconstructs a pruned model block by block: it changes the weights that
// are left, and biases, by gradient descent so that each block gives what the dense
// model's block gives, on the inputs that the pruned model gives it (Hubara et al.,
// "Accelerated sparse neural training", 2021, and Li et al., "BRECQ", 2021, do so for
// layers and for quantised blocks), keeps as much of that as brings the model's outputs
// nearer, and at last trains the whole model, or sizes of its rows. Squares tells from the
// same gradients how much the dense model's weights matter. The package imports ir, ir/op,
// ir/tensor and passes/calib.
package recon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// Options say how to reconstruct. Rates are lengths of Adam's steps relative to the
// root mean square of the row of the weight.
type Options struct {
	Epochs      int      // over the samples for each block; 0 leaves blocks alone
	Newton      int      // steps of Newton's method for each block, in the place of Epochs
	Rate        float64  // the peak of the rate of blocks
	WholeEpochs int      // for the whole model, after the blocks
	WholeRate   float64  // its peak rate
	GainEpochs  int      // for the whole model, where only the sizes of rows, and biases, change; before WholeEpochs
	GainRate    float64  // its peak rate
	Inside      float64  // what the blocks' losses count beside that of the whole model's outputs
	Augment     bool     // the whole model sees images mirrored and moved, and tokens joined and drawn anew
	Warmup      float64  // the share of steps in which the rate rises
	Batch       int      // samples in a step; 0 is a sixteenth of all, from 4 to 32
	Window      int      // blocks that are reconstructed together; 0 is 1
	Fixed       []string // names of nodes and constants that stay as they are
	Seed        uint64
	Workers     int // 0 is 1
	Budget      int // bytes for a block's inputs and targets; 0 is calib.DefaultBudget
	// Gates, unless they are nil, say which elements of weights stay, which is learnt together with what these are. What has none is
	// left alone. They are kept as they end, whether or not that brings outputs nearer.
	Gates      []*Gates
	GateTravel float64 // about how far the logit of a gate may go in all steps together
	// Gone, where it is set, tells which slices of a value of the pruned graph along an
	// axis nothing depends on: what they are does not count. It is nil where all do.
	Gone func(v *ir.Value) (axis int, gone []bool)
	// Progress, where it is set, is called as steps are done.
	Progress func(stage string, done, total int)
}

// Report is what reconstruction did.
type Report struct {
	Blocks []Block `json:"blocks"`
	// How far the model's outputs are from the dense one's on samples that no block was
	// trained on, see calib.Divergence, before and after the blocks and the sizes of rows.
	// Both are 0 where there were no blocks.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// What a Block is.
const (
	OfBlock = "block" // a block
	OfSnows = "snows" // a block, by Newton's method
	OfGains = "gains" // the sizes of rows in the whole model
	OfModel = "model" // the whole model
)

// Block is what became of a block, or of the whole model.
type Block struct {
	Of      string  `json:"of"`
	First   string  `json:"first"` // its nodes
	Last    string  `json:"last"`
	Samples int     `json:"samples"`
	Steps   int     `json:"steps"`
	Before  float64 `json:"before"` // the loss of samples that were held out
	After   float64 `json:"after"`
	Share   float64 `json:"share"`          // of the way to the trained parameters that was gone, 0 where outputs got no nearer
	Note    string  `json:"note,omitempty"` // why nothing was done
}

// runner is the state of one Run.
type runner struct {
	Options
	o     *calib.Observer
	g     *ir.Graph
	dense *ir.Graph
	named map[string]*ir.Value // values of dense by name
	twins *calib.Twins
	front *calib.Frontier
	loops op.Kernels

	// Of blocks: samples held out, nil where those are rows of samples; what the dense
	// model gives for them; and how far the pruned model is from that.
	held     func(sample int) bool
	goal     *calib.Goal // nil where no output counts
	distance float64
	solved   []*piece // by Newton's method
}

// Run reconstructs g, a pruned copy of dense: a graph of the same nodes, with other
// constants, perhaps with biases that dense has not and constants where that computes. Constants of g are replaced.
func Run(ctx context.Context, o *calib.Observer, g, dense *ir.Graph, opt Options) (*Report, error) {
	r := &runner{Options: opt, o: o, g: g, dense: dense, loops: o.Loops()}
	r.Window, r.Workers = max(1, r.Window), max(1, r.Workers)
	if r.Budget == 0 {
		r.Budget = calib.DefaultBudget
	}
	if err := r.pair(); err != nil {
		return nil, err
	}
	r.front = o.Frontier(r.twins.Graph, r.Budget)
	defer func() { // it may be another one then
		r.front.Close()
		r.goal.Close()
	}()
	out := &Report{}
	if len(g.Nodes) == 0 {
		return out, nil
	}
	if r.Epochs+r.Newton > 0 {
		if err := r.aim(ctx); err != nil {
			return nil, err
		}
		out.Before = r.distance
		for i, b := range blocks(g, r.Window) {
			rep, err := r.block(ctx, b, r.blockStage(i))
			if err != nil {
				return nil, err
			}
			out.Blocks = append(out.Blocks, rep)
		}
		if err := r.settle(ctx, out.Blocks); err != nil {
			return nil, err
		}
	}
	if r.GainEpochs > 0 {
		rep, err := r.whole(ctx, true)
		if err != nil {
			return nil, err
		}
		out.Blocks = append(out.Blocks, rep)
	}
	if r.goal != nil {
		var err error
		if out.After, err = r.goal.Divergence(ctx, r.front); err != nil {
			return nil, err
		}
	}
	if r.WholeEpochs > 0 {
		rep, err := r.whole(ctx, false)
		if err != nil {
			return nil, err
		}
		out.Blocks = append(out.Blocks, rep)
	}
	return out, nil
}

// aim holds samples out, the same ones of all blocks, and sees what the dense model gives
// for them.
func (r *runner) aim(ctx context.Context) error {
	total, err := r.front.Samples(ctx)
	if err != nil {
		return err
	}
	if total >= HeldOut {
		r.held = isHeld
	}
	if !calib.NewDivergence(r.g).Counts() {
		return nil
	}
	if r.goal, err = r.twins.Goal(ctx, r.front, r.g, r.held, r.Budget); err != nil {
		return err
	}
	r.distance, err = r.goal.Divergence(ctx, r.front)
	return err
}

func isHeld(sample int) bool { return sample%HeldOut == HeldOut-1 }

// Holds reports whether a sample of so many is held out, from which no block learns; of few, rows are, in each.
func Holds(sample, samples int) bool { return samples < HeldOut || isHeld(sample) }

// pair makes the twins of both graphs.
func (r *runner) pair() error {
	if len(r.g.Nodes) != len(r.dense.Nodes) {
		return fmt.Errorf("%d nodes, want %d as the dense graph: %w", len(r.g.Nodes), len(r.dense.Nodes), ir.ErrInvalid)
	}
	r.twins = calib.NewTwins(r.dense)
	r.named = map[string]*ir.Value{}
	for _, v := range r.dense.Inputs {
		r.named[v.Name] = v
	}
	for i, d := range r.dense.Nodes {
		n := r.g.Nodes[i]
		if n.Name != d.Name || n.Op.Kind() != d.Op.Kind() {
			return n.Errorf(ir.ErrInvalid, "the dense graph has %v in this place", d)
		}
		for _, v := range d.Outputs {
			if v != nil {
				r.named[v.Name] = v
			}
		}
		r.copy(i)
	}
	return nil
}

// copy gives the twin of a node the constants that it has in g.
func (r *runner) copy(i int) {
	n, d := r.g.Nodes[i], r.dense.Nodes[i]
	for k, v := range n.Inputs {
		if v == nil || v.Const == nil {
			continue
		}
		switch w := r.twins.PrunedNode(d).Input(k); {
		case w != nil && w.Const == v.Const:
		case d.Input(k) == nil || d.Input(k).Const == nil || len(d.Input(k).Uses()) > 1: // others may read another one now
			r.twins.SetInput(d, k, v.Const)
		default:
			r.twins.SetConst(d.Input(k), v.Const)
		}
	}
}

func (r *runner) fixed(name string) bool { return slices.Contains(r.Fixed, name) }

// block reconstructs one block.
func (r *runner) block(ctx context.Context, b block, stage string) (Block, error) {
	nodes := r.g.Nodes[b.lo:b.hi]
	rep := Block{Of: OfBlock, First: nodes[0].Name, Last: nodes[len(nodes)-1].Name}
	if r.Newton > 0 {
		rep.Of = OfSnows
	}
	skip := func(err error) (Block, error) {
		if errors.Is(err, ir.ErrUnsupported) {
			rep.Note = err.Error()
			return rep, nil
		}
		return rep, err
	}
	params, err := r.gateParams(parameters(nodes, r.fixed))
	if err != nil {
		return rep, err
	}
	if len(params) == 0 || len(b.out) == 0 {
		rep.Note = "nothing to train"
		return rep, nil
	}
	p, err := newPiece(nodes, b.out, params)
	if err != nil {
		return skip(err)
	}
	if len(p.in) == 0 {
		rep.Note = "it reads no input"
		return rep, nil
	}
	if err := r.front.Advance(ctx, 2*b.lo); err != nil {
		return rep, err
	}
	samples, err := r.collect(ctx, p)
	if err != nil {
		return rep, err
	}
	losses := make([]loss, len(b.out))
	for i, v := range b.out {
		losses[i] = r.loss(v, 1)
		losses[i].power = losses[i].meanSquare(samples, i)
		if b.hi == len(r.g.Nodes) && len(r.g.Outputs) == 1 {
			losses[i].scores = calib.Scores(r.g, v)
		}
	}
	t := &trainer{piece: p, losses: losses, samples: samples}
	rep, err = r.fit(ctx, rep, t, course{epochs: r.Epochs, rate: r.Rate, newton: r.Newton}, stage, skip)
	if err != nil || rep.Share == 0 {
		return rep, err
	}
	if r.Newton > 0 && r.goal != nil {
		r.solved = append(r.solved, p)
		return rep, nil
	}
	if r.goal != nil && r.Gates == nil {
		rep.Share, err = r.search(ctx, p)
	}
	if rep.Share > 0 {
		keepGates(p.params)
	}
	return rep, err
}

// settle goes as far towards what Newton's method found for all blocks as search does. These were
// solved one after the other, each on what the solved ones before it give: to keep some of them
// would leave others to make up for what is not there.
func (r *runner) settle(ctx context.Context, blocks []Block) error {
	if len(r.solved) == 0 {
		return nil
	}
	r.front.Close()
	r.front = r.o.Frontier(r.twins.Graph, r.Budget) // of which no node has changed yet
	r.front.Keep(r.twins.Graph.Outputs...)
	share, err := r.search(ctx, r.solved...)
	for i := range blocks {
		blocks[i].Share *= share
	}
	return err
}

// shares are those of the way from old parameters to new ones that are tried.
var shares = []float64{1, 0.75, 0.5, 0.25}

// search goes from the old parameters of pieces to the new ones as far as brings the
// outputs of the whole model, whose other blocks are as they are, nearest to those of the
// dense one on samples held out: a block that is nearer by itself need not help (the points
// between are those of Wortsman et al., "Robust fine-tuning of zero-shot models", 2022,
// section 3).
func (r *runner) search(ctx context.Context, pieces ...*piece) (float64, error) {
	best := 0.0
	for _, a := range shares {
		r.set(a, pieces...)
		d, err := r.goal.Divergence(ctx, r.front)
		if err != nil {
			return 0, err
		}
		if d < r.distance {
			best, r.distance = a, d
		}
	}
	r.set(best, pieces...)
	return best, nil
}

// set puts the parameters of pieces, a share of the way from old ones to new ones, into
// the graphs.
func (r *runner) set(share float64, pieces ...*piece) {
	for _, p := range pieces {
		for _, q := range p.params {
			q.put(share)
		}
	}
	for i := range r.g.Nodes {
		r.copy(i)
	}
}

// put makes the constant a share of the way from the old elements to the new ones.
func (q *param) put(share float64) {
	if share == 0 { // the very tensor, which nodes may have in common
		q.value.SetConst(q.was)
		return
	}
	w := q.tensor.Clone()
	if share < 1 {
		x := w.F32s()
		for i, v := range q.old {
			if y := v + float32(share)*(x[i]-v); y != 0 || !q.weight {
				x[i] = y
			}
		}
	}
	q.value.SetConst(w)
}

// loss is that of a value of the pruned graph.
func (r *runner) loss(v *ir.Value, weight float64) loss {
	l := loss{value: v, weight: weight}
	if r.Gone != nil {
		// Samples are joined and taken apart along the first axis.
		if l.axis, l.gone = r.Gone(v); l.axis == 0 {
			l.gone = nil
		}
	}
	return l
}

// fit trains a piece and puts its parameters into the graphs.
func (r *runner) fit(ctx context.Context, rep Block, t *trainer, c course, stage string, skip func(error) (Block, error)) (Block, error) {
	batch := r.Batch
	if batch < 1 {
		rows := 0
		for _, s := range t.samples {
			if x := s.in[0]; x.Rank() > 0 {
				rows += x.Dim(0)
			}
		}
		batch = min(max(rows/16, 4), 32)
	}
	c.batch, c.warmup, c.seed, c.looks = batch, r.Warmup, r.Seed, 20
	c.progress = func(done, total int) {
		if r.Progress != nil {
			r.Progress(stage, done, total)
		}
	}
	t.kernels, t.workers = r.loops, r.Workers
	if err := t.prepare(batch); err != nil {
		return skip(err)
	}
	method := t.train
	if c.newton > 0 {
		method = t.solve
	}
	res, err := method(ctx, c)
	if err != nil {
		return skip(err)
	}
	rep.Samples = len(t.samples)
	if d := res.before; math.IsNaN(d) || math.IsInf(d, 0) {
		rep.Note = errDiverged.Error()
		return rep, nil
	}
	rep.Steps, rep.Before, rep.After = res.steps, res.before, res.after
	if res.after < res.before || t.gated() && res.steps > 0 {
		rep.Share = 1
		r.set(1, t.piece)
	}
	return rep, nil
}

// collect copies what the pruned model gives a piece and what the dense model gives in
// the place of its outputs, of as many samples as fit the budget, evenly spread.
func (r *runner) collect(ctx context.Context, p *piece) ([]sample, error) {
	var values []*ir.Value
	for _, v := range p.in {
		d := r.named[v.Name]
		if d == nil {
			return nil, fmt.Errorf("%s is no value of the dense graph: %w", v.Name, ir.ErrInvalid)
		}
		values = append(values, r.twins.Pruned(d))
	}
	for _, v := range p.out {
		d := r.named[v.Name]
		if d == nil {
			return nil, fmt.Errorf("%s is no value of the dense graph: %w", v.Name, ir.ErrInvalid)
		}
		values = append(values, r.twins.Dense(d))
	}
	total, err := r.front.Samples(ctx)
	if err != nil {
		return nil, err
	}
	var out []sample
	kept := [2]quota{{of: total}, {}}
	if r.held != nil {
		kept[1].of = total / HeldOut
		kept[0].of -= kept[1].of
	}
	err = r.front.See(ctx, values, func(i int, t []*tensor.Tensor) error {
		if i == 0 {
			bytes := 1
			for _, x := range t {
				bytes += len(x.Bytes())
			}
			for k := range kept {
				kept[k].take = max(1, min(r.Budget/bytes, total)*kept[k].of/total)
			}
		}
		s := sample{held: r.held != nil && r.held(i)}
		q := &kept[0]
		if s.held {
			q = &kept[1]
		}
		if !q.next() {
			return nil
		}
		for k, x := range t {
			if k < len(p.in) {
				s.in = append(s.in, x.Clone())
			} else {
				s.target = append(s.target, x.Clone())
			}
		}
		out = append(out, s)
		return nil
	})
	return out, err
}

// quota takes some of a number of things, evenly spread.
type quota struct{ of, take, seen int }

func (q *quota) next() bool {
	q.seen++
	return q.seen*q.take/q.of > (q.seen-1)*q.take/q.of
}

// meanSquare is that of the elements of target k that count, 1 where they are all zero.
func (l *loss) meanSquare(samples []sample, k int) float64 {
	sum, n := 0.0, 0
	for _, s := range samples {
		x := s.target[k].F32s()
		n += l.runs(s.target[k], func(lo, hi int) {
			for _, v := range x[lo:hi] {
				sum += float64(v) * float64(v)
			}
		})
	}
	if sum == 0 {
		return 1
	}
	return sum / float64(n)
}

// whole reconstructs the model as one block, against the dense model's outputs, and
// those of its blocks.
func (r *runner) whole(ctx context.Context, gains bool) (Block, error) {
	nodes := r.g.Nodes
	rep := Block{Of: OfModel, First: nodes[0].Name, Last: nodes[len(nodes)-1].Name}
	if gains {
		rep.Of = OfGains
	}
	skip := func(err error) (Block, error) {
		if errors.Is(err, ir.ErrUnsupported) {
			rep.Note = err.Error()
			return rep, nil
		}
		return rep, err
	}
	losses := r.modelLosses()
	params, err := r.gateParams(parameters(nodes, r.fixed))
	if err != nil {
		return rep, err
	}
	if len(params) == 0 || !slices.ContainsFunc(losses, func(l loss) bool { return !l.aside }) {
		rep.Note = "nothing to train, or no output of f32 to train towards"
		return rep, nil
	}
	var out, goals []*ir.Value
	for _, l := range losses {
		out, goals = append(out, l.value), append(goals, r.named[l.value.Name])
	}
	p, err := newPiece(nodes, out, params)
	if err != nil {
		return skip(err)
	}
	if len(p.in) == 0 {
		rep.Note = "it reads no input"
		return rep, nil
	}
	c, stage := course{epochs: r.WholeEpochs, rate: r.WholeRate}, r.modelStage()
	if gains {
		c, stage = course{epochs: r.GainEpochs, rate: r.GainRate}, gainsStage
		for _, q := range params {
			if q.weight {
				q.byGain()
			}
		}
	}
	teacher, err := newPiece(r.dense.Nodes, goals, nil)
	if err != nil {
		return skip(err)
	}
	t := &trainer{piece: p, losses: losses, teacher: teacher, goals: goals, vary: r.Augment, seed: r.Seed << 32}
	if t.samples, err = r.modelInputs(ctx, p); err != nil {
		return rep, err
	}
	if err := r.scale(ctx, t); err != nil {
		return skip(err)
	}
	rep, err = r.fit(ctx, rep, t, c, stage, skip)
	if rep.Share > 0 {
		keepGates(p.params)
	}
	return rep, err
}

// modelLosses are those of the model's outputs, and of its blocks where those count.
func (r *runner) modelLosses() []loss {
	var losses []loss
	add := func(l loss) {
		if !slices.ContainsFunc(losses, func(m loss) bool { return m.value == l.value }) {
			losses = append(losses, l)
		}
	}
	for _, v := range r.g.Outputs {
		if v.Type.DType == tensor.F32 && v.Def != nil {
			l := r.loss(logits(v), 1)
			l.scores = len(r.g.Outputs) == 1 && calib.Scores(r.g, v)
			add(l)
		}
	}
	if r.Inside > 0 {
		all := blocks(r.g, r.Window)
		for _, b := range all[:len(all)-1] {
			l := r.loss(b.out[0], r.Inside/float64(len(all)))
			l.aside = true
			add(l)
		}
	}
	return losses
}

// modelInputs returns the first samples, as far as the budget goes, as a piece that is
// the whole model takes them.
func (r *runner) modelInputs(ctx context.Context, p *piece) ([]sample, error) {
	var samples []sample
	bytes := 0
	for in, err := range r.o.Inputs(ctx, r.dense) {
		if err != nil {
			return nil, err
		}
		s := sample{}
		for _, v := range p.in {
			k := slices.IndexFunc(r.dense.Inputs, func(w *ir.Value) bool { return w.Name == v.Name })
			s.in = append(s.in, in[k])
			bytes += len(in[k].Bytes())
		}
		if samples = append(samples, s); bytes > r.Budget {
			break
		}
	}
	return samples, nil
}

// scale sets the powers of a trainer's losses from what the teacher gives for a few samples.
func (r *runner) scale(ctx context.Context, t *trainer) error {
	w := newPass(t.teacher, r.loops)
	var seen []sample
	for _, s := range t.samples[:min(scaleSamples, len(t.samples))] {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.forward(s.in); err != nil {
			return err
		}
		var goal []*tensor.Tensor
		for _, v := range t.goals {
			goal = append(goal, w.value(v).Clone())
		}
		seen = append(seen, sample{target: goal})
	}
	for i := range t.losses {
		t.losses[i].power = t.losses[i].meanSquare(seen, i)
	}
	return nil
}
