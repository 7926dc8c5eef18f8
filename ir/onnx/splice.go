package onnx

import (
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Numbers of fields that are spliced.
const (
	graphNode        = 1
	graphInitializer = 5
	graphInput       = 11
	nodeInput        = 1
	tensorDims       = 1
	tensorFloats     = 4
	tensorInt32s     = 5
	tensorInt64s     = 7
	tensorRaw        = 9
	tensorDoubles    = 10
	tensorUint64s    = 11
	tensorExternal   = 13
	tensorLocation   = 14
)

// typedFields are those of a tensor that hold its elements as numbers, and the wire type of one that is not packed with others.
var typedFields = map[protowire.Number]protowire.Type{
	tensorFloats: protowire.Fixed32Type, tensorInt32s: protowire.VarintType, tensorInt64s: protowire.VarintType,
	tensorDoubles: protowire.Fixed64Type, tensorUint64s: protowire.VarintType,
}

// mainGraph is the place of the main graph.
var mainGraph = place("").in(modelGraph, 0)

// piece is a part of a file that is written: bytes from..to-1 of the model, bytes of its own, or what lies in external data.
type piece struct {
	from, to int
	own      []byte
	far      *far
}

// splice is the new content of a message.
type splice struct {
	list    []piece
	n       int // bytes
	changed bool
}

// copies appends bytes from..to-1 of the model.
func (s *splice) copies(from, to int) {
	s.n += to - from
	if k := len(s.list) - 1; k >= 0 && s.list[k].own == nil && s.list[k].far == nil && s.list[k].to == from {
		s.list[k].to = to
		return
	}
	s.list = append(s.list, piece{from: from, to: to})
}

// adds appends bytes that the model does not have.
func (s *splice) adds(b []byte) {
	s.n += len(b)
	s.changed = true
	s.list = append(s.list, piece{own: b})
}

// field appends a field that holds a message or bytes.
func (s *splice) field(num protowire.Number, b []byte) {
	s.head(num, len(b))
	s.adds(b)
}

// head appends what comes before the n bytes of a field.
func (s *splice) head(num protowire.Number, n int) {
	s.adds(protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.BytesType), uint64(n)))
}

// joins appends a message in a field.
func (s *splice) joins(num protowire.Number, in *splice) {
	s.head(num, in.n)
	for _, p := range in.list {
		if p.own == nil && p.far == nil {
			s.copies(p.from, p.to)
			continue
		}
		s.list = append(s.list, p)
		s.n += len(p.own)
		if p.far != nil {
			s.n += p.far.written()
		}
	}
}

// far is a tensor whose elements lie in external data.
type far struct {
	at       place
	location string
	offset   int64
	size     int
	checked  bool           // the model has a checksum of the file
	now      *tensor.Tensor // what becomes of it; nil where it stays
	gone     bool           // nothing becomes of it
}

// alters reports whether something else becomes of the tensor.
func (f *far) alters() bool { return f.gone || f.now != nil }

// written is the number of bytes that the elements take then.
func (f *far) written() int {
	if f.now == nil {
		return f.size
	}
	return (f.now.Len()*f.now.DType().Bits() + 7) / 8
}

// splicer goes through a model field by field and finds what of it is written anew.
type splicer struct {
	*Patch
	data   []byte
	within bool              // external data become part of the model
	names  map[string]string // of external data that are to have others
	count  map[place]int     // the fields of each number that were met
	met    map[place]int     // tensors that change
	wired  map[string]int    // nodes that have other inputs or attributes
	far    []*far
}

// splice returns the new content of the model.
func (p *Patch) splice(data []byte, within bool, names map[string]string) (*splicer, *splice, error) {
	s := &splicer{p, data, within, names, map[place]int{}, map[place]int{}, map[string]int{}, nil}
	out, err := s.message(modelMessage, "", 0, len(data))
	if err != nil {
		return nil, nil, err
	}
	for at := range p.tensors {
		if s.met[at] != 1 {
			return nil, nil, unsupported("the model holds the tensor at %s in %d parts", at, s.met[at])
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(p.edits.Inputs)), slices.Collect(maps.Keys(p.edits.Attributes))) {
		switch n := s.wired[name]; {
		case n == 0:
			return nil, nil, unsupported("%s is computed within a node of the file, of an operator or a function that is made of others", name)
		case n > 1:
			return nil, nil, unsupported("%d nodes of the main graph compute %s", n, name)
		}
	}
	if graphs := s.count[place("").in(modelGraph, 0)]; graphs != 1 && (len(p.edits.Initializers) > 0 || p.trim != nil) {
		return nil, nil, unsupported("the model holds its graph in %d parts", graphs)
	}
	if out.n > maxModel {
		return nil, nil, unsupported("the model has %d bytes, an ONNX file holds at most %d", out.n, maxModel)
	}
	return s, out, nil
}

// next is the place of the next field of a number in the message at p.
func (s *splicer) next(p place, num protowire.Number, list bool) place {
	key := p.in(num, 0)
	n := s.count[key]
	s.count[key]++
	if list {
		return p.in(num, n)
	}
	return key
}

// message splices a message, which is bytes from..to-1 of the model.
func (s *splicer) message(kind message, at place, from, to int) (*splice, error) {
	if kind == tensorMessage {
		return s.tensor(at, from, to)
	}
	out := &splice{}
	var e nodeEdit
	if kind == nodeMessage {
		e = s.edit(at, s.data[from:to])
	}
	read := 0
	err := eachField(s.data[from:to], "model", func(num protowire.Number, sub int, field []byte) error {
		begin, end := from+sub, from+sub+len(field)
		payload, ok := bytesIn(field)
		if kind == nodeMessage && num == nodeInput && ok {
			if name, other := e.input(read, string(payload)); other {
				out.field(nodeInput, []byte(name))
			} else {
				out.copies(begin, end)
			}
			read++
			return nil
		}
		if kind == graphMessage && ok {
			if done, err := s.declares(out, at, num, payload); done || err != nil {
				return err
			}
		}
		in, known := inner[kind][num]
		if !known || !ok {
			out.copies(begin, end)
			return nil
		}
		next := s.next(at, num, in.list)
		if kind == nodeMessage && num == nodeAttribute {
			if done, err := e.attribute(out, payload); done || err != nil {
				return err
			}
		}
		before := len(s.far)
		got, err := s.message(in.kind, next, end-len(payload), end)
		if err != nil {
			return err
		}
		if s.trim != nil && s.trim.places[next] {
			for _, f := range s.far[before:] {
				f.gone, f.now = true, nil
			}
			out.changed = true
			return nil
		}
		if !got.changed {
			out.copies(begin, end)
			return nil
		}
		out.joins(num, got)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if name, more := e.inputs[read]; more {
		out.field(nodeInput, []byte(name))
	}
	if err := e.rest(out); err != nil {
		return nil, err
	}
	if at == mainGraph {
		err = s.initializers(out)
	}
	return out, err
}

// nodeEdit is what becomes of a node: what it reads, by the index and by the name, and its attributes, those that it has not had at last.
type nodeEdit struct {
	inputs     map[int]string
	aliases    map[string]string
	attributes map[string]any
}

// input returns what the node reads in the place of an input, if that is another.
func (e *nodeEdit) input(i int, name string) (string, bool) {
	if other, ok := e.inputs[i]; ok {
		return other, true
	}
	other, ok := e.aliases[name]
	return other, ok
}

// attribute splices an attribute that has another value, if it has.
func (e *nodeEdit) attribute(out *splice, message []byte) (done bool, err error) {
	name := text(message, valueName)
	value, ok := e.attributes[name]
	if !ok {
		return false, nil
	}
	delete(e.attributes, name)
	a := new(onnxpb.AttributeProto)
	if err := proto.Unmarshal(message, a); err != nil {
		return false, corrupt("an attribute is damaged: %w", err)
	}
	b, err := otherAttribute(a, name, value)
	if b != nil {
		out.field(nodeAttribute, b)
	}
	out.changed = true
	return true, err
}

// rest appends attributes that the node has not had.
func (e *nodeEdit) rest(out *splice) error {
	for _, name := range slices.Sorted(maps.Keys(e.attributes)) {
		b, err := otherAttribute(new(onnxpb.AttributeProto), name, e.attributes[name])
		if err != nil {
			return err
		}
		if b != nil {
			out.field(nodeAttribute, b)
		}
	}
	return nil
}

// edit returns what becomes of a node of the main graph.
func (s *splicer) edit(at place, node []byte) (e nodeEdit) {
	if len(s.edits.Inputs)+len(s.edits.Attributes)+len(s.edits.Aliases) == 0 || mainGraph.in(graphNode, s.count[mainGraph.in(graphNode, 0)]-1) != at {
		return e
	}
	e.aliases = s.edits.Aliases
	m := new(onnxpb.NodeProto)
	if proto.Unmarshal(node, m) != nil {
		return e
	}
	kind := op.KindOf(canonical(m.GetDomain()), m.GetOpType())
	for _, name := range m.GetOutput() {
		in, wired := s.edits.Inputs[name]
		if wired = wired && in.Kind == kind; wired {
			e.inputs = in.Names
		}
		a, other := s.edits.Attributes[name]
		if other = other && a.Kind == kind; other {
			e.attributes = maps.Clone(a.Values)
		}
		if wired || other {
			s.wired[name]++
		}
	}
	return e
}

// initializers appends those that are new. Before IR version 4 each is an input, too.
func (s *splicer) initializers(out *splice) error {
	for _, t := range s.edits.Initializers {
		b, err := proto.Marshal(t.Tensor.ToProto(t.Name))
		if err != nil {
			return err
		}
		out.field(graphInitializer, b)
		if s.irVersion >= 4 {
			continue
		}
		dims := &onnxpb.TensorShapeProto{}
		for _, d := range t.Tensor.Shape() {
			dims.Dim = append(dims.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}})
		}
		b, err = proto.Marshal(&onnxpb.ValueInfoProto{Name: t.Name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: int32(t.Tensor.DType()), Shape: dims}}}})
		if err != nil {
			return err
		}
		out.field(graphInput, b)
	}
	return nil
}

// tensor splices a tensor, bytes from..to-1 of the model.
func (s *splicer) tensor(at place, from, to int) (*splice, error) {
	now := s.tensors[at]
	if now != nil {
		s.met[at]++
	}
	out := &splice{}
	external, typed, sized := false, false, false
	err := eachField(s.data[from:to], "tensor", func(num protowire.Number, sub int, field []byte) error {
		payload, packed := bytesIn(field)
		v, varint := varintIn(field)
		_, wire, _ := protowire.ConsumeTag(field)
		single, elems := typedFields[num]
		switch {
		case num == tensorLocation && varint:
			external = int32(v) == int32(onnxpb.TensorProto_EXTERNAL)
		case now == nil:
		case num == tensorDims:
			out.dims(field, !sized, now.Shape())
			sized = true
			return nil
		case num == tensorRaw && len(payload) > 0:
			out.field(num, now.ToProto("").RawData)
			return nil
		case elems && (packed || wire == single):
			if !typed {
				out.field(num, elements(num, now))
			}
			typed = true
			return nil
		}
		out.copies(from+sub, from+sub+len(field))
		return nil
	})
	if err != nil || !external {
		return out, err
	}
	return s.external(at, s.data[from:to], now)
}

// sameDims reports whether a tensor of a file has a shape.
func sameDims(dims []int64, shape []int) bool {
	return slices.EqualFunc(dims, shape, func(a int64, b int) bool { return a == int64(b) })
}

// external splices a tensor whose elements lie elsewhere.
func (s *splicer) external(at place, message []byte, now *tensor.Tensor) (*splice, error) {
	m := new(onnxpb.TensorProto)
	if err := proto.Unmarshal(message, m); err != nil {
		return nil, corrupt("a tensor is damaged: %w", err)
	}
	f, err := farOf(m)
	if err != nil {
		return nil, err
	}
	f.at, f.now = at, now
	s.far = append(s.far, f)
	out := &splice{}
	other, named := s.names[f.location]
	offset, moved := s.offsets[f.location][f.offset]
	if !s.within && !named && !moved && (now == nil || sameDims(m.Dims, now.Shape())) {
		return out, nil // not changed: it is copied
	}
	if now != nil {
		m.Dims = nil
		for _, d := range now.Shape() {
			m.Dims = append(m.Dims, int64(d))
		}
	}
	if s.within {
		m.ExternalData, m.DataLocation = nil, onnxpb.TensorProto_DEFAULT
	}
	for _, e := range m.ExternalData {
		switch key := e.GetKey(); {
		case key == "location" && named:
			e.Value = other
		case key == "offset" && moved:
			e.Value = strconv.FormatInt(offset, 10)
		case key == "length" && moved:
			e.Value = strconv.Itoa(f.written())
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	out.adds(b)
	if s.within {
		out.head(tensorRaw, f.written())
		out.list = append(out.list, piece{far: f})
		out.n += f.written()
	}
	return out, nil
}

// farOf says where the elements of a tensor lie.
func farOf(m *onnxpb.TensorProto) (*far, error) {
	location, offset, size, err := tensor.Extent(m)
	if err != nil {
		return nil, invalid("%w", err)
	}
	location = filepath.ToSlash(filepath.Clean(filepath.FromSlash(location)))
	f := &far{location: location, offset: offset, size: size}
	for _, e := range m.GetExternalData() {
		f.checked = f.checked || e.GetKey() == "checksum"
	}
	return f, nil
}

// elements is the content of a typed field that holds the elements of t.
func elements(num protowire.Number, t *tensor.Tensor) []byte {
	raw := t.ToProto("").RawData
	if num == tensorFloats || num == tensorDoubles {
		return raw // fixed-size numbers, packed as they are
	}
	var out []byte
	size := max(1, t.DType().Size())
	if t.DType().Bits() < 8 {
		size = 1
	}
	signed := t.DType().IsSigned() && t.DType().Bits() >= 8
	for ; len(raw) >= size; raw = raw[size:] {
		var v uint64
		for i := range size {
			v |= uint64(raw[i]) << (8 * i)
		}
		if shift := 64 - 8*size; signed {
			v = uint64(int64(v<<shift) >> shift)
		}
		out = protowire.AppendVarint(out, v)
	}
	return out
}

// writes writes what was spliced. Release is told how many leading bytes of the model are done with.
func (s *splicer) writes(w io.Writer, out *splice, d *folder, release func(n int)) error {
	const step = 16 << 20
	for _, p := range out.list {
		switch {
		case p.far != nil && p.far.now != nil:
			p.own = p.far.now.ToProto("").RawData
		case p.far != nil:
			f, err := d.open(p.far.location)
			if err != nil {
				return err
			}
			if _, err := io.CopyN(w, io.NewSectionReader(f, p.far.offset, int64(p.far.size)), int64(p.far.size)); err != nil {
				return corrupt("external data %s: %w", p.far.location, err)
			}
		}
		if _, err := w.Write(p.own); err != nil {
			return err
		}
		for from := p.from; from < p.to; from += step {
			to := min(p.to, from+step)
			if _, err := w.Write(s.data[from:to]); err != nil {
				return err
			}
			if release != nil {
				release(to)
			}
		}
	}
	return nil
}
