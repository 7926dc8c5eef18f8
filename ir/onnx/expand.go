package onnx

import (
	"errors"

	"spc/ir"
	"spc/ir/onnx/contrib"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// expand makes operators of ONNX of a node of another domain.
func (im *importer) expand(p *onnxpb.NodeProto, def *contrib.Def, attrs map[string]any, inputs []*ir.Value, sc *scope) error {
	for _, v := range inputs {
		if v == nil {
			continue
		}
		if err := im.settle(v); err != nil {
			return err
		}
	}
	outputs := trim(p.GetOutput())
	n := &contrib.Node{Name: sc.nodeName(p), Attrs: attrs, Graph: sc.graph, Inputs: inputs, Wanted: make([]bool, len(outputs))}
	for len(n.Inputs) > 0 && n.Inputs[len(n.Inputs)-1] == nil {
		n.Inputs = n.Inputs[:len(n.Inputs)-1]
	}
	for i, out := range outputs {
		n.Wanted[i] = out != ""
	}
	first := len(sc.graph.Nodes)
	values, err := def.Make(n)
	if err != nil {
		return err
	}
	for t, p := range n.Packings {
		im.packings[t] = p
	}
	made := map[*ir.Value]bool{}
	for _, m := range sc.graph.Nodes[first:] {
		for _, v := range m.Outputs {
			made[v] = true
		}
	}
	for i, out := range outputs {
		if out == "" {
			continue
		}
		sc.values[out] = values[i]
		if made[values[i]] {
			values[i].Rename(sc.nameOf(out))
			delete(made, values[i]) // which has its name now
		}
	}
	return nil
}

// settle infers the type of a value, and of what it is computed of, where that has not been done. Types of a subgraph's
// inputs are what the file declares. Chains of nodes may be as long as the file makes them, so it keeps a stack of its own.
func (im *importer) settle(v *ir.Value) error {
	type frame struct {
		node  *ir.Node
		reads []*ir.Value // those to settle before it
	}
	var stack []*frame
	enter := func(v *ir.Value) error {
		n := v.Def
		if n == nil || v.Type.DType != tensor.Undefined {
			return nil
		}
		if im.settled[n] {
			return errLost
		}
		im.settled[n] = true
		f := &frame{node: n}
		n.Reads(func(in *ir.Value) {
			if !within(in.Graph(), n) {
				f.reads = append(f.reads, in)
			}
		})
		stack = append(stack, f)
		return nil
	}
	if err := enter(v); err != nil {
		return err
	}
	for len(stack) > 0 {
		f := stack[len(stack)-1]
		if len(f.reads) > 0 {
			in := f.reads[0]
			f.reads = f.reads[1:]
			if err := enter(in); err != nil {
				return err
			}
			continue
		}
		stack = stack[:len(stack)-1]
		switch err := f.node.Infer(); {
		case errors.Is(err, ir.ErrUnsupported):
			im.refuse(err.Error())
			return errLost
		case err != nil:
			return located{err}
		}
	}
	return nil
}

// within reports whether g is a subgraph of n, or inside one.
func within(g *ir.Graph, n *ir.Node) bool {
	for ; g.Owner != nil; g = g.Owner.Graph() {
		if g.Owner == n {
			return true
		}
	}
	return false
}
