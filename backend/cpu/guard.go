package cpu

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"unsafe"

	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/plan"
)

// guard checks a run against the graph alone, whatever the plan of the memory says: after
// each step every value that a later step reads, or that is an output, has the elements
// that it was computed with, and what memory of the arena no such value has holds no
// element of any: it is filled with poison.
type guard struct {
	x      *exec
	seed   maphash.Seed
	frames []guardFrame // the graphs that are evaluated, the main graph first
}

// guardFrame is one evaluation of a graph.
type guardFrame struct {
	last map[int]int // by value, the position of the step that reads it last
	live map[int]uint64
}

// forever is the position of the last read of an output.
const forever = int(^uint(0) >> 1)

// poison is what every byte of memory without a value is: NaN in all types of floats.
const poison = 0xff

func newGuard(x *exec) *guard {
	return &guard{x: x, seed: maphash.MakeSeed()}
}

// enter begins an evaluation of b, by the steps of list. The inputs are in their slots.
func (g *guard) enter(b *block, list []*step) error {
	if len(g.frames) == 0 {
		g.poison()
	}
	f := guardFrame{last: map[int]int{}, live: map[int]uint64{}}
	at := map[*ir.Node]int{}
	for i, st := range list {
		at[st.node] = i
		for _, m := range st.members {
			at[m.node] = i
		}
	}
	for _, n := range b.graph.Nodes {
		n.Reads(func(v *ir.Value) {
			if k := g.x.plan.Number[v]; v.Graph() == b.graph {
				f.last[k] = max(f.last[k], at[n])
			}
		})
	}
	for _, v := range b.graph.Outputs {
		f.last[g.x.plan.Number[v]] = forever
	}
	for _, v := range b.graph.Inputs {
		k := g.x.plan.Number[v]
		if _, ok := f.last[k]; ok {
			f.live[k] = g.sum(k)
		}
	}
	g.frames = append(g.frames, f)
	return g.check(nil)
}

// leave ends the evaluation that was begun last, whose outputs have been copied. There may
// be no guard, and an operator that still reads the memory.
func (g *guard) leave() {
	if g != nil && !g.x.abandoned {
		g.frames = g.frames[:len(g.frames)-1]
		g.poison()
	}
}

// after checks what step st, at position i, has done.
func (g *guard) after(i int, st *step) error {
	f := &g.frames[len(g.frames)-1]
	for k := range f.live {
		if f.last[k] <= i {
			delete(f.live, k)
		}
	}
	if err := g.check(st); err != nil {
		return err
	}
	read, made := slices.Clip(st.in), slices.Clip(st.out)
	for _, m := range st.members {
		read, made = append(read, m.in...), append(made, m.out...)
	}
	for _, k := range made {
		for _, r := range read {
			if k >= 0 && r >= 0 && g.x.plan.Root(k) != g.x.plan.Root(r) && g.x.overlap(k, r) {
				return fmt.Errorf("%v: output %s lies over %s: %w", st.node, g.x.plan.Values[k].Name, g.x.plan.Values[r].Name, plan.ErrPlan)
			}
		}
	}
	for _, k := range made {
		if last, ok := f.last[k]; k >= 0 && ok && last > i {
			f.live[k] = g.sum(k)
		}
	}
	g.poison()
	return nil
}

// check returns an error where a live value has changed.
func (g *guard) check(st *step) error {
	for _, f := range g.frames {
		for k, sum := range f.live {
			if g.sum(k) == sum {
				continue
			}
			by := "the inputs of a subgraph"
			if st != nil {
				by = st.node.String()
			}
			return fmt.Errorf("%s changed %s, which is still read: %w", by, g.x.plan.Values[k].Name, plan.ErrPlan)
		}
	}
	return nil
}

// sum is a hash of the elements of a value.
func (g *guard) sum(k int) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	if t := g.x.slots[k]; t != nil {
		hash(&h, t)
	}
	return h.Sum64()
}

func hash(h *maphash.Hash, t *tensor.Tensor) {
	h.Write(t.Bytes())
	switch dt := t.DType(); {
	case dt == tensor.String:
		for _, s := range t.Strings() {
			h.WriteString(s)
			h.WriteByte(0)
		}
	case dt.IsList():
		for _, e := range t.Items() {
			hash(h, e)
		}
	}
}

// poison fills the parts of the arena that no live value has, and what kernels use while
// they run.
func (g *guard) poison() {
	type part struct{ from, to int }
	var used []part
	for _, f := range g.frames {
		for k := range f.live {
			if from, n := g.x.inArena(g.x.slots[k]); n > 0 {
				used = append(used, part{from, from + n})
			}
		}
	}
	slices.SortFunc(used, func(a, b part) int { return cmp.Compare(a.from, b.from) })
	at := 0
	for _, p := range used {
		if at < p.from {
			taint(g.x.arena[at:p.from])
		}
		at = max(at, p.to)
	}
	taint(g.x.arena[at:])
	for _, f := range append(slices.Clip(g.x.scratch), g.x.shared) {
		taint(tensor.From(f, len(f)).Bytes())
	}
}

// taint fills memory with poison.
func taint(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, poisoned):]
	}
}

// poisoned is what taint copies, which takes a fraction of the time of a byte after the other.
var poisoned = bytes.Repeat([]byte{poison}, 1<<14)

// overlap reports whether two values share elements in the arena.
func (x *exec) overlap(i, j int) bool {
	a, n := x.inArena(x.slots[i])
	b, m := x.inArena(x.slots[j])
	return a < b+m && b < a+n && n > 0 && m > 0
}

// inArena returns where in the arena the elements of t begin and how many bytes they
// have, none where they are elsewhere.
func (x *exec) inArena(t *tensor.Tensor) (at, bytes int) {
	if t == nil {
		return 0, 0
	}
	b := t.Bytes()
	if len(b) == 0 || len(x.arena) == 0 {
		return 0, 0
	}
	at = int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&x.arena[0])))
	if at < 0 || at >= len(x.arena) {
		return 0, 0
	}
	return at, len(b)
}
