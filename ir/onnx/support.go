package onnx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/onnx/contrib"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
)

// UnsupportedError lists everything in a model that cannot be compiled. Its first
// line is a summary. It wraps ir.ErrUnsupported.
type UnsupportedError struct {
	Ops    []UnsupportedOp
	Others []string // other reasons, a line each
}

// UnsupportedOp is an operator that there is no definition of.
type UnsupportedOp struct {
	Domain string // empty for the default domain
	Name   string
	Opset  int
	Nodes  []string
	// Instead says how to have a model without the operator, where that is known; else it is empty.
	Instead string
}

func (e *UnsupportedError) Error() string {
	var what []string
	for _, o := range e.Ops {
		what = append(what, o.kind())
	}
	var b strings.Builder
	if len(what) > 0 {
		fmt.Fprintf(&b, "%s: %s", count(len(what), "unsupported operator"), strings.Join(what, ", "))
	}
	switch {
	case len(what) > 0 && len(e.Others) > 0:
		fmt.Fprintf(&b, "; %s", count(len(e.Others), "other reason"))
	case len(e.Others) == 1:
		return "unsupported: " + oneLine(e.Others[0])
	case len(e.Others) > 1:
		fmt.Fprintf(&b, "unsupported for %s", count(len(e.Others), "reason"))
	}
	for _, o := range e.Ops {
		fmt.Fprintf(&b, "\n  %s (opset %d) at %s: %s", o.kind(), o.Opset, count(len(o.Nodes), "node"), oneLine(strings.Join(o.Nodes, ", ")))
		if o.Instead != "" {
			fmt.Fprintf(&b, "; %s", o.Instead)
		}
	}
	for _, s := range e.Others {
		b.WriteString("\n  " + oneLine(s))
	}
	return b.String()
}

// oneLine keeps the names in s from ending its line.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", `\n`) }

// count writes a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func (o UnsupportedOp) kind() string {
	if o.Domain == "" {
		return oneLine("ai.onnx:" + o.Name)
	}
	return oneLine(o.Domain + ":" + o.Name)
}

// Unwrap returns ir.ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return ir.ErrUnsupported }

// survey collects the operators without a definition in the graph and the
// functions it calls.
type survey struct {
	*importer
	ops    map[string]*UnsupportedOp // by kind
	called map[funcID]bool
}

// survey notes the model's operators without a definition, and its outputs of types
// that no value has.
func (im *importer) survey(g *onnxpb.GraphProto, opsets map[string]int) {
	for _, v := range g.GetOutput() {
		if _, err := dtypeOf(v.GetType()); errors.Is(err, ir.ErrUnsupported) {
			im.refuse(fmt.Sprintf("output %s %v", v.GetName(), err))
		}
	}
	s := &survey{im, map[string]*UnsupportedOp{}, map[funcID]bool{}}
	s.nodes(g.GetNode(), opsets, "")
	for _, kind := range slices.Sorted(maps.Keys(s.ops)) {
		im.refused.Ops = append(im.refused.Ops, *s.ops[kind])
	}
}

// maxReasons bounds the list of reasons beyond operators.
const maxReasons = 1000

// refuse notes a reason for which the model is not supported.
func (im *importer) refuse(reason string) {
	if r := &im.refused; len(r.Others) < maxReasons && !slices.Contains(r.Others, reason) {
		r.Others = append(r.Others, reason)
	}
}

// refusal returns what was noted as an error, nil where that is nothing.
func (im *importer) refusal() error {
	if len(im.refused.Ops)+len(im.refused.Others) == 0 {
		return nil
	}
	return &im.refused
}

// unknown stands for the values of nodes that are not supported, so that the
// conversion can go on to find more of them.
var unknown = new(ir.Value)

func (s *survey) nodes(nodes []*onnxpb.NodeProto, opsets map[string]int, in string) {
	for i, n := range nodes {
		for _, a := range n.GetAttribute() {
			if a.GetG() != nil {
				s.nodes(a.GetG().GetNode(), opsets, in)
			}
			for _, g := range a.GetGraphs() {
				s.nodes(g.GetNode(), opsets, in)
			}
		}
		if id := idOf(n); s.funcs[id] != nil {
			if !s.called[id] {
				s.called[id] = true
				f := s.funcs[id]
				s.nodes(f.GetNode(), f.opsets, id.name+"/")
			}
			continue
		}
		d, name := canonical(n.GetDomain()), n.GetOpType()
		kind := op.KindOf(d, name)
		if kind == "Constant" || op.Lookup(kind) != nil || contrib.Lookup(kind) != nil {
			continue
		}
		o := s.ops[kind]
		if o == nil {
			o = &UnsupportedOp{Domain: d, Name: name, Opset: opsets[d], Instead: contrib.Instead(d, name)}
			s.ops[kind] = o
		}
		label := n.GetName()
		if label == "" {
			label = fmt.Sprintf("#%d", i)
		}
		o.Nodes = append(o.Nodes, in+label)
	}
}

// names lists the keys of a map for a message.
func names[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
