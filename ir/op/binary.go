package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// aligned is the broadcasting of two inputs.
type aligned struct {
	combining
	// Axis, where it is set, aligns the second input's first dimension with that
	// axis of the first: the broadcasting of opsets below 7.
	Axis *int `attr:"axis" old:"7"`
}

// Operands counts none where an axis is aligned otherwise than numpy does.
func (o aligned) Operands(n *ir.Node) int {
	if o.Axis != nil {
		return 0
	}
	return o.combining.Operands(n)
}

// Along is that of broadcasting.
func (o aligned) Along(n *ir.Node, out, axis int) []int {
	if o.Axis != nil {
		return nil
	}
	return o.combining.Along(n, out, axis)
}

// second returns the second input's type with dimensions of one appended, so
// that it broadcasts as the axis says.
func (o aligned) second(c *ir.Infer) (ir.Type, error) {
	a, b := c.In(0), c.In(1)
	if o.Axis == nil || !a.Ranked || !b.Ranked || len(b.Dims) == 0 {
		return b, nil
	}
	at, err := axis(c, *o.Axis, len(a.Dims))
	if err != nil {
		return b, err
	}
	if at+len(b.Dims) > len(a.Dims) {
		return b, c.Errorf("shape %v at axis %d does not fit %v", b, at, a)
	}
	dims := append([]ir.Dim{}, b.Dims...)
	for len(dims) < len(a.Dims)-at {
		dims = append(dims, ir.Size(1))
	}
	return ir.Of(b.DType, dims...), nil
}

// align returns the second tensor with dimensions of one appended, so that it
// broadcasts as the axis says.
func (o aligned) align(a, b *tensor.Tensor) *tensor.Tensor {
	if o.Axis == nil || b.Rank() == 0 {
		return b
	}
	shape := append([]int{}, b.Shape()...)
	for len(shape) < a.Rank()-norm(*o.Axis, a.Rank()) {
		shape = append(shape, 1)
	}
	return b.Reshape(shape...)
}

// infer sets the output to the type dt broadcast from both inputs, and its
// elements, as far as f tells what becomes of two.
func (o aligned) infer(c *ir.Infer, dt tensor.DType, f elemFunc) error {
	b, err := o.second(c)
	if err != nil {
		return err
	}
	if err := setBroadcast(c, dt, c.In(0), b); err != nil {
		return err
	}
	if o.Axis == nil && f != nil {
		zipElems(c, f)
	}
	return nil
}

// setBroadcast sets output 0 to the type dt of the shape that types broadcast to.
func setBroadcast(c *ir.Infer, dt tensor.DType, types ...ir.Type) error {
	dims, ok, err := broadcast(c, types...)
	if err != nil {
		return err
	}
	if ok {
		c.Set(0, ir.Of(dt, dims...))
	} else {
		c.Set(0, ir.Unranked(dt))
	}
	return nil
}

// elemFunc computes what is known of an element from those of the operands; ok
// is false when nothing is.
type elemFunc func(x ...ir.Dim) (d ir.Dim, ok bool)

// zipElems tracks the elements of small integer tensors through an operator that
// combines all its inputs element by element. i64 and i32 are sizes and indices;
// the narrow types are not tracked, for they overflow early.
func zipElems(c *ir.Infer, f elemFunc) {
	n := c.Len()
	elems := make([][]ir.Dim, n)
	shapes := make([][]int, n)
	for k := range n {
		var ok bool
		switch c.In(k).DType {
		case tensor.I64, tensor.I32, tensor.Bool:
		default:
			return
		}
		if elems[k], ok = c.Elems(k); !ok {
			return
		}
		if shapes[k], ok = c.In(k).Shape(); !ok || product(shapes[k]) != len(elems[k]) {
			return
		}
	}
	shape := broadcastShapes(shapes...)
	strides := make([][]int, n)
	for k := range n {
		strides[k] = broadcastStrides(shapes[k], shape)
	}
	if !small(ir.Shaped(tensor.I64, shape...)) {
		return
	}
	out := make([]ir.Dim, 0, product(shape))
	args := make([]ir.Dim, n)
	walkRows(shape, strides, func(_, count int, off, step []int) {
		for i := range count {
			for k := range args {
				args[k] = elems[k][off[k]+i*step[k]]
			}
			d, ok := f(args...)
			if !ok || d.Known() && c.In(n-1).DType == tensor.I32 && d.Size() != int(int32(d.Size())) {
				d = c.Fresh()
			}
			out = append(out, d)
		}
	})
	c.SetElems(0, out)
}

// knownElem makes an elemFunc of a function of known elements.
func knownElem(f func(x, y int) (int, bool)) elemFunc {
	return func(x ...ir.Dim) (ir.Dim, bool) {
		if !x[0].Known() || !x[1].Known() {
			return ir.Dim{}, false
		}
		n, ok := f(x[0].Size(), x[1].Size())
		return ir.Size(n), ok
	}
}

func addElem(x ...ir.Dim) (ir.Dim, bool) { return ir.Sum(x...), true }

func subElem(x ...ir.Dim) (ir.Dim, bool) { return ir.Sum(x[0], ir.Mul(ir.Size(-1), x[1])), true }

func mulElem(x ...ir.Dim) (ir.Dim, bool) { return ir.Mul(x...), true }

// divElem does not divide by what may be zero, as any symbol may.
func divElem(x ...ir.Dim) (ir.Dim, bool) {
	switch {
	case !x[1].Known():
		return ir.Dim{}, false
	case x[0].Known() && x[1].Size() != 0:
		return ir.Size(x[0].Size() / x[1].Size()), true
	}
	return ir.Div(x[0], x[1])
}

func modElem(x ...ir.Dim) (ir.Dim, bool) {
	switch {
	case x[0].Known() && x[1].Known() && x[1].Size() != 0:
		r := x[0].Size() % x[1].Size()
		if r != 0 && (r < 0) != (x[1].Size() < 0) {
			r += x[1].Size()
		}
		return ir.Size(r), true
	case x[1].Known() && x[1].Size() != 0:
		_, divides := ir.Div(x[0], x[1])
		return ir.Size(0), divides
	}
	return ir.Dim{}, false
}

func maxElem(x ...ir.Dim) (ir.Dim, bool) {
	d := x[0]
	for _, e := range x[1:] {
		switch {
		case d == e || lessThan(e, d):
		case lessThan(d, e):
			d = e
		default:
			return ir.Dim{}, false
		}
	}
	return d, true
}

func minElem(x ...ir.Dim) (ir.Dim, bool) {
	d := x[0]
	for _, e := range x[1:] {
		switch {
		case d == e || lessThan(d, e):
		case lessThan(e, d):
			d = e
		default:
			return ir.Dim{}, false
		}
	}
	return d, true
}

// lessThan reports whether x is surely below y.
func lessThan(x, y ir.Dim) bool { return ir.AtMost(ir.Add(x, 1), y) }

// equalElem compares elements: 1 where they are surely equal, 0 where they
// surely differ.
func equalElem(x ...ir.Dim) (ir.Dim, bool) {
	switch {
	case x[0] == x[1]:
		return ir.Size(1), true
	case lessThan(x[0], x[1]) || lessThan(x[1], x[0]):
		return ir.Size(0), true
	}
	return ir.Dim{}, false
}

func lessElem(x ...ir.Dim) (ir.Dim, bool) {
	switch {
	case lessThan(x[0], x[1]):
		return ir.Size(1), true
	case x[0] == x[1] || lessThan(x[1], x[0]):
		return ir.Size(0), true
	}
	return ir.Dim{}, false
}

func greaterElem(x ...ir.Dim) (ir.Dim, bool) { return lessElem(x[1], x[0]) }

func lessEqualElem(x ...ir.Dim) (ir.Dim, bool) { return notElem(greaterElem(x...)) }

func greaterEqualElem(x ...ir.Dim) (ir.Dim, bool) { return notElem(lessElem(x...)) }

func notElem(d ir.Dim, ok bool) (ir.Dim, bool) { return ir.Size(1 - d.Size()), ok }

// Binary combines two broadcast inputs of one type element by element.
type Binary struct {
	family
	aligned
}

// binaryFuncs holds, for each operator, its row functions and what it makes of
// elements that inference tracks.
var binaryFuncs = map[string]struct {
	rows
	elem elemFunc
}{
	"Add": {rows{f32: addRow[float32], f64: addRow[float64], i64: addRow[int64], u64: addRow[uint64]}, addElem},
	"And": {rows{bool: andRow}, knownElem(func(x, y int) (int, bool) { return x & y, true })},
	"BitwiseAnd": {rows{i64: bitAndRow[int64], u64: bitAndRow[uint64]},
		knownElem(func(x, y int) (int, bool) { return x & y, true })},
	"BitwiseOr": {rows{i64: bitOrRow[int64], u64: bitOrRow[uint64]},
		knownElem(func(x, y int) (int, bool) { return x | y, true })},
	"BitwiseXor": {rows{i64: bitXorRow[int64], u64: bitXorRow[uint64]},
		knownElem(func(x, y int) (int, bool) { return x ^ y, true })},
	"Div":   {rows{f32: divRow[float32], f64: divRow[float64], i64: quoRow[int64], u64: quoRow[uint64]}, divElem},
	"Mul":   {rows{f32: mulRow[float32], f64: mulRow[float64], i64: mulRow[int64], u64: mulRow[uint64]}, mulElem},
	"Or":    {rows{bool: orRow}, knownElem(func(x, y int) (int, bool) { return x | y, true })},
	"PRelu": {rows{f32: preluRow[float32], f64: preluRow[float64], i64: preluRow[int64], u64: preluRow[uint64]}, nil},
	"Sub":   {rows{f32: subRow[float32], f64: subRow[float64], i64: subRow[int64], u64: subRow[uint64]}, subElem},
	"Xor":   {rows{bool: unequalRow[bool]}, knownElem(func(x, y int) (int, bool) { return x ^ y, true })},
}

// Same combines with a neutral element.
func (o *Binary) Same(n *ir.Node) int {
	neutral, commutes := 0.0, false
	switch o.kind {
	case "Add":
		commutes = true
	case "Mul":
		neutral, commutes = 1, true
	case "Div":
		neutral = 1
	case "Sub":
	default:
		return -1
	}
	switch {
	case alike(n, 0) && constantly(n.Inputs[1], neutral):
		return 0
	case commutes && alike(n, 1) && constantly(n.Inputs[0], neutral):
		return 1
	}
	return -1
}

// Infer broadcasts the inputs' shapes.
func (o *Binary) Infer(c *ir.Infer) error {
	f := binaryFuncs[o.kind]
	if err := wantTaken(c, 2, f.takes); err != nil {
		return err
	}
	return o.infer(c, c.In(0).DType, f.elem)
}

// wantTaken refuses the first n inputs where they are absent, differ in their types
// or have one that takes is false for.
func wantTaken(c *ir.Infer, n int, takes func(tensor.DType) bool) error {
	if err := wantPresent(c, n); err != nil {
		return err
	}
	if dt := c.In(0).DType; !takes(dt) {
		return c.Errorf("inputs of type %v are not among those that the operator takes", dt)
	}
	for i := 1; i < n; i++ {
		if err := wantSame(c, i); err != nil {
			return err
		}
	}
	return nil
}

// Eval combines the elements.
func (o *Binary) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(binaryFuncs[o.kind].zip(in[0], o.align(in[0], in[1])))
}

// binaryGrads holds the gradients by both operands, for the operators that have them.
var binaryGrads = map[string][2]gradRow{
	"Add": {passRow, passRow},
	"Sub": {passRow, func(d, g, _, _ []float32, _, _ int) {
		for i, v := range g {
			d[i] = -v
		}
	}},
	"Mul": {func(d, g, _, y []float32, _, sy int) {
		for i, v := range g {
			d[i] = v * y[i*sy]
		}
	}, func(d, g, x, _ []float32, sx, _ int) {
		for i, v := range g {
			d[i] = v * x[i*sx]
		}
	}},
	"Div": {func(d, g, _, y []float32, _, sy int) {
		for i, v := range g {
			d[i] = v / y[i*sy]
		}
	}, func(d, g, x, y []float32, sx, sy int) {
		for i, v := range g {
			b := y[i*sy]
			d[i] = -v * x[i*sx] / (b * b)
		}
	}},
	"PRelu": {func(d, g, x, y []float32, sx, sy int) {
		for i, v := range g {
			if x[i*sx] < 0 {
				v *= y[i*sy]
			}
			d[i] = v
		}
	}, func(d, g, x, _ []float32, sx, _ int) {
		for i, v := range g {
			d[i] = v * min(x[i*sx], 0)
		}
	}},
}

// Grad sums what each operand contributes to the elements that it is broadcast to.
func (o *Binary) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	f, ok := binaryGrads[o.kind]
	if !ok {
		return nil, errNoGrad("of %s", o.kind)
	}
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	x, y := in[0], o.align(in[0], in[1])
	for i, t := range []*tensor.Tensor{x, y} {
		if !c.wants(i) {
			continue
		}
		switch {
		case o.kind == "Add" || o.kind == "Sub" && i == 0:
			din[i] = c.sumTo(dout[0], t.Shape())
		default:
			din[i] = c.zipGrad(dout[0], x, y, i == 1, f[i])
		}
		din[i] = din[i].Reshape(in[i].Shape()...)
	}
	return din, nil
}

// Forward combines the elements.
func (o *Binary) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	f := binaryFuncs[o.kind].f32
	if f == nil {
		return o.Eval(nil, in)
	}
	x, y := in[0], o.align(in[0], in[1])
	out := c.New(broadcastShapes(x.Shape(), y.Shape())...)
	eachRow(out.Shape(), out, x.F32s(), y.F32s(), x.Shape(), y.Shape(), f)
	return one(out)
}

// Compare compares two broadcast inputs of one type element by element.
type Compare struct {
	family
	aligned
}

// compareFuncs holds, for each operator, its row functions and what it makes of
// elements that inference tracks.
var compareFuncs = map[string]struct {
	tests
	elem elemFunc
}{
	"Equal": {tests{equalRow[float32], equalRow[float64], equalRow[int64], equalRow[uint64], equalRow[bool], equalRow[string]}, equalElem},
	"Greater": {tests{greaterRow[float32], greaterRow[float64], greaterRow[int64], greaterRow[uint64], nil, nil},
		greaterElem},
	"GreaterOrEqual": {tests{greaterEqualRow[float32], greaterEqualRow[float64], greaterEqualRow[int64], greaterEqualRow[uint64], nil, nil},
		greaterEqualElem},
	"Less": {tests{lessRow[float32], lessRow[float64], lessRow[int64], lessRow[uint64], nil, nil}, lessElem},
	"LessOrEqual": {tests{lessEqualRow[float32], lessEqualRow[float64], lessEqualRow[int64], lessEqualRow[uint64], nil, nil},
		lessEqualElem},
}

// Infer broadcasts the inputs' shapes to a bool tensor.
func (o *Compare) Infer(c *ir.Infer) error {
	f := compareFuncs[o.kind]
	if err := wantTaken(c, 2, f.takes); err != nil {
		return err
	}
	return o.infer(c, tensor.Bool, f.elem)
}

// Eval compares the elements.
func (o *Compare) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(compareFuncs[o.kind].zip(in[0], o.align(in[0], in[1])))
}

// Pow raises the elements of the first input to the powers of the second, which
// may have another type; the result has the first input's.
type Pow struct {
	aligned
}

// Kind is Pow.
func (*Pow) Kind() string { return "Pow" }

var (
	powRows  = rows{f32: powRow[float32], f64: powRow[float64]}
	ipowRows = rows{i64: ipowRow[int64], u64: ipowRow[uint64]}
)

// Same raises to the power of one.
func (*Pow) Same(n *ir.Node) int { return sameIf(alike(n, 0) && constantly(n.Inputs[1], 1)) }

// Infer broadcasts the inputs' shapes.
func (o *Pow) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	for i := range 2 {
		if dt := c.In(i).DType; !powRows.takes(dt) && !ipowRows.takes(dt) {
			return c.Errorf("input %d is %v, want numbers", i, dt)
		}
	}
	return o.infer(c, c.In(0).DType, nil)
}

// Eval computes powers of floats as floats; integers to the power of integers
// wrap around.
func (o *Pow) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, y := in[0], o.align(in[0], in[1])
	dt := x.DType()
	switch {
	case dt.IsInt() && y.DType().IsInt():
		return one(ipowRows.zip(x, y.To(dt)))
	case dt == tensor.F64 || y.DType() == tensor.F64 || dt.IsInt() || y.DType().IsInt():
		return one(powRows.zip(x.To(tensor.F64), y.To(tensor.F64)).To(dt))
	}
	return one(powRows.zip(x.To(tensor.F32), y.To(tensor.F32)).To(dt))
}

// Grad multiplies by y x^(y-1); there is none by the exponent.
func (o *Pow) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if err := c.wantOnly(1); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if !c.wants(0) || dout[0] == nil {
		return din, nil
	}
	din[0] = c.zipGrad(dout[0], in[0], o.align(in[0], in[1]).To(tensor.F32), false, func(d, g, x, y []float32, sx, sy int) {
		for i, v := range g {
			switch a, n := x[i*sx], y[i*sy]; n {
			case 2:
				d[i] = v * 2 * a
			default:
				d[i] = v * n * float32(math.Pow(float64(a), float64(n-1)))
			}
		}
	})
	return din, nil
}

// Forward computes the powers; squares as products.
func (o *Pow) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0]
	if p := in[1]; p.Len() != 1 || p.Rank() > x.Rank() || p.Float64s()[0] != 2 {
		return o.Eval(nil, in)
	}
	out := c.New(x.Shape()...)
	d := out.F32s()
	for i, v := range x.F32s() {
		d[i] = v * v
	}
	return one(out)
}

// Mod is the remainder of the division of two broadcast inputs: with the sign of
// the divisor, or of the dividend where FMod is set.
type Mod struct {
	combining
	FMod bool `attr:"fmod,0"`
}

// Kind is Mod.
func (*Mod) Kind() string { return "Mod" }

func (o *Mod) rows() rows {
	if o.FMod {
		return rows{f32: floatModRow[float32], f64: floatModRow[float64], i64: fmodRow[int64], u64: fmodRow[uint64]}
	}
	return rows{f32: floorModRow[float32], f64: floorModRow[float64], i64: modRow[int64], u64: modRow[uint64]}
}

// Infer broadcasts the inputs' shapes.
func (o *Mod) Infer(c *ir.Infer) error {
	if err := wantTaken(c, 2, o.rows().takes); err != nil {
		return err
	}
	if o.FMod {
		return aligned{}.infer(c, c.In(0).DType, nil)
	}
	return aligned{}.infer(c, c.In(0).DType, modElem)
}

// Eval computes the remainders.
func (o *Mod) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return one(o.rows().zip(in[0], in[1]))
}

// BitShift shifts unsigned integers by broadcast counts.
type BitShift struct {
	combining
	Direction string `attr:"direction"`
}

// Kind is BitShift.
func (*BitShift) Kind() string { return "BitShift" }

// Infer broadcasts the inputs' shapes.
func (o *BitShift) Infer(c *ir.Infer) error {
	if o.Direction != "LEFT" && o.Direction != "RIGHT" {
		return c.Errorf("direction is %q, want LEFT or RIGHT", o.Direction)
	}
	if err := wantTaken(c, 2, tensor.DType.IsUnsigned); err != nil {
		return err
	}
	return aligned{}.infer(c, c.In(0).DType, nil)
}

// Eval shifts the elements.
func (o *BitShift) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	r := rows{i64: shlRow[int64], u64: shlRow[uint64]}
	if o.Direction == "RIGHT" {
		r = rows{i64: shrRow[int64], u64: shrRow[uint64]}
	}
	return one(r.zip(in[0], in[1]))
}

// Variadic combines any number of broadcast inputs of one type element by
// element.
type Variadic struct {
	family
	combining
}

// variadicFuncs holds, for each operator, the row functions that join one more
// input to the result and what it makes of elements that inference tracks.
var variadicFuncs = map[string]struct {
	rows
	elem elemFunc
}{
	"Max":  {rows{f32: maxRow[float32], f64: maxRow[float64], i64: maxRow[int64], u64: maxRow[uint64]}, maxElem},
	"Mean": {rows{f32: addRow[float32], f64: addRow[float64]}, nil},
	"Min":  {rows{f32: minRow[float32], f64: minRow[float64], i64: minRow[int64], u64: minRow[uint64]}, minElem},
	"Sum":  {rows{f32: addRow[float32], f64: addRow[float64]}, nil},
}

// Same combines one tensor with nothing.
func (*Variadic) Same(n *ir.Node) int { return sameIf(len(n.Inputs) == 1 && alike(n, 0)) }

// Infer broadcasts the inputs' shapes.
func (o *Variadic) Infer(c *ir.Infer) error {
	f := variadicFuncs[o.kind]
	if err := wantTaken(c, c.Len(), f.takes); err != nil {
		return err
	}
	types := make([]ir.Type, c.Len())
	for i := range types {
		types[i] = c.In(i)
	}
	if err := setBroadcast(c, types[0].DType, types...); err != nil {
		return err
	}
	if f.elem != nil {
		zipElems(c, f.elem)
	}
	return nil
}

// Work counts an operation for each input and output element.
func (o *Variadic) Work(in, out []ir.Type) ir.Work { return streamWork(in, out, float64(len(in))) }

// Eval joins the inputs one by one.
func (o *Variadic) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return viaF32(in, func(in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		f := variadicFuncs[o.kind]
		out := in[0]
		for _, t := range in[1:] {
			out = f.zip(out, t)
		}
		if o.kind == "Mean" {
			n := tensor.Scalar(float64(len(in))).To(out.DType())
			out = rows{f32: divRow[float32], f64: divRow[float64]}.zip(out, n)
		}
		return one(out)
	})
}

// Grad gives the gradient of a sum to each input, that of a mean in equal parts, and
// that of a maximum or minimum to the first input that is it.
func (o *Variadic) Grad(c *GradContext, in, out, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	din := make([]*tensor.Tensor, len(in))
	g := dout[0]
	if g == nil {
		return din, nil
	}
	if o.kind == "Sum" || o.kind == "Mean" {
		if o.kind == "Mean" {
			part := c.New(g.Shape()...)
			d, n := part.F32s(), float32(len(in))
			for i, v := range g.F32s() {
				d[i] = v / n
			}
			g = part
		}
		for i, t := range in {
			if c.wants(i) {
				din[i] = c.sumTo(g, t.Shape())
			}
		}
		return din, nil
	}
	x, dx := make([][]float32, len(in)), make([][]float32, len(in))
	strides := make([][]int, len(in))
	for i, t := range in {
		x[i], strides[i] = t.F32s(), broadcastStrides(t.Shape(), g.Shape())
		if c.wants(i) {
			din[i] = c.Zeros(t.Shape()...)
			dx[i] = din[i].F32s()
		}
	}
	gv, y := g.F32s(), out[0].F32s()
	walkRows(g.Shape(), strides, func(at, n int, off, step []int) {
		for i := at; i < at+n; i++ {
			for k := range x {
				if p := off[k] + (i-at)*step[k]; x[k][p] == y[i] {
					if dx[k] != nil {
						dx[k][p] += gv[i]
					}
					break
				}
			}
		}
	})
	return din, nil
}

// upgradeBinary keeps the axis of the broadcasting of opsets below 7.
func upgradeBinary(l *Legacy) error {
	if l.Opset >= 7 {
		return nil
	}
	l.Take("consumed_inputs")
	if b := l.Take("broadcast"); b == nil || b == 0 {
		l.Take("axis")
	}
	return nil
}

// upgradePRelu aligns the slopes of opsets below 7, one a channel, with the
// channel axis.
func upgradePRelu(l *Legacy) error {
	if l.Opset >= 7 {
		return nil
	}
	l.Take("consumed_inputs")
	if len(l.Inputs) < 2 || l.Inputs[1] == nil {
		return nil
	}
	if slope := l.Inputs[1].Type; slope.Ranked && len(slope.Dims) == 1 && slope.Dims[0] != ir.Size(1) {
		l.Attrs["axis"] = 1
	}
	return nil
}
