package cuda

import (
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// param is a parameter of a launch: a cell, or, where place is set, an address in the arena. The zero param is 0, or the null
// pointer. Constants, which are values or tensors, are uploaded by resolve, and are cells then.
type param struct {
	cell   Cell
	place  bool
	value  *ir.Value      // whose place it is, nil for a temporary buffer
	offset Cell           // bytes from the value's beginning on
	temp   int            // the buffer's number
	tensor *tensor.Tensor // to upload
}

// params are those of a launch that follow each other.
type params []param

// ints are integers of any size.
func ints(v ...int) params {
	return each(v, func(v int) param { return param{cell: IntCell(v)} })
}

// floats are those of f32.
func floats(v ...float32) params {
	return each(v, func(v float32) param { return param{cell: FloatCell(v)} })
}

// values are the addresses of values, nil of which is null.
func values(v ...*ir.Value) params { return each(v, value) }

func value(v *ir.Value) param { return param{place: v != nil, value: v} }

// element is the address of an element of a value.
func (b *binder) element(v *ir.Value, at int) param {
	return param{place: true, value: v, offset: IntCell(at * b.prog.size(v))}
}

// tensors are the addresses of tensors as they are, nil of which is null.
func tensors(t ...*tensor.Tensor) params {
	return each(t, func(t *tensor.Tensor) param { return param{tensor: t} })
}

// data are the addresses of the elements of slices, nil of which is null.
func data[T float32 | int32 | int64](v ...[]T) params {
	return each(v, func(v []T) param {
		if v == nil {
			return param{}
		}
		return param{tensor: tensor.From(v, len(v))}
	})
}

func each[T any](all []T, of func(T) param) params {
	out := make(params, len(all))
	for i, v := range all {
		out[i] = of(v)
	}
	return out
}

// epilogueOf is the parameters SPC_EPILOGUE.
func epilogueOf(e *op.Epilogue, alpha, bias []float32, residual *ir.Value) (params, error) {
	act, a, b, err := backend.GPUActivation(e)
	return slices.Concat(data(alpha, bias), values(residual), ints(act), floats(a, b)), err
}

// temp asks for a buffer while the node runs.
func (b *binder) temp(bytes int) param {
	b.temps = append(b.temps, temp{bytes: bytes})
	return param{place: true, temp: len(b.temps) - 1}
}

// resolve uploads the constants among parameters: those of the program once, others for this set of input shapes alone.
func (b *binder) resolve(all params) (err error) {
	for i, p := range all {
		t := p.tensor
		if p.value != nil && p.value.IsConst() {
			if t, err = b.prog.elements(p.value); err != nil {
				return err
			}
			t = b.round(t)
		}
		if t == nil {
			continue
		}
		at, err := b.constant(t)
		if err != nil {
			return err
		}
		all[i] = param{cell: Cell(at) + p.offset}
	}
	return nil
}
