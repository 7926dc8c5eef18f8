package recon

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// block is a run of nodes lo..hi of a graph that ends where one value crosses that
// depends on what is trained.
type block struct {
	lo, hi int
	out    []*ir.Value // that value, and outputs of the graph that the block computes
}

// blocks cuts a graph into blocks that hold a weight each, and joins window of them. A
// cut is made right before the next weight, where what crosses is no larger than
// what does before the block or at the next such place: an expanding layer is not cut
// from one that contracts again.
func blocks(g *ir.Graph, window int) []block {
	t := traceTrained(g)
	places := t.places(g)
	var out []block
	lo, before, joined := 0, 0, 0
	end := place{at: len(g.Nodes)}
	for k, p := range append(places, end) {
		if p.value != nil {
			next := p.size
			if k+1 < len(places) {
				next = places[k+1].size
			}
			if before > 0 && p.size > before && p.size > next || before == 0 && p.size > next {
				continue
			}
			if joined++; joined < window {
				before = p.size
				continue
			}
		}
		b := block{lo: lo, hi: p.at}
		if p.value != nil {
			b.out = append(b.out, p.value)
		}
		for _, v := range g.Outputs {
			if v.Def != nil && v.Graph() == g && t.at[v.Def] >= lo && t.at[v.Def] < p.at && v != p.value && v.Type.DType == tensor.F32 {
				b.out = append(b.out, logits(v))
			}
		}
		out = append(out, b)
		lo, before, joined = p.at, p.size, 0
	}
	return out
}

// trace tells where in a graph is what can be trained.
type trace struct {
	at      map[*ir.Node]int   // the order of the nodes
	weights []bool             // by node, whether it has a weight that is trained
	depends map[*ir.Value]bool // values that depend on a parameter
}

// traceTrained follows what is trained through a graph.
func traceTrained(g *ir.Graph) *trace {
	trained := map[*ir.Value]bool{}
	for _, q := range parameters(g.Nodes, func(string) bool { return false }) {
		trained[q.value] = true
	}
	t := &trace{at: map[*ir.Node]int{}, weights: make([]bool, len(g.Nodes)), depends: map[*ir.Value]bool{}}
	for i, n := range g.Nodes {
		t.at[n] = i
		if w, ok := n.Op.(ir.WeightOp); ok {
			for _, u := range w.Weights(n) {
				t.weights[i] = t.weights[i] || trained[n.Input(u.Input)]
			}
		}
		moves := false
		n.Reads(func(v *ir.Value) { moves = moves || t.depends[v] || trained[v] })
		for _, v := range n.Outputs {
			if v != nil {
				t.depends[v] = moves
			}
		}
	}
	return t
}

// place is a position in the order of the nodes where one value crosses that depends on
// what is trained.
type place struct {
	at, size int
	value    *ir.Value
}

// places returns the last place between each weight and the next, where there is one.
func (t *trace) places(g *ir.Graph) []place {
	last := map[*ir.Value]int{}
	for i, n := range g.Nodes {
		n.Reads(func(v *ir.Value) { last[v] = i })
	}
	var places []place
	var open []*ir.Value
	var found *place
	for i, n := range g.Nodes {
		open = slices.DeleteFunc(open, func(v *ir.Value) bool { return last[v] < i })
		if len(open) == 1 && open[0].Type.DType == tensor.F32 {
			found = &place{i, size(open[0].Type), open[0]}
		}
		if t.weights[i] && found != nil {
			places = append(places, *found)
			found = nil
		}
		for _, v := range n.Outputs {
			if _, read := last[v]; v != nil && t.depends[v] && read {
				open = append(open, v)
			}
		}
	}
	return slices.DeleteFunc(places, func(p place) bool { return !slices.Contains(t.weights[:p.at], true) })
}

// size is the number of elements of a type, with symbols taken as one.
func size(t ir.Type) int {
	n := 1
	for _, d := range t.Dims {
		if d.Known() {
			n *= max(1, d.Size())
		}
	}
	return n
}

// logits is what a Softmax that ends a model turns into probabilities, else v.
func logits(v *ir.Value) *ir.Value {
	if n := v.Def; n != nil && n.Op.Kind() == "Softmax" && n.Inputs[0].Def != nil {
		return n.Inputs[0]
	}
	return v
}
