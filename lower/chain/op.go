// Package chain makes one node of elementwise operators of which each alone reads what those before it give: a
// Chain, which a device computes in one pass over memory. It imports ir, ir/op and ir/tensor.
package chain

import (
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Chain computes the nodes of a graph, of which the last gives the output, and the first may be another than an operator of elements.
type Chain struct {
	// Body has the node's inputs as its inputs, and its output as its one output. It is a graph of its own, which
	// does not change. Names end in its own behind a dot, so that they are no others.
	Body *ir.Graph `attr:"body"`
}

// Kind is Chain.
func (*Chain) Kind() string { return "Chain" }

// Infer says that the types stay, which chains were made for.
func (c *Chain) Infer(i *ir.Infer) error {
	for k, v := range c.Body.Inputs {
		have, okHave := i.In(k).Shape()
		want, okWant := v.Type.Shape()
		if !okHave || !okWant || !slices.Equal(have, want) || i.In(k).DType != v.Type.DType {
			return i.Errorf("input %d of the chain is %v, want %v", k, i.In(k), v.Type)
		}
	}
	i.Set(0, c.Body.Outputs[0].Type)
	return nil
}

// Eval evaluates the nodes one after the other.
func (c *Chain) Eval(e *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	values := map[*ir.Value]*tensor.Tensor{}
	for i, v := range c.Body.Inputs {
		values[v] = in[i]
	}
	for _, n := range c.Body.Nodes {
		args := make([]*tensor.Tensor, len(n.Inputs))
		for i, v := range n.Inputs {
			switch {
			case v == nil:
			case v.Const != nil:
				args[i] = v.Const
			default:
				args[i] = values[v]
			}
		}
		out, err := n.Op.Eval(&ir.Eval{Outputs: 1, Sizes: e.Sizes}, args)
		if err != nil {
			return nil, err
		}
		values[n.Outputs[0]] = out[0]
	}
	return []*tensor.Tensor{values[c.Body.Outputs[0]]}, nil
}

// Work is that of the nodes, with the memory of inputs and output alone.
func (c *Chain) Work(in, out []ir.Type) ir.Work {
	var w ir.Work
	for _, n := range c.Body.Nodes {
		types := make([]ir.Type, len(n.Inputs))
		for i, v := range n.Inputs {
			if v != nil {
				types[i] = v.Type
			}
		}
		w.FLOPs += n.Op.Work(types, n.OutputTypes()).FLOPs
	}
	for _, t := range slices.Concat(in, out) {
		if s, ok := t.Shape(); ok {
			if n, err := tensor.Elems(s); err == nil {
				w.Bytes += float64(n * t.DType.Size())
			}
		}
	}
	return w
}

// Members are the nodes that node n computes: those of a chain, or itself.
func Members(n *ir.Node) []*ir.Node {
	if c, ok := n.Op.(*Chain); ok {
		return c.Body.Nodes
	}
	return []*ir.Node{n}
}

// Head is the node that a chain begins with where that is no operator of elements, else nil.
func Head(n *ir.Node) *ir.Node {
	if c, ok := n.Op.(*Chain); ok && !Elementwise(c.Body.Nodes[0]) {
		return c.Body.Nodes[0]
	}
	return nil
}

// join makes the last of the nodes of a graph, which come in order and of whose values nobody else reads any but the
// last, a chain that computes all of them from the operands.
func join(g *ir.Graph, nodes []*ir.Node, operands []*ir.Value) {
	last := nodes[len(nodes)-1]
	body := ir.NewGraph(last.Name)
	suffix := suffix(body)
	c := ir.NewCopier(body, g, suffix)
	for _, v := range operands {
		c.Bind(v, body.NewInput(v.Name+suffix, v.Type))
	}
	for _, n := range nodes {
		c.Node(n)
	}
	body.Outputs = []*ir.Value{c.Value(last.Outputs[0])}
	last.Op = &Chain{body}
	setInputs(last, operands)
}

// suffix is what names in the body of a chain end in.
func suffix(body *ir.Graph) string { return "." + body.Name }

func setInputs(n *ir.Node, to []*ir.Value) {
	for i := len(n.Inputs) - 1; i >= len(to); i-- {
		n.SetInput(i, nil)
	}
	for i, v := range to {
		n.SetInput(i, v)
	}
}

// Expand puts the nodes of a chain back into the graph, in its place, under the names that they had, and returns them in order.
func Expand(n *ir.Node) []*ir.Node {
	c, ok := n.Op.(*Chain)
	if !ok {
		return []*ir.Node{n}
	}
	g := n.Graph()
	values := map[*ir.Value]*ir.Value{}
	for i, v := range c.Body.Inputs {
		values[v] = n.Inputs[i]
	}
	old := func(name string) string { return strings.TrimSuffix(name, suffix(c.Body)) } // which is still taken
	var nodes []*ir.Node
	for k, m := range c.Body.Nodes {
		in := make([]*ir.Value, len(m.Inputs))
		for i, v := range m.Inputs {
			if v != nil && v.IsConst() && values[v] == nil {
				values[v] = g.NewConst(v.Name, v.Const)
				values[v].Name = old(v.Name)
			}
			in[i] = values[v]
		}
		if k == len(c.Body.Nodes)-1 {
			n.Op = m.Op
			setInputs(n, in)
			return append(nodes, n)
		}
		put := g.InsertBefore(n, m.Name, m.Op, in, m.Outputs[0].Name)
		put.Name, put.Outputs[0].Name, put.Outputs[0].Type = old(m.Name), old(m.Outputs[0].Name), m.Outputs[0].Type
		values[m.Outputs[0]] = put.Outputs[0]
		nodes = append(nodes, put)
	}
	return nodes
}

// Registry makes the operators of the table, and chains, for ir.Parse.
var Registry ir.Registry = registry{op.Registry}

type registry struct{ ir.Registry }

func (r registry) New(kind string) (ir.Op, error) {
	if kind == (*Chain)(nil).Kind() {
		return &Chain{}, nil
	}
	return r.Registry.New(kind)
}

func (r registry) Check(n *ir.Node) error {
	if _, ok := n.Op.(*Chain); ok {
		return nil
	}
	return r.Registry.Check(n)
}
