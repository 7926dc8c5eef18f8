package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Reduce joins the elements along the axes that the second input lists, all of
// them where it is absent or empty (none where NoopEmpty is set).
type Reduce struct {
	family
	streaming
	KeepDims  bool `attr:"keepdims,1"`
	NoopEmpty bool `attr:"noop_with_empty_axes,0"`
}

// reduceDef holds, for each carrier, the function that joins a row of elements;
// nil where the operator does not take it. Floats are joined in float64.
type reduceDef struct {
	f32  func([]float32) float64
	f64  func([]float64) float64
	i64  func([]int64) int64
	u64  func([]uint64) uint64
	bool func([]bool) bool
	// elem joins elements that inference tracks.
	elem elemFunc
}

var reduceFuncs = map[string]reduceDef{
	"ReduceL1":        {f32: l1Row[float32], f64: l1Row[float64], i64: l1IntRow[int64], u64: l1IntRow[uint64]},
	"ReduceL2":        {f32: l2Row[float32], f64: l2Row[float64], i64: viaFloat[int64](l2Row), u64: viaFloat[uint64](l2Row)},
	"ReduceLogSum":    {f32: logSumRow[float32], f64: logSumRow[float64], i64: viaFloat[int64](logSumRow), u64: viaFloat[uint64](logSumRow)},
	"ReduceLogSumExp": {f32: logSumExpRow[float32], f64: logSumExpRow[float64], i64: viaFloat[int64](logSumExpRow), u64: viaFloat[uint64](logSumExpRow)},
	"ReduceMax": {f32: largest[float32], f64: largest[float64], i64: largestInt(int64(math.MinInt64)),
		u64: largestInt(uint64(0)), bool: func(x []bool) bool { return slices.Contains(x, true) }, elem: maxElem},
	"ReduceMean": {f32: meanRow[float32], f64: meanRow[float64], i64: meanIntRow[int64], u64: meanIntRow[uint64]},
	"ReduceMin": {f32: smallest[float32], f64: smallest[float64], i64: smallestInt(int64(math.MaxInt64)),
		u64: smallestInt(uint64(math.MaxUint64)), bool: func(x []bool) bool { return !slices.Contains(x, false) }, elem: minElem},
	"ReduceProd":      {f32: prodRow[float32], f64: prodRow[float64], i64: prodIntRow[int64], u64: prodIntRow[uint64], elem: mulElem},
	"ReduceSum":       {f32: sumRow[float32], f64: sumRow[float64], i64: sumIntRow[int64], u64: sumIntRow[uint64], elem: addElem},
	"ReduceSumSquare": {f32: squareRow[float32], f64: squareRow[float64], i64: squareIntRow[int64], u64: squareIntRow[uint64]},
}

func (d reduceDef) takes(dt tensor.DType) bool {
	if dt == tensor.Bool {
		return d.bool != nil
	}
	return carrier(dt) != tensor.Undefined
}

// Along follows the axes that are left.
func (o *Reduce) Along(n *ir.Node, _, axis int) []int {
	x := n.Inputs[0].Type
	if !x.Ranked {
		return nil
	}
	axes, ok := constAxes(n.Input(1), x.Rank())
	if !ok || len(axes) == 0 {
		return nil
	}
	return kept(axis, axes, o.KeepDims)
}

// kept returns the axis that becomes axis of the output when others are reduced.
func kept(axis int, reduced []int, keepDims bool) []int {
	if keepDims {
		if slices.Contains(reduced, axis) {
			return nil
		}
		return []int{axis}
	}
	for at := 0; ; at++ {
		if slices.Contains(reduced, at) {
			continue
		}
		if axis == 0 {
			return []int{at}
		}
		axis--
	}
}

// Infer removes the reduced dimensions, or makes them one.
func (o *Reduce) Infer(c *ir.Infer) error {
	d := reduceFuncs[o.kind]
	if err := wantTaken(c, 1, d.takes); err != nil {
		return err
	}
	x := c.In(0)
	if err := wantInts(c, 1, 1); err != nil {
		return err
	}
	list, ok := intsOf(c, 1)
	switch {
	case x.Ranked && (ok || !c.Has(1)):
	case x.Ranked && o.KeepDims:
		c.Set(0, ir.Of(x.DType, c.FreshDims(len(x.Dims))...))
		return nil
	default:
		c.Set(0, ir.Unranked(x.DType))
		return nil
	}
	axes, err := o.axes(list, len(x.Dims))
	if err != nil {
		return refuse(c, err)
	}
	c.Set(0, ir.Of(x.DType, reduceDims(x.Dims, axes, o.KeepDims)...))
	wide := x.DType == tensor.I64 || x.DType == tensor.I32
	if elems, ok := c.Elems(0); ok && wide && d.elem != nil && len(elems) > 0 && len(axes) == len(x.Dims) {
		if e, ok := d.elem(elems...); ok {
			c.SetElems(0, []ir.Dim{e})
		}
	}
	return nil
}

// axes brings the listed axes into 0..rank-1; an empty list stands for all of
// them, or none.
func (o *Reduce) axes(list []int, rank int) ([]int, error) {
	if len(list) == 0 && !o.NoopEmpty {
		return allAxes(rank), nil
	}
	return axesOf(list, rank)
}

// Joined returns the axes of its input that n, a reduction, joins; ok is false where they are no constant.
func (o *Reduce) Joined(n *ir.Node) (axes []int, ok bool) {
	var list []int
	if v := n.Input(1); v != nil {
		if v.Const == nil {
			return nil, false
		}
		list = v.Const.Ints()
	}
	axes, err := o.axes(list, n.Inputs[0].Type.Rank())
	return axes, err == nil
}

// Neighbours returns the axes of its input that n, a reduction, joins, from lo to hi-1; ok
// is false where they are no constant, or not next to each other.
func (o *Reduce) Neighbours(n *ir.Node) (lo, hi int, ok bool) {
	axes, ok := o.Joined(n)
	if !ok || len(axes) == 0 {
		return 0, 0, false
	}
	lo, hi = slices.Min(axes), slices.Max(axes)+1
	return lo, hi, hi-lo == len(axes)
}

// Row returns the function that joins a row of elements f32.
func (o *Reduce) Row() func([]float32) float64 { return reduceFuncs[o.kind].f32 }

func allAxes(rank int) []int {
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = i
	}
	return axes
}

// reduceDims removes the axes from the dimensions, or makes them one.
func reduceDims(dims []ir.Dim, axes []int, keep bool) []ir.Dim {
	out := make([]ir.Dim, 0, len(dims))
	for i, d := range dims {
		switch {
		case !slices.Contains(axes, i):
			out = append(out, d)
		case keep:
			out = append(out, ir.Size(1))
		}
	}
	return out
}

// Eval joins the elements.
func (o *Reduce) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	var list []int
	if t := optional(in, 1); t != nil {
		list = t.Ints()
	}
	axes, err := o.axes(list, x.Rank())
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(reduceDims(ir.Sizes(x.Shape()...), axes, o.KeepDims), nil)
	if err != nil {
		return nil, err
	}
	rows := lastAxes(x, axes)
	dt := x.DType()
	d, n := reduceFuncs[o.kind], rows.Dim(1)
	if lowest := o.kind == "ReduceMax"; n == 0 && (lowest || o.kind == "ReduceMin") && dt.IsInt() {
		return one(limit(dt, lowest).Expand(rows.Dim(0)).Reshape(shape...))
	}
	rows = rows.To(carrier(dt))
	var out *tensor.Tensor
	switch carrier(dt) {
	case tensor.F32:
		out = reduceRows(rows, n, d.f32)
	case tensor.F64:
		out = reduceRows(rows, n, d.f64)
	case tensor.U64:
		out = reduceRows(rows, n, d.u64)
	case tensor.Bool:
		out = reduceRows(rows, n, d.bool)
	default:
		out = reduceRows(rows, n, d.i64)
	}
	return one(out.To(dt).Reshape(shape...))
}

// reduceGrads holds, for the operators that have them, the gradient by an element x
// of n that join to y, given that by y.
var reduceGrads = map[string]func(g, x, y float32, n int) float32{
	"ReduceL1":        func(g, x, _ float32, _ int) float32 { return g * float32(sign(float64(x))) },
	"ReduceL2":        func(g, x, y float32, _ int) float32 { return g * x / max(y, math.SmallestNonzeroFloat32) },
	"ReduceLogSum":    func(g, _, y float32, _ int) float32 { return g / float32(math.Exp(float64(y))) },
	"ReduceLogSumExp": func(g, x, y float32, _ int) float32 { return g * float32(math.Exp(float64(x-y))) },
	"ReduceMean":      func(g, _, _ float32, n int) float32 { return g / float32(n) },
	"ReduceSum":       func(g, _, _ float32, _ int) float32 { return g },
	"ReduceSumSquare": func(g, x, _ float32, _ int) float32 { return 2 * g * x },
}

// Grad gives each element its part of the gradient by what it was joined to.
func (o *Reduce) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	f := reduceGrads[o.kind]
	if f == nil {
		return nil, errNoGrad("of %s", o.kind)
	}
	if err := c.wantOnly(1); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) || dout[0] == nil {
		return din, nil
	}
	x := in[0]
	var list []int
	if t := optional(in, 1); t != nil {
		list = t.Ints()
	}
	axes, err := o.axes(list, x.Rank())
	if err != nil {
		return nil, err
	}
	kept := keepShape(x.Shape(), axes)
	n := x.Len() / max(1, product(kept))
	din[0] = c.New(x.Shape()...)
	dx, xv, g, y := din[0].F32s(), x.F32s(), dout[0].F32s(), out[0].F32s()
	walkRows(x.Shape(), [][]int{broadcastStrides(kept, x.Shape())}, func(at, count int, off, step []int) {
		for i := range count {
			p := off[0] + i*step[0]
			dx[at+i] = f(g[p], xv[at+i], y[p], n)
		}
	})
	return din, nil
}

// lastAxes returns the elements as a matrix whose rows run along the axes.
func lastAxes(x *tensor.Tensor, axes []int) *tensor.Tensor {
	var perm []int
	m, n := 1, 1
	for i, d := range x.Shape() {
		if !slices.Contains(axes, i) {
			perm = append(perm, i)
			m *= d
		}
	}
	for i, d := range x.Shape() {
		if slices.Contains(axes, i) {
			perm = append(perm, i)
			n *= d
		}
	}
	if !slices.IsSorted(perm) {
		x = x.Permute(perm...)
	}
	return x.Reshape(m, n)
}

// reduceRows joins each of the rows of n elements.
func reduceRows[A, R tensor.Elem](x *tensor.Tensor, n int, f func([]A) R) *tensor.Tensor {
	out := tensor.New(tensor.DTypeOf[R](), x.Dim(0))
	d, v := tensor.Data[R](out), tensor.Data[A](x)
	for i := range d {
		d[i] = f(v[i*n : (i+1)*n])
	}
	return out
}

// limit returns the lowest value of an integer type, or the highest, as a scalar.
func limit(dt tensor.DType, lowest bool) *tensor.Tensor {
	lo, hi := intRange(dt)
	if lowest {
		hi = lo
	}
	return tensor.FromInt64s(dt, []int64{hi})
}

// intRange returns the lowest and the highest value of an integer type; for u64
// the highest is the bits of it.
func intRange(dt tensor.DType) (lo, hi int64) {
	bits := dt.Bits()
	if dt.IsUnsigned() {
		return 0, int64(uint64(math.MaxUint64) >> (64 - bits))
	}
	hi = int64(math.MaxInt64) >> (64 - bits)
	return -hi - 1, hi
}

// viaFloat makes a function on rows of integers of one on float64, whose result
// is cut to an integer.
func viaFloat[T integer](f func([]float64) float64) func([]T) T {
	return func(x []T) T {
		v := make([]float64, len(x))
		for i, e := range x {
			v[i] = float64(e)
		}
		y := f(v)
		if y != y || math.IsInf(y, 0) {
			return 0
		}
		return T(y)
	}
}

func sumRow[T float](x []T) (s float64) {
	for _, v := range x {
		s += float64(v)
	}
	return s
}

func sumIntRow[T integer](x []T) (s T) {
	for _, v := range x {
		s += v
	}
	return s
}

func meanRow[T float](x []T) float64 { return sumRow(x) / float64(len(x)) }

// meanIntRow rounds toward zero; the mean of nothing is zero.
func meanIntRow[T integer](x []T) T {
	if len(x) == 0 {
		return 0
	}
	return sumIntRow(x) / T(len(x))
}

func prodRow[T float](x []T) float64 {
	p := 1.0
	for _, v := range x {
		p *= float64(v)
	}
	return p
}

func prodIntRow[T integer](x []T) T {
	p := T(1)
	for _, v := range x {
		p *= v
	}
	return p
}

func l1Row[T float](x []T) (s float64) {
	for _, v := range x {
		s += math.Abs(float64(v))
	}
	return s
}

func l1IntRow[T integer](x []T) (s T) {
	for _, v := range x {
		s += max(v, -v)
	}
	return s
}

func squareRow[T float](x []T) (s float64) {
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return s
}

func squareIntRow[T integer](x []T) (s T) {
	for _, v := range x {
		s += v * v
	}
	return s
}

func l2Row[T float](x []T) float64 { return math.Sqrt(squareRow(x)) }

func logSumRow[T float](x []T) float64 { return math.Log(sumRow(x)) }

// logSumExpRow takes the largest element out of the sum, so that it does not
// overflow.
func logSumExpRow[T float](x []T) float64 {
	m := largest(x)
	if math.IsInf(m, 0) || m != m {
		return m
	}
	s := 0.0
	for _, v := range x {
		s += math.Exp(float64(v) - m)
	}
	return m + math.Log(s)
}

func largest[T float](x []T) float64 {
	m := T(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return float64(m)
}

func smallest[T float](x []T) float64 {
	m := T(math.Inf(1))
	for _, v := range x {
		m = min(m, v)
	}
	return float64(m)
}

func largestInt[T integer](m T) func([]T) T {
	return func(x []T) T {
		m := m
		for _, v := range x {
			m = max(m, v)
		}
		return m
	}
}

func smallestInt[T integer](m T) func([]T) T {
	return func(x []T) T {
		m := m
		for _, v := range x {
			m = min(m, v)
		}
		return m
	}
}

// upgradeReduce makes the axes an input, as opsets from 18 have it.
func upgradeReduce(l *Legacy) error {
	if l.Opset >= 18 {
		return nil
	}
	return l.IntsToInput("axes", 1)
}

// upgradeReduceSum makes the axes an input, as opsets from 13 have it.
func upgradeReduceSum(l *Legacy) error {
	if l.Opset >= 13 {
		return nil
	}
	return l.IntsToInput("axes", 1)
}

// Arg finds the position of the largest or smallest element along an axis: the
// first one, or the last where SelectLast is set.
type Arg struct {
	family
	streaming
	Axis       int  `attr:"axis,0"`
	KeepDims   bool `attr:"keepdims,1"`
	SelectLast bool `attr:"select_last_index,0"`
}

// Along follows the axes that are left.
func (o *Arg) Along(n *ir.Node, _, axis int) []int {
	x := n.Inputs[0].Type
	if !x.Ranked {
		return nil
	}
	return kept(axis, []int{norm(o.Axis, x.Rank())}, o.KeepDims)
}

// Smallest reports whether it is the smallest that is looked for.
func (o *Arg) Smallest() bool { return o.kind == "ArgMin" }

// Infer removes the axis, or makes it one.
func (o *Arg) Infer(c *ir.Infer) error {
	if err := wantTaken(c, 1, rankable); err != nil {
		return err
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, ir.Unranked(tensor.I64))
		return nil
	}
	a, err := axis(c, o.Axis, len(x.Dims))
	if err != nil {
		return err
	}
	if x.Dims[a] == ir.Size(0) {
		return c.Errorf("axis %d of %v is empty", a, x)
	}
	c.Set(0, ir.Of(tensor.I64, reduceDims(x.Dims, []int{a}, o.KeepDims)...))
	return nil
}

// rankable reports whether elements of type dt are ordered.
func rankable(dt tensor.DType) bool { return carrier(dt) != tensor.Undefined && dt != tensor.Bool }

// Eval finds the positions. NaN is larger and smaller than every number.
func (o *Arg) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	a := norm(o.Axis, x.Rank())
	shape, err := shapeOf(reduceDims(ir.Sizes(x.Shape()...), []int{a}, o.KeepDims), nil)
	if err != nil {
		return nil, err
	}
	rows := lastAxes(x, []int{a})
	rows = rows.To(carrier(x.DType()))
	sign, last := 1, o.SelectLast
	if o.Smallest() {
		sign = -1
	}
	n := rows.Dim(1)
	var out *tensor.Tensor
	switch rows.DType() {
	case tensor.F32:
		out = reduceRows(rows, n, func(x []float32) int64 { return argRow(x, sign, last) })
	case tensor.F64:
		out = reduceRows(rows, n, func(x []float64) int64 { return argRow(x, sign, last) })
	case tensor.U64:
		out = reduceRows(rows, n, func(x []uint64) int64 { return argRow(x, sign, last) })
	default:
		out = reduceRows(rows, n, func(x []int64) int64 { return argRow(x, sign, last) })
	}
	return one(out.Reshape(shape...))
}

func argRow[T number](x []T, sign int, last bool) int64 {
	best := 0
	for i, v := range x[1:] {
		b := x[best]
		better := sign > 0 && v > b || sign < 0 && v < b || v != v && b == b
		if better || last && (v == b || v != v && b != b) {
			best = i + 1
		}
	}
	return int64(best)
}

// Cumulate joins each element with those before it along the axis that the
// second input, a scalar, gives: sums or products.
type Cumulate struct {
	family
	streaming
	// Exclusive leaves the element itself out.
	Exclusive bool `attr:"exclusive,0"`
	// Reverse joins with the elements after it.
	Reverse bool `attr:"reverse,0"`
}

// Product reports whether it is products that are joined.
func (o *Cumulate) Product() bool { return o.kind == "CumProd" }

// Along follows every axis but the one that is cumulated.
func (*Cumulate) Along(n *ir.Node, _, axis int) []int {
	axes, ok := constAxes(n.Inputs[1], n.Outputs[0].Type.Rank())
	if !ok {
		return nil
	}
	return others(n, axis, axes...)
}

// Infer keeps the type.
func (o *Cumulate) Infer(c *ir.Infer) error {
	if err := wantTaken(c, 1, rankable); err != nil {
		return err
	}
	if err := wantScalar(c, 1, "axis"); err != nil {
		return err
	}
	if a, ok := intsOf(c, 1); ok && c.In(0).Ranked {
		if _, err := axis(c, a[0], len(c.In(0).Dims)); err != nil {
			return err
		}
	}
	c.Set(0, c.In(0))
	return nil
}

// wantScalar refuses an input that is no integer tensor of one element.
func wantScalar(c *ir.Infer, i int, what string) error {
	t := c.In(i)
	n, ok := t.Elems()
	if t.DType != tensor.I64 && t.DType != tensor.I32 || ok && n.Known() && n != ir.Size(1) {
		return c.Errorf("%s (input %d) is %v, want one integer", what, i, t)
	}
	return nil
}

// Eval joins the elements.
func (o *Cumulate) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	axes, err := axesOf(in[1].Ints(), x.Rank())
	if err != nil {
		return nil, err
	}
	a := axes[0]
	// The axis goes last, and comes back.
	perm := append(slices.Delete(allAxes(x.Rank()), a, a+1), a)
	y := x.Permute(perm...)
	shape, n := y.Shape(), x.Dim(a)
	y = y.To(carrier(x.DType()))
	switch y.DType() {
	case tensor.F32:
		cumulate[float32, float64](o, y, n)
	case tensor.F64:
		cumulate[float64, float64](o, y, n)
	case tensor.U64:
		cumulate[uint64, uint64](o, y, n)
	default:
		cumulate[int64, int64](o, y, n)
	}
	back := make([]int, len(perm))
	for i, p := range perm {
		back[p] = i
	}
	return one(y.To(x.DType()).Reshape(shape...).Permute(back...))
}

// cumulate joins the elements of each row of n in place, in the wide type W.
func cumulate[T, W number](o *Cumulate, x *tensor.Tensor, n int) {
	v := tensor.Data[T](x)
	product := o.Product()
	for ; len(v) > 0; v = v[n:] {
		acc := W(0)
		if product {
			acc = 1
		}
		for i := range n {
			if o.Reverse {
				i = n - 1 - i
			}
			e, before := W(v[i]), acc
			if product {
				acc *= e
			} else {
				acc += e
			}
			v[i] = T(acc)
			if o.Exclusive {
				v[i] = T(before)
			}
		}
	}
}
