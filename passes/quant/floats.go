package quant

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
)

// Halves tells what the nodes of a model in 16-bit floats were, by their names, before WidenFloats.
type Halves map[string]half

// half is what a node was.
type half struct {
	dt  tensor.DType // of 16 bits, in which it computed; Undefined where it did not
	f32 []int        // the inputs that were f32
}

// isHalf reports whether floats of a type take 16 bits.
func isHalf(dt tensor.DType) bool { return dt == tensor.F16 || dt == tensor.BF16 }

// WidenFloats has the nodes of g compute in f32 that computed in 16-bit floats, and constants be f32. Inputs and
// outputs of graphs keep their types, behind Casts, and so does what nodes read and make that f32 cannot stand for: lists,
// bits, and results of operators that name their type. What a node makes is not rounded to 16 bits before others compute with it,
// unless it decides on integers or bools. It returns nil where there are no such floats.
func WidenFloats(g *ir.Graph) (Halves, error) {
	h, some := Halves{}, false
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			w := was(n)
			h[n.Name] = w
			some = some || w.dt != tensor.Undefined
		}
	}
	if !some {
		return nil, nil
	}
	r := &retyper{halves: h, wide: true, as: map[version]*ir.Value{}}
	return h, r.run(g)
}

// was tells what a node is. A Cast that only widens a constant stays as it is, see Widens.
func was(n *ir.Node) (h half) {
	if n.Op.Kind() == "Cast" && narrows(n) {
		return h
	}
	for _, v := range slices.Concat(n.Outputs, n.Inputs) {
		if v != nil && h.dt == tensor.Undefined && isHalf(v.Type.DType) {
			h.dt = v.Type.DType
		}
	}
	for i, v := range n.Inputs {
		if v != nil && v.Type.DType == tensor.F32 {
			h.f32 = append(h.f32, i)
		}
	}
	return h
}

// Narrow undoes WidenFloats: nodes compute in 16-bit floats that did, and those that passes put
// between them.
func (h Halves) Narrow(g *ir.Graph) error {
	return (&retyper{halves: h, as: map[version]*ir.Value{}}).run(g)
}

// Type is the type of 16 bits in which the first node computed that did.
func (h Halves) Type(g *ir.Graph) tensor.DType {
	for _, n := range g.Nodes {
		if dt := h[n.Name].dt; dt != tensor.Undefined {
			return dt
		}
	}
	return tensor.Undefined
}

// Round rounds what passes made of the weights of g that were 16-bit floats to such again, where these
// hold it.
func (h Halves) Round(g *ir.Graph) int {
	count := 0
	for _, u := range g.WeightUses() {
		w, dt := u.Value.Const, h[u.Node.Name].dt
		if dt == tensor.Undefined || w == nil || w.DType() != tensor.F32 {
			continue
		}
		back := w.To(dt).To(tensor.F32)
		if u.Value.Grid == nil && !w.Equal(back) && misfit(w.F32s(), back.F32s(), dt) == "" {
			u.Value.SetConst(back)
			count++
		}
	}
	return count
}

// retyper has nodes compute in another type of floats: f32 in place of those of 16 bits, or these
// in place of f32.
type retyper struct {
	halves Halves
	wide   bool // to f32
	as     map[version]*ir.Value
	consts []version // those of constants, in their order
}

// version is a value as another type.
type version struct {
	v       *ir.Value
	dt      tensor.DType
	rounded bool // to the type that it has
}

func (r *retyper) run(g *ir.Graph) error {
	if err := r.graph(g); err != nil {
		return err
	}
	fold.Dead(g)
	for _, at := range r.consts {
		if len(at.v.Uses()) == 0 && !at.v.IsOutput() {
			swapNames(r.as[at], at.v)
		}
	}
	return g.Infer()
}

func (r *retyper) graph(g *ir.Graph) error {
	for _, n := range slices.Clone(g.Nodes) {
		subs := ir.Subgraphs(n.Op)
		for _, sub := range subs {
			if sub.Refused == nil {
				if err := r.graph(sub); err != nil {
					return err
				}
			}
		}
		if len(subs) == 0 && ir.Pure(n.Op) {
			if err := r.node(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// to returns the type in which a node is to compute, Undefined where it stays.
func (r *retyper) to(n *ir.Node) tensor.DType {
	w, old := r.halves[n.Name]
	switch {
	case r.wide && w.dt != tensor.Undefined:
		return tensor.F32
	case r.wide || old:
		return w.dt
	case n.Op.Kind() == "Cast":
		return tensor.Undefined
	}
	for _, v := range n.Inputs {
		if x := castOf(v); x != nil && isHalf(x.Type.DType) {
			return x.Type.DType
		}
	}
	return tensor.Undefined
}

// takes reports whether input i of a node is to have another type.
func (r *retyper) takes(n *ir.Node, i int) bool {
	v := n.Inputs[i]
	return v != nil && r.replaces(v.Type.DType) && (r.wide || !slices.Contains(r.halves[n.Name].f32, i))
}

// replaces reports whether another type is to take the place of dt.
func (r *retyper) replaces(dt tensor.DType) bool {
	if r.wide {
		return isHalf(dt)
	}
	return dt == tensor.F32
}

// node has a node compute in another type, unless it then would not do the same.
func (r *retyper) node(n *ir.Node) error {
	dt := r.to(n)
	if dt == tensor.Undefined {
		r.join(n)
		return nil
	}
	types := n.OutputTypes()
	rounded := r.wide && n.Op.Kind() != "Shape" && slices.ContainsFunc(types, func(t ir.Type) bool {
		return t.DType != tensor.Undefined && !t.DType.IsFloat()
	})
	old, in := slices.Clone(n.Inputs), slices.Clone(n.Inputs)
	for i, v := range old {
		if !r.takes(n, i) {
			continue
		}
		w, err := r.version(version{v, dt, rounded})
		if w == nil || err != nil {
			return err
		}
		in[i] = w
	}
	if slices.Equal(in, old) {
		return nil
	}
	if !setInputs(n, in) || !r.fits(n, types, dt) {
		setInputs(n, old)
		return nil
	}
	for i, v := range n.Outputs {
		if v == nil || v.Type.DType == types[i].DType {
			continue
		}
		back, err := castTo(v, types[i].DType)
		if err != nil {
			return err
		}
		w := back.Outputs[0]
		n.Graph().ReplaceUses(v, w)
		back.SetInput(0, v)
		if w.IsOutput() { // whose name no other value may have in ONNX
			v.Name, w.Name = w.Name, v.Name
		}
	}
	return nil
}

// join takes away a Cast back to the type that a Cast made f32.
func (r *retyper) join(n *ir.Node) {
	if x := castOf(castOf(n.Outputs[0])); x != nil && !r.wide && isHalf(x.Type.DType) && x.Type.DType == n.Outputs[0].Type.DType {
		n.Graph().ReplaceUses(n.Outputs[0], x)
	}
}

// setInputs has a node read other values, and reports whether it takes them.
func setInputs(n *ir.Node, in []*ir.Value) bool {
	for i, v := range in {
		n.SetInput(i, v)
	}
	return n.Infer() == nil
}

// fits reports whether the outputs of a node have the types that they had, or dt in the place of those that
// change.
func (r *retyper) fits(n *ir.Node, types []ir.Type, dt tensor.DType) bool {
	for i, v := range n.Outputs {
		if v != nil && v.Type.DType != types[i].DType && (v.Type.DType != dt || !r.replaces(types[i].DType)) {
			return false
		}
	}
	return true
}

// castOf returns what v is a Cast of, nil where it is none.
func castOf(v *ir.Value) *ir.Value {
	if v != nil && v.Def != nil && v.Def.Op.Kind() == "Cast" {
		return v.Def.Inputs[0]
	}
	return nil
}

// castTo puts a Cast behind v.
func castTo(v *ir.Value, dt tensor.DType) (*ir.Node, error) {
	o := newOp("Cast").(*op.Cast)
	o.To = dt
	return insertAfter(v, v.Name+".cast", o, []*ir.Value{v}, v.Name+"."+dt.String())
}

// version returns a value as another type, nil where that does not hold a constant.
func (r *retyper) version(at version) (*ir.Value, error) {
	at.rounded = at.rounded && at.v.Const == nil
	if v := r.as[at]; v != nil {
		return v, nil
	}
	v, x := at.v, castOf(at.v)
	if x != nil && !at.rounded && x.Type.DType == at.dt {
		return x, nil
	}
	var made *ir.Value
	if v.Const != nil {
		c := v.Const.To(at.dt)
		if !r.wide && slices.ContainsFunc(c.Float64s(), func(e float64) bool { return e-e != 0 }) && finite(v.Const) {
			return nil, nil
		}
		made = v.Graph().NewConst(v.Name, c)
		r.consts = append(r.consts, at)
	} else {
		if x != nil && !at.rounded && (x.Type.DType.IsInt() || x.Type.DType == tensor.Bool) {
			v = x
		}
		n, err := castTo(v, at.dt)
		if err != nil {
			return nil, err
		}
		made = n.Outputs[0]
	}
	r.as[at] = made
	return made, nil
}
