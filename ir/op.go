package ir

import (
	"slices"

	"spc/internal/memory"
	"spc/ir/tensor"
)

// Op is an operator with its attributes: a pointer to a struct whose exported
// fields carry attr tags (see Attrs). An operator is defined once, in ir/op.
type Op interface {
	// Kind is the operator's name, as domain:Name outside the default domain.
	Kind() string
	// Infer sets the types of the node's outputs, as far as its inputs' types
	// and constants tell, and refuses inputs that the operator cannot take.
	Infer(c *Infer) error
	// Eval computes the outputs from the inputs (nil where absent). It is plain
	// Go, obviously right: the oracle of every other implementation. Inputs
	// passed Infer. It does not write to its inputs; outputs may share their
	// storage. Outputs that nobody wants may be left out at the end.
	Eval(c *Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error)
	// Work estimates the operator's cost for static types.
	Work(in, out []Type) Work
}

// Work is the cost of a node: floating-point (or integer) operations, counting
// a multiply-add as two, and bytes read and written at least once.
type Work struct {
	FLOPs, Bytes float64
}

// Registry makes operators by name, with default attributes.
type Registry interface {
	New(kind string) (Op, error)
	// Check refuses a node that lacks an input or an output that its operator
	// needs, or has more than it takes.
	Check(n *Node) error
}

// Eval is the context in which an operator is evaluated.
type Eval struct {
	// Outputs is the number of outputs that the node has.
	Outputs int
	// Run evaluates a subgraph of the node on inputs; values of outer graphs
	// are bound to what they are now.
	Run func(g *Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error)
	// Sizes are those that symbols in the types of subgraphs stand for, as far as they
	// are known.
	Sizes map[string]int
}

// Infer is the context in which a node's output types are inferred.
type Infer struct {
	Node *Node
	out  []Type
	made []Dim // by Fresh
	sub  func(g *Graph) error
}

// Len is the number of inputs, absent ones at the end left out.
func (c *Infer) Len() int { return len(c.Node.Inputs) }

// Has reports whether input i is present.
func (c *Infer) Has(i int) bool { return c.Node.Input(i) != nil }

// In returns the type of input i, the zero Type where it is absent.
func (c *Infer) In(i int) Type {
	if v := c.Node.Input(i); v != nil {
		return v.Type
	}
	return Type{}
}

// Const returns the elements of input i when it is a constant, else nil.
func (c *Infer) Const(i int) *tensor.Tensor {
	if v := c.Node.Input(i); v != nil {
		return v.Const
	}
	return nil
}

// Elems returns the elements of input i, a small integer or bool tensor, row-major
// and as dimensions, as far as they are known; ok is false when not even their
// number is.
func (c *Infer) Elems(i int) (elems []Dim, ok bool) {
	v := c.Node.Input(i)
	if v == nil {
		return nil, false
	}
	return v.Elems, v.Elems != nil
}

// Ints returns the elements of input i, a small integer or bool tensor, when all
// of them are known.
func (c *Infer) Ints(i int) (ints []int, ok bool) {
	elems, ok := c.Elems(i)
	if !ok {
		return nil, false
	}
	return Type{Dims: elems, Ranked: true}.Shape()
}

// Outputs is the number of outputs that the node has.
func (c *Infer) Outputs() int { return len(c.Node.Outputs) }

// Set sets the type of output i; one that the node does not have is ignored.
func (c *Infer) Set(i int, t Type) {
	if i < len(c.out) {
		c.out[i] = t
	}
}

// Out returns the type that was set for output i, the zero Type where none was.
func (c *Infer) Out(i int) Type {
	if i < len(c.out) {
		return c.out[i]
	}
	return Type{}
}

// SetElems says what is known of the elements of output i, a small integer or bool
// tensor, row-major; an unknown one is Fresh.
func (c *Infer) SetElems(i int, elems []Dim) {
	if i < len(c.Node.Outputs) && c.Node.Outputs[i] != nil && len(elems) <= maxElems {
		c.Node.Outputs[i].Elems = elems
	}
}

// Fresh returns a dimension that is unknown and equal to no other.
func (c *Infer) Fresh() Dim {
	d := c.Node.graph.Fresh()
	c.made = append(c.made, d)
	return d
}

// FreshDims returns n unknown dimensions.
func (c *Infer) FreshDims(n int) []Dim {
	d := make([]Dim, n)
	for i := range d {
		d[i] = c.Fresh()
	}
	return d
}

// Subgraph infers the types in a subgraph of the node, whose inputs' types the
// operator has set.
func (c *Infer) Subgraph(g *Graph) error { return c.sub(g) }

// Specialised reports whether the graph is one of Specialise: it was inferred before, for
// every shape, and a body that does not fit the shapes that it has now may not run.
func (c *Infer) Specialised() bool { return c.Node.graph.root.specialised }

// Errorf returns an error that wraps ErrInvalid; the caller's node is named by
// whoever ran the inference.
func (c *Infer) Errorf(format string, args ...any) error {
	return c.Node.Errorf(ErrInvalid, format, Legible(args)...)
}

// Unsupportedf is Errorf for what the format allows and this compiler does not.
func (c *Infer) Unsupportedf(format string, args ...any) error {
	return c.Node.Errorf(ErrUnsupported, format, Legible(args)...)
}

// Infer infers the types of every value in the graph from those of its inputs
// and constants, in place.
func (g *Graph) Infer() error {
	for _, n := range g.Nodes {
		if err := n.Infer(); err != nil {
			return err
		}
	}
	return nil
}

// MaxElems bounds the elements of a node's output. Inputs of no elements can have
// dimensions of any size, which an operator could make an output of.
const MaxElems = 1 << 31

// Infer infers the types of n's outputs.
func (n *Node) Infer() error {
	c := &Infer{Node: n, out: make([]Type, len(n.Outputs)), sub: (*Graph).Infer}
	for _, v := range n.Outputs {
		if v != nil {
			v.Elems = nil
		}
	}
	in := make([]Type, len(n.Inputs))
	for i := range in {
		in[i] = c.In(i)
	}
	if err := c.checkLists("input", in); err != nil {
		return err
	}
	if err := n.Op.Infer(c); err != nil {
		return err
	}
	if err := c.checkLists("output", c.out); err != nil {
		return err
	}
	if len(c.made) > 0 {
		c.keepNames()
	}
	for i, v := range n.Outputs {
		if v == nil {
			continue
		}
		t := c.out[i]
		if t.DType == tensor.Undefined {
			return n.Errorf(ErrInvalid, "output %s: no element type was inferred", v.Name)
		}
		if len(t.Dims) > tensor.MaxRank {
			return n.Errorf(ErrInvalid, "output %s: %d dimensions, want at most %d", v.Name, len(t.Dims), tensor.MaxRank)
		}
		if slices.ContainsFunc(t.Dims, func(d Dim) bool { return d.Known() && d.Size() < 0 }) {
			return n.Errorf(ErrInvalid, "output %s: %v has a negative dimension", v.Name, t)
		}
		if shape, ok := t.Shape(); ok {
			if k, err := tensor.Elems(shape); err != nil {
				return n.Errorf(ErrInvalid, "output %s: %v", v.Name, err)
			} else if k > MaxElems {
				return n.Errorf(ErrInvalid, "output %s: %v has %d elements, want at most %d", v.Name, t, k, MaxElems)
			}
		}
		v.Type = t
	}
	return nil
}

// checkLists refuses sequences and optionals where the operator takes none, because it has
// no method Lists.
func (c *Infer) checkLists(what string, types []Type) error {
	if _, takes := c.Node.Op.(interface{ Lists() }); takes {
		return nil
	}
	for i, t := range types {
		if t.DType.IsList() {
			return c.Errorf("%s %d is %v, want a tensor", what, i, t)
		}
	}
	return nil
}

// InferFor returns the types that n's outputs have for these inputs, of which
// absent ones are nil. It is the check that inputs are what the operator takes
// when a graph's types left dimensions open; nothing of the graph changes. The
// node must have no subgraphs.
func (n *Node) InferFor(in []*tensor.Tensor) ([]Type, error) {
	g := NewGraph("")
	m := &Node{Name: n.Name, Op: n.Op, graph: g}
	for i, t := range in {
		var v *Value
		if t != nil {
			v = &Value{Name: n.Inputs[i].Name, Type: TypeOf(t), Const: t, Elems: constElems(t), graph: g}
		}
		m.Inputs = append(m.Inputs, v)
	}
	for _, v := range n.Outputs {
		if v != nil {
			v = &Value{Name: v.Name, Def: m, graph: g}
		}
		m.Outputs = append(m.Outputs, v)
	}
	if err := m.Infer(); err != nil {
		return nil, err
	}
	return m.OutputTypes(), nil
}

// evalScratch is the memory that an operator's Eval may need for an element of its
// outputs besides the outputs: it may compute in f64 or i64.
const evalScratch = 8

// CheckMemory refuses to evaluate n where outputs of these types, as far as their
// sizes are known, do not fit into the memory that is left.
func (n *Node) CheckMemory(types []Type) error {
	need := 0
	for _, t := range types {
		shape, ok := t.Shape()
		if !ok {
			continue
		}
		k, err := tensor.Elems(shape)
		if err != nil || k > MaxElems {
			return n.Errorf(ErrInvalid, "an output is %v, want at most %d elements", t, MaxElems)
		}
		each := t.DType.Bits()/8 + evalScratch
		if t.Elem != nil {
			each = tensor.HeaderBytes
		}
		need += k * each
	}
	if err := memory.Check(need); err != nil {
		return n.Errorf(ErrInvalid, "%v", err)
	}
	return nil
}

// OutputTypes returns the types of n's outputs, the zero Type for absent ones.
func (n *Node) OutputTypes() []Type {
	types := make([]Type, len(n.Outputs))
	for i, v := range n.Outputs {
		if v != nil {
			types[i] = v.Type
		}
	}
	return types
}

// keepNames gives the unknowns that this inference of c.Node made the names that
// those of the inference before had in the same place, so that what is inferred
// again reads the same. A name that came from elsewhere is not taken: it may stand
// for another size now.
func (c *Infer) keepNames() {
	n := c.Node
	own, made := map[Dim]bool{}, map[Dim]bool{}
	for _, d := range n.own {
		own[d] = true
	}
	for _, d := range c.made {
		made[d] = true
	}
	old := map[Dim]Dim{} // by what was made now
	for i, v := range n.Outputs {
		if v == nil || len(v.Type.Dims) != len(c.out[i].Dims) {
			continue
		}
		for j, d := range c.out[i].Dims {
			was := v.Type.Dims[j]
			if _, named := old[d]; own[was] && !named && made[d] {
				old[d] = was
				delete(own, was)
			}
		}
	}
	n.own = c.made
	if len(old) == 0 {
		return
	}
	for i, d := range n.own {
		if o, ok := old[d]; ok {
			n.own[i] = o
		}
	}
	rename := func(dims []Dim) []Dim {
		dims = slices.Clone(dims)
		for i, d := range dims {
			if d.Fresh() {
				dims[i] = d.replace(func(sym string) Dim {
					if o, ok := old[Sym(sym)]; ok {
						return o
					}
					return Sym(sym)
				})
			}
		}
		return dims
	}
	for i, v := range n.Outputs {
		if v != nil {
			c.out[i].Dims = rename(c.out[i].Dims)
			v.Elems = rename(v.Elems)
		}
	}
}

// Subgraphs returns the graphs among an operator's attributes.
func Subgraphs(op Op) []*Graph {
	s, ok := op.(interface{ Subgraphs() []*Graph })
	if !ok {
		return nil
	}
	return slices.DeleteFunc(s.Subgraphs(), func(g *Graph) bool { return g == nil })
}

// Pure reports whether evaluating an operator twice on the same inputs gives the
// same outputs, so that it may be folded: operators with a method Impure are not.
func Pure(op Op) bool {
	_, impure := op.(interface{ Impure() })
	return !impure
}
