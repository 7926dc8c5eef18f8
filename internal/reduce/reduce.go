// Package reduce finds the smallest part of a graph on which something goes wrong, and
// writes it as an ONNX model with its inputs and the outputs that it should have. It
// imports ir, ir/onnx, ir/tensor and internal/atomicfile.
package reduce

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spc/internal/atomicfile"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
)

// Values are the values of a graph's nodes, and of its inputs, in one evaluation.
type Values map[*ir.Value]*tensor.Tensor

// Cut returns nodes of g, in the order of g, as a graph of their own, with inputs for it:
// what other nodes computed becomes an input that holds its value. The outputs are those
// of g that the nodes compute, what none of them reads, and those values of also that they
// compute.
func Cut(g *ir.Graph, nodes []*ir.Node, values Values, also ...*ir.Value) (*ir.Graph, []*tensor.Tensor, error) {
	part := ir.NewGraph(g.Name)
	c := ir.NewCopier(part, g, "")
	var in []*tensor.Tensor
	made, read := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	for _, n := range nodes {
		for _, v := range n.Outputs {
			if v != nil {
				made[v] = true
			}
		}
	}
	var missing *ir.Value
	for _, n := range nodes {
		n.Reads(func(v *ir.Value) {
			if v.IsConst() || v.Graph() != g || read[v] {
				return
			}
			read[v] = true
			if made[v] {
				return
			}
			t := values[v]
			if t == nil {
				missing = v
				return
			}
			c.Bind(v, part.NewInput(v.Name, v.Type))
			in = append(in, t)
		})
	}
	if missing != nil {
		return nil, nil, fmt.Errorf("the value of %s is not known: %w", missing.Name, ir.ErrUnsupported)
	}
	for _, n := range nodes {
		c.Node(n)
	}
	add := func(v *ir.Value) {
		if made[v] {
			made[v] = false // once
			part.Outputs = append(part.Outputs, c.Value(v))
		}
	}
	for _, v := range g.Outputs {
		add(v)
	}
	for _, n := range nodes {
		for _, v := range n.Outputs {
			if v != nil && !read[v] {
				add(v)
			}
		}
	}
	for _, v := range also {
		add(v)
	}
	return part, in, part.Infer()
}

// Nodes returns a part of the nodes of g that fails and of which no node can be left out
// without fails turning false, where g itself fails: Zeller and Hildebrandt, "Simplifying
// and Isolating Failure-Inducing Input" (2002). Nodes around near, which may be nil, are
// tried first. An error of fails ends it.
func Nodes(ctx context.Context, g *ir.Graph, near *ir.Node, fails func(nodes []*ir.Node) (bool, error)) ([]*ir.Node, error) {
	best := g.Nodes
	if near != nil {
		for radius := 0; radius < 32; radius = 2*radius + 1 {
			some := around(g, near, radius)
			if len(some) == len(g.Nodes) {
				break
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			bad, err := fails(some)
			if err != nil {
				return nil, err
			}
			if bad {
				best = some
				break
			}
		}
	}
	for parts := 2; len(best) > 1; {
		parts = min(parts, len(best))
		smaller, err := without(ctx, best, parts, fails)
		if err != nil {
			return nil, err
		}
		switch {
		case smaller != nil:
			best, parts = smaller, max(2, parts-1)
		case parts == len(best):
			return best, nil
		default:
			parts *= 2
		}
	}
	return best, nil
}

// without leaves out one of so many parts of the nodes, and returns those that still
// fail, nil where none do. The last part is tried first: what comes late reads the others.
func without(ctx context.Context, nodes []*ir.Node, parts int, fails func([]*ir.Node) (bool, error)) ([]*ir.Node, error) {
	for p := parts - 1; p >= 0; p-- {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rest := slices.Concat(nodes[:p*len(nodes)/parts], nodes[(p+1)*len(nodes)/parts:])
		bad, err := fails(rest)
		if err != nil {
			return nil, err
		}
		if bad {
			return rest, nil
		}
	}
	return nil, nil
}

// around returns the nodes of g that are at most so many steps from one, in either
// direction, in the order of g.
func around(g *ir.Graph, near *ir.Node, radius int) []*ir.Node {
	next := map[*ir.Node][]*ir.Node{}
	for _, n := range g.Nodes {
		n.Reads(func(v *ir.Value) {
			if d := v.Def; d != nil && d.Graph() == g {
				next[n], next[d] = append(next[n], d), append(next[d], n)
			}
		})
	}
	in, edge := map[*ir.Node]bool{near: true}, []*ir.Node{near}
	for range radius {
		var further []*ir.Node
		for _, n := range edge {
			for _, m := range next[n] {
				if !in[m] {
					in[m] = true
					further = append(further, m)
				}
			}
		}
		edge = further
	}
	var out []*ir.Node
	for _, n := range g.Nodes {
		if in[n] {
			out = append(out, n)
		}
	}
	return out
}

// Folder is where Save puts the tensors that belong to the model at path: the folder of
// its name.
func Folder(path string) string { return strings.TrimSuffix(path, filepath.Ext(path)) }

// Files lists the files that Save writes for so many inputs and outputs.
func Files(path string, in, out int) []string {
	files := []string{path}
	for i := range in {
		files = append(files, filepath.Join(Folder(path), fmt.Sprintf("input_%d.pb", i)))
	}
	for i := range out {
		files = append(files, filepath.Join(Folder(path), fmt.Sprintf("output_%d.pb", i)))
	}
	return files
}

// Save writes g as the ONNX model at path, and its inputs and the outputs that it should
// have as input_K.pb and output_K.pb into Folder, as official test cases have them: all of
// them, or none.
func Save(path string, g *ir.Graph, in, out []*tensor.Tensor, producer, version string) (err error) {
	files := Files(path, len(in), len(out))
	_, statErr := os.Stat(Folder(path))
	if err := os.MkdirAll(Folder(path), 0o777); err != nil {
		return err
	}
	var staged []*atomicfile.Staged
	defer func() {
		for _, s := range staged {
			s.Discard()
		}
		if err != nil && statErr != nil {
			os.Remove(Folder(path))
		}
	}()
	write := []func(w io.Writer) error{func(w io.Writer) error { return onnx.Export(w, g, producer, version) }}
	for i, t := range in {
		write = append(write, proto(g.Inputs[i].Name, t))
	}
	for i, t := range out {
		write = append(write, proto(g.OutputName(i), t))
	}
	for i, f := range files {
		s, err := atomicfile.Stage(f, write[i])
		if err != nil {
			return err
		}
		staged = append(staged, s)
	}
	for _, s := range slices.Backward(staged) { // the model last
		if err := s.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func proto(name string, t *tensor.Tensor) func(w io.Writer) error {
	return func(w io.Writer) error { return tensor.EncodeProto(w, name, t) }
}
