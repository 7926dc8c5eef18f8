package fuse

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Activations recognises GELU (both forms), SiLU and its scaled kin, and
// HardSwish where they are spelled out as products:
//
//	x * 0.5 * (1 + erf(x / sqrt 2))                            Gelu
//	x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))      Gelu, tanh
//	x * sigmoid(alpha x)                                       Swish
//	x * hardsigmoid(x), x * clip(x+3, 0, 6) / 6                HardSwish
//
// with factors in any order.
func Activations(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		kind := n.Op.Kind()
		if kind != "Mul" && kind != "Div" {
			return false, nil
		}
		v := n.Outputs[0]
		if sole(v) { // part of a larger product, whose turn comes
			if u := v.Uses()[0].Node; u.Op.Kind() == "Mul" && onlyScalar(u, v) {
				return false, nil
			}
		}
		factors, scale := product(v)
		if len(factors) != 2 || !v.Type.DType.IsFloat() {
			return false, nil
		}
		for i := range 2 {
			x, f := factors[i], factors[1-i]
			if f.Def == nil || !x.Type.Equal(v.Type) {
				continue
			}
			kind, attrs := activationOf(x, f, scale)
			if kind == "" {
				continue
			}
			o, err := newOp(kind, attrs)
			if err != nil {
				return false, err
			}
			return true, replace(n, o, x)
		}
		return false, nil
	})
}

// onlyScalar reports whether the other factor of a Mul is a scalar, so that the
// product goes on.
func onlyScalar(mul *ir.Node, v *ir.Value) bool {
	_, ok := scalar(other(mul, v))
	return ok
}

// activationOf names the operator that computes scale * x * f.
func activationOf(x, f *ir.Value, scale float64) (kind string, attrs map[string]any) {
	switch {
	case near(scale, 0.5) && isErfOf(plus(f, 1), x):
		return "Gelu", nil
	case near(scale, 0.5) && isTanhOf(plus(f, 1), x):
		return "Gelu", map[string]any{"approximate": "tanh"}
	case near(scale, 1) && f.Def.Op.Kind() == "Sigmoid":
		fs, alpha := product(f.Def.Inputs[0])
		if f.Def.Inputs[0] == x {
			fs, alpha = []*ir.Value{x}, 1
		}
		if len(fs) == 1 && fs[0] == x {
			return "Swish", map[string]any{"alpha": float32(alpha)}
		}
	case near(scale, 1) && f.Def.Op.Kind() == "HardSigmoid":
		a, _ := ir.AttrOf(f.Def.Op, "alpha").(float32)
		b, _ := ir.AttrOf(f.Def.Op, "beta").(float32)
		if f.Def.Inputs[0] == x && near(float64(a), 1.0/6) && near(float64(b), 0.5) {
			return "HardSwish", nil
		}
	case near(scale, 1.0/6) && f.Def.Op.Kind() == "Clip":
		lo, okLo := scalar(f.Def.Input(1))
		hi, okHi := scalar(f.Def.Input(2))
		if okLo && okHi && lo == 0 && hi == 6 && plus(f.Def.Inputs[0], 3) == x {
			return "HardSwish", nil
		}
	}
	return "", nil
}

func isErfOf(v, x *ir.Value) bool {
	n := def(v, "Erf")
	if n == nil {
		return false
	}
	fs, c := product(n.Inputs[0])
	return len(fs) == 1 && fs[0] == x && near(c, 1/math.Sqrt2)
}

// isTanhOf matches tanh(c (x + 0.044715 x^3)) and tanh(c x (1 + 0.044715 x^2)).
func isTanhOf(v, x *ir.Value) bool {
	n := def(v, "Tanh")
	if n == nil {
		return false
	}
	fs, c := product(n.Inputs[0])
	if !near(c, math.Sqrt(2/math.Pi)) {
		return false
	}
	if i := slices.Index(fs, x); i >= 0 && len(fs) == 2 {
		p, k := power(plus(fs[1-i], 1), x)
		return p == 2 && near(k, 0.044715)
	}
	if len(fs) != 1 {
		return false
	}
	add := def(fs[0], "Add")
	if add == nil || !slices.Contains(add.Inputs, x) {
		return false
	}
	p, k := power(other(add, x), x)
	return p == 3 && near(k, 0.044715)
}

// power writes v as k * x^p; p is 0 where v is something else.
func power(v, x *ir.Value) (p int, k float64) {
	if v == nil {
		return 0, 0
	}
	fs, k := product(v)
	for _, f := range fs {
		if f == x {
			p++
			continue
		}
		n := def(f, "Pow")
		e, ok := 0.0, false
		if n != nil {
			e, ok = scalar(n.Inputs[1])
		}
		if !ok || n.Inputs[0] != x || e != math.Trunc(e) || e < 1 || e > 3 {
			return 0, 0
		}
		p += int(e)
	}
	return p, k
}

// Norms recognises LayerNorm and RMSNorm over the last axis:
//
//	d = x - mean(x); d / sqrt(mean(d^2) + eps) [* scale [+ bias]]
//	x / sqrt(mean(x^2) + eps) * scale
//
// The reciprocal of the root may also be a factor.
func Norms(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		d, eps, ok := normalised(n)
		if !ok || !isF32(d) {
			return false, nil
		}
		if sub := def(d, "Sub"); sub != nil {
			if x := sub.Inputs[0]; meanOf(sub.Inputs[1]) == x && x != nil {
				return layerNorm(n, x, eps)
			}
		}
		return rmsNorm(n, d, eps)
	})
}

// normalised matches n = d / sqrt(mean(d^2) + eps).
func normalised(n *ir.Node) (d *ir.Value, eps float64, ok bool) {
	switch n.Op.Kind() {
	case "Div":
		eps, ok = rootMeanSquare(n.Inputs[1], n.Inputs[0])
		return n.Inputs[0], eps, ok
	case "Mul":
		for i := range 2 {
			d, r := n.Inputs[i], n.Inputs[1-i]
			if inv := def(r, "Reciprocal"); inv != nil {
				if eps, ok = rootMeanSquare(inv.Inputs[0], d); ok {
					return d, eps, true
				}
			}
			if inv := def(r, "Div"); inv != nil {
				if c, isOne := scalar(inv.Inputs[0]); isOne && c == 1 {
					if eps, ok = rootMeanSquare(inv.Inputs[1], d); ok {
						return d, eps, true
					}
				}
			}
			if pow := def(r, "Pow"); pow != nil {
				if c, isHalf := scalar(pow.Inputs[1]); isHalf && c == -0.5 {
					if eps, ok = meanSquare(pow.Inputs[0], d); ok {
						return d, eps, true
					}
				}
			}
		}
	}
	return nil, 0, false
}

func rootMeanSquare(v, d *ir.Value) (eps float64, ok bool) {
	if n := def(v, "Sqrt"); n != nil {
		return meanSquare(n.Inputs[0], d)
	}
	if n := def(v, "Pow"); n != nil {
		if c, isHalf := scalar(n.Inputs[1]); isHalf && c == 0.5 {
			return meanSquare(n.Inputs[0], d)
		}
	}
	return 0, false
}

// meanSquare matches mean(d^2) + eps.
func meanSquare(v, d *ir.Value) (eps float64, ok bool) {
	n := def(v, "Add")
	if n == nil {
		return 0, false
	}
	for i := range 2 {
		if eps, ok = scalar(n.Inputs[i]); !ok {
			continue
		}
		m := meanOf(n.Inputs[1-i])
		if m == nil {
			continue
		}
		if p := def(m, "Pow"); p != nil && p.Inputs[0] == d {
			if e, isTwo := scalar(p.Inputs[1]); isTwo && e == 2 {
				return eps, true
			}
		}
		if p := def(m, "Mul"); p != nil && p.Inputs[0] == d && p.Inputs[1] == d {
			return eps, true
		}
	}
	return 0, false
}

// meanOf returns the value of which v is the mean over the last axis, that being
// kept.
func meanOf(v *ir.Value) *ir.Value {
	n := def(v, "ReduceMean")
	if n == nil || ir.AttrOf(n.Op, "keepdims") != 1 || n.Input(1) == nil || n.Input(1).Const == nil {
		return nil
	}
	axes, rank := n.Inputs[1].Const.Ints(), n.Inputs[0].Type.Rank()
	if len(axes) != 1 || axes[0] != -1 && axes[0] != rank-1 {
		return nil
	}
	return n.Inputs[0]
}

// features returns the parameter of a normalisation: a constant vector as long as
// the last axis of x.
func features(v, x *ir.Value) bool {
	if v == nil || v.Const == nil || v.Const.Rank() != 1 || v.Const.DType() != x.Type.DType || x.Type.Rank() < 1 {
		return false
	}
	return x.Type.Dims[x.Type.Rank()-1] == ir.Size(v.Const.Dim(0))
}

func layerNorm(n *ir.Node, x *ir.Value, eps float64) (bool, error) {
	last := n
	var scale, bias *ir.Value
	if v := n.Outputs[0]; sole(v) {
		if u := v.Uses()[0].Node; u.Op.Kind() == "Mul" && features(other(u, v), x) {
			scale, last = other(u, v), u
			if w := u.Outputs[0]; sole(w) {
				if u := w.Uses()[0].Node; u.Op.Kind() == "Add" && features(other(u, w), x) {
					bias, last = other(u, w), u
				}
			}
		}
	}
	if scale == nil {
		if scale = ones(n, x); scale == nil {
			return false, nil
		}
	}
	o, err := newOp("LayerNormalization", map[string]any{"axis": -1, "epsilon": float32(eps)})
	if err != nil {
		return false, err
	}
	if bias != nil {
		return true, replace(last, o, x, scale, bias)
	}
	return true, replace(last, o, x, scale)
}

func rmsNorm(n *ir.Node, x *ir.Value, eps float64) (bool, error) {
	last := n
	var scale *ir.Value
	if v := n.Outputs[0]; sole(v) {
		if u := v.Uses()[0].Node; u.Op.Kind() == "Mul" && features(other(u, v), x) {
			scale, last = other(u, v), u
		}
	}
	if scale == nil {
		if scale = ones(n, x); scale == nil {
			return false, nil
		}
	}
	o, err := newOp("RMSNormalization", map[string]any{"axis": -1, "epsilon": float32(eps)})
	if err != nil {
		return false, err
	}
	return true, replace(last, o, x, scale)
}

// ones makes a scale of ones, where the length of the last axis is known.
func ones(n *ir.Node, x *ir.Value) *ir.Value {
	if x.Type.Rank() < 1 || !x.Type.Dims[x.Type.Rank()-1].Known() {
		return nil
	}
	t := tensor.New(tensor.F32, x.Type.Dims[x.Type.Rank()-1].Size())
	for i := range t.F32s() {
		t.F32s()[i] = 1
	}
	return n.Graph().NewConst(n.Name+".ones", t)
}
