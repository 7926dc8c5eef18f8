package onnx

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/onnx/onnxpb"
)

// funcID identifies a function.
type funcID struct{ domain, name, overload string }

func (id funcID) String() string {
	s := id.name
	if id.domain != "" {
		s = id.domain + ":" + s
	}
	if id.overload != "" {
		s += ":" + id.overload
	}
	return s
}

func idOf(n *onnxpb.NodeProto) funcID {
	return funcID{canonical(n.GetDomain()), n.GetOpType(), n.GetOverload()}
}

// function is an operator that the model defines.
type function struct {
	*onnxpb.FunctionProto
	opsets map[string]int
	cost   int // of a call
}

// cost measures nodes and their subgraphs by what their copies would take: one a
// node, and one for every 64 bytes of names.
func cost(nodes []*onnxpb.NodeProto) int {
	total := 0
	for _, n := range nodes {
		bytes := len(n.GetName())
		for _, list := range [][]string{n.GetInput(), n.GetOutput()} {
			for _, s := range list {
				bytes += len(s) + 8
			}
		}
		total += 1 + bytes/64
		for _, a := range n.GetAttribute() {
			total += cost(a.GetG().GetNode()) + len(a.GetS())/64 + len(a.GetInts()) + len(a.GetFloats()) + len(a.GetStrings())
		}
	}
	return total
}

func (im *importer) addFunctions(m *onnxpb.ModelProto) error {
	for _, f := range m.GetFunctions() {
		id := funcID{canonical(f.GetDomain()), f.GetName(), f.GetOverload()}
		if im.funcs[id] != nil {
			return invalid("function %v is defined twice", id)
		}
		opsets, err := importOpsets(f.GetOpsetImport(), false)
		if err != nil {
			return fmt.Errorf("function %v: %w", id, err)
		}
		im.funcs[id] = &function{f, opsets, 1 + cost(f.GetNode())}
	}
	return nil
}

// call expands a call of f in place: the body's nodes join the caller's graph,
// their names prefixed by the call's.
func (im *importer) call(p *onnxpb.NodeProto, f *function, inputs []*ir.Value, outputs []string, sc *scope) error {
	id := idOf(p)
	if slices.Contains(sc.calls, id) {
		return invalid("function %v calls itself", id)
	}
	if sc.depth >= maxDepth {
		return invalid("calls are nested more than %d deep", maxDepth)
	}
	if im.inlined += f.cost; im.inlined > maxInlined {
		return invalid("the model's functions expand to more than %d nodes", maxInlined)
	}
	if len(inputs) > len(f.GetInput()) || len(outputs) > len(f.GetOutput()) {
		return invalid("%d inputs and %d outputs, want at most %d and %d as function %v has",
			len(inputs), len(outputs), len(f.GetInput()), len(f.GetOutput()), id)
	}
	prefix := p.GetName()
	if prefix == "" {
		prefix = id.name
		if len(outputs) > 0 {
			prefix += "_" + outputs[0]
		}
	}
	prefix = sc.prefix + prefix + "/"
	body := &scope{
		values: map[string]*ir.Value{},
		graph:  sc.graph,
		opsets: f.opsets,
		attrs:  map[string]attribute{},
		calls:  append(slices.Clip(sc.calls), id),
		prefix: prefix[:min(len(prefix), maxPrefix)],
		names:  map[string]string{},
		depth:  sc.depth + 1,
	}
	for i, name := range f.GetInput() {
		if _, twice := body.values[name]; twice || name == "" {
			return invalid("function %v: input %q is not a name of its own", id, name)
		}
		body.values[name] = nil
		if i < len(inputs) {
			body.values[name] = inputs[i]
		}
	}
	for _, a := range f.GetAttributeProto() {
		body.attrs[a.GetName()] = attribute{a, body}
	}
	for _, a := range p.GetAttribute() {
		_, has := body.attrs[a.GetName()]
		if !has && !slices.Contains(f.GetAttribute(), a.GetName()) {
			return invalid("function %v has no attribute %s", id, a.GetName())
		}
		if v, ok := resolve(a, sc); ok {
			body.attrs[a.GetName()] = v
		}
	}
	for i, out := range outputs {
		if _, shared := body.names[f.GetOutput()[i]]; out != "" && !shared {
			body.names[f.GetOutput()[i]] = sc.nameOf(out)
		}
	}
	if err := im.nodes(f.GetNode(), body); err != nil {
		return located{err}
	}
	for i, out := range outputs {
		v := body.values[f.GetOutput()[i]]
		if v == nil {
			return invalid("function %v: output %q is not defined", id, f.GetOutput()[i])
		}
		if out != "" {
			sc.values[out] = v
		}
	}
	return nil
}
