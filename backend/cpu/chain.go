package cpu

import (
	"math"
	"slices"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/chain"
)

// chains are those that the CPU computes: of floats and of bools, which are 0 and 1, with operands that may be integers.
var chains = chain.Rules{Takes: floating, Begins: begins, Registers: 8, Operands: 16, Instructions: 64}

// chainBlock is how many elements go through a chain at a time: what lies between its instructions
// stays in the first-level cache.
const chainBlock = vec.Block

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

// begins reports whether the kernel of a node hands what it computes to a chain.
func begins(n *ir.Node) bool {
	if heads[n.Op.Kind()] == nil || !static(n) || len(n.Outputs) != 1 {
		return false
	}
	b, err := heads[n.Op.Kind()](nil, n)
	return err == nil && b != nil && b.pieces != nil
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
	unary    []unary // of each instruction, nil where it takes more values
	binary   []binary
	size     []int   // of the axes of the result, of which rows lie along the last
	strides  [][]int // of each operand along these
	convert  []int   // of each operand the number of the block into which it is converted or spread, -1 for one that is read where it is
	spread   []*box  // of each operand where the elements for a row lie that are not one after the other, nil elsewhere
	blocks   int     // that a worker needs: of the registers, and of the operands that are converted
	block    int     // the elements of one
	axes     int     // of the result, before rows were joined
	input    []int   // of each operand the input that it is, -1 for the output, where a head computes it
}

// bindChain binds a chain, or one operator that could be one, or that combines two operands of another type.
func bindChain(_ *program, n *ir.Node) (*bound, error) {
	p := chains.Of(n)
	if p == nil {
		return bindPair(n), nil
	}
	e := &elementwise{Program: p, register: chains.Assign(p)}
	y := n.Outputs[0]
	e.size, e.strides = p.Axes(shapeOf(y), nil, func(v *ir.Value) []int { return tensor.Strides(shapeOf(v)) })
	for i, s := range p.Instructions {
		a, b := s.Floats()
		e.unary, e.binary = append(e.unary, unaryOf(s.F, a, b)), append(e.binary, binaries[s.F])
		if r := len(p.Operands) + i; r != p.Result || y.Type.DType != tensor.F32 {
			e.blocks = max(e.blocks, e.register[r]+1)
		}
	}
	total := prod(e.size)
	e.axes = len(e.size)
	e.join()
	for k, v := range p.Operands {
		e.convert = append(e.convert, -1)
		if v.Type.DType != tensor.F32 || e.spread[k] != nil {
			e.convert[k] = e.blocks
			e.blocks++
		}
	}
	if e.block = chainBlock; e.blocks == 0 {
		e.block = chunk
	}
	e.block = min(e.block, e.size[len(e.size)-1])
	for _, v := range p.Operands {
		e.input = append(e.input, slices.Index(n.Inputs, v))
	}
	if head := chain.Head(n); head != nil {
		return e.behind(n, head)
	}
	b := &bound{inplace: -1, scratch: e.blocks * e.block}
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
	b.prepare = func(x *exec, args, out []*tensor.Tensor) func() error {
		return e.prepare(x, args, out[0])
	}
	return b, nil
}

// behind binds the chain n that begins with a node: its kernel computes that in the place of the output, piece by piece, and
// then the others of each piece.
func (e *elementwise) behind(n, head *ir.Node) (*bound, error) {
	first, err := heads[head.Op.Kind()](nil, head)
	if err != nil || first == nil {
		return nil, err
	}
	input := make([]int, len(head.Inputs)) // of n that each of the head's is, -1 for none
	for i, v := range head.Inputs {
		input[i] = slices.Index(n.Op.(*chain.Chain).Body.Inputs, v)
	}
	b := &bound{inplace: -1, alone: true, scratch: e.blocks * e.block}
	if i := first.inplace; i >= 0 && input[i] >= 0 {
		reads := 0 // of the input that the output may take the place of
		for _, k := range append(slices.Clone(input), e.input...) {
			if k == input[i] {
				reads++
			}
		}
		if reads == 1 {
			b.inplace = input[i]
		}
	}
	b.prepare = func(x *exec, args, out []*tensor.Tensor) func() error {
		r := e.on(x)
		of := make([]*tensor.Tensor, len(head.Inputs)) // the head
		run := first.pieces(x, of, out, r.piece)
		return func() error {
			for i, v := range head.Inputs {
				if input[i] >= 0 {
					of[i] = args[input[i]]
				} else if v != nil {
					of[i] = v.Const
				}
			}
			r.take(args, out[0])
			return run()
		}
	}
	return b, nil
}

// shortRow is the length below which rows are joined: a call for each would take longer than to spread operands out.
const shortRow = 256

// box is where the elements of an operand for a row lie, by axes of which neighbours cannot be joined.
type box struct{ size, strides []int }

// join makes one row of the innermost axes that are needed for a long one, for which operands are spread that do not lie
// there as they are read, or are a single element.
func (e *elementwise) join() {
	e.spread = make([]*box, len(e.strides))
	last := len(e.size) - 1
	if last == 0 || e.size[last] >= shortRow {
		return
	}
	first, n := last, e.size[last]
	for first > 0 && n < chainBlock {
		first--
		n *= e.size[first]
	}
	for k, strides := range e.strides {
		b := box{}
		for d, s := range strides[first:] {
			size := e.size[first+d]
			if at := len(b.size) - 1; at >= 0 && b.strides[at] == s*size {
				b.size[at], b.strides[at] = b.size[at]*size, s
			} else {
				b.size, b.strides = append(b.size, size), append(b.strides, s)
			}
		}
		step := b.strides[0]
		if len(b.size) > 1 {
			e.spread[k], step = &b, 1
		}
		e.strides[k] = append(slices.Clone(strides[:first]), step)
	}
	e.size = append(slices.Clone(e.size[:first]), n)
}

func (e *elementwise) prepare(x *exec, args []*tensor.Tensor, y *tensor.Tensor) func() error {
	last := len(e.size) - 1
	inner, rows := e.size[last], prod(e.size[:last])
	perRow := (inner + e.block - 1) / e.block
	together := max(1, chunk/e.block) // blocks of a call
	r := e.on(x)
	some := func(worker, c int) {
		w := &r.walks[worker]
		for i := c * together; i < min(rows*perRow, (c+1)*together); i++ {
			lo := i % perRow * e.block
			w.block(i/perRow, lo, min(e.block, inner-lo))
		}
	}
	return func() error {
		r.take(args, y)
		x.pool.For((rows*perRow+together-1)/together, some)
		return nil
	}
}

// chainRun is what a run reads and writes.
type chainRun struct {
	*elementwise
	operands []*tensor.Tensor
	floats   [][]float32 // the elements of those of f32
	y        []float32   // of the result, nil for bools
	bools    []bool
	walks    []walk // of the workers
}

// on returns what runs of one exec need.
func (e *elementwise) on(x *exec) *chainRun {
	n := len(e.input)
	r := &chainRun{elementwise: e, operands: make([]*tensor.Tensor, n), floats: make([][]float32, n), walks: make([]walk, x.pool.Threads())}
	for w := range r.walks {
		r.walks[w] = walk{chainRun: r, index: make([]int, len(e.size)-1), from: make([]int, n), along: make([]int, e.axes), scratch: x.scratch[w]}
	}
	return r
}

// take begins a run that reads args and writes y.
func (r *chainRun) take(args []*tensor.Tensor, y *tensor.Tensor) {
	for k, i := range r.input {
		v := y
		if i >= 0 {
			v = args[i]
		}
		if r.operands[k], r.floats[k] = v, nil; v.DType() == tensor.F32 {
			r.floats[k] = v.F32s()
		}
	}
	if y.DType() == tensor.F32 {
		r.y = y.F32s()
	} else {
		r.bools = tensor.Data[bool](y)
	}
}

// piece computes n elements of the result from one on, which may be of several rows.
func (r *chainRun) piece(worker, from, n int) {
	inner := r.size[len(r.size)-1]
	for n > 0 {
		lo := from % inner
		some := min(n, r.elementwise.block, inner-lo)
		r.walks[worker].block(from/inner, lo, some)
		from, n = from+some, n-some
	}
}

// walk is where a worker is.
type walk struct {
	*chainRun
	scratch []float32
	index   []int // of the row, along the outer axes
	from    []int // where the operands' elements for the block begin
	along   []int // for boxes
	one     [3]float32
}

// block computes n elements of a row from lo on.
func (w *walk) block(row, lo, n int) {
	last := len(w.size) - 1
	at(w.index, w.size, row)
	for k, s := range w.strides {
		w.from[k] = 0
		for d, i := range w.index {
			w.from[k] += i * s[d]
		}
		c := w.convert[k]
		if c >= 0 && w.spread[k] != nil {
			w.spread[k].floatsOf(w.place(c)[:n], w.operands[k], w.from[k], lo, w.along)
			continue
		}
		w.from[k] += lo * s[last]
		if c >= 0 {
			floatsOf(w.place(c)[:1+(n-1)*s[last]], w.operands[k], w.from[k])
		}
	}
	first := row*w.size[last] + lo
	result := w.Result
	for i := range w.Instructions {
		s := &w.Instructions[i]
		made := len(w.Operands) + i
		var to []float32
		if made == result && w.y != nil {
			to = w.y[first:][:n]
		} else {
			to = w.place(w.register[made])[:n]
		}
		w.apply(i, s, to)
	}
	if w.y == nil {
		x, step := w.value(result, 0, 0)
		to := w.bools[first:][:n]
		if step == 1 {
			vec.Bools(to, x)
			return
		}
		for i := range to {
			to[i] = x[i*step] != 0
		}
	} else if result < len(w.Operands) { // without an instruction
		x, step := w.value(result, 0, 0)
		to := w.y[first:][:n]
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
	return w.floats[v][w.from[v]:], step
}

// apply computes instruction i.
func (w *walk) apply(i int, s *chain.Instruction, y []float32) {
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
		w.unary[i](y, x[:len(y)], a, b)
	case 2:
		z, sz := w.value(s.Y, 1, s.A)
		w.binary[i](y, x, z, sx, sz)
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

// floatsOf writes the elements of an operand, the first of which is at from, for those of the row from one on. index is as
// long as the box has axes, whatever is in it.
func (b *box) floatsOf(y []float32, t *tensor.Tensor, from, first int, index []int) {
	last := len(b.size) - 1
	inner, step, outer := b.size[last], b.strides[last], b.strides[last-1]
	index = index[:last]
	at(index, b.size, first/inner)
	for d, i := range index {
		from += i * b.strides[d]
	}
	for i := first % inner; len(y) > 0; i = 0 {
		// Of whole rows there are many at a time.
		n, rows := min(inner-i, len(y)), 1
		if i == 0 && n == inner {
			rows = min(b.size[last-1]-index[last-1], len(y)/inner)
		}
		floats := t.DType() == tensor.F32
		switch {
		case step != 0 && floats:
			copy(y[:n], t.F32s()[from+i:])
			again(y[:n*rows], n)
		case step != 0:
			floatsOf(y[:n], t, from+i)
			again(y[:n*rows], n)
		case floats:
			vec.Repeat(y[:n*rows], t.F32s()[from:], n)
		default:
			for r := range rows {
				row := y[r*n:][:n]
				floatsOf(row[:1], t, from+r*outer)
				fill(row[1:], row[0])
			}
		}
		y = y[n*rows:]
		index[last-1], from = index[last-1]+rows, from+rows*outer
		for d := last - 1; d > 0 && index[d] == b.size[d]; d-- {
			index[d], from = 0, from-b.size[d]*b.strides[d]
			index[d-1], from = index[d-1]+1, from+b.strides[d-1]
		}
	}
}

// again repeats the first n elements of y in all of it.
func again(y []float32, n int) {
	for ; n < len(y); n *= 2 {
		copy(y[n:], y[:n])
	}
}

// floatsOf converts elements of a tensor, as Cast does, from one on.
func floatsOf(y []float32, t *tensor.Tensor, from int) {
	switch t.DType() {
	case tensor.Bool:
		vec.Convert(y, t.Bytes()[from:][:len(y)])
	case tensor.U8:
		vec.Convert(y, tensor.Data[uint8](t)[from:][:len(y)])
	case tensor.I8:
		vec.Convert(y, tensor.Data[int8](t)[from:][:len(y)])
	case tensor.I32:
		vec.Convert(y, tensor.Data[int32](t)[from:][:len(y)])
	case tensor.I64:
		vec.Convert(y, tensor.Data[int64](t)[from:][:len(y)])
	}
}
