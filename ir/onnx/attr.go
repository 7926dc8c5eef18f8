package onnx

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// attribute is an attribute's value, and the scope that its graphs see.
type attribute struct {
	*onnxpb.AttributeProto
	scope *scope
}

// resolve returns the value of a, which in a function body may stand for an
// attribute of the call; ok is false where the call leaves that out.
func resolve(a *onnxpb.AttributeProto, sc *scope) (attribute, bool) {
	if ref := a.GetRefAttrName(); ref != "" {
		v, ok := sc.function()[ref]
		return v, ok
	}
	return attribute{a, sc}, true
}

// function returns the attributes of the function in whose body s is.
func (s *scope) function() map[string]attribute {
	for s.outer != nil {
		s = s.outer
	}
	return s.attrs
}

// attributes returns a node's attributes in the form of op.Legacy.
func (im *importer) attributes(p *onnxpb.NodeProto, sc *scope) (map[string]any, error) {
	attrs := make(map[string]any, len(p.GetAttribute()))
	for _, a := range p.GetAttribute() {
		name := a.GetName()
		if _, twice := attrs[name]; twice {
			return nil, invalid("attribute %s is given twice", name)
		}
		v, ok := resolve(a, sc)
		if !ok {
			continue
		}
		x, err := im.attribute(v)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		attrs[name] = x
	}
	return attrs, nil
}

// typeOf returns the type of an attribute; files of IR version 1 do not give it.
func typeOf(a *onnxpb.AttributeProto) onnxpb.AttributeProto_AttributeType {
	switch {
	case a.GetType() != onnxpb.AttributeProto_UNDEFINED:
		return a.GetType()
	case a.GetT() != nil:
		return onnxpb.AttributeProto_TENSOR
	case a.GetG() != nil:
		return onnxpb.AttributeProto_GRAPH
	case len(a.GetS()) > 0:
		return onnxpb.AttributeProto_STRING
	case len(a.GetInts()) > 0:
		return onnxpb.AttributeProto_INTS
	case len(a.GetFloats()) > 0:
		return onnxpb.AttributeProto_FLOATS
	case len(a.GetStrings()) > 0:
		return onnxpb.AttributeProto_STRINGS
	case a.GetF() != 0:
		return onnxpb.AttributeProto_FLOAT
	}
	return onnxpb.AttributeProto_INT
}

func (im *importer) attribute(a attribute) (any, error) {
	switch t := typeOf(a.AttributeProto); t {
	case onnxpb.AttributeProto_FLOAT:
		return a.GetF(), nil
	case onnxpb.AttributeProto_INT:
		return int(a.GetI()), nil
	case onnxpb.AttributeProto_STRING:
		return string(a.GetS()), nil
	case onnxpb.AttributeProto_FLOATS:
		return append([]float32{}, a.GetFloats()...), nil
	case onnxpb.AttributeProto_INTS:
		ints := make([]int, len(a.GetInts()))
		for i, n := range a.GetInts() {
			ints[i] = int(n)
		}
		return ints, nil
	case onnxpb.AttributeProto_STRINGS:
		strs := make([]string, len(a.GetStrings()))
		for i, s := range a.GetStrings() {
			strs[i] = string(s)
		}
		return strs, nil
	case onnxpb.AttributeProto_TENSOR:
		return im.tensor(a.GetT())
	case onnxpb.AttributeProto_SPARSE_TENSOR:
		return im.sparse(a.GetSparseTensor())
	case onnxpb.AttributeProto_GRAPH:
		return im.subgraph(a.GetG(), a.scope)
	case onnxpb.AttributeProto_TYPE_PROTO:
		t, err := im.protoType(a.GetTp())
		return t.Map(func(d ir.Dim) ir.Dim { // which stand for themselves only
			if d.Known() {
				return d
			}
			return ir.Any
		}).String(), err
	default:
		return nil, unsupported("a value of type %v", t)
	}
}

func (im *importer) subgraph(p *onnxpb.GraphProto, outer *scope) (*ir.Graph, error) {
	if p == nil {
		return nil, invalid("the graph is missing")
	}
	if outer.depth >= maxDepth {
		return nil, invalid("graphs are nested more than %d deep", maxDepth)
	}
	sc := &scope{
		outer:  outer,
		values: map[string]*ir.Value{},
		graph:  outer.graph.NewSubgraph(p.GetName()),
		opsets: outer.opsets,
		calls:  outer.calls,
		prefix: outer.prefix,
		depth:  outer.depth + 1,
	}
	return sc.graph, im.graph(p, sc)
}

// tensor returns the tensor of p, the same one each time, so that what functions
// repeat is held once.
func (im *importer) tensor(p *onnxpb.TensorProto) (*tensor.Tensor, error) {
	return im.once(p, func() (*tensor.Tensor, error) { return im.newTensor(p) })
}

// sparse returns the dense form of a tensor in coordinate form; see tensor.
func (im *importer) sparse(p *onnxpb.SparseTensorProto) (*tensor.Tensor, error) {
	return im.once(p, func() (*tensor.Tensor, error) { return im.newSparse(p) })
}

func (im *importer) once(p proto.Message, make func() (*tensor.Tensor, error)) (*tensor.Tensor, error) {
	t := im.tensors[p]
	if t != nil {
		return t, nil
	}
	t, err := make()
	im.tensors[p] = t
	return t, err
}

func (im *importer) newTensor(p *onnxpb.TensorProto) (*tensor.Tensor, error) {
	if n := len(p.GetDims()); n > tensor.MaxRank {
		return nil, invalid("rank %d, want at most %d", n, tensor.MaxRank)
	}
	t, err := tensor.FromProto(p, im.data.external)
	if err != nil {
		return nil, invalid("%w", err)
	}
	return t, nil
}

// A sparse tensor is made dense only up to so many bytes, and beyond that up to
// so many times the bytes of its values.
const (
	sparseFree   = 16 << 20
	sparseFactor = 1024
)

func (im *importer) newSparse(p *onnxpb.SparseTensorProto) (*tensor.Tensor, error) {
	if p == nil {
		return nil, invalid("the tensor is missing")
	}
	values, err := im.newTensor(p.GetValues())
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	shape := make([]int, len(p.GetDims()))
	for i, d := range p.GetDims() {
		shape[i] = int(d)
	}
	n, err := tensor.Elems(shape)
	if err != nil {
		return nil, invalid("dense shape %v is out of range", shape)
	}
	dt, nnz := values.DType(), values.Len()
	if values.Rank() != 1 {
		return nil, invalid("values %v, want rank 1", values)
	}
	if size := n * max(dt.Size(), 16*btoi(dt == tensor.String)); size > sparseFree && size/sparseFactor > len(values.Bytes()) {
		return nil, invalid("%v%v in dense form is too large for %d values", dt, shape, nnz)
	}
	indices, err := im.newTensor(p.GetIndices())
	if err != nil {
		return nil, fmt.Errorf("indices: %w", err)
	}
	linear := slices.Equal(indices.Shape(), []int{nnz})
	if indices.DType() != tensor.I64 || !linear && !slices.Equal(indices.Shape(), []int{nnz, len(shape)}) {
		return nil, invalid("indices %v, want i64[%d] or i64[%d,%d]", indices, nnz, nnz, len(shape))
	}
	out := tensor.New(dt, shape...)
	strides := tensor.Strides(shape)
	at := tensor.Data[int64](indices)
	for i := range nnz {
		k := 0
		if linear {
			if at[i] < 0 || at[i] >= int64(n) {
				return nil, invalid("index %d is out of range for shape %v", at[i], shape)
			}
			k = int(at[i])
		} else {
			for a, d := range shape {
				x := at[i*len(shape)+a]
				if x < 0 || x >= int64(d) {
					return nil, invalid("index %d of axis %d is out of range for shape %v", x, a, shape)
				}
				k += int(x) * strides[a]
			}
		}
		tensor.Copy(out, values, nil, k, nil, i, nil)
	}
	return out, nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
