package op

import (
	"fmt"

	"spc/ir"
	"spc/ir/tensor"
)

// streaming gives an operator the work of one that touches each element of its
// inputs and outputs once and does little with it.
type streaming struct{}

func (streaming) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 1) }

// streamWork is the work of flops operations for each output element.
func streamWork(in, out []ir.Type, flops float64) ir.Work {
	var w ir.Work
	for _, t := range in {
		w.Bytes += typeBytes(t)
	}
	for _, t := range out {
		w.Bytes += typeBytes(t)
		w.FLOPs += flops * elems(t)
	}
	return w
}

func elems(t ir.Type) float64 {
	n := 1.0
	for _, d := range t.Dims {
		n *= float64(d.Size())
	}
	return n
}

func typeBytes(t ir.Type) float64 { return elems(t) * float64(t.DType.Bits()) / 8 }

// family is the name of an operator whose struct serves several.
type family struct{ kind string }

func (f family) Kind() string      { return f.kind }
func (f *family) setKind(k string) { f.kind = k }

// axis brings an axis that may be negative into 0..rank-1.
func axis(c *ir.Infer, a, rank int) (int, error) {
	if a < -rank || a >= rank {
		return 0, c.Errorf("axis %d is out of range for rank %d", a, rank)
	}
	if a < 0 {
		a += rank
	}
	return a, nil
}

// norm is axis for values that Infer has checked.
func norm(a, rank int) int {
	if a < 0 {
		return a + rank
	}
	return a
}

// float refuses an input that is present and no floating-point tensor.
func wantFloat(c *ir.Infer, i int) error {
	if c.Has(i) && !c.In(i).DType.IsFloat() {
		return c.Errorf("input %d is %v, want a floating-point tensor", i, c.In(i).DType)
	}
	return nil
}

// wantSame refuses an input whose element type differs from that of input 0.
func wantSame(c *ir.Infer, i int) error {
	if c.Has(i) && c.In(i).DType != c.In(0).DType {
		return c.Errorf("input %d is %v, want %v as input 0", i, c.In(i).DType, c.In(0).DType)
	}
	return nil
}

// wantRank refuses an input of another rank; an unranked one passes.
func wantRank(c *ir.Infer, i, rank int) error {
	if t := c.In(i); c.Has(i) && t.Ranked && t.Rank() != rank {
		return c.Errorf("input %d has rank %d, want %d", i, t.Rank(), rank)
	}
	return nil
}

// broadcast joins dimensions by numpy's rules; a symbol beside a size above one
// becomes that size, two different symbols an unknown.
func broadcast(c *ir.Infer, types ...ir.Type) ([]ir.Dim, bool, error) {
	rank := 0
	for _, t := range types {
		if !t.Ranked {
			return nil, false, nil
		}
		rank = max(rank, len(t.Dims))
	}
	out := make([]ir.Dim, rank)
	for i := range out {
		d := ir.Size(1)
		for _, t := range types {
			j := i - rank + len(t.Dims)
			if j < 0 {
				continue
			}
			e := t.Dims[j]
			switch {
			case d == e || e == ir.Size(1):
			case d == ir.Size(1):
				d = e
			case d.Known() && e.Known():
				return nil, false, c.Errorf("shapes %v and %v do not broadcast", types[0], t)
			case e.Known():
				d = e
			case d.Known():
			default:
				d = c.Fresh()
			}
		}
		out[i] = d
	}
	return out, true, nil
}

// broadcastShapes is broadcast for shapes that Infer has checked.
func broadcastShapes(shapes ...[]int) []int {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
		for _, s := range shapes {
			if j := i - rank + len(s); j >= 0 && s[j] != 1 {
				out[i] = s[j]
			}
		}
	}
	return out
}

// broadcastStrides returns the strides with which a tensor of the given shape is
// read as out, zero where it is repeated.
func broadcastStrides(shape, out []int) []int {
	st := tensor.Strides(shape)
	s := make([]int, len(out))
	for i := range shape {
		if j := len(out) - len(shape) + i; shape[i] != 1 {
			s[j] = st[i]
		}
	}
	return s
}

// viaF32 evaluates f on f32 copies of the f16 and bf16 inputs and rounds its
// outputs of type f32 back; other inputs pass unchanged.
func viaF32(in []*tensor.Tensor, f func(in []*tensor.Tensor) ([]*tensor.Tensor, error)) ([]*tensor.Tensor, error) {
	half := tensor.Undefined
	conv := make([]*tensor.Tensor, len(in))
	for i, t := range in {
		conv[i] = t
		if t != nil && (t.DType() == tensor.F16 || t.DType() == tensor.BF16) {
			half = t.DType()
			conv[i] = tensor.FromFloat64s(tensor.F32, t.Float64s(), t.Shape()...)
		}
	}
	out, err := f(conv)
	if half == tensor.Undefined || err != nil {
		return out, err
	}
	for i, t := range out {
		if t != nil && t.DType() == tensor.F32 {
			out[i] = tensor.FromFloat64s(half, t.Float64s(), t.Shape()...)
		}
	}
	return out, nil
}

// one wraps a single output.
func one(t *tensor.Tensor) ([]*tensor.Tensor, error) { return []*tensor.Tensor{t}, nil }

// maxOutput bounds the elements of an output whose size depends on data.
const maxOutput = 1 << 31

// newOutput is tensor.New for shapes that Infer has not seen: it refuses
// negative dimensions and more than maxOutput elements.
func newOutput(dt tensor.DType, shape ...int) (*tensor.Tensor, error) {
	n, err := tensor.Elems(shape)
	if err != nil {
		return nil, evalErrorf("output: %v", err)
	}
	if n > maxOutput {
		return nil, evalErrorf("output of shape %v has %d elements, want at most %d", shape, n, maxOutput)
	}
	return tensor.New(dt, shape...), nil
}

// evalErrorf returns an error of Eval that wraps ir.ErrInvalid; whoever
// evaluates names the node.
func evalErrorf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ir.ErrInvalid)
}
