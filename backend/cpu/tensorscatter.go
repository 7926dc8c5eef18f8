package cpu

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindTensorScatter writes rows into a cache, which may be the output, from a position on that each sample has.
func bindTensorScatter(_ *program, n *ir.Node) (*bound, error) {
	shape, update := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1])
	if !movable(n) || prod(update) == 0 {
		return nil, nil
	}
	o := n.Op.(*op.TensorScatter)
	axis := o.Axis
	if axis < 0 {
		axis += len(shape)
	}
	size, rows := shape[axis], update[axis]
	run := prod(shape[axis+1:]) * n.Outputs[0].Type.DType.Size()
	middle := prod(shape[1:axis])
	return &bound{inplace: 0, alone: true, prepare: func(_ *exec, in, out []*tensor.Tensor) func() error {
		starts := make([]int64, shape[0])
		return func() error {
			if len(in) > 2 && in[2] != nil {
				readPlaces(starts, in[2])
			}
			for _, s := range starts {
				if s < 0 || s >= int64(size) || o.Mode == "linear" && s > int64(size-rows) {
					return evaluateInto(n, in, out) // which says what is wrong
				}
			}
			if !within(out[0], in[0], 0) {
				copy(out[0].Bytes(), in[0].Bytes())
			}
			dst, src := out[0].Bytes(), in[1].Bytes()
			for b, s := range starts {
				first := min(rows, size-int(s)) // the rest begins anew
				for row := b * middle; row < (b+1)*middle; row++ {
					from := src[row*rows*run:][:rows*run]
					copy(dst[(row*size+int(s))*run:][:first*run], from)
					copy(dst[row*size*run:][:(rows-first)*run], from[first*run:])
				}
			}
			return nil
		}
	}}, nil
}

// readPlaces reads integers of 32 or 64 bits.
func readPlaces(to []int64, t *tensor.Tensor) {
	if t.DType() == tensor.I64 {
		copy(to, tensor.Data[int64](t))
		return
	}
	for i, v := range tensor.Data[int32](t) {
		to[i] = int64(v)
	}
}
