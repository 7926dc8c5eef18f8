package prune

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/op"
)

// What stays dense by default: a first Conv of at most fewChannels input channels, and the last weights where they make
// up less than smallShare of the multiply-adds of what may be pruned. There accuracy is lost soonest, and little time is
// to be won.
const (
	fewChannels = 4
	smallShare  = 0.1
)

// ends holds the weight-bearing nodes of a graph that no other comes before, nor an embedding, and those that none comes
// after. A model of several inputs or outputs may have several of either.
type ends struct{ first, last map[*ir.Node]bool }

// findEnds looks for the first and the last weight-bearing nodes of g and its subgraphs. Inputs of a subgraph count as
// computed from every input of its node.
func findEnds(g *ir.Graph) ends {
	bears := map[*ir.Node]bool{}
	for _, u := range g.WeightUses() {
		bears[u.Node] = true
	}
	e := ends{map[*ir.Node]bool{}, map[*ir.Node]bool{}}
	e.forward(g, bears, map[*ir.Value]bool{})
	e.backward(g, bears, map[*ir.Value]bool{})
	return e
}

// forward finds the first nodes. Behind holds the values that weight-bearing nodes were found to come before.
func (e ends) forward(g *ir.Graph, bears map[*ir.Node]bool, behind map[*ir.Value]bool) {
	for _, n := range g.Nodes {
		from := anyOf(n.Inputs, behind)
		for _, sub := range ir.Subgraphs(n.Op) {
			if from {
				mark(sub.Inputs, behind)
			}
			e.forward(sub, bears, behind)
			from = from || anyOf(sub.Outputs, behind)
		}
		if bears[n] {
			if !from {
				e.first[n] = true
			}
			from = true
		}
		from = from || looksUp(n)
		if from {
			mark(n.Outputs, behind)
		}
	}
}

// looksUp reports whether a node picks rows of a table of weights, which then is what comes first.
func looksUp(n *ir.Node) bool {
	_, gathers := n.Op.(*op.Gather)
	return gathers && n.Inputs[0].IsConst() && n.Inputs[0].Type.DType.IsFloat() && n.Inputs[0].Type.Rank() > 1
}

// backward finds the last nodes. Ahead holds the values that weight-bearing nodes were found to come after.
func (e ends) backward(g *ir.Graph, bears map[*ir.Node]bool, ahead map[*ir.Value]bool) {
	for _, n := range slices.Backward(g.Nodes) {
		to := anyOf(n.Outputs, ahead)
		for _, sub := range ir.Subgraphs(n.Op) {
			if to {
				mark(sub.Outputs, ahead)
			}
			e.backward(sub, bears, ahead)
			to = to || anyOf(sub.Inputs, ahead)
		}
		if bears[n] {
			if !to {
				e.last[n] = true
			}
			to = true
		}
		if to {
			mark(n.Inputs, ahead)
		}
	}
}

func anyOf(list []*ir.Value, set map[*ir.Value]bool) bool {
	return slices.ContainsFunc(list, func(v *ir.Value) bool { return set[v] })
}

func mark(list []*ir.Value, set map[*ir.Value]bool) {
	for _, v := range list {
		if v != nil {
			set[v] = true
		}
	}
}

// readIn reports whether one of the nodes that read the weight is in a set.
func (c *candidate) readIn(set map[*ir.Node]bool) bool {
	return slices.ContainsFunc(c.readers, func(n *ir.Node) bool { return set[n] })
}

// inputs is the number of channels that a Conv reads through the weight, 0 where it is not one of a Conv.
func (c *candidate) inputs() int {
	shape, ok := c.Value.Type.Shape()
	if _, conv := c.Node.Op.(*op.Conv); !ok || !conv {
		return 0
	}
	return shape[1] * c.Groups
}

// openSize is what a size counts as that is not known, in multiply-adds.
const openSize = 32

// protectEnds says of the first convolutions and the last weights why they stay, the user's choices aside: of all of
// them, or of those that are small. A weight that others share with the ends is one of theirs.
func protectEnds(g *ir.Graph, cands []*candidate, all bool) {
	e := findEnds(g)
	var lasts []*candidate
	var total, end float64
	for _, c := range cands {
		if n := c.inputs(); n > 0 && c.readIn(e.first) && (all || n <= fewChannels) {
			c.rowsStay = fmt.Sprintf("the first convolution (input channels: %d)", n)
			continue
		}
		last := c.readIn(e.last)
		if last {
			lasts = append(lasts, c)
		}
		if c.why == "" {
			total += c.products
			if last {
				end += c.products
			}
		}
	}
	if !all && end >= smallShare*total && end > 0 {
		return
	}
	why := fmt.Sprintf("%.1f%% of the multiply-adds", 100*end/max(total, 1))
	if n := len(e.last); n > 1 {
		why = fmt.Sprintf("one of the last %d weight-bearing operators (together %s)", n, why)
	} else {
		why = fmt.Sprintf("the last weight-bearing operator (%s)", why)
	}
	for _, c := range lasts {
		c.rowsStay = why
	}
}
