package contrib

import (
	"spc/ir"
	"spc/ir/tensor"
)

// gatherBlockQuantized looks up slices of a table of few bits, in blocks along another axis: codes and scales are gathered, and only
// what was looked up becomes floats.
func gatherBlockQuantized(c *call) []*ir.Value {
	var a struct {
		Bits         int `attr:"bits,4"`
		Block        int `attr:"block_size,128"`
		GatherAxis   int `attr:"gather_axis,0"`
		QuantizeAxis int `attr:"quantize_axis,1"`
	}
	c.attrs(&a)
	data := c.codes(a.Bits)
	r := data.Rank()
	gather, along := c.axis(a.GatherAxis, r, "gather_axis"), c.axis(a.QuantizeAxis, r, "quantize_axis")
	switch {
	case a.Block < 16 || a.Block&(a.Block-1) != 0:
		c.invalid("block_size is %d, want a power of two from 16", a.Block)
	case gather == along:
		c.unsupported("gather_axis and quantize_axis are both %d", gather)
	}
	shape := append([]int{}, data.Shape()...)
	shape[along] = (shape[along] + a.Block - 1) / a.Block
	scales := c.shaped(2, shape...)
	look := func(v *ir.Value) *ir.Value { return c.make("Gather", attrs{"axis": gather}, v, c.in(1)) }
	zeros := c.zeros(data, shape, a.Bits)
	if along > gather {
		along += len(c.dims(1)) - 1
	}
	in := []*ir.Value{look(c.named(0, data)), look(scales)}
	if zeros != nil {
		in = append(in, look(zeros))
	}
	return []*ir.Value{c.make("DequantizeLinear", attrs{"axis": along, "block_size": a.Block}, in...)}
}

// codes returns the table, one number an element: bytes hold several along the last axis, the lowest bits first.
func (c *call) codes(bits int) *tensor.Tensor {
	t := c.fixed(0)
	switch dt := t.DType(); {
	case dt == tensor.U4 || dt == tensor.I4:
		return t
	case dt != tensor.U8 || bits != 2 && bits != 4 && bits != 8:
		c.invalid("input 0 is %v with bits %d, want integers of 4 bits, or bytes that pack 2, 4 or 8", t, bits)
	}
	return c.spread(t, bits, -1)
}

// spread returns the numbers of some bits that bytes pack along the last axis, the first n of each row where n is not -1.
func (c *call) spread(t *tensor.Tensor, bits, n int) *tensor.Tensor {
	if t.Rank() == 0 {
		c.invalid("%v is a scalar, want rows of bytes", t)
	}
	shape := append([]int{}, t.Shape()...)
	last := &shape[len(shape)-1]
	held := *last * 8 / bits
	if n < 0 {
		n = held
	}
	if n > held || held-n >= 8/bits {
		c.invalid("%v packs %d numbers in a row, want %d", t, held, n)
	}
	*last = n
	rows := 1
	for _, d := range shape[:len(shape)-1] {
		rows *= d
	}
	out, err := tensor.FromBytes(map[int]tensor.DType{2: tensor.U2, 4: tensor.U4, 8: tensor.U8}[bits], shape,
		(&nbits{rows: rows, bits: bits}).unpack(t.Bytes(), held, n))
	if err != nil {
		c.invalid("%v: %v", t, err)
	}
	return out
}

// zeros returns the zero points of a table, which are in the middle of bytes that pack numbers where they are not given, and else 0.
func (c *call) zeros(data *tensor.Tensor, shape []int, bits int) *ir.Value {
	if c.in(3) == nil {
		if c.fixed(0).DType() != tensor.U8 {
			return nil
		}
		n := 1
		for _, d := range shape {
			n *= d
		}
		return c.coded(0, data.DType(), middle(n, bits), shape...)
	}
	z := c.fixed(3)
	if z.DType() == tensor.U8 && bits < 8 {
		z = c.spread(z, bits, shape[len(shape)-1])
	}
	if z.DType() != data.DType() || z.Len() != c.in(2).Const.Len() {
		c.invalid("input 3 is %v, want %v%v as the scales", z, data.DType(), shape)
	}
	return c.named(3, z.Reshape(shape...))
}

// axis returns an axis of r, counted from the front.
func (c *call) axis(a, r int, what string) int {
	if a < -r || a >= r {
		c.invalid("%s is %d, want an axis of %d", what, a, r)
	}
	if a < 0 {
		a += r
	}
	return a
}
