package fuse

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// Activations recognises GELU (both forms), SiLU and its scaled kin, and
// HardSwish where they are spelled out as products:
//
//	x * 0.5 * (1 + erf(x / sqrt 2))                            Gelu
//	x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))      Gelu, tanh
//	x * sigmoid(alpha x), x / (1 + exp(-alpha x))              Swish
//	x * hardsigmoid(x), x * clip(x+3, 0, 6) / 6                HardSwish
//
// with factors in any order and polynomials written in any way.
func Activations(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		v := n.Outputs[0]
		if kind := n.Op.Kind(); kind != "Mul" && kind != "Div" || !numpy(n) || !v.Type.DType.IsFloat() || !v.Type.Ranked {
			return false, nil
		}
		x, kind, attrs := activation(n)
		// Polynomials in x have its shape, unless a scalar has a higher rank.
		if kind == "" || !x.Type.Equal(v.Type) {
			return false, nil
		}
		o, err := newOp(kind, attrs)
		if err != nil {
			return false, err
		}
		return true, replace(n, o, x)
	})
}

// activation names the operator of x that computes the output of n, empty where
// there is none.
func activation(n *ir.Node) (x *ir.Value, kind string, attrs map[string]any) {
	v := n.Outputs[0]
	if n.Op.Kind() == "Div" {
		x = n.Inputs[0]
		if arg, ok := logistic(n.Inputs[1], x); ok && arg == (poly{0, arg[1]}) {
			kind, attrs = swish(arg[1], v.Type.DType)
			return x, kind, attrs
		}
	}
	factors, scale := product(v)
	if len(factors) != 2 {
		return nil, "", nil
	}
	for i := range 2 {
		gate, a, b := affine(factors[1-i])
		s := split{factors[i], gate, scale * a, scale * b}
		if kind, attrs = s.activation(v.Type.DType); kind != "" {
			return s.x, kind, attrs
		}
	}
	return nil, "", nil
}

// swish is Swish where its attribute, an f32, holds alpha as well as the type does.
func swish(alpha float64, dt tensor.DType) (kind string, attrs map[string]any) {
	if !near(float64(float32(alpha)), alpha, dt) {
		return "", nil
	}
	return "Swish", map[string]any{"alpha": float32(alpha)}
}

// split is a product x * (a*gate + b).
type split struct {
	x, gate *ir.Value
	a, b    float64
}

// activation names the operator that computes s.
func (s split) activation(dt tensor.DType) (kind string, attrs map[string]any) {
	if s.gate.Def == nil {
		return "", nil
	}
	dt = spelt(s.gate, s.x, dt)
	half := near(s.a, 0.5, dt) && near(s.b, 0.5, dt)
	if arg, ok := sigmoidOf(s.gate, s.x); ok && s.b == 0 && near(s.a, 1, dt) && arg == (poly{0, arg[1]}) {
		return swish(arg[1], dt)
	}
	if arg, lo, hi, ok := clipOf(s.gate, s.x); ok && s.b == 0 {
		arg, _ = arg.times(poly{s.a})
		if lo*s.a == 0 && near(hi*s.a, 1, dt) && arg.near(poly{0.5, 1.0 / 6}, dt) {
			return "HardSwish", nil
		}
		return "", nil
	}
	switch g := s.gate.Def; g.Op.Kind() {
	case "Erf":
		if arg, ok := polynomial(g.Inputs[0], s.x, lookThrough); ok && half && arg.near(poly{0, 1 / math.Sqrt2}, dt) {
			return "Gelu", nil
		}
	case "Tanh":
		arg, ok := polynomial(g.Inputs[0], s.x, lookThrough)
		c := math.Sqrt(2 / math.Pi)
		switch {
		case !ok || !half:
		case arg.near(poly{0, c, 0, c * 0.044715}, dt):
			return "Gelu", map[string]any{"approximate": "tanh"}
		case arg == poly{0, arg[1]}: // (1 + tanh(y/2)) / 2 is sigmoid(y)
			return swish(2*arg[1], dt)
		}
	}
	return "", nil
}

// lookThrough is how many operators deep a polynomial may be spelled.
const lookThrough = 8

// sigmoidOf matches sigmoid(p(x)), also as 1 / (1 + exp(-p(x))).
func sigmoidOf(v, x *ir.Value) (p poly, ok bool) {
	if n := def(v, "Sigmoid"); n != nil {
		return polynomial(n.Inputs[0], x, lookThrough)
	}
	if n := def(v, "Reciprocal"); n != nil {
		return logistic(n.Inputs[0], x)
	}
	if n := def(v, "Div"); n != nil && isScalar(n.Inputs[0], 1) {
		return logistic(n.Inputs[1], x)
	}
	return p, false
}

// logistic matches 1 + exp(-p(x)).
func logistic(v, x *ir.Value) (p poly, ok bool) {
	base, a, b := affine(v)
	n := def(base, "Exp")
	if n == nil || a != 1 || b != 1 {
		return p, false
	}
	if p, ok = polynomial(n.Inputs[0], x, lookThrough); !ok {
		return p, false
	}
	return p.times(poly{-1})
}

// clipOf matches p(x) clipped to lo..hi: Clip, HardSigmoid, and Min and Max (or
// Relu) around each other.
func clipOf(v, x *ir.Value) (p poly, lo, hi float64, ok bool) {
	lo, hi = math.Inf(-1), math.Inf(1)
	bounds := 0
	for v.Def != nil && bounds < 2 {
		n := v.Def
		switch n.Op.Kind() {
		case "HardSigmoid":
			a, _ := ir.AttrOf(n.Op, "alpha").(float32)
			b, _ := ir.AttrOf(n.Op, "beta").(float32)
			if p, ok = polynomial(n.Inputs[0], x, lookThrough); !ok || bounds > 0 {
				return p, lo, hi, false
			}
			p, _ = p.times(poly{float64(a)})
			p[0] += float64(b)
			return p, 0, 1, true
		case "Clip":
			var okLo, okHi bool
			lo, okLo = scalar(n.Input(1))
			hi, okHi = scalar(n.Input(2))
			if !okLo || !okHi || bounds > 0 {
				return p, lo, hi, false
			}
			bounds = 2
			v = n.Inputs[0]
		case "Relu":
			lo, v = max(lo, 0), n.Inputs[0]
			bounds++
		case "Min", "Max":
			if len(n.Inputs) != 2 {
				return p, lo, hi, false
			}
			s, ok := scalar(n.Inputs[1])
			arg := n.Inputs[0]
			if !ok {
				if s, ok = scalar(n.Inputs[0]); !ok {
					return p, lo, hi, false
				}
				arg = n.Inputs[1]
			}
			if n.Op.Kind() == "Min" {
				hi = min(hi, s)
			} else {
				lo = max(lo, s)
			}
			v = arg
			bounds++
		default:
			return p, lo, hi, false
		}
	}
	if bounds != 2 || lo > hi {
		return p, lo, hi, false
	}
	p, ok = polynomial(v, x, lookThrough)
	return p, lo, hi, ok
}
