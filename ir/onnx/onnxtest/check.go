// Package onnxtest checks that files are ones that runtimes of ONNX take, for tests. It imports the generated
// messages.
package onnxtest

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// Check checks what ONNX asks of names in a model, and a little more: each is that of one value in all graphs,
// values are defined before they are read, and a subgraph gives what its own nodes and initializers
// define, each once.
func Check(model []byte) error {
	var m onnxpb.ModelProto
	if err := proto.Unmarshal(model, &m); err != nil {
		return err
	}
	return checker{}.graph(m.Graph, nil, true)
}

// checker holds the names of the values of all graphs.
type checker map[string]bool

// graph checks a graph in which names of outer ones are seen.
func (c checker) graph(g *onnxpb.GraphProto, outer []string, root bool) error {
	seen := slices.Clip(outer)
	var own []string // without inputs
	define := func(name string) error {
		if name == "" || c[name] {
			return fmt.Errorf("graph %s: two values are called %q, or one nothing", g.GetName(), name)
		}
		c[name] = true
		seen = append(seen, name)
		return nil
	}
	for _, v := range g.Input {
		if err := define(v.GetName()); err != nil {
			return err
		}
	}
	for _, t := range g.Initializer {
		if err := define(t.GetName()); err != nil {
			return err
		}
		own = append(own, t.GetName())
	}
	for _, n := range g.Node {
		for _, name := range n.Input {
			if name != "" && !slices.Contains(seen, name) {
				return fmt.Errorf("graph %s: %s (%s) reads %q, which is not defined", g.GetName(), n.GetName(), n.GetOpType(), name)
			}
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				if err := c.graph(a.G, seen, false); err != nil {
					return err
				}
			}
		}
		for _, name := range n.Output {
			if name == "" {
				continue
			}
			if err := define(name); err != nil {
				return err
			}
			own = append(own, name)
		}
	}
	for i, v := range g.Output {
		given := slices.ContainsFunc(g.Output[:i], func(o *onnxpb.ValueInfoProto) bool { return o.GetName() == v.GetName() })
		if !slices.Contains(seen, v.GetName()) || !root && (given || !slices.Contains(own, v.GetName())) {
			return fmt.Errorf("graph %s: output %q is not what the graph defines, or another output, too", g.GetName(), v.GetName())
		}
	}
	return nil
}
