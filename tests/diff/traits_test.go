package diff

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op"
	"spc/ir/tensor"
)

// seen is a node of a random graph with its inputs and outputs.
type seen struct {
	node    *ir.Node
	in, out []*tensor.Tensor
}

func (s *seen) eval(in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return s.node.Op.Eval(&ir.Eval{Outputs: len(s.node.Outputs)}, in)
}

// eachNode calls f with the nodes of random graphs that computed tensors from tensors, of count graphs and, while
// more says so, of further ones.
func eachNode(t *testing.T, seed, count uint64, more func() bool, f func(s *seen, r *rand.Rand)) {
	t.Logf("seed %d", seed)
	for i := uint64(0); i < count || i < 10*count && more(); i++ {
		c, err := Generate(seed, i)
		if err != nil {
			t.Fatal(err)
		}
		o := onnx.Options{}
		if i%2 == 0 { // sizes are known
			o.Shapes = map[string][]int{}
			for name, x := range c.Runs[0].Inputs {
				if !x.DType().IsList() {
					o.Shapes[name] = x.Shape()
				}
			}
		}
		g, _, err := onnx.ImportBytes(c.Model, "", o)
		if err != nil {
			t.Fatal(err)
		}
		values := map[*ir.Value]*tensor.Tensor{}
		var inputs []*tensor.Tensor
		for _, v := range g.Inputs {
			values[v] = c.Runs[0].Inputs[v.Name]
			inputs = append(inputs, values[v])
		}
		for _, v := range g.Constants() {
			values[v] = v.Const
		}
		r := rand.New(rand.NewPCG(seed, i))
		it := &ref.Interpreter{Each: func(n *ir.Node, outs []*tensor.Tensor) {
			s := &seen{node: n, out: outs}
			plain := true
			for _, v := range n.Inputs {
				s.in = append(s.in, values[v])
				plain = plain && (v == nil || values[v] != nil && !values[v].DType().IsList())
			}
			for i, x := range outs {
				if v := n.Outputs[i]; v != nil {
					values[v] = x
				}
				plain = plain && (x == nil || !x.DType().IsList())
			}
			if plain && len(ir.Subgraphs(n.Op)) == 0 {
				f(s, r)
			}
		}}
		if _, err := it.Run(context.Background(), g, inputs); err != nil {
			t.Fatalf("graph %d: %v", i, err)
		}
	}
}

// others returns x with elements elsewhere in the place of those at positions that change.
func others(x *tensor.Tensor, r *rand.Rand, changes func(at int) bool) *tensor.Tensor {
	index := make([]int, x.Len())
	for at := range index {
		if index[at] = at; changes(at) {
			index[at] = r.IntN(len(index))
		}
	}
	return gathered(x, index)
}

func gathered(x *tensor.Tensor, index []int) *tensor.Tensor {
	if x.Len() == 0 {
		return x
	}
	y, err := (&op.Gather{}).Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{x.Reshape(x.Len()), tensor.Ints(index...)})
	if err != nil {
		panic(err)
	}
	return y[0].Reshape(x.Shape()...)
}

// sliceOf is the position along an axis of the element at of a tensor.
func sliceOf(shape []int, axis, at int) int {
	for _, d := range shape[axis+1:] {
		at /= d
	}
	return at % shape[axis]
}

// elementsAre compares the elements of x and y at the positions that count.
func elementsAre(x, y *tensor.Tensor, counts func(at int) bool) bool {
	if x.DType() != y.DType() || !slices.Equal(x.Shape(), y.Shape()) {
		return false
	}
	index := []int{}
	for at := range x.Len() {
		if counts(at) {
			index = append(index, at)
		}
	}
	if x.Len() == 0 || len(index) == 0 {
		return true
	}
	one := func(x *tensor.Tensor) *tensor.Tensor {
		y, err := (&op.Gather{}).Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{x.Reshape(x.Len()), tensor.Ints(index...)})
		if err != nil {
			panic(err)
		}
		return y[0]
	}
	a, b := one(x), one(y)
	if a.DType() == tensor.String {
		return slices.Equal(a.Strings(), b.Strings())
	}
	return bytes.Equal(a.Bytes(), b.Bytes())
}

// What operators say of themselves holds for the nodes of random graphs.
func TestTraits(t *testing.T) {
	checks := []struct {
		name string
		traitCheck
	}{
		{"slices", &slicing{tried: map[string]int{}}},
		{"moves", &moving{tried: map[string]int{}}},
		{"neutral", &neutral{}},
		{"elementwise", &elementwise{tried: map[string]int{}, refuted: map[string]bool{}}},
	}
	more := func() bool {
		for _, c := range checks {
			if len(c.untried()) > 0 {
				return true
			}
		}
		return false
	}
	eachNode(t, 21, 2000, more, func(s *seen, r *rand.Rand) {
		for _, c := range checks {
			c.node(t, s, r)
		}
	})
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range c.untried() {
				t.Errorf("%s was tried in no node", kind)
			}
			c.end(t)
		})
	}
}

// A traitCheck looks at nodes and then at operators.
type traitCheck interface {
	node(t *testing.T, s *seen, r *rand.Rand)
	untried() []string // operators with the trait of which there were no nodes
	end(t *testing.T)
}

// without lists operators with a trait of which there were no nodes; those of old operator sets become others.
func without(tried map[string]int, has func(o ir.Op) bool) (kinds []string) {
	for _, d := range op.Table {
		if has(d.Op) && tried[d.Kind] == 0 && d.Kind != "Upsample" {
			kinds = append(kinds, d.Kind)
		}
	}
	return kinds
}

// slicing checks that slices which belong together by op.Along do not depend on others: with other
// elements there, they stay.
type slicing struct{ tried map[string]int }

func (c *slicing) node(t *testing.T, s *seen, r *rand.Rand) {
	n := s.node
	for o, v := range n.Outputs {
		if v == nil || s.out[o] == nil {
			continue
		}
		shape := s.out[o].Shape()
		for axis, d := range shape {
			in := op.Along(n, o, axis)
			if in == nil || d < 2 {
				continue
			}
			if c.tried[n.Op.Kind()]++; !slices.ContainsFunc(in, func(at int) bool { return at != op.Whole }) {
				continue // nothing could change
			}
			keep := r.IntN(d)
			some := slices.DeleteFunc(allOf(d), func(i int) bool { return i != keep && r.IntN(2) == 0 })
			changed, cut := slices.Clone(s.in), slices.Clone(s.in)
			for i, at := range in {
				if at == op.Whole {
					continue
				}
				x := s.in[i]
				if x.Dim(at) != d {
					t.Fatalf("%v: slices of output %d along axis %d are said to be those of input %d along %d, %v and %v", n, o, axis, i, at, s.out[o], x)
				}
				changed[i] = others(x, r, func(e int) bool { return sliceOf(x.Shape(), at, e) != keep })
				cut[i] = slicesOf(x, at, some)
			}
			what := fmt.Sprintf("%v %v of %v: output %d along axis %d, inputs along %v", n, ir.Attrs(n.Op), s.in, o, axis, in)
			got, err := s.eval(changed)
			if err != nil {
				t.Fatalf("%s: with other elements: %v", what, err)
			}
			if s.out[o].Len() > 0 && !elementsAre(s.out[o], got[o], func(e int) bool { return sliceOf(shape, axis, e) == keep }) {
				t.Errorf("%s: slice %d depends on others", what, keep)
			}
			if i, _ := op.SizesInput(n); i >= 0 && n.Input(i) != nil {
				continue // it names as many as there were
			}
			if got, err = s.eval(cut); err != nil {
				t.Errorf("%s: of slices %v alone: %v", what, some, err)
			} else if class, detail := plain(slicesOf(s.out[o], axis, some)).differs(got[o]); class != "" {
				t.Errorf("%s: slices %v alone give others: %s", what, some, detail)
			}
		}
	}
}

// allOf lists the numbers below n.
func allOf(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// slicesOf returns some slices of x along an axis.
func slicesOf(x *tensor.Tensor, axis int, at []int) *tensor.Tensor {
	y, err := (&op.Gather{Axis: axis}).Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{x, tensor.Ints(at...)})
	if err != nil {
		panic(err)
	}
	return y[0]
}

func (c *slicing) untried() []string {
	return without(c.tried, func(o ir.Op) bool { _, is := o.(op.Sliced); return is })
}

func (c *slicing) end(*testing.T) {}

// moving checks that what a Mover moves are elements of its data.
type moving struct{ tried map[string]int }

func (c *moving) node(t *testing.T, s *seen, _ *rand.Rand) {
	m, data := op.Moves(s.node)
	if m == op.Computes {
		return
	}
	// Elements that are all different, as far as the type has as many.
	numbered := slices.Clone(s.in)
	var all []int64
	for i, v := range s.node.Inputs {
		if !slices.Contains(data, v) || numbered[i] == nil || !numbered[i].DType().Numeric() {
			continue
		}
		list := make([]int64, numbered[i].Len())
		for e := range list {
			list[e] = int64(len(all)+e) % 100
		}
		numbered[i] = tensor.FromInt64s(tensor.I64, list, numbered[i].Shape()...).To(numbered[i].DType())
		all = append(all, numbered[i].To(tensor.I64).Int64s()...)
	}
	if len(all) == 0 {
		return
	}
	if slices.ContainsFunc(s.node.Inputs[len(data):], func(v *ir.Value) bool { return v != nil && slices.Contains(data, v) }) {
		return // what was numbered says something else, too
	}
	got, err := s.eval(numbered)
	if err != nil {
		t.Fatalf("%v with other elements: %v", s.node, err)
	}
	c.tried[fmt.Sprint(s.node.Op.Kind())]++
	out := got[0].To(tensor.I64).Int64s()
	ok := false
	switch m {
	case op.Keeps:
		ok = slices.Equal(out, all)
	case op.Permutes:
		a, b := slices.Sorted(slices.Values(out)), slices.Sorted(slices.Values(all))
		ok = slices.Equal(a, b)
	case op.Picks:
		ok = !slices.ContainsFunc(out, func(e int64) bool { return !slices.Contains(all, e) })
	}
	if !ok {
		t.Errorf("%v: %v are made of %v", s.node, out, all)
	}
}

func (c *moving) untried() []string {
	return without(c.tried, func(o ir.Op) bool { _, is := o.(op.Mover); return is })
}

func (c *moving) end(*testing.T) {}

// neutral checks that what is said to do nothing does nothing to other elements.
type neutral struct{ tried int }

func (c *neutral) untried() []string { return nil }

func (c *neutral) node(t *testing.T, s *seen, r *rand.Rand) {
	v := op.Same(s.node)
	if v == nil || v.IsConst() { // what is constant may be why
		return
	}
	in := slices.Clone(s.in)
	x := others(in[slices.Index(s.node.Inputs, v)], r, func(int) bool { return true })
	for i := range in {
		if s.node.Inputs[i] == v {
			in[i] = x
		}
	}
	got, err := s.eval(in)
	if err != nil {
		t.Fatalf("%v with other elements: %v", s.node, err)
	}
	c.tried++
	if class, _ := plain(x).differs(got[0]); class != "" { // a negative zero may become one
		t.Errorf("%v gives %v, want its input %s, %v", s.node, got[0], v.Name, x)
	}
}

func (c *neutral) end(t *testing.T) {
	if c.tried < 50 {
		t.Errorf("tried in %d nodes, want 50", c.tried)
	}
}

// elementwise checks that operators which treat elements one by one whatever they are given say so,
// and no others.
type elementwise struct {
	tried   map[string]int
	refuted map[string]bool
}

func (c *elementwise) node(t *testing.T, s *seen, r *rand.Rand) {
	n, kind := s.node, s.node.Op.Kind()
	if s.out[0] == nil || s.out[0].Len() < 2 || c.refuted[kind] {
		return
	}
	shape := s.out[0].Shape()
	if len(s.in) == 0 || s.in[0] == nil {
		c.refuted[kind] = true
		return
	}
	operands := op.Operands(n)
	if operands > 0 {
		static := !slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool { return v != nil && !v.Type.Static() })
		for axis := range shape {
			if static && op.Along(n, 0, axis) == nil {
				t.Errorf("%v is elementwise, but not along axis %d", n, axis)
			}
		}
	}
	// Where elements of inputs of the output's shape are moved, its elements move along, and
	// scalars stay.
	index := make([]int, s.out[0].Len())
	few := 1 + r.IntN(len(index)) // that go everywhere
	for at := range index {
		index[at] = r.IntN(few)
	}
	moved := slices.Clone(s.in)
	for i, x := range s.in {
		switch {
		case x == nil || i > 0 && x.Len() == 1:
		case slices.Equal(x.Shape(), shape):
			moved[i] = gathered(x, index)
		case operands > 0 || i > 0 && spreads(x.Shape(), shape):
			return // says nothing
		default:
			c.refuted[kind] = true
			return
		}
	}
	got, err := s.eval(moved)
	if err != nil || !got[0].Fits(s.out[0]) || !elementsAre(gathered(s.out[0], index), got[0], func(int) bool { return true }) {
		if operands > 0 {
			t.Errorf("%v is elementwise, but where elements of %v are moved, those of %v do not move along", n, s.in, s.out[0])
		}
		c.refuted[kind] = true
		return
	}
	c.tried[kind]++
}

// spreads reports whether a shape broadcasts to another.
func spreads(from, to []int) bool {
	for i, d := range from {
		if at := len(to) - len(from) + i; at < 0 || d != 1 && d != to[at] {
			return false
		}
	}
	return true
}

func (c *elementwise) untried() []string {
	return without(c.tried, func(o ir.Op) bool { _, is := o.(op.Elementwise); return is })
}

func (c *elementwise) end(t *testing.T) {
	for _, d := range op.Table {
		_, is := d.Op.(op.Elementwise)
		if !is && !c.refuted[d.Kind] && c.tried[d.Kind] >= 10 {
			t.Errorf("%s treats elements one by one in %d nodes, but is not Elementwise", d.Kind, c.tried[d.Kind])
		}
	}
}
