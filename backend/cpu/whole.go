package cpu

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindPair binds a node that combines two operands of integers, such as indices to which offsets are added, f64 or bools.
func bindPair(n *ir.Node) *bound {
	if !static(n) || op.Pairs(n) == nil {
		return nil
	}
	return &bound{inplace: -1, prepare: func(_ *exec, in, out []*tensor.Tensor) func() error {
		combine := op.Pairs(n)
		return func() error {
			combine(out[0], in[0], in[1])
			return nil
		}
	}}
}

// bindWhere picks elements, those of other types than f32 as words.
func bindWhere(p *program, n *ir.Node) (*bound, error) {
	if b, err := bindChain(p, n); b != nil || err != nil || !static(n) || !moved(n.Outputs[0].Type.DType) {
		return b, err
	}
	return &bound{inplace: -1, prepare: func(_ *exec, in, out []*tensor.Tensor) func() error {
		pick := picks(n)
		return func() error {
			pick(out[0], in[0], in[1], in[2])
			return nil
		}
	}}, nil
}

func picks(n *ir.Node) func(y, which, a, b *tensor.Tensor) {
	switch n.Outputs[0].Type.DType.Size() {
	case 1:
		return picksOf[uint8](n)
	case 2:
		return picksOf[uint16](n)
	case 4:
		return picksOf[float32](n)
	}
	return picksOf[uint64](n)
}

func picksOf[T word](n *ir.Node) func(y, which, a, b *tensor.Tensor) {
	var d, x, z []T
	var pick []bool
	each := op.Rows(n)
	row := func(at, n int, off, step []int) {
		y, pick, x, z := d[at:][:n], pick[off[0]:], x[off[1]:], z[off[2]:]
		for i := range y {
			v := z[i*step[2]]
			if w := x[i*step[1]]; pick[i*step[0]] {
				v = w
			}
			y[i] = v
		}
	}
	return func(y, which, a, b *tensor.Tensor) {
		d, pick, x, z = wordsOf[T](y), tensor.Data[bool](which), wordsOf[T](a), wordsOf[T](b)
		each(row)
	}
}

// bindOneHot fills with the value of what is off, and sets what indices name.
func bindOneHot(_ *program, n *ir.Node) (*bound, error) {
	y := n.Outputs[0]
	index := n.Inputs[0].Type.DType
	if !moved(y.Type.DType) || index != tensor.I64 && index != tensor.I32 || prod(shapeOf(y)) == 0 {
		return nil, nil
	}
	shape, axis, size := shapeOf(y), n.Op.(*op.OneHot).Axis, y.Type.DType.Size()
	if axis < 0 {
		axis += len(shape)
	}
	depth, inner := shape[axis], prod(shape[axis+1:])
	return &bound{inplace: -1, run: func(_ *exec, in, out []*tensor.Tensor) error {
		d, values := out[0].Bytes(), in[2].Bytes()
		repeatElement(d, values[:size])
		set := func(i, k int) {
			if k < 0 {
				k += depth
			}
			if k >= 0 && k < depth {
				copy(d[((i/inner*depth+k)*inner+i%inner)*size:], values[size:])
			}
		}
		if index == tensor.I32 {
			for i, k := range tensor.Data[int32](in[0]) {
				set(i, int(k))
			}
			return nil
		}
		for i, k := range tensor.Data[int64](in[0]) {
			set(i, int(k))
		}
		return nil
	}}, nil
}
