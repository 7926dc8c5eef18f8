package cpu

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// gather copies, for each of outer slices of [n, row], the rows that indices name.
type gather struct {
	axis, outer, n, row int // row in bytes
	count               int // of the indices
}

// bindGather moves what constant indices name as a slice does, and looks others up.
func bindGather(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	shape := shapeOf(n.Inputs[0])
	axis := n.Op.(*op.Gather).Axis
	if axis < 0 {
		axis += len(shape)
	}
	if at := n.Inputs[1].Const; at != nil {
		tables := make([][]int, len(shape))
		tables[axis] = at.Ints()
		for i, p := range tables[axis] {
			if p < 0 {
				tables[axis][i] += shape[axis]
			}
		}
		c := newChoice(shape, tables, nil)
		b := boundMove(n, c)
		if first, ok := c.contiguous(); ok {
			b.from = []int{first}
			b.prepare = skipping(b.prepare, first)
		}
		return b, nil
	}
	g := &gather{
		axis: axis, outer: prod(shape[:axis]), n: shape[axis], row: prod(shape[axis+1:]) * n.Inputs[0].Type.DType.Size(),
		count: prod(shapeOf(n.Inputs[1])),
	}
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		at := make([]int, g.count)
		rows := g.outer * g.count
		pieces, each := parts(x, rows, rows*g.row/4)
		body := func(_, i int) {
			src, dst := in[0].Bytes(), out[0].Bytes()
			for r := i * each; r < min(rows, (i+1)*each); r++ {
				from := r/g.count*g.n + at[r%g.count]
				copy(dst[r*g.row:(r+1)*g.row], src[from*g.row:])
			}
		}
		return func() error {
			if err := g.positions(n, at, in[1]); err != nil {
				return err
			}
			x.pool.For(pieces, body)
			return nil
		}
	}}, nil
}

// positions writes the indices, from the end where they are negative, to at.
func (g *gather) positions(n *ir.Node, at []int, t *tensor.Tensor) error {
	if t.DType() == tensor.I32 {
		return positions(n, at, tensor.Data[int32](t), g.axis, g.n)
	}
	return positions(n, at, tensor.Data[int64](t), g.axis, g.n)
}

func positions[T int32 | int64](n *ir.Node, at []int, indices []T, axis, size int) error {
	for i, p := range indices {
		if int(p) < -size || int(p) >= size {
			return n.Errorf(ir.ErrInvalid, "%s", op.OutOfRange(int(p), axis, size))
		}
		if at[i] = int(p); p < 0 {
			at[i] += size
		}
	}
	return nil
}
