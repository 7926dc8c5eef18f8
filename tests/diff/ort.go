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
	{Kind: "Reduce", When: empty, Why: "an axis that is reduced has one element, or is gone, whatever the other axes have, and nothing reduces to the neutral element (ReduceProd 18, ReduceSum 13); ONNX Runtime leaves it as it is where the input has no elements"},
	{Kind: "Conv", When: quantisedAround, Why: "Conv 22 between DequantizeLinear 21 and QuantizeLinear 21 is one of floats with its bias as it is; ONNX Runtime makes them one of integers, for which it rounds the bias"},
	{Kind: "Gemm", When: quantisedAround, Why: "as for Conv"},
	{Kind: "Add", When: quantisedAround, Why: "as for Conv: a sum of floats, which is not rounded before QuantizeLinear is"},
	{Kind: "Gelu", When: func(c *Case, n *onnxpb.NodeProto) bool { return c.input(n, 0).DType() == tensor.F64 }, Why: "Gelu 20 is of the precision of its type; ONNX Runtime has it for f64 from less exact constants"},
	{Kind: "MeanVarianceNormalization", Why: "MeanVarianceNormalization 13 divides by the deviation plus 1e-9, so that what has next to none shows how the mean was rounded"},
	{Kind: "MatMul", When: quantisedAround, Why: "as for Conv"},
	{Kind: "Loop", Why: "Loop 24 says nothing of the further dimensions of what it stacks where there is no round; they are those that inference knows, and ONNX Runtime has none"},
	{Kind: "GridSample", When: func(_ *Case, n *onnxpb.NodeProto) bool {
		return slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return string(a.S) == "border" })
	}, Why: "GridSample 22 with padding border takes the value at the border for a location beyond it; ONNX Runtime interpolates there, in mode cubic, from the border's neighbours"},
	{Kind: "BlackmanWindow", Why: "BlackmanWindow 17 is a sum of cosines, which at its ends is zero but for rounding"},
	{Kind: "MatMul", When: behindAny("DequantizeLinear"), Why: "MatMul 13 behind DequantizeLinear 21 is a product of floats; ONNX Runtime rounds its other operand, too"},
	{Kind: "QuantizeLinear", When: func(c *Case, n *onnxpb.NodeProto) bool { return after("DequantizeLinear")(c, n) }, Why: "QuantizeLinear 21 rounds and saturates where it stands; ONNX Runtime makes two one after the other one"},
	{Kind: "AffineGrid", When: func(_ *Case, n *onnxpb.NodeProto) bool { return intAttribute(n, "align_corners") == 1 }, Why: "AffineGrid 20 divides by the size less one where corners are aligned, which says nothing of an axis of size one; it is at 0, as in PyTorch"},
	{Kind: "HannWindow", When: symmetric, Why: "HannWindow 17 divides by the size less one where it is not periodic, which says nothing of size one; its element is 1, as in numpy"},
	{Kind: "HammingWindow", When: symmetric, Why: "as for HannWindow"},
	{Kind: "Pad", When: func(_ *Case, n *onnxpb.NodeProto) bool {
		return slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return string(a.S) == "wrap" })
	}, Why: "Pad 25 in mode wrap goes on around the input as often as it takes; ONNX Runtime leaves zeros where that is more than once"},
	{Kind: "QLinearMatMul", When: empty, Why: "QLinearMatMul 21 is a product, which of no columns is zero and stands at the zero point; ONNX Runtime leaves the output as it finds it"},
	{Kind: "DynamicQuantizeLinear", When: empty, Why: "DynamicQuantizeLinear 11 has no scale for an input without elements, which has no least and no largest"},
}

// empty tells nodes whose first input has no elements.
func empty(c *Case, n *onnxpb.NodeProto) bool { return c.input(n, 0).Len() == 0 }

// quantisedAround tells nodes that a QuantizeLinear follows, perhaps behind others, and a
// DequantizeLinear goes before.
func quantisedAround(c *Case, n *onnxpb.NodeProto) bool {
	m := new(onnxpb.ModelProto)
	if proto.Unmarshal(c.Model, m) != nil {
		return false
	}
	before, behind := false, map[string]bool{}
	for _, o := range m.Graph.Node {
		before = before || o.OpType == "DequantizeLinear" && slices.ContainsFunc(o.Output, func(v string) bool { return slices.Contains(n.Input, v) })
		if slices.Equal(o.Output, n.Output) || slices.ContainsFunc(o.Input, func(v string) bool { return behind[v] }) {
			if o.OpType == "QuantizeLinear" {
				return before
			}
			for _, v := range o.Output {
				behind[v] = true
			}
		}
	}
	return false
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

func symmetric(_ *Case, n *onnxpb.NodeProto) bool { return intAttribute(n, "periodic") == 0 }

// intAttribute is an attribute of a node, -1 where it is absent.
func intAttribute(n *onnxpb.NodeProto, name string) int {
	for _, a := range n.Attribute {
		if a.Name == name {
			return int(a.I)
		}
	}
	return -1
}

// behindAny tells nodes one of whose inputs a node of another operator makes.
func behindAny(kind string) func(c *Case, n *onnxpb.NodeProto) bool {
	return func(c *Case, n *onnxpb.NodeProto) bool {
		return slices.ContainsFunc(n.Input, func(v string) bool {
			return after(kind)(c, &onnxpb.NodeProto{Input: []string{v}})
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
		kind := op.KindOf(n.Domain, n.OpType)
		for _, d := range Decisions {
			if (d.Kind == kind || d.Kind == "Reduce" && strings.HasPrefix(kind, d.Kind)) && (d.When == nil || d.When(c, n)) {
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
