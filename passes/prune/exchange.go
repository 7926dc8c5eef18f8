package prune

import (
	"cmp"
	"fmt"
	"slices"

	"spc/ir"
)

// Exchanges tells which channels of a graph may change places with each other without
// changing what it computes. The flow ties channels to bundles, one channel of each tensor;
// two bundles that every tensor has as many channels of are alike: where the k-th channels
// of both change places in all tensors, concatenations and splits still cut where they did.
type Exchanges struct {
	// Groups lists the bundles that are alike, in the order of the layers that compute them.
	Groups []Group

	plan  *Plan
	flow  *flow
	cands []*candidate // of plan, with labels
	roots [][]int32    // by group, the bundle in each place
	from  map[int32]int32
}

// Group is a set of at least two bundles of channels, each in a place. Any order of them will do.
type Group struct {
	Size int
	Rows []Channels // of the layers that compute the channels
	Cols []Channels // of those that read them
}

// Channels are those of a layer, its rows or what its columns multiply, that lie in the
// places of a group.
type Channels struct {
	Layer int
	Of    int     // the channels that the layer has in all
	At    [][]int // by place, ascending: which of them these are
}

// Exchanges finds out which channels of the graph may change places. Those of weights that the user
// keeps may not, nor those that fixed gives a reason for.
func (p *Plan) Exchanges(fixed func(v *ir.Value) string) *Exchanges {
	x := &Exchanges{plan: p, from: map[int32]int32{}}
	for _, c := range p.cands {
		o := &candidate{WeightUse: c.WeightUse, readers: c.readers, kept: c.kept}
		if fixed != nil {
			o.kept = cmp.Or(o.kept, fixed(c.Value))
		}
		o.rowsStay = o.kept
		x.cands = append(x.cands, o)
	}
	x.flow = follow(p.graph, x.cands, Channel)
	x.group()
	return x
}

// group sorts the bundles that do not stay.
func (x *Exchanges) group() {
	f, class := x.flow, x.alike()
	at := map[int32]int{} // the group of a class
	seen := map[int32]bool{}
	for _, c := range x.cands {
		for _, l := range c.rows {
			r := f.root(l)
			if f.stays[r] != "" || seen[r] {
				continue
			}
			seen[r] = true
			g, ok := at[class[r]]
			if !ok {
				g = len(x.roots)
				at[class[r]] = g
				x.roots = append(x.roots, nil)
			}
			x.roots[g] = append(x.roots[g], r)
		}
	}
	x.roots = slices.DeleteFunc(x.roots, func(roots []int32) bool { return len(roots) < 2 })
	group, place := map[int32]int{}, map[int32]int{}
	for g, roots := range x.roots {
		x.Groups = append(x.Groups, Group{Size: len(roots)})
		for k, r := range roots {
			group[r], place[r] = g, k
		}
	}
	for i, c := range x.cands {
		side := func(of func(g *Group) *[]Channels, labels []int32) {
			for pos, l := range labels {
				r := f.root(l)
				g, ok := group[r]
				if !ok {
					continue
				}
				list := of(&x.Groups[g])
				if k := len(*list); k == 0 || (*list)[k-1].Layer != i {
					*list = append(*list, Channels{Layer: i, Of: len(labels), At: make([][]int, x.Groups[g].Size)})
				}
				at := (*list)[len(*list)-1].At
				at[place[r]] = append(at[place[r]], pos)
			}
		}
		side(func(g *Group) *[]Channels { return &g.Rows }, c.rows)
		side(func(g *Group) *[]Channels { return &g.Cols }, c.cols)
	}
}

// alike returns a class for each bundle, by its root: those of one class occur as often as each other
// in every tensor.
func (x *Exchanges) alike() []int32 {
	f := x.flow
	class, classes := make([]int32, len(f.tied)), int32(1)
	done := map[*int32]int{} // labels that several tensors share
	refine := func(labels []int32) {
		if len(labels) == 0 || done[&labels[0]] == len(labels) {
			return
		}
		done[&labels[0]] = len(labels)
		counts := map[int32]int{}
		for _, l := range labels {
			counts[f.root(l)]++
		}
		type part struct {
			class int32
			count int
		}
		parts := map[part]int32{}
		for r, n := range counts {
			p := part{class[r], n}
			if _, ok := parts[p]; !ok {
				parts[p] = classes
				classes++
			}
			class[r] = parts[p]
		}
	}
	for _, t := range f.of {
		refine(t.labels)
	}
	for _, c := range x.cands {
		refine(c.rows)
		refine(c.cols)
	}
	return class
}

// Stay says why channels of layer i that it computes, and that its columns multiply, keep their
// places, empty where all of them may change these.
func (x *Exchanges) Stay(i int) (rows, cols string) {
	why := func(labels []int32, missing string) string {
		if len(labels) == 0 {
			return missing
		}
		for _, l := range labels {
			if s := x.flow.stays[x.flow.root(l)]; s != "" {
				return s
			}
		}
		return ""
	}
	c := x.cands[i]
	return why(c.rows, "its output channels are not followed"), why(c.cols, cmp.Or(c.kept, "its input channels are not followed"))
}

// Apply puts into place k of group i what was in place orders[i][k]; a nil order leaves
// the group as it is. It may be called once.
func (x *Exchanges) Apply(orders [][]int) error {
	for g, order := range orders {
		if order == nil {
			continue
		}
		if seen := slices.Sorted(slices.Values(order)); len(order) != x.Groups[g].Size || seen[0] != 0 || len(slices.Compact(seen)) != len(order) || seen[len(seen)-1] != len(order)-1 {
			return fmt.Errorf("an order %v of %d channels, want each of them once: %w", order, x.Groups[g].Size, ir.ErrInvalid)
		}
		for k, from := range order {
			x.from[x.roots[g][k]] = x.roots[g][from]
		}
	}
	x.flow.gather(x.places)
	return x.plan.graph.Infer()
}

// places returns where what is now at each of the labels was before, nil where nothing changed.
func (x *Exchanges) places(labels []int32) []int {
	at := map[int32][]int{}
	moved := false
	for i, l := range labels {
		r := x.flow.root(l)
		at[r] = append(at[r], i)
		from, ok := x.from[r]
		moved = moved || ok && from != r
	}
	if !moved {
		return nil
	}
	out, next := make([]int, len(labels)), map[int32]int{}
	for i, l := range labels {
		r := x.flow.root(l)
		from, ok := x.from[r]
		if !ok {
			from = r
		}
		out[i] = at[from][next[r]]
		next[r]++
	}
	return out
}

// Moved returns, after Apply, which rows and columns of layer i's matrix as it was are now the
// first, the second and so on, nil where they are as they were.
func (x *Exchanges) Moved(i int) (rows, cols []int) {
	c := x.cands[i]
	rows, channels := x.places(c.rows), x.places(c.cols)
	if channels == nil {
		return rows, nil
	}
	_, k := c.View.Dims(c.Value.Const.Shape())
	each := k / len(channels)
	for _, ch := range channels {
		for tap := range each {
			cols = append(cols, ch*each+tap)
		}
	}
	return rows, cols
}
