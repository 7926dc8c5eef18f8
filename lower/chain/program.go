package chain

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Program is what a chain does to each element, instruction by instruction. Values are numbered: operands first, then
// what instructions give.
type Program struct {
	Operands     []*ir.Value
	Instructions []Instruction
	Result       int  // a value
	Integers     bool // values are integers of 64 bits, and bools; else floats, and bools
}

// Instruction computes a value.
type Instruction struct {
	F       Function
	X, Y, Z int   // values, or Constant
	A, B    int32 // parameters: the bits of floats, or integers
}

// Constant stands for the value that is the first parameter.
const Constant = -1

// Floats are the parameters of an instruction on floats.
func (i *Instruction) Floats() (a, b float32) {
	return math.Float32frombits(uint32(i.A)), math.Float32frombits(uint32(i.B))
}

// compile makes the program of nodes, nil where the device has no room for it.
func (r *Rules) compile(holds carrier, nodes []*ir.Node) *Program {
	p := &Program{Integers: holds == integers}
	number := map[*ir.Value]int{}
	for _, n := range nodes {
		number[n.Outputs[0]] = Constant // not yet
	}
	for _, n := range nodes {
		for i, v := range operandsOf(n) {
			if _, known := number[v]; known || immediate(n, i) {
				continue
			}
			number[v] = len(p.Operands)
			p.Operands = append(p.Operands, v)
		}
	}
	if len(p.Operands) > r.Operands {
		return nil
	}
	for _, n := range nodes {
		p.node(n, number)
	}
	p.Result = number[nodes[len(nodes)-1].Outputs[0]]
	if len(p.Instructions) > r.Instructions || r.Assign(p) == nil {
		return nil
	}
	return p
}

// add adds an instruction and returns the value that it computes.
func (p *Program) add(i Instruction) int {
	p.Instructions = append(p.Instructions, i)
	return len(p.Operands) + len(p.Instructions) - 1
}

// node adds the instructions of a node and numbers its value.
func (p *Program) node(n *ir.Node, number map[*ir.Value]int) {
	o, _ := operationOf(n)
	s := Instruction{F: o.Function, A: int32(math.Float32bits(o.a)), B: int32(math.Float32bits(o.b))}
	in := operandsOf(n)
	source := func(i int) int {
		if !immediate(n, i) {
			return number[in[i]]
		}
		s.A = p.word(in[i].Const)
		return Constant
	}
	last, dt := 0, n.Outputs[0].Type.DType
	switch {
	case o.converts:
		last = source(0)
		switch x := in[0].Type.DType; {
		case dt == tensor.Bool && x != tensor.Bool:
			last = p.add(Instruction{F: NotZero, X: last})
		case dt == tensor.I32 && x == tensor.I64:
			last = p.add(Instruction{F: Narrow, X: last})
		}
	case o.Inputs() == 3:
		s.X, s.Y, s.Z = source(0), source(1), source(2)
		last = p.add(s)
	case o.Inputs() == 1:
		s.X = source(0)
		last = p.add(s)
	case len(in) == 1:
		last = source(0)
	default:
		s.X = source(0)
		if o, is := n.Op.(*op.SwiGLU); is {
			s.X = p.add(Instruction{F: Swish, X: s.X, A: int32(math.Float32bits(o.Alpha))})
		}
		for i := 1; i < len(in); i++ {
			s.Y = source(i)
			last = p.add(s)
			s.X = last
		}
	}
	if dt == tensor.I32 && slices.Contains([]Function{Abs, Neg, Add, Sub, Mul, Div}, o.Function) {
		last = p.add(Instruction{F: Narrow, X: last})
	}
	if n.Op.Kind() == "Mean" {
		last = p.add(Instruction{F: Mul, X: last, Y: Constant, A: int32(math.Float32bits(1 / float32(len(in))))})
	}
	number[n.Outputs[0]] = last
}

// immediate reports whether input i of a node is a number that its instruction holds: one of
// the first two operands, or of those that Where selects from, where the other is none.
func immediate(n *ir.Node, i int) bool {
	o, _ := operationOf(n)
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
	case o.converts || o.Inputs() == 1 || !number(in[i]):
		return false
	case o.Inputs() == 3:
		return i == 1 || i == 2 && !number(in[1])
	}
	_, glu := n.Op.(*op.SwiGLU)
	return len(in) == 2 && !number(in[1-i]) && !glu
}

// word is a constant of one element as an instruction holds it.
func (p *Program) word(t *tensor.Tensor) int32 {
	v := t.Float64s()[0]
	if !p.Integers {
		return int32(math.Float32bits(float32(v)))
	}
	return int32(v)
}

// Assign gives each value of a program one of the registers. Where operands are loaded these have the first, in
// their order; else they have none, -1. A value's register is free after the instruction that reads it last, also for what that
// gives. It is nil where there are too few.
func (r *Rules) Assign(p *Program) []int {
	const never = math.MaxInt
	ends := make([]int, len(p.Operands)+len(p.Instructions)) // the instruction that reads a value last
	for i, s := range p.Instructions {
		for _, v := range []int{s.X, s.Y, s.Z}[:s.F.Inputs()] {
			if v != Constant {
				ends[v] = i
			}
		}
	}
	ends[p.Result] = never
	register := make([]int, len(ends))
	holder := make([]int, r.Registers) // the value that a register has, plus one
	if r.Load && len(p.Operands) > len(holder) {
		return nil
	}
	for k := range p.Operands {
		if register[k] = -1; r.Load {
			register[k], holder[k] = k, k+1
		}
	}
	for i := range p.Instructions {
		to := slices.IndexFunc(holder, func(v int) bool { return v == 0 || ends[v-1] <= i })
		if to < 0 {
			return nil
		}
		made := len(p.Operands) + i
		register[made], holder[to] = to, made+1
	}
	return register
}

// Axes returns the sizes of as few axes as a result of shape ys, whose axes lie in memory in some order or, where that is nil, as
// they are, can be seen to have, and for each operand its strides along them, zero where it is repeated. strides are those
// of an operand along its own axes.
func (p *Program) Axes(ys, order []int, stridesOf func(v *ir.Value) []int) (size []int, strides [][]int) {
	all := make([][]int, len(p.Operands))
	for k, v := range p.Operands {
		all[k] = spread(v, stridesOf(v), ys)
	}
	strides = make([][]int, len(all))
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
			merges = merges && strides[k][last] == all[k][d]*n
		}
		if merges {
			size[last] *= n
		} else {
			size = append(size, n)
		}
		for k := range all {
			if merges {
				strides[k][last] = all[k][d]
			} else {
				strides[k] = append(strides[k], all[k][d])
			}
		}
	}
	if len(size) == 0 { // a scalar
		size = []int{1}
		for k := range strides {
			strides[k] = []int{0}
		}
	}
	return size, strides
}

// spread returns the strides of an operand along the axes of a shape that it is broadcast to.
func spread(v *ir.Value, own, ys []int) []int {
	shape, _ := v.Type.Shape()
	out := make([]int, len(ys))
	for i, n := range shape {
		if d := i + len(ys) - len(shape); d >= 0 && n != 1 {
			out[d] = own[i]
		}
	}
	return out
}
