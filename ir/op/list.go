package op

import (
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Operators on sequences. A sequence is a tensor of tensors, see package tensor; here its
// elements are shared, never written.

// lists gives an operator that takes sequences or optionals no work: it hands tensors on.
type lists struct{ free }

// Lists says that sequences and optionals are taken.
func (lists) Lists() {}

// anyDim is what dimensions become that are not the same in all elements.
func anyDim() ir.Dim { return ir.Any }

// inAny returns the type of an element of a list that is computed in each of several
// evaluations: what is unknown may differ.
func inAny(t ir.Type) ir.Type {
	return t.Map(func(d ir.Dim) ir.Dim {
		if d.Fresh() {
			return ir.Any
		}
		return d
	})
}

// elemOf returns the type of one element of a list.
func elemOf(c *ir.Infer, list ir.Type) ir.Type {
	e := *list.Elem
	e.Dims = slices.Clone(e.Dims)
	for i, d := range e.Dims {
		if d == ir.Any {
			e.Dims[i] = c.Fresh()
		}
	}
	return e
}

// wantSequence refuses an input that is no sequence.
func wantSequence(c *ir.Infer, i int) error {
	if t := c.In(i); !t.DType.IsSequence() {
		return c.Errorf("input %d is %v, want a sequence", i, t)
	}
	return nil
}

// wantTensor refuses an input that is a sequence or an optional, or absent.
func wantTensor(c *ir.Infer, i int) error {
	if t := c.In(i); !c.Has(i) || t.Elem != nil {
		return c.Errorf("input %d is %v, want a tensor", i, t)
	}
	return nil
}

// wantPosition refuses an input that is present and no integer, and a known position
// that is not one of the sequence in input 0, which may lie behind its end where ends is 1.
func wantPosition(c *ir.Infer, i, ends int) error {
	t := c.In(i)
	if shape, ok := t.Shape(); c.Has(i) && (t.DType != tensor.I32 && t.DType != tensor.I64 || ok && product(shape) != 1) {
		return c.Errorf("input %d is %v, want one position", i, t)
	}
	n := c.In(0).Dims[0]
	if !n.Known() {
		return nil
	}
	at, ok := []int{n.Size() - 1 + ends}, true
	if c.Has(i) {
		at, ok = intsOf(c, i)
	}
	if ok {
		if _, err := place(at[0], n.Size(), ends); err != nil {
			return refuse(c, err)
		}
	}
	return nil
}

// place brings a position, which may be negative, in a sequence of n elements into
// 0..n-1, or where ends is 1 into 0..n.
func place(at, n, ends int) (int, error) {
	switch {
	case n == 0 && ends == 0:
		return 0, evalErrorf("position %d of an empty sequence", at)
	case at < -n || at >= n+ends:
		return 0, evalErrorf("position %d of a sequence of %d, want %d to %d", at, n, -n, n-1+ends)
	}
	return norm(at, n), nil
}

// placeIn is place for the position that an input gives, by default the last one.
func placeIn(in []*tensor.Tensor, i, ends int) (int, error) {
	n := in[0].Len()
	t := optional(in, i)
	if t == nil {
		return place(n-1+ends, n, ends)
	}
	if t.Len() != 1 {
		return 0, evalErrorf("the position is %v, want one integer", t)
	}
	return place(t.Ints()[0], n, ends)
}

// SequenceEmpty makes a sequence without elements.
type SequenceEmpty struct {
	lists
	DType tensor.DType `attr:"dtype,f32"`
}

// Kind is SequenceEmpty.
func (*SequenceEmpty) Kind() string { return "SequenceEmpty" }

// Infer knows the length.
func (o *SequenceEmpty) Infer(c *ir.Infer) error {
	c.Set(0, ir.List(tensor.SequenceOf(o.DType), ir.Size(0), ir.Unranked(o.DType)))
	return nil
}

// Eval makes the sequence.
func (o *SequenceEmpty) Eval(_ *ir.Eval, _ []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(tensor.NewSequence(o.DType))
}

// SequenceConstruct makes a sequence of its inputs.
type SequenceConstruct struct{ lists }

// Kind is SequenceConstruct.
func (*SequenceConstruct) Kind() string { return "SequenceConstruct" }

// Infer joins the types of the elements.
func (o *SequenceConstruct) Infer(c *ir.Infer) error {
	elem := c.In(0)
	for i := range c.Len() {
		if err := wantTensor(c, i); err != nil {
			return err
		}
		if err := wantSame(c, i); err != nil {
			return err
		}
		elem = ir.Join(elem, c.In(i), anyDim)
	}
	c.Set(0, ir.List(tensor.SequenceOf(elem.DType), ir.Size(c.Len()), elem))
	return nil
}

// Eval collects the inputs.
func (o *SequenceConstruct) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(tensor.NewSequence(in[0].DType(), slices.Clone(in)...))
}

// SequenceInsert puts a tensor before a position of a sequence, by default its end.
type SequenceInsert struct{ lists }

// Kind is SequenceInsert.
func (*SequenceInsert) Kind() string { return "SequenceInsert" }

// Infer adds one to the length.
func (o *SequenceInsert) Infer(c *ir.Infer) error {
	if err := wantSequence(c, 0); err != nil {
		return err
	}
	if err := wantTensor(c, 1); err != nil {
		return err
	}
	s, x := c.In(0), c.In(1)
	if x.DType != s.Elem.DType {
		return c.Errorf("input 1 is %v, want an element of %v", x, s)
	}
	if err := wantPosition(c, 2, 1); err != nil {
		return err
	}
	joined := ir.Join(s, ir.List(s.DType, ir.Size(1), x), anyDim)
	c.Set(0, ir.List(s.DType, ir.Add(s.Dims[0], 1), *joined.Elem))
	return nil
}

// Eval inserts.
func (o *SequenceInsert) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	at, err := placeIn(in, 2, 1)
	if err != nil {
		return nil, err
	}
	items := make([]*tensor.Tensor, 0, in[0].Len()+1)
	items = append(append(append(items, in[0].Items()[:at]...), in[1]), in[0].Items()[at:]...)
	return one(tensor.NewSequence(in[1].DType(), items...))
}

// SequenceErase takes the element at a position, by default the last one, from a sequence.
type SequenceErase struct{ lists }

// Kind is SequenceErase.
func (*SequenceErase) Kind() string { return "SequenceErase" }

// Infer takes one from the length.
func (o *SequenceErase) Infer(c *ir.Infer) error {
	if err := wantSequence(c, 0); err != nil {
		return err
	}
	if err := wantPosition(c, 1, 0); err != nil {
		return err
	}
	s := c.In(0)
	c.Set(0, ir.List(s.DType, ir.Add(s.Dims[0], -1), *s.Elem))
	return nil
}

// Eval erases.
func (o *SequenceErase) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	at, err := placeIn(in, 1, 0)
	if err != nil {
		return nil, err
	}
	items := in[0].Items()
	return one(tensor.NewSequence(in[0].DType().Elem(), slices.Concat(items[:at], items[at+1:])...))
}

// SequenceAt is the element at a position of a sequence.
type SequenceAt struct{ lists }

// Kind is SequenceAt.
func (*SequenceAt) Kind() string { return "SequenceAt" }

// Infer takes the type of the elements.
func (o *SequenceAt) Infer(c *ir.Infer) error {
	if err := wantSequence(c, 0); err != nil {
		return err
	}
	if err := wantPosition(c, 1, 0); err != nil {
		return err
	}
	c.Set(0, elemOf(c, c.In(0)))
	return nil
}

// Eval picks the element.
func (o *SequenceAt) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	at, err := placeIn(in, 1, 0)
	if err != nil {
		return nil, err
	}
	return one(in[0].Items()[at])
}

// SequenceLength is the number of a sequence's elements.
type SequenceLength struct{ lists }

// Kind is SequenceLength.
func (*SequenceLength) Kind() string { return "SequenceLength" }

// Infer tells the length where it is known.
func (o *SequenceLength) Infer(c *ir.Infer) error {
	if err := wantSequence(c, 0); err != nil {
		return err
	}
	c.Set(0, ir.Of(tensor.I64))
	c.SetElems(0, slices.Clone(c.In(0).Dims))
	return nil
}

// Eval counts.
func (o *SequenceLength) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(tensor.Scalar(int64(in[0].Len())))
}

// SplitToSequence cuts its first input along an axis into slices of one, or into pieces
// of the size, or the sizes, that its second gives.
type SplitToSequence struct {
	lists
	Axis int  `attr:"axis,0"`
	Keep bool `attr:"keepdims,1"` // the axis of slices of one
}

// Kind is SplitToSequence.
func (*SplitToSequence) Kind() string { return "SplitToSequence" }

// Infer counts the pieces.
func (o *SplitToSequence) Infer(c *ir.Infer) error {
	if err := wantTensor(c, 0); err != nil {
		return err
	}
	if err := wantInts(c, 1, -1); err != nil {
		return err
	}
	x, split := c.In(0), c.In(1)
	if c.Has(1) && split.Rank() > 1 {
		return c.Errorf("input 1 is %v, want a size or a list of sizes", split)
	}
	dt := tensor.SequenceOf(x.DType)
	if !x.Ranked {
		c.Set(0, ir.Unknown(dt, c.Fresh()))
		return nil
	}
	a, err := axis(c, o.Axis, x.Rank())
	if err != nil {
		return err
	}
	d := x.Dims[a]
	n, size := d, ir.Size(1)
	if c.Has(1) {
		if n, size, err = o.pieces(c, d); err != nil {
			return err
		}
	}
	elem := ir.Of(x.DType, slices.Clone(x.Dims)...)
	if elem.Dims[a] = size; !c.Has(1) && !o.Keep {
		elem.Dims = slices.Delete(elem.Dims, a, a+1)
	}
	c.Set(0, ir.List(dt, n, elem))
	return nil
}

// pieces returns the number of pieces of d elements, as input 1 has them, and their size.
func (o *SplitToSequence) pieces(c *ir.Infer, d ir.Dim) (n, size ir.Dim, err error) {
	given, known := intsOf(c, 1)
	rank := c.In(1).Rank()
	if known && d.Known() {
		p, err := newPieces(given, rank, d.Size())
		if err != nil {
			return n, size, refuse(c, err)
		}
		if size = ir.Any; p.Equal() {
			size = ir.Size(p.each)
		}
		return ir.Size(p.N), size, nil
	}
	if rank == 1 {
		return c.In(1).Dims[0], ir.Any, nil
	}
	if known && given[0] < 1 {
		return n, size, c.Errorf("pieces of %d, want at least 1", given[0])
	}
	if each, ok := c.Elems(1); ok && len(each) == 1 {
		if q, ok := ir.Div(d, each[0]); ok {
			return q, each[0], nil
		}
	}
	return c.Fresh(), ir.Any, nil
}

// Pieces are consecutive parts of an axis.
type Pieces struct {
	N    int
	ends []int // of each, nil where all but the last have one size
	each int
	d    int
}

// newPieces divides d elements as the input of a SplitToSequence says: by a list of
// sizes, or, of rank 0, by one size, of which the last piece may have less.
func newPieces(given []int, rank, d int) (*Pieces, error) {
	if rank == 1 {
		p := &Pieces{N: len(given), d: d}
		end := 0
		for _, n := range given {
			end += n
			p.ends = append(p.ends, end)
		}
		if p.each = -1; len(given) > 0 && len(slices.Compact(slices.Clone(given))) == 1 {
			p.each = given[0]
		}
		return p, new(Split).check(d, given)
	}
	if given[0] < 1 {
		return nil, evalErrorf("pieces of %d, want at least 1", given[0])
	}
	p := &Pieces{N: d / given[0], each: given[0], d: d}
	if d%given[0] != 0 {
		p.N++
	}
	return p, nil
}

// Equal reports whether all pieces have one size.
func (p *Pieces) Equal() bool { return p.each >= 0 && p.N*p.each == p.d }

// Span returns where piece i begins and ends.
func (p *Pieces) Span(i int) (from, to int) {
	switch {
	case p.ends == nil:
		return i * p.each, min((i+1)*p.each, p.d)
	case i == 0:
		return 0, p.ends[0]
	}
	return p.ends[i-1], p.ends[i]
}

// Pieces returns the pieces along the axis, of a node of this operator whose types are
// inferred; ok is false where inference does not know them.
func (o *SplitToSequence) Pieces(n *ir.Node) (p *Pieces, ok bool) {
	x, v := n.Inputs[0].Type, n.Input(1)
	if !x.Ranked {
		return nil, false
	}
	d := x.Dims[norm(o.Axis, x.Rank())]
	given, rank := []int{1}, 0
	switch {
	case v == nil:
	case v.Const != nil:
		given, rank = v.Const.Ints(), v.Type.Rank()
	case v.Elems != nil:
		if given, ok = ir.Of(tensor.I64, v.Elems...).Shape(); !ok {
			return nil, false
		}
		rank = v.Type.Rank()
	default:
		return nil, false
	}
	if !d.Known() {
		return nil, false
	}
	p, err := newPieces(given, rank, d.Size())
	return p, err == nil
}

// Eval copies the pieces.
func (o *SplitToSequence) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, split := in[0], optional(in, 1)
	a := norm(o.Axis, x.Rank())
	given, rank := []int{1}, 0
	if split != nil {
		given, rank = split.Ints(), split.Rank()
	}
	p, err := newPieces(given, rank, x.Dim(a))
	if err != nil {
		return nil, err
	}
	items, strides := make([]*tensor.Tensor, p.N), tensor.Strides(x.Shape())
	for i := range items {
		from, to := p.Span(i)
		shape := slices.Clone(x.Shape())
		shape[a] = to - from
		y := tensor.New(x.DType(), shape...)
		tensor.Copy(y, x, shape, 0, tensor.Strides(shape), from*strides[a], strides)
		if split == nil && !o.Keep {
			y = y.Reshape(slices.Delete(shape, a, a+1)...)
		}
		items[i] = y
	}
	return one(tensor.NewSequence(x.DType(), items...))
}

// ConcatFromSequence joins the elements of a sequence along an axis, or along a new one.
type ConcatFromSequence struct {
	lists
	Axis int  `attr:"axis"`
	New  bool `attr:"new_axis,0"`
}

// Kind is ConcatFromSequence.
func (*ConcatFromSequence) Kind() string { return "ConcatFromSequence" }

// Infer adds up the sizes of the elements.
func (o *ConcatFromSequence) Infer(c *ir.Infer) error {
	if err := wantSequence(c, 0); err != nil {
		return err
	}
	s := c.In(0)
	n := s.Dims[0]
	if n == ir.Size(0) {
		return c.Errorf("%s", emptyConcat)
	}
	if !s.Elem.Ranked {
		c.Set(0, ir.Unranked(s.Elem.DType))
		return nil
	}
	rank := s.Elem.Rank()
	if o.New {
		rank++
	}
	a, err := axis(c, o.Axis, rank)
	if err != nil {
		return err
	}
	dims := slices.Clone(s.Elem.Dims)
	switch {
	case o.New:
		dims = slices.Insert(dims, a, n)
	case dims[a] != ir.Any:
		dims[a] = ir.Mul(n, dims[a])
	}
	for i, d := range dims {
		if d == ir.Any {
			dims[i] = c.Fresh()
		}
	}
	c.Set(0, ir.Of(s.Elem.DType, dims...))
	return nil
}

const emptyConcat = "the sequence is empty, want at least one element"

// Eval copies the elements.
func (o *ConcatFromSequence) Eval(e *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	items := slices.Clone(in[0].Items())
	if len(items) == 0 {
		return nil, evalErrorf(emptyConcat)
	}
	first := items[0]
	rank := first.Rank()
	if o.New {
		rank++
	}
	if o.Axis < -rank || o.Axis >= rank {
		return nil, evalErrorf("elements are %v, want an axis %d", first, o.Axis)
	}
	a := norm(o.Axis, rank)
	for i, t := range items {
		fits := t.Rank() == first.Rank()
		for k := 0; fits && k < t.Rank(); k++ {
			fits = t.Dim(k) == first.Dim(k) || k == a && !o.New
		}
		if !fits {
			return nil, evalErrorf("element %d is %v, element 0 is %v, which do not join along axis %d", i, t, first, o.Axis)
		}
		if o.New {
			items[i] = t.Reshape(slices.Insert(slices.Clone(t.Shape()), a, 1)...)
		}
	}
	return (&Concat{Axis: a}).Eval(e, items)
}

// SequenceMap evaluates a subgraph on each element of a sequence, and of further
// sequences of its length; tensors among its inputs are the same for each. The
// subgraph's outputs are collected in sequences. It may read outer values.
type SequenceMap struct {
	Body *ir.Graph `attr:"body"`
}

// Kind is SequenceMap.
func (*SequenceMap) Kind() string { return "SequenceMap" }

// Lists says that sequences are taken.
func (*SequenceMap) Lists() {}

// Subgraphs returns the body.
func (o *SequenceMap) Subgraphs() []*ir.Graph { return []*ir.Graph{o.Body} }

// Work is that of the body for each element, of one where their number is not known.
func (o *SequenceMap) Work(in, _ []ir.Type) ir.Work {
	w := graphWork(o.Body)
	n := float64(in[0].Dims[0].AtOne())
	return ir.Work{FLOPs: n * w.FLOPs, Bytes: n * w.Bytes}
}

// Infer infers the body for any element.
func (o *SequenceMap) Infer(c *ir.Infer) error {
	if err := wantSequence(c, 0); err != nil {
		return err
	}
	if o.Body == nil || len(o.Body.Inputs) != c.Len() || c.Outputs() > len(o.Body.Outputs) {
		return c.Errorf("the body does not take %d values and give %d", c.Len(), c.Outputs())
	}
	n := c.In(0).Dims[0]
	for i := range c.Len() {
		t := c.In(i)
		switch {
		case !c.Has(i) || t.DType.IsOptional():
			return c.Errorf("input %d is %v, want a sequence or a tensor", i, t)
		case t.Elem != nil:
			m, ok := sameDim(n, t.Dims[0])
			if !ok {
				return c.Errorf("input %d is %v, want %v elements as input 0", i, t, n)
			}
			n, t = m, elemOf(c, t)
		}
		setInput(o.Body, i, t)
	}
	if err := c.Subgraph(o.Body); err != nil {
		return err
	}
	for i, v := range o.Body.Outputs {
		if v.Type.Elem != nil {
			return c.Errorf("output %d of the body is %v, want a tensor", i, v.Type)
		}
		c.Set(i, ir.List(tensor.SequenceOf(v.Type.DType), n, inAny(v.Type)))
	}
	return nil
}

// Eval evaluates the body for one element after the other.
func (o *SequenceMap) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	n := in[0].Len()
	outs := make([][]*tensor.Tensor, len(o.Body.Outputs))
	for k := range n {
		args := slices.Clone(in)
		for i, t := range in {
			if !t.DType().IsList() {
				continue
			}
			if t.Len() != n {
				return nil, evalErrorf("input %d is %v, want %d elements as input 0", i, t, n)
			}
			args[i] = t.Items()[k]
		}
		got, err := c.Run(o.Body, args)
		if err != nil {
			return nil, err
		}
		for i, t := range got {
			outs[i] = append(outs[i], t)
		}
	}
	made := make([]*tensor.Tensor, len(outs))
	for i, items := range outs {
		made[i] = tensor.NewSequence(o.Body.Outputs[i].Type.DType, items...)
	}
	return made, nil
}
