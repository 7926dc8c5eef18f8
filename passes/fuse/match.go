// Package fuse rewrites patterns of nodes into fewer: compositions that exporters
// spell out become one operator, and what follows a product becomes part of it.
// Each rewrite keeps the function that the graph computes, up to rounding, and
// leaves the types of all values inferred. The package imports ir and ir/op.
package fuse

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// def returns the node that defines v when it is of the given operator, else nil.
func def(v *ir.Value, kind string) *ir.Node {
	if v == nil || v.Def == nil || v.Def.Op.Kind() != kind || !numpy(v.Def) {
		return nil
	}
	return v.Def
}

// numpy reports whether n broadcasts by numpy's rules, or not at all: opsets below 7 may
// align an axis.
func numpy(n *ir.Node) bool {
	_, is := n.Op.(op.Elementwise)
	return !is || ir.AttrOf(n.Op, "axis") == nil
}

// sole reports whether v is read exactly once, by a node of its own graph.
func sole(v *ir.Value) bool {
	return len(v.Uses()) == 1 && v.Uses()[0].Node.Graph() == v.Graph() && !v.IsOutput()
}

// scalar returns the value of a floating-point constant with one element.
func scalar(v *ir.Value) (float64, bool) {
	if v == nil || v.Const == nil || v.Const.Len() != 1 || !v.Const.DType().IsFloat() {
		return 0, false
	}
	return v.Const.Float64s()[0], true
}

// isScalar reports whether v is a constant with the one element want.
func isScalar(v *ir.Value, want float64) bool {
	s, ok := scalar(v)
	return ok && s == want
}

// rounding is how far from each other, relatively, two numbers may be that
// exporters mean to be the same in a graph of the element type: a few decimal
// digits, or what the type holds.
func rounding(dt tensor.DType) float64 {
	switch dt {
	case tensor.F16:
		return 1e-3
	case tensor.BF16:
		return 8e-3
	case tensor.F64:
		return 1e-15
	}
	return 2e-5
}

// near reports whether a is b as exporters round it for the element type.
func near(a, b float64, dt tensor.DType) bool {
	return math.Abs(a-b) <= rounding(dt)*math.Abs(b)
}

// spelt is the type of floats in which the constants between v and x seem to have been written, which may be
// of 16 bits where the graph's floats, of type dt, were.
func spelt(v, x *ir.Value, dt tensor.DType) tensor.DType {
	for _, half := range []tensor.DType{tensor.BF16, tensor.F16} {
		if dt == tensor.F32 && holds(half, v, x, lookThrough) {
			return half
		}
	}
	return dt
}

// holds reports whether a type holds all scalars between v and x, so many operators deep.
func holds(dt tensor.DType, v, x *ir.Value, depth int) bool {
	if s, ok := scalar(v); ok {
		return s == v.Const.To(dt).Float64s()[0]
	}
	if v == x || v == nil || v.Def == nil || depth == 0 {
		return true
	}
	return !slices.ContainsFunc(v.Def.Inputs, func(in *ir.Value) bool { return !holds(dt, in, x, depth-1) })
}

// other returns the input of a binary node that is not v.
func other(n *ir.Node, v *ir.Value) *ir.Value {
	if n.Inputs[0] == v {
		return n.Inputs[1]
	}
	return n.Inputs[0]
}

// product flattens the multiplications and divisions by scalars that make v, as
// far as their results are read by nobody else, into factors and one scalar.
func product(v *ir.Value) (factors []*ir.Value, scale float64) {
	scale = 1
	var walk func(v *ir.Value, top bool)
	walk = func(v *ir.Value, top bool) {
		if s, ok := scalar(v); ok {
			scale *= s
			return
		}
		if top || sole(v) {
			if n := def(v, "Mul"); n != nil {
				walk(n.Inputs[0], false)
				walk(n.Inputs[1], false)
				return
			}
			if n := def(v, "Div"); n != nil {
				if s, ok := scalar(n.Inputs[1]); ok && s != 0 {
					walk(n.Inputs[0], false)
					scale /= s
					return
				}
			}
		}
		factors = append(factors, v)
	}
	walk(v, true)
	return factors, scale
}

// affine writes v as a*base + b with scalars a and b, stripping as much as it can.
func affine(v *ir.Value) (base *ir.Value, a, b float64) {
	a = 1
	for {
		n := v.Def
		if n == nil || !numpy(n) {
			return v, a, b
		}
		kind := n.Op.Kind()
		if kind == "Neg" {
			a, v = -a, n.Inputs[0]
			continue
		}
		if _, ok := n.Op.(*op.Binary); !ok {
			return v, a, b
		}
		x, left := n.Inputs[0], false
		s, ok := scalar(n.Inputs[1])
		if !ok {
			x, left = n.Inputs[1], true
			if s, ok = scalar(n.Inputs[0]); !ok {
				return v, a, b
			}
		}
		switch {
		case kind == "Add":
			b += a * s
		case kind == "Sub" && left:
			b += a * s
			a = -a
		case kind == "Sub":
			b -= a * s
		case kind == "Mul":
			a *= s
		case kind == "Div" && !left && s != 0:
			a /= s
		default: // s / x, or another function
			return v, a, b
		}
		v = x
	}
}

// poly holds the coefficients of the powers of a value from 0 on.
type poly [4]float64

// polynomial writes v as a polynomial in x of degree 3 at most; ok is false where
// it is none. depth bounds the operators that are looked through.
func polynomial(v, x *ir.Value, depth int) (p poly, ok bool) {
	if v == x {
		return poly{0, 1}, true
	}
	if s, ok := scalar(v); ok {
		return poly{s}, true
	}
	if v == nil || v.Def == nil || depth == 0 || !numpy(v.Def) {
		return p, false
	}
	n := v.Def
	kind := n.Op.Kind()
	if kind == "Neg" {
		if p, ok = polynomial(n.Inputs[0], x, depth-1); !ok {
			return p, false
		}
		return p.times(poly{-1})
	}
	if op.Operands(n) != 2 {
		return p, false
	}
	if p, ok = polynomial(n.Inputs[0], x, depth-1); !ok {
		return p, false
	}
	q, ok := polynomial(n.Inputs[1], x, depth-1)
	if !ok {
		return p, false
	}
	switch kind {
	case "Sub":
		q, _ = q.times(poly{-1})
		fallthrough
	case "Add":
		for i := range p {
			p[i] += q[i]
		}
		return p, true
	case "Mul":
		return p.times(q)
	}
	c, constant := q[0], q == poly{q[0]}
	if kind == "Div" {
		if !constant || c == 0 {
			return p, false
		}
		return p.times(poly{1 / c})
	}
	if kind != "Pow" || !constant || c != math.Trunc(c) || c < 1 || c > 3 {
		return p, false
	}
	power := p
	for range int(c) - 1 {
		if power, ok = power.times(p); !ok {
			return p, false
		}
	}
	return power, true
}

// times multiplies polynomials; ok is false where the degree exceeds 3.
func (p poly) times(q poly) (r poly, ok bool) {
	for i, a := range p {
		for j, b := range q {
			switch {
			case a == 0 || b == 0:
			case i+j >= len(r):
				return r, false
			default:
				r[i+j] += a * b
			}
		}
	}
	return r, true
}

// near reports whether the coefficients are those of q as exporters round them.
func (p poly) near(q poly, dt tensor.DType) bool {
	for i := range p {
		if !near(p[i], q[i], dt) {
			return false
		}
	}
	return true
}

// replace makes a new node of the operator in the place of n and has everybody
// read it instead.
func replace(n *ir.Node, o ir.Op, inputs ...*ir.Value) error {
	v := n.Outputs[0]
	m := n.Graph().InsertBefore(n, n.Name+".fused", o, inputs, v.Name+".fused")
	if err := m.Infer(); err != nil {
		return err
	}
	n.Graph().ReplaceUses(v, m.Outputs[0])
	return nil
}

// builder adds nodes before one, whose name theirs begin with.
type builder struct{ at *ir.Node }

func (b builder) constant(name string, t *tensor.Tensor) *ir.Value {
	return b.at.Graph().NewConst(b.at.Name+"."+name, t)
}

func (b builder) add(name, kind string, attrs map[string]any, inputs ...*ir.Value) (*ir.Value, error) {
	o, err := newOp(kind, attrs)
	if err != nil {
		return nil, err
	}
	name = b.at.Name + "." + name
	n := b.at.Graph().InsertBefore(b.at, name, o, inputs, name+".out")
	return n.Outputs[0], n.Infer()
}

// reshape adds a Reshape, or, of a constant, what that makes of it.
func (b builder) reshape(name string, x *ir.Value, shape []int) (*ir.Value, error) {
	if x.Const != nil && !slices.ContainsFunc(shape, func(d int) bool { return d < 1 }) {
		return b.constant(name, x.Const.Reshape(shape...)), nil
	}
	return b.add(name, "Reshape", nil, x, b.constant(name+".shape", tensor.Ints(shape...)))
}

// forward has everybody read v in the place of n's output, and removes n.
func forward(n *ir.Node, v *ir.Value) {
	g := n.Graph()
	g.ReplaceUses(n.Outputs[0], v)
	g.Remove(n)
}

// newOp makes an operator with attributes.
func newOp(kind string, attrs map[string]any) (ir.Op, error) {
	o, err := op.New(kind)
	if err != nil {
		return nil, err
	}
	for k, v := range attrs {
		if err := ir.SetAttr(o, k, v); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// rewrite calls f for each node of g and its subgraphs that stands when its turn
// comes, and returns how often it was true. Types are inferred anew afterwards.
func rewrite(g *ir.Graph, f func(n *ir.Node) (bool, error)) (int, error) {
	count := 0
	for sub := range g.All() {
		if refused(sub) {
			continue
		}
		for _, n := range slices.Clone(sub.Nodes) {
			if n.Graph() != sub {
				continue
			}
			done, err := f(n)
			if err != nil {
				return count, err
			}
			if done {
				count++
			}
		}
	}
	if count == 0 {
		return 0, nil
	}
	return count, g.Infer()
}

// refused reports whether inference refuses g or a graph around it, so that types
// in it mean nothing.
func refused(g *ir.Graph) bool {
	for ; g.Owner != nil; g = g.Owner.Graph() {
		if g.Refused != nil {
			return true
		}
	}
	return false
}

// isF32 reports whether v is an f32 tensor.
func isF32(v *ir.Value) bool { return v != nil && v.Type.DType == tensor.F32 }

// equal reports whether two values are certain to be of the same shape and element
// type: an unknown dimension is the same as another of its name only.
func equal(x, y *ir.Value) bool {
	return x.Type.DType == y.Type.DType && x.Type.Ranked && y.Type.Ranked && slices.Equal(x.Type.Dims, y.Type.Dims)
}

// spare reports whether nobody reads the outputs of n but the first.
func spare(n *ir.Node) bool {
	return !slices.ContainsFunc(n.Outputs[1:], func(v *ir.Value) bool {
		return v != nil && (len(v.Uses()) > 0 || v.IsOutput())
	})
}
