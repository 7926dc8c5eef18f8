// Package ir is the intermediate representation: an SSA graph of nodes and
// values. A node carries its operator (an Op: attributes, shape inference,
// evaluation, work); a value has a type, one definition, its uses, and for a
// constant its tensor or, once a format is chosen, its Store. Graphs print and
// parse as text, and Verify checks every invariant. The package imports
// ir/tensor and internal/memory. It may change in any version, as may those below it
// but ir/tensor: programs import spc.
package ir

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"spc/ir/tensor"
)

// Value is an SSA value: the output of a node, an input of a graph, or a
// constant. Values of an outer graph may be used in the subgraphs of its nodes.
type Value struct {
	Name  string // unique within the root graph and its subgraphs
	Type  Type
	Def   *Node          // nil for graph inputs and constants
	Const *tensor.Tensor // the elements of a constant
	Store *Store         // a constant weight's storage, which then replaces Const
	Grid  *Grid          // of which the elements of a constant weight are, where that is known
	Elems []Dim          // the elements of a small integer or bool tensor, row-major, as far as they are known

	graph *Graph
	uses  []Use
}

// Use is a place where a value is read: input Index of Node.
type Use struct {
	Node  *Node
	Index int
}

// Uses returns the nodes that read v, in the order in which they were made. Graph
// outputs are not among them. The caller must not change the slice.
func (v *Value) Uses() []Use { return v.uses }

// IsConst reports whether v is a constant.
func (v *Value) IsConst() bool { return v.Const != nil || v.Store != nil }

// Graph returns the graph that v belongs to.
func (v *Value) Graph() *Graph { return v.graph }

// Node is one application of an operator.
type Node struct {
	Name    string // unique like values' names; the ONNX node's where it had one
	Op      Op
	Inputs  []*Value // nil where an optional input is absent
	Outputs []*Value // nil where an optional output is not wanted

	graph *Graph
	own   []Dim // the unknowns that its inference made
}

// Graph returns the graph that n belongs to.
func (n *Node) Graph() *Graph { return n.graph }

// Input returns input i, nil where it is absent.
func (n *Node) Input(i int) *Value {
	if i < len(n.Inputs) {
		return n.Inputs[i]
	}
	return nil
}

// Reads calls f for each value that n or a node in its subgraphs reads, as often as
// it is read; outputs of the subgraphs count as read.
func (n *Node) Reads(f func(*Value)) {
	for _, v := range n.Inputs {
		if v != nil {
			f(v)
		}
	}
	for _, g := range Subgraphs(n.Op) {
		for _, m := range g.Nodes {
			m.Reads(f)
		}
		for _, v := range g.Outputs {
			f(v)
		}
	}
}

// SetInput makes input i of n be v, which may be nil.
func (n *Node) SetInput(i int, v *Value) {
	for len(n.Inputs) <= i {
		n.Inputs = append(n.Inputs, nil)
	}
	if old := n.Inputs[i]; old != nil {
		old.uses = slices.DeleteFunc(old.uses, func(u Use) bool { return u.Node == n && u.Index == i })
	}
	n.Inputs[i] = v
	if v != nil {
		v.uses = append(v.uses, Use{n, i})
	}
	for k := len(n.Inputs); k > 0 && n.Inputs[k-1] == nil; k-- {
		n.Inputs = n.Inputs[:k-1]
	}
}

// String names the node for messages: name (Operator).
func (n *Node) String() string { return fmt.Sprintf("%s (%s)", n.Name, n.Op.Kind()) }

// Errorf returns an error that names the node and wraps kind, one of the Err
// values of this package.
func (n *Node) Errorf(kind error, format string, args ...any) error {
	return &NodeError{n.String(), kind, fmt.Sprintf(format, args...)}
}

// NodeError is an error at a node.
type NodeError struct {
	Node string // name (Operator)
	Kind error
	Msg  string
}

func (e *NodeError) Error() string { return e.Node + ": " + e.Msg }

// Unwrap returns the kind, one of the Err values of this package.
func (e *NodeError) Unwrap() error { return e.Kind }

// Graph is a list of nodes in topological order, its inputs and its outputs.
// Constants belong to the graph in which they were made but are listed nowhere:
// the nodes that read them keep them.
type Graph struct {
	Name    string
	Inputs  []*Value
	Outputs []*Value
	Nodes   []*Node

	// OutputNames holds the names under which users know the outputs, where
	// these differ from the values' names; see OutputName.
	OutputNames []string

	// Refused is why inference refuses the branch of an If, or the body of a Loop or Scan
	// that may have no iterations, with the types that outer values have: evaluating it is
	// this error, its values' types mean nothing, and the other branch alone, or what is
	// carried, tells the outputs' types. Nil elsewhere.
	Refused error

	Owner *Node // the node whose subgraph this is; nil for a root graph
	root  *names
}

// names holds what a root graph and its subgraphs share: the names that are
// taken, and the graphs themselves.
type names struct {
	values map[string]bool
	nodes  map[string]bool
	next   map[string]int
	fresh  atomic.Int64 // graphs that are only read may still name unknowns
	graphs []*Graph     // the root first

	specialised bool // by Specialise
}

// NewGraph returns an empty root graph.
func NewGraph(name string) *Graph {
	g := &Graph{Name: name, root: &names{values: map[string]bool{}, nodes: map[string]bool{}, next: map[string]int{}}}
	g.root.graphs = []*Graph{g}
	return g
}

// NewSubgraph returns an empty graph that shares the names of g and may read its
// values. The node that will own it is set when it is made.
func (g *Graph) NewSubgraph(name string) *Graph {
	sub := &Graph{Name: name, root: g.root}
	g.root.graphs = append(g.root.graphs, sub)
	return sub
}

func (r *names) unique(taken map[string]bool, name, prefix string) string {
	if name == "" {
		r.next[prefix]++
		name = prefix + strconv.Itoa(r.next[prefix])
	}
	base := name
	for taken[name] {
		r.next[base]++
		name = base + "_" + strconv.Itoa(r.next[base])
	}
	taken[name] = true
	return name
}

// Fresh returns a dimension that is unknown and equal to no other.
func (g *Graph) Fresh() Dim {
	return Sym("?" + strconv.FormatInt(g.root.fresh.Add(1), 10))
}

func (g *Graph) newValue(name string, t Type) *Value {
	return &Value{Name: g.root.unique(g.root.values, name, "v"), Type: t, graph: g}
}

// NewInput adds an input. A taken or empty name is changed to a free one.
func (g *Graph) NewInput(name string, t Type) *Value {
	v := g.newValue(name, t)
	g.Inputs = append(g.Inputs, v)
	return v
}

// NewConst makes a constant.
func (g *Graph) NewConst(name string, t *tensor.Tensor) *Value {
	v := g.newValue(name, TypeOf(t))
	v.Const = t
	v.Elems = constElems(t)
	return v
}

// NewStored makes a constant of type t that is stored in a format.
func (g *Graph) NewStored(name string, t Type, s *Store) *Value {
	v := g.newValue(name, t)
	v.Store = s
	return v
}

// Rename gives v another name, or one close to it where that is taken.
func (v *Value) Rename(name string) {
	if name == v.Name {
		return
	}
	r := v.graph.root
	delete(r.values, v.Name)
	v.Name = r.unique(r.values, name, "v")
}

// SetConst turns v, a constant already, into another constant.
func (v *Value) SetConst(t *tensor.Tensor) {
	v.Const, v.Store, v.Grid, v.Type, v.Elems = t, nil, nil, TypeOf(t), constElems(t)
}

// maxElems bounds the tensors whose elements are tracked: shapes, axes, pads.
const maxElems = 64

func constElems(t *tensor.Tensor) []Dim {
	if !t.DType().IsInt() && t.DType() != tensor.Bool || t.Len() > maxElems {
		return nil
	}
	elems := make([]Dim, t.Len())
	for i, n := range t.Int64s() {
		elems[i] = Size(int(n))
	}
	return elems
}

// NewNode makes a node, with outputs of the given names (an empty name is made
// up), and puts it at the end of g. Output types are not inferred yet. Subgraphs
// of op become n's.
func (g *Graph) NewNode(name string, op Op, inputs []*Value, outputs ...string) *Node {
	n := g.makeNode(name, op, inputs, outputs)
	g.Nodes = append(g.Nodes, n)
	return n
}

// InsertBefore is NewNode, but puts the node before at, a node of g.
func (g *Graph) InsertBefore(at *Node, name string, op Op, inputs []*Value, outputs ...string) *Node {
	n := g.makeNode(name, op, inputs, outputs)
	i := slices.Index(g.Nodes, at)
	g.Nodes = slices.Insert(g.Nodes, i, n)
	return n
}

func (g *Graph) makeNode(name string, op Op, inputs []*Value, outputs []string) *Node {
	n := &Node{Name: g.root.unique(g.root.nodes, name, op.Kind()+"_"), Op: op, graph: g}
	for i, v := range inputs {
		if v != nil {
			n.SetInput(i, v)
		}
	}
	for _, o := range outputs {
		v := g.newValue(o, Type{})
		v.Def = n
		n.Outputs = append(n.Outputs, v)
	}
	for _, sub := range Subgraphs(op) {
		sub.Owner = n
	}
	return n
}

// ReplaceUses makes every reader of old, graph outputs included, read by instead, which is
// not nil.
func (g *Graph) ReplaceUses(old, by *Value) {
	uses := old.uses
	if by != old {
		old.uses = nil // at once: there may be many
		for _, u := range uses {
			u.Node.Inputs[u.Index] = by
		}
		by.uses = append(by.uses, uses...)
	}
	for k, o := range g.root.graphs {
		for i, v := range o.Outputs {
			if v == old {
				if k == 0 { // users know the outputs of the root only
					o.nameOutputs()
				}
				o.Outputs[i] = by
			}
		}
	}
}

// OutputName returns the name under which users know output i: it stays when a
// pass makes the output be another value.
func (g *Graph) OutputName(i int) string {
	if i < len(g.OutputNames) {
		return g.OutputNames[i]
	}
	return g.Outputs[i].Name
}

// nameOutputs makes the names of the outputs independent of their values.
func (g *Graph) nameOutputs() {
	for i := len(g.OutputNames); i < len(g.Outputs); i++ {
		g.OutputNames = append(g.OutputNames, g.Outputs[i].Name)
	}
}

// All yields g and, depth first, the subgraphs of its nodes.
func (g *Graph) All() func(yield func(*Graph) bool) {
	return func(yield func(*Graph) bool) { g.all(yield) }
}

func (g *Graph) all(yield func(*Graph) bool) bool {
	if !yield(g) {
		return false
	}
	for _, n := range g.Nodes {
		for _, sub := range Subgraphs(n.Op) {
			if !sub.all(yield) {
				return false
			}
		}
	}
	return true
}

// IsOutput reports whether v is an output of its graph or of a graph inside it.
func (v *Value) IsOutput() bool {
	for _, g := range v.graph.root.graphs {
		if slices.Contains(g.Outputs, v) {
			return true
		}
	}
	return false
}

// Remove deletes a node none of whose outputs is read any more.
func (g *Graph) Remove(n *Node) {
	g.RemoveAll(func(m *Node) bool { return m == n })
}

// RemoveAll deletes the nodes of g for which dead is true. Their outputs must
// not be read by any node that stays.
func (g *Graph) RemoveAll(dead func(*Node) bool) {
	read := map[*Value]bool{}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *Node) bool {
		if !dead(n) {
			return false
		}
		n.leave(read)
		return true
	})
	for v := range read {
		v.uses = slices.DeleteFunc(v.uses, func(u Use) bool { return u.Node.graph == nil })
	}
}

// leave takes n, and the nodes of its subgraphs, from their graphs, and adds to
// read what they read.
func (n *Node) leave(read map[*Value]bool) {
	for _, v := range n.Inputs {
		if v != nil {
			read[v] = true
		}
	}
	for _, sub := range Subgraphs(n.Op) {
		for _, m := range sub.Nodes {
			m.leave(read)
		}
		r := sub.root
		r.graphs = slices.DeleteFunc(r.graphs, func(g *Graph) bool { return g == sub })
	}
	n.graph = nil
}

// Constants returns the constants that g and its subgraphs read, each once, in
// the order of their first use.
func (g *Graph) Constants() []*Value {
	var out []*Value
	seen := map[*Value]bool{}
	add := func(v *Value) {
		if v != nil && v.IsConst() && !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			for _, v := range n.Inputs {
				add(v)
			}
		}
		for _, v := range sub.Outputs {
			add(v)
		}
	}
	return out
}

// ConstantBytes is what the constants that g and its subgraphs read take, as they are stored.
func (g *Graph) ConstantBytes() (n int) {
	for _, v := range g.Constants() {
		if v.Store != nil {
			n += v.Store.Bytes()
			continue
		}
		n += v.Const.Len() * v.Const.DType().Size()
	}
	return n
}

// Inline replaces n by the nodes of sub, one of its subgraphs that has no
// inputs: they move into n's graph, before n, and sub's outputs are read in the
// place of n's. n is removed.
func (g *Graph) Inline(n *Node, sub *Graph) {
	adopt := func(v *Value) {
		if v != nil && v.graph == sub {
			v.graph = g
		}
	}
	for _, m := range sub.Nodes {
		m.graph = g
		for _, v := range m.Inputs {
			adopt(v)
		}
		for _, v := range m.Outputs {
			adopt(v)
		}
	}
	for _, v := range sub.Outputs {
		adopt(v)
	}
	at := slices.Index(g.Nodes, n)
	g.Nodes = slices.Insert(g.Nodes, at, sub.Nodes...)
	sub.Nodes = nil
	for i, v := range n.Outputs {
		if v != nil {
			g.ReplaceUses(v, sub.Outputs[i])
		}
	}
	g.Remove(n)
}

// MoveBefore moves n to stand before at; both are nodes of g.
func (g *Graph) MoveBefore(n, at *Node) {
	g.Nodes = slices.Delete(g.Nodes, slices.Index(g.Nodes, n), slices.Index(g.Nodes, n)+1)
	g.Nodes = slices.Insert(g.Nodes, slices.Index(g.Nodes, at), n)
}
