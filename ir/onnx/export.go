package onnx

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/option"
	"spc/ir/tensor"
)

// maxModel is the size that no protobuf message may exceed.
const maxModel = math.MaxInt32

// Export writes g as an ONNX model. Nodes with an epilogue or quantised products, and
// weights in a storage format, have no form in ONNX: they are errors.
func Export(w io.Writer, g *ir.Graph, producer, version string) error {
	return ExportAt(w, g, producer, version, 0)
}

// ExportAt is Export in an operator set from MinOpset on, or where that is 0 in the least that has the forms of g's nodes.
func ExportAt(w io.Writer, g *ir.Graph, producer, version string, opset int) error {
	e := newExporter()
	pg, err := e.root(g)
	if err != nil {
		return err
	}
	if err := e.ask(opset); err != nil {
		return err
	}
	irVersion, ok := irVersions[e.opsets[""]]
	if !ok {
		irVersion = MaxIRVersion
	}
	m := &onnxpb.ModelProto{IrVersion: int64(irVersion), ProducerName: producer, ProducerVersion: version, Graph: pg}
	for _, domain := range []string{"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"} {
		if v, ok := e.opsets[domain]; ok {
			m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: domain, Version: int64(v)})
			delete(e.opsets, domain)
		}
	}
	for domain := range e.opsets {
		return fmt.Errorf("operators of %s have no version to export: %w", domainText(domain), ir.ErrUnsupported)
	}
	if n := proto.Size(m); n > maxModel {
		return fmt.Errorf("the model has %d bytes, an ONNX file holds at most %d: %w", n, maxModel, ir.ErrUnsupported)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// CheckOpset reports an operator set in which Export cannot write the nodes of g.
func CheckOpset(g *ir.Graph, opset int) error {
	if opset < MinOpset || opset > MaxOpset {
		return option.Errorf("%v %d: want one from %d to %d", option.Opset, opset, MinOpset, MaxOpset)
	}
	e := newExporter()
	if _, err := e.root(g); err != nil {
		return err
	}
	return e.ask(opset)
}

func newExporter() *exporter {
	return &exporter{names: map[*ir.Value]string{}, taken: map[string]*ir.Value{}, constants: map[*ir.Graph][]*ir.Value{}, opsets: map[string]int{"": MinOpset}}
}

// ask asks for an operator set, unless that is 0.
func (e *exporter) ask(opset int) error {
	if least := e.opsets[""]; opset != 0 && opset < least {
		return option.Errorf("%v %d: the model's nodes are written in the form of opset %d, want that or a newer one", option.Opset, opset, least)
	}
	e.opsets[""] = max(e.opsets[""], opset)
	return nil
}

type exporter struct {
	names     map[*ir.Value]string // of values whose name in the file is another
	taken     map[string]*ir.Value // by the names in the graph; nil at names that only the file has
	constants map[*ir.Graph][]*ir.Value
	opsets    map[string]int
}

// name returns the name of a value in the file, empty where it is absent.
func (e *exporter) name(v *ir.Value) string {
	if v == nil {
		return ""
	}
	if n, ok := e.names[v]; ok {
		return n
	}
	return v.Name
}

// root exports the main graph.
func (e *exporter) root(g *ir.Graph) (*onnxpb.GraphProto, error) {
	for sub := range g.All() {
		for _, v := range sub.Inputs {
			e.taken[v.Name] = v
		}
		for _, n := range sub.Nodes {
			for _, v := range n.Outputs {
				if v != nil {
					e.taken[v.Name] = v
				}
			}
		}
	}
	for _, v := range g.Constants() {
		if v.Const == nil {
			return nil, fmt.Errorf("weight %s is stored as %s: %w", v.Name, v.Store.Format, ir.ErrUnsupported)
		}
		e.taken[v.Name] = v
		e.constants[v.Graph()] = append(e.constants[v.Graph()], v)
	}
	if err := e.nameOutputs(g); err != nil {
		return nil, err
	}
	return e.graph(g)
}

// nameOutputs gives the outputs of the main graph the names by which users know them; what else has such a name
// gives it up.
func (e *exporter) nameOutputs(g *ir.Graph) error {
	for i, v := range g.Outputs {
		if v.Name == g.OutputName(i) {
			e.names[v] = v.Name
		}
	}
	for i, v := range g.Outputs {
		name := g.OutputName(i)
		if w := e.taken[name]; w != nil && w != v && e.name(w) == name {
			if e.names[w] != "" || slices.Contains(g.Inputs, w) {
				return fmt.Errorf("output %s is also the name of another value: %w", name, ir.ErrUnsupported)
			}
			e.names[w] = e.free(name)
		}
		if e.names[v] == "" && v.Graph() == g && v.Def != nil {
			e.names[v] = name
		}
		if _, ok := e.taken[name]; !ok {
			e.taken[name] = nil
		}
	}
	return nil
}

func (e *exporter) graph(g *ir.Graph) (*onnxpb.GraphProto, error) {
	p := &onnxpb.GraphProto{Name: g.Name}
	if p.Name == "" {
		p.Name = "graph"
	}
	for _, v := range g.Inputs {
		p.Input = append(p.Input, e.info(v))
	}
	for _, n := range g.Nodes {
		m, err := e.node(n)
		if err != nil {
			return nil, err
		}
		p.Node = append(p.Node, m)
		if n.Op.Kind() == "MatMul" && n.Input(2) != nil {
			p.Node = append(p.Node, e.bias(m))
		}
	}
	for i, v := range g.Outputs {
		out := e.info(v)
		if g.Owner == nil {
			out.Name = g.OutputName(i)
		} else if v.Graph() != g || slices.Contains(g.Inputs, v) || slices.Contains(g.Outputs[:i], v) {
			// Runtimes refuse values from outside as outputs of a subgraph, and the Scan of ONNX Runtime is wrong
			// with its inputs and with what is two outputs.
			out.Name = e.free(v.Name + "/output")
		}
		if out.Name != e.name(v) {
			e.opsets[""] = max(e.opsets[""], sinceTypes("Identity", v))
			p.Node = append(p.Node, &onnxpb.NodeProto{OpType: "Identity", Input: []string{e.name(v)}, Output: []string{out.Name}})
		}
		p.Output = append(p.Output, out)
	}
	for _, v := range e.constants[g] {
		p.Initializer = append(p.Initializer, v.Const.ToProto(e.name(v)))
	}
	return p, nil
}

// free returns a name that no value has, and takes it.
func (e *exporter) free(name string) string {
	for {
		if _, taken := e.taken[name]; !taken {
			e.taken[name] = nil
			return name
		}
		name += "_"
	}
}

// bias takes the bias off a MatMul, which has none in ONNX, and returns the node that
// adds it.
func (e *exporter) bias(m *onnxpb.NodeProto) *onnxpb.NodeProto {
	out := m.Output[0]
	product := e.free(out + "/product")
	add := &onnxpb.NodeProto{Name: m.Name + "/bias", OpType: "Add", Input: []string{product, m.Input[2]}, Output: []string{out}}
	m.Input, m.Output = m.Input[:2], []string{product}
	return add
}

// info declares a value with what its type tells: sizes and plain symbols.
func (e *exporter) info(v *ir.Value) *onnxpb.ValueInfoProto {
	return &onnxpb.ValueInfoProto{Name: e.name(v), Type: typeProto(v.Type)}
}

// typeProto returns the message for a type. What has no form there is left out.
func typeProto(from ir.Type) *onnxpb.TypeProto {
	switch {
	case from.DType.IsOptional():
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_OptionalType{OptionalType: &onnxpb.TypeProto_Optional{ElemType: typeProto(*from.Elem)}}}
	case from.DType.IsSequence():
		return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_SequenceType{SequenceType: &onnxpb.TypeProto_Sequence{ElemType: typeProto(*from.Elem)}}}
	}
	t := &onnxpb.TypeProto_Tensor{ElemType: int32(from.DType)}
	if from.Ranked {
		t.Shape = &onnxpb.TensorShapeProto{}
		for _, d := range from.Dims {
			dim := &onnxpb.TensorShapeProto_Dimension{}
			switch {
			case d.Known():
				dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d.Size())}
			case d.Symbol() != "" && !d.Fresh():
				dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d.Symbol()}
			}
			t.Shape.Dim = append(t.Shape.Dim, dim)
		}
	}
	return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: t}}
}

func (e *exporter) node(n *ir.Node) (*onnxpb.NodeProto, error) {
	domain, kind := splitKind(n.Op.Kind())
	version := 1
	if top, ok := maxOpsets[domain]; ok && domain != "" {
		version = top
	} else if domain == "" {
		version = since(n)
	}
	e.opsets[domain] = max(e.opsets[domain], version)
	m := &onnxpb.NodeProto{Name: n.Name, OpType: kind, Domain: domain}
	for _, v := range n.Inputs {
		m.Input = append(m.Input, e.name(v))
	}
	for _, v := range n.Outputs {
		m.Output = append(m.Output, e.name(v))
	}
	if f, ok := n.Op.(op.Fusable); ok && (!f.Fused().Empty() || n.Input(op.Residual) != nil) {
		return nil, n.Errorf(ir.ErrUnsupported, "an epilogue has no form in ONNX")
	}
	attrs := ir.Attrs(n.Op)
	for _, a := range ir.RequiredAttrs(n.Op) {
		if !strings.HasPrefix(a.Name, "spc_") {
			attrs = append(attrs, a)
		}
	}
	for _, a := range attrs {
		if a.Name == "coerce_2d" && lastAxis(n) {
			continue // taking all axes from the last one on as one changes nothing
		}
		if strings.HasPrefix(a.Name, "spc_") || ir.OldAttr(n.Op, a.Name, a.Value) {
			return nil, n.Errorf(ir.ErrUnsupported, "attribute %s has no form in opset %d", a.Name, e.opsets[domain])
		}
		p, err := e.attribute(a)
		if kind == "Optional" && err == nil {
			p, err = typeAttribute(p)
		}
		if err != nil {
			return nil, n.Errorf(ir.ErrUnsupported, "attribute %s: %v", a.Name, err)
		}
		m.Attribute = append(m.Attribute, p)
	}
	return m, nil
}

// lastAxis reports whether a Softmax, or one like it, works along the last axis.
func lastAxis(n *ir.Node) bool {
	o, ok := n.Op.(*op.Softmax)
	x := n.Inputs[0].Type
	return ok && x.Ranked && (o.Axis == -1 || o.Axis == x.Rank()-1)
}

func (e *exporter) attribute(a ir.Attr) (*onnxpb.AttributeProto, error) {
	p := &onnxpb.AttributeProto{Name: a.Name}
	switch v := a.Value.(type) {
	case int:
		p.Type, p.I = onnxpb.AttributeProto_INT, int64(v)
	case float32:
		p.Type, p.F = onnxpb.AttributeProto_FLOAT, v
	case string:
		p.Type, p.S = onnxpb.AttributeProto_STRING, []byte(v)
	case []int:
		p.Type = onnxpb.AttributeProto_INTS
		for _, n := range v {
			p.Ints = append(p.Ints, int64(n))
		}
	case []float32:
		p.Type, p.Floats = onnxpb.AttributeProto_FLOATS, v
	case []string:
		p.Type = onnxpb.AttributeProto_STRINGS
		for _, s := range v {
			p.Strings = append(p.Strings, []byte(s))
		}
	case *tensor.Tensor:
		p.Type, p.T = onnxpb.AttributeProto_TENSOR, v.ToProto("")
	case *ir.Graph:
		g, err := e.graph(v)
		if err != nil {
			return nil, err
		}
		p.Type, p.G = onnxpb.AttributeProto_GRAPH, g
	default:
		return nil, fmt.Errorf("a value of type %T", v)
	}
	return p, nil
}

// typeAttribute makes the text of a type a message.
func typeAttribute(p *onnxpb.AttributeProto) (*onnxpb.AttributeProto, error) {
	t, err := ir.ParseType(string(p.GetS()))
	if err != nil {
		return nil, err
	}
	return &onnxpb.AttributeProto{Name: p.Name, Type: onnxpb.AttributeProto_TYPE_PROTO, Tp: typeProto(t)}, nil
}

// splitKind is the inverse of op.KindOf.
func splitKind(kind string) (domain, name string) {
	if i := strings.LastIndexByte(kind, ':'); i >= 0 {
		return kind[:i], kind[i+1:]
	}
	return "", kind
}
