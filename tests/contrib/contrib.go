// Package contrib holds what ONNX Runtime computes with operators of its own: small models of each, over its attributes, with inputs and
// the outputs of ONNX Runtime, as make contrib-cases writes them into cases, a zip an operator; and, likewise, what it computes with small
// decoders in 16-bit floats, step by step. Tests need no ONNX Runtime.
// It is in Go what the models are made of, so that each says in a line what it is about.
package contrib

import (
	"archive/zip"
	"bytes"
	"embed"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Domain is ONNX Runtime's own.
const Domain = "com.microsoft"

// Row is an operator.
type Row struct {
	Kind string // domain:Name, or Name in the default domain
	// Cases makes models of the operator; it calls m.Case for each.
	Cases func(m *Maker)
	// Rel and Abs bound how far outputs are from those of ONNX Runtime: |a-b| <= Abs + Rel*|b|. Of integers, Abs alone counts.
	Rel, Abs float64
	// Interpreted lists operators among those that it is made of for which the CPU has no kernel.
	Interpreted []string
}

// Case is a model with inputs and, once ONNX Runtime ran it, outputs.
type Case struct {
	Name    string
	Model   *onnxpb.ModelProto
	Inputs  []Named
	Outputs []Named // in the order of the model
}

// Named is a tensor with a name.
type Named struct {
	Name string
	*tensor.Tensor
}

// Maker makes the cases of a row, the same ones each time.
type Maker struct {
	*rand.Rand
	Cases []*Case
	kind  string
}

// Make makes the cases of a row.
func (r *Row) Make() []*Case {
	m := r.maker()
	r.Cases(m)
	return m.Cases
}

func (r *Row) maker() *Maker { return &Maker{Rand: rand.New(rand.NewPCG(1, 2)), kind: r.Kind} }

// File is the name of the row's file among the cases.
func (r *Row) File() string { return strings.ReplaceAll(r.Kind, ":", ".") + ".zip" }

// Attrs are a node's attributes: int, float32, string, []int, []float32, []string and *tensor.Tensor.
type Attrs = map[string]any

// Case begins a case, whose name says what is special about it.
func (m *Maker) Case(format string, args ...any) *Case {
	c := &Case{Name: fmt.Sprintf(format, args...), Model: &onnxpb.ModelProto{
		IrVersion:   10,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 21}, {Domain: Domain, Version: 1}},
		Graph:       &onnxpb.GraphProto{Name: "case"},
	}}
	if slices.ContainsFunc(m.Cases, func(o *Case) bool { return o.Name == c.Name }) {
		panic("two cases of " + m.kind + " are called " + c.Name)
	}
	m.Cases = append(m.Cases, c)
	return c
}

// Floats makes a tensor of f32 between -scale and scale, of which there are 256, so that it compresses.
func (m *Maker) Floats(scale float64, shape ...int) *tensor.Tensor {
	t := tensor.New(tensor.F32, shape...)
	for i := range t.F32s() {
		t.F32s()[i] = float32(float64(m.IntN(256)-128) / 128 * scale)
	}
	return t
}

// Ints makes a tensor of a type of integers from low to high, both among them.
func (m *Maker) Ints(dt tensor.DType, low, high int, shape ...int) *tensor.Tensor {
	t := tensor.New(tensor.I64, shape...)
	list := tensor.Data[int64](t)
	for i := range list {
		list[i] = int64(low + m.IntN(high-low+1))
	}
	return t.To(dt)
}

// Input adds an input and returns its name. Dims, where it is given, is the shape that the model declares: a name for a dimension
// leaves it open.
func (c *Case) Input(name string, t *tensor.Tensor, dims ...string) string {
	c.Inputs = append(c.Inputs, Named{name, t})
	shape := &onnxpb.TensorShapeProto{}
	for i, n := range t.Shape() {
		d := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(n)}}
		if i < len(dims) && dims[i] != "" {
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: dims[i]}
		}
		shape.Dim = append(shape.Dim, d)
	}
	c.Model.Graph.Input = append(c.Model.Graph.Input, info(name, t.DType(), shape))
	return name
}

// Weight adds a constant and returns its name.
func (c *Case) Weight(name string, t *tensor.Tensor) string {
	c.Model.Graph.Initializer = append(c.Model.Graph.Initializer, t.ToProto(name))
	return name
}

// Node adds a node of kind, whose outputs are outputs of the model where they are not read by another node later: each is
// written name:type, or just name where it is f32.
func (c *Case) Node(kind string, a Attrs, inputs []string, outputs ...string) {
	n := &onnxpb.NodeProto{OpType: kind, Name: fmt.Sprintf("node%d", len(c.Model.Graph.Node)), Input: inputs}
	if domain, name, ok := strings.Cut(kind, ":"); ok {
		n.Domain, n.OpType = domain, name
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		n.Attribute = append(n.Attribute, attribute(name, a[name]))
	}
	g := c.Model.Graph
	g.Output = slices.DeleteFunc(g.Output, func(v *onnxpb.ValueInfoProto) bool { return slices.Contains(inputs, v.GetName()) })
	for _, out := range outputs {
		name, typ, typed := strings.Cut(out, ":")
		n.Output = append(n.Output, name)
		dt := tensor.F32
		if typed {
			var err error
			if dt, err = tensor.ParseDType(typ); err != nil {
				panic(err)
			}
		}
		if name != "" {
			g.Output = append(g.Output, info(name, dt, nil))
		}
	}
	g.Node = append(g.Node, n)
}

func info(name string, dt tensor.DType, shape *onnxpb.TensorShapeProto) *onnxpb.ValueInfoProto {
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: int32(dt), Shape: shape},
	}}}
}

func attribute(name string, v any) *onnxpb.AttributeProto {
	a := &onnxpb.AttributeProto{Name: name}
	switch v := v.(type) {
	case int:
		a.Type, a.I = onnxpb.AttributeProto_INT, int64(v)
	case float32:
		a.Type, a.F = onnxpb.AttributeProto_FLOAT, v
	case string:
		a.Type, a.S = onnxpb.AttributeProto_STRING, []byte(v)
	case []int:
		a.Type = onnxpb.AttributeProto_INTS
		for _, n := range v {
			a.Ints = append(a.Ints, int64(n))
		}
	case []float32:
		a.Type, a.Floats = onnxpb.AttributeProto_FLOATS, v
	case []string:
		a.Type = onnxpb.AttributeProto_STRINGS
		for _, x := range v {
			a.Strings = append(a.Strings, []byte(x))
		}
	case *tensor.Tensor:
		a.Type, a.T = onnxpb.AttributeProto_TENSOR, v.ToProto("")
	default:
		panic(fmt.Sprintf("attribute %s of type %T", name, v))
	}
	return a
}

// Bytes is the model as a file has it.
func (c *Case) Bytes() ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(c.Model)
}

//go:embed cases
var stored embed.FS

// Stored returns the cases of a row as they are stored.
func (r *Row) Stored() ([]*Case, error) { return read(r.File()) }

// read returns the cases of a file.
func read(file string) ([]*Case, error) {
	b, err := stored.ReadFile("cases/" + file)
	if err != nil {
		return nil, err
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	var cases []*Case
	for _, f := range z.File {
		folder, file, _ := strings.Cut(f.Name, "/")
		if len(cases) == 0 || cases[len(cases)-1].Name != folder {
			cases = append(cases, &Case{Name: folder})
		}
		if err := cases[len(cases)-1].read(f, file); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return cases, nil
}

func (c *Case) read(f *zip.File, name string) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if name == "model.onnx" {
		c.Model = new(onnxpb.ModelProto)
		return proto.Unmarshal(b, c.Model)
	}
	p := new(onnxpb.TensorProto)
	if err := proto.Unmarshal(b, p); err != nil {
		return err
	}
	t, err := tensor.FromProto(p, nil)
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, "input_") {
		c.Inputs = append(c.Inputs, Named{p.GetName(), t})
	} else {
		c.Outputs = append(c.Outputs, Named{p.GetName(), t})
	}
	return nil
}

// Write writes cases as Stored reads them.
func Write(w io.Writer, cases []*Case) error {
	z := zip.NewWriter(w)
	put := func(name string, m proto.Message) error {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return err
		}
		f, err := z.Create(name)
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		return err
	}
	for _, c := range cases {
		if err := put(c.Name+"/model.onnx", c.Model); err != nil {
			return err
		}
		for i, t := range c.Inputs {
			if err := put(fmt.Sprintf("%s/input_%d.pb", c.Name, i), t.ToProto(t.Name)); err != nil {
				return err
			}
		}
		for i, t := range c.Outputs {
			if err := put(fmt.Sprintf("%s/output_%d.pb", c.Name, i), t.ToProto(t.Name)); err != nil {
				return err
			}
		}
	}
	return z.Close()
}
