// Package plan holds what lowering makes of a graph: the program, a list of
// steps in execution order with the lifetimes of their values, and the arena
// planner that back ends lay their buffers out with. It imports ir.
package plan

import (
	"cmp"
	"slices"

	"spc/ir"
)

// Program is a scheduled graph. Values are numbered through the graph and all
// its subgraphs, so that a subgraph finds the outer values it reads by number.
type Program struct {
	Graph  *ir.Graph
	Main   *Block
	Values []*ir.Value       // by number
	Number map[*ir.Value]int // the inverse
	Steps  int               // the number of steps in all blocks
}

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
}

// New numbers the values of g and lists its steps in the order of its nodes.
func New(g *ir.Graph) *Program {
	p := &Program{Graph: g, Number: map[*ir.Value]int{}}
	for _, v := range g.Constants() {
		p.number(v)
	}
	p.Main = p.block(g)
	return p
}

func (p *Program) number(v *ir.Value) {
	if _, ok := p.Number[v]; !ok && v != nil {
		p.Number[v] = len(p.Values)
		p.Values = append(p.Values, v)
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
		s.Index = p.Steps
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

// Spans returns the lifetime of every value: from its definition to its last
// use. A value that is read inside a subgraph lives until the node that owns
// the subgraph is done; inputs of the main graph live from step 0, its outputs
// to the end. A constant has the zero Span.
func (p *Program) Spans() []Span {
	spans := make([]Span, len(p.Values))
	level := make([]*ir.Graph, len(p.Values)) // the graph that defines the value
	p.spans(p.Main, spans, level, nil)
	for _, v := range p.Graph.Outputs {
		spans[p.Number[v]].Last = p.Steps
	}
	return spans
}

// owner is a step in whose subgraph a block lies.
type owner struct {
	graph *ir.Graph // the graph that the step is in
	index int
}

func (p *Program) spans(b *Block, spans []Span, level []*ir.Graph, owners []owner) {
	first := 0
	if len(b.Steps) > 0 {
		first = b.first()
	}
	for _, v := range b.Graph.Inputs {
		i := p.Number[v]
		spans[i], level[i] = Span{first, first}, b.Graph
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
		spans[i].Last = max(spans[i].Last, at)
	}
	for _, s := range b.Steps {
		for _, sub := range s.Blocks {
			p.spans(sub, spans, level, append(slices.Clone(owners), owner{b.Graph, s.Index}))
		}
		for _, v := range s.Node.Inputs {
			read(v, s.Index)
		}
		for _, v := range s.Node.Outputs {
			if v != nil {
				i := p.Number[v]
				spans[i], level[i] = Span{s.Index, s.Index}, b.Graph
			}
		}
	}
	if len(owners) > 0 {
		for _, v := range b.Graph.Outputs {
			read(v, owners[len(owners)-1].index)
			if !v.IsConst() {
				i := p.Number[v]
				spans[i].Last = max(spans[i].Last, owners[len(owners)-1].index)
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

// Buffer is a request for bytes of the arena during a span.
type Buffer struct {
	Size int
	Span Span
}

// Peak is the most bytes that are in use at once, each buffer rounded up to a
// multiple of align: no arena is smaller, but for the rounding of its last buffer.
func Peak(buffers []Buffer, align int) int {
	peak := 0
	for _, n := range live(buffers, align) {
		peak = max(peak, n)
	}
	return peak
}

// live returns the bytes in use at each step.
func live(buffers []Buffer, align int) []int {
	var at []int
	for _, b := range buffers {
		for len(at) <= b.Span.Last {
			at = append(at, 0)
		}
		for i := b.Span.First; i <= b.Span.Last; i++ {
			at[i] += roundUp(b.Size, align)
		}
	}
	return at
}

// Arena places buffers so that those whose spans overlap do not, each at a
// multiple of align, and returns their offsets and the size of the arena. Each
// goes into the smallest gap that holds it, in one of two orders after Pisarchyk
// and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020):
// the largest first (section 4.3), and where that takes more than the peak, those
// of the fullest steps first (section 4.2).
func Arena(buffers []Buffer, align int) (offsets []int, size int) {
	order := make([]int, len(buffers))
	for i := range order {
		order[i] = i
	}
	bySize := func(a, b int) int { return buffers[b].Size - buffers[a].Size }
	slices.SortStableFunc(order, bySize)
	offsets, size = place(buffers, order, align)
	at := live(buffers, align)
	if len(at) == 0 || size <= slices.Max(at) {
		return offsets, size
	}
	breadth := make([]int, len(buffers))
	for i, b := range buffers {
		breadth[i] = slices.Max(at[b.Span.First : b.Span.Last+1])
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Or(breadth[b]-breadth[a], bySize(a, b)) })
	if o, n := place(buffers, order, align); n < size {
		return o, n
	}
	return offsets, size
}

func place(buffers []Buffer, order []int, align int) (offsets []int, size int) {
	offsets = make([]int, len(buffers))
	var placed []int // by offset
	for _, i := range order {
		b := buffers[i]
		if b.Size == 0 {
			continue
		}
		best, gap := -1, 0
		end := 0
		for _, j := range placed {
			o := buffers[j]
			if o.Span.Last < b.Span.First || b.Span.Last < o.Span.First {
				continue
			}
			if free := offsets[j] - end; free >= b.Size && (best < 0 || free < gap) {
				best, gap = end, free
			}
			end = max(end, roundUp(offsets[j]+o.Size, align))
		}
		if best < 0 {
			best = end
		}
		offsets[i] = best
		size = max(size, best+b.Size)
		at, _ := slices.BinarySearchFunc(placed, best, func(j, off int) int { return offsets[j] - off })
		placed = slices.Insert(placed, at, i)
	}
	return offsets, size
}

func roundUp(n, align int) int { return (n + align - 1) / align * align }
