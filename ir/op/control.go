package op

import (
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

// Subgraphs returns both branches.
func (o *If) Subgraphs() []*ir.Graph { return []*ir.Graph{o.Then, o.Else} }

// Work is that of the more costly branch.
func (o *If) Work(_, _ []ir.Type) ir.Work {
	a, b := graphWork(o.Then), graphWork(o.Else)
	return ir.Work{FLOPs: max(a.FLOPs, b.FLOPs), Bytes: max(a.Bytes, b.Bytes)}
}

// Infer joins the types of both branches' outputs. A branch that a known
// condition does not pick may be in error: exporters leave operators in it that
// do not fit the shapes at hand.
func (o *If) Infer(c *ir.Infer) error {
	t := c.In(0)
	if shape, ok := t.Shape(); t.DType != tensor.Bool || ok && product(shape) != 1 {
		return c.Errorf("condition is %v, want a single bool", t)
	}
	picked, known := intsOf(c, 0)
	var taken *ir.Graph
	for i, g := range o.Subgraphs() {
		if g == nil {
			return c.Errorf("a branch is missing")
		}
		if len(g.Outputs) != c.Outputs() {
			return c.Errorf("branch %s has %d outputs, want %d", g.Name, len(g.Outputs), c.Outputs())
		}
		dead := known && (picked[0] != 0) != (i == 0)
		if err := c.Subgraph(g); err != nil && !dead {
			return err
		}
		if !dead {
			taken = g
		}
	}
	for i := range c.Outputs() {
		if known {
			v := taken.Outputs[i]
			c.Set(i, v.Type)
			c.SetElems(i, v.Elems)
			continue
		}
		a, b := o.Then.Outputs[i].Type, o.Else.Outputs[i].Type
		if a.DType != b.DType {
			return c.Errorf("branches give %v and %v", a, b)
		}
		c.Set(i, joinTypes(c, a, b))
	}
	return nil
}

// joinTypes returns what holds of a value of one element type that has one type or
// the other.
func joinTypes(c *ir.Infer, a, b ir.Type) ir.Type {
	if !a.Ranked || !b.Ranked || len(a.Dims) != len(b.Dims) {
		return ir.Unranked(a.DType)
	}
	dims := make([]ir.Dim, len(a.Dims))
	for i, d := range a.Dims {
		if dims[i] = d; d != b.Dims[i] {
			dims[i] = c.Fresh()
		}
	}
	return ir.Of(a.DType, dims...)
}

// Eval runs the branch that the condition picks.
func (o *If) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	yes, err := truth(in[0])
	if err != nil {
		return nil, err
	}
	if yes {
		return c.Run(o.Then, nil)
	}
	return c.Run(o.Else, nil)
}
