package contrib

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
)

// parameters are what activations call theirs, in the order in which FusedConv lists them.
var parameters = []string{"alpha", "beta", "gamma"}

// fusedGemm is Gemm and then an activation, whose parameters are attributes of their own.
func fusedGemm(c *call) []*ir.Value {
	rest := c.apart("activation")
	var a struct {
		Name  string   `attr:"activation"`
		Alpha *float32 `attr:"activation_alpha"`
		Beta  *float32 `attr:"activation_beta"`
		Gamma *float32 `attr:"activation_gamma"`
	}
	c.attrs(&a)
	given := attrs{}
	for i, p := range []*float32{a.Alpha, a.Beta, a.Gamma} {
		if p != nil {
			given[parameters[i]] = *p
		}
	}
	y := c.pass("Gemm", rest, c.in(0), c.in(1), c.in(2))
	inner := map[string]string{"ScaledTanh": "Tanh", "ParametricSoftplus": "Softplus"}[a.Name] // alpha * f(beta * y)
	if inner == "" {
		return []*ir.Value{c.activated(y, a.Name, given)}
	}
	if a.Alpha == nil || a.Beta == nil {
		c.invalid("activation_alpha or activation_beta is missing, which %s needs", a.Name)
	}
	y = c.make(inner, nil, c.make("Mul", nil, y, c.scalar(float64(*a.Beta), y)))
	return []*ir.Value{c.make("Mul", nil, y, c.scalar(float64(*a.Alpha), y))}
}

// fusedConv is Conv, to whose result Z is added, and then an activation, if there is one.
func fusedConv(c *call) []*ir.Value {
	rest := c.apart("activation")
	var a struct {
		Name   string    `attr:"activation"`
		Params []float32 `attr:"activation_params"`
	}
	c.attrs(&a)
	y := c.pass("Conv", rest, c.in(0), c.in(1), c.in(2))
	if z := c.in(3); z != nil {
		like := y.Type
		y = c.make("Add", nil, y, z)
		if t := z.Type; t.Ranked && like.Ranked && !slices.EqualFunc(t.Dims, like.Dims, func(a, b ir.Dim) bool { return !differ(a, b) }) {
			c.invalid("Z is %v, want %v as the convolution gives", t, like)
		}
	}
	switch {
	case a.Name == "":
		return []*ir.Value{y}
	case a.Name == "Clip":
		if len(a.Params) != 2 {
			c.invalid("activation_params has %d elements, want the least and the greatest value", len(a.Params))
		}
		return []*ir.Value{c.make("Clip", nil, y, c.scalar(float64(a.Params[0]), y), c.scalar(float64(a.Params[1]), y))}
	case len(a.Params) > len(parameters):
		c.invalid("activation_params has %d elements, want at most %d", len(a.Params), len(parameters))
	}
	given := attrs{}
	for i, p := range a.Params {
		given[parameters[i]] = p
	}
	return []*ir.Value{c.activated(y, a.Name, given)}
}

// activated applies an activation, an operator that must be given all of its parameters; others count for nothing.
func (c *call) activated(y *ir.Value, name string, given attrs) *ir.Value {
	if def := op.Lookup(name); def == nil || def.In != [2]int{1, 1} {
		c.invalid("activation is %q, want an operator of one input such as Relu", name)
	} else if _, ok := def.Op.(op.Elementwise); !ok {
		c.invalid("activation is %s, want one that is elementwise such as Relu", name)
	}
	o, err := op.New(name)
	if err != nil {
		panic(failure{err})
	}
	with := attrs{}
	for _, p := range parameters {
		if ir.AttrOf(o, p) == nil {
			continue
		}
		if with[p] = given[p]; given[p] == nil {
			c.invalid("the parameter %s of the activation is missing, which %s needs", p, name)
		}
	}
	return c.make(name, with, y)
}
