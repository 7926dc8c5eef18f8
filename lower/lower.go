// Package lower turns a graph whose weights have their formats into a program: a device's table of steps, to be
// read from top to bottom as that of the passes is, changes the graph for the shapes of its inputs, schedules
// its nodes, binds them to kernels and lays out its values. Package plan holds what the devices have in common
// of that, package chain what they know of elementwise operators, and package spx the file. It imports ir and lower/plan.
// It may change in any version, as may those below it: programs import spc.
package lower

import (
	"fmt"
	"io"
	"slices"

	"spc/internal/debug"
	"spc/ir"
	"spc/lower/plan"
)

// Step is a row of a device's table. Run changes what is lowered in place and returns the number of
// changes that it made.
type Step[L Lowering] struct {
	Name string
	Doc  string
	// Optional says that the program computes the same without the step, though more slowly or in more memory.
	Optional bool
	Run      func(l L) (changes int, err error)
}

// Lowering is what the steps of a device work on.
type Lowering interface {
	// Units are the graphs that become programs, one after the other in the order in which these run, with
	// their plans, nil before they are scheduled.
	Units() []Unit
}

// Unit is a graph that is being lowered.
type Unit struct {
	Graph *ir.Graph
	Plan  *plan.Program
	// Shared says that the graph is the program's, which others read at the same time: it is as it was loaded, and
	// is not checked, for that infers its types anew.
	Shared bool
}

// Options control which steps run and what is seen of them.
type Options struct {
	Disable []string // optional steps that do not run, of this table or another device's
	// Dump, where it is set, is called with what is lowered after each step. It may be called again, for inputs of other
	// shapes, and concurrently.
	Dump func(index int, step string, changes int, units []Unit) error
}

// Run runs the steps of a table. Where package debug asks for it, or what is seen is dumped, graphs and plans are checked
// after each.
func Run[L Lowering](table []Step[L], l L, o Options) error {
	check := o.Dump != nil || debug.On(debug.Memory)
	for i, s := range table {
		if s.Optional && slices.Contains(o.Disable, s.Name) {
			continue
		}
		changes, err := s.Run(l)
		if err != nil {
			return err
		}
		if check {
			if err := verify(l.Units()); err != nil {
				return fmt.Errorf("after lowering step %s: %w", s.Name, err)
			}
		}
		if o.Dump != nil {
			if err := o.Dump(i, s.Name, changes, l.Units()); err != nil {
				return err
			}
		}
	}
	return nil
}

func verify(units []Unit) error {
	for _, u := range units {
		if u.Shared {
			continue
		}
		if err := u.Graph.Verify(); err != nil {
			return err
		}
		if u.Plan != nil {
			if err := u.Plan.Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Write writes graphs as text, their plans as comments behind them.
func Write(w io.Writer, units []Unit, graph func(io.Writer, *ir.Graph) error) error {
	for _, u := range units {
		if err := graph(w, u.Graph); err != nil {
			return err
		}
		if u.Plan != nil {
			if err := u.Plan.Print(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// Row is what a table says of a step.
type Row struct {
	Name, Doc string
	Optional  bool
}

// Rows lists the steps of a table.
func Rows[L Lowering](table []Step[L]) []Row {
	rows := make([]Row, len(table))
	for i, s := range table {
		rows[i] = Row{s.Name, s.Doc, s.Optional}
	}
	return rows
}
