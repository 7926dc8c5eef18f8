package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/format"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/plan"
	"spc/passes/fold"
)

// spec is a program specialised for the shapes of its inputs.
type spec struct {
	prog      *program
	graph     *ir.Graph
	parts     []part
	offset    map[*ir.Value]int // in the arena, of values that are on the device
	arena     int
	outputs   []port              // those that the device computes
	why       map[*ir.Node]string // the CPU computes a node
	constants []Pointer           // on the device
	plans     []Plan              // of libraries

	indices []indices // that kernels read

	mu   sync.Mutex
	free []*exec
}

// indices are an input of the graph whose elements a node takes as indices, from one number to
// below another.
type indices struct {
	node            *ir.Node
	input, from, to int
}

// check refuses indices that are out of range.
func (at *indices) check(in []*tensor.Tensor) error {
	for _, i := range in[at.input].Ints() {
		if i < at.from || i >= at.to {
			return at.node.Errorf(ir.ErrInvalid, "index %d is out of range for %d elements", i, at.to)
		}
	}
	return nil
}

// part is a run of nodes that one side computes.
type part struct {
	nodes    []*ir.Node
	launches []launch        // of the device
	host     backend.Program // of the CPU
	in, out  []*ir.Value     // of the CPU's graph
	upload   []port          // what the device needs first here, and has not computed
	download []port          // what the CPU needs first here, and has not computed
}

// port is a value that is copied to the device or from it, in the type that it has in the graph.
type port struct {
	value *ir.Value
	temp  int // a buffer for it, where it has another type on the device, else -1
	at    int // in the arena
}

// launch is a kernel that a node was bound to, or a plan of a library.
type launch struct {
	node     *ir.Node
	name     string
	kernel   Kernel
	geometry backend.Geometry
	plan     Plan
	params   []param // of a plan, those of Stream.Multiply
}

// param is a parameter of a launch: a cell, or, where place is set, an address in the arena.
type param struct {
	cell   uint64
	place  bool
	value  *ir.Value // whose place it is, nil for a temporary buffer
	offset uint64    // bytes from the value's beginning on
	temp   int       // the buffer's number
}

// binder makes launches of nodes.
type binder struct {
	*spec
	stream Stream
	node   *ir.Node
	made   []launch
	temps  []temp
	alias  map[*ir.Value]*ir.Value // views, by the value whose storage they share
	last   map[*ir.Value]bool      // images whose channels come last
	chains map[*ir.Node]*chain
}

// temp is a buffer, which is needed by one node unless span says more.
type temp struct {
	bytes, at int
	span      plan.Span
}

// specialise binds the program to inputs of the given shapes.
func (p *program) specialise(in []*tensor.Tensor) (*spec, error) {
	g, err := p.graph.Specialise(in)
	if err != nil {
		return nil, err
	}
	if err := fold.All(g); err != nil {
		return nil, err
	}
	if err := format.Loosen(g, func(v *ir.Value) (*tensor.Tensor, error) { return format.Unpack(v.Store, v.Type) }); err != nil {
		return nil, err
	}
	if err := affine(g); err != nil {
		return nil, err
	}
	if err := split(g); err != nil {
		return nil, err
	}
	stream, err := p.driver.Stream()
	if err != nil {
		return nil, fmt.Errorf("binding: %w", err)
	}
	defer stream.Close()
	s := &spec{prog: p, graph: g, offset: map[*ir.Value]int{}, why: map[*ir.Node]string{}}
	b := &binder{spec: s, stream: stream, alias: map[*ir.Value]*ir.Value{}}
	p.fresh = nil
	err = ir.Guard(b.bind)
	if copied := stream.Sync(); err == nil && copied != nil {
		err = fmt.Errorf("copies of weights: %w", copied)
	}
	if err != nil {
		s.close()
		for _, t := range p.fresh {
			p.driver.Free(p.memory[t])
			delete(p.memory, t)
		}
		return nil, err
	}
	return s, nil
}

// affine makes a product and a sum of what normalises by constants, which chains may take.
func affine(g *ir.Graph) error {
	for _, n := range slices.Clone(g.Nodes) {
		o, ok := n.Op.(*op.BatchNormalization)
		if !ok || o.Training || !o.Spatial || len(n.Outputs) != 1 || n.Outputs[0].Type.DType != tensor.F32 || n.Outputs[0].Type.Rank() < 2 {
			continue
		}
		var by [4][]float64 // scale, shift, mean and variance
		for i := range by {
			if v := n.Inputs[1+i]; v.Const != nil {
				by[i] = v.Const.Float64s()
			}
			ok = ok && by[i] != nil
		}
		if !ok {
			continue
		}
		factor, shift := by[0], by[1]
		for c := range factor {
			factor[c] /= math.Sqrt(by[3][c] + float64(o.Epsilon))
			shift[c] -= by[2][c] * factor[c]
		}
		shape := slices.Repeat([]int{1}, n.Outputs[0].Type.Rank()-1)
		shape[0] = len(factor)
		x := n.Inputs[0]
		for i, kind := range []string{"Mul", "Add"} {
			f, err := op.New(kind)
			if err != nil {
				return err
			}
			name := n.Name + []string{".scale", ".shift"}[i]
			by := g.NewConst(name+".by", tensor.FromFloat64s(tensor.F32, [][]float64{factor, shift}[i], shape...))
			m := g.InsertBefore(n, name, f, []*ir.Value{x, by}, name+".out")
			if err := m.Infer(); err != nil {
				return err
			}
			x = m.Outputs[0]
		}
		g.ReplaceUses(n.Outputs[0], x)
		g.Remove(n)
	}
	return nil
}

// split gives sums, maxima and minima no more operands than chains take.
func split(g *ir.Graph) error {
	for _, n := range slices.Clone(g.Nodes) {
		kind := n.Op.Kind()
		if kind != "Sum" && kind != "Max" && kind != "Min" || len(n.Inputs) <= chainOperands {
			continue
		}
		x := n.Inputs[0]
		for i, y := range n.Inputs[1 : len(n.Inputs)-chainOperands+1] {
			f, err := op.New(kind)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%s.%d", n.Name, i)
			m := g.InsertBefore(n, name, f, []*ir.Value{x, y}, name+".out")
			if err := m.Infer(); err != nil {
				return err
			}
			x = m.Outputs[0]
		}
		rest := append([]*ir.Value{x}, n.Inputs[len(n.Inputs)-chainOperands+1:]...)
		for i := len(n.Inputs) - 1; i >= len(rest); i-- {
			n.SetInput(i, nil)
		}
		for i, v := range rest {
			n.SetInput(i, v)
		}
	}
	return nil
}

// root is the value whose storage v has.
func (b *binder) root(v *ir.Value) *ir.Value {
	for b.alias[v] != nil {
		v = b.alias[v]
	}
	return v
}

// bind divides the graph into parts and lays out the arena.
func (b *binder) bind() error {
	launches := map[*ir.Node][]launch{} // of nodes of the device
	b.chains = chains(b.graph.Nodes)
	if err := b.arrange(); err != nil {
		return err
	}
	var nodes []*ir.Node // those whose values are in memory
	for _, n := range b.graph.Nodes {
		b.node, b.made = n, nil
		temps := len(b.temps)
		why, err := "", error(nil)
		switch c := b.chains[n]; {
		case c == nil:
			why, err = b.bindNode(n)
		case c.last() == n:
			err = b.launchChain(c)
		default:
			continue
		}
		if err != nil {
			if named := (*ir.NodeError)(nil); !errors.As(err, &named) {
				err = fmt.Errorf("%v: %w", n, err)
			}
			return err
		}
		if nodes = append(nodes, n); why != "" {
			b.temps, b.why[n] = b.temps[:temps], why
			for _, v := range n.Outputs { // the CPU writes them
				delete(b.last, v)
			}
		} else {
			launches[n] = b.made
		}
	}
	b.graph.Nodes = b.relieve(nodes, launches)
	b.graph.Nodes = b.grouped(b.graph.Nodes, func(n *ir.Node) bool {
		_, ok := launches[n]
		return ok
	})
	device := map[*ir.Value]bool{} // computed there
	at := map[*ir.Node]int{}
	for i, n := range b.graph.Nodes {
		at[n] = i
		made, ok := launches[n]
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
	if err := b.connect(device, at); err != nil {
		return err
	}
	b.layout(at)
	return nil
}

// relieve leaves integers to the CPU that only the CPU reads, and returns the nodes whose values are
// in memory then.
func (b *binder) relieve(nodes []*ir.Node, launches map[*ir.Node][]launch) []*ir.Node {
	out := make([]*ir.Node, 0, len(nodes))
	for _, n := range slices.Backward(nodes) {
		_, ok := launches[n]
		ok = ok && binders8[n.Op.Kind()] == nil // products are worth a copy
		for _, v := range n.Outputs {
			ok = ok && v != nil && v.Type.DType != tensor.F32 && !v.IsOutput() && !slices.ContainsFunc(v.Uses(), func(u ir.Use) bool {
				_, device := launches[u.Node]
				return device || b.chains[u.Node] != nil
			})
		}
		if ok = ok && !slices.ContainsFunc(b.inputs(n), func(v *ir.Value) bool { return v != nil && v.Type.DType == tensor.F32 }); !ok {
			out = append(out, n)
			continue
		}
		members := []*ir.Node{n}
		if c := b.chains[n]; c != nil {
			members = c.nodes
		}
		delete(launches, n)
		for _, m := range slices.Backward(members) {
			delete(b.chains, m)
			for _, v := range m.Outputs {
				delete(b.alias, v)
			}
			b.why[m] = "only the CPU reads these integers"
			out = append(out, m)
		}
	}
	slices.Reverse(out)
	return out
}

// bindNode makes the launches of a node that is in no chain, or says why there are none.
func (b *binder) bindNode(n *ir.Node) (why string, err error) {
	bind, floats := binders[n.Op.Kind()], true
	if hasBytes(n) && binders8[n.Op.Kind()] != nil {
		bind, floats = binders8[n.Op.Kind()], false
	} else if bind == nil {
		bind, floats = mixed[n.Op.Kind()], false
	}
	if why := unfit(n); why != "" {
		return why, nil
	}
	if bind == nil {
		if _, ok := elementwise[n.Op.Kind()]; !ok && op.Activations[n.Op.Kind()].F == nil {
			return "no kernel for " + n.Op.Kind(), nil
		}
		return "no kernel takes its types and attributes", nil
	}
	if floats {
		for _, v := range slices.Concat(n.Inputs, n.Outputs) {
			if v != nil && v.Type.DType != tensor.F32 && !v.IsConst() {
				return fmt.Sprintf("no kernel for %v", v.Type.DType), nil
			}
		}
	}
	ok, err := bind(b, n)
	if err != nil || ok {
		return "", err
	}
	return "no kernel takes its attributes and shapes", nil
}

// inputs are the values that the launches of a node read, or the node.
func (b *binder) inputs(n *ir.Node) []*ir.Value {
	if c := b.chains[n]; c != nil {
		return c.operands
	}
	return n.Inputs
}

// grouped orders nodes so that those of either side come together, and stay in an order in which
// each comes after those that it needs: as many as can of the one side, and then of the other.
func (b *binder) grouped(nodes []*ir.Node, device func(*ir.Node) bool) []*ir.Node {
	waiting := map[*ir.Value]bool{} // for nodes that are left
	for _, n := range nodes {
		for _, v := range n.Outputs {
			waiting[v] = true
		}
	}
	ready := func(n *ir.Node) bool {
		if c := b.chains[n]; c != nil {
			return !slices.ContainsFunc(c.operands, func(v *ir.Value) bool { return waiting[v] })
		}
		ok := true
		n.Reads(func(v *ir.Value) { ok = ok && !waiting[v] })
		return ok
	}
	out := make([]*ir.Node, 0, len(nodes))
	for side := false; len(nodes) > 0; side = !side {
		var left []*ir.Node
		for _, n := range nodes {
			if device(n) != side || !ready(n) {
				left = append(left, n)
				continue
			}
			out = append(out, n)
			for _, v := range n.Outputs {
				delete(waiting, v)
			}
		}
		nodes = left
	}
	return out
}

// connect finds out what parts take from each other, and makes the CPU's programs.
func (b *binder) connect(device map[*ir.Value]bool, at map[*ir.Node]int) error {
	uploaded, downloaded := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	for i := range b.parts {
		p := &b.parts[i]
		first := at[p.nodes[0]]
		if p.in == nil {
			for _, n := range p.nodes {
				for _, v := range b.inputs(n) {
					if v != nil && !v.IsConst() && !device[v] && !uploaded[v] && b.reads(p, v) {
						uploaded[v] = true
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
				out, err := b.leave(v, at, first)
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
			out, err := b.leave(v, at, len(b.graph.Nodes))
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
	in := port{value: v, temp: b.lasting(v, first, first)}
	err := b.cast(tensor.F32, b.prog.float, prod(shapeOf(v)), tempParam(in.temp), v)
	p.launches = append(b.made, p.launches...)
	return in, err
}

// leave returns from where a value is downloaded that the device computes, before node until,
// and converts it there.
func (b *binder) leave(v *ir.Value, at map[*ir.Node]int, until int) (port, error) {
	if b.prog.typeOf(v) == v.Type.DType {
		return port{value: v, temp: -1}, nil
	}
	x := any(v)
	i := slices.IndexFunc(b.parts, func(p part) bool {
		return slices.ContainsFunc(p.nodes, func(n *ir.Node) bool { return slices.Contains(n.Outputs, v) })
	})
	p := &b.parts[i]
	last := len(p.nodes) - 1
	b.node, b.made = p.nodes[last], nil
	out := port{value: v, temp: b.lasting(v, at[b.node], until)}
	if b.last[v] {
		first := b.temp(prod(shapeOf(v)) * b.prog.size(v))
		x = tempParam(first)
		if err := b.move(v, x, shapeOf(v), b.strides(v), tensor.Strides(shapeOf(v)), 0, 0); err != nil {
			return out, err
		}
	}
	err := b.cast(b.prog.float, tensor.F32, prod(shapeOf(v)), x, tempParam(out.temp))
	p.launches = append(p.launches, b.made...)
	return out, err
}

// lasting asks for a buffer for a value in f32, from one node to another.
func (b *binder) lasting(v *ir.Value, from, to int) int {
	t := b.temp(max(1, prod(shapeOf(v))) * tensor.F32.Size())
	b.temps[t].span = plan.Span{First: from, Last: to}
	return t
}

// cast converts n elements.
func (b *binder) cast(from, to tensor.DType, n int, x, y any) error {
	if n == 0 {
		return nil
	}
	return b.launch(fmt.Sprintf("%v_to_%v", from, to), flat(n), x, y, n)
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
	if p.host, err = (cpu.Device{}).Load(g, backend.Options{Threads: b.prog.options.Threads, Checked: true, Closed: b.prog.let}); err != nil {
		b.prog.readers.Add(-1)
	}
	return err
}

// layout places values and temporary buffers in the arena.
func (b *binder) layout(at map[*ir.Node]int) {
	spans := map[*ir.Value]plan.Span{}
	temps := map[int]plan.Span{}
	see := func(v *ir.Value, i int) {
		v = b.root(v)
		s, ok := spans[v]
		if !ok {
			s = plan.Span{First: i, Last: i}
		}
		spans[v] = plan.Span{First: min(s.First, i), Last: max(s.Last, i)}
	}
	for _, p := range b.parts {
		first := at[p.nodes[0]]
		for _, q := range slices.Concat(p.upload, p.download) {
			see(q.value, first)
		}
		for _, l := range p.launches {
			for _, q := range l.params {
				switch {
				case q.value != nil:
					see(q.value, at[l.node])
				case q.place:
					temps[q.temp] = plan.Span{First: at[l.node], Last: at[l.node]}
					if s := b.temps[q.temp].span; s != (plan.Span{}) {
						temps[q.temp] = s
					}
				}
			}
		}
	}
	for _, q := range b.outputs {
		see(q.value, len(b.graph.Nodes))
	}
	var buffers []plan.Buffer
	var places []func(offset int)
	for _, v := range valuesOf(b.graph) { // in an order that is the same every time
		if s, ok := spans[v]; ok {
			buffers = append(buffers, plan.Buffer{Size: prod(shapeOf(v)) * b.prog.typeOf(v).Size(), Span: s})
			places = append(places, func(offset int) { b.offset[v] = offset })
		}
	}
	for i, t := range b.temps {
		buffers = append(buffers, plan.Buffer{Size: t.bytes, Span: temps[i]})
		places = append(places, func(offset int) { b.temps[i].at = offset })
	}
	const align = 256
	offsets, size := plan.Offsets(buffers, align)
	b.arena = size
	for i, place := range places {
		place(offsets[i])
	}
	for o := range b.alias {
		if at, ok := b.offset[b.root(o)]; ok {
			b.offset[o] = at
		}
	}
	place := func(ports []port) {
		for i := range ports {
			q := &ports[i]
			if q.at = b.offset[q.value]; q.temp >= 0 {
				q.at = b.temps[q.temp].at
			}
		}
	}
	place(b.outputs)
	for i := range b.parts {
		place(b.parts[i].upload)
		place(b.parts[i].download)
		for j := range b.parts[i].launches {
			params := b.parts[i].launches[j].params
			for k, q := range params {
				switch {
				case q.value != nil:
					params[k].cell = uint64(b.offset[q.value]) + q.offset
				case q.place:
					params[k].cell = uint64(b.temps[q.temp].at)
				}
			}
		}
	}
}

func valuesOf(g *ir.Graph) []*ir.Value {
	values := slices.Clone(g.Inputs)
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if v != nil {
				values = append(values, v)
			}
		}
	}
	return values
}

// unfit says why no kernel can compute a node, whatever it is, empty where one may: its inputs and outputs
// are of known shapes, and of no more elements than kernels count.
func unfit(n *ir.Node) string {
	if len(ir.Subgraphs(n.Op)) > 0 {
		return "it has subgraphs"
	}
	for _, v := range slices.Concat(n.Inputs, n.Outputs) {
		switch {
		case v == nil:
		case !v.Type.Static():
			return "shapes depend on data"
		case !v.IsConst() && (!v.Type.DType.Numeric() || v.Type.DType.Size() > 8):
			return fmt.Sprintf("no kernel for %v", v.Type.DType)
		case prod(shapeOf(v)) > math.MaxInt32:
			return "more elements than kernels count"
		}
	}
	return ""
}

// placements tells where nodes run.
func (s *spec) placements() []backend.Placement {
	var all []backend.Placement
	count := 0
	for _, p := range s.parts {
		at := 0
		if p.host == nil {
			count++
			at = count
		}
		for _, n := range p.nodes {
			all = append(all, backend.Placement{Node: n, Part: at, Why: s.why[n]})
		}
	}
	return all
}

// hasBytes reports whether an input of a node that is no constant, or an output, is u8.
func hasBytes(n *ir.Node) bool {
	return slices.ContainsFunc(slices.Concat(n.Inputs, n.Outputs), func(v *ir.Value) bool { return v != nil && !v.IsConst() && v.Type.DType == tensor.U8 })
}

func (s *spec) close() error {
	var errs []error
	for _, x := range s.free {
		errs = append(errs, x.close())
	}
	for _, p := range s.plans { // which know constants
		errs = append(errs, p.Close())
	}
	for _, at := range s.constants {
		errs = append(errs, s.prog.driver.Free(at))
	}
	s.free, s.constants, s.plans = nil, nil, nil
	for _, p := range s.parts {
		if p.host != nil {
			errs = append(errs, p.host.Close())
		}
	}
	return errors.Join(errs...)
}

// exec is the memory of one run on the device: it is used by one run at a time.
type exec struct {
	*spec
	stream Stream
	arena  Pointer
	graphs []Graph // by part
	run    *run    // under way
	cold   []bool  // by part: libraries have not been called
}

func (s *spec) acquire() (*exec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		x := s.free[n-1]
		s.free = s.free[:n-1]
		return x, nil
	}
	x := &exec{spec: s, graphs: make([]Graph, len(s.parts)), cold: make([]bool, len(s.parts))}
	for i, p := range s.parts {
		x.cold[i] = slices.ContainsFunc(p.launches, func(l launch) bool { return l.plan != nil })
	}
	var err error
	if x.stream, err = s.prog.driver.Stream(); err != nil {
		return nil, fmt.Errorf("a stream for a run: %w", err)
	}
	if x.arena, err = s.prog.driver.Alloc(max(1, s.arena)); err != nil {
		x.stream.Close()
		return nil, fmt.Errorf("memory for a run: %w", err)
	}
	return x, nil
}

func (s *spec) release(x *exec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, x)
}

func (x *exec) close() error {
	var errs []error
	x.stream.Sync() // a run that failed has not waited; what is wrong Close says again
	for _, g := range x.graphs {
		if g != nil {
			errs = append(errs, g.Close())
		}
	}
	return errors.Join(append(errs, x.stream.Close(), x.prog.driver.Free(x.arena))...)
}

// launch queues a kernel.
func (x *exec) launch(l *launch) error {
	cells := make([]uint64, len(l.params))
	for i, q := range l.params {
		cells[i] = q.cell
		if q.place {
			cells[i] += uint64(x.arena)
		}
	}
	if l.plan != nil {
		return l.failed(x.stream.Multiply(l.plan, Pointer(cells[0]), Pointer(cells[1]), Pointer(cells[2]), Pointer(cells[3]), Pointer(cells[4])))
	}
	return l.failed(x.stream.Launch(l.kernel, l.geometry, cells))
}

// failed names the step and the kernel.
func (l *launch) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: kernel %s: %w", l.node, l.name, err)
}

// String names the steps.
func (p *part) String() string {
	first, last := p.launches[0].node, p.launches[len(p.launches)-1].node
	if first == last {
		return fmt.Sprintf("kernels of %v", first)
	}
	return fmt.Sprintf("kernels of %v to %v", first, last)
}

// failed names the steps: one that fails may tell of another.
func (p *part) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", p, err)
}

// failed names what was to be done. Where the device was lost, that is what was under way
// before: kernels fail in the calls after theirs.
func (x *exec) failed(err error, step string, v *ir.Value) error {
	if err == nil {
		return nil
	}
	lost := (*Error)(nil)
	if p := x.run.under.Load(); p != nil && errors.As(err, &lost) && lost.Lost {
		return fmt.Errorf("%v: %w", p, err)
	}
	return fmt.Errorf("%s %s: %w", step, v.Name, err)
}

// run evaluates the spec and returns its outputs.
func (s *spec) run(ctx context.Context, r *run, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	err := r.read(func() error {
		for i := range s.indices {
			if err := s.indices[i].check(in); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	x, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer s.release(x)
	x.run = r
	host := map[*ir.Value]*tensor.Tensor{}
	for i, v := range s.graph.Inputs {
		host[v] = in[i]
	}
	for i := range s.parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s.parts[i].host != nil {
			err = x.hostPart(ctx, &s.parts[i], host)
		} else {
			err = x.devicePart(i, host)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := x.fetch(s.outputs, host); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	results := make([]*tensor.Tensor, len(s.graph.Outputs))
	for i, v := range s.graph.Outputs {
		t := host[v]
		if v.IsConst() {
			var err error
			if t, err = s.prog.output(v); err != nil {
				return nil, err
			}
		}
		if slices.Contains(in, t) || v.IsConst() || slices.Contains(results, t) {
			if err := r.read(func() error {
				t = t.Clone()
				return nil
			}); err != nil {
				return nil, err
			}
		}
		results[i] = t
	}
	return results, nil
}

// fetch downloads values.
func (x *exec) fetch(ports []port, host map[*ir.Value]*tensor.Tensor) error {
	for _, q := range ports {
		t := tensor.New(q.value.Type.DType, shapeOf(q.value)...)
		if len(t.Bytes()) > 0 {
			if err := x.stream.Download(t.Bytes(), x.arena+Pointer(q.at)); err != nil {
				return x.failed(err, "download of", q.value)
			}
		}
		host[q.value] = t
	}
	return nil
}

func (x *exec) hostPart(ctx context.Context, p *part, host map[*ir.Value]*tensor.Tensor) error {
	if err := x.fetch(p.download, host); err != nil {
		return err
	}
	in, out := make([]*tensor.Tensor, len(p.in)), make([]*tensor.Tensor, len(p.out))
	for i, v := range p.in {
		in[i] = host[v]
	}
	if err := x.run.read(func() error { return p.host.Trace(ctx, in, out, x.run.trace) }); err != nil {
		return err
	}
	for i, v := range p.out {
		host[v] = out[i]
	}
	return nil
}

// devicePart uploads what the kernels of a part need and launches them: one by one where the run
// is traced, else as a graph.
func (x *exec) devicePart(i int, host map[*ir.Value]*tensor.Tensor) error {
	p := &x.parts[i]
	for _, q := range p.upload {
		if b := host[q.value].Bytes(); len(b) > 0 {
			err := x.stream.UploadFrom(x.arena+Pointer(q.at), len(b), func(part []byte, at int) error {
				return x.run.read(func() error {
					copy(part, b[at:])
					return nil
				})
			})
			if err != nil {
				return x.failed(err, "upload of", q.value)
			}
		}
	}
	if len(p.launches) == 0 {
		return nil
	}
	x.run.under.Store(p)
	if x.run.trace != nil {
		start := time.Now()
		for k := range p.launches {
			l := &p.launches[k]
			if err := x.launch(l); err != nil {
				return err
			}
			if err := x.stream.Sync(); err != nil {
				return l.failed(err)
			}
			if k+1 == len(p.launches) || p.launches[k+1].node != l.node {
				x.run.trace(l.node, time.Since(start))
				start = time.Now()
			}
		}
		return nil
	}
	if x.cold[i] { // libraries load their kernels when these are first called, which must not be captured
		if err := x.queue(p); err != nil {
			return p.failed(err)
		}
		x.cold[i] = false
		return nil
	}
	if x.graphs[i] == nil {
		g, err := x.stream.Capture(func() error { return x.queue(p) })
		if err != nil {
			return p.failed(err)
		}
		x.graphs[i] = g
	}
	return p.failed(x.graphs[i].Launch())
}

// queue queues the kernels of a part one by one.
func (x *exec) queue(p *part) error {
	for k := range p.launches {
		if err := x.launch(&p.launches[k]); err != nil {
			return err
		}
	}
	return nil
}
