// Package lower turns a graph whose weights have their formats into a program:
// it schedules the nodes and names the family of kernels of each. The exact
// kernel is bound where the program is loaded. It imports ir and lower/plan.
package lower

import (
	"spc/ir"
	"spc/lower/plan"
)

// Lower returns the program of a graph, which it takes over. Nodes run in the
// order of the graph.
func Lower(g *ir.Graph) (*plan.Program, error) {
	if err := g.Infer(); err != nil {
		return nil, err
	}
	return plan.New(g), nil
}
