package op

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Differentiable is an operator through which gradients of f32 tensors pass.
type Differentiable interface {
	ir.Op
	// Grad is the product of a vector with the operator's Jacobian: from the inputs,
	// the outputs that they gave and the gradients of a scalar by the outputs, of
	// which those that are zero may be nil, it returns the gradients by the inputs
	// that c.Wants, nil for the others and for those that are zero. Gradients may
	// share storage with dout and are not written to by who did not make them.
	// Inputs passed Infer; attributes and inputs for which there is no gradient are
	// an error that wraps ir.ErrUnsupported.
	Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error)
}

// Forward is a Differentiable whose Eval is too slow to train with.
type Forward interface {
	Differentiable
	// Forward is Eval for f32 tensors, computed and rounded in f32, with the
	// context's memory and matrix products.
	Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error)
}

// Kernels are the loops in which gradients, and what is learnt from samples, spend their
// time. Those that are nil are plain Go, but for Gemm.
type Kernels struct {
	// Gemm computes C = alpha op(A) op(B) + beta C for row-major matrices, as BLAS does:
	// op(A)[m,k] is A[m,k] or, with tA, the transpose of A[k,m], op(B)[k,n] likewise. lda,
	// ldb and ldc are the elements from a row to the next one. With beta 0, C need not be
	// finite. The result does not depend on the number of threads.
	Gemm func(tA, tB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
	// Taps computes y[i] = bias + sum over t of w[t]*x[offset[t]+i].
	Taps func(y, x []float32, offset []int, w []float32, bias float32)
	// Dot returns the sum of a[i]*b[i].
	Dot func(a, b []float32) float32
	// Add computes y = a + b.
	Add func(y, a, b []float32)
	// Clip computes y = min(max(x, lo), hi).
	Clip func(y, x []float32, lo, hi float32)
}

// GradContext is what operators compute gradients with: kernels, and memory that is
// taken again after Reset. It serves one goroutine at a time.
type GradContext struct {
	Kernels
	// Wants says for each input whether Grad is to compute its gradient.
	Wants []bool

	slabs    [][]float32
	at, used int // the slab in use, and its elements that are taken
}

// slabSize is the number of elements by which a context's memory grows.
const slabSize = 1 << 20

// Floats returns n elements of unknown value that stay valid until Reset, or until
// the release of an earlier mark.
func (c *GradContext) Floats(n int) []float32 {
	for c.at < len(c.slabs) && c.used+n > len(c.slabs[c.at]) {
		c.at, c.used = c.at+1, 0
	}
	if c.at == len(c.slabs) {
		c.slabs = append(c.slabs, make([]float32, max(n, slabSize)))
	}
	s := c.slabs[c.at][c.used:][:n:n]
	c.used += (n + 15) &^ 15 // whole cache lines
	c.used = min(c.used, len(c.slabs[c.at]))
	return s
}

// New returns an f32 tensor in memory like that of Floats.
func (c *GradContext) New(shape ...int) *tensor.Tensor {
	return tensor.From(c.Floats(product(shape)), shape...)
}

// Zeros is New with all elements zero.
func (c *GradContext) Zeros(shape ...int) *tensor.Tensor {
	t := c.New(shape...)
	clear(t.F32s())
	return t
}

// Reset takes back all memory.
func (c *GradContext) Reset() { c.at, c.used = 0, 0 }

// scratch returns a function that takes back what Floats and New returned since.
func (c *GradContext) scratch() (release func()) {
	at, used := c.at, c.used
	return func() { c.at, c.used = at, used }
}

// wants reports whether the gradient by input i is asked for.
func (c *GradContext) wants(i int) bool { return i < len(c.Wants) && c.Wants[i] }

func (c *GradContext) taps(y, x []float32, offset []int, w []float32, bias float32) {
	if c.Taps != nil {
		c.Taps(y, x, offset, w, bias)
		return
	}
	setAll(y, bias)
	for t, o := range offset {
		for i, v := range x[o:][:len(y)] {
			y[i] += w[t] * v
		}
	}
}

func (c *GradContext) dot(a, b []float32) float32 {
	if c.Dot != nil {
		return c.Dot(a, b)
	}
	sum := float32(0)
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

func (c *GradContext) add(y, a, b []float32) {
	if c.Add != nil {
		c.Add(y, a, b)
		return
	}
	for i := range y {
		y[i] = a[i] + b[i]
	}
}

func (c *GradContext) clip(y, x []float32, lo, hi float32) {
	if c.Clip != nil {
		c.Clip(y, x, lo, hi)
		return
	}
	for i, v := range x[:len(y)] {
		if v < lo {
			v = lo
		}
		if v > hi {
			v = hi
		}
		y[i] = v
	}
}

// errNoGrad is the error of a Grad that has none for these attributes or inputs.
func errNoGrad(format string, args ...any) error {
	return fmt.Errorf("no gradient %s: %w", fmt.Sprintf(format, args...), ir.ErrUnsupported)
}

// wantOnly refuses to compute gradients by inputs other than the first n.
func (c *GradContext) wantOnly(n int) error {
	for i := n; i < len(c.Wants); i++ {
		if c.Wants[i] {
			return errNoGrad("by input %d", i)
		}
	}
	return nil
}

// plainProduct refuses a product with an epilogue or quantised inputs.
func plainProduct(e *Epilogue, quantised bool, in []*tensor.Tensor) error {
	if !e.Empty() || optional(in, Residual) != nil || quantised {
		return errNoGrad("of a product with an epilogue or in integers")
	}
	return nil
}

// gradRow computes a row of the gradient by an operand: d from the gradient g by the
// output, and operands x and y whose elements lie sx and sy apart.
type gradRow func(d, g, x, y []float32, sx, sy int)

// passRow is the gradient of a sum by its operands.
func passRow(d, g, _, _ []float32, _, _ int) { copy(d, g) }

// zipGrad returns the gradient by x, or by y where second is set, of an operator that
// combines both, broadcast to the shape of g.
func (c *GradContext) zipGrad(g, x, y *tensor.Tensor, second bool, f gradRow) *tensor.Tensor {
	shape := g.Shape()
	strides := [][]int{broadcastStrides(x.Shape(), shape), broadcastStrides(y.Shape(), shape)}
	to, k := x, 0
	if second {
		to, k = y, 1
	}
	whole := to.Len() == g.Len()
	d := c.New(to.Shape()...)
	defer c.scratch()()
	plan, dv, gv, xv, yv := planRows(shape, strides), d.F32s(), g.F32s(), x.F32s(), y.F32s()
	var row []float32
	if !whole {
		clear(dv)
		row = c.Floats(plan.n)
	}
	plan.each(func(at, n int, off, step []int) {
		if whole {
			row = dv[at:][:n]
		}
		f(row, gv[at:][:n], xv[off[0]:], yv[off[1]:], step[0], step[1])
		if !whole {
			addRun(dv[off[k]:], row, step[k])
		}
	})
	return d
}

// sumTo returns the sums of g over the axes along which a tensor of the given shape
// was repeated to become one of g's.
func (c *GradContext) sumTo(g *tensor.Tensor, shape []int) *tensor.Tensor {
	if g.Len() == product(shape) {
		return g.Reshape(shape...)
	}
	d := c.Zeros(shape...)
	dv, gv := d.F32s(), g.F32s()
	walkRows(g.Shape(), [][]int{broadcastStrides(shape, g.Shape())}, func(at, n int, off, step []int) {
		addRun(dv[off[0]:], gv[at:][:n], step[0])
	})
	return d
}

// addRun adds the elements of row to those of d, step apart, all to the first where
// that is zero.
func addRun(d, row []float32, step int) {
	switch step {
	case 0:
		d[0] += sum32(row)
	case 1:
		d = d[:len(row)]
		for i, v := range row {
			d[i] += v
		}
	default:
		for i, v := range row {
			d[i*step] += v
		}
	}
}

// reshaped is the gradient of an operator that only says anew what a tensor is.
func reshaped(c *GradContext, in, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if err := c.wantOnly(1); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if c.wants(0) && dout[0] != nil {
		din[0] = dout[0].Reshape(in[0].Shape()...)
	}
	return din, nil
}

// gradEach is the gradient of a function of one variable, whose derivative d tells
// from the variable and the value.
func gradEach(c *GradContext, in, out, dout []*tensor.Tensor, d func(x, y float64) float64) ([]*tensor.Tensor, error) {
	if d == nil {
		return nil, errNoGrad("of a function that is not smooth")
	}
	return gradRows(c, in, out, dout, func(dx, g, x, y []float32) {
		for i, v := range x {
			dx[i] = g[i] * float32(d(float64(v), float64(y[i])))
		}
	})
}

// gradRows is gradEach for a function that fills dx from all g, x and y.
func gradRows(c *GradContext, in, out, dout []*tensor.Tensor, f func(dx, g, x, y []float32)) ([]*tensor.Tensor, error) {
	if err := c.wantOnly(1); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) || dout[0] == nil {
		return din, nil
	}
	din[0] = c.New(in[0].Shape()...)
	dx := din[0].F32s()
	f(dx, dout[0].F32s()[:len(dx)], in[0].F32s()[:len(dx)], out[0].F32s()[:len(dx)])
	return din, nil
}

// moved is the gradient of an operator that copies each element of its first input
// to at most one place of its only output: put copies those of the gradient back.
func moved(c *GradContext, in, dout []*tensor.Tensor, put func(dx, g *tensor.Tensor)) ([]*tensor.Tensor, error) {
	if err := c.wantOnly(1); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if c.wants(0) && dout[0] != nil {
		din[0] = c.Zeros(in[0].Shape()...)
		put(din[0], dout[0])
	}
	return din, nil
}

// keepShape returns dims with ones where a reduction over the axes removed them.
func keepShape(dims, axes []int) []int {
	kept := slices.Clone(dims)
	for _, a := range axes {
		kept[a] = 1
	}
	return kept
}
