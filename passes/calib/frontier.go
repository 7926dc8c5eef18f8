package calib

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// DefaultBudget is the number of bytes of values that a Frontier keeps unless it is
// told otherwise, or its observer has a Room.
const DefaultBudget = 1 << 30

// Frontier is a position in the order of a graph's nodes: behind it lie nodes that
// have been evaluated on every sample. It keeps the values that nodes ahead read, so
// that looking at a value evaluates only the nodes between the position and that
// value. Constants of nodes ahead may change at any time; nodes must not be added or
// removed. Close gives back what is kept.
//
// Nodes that compute the same, as the two copies of Twins do up to the first weight
// that differs, are evaluated once and their values kept once.
//
// A Frontier is not safe for concurrent use.
type Frontier struct {
	o      *Observer
	g      *ir.Graph
	budget int
	index  map[*ir.Node]int
	keep   map[*ir.Value]bool

	at      int
	samples int         // 0 until they were counted
	sizes   []variant   // of the samples
	cached  []*ir.Value // what crosses, nil where only the inputs cross and are read anew each time
	place   map[*ir.Value]int
	cache   [][]*kept                    // by sample, by place
	fixed   map[*ir.Value]*tensor.Tensor // among what is cached, shapes and the like that are the same in all samples
	same    map[*ir.Value]*ir.Value      // values behind the position that equal another
}

// variant is the sizes that symbols have in some of the samples.
type variant struct {
	sizes map[string]int
	count int
}

// Frontier returns the position before the first node of a root graph. What it keeps
// takes up to budget bytes, DefaultBudget where that is 0, and while it advances to
// values whose sizes are not known before, what it kept until then as well. Where the
// observer has a Room, that has place for all.
func (o *Observer) Frontier(g *ir.Graph, budget int) *Frontier {
	f := &Frontier{o: o, g: g, budget: budget, index: map[*ir.Node]int{}, keep: map[*ir.Value]bool{}, same: map[*ir.Value]*ir.Value{}}
	switch {
	case o.Room != nil:
		f.budget = unbounded
	case budget == 0:
		f.budget = DefaultBudget
	}
	for i, n := range g.Nodes {
		f.index[n] = i
	}
	return f
}

// unbounded is more than values can take.
const unbounded = math.MaxInt / 4

// Close gives back what is kept. The frontier, which may be nil, is of no use any more.
func (f *Frontier) Close() {
	if f != nil {
		f.rewind()
	}
}

// Keep makes values, which lie ahead, be kept when the position has passed them,
// though no node may read them.
func (f *Frontier) Keep(values ...*ir.Value) {
	for _, v := range values {
		f.keep[v] = true
	}
}

// Graph returns the graph that the position is in.
func (f *Frontier) Graph() *ir.Graph { return f.g }

// At is the position: the number of nodes behind it.
func (f *Frontier) At() int { return f.at }

// Index returns the position before a node of the graph.
func (f *Frontier) Index(n *ir.Node) int { return f.index[n] }

// Samples returns the number of samples, which are read to be counted if they were
// not before. None is an error.
func (f *Frontier) Samples(ctx context.Context) (int, error) {
	err := f.begin(ctx)
	return f.samples, err
}

// begin counts the samples and keeps the inputs where they fit.
func (f *Frontier) begin(ctx context.Context) (err error) {
	if f.samples > 0 {
		return nil
	}
	inputs := f.crossing(0, f.same)
	var cache [][]*kept
	defer func() {
		if err != nil {
			dropAll(cache)
		}
	}()
	bytes, count := 0, 0
	byKey := map[string]int{}
	f.sizes = nil
	for sample, err := range f.o.Inputs(ctx, f.g) {
		if err == nil {
			err = ir.CheckInputs(f.g, sample)
		}
		if err != nil {
			return err
		}
		count++
		sizes := map[string]int{}
		for i, v := range f.g.Inputs {
			for k, d := range v.Type.Dims {
				if !d.Known() {
					sizes[d.Symbol()] = sample[i].Dim(k)
				}
			}
		}
		key := fmt.Sprint(sizes)
		k, ok := byKey[key]
		if !ok {
			k = len(f.sizes)
			byKey[key] = k
			f.sizes = append(f.sizes, variant{sizes: sizes})
		}
		f.sizes[k].count++
		if bytes > f.budget {
			continue
		}
		all := make([]*kept, len(inputs))
		cache = append(cache, all)
		for i, v := range inputs {
			if all[i], err = f.o.Room.put(sample[slices.Index(f.g.Inputs, v)], true); err != nil {
				return err
			}
			bytes += all[i].bytes
		}
		if bytes > f.budget {
			cache = nil
		}
	}
	if count == 0 {
		return fmt.Errorf("no calibration samples: %w", ir.ErrInvalid)
	}
	f.samples = count
	if bytes <= f.budget {
		f.settle(0, inputs, cache, f.same)
	}
	return nil
}

// settle makes cache, the tensors of values by sample, what is kept at a position.
func (f *Frontier) settle(at int, values []*ir.Value, cache [][]*kept, same map[*ir.Value]*ir.Value) {
	f.at, f.cached, f.cache, f.same = at, values, cache, same
	f.place, f.fixed = map[*ir.Value]int{}, map[*ir.Value]*tensor.Tensor{}
	for i, v := range values {
		f.place[v] = i
		if t := cache[0][i].t; t != nil && small(t) && !slices.ContainsFunc(cache, func(s []*kept) bool { return s[i].t == nil || !t.Equal(s[i].t) }) {
			f.fixed[v] = t
		}
	}
}

// small reports whether a tensor may hold a shape, axes or a condition, on whose
// elements types depend.
func small(t *tensor.Tensor) bool {
	return (t.DType().IsInt() || t.DType() == tensor.Bool) && t.Rank() <= 1 && t.Len() <= 64
}

// streaming reports whether samples are read anew each time.
func (f *Frontier) streaming() bool { return f.place == nil }

// origin is the position at which a value exists first.
func (f *Frontier) origin(v *ir.Value) int {
	if v.Def == nil {
		return 0
	}
	return f.index[v.Def] + 1
}

// crossing lists the values that the nodes from a position on read, or that are to
// be kept, and that exist there, in the order of their definitions. Of those that
// are the same only one is listed.
func (f *Frontier) crossing(at int, same map[*ir.Value]*ir.Value) []*ir.Value {
	wanted := maps.Clone(f.keep)
	for _, n := range f.g.Nodes[at:] {
		n.Reads(func(v *ir.Value) { wanted[v] = true })
	}
	var out []*ir.Value
	seen := map[*ir.Value]bool{}
	add := func(v *ir.Value) {
		if v == nil || !wanted[v] {
			return
		}
		if v = find(same, v); !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	for _, v := range f.g.Inputs {
		add(v)
	}
	for _, n := range f.g.Nodes[:at] {
		for _, v := range n.Outputs {
			add(v)
		}
	}
	return out
}

// find returns the value that stands for all that are the same as v.
func find(same map[*ir.Value]*ir.Value, v *ir.Value) *ir.Value {
	if w := same[v]; w != nil {
		return w
	}
	return v
}

// sameness finds the values of the nodes from the position to another one that are
// computed by the same operator from the same values as others.
func (f *Frontier) sameness(to int) map[*ir.Value]*ir.Value {
	same := maps.Clone(f.same)
	first := map[string]*ir.Node{}
	for _, n := range f.g.Nodes[f.at:to] {
		if !ir.Pure(n.Op) || len(ir.Subgraphs(n.Op)) > 0 {
			continue
		}
		key := fmt.Appendf(nil, "%s %p", n.Op.Kind(), n.Op) // operators without attributes may all lie in one place
		for _, v := range n.Inputs {
			switch {
			case v == nil:
				key = append(key, " nil"...)
			case v.Const != nil:
				key = fmt.Appendf(key, " %p", v.Const)
			case v.Store != nil:
				key = fmt.Appendf(key, " %p", v.Store)
			default:
				key = fmt.Appendf(key, " %p", find(same, v))
			}
		}
		for _, v := range n.Outputs {
			key = fmt.Appendf(key, " %t", v != nil)
		}
		m := first[string(key)]
		if m == nil {
			first[string(key)] = n
			continue
		}
		for i, v := range n.Outputs {
			if v != nil {
				same[v] = m.Outputs[i]
			}
		}
	}
	return same
}

// bytes predicts how much memory the values take in all samples; ok is false where
// types do not tell.
func (f *Frontier) bytes(values []*ir.Value) (n int, ok bool) {
	for _, v := range values {
		if !v.Type.Ranked || !v.Type.DType.Numeric() {
			return 0, false
		}
		for _, s := range f.sizes {
			shape := make([]int, len(v.Type.Dims))
			for i, d := range v.Type.Dims {
				if shape[i], ok = d.At(s.sizes); !ok {
					return 0, false
				}
				shape[i] = max(shape[i], 0)
			}
			k, err := tensor.Elems(shape)
			if err != nil || k > 0 && k*v.Type.DType.Bits()/8 > f.budget/s.count {
				return f.budget + 1, true
			}
			if n += k * v.Type.DType.Bits() / 8 * s.count; n > f.budget {
				return n, true
			}
		}
	}
	return n, true
}

// Advance moves the position to the one before node to, or as far towards it as what
// crosses fits the budget: later calls then evaluate more nodes. After an error, as
// that of a context, the position may be the first one again.
func (f *Frontier) Advance(ctx context.Context, to int) error {
	if to > len(f.g.Nodes) {
		return fmt.Errorf("position %d of %d nodes: %w", to, len(f.g.Nodes), ir.ErrInvalid)
	}
	if err := f.begin(ctx); err != nil {
		return err
	}
	same := f.sameness(max(f.at, to))
	for p := to; p > f.at; p-- {
		values := f.crossing(p, same)
		n, known := f.bytes(values)
		if known && n > f.budget {
			continue
		}
		return f.advance(ctx, p, values, same, known)
	}
	return nil
}

// approachBytes is how many bytes of constants nodes read that Approach evaluates together.
var approachBytes = 64 << 20

// Approach advances to the one before node to in steps, as far as what is kept fits the budget: the nodes of each read so many bytes of
// constants at most, or are one, since what evaluates them may hold these in memory. It does nothing where all nodes may be evaluated together.
func (f *Frontier) Approach(ctx context.Context, to int) error {
	if !f.far(to) {
		return nil
	}
	for f.at < to {
		p := f.at
		for read := f.reads(); p < to && (read(p) <= approachBytes || p == f.at); {
			p++
		}
		at := f.at
		if err := f.Advance(ctx, p); err != nil || f.at == at {
			return err
		}
	}
	return nil
}

// far reports whether Approach takes steps.
func (f *Frontier) far(to int) bool {
	read := f.reads()
	for p := f.at; p < to; p++ {
		if read(p) > approachBytes {
			return true
		}
	}
	return false
}

// reads returns what adds up the bytes of the constants that nodes read, one after the other.
func (f *Frontier) reads() func(node int) (bytes int) {
	seen, bytes := map[*tensor.Tensor]bool{}, 0
	return func(node int) int {
		f.g.Nodes[node].Reads(func(v *ir.Value) {
			if c := v.Const; c != nil && !seen[c] {
				seen[c] = true
				bytes += len(c.Bytes())
			}
		})
		return bytes
	}
}

// advance moves the position to p, where the values cross, unless they turn out to
// be larger than the budget, or where that is not known before, those of the first
// samples as large as if all were.
func (f *Frontier) advance(ctx context.Context, p int, values []*ir.Value, same map[*ir.Value]*ir.Value, known bool) error {
	known = known || f.o.Room != nil // where all values fit
	var made []*ir.Value
	for _, v := range values {
		if !f.has(v) {
			made = append(made, v)
		}
	}
	cache := make([][]*kept, 0, f.samples)
	bytes := 0
	err := f.eval(ctx, made, same, nil, func(sample int, out []*tensor.Tensor) error {
		all, err := f.cross(sample, values, out, known)
		cache = append(cache, all)
		if err != nil {
			return err
		}
		for _, k := range all {
			bytes += k.bytes
		}
		if bytes > f.budget || !known && bytes/(sample+1) > f.budget/f.samples {
			return errTooLarge
		}
		return nil
	})
	if err != nil {
		if known {
			dropAll(cache)
			f.rewind()
		}
		if errors.Is(err, errTooLarge) {
			return nil
		}
		return err
	}
	// Values that are the same as one that is kept, from now on.
	behind := map[*ir.Value]*ir.Value{}
	for v, w := range same {
		if f.origin(v) <= p {
			behind[v] = w
		}
	}
	f.settle(p, values, cache, behind)
	return nil
}

// cross returns what is kept of a sample where the values cross, of which made are those that were not kept before. Where last is set, nothing
// reads what else was kept any more.
func (f *Frontier) cross(sample int, values []*ir.Value, made []*tensor.Tensor, last bool) (all []*kept, err error) {
	all = make([]*kept, len(values))
	for i, v := range values {
		if at, ok := f.place[v]; ok {
			all[i] = f.cache[sample][at]
		}
	}
	if last && !f.streaming() {
		dropAll(f.cache[sample:sample+1], all...)
		f.cache[sample] = nil
	}
	next := 0
	for i := range all {
		if all[i] != nil {
			continue
		}
		if all[i], err = f.o.Room.put(made[next], true); err != nil {
			return all, err
		}
		if all[i].t != nil {
			made[next] = nil // from the runner, which makes another
		}
		next++
	}
	return all, nil
}

// rewind goes back to the beginning, where samples are read anew.
func (f *Frontier) rewind() {
	dropAll(f.cache)
	f.at, f.cached, f.place, f.fixed, f.cache, f.same = 0, nil, nil, nil, nil, map[*ir.Value]*ir.Value{}
}

// errTooLarge ends an evaluation whose values do not fit the budget.
var errTooLarge = errors.New("values are larger than the budget")

// has reports whether a value is kept.
func (f *Frontier) has(v *ir.Value) bool {
	_, ok := f.place[v]
	return ok
}

// See calls see for every sample, counted from 0, with the tensors of the values,
// which lie ahead of the position or cross it, in their order. The tensors are only
// to be read, and only until see returns. Elements of floats that are not finite are
// an error that names the sample and the value. The position stays: where the same
// nodes would be evaluated again and again, Advance goes first.
func (f *Frontier) See(ctx context.Context, values []*ir.Value, see func(sample int, values []*tensor.Tensor) error) error {
	return f.SeeAny(ctx, values, func(sample int, out []*tensor.Tensor) error {
		for i, t := range out {
			if err := finite(t); err != nil {
				return fmt.Errorf("calibration sample %d: value %s: %w", sample+1, values[i].Name, err)
			}
		}
		return see(sample, out)
	})
}

// SeeAny is See for values that need not be finite.
func (f *Frontier) SeeAny(ctx context.Context, values []*ir.Value, see func(sample int, values []*tensor.Tensor) error) error {
	return f.SeeSome(ctx, values, nil, see)
}

// SeeSome is SeeAny for the samples that pick chooses by their numbers, all where it is
// nil.
func (f *Frontier) SeeSome(ctx context.Context, values []*ir.Value, pick func(sample int) bool, see func(sample int, values []*tensor.Tensor) error) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	to := f.at
	for _, v := range values {
		if v.Graph() != f.g {
			return fmt.Errorf("value %s is none of the graph's: %w", v.Name, ir.ErrInvalid)
		}
		to = max(to, f.origin(v))
	}
	return f.eval(ctx, values, f.sameness(to), pick, see)
}

// finite returns an error for floats that are not.
func finite(t *tensor.Tensor) error {
	if !t.DType().IsFloat() || t.DType() == tensor.F32 && allFinite(t.F32s()) {
		return nil
	}
	for _, v := range t.Float64s() {
		if !(v-v == 0) {
			return notFinite(v)
		}
	}
	return nil
}

// allFinite reports whether no element is infinite or NaN, which have an exponent of
// ones: adding one to it then sets the sign.
func allFinite(x []float32) bool {
	const exponent, one = 0xff << 23, 1 << 23
	var a, b, c, d uint32
	for ; len(x) >= 4; x = x[4:] {
		a |= math.Float32bits(x[0])&exponent + one
		b |= math.Float32bits(x[1])&exponent + one
		c |= math.Float32bits(x[2])&exponent + one
		d |= math.Float32bits(x[3])&exponent + one
	}
	for _, v := range x {
		a |= math.Float32bits(v)&exponent + one
	}
	return (a|b|c|d)>>31 == 0
}

// eval calls see with the values for every sample that pick chooses. Entries that are not
// kept may be taken out of the slice and stay the taker's.
func (f *Frontier) eval(ctx context.Context, values []*ir.Value, same map[*ir.Value]*ir.Value, pick func(sample int) bool, see func(sample int, values []*tensor.Tensor) error) error {
	x, err := f.extract(values, same)
	if err != nil {
		return err
	}
	var picked []int
	for i := range f.samples {
		if pick == nil || pick(i) {
			picked = append(picked, i)
		}
	}
	seen := 0
	kept := newReader(f.cache)
	out := make([]*tensor.Tensor, len(values))
	show := func(made []*tensor.Tensor) error {
		if seen >= len(picked) {
			return f.miscounted()
		}
		sample := picked[seen]
		for i, s := range x.sources {
			switch {
			case s.made:
				out[i] = made[s.at]
			case s.fixed != nil:
				out[i] = s.fixed
			default:
				var err error
				if out[i], err = kept.get(sample, s.at); err != nil {
					return err
				}
			}
		}
		if err := see(sample, out); err != nil {
			return err
		}
		for i, s := range x.sources {
			if s.made && out[i] == nil {
				made[s.at] = nil
			}
		}
		kept.done(sample)
		seen++
		return nil
	}
	if len(x.graph.Outputs) == 0 {
		for range picked {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := show(nil); err != nil {
				return err
			}
		}
		return nil
	}
	if err := f.o.Run(ctx, x.graph, x.inputs(ctx, f, kept, pick), show); err != nil {
		return err
	}
	if seen != len(picked) {
		return f.miscounted()
	}
	return nil
}

func (f *Frontier) miscounted() error {
	return fmt.Errorf("the number of calibration samples changed from %d: %w", f.samples, ir.ErrInvalid)
}

// extract is a part of the graph: what takes it from the values that are kept to
// those that are wanted.
type extract struct {
	graph   *ir.Graph
	from    []int // by input of graph, its place in the cache, or of an input that is read anew its index
	sources []source
}

// source says where a wanted value comes from.
type source struct {
	made  bool // by the extract, as output at; else it is kept at that place
	at    int
	fixed *tensor.Tensor // a constant
}

// extract makes the graph that computes the values, but for those that are kept.
func (f *Frontier) extract(values []*ir.Value, same map[*ir.Value]*ir.Value) (*extract, error) {
	need := map[*ir.Node]bool{}
	reads := map[*ir.Value]bool{}
	var err error
	var want func(v *ir.Value)
	want = func(v *ir.Value) {
		if v.Graph() != f.g || v.IsConst() { // of a subgraph, which is copied with its node
			return
		}
		v = find(same, v)
		if reads[v] {
			return
		}
		reads[v] = true
		switch n := v.Def; {
		case f.has(v), f.streaming() && n == nil:
		case n == nil || f.index[n] < f.at:
			err = fmt.Errorf("value %s lies behind the position and was not kept: %w", v.Name, ir.ErrInvalid)
		case !need[n]:
			need[n] = true
			n.Reads(want)
		}
	}
	for _, v := range values {
		want(v)
	}
	if err != nil {
		return nil, err
	}
	x := &extract{graph: ir.NewGraph(f.g.Name)}
	c := ir.NewCopier(x.graph, f.g, "")
	available := f.cached
	if f.streaming() {
		available = f.g.Inputs
	}
	for i, v := range available {
		switch t := f.fixed[v]; {
		case !reads[v]:
		case t != nil:
			c.Bind(v, x.graph.NewConst(v.Name, t))
		default:
			c.Bind(v, x.graph.NewInput(v.Name, v.Type))
			x.from = append(x.from, i)
		}
	}
	for _, n := range f.g.Nodes[f.at:] {
		if !need[n] {
			continue
		}
		n.Reads(func(v *ir.Value) {
			if w := find(same, v); w != v {
				c.Bind(v, c.Value(w))
			}
		})
		c.Node(n)
	}
	made := map[*ir.Value]int{}
	for _, v := range values {
		if v.IsConst() {
			x.sources = append(x.sources, source{fixed: v.Const})
			continue
		}
		v = find(same, v)
		if f.has(v) {
			x.sources = append(x.sources, source{at: f.place[v]})
			continue
		}
		at, ok := made[v]
		if !ok {
			at = len(x.graph.Outputs)
			made[v] = at
			x.graph.Outputs = append(x.graph.Outputs, c.Value(v))
		}
		x.sources = append(x.sources, source{made: true, at: at})
	}
	// What is read from the cache tells less of types than what it was computed from.
	return x, x.graph.Infer()
}

// inputs yields what the extract takes, sample by sample of those that are picked.
func (x *extract) inputs(ctx context.Context, f *Frontier, kept *reader, pick func(sample int) bool) iter.Seq2[[]*tensor.Tensor, error] {
	return func(yield func([]*tensor.Tensor, error) bool) {
		if !f.streaming() {
			for i := range f.cache {
				if pick != nil && !pick(i) {
					continue
				}
				in, err := make([]*tensor.Tensor, len(x.from)), error(nil)
				for k, place := range x.from {
					if in[k], err = kept.get(i, place); err != nil {
						break
					}
				}
				if !yield(in, err) || err != nil {
					return
				}
			}
			return
		}
		i := -1
		for s, err := range f.o.Inputs(ctx, f.g) {
			if i++; err == nil && pick != nil && !pick(i) {
				continue
			}
			var in []*tensor.Tensor
			if err == nil {
				if err = ir.CheckInputs(f.g, s); err == nil {
					for _, k := range x.from {
						in = append(in, s[k])
					}
				}
			}
			if !yield(in, err) || err != nil {
				return
			}
		}
	}
}
