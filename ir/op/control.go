package op

import (
	"cmp"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// If evaluates one of two subgraphs, which may read outer values.
type If struct {
	Then *ir.Graph `attr:"then_branch"`
	Else *ir.Graph `attr:"else_branch"`
}

// Kind is If.
func (*If) Kind() string { return "If" }

// Lists says that sequences and optionals are picked.
func (*If) Lists() {}

// Subgraphs returns both branches.
func (o *If) Subgraphs() []*ir.Graph { return []*ir.Graph{o.Then, o.Else} }

// Work is that of the more costly branch.
func (o *If) Work(_, _ []ir.Type) ir.Work {
	a, b := graphWork(o.Then), graphWork(o.Else)
	return ir.Work{FLOPs: max(a.FLOPs, b.FLOPs), Bytes: max(a.Bytes, b.Bytes)}
}

// Infer joins the types of both branches' outputs. Of two branches, one may be
// refused: exporters guard operators that do not fit every shape by a condition.
func (o *If) Infer(c *ir.Infer) error {
	t := c.In(0)
	if shape, ok := t.Shape(); t.DType != tensor.Bool || ok && product(shape) != 1 {
		return c.Errorf("condition is %v, want a single bool", t)
	}
	for _, g := range o.Subgraphs() {
		if g == nil {
			return c.Errorf("a branch is missing")
		}
		if len(g.Inputs) > 0 {
			return c.Errorf("branch %s has %d inputs, want none", g.Name, len(g.Inputs))
		}
		if len(g.Outputs) != c.Outputs() {
			return c.Errorf("branch %s has %d outputs, want %d", g.Name, len(g.Outputs), c.Outputs())
		}
		g.Refused = c.Subgraph(g)
	}
	branches := o.Subgraphs()
	if picked, ok := intsOf(c, 0); ok && picked[0] != 0 {
		branches = branches[:1]
	} else if ok {
		branches = branches[1:]
	}
	branches = slices.DeleteFunc(branches, func(g *ir.Graph) bool { return g.Refused != nil })
	if len(branches) == 0 {
		return cmp.Or(o.Then.Refused, o.Else.Refused)
	}
	for i := range c.Outputs() {
		v := branches[0].Outputs[i]
		if len(branches) == 1 {
			c.Set(i, v.Type)
			c.SetElems(i, v.Elems)
			continue
		}
		w := branches[1].Outputs[i]
		if v.Type.DType != w.Type.DType {
			return c.Errorf("branches give %v and %v", v.Type, w.Type)
		}
		c.Set(i, ir.Join(v.Type, w.Type, c.Fresh))
	}
	return nil
}

// Eval runs the branch that the condition picks.
func (o *If) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	yes, err := truth(in[0])
	if err != nil {
		return nil, err
	}
	g := o.Else
	if yes {
		g = o.Then
	}
	if g.Refused != nil {
		return nil, g.Refused
	}
	return c.Run(g, nil)
}
