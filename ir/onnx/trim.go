package onnx

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Numbers of fields that say of values what they are.
const (
	valueName       = 1
	graphOutput     = 12
	graphValueInfo  = 13
	graphAnnotation = 14
	modelFunctions  = 25
	nodeAttribute   = 5
	tensorName      = 8
)

// trimmed is what goes from the main graph, as nothing reads it once edits are made, and the shapes of what stays that are others.
type trimmed struct {
	places map[place]bool // of nodes and initializers that go
	names  map[string]bool
	shapes map[string][]ir.Dim
}

// outline is what the main graph computes of what.
type outline struct {
	nodes        []*onnxpb.NodeProto
	functions    bool // the model has some, whose values have names of their own
	inputs       []string
	initializers []string
	outputs      []string
}

// outlineOf reads the outline of the main graph.
func outlineOf(data []byte) (*outline, error) {
	o := &outline{}
	err := eachField(data, "model", func(num protowire.Number, _ int, field []byte) error {
		graph, ok := bytesIn(field)
		o.functions = o.functions || num == modelFunctions
		if num != modelGraph || !ok {
			return nil
		}
		return eachField(graph, "graph", func(num protowire.Number, _ int, field []byte) error {
			message, ok := bytesIn(field)
			if !ok {
				return nil
			}
			switch num {
			case graphNode:
				n := new(onnxpb.NodeProto)
				if err := proto.Unmarshal(message, n); err != nil {
					return corrupt("a node is damaged: %w", err)
				}
				lighten(n)
				o.nodes = append(o.nodes, n)
			case graphInitializer:
				o.initializers = append(o.initializers, text(message, tensorName))
			case graphInput:
				o.inputs = append(o.inputs, text(message, valueName))
			case graphOutput:
				o.outputs = append(o.outputs, text(message, valueName))
			}
			return nil
		})
	})
	return o, err
}

// lighten takes tensors from a node, which may be large.
func lighten(n *onnxpb.NodeProto) {
	for _, a := range n.GetAttribute() {
		a.T, a.Tensors, a.SparseTensor, a.SparseTensors = nil, nil, nil, nil
		for _, g := range append(slices.Clone(a.GetGraphs()), a.GetG()) {
			if g == nil {
				continue
			}
			g.Initializer, g.SparseInitializer = nil, nil
			for _, m := range g.GetNode() {
				lighten(m)
			}
		}
	}
}

// text returns the last of the fields of a number in a message that is well formed.
func text(message []byte, number protowire.Number) (out string) {
	_ = eachField(message, "message", func(num protowire.Number, _ int, field []byte) error {
		if b, ok := bytesIn(field); ok && num == number {
			out = string(b)
		}
		return nil
	})
	return out
}

// trims finds what goes once the edits are made.
func (p *Patch) trims(data []byte) (*trimmed, error) {
	t := &trimmed{map[place]bool{}, map[string]bool{}, map[string][]ir.Dim{}}
	for name, dims := range p.edits.Shapes {
		t.shapes[name] = dims
	}
	o, err := outlineOf(data)
	if err != nil {
		return nil, err
	}
	for i, name := range o.initializers {
		if now := p.tensors[mainGraph.in(graphInitializer, i)]; now != nil {
			var dims []ir.Dim
			for _, d := range now.Shape() {
				dims = append(dims, ir.Size(d))
			}
			t.shapes[name] = dims
		}
	}
	before, read := o.live((*onnxpb.NodeProto).GetInput)
	inner := map[string]bool{}
	for _, n := range o.nodes {
		readsWithin(n, func(name string) { inner[name] = true })
	}
	for name, other := range p.edits.Aliases {
		switch {
		case inner[name]:
			return nil, unsupported("a subgraph reads %s, which is no more", name)
		case o.functions:
			return nil, unsupported("the model has functions, whose values may have the names of those that go")
		case !o.computes(name) || !o.computes(other) && !slices.Contains(o.inputs, other):
			return nil, unsupported("%s is no value of the model's main graph, or %s is none", name, other)
		}
	}
	live, reads := o.live(p.rewired)
	for i, n := range o.nodes {
		in := p.rewired(n)
		if before[i] && !live[i] || !before[i] && slices.ContainsFunc(in, func(name string) bool { return t.names[name] }) {
			t.places[mainGraph.in(graphNode, i)] = true
			for _, name := range n.GetOutput() {
				t.names[name] = name != ""
			}
			continue
		}
		for _, name := range in { // also where no output is computed from the node, as before
			reads[name] = true
		}
		readsWithin(n, func(name string) { reads[name] = true })
	}
	for i, name := range o.initializers {
		if read[name] && !reads[name] {
			t.places[mainGraph.in(graphInitializer, i)] = true
			t.names[name] = true
		}
	}
	return t, p.whole(o, t)
}

// whole reports what would be no model once the edits are made: two values of a name, or one that is read and is no more.
func (p *Patch) whole(o *outline, t *trimmed) error {
	for _, i := range p.edits.Initializers {
		if slices.Contains(o.initializers, i.Name) || slices.Contains(o.inputs, i.Name) || o.computes(i.Name) {
			return unsupported("the file has another %s", i.Name)
		}
	}
	gone := ""
	check := func(name string) {
		if t.names[name] {
			gone = name
		}
	}
	for i, n := range o.nodes {
		if t.places[mainGraph.in(graphNode, i)] {
			continue
		}
		for _, name := range p.rewired(n) {
			check(name)
		}
		readsWithin(n, check)
	}
	for _, name := range o.outputs {
		check(name)
	}
	if gone != "" {
		return unsupported("%s is read in front of what computes it, and would be no more", gone)
	}
	return nil
}

// computes reports whether a node gives a value of a name.
func (o *outline) computes(name string) bool {
	return slices.ContainsFunc(o.nodes, func(n *onnxpb.NodeProto) bool { return slices.Contains(n.GetOutput(), name) })
}

// readsWithin calls f with the names that subgraphs of a node read, those that they define among them.
func readsWithin(n *onnxpb.NodeProto, f func(name string)) {
	for _, a := range n.GetAttribute() {
		for _, g := range append(slices.Clone(a.GetGraphs()), a.GetG()) {
			for _, v := range g.GetOutput() {
				f(v.GetName())
			}
			for _, m := range g.GetNode() {
				for _, name := range m.GetInput() {
					f(name)
				}
				readsWithin(m, f)
			}
		}
	}
}

// live tells which nodes outputs are computed from, by the inputs that nodes have, and which values these and the outputs read.
func (o *outline) live(inputs func(n *onnxpb.NodeProto) []string) (live map[int]bool, read map[string]bool) {
	live, read = map[int]bool{}, map[string]bool{}
	for _, name := range o.outputs {
		read[name] = true
	}
	for i, n := range slices.Backward(o.nodes) {
		if !slices.ContainsFunc(n.GetOutput(), func(name string) bool { return name != "" && read[name] }) {
			continue
		}
		live[i] = true
		for _, name := range inputs(n) {
			read[name] = true
		}
		readsWithin(n, func(name string) { read[name] = true })
	}
	return live, read
}

// rewired returns the inputs that a node of the main graph is to have.
func (p *Patch) rewired(n *onnxpb.NodeProto) []string {
	in := slices.Clone(n.GetInput())
	for i, name := range in {
		if other := p.edits.Aliases[name]; other != "" {
			in[i] = other
		}
	}
	for _, name := range n.GetOutput() {
		if e, ok := p.edits.Inputs[name]; ok && e.Kind == op.KindOf(canonical(n.GetDomain()), n.GetOpType()) {
			for i, other := range e.Names {
				if i < len(in) {
					in[i] = other
				}
			}
		}
	}
	return in
}

// declares splices a field of a graph that says what a value is. In subgraphs, of which several may have values of one name, what is said of one that has
// another shape is left out.
func (s *splicer) declares(out *splice, at place, num protowire.Number, message []byte) (done bool, err error) {
	name := text(message, valueName)
	switch {
	case s.trim == nil || num != graphInput && num != graphValueInfo && num != graphAnnotation:
		return false, nil
	case at != mainGraph && num == graphValueInfo && s.trim.shapes[name] != nil, at == mainGraph && s.trim.names[name]:
		out.changed = true
		return true, nil
	case at != mainGraph:
		return false, nil
	case num == graphAnnotation || s.trim.shapes[name] == nil:
		return false, nil
	}
	v := new(onnxpb.ValueInfoProto)
	if err := proto.Unmarshal(message, v); err != nil {
		return false, corrupt("a value is damaged: %w", err)
	}
	shape, now := v.GetType().GetTensorType().GetShape(), s.trim.shapes[name]
	if shape == nil {
		return false, nil
	}
	if len(shape.Dim) != len(now) {
		v.Type.GetTensorType().Shape = nil
	}
	changed := len(shape.Dim) != len(now)
	for i := 0; i < len(shape.Dim) && i < len(now); i++ {
		d, declared := shape.Dim[i].GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue)
		if declared && now[i].Known() && d.DimValue != int64(now[i].Size()) {
			d.DimValue, changed = int64(now[i].Size()), true
		}
	}
	if !changed {
		return false, nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(v)
	if err == nil {
		out.field(num, b)
	}
	return true, err
}

// otherAttribute returns another attribute of a name, nil where it is to go. It keeps all of a that is not its value.
func otherAttribute(a *onnxpb.AttributeProto, name string, value any) ([]byte, error) {
	a.Name = name
	switch v := value.(type) {
	case int:
		a.Type, a.I = onnxpb.AttributeProto_INT, int64(v)
	case []int:
		a.Type, a.Ints = onnxpb.AttributeProto_INTS, nil
		for _, i := range v {
			a.Ints = append(a.Ints, int64(i))
		}
	default:
		return nil, nil
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(a)
}

// dims splices a field of the sizes of a tensor that has others: the first one has them all.
func (out *splice) dims(field []byte, first bool, shape []int) {
	if !first {
		out.changed = true
		return
	}
	var packed []byte
	for _, d := range shape {
		if _, list := bytesIn(field); list {
			packed = protowire.AppendVarint(packed, uint64(d))
			continue
		}
		out.adds(protowire.AppendVarint(protowire.AppendTag(nil, tensorDims, protowire.VarintType), uint64(d)))
	}
	if packed != nil {
		out.field(tensorDims, packed)
	}
}

// part is one of external data: bytes from..to-1 of those that were, zeros, or the elements of a tensor.
type part struct {
	from, to, zeros int64
	now             *tensor.Tensor
}

// lay lays the tensors of external data out, which are in their order: as they were where they have the sizes that they had. Else each follows what is before
// it, with what lay between them, as far as that is no padding, from a multiple of the power of two that all offsets were multiples of.
// It returns the new offsets by those before, nil where they are the same.
func lay(list []*far) (parts []part, offsets map[int64]int64) {
	resized, align := false, int64(1<<16)
	for _, f := range list {
		resized = resized || f.gone || f.written() != f.size
		for f.offset%align != 0 {
			align /= 2
		}
	}
	if resized {
		offsets = map[int64]int64{}
	}
	at, end := int64(0), int64(0) // as they are, and as they were
	for _, f := range list {
		gap := f.offset - end
		switch {
		case !resized:
			if f.now == nil {
				continue // copied with what comes after it
			}
			parts = append(parts, part{from: end, to: f.offset}, part{now: f.now})
		case f.gone:
		default:
			if gap >= align {
				parts = append(parts, part{from: end, to: f.offset})
				at += gap
			}
			pad := (align - at%align) % align
			at += pad
			offsets[f.offset] = at
			parts = append(parts, part{zeros: pad}, part{from: f.offset, to: f.offset + int64(f.size)})
			if f.now != nil {
				parts[len(parts)-1] = part{now: f.now}
			}
			at += int64(f.written())
		}
		end = f.offset + int64(f.size)
	}
	return append(parts, part{from: end, to: -1}), offsets
}
