package onnx

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
)

// UnsupportedError lists everything in a model that cannot be compiled. Its first
// line is a summary. It wraps ir.ErrUnsupported.
type UnsupportedError struct {
	Ops    []UnsupportedOp
	Others []string // inputs and outputs that are no tensors, a line each
}

// UnsupportedOp is an operator that there is no definition of.
type UnsupportedOp struct {
	Domain string // empty for the default domain
	Name   string
	Opset  int
	Nodes  []string
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
	if len(e.Others) > 0 {
		if len(what) > 0 {
			b.WriteString("; ")
		}
		b.WriteString(count(len(e.Others), "unsupported type"))
	}
	for _, o := range e.Ops {
		fmt.Fprintf(&b, "\n  %s (opset %d) at %s: %s", o.kind(), o.Opset, count(len(o.Nodes), "node"), strings.Join(o.Nodes, ", "))
	}
	for _, s := range e.Others {
		b.WriteString("\n  " + s)
	}
	return b.String()
}

// count writes a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func (o UnsupportedOp) kind() string {
	if o.Domain == "" {
		return "ai.onnx:" + o.Name
	}
	return o.Domain + ":" + o.Name
}

// Unwrap returns ir.ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return ir.ErrUnsupported }

// survey collects what is unsupported in the graph and the functions it calls.
type survey struct {
	*importer
	ops    map[op2]*UnsupportedOp
	others []string
	called map[funcID]bool
}

type op2 struct{ domain, name string }

// checkSupport returns an UnsupportedError if the model has operators without a
// definition, or inputs and outputs that are no tensors.
func (im *importer) checkSupport(m *onnxpb.ModelProto, opsets map[string]int) error {
	s := &survey{im, map[op2]*UnsupportedOp{}, nil, map[funcID]bool{}}
	g := m.GetGraph()
	for i, list := range [][]*onnxpb.ValueInfoProto{g.GetInput(), g.GetOutput()} {
		for _, v := range list {
			if what := notTensor(v.GetType()); what != "" {
				s.others = append(s.others, fmt.Sprintf("%s %s is %s, want a tensor", [...]string{"input", "output"}[i], v.GetName(), what))
			}
		}
	}
	s.nodes(g.GetNode(), opsets, "")
	if len(s.ops)+len(s.others) == 0 {
		return nil
	}
	e := &UnsupportedError{Others: s.others}
	for _, o := range s.ops {
		e.Ops = append(e.Ops, *o)
	}
	slices.SortFunc(e.Ops, func(a, b UnsupportedOp) int { return strings.Compare(a.kind(), b.kind()) })
	return e
}

// notTensor says what a type is other than a tensor, empty for a tensor and for
// a type that is not given.
func notTensor(t *onnxpb.TypeProto) string {
	switch t.GetValue().(type) {
	case *onnxpb.TypeProto_SequenceType:
		return "a sequence"
	case *onnxpb.TypeProto_MapType:
		return "a map"
	case *onnxpb.TypeProto_OptionalType:
		return "an optional"
	case *onnxpb.TypeProto_SparseTensorType:
		return "a sparse tensor"
	case *onnxpb.TypeProto_OpaqueType:
		return "of an opaque type"
	}
	return ""
}

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
				s.nodes(f.GetNode(), f.opsets, in+id.name+"/")
			}
			continue
		}
		d, name := canonical(n.GetDomain()), n.GetOpType()
		if d == "" && name == "Constant" || op.Lookup(op.KindOf(d, name)) != nil {
			continue
		}
		o := s.ops[op2{d, name}]
		if o == nil {
			o = &UnsupportedOp{Domain: d, Name: name, Opset: opsets[d]}
			s.ops[op2{d, name}] = o
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
