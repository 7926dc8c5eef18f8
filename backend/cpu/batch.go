package cpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"spc/backend"
	"spc/backend/cpu/winograd"
	"spc/backend/format"
	"spc/internal/memory"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/plan"
	"spc/passes/fold"
)

// runner is a program for inputs of certain shapes.
type runner interface {
	drop() error
	parts() []*spec // one after the other, each of which may run several times
	run(ctx context.Context, in, out []*tensor.Tensor, trace func(*ir.Node, time.Duration)) error
}

// cut divides the batch into portions where parts of one are best computed one after the other.
func (l *lowering) cut() (int, error) {
	if len(l.units) > 0 {
		return 0, nil
	}
	n := batchOf(l.in)
	portions, err := l.prog.parted(l.in, n)
	if err != nil {
		return 0, err
	}
	if portions == nil {
		l.add(l.in, "", "")
		return 0, nil
	}
	l.divide(n, portions)
	return len(l.units), nil
}

// parted returns the portions of a batch of n images, nil where it stays whole.
func (p *program) parted(in []*tensor.Tensor, n int) ([]portion, error) {
	if n < 2 {
		return nil, nil
	}
	listed, ok := batchable(p.graph, in, n)
	if !ok {
		return nil, nil
	}
	// Graphs that name the size of the batch may not fit its parts, nor may a batch be
	// valid because its parts are.
	portions, err := p.portions(in, n, listed)
	if err != nil || len(portions) == 1 && portions[0].size == n {
		return nil, nil
	}
	_, err = p.graph.Specialise(in)
	return portions, err
}

// divide begins units for portions of n images.
func (l *lowering) divide(n int, portions []portion) {
	from := "" // the value that the portion before computed
	for _, c := range portions {
		parts := c.parts(n)
		l.add(part(l.in, n, n/parts), from, c.to)
		if n%parts > 0 {
			l.add(part(l.in, n, n/parts+1), from, c.to)
		}
		from = c.to
	}
	l.portions = portions
}

// portion is a part of a graph: the nodes that compute a value from that of the portion
// before, or from the inputs, for so many images at a time.
type portion struct {
	to   string // the name of the value; empty for the outputs of the graph
	size int
}

// parts is how many parts a batch of n images has.
func (c portion) parts(n int) int { return (n + c.size - 1) / c.size }

// batch is what computes the portions that were lowered.
func (l *lowering) batch() *batch {
	b, at := &batch{prog: l.prog, n: batchOf(l.in)}, 0
	for _, c := range l.portions {
		g := leg{n: b.n, parts: c.parts(b.n)}
		for i := range g.specs {
			if i == 0 || b.n%g.parts > 0 {
				g.specs[i] = l.units[at].spec
				at++
			}
		}
		b.legs = append(b.legs, g)
	}
	return b
}

// between leaves of a graph what computes the value named to, or the outputs, from the
// value named from, or the inputs.
func between(g *ir.Graph, from, to string) error {
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			switch {
			case v == nil:
			case to != "" && v.Name == to:
				g.Outputs, g.OutputNames = []*ir.Value{v}, nil
			case from != "" && v.Name == from:
				in := g.NewInput("", v.Type)
				g.ReplaceUses(v, in)
				g.Inputs = []*ir.Value{in}
			}
		}
	}
	fold.Dead(g)
	if to != "" && g.Outputs[0].Name != to || from != "" && len(g.Inputs) != 1 {
		return fmt.Errorf("no values %s, %s: %w", from, to, ir.ErrInvalid)
	}
	return nil
}

// batchOf is the number of images in inputs, the first dimension of the first that
// has one.
func batchOf(in []*tensor.Tensor) int {
	for _, t := range in {
		if t.Rank() > 0 {
			return t.Dim(0)
		}
	}
	return 1
}

// part returns tensors, without elements where they are cut, of the types of in with
// size images in place of n.
func part(in []*tensor.Tensor, n, size int) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(in))
	for i, t := range in {
		if out[i] = t; t.Rank() > 0 && t.Dim(0) == n {
			out[i] = tensor.Header(t.DType(), append([]int{size}, t.Shape()[1:]...)...)
		}
	}
	return out
}

// The cost of an image of a batch, in nanoseconds: weights are read from the level 3
// cache again for each part, and values cost the more the more bytes are in use at
// once, from nothing in the level 2 cache to what memory takes at farBytes. Fitted to
// ResNet50 with 4x1 blocks in batches of 1 to 16, one core of a Xeon (family 6 model 207).
const (
	weightPace = 1. / 32  // a byte
	valuePace  = 1. / 16  // a byte, written or read
	farBytes   = 64 << 20 // in use at once
	nodeCost   = 1000.    // to start a node
	macPace    = 1. / 80  // a multiply-add
	cutShare   = 0.03     // of the cost without cuts, what a cut has to save
)

// distant is what it costs to write and read so many bytes while others are in use.
func distant(bytes, inUse float64) float64 { return 2 * bytes * valuePace * min(1, inUse/farBytes) }

// portions cuts the graph where one value alone passes from nodes to later ones, one of
// those listed, and says how many of the n images in inputs are best computed together
// in each portion.
func (p *program) portions(in []*tensor.Tensor, n int, listed map[string]bool) ([]portion, error) {
	g, err := p.graph.Specialise(part(in, n, 1))
	if err != nil {
		return nil, err
	}
	if _, err := fold.Constants(g); err != nil {
		return nil, err
	}
	fold.Dead(g)
	if _, err := format.Settle(g, p.forms); err != nil {
		return nil, err
	}
	if len(g.Nodes) == 0 {
		return []portion{{size: n}}, nil
	}
	c := &cutting{n: n, sizes: []int{1}, uses: usesOf(g)}
	for k := 1; k < n; c.sizes = append(c.sizes, k) {
		k = min(n, 2*k)
	}
	c.products, c.ends = productCosts(g, c.sizes), endsOf(c.uses, listed)
	return c.cheapest(), nil
}

// usage is what an image takes at a node.
type usage struct {
	made, live float64   // bytes
	passes     *ir.Value // the only value that nodes before hand to this and later ones
	passing    int       // how many there are
}

// usesOf returns what an image takes at each node of a graph.
func usesOf(g *ir.Graph) []usage {
	uses := make([]usage, len(g.Nodes))
	pl := plan.New(g)
	for i := range pl.Values {
		v, span := pl.Values[i].Value, pl.Values[i].Span
		if v.IsConst() || !v.Type.Static() {
			continue
		}
		size := float64(prod(shapeOf(v)) * v.Type.DType.Size())
		uses[span.First].made += size
		for k := span.First; k <= min(span.Last, len(uses)-1); k++ {
			uses[k].live += size
			if k > span.First || v.Def == nil {
				uses[k].passing++
				uses[k].passes = v
			}
		}
	}
	return uses
}

// endsOf lists the nodes at which portions may begin, from the first to past the last.
func endsOf(uses []usage, listed map[string]bool) []int {
	ends := []int{0}
	for k := 1; k < len(uses); k++ {
		if v := uses[k].passes; uses[k].passing == 1 && v.Def != nil && listed[v.Name] {
			ends = append(ends, k)
		}
	}
	return thinned(append(ends, len(uses)))
}

// productCosts returns what the products of each node cost for each number of images,
// nil where a node has none.
func productCosts(g *ir.Graph, sizes []int) [][]float64 {
	costs := make([][]float64, len(g.Nodes))
	for k, node := range g.Nodes {
		for _, w := range productsOf(node) {
			if costs[k] == nil {
				costs[k] = make([]float64, len(sizes))
			}
			for s, size := range sizes {
				costs[k][s] += float64(w.bytes)*weightPace + float64(w.weights*backend.Columns(size*w.columns))*macPace
			}
		}
	}
	return costs
}

// cutting looks for the portions that cost least.
type cutting struct {
	n        int         // images
	sizes    []int       // the numbers of images that a portion may take
	uses     []usage     // by node
	products [][]float64 // by node and size, what its products cost
	ends     []int       // where portions may begin
}

// stretch is a run of nodes that may be a portion.
type stretch struct {
	first, end int       // nodes, the second not included
	made, live float64   // bytes of values for an image, live of them at once
	products   []float64 // by size, what the products cost
}

// extend begins a stretch at an earlier node.
func (c *cutting) extend(s *stretch, first int) {
	for k := first; k < s.first; k++ {
		s.made, s.live = s.made+c.uses[k].made, max(s.live, c.uses[k].live)
		for i, cost := range c.products[k] {
			s.products[i] += cost
		}
	}
	s.first = first
}

// least is the least cost of an image in a stretch as one portion, and the number of
// images for which it is that.
func (c *cutting) least(s *stretch) (cost float64, images int) {
	cost = math.Inf(1)
	for i, size := range c.sizes {
		each := (float64(s.end-s.first)*nodeCost+s.products[i])/float64(size) + distant(s.made, float64(size)*s.live)
		if each < cost {
			cost, images = each, size
		}
	}
	return cost, images
}

// cheapest returns the portions that cost least, by what is cheapest up to each end.
func (c *cutting) cheapest() []portion {
	last := len(c.ends) - 1
	products := make([]float64, len(c.sizes))
	empty := func(end int) stretch {
		clear(products)
		return stretch{first: end, end: end, products: products}
	}
	whole := empty(c.ends[last])
	for i := last - 1; i >= 0; i-- {
		c.extend(&whole, c.ends[i])
	}
	cutCost, _ := c.least(&whole)
	cutCost *= cutShare
	// best[j] is the least cost of the nodes before ends[j], whose last portion begins
	// at ends[from] for size images.
	best := make([]struct {
		cost       float64
		from, size int
	}, len(c.ends))
	for j := 1; j <= last; j++ {
		best[j].cost = math.Inf(1)
		s := empty(c.ends[j])
		for i := j - 1; i >= 0; i-- {
			c.extend(&s, c.ends[i])
			before := best[i].cost
			if i > 0 {
				bytes := float64(imageBytes(c.uses[c.ends[i]].passes)) // kept for all images
				before += distant(bytes, float64(c.n)*bytes) + cutCost
			}
			if cost, size := c.least(&s); before+cost < best[j].cost {
				best[j].cost, best[j].from, best[j].size = before+cost, i, size
			}
		}
	}
	var list []portion
	to := ""
	for j := last; j > 0; j = best[j].from {
		list = append(list, portion{to: to, size: best[j].size})
		if i := best[j].from; i > 0 {
			to = c.uses[c.ends[i]].passes.Name
		}
	}
	slices.Reverse(list)
	return list
}

// maxEnds bounds the places where portions may end: the time to choose grows with its square.
const maxEnds = 1 << 10

// thinned leaves at most maxEnds of a list, evenly, with the first and the last.
func thinned(ends []int) []int {
	if len(ends) <= maxEnds {
		return ends
	}
	list := make([]int, maxEnds)
	for i := range list {
		list[i] = ends[i*(len(ends)-1)/(maxEnds-1)]
	}
	return list
}

// weightCost is what a weight costs: the bytes that are read, and the multiply-adds
// for each of the columns of an image.
type weightCost struct{ bytes, weights, columns int }

func productsOf(n *ir.Node) []weightCost {
	op, ok := n.Op.(ir.WeightOp)
	if !ok || !static(n) {
		return nil
	}
	var list []weightCost
	for _, ref := range op.Weights(n) {
		v := n.Input(ref.Input)
		switch {
		case v == nil || !v.IsConst() || !ref.Cols.Known():
		case v.Store != nil && (denseValues(v) == nil || v.Type.DType != tensor.F32):
			n := v.Store.Bytes()
			list = append(list, weightCost{n, n / storedBytes, ref.Cols.Size()})
		default: // widened, where it takes 16 bits
			list = append(list, weightCost{4 * transformed(v, ref), prod(shapeOf(v)), ref.Cols.Size()})
		}
	}
	return list
}

// storedBytes is about what formats take to store an element that is not zero.
const storedBytes = 5

// transformed is the number of elements of a dense weight as kernels read it.
func transformed(v *ir.Value, ref ir.Weight) int {
	s, shape := ref.Slide, shapeOf(v)
	if s == nil || ref.Groups > 1 || len(s.Kernel) < 2 || len(s.Kernel) > 3 {
		return prod(shape)
	}
	first, images := len(s.Kernel)-2, 1
	for i := range s.Kernel {
		if i < first {
			images *= s.Out[i].Size()
		} else if s.Kernel[i] != 3 || s.Stride[i] != 1 || s.Dilation[i] != 1 {
			return prod(shape)
		}
	}
	m := shape[0]
	g := convGeometry{rows: m, channels: prod(shape) / (9 * m), images: images, out: []int{s.Out[first].Size(), s.Out[first+1].Size()}}
	if tile := winogradTile(&g); tile > 0 {
		return winograd.WeightLen(g.rows, g.channels, tile)
	}
	return prod(shape)
}

// batch runs the portions of a program one after the other, each on parts of the
// images, so that what layers hand to each other stays near.
type batch struct {
	prog *program
	n    int
	legs []leg
}

// parts lists the specs of the legs.
func (b *batch) parts() (list []*spec) {
	for i := range b.legs {
		list = append(list, cmp.Or(b.legs[i].specs[0], b.legs[i].specs[1]))
	}
	return list
}

// drop lets go of the memory of runs.
func (b *batch) drop() error {
	b.prog.idle.drop(b)
	var errs []error
	for _, l := range b.legs {
		for _, s := range l.specs {
			if s != nil {
				errs = append(errs, s.drop())
			}
		}
	}
	return errors.Join(errs...)
}

// bytes is the memory of a run, but for its parts.
func (b *batch) bytes() int {
	total := 0
	for _, l := range b.legs {
		for _, v := range l.outputs() {
			total += b.n * imageBytes(v)
		}
	}
	return total
}

// leg is a portion as it runs.
type leg struct {
	n, parts int
	specs    [2]*spec // for n/parts images, and for one more where that leaves a rest
}

// batchRun is the memory of one run of a batch.
type batchRun struct {
	*batch
	in   [2][]*tensor.Tensor // by spec of the first leg, what parts are copied to; nil for inputs that are not cut
	arg  []*tensor.Tensor
	out  [][]*tensor.Tensor   // by leg, of the whole batch
	to   [][][]*tensor.Tensor // by leg and part, its share of out
	from [][][]*tensor.Tensor // by leg and part, its share of what the leg before computed
}

func (r *batchRun) owner() any { return r.batch }
func (r *batchRun) size() int  { return r.bytes() }

func (b *batch) acquire(in []*tensor.Tensor) (*batchRun, error) {
	if r := b.prog.idle.take(b); r != nil {
		return r.(*batchRun), nil
	}
	outputs := b.outputs()
	if err := memory.Check(b.bytes()); err != nil {
		v := slices.MaxFunc(outputs, func(v, w *ir.Value) int { return imageBytes(v) - imageBytes(w) })
		return nil, fmt.Errorf("%v: output %s of %d images: %w: %w", v.Def, v.Name, b.n, err, ir.ErrInvalid)
	}
	r := &batchRun{batch: b, arg: make([]*tensor.Tensor, len(in))}
	for k, s := range b.legs[0].specs {
		if s == nil {
			continue
		}
		r.in[k] = make([]*tensor.Tensor, len(in))
		for i, t := range in {
			if v := s.plan.Graph.Inputs[i]; b.cut(t) {
				r.in[k][i] = tensor.New(v.Type.DType, shapeOf(v)...)
			}
		}
	}
	for i, l := range b.legs {
		var whole []*tensor.Tensor
		for _, v := range l.outputs() {
			whole = append(whole, tensor.New(v.Type.DType, append([]int{b.n}, shapeOf(v)[1:]...)...))
		}
		r.out = append(r.out, whole)
		r.to = append(r.to, l.shares(whole))
		r.from = append(r.from, nil)
		if i > 0 {
			r.from[i] = l.shares(r.out[i-1])
		}
	}
	return r, nil
}

// outputs are those of the program.
func (b *batch) outputs() []*ir.Value { return b.legs[len(b.legs)-1].outputs() }

func (l *leg) outputs() []*ir.Value { return l.specs[0].plan.Graph.Outputs }

// imageBytes is the size of one image of a value.
func imageBytes(v *ir.Value) int { return prod(shapeOf(v)[1:]) * v.Type.DType.Size() }

// cut reports whether a tensor of the inputs has the images in its first dimension.
func (b *batch) cut(t *tensor.Tensor) bool { return t.Rank() > 0 && t.Dim(0) == b.n }

// part is the images of part i.
func (l *leg) part(i int) (from, to int) { return i * l.n / l.parts, (i + 1) * l.n / l.parts }

// spec is that of part i, and its number.
func (l *leg) spec(i int) (int, *spec) {
	from, to := l.part(i)
	k := to - from - l.n/l.parts
	return k, l.specs[k]
}

// shares cuts tensors of all images into those of the parts.
func (l *leg) shares(whole []*tensor.Tensor) [][]*tensor.Tensor {
	list := make([][]*tensor.Tensor, l.parts)
	for i := range list {
		from, to := l.part(i)
		for _, t := range whole {
			size := len(t.Bytes()) / l.n
			share, err := tensor.FromBytes(t.DType(), append([]int{to - from}, t.Shape()[1:]...), t.Bytes()[from*size:to*size])
			if err != nil {
				panic(err) // the whole is a tensor
			}
			list[i] = append(list[i], share)
		}
	}
	return list
}

// run runs the parts. Where it fails, an operator may still read its memory.
func (b *batch) run(ctx context.Context, in, out []*tensor.Tensor, trace func(*ir.Node, time.Duration)) error {
	r, err := b.acquire(in)
	if err != nil {
		return err
	}
	for i := range b.legs {
		l := &b.legs[i]
		for j := range l.parts {
			k, s := l.spec(j)
			arg := r.arg
			if i == 0 {
				r.load(b, l, j, k, in)
			} else {
				arg = r.from[i][j]
			}
			if err := s.run(ctx, arg, r.to[i][j], trace); err != nil {
				return err
			}
		}
	}
	clear(r.arg)
	whole := r.out[len(b.legs)-1]
	for i, t := range whole {
		if !out[i].Fits(t) {
			if err := memory.Check(len(t.Bytes())); err != nil {
				return fmt.Errorf("output %s is %v: %w: %w", b.outputs()[i].Name, t, err, ir.ErrInvalid)
			}
		}
	}
	for i, t := range whole {
		if out[i].Fits(t) {
			out[i].CopyFrom(t)
		} else {
			out[i] = t.Clone()
		}
	}
	b.prog.idle.put(r)
	return nil
}

// load makes arg the inputs of part j of the first leg, whose spec has number k.
func (r *batchRun) load(b *batch, l *leg, j, k int, in []*tensor.Tensor) {
	from, to := l.part(j)
	for i, t := range in {
		if r.arg[i] = t; b.cut(t) {
			r.arg[i] = r.in[k][i]
			size := len(t.Bytes()) / b.n
			copy(r.arg[i].Bytes(), t.Bytes()[from*size:to*size])
		}
	}
}
