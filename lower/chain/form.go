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
	// Begins reports whether the device hands what a node gives, which is no operator of elements, to a chain piece by piece,
	// as it is computed; nil for no node.
	Begins func(n *ir.Node) bool
	// Registers is how many values are held at once, and Load says that operands are among them. Operands is how many
	// of these there may be, and Instructions how many are worth the memory that they spare.
	Registers, Operands, Instructions int
	Load                              bool
}

// Form makes chains of the nodes of a graph and of its subgraphs: each node joins the one that alone reads its value,
// if the rules allow it, and so does one node that a chain begins with. It returns the number of nodes that are gone.
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
			if r.Begins != nil && r.Begins(n) {
				r.begin(readerOf(n, of), n)
			}
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
		if c == nil || c.last() != n {
			continue
		}
		nodes, inputs := c.whole()
		if len(nodes) < 2 {
			continue
		}
		join(g, nodes, inputs)
		for _, m := range nodes[:len(nodes)-1] {
			gone[m] = true
		}
	}
	g.RemoveAll(func(n *ir.Node) bool { return gone[n] })
	return len(gone)
}

// begin has a candidate, nil for none, begin with a node of whose value it computes each element from one.
func (r *Rules) begin(c *candidate, n *ir.Node) {
	if c == nil || c.head != nil || c.carrier == integers {
		return
	}
	x, y := n.Outputs[0], c.last().Outputs[0]
	if slices.Contains(c.program.Operands, x) && x.Type.DType == y.Type.DType && slices.Equal(trimmed(x), trimmed(y)) {
		c.head = n
	}
}

// whole returns all nodes of a candidate in their order, and the values that they read but for the head's constants, which
// stay with that: so there is no head where others read one of those.
func (c *candidate) whole() (nodes []*ir.Node, in []*ir.Value) {
	operands := c.program.Operands
	if c.head == nil || slices.ContainsFunc(c.head.Inputs, func(v *ir.Value) bool { return v != nil && v.IsConst() && slices.Contains(operands, v) }) {
		return c.nodes, operands
	}
	for _, v := range slices.Concat(c.head.Inputs, operands) {
		if v != nil && v != c.head.Outputs[0] && !slices.Contains(in, v) && (!v.IsConst() || slices.Contains(operands, v)) {
			in = append(in, v)
		}
	}
	return append([]*ir.Node{c.head}, c.nodes...), in
}

// Of returns the program of a chain, or of a node that could be one; nil where the rules do not allow it. Its operand that the
// head gives is the chain's output, in whose place that is computed.
func (r *Rules) Of(n *ir.Node) *Program {
	nodes := Members(n)
	if Head(n) != nil {
		nodes = nodes[1:]
	}
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
			if p.Operands[i] = n.Outputs[0]; v.Def == nil {
				p.Operands[i] = n.Inputs[slices.Index(c.Body.Inputs, v)]
			}
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
	head    *ir.Node   // that it begins with, which is no operator of elements; nil for none
	nodes   []*ir.Node // the others, in their order
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
