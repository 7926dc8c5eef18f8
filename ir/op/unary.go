package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// Unary applies a function of one variable, without attributes, to each element.
type Unary struct {
	family
	pointwise
}

// unaryDef holds the function of an operator on floats, on signed integers and
// on unsigned ones; it does not take the types whose function is nil. Floats are
// computed in float64, exact enough for every type, and rounded once at the end.
type unaryDef struct {
	float    func(float64) float64
	signed   func(int64) int64
	unsigned func(uint64) uint64
}

var unaryFuncs = map[string]unaryDef{
	"Abs":        {math.Abs, func(x int64) int64 { return max(x, -x) }, func(x uint64) uint64 { return x }},
	"Acos":       {float: math.Acos},
	"Acosh":      {float: math.Acosh},
	"Asin":       {float: math.Asin},
	"Asinh":      {float: math.Asinh},
	"Atan":       {float: math.Atan},
	"Atanh":      {float: math.Atanh},
	"BitwiseNot": {nil, func(x int64) int64 { return ^x }, func(x uint64) uint64 { return ^x }},
	"Ceil":       {float: math.Ceil},
	"Cos":        {float: math.Cos},
	"Cosh":       {float: math.Cosh},
	"Erf":        {math.Erf, func(x int64) int64 { return int64(math.Erf(float64(x))) }, func(x uint64) uint64 { return uint64(math.Erf(float64(x))) }},
	"Exp":        {float: math.Exp},
	"Floor":      {float: math.Floor},
	"HardSwish":  {float: func(x float64) float64 { return x * min(max(x/6+0.5, 0), 1) }},
	"Log":        {float: math.Log},
	"Mish":       {float: func(x float64) float64 { return x * math.Tanh(softplus(x)) }},
	"Neg":        {func(x float64) float64 { return -x }, func(x int64) int64 { return -x }, nil},
	"Reciprocal": {float: func(x float64) float64 { return 1 / x }},
	"Relu":       {func(x float64) float64 { return max(x, 0) }, func(x int64) int64 { return max(x, 0) }, func(x uint64) uint64 { return x }},
	"Round":      {float: math.RoundToEven},
	"Sigmoid":    {float: sigmoid},
	"Sign":       {sign, func(x int64) int64 { return max(min(x, 1), -1) }, func(x uint64) uint64 { return min(x, 1) }},
	"Sin":        {float: math.Sin},
	"Sinh":       {float: math.Sinh},
	"Softplus":   {float: softplus},
	"Softsign":   {float: func(x float64) float64 { return x / (1 + math.Abs(x)) }},
	"Sqrt":       {float: math.Sqrt},
	"Tan":        {float: math.Tan},
	"Tanh":       {float: math.Tanh},
}

// Scalar returns the function of an operator of one operand on an element of a float type, where the attributes of these
// names have these values; nil of other operators.
func Scalar(kind string, names []string, values ...float32) func(float64) float64 {
	if d, ok := unaryFuncs[kind]; ok {
		return d.float
	}
	o, err := New(kind)
	d, ok := o.(interface{ def() unaryDef })
	if err != nil || !ok {
		return nil
	}
	for i, name := range names {
		if ir.SetAttr(o, name, values[i]) != nil {
			return nil
		}
	}
	return d.def().float
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// softplus is log(1+exp(x)), without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// sign is the sign of x; NaN stays NaN.
func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

func (d unaryDef) takes(dt tensor.DType) bool {
	switch {
	case dt.IsFloat():
		return d.float != nil && carrier(dt) != tensor.Undefined
	case dt.IsUnsigned():
		return d.unsigned != nil
	}
	return dt.IsInt() && d.signed != nil
}

// Infer keeps the type.
func (o *Unary) Infer(c *ir.Infer) error { return inferUnary(c, unaryFuncs[o.kind]) }

func inferUnary(c *ir.Infer, d unaryDef) error {
	if err := wantTaken(c, 1, d.takes); err != nil {
		return err
	}
	c.Set(0, c.In(0))
	if d.signed != nil && d.float != nil {
		zipElems(c, func(x ...ir.Dim) (ir.Dim, bool) {
			return ir.Size(int(d.signed(int64(x[0].Size())))), x[0].Known()
		})
	}
	return nil
}

// Eval applies the function.
func (o *Unary) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(unaryFuncs[o.kind].apply(in[0]))
}

// apply maps the elements of a tensor whose type d takes.
func (d unaryDef) apply(x *tensor.Tensor) *tensor.Tensor {
	dt := x.DType()
	switch c := carrier(dt); c {
	case tensor.F32:
		return mapElems(x.To(c), func(v float32) float32 { return float32(d.float(float64(v))) }).To(dt)
	case tensor.F64:
		return mapElems(x, d.float)
	case tensor.U64:
		return mapElems(x, d.unsigned)
	}
	if dt.IsUnsigned() {
		return mapElems(x.To(tensor.U64), d.unsigned).To(dt)
	}
	return mapElems(x.To(tensor.I64), d.signed).To(dt)
}

// mapElems applies f to each element.
func mapElems[A, R tensor.Elem](x *tensor.Tensor, f func(A) R) *tensor.Tensor {
	out := tensor.New(tensor.DTypeOf[R](), x.Shape()...)
	d := tensor.Data[R](out)
	for i, v := range tensor.Data[A](x) {
		d[i] = f(v)
	}
	return out
}

// dropConsumedInputs removes an attribute that opsets below 6 had for a memory
// optimisation and that never meant anything else.
func dropConsumedInputs(l *Legacy) error {
	l.Take("consumed_inputs")
	return nil
}

// unaryGrads holds the derivatives of Unary's functions by operator, from x and f(x);
// those with jumps have none.
var unaryGrads = map[string]func(x, y float64) float64{
	"Abs":   func(x, _ float64) float64 { return sign(x) },
	"Acos":  func(x, _ float64) float64 { return -1 / math.Sqrt(1-x*x) },
	"Acosh": func(x, _ float64) float64 { return 1 / math.Sqrt(x*x-1) },
	"Asin":  func(x, _ float64) float64 { return 1 / math.Sqrt(1-x*x) },
	"Asinh": func(x, _ float64) float64 { return 1 / math.Sqrt(x*x+1) },
	"Atan":  func(x, _ float64) float64 { return 1 / (1 + x*x) },
	"Atanh": func(x, _ float64) float64 { return 1 / (1 - x*x) },
	"Cos":   func(x, _ float64) float64 { return -math.Sin(x) },
	"Cosh":  func(x, _ float64) float64 { return math.Sinh(x) },
	"Erf":   func(x, _ float64) float64 { return 2 / math.SqrtPi * math.Exp(-x*x) },
	"Exp":   func(_, y float64) float64 { return y },
	"HardSwish": func(x, _ float64) float64 {
		switch {
		case x <= -3:
			return 0
		case x >= 3:
			return 1
		}
		return x/3 + 0.5
	},
	"Log": func(x, _ float64) float64 { return 1 / x },
	"Mish": func(x, _ float64) float64 {
		t := math.Tanh(softplus(x))
		return t + x*(1-t*t)*sigmoid(x)
	},
	"Neg":        func(_, _ float64) float64 { return -1 },
	"Reciprocal": func(_, y float64) float64 { return -y * y },
	"Sigmoid":    func(_, y float64) float64 { return y * (1 - y) },
	"Sin":        func(x, _ float64) float64 { return math.Cos(x) },
	"Sinh":       func(x, _ float64) float64 { return math.Cosh(x) },
	"Softplus":   func(x, _ float64) float64 { return sigmoid(x) },
	"Softsign":   func(x, _ float64) float64 { d := 1 + math.Abs(x); return 1 / (d * d) },
	"Sqrt":       func(_, y float64) float64 { return 0.5 / y },
	"Tan":        func(_, y float64) float64 { return 1 + y*y },
	"Tanh":       func(_, y float64) float64 { return 1 - y*y },
}

// Grad multiplies by the derivative.
func (o *Unary) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if o.kind == "Relu" {
		return gradRows(c, in, out, dout, func(dx, g, _, y []float32) {
			for i, v := range y {
				bits := math.Float32bits(g[i]) // chosen without a branch, which would be guessed wrong
				if v <= 0 {
					bits = 0
				}
				dx[i] = math.Float32frombits(bits)
			}
		})
	}
	return gradEach(c, in, out, dout, unaryGrads[o.kind])
}

// Forward applies the function.
func (o *Unary) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	y := c.New(in[0].Shape()...)
	d := y.F32s()
	switch o.kind {
	case "Relu":
		c.clip(d, in[0].F32s(), 0, float32(math.Inf(1)))
	case "Sigmoid":
		for i, v := range in[0].F32s() {
			d[i] = 1 / (1 + exp32(-v))
		}
	default:
		return o.Eval(nil, in)
	}
	return one(y)
}

// exp32 is the exponential to within some units in the last place: 2^n e^r, where e^r is
// a Taylor polynomial for |r| up to half of ln 2.
func exp32(x float32) float32 {
	const high, low = 0.693359375, -2.12194440e-4 // ln 2 in two parts, the first short
	switch {
	case x < -87:
		return 0
	case !(x < 88):
		return float32(math.Exp(float64(x)))
	}
	n := x * math.Log2E
	if n += 0.5; n < 0 {
		n-- // the conversion cuts towards zero
	}
	k := int32(n)
	r := x - float32(k)*high - float32(k)*low
	p := 1 + r*(1+r*(1./2+r*(1./6+r*(1./24+r*(1./120+r*(1./720+r*(1./5040)))))))
	return p * math.Float32frombits(uint32(k+127)<<23)
}
