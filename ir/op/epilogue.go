package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// Epilogue is what a product does to its result before it stores it: it adds the
// input Residual, of the result's type, and applies an activation. The fuse
// passes make epilogues; ONNX files have none.
type Epilogue struct {
	Act     string    `attr:"spc_act"`      // an operator of Activations, empty for none
	ActArgs []float32 `attr:"spc_act_args"` // its parameters
}

// Residual is the input of Conv, ConvTranspose, MatMul and Gemm that an epilogue
// adds.
const Residual = 3

// Activation is a function of one variable that an epilogue can apply.
type Activation struct {
	Args int // the number of parameters
	F    func(x float64, a []float32) float64
}

// Activations lists what epilogues can apply, by operator.
var Activations = map[string]Activation{
	"Relu":        {0, func(x float64, _ []float32) float64 { return max(x, 0) }},
	"Sigmoid":     {0, func(x float64, _ []float32) float64 { return sigmoid(x) }},
	"Tanh":        {0, func(x float64, _ []float32) float64 { return math.Tanh(x) }},
	"Clip":        {2, func(x float64, a []float32) float64 { return min(max(x, float64(a[0])), float64(a[1])) }},
	"LeakyRelu":   {1, func(x float64, a []float32) float64 { return leaky(x, float64(a[0])) }},
	"HardSigmoid": {2, func(x float64, a []float32) float64 { return min(max(float64(a[0])*x+float64(a[1]), 0), 1) }},
	"HardSwish":   {0, func(x float64, _ []float32) float64 { return x * min(max(x/6+0.5, 0), 1) }},
	"Swish":       {1, func(x float64, a []float32) float64 { return x * sigmoid(float64(a[0])*x) }},
	"Gelu":        {1, func(x float64, a []float32) float64 { return gelu(x, a[0] != 0) }},
}

func leaky(x, alpha float64) float64 {
	if x < 0 {
		return alpha * x
	}
	return x
}

// gelu is x times the normal distribution function, or its tanh approximation:
// Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2. Neither is written
// as 1 + tanh or 1 + erf, which cancel out far below zero.
func gelu(x float64, tanh bool) float64 {
	if tanh {
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x / 2 * math.Erfc(-x/math.Sqrt2)
}

// Empty reports whether the epilogue has no activation.
func (e *Epilogue) Empty() bool { return e.Act == "" }

// inferEpilogue checks the epilogue of a node whose output 0 has the type t.
func (e *Epilogue) inferEpilogue(c *ir.Infer, t ir.Type) error {
	if a, ok := Activations[e.Act]; e.Act != "" && (!ok || a.Args != len(e.ActArgs)) {
		return c.Errorf("activation %s with %d parameters is unknown", e.Act, len(e.ActArgs))
	}
	if c.Has(Residual) {
		r := c.In(Residual)
		if r.DType != t.DType || r.Ranked && t.Ranked && len(r.Dims) != len(t.Dims) {
			return c.Errorf("residual is %v, want %v", r, t)
		}
		for i := range r.Dims {
			if t.Ranked && differ(r.Dims[i], t.Dims[i]) {
				return c.Errorf("residual is %v, want %v", r, t)
			}
		}
	}
	return nil
}

// evalEpilogue applies the epilogue to y, a floating-point tensor that the caller
// owns; in holds the node's inputs.
func (e *Epilogue) evalEpilogue(y *tensor.Tensor, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	r := optional(in, Residual)
	if e.Act == "" && r == nil {
		return one(y)
	}
	v := y.Float64s()
	if r != nil {
		if r.Len() != len(v) {
			return nil, evalErrorf("residual is %v, want %v", r, y)
		}
		for i, x := range r.Float64s() {
			v[i] += x
		}
	}
	if e.Act != "" {
		f := Activations[e.Act].F
		for i := range v {
			v[i] = f(v[i], e.ActArgs)
		}
	}
	return one(tensor.FromFloat64s(y.DType(), v, y.Shape()...))
}

// Fusable is an operator with an epilogue: Conv, ConvTranspose, MatMul and Gemm.
type Fusable interface {
	ir.Op
	Fused() *Epilogue
}

// Fused returns the epilogue.
func (e *Epilogue) Fused() *Epilogue { return e }

// ActivationArgs returns the parameters of the node of an operator of Activations;
// ok is false where they are no constants.
func ActivationArgs(n *ir.Node) (args []float32, ok bool) {
	attr := func(name string) {
		x, is := ir.AttrOf(n.Op, name).(float32)
		args, ok = append(args, x), ok && is
	}
	ok = true
	switch n.Op.Kind() {
	case "Clip":
		for i, def := range []float32{float32(math.Inf(-1)), float32(math.Inf(1))} {
			if v := n.Input(1 + i); v != nil {
				if v.Const == nil || v.Const.Len() != 1 {
					return nil, false
				}
				def = float32(v.Const.Float64s()[0])
			}
			args = append(args, def)
		}
	case "LeakyRelu", "Swish":
		attr("alpha")
	case "HardSigmoid":
		attr("alpha")
		attr("beta")
	case "Gelu":
		args = []float32{0}
		if ir.AttrOf(n.Op, "approximate") == "tanh" {
			args[0] = 1
		}
	}
	return args, ok
}
