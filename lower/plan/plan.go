// Package plan holds what lowering makes of a graph: the program, a list of
// steps in execution order with the lifetimes of their values, and the arena
// planner that back ends lay their buffers out with. It imports ir.
package plan

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Program is a scheduled graph and where its values are during a run. Values are numbered
// through the graph and all its subgraphs, so that a subgraph finds the outer values it
// reads by number.
type Program struct {
	Graph  *ir.Graph
	Main   *Block
	Values []Value           // by number
	Number map[*ir.Value]int // the inverse
	Steps  int               // the number of steps in all blocks

	Bytes int // of the arena
	Peak  int // bytes of the arena that are in use at once

	assigned bool // offsets are known
}

// Value is a value of the graph and where its elements are during a run.
type Value struct {
	*ir.Value
	Shape  []int        // nil where it is not known
	As     tensor.DType // the type of its elements in memory
	Span   Span         // when its storage is in use; of one in that of another, when it is itself
	Place  Place
	Layout Layout
	Offset int  // in the arena, in bytes
	Of     int  // the value in whose storage an Aliased one is
	Shift  int  // and where in that it begins, in bytes
	Same   int  // a value that it is, or is a part of, element by element; itself where there is none
	moved  bool // it was made there by a step of its own: others beside it are no part of it
	Enters int  // the step that puts it where it is, if that is after the one that makes it
}

// Place is where the elements of a value are.
type Place uint8

// The places.
const (
	Heap     Place = iota // in memory that is allocated when a run gets there, or the caller's
	Arena                 // at an offset of the arena
	Constant              // in the constant
	Aliased               // in the storage of another value
)

// Layout is the order in which the elements of a value lie.
type Layout uint8

// The layouts.
const (
	RowMajor     Layout = iota // as the axes of its shape: images channel by channel
	ChannelsLast               // images [N,C,H,W] as [N,H,W,C]
	Strips                     // in no memory: handed on strip by strip to the next step
)

// Block is the steps of a graph or a subgraph.
type Block struct {
	Graph *ir.Graph
	Steps []Step
}

// Step evaluates a node. Steps are numbered depth first: those of a node's
// subgraphs come before the node's own.
type Step struct {
	Node   *ir.Node
	Index  int
	Blocks []*Block // the node's subgraphs
	First  int      // the index of the first of the steps that are computed together as one; its own where it is alone
	Where  string   // the processor that computes it, where a device has several
}

// New numbers the values of g and lists its steps in the order of its nodes.
func New(g *ir.Graph) *Program {
	p := &Program{Graph: g, Number: map[*ir.Value]int{}}
	for _, v := range g.Constants() {
		p.number(v)
	}
	p.Main = p.block(g)
	p.live()
	return p
}

func (p *Program) number(v *ir.Value) {
	if _, ok := p.Number[v]; !ok && v != nil {
		p.Number[v] = len(p.Values)
		pv := Value{Value: v, As: v.Type.DType, Same: len(p.Values)}
		pv.Shape, _ = v.Type.Shape()
		if v.IsConst() {
			pv.Place = Constant
		}
		p.Values = append(p.Values, pv)
	}
}

func (p *Program) block(g *ir.Graph) *Block {
	b := &Block{Graph: g}
	for _, v := range g.Inputs {
		p.number(v)
	}
	for _, n := range g.Nodes {
		s := Step{Node: n}
		for _, sub := range ir.Subgraphs(n.Op) {
			s.Blocks = append(s.Blocks, p.block(sub))
		}
		s.Index, s.First = p.Steps, p.Steps
		p.Steps++
		for _, v := range n.Outputs {
			p.number(v)
		}
		b.Steps = append(b.Steps, s)
	}
	return b
}

// Span is the steps during which a value's buffer is in use, both included.
type Span struct{ First, Last int }

// live finds the lifetime of every value: from its definition to its last
// use. A value that is read inside a subgraph lives until the node that owns
// the subgraph is done; inputs of the main graph live from step 0, its outputs
// to the end. A constant has the zero Span.
func (p *Program) live() {
	level := make([]*ir.Graph, len(p.Values)) // the graph that defines the value
	p.spans(p.Main, level, nil)
	for _, v := range p.Graph.Outputs {
		p.Values[p.Number[v]].Span.Last = p.Steps
	}
}

// owner is a step in whose subgraph a block lies.
type owner struct {
	graph *ir.Graph // the graph that the step is in
	index int
}

func (p *Program) spans(b *Block, level []*ir.Graph, owners []owner) {
	first := 0
	if len(b.Steps) > 0 {
		first = b.first()
	}
	for _, v := range b.Graph.Inputs {
		i := p.Number[v]
		p.Values[i].Span, level[i] = Span{first, first}, b.Graph
	}
	read := func(v *ir.Value, at int) {
		if v == nil || v.IsConst() {
			return
		}
		i := p.Number[v]
		// Seen from the graph that defines the value, the read happens at the
		// step that owns the subgraph.
		for _, o := range owners {
			if o.graph == level[i] {
				at = o.index
				break
			}
		}
		p.Values[i].Span.Last = max(p.Values[i].Span.Last, at)
	}
	for _, s := range b.Steps {
		for _, sub := range s.Blocks {
			p.spans(sub, level, append(slices.Clone(owners), owner{b.Graph, s.Index}))
		}
		for _, v := range s.Node.Inputs {
			read(v, s.Index)
		}
		for _, v := range s.Node.Outputs {
			if v != nil {
				i := p.Number[v]
				p.Values[i].Span, level[i] = Span{s.Index, s.Index}, b.Graph
			}
		}
	}
	if len(owners) > 0 {
		for _, v := range b.Graph.Outputs {
			read(v, owners[len(owners)-1].index)
			if !v.IsConst() {
				i := p.Number[v]
				p.Values[i].Span.Last = max(p.Values[i].Span.Last, owners[len(owners)-1].index)
			}
		}
	}
}

// first is the number of the first step of b or of its first step's subgraphs.
func (b *Block) first() int {
	s := b.Steps[0]
	for _, sub := range s.Blocks {
		if len(sub.Steps) > 0 {
			return sub.first()
		}
	}
	return s.Index
}
