package cuda

import (
	"math"
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Limits of kernels for chains, as in chain.cu, and how many instructions cost less than the
// memory that they spare.
const (
	chainRegisters    = 8
	chainOperands     = 6
	chainInstructions = 24
	chainVector       = 4 // elements of a thread
)

// Functions of chains, numbered as in chain.cu.
const (
	fAbs = 16 + iota
	fNeg
	fNot
	fNotZero
	fSign
	fCeil
	fFloor
	fRound
	fSqrt
	fReciprocal
	fExp
	fLog
	fErf
	fSoftplus
	fSoftsign
	fNarrow
	fIsNaN
	fIsInf
	fSin
	fCos
	fTan
	fAsin
	fAcos
	fAtan
	fSinh
	fCosh
	fAsinh
	fAcosh
	fAtanh
	fMish
	fElu
	fSelu
	fCelu
	fThresholded
)

const (
	fAdd = 64 + iota
	fSub
	fMul
	fDiv
	fMax
	fMin
	fPRelu
	fPow
	fMod
	fFMod
	fEqual
	fLess
	fLessOrEqual
	fGreater
	fGreaterOrEqual
	fAnd
	fOr
	fXor
)

const (
	fSwish  = 7 // of the activations
	fSelect = 96
)

// kinds are what operands of chains hold besides floats of the device, numbered as in chain.cu;
// elements of i64 are the own ones of a chain of integers.
var kinds = map[tensor.DType]int{tensor.I64: 1, tensor.I32: 2, tensor.U8: 3, tensor.Bool: 3, tensor.I8: 4}

// carrier is what the registers of a chain hold.
type carrier int

const (
	either carrier = iota // bools, which both hold
	floating
	integers
)

// function is what an operator does to elements: unary ones to the first input, binary ones to
// the first two and then to what came out and the next, Select to three.
type function struct {
	code     int
	integers bool                                     // it takes integers besides floats
	args     func(n *ir.Node) (a, b float32, ok bool) // its parameters
}

// elementwise lists the operators that chains are made of, activations besides.
var elementwise = map[string]function{
	"Abs": {code: fAbs, integers: true}, "Acos": {code: fAcos}, "Acosh": {code: fAcosh}, "Asin": {code: fAsin}, "Asinh": {code: fAsinh},
	"Atan": {code: fAtan}, "Atanh": {code: fAtanh}, "Ceil": {code: fCeil}, "Cos": {code: fCos}, "Cosh": {code: fCosh}, "Erf": {code: fErf},
	"Exp": {code: fExp}, "Floor": {code: fFloor}, "IsNaN": {code: fIsNaN}, "Log": {code: fLog}, "Mish": {code: fMish},
	"Neg": {code: fNeg, integers: true}, "Not": {code: fNot, integers: true}, "Reciprocal": {code: fReciprocal}, "Round": {code: fRound},
	"Sign": {code: fSign, integers: true}, "Sin": {code: fSin}, "Sinh": {code: fSinh}, "Softplus": {code: fSoftplus},
	"Softsign": {code: fSoftsign}, "Sqrt": {code: fSqrt}, "Tan": {code: fTan},

	"Celu": {code: fCelu, args: attributes("alpha")}, "Elu": {code: fElu, args: attributes("alpha")}, "Selu": {code: fSelu, args: attributes("alpha", "gamma")},
	"ThresholdedRelu": {code: fThresholded, args: attributes("alpha")},
	"IsInf":           {code: fIsInf, args: signs},

	"Add": {code: fAdd, integers: true}, "Sub": {code: fSub, integers: true}, "Mul": {code: fMul, integers: true}, "Div": {code: fDiv, integers: true},
	"Max": {code: fMax, integers: true}, "Min": {code: fMin, integers: true}, "Mod": {code: fMod, integers: true}, "Pow": {code: fPow}, "PRelu": {code: fPRelu},
	"Sum": {code: fAdd}, "Mean": {code: fAdd}, "SwiGLU": {code: fMul}, // and more steps
	"Equal": {code: fEqual, integers: true}, "Less": {code: fLess, integers: true}, "LessOrEqual": {code: fLessOrEqual, integers: true},
	"Greater": {code: fGreater, integers: true}, "GreaterOrEqual": {code: fGreaterOrEqual, integers: true},
	"And": {code: fAnd, integers: true}, "Or": {code: fOr, integers: true}, "Xor": {code: fXor, integers: true},

	"Where": {code: fSelect, integers: true},
	"Cast":  {integers: true}, // whose types say what it does
}

// attributes reads parameters that are attributes.
func attributes(names ...string) func(n *ir.Node) (a, b float32, ok bool) {
	return func(n *ir.Node) (float32, float32, bool) {
		var args [2]float32
		for i, name := range names {
			v, ok := ir.AttrOf(n.Op, name).(float32)
			if !ok {
				return 0, 0, false
			}
			args[i] = v
		}
		return args[0], args[1], true
	}
}

// signs tells of which signs IsInf finds infinities.
func signs(n *ir.Node) (negative, positive float32, ok bool) {
	o := n.Op.(*op.IsInf)
	if o.Negative {
		negative = 1
	}
	if o.Positive {
		positive = 1
	}
	return negative, positive, true
}

// functionOf returns what a node does to elements, and its parameters.
func functionOf(n *ir.Node) (f function, a, b float32, ok bool) {
	if _, is := op.Activations[n.Op.Kind()]; is {
		args, ok := op.ActivationArgs(n)
		if !ok {
			return f, 0, 0, false
		}
		code, a, b, err := backend.GPUActivation(&op.Epilogue{Act: n.Op.Kind(), ActArgs: args})
		return function{code: code}, a, b, err == nil
	}
	f, ok = elementwise[n.Op.Kind()]
	if ok && f.args != nil {
		a, b, ok = f.args(n)
	}
	if o, is := n.Op.(*op.Mod); is && o.FMod {
		f.code = fFMod
	}
	return f, a, b, ok && ir.AttrOf(n.Op, "axis") == nil
}

// operandsOf are the inputs of a node whose elements it combines.
func operandsOf(n *ir.Node) []*ir.Value {
	if n.Op.Kind() == "Clip" {
		return n.Inputs[:1]
	}
	return n.Inputs
}

// carrierOf returns what registers must hold for a node, false where chains do not have it.
func carrierOf(n *ir.Node) (carrier, bool) {
	f, _, _, ok := functionOf(n)
	y := n.Outputs[0]
	if !ok || len(n.Outputs) != 1 || prod(shapeOf(y)) == 0 {
		return 0, false
	}
	held := func(dt tensor.DType) carrier {
		switch dt {
		case tensor.F32:
			return floating
		case tensor.Bool:
			return either
		}
		return integers
	}
	x := n.Inputs[0].Type.DType
	if n.Op.Kind() == "Cast" {
		_, is := kinds[x]
		to := y.Type.DType
		ok := (is || x == tensor.F32) && (to == tensor.F32 || to == tensor.I64 || to == tensor.I32 || to == tensor.Bool)
		if x == tensor.F32 || to == tensor.F32 { // integers are converted as they are loaded or stored
			return floating, ok
		}
		return max(held(x), held(to)), ok
	}
	all := either
	for _, v := range append(slices.Clone(operandsOf(n)), y) {
		if v == nil {
			return 0, false
		}
		dt := v.Type.DType
		if dt != tensor.F32 && dt != tensor.Bool && (dt != tensor.I64 && dt != tensor.I32 || !f.integers) {
			return 0, false
		}
		h := held(dt)
		if h != either && all != either && h != all {
			return 0, false
		}
		all = max(all, h)
	}
	return all, true
}

// chain is nodes of element by element functions that one launch computes: the last of them, and
// others, whose values only those read.
type chain struct {
	carrier  carrier
	nodes    []*ir.Node // in their order
	operands []*ir.Value
	program  []int32
	wide     bool // threads compute vectors

	strides func(v *ir.Value) []int // of a value in memory, nil where all lie by their shapes
	order   []int                   // of the axes of what the chain gives, in memory
}

// last is the node whose value is in memory.
func (c *chain) last() *ir.Node { return c.nodes[len(c.nodes)-1] }

// chains finds chains among the nodes: each node joins the one that alone reads its value, if its
// kernel is large enough.
func chains(nodes []*ir.Node) map[*ir.Node]*chain {
	of := map[*ir.Node]*chain{}
	for _, n := range slices.Backward(nodes) {
		holds, ok := carrierOf(n)
		if unfit(n) != "" || !ok {
			continue
		}
		if c := readerOf(n, of); c != nil && c.join(n, holds) {
			of[n] = c
			continue
		}
		c := &chain{carrier: holds, nodes: []*ir.Node{n}}
		if c.compile() {
			of[n] = c
		}
	}
	return of
}

// readerOf returns the chain that alone reads the value of a node.
func readerOf(n *ir.Node, of map[*ir.Node]*chain) *chain {
	y := n.Outputs[0]
	if y.IsOutput() || len(y.Uses()) == 0 {
		return nil
	}
	c := of[y.Uses()[0].Node]
	for _, u := range y.Uses() {
		if of[u.Node] != c {
			return nil
		}
	}
	return c
}

// join adds a node whose value only nodes of the chain read, if that is computed at the same
// places as the chain's and the kernel has room.
func (c *chain) join(n *ir.Node, holds carrier) bool {
	y := n.Outputs[0]
	if holds != either && c.carrier != either && holds != c.carrier {
		return false
	}
	if max(holds, c.carrier) == floating && y.Type.DType != tensor.F32 && y.Type.DType != tensor.Bool {
		return false
	}
	if !slices.Equal(trimmed(shapeOf(y)), trimmed(shapeOf(c.last().Outputs[0]))) {
		return false
	}
	old := *c
	c.nodes = append([]*ir.Node{n}, c.nodes...)
	c.carrier = max(holds, c.carrier)
	if !c.compile() {
		*c = old
		return false
	}
	return true
}

// trimmed is a shape without leading ones.
func trimmed(s []int) []int {
	for len(s) > 0 && s[0] == 1 {
		s = s[1:]
	}
	return s
}

// A step is an instruction of a chain. Values are numbered: operands first, then what steps
// give; constant stands for the first parameter.
type step struct {
	code    int
	x, y, z int
	a, b    int32
}

const constant = -1

// compile makes the program, false where the kernel has no room for it.
func (c *chain) compile() bool {
	c.operands = nil
	number := map[*ir.Value]int{}
	for _, n := range c.nodes {
		number[n.Outputs[0]] = constant // not yet
	}
	for _, n := range c.nodes {
		for i, v := range operandsOf(n) {
			if _, known := number[v]; known || immediate(n, i) {
				continue
			}
			number[v] = len(c.operands)
			c.operands = append(c.operands, v)
		}
	}
	if len(c.operands) > chainOperands {
		return false
	}
	var steps []step
	add := func(s step) int {
		steps = append(steps, s)
		return len(c.operands) + len(steps) - 1
	}
	for _, n := range c.nodes {
		f, a, b, _ := functionOf(n)
		s := step{code: f.code, a: int32(math.Float32bits(a)), b: int32(math.Float32bits(b))}
		in := operandsOf(n)
		source := func(i int) int {
			if !immediate(n, i) {
				return number[in[i]]
			}
			s.a = c.word(in[i].Const)
			return constant
		}
		last, dt := 0, n.Outputs[0].Type.DType
		switch {
		case n.Op.Kind() == "Cast":
			last = source(0)
			switch x := in[0].Type.DType; {
			case dt == tensor.Bool && x != tensor.Bool:
				last = add(step{code: fNotZero, x: last})
			case dt == tensor.I32 && x == tensor.I64:
				last = add(step{code: fNarrow, x: last})
			}
		case f.code == fSelect:
			s.x, s.y, s.z = source(0), source(1), source(2)
			last = add(s)
		case f.code < fAdd:
			s.x = source(0)
			last = add(s)
		case len(in) == 1:
			last = source(0)
		default:
			s.x = source(0)
			if o, is := n.Op.(*op.SwiGLU); is {
				s.x = add(step{code: fSwish, x: s.x, a: int32(math.Float32bits(o.Alpha))})
			}
			for i := 1; i < len(in); i++ {
				s.y = source(i)
				last = add(s)
				s.x = last
			}
		}
		if dt == tensor.I32 && slices.Contains([]int{fAbs, fNeg, fAdd, fSub, fMul, fDiv}, f.code) {
			last = add(step{code: fNarrow, x: last})
		}
		if n.Op.Kind() == "Mean" {
			last = add(step{code: fMul, x: last, y: constant, a: int32(math.Float32bits(1 / float32(len(in))))})
		}
		number[n.Outputs[0]] = last
	}
	return len(steps) <= chainInstructions && c.assemble(steps, number[c.last().Outputs[0]])
}

// immediate reports whether input i of a node is a number that its instruction holds: one of
// the first two operands, or of those that Where selects from, where the other is none.
func immediate(n *ir.Node, i int) bool {
	f, _, _, _ := functionOf(n)
	in := operandsOf(n)
	number := func(v *ir.Value) bool {
		if v.Const == nil || v.Const.Len() != 1 {
			return false
		}
		dt := v.Const.DType()
		at := v.Const.Float64s()[0]
		return dt == tensor.F32 || (dt == tensor.Bool || dt == tensor.I64 || dt == tensor.I32) && at == float64(int32(at))
	}
	switch {
	case f.code < fAdd || !number(in[i]):
		return false
	case f.code == fSelect:
		return i == 1 || i == 2 && !number(in[1])
	}
	return len(in) == 2 && !number(in[1-i]) && n.Op.Kind() != "SwiGLU"
}

// word is a constant of one element as an instruction holds it.
func (c *chain) word(t *tensor.Tensor) int32 {
	v := t.Float64s()[0]
	if c.carrier == floating {
		return int32(math.Float32bits(float32(v)))
	}
	return int32(v)
}

// assemble gives values registers and writes the program, whose result is a value; see chain.cu
// for what it consists of.
func (c *chain) assemble(steps []step, result int) bool {
	const never = math.MaxInt
	ends := make([]int, len(c.operands)+len(steps)) // the step that reads a value last
	for i, s := range steps {
		for _, v := range []int{s.x, s.y, s.z} {
			if v != constant {
				ends[v] = i
			}
		}
	}
	ends[result] = never
	register := make([]int, len(ends))
	holder := [chainRegisters]int{} // the value that a register has, plus one
	for k := range c.operands {
		register[k], holder[k] = k, k+1
	}
	at := func(v int) int32 {
		if v == constant {
			return chainRegisters
		}
		return int32(register[v])
	}
	var code []int32
	for i, s := range steps {
		x, y, z := at(s.x), at(s.y), at(s.z)
		to := slices.IndexFunc(holder[:], func(v int) bool { return v == 0 || ends[v-1] <= i })
		if to < 0 {
			return false
		}
		made := len(c.operands) + i
		register[made], holder[to] = to, made+1
		if s.code == fSelect {
			s.b = z
		}
		code = append(code, int32(s.code), int32(to), x, y, s.a, s.b)
	}
	y := c.last().Outputs[0]
	size, strides := c.axes(shapeOf(y), c.order)
	c.wide = c.carrier == floating && (len(size) == 1 || size[len(size)-1]%chainVector == 0)
	c.program = []int32{int32(len(c.operands)), int32(len(size)), int32(len(steps)), int32(register[result]), int32(kinds[y.Type.DType])}
	c.program = append(c.program, size...)
	for _, v := range c.operands {
		c.program = append(c.program, int32(kinds[v.Type.DType]))
	}
	for _, s := range strides {
		c.program = append(c.program, s...)
	}
	c.program = append(c.program, code...)
	return true
}

// axes returns sizes of as few axes as y, whose axes lie in some order, can be seen to have, and for each operand its
// strides along them.
func (c *chain) axes(ys, order []int) (size []int32, strides [][]int32) {
	all := make([][]int64, len(c.operands))
	for k, v := range c.operands {
		own := tensor.Strides(shapeOf(v))
		if c.strides != nil {
			own = c.strides(v)
		}
		all[k] = broadcast(shapeOf(v), own, ys)
	}
	strides = make([][]int32, len(all))
	for i := range ys {
		d := i
		if order != nil {
			d = order[i]
		}
		n := ys[d]
		if n == 1 && (i < len(ys)-1 || len(size) > 0) {
			continue
		}
		last := len(size) - 1
		merges := last >= 0
		for k := range all {
			merges = merges && int64(strides[k][last]) == all[k][d]*int64(n)
		}
		if merges {
			size[last] *= int32(n)
		} else {
			size = append(size, int32(n))
		}
		for k := range all {
			if merges {
				strides[k][last] = int32(all[k][d])
			} else {
				strides[k] = append(strides[k], int32(all[k][d]))
			}
		}
	}
	if len(size) == 0 { // a scalar
		size = []int32{1}
		for k := range strides {
			strides[k] = []int32{0}
		}
	}
	return size, strides
}

// launchChain adds the launch of a chain.
func (b *binder) launchChain(c *chain) error {
	c.strides, c.order = b.strides, b.order(c.last().Outputs[0])
	c.compile() // as it was, for where values lie
	name, count := "i64_chain_x1", prod(shapeOf(c.last().Outputs[0]))
	threads := count
	switch {
	case c.wide:
		name, threads = b.name("chain_x4"), (count+chainVector-1)/chainVector
	case c.carrier == floating:
		name = b.name("chain_x1")
	}
	params := []any{c.program}
	for k := range chainOperands {
		if k < len(c.operands) {
			params = append(params, c.operands[k])
		} else {
			params = append(params, nil)
		}
	}
	return b.launch(name, flat(threads), append(params, c.last().Outputs[0], count)...)
}
