// Package lower turns a graph whose weights have their formats into a program:
// it schedules the nodes and names the family of kernels of each. The exact
// kernel is bound where the program is loaded. It imports ir and lower/plan.
package lower

import (
	"spc/ir"
	"spc/lower/plan"
)

// Lower returns the program of a graph whose types are inferred. Nodes run in the
// order of the graph, which is not changed: others may read it at the same time.
func Lower(g *ir.Graph) *plan.Program { return plan.New(g) }
