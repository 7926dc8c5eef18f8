package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"spc/ir"
)

// ErrPlan is the error of a plan that is wrong.
var ErrPlan = errors.New("the plan of the memory is wrong")

// Check finds the lifetimes anew, from who reads what in the graph, and returns an error that wraps
// ErrPlan where the plan is at odds with them: where the storage of a value is not kept for as long as it
// is read, where a value lies outside of what it is said to be part of, or where two values that are both
// still read, and do not have the same elements, lie over each other.
func (p *Program) Check() error {
	lives := p.lives()
	for i := range p.Values {
		v := &p.Values[i]
		if v.Place == Aliased {
			root, _ := p.Storage(i)
			if p.Values[root].Place == Aliased || v.Shift < 0 || p.Size(i)+v.Shift > p.Size(v.Of) && p.Values[root].Place == Arena {
				return fmt.Errorf("%w: %s is no part of %s", ErrPlan, v.Name, p.Values[v.Of].Name)
			}
		}
		r := &p.Values[p.Root(i)]
		if l := lives[i]; r.Place == Arena && p.Size(i) > 0 && (r.Span.First > l.First || r.Span.Last < l.Last) {
			return fmt.Errorf("%w: %s lives from step %d to %d, its storage from %d to %d", ErrPlan, v.Name, l.First, l.Last, r.Span.First, r.Span.Last)
		}
	}
	if !p.assigned {
		return nil
	}
	return p.checkOverlaps(lives)
}

// checkOverlaps is Check for values that have offsets.
func (p *Program) checkOverlaps(lives []Span) error {
	type extent struct{ value, root, from, to int }
	var list []extent
	for i := range p.Values {
		root, shift := p.Storage(i)
		if size := p.Size(i); p.Values[root].Place == Arena && size > 0 {
			from := p.Values[root].Offset + shift
			if list = append(list, extent{i, root, from, from + size}); from+size > p.Bytes {
				return fmt.Errorf("%w: %s ends at %d in an arena of %d bytes", ErrPlan, p.Values[i].Name, from+size, p.Bytes)
			}
		}
	}
	slices.SortFunc(list, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	for i, a := range list {
		for _, b := range list[i+1:] {
			if b.from >= a.to {
				break
			}
			x, y := lives[a.value], lives[b.value]
			both := Span{max(x.First, y.First), min(x.Last, y.Last)}
			switch {
			case both.First > both.Last:
			case a.root == b.root && (p.part(a.value, b.value) || p.part(b.value, a.value) || both.First == both.Last):
			default:
				return fmt.Errorf("%w: %s and %s share bytes %d to %d in steps %d to %d",
					ErrPlan, p.Values[a.value].Name, p.Values[b.value].Name, b.from, min(a.to, b.to), both.First, both.Last)
			}
		}
	}
	return nil
}

// made returns the value, made by a step, of which i is a view.
func (p *Program) made(i int) int {
	for p.Values[i].Same != i && !p.Values[i].moved {
		i = p.Values[i].Same
	}
	return i
}

// part reports whether the elements of value i are elements of value j, or both are views of one.
func (p *Program) part(i, j int) bool {
	whole := p.made(j)
	for i = p.made(i); i != whole; i = p.made(p.Values[i].Same) {
		if p.Values[i].Same == i {
			return false
		}
	}
	return true
}

// lives returns from which step to which each value is needed, as the graph says: from the step that
// makes it to the last that reads it, both seen from the graph that the value belongs to, where steps that
// are computed together count as the first of them.
func (p *Program) lives() []Span {
	at, begin := map[*ir.Node]int{}, map[*ir.Graph]int{}
	p.positions(p.Main, at, begin)
	last := make([]int, len(p.Values))
	read := func(v *ir.Value, n *ir.Node) { // by n or by what it has inside
		for n.Graph() != v.Graph() {
			n = n.Graph().Owner
		}
		i := p.Number[v]
		last[i] = max(last[i], at[n])
	}
	lives := make([]Span, len(p.Values))
	for i := range p.Values {
		v := &p.Values[i]
		switch {
		case v.IsConst():
			continue
		case v.Def != nil:
			lives[i].First = at[v.Def]
		default:
			lives[i].First = begin[v.Graph()]
		}
		if v.Enters > lives[i].First {
			lives[i].First = v.Enters
		}
		last[i] = lives[i].First
		for _, u := range v.Uses() {
			read(v.Value, u.Node)
		}
	}
	for g := range p.Graph.All() {
		for _, v := range g.Outputs {
			switch {
			case v.IsConst():
			case g.Owner == nil:
				last[p.Number[v]] = p.Steps
			case v.Graph() == g:
				last[p.Number[v]] = max(last[p.Number[v]], at[g.Owner])
			default:
				read(v, g.Owner)
			}
		}
	}
	for i := range lives {
		lives[i].Last = last[i]
	}
	return lives
}

// positions notes when steps run, and which runs first in each graph.
func (p *Program) positions(b *Block, at map[*ir.Node]int, begin map[*ir.Graph]int) {
	if len(b.Steps) > 0 {
		begin[b.Graph] = b.first()
	}
	for i := range b.Steps {
		s := &b.Steps[i]
		at[s.Node] = s.First
		for _, sub := range s.Blocks {
			p.positions(sub, at, begin)
		}
	}
}
