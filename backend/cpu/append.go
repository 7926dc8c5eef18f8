package cpu

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// appending writes rows into a cache [outer, size, row] of the caller's, from where its start says for each sample.
type appending struct {
	node                *ir.Node
	batch, outer        int // samples, and rows of rows in each
	size, added, nbytes int // of the cache along its axis, of what is new, and of a row
}

// appendingOf returns what a TensorScatter does whose cache is an input of the main graph that nobody else reads; nil for other nodes.
func appendingOf(n *ir.Node) *appending {
	o, ok := n.Op.(*op.TensorScatter)
	if !ok || !o.Owned || o.Mode != "linear" || n.Input(2) == nil || n.Graph().Owner != nil || !movable(n) {
		return nil
	}
	cache := n.Inputs[0]
	if !slices.Contains(n.Graph().Inputs, cache) || len(cache.Uses()) != 1 || cache.IsOutput() {
		return nil
	}
	shape, axis := shapeOf(cache), o.Axis
	if axis < 0 {
		axis += len(shape)
	}
	return &appending{
		node: n, batch: shape[0], outer: prod(shape[1:axis]), size: shape[axis], added: shapeOf(n.Inputs[1])[axis],
		nbytes: prod(shape[axis+1:]) * cache.Type.DType.Size(),
	}
}

func (a *appending) write(in []*tensor.Tensor) error {
	start := tensor.Data[int64](in[2])
	for _, at := range start {
		if at < 0 || at > int64(a.size-a.added) {
			return a.node.Errorf(ir.ErrInvalid, "position %d for %d elements of %d", at, a.added, a.size)
		}
	}
	cache, rows := in[0].Bytes(), in[1].Bytes()
	n := a.added * a.nbytes
	for i := range a.batch * a.outer {
		at := (i*a.size + int(start[i/a.outer])) * a.nbytes
		copy(cache[at:at+n], rows[i*n:])
	}
	return nil
}
