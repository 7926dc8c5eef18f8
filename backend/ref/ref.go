// Package ref is the reference interpreter: it evaluates a graph node by node, and is
// what every other back end is compared with. Products of f32 tensors it computes by
// plain loops of its own, the other operators by their Eval. It imports ir and ir/tensor,
// nothing of the back ends and formats that it judges.
package ref

import (
	"context"
	"fmt"
	"maps"

	"spc/ir"
	"spc/ir/tensor"
)

// Interpreter evaluates graphs. The zero Interpreter takes constants as tensors.
// It is safe for concurrent use as long as nobody changes the graph.
type Interpreter struct {
	// Unpack returns the elements of a constant that is stored in a format.
	Unpack func(s *ir.Value) (*tensor.Tensor, error)
	// Check compares each node's outputs with the types inferred for them: for
	// tests of operators.
	Check bool
	// Each, where it is set, is called after each node of the root graph with its outputs,
	// which must not be changed.
	Each func(n *ir.Node, outs []*tensor.Tensor)
}

// Run evaluates g with the zero Interpreter.
func Run(ctx context.Context, g *ir.Graph, inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return new(Interpreter).Run(ctx, g, inputs)
}

// Run evaluates g on its inputs, in their order. Errors name the input or the
// node and wrap one of the kinds of package ir, or are the context's.
func (it *Interpreter) Run(ctx context.Context, g *ir.Graph, inputs []*tensor.Tensor) ([]*tensor.Tensor, error) {
	sizes, err := ir.BindInputs(g, inputs)
	if err != nil {
		return nil, err
	}
	r := &run{Interpreter: it, ctx: ctx, sizes: sizes, last: map[*ir.Graph][][]*ir.Value{}, unpacked: map[*ir.Value]*tensor.Tensor{}}
	return r.graph(g, inputs, nil)
}

// run is one evaluation of a root graph.
type run struct {
	*Interpreter
	ctx      context.Context
	sizes    map[string]int              // of the inputs' symbols
	last     map[*ir.Graph][][]*ir.Value // by node, the values that no later node of the graph reads
	unpacked map[*ir.Value]*tensor.Tensor
}

// frame holds the values of one evaluation of a graph.
type frame struct {
	outer  *frame
	values map[*ir.Value]*tensor.Tensor
	sizes  map[string]int // of the symbols met, those of outer graphs included, under Check
}

func (f *frame) find(v *ir.Value) *tensor.Tensor {
	for ; f != nil; f = f.outer {
		if t, ok := f.values[v]; ok {
			return t
		}
	}
	return nil
}

func (r *run) graph(g *ir.Graph, inputs []*tensor.Tensor, outer *frame) ([]*tensor.Tensor, error) {
	if len(inputs) != len(g.Inputs) {
		return nil, fmt.Errorf("%d inputs for graph %s, want %d: %w", len(inputs), g.Name, len(g.Inputs), ir.ErrInvalid)
	}
	if err := r.ctx.Err(); err != nil { // g may have no nodes
		return nil, err
	}
	f := &frame{outer: outer, values: make(map[*ir.Value]*tensor.Tensor, len(g.Nodes))}
	if r.Check {
		f.sizes = map[string]int{}
		if outer != nil {
			f.sizes = maps.Clone(outer.sizes)
		}
	}
	for i, v := range g.Inputs {
		f.values[v] = inputs[i]
		if r.Check {
			if err := f.fits(inputs[i], v.Type); err != nil {
				return nil, fmt.Errorf("input %s of graph %s: %w", v.Name, g.Name, err)
			}
		}
	}
	dead, ok := r.last[g]
	if !ok {
		dead = lastUses(g)
		r.last[g] = dead
	}
	for i, n := range g.Nodes {
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.node(n, f); err != nil {
			return nil, err
		}
		if r.Each != nil && outer == nil {
			outs := make([]*tensor.Tensor, len(n.Outputs))
			for i, v := range n.Outputs {
				outs[i] = f.values[v]
			}
			r.Each(n, outs)
		}
		for _, v := range dead[i] {
			delete(f.values, v)
		}
	}
	out := make([]*tensor.Tensor, len(g.Outputs))
	for i, v := range g.Outputs {
		t, err := r.value(v, f)
		if err != nil {
			return nil, err
		}
		out[i] = t
	}
	return out, nil
}

// value returns the elements of v, nil for an absent one.
func (r *run) value(v *ir.Value, f *frame) (*tensor.Tensor, error) {
	switch {
	case v == nil:
		return nil, nil
	case v.Const != nil:
		return v.Const, nil
	case v.Store == nil:
		t := f.find(v)
		if t == nil {
			return nil, fmt.Errorf("%s has no value: %w", v.Name, ir.ErrInvalid)
		}
		return t, nil
	case r.Unpack == nil:
		return nil, fmt.Errorf("constant %s is stored in format %s, and nothing unpacks it: %w", v.Name, v.Store.Format, ir.ErrUnsupported)
	}
	if t := r.unpacked[v]; t != nil {
		return t, nil
	}
	t, err := r.Unpack(v)
	if err != nil {
		return nil, fmt.Errorf("constant %s: %w", v.Name, err)
	}
	r.unpacked[v] = t
	return t, nil
}

func (r *run) node(n *ir.Node, f *frame) error {
	in := make([]*tensor.Tensor, len(n.Inputs))
	for i, v := range n.Inputs {
		t, err := r.value(v, f)
		if err != nil {
			return fmt.Errorf("%v: %w", n, err)
		}
		in[i] = t
	}
	var types []ir.Type
	if len(ir.Subgraphs(n.Op)) == 0 && (r.Check || !static(n)) {
		var err error
		if types, err = n.InferFor(in); err != nil {
			return err
		}
	}
	sizes := types
	if sizes == nil {
		sizes = n.OutputTypes()
	}
	if err := n.CheckMemory(sizes); err != nil {
		return err
	}
	out, err := r.eval(n, in, f)
	if err != nil {
		return err
	}
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		if i >= len(out) || out[i] == nil {
			return fmt.Errorf("%v: output %s was not computed: %w", n, v.Name, ir.ErrUnsupported)
		}
		f.values[v] = out[i]
		if !r.Check {
			continue
		}
		if err := f.fits(out[i], v.Type); err != nil {
			return fmt.Errorf("%v: output %s: %w", n, v.Name, err)
		}
		if types != nil {
			own := &frame{sizes: map[string]int{}} // their unknowns are not the graph's
			if err := own.fits(out[i], types[i]); err != nil {
				return fmt.Errorf("%v: output %s: for these inputs %w", n, v.Name, err)
			}
		}
	}
	return nil
}

// eval computes the outputs of n.
func (r *run) eval(n *ir.Node, in []*tensor.Tensor, f *frame) ([]*tensor.Tensor, error) {
	if y, err := product(r.ctx, n, in); y != nil || err != nil {
		return []*tensor.Tensor{y}, err
	}
	c := &ir.Eval{Outputs: len(n.Outputs), Sizes: r.sizes, Run: func(g *ir.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		return r.graph(g, in, f)
	}}
	out, err := n.Op.Eval(c, in)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n, err)
	}
	return out, nil
}

// static reports whether the types of n's inputs were known when they were
// inferred, so that what its Eval takes has been checked.
func static(n *ir.Node) bool {
	for _, v := range n.Inputs {
		if v != nil && !v.Type.Static() {
			return false
		}
	}
	return true
}

// fits returns an error unless t is of type want, as far as that is known. A
// symbol must stand for one size in all of a graph.
func (f *frame) fits(t *tensor.Tensor, want ir.Type) error {
	if !f.accepts(t, want) {
		return fmt.Errorf("%v was computed, %v is inferred", t, want)
	}
	return nil
}

func (f *frame) accepts(t *tensor.Tensor, want ir.Type) bool {
	ok := t.DType() == want.DType
	if want.Ranked {
		ok = ok && len(want.Dims) == t.Rank()
		for i := 0; ok && i < t.Rank(); i++ {
			if want.Dims[i] == ir.Any {
				continue
			}
			n, known := want.Dims[i].At(f.sizes)
			if !known {
				f.sizes[want.Dims[i].Symbol()] = t.Dim(i)
				continue
			}
			ok = max(n, 0) == t.Dim(i) // a window on too little gives nothing
		}
	}
	if !ok || want.Elem == nil {
		return ok
	}
	for _, e := range t.Items() {
		if !f.accepts(e, *want.Elem) {
			return false
		}
	}
	return true
}

// lastUses returns, for each node of g, the values of g that nothing reads after
// it. Outputs of g are none of them.
func lastUses(g *ir.Graph) [][]*ir.Value {
	last := map[*ir.Value]int{}
	for i, n := range g.Nodes {
		for _, v := range n.Outputs {
			if v != nil {
				last[v] = i
			}
		}
		n.Reads(func(v *ir.Value) {
			if v.Graph() == g && !v.IsConst() {
				last[v] = i
			}
		})
	}
	for _, v := range g.Outputs {
		delete(last, v)
	}
	dead := make([][]*ir.Value, len(g.Nodes))
	for v, i := range last {
		dead[i] = append(dead[i], v)
	}
	return dead
}
