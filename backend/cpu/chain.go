package cpu

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/chain"
)

// chains are those that the CPU computes: of floats and of bools, which are 0 and 1, with operands that may be integers.
var chains = chain.Rules{Takes: floating, Registers: 8, Operands: 16, Instructions: 64}

// chainBlock is how many elements go through a chain at a time: what lies between its instructions
// stays in the first-level cache.
const chainBlock = 1024

// floating reports whether a node of known shapes combines f32 and bools, or makes f32 of integers or bools
// of f32.
func floating(n *ir.Node) bool {
	if !static(n) || len(n.Outputs) != 1 {
		return false
	}
	dt := n.Outputs[0].Type.DType
	integers := dt == tensor.F32 && len(n.Inputs) > 0 && chain.Converts(n)
	for _, v := range n.Inputs {
		if v != nil && v.Type.DType != tensor.F32 && v.Type.DType != tensor.Bool && !integers {
			return false
		}
	}
	return dt == tensor.F32 || dt == tensor.Bool
}

func (b *binding) chains() (int, error) {
	if b.mini {
		return 0, nil
	}
	return chains.Form(b.graph), nil
}

// elementwise is a chain that was bound: its program, and how the result and the operands are walked through, as rows of blocks.
type elementwise struct {
	*chain.Program
	register []int   // of each value
	size     []int   // of the axes of the result, of which rows lie along the last
	strides  [][]int // of each operand along these
	convert  []int   // of each operand the number of the block into which it is converted, -1 for one of f32
	blocks   int     // that a worker needs: of the registers, and of the operands that are converted
	block    int     // the elements of one
}

// bindChain binds a chain, or one operator that could be one.
func bindChain(_ *program, n *ir.Node) (*bound, error) {
	p := chains.Of(n)
	if p == nil {
		return nil, nil
	}
	e := &elementwise{Program: p, register: chains.Assign(p)}
	y := n.Outputs[0]
	e.size, e.strides = p.Axes(shapeOf(y), nil, func(v *ir.Value) []int { return tensor.Strides(shapeOf(v)) })
	for i := range p.Instructions {
		if r := len(p.Operands) + i; r != p.Result || y.Type.DType != tensor.F32 {
			e.blocks = max(e.blocks, e.register[r]+1)
		}
	}
	total := prod(e.size)
	b := &bound{inplace: -1}
	for i, v := range n.Inputs {
		if v == nil || !slices.Contains(p.Operands, v) {
			continue
		}
		same := prod(shapeOf(v)) == total && v.Type.DType.Size() == y.Type.DType.Size()
		if same && b.inplace < 0 && !v.IsConst() {
			b.inplace = i
		}
		// An operand that is a part of another is read again after that is overwritten.
		b.alone = b.alone || !same
	}
	for _, v := range p.Operands {
		e.convert = append(e.convert, -1)
		if v.Type.DType != tensor.F32 {
			e.convert[len(e.convert)-1] = e.blocks
			e.blocks++
		}
	}
	if y.Type.DType != tensor.F32 && p.Result < len(p.Operands) && e.convert[p.Result] < 0 {
		return nil, nil // there is no such chain: a bool of a float is what a function gives
	}
	if e.block = chainBlock; e.blocks == 0 {
		e.block = chunk
	}
	e.block = min(e.block, e.size[len(e.size)-1])
	b.scratch = e.blocks * e.block
	in := make([]int, len(p.Operands)) // the inputs that they are
	for k, v := range p.Operands {
		in[k] = slices.Index(n.Inputs, v)
	}
	b.prepare = func(x *exec, args, out []*tensor.Tensor) func() error {
		return e.prepare(x, in, args, out[0])
	}
	return b, nil
}

func (e *elementwise) prepare(x *exec, in []int, args []*tensor.Tensor, y *tensor.Tensor) func() error {
	last := len(e.size) - 1
	inner, rows := e.size[last], prod(e.size[:last])
	perRow := (inner + e.block - 1) / e.block
	together := max(1, chunk/e.block) // blocks of a call
	operands := make([]*tensor.Tensor, len(in))
	walks := make([]walk, x.pool.Threads())
	for w := range walks {
		walks[w] = walk{elementwise: e, index: make([]int, last), from: make([]int, len(in)), scratch: x.scratch[w], operands: operands}
	}
	some := func(worker, c int) {
		w := &walks[worker]
		for i := c * together; i < min(rows*perRow, (c+1)*together); i++ {
			lo := i % perRow * e.block
			w.block(i/perRow, lo, min(e.block, inner-lo), y)
		}
	}
	return func() error {
		for k, i := range in {
			operands[k] = args[i]
		}
		x.pool.For((rows*perRow+together-1)/together, some)
		return nil
	}
}

// walk is where a worker is.
type walk struct {
	*elementwise
	operands []*tensor.Tensor
	scratch  []float32
	index    []int // of the row, along the outer axes
	from     []int // where the operands' elements for the block begin
	one      [3]float32
}

// block computes n elements of a row from lo on.
func (w *walk) block(row, lo, n int, y *tensor.Tensor) {
	last := len(w.size) - 1
	at(w.index, w.size, row)
	for k, s := range w.strides {
		w.from[k] = lo * s[last]
		for d, i := range w.index {
			w.from[k] += i * s[d]
		}
		if c := w.convert[k]; c >= 0 {
			floatsOf(w.place(c)[:1+(n-1)*s[last]], w.operands[k], w.from[k])
		}
	}
	first := row*w.size[last] + lo
	result := w.Result
	for i := range w.Instructions {
		s := &w.Instructions[i]
		made := len(w.Operands) + i
		var to []float32
		if made == result && y.DType() == tensor.F32 {
			to = y.F32s()[first:][:n]
		} else {
			to = w.place(w.register[made])[:n]
		}
		w.apply(s, to)
	}
	if y.DType() == tensor.Bool {
		x, step := w.value(result, 0, 0)
		to := tensor.Data[bool](y)[first:][:n]
		for i := range to {
			to[i] = x[i*step] != 0
		}
	} else if result < len(w.Operands) { // without an instruction
		x, step := w.value(result, 0, 0)
		to := y.F32s()[first:][:n]
		for i := range to {
			to[i] = x[i*step]
		}
	}
}

// place is a block of the worker's.
func (w *walk) place(i int) []float32 { return w.scratch[i*w.elementwise.block:][:w.elementwise.block] }

// value returns the elements of a value for the block and how far apart they are, those of a constant, the k-th
// that an instruction reads, in a place of its own.
func (w *walk) value(v, k int, bits int32) (x []float32, step int) {
	switch {
	case v == chain.Constant:
		w.one[k] = math.Float32frombits(uint32(bits))
		return w.one[k : k+1], 0
	case v >= len(w.Operands):
		return w.place(w.register[v]), 1
	}
	step = w.strides[v][len(w.size)-1]
	if c := w.convert[v]; c >= 0 {
		return w.place(c), step
	}
	return w.operands[v].F32s()[w.from[v]:], step
}

// apply computes an instruction.
func (w *walk) apply(s *chain.Instruction, y []float32) {
	x, sx := w.value(s.X, 0, s.A)
	switch s.F.Inputs() {
	case 1:
		if sx == 0 {
			for i := range y {
				y[i] = x[0]
			}
			x = y
		}
		a, b := s.Floats()
		unaries[s.F](y, x[:len(y)], a, b)
	case 2:
		z, sz := w.value(s.Y, 1, s.A)
		binaries[s.F](y, x, z, sx, sz)
	default:
		v, sv := w.value(s.Y, 1, s.A)
		z, sz := w.value(s.Z, 2, s.A)
		selects(y, x, v, z, sx, sv, sz)
	}
}

// at writes the indices of row r under shape[:len(idx)].
func at(idx, shape []int, r int) {
	for d := len(idx) - 1; d >= 0; d-- {
		idx[d] = r % shape[d]
		r /= shape[d]
	}
}

// floatsOf converts elements of a tensor, as Cast does, from one on.
func floatsOf(y []float32, t *tensor.Tensor, from int) {
	switch t.DType() {
	case tensor.Bool:
		for i, v := range tensor.Data[bool](t)[from:][:len(y)] {
			if y[i] = 0; v {
				y[i] = 1
			}
		}
	case tensor.U8:
		toFloats(y, tensor.Data[uint8](t)[from:])
	case tensor.I8:
		toFloats(y, tensor.Data[int8](t)[from:])
	case tensor.I32:
		toFloats(y, tensor.Data[int32](t)[from:])
	case tensor.I64:
		toFloats(y, tensor.Data[int64](t)[from:])
	}
}

func toFloats[T int8 | uint8 | int32 | int64](y []float32, x []T) {
	for i, v := range x[:len(y)] {
		y[i] = float32(float64(v))
	}
}
