package onnxgo

import (
	"context"
	"fmt"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/backend/predict"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/choose"
	"spc/passes/fit"
	"spc/passes/prune"
)

// compile replaces g's program by one for inputs of these types.
func (g *Graph) compile(inputs []*node, in []*tensor.Tensor) error {
	if err := g.forget(); err != nil {
		return err
	}
	pattern, err := prune.ParsePattern(g.opts.Pattern)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	if err := prune.CheckSparsity(pattern, g.opts.Sparsity); err != nil {
		return fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	sparsity := g.opts.Sparsity
	if own, ok := pattern.OwnSparsity(); ok {
		sparsity = own
	}
	b := builder{opset: g.opts.Opset, graph: ir.NewGraph("onnx-go"), values: map[*node]*ir.Value{}, open: map[*operation]bool{}}
	for i, n := range inputs {
		b.values[n] = b.graph.NewInput(n.name, ir.TypeOf(in[i]))
	}
	for _, o := range g.ops {
		if err := b.operation(o); err != nil {
			return err
		}
	}
	g.outputs = nil
	for _, n := range g.nodes {
		if n.def != nil && (n.tensor != nil || !n.read) {
			g.outputs = append(g.outputs, n)
			b.graph.Outputs = append(b.graph.Outputs, b.values[n])
		}
	}
	c := &passes.Context{
		Prune:   fit.Options{GraphOptions: prune.GraphOptions{Options: prune.Options{Pattern: pattern, Sparsity: sparsity}}, Allocate: prune.PerLayer},
		Choose:  choose.Options{Format: "auto"},
		Formats: format.Choices(machine.Default),
		Model:   predict.Of(machine.Default),

		Depthwise8: true,
	}
	if err := passes.Run(context.Background(), c, b.graph, passes.Options{}); err != nil {
		return err
	}
	g.prog, err = cpu.Device{}.Load(b.graph, backend.Options{Threads: g.opts.Threads})
	return err
}

// builder makes an ir.Graph of operations.
type builder struct {
	opset  int
	graph  *ir.Graph
	values map[*node]*ir.Value
	open   map[*operation]bool // operations whose inputs are being made
}

// operation makes the ir.Node of o, and those of the operations that it reads,
// unless they are made already.
func (b *builder) operation(o *operation) error {
	first := o.first()
	if first == nil || b.values[first] != nil {
		return nil
	}
	if b.open[o] {
		return fmt.Errorf("%s reads its own output: %w", o, ir.ErrInvalid)
	}
	b.open[o] = true
	l := &op.Legacy{Opset: b.opset, Kind: o.kind, Attrs: map[string]any{}, Graph: b.graph}
	for name, v := range o.attrs {
		l.Attrs[name] = v
	}
	names := make([]string, len(o.outputs))
	for i, n := range o.outputs {
		if n != nil {
			names[i] = n.name
			l.Outs = i + 1
		}
	}
	for i := range len(first.inputs) {
		n := first.inputs[i]
		if n == nil {
			return fmt.Errorf("%s: no edge has the weight %d of an input: %w", o, i, ir.ErrInvalid)
		}
		v, err := b.input(o, n)
		if err != nil {
			return err
		}
		l.SetInput(i, v)
	}
	for len(l.Inputs) > 0 && l.Inputs[len(l.Inputs)-1] == nil {
		l.Inputs = l.Inputs[:len(l.Inputs)-1]
	}
	if o.kind == constant {
		t, err := l.Constant()
		if err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		b.values[first] = b.graph.NewConst(first.name, t)
		return nil
	}
	made, err := l.Make()
	if err != nil {
		return fmt.Errorf("%s, read as of opset %d: %w", o, b.opset, err)
	}
	n := b.graph.NewNode(first.name, made, l.Inputs, names[:l.Outs]...)
	for i, v := range n.Outputs {
		if o.outputs[i] == nil {
			n.Outputs[i] = nil
			continue
		}
		b.values[o.outputs[i]] = v
	}
	return nil
}

// input returns the value of n, an input of o; nil where it is absent.
func (b *builder) input(o *operation, n *node) (*ir.Value, error) {
	if n.def != nil {
		if err := b.operation(n.def); err != nil {
			return nil, err
		}
		return b.values[n], nil
	}
	if v := b.values[n]; v != nil {
		return v, nil
	}
	if n.tensor == nil {
		if n.name == "" || takesNone(o.kind) { // the decoder makes up an input where there is none
			return nil, nil
		}
		return nil, fmt.Errorf("%s: input %s has no elements: %w", o, n.name, ir.ErrInvalid)
	}
	t, err := fromGorgonia(n.tensor)
	if err != nil {
		return nil, fmt.Errorf("%s: input %s: %w", o, n.name, err)
	}
	b.values[n] = b.graph.NewConst(n.name, t)
	return b.values[n], nil
}

// takesNone reports whether an operator has no inputs.
func takesNone(kind string) bool { return kind == constant || op.Lookup(kind).In[1] == 0 }
