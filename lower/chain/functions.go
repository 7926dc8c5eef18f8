package chain

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
)

// Function is what an instruction does to elements. Kernels know it by its number.
type Function int

// Copy does nothing. The functions up to GeluTanh are those that products apply as activations, too, with up to
// two parameters.
const (
	Copy Function = iota
	Clip
	LeakyRelu
	HardSigmoid
	HardSwish
	Sigmoid
	Tanh
	Swish
	Gelu
	GeluTanh
)

// Functions of one value. NotZero gives 1 or 0, as comparisons do; Narrow is the conversion to 32 bits. IsInf looks
// for negative and positive infinities where its parameters are not 0.
const (
	Abs Function = 16 + iota
	Neg
	Not
	NotZero
	Sign
	Ceil
	Floor
	Round
	Sqrt
	Reciprocal
	Exp
	Log
	Erf
	Softplus
	Softsign
	Narrow
	IsNaN
	IsInf
	Sin
	Cos
	Tan
	Asin
	Acos
	Atan
	Sinh
	Cosh
	Asinh
	Acosh
	Atanh
	Mish
	Elu
	Selu
	Celu
	ThresholdedRelu
)

// Functions of two values. Mod has the sign of the divisor, FMod that of the dividend.
const (
	Add Function = 64 + iota
	Sub
	Mul
	Div
	Max
	Min
	PRelu
	Pow
	Mod
	FMod
	Equal
	Less
	LessOrEqual
	Greater
	GreaterOrEqual
	And
	Or
	Xor
)

// Where is the second of three values where the first is not 0, else the third.
const Where Function = 96

// row is what is known of a function.
type row struct {
	name     string   // that of the operator that applies it, where there is one
	integers bool     // it takes integers besides floats
	args     []string // the attributes of the operator that are its parameters
}

// table lists the functions.
var table = [...]row{
	Copy: {name: "Copy"}, Clip: {name: "Clip"}, LeakyRelu: {name: "LeakyRelu"}, HardSigmoid: {name: "HardSigmoid"},
	HardSwish: {name: "HardSwish"}, Sigmoid: {name: "Sigmoid"}, Tanh: {name: "Tanh"}, Swish: {name: "Swish"}, Gelu: {name: "Gelu"},
	GeluTanh: {name: "GeluTanh"},

	Abs: {name: "Abs", integers: true}, Neg: {name: "Neg", integers: true}, Not: {name: "Not", integers: true},
	NotZero: {name: "NotZero", integers: true}, Sign: {name: "Sign", integers: true}, Ceil: {name: "Ceil"}, Floor: {name: "Floor"},
	Round: {name: "Round"}, Sqrt: {name: "Sqrt"}, Reciprocal: {name: "Reciprocal"}, Exp: {name: "Exp"}, Log: {name: "Log"}, Erf: {name: "Erf"},
	Softplus: {name: "Softplus"}, Softsign: {name: "Softsign"}, Narrow: {name: "Narrow", integers: true}, IsNaN: {name: "IsNaN"},
	IsInf: {name: "IsInf", args: []string{"detect_negative", "detect_positive"}}, Sin: {name: "Sin"}, Cos: {name: "Cos"}, Tan: {name: "Tan"},
	Asin: {name: "Asin"}, Acos: {name: "Acos"}, Atan: {name: "Atan"}, Sinh: {name: "Sinh"}, Cosh: {name: "Cosh"}, Asinh: {name: "Asinh"},
	Acosh: {name: "Acosh"}, Atanh: {name: "Atanh"}, Mish: {name: "Mish"}, Elu: {name: "Elu", args: []string{"alpha"}},
	Selu: {name: "Selu", args: []string{"alpha", "gamma"}}, Celu: {name: "Celu", args: []string{"alpha"}},
	ThresholdedRelu: {name: "ThresholdedRelu", args: []string{"alpha"}},

	Add: {name: "Add", integers: true}, Sub: {name: "Sub", integers: true}, Mul: {name: "Mul", integers: true}, Div: {name: "Div", integers: true},
	Max: {name: "Max", integers: true}, Min: {name: "Min", integers: true}, PRelu: {name: "PRelu"}, Pow: {name: "Pow"},
	Mod: {name: "Mod", integers: true}, FMod: {name: "FMod", integers: true}, Equal: {name: "Equal", integers: true},
	Less: {name: "Less", integers: true}, LessOrEqual: {name: "LessOrEqual", integers: true}, Greater: {name: "Greater", integers: true},
	GreaterOrEqual: {name: "GreaterOrEqual", integers: true}, And: {name: "And", integers: true}, Or: {name: "Or", integers: true},
	Xor: {name: "Xor", integers: true},

	Where: {name: "Where", integers: true},
}

// named finds functions by their names.
var named = func() map[string]Function {
	m := map[string]Function{}
	for _, f := range Functions() {
		m[f.String()] = f
	}
	return m
}()

// String is the function's name.
func (f Function) String() string { return table[f].name }

// Args names the attributes of its operator that are the function's parameters.
func (f Function) Args() []string { return table[f].args }

// Functions lists the functions by their numbers.
func Functions() []Function {
	var all []Function
	for f := range table {
		if table[f].name != "" {
			all = append(all, Function(f))
		}
	}
	return all
}

// Inputs is the number of values that the function takes.
func (f Function) Inputs() int {
	switch {
	case f == Where:
		return 3
	case f >= Add:
		return 2
	}
	return 1
}

// Activation returns the function and the parameters of an activation by its name and arguments, Copy that of
// none; false where there is none of that name.
func Activation(name string, args []float32) (f Function, a, b float32, ok bool) {
	args = append(slices.Clone(args), 0, 0)
	switch {
	case name == "":
		return Copy, 0, 0, true
	case name == "Relu":
		return Clip, 0, float32(math.Inf(1)), true
	case name == "Gelu" && args[0] != 0:
		return GeluTanh, 0, 0, true
	}
	f = named[name]
	return f, args[0], args[1], f > Copy && f <= GeluTanh
}

// operation is what a node does to elements: apply a function to its operands, one after the other where it has more
// than that takes, or convert them to its type.
type operation struct {
	Function
	converts bool
	a, b     float32
}

// operationOf returns what a node does to elements, false where no chain can do it.
func operationOf(n *ir.Node) (o operation, ok bool) {
	if op.Operands(n) == 0 || len(n.Outputs) != 1 {
		return o, false
	}
	if _, is := op.Activations[n.Op.Kind()]; is {
		args, ok := op.ActivationArgs(n)
		if ok {
			o.Function, o.a, o.b, ok = Activation(n.Op.Kind(), args)
		}
		return o, ok
	}
	switch x := n.Op.(type) {
	case *op.Cast:
		return operation{converts: true}, true
	case *op.SwiGLU: // of what Swish makes of the first
		return operation{Function: Mul}, true
	case *op.Mod:
		if x.FMod {
			return operation{Function: FMod}, true
		}
	case *op.Variadic:
		if x.Kind() == "Sum" || x.Kind() == "Mean" { // which multiplies at last
			return operation{Function: Add}, true
		}
	}
	if o.Function, ok = named[n.Op.Kind()]; !ok {
		return o, false
	}
	for i, name := range table[o.Function].args {
		switch v := ir.AttrOf(n.Op, name).(type) {
		case float32:
			*[]*float32{&o.a, &o.b}[i] = v
		case int: // a flag
			*[]*float32{&o.a, &o.b}[i] = float32(v)
		default:
			return o, false
		}
	}
	return o, true
}

// Elementwise reports whether chains know the operator of a node.
func Elementwise(n *ir.Node) bool {
	if _, ok := n.Op.(*Chain); ok {
		return true
	}
	_, ok := operationOf(n)
	return ok
}

// Converts reports whether a node converts elements to another type, and does nothing else.
func Converts(n *ir.Node) bool {
	o, ok := operationOf(n)
	return ok && o.converts
}
