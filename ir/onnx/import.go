package onnx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx/contrib"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/option"
	"spc/ir/tensor"
)

const (
	maxDepth   = 64      // nesting of subgraphs and calls
	maxInlined = 1 << 17 // what functions expand to, see cost
	maxPrefix  = 256     // bytes of the names of calls before a name
	maxSymbol  = 64      // bytes of a symbol
)

// importer holds what the conversion of one model shares.
type importer struct {
	opts     Options
	data     folder
	funcs    map[funcID]*function
	inlined  int
	symbols  map[string]string                   // by the name that the model has
	taken    map[string]bool                     // symbols
	sizes    map[string]bool                     // names of sizes of the model's inputs
	inner    map[string]bool                     // those of them behind the first axis alone, which count no batch
	frees    map[*onnxpb.GraphProto][]string     // names that a graph takes from outside
	tensors  map[proto.Message]*tensor.Tensor    // those made
	packings map[*tensor.Tensor]*contrib.Packing // of constants that were unpacked
	settled  map[*ir.Node]bool                   // whose types were inferred because an expansion reads them
	fresh    func() ir.Dim
	refused  UnsupportedError
}

func newImporter(opts Options, path string) *importer {
	return &importer{
		opts:     Options{Shapes: maps.Clone(opts.Shapes), Dims: maps.Clone(opts.Dims), Views: opts.Views},
		data:     folder{path: path},
		funcs:    map[funcID]*function{},
		symbols:  map[string]string{},
		taken:    map[string]bool{},
		sizes:    map[string]bool{},
		inner:    map[string]bool{},
		frees:    map[*onnxpb.GraphProto][]string{},
		tensors:  map[proto.Message]*tensor.Tensor{},
		settled:  map[*ir.Node]bool{},
		packings: map[*tensor.Tensor]*contrib.Packing{},
	}
}

// scope is where names are bound while a graph or a function body is converted.
type scope struct {
	outer  *scope               // nil at the root and in a function body
	values map[string]*ir.Value // nil for a function's input that the call leaves out
	graph  *ir.Graph            // where nodes go
	opsets map[string]int
	attrs  map[string]attribute // a function's attributes
	calls  []funcID             // the functions being expanded
	prefix string               // of nodes' and values' names
	names  map[string]string    // what a function's outputs are called outside
	depth  int
}

func (s *scope) find(name string) (*ir.Value, bool) {
	for ; s != nil; s = s.outer {
		if v, ok := s.values[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// nameOf returns the name that a value of this scope has in the graph.
func (s *scope) nameOf(name string) string {
	if out, ok := s.names[name]; ok {
		return out
	}
	return s.prefix + name
}

// nodeName returns the name that a node of this scope has in the graph, empty where it has none.
func (s *scope) nodeName(p *onnxpb.NodeProto) string {
	if p.GetName() == "" {
		return ""
	}
	return s.prefix + p.GetName()
}

// kindError is an error of one of the kinds of package ir, whose text it leaves out.
type kindError struct {
	error
	kind error
}

func (e *kindError) Unwrap() []error { return []error{e.error, e.kind} }

func invalid(format string, args ...any) error {
	return &kindError{fmt.Errorf(format, args...), ir.ErrInvalid}
}

func unsupported(format string, args ...any) error {
	return &kindError{fmt.Errorf(format, args...), ir.ErrUnsupported}
}

func corrupt(format string, args ...any) error {
	return &kindError{fmt.Errorf(format, args...), ir.ErrCorrupt}
}

func wrongVersion(format string, args ...any) error {
	return &kindError{fmt.Errorf(format, args...), ir.ErrVersion}
}

// root converts the model's graph and infers its types.
func (im *importer) root(p *onnxpb.GraphProto, opsets map[string]int, info *Info) (*ir.Graph, error) {
	g := ir.NewGraph(p.GetName())
	im.fresh = g.Fresh
	sc := &scope{values: map[string]*ir.Value{}, graph: g, opsets: opsets}
	weights := map[string]bool{}
	for _, t := range p.GetInitializer() {
		weights[t.GetName()] = true
	}
	for _, t := range p.GetSparseInitializer() {
		weights[t.GetValues().GetName()] = true
	}
	p.Input = slices.DeleteFunc(p.Input, func(v *onnxpb.ValueInfoProto) bool { return weights[v.GetName()] })
	if len(p.GetOutput()) == 0 {
		return nil, invalid("the graph has no output")
	}
	if err := im.bindShapes(p.GetInput()); err != nil {
		return nil, err
	}
	for _, v := range p.GetInput() {
		info.Inputs = append(info.Inputs, v.GetName())
	}
	for _, v := range p.GetOutput() {
		info.Outputs = append(info.Outputs, v.GetName())
	}
	if err := im.graph(p, sc); err != nil {
		return nil, err
	}
	if len(im.symbols) > 0 {
		info.Symbols = im.symbols
	}
	for sym := range im.opts.Dims {
		switch {
		case im.taken[sym]:
		case len(im.taken) == 0:
			return nil, option.Errorf("%v: no dimension is called %q: the model has no symbolic dimensions; %v sizes its inputs: %s", option.Dims, sym, option.Shapes, strings.Join(info.Inputs, ", "))
		default:
			return nil, option.Errorf("%v: no dimension is called %q, want one of: %s", option.Dims, sym, names(im.taken))
		}
	}
	if im.refusal() != nil {
		return nil, nil // some values are unknown
	}
	if err := im.infer(g); err != nil {
		return nil, err
	}
	for i, v := range p.GetOutput() {
		want, err := dtypeOf(v.GetType())
		if err != nil {
			return nil, fmt.Errorf("output %s %w", v.GetName(), err)
		}
		if have := g.Outputs[i].Type; want != tensor.Undefined && have.DType != want {
			return nil, invalid("output %s is declared %v, but %v is inferred", v.GetName(), want, have)
		}
		if v.GetName() != g.Outputs[i].Name {
			g.OutputNames = info.Outputs
		}
	}
	return g, nil
}

// infer infers the types in g. Where a node is not supported it goes on with
// those that do not depend on it, to find every reason.
func (im *importer) infer(g *ir.Graph) error {
	lost := map[*ir.Value]bool{}
	for _, n := range g.Nodes {
		if slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return lost[v] }) || readsAny(n, lost) {
			lose(lost, n)
			continue
		}
		err := n.Infer()
		switch {
		case err == nil:
		case errors.Is(err, ir.ErrUnsupported):
			im.refuse(err.Error())
			lose(lost, n)
		default:
			return err
		}
	}
	return nil
}

func lose(lost map[*ir.Value]bool, n *ir.Node) {
	for _, v := range n.Outputs {
		if v != nil {
			lost[v] = true
		}
	}
}

// readsAny reports whether a subgraph of n reads one of the values.
func readsAny(n *ir.Node, values map[*ir.Value]bool) bool {
	if len(values) == 0 {
		return false
	}
	for _, sub := range ir.Subgraphs(n.Op) {
		for g := range sub.All() {
			for _, m := range g.Nodes {
				if slices.ContainsFunc(m.Inputs, func(v *ir.Value) bool { return values[v] }) {
					return true
				}
			}
			if slices.ContainsFunc(g.Outputs, func(v *ir.Value) bool { return values[v] }) {
				return true
			}
		}
	}
	return false
}

// bindShapes gives the symbols in the inputs' declared shapes the sizes that the
// shapes in the options give them.
func (im *importer) bindShapes(inputs []*onnxpb.ValueInfoProto) error {
	known := map[string]bool{}
	for _, v := range inputs {
		for _, d := range v.GetType().GetTensorType().GetShape().GetDim() {
			im.sizes[strings.TrimSpace(d.GetDimParam())] = true
		}
	}
	im.findInner(inputs)
	for _, v := range inputs {
		known[v.GetName()] = true
		shape, ok := im.opts.Shapes[v.GetName()]
		if !ok {
			continue
		}
		given := make([]int, 0, len(shape))
		for _, n := range shape {
			if n < 0 && n != AnySize {
				return option.Errorf("%v: %v for input %s has a negative dimension", option.Shapes, shape, v.GetName())
			}
			if n != AnySize {
				given = append(given, n)
			}
		}
		if _, err := tensor.Elems(given); err != nil {
			return option.Errorf("%v: input %s: %v", option.Shapes, v.GetName(), err)
		}
		declared := v.GetType().GetTensorType().GetShape()
		if declared == nil {
			continue
		}
		if len(declared.GetDim()) != len(shape) {
			return option.Errorf("%v: %v for input %s, want %d dimensions", option.Shapes, shape, v.GetName(), len(declared.GetDim()))
		}
		for i, d := range declared.GetDim() {
			if _, sum := im.sum(d.GetDimParam()); sum {
				continue
			}
			sym := im.symbol(d)
			if sym == "" {
				continue
			}
			if shape[i] == AnySize {
				if n, sized := im.opts.Dims[sym]; sized { // which nothing lifts
					shape = slices.Clone(shape)
					shape[i] = n
					im.opts.Shapes[v.GetName()] = shape
				}
				continue
			}
			if n, ok := im.opts.Dims[sym]; ok && n != shape[i] {
				return option.Errorf("%v: %v for input %s makes dimension %s %d, want %d as given elsewhere", option.Shapes, shape, v.GetName(), sym, shape[i], n)
			}
			if im.opts.Dims == nil {
				im.opts.Dims = map[string]int{}
			}
			im.opts.Dims[sym] = shape[i]
		}
	}
	if err := im.checkSums(inputs); err != nil {
		return err
	}
	for name := range im.opts.Shapes {
		if !known[name] {
			return option.Errorf("%v: a shape is given for %q, want one of the inputs: %s", option.Shapes, name, names(known))
		}
	}
	for sym, n := range im.opts.Dims {
		if n < 0 {
			return option.Errorf("%v: dimension %s is given as %d, want a size", option.Dims, sym, n)
		}
	}
	return nil
}

// checkSums refuses shapes in the options that are not what the sums in the inputs' declared shapes come to.
func (im *importer) checkSums(inputs []*onnxpb.ValueInfoProto) error {
	for _, v := range inputs {
		shape := im.opts.Shapes[v.GetName()]
		for i, d := range v.GetType().GetTensorType().GetShape().GetDim() {
			e, ok := im.sum(d.GetDimParam())
			if ok && e.Known() && i < len(shape) && shape[i] != AnySize && shape[i] != e.Size() {
				return option.Errorf("%v: %v for input %s has %d along axis %d, want %d, as %s is declared", option.Shapes, shape, v.GetName(), shape[i], i, e.Size(), d.GetDimParam())
			}
		}
	}
	return nil
}

// given returns the type of an input that is declared as t and given a shape.
func given(g *ir.Graph, t ir.Type, shape []int) ir.Type {
	dims := make([]ir.Dim, len(shape))
	for i, n := range shape {
		switch {
		case n != AnySize:
			dims[i] = ir.Size(n)
		case t.Ranked && !t.Dims[i].Known():
			dims[i] = t.Dims[i]
		default:
			dims[i] = g.Fresh()
		}
	}
	return ir.Of(t.DType, dims...)
}

// symbol returns the symbol for a dimension's name, empty where it has none or one
// that says nothing: a question mark, or what would read as a number. Characters
// that mean something in the IR's expressions are replaced.
func (im *importer) symbol(d *onnxpb.TensorShapeProto_Dimension) string {
	name := strings.TrimSpace(d.GetDimParam())
	if strings.HasPrefix(name, "?") || strings.Trim(name, "+-0123456789") == "" {
		return ""
	}
	if sym := im.symbols[name]; sym != "" {
		return sym
	}
	base := legible(name)
	sym := base
	for i := 2; im.taken[sym]; i++ {
		sym = fmt.Sprintf("%s_%d", base, i)
	}
	im.symbols[name], im.taken[sym] = sym, true
	if n, ok := im.opts.Dims[name]; ok && name != sym {
		delete(im.opts.Dims, name)
		im.opts.Dims[sym] = n
	}
	return sym
}

// legible returns the name of a dimension without the characters that mean something in the IR's expressions.
func legible(name string) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || strings.ContainsRune("*+-()?,\"[]", r) {
			return '_'
		}
		return r
	}, name)
	return name[:min(len(name), maxSymbol)]
}

// findInner finds the names of sizes behind the first axis.
func (im *importer) findInner(inputs []*onnxpb.ValueInfoProto) {
	first := map[string]bool{}
	for _, v := range inputs {
		for i, d := range v.GetType().GetTensorType().GetShape().GetDim() {
			if name := strings.TrimSpace(d.GetDimParam()); name != "" {
				first[name] = first[name] || i == 0
			}
		}
	}
	for name, is := range first {
		if !is && !strings.Contains(name, "+") {
			im.inner[name] = true
		}
	}
}

// sum reads the name of a dimension that is a sum of names of the inputs' sizes and integers, as exporters write of what is as long as
// a cache and what is new. Any other name, and one that the options give a size, stands for itself. So does one with an integer where
// another size is open, as past_sequence_length + 1 beside tokens of any number, of which Optimum's exporter means one:
// people run such models with more.
func (im *importer) sum(name string) (sum ir.Dim, ok bool) {
	name = strings.TrimSpace(name)
	if im.symbols[name] != "" {
		return sum, false
	}
	for _, given := range []string{name, legible(name)} {
		if _, is := im.opts.Dims[given]; is {
			return sum, false
		}
	}
	if rest, open := strings.CutPrefix(name, "("); open && strings.HasSuffix(rest, ")") {
		name = rest[:len(rest)-1]
	}
	parts := strings.Split(name, "+")
	if len(parts) == 1 || len(name) > maxSymbol {
		return sum, false
	}
	if slices.ContainsFunc(parts, isInteger) {
		for other := range im.inner {
			if _, given := im.opts.Dims[other]; !given && !slices.ContainsFunc(parts, func(part string) bool { return strings.TrimSpace(part) == other }) {
				return sum, false
			}
		}
	}
	for _, part := range parts {
		part = strings.TrimSpace(part)
		d := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: part}}
		if n, err := strconv.ParseUint(part, 10, 31); err == nil {
			sum = ir.Sum(sum, ir.Size(int(n)))
		} else if sym := ""; im.sizes[part] {
			if sym = im.symbol(d); sym == "" {
				return sum, false
			}
			sum = ir.Sum(sum, im.sized(sym))
		} else {
			return sum, false
		}
	}
	return sum, !sum.Fresh()
}

// isInteger reports whether a part of a sum is a number.
func isInteger(part string) bool {
	_, err := strconv.ParseUint(strings.TrimSpace(part), 10, 31)
	return err == nil
}

// sized is the dimension of a symbol: the size that the options give it, if any.
func (im *importer) sized(sym string) ir.Dim {
	if n, given := im.opts.Dims[sym]; given {
		return ir.Size(n)
	}
	return ir.Sym(sym)
}

// valueType returns a declared type.
func (im *importer) valueType(v *onnxpb.ValueInfoProto) (ir.Type, error) {
	t, err := im.protoType(v.GetType())
	if err != nil {
		return t, fmt.Errorf("%s %w", v.GetName(), err)
	}
	return t, nil
}

// protoType returns the type that a message tells. The number of elements of a list is a
// fresh unknown.
func (im *importer) protoType(p *onnxpb.TypeProto) (ir.Type, error) {
	dt, err := dtypeOf(p)
	if err != nil {
		return ir.Type{}, err
	}
	switch {
	case dt.IsSequence():
		e, err := im.tensorType(p.GetSequenceType().GetElemType().GetTensorType(), unnamed)
		e = e.Map(func(d ir.Dim) ir.Dim { // a symbol may stand for another size in each element
			if d.Known() {
				return d
			}
			return ir.Any
		})
		return ir.List(dt, im.fresh(), e), err
	case dt.IsOptional():
		e, err := im.protoType(p.GetOptionalType().GetElemType())
		if e.Elem != nil {
			e.Dims = []ir.Dim{ir.Any}
		}
		return ir.List(dt, im.fresh(), e), err
	}
	return im.tensorType(p.GetTensorType(), im.fresh)
}

// unnamed is a dimension of elements that is not known.
func unnamed() ir.Dim { return ir.Any }

// dtypeOf returns the element type that a message tells, Undefined where it tells none: of
// a tensor, a sequence of tensors, or an optional of either. The error goes after the name
// of what has the type.
func dtypeOf(p *onnxpb.TypeProto) (tensor.DType, error) {
	var elem *onnxpb.TypeProto
	list := tensor.SequenceOf
	switch v := p.GetValue().(type) {
	case *onnxpb.TypeProto_SequenceType:
		elem = v.SequenceType.GetElemType()
	case *onnxpb.TypeProto_OptionalType:
		elem, list = v.OptionalType.GetElemType(), tensor.OptionalOf
	case *onnxpb.TypeProto_MapType:
		return 0, unsupported("is a map, want a tensor, a sequence or an optional")
	case *onnxpb.TypeProto_SparseTensorType:
		return 0, unsupported("is a sparse tensor, want a dense one")
	case *onnxpb.TypeProto_OpaqueType:
		return 0, unsupported("is of an opaque type, want a tensor")
	default:
		c := p.GetTensorType().GetElemType()
		if dt := tensor.DType(c); c != 0 && (c != int32(dt) || !dt.Valid()) {
			return 0, invalid("has unknown data type code %d", c)
		}
		return tensor.DType(c), nil
	}
	sequence := elem.GetSequenceType() != nil && list(0).IsOptional()
	if !sequence && elem.GetTensorType() == nil && elem.GetValue() != nil {
		return 0, unsupported("is a list of what is no tensor")
	}
	dt, err := dtypeOf(elem)
	if err == nil && dt == tensor.Undefined {
		err = invalid("is a list of unknown elements")
	}
	return list(dt), err
}

// tensorType returns the declared type of a tensor. Dimensions that are unset, negative
// or named by nothing or a question mark are what fresh gives.
func (im *importer) tensorType(t *onnxpb.TypeProto_Tensor, fresh func() ir.Dim) (ir.Type, error) {
	dt := tensor.DType(t.GetElemType())
	if t.GetShape() == nil {
		return ir.Unranked(dt), nil
	}
	if n := len(t.GetShape().GetDim()); n > tensor.MaxRank {
		return ir.Type{}, invalid("has rank %d, want at most %d", n, tensor.MaxRank)
	}
	dims := []ir.Dim{}
	sizes := []int{}
	for _, d := range t.GetShape().GetDim() {
		dim := im.dim(d, fresh)
		dims = append(dims, dim)
		if dim.Known() {
			sizes = append(sizes, dim.Size())
		}
	}
	if _, err := tensor.Elems(sizes); err != nil {
		return ir.Type{}, invalid("is declared %v, whose known dimensions multiply to more than memory holds", ir.Of(dt, dims...))
	}
	return ir.Of(dt, dims...), nil
}

// dim returns a declared dimension.
func (im *importer) dim(d *onnxpb.TensorShapeProto_Dimension, fresh func() ir.Dim) ir.Dim {
	if sum, ok := im.sum(d.GetDimParam()); ok {
		return sum
	}
	if sym := im.symbol(d); sym != "" {
		return im.sized(sym)
	}
	if size, known := d.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); known && size.DimValue >= 0 {
		return ir.Size(int(size.DimValue))
	}
	return fresh()
}

// graph converts p into sc.graph.
func (im *importer) graph(p *onnxpb.GraphProto, sc *scope) error {
	where := ""
	if sc.outer != nil {
		where = fmt.Sprintf("subgraph %s: ", p.GetName())
	}
	bind := func(what, name string, v *ir.Value) error {
		if name == "" {
			return invalid("%s%s has no name", where, what)
		}
		if _, taken := sc.values[name]; taken {
			return invalid("%s%s %s: the name is taken by another value", where, what, name)
		}
		sc.values[name] = v
		return nil
	}
	for _, in := range p.GetInput() {
		t, err := im.valueType(in)
		if errors.Is(err, ir.ErrUnsupported) {
			im.refuse(fmt.Sprintf("%sinput %v", where, err))
			sc.values[in.GetName()] = unknown
			continue
		}
		if err != nil {
			return fmt.Errorf("%sinput %w", where, err)
		}
		if sc.outer == nil {
			if t.DType == tensor.Undefined {
				return invalid("input %s has no element type", in.GetName())
			}
			if shape, ok := im.opts.Shapes[in.GetName()]; ok {
				if t.Elem != nil {
					return invalid("a shape is given for input %s, which is %v", in.GetName(), t)
				}
				t = given(sc.graph, t, shape)
			}
		}
		if err := bind("input", in.GetName(), sc.graph.NewInput(sc.nameOf(in.GetName()), t)); err != nil {
			return err
		}
	}
	for _, t := range p.GetInitializer() {
		im.data.lends = im.opts.Views
		v, err := im.tensor(t)
		im.data.lends = false
		if err != nil {
			return fmt.Errorf("%sinitializer %s: %w", where, t.GetName(), err)
		}
		if err := bind("initializer", t.GetName(), sc.graph.NewConst(sc.nameOf(t.GetName()), v)); err != nil {
			return err
		}
	}
	for _, t := range p.GetSparseInitializer() {
		v, err := im.sparse(t)
		if err != nil {
			return fmt.Errorf("%ssparse initializer %s: %w", where, t.GetValues().GetName(), err)
		}
		name := t.GetValues().GetName()
		if err := bind("sparse initializer", name, sc.graph.NewConst(sc.nameOf(name), v)); err != nil {
			return err
		}
	}
	if err := im.nodes(p.GetNode(), sc); err != nil {
		return fmt.Errorf("%s%w", where, err)
	}
	for _, out := range p.GetOutput() {
		v, ok := sc.find(out.GetName())
		if !ok || v == nil {
			return invalid("%soutput %q is not defined", where, out.GetName())
		}
		sc.graph.Outputs = append(sc.graph.Outputs, v)
	}
	return nil
}

// nodes converts the nodes of a graph or a function body in topological order.
func (im *importer) nodes(list []*onnxpb.NodeProto, sc *scope) error {
	for i, n := range list {
		for _, out := range n.GetOutput() {
			if _, taken := sc.values[out]; taken && out != "" {
				return invalid("%s: output %s: the name is taken by another value", label(n, i, sc), out)
			}
		}
	}
	order, err := im.order(list)
	if err != nil {
		return err
	}
	for _, i := range order {
		err := im.node(list[i], sc)
		switch {
		case err == nil:
			continue
		case err == errLost:
		case isLocated(err):
			return err
		case errors.Is(err, ir.ErrUnsupported):
			im.refuse(fmt.Sprintf("%s: %v", label(list[i], i, sc), err))
		default:
			return fmt.Errorf("%s: %w", label(list[i], i, sc), err)
		}
		for _, out := range list[i].GetOutput() {
			sc.values[out] = unknown
		}
	}
	return nil
}

// errLost is the error of a node that reads an unknown value or has no
// definition, which was noted before.
var errLost = errors.New("lost")

// located is an error from the body of a function: it names a node there, whose
// name starts with the names of the calls.
type located struct{ error }

func (e located) Unwrap() error { return e.error }

func isLocated(err error) bool {
	_, ok := err.(located)
	return ok
}

// label names a node for messages.
func label(n *onnxpb.NodeProto, i int, sc *scope) string {
	kind := op.KindOf(n.GetDomain(), n.GetOpType())
	if n.GetName() == "" {
		return fmt.Sprintf("node %s#%d (%s)", sc.prefix, i, kind)
	}
	return fmt.Sprintf("%s%s (%s)", sc.prefix, n.GetName(), kind)
}

func (im *importer) node(p *onnxpb.NodeProto, sc *scope) error {
	if p.GetOpType() == "" {
		return invalid("the node has no operator")
	}
	inputs, err := operands(p.GetInput(), sc)
	if err != nil {
		return err
	}
	outputs := trim(p.GetOutput())
	if f := im.funcs[idOf(p)]; f != nil {
		return im.call(p, f, inputs, outputs, sc)
	}
	domain := canonical(p.GetDomain())
	opset, ok := sc.opsets[domain]
	if !ok {
		return invalid("the model imports no opset of %s", domainText(domain))
	}
	kind := op.KindOf(domain, p.GetOpType())
	def := op.Lookup(kind)
	extra := contrib.Lookup(kind)
	if def == nil && extra == nil && kind != "Constant" || slices.Contains(inputs, unknown) {
		return errLost
	}
	attrs, err := im.attributes(p, sc)
	if err != nil {
		return err
	}
	if extra != nil {
		return im.expand(p, extra, attrs, inputs, sc)
	}
	l := &op.Legacy{Opset: opset, Kind: kind, Attrs: attrs, Inputs: inputs, Graph: sc.graph, Outs: len(outputs)}
	if kind == "Constant" {
		t, err := l.Constant()
		if err != nil {
			return err
		}
		sc.values[outputs[0]] = sc.graph.NewConst(sc.nameOf(outputs[0]), t)
		return nil
	}
	o, err := l.Make()
	if err != nil {
		return err
	}
	if len(outputs) == 0 {
		return nil // nobody wants what it computes
	}
	name := sc.nodeName(p)
	ids := make([]string, len(outputs))
	for i, out := range outputs {
		if out != "" {
			ids[i] = sc.nameOf(out)
		}
	}
	n := sc.graph.NewNode(name, o, l.Inputs, ids...)
	for i, out := range outputs {
		if out == "" {
			n.Outputs[i] = nil
			continue
		}
		sc.values[out] = n.Outputs[i]
	}
	return nil
}

// operands returns the values of input names, nil where a name is empty.
func operands(list []string, sc *scope) ([]*ir.Value, error) {
	in := make([]*ir.Value, len(list))
	for i, name := range list {
		if name == "" {
			continue
		}
		v, ok := sc.find(name)
		if !ok {
			return nil, invalid("input %q is not defined", name)
		}
		in[i] = v
	}
	return in, nil
}

// trim cuts empty names from the end.
func trim(list []string) []string {
	for len(list) > 0 && list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}
