package cpu

import (
	"math"

	"spc/ir"
	"spc/ir/op"
)

// epilogue finishes elements of a product's result on their way to memory: bias,
// residual, activation.
type epilogue struct {
	bias     []float32 // one for each row of Y, nil for none
	residual int       // the input that is added, -1 for none
	act      activation
}

// activation applies a function to a slice in place; nil does nothing.
type activation func(y []float32)

func newEpilogue(n *ir.Node, e *op.Epilogue, bias []float32) epilogue {
	ep := epilogue{bias: bias, residual: -1, act: newActivation(e.Act, e.ActArgs)}
	if n.Input(op.Residual) != nil {
		ep.residual = op.Residual
	}
	return ep
}

// apply finishes a run of columns of row r; res is the residual there or nil.
func (e *epilogue) apply(dst, y []float32, r int, res []float32) {
	if e.bias != nil {
		addScalar(dst, y, e.bias[r])
	} else {
		copy(dst, y)
	}
	if res != nil {
		addTo(dst, res[:len(dst)])
	}
	if e.act != nil {
		e.act(dst)
	}
}

// newActivation returns the f32 form of an operator of op.Activations.
func newActivation(name string, args []float32) activation {
	switch name {
	case "":
		return nil
	case "Relu":
		return reluInPlace
	case "Clip":
		lo, hi := args[0], args[1]
		return func(y []float32) { clipInPlace(y, lo, hi) }
	case "LeakyRelu":
		a := args[0]
		return func(y []float32) {
			for i, v := range y {
				if v < 0 {
					y[i] = a * v
				}
			}
		}
	case "HardSigmoid":
		a, b := args[0], args[1]
		return func(y []float32) {
			for i, v := range y {
				y[i] = min(max(a*v+b, 0), 1)
			}
		}
	case "HardSwish":
		return func(y []float32) {
			for i, v := range y {
				y[i] = v * min(max(v*(1.0/6)+0.5, 0), 1)
			}
		}
	case "Sigmoid":
		return sigmoidInPlace
	case "Tanh":
		return tanhInPlace
	case "Swish":
		if args[0] == 1 {
			return siluInPlace
		}
	case "Gelu":
		if args[0] == 0 {
			return geluInPlace
		}
	}
	f := op.Activations[name].F
	return func(y []float32) {
		for i, v := range y {
			y[i] = float32(f(float64(v), args))
		}
	}
}

func addScalar(dst, y []float32, b float32) {
	y = y[:len(dst)]
	for i := range dst {
		dst[i] = y[i] + b
	}
}

func addTo(dst, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += x[i]
	}
}

func reluInPlace(y []float32) {
	for i, v := range y {
		y[i] = max(v, 0)
	}
}

func clipInPlace(y []float32, lo, hi float32) {
	for i, v := range y {
		y[i] = min(max(v, lo), hi)
	}
}

func sigmoidInPlace(y []float32) {
	for i, v := range y {
		y[i] = float32(1 / (1 + math.Exp(-float64(v))))
	}
}

func tanhInPlace(y []float32) {
	for i, v := range y {
		y[i] = float32(math.Tanh(float64(v)))
	}
}

func siluInPlace(y []float32) {
	for i, v := range y {
		y[i] = float32(float64(v) / (1 + math.Exp(-float64(v))))
	}
}

func geluInPlace(y []float32) {
	for i, v := range y {
		y[i] = float32(float64(v) / 2 * (1 + math.Erf(float64(v)/math.Sqrt2)))
	}
}
