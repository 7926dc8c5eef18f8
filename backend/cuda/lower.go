package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"spc/backend/format"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower"
	"spc/lower/chain"
	"spc/lower/plan"
	"spc/passes/fold"
	"spc/passes/fuse"
)

// Steps is how a GPU lowers a graph for inputs of certain shapes.
var Steps = []lower.Step[*binder]{
	{Name: "specialise", Doc: "infer the type of every value for the shapes of the inputs", Run: (*binder).specialise},
	{Name: "fold", Doc: "evaluate what is constant for these shapes", Run: func(b *binder) (int, error) { return 0, fold.All(b.graph, 0) }},
	{Name: "loosen", Doc: "unpack stored weights that are read otherwise than as weights", Run: func(b *binder) (int, error) {
		return 0, format.Loosen(b.graph, func(v *ir.Value) (*tensor.Tensor, error) { return format.Unpack(v.Store, v.Type) })
	}},
	{Name: "settle", Doc: "take of weights in two forms the one for the columns of a product", Run: func(b *binder) (int, error) {
		return format.Settle(b.graph, b.prog.forms)
	}},
	{Name: "einsum", Doc: "spell what sums products over sizes that were open as products of matrices", Optional: true, Run: func(b *binder) (int, error) {
		return fuse.Einsums(b.graph)
	}},
	{Name: "bands", Doc: "spell windows of attention, and queries behind a past, as masks", Optional: true, Run: func(b *binder) (int, error) {
		return fuse.Bands(b.graph)
	}},
	{Name: "affine", Doc: "make a product and a sum of what normalises by constants", Optional: true, Run: func(b *binder) (int, error) {
		return chain.Affine(b.graph)
	}},
	{Name: "split", Doc: "give sums, maxima and minima no more operands than chains take", Optional: true, Run: (*binder).split},
	{Name: "chains", Doc: "make one node of elementwise operators that follow each other, computed by one kernel", Optional: true, Run: func(b *binder) (int, error) {
		return chains.Form(b.graph), nil
	}},
	{Name: "layout", Doc: "have the channels of images in 16-bit floats come last", Optional: true, Run: (*binder).layout},
	{Name: "bind", Doc: "bind nodes to kernels, others to the CPU", Run: (*binder).bind},
	{Name: "offload", Doc: "leave integers to the CPU that only the CPU reads", Optional: true, Run: (*binder).offload},
	{Name: "group", Doc: "put nodes of either processor together", Optional: true, Run: (*binder).group},
	{Name: "schedule", Doc: "find the lifetimes of values, and which have memory of the device", Run: (*binder).schedule},
	{Name: "parts", Doc: "divide the nodes into runs of either processor, and copy between them", Run: (*binder).divide},
	{Name: "arena", Doc: "give values their places in the arena", Run: (*binder).arena},
}

// binder is the state of lowering a program for inputs of certain shapes, which makes launches of nodes.
type binder struct {
	*spec
	in       []*tensor.Tensor // of whose types the inputs are
	stream   Stream
	node     *ir.Node
	made     []launch // of the node that is being bound
	temps    []temp
	alias    map[*ir.Value]*ir.Value     // views, by the value whose storage they share
	last     map[*ir.Value]bool          // images whose channels come last
	programs map[*ir.Node]*chain.Program // of nodes that are chains, nil of others
	launches map[*ir.Node][]launch       // of nodes of the device
	at       map[*ir.Node]int            // the index of a node's step
}

// Units is the graph.
func (b *binder) Units() []lower.Unit { return []lower.Unit{{Graph: b.graph, Plan: b.plan}} }

// temp is a buffer, which is needed by one node unless span says more.
type temp struct {
	bytes, at int
	span      plan.Span
}

// lower binds the program to inputs of the given shapes.
func (p *program) lower(in []*tensor.Tensor) (*spec, error) {
	stream, err := p.driver.Stream()
	if err != nil {
		return nil, fmt.Errorf("binding: %w", err)
	}
	defer stream.Close()
	s := &spec{prog: p, graph: p.graph, why: map[*ir.Node]string{}}
	b := &binder{
		spec: s, in: in, stream: stream, alias: map[*ir.Value]*ir.Value{}, last: map[*ir.Value]bool{}, programs: map[*ir.Node]*chain.Program{},
		launches: map[*ir.Node][]launch{}, at: map[*ir.Node]int{},
	}
	p.fresh = nil
	err = ir.Guard(func() error { return lower.Run(Steps, b, p.options.Lowering) })
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

func (b *binder) specialise() (int, error) {
	g, err := b.graph.Specialise(b.in)
	if err == nil {
		b.graph = g
	}
	return 0, err
}

// split gives sums, maxima and minima no more operands than chains take.
func (b *binder) split() (int, error) {
	g, count := b.graph, 0
	for _, n := range slices.Clone(g.Nodes) {
		kind := n.Op.Kind()
		if kind != "Sum" && kind != "Max" && kind != "Min" || len(n.Inputs) <= chains.Operands {
			continue
		}
		count++
		x := n.Inputs[0]
		for i, y := range n.Inputs[1 : len(n.Inputs)-chains.Operands+1] {
			f, err := op.New(kind)
			if err != nil {
				return count, err
			}
			name := fmt.Sprintf("%s.%d", n.Name, i)
			m := g.InsertBefore(n, name, f, []*ir.Value{x, y}, name+".out")
			if err := m.Infer(); err != nil {
				return count, err
			}
			x = m.Outputs[0]
		}
		rest := append([]*ir.Value{x}, n.Inputs[len(n.Inputs)-chains.Operands+1:]...)
		for i := len(n.Inputs) - 1; i >= len(rest); i-- {
			n.SetInput(i, nil)
		}
		for i, v := range rest {
			n.SetInput(i, v)
		}
	}
	return count, nil
}

// root is the value whose storage v has.
func (b *binder) root(v *ir.Value) *ir.Value {
	for b.alias[v] != nil {
		v = b.alias[v]
	}
	return v
}

// program is that of a node that is a chain, or could be one of one node; nil for others.
func (b *binder) program(n *ir.Node) *chain.Program {
	p, ok := b.programs[n]
	if !ok {
		p = chains.Of(n)
		b.programs[n] = p
	}
	return p
}

// bind returns the number of nodes that the device computes.
func (b *binder) bind() (int, error) {
	for _, n := range b.graph.Nodes {
		b.node, b.made = n, nil
		temps := len(b.temps)
		why, err := "", error(nil)
		if p := b.program(n); p != nil {
			err = b.launchChain(n, p)
		} else {
			why, err = b.bindNode(n)
		}
		if err != nil {
			if named := (*ir.NodeError)(nil); !errors.As(err, &named) {
				err = fmt.Errorf("%v: %w", n, err)
			}
			return 0, err
		}
		if why != "" {
			b.temps, b.why[n] = b.temps[:temps], why
			for _, v := range n.Outputs { // the CPU writes them
				delete(b.last, v)
			}
		} else {
			b.launches[n] = b.made
		}
	}
	return len(b.launches), nil
}

// offload leaves integers to the CPU that only the CPU reads, chains of them as the operators that they were.
func (b *binder) offload() (int, error) {
	count := 0
	for _, n := range slices.Backward(slices.Clone(b.graph.Nodes)) {
		_, ok := b.launches[n]
		ok = ok && binders8[n.Op.Kind()] == nil // products are worth a copy
		for _, v := range n.Outputs {
			ok = ok && v != nil && v.Type.DType != tensor.F32 && !v.IsOutput() && !slices.ContainsFunc(v.Uses(), func(u ir.Use) bool {
				_, device := b.launches[u.Node]
				return device
			})
		}
		if !ok || slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return v != nil && v.Type.DType == tensor.F32 }) {
			continue
		}
		count++
		delete(b.launches, n)
		for _, m := range chain.Expand(n) {
			for _, v := range m.Outputs {
				delete(b.alias, v)
			}
			b.why[m] = "only the CPU reads these integers"
		}
	}
	return count, nil
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
		if !chain.Elementwise(n) {
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

// group orders nodes so that those of either side come together, and stay in an order in which
// each comes after those that it needs: as many as can of the one side, and then of the other.
func (b *binder) group() (int, error) {
	waiting := map[*ir.Value]bool{} // for nodes that are left
	nodes := b.graph.Nodes
	for _, n := range nodes {
		for _, v := range n.Outputs {
			waiting[v] = true
		}
	}
	ready := func(n *ir.Node) bool {
		ok := true
		n.Reads(func(v *ir.Value) { ok = ok && !waiting[v] })
		return ok
	}
	out := make([]*ir.Node, 0, len(nodes))
	for side := false; len(nodes) > 0; side = !side {
		var left []*ir.Node
		for _, n := range nodes {
			if _, device := b.launches[n]; device != side || !ready(n) {
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
	b.graph.Nodes = out
	return 0, nil
}

// schedule makes the plan, of which the arena is the device's memory.
func (b *binder) schedule() (int, error) {
	b.plan = plan.New(b.graph)
	for i := range b.plan.Values {
		v := &b.plan.Values[i]
		if v.As = b.prog.typeOf(v.Value); b.last[v.Value] {
			v.Layout = plan.ChannelsLast
		}
	}
	for i := range b.plan.Main.Steps {
		s := &b.plan.Main.Steps[i]
		b.at[s.Node] = s.Index
		if _, ok := b.launches[s.Node]; !ok {
			s.Where = "CPU"
			continue
		}
		s.Where = "GPU"
		for _, v := range s.Node.Outputs {
			switch {
			case v == nil:
			case b.alias[v] != nil:
				b.plan.View(b.plan.Number[v], b.plan.Number[b.alias[v]], 0)
			default:
				b.value(v).Place = plan.Arena
			}
		}
	}
	return b.plan.Steps, nil
}

// value is a value of the plan.
func (s *spec) value(v *ir.Value) *plan.Value { return &s.plan.Values[s.plan.Number[v]] }

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

// hasBytes reports whether an input of a node that is no constant, or an output, is u8.
func hasBytes(n *ir.Node) bool {
	return slices.ContainsFunc(slices.Concat(n.Inputs, n.Outputs), func(v *ir.Value) bool { return v != nil && !v.IsConst() && v.Type.DType == tensor.U8 })
}
