// Package fold removes what need not be computed at run time: nodes whose inputs
// are constant, shape arithmetic whose results inference knows, branches whose
// condition is constant, nodes nobody reads, and nodes that change nothing. It
// imports ir and ir/op.
package fold

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// growth bounds the elements of a folded constant that is larger than its
// inputs, so that an Expand is not stored as a file of zeros.
const growth = 1 << 16

// Bounds of what is evaluated and not stored, on the way to what may be: of the elements of all
// such values, and of the operations of a node.
const (
	wideElems = 1 << 24
	wideFLOPs = 1 << 26
)

// Constants evaluates every node whose inputs are constant, replaces values
// whose elements inference knows, and inlines the branch that a known condition
// picks. It returns the number of nodes that it removed.
func Constants(g *ir.Graph) (int, error) {
	return ConstantsBut(g, func(*ir.Node) bool { return false })
}

// ConstantsBut is Constants, but leaves nodes for which stays is true.
func ConstantsBut(g *ir.Graph, stays func(*ir.Node) bool) (int, error) {
	f := &folder{stays: stays, top: g}
	return f.constants(g)
}

// folder is the state of ConstantsBut.
type folder struct {
	stays   func(*ir.Node) bool
	top     *ir.Graph
	outputs map[*ir.Value]bool           // of top and its subgraphs; nil where they are not known
	wide    map[*ir.Value]*tensor.Tensor // constants that are too large to store
	elems   int                          // of those
}

func (f *folder) constants(g *ir.Graph) (count int, err error) {
	dead := map[*ir.Node]bool{}
	defer func() { g.RemoveAll(func(n *ir.Node) bool { return dead[n] }) }()
	for i := 0; i < len(g.Nodes); i++ {
		n := g.Nodes[i]
		// What was folded before n may tell more of n's types.
		unread := !slices.ContainsFunc(n.Outputs, f.read)
		if err := n.Infer(); err != nil && !unread {
			return count, err
		}
		if unread || f.stays(n) {
			continue
		}
		if branch := pickedBranch(n); branch != nil {
			g.Inline(n, branch)
			f.outputs = nil
			count++
			i--
			continue
		}
		if subs := ir.Subgraphs(n.Op); len(subs) > 0 {
			k, err := f.subgraphs(n, subs)
			if count += k; err != nil {
				return count, err
			}
		}
		outs, err := f.evaluate(n)
		if err != nil && g.Owner == nil {
			return count, err
		}
		if outs == nil || err != nil { // what fails in a subgraph may never be run
			continue
		}
		for j, v := range n.Outputs {
			if f.read(v) {
				c := g.NewConst(v.Name+".const", outs[j])
				if j == 0 {
					c.Grid = op.GridOf(n)
				}
				if g.ReplaceUses(v, c); f.outputs[v] {
					f.outputs[c] = true
				}
			}
		}
		for j := len(n.Inputs) - 1; j >= 0; j-- { // frees constants that nobody else reads
			n.SetInput(j, nil)
		}
		dead[n] = true
		count++
	}
	return count, nil
}

// subgraphs folds in the subgraphs of n. One that what was folded shows to be in error is
// refused where it need not run.
func (f *folder) subgraphs(n *ir.Node, subs []*ir.Graph) (count int, err error) {
	errs := make([]error, len(subs))
	for i, sub := range subs {
		if sub.Refused == nil {
			k, err := f.constants(sub)
			count, errs[i] = count+k, err
		}
	}
	if err := n.Infer(); err != nil {
		return count, err
	}
	for i, sub := range subs {
		if sub.Refused == nil && errs[i] != nil {
			return count, errs[i]
		}
	}
	return count, nil
}

// All does everything that this package does, for a graph of which more is known than when it was compiled: Constants,
// Lists and Dead. Constants that are too large to store may take room elements of memory, rather than be computed in each
// run.
func All(g *ir.Graph, room int) error {
	for {
		f := &folder{stays: func(*ir.Node) bool { return false }, top: g}
		if _, err := f.constants(g); err != nil {
			return err
		}
		f.store(room)
		Dead(g)
		if n, err := Lists(g); n == 0 || err != nil {
			return err
		}
	}
}

// store makes constants of the values that were too large, where nodes read them that are not gone then, as far as there is
// room.
func (f *folder) store(room int) {
	wide := func(v *ir.Value) bool { return v == nil || f.wide[v] != nil }
	for g := range f.top.All() {
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				t := f.wide[v]
				if t == nil || t.Len() > room {
					continue
				}
				gone := func(n *ir.Node) bool {
					return !slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool { return !wide(v) })
				}
				if v.IsOutput() || slices.ContainsFunc(v.Uses(), func(u ir.Use) bool { return !gone(u.Node) }) {
					room -= t.Len()
					g.ReplaceUses(v, g.NewConst(v.Name+".const", t))
				}
			}
		}
	}
}

// read reports whether a node or an output of a graph is v.
func (f *folder) read(v *ir.Value) bool {
	if v == nil || len(v.Uses()) > 0 {
		return v != nil
	}
	if f.outputs == nil {
		f.outputs = map[*ir.Value]bool{}
		for g := range f.top.All() {
			for _, o := range g.Outputs {
				f.outputs[o] = true
			}
		}
	}
	return f.outputs[v]
}

// pickedBranch returns the branch that the known condition of an If picks.
func pickedBranch(n *ir.Node) *ir.Graph {
	o, ok := n.Op.(*op.If)
	if !ok {
		return nil
	}
	var yes bool
	switch c := n.Inputs[0]; {
	case c.Const != nil && c.Const.Len() == 1:
		yes = tensor.Data[bool](c.Const)[0]
	case len(c.Elems) == 1 && c.Elems[0].Known():
		yes = c.Elems[0].Size() != 0
	default:
		return nil
	}
	if yes {
		return o.Then
	}
	return o.Else
}

// evaluate returns the outputs of n where they are constant and worth storing,
// else nil.
func (f *folder) evaluate(n *ir.Node) ([]*tensor.Tensor, error) {
	if outs := known(n); outs != nil {
		return outs, nil
	}
	if !ir.Pure(n.Op) || len(ir.Subgraphs(n.Op)) > 0 || len(n.Inputs) == 0 {
		return nil, nil
	}
	in := make([]*tensor.Tensor, len(n.Inputs))
	size := 0
	for i, v := range n.Inputs {
		switch {
		case v == nil:
		case v.Const != nil:
			in[i] = v.Const
			size += v.Const.Len()
		case f.wide[v] != nil:
			in[i] = f.wide[v]
		default:
			return nil, nil
		}
	}
	total := 0
	for _, v := range n.Outputs {
		if v == nil {
			continue
		}
		if v.Type.Elem != nil {
			return nil, nil // lists are no constants
		}
		shape, ok := v.Type.Shape()
		if !ok {
			continue // a shape that depends on the elements of the inputs, which are at hand
		}
		k, err := tensor.Elems(shape)
		if err != nil {
			return nil, n.Errorf(ir.ErrInvalid, "output %s: %v", v.Name, err)
		}
		total += k
	}
	stored := total <= max(growth, 2*size)
	if !stored && (total > wideElems-f.elems || !light(n)) {
		return nil, nil
	}
	outs, err := n.Op.Eval(&ir.Eval{Outputs: len(n.Outputs)}, in)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", n, err)
	}
	for j, v := range n.Outputs {
		if f.read(v) && (j >= len(outs) || outs[j] == nil) {
			return nil, nil
		}
	}
	if !stored {
		f.keep(n, outs)
		return nil, nil
	}
	return outs, nil
}

// light reports whether n takes few operations, as far as its types tell.
func light(n *ir.Node) bool {
	known := true
	types := func(values []*ir.Value) []ir.Type {
		out := make([]ir.Type, len(values))
		for i, v := range values {
			if v != nil {
				_, ok := v.Type.Shape()
				out[i], known = v.Type, known && ok
			}
		}
		return out
	}
	in, out := types(n.Inputs), types(n.Outputs)
	return known && n.Op.Work(in, out).FLOPs <= wideFLOPs
}

// keep remembers outputs for the nodes that read them: what those make of them may be small.
func (f *folder) keep(n *ir.Node, outs []*tensor.Tensor) {
	if f.wide == nil {
		f.wide = map[*ir.Value]*tensor.Tensor{}
	}
	for j, v := range n.Outputs {
		if v != nil && outs[j] != nil {
			f.wide[v] = outs[j]
			f.elems += outs[j].Len()
		}
	}
}

// known returns the only output of n when inference knows its elements.
func known(n *ir.Node) []*tensor.Tensor {
	if len(n.Outputs) != 1 || n.Outputs[0] == nil {
		return nil
	}
	v := n.Outputs[0]
	shape, ok := v.Type.Shape()
	if dt := v.Type.DType; !ok || v.Elems == nil || !dt.IsInt() && dt != tensor.Bool {
		return nil
	}
	ints := make([]int64, len(v.Elems))
	for i, d := range v.Elems {
		if !d.Known() {
			return nil
		}
		ints[i] = int64(d.Size())
	}
	if k, err := tensor.Elems(shape); err != nil || k != len(ints) {
		return nil
	}
	return []*tensor.Tensor{tensor.FromInt64s(v.Type.DType, ints, shape...)}
}

// Dead removes the nodes, of g and its subgraphs, whose outputs no output of g
// depends on. It returns their number.
func Dead(g *ir.Graph) int {
	live := map[*ir.Value]bool{}
	return dead(g, live)
}

// dead removes from g the nodes that compute nothing live, and adds what the
// others read to the live values.
func dead(g *ir.Graph, live map[*ir.Value]bool) int {
	for _, v := range g.Outputs {
		live[v] = true
	}
	gone := map[*ir.Node]bool{}
	count := 0
	for _, n := range slices.Backward(g.Nodes) {
		if !slices.ContainsFunc(n.Outputs, func(v *ir.Value) bool { return v != nil && live[v] }) {
			gone[n] = true
			continue
		}
		for _, sub := range ir.Subgraphs(n.Op) {
			count += dead(sub, live)
		}
		for _, v := range n.Inputs {
			live[v] = true
		}
	}
	if len(gone) > 0 {
		g.RemoveAll(func(n *ir.Node) bool { return gone[n] })
	}
	return count + len(gone)
}
