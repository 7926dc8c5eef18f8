package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/passes/calib"
	"spc/passes/obs"
	"spc/passes/prune"
)

// Choice is what a layer may become.
type Choice struct {
	Pattern  prune.Pattern
	Sparsity float64
}

// Entry is what a choice makes of a layer in the dense model.
type Entry struct {
	Choice
	Zeros int     // of its weights
	Error float64 // the share of its output's energy that is lost, on the samples; that of a sparser entry of the same pattern is not less

	mask   *prune.Mask // nil for the weights of the dense model
	values []float32   // where the mask is set, row by row
	bias   []float32   // nil where no entry of the layer has one
}

// BaseLayer is a layer that may be pruned, with its entries. The first is the layer as it is.
type BaseLayer struct {
	Node, Weight string
	Weights      int
	Work         float64 // multiply-adds of a sample
	Entries      []Entry
	// Effect is the divergence of the model's outputs for an Error of 1, as Base.Effects or Base.Among
	// last measured it.
	Effect float64
}

// Base is a database of what choices make of the layers of a graph, each alone and with SparseGPT,
// so that any combination of them is a model whose outputs can be compared with the dense
// model's at once.
type Base struct {
	Layers []BaseLayer

	f     *fitter
	twins *calib.Twins
	front *calib.Frontier
	goal  *calib.Goal
	alone []float64 // effects of layers alone
}

// NewBase sees the inputs of the prunable layers of g on the samples of o.Observer, and makes
// an entry of each choice for each layer. A layer with a target of its own has that alone.
// Channels are no choice, since they depend on each other. What it keeps are the nonzeros of
// all entries.
func NewBase(ctx context.Context, g *ir.Graph, o Options, choices []Choice) (*Base, error) {
	o.Sparsity, o.Allocate = 0.5, prune.PerLayer // of neither anything depends, but they ask for zeros
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Observer == nil || o.Pattern.Kind == prune.Channel {
		return nil, fmt.Errorf("a database of layers needs samples, and patterns but channel: %w", ir.ErrInvalid)
	}
	p, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil {
		return nil, err
	}
	if err := p.CheckPrunable(); err != nil {
		return nil, err
	}
	b := &Base{f: &fitter{ctx: ctx, Options: o, graph: g, plan: p, exact: exactWork}}
	if err := b.f.open(); err != nil {
		return nil, err
	}
	front := o.Observer.Frontier(g, o.Budget)
	for k, l := range b.f.layers {
		b.f.report("database", k, len(b.f.layers))
		gram, err := b.f.gram(front, l.WeightUse, calib.GramOptions{})
		if errors.Is(err, ir.ErrUnsupported) {
			gram, err = made(l.cols), nil
		}
		if err != nil {
			return nil, err
		}
		l.positions = float64(gram.Seen)
		entries, err := b.f.entries(l, gram, choices)
		if err != nil {
			return nil, err
		}
		b.Layers = append(b.Layers, BaseLayer{
			Node: l.Node.Name, Weight: l.Value.Name, Weights: len(l.weights), Entries: entries,
			Work: float64(len(l.weights)) * l.positions / float64(b.f.samples),
		})
	}
	b.f.report("database", len(b.f.layers), len(b.f.layers))
	return b, nil
}

// Runs is the number of inputs that the samples came in.
func (b *Base) Runs() int { return b.f.samples }

// entries makes the entries of a layer.
func (f *fitter) entries(l *layer, g *calib.Gram, choices []Choice) ([]Entry, error) {
	s, err := obs.New(f.ctx, obs.Layer{Name: l.Node.String(), Rows: l.rows, Cols: l.cols, W: l.weights, H: g.XX}, f.Workers)
	if err != nil {
		return nil, err
	}
	energy, err := s.Energy(f.ctx)
	if err != nil {
		return nil, err
	}
	list := []Entry{{Choice: Choice{Pattern: prune.Pattern{Kind: prune.Unstructured}}}}
	for _, w := range l.weights {
		if w == 0 {
			list[0].Zeros++
		}
	}
	if l.target != nil {
		choices, list = []Choice{{l.pattern, *l.target}}, nil
	}
	for _, c := range choices {
		e, err := f.entry(l, s, g, c)
		if err != nil {
			return nil, err
		}
		if energy > 0 {
			e.Error /= energy
		}
		for _, other := range list {
			if other.Pattern == c.Pattern && other.Sparsity < c.Sparsity {
				e.Error = max(e.Error, other.Error)
			}
		}
		list = append(list, e)
	}
	if b, ok := biasOf(l); ok && slices.ContainsFunc(list, func(e Entry) bool { return e.bias != nil }) {
		if b == nil {
			b = make([]float32, l.rows)
		}
		for i := range list {
			if list[i].bias == nil {
				list[i].bias = b
			}
		}
	}
	return list, nil
}

// entry makes one, its Error being the energy that is lost.
func (f *fitter) entry(l *layer, s *obs.Solver, g *calib.Gram, c Choice) (Entry, error) {
	e := Entry{Choice: c}
	r, err := s.Prune(f.ctx, obs.Options{Pattern: c.Pattern, Method: obs.SparseGPT, Keep: obs.Keep(c.Pattern, l.rows, l.cols, c.Sparsity)})
	if err != nil {
		return e, err
	}
	e.Error = r.Loss
	made := &edit{w: r.W}
	if !f.Uncorrected {
		same := *g
		same.D, same.DD = g.X, g.XX
		if _, err := f.correct(l, s, &same, made); err != nil {
			return e, err
		}
	}
	e.bias, e.mask = made.bias, r.Mask
	for row := range l.rows {
		for col := range l.cols {
			if r.Mask.Keeps(row, col) {
				e.values = append(e.values, made.w[row*l.cols+col])
			}
		}
	}
	e.values = slices.Clip(e.values)
	e.Zeros = len(l.weights) - len(e.values)
	return e, nil
}

// edit is the entry as a change of its layer.
func (e *Entry) edit(l *layer) *edit {
	made := &edit{w: l.weights, bias: e.bias}
	if e.mask == nil {
		return made
	}
	made.w = make([]float32, len(l.weights))
	next := e.values
	for row := range l.rows {
		for col := range l.cols {
			if e.mask.Keeps(row, col) {
				made.w[row*l.cols+col], next = next[0], next[1:]
			}
		}
	}
	return made
}

// Effects measures what each layer alone does to the outputs, by its entry of middle error.
func (b *Base) Effects(ctx context.Context) error {
	b.f.ctx = ctx
	middle := make([]int, len(b.Layers))
	for k := range b.Layers {
		entries := b.Layers[k].Entries
		order := make([]int, len(entries))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(entries[i].Error, entries[j].Error) })
		middle[k] = order[len(order)/2]
	}
	twins := calib.NewTwins(b.f.graph)
	d, err := b.f.divergences("effects", twins, func(k int, on bool) {
		at := 0
		if on {
			at = middle[k]
		}
		b.Layers[k].Entries[at].edit(b.f.layers[k]).put(twins, b.f.layers[k])
	})
	if err != nil {
		return err
	}
	b.alone = make([]float64, len(d))
	for k := range b.Layers {
		if e := b.Layers[k].Entries[middle[k]].Error; e > 0 {
			b.alone[k] = d[k] / e
		}
		b.Layers[k].Effect = b.alone[k]
	}
	return nil
}

// Among sets each Effect to the mean of what the layer does alone, which Effects has measured, and what is gained
// where it alone is dense among layers with the entries that pick says.
func (b *Base) Among(ctx context.Context, pick []int) error {
	b.f.ctx = ctx
	twins := calib.NewTwins(b.f.graph)
	b.put(twins, pick)
	all, err := b.f.divergence(b.f.few().Frontier(twins.Graph, b.f.Budget), twins)
	if err != nil {
		return err
	}
	d, err := b.f.divergences("effects together", twins, func(k int, on bool) {
		at := pick[k]
		if on {
			at = 0
		}
		b.Layers[k].Entries[at].edit(b.f.layers[k]).put(twins, b.f.layers[k])
	})
	if err != nil {
		return err
	}
	for k := range b.Layers {
		l := &b.Layers[k]
		l.Effect = b.alone[k]
		// A layer that is dense among the others shows nothing there.
		if e := l.Entries[pick[k]].Error; e > 0 && !math.IsInf(all, 0) {
			l.Effect = (b.alone[k] + max(0, all-d[k])/e) / 2
		}
	}
	return nil
}

// put makes the layers of the pruned copy what pick says.
func (b *Base) put(t *calib.Twins, pick []int) {
	for k, l := range b.f.layers {
		b.Layers[k].Entries[pick[k]].edit(l).put(t, l)
	}
}

// Divergence is how far the outputs are from the dense model's with the entries that pick says, on some of the runs.
func (b *Base) Divergence(ctx context.Context, pick []int) (float64, error) {
	if b.twins == nil {
		b.twins = calib.NewTwins(b.f.graph)
		b.front = b.f.few().Frontier(b.twins.Graph, b.f.Budget)
		var err error
		if b.goal, err = b.twins.Goal(ctx, b.front, b.f.graph, nil, b.f.Budget); err != nil {
			b.twins = nil
			return 0, err
		}
	}
	b.put(b.twins, pick)
	return b.goal.Divergence(ctx, b.front)
}

// Targets are the sparsities and patterns of layers that make a graph what pick says, by their weights' names.
func (b *Base) Targets(pick []int) []prune.LayerTarget {
	var list []prune.LayerTarget
	for k := range b.Layers {
		e := &b.Layers[k].Entries[pick[k]]
		t := prune.LayerTarget{Glob: prune.Literal(b.Layers[k].Weight), Sparsity: e.Sparsity}
		if e.mask != nil {
			t.Pattern = &e.Pattern
		}
		list = append(list, t)
	}
	return list
}
