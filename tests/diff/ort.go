package diff

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/bench"
)

// Peer is an ONNX Runtime with which the interpreter is compared.
type Peer struct {
	ort    *bench.ORT
	worker *bench.Worker
	dir    string
}

// FindPeer finds ONNX Runtime where npm installed it.
func FindPeer(folder string) (*Peer, error) {
	dir, err := os.MkdirTemp("", "spc-diff")
	if err != nil {
		return nil, err
	}
	ort, err := bench.FindORT(folder, dir)
	if err != nil {
		return nil, err
	}
	return &Peer{ort: ort, dir: dir}, nil
}

// Decision is a class of differences from ONNX Runtime, and what the specification of ONNX
// says of it.
type Decision struct {
	Kind string                                  // the operator
	When func(c *Case, n *onnxpb.NodeProto) bool // nil for any node of it
	Why  string
}

// Decisions lists them. What is said of ONNX Runtime is of the version that the Makefile
// installs.
var Decisions = []Decision{
	{Kind: "MaxPool", When: after("Pad"), Why: "the elements that Pad 25 adds are its constant, and MaxPool 22 takes them for elements like others; ONNX Runtime makes them the window's own padding, which never is the maximum"},
	{Kind: "NonZero", When: func(c *Case, n *onnxpb.NodeProto) bool { return c.input(n, 0).Rank() == 0 }, Why: "NonZero 13 gives a row for each dimension of its input, so that a scalar, unlike in numpy, gives the shape [0, N]"},
	{Kind: "Scan", Why: "Scan 25 stacks what the body gives in each round; ONNX Runtime gives other elements where that is an input of the body itself"},
	{Kind: "Gemm", When: func(c *Case, n *onnxpb.NodeProto) bool { return c.input(n, 0).Len() == 0 || c.input(n, 1).Len() == 0 }, Why: "Gemm 13 adds beta times C whatever the product is, which of no columns is zero; ONNX Runtime leaves beta out there"},
	{Kind: "DynamicQuantizeLinear", When: func(c *Case, n *onnxpb.NodeProto) bool { return c.input(n, 0).Len() == 0 }, Why: "DynamicQuantizeLinear 11 has no scale for an input without elements, which has no least and no largest"},
}

// after tells nodes whose first input a node of another operator makes.
func after(kind string) func(c *Case, n *onnxpb.NodeProto) bool {
	return func(c *Case, n *onnxpb.NodeProto) bool {
		m := new(onnxpb.ModelProto)
		return proto.Unmarshal(c.Model, m) == nil && slices.ContainsFunc(m.Graph.Node, func(o *onnxpb.NodeProto) bool {
			return o.OpType == kind && slices.Contains(o.Output, n.Input[0])
		})
	}
}

// input is an input of a node of a graph that was shrunk, where it is one of the graph or
// a constant; else a tensor of one element and of one dimension.
func (c *Case) input(n *onnxpb.NodeProto, i int) *tensor.Tensor {
	if t := c.Runs[0].Inputs[n.Input[i]]; t != nil {
		return t
	}
	m := new(onnxpb.ModelProto)
	if proto.Unmarshal(c.Model, m) == nil {
		for _, w := range m.Graph.Initializer {
			if w.Name == n.Input[i] {
				if t, err := tensor.FromProto(w, nil); err == nil {
					return t
				}
			}
		}
	}
	return tensor.Ints(1)
}

// Decided returns what decides a difference that was shrunk, empty where nothing does.
func Decided(c *Case) string {
	m := new(onnxpb.ModelProto)
	if proto.Unmarshal(c.Model, m) != nil {
		return ""
	}
	for _, n := range m.Graph.Node {
		for _, d := range Decisions {
			if d.Kind == op.KindOf(n.Domain, n.OpType) && (d.When == nil || d.When(c, n)) {
				return d.Kind + ": " + d.Why
			}
		}
	}
	return ""
}

// Differs is Check for Shrink.
func (p *Peer) Differs(ctx context.Context, c *Case) *Finding {
	f, _ := p.Check(ctx, c)
	return f
}

// Check compares the interpreter with ONNX Runtime on the inputs of the first run. It
// returns an error where that does not take the model.
func (p *Peer) Check(ctx context.Context, c *Case) (*Finding, error) {
	in := c.Runs[0].Inputs
	want, err := c.oracle(c.Model, in, passes)
	if err != nil {
		return nil, err
	}
	if p.worker == nil {
		if p.worker, err = p.ort.Start(ctx, 1); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(p.dir, "model.onnx")
	if err := os.WriteFile(path, c.Model, 0o666); err != nil {
		return nil, err
	}
	got, err := p.worker.Evaluate(path, in)
	if err != nil {
		if strings.Contains(err.Error(), "process ended") {
			p.worker.Close()
			p.worker = nil
		}
		return nil, err
	}
	v := Variant{Name: "ONNX Runtime", Threads: 1}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if class, detail := want[name].differs(got[name]); class != "" {
			return &Finding{Class: class, Variant: v, Output: name, Detail: fmt.Sprintf("ONNX Runtime gives %s", detail)}, nil
		}
	}
	return nil, nil
}
