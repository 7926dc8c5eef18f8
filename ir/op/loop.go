package op

import (
	"fmt"
	"math"
	"slices"

	"spc/internal/memory"
	"spc/ir"
	"spc/ir/tensor"
)

// Loop evaluates a subgraph until its first input's number of iterations is done
// or its condition is false. The subgraph takes the iteration, the condition and
// the carried values; it gives the next condition, the next carried values, and
// values that are stacked over the iterations. It may read outer values.
type Loop struct {
	Body *ir.Graph `attr:"body"`
}

// Kind is Loop.
func (*Loop) Kind() string { return "Loop" }

// Lists says that sequences and optionals are carried.
func (*Loop) Lists() {}

// Subgraphs returns the body.
func (o *Loop) Subgraphs() []*ir.Graph { return []*ir.Graph{o.Body} }

// Work is that of one iteration: their number is in no type.
func (o *Loop) Work(_, _ []ir.Type) ir.Work { return graphWork(o.Body) }

// graphWork adds up the work of a graph's nodes whose types are static.
func graphWork(g *ir.Graph) ir.Work {
	var w ir.Work
	for _, n := range g.Nodes {
		in, okIn := staticTypes(n.Inputs)
		out, okOut := staticTypes(n.Outputs)
		if okIn && okOut {
			k := n.Op.Work(in, out)
			w.FLOPs += k.FLOPs
			w.Bytes += k.Bytes
		}
	}
	return w
}

func staticTypes(values []*ir.Value) (types []ir.Type, ok bool) {
	types = make([]ir.Type, len(values))
	for i, v := range values {
		if v == nil {
			continue
		}
		if types[i] = v.Type; !v.Type.Static() {
			return nil, false
		}
	}
	return types, true
}

// Infer finds types that the carried values have in every iteration. A body may be refused
// that is known not to run, or, in a graph that is specialised, that may not run.
func (o *Loop) Infer(c *ir.Infer) error {
	carried := max(c.Len()-2, 0)
	if o.Body == nil || len(o.Body.Inputs) != carried+2 || len(o.Body.Outputs) < carried+1 || c.Outputs() > len(o.Body.Outputs)-1 {
		return c.Errorf("the body does not take the iteration, the condition and %d values and give %d", carried, c.Outputs())
	}
	for i, dt := range []tensor.DType{tensor.I64, tensor.Bool} {
		t := c.In(i)
		if shape, ok := t.Shape(); c.Has(i) && (t.DType != dt || ok && product(shape) != 1) {
			return c.Errorf("input %d is %v, want one %v", i, t, dt)
		}
		setInput(o.Body, i, ir.Of(dt, ir.Sizes(o.single(i)...)...))
	}
	types := make([]ir.Type, carried)
	for i := range types {
		if !c.Has(2 + i) {
			return c.Errorf("input %d is absent", 2+i)
		}
		types[i] = c.In(2 + i)
	}
	first := slices.Clone(types)
	o.Body.Refused = nil
	if err := carry(c, o.Body, 2, 1, types); err != nil {
		idle, stacks := o.idle(c), o.Body.Outputs[1+carried:]
		if !c.Specialised() && (!idle || len(stacks) > 0) { // only the body tells the type of a stack
			return err
		}
		o.Body.Refused = err
		trip := c.Fresh()
		if idle {
			trip = ir.Size(0)
		}
		for i, v := range stacks {
			c.Set(carried+i, stackOf(v.Type, 0, trip))
		}
		for i, t := range first {
			if t.DType.IsOptional() { // which the body may unwrap
				return err
			}
			c.Set(i, t)
		}
		return nil
	}
	if t := o.Body.Outputs[0].Type; t.DType != tensor.Bool {
		return c.Errorf("the body's condition is %v, want bool", t)
	}
	for i, t := range types {
		if unwrapped(t.DType, o.Body.Outputs[1+i].Type.DType) {
			t = elemOf(c, t)
		}
		c.Set(i, t)
	}
	trip, ok := o.trip(c)
	if !ok {
		trip = c.Fresh()
	}
	for i, v := range o.Body.Outputs[1+carried:] {
		t := v.Type
		if t.Elem != nil {
			return c.Errorf("output %d is a stack of %v, want tensors", carried+i, t)
		}
		c.Set(carried+i, stackOf(t, 0, trip))
	}
	return nil
}

// single is the shape in which the body takes its input i, the iteration or the condition: ONNX does not say whether a list of
// one or a scalar, and ONNX Runtime gives what the body declares.
func (o *Loop) single(i int) []int {
	if t := o.Body.Inputs[i].Type; t.Ranked && t.Rank() == 1 {
		return []int{1}
	}
	return nil
}

// stackOf returns the type of n values of the type t along a new axis.
func stackOf(t ir.Type, axis int, n ir.Dim) ir.Type {
	if t.Ranked {
		t.Dims = slices.Insert(slices.Clone(t.Dims), axis, n)
	}
	return t
}

// unwrapped reports whether a carried optional is given by the body without being one: it
// is carried as one that is there, and comes out of the loop as its element.
func unwrapped(carried, next tensor.DType) bool {
	return carried.IsOptional() && next == carried.Elem()
}

// Trips returns the number of iterations of a node of this operator whose types are inferred; ok is false where inference does
// not know it.
func (o *Loop) Trips(n *ir.Node) (trips int, ok bool) {
	d, ok := o.trip(&ir.Infer{Node: n})
	if !ok || !d.Known() {
		return 0, false
	}
	return d.Size(), true
}

// trip returns the number of iterations; ok is false where more than the count may end the loop.
func (o *Loop) trip(c *ir.Infer) (n ir.Dim, ok bool) {
	if o.idle(c) {
		return ir.Size(0), true
	}
	start, known := intsOf(c, 1)
	count, ok := c.Elems(0)
	if !ok || count[0].Fresh() || c.Has(1) && !(known && start[0] != 0) {
		return n, false
	}
	next := o.Body.Outputs[0]
	for next.Def != nil && next.Def.Op.Kind() == "Identity" {
		next = next.Def.Inputs[0]
	}
	stays := next == o.Body.Inputs[1] || next.Const != nil && next.Const.Len() == 1 && tensor.Data[bool](next.Const)[0]
	return count[0], stays || count[0] == ir.Size(1)
}

// idle reports whether it is known that there is no iteration, so that the body need not
// fit what is carried.
func (o *Loop) idle(c *ir.Infer) bool {
	if start, known := intsOf(c, 1); c.Has(1) && known && start[0] == 0 {
		return true
	}
	n, known := intsOf(c, 0)
	return c.Has(0) && known && n[0] <= 0
}

func setInput(g *ir.Graph, i int, t ir.Type) {
	g.Inputs[i].Type = t
	g.Inputs[i].Elems = nil
}

// carry infers a body whose inputs, from the given one on, begin as types and take
// the body's outputs, from the given one on, in the next iteration: it widens types
// until they hold in every iteration. A body deep inside others is inferred once
// with nothing known, so that the time does not double with each level.
func carry(c *ir.Infer, body *ir.Graph, in, out int, types []ir.Type) error {
	depth := 0
	for g := body; g.Owner != nil; g = g.Owner.Graph() {
		depth++
	}
	for i, t := range types {
		if depth > 4 {
			types[i] = ir.Unknown(t.DType, c.Fresh())
		}
	}
	open := make([][]bool, len(types)) // the dimensions that were widened
	for i, t := range types {
		open[i] = make([]bool, len(t.Dims))
	}
	for wider := true; wider; {
		for i, t := range types {
			setInput(body, in+i, t)
		}
		if err := c.Subgraph(body); err != nil {
			return err
		}
		wider = false
		for i, t := range types {
			next := body.Outputs[out+i].Type
			if unwrapped(t.DType, next.DType) {
				next = ir.List(t.DType, ir.Size(1), next)
			}
			if next.DType != t.DType {
				return c.Errorf("carried value %d begins as %v and becomes %v", i, t, next)
			}
			if !t.Ranked || depth > 4 {
				continue
			}
			if t.Elem != nil {
				elem := ir.Join(t, ir.List(t.DType, next.Dims[0], inAny(*next.Elem)), anyDim).Elem
				wider = wider || elem.String() != t.Elem.String()
				types[i].Elem = elem
			}
			if !next.Ranked || len(next.Dims) != len(t.Dims) {
				types[i] = ir.Unranked(t.DType)
				wider = true
				continue
			}
			types[i].Dims = slices.Clone(t.Dims)
			for j, d := range t.Dims {
				if !open[i][j] && d != next.Dims[j] {
					types[i].Dims[j] = c.Fresh() // equal to no other, whatever d was
					open[i][j], wider = true, true
				}
			}
		}
	}
	return nil
}

// Eval runs the iterations.
func (o *Loop) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	trip, going := math.MaxInt, true
	var carried []*tensor.Tensor
	if len(in) > 0 && in[0] != nil {
		if in[0].Len() != 1 {
			return nil, evalErrorf("the number of iterations is %v, want one i64", in[0])
		}
		trip = in[0].Ints()[0]
	}
	if len(in) > 1 && in[1] != nil {
		var err error
		if going, err = truth(in[1]); err != nil {
			return nil, err
		}
	}
	if len(in) > 2 {
		carried = in[2:]
	}
	stacks := newStacks(c, o.Body.Outputs[1+len(carried):])
	for i := 0; i < trip && going; i++ {
		if o.Body.Refused != nil {
			return nil, o.Body.Refused
		}
		args := append([]*tensor.Tensor{tensor.Scalar(int64(i)).Reshape(o.single(0)...), tensor.Scalar(going).Reshape(o.single(1)...)}, carried...)
		outs, err := c.Run(o.Body, args)
		if err != nil {
			return nil, err
		}
		if going, err = truth(outs[0]); err != nil {
			return nil, err
		}
		carried = slices.Clone(outs[1 : 1+len(carried)])
		for j, t := range carried {
			if unwrapped(o.Body.Inputs[2+j].Type.DType, t.DType()) {
				carried[j] = tensor.NewOptional(t.DType(), t)
			}
		}
		for j, t := range outs[1+len(carried):] {
			if err := stacks[j].add(t); err != nil {
				return nil, err
			}
		}
	}
	out := slices.Clone(carried)
	for j, t := range out {
		if !unwrapped(t.DType(), o.Body.Outputs[1+j].Type.DType) {
			continue
		}
		if t.Len() == 0 {
			return nil, evalErrorf("carried value %d: %s", j, absent)
		}
		out[j] = t.Items()[0]
	}
	for _, s := range stacks {
		out = append(out, s.tensor(0, false))
	}
	return out, nil
}

// truth returns a condition.
func truth(t *tensor.Tensor) (bool, error) {
	if t.Len() != 1 {
		return false, evalErrorf("condition is %v, want a single bool", t)
	}
	return tensor.Data[bool](t)[0], nil
}

// stack collects the values of an output over iterations.
type stack struct {
	typ   ir.Type // of one value
	items []*tensor.Tensor
}

func newStacks(c *ir.Eval, outs []*ir.Value) []stack {
	s := make([]stack, len(outs))
	for i, v := range outs {
		s[i].typ = v.Type.Map(func(d ir.Dim) ir.Dim {
			if n, ok := d.At(c.Sizes); ok {
				return ir.Size(max(n, 0))
			}
			return d
		})
	}
	return s
}

func (s *stack) add(t *tensor.Tensor) error {
	if len(s.items) > 0 {
		if first := s.items[0]; !slices.Equal(first.Shape(), t.Shape()) {
			return evalErrorf("iteration %d gives %v to stack, the first gave %v", len(s.items), t, first)
		}
		if (len(s.items)+1)*t.Len() > maxOutput {
			return evalErrorf("iterations give more than %d elements to stack", maxOutput)
		}
	}
	// The stack may have to double, and is then copied.
	if n := len(s.items); n >= 1<<12 && n&(n-1) == 0 {
		if err := memory.Check(2 * n * (len(t.Bytes()) + tensor.HeaderBytes)); err != nil {
			return evalErrorf("%d iterations give %v each to stack: %v", n, t, err)
		}
	}
	s.items = append(s.items, t)
	return nil
}

// tensor returns the values along a new axis, last first where reverse is set.
// Dimensions of a value that never was are zero where they are not known.
func (s *stack) tensor(axis int, reverse bool) *tensor.Tensor {
	item := make([]int, len(s.typ.Dims))
	for i, d := range s.typ.Dims {
		item[i] = d.Size()
	}
	if len(s.items) > 0 {
		item = s.items[0].Shape()
	}
	shape := slices.Insert(slices.Clone(item), axis, len(s.items))
	out := tensor.New(s.typ.DType, shape...)
	to := tensor.Strides(shape)
	step := to[axis]
	to = slices.Delete(to, axis, axis+1)
	for i, t := range s.items {
		if reverse {
			i = len(s.items) - 1 - i
		}
		tensor.Copy(out, t, item, i*step, to, 0, tensor.Strides(item))
	}
	return out
}

// Scan evaluates a subgraph for each slice of its last inputs along an axis. The
// subgraph takes states and slices, and gives the next states and slices of the
// outputs. It may read outer values.
type Scan struct {
	Body          *ir.Graph `attr:"body"`
	Inputs        int       `attr:"num_scan_inputs"`
	InputAxes     []int     `attr:"scan_input_axes"`
	OutputAxes    []int     `attr:"scan_output_axes"`
	InputReverse  []int     `attr:"scan_input_directions"`
	OutputReverse []int     `attr:"scan_output_directions"`
	// Batched says that every input and output has a batch in front, each of which
	// is scanned on its own: the form of opset 8.
	Batched bool `attr:"batched,0" old:"9"`
}

// Kind is Scan.
func (*Scan) Kind() string { return "Scan" }

// Subgraphs returns the body.
func (o *Scan) Subgraphs() []*ir.Graph { return []*ir.Graph{o.Body} }

// Work is that of the body for each slice.
func (o *Scan) Work(in, _ []ir.Type) ir.Work {
	w := graphWork(o.Body)
	if n := len(in); n > 0 && in[n-1].Rank() > 0 {
		dims, a := in[n-1].Dims, at(o.InputAxes, o.Inputs-1)
		steps := float64(dims[norm(a, len(dims))].Size())
		if o.Batched && len(dims) > 1 {
			steps = float64(dims[0].Size()) * float64(dims[1].Size())
		}
		w.FLOPs *= steps
		w.Bytes *= steps
	}
	return w
}

// at returns element i of a list that may be absent.
func at(list []int, i int) int {
	if i >= 0 && i < len(list) {
		return list[i]
	}
	return 0
}

// Infer finds the types of states and slices.
func (o *Scan) Infer(c *ir.Infer) error {
	states := c.Len() - o.Inputs
	if o.Body == nil || o.Inputs < 1 || states < 0 || len(o.Body.Inputs) != c.Len() || len(o.Body.Outputs) < states || c.Outputs() > len(o.Body.Outputs) {
		return c.Errorf("the body does not take %d states and %d slices and give %d values", states, o.Inputs, c.Outputs())
	}
	outs := len(o.Body.Outputs) - states
	for _, l := range []struct {
		name string
		list []int
		n    int
	}{
		{"scan_input_axes", o.InputAxes, o.Inputs},
		{"scan_output_axes", o.OutputAxes, outs},
		{"scan_input_directions", o.InputReverse, o.Inputs},
		{"scan_output_directions", o.OutputReverse, outs},
	} {
		if l.list != nil && len(l.list) != l.n {
			return c.Errorf("%s lists %d, want %d", l.name, len(l.list), l.n)
		}
		if l.list != nil && o.Batched && l.name != "scan_input_directions" {
			return c.Errorf("%s beside a batch", l.name)
		}
	}
	types := make([]ir.Type, c.Len())
	batch, length := c.Fresh(), c.Fresh()
	for i := range types {
		if !c.Has(i) {
			return c.Errorf("input %d is absent", i)
		}
		t := c.In(i)
		if t.Ranked && o.Batched {
			if err := cutDim(c, i, &t, 0, &batch); err != nil {
				return err
			}
		}
		if t.Ranked && i >= states {
			if err := cutDim(c, i, &t, at(o.InputAxes, i-states), &length); err != nil {
				return err
			}
		}
		types[i] = t
	}
	for i, t := range types[states:] {
		setInput(o.Body, states+i, t)
	}
	first := slices.Clone(types[:states])
	o.Body.Refused = nil
	if err := carry(c, o.Body, 0, 0, types[:states]); err != nil {
		if !c.Specialised() {
			return err
		}
		o.Body.Refused = err
		copy(types, first)
	}
	for i, v := range o.Body.Outputs {
		t := v.Type
		if i < states {
			t = types[i]
		} else if t.Ranked {
			a, err := axis(c, at(o.OutputAxes, i-states), t.Rank()+1)
			if err != nil {
				return err
			}
			t = stackOf(t, a, length)
		}
		if t.Ranked && o.Batched {
			t.Dims = slices.Concat([]ir.Dim{batch}, t.Dims)
		}
		c.Set(i, t)
	}
	return nil
}

// cutDim takes the dimension of an axis, which must agree with d, from the type of
// input i.
func cutDim(c *ir.Infer, i int, t *ir.Type, ax int, d *ir.Dim) error {
	a, err := axis(c, ax, t.Rank())
	if err != nil {
		return err
	}
	e, ok := sameDim(*d, t.Dims[a])
	if !ok {
		return c.Errorf("input %d is %v, want size %v along axis %d", i, c.In(i), *d, a)
	}
	*d = e
	t.Dims = slices.Delete(slices.Clone(t.Dims), a, a+1)
	return nil
}

// Eval scans each of the batch, or the whole.
func (o *Scan) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	states := len(in) - o.Inputs
	for i, t := range in {
		rank := t.Rank()
		if o.Batched {
			rank--
		}
		if a := at(o.InputAxes, i-states); rank < 0 || i >= states && (a < -rank || a >= rank) {
			return nil, evalErrorf("input %d is %v, want an axis %d", i, t, a)
		}
	}
	if !o.Batched {
		stacks := newStacks(c, o.Body.Outputs[states:])
		carried, err := o.scan(c, in[:states], in[states:], stacks)
		if err != nil {
			return nil, err
		}
		return o.stacked(carried, stacks), nil
	}
	outer := newStacks(c, o.Body.Outputs)
	length := ir.Size(in[len(in)-1].Dim(1))
	for i := states; i < len(outer); i++ {
		outer[i].typ.Dims = slices.Concat([]ir.Dim{length}, outer[i].typ.Dims)
	}
	for b := range in[len(in)-1].Dim(0) {
		part := make([]*tensor.Tensor, len(in))
		for i, t := range in {
			if t.Dim(0) != in[len(in)-1].Dim(0) {
				return nil, evalErrorf("input %d is %v, want a batch of %d", i, t, in[len(in)-1].Dim(0))
			}
			part[i] = cutSlice(t, 0, b)
		}
		stacks := newStacks(c, o.Body.Outputs[states:])
		carried, err := o.scan(c, part[:states], part[states:], stacks)
		if err != nil {
			return nil, err
		}
		for i, t := range o.stacked(carried, stacks) {
			if err := outer[i].add(t); err != nil {
				return nil, err
			}
		}
	}
	return o.stacked(nil, outer), nil
}

// stacked joins states and the tensors of stacks.
func (o *Scan) stacked(states []*tensor.Tensor, stacks []stack) []*tensor.Tensor {
	out := slices.Clone(states)
	for i, s := range stacks {
		out = append(out, s.tensor(norm(at(o.OutputAxes, i), len(s.typ.Dims)+1), at(o.OutputReverse, i) != 0))
	}
	return out
}

// scan runs the body for each slice, collects the outputs' slices and returns the
// states.
func (o *Scan) scan(c *ir.Eval, states, xs []*tensor.Tensor, stacks []stack) ([]*tensor.Tensor, error) {
	n := -1
	for i, x := range xs {
		d := x.Dim(at(o.InputAxes, i))
		if n >= 0 && d != n {
			return nil, evalErrorf("%d slices of input %d, want %d", d, len(states)+i, n)
		}
		n = d
	}
	if n > 0 && o.Body.Refused != nil {
		return nil, o.Body.Refused
	}
	for step := range n {
		args := slices.Clone(states)
		for i, x := range xs {
			s := step
			if at(o.InputReverse, i) != 0 {
				s = n - 1 - step
			}
			args = append(args, cutSlice(x, norm(at(o.InputAxes, i), x.Rank()), s))
		}
		outs, err := c.Run(o.Body, args)
		if err != nil {
			return nil, err
		}
		states = outs[:len(states)]
		for i, t := range outs[len(states):] {
			if err := stacks[i].add(t); err != nil {
				return nil, err
			}
		}
	}
	return states, nil
}

// cutSlice returns slice i along an axis, which goes.
func cutSlice(t *tensor.Tensor, axis, i int) *tensor.Tensor {
	shape := slices.Delete(slices.Clone(t.Shape()), axis, axis+1)
	strides := tensor.Strides(t.Shape())
	off := i * strides[axis]
	out := tensor.New(t.DType(), shape...)
	tensor.Copy(out, t, shape, 0, tensor.Strides(shape), off, slices.Delete(strides, axis, axis+1))
	return out
}

// upgradeScan marks the form of opset 8, whose first input, the lengths of the
// sequences, must be absent.
func upgradeScan(l *Legacy) error {
	if l.Opset >= 9 {
		return nil
	}
	if len(l.Inputs) > 0 && l.Inputs[0] != nil {
		return fmt.Errorf("Scan of opset 8 with sequence lengths: %w", ir.ErrUnsupported)
	}
	l.Inputs = l.Inputs[min(1, len(l.Inputs)):]
	l.Attrs["batched"] = 1
	if d := l.Take("directions"); d != nil {
		l.Attrs["scan_input_directions"] = d
	}
	return nil
}
