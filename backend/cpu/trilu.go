package cpu

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindTrilu copies what is on one side of a diagonal of matrices and clears the rest.
func bindTrilu(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	shape, size, upper := shapeOf(n.Outputs[0]), n.Outputs[0].Type.DType.Size(), n.Op.(*op.Trilu).Upper
	height, width := shape[len(shape)-2], shape[len(shape)-1]
	rows := prod(shape[:len(shape)-1])
	return &bound{inplace: 0, alone: true, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		diagonal := 0
		pieces, each := parts(x, rows, rows*width*size/4)
		body := func(_, i int) {
			src, dst := in[0].Bytes(), out[0].Bytes()
			for r := i * each; r < min(rows, (i+1)*each); r++ {
				from, to := max(0, min(width, r%height+diagonal)), width
				if !upper {
					from, to = 0, max(0, min(width, r%height+diagonal+1))
				}
				y, line := dst[r*width*size:][:width*size], src[r*width*size:][:width*size]
				clear(y[:from*size])
				copy(y[from*size:to*size], line[from*size:])
				clear(y[to*size:])
			}
		}
		return func() error {
			if len(in) > 1 && in[1] != nil {
				// Beyond the corners every diagonal is the same.
				diagonal = int(max(int64(-height), min(int64(width), in[1].Int64s()[0])))
			}
			x.pool.For(pieces, body)
			return nil
		}
	}}, nil
}
