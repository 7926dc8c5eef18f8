package cpu

import (
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindLRN normalises each channel by the squares of its neighbours, so many pixels at a time that those of all channels stay in
// the second-level cache.
func bindLRN(_ *program, n *ir.Node) (*bound, error) {
	o, shape := n.Op.(*op.LRN), shapeOf(n.Inputs[0])
	if !f32(n) || prod(shape) == 0 {
		return nil, nil
	}
	images, channels, plane := shape[0], shape[1], prod(shape[2:])
	width := min(plane, chainBlock)
	blocks := (plane + width - 1) / width
	before, after := (o.Size-1)/2, o.Size/2
	scale, exponent := o.Alpha/float32(o.Size), []float32{-o.Beta}
	// The squares of the channels of a window, in places that take turns, and their sum.
	window := min(o.Size, channels)
	return &bound{inplace: -1, scratch: (window + 1) * width, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []float32
		body := func(worker, i int) {
			at := i/blocks*channels*plane + i%blocks*width
			w := min(width, plane-i%blocks*width)
			squares := func(c int) []float32 { return x.scratch[worker][c%window*width:][:w] }
			sum, made := x.scratch[worker][window*width:][:w], 0
			for c := range channels {
				first, end := max(0, c-before), min(channels, c+after+1)
				for ; made < end; made++ {
					v := src[at+made*plane:][:w]
					vec.Mul(squares(made), v, v)
				}
				copy(sum, squares(first))
				for k := first + 1; k < end; k++ {
					vec.Add(sum, sum, squares(k))
				}
				vec.Affine(sum, sum, scale, o.Bias, -inf, inf)
				y := dst[at+c*plane:][:w]
				powers(sum, sum, exponent, 1, 0)
				vec.Mul(y, src[at+c*plane:][:w], sum)
			}
		}
		return func() error {
			src, dst = in[0].F32s(), out[0].F32s()
			x.pool.For(images*blocks, body)
			return nil
		}
	}}, nil
}
