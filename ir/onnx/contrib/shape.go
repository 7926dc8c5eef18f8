package contrib

import (
	"spc/ir"
	"spc/ir/tensor"
)

// expandDims puts an axis of one element where the scalar of input 1 says, from the end of the result where that is negative.
func expandDims(c *call) []*ir.Value {
	c.attrs(&struct{}{})
	axis := c.in(1)
	if len(c.dims(1, 0, 1)) == 1 && differ(axis.Type.Dims[0], ir.Size(1)) {
		c.invalid("axis is %v, want one element", axis.Type)
	}
	if !axis.Type.DType.IsInt() || axis.IsConst() && axis.Const.Len() != 1 {
		c.invalid("axis is %v, want an integer", axis.Type)
	}
	if axis.IsConst() {
		axis = c.ints(axis.Const.Ints()[0])
	} else {
		axis = c.make("Reshape", nil, c.make("Cast", attrs{"to": int(tensor.I64)}, axis), c.ints(1))
	}
	return []*ir.Value{c.make("Unsqueeze", nil, c.in(0), axis)}
}

// trilu is Trilu, which the standard took over as it was.
func trilu(c *call) []*ir.Value {
	return []*ir.Value{c.pass("Trilu", c.Attrs, c.in(0), c.in(1))}
}
