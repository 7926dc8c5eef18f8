package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// carrier is the element type in which arithmetic on dt is done: its results,
// converted back, are the right ones. Undefined says that there is none.
func carrier(dt tensor.DType) tensor.DType {
	switch dt {
	case tensor.F32, tensor.F16, tensor.BF16:
		return tensor.F32
	case tensor.F64, tensor.U64, tensor.Bool:
		return dt
	}
	if dt.IsInt() {
		return tensor.I64
	}
	return tensor.Undefined
}

// rowFunc combines n = len(d) elements that lie sx and sy apart.
type rowFunc[A, R any] = func(d []R, x, y []A, sx, sy int)

// rows holds a row function with results of the operands' type for each carrier;
// nil where the operator does not take it.
type rows struct {
	f32  rowFunc[float32, float32]
	f64  rowFunc[float64, float64]
	i64  rowFunc[int64, int64]
	u64  rowFunc[uint64, uint64]
	bool rowFunc[bool, bool]
}

// takes reports whether elements of type dt can be combined.
func (r rows) takes(dt tensor.DType) bool {
	switch carrier(dt) {
	case tensor.F32:
		return r.f32 != nil
	case tensor.F64:
		return r.f64 != nil
	case tensor.I64:
		return r.i64 != nil
	case tensor.U64:
		return r.u64 != nil
	case tensor.Bool:
		return r.bool != nil
	}
	return false
}

// zip combines two broadcast tensors of one type, which r takes.
func (r rows) zip(a, b *tensor.Tensor) *tensor.Tensor {
	dt := a.DType()
	c := carrier(dt)
	a, b = a.To(c), b.To(c)
	switch c {
	case tensor.F32:
		return zipRows(a, b, r.f32).To(dt)
	case tensor.F64:
		return zipRows(a, b, r.f64)
	case tensor.I64:
		return zipRows(a, b, r.i64).To(dt)
	case tensor.U64:
		return zipRows(a, b, r.u64)
	}
	return zipRows(a, b, r.bool)
}

// Row returns the function of an operator of two operands, or of any number of them one after the other, on runs of
// elements f32 that lie sx and sy apart: d[i] = f(x[i*sx], y[i*sy]). d may be either. It is nil of other operators.
func Row(kind string) func(d, x, y []float32, sx, sy int) {
	if f := binaryFuncs[kind].f32; f != nil {
		return f
	}
	return variadicFuncs[kind].f32
}

// tests holds a row function with bool results for each carrier.
type tests struct {
	f32  rowFunc[float32, bool]
	f64  rowFunc[float64, bool]
	i64  rowFunc[int64, bool]
	u64  rowFunc[uint64, bool]
	bool rowFunc[bool, bool]
	str  rowFunc[string, bool]
}

// takes reports whether elements of type dt can be compared.
func (r tests) takes(dt tensor.DType) bool {
	switch {
	case dt == tensor.String:
		return r.str != nil
	case dt == tensor.Bool:
		return r.bool != nil
	}
	return carrier(dt) != tensor.Undefined
}

// zip compares two broadcast tensors of one type, which r takes.
func (r tests) zip(a, b *tensor.Tensor) *tensor.Tensor {
	if a.DType() == tensor.String {
		shape := broadcastShapes(a.Shape(), b.Shape())
		out := tensor.New(tensor.Bool, shape...)
		eachRow(shape, out, a.Strings(), b.Strings(), a.Shape(), b.Shape(), r.str)
		return out
	}
	c := carrier(a.DType())
	a, b = a.To(c), b.To(c)
	switch c {
	case tensor.F32:
		return zipRows(a, b, r.f32)
	case tensor.F64:
		return zipRows(a, b, r.f64)
	case tensor.I64:
		return zipRows(a, b, r.i64)
	case tensor.U64:
		return zipRows(a, b, r.u64)
	}
	return zipRows(a, b, r.bool)
}

// zipRows applies f to the rows of two tensors, broadcast to one shape.
func zipRows[A, R tensor.Elem](a, b *tensor.Tensor, f rowFunc[A, R]) *tensor.Tensor {
	shape := broadcastShapes(a.Shape(), b.Shape())
	out := tensor.New(tensor.DTypeOf[R](), shape...)
	eachRow(shape, out, tensor.Data[A](a), tensor.Data[A](b), a.Shape(), b.Shape(), f)
	return out
}

// eachRow applies f to the rows of x and y, of shapes sx and sy, broadcast to
// shape, which is out's.
func eachRow[A any, R tensor.Elem](shape []int, out *tensor.Tensor, x, y []A, sx, sy []int, f rowFunc[A, R]) {
	d := tensor.Data[R](out)
	walkRows(shape, [][]int{broadcastStrides(sx, shape), broadcastStrides(sy, shape)}, func(at, n int, off, step []int) {
		f(d[at:at+n], x[off[0]:], y[off[1]:], step[0], step[1])
	})
}

// Pairs returns what computes a node that combines two operands of one type and of known shapes element by element, without
// allocating: integers, f64 or bools, of which out takes as many or bools. It is used by one caller at a time, and nil for other nodes.
func Pairs(n *ir.Node) func(out, x, y *tensor.Tensor) {
	if Operands(n) != 2 || len(n.Inputs) != 2 || len(n.Outputs) != 1 {
		return nil
	}
	var strides [][]int
	shape, ok := n.Outputs[0].Type.Shape()
	dt := n.Inputs[0].Type.DType
	for _, v := range n.Inputs {
		s, known := v.Type.Shape()
		if ok = ok && known && v.Type.DType == dt; !ok {
			return nil
		}
		strides = append(strides, broadcastStrides(s, shape))
	}
	plan, kind := planRows(shape, strides), n.Op.Kind()
	switch dt {
	case tensor.I8:
		return integerPairs[int8](plan, n.Op)
	case tensor.I16:
		return integerPairs[int16](plan, n.Op)
	case tensor.I32:
		return integerPairs[int32](plan, n.Op)
	case tensor.I64:
		return integerPairs[int64](plan, n.Op)
	case tensor.U8:
		return integerPairs[uint8](plan, n.Op)
	case tensor.U16:
		return integerPairs[uint16](plan, n.Op)
	case tensor.U32:
		return integerPairs[uint32](plan, n.Op)
	case tensor.U64:
		return integerPairs[uint64](plan, n.Op)
	case tensor.F64:
		of := binaryFuncs[kind].f64
		switch o := n.Op.(type) {
		case *Mod:
			of = o.rows().f64
		case *Variadic:
			if kind != "Mean" {
				of = variadicFuncs[kind].f64
			}
		}
		return zipped(plan, of, compareFuncs[kind].f64)
	case tensor.Bool:
		return zipped(plan, binaryFuncs[kind].bool, compareFuncs[kind].bool)
	}
	return nil
}

// integerPairs are Pairs of a type: what 64 bits give, cut off, narrower ones give, too.
func integerPairs[T integer](plan rowPlan, o ir.Op) func(out, x, y *tensor.Tensor) {
	switch o := o.(type) {
	case *Mod:
		if o.FMod {
			return zipped(plan, fmodRow[T], nil)
		}
		return zipped(plan, modRow[T], nil)
	case *BitShift:
		if o.Direction == "RIGHT" {
			return zipped(plan, shrRow[T], nil)
		}
		return zipped(plan, shlRow[T], nil)
	}
	return zipped(plan, map[string]rowFunc[T, T]{
		"Add": addRow[T], "BitwiseAnd": bitAndRow[T], "BitwiseOr": bitOrRow[T], "BitwiseXor": bitXorRow[T], "Div": quoRow[T],
		"Max": maxRow[T], "Min": minRow[T], "Mul": mulRow[T], "PRelu": preluRow[T], "Sub": subRow[T],
	}[o.Kind()], map[string]rowFunc[T, bool]{
		"Equal": equalRow[T], "Greater": greaterRow[T], "GreaterOrEqual": greaterEqualRow[T], "Less": lessRow[T], "LessOrEqual": lessEqualRow[T],
	}[o.Kind()])
}

// zipped applies to rows whichever function is not nil.
func zipped[T tensor.Elem](plan rowPlan, f rowFunc[T, T], test rowFunc[T, bool]) func(out, x, y *tensor.Tensor) {
	if f != nil {
		return zippedTo(plan, f)
	}
	if test != nil {
		return zippedTo(plan, test)
	}
	return nil
}

func zippedTo[T, R tensor.Elem](plan rowPlan, f rowFunc[T, R]) func(out, x, y *tensor.Tensor) {
	var d []R
	var a, b []T
	row := func(at, n int, off, step []int) { f(d[at:at+n], a[off[0]:], b[off[1]:], step[0], step[1]) }
	return func(out, x, y *tensor.Tensor) {
		d, a, b = tensor.Data[R](out), tensor.Data[T](x), tensor.Data[T](y)
		plan.each(row)
	}
}

// Rows returns what calls a function for each row of the output of a node of known shapes that combines its inputs element by
// element: n elements from one on, which inputs have from an offset on in steps. It is used by one caller at a time.
func Rows(n *ir.Node) func(f func(at, n int, off, step []int)) {
	shape, _ := n.Outputs[0].Type.Shape()
	var strides [][]int
	for _, v := range n.Inputs {
		s, _ := v.Type.Shape()
		strides = append(strides, broadcastStrides(s, shape))
	}
	return planRows(shape, strides).each
}

// walkRows splits a box of elements, read from several tensors with their
// strides, into rows as long as the strides allow, and calls f for each in
// row-major order: n elements that are number at and following of the box and
// lie at off[k], step[k] apart, in tensor k.
func walkRows(shape []int, strides [][]int, f func(at, n int, off, step []int)) {
	planRows(shape, strides).each(f)
}

// rowPlan is a box of elements split into rows.
type rowPlan struct {
	n     int     // the length of a row; 0 for an empty box
	step  []int   // how far apart its elements are in each tensor
	outer []int   // the dimensions over which rows are repeated
	steps [][]int // how far apart rows are in each tensor along those

	off, index []int // of the row in each tensor, and along outer; zero before each and behind it
}

func planRows(shape []int, strides [][]int) rowPlan {
	p := rowPlan{n: 1, step: make([]int, len(strides)), steps: make([][]int, len(strides))}
	for i := len(shape) - 1; i >= 0; i-- {
		d := shape[i]
		switch {
		case d == 0:
			return rowPlan{}
		case d == 1:
			continue
		}
		// Dimensions are joined from the last: the first of outer is the next
		// to the row.
		size, step := &p.n, p.step
		if last := len(p.outer) - 1; last >= 0 {
			size = &p.outer[last]
			step = make([]int, len(strides))
			for k := range step {
				step[k] = p.steps[k][last]
			}
		}
		join, first := true, *size == 1
		for k := range strides {
			join = join && strides[k][i] == step[k]*(*size)
		}
		switch {
		case first:
			*size = d
			for k := range strides {
				p.step[k] = strides[k][i]
			}
		case join:
			*size *= d
		default:
			p.outer = append(p.outer, d)
			for k := range strides {
				p.steps[k] = append(p.steps[k], strides[k][i])
			}
		}
	}
	p.off, p.index = make([]int, len(p.step)), make([]int, len(p.outer))
	return p
}

// each calls f for every row, in row-major order.
func (p rowPlan) each(f func(at, n int, off, step []int)) {
	if p.n == 0 {
		return
	}
	off, index := p.off, p.index
	for at := 0; ; at += p.n {
		f(at, p.n, off, p.step)
		i := 0
		for ; i < len(index); i++ {
			index[i]++
			for k := range off {
				off[k] += p.steps[k][i]
			}
			if index[i] < p.outer[i] {
				break
			}
			index[i] = 0
			for k := range off {
				off[k] -= p.steps[k][i] * p.outer[i]
			}
		}
		if i == len(index) {
			return
		}
	}
}

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

type float interface{ ~float32 | ~float64 }

type number interface{ integer | float }

func addRow[T number](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] + y[i*sy]
	}
}

func subRow[T number](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] - y[i*sy]
	}
}

func mulRow[T number](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] * y[i*sy]
	}
}

func divRow[T float](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] / y[i*sy]
	}
}

// quoRow divides integers toward zero; a quotient by zero is zero.
func quoRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = 0
		if b := y[i*sy]; b != 0 {
			d[i] = x[i*sx] / b
		}
	}
}

// modRow is the remainder that has the divisor's sign; modulo zero it is zero.
func modRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = 0
		if b := y[i*sy]; b != 0 {
			r := x[i*sx] % b
			if r != 0 && (r < 0) != (b < 0) {
				r += b
			}
			d[i] = r
		}
	}
}

// fmodRow is the remainder that has the dividend's sign; modulo zero it is zero.
func fmodRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = 0
		if b := y[i*sy]; b != 0 {
			d[i] = x[i*sx] % b
		}
	}
}

// floatModRow is C's fmod.
func floatModRow[T float](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = T(math.Mod(float64(x[i*sx]), float64(y[i*sy])))
	}
}

// floorModRow is the floating-point remainder that has the divisor's sign.
func floorModRow[T float](d, x, y []T, sx, sy int) {
	for i := range d {
		b := float64(y[i*sy])
		r := math.Mod(float64(x[i*sx]), b)
		if r != 0 && (r < 0) != (b < 0) {
			r += b
		}
		d[i] = T(r)
	}
}

func maxRow[T number](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = max(x[i*sx], y[i*sy])
	}
}

func minRow[T number](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = min(x[i*sx], y[i*sy])
	}
}

func preluRow[T number](d, x, y []T, sx, sy int) {
	for i := range d {
		v := x[i*sx]
		if v < 0 {
			v *= y[i*sy]
		}
		d[i] = v
	}
}

func powRow[T float](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = T(math.Pow(float64(x[i*sx]), float64(y[i*sy])))
	}
}

// ipowRow is the power of integers, modulo the range; a negative exponent gives
// the power cut to an integer.
func ipowRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = ipow(x[i*sx], y[i*sy])
	}
}

func ipow[T integer](x, n T) T {
	if n < 0 {
		switch {
		case x == 1 || x+1 == 0 && n%2 == 0:
			return 1
		case x+1 == 0:
			return x
		}
		return 0
	}
	p := T(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			p *= x
		}
		x *= x
	}
	return p
}

func bitAndRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] & y[i*sy]
	}
}

func bitOrRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] | y[i*sy]
	}
}

func bitXorRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] ^ y[i*sy]
	}
}

// shlRow and shrRow shift by counts taken as unsigned: one beyond the width of
// the type leaves nothing.
func shlRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] << uint64(y[i*sy])
	}
}

func shrRow[T integer](d, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] >> uint64(y[i*sy])
	}
}

func andRow(d, x, y []bool, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] && y[i*sy]
	}
}

func orRow(d, x, y []bool, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] || y[i*sy]
	}
}

func equalRow[T comparable](d []bool, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] == y[i*sy]
	}
}

func unequalRow[T comparable](d []bool, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] != y[i*sy]
	}
}

func lessRow[T number](d []bool, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] < y[i*sy]
	}
}

func lessEqualRow[T number](d []bool, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] <= y[i*sy]
	}
}

func greaterRow[T number](d []bool, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] > y[i*sy]
	}
}

func greaterEqualRow[T number](d []bool, x, y []T, sx, sy int) {
	for i := range d {
		d[i] = x[i*sx] >= y[i*sy]
	}
}
