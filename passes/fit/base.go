package fit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
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
	Entries      []Entry
	// Effect is the divergence of the model's outputs for an Error of 1, as Base.Effects or Base.Among
	// last measured it.
	Effect float64
}

// Base is a database of what choices make of the layers of a graph, each alone and by OBS,
// so that any combination of them is a model whose outputs can be compared with the dense
// model's at once.
type Base struct {
	Layers []BaseLayer

	f       *fitter
	seen    *calib.Observer    // of those of the samples that Divergence is of
	alone   []float64          // effects of layers alone
	dense   [][]*tensor.Tensor // the dense model's outputs on some runs
	moments []channelSums      // of the layers' outputs there

	cache string // the file of all this, empty for none
	key   [sha256.Size]byte
	parts [2 * len(keyParts)]byte // beginnings of the hashes of what the key is of
	notes map[string]string
	saved bool // the file has all of it
}

// NewBase sees the inputs of the prunable layers of g on the samples of o.Observer, and makes
// an entry of each choice for each layer. A layer with a target of its own has that alone.
// Channels are no choice, since they depend on each other. What it keeps are the nonzeros of
// all entries. They come from the file o.Cache where that is there; one of other layers, samples
// or choices is an error that wraps ir.ErrInvalid.
func NewBase(ctx context.Context, g *ir.Graph, o Options, choices []Choice) (*Base, error) {
	cache := o.Cache
	o.Sparsity, o.Allocate, o.Cache = 0.5, prune.PerLayer, "" // of the former two nothing depends, but they ask for zeros
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Observer == nil || !o.Pattern.Masks() {
		return nil, fmt.Errorf("a database of layers needs samples, and patterns but channel, head and depth: %w", ir.ErrInvalid)
	}
	p, err := prune.NewPlan(g, o.GraphOptions)
	if err != nil {
		return nil, err
	}
	if err := p.CheckPrunable(); err != nil {
		return nil, err
	}
	b := &Base{f: &fitter{ctx: ctx, Options: o, graph: g, plan: p, exact: exactWork}, cache: cache, notes: map[string]string{}}
	if err := b.f.open(); err != nil {
		return nil, err
	}
	if loaded, err := b.load(choices); loaded || err != nil {
		return b, err
	}
	front := o.Observer.Frontier(g, o.Budget)
	defer front.Close()
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
		b.Layers = append(b.Layers, BaseLayer{Node: l.Node.Name, Weight: l.Value.Name, Weights: len(l.weights), Entries: entries})
	}
	b.f.report("database", len(b.f.layers), len(b.f.layers))
	return b, nil
}

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
	results, err := f.solutions(l, s, choices)
	if err != nil {
		return nil, err
	}
	for i, c := range choices {
		e, err := f.entry(l, s, g, c, results[i])
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

// solutions are a layer's weights by each choice: by exact OBS where that does not take too long, for all sparsities of a pattern at once, else by SparseGPT.
func (f *fitter) solutions(l *layer, s *obs.Solver, choices []Choice) ([]*obs.Result, error) {
	out := make([]*obs.Result, len(choices))
	for i, c := range choices {
		if out[i] != nil {
			continue
		}
		l := *l
		l.pattern = c.Pattern
		_, within := c.Pattern.Within()
		if within || c.Pattern.Kind != prune.Uniform && c.Pattern.Kind != prune.UniformBlock || f.cost(exactWorks, &l) > baseWork {
			var err error
			if out[i], err = s.Prune(f.ctx, obs.Options{Pattern: c.Pattern, Method: obs.SparseGPT, Keep: obs.Keep(c.Pattern, l.rows, l.cols, c.Sparsity)}); err != nil {
				return nil, err
			}
			continue
		}
		var keeps, at []int
		for j := i; j < len(choices); j++ {
			if choices[j].Pattern == c.Pattern {
				keeps, at = append(keeps, obs.Keep(c.Pattern, l.rows, l.cols, choices[j].Sparsity)), append(at, j)
			}
		}
		path, err := s.Path(f.ctx, c.Pattern, keeps)
		if err != nil {
			return nil, err
		}
		for j, r := range path {
			out[at[j]] = r
		}
	}
	return out, nil
}

// baseWork bounds the multiplications of exact OBS in a layer of a database, for a pattern.
const baseWork = 60e9

// entry makes one of a solution, its Error being the energy that is lost.
func (f *fitter) entry(l *layer, s *obs.Solver, g *calib.Gram, c Choice, r *obs.Result) (Entry, error) {
	e := Entry{Choice: c}
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

// Effects measures what each layer alone does to the outputs, by its entry of middle error, unless the file told.
func (b *Base) Effects(ctx context.Context) error {
	b.f.ctx = ctx
	if b.alone != nil { // which the file told
		for k := range b.Layers {
			b.Layers[k].Effect = b.alone[k]
		}
		return nil
	}
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

// Among sets each Effect to the mean of what the layer does alone, which Effects has measured, and of what Divergence
// says is gained where it alone is dense among layers with the entries that pick says: the first and the last term of Shapley's value (1953). The
// model may be changed besides, see Changed.
func (b *Base) Among(ctx context.Context, pick []int, change func(g *ir.Graph) error) error {
	all, err := b.Changed(ctx, pick, change)
	if err != nil {
		return err
	}
	for k := range b.Layers {
		b.f.report("effects together", k, len(b.Layers))
		l := &b.Layers[k]
		l.Effect = b.alone[k]
		// A layer that is dense among the others shows nothing there.
		e := l.Entries[pick[k]].Error
		if !(e > 0) || math.IsInf(all, 0) {
			continue
		}
		without := slices.Clone(pick)
		without[k] = 0
		d, err := b.Changed(ctx, without, change)
		if err != nil {
			return err
		}
		l.Effect = (b.alone[k] + max(0, all-d)/e) / 2
	}
	b.f.report("effects together", len(b.Layers), len(b.Layers))
	return nil
}

// Divergence is how far the outputs are from the dense model's, on some of the runs, with the entries that pick says put together and the
// means and variances of the layers' outputs put back, one layer after another.
func (b *Base) Divergence(ctx context.Context, pick []int) (float64, error) {
	return b.Changed(ctx, pick, nil)
}

// Changed is Divergence of a model that change, unless it is nil, has changed besides: a copy of the graph, in which nodes and values have the same names.
func (b *Base) Changed(ctx context.Context, pick []int, change func(g *ir.Graph) error) (float64, error) {
	if b.dense == nil {
		if err := b.see(ctx); err != nil {
			return 0, err
		}
	}
	g, c := b.copied()
	front := b.seen.Frontier(g, b.f.Budget)
	defer front.Close()
	front.Keep(g.Outputs...)
	changed := false
	for k, l := range b.f.layers {
		changed = changed || pick[k] > 0
		if err := b.assemble(ctx, front, c, k, &b.Layers[k].Entries[pick[k]], changed && !b.f.Uncorrected); err != nil {
			return 0, fmt.Errorf("%s: %w", l.Node.String(), err)
		}
	}
	d := calib.NewDivergence(b.f.graph)
	if change == nil {
		err := front.SeeAny(ctx, g.Outputs, func(i int, out []*tensor.Tensor) error { return d.Add(b.dense[i], out) })
		return d.Value(), err
	}
	if err := change(g); err != nil {
		return 0, err
	}
	i := 0
	err := b.seen.Run(ctx, g, b.seen.Inputs(ctx, g), func(out []*tensor.Tensor) error {
		i++
		return d.Add(b.dense[i-1], out)
	})
	return d.Value(), err
}

// duplicate is a copy of the graph.
type duplicate struct {
	nodes  map[*ir.Node]*ir.Node
	values map[*ir.Value]*ir.Value
}

// copied copies the graph.
func (b *Base) copied() (*ir.Graph, *duplicate) {
	g := b.f.graph.Clone()
	c := &duplicate{map[*ir.Node]*ir.Node{}, map[*ir.Value]*ir.Value{}}
	for i, n := range b.f.graph.Nodes {
		c.nodes[n] = g.Nodes[i]
		for j, v := range n.Inputs {
			if v != nil {
				c.values[v] = g.Nodes[i].Inputs[j]
			}
		}
	}
	return g, c
}

// see keeps the dense model's outputs, and the moments of those of its layers.
func (b *Base) see(ctx context.Context) error {
	work := 2 * b.f.runWork() // each layer is computed before and after it is corrected
	runs := min(b.f.samples, max(leastSeen, int(min(effectRuns, seenWork/max(1, work)))))
	b.seen = b.f.sees(func(i int) bool {
		_, ok := b.f.spread(i, runs)
		return ok
	})
	var inputs [][]*tensor.Tensor
	for in, err := range b.seen.Inputs(ctx, b.f.graph) {
		if err != nil {
			return err
		}
		inputs = append(inputs, in)
	}
	b.seen.Inputs = func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		return func(yield func([]*tensor.Tensor, error) bool) {
			for _, in := range inputs {
				if !yield(in, nil) {
					return
				}
			}
		}
	}
	front := b.seen.Frontier(b.f.graph, b.f.Budget)
	defer front.Close()
	front.Keep(b.f.graph.Outputs...)
	var dense [][]*tensor.Tensor
	b.moments = make([]channelSums, len(b.f.layers))
	for k, l := range b.f.layers {
		if l.Node.Graph() != b.f.graph || !correctable(l) {
			continue
		}
		if err := front.Advance(ctx, front.Index(l.Node)); err != nil {
			return err
		}
		m, err := momentsOf(ctx, front, l.Node)
		if err != nil {
			return err
		}
		b.moments[k] = m
	}
	err := front.SeeAny(ctx, b.f.graph.Outputs, func(i int, out []*tensor.Tensor) error {
		var kept []*tensor.Tensor
		for _, v := range out {
			kept = append(kept, v.Clone())
		}
		dense = append(dense, kept)
		return nil
	})
	b.dense = dense
	return err
}

// correctable reports whether a layer's means, or variances, can be put back.
func correctable(l *layer) bool {
	b, ok := biasOf(l)
	_, conv := l.Node.Op.(*op.Conv)
	return ok && (b != nil || conv)
}

// assemble puts an entry into the copy of layer k. Where others before it, or it, are not dense, it is corrected by what it gives there.
func (b *Base) assemble(ctx context.Context, front *calib.Frontier, c *duplicate, k int, e *Entry, correct bool) error {
	l := b.f.layers[k]
	made := e.edit(l)
	n, v := c.nodes[l.Node], c.values[l.Value]
	if v == nil { // of a subgraph, which is shared
		return nil
	}
	put := func() {
		if e.mask != nil || correct {
			v.SetConst(l.View.Tensor(tensor.From(made.w, l.rows, l.cols), l.Value.Const.Shape()))
		}
		if made.bias != nil {
			setBias(n, made.bias)
		}
	}
	put()
	if !correct || b.moments[k].n == 0 || n == nil {
		return nil
	}
	if err := front.Advance(ctx, front.Index(n)); err != nil {
		return err
	}
	have, err := momentsOf(ctx, front, n)
	if err != nil {
		return err
	}
	_, conv := l.Node.Op.(*op.Conv)
	made.w = slices.Clone(made.w)
	scale, shift := have.towards(&b.moments[k], conv)
	bias := made.bias
	if bias == nil {
		if bias, _ = biasOf(l); bias == nil {
			bias = make([]float32, l.rows)
		}
	}
	made.bias = make([]float32, l.rows)
	for r := range l.rows {
		for i := r * l.cols; i < (r+1)*l.cols; i++ {
			made.w[i] *= float32(scale[r])
		}
		made.bias[r] = float32(float64(bias[r])*scale[r] + shift[r])
	}
	put()
	return nil
}

// Combinations are compared on so many runs at the least, and on as many more as keep multiplications within seenWork.
const (
	leastSeen = 4
	seenWork  = 4e10
)

// channelSums are sums over the elements of channels.
type channelSums struct {
	n           float64 // elements of a channel
	sum, square []float64
}

// momentsOf sums up what a node before which the position is gives, by its channels.
func momentsOf(ctx context.Context, front *calib.Frontier, n *ir.Node) (m channelSums, err error) {
	_, conv := n.Op.(*op.Conv)
	if _, transposed := n.Op.(*op.ConvTranspose); transposed {
		conv = true
	}
	err = front.SeeAny(ctx, n.Outputs[:1], func(_ int, out []*tensor.Tensor) error {
		y := out[0].To(tensor.F32)
		outer, channels, inner := y.Len(), 1, 1
		if conv {
			channels = y.Dim(1)
			outer = y.Dim(0)
			inner = y.Len() / max(1, outer*channels)
		} else if y.Rank() > 0 {
			channels = y.Dim(-1)
			outer = y.Len() / max(1, channels)
		}
		if m.sum == nil {
			m.sum, m.square = make([]float64, channels), make([]float64, channels)
		}
		data := y.F32s()
		for o := range outer {
			for c := range channels {
				s, q := 0.0, 0.0
				for _, v := range data[(o*channels+c)*inner:][:inner] {
					s += float64(v)
					q += float64(v) * float64(v)
				}
				m.sum[c] += s
				m.square[c] += q
			}
		}
		m.n += float64(outer * inner)
		return nil
	})
	return m, err
}

// towards are the factor and what is added to it with which each channel has the mean, and where that is asked for the variance, of want.
func (m *channelSums) towards(want *channelSums, variances bool) (scale, shift []float64) {
	scale, shift = make([]float64, len(m.sum)), make([]float64, len(m.sum))
	for c := range m.sum {
		mean, wanted := m.sum[c]/m.n, want.sum[c]/want.n
		f := 1.0
		if variances {
			have, aim := m.square[c]/m.n-mean*mean, want.square[c]/want.n-wanted*wanted
			if have > 1e-6*m.square[c]/m.n && aim > 1e-6*want.square[c]/want.n {
				f = min(max(math.Sqrt(aim/have), obs.MinScale), obs.MaxScale)
			}
		}
		scale[c], shift[c] = f, wanted-f*mean
	}
	return scale, shift
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

// Built is how far the outputs are from the dense model's when the entries that pick says are made one layer after another, each on what the
// pruned layers before it give, as Run does: on three quarters of the samples, and measured on the others.
func (b *Base) Built(ctx context.Context, pick []int) (float64, error) {
	b.f.ctx = ctx
	sparsities := make([]float64, len(pick))
	for k, l := range b.f.layers {
		c := b.Layers[k].Entries[pick[k]].Choice
		l.pattern, sparsities[k] = c.Pattern, c.Sparsity
	}
	_, d, err := b.f.try("candidate", sparsities)
	return d, err
}
