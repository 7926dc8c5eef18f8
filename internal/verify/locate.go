package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"spc/backend/ref"
	"spc/internal/reduce"
	"spc/ir"
	"spc/ir/tensor"
)

// Bench is what faults are looked for with.
type Bench struct {
	// Run computes the outputs of a compiled graph on the device that is judged.
	Run func(ctx context.Context, g *ir.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error)
	// Compile returns the compiled graph of one that ONNX has, with its weights untouched.
	Compile func(ctx context.Context, g *ir.Graph) (*ir.Graph, error)
	// Unpack returns the elements of a constant that is stored in a format.
	Unpack func(v *ir.Value) (*tensor.Tensor, error)
	// Tolerance is the relative l2 error that passes.
	Tolerance float64
	// Progress, where it is set, is called before each step of a search, of which there
	// may be any number.
	Progress func(steps int)

	compared int // pairs of tensors
}

// Evaluated is a graph that the interpreter evaluated.
type Evaluated struct {
	Graph  *ir.Graph
	Values reduce.Values // of its inputs and of the nodes of the root graph
	Out    []*tensor.Tensor

	names map[string]*ir.Value // of Values, once they are asked for
	norms map[*ir.Value]float64
}

// named returns the value of a name, nil where there is none.
func (e *Evaluated) named(name string) *tensor.Tensor {
	if e.names == nil {
		e.names = map[string]*ir.Value{}
		for v := range e.Values {
			e.names[v.Name] = v
		}
	}
	return e.Values[e.names[name]]
}

// norm is that of a value's finite elements.
func (e *Evaluated) norm(v *ir.Value) float64 {
	if e.norms == nil {
		e.norms = map[*ir.Value]float64{}
	}
	n, ok := e.norms[v]
	if !ok {
		n = norm(e.Values[v])
		e.norms[v] = n
	}
	return n
}

func norm(t *tensor.Tensor) float64 {
	sum := 0.0
	for _, x := range Floats(t) {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			sum += x * x
		}
	}
	return math.Sqrt(sum)
}

// Evaluate interprets a graph and keeps every value of its root.
func (b *Bench) Evaluate(ctx context.Context, g *ir.Graph, in []*tensor.Tensor) (*Evaluated, error) {
	e := &Evaluated{Graph: g, Values: reduce.Values{}}
	for i, v := range g.Inputs {
		e.Values[v] = in[i]
	}
	it := ref.Interpreter{Unpack: b.Unpack, Each: func(n *ir.Node, outs []*tensor.Tensor) {
		for i, v := range n.Outputs {
			if v != nil && outs[i] != nil {
				e.Values[v] = outs[i]
			}
		}
	}}
	var err error
	e.Out, err = it.Run(ctx, g, in)
	return e, err
}

// The stages that a fault can lie in.
const (
	InRun     = "run"     // the device computes a compiled graph wrongly
	InPass    = "pass"    // a pass makes another graph of one
	InWeights = "weights" // the compiled graph is not what the passes make of the model, or its weights are others
)

// Fault is the first node of a compiled graph, in the order of execution, an output of
// which differs from the reference by more than the tolerance.
type Fault struct {
	Stage  string
	Node   string
	Op     string
	Output string
	// After is the node after which the output differs: where it is not Node itself, it
	// overwrote what that computed.
	After string
	Pass  string // that makes the node, InPass
	// Constants are those of the node that differ from the reference's.
	Constants []string
	Difference
}

func (f *Fault) String() string {
	s := fmt.Sprintf("output %s of node %s (%s) is the first that differs, %v", f.Output, f.Node, f.Op, f.Difference)
	if f.Node == "" { // an input or a constant that is an output
		s = fmt.Sprintf("output %s is the first that differs, %v", f.Output, f.Difference)
	}
	switch {
	case f.Stage == InPass:
		s += ": pass " + f.Pass + " changes what it computes"
	case len(f.Constants) > 0:
		s += fmt.Sprintf(": its constant %s is another", f.Constants[0])
	case f.Stage == InRun && f.After != f.Node:
		s += ": it is right until node " + f.After + " runs"
	}
	return s
}

// near reports whether a value is within the tolerance of the reference. Quantised ones
// may differ in the last bit, where floats lie between two of them.
func (b *Bench) near(got, want *tensor.Tensor) (Difference, bool) {
	if got == nil || want == nil || got.DType() != want.DType() || !slices.Equal(got.Shape(), want.Shape()) {
		return Difference{RelL2: math.Inf(1), Unequal: fmt.Sprintf("%v in the place of %v", got, want)}, false
	}
	b.compared++
	d := Compare(got, want)
	if dt := got.DType(); dt == tensor.U8 || dt == tensor.I8 {
		d.Unequal = ""
	}
	return d, d.Within(b.Tolerance)
}

// same reports whether all outputs are near the reference's.
func (b *Bench) same(got, want []*tensor.Tensor) bool {
	for i, t := range got {
		if _, ok := b.near(t, want[i]); !ok {
			return false
		}
	}
	return true
}

// OfRun finds the first node of a compiled graph that the device computes otherwise than
// the interpreter, or, where the fault goes away when it is looked at, the one that makes
// an output that differs; it is nil where the outputs agree.
func (b *Bench) OfRun(ctx context.Context, g *ir.Graph, in []*tensor.Tensor) (*Fault, error) {
	want, err := b.Evaluate(ctx, g, in)
	if err != nil {
		return nil, err
	}
	got, err := b.Run(ctx, g, in)
	if err != nil || b.same(got, want.Out) {
		return nil, err
	}
	f, err := b.tapped(ctx, want, in)
	if err == nil && f == nil {
		f, err = b.bisected(ctx, want)
	}
	if err != nil || f != nil {
		return f, err
	}
	// It is there only where the graph runs as it is.
	return b.ofOutputs(&Evaluated{Graph: g, Out: got}, want.Out), nil
}

// ofOutputs blames the node that makes the first output of a graph that differs.
func (b *Bench) ofOutputs(e *Evaluated, want []*tensor.Tensor) *Fault {
	for i, v := range e.Graph.Outputs {
		d, ok := b.near(e.Out[i], want[i])
		if ok {
			continue
		}
		f := &Fault{Stage: InRun, Output: e.Graph.OutputName(i), Difference: d}
		if v.Def != nil {
			f.Node, f.Op, f.After = v.Def.Name, v.Def.Op.Kind(), v.Def.Name
		}
		return f
	}
	return nil
}

// tapped runs the graph with every value as an output. It returns nil where all agree:
// outputs keep their memory, which hides a fault that lies in who gets it next.
func (b *Bench) tapped(ctx context.Context, want *Evaluated, in []*tensor.Tensor) (*Fault, error) {
	g := want.Graph.Clone()
	var values []*ir.Value // of want's graph
	for i, n := range want.Graph.Nodes {
		for k, v := range n.Outputs {
			if v != nil && want.Values[v] != nil {
				values = append(values, v)
				g.Outputs = append(g.Outputs, g.Nodes[i].Outputs[k])
			}
		}
	}
	g.Outputs, g.OutputNames = g.Outputs[len(want.Graph.Outputs):], nil
	got, err := b.Run(ctx, g, in)
	if err != nil {
		return nil, ctx.Err() // it may need more memory than there is
	}
	for i, v := range values {
		if d, ok := b.near(got[i], want.Values[v]); !ok {
			return &Fault{Stage: InRun, Node: v.Def.Name, Op: v.Def.Op.Kind(), Output: v.Name, After: v.Def.Name, Difference: d}, nil
		}
	}
	return nil, nil
}

// bisected runs the graph up to a node, with what later nodes read as outputs, and finds
// a node up to which that differs and before which it does not.
func (b *Bench) bisected(ctx context.Context, want *Evaluated) (*Fault, error) {
	g := want.Graph
	last := map[*ir.Value]int{}
	for i, n := range g.Nodes {
		n.Reads(func(v *ir.Value) { last[v] = i })
	}
	var found *Fault
	low, high := -1, len(g.Nodes)-1 // the graph up to low agrees, that up to high differs
	for step := 1; ; step++ {
		at := high
		if step > 1 {
			if at = (low + high) / 2; at == low {
				return found, nil
			}
		}
		if b.Progress != nil {
			b.Progress(step)
		}
		var live []*ir.Value
		for _, n := range g.Nodes[:at+1] {
			for _, v := range n.Outputs {
				if v != nil && last[v] > at {
					live = append(live, v)
				}
			}
		}
		f, err := b.upTo(ctx, want, at, live)
		switch {
		case err != nil:
			return nil, err
		case f != nil:
			high, found = at, f
		case step == 1:
			return nil, nil
		default:
			low = at
		}
	}
}

// upTo runs the nodes up to one and compares the values live, and the outputs.
func (b *Bench) upTo(ctx context.Context, want *Evaluated, at int, live []*ir.Value) (*Fault, error) {
	g := want.Graph
	part, in, err := reduce.Cut(g, g.Nodes[:at+1], want.Values, live...)
	if err != nil {
		return nil, err
	}
	got, err := b.Run(ctx, part, in)
	if err != nil {
		return nil, err
	}
	for _, n := range g.Nodes[:at+1] {
		for _, v := range n.Outputs {
			i := slices.IndexFunc(part.Outputs, func(o *ir.Value) bool { return v != nil && o.Name == v.Name })
			if i < 0 {
				continue
			}
			if d, ok := b.near(got[i], want.Values[v]); !ok {
				return &Fault{Stage: InRun, Node: n.Name, Op: n.Op.Kind(), Output: v.Name, After: g.Nodes[at].Name, Difference: d}, nil
			}
		}
	}
	return nil, nil
}

// OfGraph finds the first node of a graph with an output that is no value of the
// references, of which the first, that after the same passes, decides where it has a value
// of the same name and type. It is nil where there is no such node.
func (b *Bench) OfGraph(e *Evaluated, refs ...*Evaluated) *Fault {
	for _, n := range e.Graph.Nodes {
		for _, v := range n.Outputs {
			got := e.Values[v]
			if v == nil || got == nil {
				continue
			}
			if d, ok := b.among(v.Name, got, refs); !ok {
				return &Fault{Stage: InWeights, Node: n.Name, Op: n.Op.Kind(), Output: v.Name, After: n.Name, Difference: d, Constants: b.others(n, refs[0].Graph)}
			}
		}
	}
	return nil
}

// among reports whether a value is one of the references', and else how far it is from
// that of its name, or from the nearest.
func (b *Bench) among(name string, got *tensor.Tensor, refs []*Evaluated) (Difference, bool) {
	if want := refs[0].named(name); want != nil && want.DType() == got.DType() && slices.Equal(want.Shape(), got.Shape()) {
		return b.near(got, want)
	}
	best := Difference{RelL2: math.Inf(1), Unequal: "the reference has no such value"}
	length := norm(got)
	for _, nearest := range []bool{false, true} { // which is asked for once, and takes long
		for _, r := range refs {
			for v, want := range r.Values {
				if want.DType() != got.DType() || want.Len() != got.Len() {
					continue
				}
				if n := r.norm(v); !nearest && math.Abs(length-n) > 1.01*b.Tolerance*max(n, tiny) && b.Tolerance >= 0 {
					continue // by the triangle inequality
				}
				d, ok := b.near(got, want.Reshape(got.Shape()...))
				if ok {
					return d, true
				}
				if d.RelL2 < best.RelL2 {
					best = d
				}
			}
		}
	}
	return best, false
}

// others lists the constants that a node reads and that differ from those of the same
// names in a graph.
func (b *Bench) others(n *ir.Node, g *ir.Graph) []string {
	var names []string
	for _, v := range n.Inputs {
		if v == nil || !v.IsConst() {
			continue
		}
		for _, w := range g.Constants() {
			if w.Name != v.Name {
				continue
			}
			x, err := b.constant(v)
			y, err2 := b.constant(w)
			if err == nil && err2 == nil && !x.Equal(y) {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// constant returns the elements of a constant.
func (b *Bench) constant(v *ir.Value) (*tensor.Tensor, error) {
	if v.Const != nil {
		return v.Const, nil
	}
	return b.Unpack(v)
}

// Case is a small graph that, compiled, computes something else than it should.
type Case struct {
	Graph   *ir.Graph
	In, Out []*tensor.Tensor // Out is what it should compute
	Difference
}

// Reduce finds a smallest part of a graph that, compiled and run on the device, computes
// something else than the interpreter makes of the same part of expected: the same graph,
// or one of the same nodes and other constants. Nodes around the one named near are tried
// first. It is nil where all of the graph agrees, and has tensors of its own.
func (b *Bench) Reduce(ctx context.Context, g, expected *ir.Graph, in []*tensor.Tensor, near string) (*Case, error) {
	t, err := b.trial(ctx, g, expected, in)
	if err != nil {
		return nil, err
	}
	whole, err := t.try(ctx, g.Nodes)
	if err != nil || whole == nil {
		return nil, err
	}
	nodes, err := reduce.Nodes(ctx, g, nodeNear(g, near), func(nodes []*ir.Node) (bool, error) {
		c, err := t.try(ctx, nodes)
		if err != nil && ctx.Err() == nil {
			return false, nil // a part need not be a model
		}
		return c != nil, err
	})
	if err != nil {
		return nil, err
	}
	c, err := t.try(ctx, nodes)
	if err != nil || c == nil {
		return nil, err
	}
	for _, v := range c.Graph.Constants() {
		if v.Const != nil {
			v.SetConst(v.Const.Clone())
		}
	}
	for _, ts := range [][]*tensor.Tensor{c.In, c.Out} {
		for i, t := range ts {
			ts[i] = t.Clone()
		}
	}
	return c, nil
}

// trial compares parts of a graph with the same parts of what is expected.
type trial struct {
	*Bench
	graph    *ir.Graph
	values   reduce.Values    // of graph, as expected has them
	at       map[*ir.Node]int // the order of its nodes
	expected *Evaluated
	steps    int
}

// trial evaluates what is expected of a graph.
func (b *Bench) trial(ctx context.Context, g, expected *ir.Graph, in []*tensor.Tensor) (*trial, error) {
	e, err := b.Evaluate(ctx, expected, in)
	if err != nil {
		return nil, err
	}
	t := &trial{Bench: b, graph: g, values: reduce.Values{}, at: map[*ir.Node]int{}, expected: e}
	for i, v := range expected.Inputs {
		t.values[g.Inputs[i]] = e.Values[v]
	}
	for i, n := range expected.Nodes {
		t.at[g.Nodes[i]] = i
		for k, v := range n.Outputs {
			if v != nil && e.Values[v] != nil {
				t.values[g.Nodes[i].Outputs[k]] = e.Values[v]
			}
		}
	}
	return t, nil
}

// try compiles and runs the part of the graph with the given nodes; it returns nil where
// that computes what is expected.
func (t *trial) try(ctx context.Context, nodes []*ir.Node) (*Case, error) {
	if t.steps++; t.Progress != nil {
		t.Progress(t.steps)
	}
	part, in, err := reduce.Cut(t.graph, nodes, t.values)
	if err != nil || len(part.Outputs) == 0 {
		return nil, err
	}
	other := make([]*ir.Node, len(nodes))
	for i, n := range nodes {
		other[i] = t.expected.Graph.Nodes[t.at[n]]
	}
	right, rightIn, err := reduce.Cut(t.expected.Graph, other, t.expected.Values)
	if err != nil {
		return nil, err
	}
	want, err := (&ref.Interpreter{Unpack: t.Unpack}).Run(ctx, right, rightIn)
	if err != nil {
		return nil, err
	}
	compiled, err := t.Compile(ctx, part.Clone())
	if err != nil {
		return nil, err
	}
	got, err := t.Run(ctx, compiled, in)
	if err != nil {
		return nil, err
	}
	for i, x := range got {
		if d, ok := t.near(x, want[i]); !ok {
			return &Case{part, in, want, d}, nil
		}
	}
	return nil, nil
}

// nodeNear returns the node of a name, or that of which a pass made one of that name: it
// begins with that node's. It is nil where there is none.
func nodeNear(g *ir.Graph, name string) *ir.Node {
	var best *ir.Node
	for _, n := range g.Nodes {
		if (n.Name == name || strings.HasPrefix(name, n.Name+".")) && (best == nil || len(n.Name) > len(best.Name)) {
			best = n
		}
	}
	return best
}
