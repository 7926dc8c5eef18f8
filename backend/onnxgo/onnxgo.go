// Package onnxgo lets spc serve as a back end of github.com/owulveryck/onnx-go:
// a Graph takes the nodes, tensors and operations that onnx-go's decoder hands
// over, compiles them with the passes, and runs them on the CPU.
//
//	g := onnxgo.New(onnxgo.Options{Sparsity: 0.8})
//	defer g.Close()
//	m := onnx.NewModel(g)
//	err := m.UnmarshalBinary(file)
//	err = m.SetInput(0, x)
//	err = g.Run()
//	out, err := m.GetOutputTensors()
//
// It is for programs that use onnx-go already. Package spc reads today's models,
// which onnx-go's decoder does not: it refuses subgraphs, half precision and most
// narrow integers, and it leaves out what a back end has to guess.
//
//   - Opsets and domains: every operator is read as one of Options.Opset.
//   - Names of nodes: a node goes by the name of its first output.
//   - Which values are outputs: those that the model declares a type for, and
//     those that nothing reads, are computed. A model that declares the types of
//     inner values gets no fusion across them.
//   - Which tensors are inputs: those set after decoding, in the declared element
//     type or another one that holds the same numbers. A declared input that
//     nobody sets keeps the zeros that the decoder gave it.
//   - Symbolic dimensions: a graph is compiled for the types that its inputs have
//     when it runs, and again when they change.
//
// Model.SetInput(i, t) sets the node with the ID i, which is the input i only as
// long as no initializer is listed among the inputs before it; GetNodeByName finds
// the right one.
//
// The package imports the passes, lower, and the CPU back end.
package onnxgo

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/owulveryck/onnx-go"
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/simple"
	gorgonia "gorgonia.org/tensor"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// DefaultOpset is the opset of most models from onnx-go's time.
const DefaultOpset = 9

// Options say how a graph is compiled.
type Options struct {
	// Opset is the version that operators are read as; 0 is DefaultOpset. What an
	// older version has as an attribute and a newer one as an input is understood
	// in both forms by default, so it matters for changed meanings: Softmax from
	// 13, Resize from 11.
	Opset int
	// Sparsity is the fraction of zeros over all prunable weights.
	Sparsity float64
	// Pattern is that of the zeros, as of spc.CompileOptions; empty is uniform.
	Pattern string
	// Threads is the number of threads of one Run, 0 for one a physical core.
	Threads int
}

// Graph is a backend.ComputationBackend. An edge leads from an output of an
// operation to an input and weighs the input's index; an input that is read twice
// has one edge but is kept twice. A Graph is not safe for concurrent use.
type Graph struct {
	graph.DirectedWeightedBuilder
	opts  Options
	nodes []*node // by ID
	ops   []*operation

	prog    backend.Program // nil until the first Run, and when the graph has changed
	key     string          // what prog was compiled for
	outputs []*node         // what prog computes
}

// New returns an empty graph.
func New(o Options) *Graph {
	if o.Opset == 0 {
		o.Opset = DefaultOpset
	}
	if o.Pattern == "" {
		o.Pattern = "uniform"
	}
	return &Graph{
		DirectedWeightedBuilder: simple.NewWeightedDirectedGraph(0, math.Inf(1)),
		opts:                    o,
	}
}

// node is a value of the model: an onnx.Namer and an onnx.DataCarrier.
type node struct {
	graph  *Graph
	id     int64
	name   string
	tensor gorgonia.Tensor
	dtype  gorgonia.Dtype // that the model declares
	set    bool           // after decoding: an input
	read   bool           // by an operation
	def    *operation     // what computes it, nil for inputs and constants
	inputs map[int]*node  // of the operation that computes it
}

// operation is an operator applied to nodes.
type operation struct {
	kind    string
	attrs   map[string]any // as op.Legacy has them
	outputs []*node        // nil where not wanted
}

// first returns the first output that is wanted, nil where there is none.
func (o *operation) first() *node {
	for _, n := range o.outputs {
		if n != nil {
			return n
		}
	}
	return nil
}

func (o *operation) String() string {
	if n := o.first(); n != nil {
		return fmt.Sprintf("%s (%s)", n.name, o.kind)
	}
	return o.kind
}

// ID identifies the node in its graph.
func (n *node) ID() int64 { return n.id }

// SetName sets the value's name. A value without a name stands for an optional
// input or output that is absent.
func (n *node) SetName(name string) { n.name = name }

// GetName returns the value's name.
func (n *node) GetName() string { return n.name }

// SetTensor sets the elements of an input or a constant, which must not change
// until Run has used them, or the type of a value that will be computed.
func (n *node) SetTensor(t gorgonia.Tensor) error {
	if n.def != nil {
		return fmt.Errorf("%s: its elements are computed and cannot be set: %w", n.def, ir.ErrInvalid)
	}
	if t == nil {
		return fmt.Errorf("input %s: no tensor: %w", n.name, ir.ErrInvalid)
	}
	n.tensor = t
	if len(n.graph.ops) > 0 {
		n.set = true
	} else {
		n.dtype = t.Dtype()
	}
	return nil
}

// GetTensor returns what was set, or what Run has computed.
func (n *node) GetTensor() gorgonia.Tensor { return n.tensor }

// NewNode returns a node that is not yet in g.
func (g *Graph) NewNode() graph.Node {
	return &node{graph: g, id: g.DirectedWeightedBuilder.NewNode().ID(), inputs: map[int]*node{}}
}

// AddNode adds a node that NewNode returned.
func (g *Graph) AddNode(n graph.Node) {
	g.DirectedWeightedBuilder.AddNode(n)
	if n, ok := n.(*node); ok {
		g.nodes = append(g.nodes, n)
	}
}

// SetWeightedEdge makes e.To the input e.Weight of the operation that computes
// e.From.
func (g *Graph) SetWeightedEdge(e graph.WeightedEdge) {
	if from, ok := e.From().(*node); ok {
		if to, ok := e.To().(*node); ok {
			from.inputs[int(e.Weight())] = to
			to.read = true
		}
	}
	if e.From().ID() != e.To().ID() { // a simple graph has no place for other edges
		g.DirectedWeightedBuilder.SetWeightedEdge(e)
	}
}

// ApplyOperation makes the nodes the outputs of an operator. An operator that spc
// does not have is an *onnx.ErrNotImplemented.
func (g *Graph) ApplyOperation(p onnx.Operation, outputs ...graph.Node) error {
	o := &operation{kind: p.Name, attrs: make(map[string]any, len(p.Attributes)), outputs: make([]*node, len(outputs))}
	if p.Name != constant && op.Lookup(p.Name) == nil {
		return &onnx.ErrNotImplemented{Operator: p.Name, Message: "spc has no such operator"}
	}
	for i, out := range outputs {
		n, ok := out.(*node)
		if !ok || n.graph != g {
			return fmt.Errorf("%s: output %d is no node of this graph: %w", o, i, ir.ErrInvalid)
		}
		if n.name == "" {
			continue
		}
		if n.def != nil {
			return fmt.Errorf("%s: output %s is that of %s already: %w", o, n.name, n.def, ir.ErrInvalid)
		}
		o.outputs[i] = n
		n.def = o
	}
	for name, v := range p.Attributes {
		a, err := attribute(v)
		if err != nil {
			return fmt.Errorf("%s: attribute %s: %w", o, name, err)
		}
		o.attrs[name] = a
	}
	g.ops = append(g.ops, o)
	return g.forget()
}

// constant is the operator without a row in op.Table.
const constant = "Constant"

// attribute converts an attribute to the form of op.Legacy.
func attribute(v any) (any, error) {
	switch v := v.(type) {
	case float32, string, []string:
		return v, nil
	case []float32:
		return append([]float32{}, v...), nil
	case int64:
		return int(v), nil
	case []int64:
		ints := make([]int, len(v))
		for i, n := range v {
			ints[i] = int(n)
		}
		return ints, nil
	case gorgonia.Tensor:
		return fromGorgonia(v)
	case struct{}:
		return nil, fmt.Errorf("the file gives no type, without which onnx-go decodes no value: %w", ir.ErrUnsupported)
	}
	return nil, fmt.Errorf("a value of type %T: %w", v, ir.ErrUnsupported)
}

// Run compiles the graph, unless it was compiled for inputs of the same types
// before, and computes its outputs.
func (g *Graph) Run() error {
	var inputs []*node
	var in []*tensor.Tensor
	var key strings.Builder
	for _, n := range g.nodes {
		if n.def != nil || !n.set {
			continue
		}
		t, err := fromGorgonia(n.tensor)
		if err == nil {
			t, err = exactly(t, n.dtype)
		}
		if err != nil {
			return fmt.Errorf("input %s: %w", n.name, err)
		}
		inputs, in = append(inputs, n), append(in, t)
		fmt.Fprintf(&key, "%d %v\n", n.id, t)
	}
	if g.prog == nil || g.key != key.String() {
		if err := g.compile(inputs, in); err != nil {
			return err
		}
		g.key = key.String()
	}
	outs := make([]*tensor.Tensor, len(g.outputs))
	err := g.prog.Run(context.Background(), in, outs)
	if err != nil {
		return err
	}
	for i, n := range g.outputs {
		if n.tensor, err = toGorgonia(outs[i]); err != nil {
			return fmt.Errorf("output %s: %w", n.name, err)
		}
	}
	return nil
}

// Close frees the threads that Run uses. The next Run compiles again.
func (g *Graph) Close() error { return g.forget() }

// forget drops the program.
func (g *Graph) forget() error {
	if g.prog == nil {
		return nil
	}
	err := g.prog.Close()
	g.prog = nil
	return err
}
