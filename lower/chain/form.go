package chain

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Rules say which chains a device computes.
type Rules struct {
	// Takes reports whether the types of a node's inputs and outputs are such that chains may have it.
	Takes func(n *ir.Node) bool
	// Registers is how many values are held at once, and Load says that operands are among them. Operands is how many
	// of these there may be, and Instructions how many are worth the memory that they spare.
	Registers, Operands, Instructions int
	Load                              bool
}

// Form makes chains of the nodes of a graph and of its subgraphs: each node joins the one that alone reads its value,
// if the rules allow it. It returns the number of nodes that are gone.
func (r *Rules) Form(g *ir.Graph) int {
	count := 0
	for sub := range g.All() {
		if sub.Refused == nil {
			count += r.form(sub)
		}
	}
	return count
}

func (r *Rules) form(g *ir.Graph) int {
	of := map[*ir.Node]*candidate{}
	for _, n := range slices.Backward(g.Nodes) {
		holds, ok := r.carrierOf(n)
		if !ok {
			continue
		}
		if c := readerOf(n, of); c != nil && r.joins(c, n, holds) {
			of[n] = c
			continue
		}
		c := &candidate{carrier: holds, nodes: []*ir.Node{n}}
		if c.program = r.compile(c.carrier, c.nodes); c.program != nil {
			of[n] = c
		}
	}
	gone := map[*ir.Node]bool{}
	for _, n := range slices.Clone(g.Nodes) {
		c := of[n]
		if c == nil || len(c.nodes) < 2 || c.last() != n {
			continue
		}
		join(g, c.nodes, c.program.Operands)
		for _, m := range c.nodes[:len(c.nodes)-1] {
			gone[m] = true
		}
	}
	g.RemoveAll(func(n *ir.Node) bool { return gone[n] })
	return len(gone)
}

// Of returns the program of a chain, or of a node that could be one; nil where the rules do not allow it.
func (r *Rules) Of(n *ir.Node) *Program {
	nodes := Members(n)
	var holds carrier
	for _, m := range nodes {
		h, ok := r.carrierOf(m)
		if !ok {
			return nil
		}
		holds = max(holds, h)
	}
	p := r.compile(holds, nodes)
	if c, ok := n.Op.(*Chain); ok && p != nil {
		for i, v := range p.Operands {
			p.Operands[i] = n.Inputs[slices.Index(c.Body.Inputs, v)]
		}
	}
	return p
}

// carrier is what the registers of a chain hold.
type carrier int

const (
	either carrier = iota // bools, which both hold
	floating
	integers
)

func carrierFor(dt tensor.DType) carrier {
	switch dt {
	case tensor.F32:
		return floating
	case tensor.Bool:
		return either
	}
	return integers
}

// converts reports whether operands of a type are converted as they are loaded.
func converts(dt tensor.DType) bool {
	return dt == tensor.I64 || dt == tensor.I32 || dt == tensor.U8 || dt == tensor.I8 || dt == tensor.Bool
}

// carrierOf returns what registers must hold for a node, false where chains do not have it.
func (r *Rules) carrierOf(n *ir.Node) (carrier, bool) {
	o, ok := operationOf(n)
	if !ok || !r.Takes(n) || elems(n.Outputs[0]) == 0 {
		return 0, false
	}
	y := n.Outputs[0].Type.DType
	if o.converts {
		x := n.Inputs[0].Type.DType
		ok := (converts(x) || x == tensor.F32) && (y == tensor.F32 || y == tensor.I64 || y == tensor.I32 || y == tensor.Bool)
		if x == tensor.F32 || y == tensor.F32 { // integers are converted as they are loaded or stored
			return floating, ok
		}
		return max(carrierFor(x), carrierFor(y)), ok
	}
	all := either
	for _, v := range append(slices.Clone(operandsOf(n)), n.Outputs[0]) {
		if v == nil {
			return 0, false
		}
		dt := v.Type.DType
		if dt != tensor.F32 && dt != tensor.Bool && (dt != tensor.I64 && dt != tensor.I32 || !table[o.Function].integers) {
			return 0, false
		}
		h := carrierFor(dt)
		if h != either && all != either && h != all {
			return 0, false
		}
		all = max(all, h)
	}
	return all, true
}

// operandsOf are the inputs of a node whose elements it combines.
func operandsOf(n *ir.Node) []*ir.Value { return n.Inputs[:op.Operands(n)] }

// candidate is nodes that may become a chain: the last of them, and others, whose values only those read.
type candidate struct {
	carrier carrier
	nodes   []*ir.Node // in their order
	program *Program
}

// last is the node whose value is in memory.
func (c *candidate) last() *ir.Node { return c.nodes[len(c.nodes)-1] }

// readerOf returns the candidate that alone reads the value of a node.
func readerOf(n *ir.Node, of map[*ir.Node]*candidate) *candidate {
	y := n.Outputs[0]
	if y.IsOutput() || len(y.Uses()) == 0 {
		return nil
	}
	c := of[y.Uses()[0].Node]
	for _, u := range y.Uses() {
		if of[u.Node] != c {
			return nil
		}
	}
	return c
}

// joins adds a node whose value only nodes of the candidate read, if that is computed at the same
// places as the candidate's and the device has room.
func (r *Rules) joins(c *candidate, n *ir.Node, holds carrier) bool {
	y := n.Outputs[0]
	if holds != either && c.carrier != either && holds != c.carrier {
		return false
	}
	if max(holds, c.carrier) == floating && y.Type.DType != tensor.F32 && y.Type.DType != tensor.Bool {
		return false
	}
	if !slices.Equal(trimmed(y), trimmed(c.last().Outputs[0])) {
		return false
	}
	nodes := append([]*ir.Node{n}, c.nodes...)
	p := r.compile(max(holds, c.carrier), nodes)
	if p == nil {
		return false
	}
	c.carrier, c.nodes, c.program = max(holds, c.carrier), nodes, p
	return true
}

// trimmed is the shape of a value without leading ones.
func trimmed(v *ir.Value) []int {
	s, _ := v.Type.Shape()
	for len(s) > 0 && s[0] == 1 {
		s = s[1:]
	}
	return s
}

func elems(v *ir.Value) int {
	s, _ := v.Type.Shape()
	n, err := tensor.Elems(s)
	if err != nil {
		return 0
	}
	return n
}
