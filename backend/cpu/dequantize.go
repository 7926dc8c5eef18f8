package cpu

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindDequantizeParts makes f32 of integers of up to 8 bits, which take a byte each, with a scale for each index of an axis or for each block
// along it.
func bindDequantizeParts(n *ir.Node) (*bound, error) {
	codes, scale := n.Inputs[0].Type.DType, n.Inputs[1].Type.DType
	byBytes := []tensor.DType{tensor.U8, tensor.I8, tensor.U4, tensor.I4, tensor.U2, tensor.I2}
	if !slices.Contains(byBytes, codes) || scale != tensor.F32 || n.Outputs[0].Type.DType != tensor.F32 {
		return nil, nil
	}
	shape := shapeOf(n.Outputs[0])
	if prod(shape) == 0 || len(shape) == 0 {
		return nil, nil
	}
	o, scales := n.Op.(*op.DequantizeLinear), shapeOf(n.Inputs[1])
	if z := n.Input(2); z != nil && !slices.Equal(shapeOf(z), scales) {
		return nil, nil
	}
	axis := o.Axis
	if axis < 0 {
		axis += len(shape)
	}
	p := &dequantizer{size: shape[axis], inner: prod(shape[axis+1:]), block: o.BlockSize, shift: 8 - codes.Bits(), signed: codes.IsSigned()}
	rows := prod(shape[:axis+1])
	if len(scales) <= 1 && prod(scales) == 1 { // of all
		p.size, p.block = 1, 0
	}
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		pieces, each := parts(x, rows, prod(shape))
		var zero []byte
		body := func(_, i int) {
			p.rows(out[0].F32s(), in[0].Bytes(), in[1].F32s(), zero, i*each, min(rows, (i+1)*each))
		}
		return func() error {
			if len(in) > 2 && in[2] != nil {
				zero = in[2].Bytes()
			}
			x.pool.For(pieces, body)
			return nil
		}
	}}, nil
}

// dequantizer reads a tensor [outer, size, inner] whose scales are [size], or [outer, blocks, inner] where block is not 0.
type dequantizer struct {
	size, inner, block int
	shift              int // the bits of a byte that say nothing
	signed             bool
}

// rows computes indices of the first two axes.
func (p *dequantizer) rows(y []float32, codes []byte, scales []float32, zeros []byte, from, to int) {
	blocks := 1
	if p.block > 0 {
		blocks = (p.size + p.block - 1) / p.block
	}
	for r := from; r < to; r++ {
		at, step := r%p.size, 0
		if p.block > 0 {
			at, step = (r/p.size*blocks+at/p.block)*p.inner, 1
		}
		line := y[r*p.inner:][:p.inner]
		for j, c := range codes[r*p.inner:][:p.inner] {
			v := p.int(c)
			if zeros != nil {
				v -= p.int(zeros[at])
			}
			line[j] = float32(v) * scales[at]
			at += step
		}
	}
}

func (p *dequantizer) int(c byte) int {
	if p.signed {
		return int(int8(c<<p.shift) >> p.shift)
	}
	return int(c)
}
