// Package contrib makes operators of ONNX of those that ONNX Runtime adds: the operators of its domain com.microsoft, and what its
// optimiser puts into the default domain, as onnxruntime's docs/ContribOperators.md specifies them. It does so when a model is
// imported, so that whatever follows sees nothing but standard operators: weights are constants that they were, and inner
// nodes are named after the node that they are of. It imports ir, ir/op and ir/tensor.
//
// An operator is a file, or shares one with its like, and a row of Table. What ONNX Runtime computes with it is in tests/contrib.
package contrib

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Domain is ONNX Runtime's own.
const Domain = "com.microsoft"

// Def is the row of an operator.
type Def struct {
	Kind    string // the name, as domain:Name outside the default domain
	In, Out [2]int // least and most inputs and outputs; -1 for no bound
	// Expand makes nodes that compute what the operator does, and returns its outputs; those at the end that nobody
	// wants may be left out.
	Expand func(c *call) []*ir.Value
}

var index = func() map[string]*Def {
	m := make(map[string]*Def, len(Table))
	for i := range Table {
		if d := &Table[i]; m[d.Kind] != nil || op.Lookup(d.Kind) != nil {
			panic("contrib: two rows for " + d.Kind)
		} else {
			m[d.Kind] = d
		}
	}
	return m
}()

// Lookup returns the row of an operator, nil where there is none.
func Lookup(kind string) *Def { return index[kind] }

// Node is a node as a file has it.
type Node struct {
	Name   string         // of the nodes that are made; may be empty
	Attrs  map[string]any // as in op.Legacy
	Inputs []*ir.Value    // nil where absent; their types are known as far as inference tells them
	Wanted []bool         // which outputs are
	Graph  *ir.Graph      // where nodes and constants go
	// Packings tells of constants that were unpacked from inputs how these pack them.
	Packings map[*tensor.Tensor]*Packing
}

// Packing is how a constant of few bits lies in an input of a node, from which it was unpacked.
type Packing struct {
	Input *tensor.Tensor
	// Pack returns the input with elements of the constant that are others now, of the same type and shape. The bits of all others, and of
	// what no element is in, stay. What the input cannot express is an error, in a line that does not name the node.
	Pack func(now *tensor.Tensor) (*tensor.Tensor, error)
	// Rounds says that elements that are no codes are rounded to them.
	Rounds bool
}

// Make makes the nodes of the operator at the end of n.Graph, infers their types, and returns the outputs, nil where one is not
// wanted. Errors wrap ir.ErrInvalid, or ir.ErrUnsupported for what the operator may do and this package does not.
func (d *Def) Make(n *Node) (outputs []*ir.Value, err error) {
	defer func() {
		if e := recover(); e != nil {
			stop, ok := e.(failure)
			if !ok {
				panic(e)
			}
			err = stop.error
		}
	}()
	arity := op.Def{In: d.In, Out: d.Out}
	if err := arity.CheckArity(len(n.Inputs), len(n.Wanted)); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	for i := range d.In[0] {
		if n.Inputs[i] == nil {
			return nil, fmt.Errorf("input %d is absent: %w", i, ir.ErrInvalid)
		}
	}
	c := &call{Node: n, kind: d.Kind}
	outputs = d.Expand(c)
	for i, wanted := range n.Wanted {
		switch {
		case i >= len(outputs) && wanted:
			return nil, fmt.Errorf("output %d is not computed: %w", i, ir.ErrUnsupported)
		case !wanted && i < len(outputs):
			outputs[i] = nil
		}
	}
	return outputs[:min(len(outputs), len(n.Wanted))], nil
}

// call is an operator that is being made of others. Its methods end Make with an error where something is wrong.
type call struct {
	*Node
	kind string
}

// failure carries an error to Make.
type failure struct{ error }

// message is the text of an error, whose kind is not part of it.
type message struct {
	text string
	kind error
}

func (m *message) Error() string { return m.text }
func (m *message) Unwrap() error { return m.kind }

// invalid ends Make: the model is wrong.
func (c *call) invalid(format string, args ...any) {
	panic(failure{&message{fmt.Sprintf(format, ir.Legible(args)...), ir.ErrInvalid}})
}

// unsupported ends Make: the model asks for what is not done.
func (c *call) unsupported(format string, args ...any) {
	panic(failure{&message{fmt.Sprintf(format, ir.Legible(args)...), ir.ErrUnsupported}})
}

// attrs reads the node's attributes into the fields of a struct with tags as those of operators, and refuses others.
func (c *call) attrs(into any) {
	ir.SetDefaults(into)
	for _, name := range slices.Sorted(maps.Keys(c.Attrs)) {
		if err := ir.SetAttr(into, name, c.Attrs[name]); err != nil {
			c.invalid("%v", err)
		}
	}
}

// apart takes the attributes whose names do not begin with prefix from the node.
func (c *call) apart(prefix string) attrs {
	own, rest := attrs{}, attrs{}
	for name, v := range c.Attrs {
		if strings.HasPrefix(name, prefix) {
			own[name] = v
		} else {
			rest[name] = v
		}
	}
	c.Attrs = own
	return rest
}

// in returns an input, nil where it is absent.
func (c *call) in(i int) *ir.Value {
	if i < len(c.Inputs) {
		return c.Inputs[i]
	}
	return nil
}

// wants reports whether an output is.
func (c *call) wants(i int) bool { return i < len(c.Wanted) && c.Wanted[i] }

// dims returns the dimensions of input i, of which there are as many as one of ranks says, or any number where none is given.
func (c *call) dims(i int, ranks ...int) []ir.Dim {
	t := c.in(i).Type
	if !t.Ranked {
		c.unsupported("the rank of input %d is not known", i)
	}
	if len(ranks) > 0 && !slices.Contains(ranks, t.Rank()) {
		want := make([]string, len(ranks))
		for i, r := range ranks {
			want[i] = fmt.Sprint(r)
		}
		c.invalid("input %d is %v, want rank %s", i, t, strings.Join(want, " or "))
	}
	return t.Dims
}

// size returns a dimension that must be known.
func (c *call) size(d ir.Dim, what string) int {
	if !d.Known() {
		c.unsupported("%s is not known", what)
	}
	return d.Size()
}

// vector checks that input i, where it is there, is a vector of n elements.
func (c *call) vector(i int, what string, n ir.Dim) {
	if c.in(i) != nil && differ(c.dims(i, 1)[0], n) {
		c.invalid("%s is %v, want %v elements", what, c.in(i).Type, n)
	}
}

// differ reports whether two dimensions are known to be unequal.
func differ(a, b ir.Dim) bool { return a.Known() && b.Known() && a != b }

// attrs are those of an operator that is made; others have their defaults.
type attrs = map[string]any

// make makes a node with one output.
func (c *call) make(kind string, a attrs, inputs ...*ir.Value) *ir.Value {
	return c.makes(1, kind, a, inputs...)[0]
}

// pass makes a node of an operator that takes attributes as the file has them.
func (c *call) pass(kind string, a attrs, inputs ...*ir.Value) *ir.Value {
	o, err := op.New(kind)
	if err != nil {
		panic(failure{err})
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if err := ir.SetAttr(o, name, a[name]); err != nil {
			c.invalid("%v", err)
		}
	}
	for len(inputs) > 0 && inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	return c.add(o, 1, inputs...)[0]
}

// makes makes a node with some outputs.
func (c *call) makes(outputs int, kind string, a attrs, inputs ...*ir.Value) []*ir.Value {
	l := &op.Legacy{Opset: math.MaxInt, Kind: kind, Attrs: maps.Clone(a), Inputs: slices.Clone(inputs), Graph: c.Graph, Outs: outputs}
	o, err := l.Make()
	if err != nil {
		panic(failure{err})
	}
	return c.add(o, outputs, l.Inputs...)
}

// add makes a node of an operator that is made already.
func (c *call) add(o ir.Op, outputs int, inputs ...*ir.Value) []*ir.Value {
	name := ""
	if c.Name != "" {
		name = c.Name + "/" + o.Kind()
	}
	ids := make([]string, outputs)
	for i := range ids {
		if name != "" {
			ids[i] = fmt.Sprintf("%s_%d", name, i)
		}
	}
	n := c.Graph.NewNode(name, o, inputs, ids...)
	if err := n.Infer(); err != nil {
		panic(failure{err})
	}
	return slices.Clone(n.Outputs)
}

// constant makes a constant.
func (c *call) constant(t *tensor.Tensor) *ir.Value { return c.Graph.NewConst("", t) }

// ints makes a constant vector of i64.
func (c *call) ints(list ...int) *ir.Value { return c.constant(tensor.Ints(list...)) }

// scalar makes a constant of the type of elements that a value has.
func (c *call) scalar(x float64, like *ir.Value) *ir.Value {
	if !like.Type.DType.Numeric() {
		c.invalid("%s is %v, want numbers", like.Name, like.Type)
	}
	return c.constant(tensor.Scalar(x).To(like.Type.DType))
}

// int makes a constant scalar of i64.
func (c *call) int(x int) *ir.Value { return c.constant(tensor.Scalar(int64(x))) }

// length is an axis of x as a scalar of i64.
func (c *call) length(x *ir.Value, axis int) *ir.Value {
	if d := x.Type.Dims[axis]; d.Known() {
		return c.constant(tensor.Scalar(int64(d.Size())))
	}
	return c.make("Squeeze", nil, c.make("Shape", attrs{"start": axis, "end": axis + 1}, x))
}

// pick is one index of an axis of x, without that axis.
func (c *call) pick(x *ir.Value, axis, index int) *ir.Value {
	return c.make("Gather", attrs{"axis": axis}, x, c.constant(tensor.Scalar(int64(index))))
}

// split cuts the last axis of x into parts.
func (c *call) split(x *ir.Value, sizes ...int) []*ir.Value {
	return c.makes(len(sizes), "Split", attrs{"axis": -1}, x, c.ints(sizes...))
}
