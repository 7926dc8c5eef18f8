package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// GridOf returns the grid of what n, whose inputs are constants, makes: of codes of at most 8 bits with a scale for each block
// along an axis, for each slice across one, or for all; or of a constant with a grid whose elements n moves. It is nil where there is none.
func GridOf(n *ir.Node) *ir.Grid {
	if d, ok := n.Op.(*DequantizeLinear); ok {
		return d.grid(n)
	}
	x, y := n.Input(0), n.Outputs[0]
	if x == nil || x.Const == nil || x.Grid == nil || y == nil || y.Type.DType != tensor.F32 {
		return nil
	}
	if t, ok := n.Op.(*Transpose); ok {
		return x.Grid.Permute(t.Order(x.Const.Rank())...)
	}
	to, known := y.Type.Shape()
	if m, _ := Moves(n); (m == Keeps || Same(n) == x) && known {
		return x.Grid.Reshape(x.Const.Shape(), to)
	}
	return nil
}

// grid is that of the output, f32, of constants.
func (o *DequantizeLinear) grid(n *ir.Node) *ir.Grid {
	for i, v := range n.Inputs {
		if v != nil && v.Const == nil || v == nil && i < 2 {
			return nil
		}
	}
	x, s := n.Inputs[0].Const, n.Inputs[1].Const
	if o.dtype(s.DType()) != tensor.F32 || x.Rank() == 0 || x.Len() == 0 {
		return nil
	}
	shift := 0 // to two's complement
	g := &ir.Grid{Bits: 4}
	switch x.DType() {
	case tensor.I2, tensor.U2, tensor.I4: // codes of 2 bits are among those of 4
	case tensor.U4:
		shift = 8
	case tensor.I8:
		g.Bits = 8
	case tensor.U8:
		g.Bits, shift = 8, 128
	default:
		return nil
	}
	shape := o.blocks(g, x.Shape(), s)
	if shape == nil {
		return nil
	}
	g.Scales = ir.GridScales(s).Reshape(shape...)
	points := []int{0}
	if z := n.Input(2); z != nil {
		points = z.Const.Ints()
	}
	if len(points) != 1 && len(points) != s.Len() {
		return nil
	}
	zeros, some := make([]int8, s.Len()), false
	for i := range zeros {
		zeros[i] = int8(points[i%len(points)] - shift)
		some = some || zeros[i] != 0
	}
	if some {
		g.Zeros = tensor.From(zeros, shape...)
	}
	if g.Check(x.Shape()) != nil {
		return nil
	}
	return g
}

// blocks sets how scales s divide a tensor of a shape into blocks, and returns the shape that they have as those of the grid,
// nil where no grid is divided so.
func (o granularity) blocks(g *ir.Grid, shape []int, s *tensor.Tensor) []int {
	a, size := norm(o.Axis, len(shape)), 1
	for _, d := range shape {
		size *= d
	}
	switch {
	case s.Len() == 1 && s.Rank() <= 1:
		g.More, g.Block = len(shape)-1, max(ir.GridBlock, size)
		return []int{1}
	case o.BlockSize > 0:
		g.Axis, g.Block = a, o.BlockSize
		return s.Shape()
	case len(shape) == 2:
		g.Axis, g.Block = 1-a, max(ir.GridBlock, shape[1-a])
	case len(shape) > 2 && a == 0:
		g.Axis, g.More, g.Block = 1, len(shape)-2, max(ir.GridBlock, size/s.Len())
	default:
		return nil
	}
	out := []int{1, 1}
	out[1-g.Axis] = s.Len()
	return out
}
