package op

import (
	"fmt"
	"slices"

	"spc/internal/memory"
	"spc/ir"
	"spc/ir/tensor"
)

// streaming gives an operator the work of one that touches each element of its
// inputs and outputs once and does little with it.
type streaming struct{}

func (streaming) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, 1) }

// free gives an operator no work: it only says anew what a tensor is.
type free struct{}

func (free) Work(_, _ []ir.Type) ir.Work { return ir.Work{} }
func (free) isFree()                     {}

// Free reports whether an operator has no work.
func Free(o ir.Op) bool {
	_, is := o.(interface{ isFree() })
	return is
}

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

// wantFloat refuses an input that is present and no floating-point tensor.
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
			conv[i] = t.To(tensor.F32)
		}
	}
	out, err := f(conv)
	if half == tensor.Undefined || err != nil {
		return out, err
	}
	for i, t := range out {
		if t != nil && t.DType() == tensor.F32 {
			out[i] = t.To(half)
		}
	}
	return out, nil
}

// one wraps a single output.
func one(t *tensor.Tensor) ([]*tensor.Tensor, error) { return []*tensor.Tensor{t}, nil }

// maxOutput bounds the elements of an output whose size depends on data.
const maxOutput = ir.MaxElems

// newOutput is tensor.New for shapes that Infer has not seen: it refuses
// negative dimensions, more than maxOutput elements, and what memory does not hold.
func newOutput(dt tensor.DType, shape ...int) (*tensor.Tensor, error) {
	if err := checkOutput(shape); err != nil {
		return nil, err
	}
	if err := memory.Check(product(shape) * dt.Size()); err != nil {
		return nil, evalErrorf("output of shape %v: %v", shape, err)
	}
	return tensor.New(dt, shape...), nil
}

// checkOutput returns the error of newOutput.
func checkOutput(shape []int) error {
	n, err := tensor.Elems(shape)
	if err != nil {
		return evalErrorf("output: %v", err)
	}
	if n > maxOutput {
		return evalErrorf("output of shape %v has %d elements, want at most %d", shape, n, maxOutput)
	}
	return nil
}

// evalError is an error of Eval; whoever evaluates names the node.
type evalError string

func (e evalError) Error() string { return string(e) }
func (evalError) Unwrap() error   { return ir.ErrInvalid }

// evalErrorf returns an error of Eval that wraps ir.ErrInvalid; whoever
// evaluates names the node.
func evalErrorf(format string, args ...any) error {
	return evalError(fmt.Sprintf(format, ir.Legible(args)...))
}

// refuse returns err as an error of the node.
func refuse(c *ir.Infer, err error) error { return c.Errorf("%v", err) }

// wantInts refuses an input that is present and no i32 or i64 tensor of the rank;
// a negative rank stands for any.
func wantInts(c *ir.Infer, i, rank int) error {
	t := c.In(i)
	if c.Has(i) && (t.DType != tensor.I64 && t.DType != tensor.I32 || rank >= 0 && t.Ranked && t.Rank() != rank) {
		want := "integers"
		if rank >= 0 {
			want = fmt.Sprintf("integers of rank %d", rank)
		}
		return c.Errorf("input %d is %v, want %s", i, t, want)
	}
	return nil
}

// needInts is wantInts for the last input that must be present.
func needInts(c *ir.Infer, i, rank int) error {
	if err := wantPresent(c, i+1); err != nil {
		return err
	}
	return wantInts(c, i, rank)
}

// wantList is wantInts for a list. ONNX Runtime takes a scalar for a list of one where wantList is used, and only there.
func wantList(c *ir.Infer, i int) error {
	if t := c.In(i); t.Ranked && t.Rank() == 0 {
		return wantInts(c, i, 0)
	}
	return wantInts(c, i, 1)
}

// needList is wantList for the last input that must be present.
func needList(c *ir.Infer, i int) error {
	if err := wantPresent(c, i+1); err != nil {
		return err
	}
	return wantList(c, i)
}

// dimsOf returns the elements of input i as dimensions. Where not even their
// number is tracked but the input's length is known, they are fresh; ok is false
// when the length is not known either.
func dimsOf(c *ir.Infer, i int) (elems []ir.Dim, ok bool) {
	if elems, ok := c.Elems(i); ok {
		return elems, true
	}
	if t := c.Const(i); t != nil && t.DType().IsInt() {
		return ir.Sizes(t.Ints()...), true
	}
	if t := c.In(i); small(t) {
		shape, _ := t.Shape()
		return c.FreshDims(product(shape)), true
	}
	return nil, false
}

// small reports whether a type is static and of so few elements that inference
// may track them.
func small(t ir.Type) bool {
	shape, ok := t.Shape()
	if !ok {
		return false
	}
	n, err := tensor.Elems(shape)
	return err == nil && n <= 64
}

// intsOf returns the elements of input i when all of them are known.
func intsOf(c *ir.Infer, i int) ([]int, bool) {
	if v, ok := c.Ints(i); ok {
		return v, true
	}
	if t := c.Const(i); t != nil && t.DType().IsInt() {
		return t.Ints(), true
	}
	return nil, false
}

// unknown stands for ir.Infer.Fresh in evaluations, where sizes are only unknown
// when they overflow; shapeOf refuses what it returns.
func unknown() ir.Dim { return ir.Sym("?") }

// shapeOf returns the dimensions that an evaluation computed as a shape, and passes
// an error on.
func shapeOf(dims []ir.Dim, err error) ([]int, error) {
	if err != nil {
		return nil, err
	}
	shape, ok := ir.Type{Dims: dims, Ranked: true}.Shape()
	if !ok {
		return nil, evalErrorf("shape %v, where ? overflows: want fewer elements", dims)
	}
	if _, err := tensor.Elems(shape); err != nil {
		return nil, evalErrorf("%v", err)
	}
	return shape, nil
}

// sameDim joins what two inputs tell about one dimension; ok is false when they
// contradict each other.
func sameDim(a, b ir.Dim) (d ir.Dim, ok bool) {
	switch {
	case a == b:
		return a, true
	case a.Known() && b.Known():
		return a, false
	case a.Known() || b.Fresh() && !b.Known():
		return a, true
	}
	return b, true
}

// axesOf brings a list of axes into 0..rank-1 and refuses repeated ones.
func axesOf(axes []int, rank int) ([]int, error) {
	out := make([]int, len(axes))
	for i, a := range axes {
		if a < -rank || a >= rank {
			return nil, evalErrorf("axis %d is out of range for rank %d", a, rank)
		}
		if out[i] = norm(a, rank); slices.Contains(out[:i], out[i]) {
			return nil, evalErrorf("axis %d is given twice", a)
		}
	}
	return out, nil
}

// product multiplies sizes.
func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// copyRun copies n consecutive elements between tensors of one element type.
func copyRun(dst *tensor.Tensor, d int, src *tensor.Tensor, s, n int) {
	if dst.DType() == tensor.String {
		copy(dst.Strings()[d:d+n], src.Strings()[s:s+n])
		return
	}
	k := dst.DType().Size()
	copy(dst.Bytes()[d*k:(d+n)*k], src.Bytes()[s*k:(s+n)*k])
}

// copySlices copies the slices of x[outer,n,inner] at the given indices of its middle
// axis to y[outer,len(at),inner].
func copySlices(y, x *tensor.Tensor, outer, n, inner int, at []int) {
	to := 0
	for i := range outer {
		for _, k := range at {
			copyRun(y, to, x, (i*n+k)*inner, inner)
			to += inner
		}
	}
}

// moveElems tracks the elements of small integer tensors through an operator
// that only moves elements and has set its outputs' types: it is evaluated on
// their positions. data lists the inputs that it moves; the elements of all others
// must be known.
func moveElems(c *ir.Infer, o ir.Op, data ...int) {
	var elems []ir.Dim
	tracked := false
	for i := range c.Outputs() {
		if !small(c.Out(i)) {
			return
		}
	}
	in := make([]*tensor.Tensor, c.Len())
	for i := range in {
		if !c.Has(i) {
			continue
		}
		if !small(c.In(i)) {
			return
		}
		shape, _ := c.In(i).Shape()
		n := product(shape)
		e, ok := c.Elems(i)
		if ok && len(e) != n {
			return
		}
		if !slices.Contains(data, i) {
			ints, ok := intsOf(c, i)
			if !ok {
				return
			}
			wide := make([]int64, len(ints))
			for j, v := range ints {
				wide[j] = int64(v)
			}
			in[i] = tensor.FromInt64s(c.In(i).DType, wide, shape...)
			continue
		}
		if tracked = tracked || ok; !ok {
			e = c.FreshDims(n)
		}
		at := make([]int, n)
		for j := range at {
			at[j] = len(elems) + j
		}
		in[i] = tensor.Ints(at...).Reshape(shape...)
		elems = append(elems, e...)
	}
	if !tracked {
		return
	}
	outs, err := o.Eval(&ir.Eval{Outputs: c.Outputs()}, in)
	if err != nil {
		return
	}
	for i, t := range outs {
		if t == nil || t.DType() != tensor.I64 {
			continue
		}
		moved := make([]ir.Dim, t.Len())
		for j, at := range t.Ints() {
			moved[j] = elems[at]
		}
		c.SetElems(i, moved)
	}
}

// wantPresent refuses absent inputs among the first n.
func wantPresent(c *ir.Infer, n int) error {
	for i := range n {
		if !c.Has(i) {
			return c.Errorf("input %d is absent", i)
		}
	}
	return nil
}

// optional returns input i, nil where it is absent.
func optional(in []*tensor.Tensor, i int) *tensor.Tensor {
	if i < len(in) {
		return in[i]
	}
	return nil
}
