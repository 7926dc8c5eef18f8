package fuse

import (
	"spc/ir"
	"spc/ir/tensor"
)

// Norms recognises LayerNorm and RMSNorm over the last axis of f32 tensors:
//
//	d = x - mean(x); d / sqrt(mean(d^2) + eps) [* scale [+ bias]]
//	x*f + (bias - mean(x)*f) where f = scale / sqrt(mean(d^2) + eps)
//	x / sqrt(mean(x^2) + eps) [* scale]
//
// The reciprocal of the root may also be a factor.
func Norms(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if !numpy(n) {
			return false, nil
		}
		if n.Op.Kind() == "Add" {
			return scaledNorm(n)
		}
		d, eps, ok := normalised(n)
		if !ok || !isF32(d) {
			return false, nil
		}
		if x := centred(d); x != nil {
			return layerNorm(n, x, eps)
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
			if eps, ok = inverseRoot(n.Inputs[1-i], n.Inputs[i]); ok {
				return n.Inputs[i], eps, true
			}
		}
	}
	return nil, 0, false
}

// inverseRoot matches v = 1 / sqrt(mean(d^2) + eps).
func inverseRoot(v, d *ir.Value) (eps float64, ok bool) {
	if n := def(v, "Reciprocal"); n != nil {
		return rootMeanSquare(n.Inputs[0], d)
	}
	if n := def(v, "Div"); n != nil && isScalar(n.Inputs[0], 1) {
		return rootMeanSquare(n.Inputs[1], d)
	}
	if n := def(v, "Pow"); n != nil && isScalar(n.Inputs[1], -0.5) {
		return meanSquare(n.Inputs[0], d)
	}
	return 0, false
}

// rootMeanSquare matches v = sqrt(mean(d^2) + eps).
func rootMeanSquare(v, d *ir.Value) (eps float64, ok bool) {
	if n := def(v, "Sqrt"); n != nil {
		return meanSquare(n.Inputs[0], d)
	}
	if n := def(v, "Pow"); n != nil && isScalar(n.Inputs[1], 0.5) {
		return meanSquare(n.Inputs[0], d)
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
		if p := def(m, "Pow"); p != nil && alike(p.Inputs[0], d) && isScalar(p.Inputs[1], 2) {
			return eps, true
		}
		if p := def(m, "Mul"); p != nil && alike(p.Inputs[0], d) && alike(p.Inputs[1], d) {
			return eps, true
		}
	}
	return 0, false
}

// alike reports whether two values are one, or the same value less its mean.
func alike(a, b *ir.Value) bool {
	if a == b {
		return true
	}
	x := centred(a)
	return x != nil && x == centred(b)
}

// centred returns the value that is v plus its mean over the last axis.
func centred(v *ir.Value) *ir.Value {
	if n := def(v, "Sub"); n != nil && meanOf(n.Inputs[1]) == n.Inputs[0] {
		return n.Inputs[0]
	}
	return nil
}

// meanOf returns the value of which v is the mean over the last axis, that being
// kept.
func meanOf(v *ir.Value) *ir.Value {
	n := def(v, "ReduceMean")
	if n == nil || ir.AttrOf(n.Op, "keepdims") != 1 || n.Input(1) == nil || n.Input(1).Const == nil || !n.Inputs[0].Type.Ranked {
		return nil
	}
	axes := n.Inputs[1].Const.Ints()
	if len(axes) != 1 || axes[0] != -1 && axes[0] != n.Inputs[0].Type.Rank()-1 {
		return nil
	}
	return n.Inputs[0]
}

// features returns the elements of a constant that varies along the last axis of x
// only, as a vector as long as that; nil where v is something else.
func features(v, x *ir.Value) *tensor.Tensor {
	rank := x.Type.Rank()
	if v == nil || v.Const == nil || v.Const.DType() != x.Type.DType || rank < 1 || v.Const.Rank() < 1 || v.Const.Rank() > rank {
		return nil
	}
	last := v.Const.Dim(v.Const.Rank() - 1)
	if last != v.Const.Len() || x.Type.Dims[rank-1] != ir.Size(last) {
		return nil
	}
	return v.Const.Reshape(last)
}

// follow returns the only reader of v where it is of the given operator and its
// other input varies along the last axis of x only.
func follow(v *ir.Value, kind string, x *ir.Value) (n *ir.Node, vector *tensor.Tensor) {
	if !sole(v) {
		return nil, nil
	}
	n = v.Uses()[0].Node
	if n.Op.Kind() != kind || !numpy(n) {
		return nil, nil
	}
	if vector = features(other(n, v), x); vector == nil {
		return nil, nil
	}
	return n, vector
}

// layerNorm replaces n = d / sqrt(mean(d^2) + eps) for d = x - mean(x), and the
// scale and the bias that follow.
func layerNorm(n *ir.Node, x *ir.Value, eps float64) (bool, error) {
	last := n
	var scale, bias *tensor.Tensor
	if u, s := follow(n.Outputs[0], "Mul", x); u != nil {
		last, scale = u, s
		if u, b := follow(u.Outputs[0], "Add", x); u != nil {
			last, bias = u, b
		}
	}
	return normalise(last, "LayerNormalization", x, eps, scale, bias)
}

// rmsNorm replaces n = x / sqrt(mean(x^2) + eps), and the scale that follows.
func rmsNorm(n *ir.Node, x *ir.Value, eps float64) (bool, error) {
	last := n
	var scale *tensor.Tensor
	if u, s := follow(n.Outputs[0], "Mul", x); u != nil {
		last, scale = u, s
	}
	return normalise(last, "RMSNormalization", x, eps, scale, nil)
}

// scaledNorm replaces n = x*f + (bias - mean(x)*f), f = scale / sqrt(mean(d^2) + eps).
func scaledNorm(n *ir.Node) (bool, error) {
	for i := range 2 {
		xf, sub := def(n.Inputs[i], "Mul"), def(n.Inputs[1-i], "Sub")
		if xf == nil || sub == nil {
			continue
		}
		mf := def(sub.Inputs[1], "Mul")
		if mf == nil {
			continue
		}
		for k := range 2 {
			x, f := xf.Inputs[k], xf.Inputs[1-k]
			if !isF32(x) || !(mf.Inputs[0] == f && meanOf(mf.Inputs[1]) == x || mf.Inputs[1] == f && meanOf(mf.Inputs[0]) == x) {
				continue
			}
			bias := features(sub.Inputs[0], x)
			by := def(f, "Mul")
			if bias == nil || by == nil {
				continue
			}
			for j := range 2 {
				scale := features(by.Inputs[j], x)
				if scale == nil {
					continue
				}
				if eps, ok := deviation(by.Inputs[1-j], x); ok {
					return normalise(n, "LayerNormalization", x, eps, scale, bias)
				}
			}
		}
	}
	return false, nil
}

// deviation matches v = 1 / sqrt(mean((x - mean(x))^2) + eps).
func deviation(v, x *ir.Value) (eps float64, ok bool) {
	for _, m := range x.Uses() {
		if d := m.Node.Outputs[0]; centred(d) == x {
			if eps, ok = inverseRoot(v, d); ok {
				return eps, true
			}
		}
	}
	return 0, false
}

// normalise puts a normalisation of x over its last axis in the place of n. A nil
// scale is one, a nil bias zero.
func normalise(n *ir.Node, kind string, x *ir.Value, eps float64, scale, bias *tensor.Tensor) (bool, error) {
	if !x.Type.Ranked || !n.Outputs[0].Type.Equal(x.Type) { // a scalar may have a higher rank
		return false, nil
	}
	if scale == nil {
		if scale = ones(x); scale == nil {
			return false, nil
		}
	}
	o, err := newOp(kind, map[string]any{"axis": -1, "epsilon": float32(eps)})
	if err != nil {
		return false, err
	}
	g := n.Graph()
	inputs := []*ir.Value{x, g.NewConst(n.Name+".scale", scale)}
	if bias != nil {
		inputs = append(inputs, g.NewConst(n.Name+".bias", bias))
	}
	return true, replace(n, o, inputs...)
}

// ones returns a scale of ones, where the length of the last axis of x is known.
func ones(x *ir.Value) *tensor.Tensor {
	if x.Type.Rank() < 1 || !x.Type.Dims[x.Type.Rank()-1].Known() {
		return nil
	}
	t := tensor.New(tensor.F32, x.Type.Dims[x.Type.Rank()-1].Size())
	for i := range t.F32s() {
		t.F32s()[i] = 1
	}
	return t
}
