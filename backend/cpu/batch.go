package cpu

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"spc/backend"
	"spc/backend/cpu/winograd"
	"spc/internal/memory"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/plan"
	"spc/passes/fold"
)

// runner is a program for inputs of certain shapes.
type runner interface {
	run(ctx context.Context, in, out []*tensor.Tensor, trace func(*ir.Node, time.Duration)) error
}

// runner makes what runs the program on inputs of the given shapes: a spec, or a batch
// where parts of one are best computed one after the other.
func (p *program) runner(in []*tensor.Tensor) (runner, error) {
	n := batchOf(in)
	if n < 2 || !apart(p.graph, in, n) {
		return p.specialise(in)
	}
	size, err := p.partSize(in, n)
	if err != nil {
		return nil, err
	}
	if size == n {
		return p.specialise(in)
	}
	if _, err := p.typed(in); err != nil { // a batch may be larger than its parts tell
		return nil, err
	}
	return p.parts(in, n, (n+size-1)/size)
}

// parts is a batch of n images cut into so many parts.
func (p *program) parts(in []*tensor.Tensor, n, parts int) (*batch, error) {
	b := &batch{n: n, parts: parts}
	for i := range b.specs {
		if i == 1 && n%parts == 0 {
			break
		}
		var err error
		if b.specs[i], err = p.specialise(part(in, n, n/parts+i)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// typed is a copy of the program's graph with the types that inputs of the types of in
// give it.
func (p *program) typed(in []*tensor.Tensor) (*ir.Graph, error) {
	g := p.graph.Clone()
	for i, v := range g.Inputs {
		v.Type = ir.TypeOf(in[i])
	}
	return g, g.Infer()
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

// The cost of a batch, in nanoseconds: weights are read from the level 3 cache again
// for each part, and values cost the more the more bytes are in use at once, from
// nothing in the level 2 cache to what memory takes at farBytes. Fitted to ResNet50
// with 4x1 blocks in batches of 1 to 16, one core of the Xeon of rate.Blocks.
const (
	weightPace = 1. / 32  // a byte
	valuePace  = 1. / 16  // a byte
	farBytes   = 64 << 20 // in use at once
	nodeCost   = 1000.    // to start a node
	macPace    = 1. / 80  // a multiply-add
)

// partSize is the number of the n images in inputs that are best computed together.
func (p *program) partSize(in []*tensor.Tensor, n int) (int, error) {
	g, err := p.typed(part(in, n, 1))
	if err != nil {
		return n, err
	}
	if _, err := fold.Constants(g); err != nil {
		return n, err
	}
	fold.Dead(g)
	pl := plan.New(g)
	var values []plan.Buffer
	bytes := 0 // of all values of an image, written and read
	for i, span := range pl.Spans() {
		if v := pl.Values[i]; !v.IsConst() && v.Type.Static() {
			size := prod(shapeOf(v)) * v.Type.DType.Size()
			values = append(values, plan.Buffer{Size: size, Span: span})
			bytes += 2 * size
		}
	}
	atOnce := plan.Peak(values, 1)
	products := productsOf(g)
	cost := func(size int) float64 { // of an image
		c := float64(len(g.Nodes)) * nodeCost
		for _, w := range products {
			c += float64(w.bytes)*weightPace + float64(w.weights*backend.Columns(size*w.columns))*macPace
		}
		return c/float64(size) + float64(bytes)*valuePace*min(1, float64(size)*float64(atOnce)/farBytes)
	}
	best := n
	for size := 1; size < n; size *= 2 {
		if cost(size) < cost(best) {
			best = size
		}
	}
	return best, nil
}

// weightCost is what a weight costs: the bytes that are read, and the multiply-adds
// for each of the columns of an image.
type weightCost struct{ bytes, weights, columns int }

func productsOf(g *ir.Graph) []weightCost {
	var list []weightCost
	for _, n := range g.Nodes {
		op, ok := n.Op.(ir.WeightOp)
		if !ok || !static(n) {
			continue
		}
		for _, ref := range op.Weights(n) {
			v := n.Input(ref.Input)
			switch {
			case v == nil || !v.IsConst() || !ref.Cols.Known():
			case v.Store != nil:
				n := v.Store.Bytes()
				list = append(list, weightCost{n, n / storedBytes, ref.Cols.Size()})
			default:
				list = append(list, weightCost{4 * transformed(v, ref), v.Const.Len(), ref.Cols.Size()})
			}
		}
	}
	return list
}

// storedBytes is about what formats take to store an element that is not zero.
const storedBytes = 5

// transformed is the number of elements of a dense weight as kernels read it.
func transformed(v *ir.Value, ref ir.Weight) int {
	s := ref.Slide
	if s == nil || ref.Groups > 1 || len(s.Kernel) != 2 {
		return v.Const.Len()
	}
	for i := range s.Kernel {
		if s.Kernel[i] != 3 || s.Stride[i] != 1 || s.Dilation[i] != 1 {
			return v.Const.Len()
		}
	}
	g := convGeometry{rows: v.Const.Dim(0), channels: v.Const.Dim(1), images: 1, out: []int{s.Out[0].Size(), s.Out[1].Size()}}
	if tile := winogradTile(&g); tile > 0 {
		return winograd.WeightLen(g.rows, g.channels, tile)
	}
	return v.Const.Len()
}

// batch runs a program on parts of its inputs one after the other, so that what
// layers hand to each other stays near.
type batch struct {
	n, parts int
	specs    [2]*spec // for n/parts images, and for one more where that leaves a rest

	mu   sync.Mutex
	free []*batchRun
}

// batchRun is the memory of one run of a batch.
type batchRun struct {
	in  [2][]*tensor.Tensor // by spec, what parts are copied to; nil for inputs that are not cut
	arg []*tensor.Tensor
	out []*tensor.Tensor   // of the whole batch
	to  [][]*tensor.Tensor // by part, its share of out

	times []nodeTime
	index map[string]int // in times, by name
	note  func(*ir.Node, time.Duration)
}

type nodeTime struct {
	node *ir.Node
	time time.Duration
}

func (b *batch) acquire(in []*tensor.Tensor) (*batchRun, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.free); n > 0 {
		r := b.free[n-1]
		b.free = b.free[:n-1]
		return r, nil
	}
	r := &batchRun{arg: make([]*tensor.Tensor, len(in)), index: map[string]int{}}
	for k, s := range b.specs {
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
	outputs, total := b.specs[0].plan.Graph.Outputs, 0
	for _, v := range outputs {
		total += b.n * b.imageBytes(v)
	}
	if err := memory.Check(total); err != nil {
		v := slices.MaxFunc(outputs, func(v, w *ir.Value) int { return b.imageBytes(v) - b.imageBytes(w) })
		return nil, fmt.Errorf("%v: output %s of %d images: %w: %w", v.Def, v.Name, b.n, err, ir.ErrInvalid)
	}
	r.to = make([][]*tensor.Tensor, b.parts)
	for _, v := range outputs {
		shape, size := append([]int{b.n}, shapeOf(v)[1:]...), b.imageBytes(v)
		whole := tensor.New(v.Type.DType, shape...)
		r.out = append(r.out, whole)
		for i := range r.to {
			from, to := b.part(i)
			shape[0] = to - from
			t, err := tensor.FromBytes(v.Type.DType, slices.Clone(shape), whole.Bytes()[from*size:to*size])
			if err != nil {
				return nil, err
			}
			r.to[i] = append(r.to[i], t)
		}
	}
	r.note = func(n *ir.Node, d time.Duration) {
		i, ok := r.index[n.Name]
		if !ok {
			i = len(r.times)
			r.index[n.Name] = i
			r.times = append(r.times, nodeTime{node: n})
		}
		r.times[i].time += d
	}
	return r, nil
}

// imageBytes is the size of one image of an output.
func (*batch) imageBytes(v *ir.Value) int { return prod(shapeOf(v)[1:]) * v.Type.DType.Size() }

// cut reports whether a tensor of the inputs has the images in its first dimension.
func (b *batch) cut(t *tensor.Tensor) bool { return t.Rank() > 0 && t.Dim(0) == b.n }

// part is the images of part i.
func (b *batch) part(i int) (from, to int) { return i * b.n / b.parts, (i + 1) * b.n / b.parts }

// run runs the parts. Where it fails, an operator may still read its memory.
func (b *batch) run(ctx context.Context, in, out []*tensor.Tensor, trace func(*ir.Node, time.Duration)) error {
	r, err := b.acquire(in)
	if err != nil {
		return err
	}
	var note func(*ir.Node, time.Duration)
	if trace != nil {
		note, r.times = r.note, r.times[:0]
		clear(r.index)
	}
	for i := range b.parts {
		from, to := b.part(i)
		k := to - from - b.n/b.parts
		for j, t := range in {
			if r.arg[j] = t; b.cut(t) {
				r.arg[j] = r.in[k][j]
				each := len(t.Bytes()) / b.n
				copy(r.arg[j].Bytes(), t.Bytes()[from*each:to*each])
			}
		}
		if err := b.specs[k].run(ctx, r.arg, r.to[i], note); err != nil {
			return err
		}
	}
	clear(r.arg)
	for i, t := range r.out {
		if !out[i].Fits(t) {
			if err := memory.Check(len(t.Bytes())); err != nil {
				return fmt.Errorf("output %s is %v: %w: %w", b.specs[0].plan.Graph.Outputs[i].Name, t, err, ir.ErrInvalid)
			}
		}
	}
	for i, t := range r.out {
		if out[i].Fits(t) {
			out[i].CopyFrom(t)
		} else {
			out[i] = t.Clone()
		}
	}
	if trace != nil {
		for _, t := range r.times {
			trace(t.node, t.time)
		}
	}
	b.mu.Lock()
	b.free = append(b.free, r)
	b.mu.Unlock()
	return nil
}
