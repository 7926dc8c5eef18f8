// Package backend declares what a device is: something that loads the program
// of a graph and runs it. Each device lives in a folder of its own; storage formats
// and their kernels in format. It imports lower, lower/chain and passes/choose. It may
// change in any version, as may those below it: programs import spc.
package backend

import (
	"context"
	"time"

	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
)

// Options are the choices of whoever loads a program.
type Options struct {
	// Threads is the number of threads that one Run may use; 0 means one for
	// each physical core.
	Threads int
	// Specialised is the number of sets of input shapes for which what a program was lowered to is
	// kept, the one used last first; 0 means Specialised.
	Specialised int
	// Memory bounds the bytes that runs leave on the CPU for later ones to use; 0 means any number.
	Memory int
	// Checked says that the stored weights have passed the checks of their formats.
	Checked bool
	// Lowering says which steps of lowering run, and who sees them.
	Lowering lower.Options
	// Unneeded, where it is set, is called with bytes of weights that the device
	// has copied: they may leave memory, though they can be read again. It may be
	// called concurrently.
	Unneeded func(b []byte)
	// Closed, where it is set, is called once nothing reads the program's graph
	// any more: by Close, unless an operator or a kernel that a cancelled run did not
	// wait for is still computing. Its error is then that of Close.
	Closed func() error
}

// Specialised is how many sets of input shapes a program stays specialised for by default.
const Specialised = 8

// Device loads programs.
type Device interface {
	Name() string
	// Load prepares the program of a graph whose types are inferred: weights are checked and
	// brought into the form that the device's kernels want. It is lowered when it first runs on inputs of
	// certain shapes. The graph is not changed: others may read it at the same time.
	Load(g *ir.Graph, o Options) (Program, error)
}

// Program is a program loaded on a device. Run may be called concurrently.
type Program interface {
	// Run evaluates the program on one tensor for each input of its graph.
	// Inputs have the types that the graph declares; symbols take the sizes
	// that the inputs have. out has an element for each output: outputs are
	// written into the tensors in it that have their type and shape, and take
	// the place of others with tensors of their own. All belong to the caller,
	// and inputs may be among them. After an error they are as they were. An error of
	// the device itself is ir.ErrDevice. Where ctx is cancelled Run returns its error at
	// once, and may read inputs for a while.
	Run(ctx context.Context, in, out []*tensor.Tensor) error
	// Trace is Run, and calls f after each step of the main graph, as soon as it is done, with the time
	// that the step took. A node that is computed in portions has a step for each.
	Trace(ctx context.Context, in, out []*tensor.Tensor, f func(n *ir.Node, d time.Duration)) error
	// Prepare lowers the program for inputs of these types, which need no elements, so that the
	// first Run on such does not.
	Prepare(in []*tensor.Tensor) error
	// Close frees what Load took. No Run may be in progress.
	Close() error
}

// Placement is where a node runs: on the device, in its Part-th run of nodes there, which is
// queued at once, or on the CPU, where Why says what the device lacks.
type Placement struct {
	Node *ir.Node
	Part int // from 1 on, 0 on the CPU
	Why  string
	// Interpreted says, where the device is the CPU, that there is no kernel and the operator evaluates the node, or one of its subgraphs.
	Interpreted bool
	// Cascade is, from 1 on, the number of a cascade: its nodes are computed together, strip by strip, in runs that are not
	// traced. It is 0 where there is none.
	Cascade int
	// Spared are the bytes, read and written, of what the node would copy but for the place in which it lies already.
	Spared int
}

// Partial is a Program that has no kernels for some nodes.
type Partial interface {
	// Placements tells where the nodes run that are left for inputs of these shapes, in the
	// order of execution; on the CPU those of subgraphs come before their node.
	Placements(in []*tensor.Tensor) ([]Placement, error)
}
