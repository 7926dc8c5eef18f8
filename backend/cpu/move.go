package cpu

import (
	"slices"
	"unsafe"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Data movement. What goes where is found when a node is bound; a run only copies.

// word is what elements of one size are moved as.
type word interface {
	uint8 | uint16 | float32 | uint64
}

// mover makes the loop that moves elements of a size from src to dst. It is made
// once for an exec and returns what is called with each run's storage.
type mover interface {
	words8(x *exec) func(dst, src []uint8)
	words16(x *exec) func(dst, src []uint16)
	words32(x *exec) func(dst, src []float32)
	words64(x *exec) func(dst, src []uint64)
}

// wordsOf is the storage of a tensor as words of its element's size.
func wordsOf[T word](t *tensor.Tensor) []T {
	b := t.Bytes()
	if len(b) == 0 {
		return nil
	}
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(z)))
}

// moved reports whether elements of a type can be moved as words.
func moved(dt tensor.DType) bool {
	return dt != tensor.String && (dt.Size() == 1 || dt.Size() == 2 || dt.Size() == 4 || dt.Size() == 8)
}

// moveRun makes the run of a mover for a type.
func moveRun(x *exec, m mover, dt tensor.DType) func(dst, src *tensor.Tensor) {
	switch dt.Size() {
	case 1:
		return typed(m.words8(x))
	case 2:
		return typed(m.words16(x))
	case 4:
		return typed(m.words32(x))
	}
	return typed(m.words64(x))
}

func typed[T word](f func(dst, src []T)) func(dst, src *tensor.Tensor) {
	return func(dst, src *tensor.Tensor) { f(wordsOf[T](dst), wordsOf[T](src)) }
}

// boundMove is the kernel that moves input 0 to output 0.
func boundMove(n *ir.Node, m mover) *bound {
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		run := moveRun(x, m, n.Outputs[0].Type.DType)
		return func() error {
			run(out[0], in[0])
			return nil
		}
	}}
}

// parts is the number of pieces, at most n, in which a loop over size elements is
// spread, and each the number of the n in a piece.
func parts(x *exec, n, size int) (count, each int) {
	count = min(n, (size+chunk-1)/chunk)
	if count < x.pool.Threads() && size >= chunk/4 {
		count = min(n, x.pool.Threads())
	}
	each = (n + max(count, 1) - 1) / max(count, 1)
	return (n + max(each, 1) - 1) / max(each, 1), each
}

// permutation copies a box whose axes are strided in both tensors.
type permutation struct {
	shape, dst, src []int // strides in elements
	dstAt, srcAt    int   // the first element
	matrix          bool  // the last axis is contiguous in dst, the one before in src
}

// newPermutation orders and joins axes, which are given in the order of dst.
func newPermutation(shape, dst, src []int) *permutation {
	p := &permutation{}
	for i, d := range shape {
		if d == 1 {
			continue
		}
		if n := len(p.shape); n > 0 && p.dst[n-1] == dst[i]*d && p.src[n-1] == src[i]*d {
			p.shape[n-1] *= d
			p.dst[n-1], p.src[n-1] = dst[i], src[i]
			continue
		}
		p.shape, p.dst, p.src = append(p.shape, d), append(p.dst, dst[i]), append(p.src, src[i])
	}
	if len(p.shape) == 0 {
		p.shape, p.dst, p.src = []int{1}, []int{1}, []int{1}
	}
	last := len(p.shape) - 1
	k := slices.Index(p.src, 1)
	if p.matrix = p.dst[last] == 1 && k >= 0 && k < last && p.dst[k] >= p.shape[last] && p.src[last] >= p.shape[k]; p.matrix {
		p.moveAxis(k, last-1)
		return p
	}
	if p.shape[last] < 8 { // rather a long loop than contiguous elements
		p.moveAxis(slices.Index(p.shape, slices.Max(p.shape)), last)
	}
	return p
}

func (p *permutation) moveAxis(from, to int) {
	for _, s := range []*[]int{&p.shape, &p.dst, &p.src} {
		v := (*s)[from]
		*s = slices.Insert(slices.Delete(*s, from, from+1), to, v)
	}
}

// contiguous reports whether the elements lie in a row in both tensors.
func (p *permutation) contiguous() bool { return len(p.shape) == 1 && p.dst[0] == 1 && p.src[0] == 1 }

// loops move words.
type loops[T word] struct {
	matrix func(dst []T, ldd int, src []T, lds, rows, cols int) // transposes
	every  func(dst, src []T, step int)                         // takes every so many
}

func plain[T word]() loops[T] { return loops[T]{copyMatrix[T], copyEvery[T]} }

func (p *permutation) words8(x *exec) func(dst, src []uint8)   { return permute(x, p, plain[uint8]()) }
func (p *permutation) words16(x *exec) func(dst, src []uint16) { return permute(x, p, plain[uint16]()) }
func (p *permutation) words64(x *exec) func(dst, src []uint64) { return permute(x, p, plain[uint64]()) }
func (p *permutation) words32(x *exec) func(dst, src []float32) {
	return permute(x, p, loops[float32]{vec.Transpose, func(dst, src []float32, step int) {
		vec.PadRows(dst, 1, 0, len(dst), 0, src, 0, step)
	}})
}

// permute spreads the first axis, or where there is a matrix only, its columns.
func permute[T word](x *exec, p *permutation, l loops[T]) func(dst, src []T) {
	shape := slices.Clone(p.shape)
	count, each := parts(x, shape[0], prod(shape))
	perWorker := len(shape)
	boxes := make([]int, perWorker*x.pool.Threads())
	c := &boxCopy[T]{p: p, loops: l}
	body := func(worker, i int) {
		from := i * each
		box := boxes[worker*perWorker:][:perWorker]
		copy(box, shape)
		box[0] = min(each, shape[0]-from)
		c.axes(0, box, p.dstAt+from*p.dst[0], p.srcAt+from*p.src[0])
	}
	return func(dst, src []T) {
		c.dst, c.src = dst, src
		x.pool.For(count, body)
	}
}

// boxCopy copies boxes of elements that are strided as a permutation's.
type boxCopy[T word] struct {
	p        *permutation
	loops    loops[T]
	dst, src []T
}

// axes copies the part of a box from element d in dst and s in src on that has its axes
// from a on.
func (c *boxCopy[T]) axes(a int, shape []int, d, s int) {
	dst, src := c.dst, c.src
	n, step, stride := shape[a], c.p.dst[a], c.p.src[a]
	switch left := len(shape) - a; {
	case left == 1 && step == 1 && stride == 1:
		copy(dst[d:d+n], src[s:])
	case left == 1 && step == 1 && stride > 0:
		c.loops.every(dst[d:d+n], src[s:], stride)
	case left == 1:
		for range n {
			dst[d] = src[s]
			d += step
			s += stride
		}
	case left == 2 && c.p.matrix:
		c.loops.matrix(dst[d:], step, src[s:], c.p.src[a+1], shape[a+1], n)
	default:
		for range n {
			c.axes(a+1, shape, d, s)
			d += step
			s += stride
		}
	}
}

// copyEvery copies every step-th word of src.
func copyEvery[T word](dst, src []T, step int) {
	for i := range dst {
		dst[i] = src[i*step]
	}
}

// copyMatrix is vec.Transpose for any word.
func copyMatrix[T word](dst []T, ldd int, src []T, lds, rows, cols int) {
	for c := range cols {
		d, s := dst[c*ldd:][:rows], src[c:]
		for r := range d {
			d[r] = s[r*lds]
		}
	}
}

// permuted is the bound copy of x, seen with a shape, in the order perm.
func permuted(n *ir.Node, shape, perm []int) *bound {
	st := tensor.Strides(shape)
	to, from := make([]int, len(perm)), make([]int, len(perm))
	for i, a := range perm {
		to[i], from[i] = shape[a], st[a]
	}
	return boundMove(n, newPermutation(to, tensor.Strides(to), from))
}

// maxTable is the length of an axis from which on a table of its elements may take more memory than there is.
const maxTable = 1 << 24

// tabled reports whether the node's output 0 has elements that can be moved as tables of positions on its axes say.
func tabled(n *ir.Node) bool {
	return movable(n) && slices.Max(append(shapeOf(n.Outputs[0]), 0)) <= maxTable
}

// movable reports whether the node's output 0 has elements that can be moved.
func movable(n *ir.Node) bool {
	return moved(n.Outputs[0].Type.DType) && prod(shapeOf(n.Outputs[0])) > 0
}

func bindTranspose(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	shape := shapeOf(n.Inputs[0])
	perm := n.Op.(*op.Transpose).Perm
	if perm == nil {
		for i := range shape {
			perm = append(perm, len(shape)-1-i)
		}
	}
	return permuted(n, shape, perm), nil
}

func bindDepthToSpace(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	o, s := n.Op.(*op.DepthToSpace), shapeOf(n.Inputs[0])
	b, c := o.Block, s[1]/(o.Block*o.Block)
	if o.Mode == "DCR" {
		return permuted(n, []int{s[0], b, b, c, s[2], s[3]}, []int{0, 3, 4, 1, 5, 2}), nil
	}
	return permuted(n, []int{s[0], c, b, b, s[2], s[3]}, []int{0, 1, 4, 2, 5, 3}), nil
}

func bindSpaceToDepth(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	b, s := n.Op.(*op.SpaceToDepth).Block, shapeOf(n.Inputs[0])
	return permuted(n, []int{s[0], s[1], s[2] / b, b, s[3] / b, b}, []int{0, 3, 5, 1, 2, 4}), nil
}

// choice takes, along each axis, the positions that a table lists, or a fill where
// that says -1: dst[i, j...] = src[t0[i], t1[j]...].
type choice struct {
	axes  [][]int // the tables of the axes before the last that is not taken whole
	step  []int   // their strides in src
	rows  int     // product of the lengths of axes
	segs  []segment
	cols  int // length of a row of dst
	fill  []byte
	first int // the first element taken
}

// segment is a run of a row: n elements from src, or, where src is negative, fills.
// Elements are step apart in src.
type segment struct{ dst, src, n, step int }

// newChoice makes the choice from a shape by a table for each axis; a nil table
// takes the axis whole. fill is an element.
func newChoice(shape []int, tables [][]int, fill []byte) *choice {
	st := tensor.Strides(shape)
	last := len(shape) - 1
	for last > 0 && identity(tables[last], shape[last]) {
		last--
	}
	c := &choice{fill: fill, rows: 1}
	for a := range last {
		t := tables[a]
		if t == nil {
			t = make([]int, shape[a])
			for i := range t {
				t[i] = i
			}
		}
		if len(t) == 1 && t[0] >= 0 {
			c.first += t[0] * st[a]
			continue
		}
		c.axes, c.step = append(c.axes, t), append(c.step, st[a])
		c.rows *= len(t)
	}
	block, table := 1, []int{0}
	if len(shape) > 0 {
		if block, table = st[last], tables[last]; table == nil {
			block, table = block*shape[last], []int{0}
		}
	}
	c.cols = block * len(table)
	for i := 0; i < len(table); {
		from, n, step := table[i], 1, 1
		if from >= 0 && i+1 < len(table) && table[i+1] >= 0 && block == 1 {
			step = table[i+1] - from
		}
		for i+n < len(table) && (from < 0 && table[i+n] < 0 || from >= 0 && table[i+n] == from+n*step) {
			n++
		}
		if step != 1 && n == 2 { // rather two runs, one of which may go on
			step, n = 1, 1
		}
		c.segs = append(c.segs, segment{i * block, from * block, n * block, step})
		i += n
	}
	return c
}

// contiguous returns the first of the elements taken, where they lie in a row.
func (c *choice) contiguous() (first int, ok bool) {
	if c.rows != 1 || len(c.segs) != 1 || c.segs[0].src < 0 || c.segs[0].step != 1 {
		return 0, false
	}
	return c.first + c.segs[0].src, true
}

func identity(table []int, n int) bool {
	if table == nil {
		return true
	}
	for i, p := range table {
		if p != i {
			return false
		}
	}
	return len(table) == n
}

func (c *choice) words8(x *exec) func(dst, src []uint8)    { return choose[uint8](x, c, c.cols) }
func (c *choice) words16(x *exec) func(dst, src []uint16)  { return choose[uint16](x, c, c.cols) }
func (c *choice) words32(x *exec) func(dst, src []float32) { return choose[float32](x, c, c.cols) }
func (c *choice) words64(x *exec) func(dst, src []uint64)  { return choose[uint64](x, c, c.cols) }

// choose moves rows that are pitch apart in dst.
func choose[T word](x *exec, c *choice, pitch int) func(dst, src []T) {
	count, each := parts(x, c.rows, c.rows*c.cols)
	var fill T
	if c.fill != nil {
		fill = *(*T)(unsafe.Pointer(&c.fill[0]))
	}
	var dst, src []T
	body := func(_, i int) {
		before, at := -2, -1 // where the row before came from and went
		for r := i * each; r < min(c.rows, (i+1)*each); r++ {
			from, left := c.first, r
			for a := len(c.axes) - 1; a >= 0; a-- {
				t := c.axes[a]
				p := t[left%len(t)]
				left /= len(t)
				if p < 0 {
					from = -1
					break
				}
				from += p * c.step[a]
			}
			row := dst[r*pitch:][:c.cols]
			switch {
			case from == before:
				copy(row, dst[at:at+c.cols])
			case from < 0:
				for j := range row {
					row[j] = fill
				}
			default:
				chooseRow(row, src[from:], c.segs, fill)
			}
			before, at = from, r*pitch
		}
	}
	return func(d, s []T) {
		dst, src = d, s
		x.pool.For(count, body)
	}
}

func chooseRow[T word](row, src []T, segs []segment, fill T) {
	for _, s := range segs {
		d := row[s.dst : s.dst+s.n]
		switch {
		case s.src < 0:
			for j := range d {
				d[j] = fill
			}
		case s.step == 1 && s.n > 4:
			copy(d, src[s.src:s.src+s.n])
		default:
			p := s.src
			for j := range d {
				d[j] = src[p]
				p += s.step
			}
		}
	}
}

// constInts are the elements of a constant integer input, nil where it is absent;
// ok is false where it is not constant.
func constInts(n *ir.Node, i int) (v []int, ok bool) {
	in := n.Input(i)
	if in == nil {
		return nil, true
	}
	if in.Const == nil {
		return nil, false
	}
	return in.Const.Ints(), true
}

func bindSlice(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	at, from, ok, err := n.Op.(*op.Slice).Strided(n)
	if !ok {
		return nil, err
	}
	to := shapeOf(n.Outputs[0])
	m := newPermutation(to, tensor.Strides(to), from)
	m.srcAt = at
	b := boundMove(n, m)
	if m.contiguous() {
		b.from = []int{at}
		b.prepare = skipping(b.prepare, at)
	}
	return b, nil
}

// within reports whether part is the part of whole from an element on.
func within(part, whole *tensor.Tensor, at int) bool {
	if part == nil || whole == nil || len(part.Bytes()) == 0 {
		return false
	}
	w := whole.Bytes()
	at *= whole.DType().Size()
	return at < len(w) && &part.Bytes()[0] == &w[at]
}

// skipping leaves out a kernel whose output is the part of its input from an
// element on.
func skipping(f prepare, at int) prepare {
	return func(x *exec, in, out []*tensor.Tensor) func() error {
		if within(out[0], in[0], at) {
			return func() error { return nil }
		}
		return f(x, in, out)
	}
}

func bindPad(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Pad)
	pads, ok1 := constInts(n, 1)
	axes, ok2 := constInts(n, 3)
	if !tabled(n) || !ok1 || !ok2 || prod(shapeOf(n.Inputs[0])) == 0 {
		return nil, nil
	}
	dt := n.Outputs[0].Type.DType
	fill := make([]byte, 8)
	if v := n.Input(2); v != nil {
		if v.Const == nil || v.Type.DType != dt || v.Const.Len() != 1 {
			return nil, nil
		}
		copy(fill, v.Const.Bytes())
	}
	shape := shapeOf(n.Inputs[0])
	tables, err := o.Positions(shape, pads, axes, n.Input(3) != nil)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	return boundMove(n, newChoice(shape, tables, fill)), nil
}

func bindExpand(_ *program, n *ir.Node) (*bound, error) {
	if !tabled(n) {
		return nil, nil
	}
	return boundMove(n, expansion(shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0]))), nil
}

// expansion broadcasts one shape to another.
func expansion(from, to []int) *choice {
	shape := slices.Concat(slices.Repeat([]int{1}, len(to)-len(from)), from)
	tables := make([][]int, len(to))
	for a, d := range to {
		if shape[a] != d {
			tables[a] = make([]int, d)
		}
	}
	return newChoice(shape, tables, nil)
}

func bindTile(_ *program, n *ir.Node) (*bound, error) {
	if !tabled(n) {
		return nil, nil
	}
	shape := shapeOf(n.Inputs[0])
	tables := make([][]int, len(shape))
	for a, d := range shapeOf(n.Outputs[0]) {
		if d != shape[a] {
			tables[a] = make([]int, d)
			for i := range tables[a] {
				tables[a][i] = i % shape[a]
			}
		}
	}
	return boundMove(n, newChoice(shape, tables, nil)), nil
}

// bindFill repeats an element.
func bindFill(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	outs, err := n.Op.Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{tensor.Ints(1)})
	if err != nil {
		return nil, nodeError(n, err)
	}
	element := outs[0].Bytes()
	return &bound{inplace: -1, run: func(_ *exec, _, out []*tensor.Tensor) error {
		repeatElement(out[0].Bytes(), element)
		return nil
	}}, nil
}

func repeatElement(y, element []byte) {
	for done := copy(y, element); done < len(y); done *= 2 {
		copy(y[done:], y[:done])
	}
}

// bindSplit cuts an axis: what lies in a row in the input becomes a view of it.
func bindSplit(_ *program, n *ir.Node) (*bound, error) {
	for _, v := range n.Outputs {
		if v == nil || !moved(v.Type.DType) || prod(shapeOf(v)) == 0 {
			return nil, nil
		}
	}
	shape := shapeOf(n.Inputs[0])
	a := n.Op.(*op.Split).Axis
	if a < 0 {
		a += len(shape)
	}
	outer, inner := prod(shape[:a]), prod(shape[a+1:])
	b := &bound{inplace: -1}
	var moves []*permutation
	at := 0
	for _, v := range n.Outputs {
		d := shapeOf(v)[a] * inner
		m := newPermutation([]int{outer, d}, []int{d, 1}, []int{shape[a] * inner, 1})
		m.srcAt = at
		moves = append(moves, m)
		if outer == 1 {
			b.from = append(b.from, at)
		}
		at += d
	}
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		var runs []func(dst, src *tensor.Tensor)
		var which []int
		for i, m := range moves {
			if !within(out[i], in[0], m.srcAt) {
				runs = append(runs, moveRun(x, m, out[i].DType()))
				which = append(which, i)
			}
		}
		return func() error {
			for k, run := range runs {
				run(out[which[k]], in[0])
			}
			return nil
		}
	}
	return b, nil
}

// bindConcat joins along an axis: an input that lies in a row in the output may be
// there already.
func bindConcat(_ *program, n *ir.Node) (*bound, error) {
	if !movable(n) {
		return nil, nil
	}
	shape := shapeOf(n.Outputs[0])
	a := n.Op.(*op.Concat).Axis
	if a < 0 {
		a += len(shape)
	}
	outer, inner := prod(shape[:a]), prod(shape[a+1:])
	b := &bound{inplace: -1}
	var moves []*permutation
	at := 0
	for _, v := range n.Inputs {
		d := shapeOf(v)[a] * inner
		m := newPermutation([]int{outer, d}, []int{shape[a] * inner, 1}, []int{d, 1})
		m.dstAt = at
		moves = append(moves, m)
		if outer == 1 {
			b.into = append(b.into, at)
		}
		at += d
	}
	dt := n.Outputs[0].Type.DType
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		var runs []func(dst, src *tensor.Tensor)
		var which []int
		for i, m := range moves {
			if prod(m.shape) > 0 && !within(in[i], out[0], m.dstAt) {
				runs = append(runs, moveRun(x, m, dt))
				which = append(which, i)
			}
		}
		return func() error {
			for k, run := range runs {
				run(out[0], in[which[k]])
			}
			return nil
		}
	}
	return b, nil
}
