package op

import (
	"cmp"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// TopK finds the k largest or smallest elements along an axis, k being the second
// input, and their positions; of equal elements the first come first.
type TopK struct {
	streaming
	Axis    int  `attr:"axis,-1"`
	Largest bool `attr:"largest,1"`
	// Sorted allows any order where it is not set; the elements come sorted
	// anyway.
	Sorted bool `attr:"sorted,1"`
}

// Kind is TopK.
func (*TopK) Kind() string { return "TopK" }

// Along follows every axis but the one that is sorted.
func (o *TopK) Along(n *ir.Node, _, axis int) []int { return others(n, axis, o.Axis) }

// Infer makes the axis k long.
func (o *TopK) Infer(c *ir.Infer) error {
	if err := wantTaken(c, 1, rankable); err != nil {
		return err
	}
	if err := wantScalar(c, 1, "k"); err != nil {
		return err
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Unranked(x.DType))
		c.Set(1, ir.Unranked(tensor.I64))
		return nil
	}
	a, err := axis(c, o.Axis, len(x.Dims))
	if err != nil {
		return err
	}
	k := c.Fresh()
	if e, ok := dimsOf(c, 1); ok && len(e) == 1 {
		k = e[0]
	}
	if k.Known() && (k.Size() < 0 || x.Dims[a].Known() && k.Size() > x.Dims[a].Size()) {
		return c.Errorf("k is %v, want 0 to the %v elements along axis %d", k, x.Dims[a], a)
	}
	dims := slices.Clone(x.Dims)
	dims[a] = k
	c.Set(0, ir.Of(x.DType, dims...))
	c.Set(1, ir.Of(tensor.I64, dims...))
	return nil
}

// Eval sorts each row along the axis.
func (o *TopK) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, k := in[0], in[1].Ints()[0]
	a := norm(o.Axis, x.Rank())
	if k < 0 || k > x.Dim(a) {
		return nil, evalErrorf("k is %d, want 0 to the %d elements along axis %d", k, x.Dim(a), a)
	}
	rows := lastAxes(x, []int{a})
	less := ordering(rows)
	shape := slices.Clone(x.Shape())
	shape[a] = k
	values, at := tensor.New(x.DType(), shape...), tensor.New(tensor.I64, shape...)
	indices := tensor.Data[int64](at)
	st := tensor.Strides(shape)[a]
	n := x.Dim(a)
	order := make([]int, n)
	for r := range rows.Dim(0) {
		for i := range order {
			order[i] = r*n + i
		}
		slices.SortStableFunc(order, func(i, j int) int {
			if o.Largest {
				i, j = j, i
			}
			return less(i, j)
		})
		// Row r lies at the r-th position of the other axes.
		to := r/st*st*k + r%st
		for i, from := range order[:k] {
			copyRun(values, to+i*st, rows, from, 1)
			indices[to+i*st] = int64(from - r*n)
		}
	}
	return []*tensor.Tensor{values, at}, nil
}

// ordering returns a comparison of the elements i and j of a tensor, by their
// offsets; NaN is above every number and equals itself.
func ordering(x *tensor.Tensor) func(i, j int) int {
	switch {
	case x.DType() == tensor.String:
		v := x.Strings()
		return func(i, j int) int { return cmp.Compare(v[i], v[j]) }
	case x.DType() == tensor.U64:
		v := tensor.Data[uint64](x)
		return func(i, j int) int { return cmp.Compare(v[i], v[j]) }
	case x.DType().IsFloat():
		v := x.Float64s()
		return func(i, j int) int {
			if v[i] != v[i] || v[j] != v[j] {
				return cmp.Compare(v[j], v[i]) // cmp has NaN below every number
			}
			return cmp.Compare(v[i], v[j])
		}
	}
	v := x.Int64s()
	return func(i, j int) int { return cmp.Compare(v[i], v[j]) }
}

// upgradeTopK makes k an input, as opsets from 10 have it.
func upgradeTopK(l *Legacy) error {
	if l.Opset >= 10 {
		return nil
	}
	return l.IntsToInput("k", 1)
}

// Unique lists the distinct elements, or the distinct slices across an axis, with
// the position of the first of each, the number in the list of every element, and
// their counts.
type Unique struct {
	streaming
	Axis *int `attr:"axis"`
	// Sorted lists in ascending order, otherwise in the order of first occurrence.
	Sorted bool `attr:"sorted,1"`
}

// Kind is Unique.
func (*Unique) Kind() string { return "Unique" }

// Infer gives vectors of unknown lengths.
func (o *Unique) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	x := c.In(0)
	if x.DType != tensor.String && x.DType != tensor.Bool && carrier(x.DType) == tensor.Undefined {
		return c.Errorf("input is %v, want ordered elements", x.DType)
	}
	count := c.Fresh()
	total := c.Fresh()
	y := ir.Of(x.DType, count)
	switch {
	case o.Axis == nil:
		if n, ok := x.Elems(); ok {
			total = n
		}
	case !x.Ranked:
		y = ir.Unranked(x.DType)
	default:
		a, err := axis(c, *o.Axis, len(x.Dims))
		if err != nil {
			return err
		}
		dims := slices.Clone(x.Dims)
		total, dims[a] = dims[a], count
		y = ir.Of(x.DType, dims...)
	}
	c.Set(0, y)
	c.Set(1, ir.Of(tensor.I64, count))
	c.Set(2, ir.Of(tensor.I64, total))
	c.Set(3, ir.Of(tensor.I64, count))
	return nil
}

// Eval sorts the slices and joins equal neighbours.
func (o *Unique) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	items := x.Reshape(x.Len(), 1)
	axis := 0
	if o.Axis != nil {
		axis = norm(*o.Axis, x.Rank())
		perm := append([]int{axis}, slices.Delete(allAxes(x.Rank()), axis, axis+1)...)
		items = x.Permute(perm...)
	}
	n, m := items.Dim(0), 1
	if n > 0 {
		m = items.Len() / n
	}
	less := ordering(items)
	compare := func(i, j int) int {
		for k := range m {
			if c := less(i*m+k, j*m+k); c != 0 {
				return c
			}
		}
		return 0
	}
	order := allAxes(n)
	slices.SortStableFunc(order, compare)
	// The first of a group of equals is the one that occurs first.
	var groups [][]int
	for i := 0; i < n; {
		j := i + 1
		for j < n && compare(order[i], order[j]) == 0 {
			j++
		}
		groups = append(groups, order[i:j])
		i = j
	}
	if !o.Sorted {
		slices.SortFunc(groups, func(a, b []int) int { return a[0] - b[0] })
	}
	first, inverse, counts := make([]int, len(groups)), make([]int, n), make([]int, len(groups))
	shape := slices.Clone(items.Shape())
	shape[0] = len(groups)
	picked := tensor.New(x.DType(), shape...)
	for g, group := range groups {
		first[g], counts[g] = group[0], len(group)
		for _, i := range group {
			inverse[i] = g
		}
		copyRun(picked, g*m, items, group[0]*m, m)
	}
	y := picked.Reshape(len(groups) * m)
	if o.Axis != nil {
		back := append(allAxes(x.Rank())[1:axis+1], 0)
		for i := axis + 1; i < x.Rank(); i++ {
			back = append(back, i)
		}
		y = picked.Permute(back...)
	}
	return []*tensor.Tensor{y, tensor.Ints(first...), tensor.Ints(inverse...), tensor.Ints(counts...)}, nil
}

// NonZero lists the positions of the elements that are not zero: an axis a row,
// an element a column.
type NonZero struct {
	streaming
}

// Kind is NonZero.
func (*NonZero) Kind() string { return "NonZero" }

// Infer gives a matrix of as many rows as the input has axes.
func (o *NonZero) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 1); err != nil {
		return err
	}
	x := c.In(0)
	if x.DType == tensor.C64 || x.DType == tensor.C128 {
		return c.Errorf("input is %v, want real numbers, bool or strings", x.DType)
	}
	rank := c.Fresh()
	if x.Ranked {
		rank = ir.Size(len(x.Dims))
	}
	c.Set(0, ir.Of(tensor.I64, rank, c.Fresh()))
	return nil
}

// Eval goes through the elements. A string is zero when it is empty.
func (o *NonZero) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	var at []int
	switch {
	case x.DType() == tensor.String:
		for i, s := range x.Strings() {
			if s != "" {
				at = append(at, i)
			}
		}
	default:
		for i, v := range tensor.Data[bool](x.To(tensor.Bool)) {
			if v {
				at = append(at, i)
			}
		}
	}
	out, err := newOutput(tensor.I64, x.Rank(), len(at))
	if err != nil {
		return nil, err
	}
	d := tensor.Data[int64](out)
	for a, st := range tensor.Strides(x.Shape()) {
		for k, i := range at {
			d[a*len(at)+k] = int64(i / st % x.Dim(a))
		}
	}
	return one(out)
}
