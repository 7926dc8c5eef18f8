package cuda

import (
	"fmt"
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
	"spc/lower/plan"
)

// divide returns the number of parts.
func (b *binder) divide() (int, error) {
	device := map[*ir.Value]bool{} // computed there
	for _, n := range b.graph.Nodes {
		made, ok := b.launches[n]
		last := len(b.parts) - 1
		if last < 0 || (b.parts[last].in != nil) == ok {
			b.parts = append(b.parts, part{})
			if last++; !ok {
				b.parts[last].in = []*ir.Value{}
			}
		}
		part := &b.parts[last]
		part.nodes = append(part.nodes, n)
		if ok {
			part.launches = append(part.launches, made...)
			for _, v := range n.Outputs {
				device[v] = v != nil
			}
		}
	}
	return len(b.parts), b.connect(device)
}

// connect finds out what parts take from each other, and makes the CPU's programs.
func (b *binder) connect(device map[*ir.Value]bool) error {
	uploaded, downloaded := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	for i := range b.parts {
		p := &b.parts[i]
		first := b.at[p.nodes[0]]
		if p.in == nil {
			for _, n := range p.nodes {
				for _, v := range n.Inputs {
					if v != nil && !v.IsConst() && !device[v] && !uploaded[v] && b.reads(p, v) {
						uploaded[v] = true
						to := b.value(v)
						to.Place, to.Enters, to.Span.First = plan.Arena, first, first
						in, err := b.enter(p, v, first)
						if err != nil {
							return err
						}
						p.upload = append(p.upload, in)
					}
				}
			}
			continue
		}
		if err := b.host(p); err != nil {
			return err
		}
		for _, v := range p.in {
			if device[v] && !downloaded[v] {
				downloaded[v] = true
				out, err := b.leave(v, first)
				if err != nil {
					return err
				}
				p.download = append(p.download, out)
			}
		}
	}
	for _, v := range b.graph.Outputs {
		if device[v] && !downloaded[v] {
			downloaded[v] = true
			out, err := b.leave(v, b.plan.Steps)
			if err != nil {
				return err
			}
			b.outputs = append(b.outputs, out)
		}
	}
	return nil
}

// enter returns where a value is uploaded that a part needs first, whose first node is at
// first, and converts it there.
func (b *binder) enter(p *part, v *ir.Value, first int) (port, error) {
	if b.prog.typeOf(v) == v.Type.DType {
		return port{value: v, temp: -1}, nil
	}
	b.node, b.made = p.nodes[0], nil
	in := b.lasting(v, first, first)
	err := b.cast(tensor.F32, b.prog.float, prod(shapeOf(v)), in, value(v))
	p.launches = append(b.made, p.launches...)
	return port{value: v, temp: in.temp}, err
}

// leave returns from where a value is downloaded that the device computes, before node until,
// and converts it there.
func (b *binder) leave(v *ir.Value, until int) (port, error) {
	if b.prog.typeOf(v) == v.Type.DType {
		return port{value: v, temp: -1}, nil
	}
	x := value(v)
	i := slices.IndexFunc(b.parts, func(p part) bool {
		return slices.ContainsFunc(p.nodes, func(n *ir.Node) bool { return slices.Contains(n.Outputs, v) })
	})
	p := &b.parts[i]
	last := len(p.nodes) - 1
	b.node, b.made = p.nodes[last], nil
	to := b.lasting(v, b.at[b.node], until)
	out := port{value: v, temp: to.temp}
	if b.last[v] {
		x = b.temp(prod(shapeOf(v)) * b.prog.size(v))
		if err := b.move(v, x, shapeOf(v), b.strides(v), tensor.Strides(shapeOf(v)), 0, 0); err != nil {
			return out, err
		}
	}
	err := b.cast(b.prog.float, tensor.F32, prod(shapeOf(v)), x, to)
	p.launches = append(p.launches, b.made...)
	return out, err
}

// lasting asks for a buffer for a value in f32, from one node to another.
func (b *binder) lasting(v *ir.Value, from, to int) param {
	t := b.temp(max(1, prod(shapeOf(v))) * tensor.F32.Size())
	b.temps[t.temp].span = plan.Span{First: from, Last: to}
	return t
}

// cast converts n elements.
func (b *binder) cast(from, to tensor.DType, n int, x, y param) error {
	if n == 0 {
		return nil
	}
	return b.launch(fmt.Sprintf("%v_to_%v", from, to), flat(n), params{x, y}, ints(n))
}

// reads reports whether launches of a part, or views in it, read a value.
func (b *binder) reads(p *part, v *ir.Value) bool {
	for _, l := range p.launches {
		for _, q := range l.params {
			if q.value != nil && b.root(q.value) == b.root(v) {
				return true
			}
		}
	}
	for _, n := range p.nodes {
		for _, o := range n.Outputs {
			if o != nil && b.alias[o] == v {
				return true
			}
		}
	}
	return false
}

// host makes the CPU's program of a part.
func (b *binder) host(p *part) error {
	g := ir.NewGraph(b.graph.Name)
	c := ir.NewCopier(g, b.graph, "")
	inside := map[*ir.Value]bool{}
	for _, n := range p.nodes {
		n.Reads(func(v *ir.Value) {
			if v.Graph() == b.graph && !v.IsConst() && !inside[v] && !slices.Contains(p.in, v) {
				p.in = append(p.in, v)
				c.Bind(v, g.NewInput(v.Name, v.Type))
			}
		})
		c.Node(n)
		for _, v := range n.Outputs {
			inside[v] = v != nil
		}
	}
	for _, n := range p.nodes {
		for _, v := range n.Outputs {
			if v != nil && (v.IsOutput() || slices.ContainsFunc(v.Uses(), func(u ir.Use) bool { return !slices.Contains(p.nodes, u.Node) })) {
				p.out = append(p.out, v)
				g.Outputs = append(g.Outputs, c.Value(v))
			}
		}
	}
	b.prog.readers.Add(1)
	var err error
	if p.host, err = b.prog.host.Load(g, backend.Options{Threads: b.prog.options.Threads, Checked: true, Closed: b.prog.release, Lowering: lower.Options{Disable: b.prog.options.Lowering.Disable}}); err != nil {
		b.prog.readers.Add(-1)
	}
	return err
}

// arena places values and temporary buffers in the arena, and returns the number of those.
func (b *binder) arena() (int, error) {
	spans := map[int]plan.Span{} // of temporary buffers
	for _, p := range b.parts {
		for _, l := range p.launches {
			for _, q := range l.params {
				if q.place && q.value == nil {
					spans[q.temp] = plan.Span{First: b.at[l.node], Last: b.at[l.node]}
					if s := b.temps[q.temp].span; s != (plan.Span{}) {
						spans[q.temp] = s
					}
				}
			}
		}
	}
	others := make([]plan.Buffer, len(b.temps))
	for i, t := range b.temps {
		others[i] = plan.Buffer{Size: t.bytes, Span: spans[i]}
	}
	const align = 256
	for i, at := range b.plan.Assign(others, align) {
		b.temps[i].at = at
	}
	place := func(ports []port) {
		for i := range ports {
			q := &ports[i]
			if q.at = b.offset(q.value); q.temp >= 0 {
				q.at = b.temps[q.temp].at
			}
		}
	}
	place(b.outputs)
	for i := range b.parts {
		place(b.parts[i].upload)
		place(b.parts[i].download)
		for j := range b.parts[i].launches {
			all := b.parts[i].launches[j].params
			for k, q := range all {
				switch {
				case q.value != nil:
					all[k].cell = IntCell(b.offset(q.value)) + q.offset
				case q.place:
					all[k].cell = IntCell(b.temps[q.temp].at)
				}
			}
		}
	}
	return len(b.temps), nil
}

// offset is where a value is in the arena.
func (b *binder) offset(v *ir.Value) int {
	root, shift := b.plan.Storage(b.plan.Number[v])
	return b.plan.Values[root].Offset + shift
}
