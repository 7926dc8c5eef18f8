package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// Clip limits each element of the first input to the interval that the second
// and the third, scalars, give; where they cross, to the third.
type Clip struct {
	pointwise
}

// Kind is Clip.
func (*Clip) Kind() string { return "Clip" }

var (
	clipLow  = variadicFuncs["Max"].rows
	clipHigh = variadicFuncs["Min"].rows
)

// Infer keeps the type.
func (o *Clip) Infer(c *ir.Infer) error {
	if err := wantTaken(c, 1, clipLow.takes); err != nil {
		return err
	}
	dt := c.In(0).DType
	for i := 1; i <= 2; i++ {
		t := c.In(i)
		if !c.Has(i) {
			continue
		}
		// Bounds that were attributes of an older opset are f32.
		if t.DType != dt && !(dt.IsFloat() && t.DType == tensor.F32) {
			return c.Errorf("input %d is %v, want %v as input 0", i, t.DType, dt)
		}
		if n, ok := t.Elems(); ok && n.Known() && n != ir.Size(1) || t.Rank() > 1 {
			return c.Errorf("input %d is %v, want a scalar", i, t)
		}
	}
	c.Set(0, c.In(0))
	return nil
}

// Eval limits the elements.
func (o *Clip) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	for i, r := range []rows{clipLow, clipHigh} {
		if b := optional(in, i+1); b != nil {
			x = r.zip(x, b.To(x.DType()).Reshape())
		}
	}
	return one(x)
}

// bounds returns the bounds as f32 numbers, infinite where they are absent.
func (o *Clip) bounds(in []*tensor.Tensor) (lo, hi float32) {
	lo, hi = float32(math.Inf(-1)), float32(math.Inf(1))
	for i, v := range []*float32{&lo, &hi} {
		if b := optional(in, i+1); b != nil {
			*v = float32(b.Float64s()[0])
		}
	}
	return lo, hi
}

// Grad passes gradients of elements inside the interval; there is none by its bounds.
func (o *Clip) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	lo, hi := o.bounds(in)
	return gradRows(c, in, out, dout, func(dx, g, x, _ []float32) {
		for i, v := range x {
			bits := math.Float32bits(g[i]) // chosen without a branch, which would be guessed wrong
			if v < lo {
				bits = 0
			}
			if v > hi {
				bits = 0
			}
			dx[i] = math.Float32frombits(bits)
		}
	})
}

// Forward limits the elements.
func (o *Clip) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	y := c.New(in[0].Shape()...)
	lo, hi := o.bounds(in)
	c.clip(y.F32s(), in[0].F32s(), lo, hi)
	return one(y)
}

// upgradeClip moves the bounds of opsets below 11 from attributes to inputs.
func upgradeClip(l *Legacy) error {
	l.Take("consumed_inputs")
	if err := l.FloatToInput("min", 1); err != nil {
		return err
	}
	return l.FloatToInput("max", 2)
}

// Where takes each element from the second input where the first is true, else
// from the third; all three are broadcast.
type Where struct {
	combining
}

// Kind is Where.
func (*Where) Kind() string { return "Where" }

// Infer broadcasts the inputs' shapes.
func (o *Where) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 3); err != nil {
		return err
	}
	if dt := c.In(0).DType; dt != tensor.Bool {
		return c.Errorf("condition is %v, want bool", dt)
	}
	dt := c.In(1).DType
	if c.In(2).DType != dt {
		return c.Errorf("input 2 is %v, want %v as input 1", c.In(2).DType, dt)
	}
	if err := setBroadcast(c, dt, c.In(0), c.In(1), c.In(2)); err != nil {
		return err
	}
	zipElems(c, func(x ...ir.Dim) (ir.Dim, bool) {
		switch {
		case x[0] == ir.Size(1):
			return x[1], true
		case x[0] == ir.Size(0):
			return x[2], true
		}
		return x[1], x[1] == x[2]
	})
	return nil
}

// Eval picks the elements.
func (o *Where) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	cond, x, y := in[0], in[1], in[2]
	shape := broadcastShapes(cond.Shape(), x.Shape(), y.Shape())
	out := tensor.New(x.DType(), shape...)
	strides := [][]int{broadcastStrides(cond.Shape(), shape), broadcastStrides(x.Shape(), shape), broadcastStrides(y.Shape(), shape)}
	pick := tensor.Data[bool](cond)
	switch x.DType() {
	case tensor.String:
		where(shape, strides, out.Strings(), pick, x.Strings(), y.Strings())
	case tensor.F32:
		where(shape, strides, out.F32s(), pick, x.F32s(), y.F32s())
	default:
		// Any other type is moved byte by byte.
		size := x.DType().Size()
		d, a, b := out.Bytes(), x.Bytes(), y.Bytes()
		walkRows(shape, strides, func(at, n int, off, step []int) {
			for i := range n {
				src, k := b, off[2]+i*step[2]
				if pick[off[0]+i*step[0]] {
					src, k = a, off[1]+i*step[1]
				}
				copy(d[(at+i)*size:(at+i+1)*size], src[k*size:])
			}
		})
	}
	return one(out)
}

func where[T any](shape []int, strides [][]int, d []T, pick []bool, x, y []T) {
	walkRows(shape, strides, func(at, n int, off, step []int) {
		for i := range n {
			if pick[off[0]+i*step[0]] {
				d[at+i] = x[off[1]+i*step[1]]
			} else {
				d[at+i] = y[off[2]+i*step[2]]
			}
		}
	})
}

// Grad gives each gradient to the input that its element came from.
func (o *Where) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	g, pick := dout[0], tensor.Data[bool](in[0])
	for k := 1; k <= 2; k++ {
		if !c.wants(k) {
			continue
		}
		shape, gv := g.Shape(), g.F32s()
		din[k] = c.Zeros(in[k].Shape()...)
		dx := din[k].F32s()
		strides := [][]int{broadcastStrides(in[0].Shape(), shape), broadcastStrides(in[k].Shape(), shape)}
		walkRows(shape, strides, func(at, n int, off, step []int) {
			for i := range n {
				if pick[off[0]+i*step[0]] == (k == 1) {
					dx[off[1]+i*step[1]] += gv[at+i]
				}
			}
		})
	}
	return din, nil
}

// Not negates bools.
type Not struct {
	pointwise
}

// Kind is Not.
func (*Not) Kind() string { return "Not" }

// Infer keeps the type.
func (o *Not) Infer(c *ir.Infer) error {
	if dt := c.In(0).DType; dt != tensor.Bool {
		return c.Errorf("input is %v, want bool", dt)
	}
	c.Set(0, c.In(0))
	zipElems(c, func(x ...ir.Dim) (ir.Dim, bool) { return notElem(x[0], x[0].Known()) })
	return nil
}

// Eval negates the elements.
func (o *Not) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(mapElems(in[0], func(v bool) bool { return !v }))
}

// Identity is its input.
type Identity struct {
	pointwise
}

// Kind is Identity.
func (*Identity) Kind() string { return "Identity" }

// Lists says that sequences and optionals are taken.
func (*Identity) Lists() {}

// Moves changes nothing.
func (*Identity) Moves(*ir.Node) Motion { return Keeps }

// Same changes nothing.
func (*Identity) Same(*ir.Node) int { return 0 }

// Infer keeps the type.
func (o *Identity) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	c.Set(0, c.In(0))
	if e, ok := c.Elems(0); ok {
		c.SetElems(0, e)
	}
	return nil
}

// Eval shares the input.
func (o *Identity) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) { return one(in[0]) }

// Grad passes the gradient.
func (o *Identity) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return reshaped(c, in, dout)
}

// IsInf tells which elements are infinite, of the signs that it detects.
type IsInf struct {
	pointwise
	Negative bool `attr:"detect_negative,1"`
	Positive bool `attr:"detect_positive,1"`
}

// Kind is IsInf.
func (*IsInf) Kind() string { return "IsInf" }

// Infer gives a bool tensor of the input's shape.
func (o *IsInf) Infer(c *ir.Infer) error { return inferFloatTest(c) }

// Eval tests the elements.
func (o *IsInf) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(testFloats(in[0], func(v float64) bool {
		return o.Positive && math.IsInf(v, 1) || o.Negative && math.IsInf(v, -1)
	}))
}

// IsNaN tells which elements are not a number.
type IsNaN struct {
	pointwise
}

// Kind is IsNaN.
func (*IsNaN) Kind() string { return "IsNaN" }

// Infer gives a bool tensor of the input's shape.
func (o *IsNaN) Infer(c *ir.Infer) error { return inferFloatTest(c) }

// Eval tests the elements.
func (o *IsNaN) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(testFloats(in[0], math.IsNaN))
}

func inferFloatTest(c *ir.Infer) error {
	if err := wantTaken(c, 1, tensor.DType.IsFloat); err != nil {
		return err
	}
	t := c.In(0)
	t.DType = tensor.Bool
	c.Set(0, t)
	return nil
}

func testFloats(x *tensor.Tensor, f func(float64) bool) *tensor.Tensor {
	out := tensor.New(tensor.Bool, x.Shape()...)
	d := tensor.Data[bool](out)
	for i, v := range x.Float64s() {
		d[i] = f(v)
	}
	return out
}
