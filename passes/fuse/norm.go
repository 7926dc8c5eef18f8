package fuse

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Norms recognises LayerNorm and RMSNorm over the last axes of f32 tensors:
//
//	d = x - mean(x); d / sqrt(mean(d^2) + eps) [* scale [+ bias]]
//	x*f + (bias - mean(x)*f) where f = scale / sqrt(mean(d^2) + eps)
//	x / sqrt(mean(x^2) + eps) [* scale]
//
// The reciprocal of the root may also be a factor. InstanceNorm of groups of channels
// becomes GroupNorm, and either takes up factors and terms of channels behind it.
func Norms(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if !numpy(n) {
			return false, nil
		}
		for _, f := range []func(*ir.Node) (bool, error){groupNorm, affineNorm} {
			if done, err := f(n); done || err != nil {
				return done, err
			}
		}
		if n.Op.Kind() == "Add" {
			return scaledNorm(n)
		}
		d, f, ok := normalised(n)
		if !ok || !isF32(d) {
			return false, nil
		}
		if x, axes := centred(d); axes == f.axes {
			return layerNorm(n, x, f)
		}
		return rmsNorm(n, d, f)
	})
}

// form is what norms differ in beside their parameters.
type form struct {
	eps  float64
	axes int // the number of last axes
}

// normalised matches n = d / sqrt(mean(d^2) + eps).
func normalised(n *ir.Node) (d *ir.Value, f form, ok bool) {
	switch n.Op.Kind() {
	case "Div":
		f, ok = rootMeanSquare(n.Inputs[1], n.Inputs[0])
		return n.Inputs[0], f, ok
	case "Mul":
		for i := range 2 {
			if f, ok = inverseRoot(n.Inputs[1-i], n.Inputs[i]); ok {
				return n.Inputs[i], f, true
			}
		}
	}
	return nil, f, false
}

// inverseRoot matches v = 1 / sqrt(mean(d^2) + eps).
func inverseRoot(v, d *ir.Value) (f form, ok bool) {
	if n := def(v, "Reciprocal"); n != nil {
		return rootMeanSquare(n.Inputs[0], d)
	}
	if n := def(v, "Div"); n != nil && isScalar(n.Inputs[0], 1) {
		return rootMeanSquare(n.Inputs[1], d)
	}
	if n := def(v, "Pow"); n != nil && isScalar(n.Inputs[1], -0.5) {
		return meanSquare(n.Inputs[0], d)
	}
	return f, false
}

// rootMeanSquare matches v = sqrt(mean(d^2) + eps).
func rootMeanSquare(v, d *ir.Value) (f form, ok bool) {
	if n := def(v, "Sqrt"); n != nil {
		return meanSquare(n.Inputs[0], d)
	}
	if n := def(v, "Pow"); n != nil && isScalar(n.Inputs[1], 0.5) {
		return meanSquare(n.Inputs[0], d)
	}
	return f, false
}

// meanSquare matches mean(d^2) + eps, of which 16-bit floats may have left no eps.
func meanSquare(v, d *ir.Value) (f form, ok bool) {
	if f.axes, ok = meanOfSquares(v, d); ok {
		return f, true
	}
	n := def(v, "Add")
	if n == nil {
		return f, false
	}
	for i := range 2 {
		if f.eps, ok = scalar(n.Inputs[i]); !ok {
			continue
		}
		if f.axes, ok = meanOfSquares(n.Inputs[1-i], d); ok {
			return f, true
		}
	}
	return f, false
}

// meanOfSquares matches mean(d^2) and returns how many of the last axes it is of.
func meanOfSquares(v, d *ir.Value) (axes int, ok bool) {
	m, axes := meanOf(v)
	if axes == 0 {
		return 0, false
	}
	if p := def(m, "Pow"); p != nil && alike(p.Inputs[0], d) && isScalar(p.Inputs[1], 2) {
		return axes, true
	}
	p := def(m, "Mul")
	return axes, p != nil && alike(p.Inputs[0], d) && alike(p.Inputs[1], d)
}

// alike reports whether two values are one, or the same value less its mean.
func alike(a, b *ir.Value) bool {
	if a == b {
		return true
	}
	x, axes := centred(a)
	y, same := centred(b)
	return axes > 0 && x == y && axes == same
}

// centred returns the value that is v plus its mean over the last axes; none where v
// is something else.
func centred(v *ir.Value) (x *ir.Value, axes int) {
	if n := def(v, "Sub"); n != nil {
		if x, axes = meanOf(n.Inputs[1]); axes > 0 && x == n.Inputs[0] {
			return x, axes
		}
	}
	return nil, 0
}

// meanOf returns the value of which v is the mean over the last axes, which are kept;
// none where v is something else.
func meanOf(v *ir.Value) (x *ir.Value, axes int) {
	n := def(v, "ReduceMean")
	if n == nil || ir.AttrOf(n.Op, "keepdims") != 1 || n.Input(1) == nil || n.Input(1).Const == nil || !n.Inputs[0].Type.Ranked {
		return nil, 0
	}
	list, rank := n.Inputs[1].Const.Ints(), n.Inputs[0].Type.Rank()
	for i, a := range list {
		if a >= 0 {
			list[i] -= rank
		}
	}
	slices.Sort(list)
	for i, a := range list {
		if a != i-len(list) {
			return nil, 0
		}
	}
	return n.Inputs[0], len(list)
}

// features returns the elements of a constant that varies along the last axes of x
// only, as a tensor of their shape; nil where v is something else.
func features(v, x *ir.Value, axes int) *tensor.Tensor {
	rank := x.Type.Rank()
	if v == nil || v.Const == nil || v.Const.DType() != x.Type.DType || rank < axes || v.Const.Rank() < axes || v.Const.Rank() > rank {
		return nil
	}
	shape := v.Const.Shape()[v.Const.Rank()-axes:]
	if elems(shape) != v.Const.Len() || !slices.Equal(x.Type.Dims[rank-axes:], ir.Sizes(shape...)) {
		return nil
	}
	return v.Const.Reshape(shape...)
}

// follow returns the only reader of v where it is of the given operator and its
// other input varies along the last axes of x only.
func follow(v *ir.Value, kind string, x *ir.Value, axes int) (n *ir.Node, params *tensor.Tensor) {
	if !sole(v) {
		return nil, nil
	}
	n = v.Uses()[0].Node
	if n.Op.Kind() != kind || !numpy(n) {
		return nil, nil
	}
	if params = features(other(n, v), x, axes); params == nil {
		return nil, nil
	}
	return n, params
}

// layerNorm replaces n = d / sqrt(mean(d^2) + eps) for d = x - mean(x), and the
// scale and the bias that follow.
func layerNorm(n *ir.Node, x *ir.Value, f form) (bool, error) {
	last := n
	var scale, bias *tensor.Tensor
	if u, s := follow(n.Outputs[0], "Mul", x, f.axes); u != nil {
		last, scale = u, s
		if u, b := follow(u.Outputs[0], "Add", x, f.axes); u != nil {
			last, bias = u, b
		}
	}
	return normalise(last, "LayerNormalization", x, f, scale, bias)
}

// rmsNorm replaces n = x / sqrt(mean(x^2) + eps), and the scale that follows.
func rmsNorm(n *ir.Node, x *ir.Value, f form) (bool, error) {
	last := n
	var scale *tensor.Tensor
	if u, s := follow(n.Outputs[0], "Mul", x, f.axes); u != nil {
		last, scale = u, s
	}
	return normalise(last, "RMSNormalization", x, f, scale, nil)
}

// scaledNorm replaces n = x*f + (bias - mean(x)*f), f = scale / sqrt(mean(d^2) + eps).
func scaledNorm(n *ir.Node) (bool, error) {
	for i := range 2 {
		product, sub := def(n.Inputs[i], "Mul"), def(n.Inputs[1-i], "Sub")
		if product == nil || sub == nil {
			continue
		}
		for k := range 2 {
			x, factor := product.Inputs[k], product.Inputs[1-k]
			by := def(factor, "Mul")
			axes := timesMean(sub.Inputs[1], x, factor)
			if by == nil || axes == 0 || !isF32(x) {
				continue
			}
			bias := features(sub.Inputs[0], x, axes)
			for j := range 2 {
				scale := features(by.Inputs[j], x, axes)
				if f, ok := deviation(by.Inputs[1-j], x); ok && f.axes == axes && scale != nil && bias != nil {
					return normalise(n, "LayerNormalization", x, f, scale, bias)
				}
			}
		}
	}
	return false, nil
}

// timesMean matches v = mean(x) * factor and returns over how many axes the mean is
// taken, 0 where v is something else.
func timesMean(v, x, factor *ir.Value) int {
	n := def(v, "Mul")
	if n == nil {
		return 0
	}
	for i := range 2 {
		if m, axes := meanOf(n.Inputs[i]); m == x && n.Inputs[1-i] == factor {
			return axes
		}
	}
	return 0
}

// deviation matches v = 1 / sqrt(mean((x - mean(x))^2) + eps).
func deviation(v, x *ir.Value) (f form, ok bool) {
	for _, u := range x.Uses() {
		d := u.Node.Outputs[0]
		if y, axes := centred(d); axes > 0 && y == x {
			if f, ok = inverseRoot(v, d); ok && f.axes == axes {
				return f, true
			}
		}
	}
	return f, false
}

// normalise puts a normalisation of x over its last axes in the place of n. A nil
// scale is one, a nil bias zero.
func normalise(n *ir.Node, kind string, x *ir.Value, f form, scale, bias *tensor.Tensor) (bool, error) {
	if !x.Type.Ranked || !n.Outputs[0].Type.Equal(x.Type) { // a scalar may have a higher rank
		return false, nil
	}
	if scale == nil {
		if scale = ones(x, f.axes); scale == nil {
			return false, nil
		}
	}
	o, err := newOp(kind, map[string]any{"axis": -f.axes, "epsilon": float32(f.eps)})
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

// onesSize bounds the elements of ones.
const onesSize = 1 << 16

// ones returns a scale of ones, where the lengths of the last axes of x are known and
// it is small.
func ones(x *ir.Value, axes int) *tensor.Tensor {
	shape, ok := ir.Type{Dims: x.Type.Dims[x.Type.Rank()-axes:], Ranked: true}.Shape()
	if k := elems(shape); !ok || k < 0 || k > onesSize {
		return nil
	}
	t := tensor.New(tensor.F32, shape...)
	for i := range t.F32s() {
		t.F32s()[i] = 1
	}
	return t
}
