// Package optest checks operators on inputs that nobody chose: it draws inputs
// and attributes, changes valid ones a little, and checks what every operator
// promises whatever it is given. It imports ir, ir/op and ir/tensor, and is for
// tests.
package optest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Case is an operator, its inputs (nil where absent), which of them are constants,
// and the number of outputs that are asked for.
type Case struct {
	Op     ir.Op
	Inputs []*tensor.Tensor
	Const  []bool
	Outs   int
}

func (c *Case) String() string {
	return fmt.Sprintf("%s %v of %v (constant %v), %d outputs", c.Op.Kind(), ir.Attrs(c.Op), c.Inputs, c.Const, c.Outs)
}

// large reports whether a type is of more elements than Check computes.
func large(t ir.Type) bool {
	shape, ok := t.Shape()
	if !ok {
		return false
	}
	n, err := tensor.Elems(shape)
	return err != nil || n > 1<<20
}

// Check infers the outputs' types and evaluates the operator. It returns an error
// where something panics, an input is written to, an output is missing, it or its
// tracked elements are not what was inferred, or the work is no number; taken says that
// Infer accepted the inputs. That Eval refuses them is no error. Outputs that are large are not computed.
func (c *Case) Check() (taken bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v: panic: %v", c, p)
		}
	}()
	g := ir.NewGraph("g")
	values := make([]*ir.Value, len(c.Inputs))
	before := make([]*tensor.Tensor, len(c.Inputs))
	for i, x := range c.Inputs {
		if x == nil {
			continue
		}
		before[i] = x.Clone()
		if c.Const[i] && !x.DType().IsList() {
			values[i] = g.NewConst("", x)
		} else {
			values[i] = g.NewInput("", ir.TypeOf(x))
		}
	}
	n := g.NewNode("node", c.Op, values, make([]string, c.Outs)...)
	if op.Registry.Check(n) != nil || n.Infer() != nil {
		return false, nil
	}
	exact, err := n.InferFor(c.Inputs[:len(n.Inputs)])
	if err != nil {
		exact = make([]ir.Type, c.Outs) // Eval may take elements that inference refuses
	}
	for i, v := range n.Outputs {
		if large(v.Type) || large(exact[i]) {
			return true, nil
		}
	}
	out, err := c.Op.Eval(&ir.Eval{Outputs: c.Outs}, c.Inputs[:len(n.Inputs)])
	if err != nil {
		return true, nil
	}
	for i, x := range c.Inputs {
		if !x.Equal(before[i]) {
			return true, fmt.Errorf("%v: input %d was written to", c, i)
		}
	}
	in, results := make([]ir.Type, len(n.Inputs)), make([]ir.Type, c.Outs)
	for i, v := range n.Inputs {
		if v != nil {
			in[i] = v.Type
		}
	}
	for i := range results {
		if i >= len(out) || out[i] == nil {
			return true, fmt.Errorf("%v: output %d is missing", c, i)
		}
		err := fits(out[i], n.Outputs[i].Type)
		if err == nil {
			err = fits(out[i], exact[i])
		}
		if err == nil {
			err = holds(out[i], n.Outputs[i].Elems)
		}
		if err != nil {
			return true, fmt.Errorf("%v: output %d: %w", c, i, err)
		}
		results[i] = ir.TypeOf(out[i])
	}
	if w := c.Op.Work(in, results); !(w.FLOPs >= 0 && w.Bytes >= 0) || math.IsInf(w.FLOPs, 0) {
		return true, fmt.Errorf("%v: work is %v", c, w)
	}
	return true, nil
}

// fits returns an error unless y is of type t, as far as that is known.
func fits(y *tensor.Tensor, t ir.Type) error {
	if t.DType == tensor.Undefined {
		return nil
	}
	ok := y.DType() == t.DType && (!t.Ranked || len(t.Dims) == y.Rank())
	for k := 0; ok && t.Ranked && k < y.Rank(); k++ {
		ok = !t.Dims[k].Known() || t.Dims[k].Size() == y.Dim(k)
	}
	if !ok {
		return fmt.Errorf("%v, but %v is inferred", y, t)
	}
	if t.Elem == nil {
		return nil
	}
	for i, e := range y.Items() {
		if err := fits(e, *t.Elem); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// holds returns an error unless the elements of y are those that were tracked; nil
// stands for none.
func holds(y *tensor.Tensor, elems []ir.Dim) error {
	if elems == nil {
		return nil
	}
	if len(elems) != y.Len() {
		return fmt.Errorf("%v, but %d elements are tracked", y, len(elems))
	}
	for k, e := range y.Int64s() {
		if elems[k].Known() && elems[k].Size() != int(e) {
			return fmt.Errorf("element %d is %d, but %v is tracked", k, e, elems[k])
		}
	}
	return nil
}

// Random draws a case of an operator.
func Random(r *rand.Rand, d *op.Def) *Case {
	o, err := op.New(d.Kind)
	if err != nil {
		panic(err) // every row of the table makes an operator
	}
	for range attrs(o) {
		randomAttr(r, o)
	}
	c := &Case{Op: o, Outs: pick(r, d.Out)}
	common, shape := randomType(r), randomShape(r)
	_, lists := o.(interface{ Lists() })
	for i := range pick(r, d.In) {
		if lists && r.IntN(1+2*i) == 0 {
			c.add(r, randomList(r, common, shape))
			continue
		}
		c.add(r, randomTensor(r, common, shape))
	}
	return c
}

// randomList draws a sequence of tensors like one of the type and shape, an optional of
// such or of a sequence, or a tensor.
func randomList(r *rand.Rand, dt tensor.DType, shape []int) *tensor.Tensor {
	var items []*tensor.Tensor
	for range r.IntN(4) {
		if x := randomTensor(r, dt, shape); x != nil && x.DType() == dt {
			items = append(items, x)
		}
	}
	s := tensor.NewSequence(dt, items...)
	switch k := r.IntN(8); {
	case k == 0:
		return tensor.NewOptional(s.DType(), s)
	case k == 1:
		return tensor.NewOptional(s.DType(), nil)
	case k == 2 && len(items) > 0:
		return tensor.NewOptional(dt, items[0])
	case k == 3:
		return tensor.NewOptional(dt, nil)
	case k == 4:
		return randomTensor(r, dt, shape)
	}
	return s
}

// mutateList takes an element from a list, adds one, or changes one.
func mutateList(r *rand.Rand, x *tensor.Tensor) *tensor.Tensor {
	items, dt := slices.Clone(x.Items()), x.DType().Elem()
	switch k := r.IntN(3); {
	case dt.IsList() || len(items) == 0:
		return randomList(r, tensor.F32, []int{2})
	case k == 0:
		i := r.IntN(len(items))
		items = slices.Delete(items, i, i+1)
	case k == 1:
		items = append(items, items[r.IntN(len(items))])
	default:
		i := r.IntN(len(items))
		if y := mutateTensor(r, items[i]); y != nil && y.DType() == dt {
			items[i] = y
		}
	}
	return tensor.NewSequence(dt, items...)
}

func (c *Case) add(r *rand.Rand, x *tensor.Tensor) {
	c.Inputs, c.Const = append(c.Inputs, x), append(c.Const, r.IntN(2) == 0)
}

// pick draws a number within bounds; a negative upper one is none.
func pick(r *rand.Rand, bound [2]int) int {
	most := bound[1]
	if most < 0 {
		most = bound[0] + 2
	}
	return bound[0] + r.IntN(most-bound[0]+1)
}

// Mutate returns a copy of the case with a few changes: of attributes, and of the
// presence, types, shapes and elements of inputs.
func (c *Case) Mutate(r *rand.Rand) *Case {
	m := &Case{cloneOp(c.Op), slices.Clone(c.Inputs), make([]bool, len(c.Inputs)), c.Outs}
	for i := range m.Const {
		m.Const[i] = r.IntN(2) == 0
	}
	for range 1 + r.IntN(2) {
		if len(m.Inputs) == 0 || r.IntN(3) == 0 {
			randomAttr(r, m.Op)
			continue
		}
		i := r.IntN(len(m.Inputs))
		m.Inputs[i] = mutateTensor(r, m.Inputs[i])
	}
	return m
}

// cloneOp copies an operator and its attributes, which share their slices.
func cloneOp(o ir.Op) ir.Op {
	v := reflect.New(reflect.TypeOf(o).Elem())
	v.Elem().Set(reflect.ValueOf(o).Elem())
	return v.Interface().(ir.Op)
}

func mutateTensor(r *rand.Rand, x *tensor.Tensor) *tensor.Tensor {
	if x == nil {
		return randomTensor(r, randomType(r), randomShape(r))
	}
	if x.DType().IsList() {
		return mutateList(r, x)
	}
	shape := slices.Clone(x.Shape())
	numeric := x.DType() != tensor.String && x.DType() != tensor.C64 && x.DType() != tensor.C128
	switch k := r.IntN(8); {
	case k == 0:
		return nil
	case k == 1:
		return randomTensor(r, x.DType(), shape)
	case k == 2 && numeric:
		if dt := randomType(r); dt != tensor.String && dt != tensor.C64 {
			return x.To(dt)
		}
		return randomTensor(r, randomType(r), shape)
	case k == 3:
		return resized(x, append(shape, 1))
	case k == 4 && len(shape) > 0:
		return resized(x, shape[1:])
	case k == 5 && len(shape) > 0:
		shape[r.IntN(len(shape))] = r.IntN(3)
		return resized(x, shape)
	case k == 6 && len(shape) > 0:
		shape[r.IntN(len(shape))]++
		return resized(x, shape)
	case x.Len() > 0 && numeric:
		y := x.Clone()
		at := r.IntN(x.Len())
		tensor.Copy(y, tensor.Scalar(randomInt(r)).To(x.DType()), nil, at, nil, 0, nil)
		return y
	}
	return resized(x, slices.Insert(shape, 0, 1))
}

// resized returns a tensor of another shape whose elements repeat those of x.
func resized(x *tensor.Tensor, shape []int) *tensor.Tensor {
	n, err := tensor.Elems(shape)
	if err != nil || n > 1<<20 {
		return x
	}
	y := tensor.New(x.DType(), shape...)
	for i := 0; i < n && x.Len() > 0; i++ {
		tensor.Copy(y, x, nil, i, nil, i%x.Len(), nil)
	}
	return y
}

// types are drawn as often as they are listed.
var types = []tensor.DType{tensor.F32, tensor.F32, tensor.F32, tensor.I64, tensor.I64, tensor.I32, tensor.F16, tensor.F64, tensor.U8,
	tensor.I8, tensor.Bool, tensor.String, tensor.U64, tensor.BF16, tensor.F8E4M3FN, tensor.I4, tensor.C64, tensor.F8E8M0}

func randomType(r *rand.Rand) tensor.DType { return types[r.IntN(len(types))] }

func randomShape(r *rand.Rand) []int {
	shape := make([]int, r.IntN(6))
	for i := range shape {
		shape[i] = []int{0, 1, 1, 2, 2, 3, 3, 4, 5}[r.IntN(9)]
	}
	return shape
}

// randomTensor draws a tensor of the type and shape, or one like it, or a short
// list of integers, as shapes and axes are, or none.
func randomTensor(r *rand.Rand, dt tensor.DType, shape []int) *tensor.Tensor {
	switch r.IntN(10) {
	case 0:
		dt = randomType(r)
	case 1:
		dt, shape = tensor.I64, []int{r.IntN(5)}
	case 2:
		dt, shape = tensor.I64, nil
	case 3:
		shape = randomShape(r)
	case 4:
		shape = shape[len(shape)-r.IntN(len(shape)+1):]
	case 5:
		shape = nil
	case 6:
		if r.IntN(2) == 0 {
			return nil
		}
	}
	n, err := tensor.Elems(shape)
	if err != nil || n > 1<<20 {
		return nil
	}
	v := make([]int64, n)
	for i := range v {
		v[i] = randomInt(r)
	}
	switch {
	case dt == tensor.String:
		s := make([]string, n)
		for i := range s {
			s[i] = fmt.Sprint(v[i])
		}
		return tensor.FromStrings(s, shape...)
	case dt == tensor.C64 || dt == tensor.C128:
		return tensor.New(dt, shape...)
	}
	return tensor.From(v, n).To(dt).Reshape(shape...)
}

// randomInt draws a small number, now and then one of any size.
func randomInt(r *rand.Rand) int64 {
	if r.IntN(100) == 0 {
		return int64(r.Uint64() >> r.IntN(64))
	}
	return int64(r.IntN(9)) - 3
}

// words are what operators take as strings.
var words = []string{"", "LEFT", "RIGHT", "max", "add", "mul", "min", "mean", "sum", "none", "nearest", "linear", "cubic", "reflect",
	"edge", "wrap", "constant", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "ij->ji", "ij,jk->ik", "...i->...", "bilinear", "zeros",
	"border", "avg", "tanh", "up", "down", "forward", "reverse", "bidirectional", "DCR", "CRD", "half_pixel", "align_corners",
	"asymmetric", "floor", "TF", "IDF", "Tanh", "Relu", "Sigmoid", "(", "[a-z]+"}

// attrs returns the fields of an operator's attributes.
func attrs(o ir.Op) []reflect.StructField {
	var out []reflect.StructField
	for _, f := range reflect.VisibleFields(reflect.TypeOf(o).Elem()) {
		if _, ok := f.Tag.Lookup("attr"); ok {
			out = append(out, f)
		}
	}
	return out
}

// randomAttr sets one of the operator's attributes, if it has any.
func randomAttr(r *rand.Rand, o ir.Op) {
	fields := attrs(o)
	if len(fields) == 0 {
		return
	}
	f := fields[r.IntN(len(fields))]
	var v any
	switch f.Type {
	case reflect.TypeFor[int](), reflect.TypeFor[*int]():
		if v = r.IntN(7) - 3; r.IntN(20) == 0 {
			v = int(r.Uint64() >> r.IntN(64))
		}
	case reflect.TypeFor[bool]():
		v = r.IntN(2)
	case reflect.TypeFor[float32](), reflect.TypeFor[*float32]():
		v = float32(r.IntN(9)-4) / 2
	case reflect.TypeFor[string]():
		v = words[r.IntN(len(words))]
	case reflect.TypeFor[tensor.DType]():
		v = int(randomType(r))
	case reflect.TypeFor[[]int]():
		ints := make([]int, r.IntN(6))
		for i := range ints {
			if ints[i] = r.IntN(7) - 2; r.IntN(30) == 0 {
				ints[i] = int(r.Uint64() >> r.IntN(64))
			}
		}
		v = ints
	case reflect.TypeFor[[]float32]():
		v = []float32{1, 0.5, float32(r.IntN(5) - 2)}[:r.IntN(4)]
	case reflect.TypeFor[[]string]():
		v = []string{words[r.IntN(len(words))], "1", "2"}[:r.IntN(4)]
	case reflect.TypeFor[*tensor.Tensor]():
		v = randomTensor(r, randomType(r), randomShape(r))
	default:
		return
	}
	name, _, _ := strings.Cut(f.Tag.Get("attr"), ",")
	if err := ir.SetAttr(o, name, v); err != nil {
		return // a value of a kind that the attribute does not take leaves it as it is
	}
}
