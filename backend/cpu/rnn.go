package cpu

import (
	"fmt"
	"strings"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// recurrent is an LSTM, a GRU or an RNN with the default activations: the products
// with the inputs of all steps at once, those with the states step by step.
type recurrent struct {
	node                       *ir.Node
	seq, batch, hidden         int
	dirs, gates                int
	reverse                    bool
	input                      linear              // X W' and all biases that a sum takes, [seq*batch, dirs*gates*H]
	state                      backend.FloatKernel // R, [dirs*gates*H, H]
	linears                    []backend.Linear    // see stateKernels
	stages                     []stage             // of a step
	resetBias                  []float32           // of a GRU's last gate, added to R h before r multiplies it, [dirs*H]; nil for none
	lengths, initialH, initial bool                // there are sequence_lens, initial_h, initial_c
}

// stage is a part of a step: products of some gates with states, and what brings
// some units of one sample on with them. A step of a GRU that resets the state
// before the product has two.
type stage struct {
	from, to int  // gates
	reset    bool // the products are those of the state times r
	cell     func(r *recurrence, u *units)
}

// unitBlock is the number of hidden units that one call completes: those of all
// gates, so that what follows the products needs no barrier.
const unitBlock = 64

// unitRoom is the room for the products of one gate with a block of units, which
// may begin before and end behind it.
const unitRoom = unitBlock + 2*backend.VecTile

func bindLSTM(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.LSTM)
	if o.InputForget || n.Input(7) != nil {
		return nil, nil
	}
	return bindRecurrent(p, n, &o.Recurrent, []string{"Sigmoid", "Tanh", "Tanh"}, 4, []stage{{from: 0, to: 4, cell: lstm}})
}

func bindGRU(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.GRU)
	stages := []stage{{from: 0, to: 2, cell: gruReset}, {from: 2, to: 3, reset: true, cell: gruFresh}}
	if o.ResetAfter {
		stages = []stage{{from: 0, to: 3, cell: gru}}
	}
	return bindRecurrent(p, n, &o.Recurrent, []string{"Sigmoid", "Tanh"}, 3, stages)
}

func bindRNN(p *program, n *ir.Node) (*bound, error) {
	return bindRecurrent(p, n, &n.Op.(*op.RNN).Recurrent, []string{"Tanh"}, 1, []stage{{from: 0, to: 1, cell: rnn}})
}

func bindRecurrent(p *program, n *ir.Node, o *op.Recurrent, activations []string, gates int, stages []stage) (*bound, error) {
	if !f32Recurrent(n) || o.Clip != nil || o.BatchFirst || !usual(o.Activations, activations) {
		return nil, nil
	}
	_, w, err := p.weightOf(n, 1)
	if err != nil {
		return nil, err
	}
	_, r, err := p.weightOf(n, 2)
	if err != nil || w == nil || r == nil {
		return nil, err
	}
	b, ok := constantF32(n, 3)
	xs, rs := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[2])
	c := &recurrent{
		node: n,
		seq:  xs[0], batch: xs[1], hidden: rs[2], dirs: rs[0], gates: gates,
		reverse: o.Direction == "reverse", state: r[0], stages: stages,
		lengths: n.Input(4) != nil, initialH: n.Input(5) != nil, initial: n.Input(6) != nil,
	}
	if !ok || prod(xs) == 0 || c.hidden == 0 {
		return nil, nil
	}
	if c.linears, err = p.stateKernels(n, c); err != nil {
		return nil, err
	}
	m := gates * c.hidden
	c.input = linear{kernel: w[0], tokens: c.seq * c.batch, m: c.dirs * m, k: xs[2], scale: 1, add: -1,
		ep: epilogue{residual: -1, lo: -inf, hi: inf}}
	if b != nil {
		c.biases(b)
	}
	return &bound{inplace: -1, scratch: max(c.input.scratch(), c.scratch()), shared: c.shared(), prepare: c.prepare}, nil
}

// f32Recurrent is f32 for all but the lengths of the sequences.
func f32Recurrent(n *ir.Node) bool {
	for i, v := range n.Inputs {
		if v != nil && v.Type.DType != tensor.F32 && i != 4 {
			return false
		}
	}
	return true
}

// usual reports whether the activations of each direction are the given ones.
func usual(names, want []string) bool {
	for i, name := range names {
		if !strings.EqualFold(name, want[i%len(want)]) {
			return false
		}
	}
	return true
}

// biases shares b, for each direction those of W and those of R, out.
func (c *recurrent) biases(b []float32) {
	m, n := c.gates*c.hidden, c.hidden
	sum := make([]float32, c.dirs*m)
	after := c.gates == 3 && len(c.stages) == 1
	for d := range c.dirs {
		of := b[d*2*m:][:2*m]
		vec.Add(sum[d*m:][:m], of[:m], of[m:])
		if after {
			copy(sum[d*m+2*n:], of[2*n:m])
			c.resetBias = append(c.resetBias, of[m+2*n:]...)
		}
	}
	c.input.ep.bias = sum
}

// stateKernels are those that multiply the states of all samples as tokens: for each direction one for each gate, whose rows so begin a
// panel, or one for all gates where one block has all units. There are none where states are multiplied otherwise.
func (p *program) stateKernels(n *ir.Node, c *recurrent) ([]backend.Linear, error) {
	if _, ok := c.state.(backend.Linear); !ok || c.batch == 1 && c.hidden > unitBlock {
		return nil, nil
	}
	if s := n.Input(2).Store; s != nil && s.Format != dense.Name { // whose rows cannot be taken apart
		return nil, nil
	}
	for _, ref := range n.Op.(ir.WeightOp).Weights(n) {
		if ref.Input != 2 {
			continue
		}
		ref.Groups = c.dirs * c.gates / c.gatesEach()
		all, err := p.weight(n.Input(2), ref)
		if err != nil {
			return nil, n.Errorf(ir.ErrInvalid, "weight %s: %v", n.Input(2).Name, err)
		}
		out := make([]backend.Linear, len(all))
		for i, k := range all {
			out[i] = k.(backend.Linear) // as that of the whole weight is, of which they are parts
		}
		return out, nil
	}
	return nil, nil
}

// gatesEach is the number of gates whose products one of the linears computes.
func (c *recurrent) gatesEach() int {
	if c.hidden <= unitBlock {
		return c.gates
	}
	return 1
}

// panels reports whether the states of all samples are multiplied in panels.
func (c *recurrent) panels() bool {
	return c.linears == nil && c.batch > max(c.state.VecColumns(), 4)
}

// strips is the number of panels that the states of the samples fill.
func (c *recurrent) strips() int { return (c.batch + backend.Panel - 1) / backend.Panel }

// sumRows is the number of rows of products with the state that a direction has room
// for: they begin and end with whole tiles.
func (c *recurrent) sumRows() int { return c.gates*c.hidden + 2*blockRows(c.state.Tile()) }

func (c *recurrent) scratch() int {
	if c.panels() {
		return c.gates * backend.Panel * unitBlock
	}
	return max(c.gates*unitRoom, backend.Panel*backend.Panel)
}

// shared is the number of floats of the buffers of a recurrence.
func (c *recurrent) shared() int {
	states := c.dirs * c.batch * c.hidden
	n := c.seq*c.batch*c.dirs*c.gates*c.hidden + 3*states
	if len(c.stages) > 1 {
		n += 2 * states
	}
	switch {
	case c.panels():
		n += c.dirs * c.strips() * (c.sumRows() + c.hidden) * backend.Panel
	case c.linears != nil:
		n += c.gates * states
	}
	return n
}

// recurrence is a recurrent operator in an exec.
type recurrence struct {
	*recurrent
	pool    *Team
	scratch [][]float32
	gx      []float32    // the input's share of the gates, [seq*batch, dirs*gates*H]
	h       [2][]float32 // the states before and after even steps, [dirs, batch, H]
	c       []float32    // LSTM's cells, [dirs, batch, H]
	z, rh   []float32    // a GRU's gate z, and r*h, between two stages, [dirs, batch, H]
	first   []float32    // products with zero states, [dirs*gates*H], where those come first
	hs      []float32    // panels of the states, [dirs, strips, H, 64]
	sums    []float32    // panels of the products, [dirs, strips, sumRows, 64], or of tokens, [linears, batch, rows of each]
	units   []units      // by worker

	// Of a step.
	step    int
	stage   *stage
	y       []float32
	lengths []int32
}

// prepare makes what runs the operator in an exec.
func (c *recurrent) prepare(x *exec, in, out []*tensor.Tensor) func() error {
	r := &recurrence{recurrent: c, pool: x.pool, scratch: x.scratch, units: make([]units, x.pool.Threads())}
	states, m := c.dirs*c.batch*c.hidden, c.dirs*c.gates*c.hidden
	free := x.shared
	take := func(n int) []float32 {
		s := free[:n:n]
		free = free[n:]
		return s
	}
	r.gx = take(c.seq * c.batch * m)
	r.h, r.c = [2][]float32{take(states), take(states)}, take(states)
	if len(c.stages) > 1 {
		r.z, r.rh = take(states), take(states)
	}
	switch {
	case c.linears != nil:
		r.sums = take(c.batch * m)
		for _, k := range c.linears {
			x.warm(k, true)
		}
	case c.panels():
		r.hs = take(c.dirs * c.strips() * c.hidden * backend.Panel)
		r.sums = take(c.dirs * c.strips() * c.sumRows() * backend.Panel)
	}
	if !c.initialH {
		r.first = make([]float32, m+backend.VecTile)
		c.state.Vec(r.first, r.h[0][:c.hidden], 0, m)
	}
	var o operands
	input := c.input.prepare(x, &o)
	steps := r.prepare()
	return func() error {
		o = operands{xs: in[0].F32s(), ys: r.gx}
		input()
		r.y, r.lengths = nil, nil
		if out[0] != nil {
			r.y = out[0].F32s()
		}
		if c.lengths {
			r.lengths = tensor.Data[int32](in[4])
			for _, n := range r.lengths {
				if n < 0 || int(n) > c.seq {
					return nodeError(c.node, fmt.Errorf("sequence_lens has %d, want 0 to %d: %w", n, c.seq, ir.ErrInvalid))
				}
			}
			clear(r.y)
		}
		clear(r.h[0])
		clear(r.c)
		if c.initialH {
			copy(r.h[0], in[5].F32s())
		}
		if c.initial {
			copy(r.c, in[6].F32s())
		}
		steps()
		for i, s := range [][]float32{1: r.h[c.seq%2], 2: r.c} {
			if i > 0 && i < len(out) && out[i] != nil {
				copy(out[i].F32s(), s)
			}
		}
		return nil
	}
}

// small is the number of multiply-adds of a step up to which it stays on one
// thread: others would come too late.
const smallStep = 1 << 14

// prepare returns what does all steps. A thread without others takes those of one direction after those of the
// other, so that the weights of one stay in its cache.
func (r *recurrence) prepare() func() {
	alone := r.pool.Threads() == 1 || r.dirs*r.gates*r.hidden*r.hidden*r.batch <= smallStep
	together := r.dirs
	if alone {
		together = 1
	}
	do := r.stageOf(func(d, n int, body func(worker, i int)) {
		if !alone {
			r.pool.For(r.dirs*n, body)
			return
		}
		for i := range n {
			body(0, d*n+i)
		}
	})
	return func() {
		for d := 0; d < r.dirs; d += together {
			for r.step = range r.seq {
				for i := range r.stages {
					r.stage = &r.stages[i]
					do(d)
				}
			}
		}
	}
}

// stageOf returns what does a stage of the directions from d on that take their steps together, where run calls the
// body for n parts of each of these.
func (r *recurrence) stageOf(run func(d, n int, body func(worker, i int))) func(d int) {
	blocks := (r.hidden + unitBlock - 1) / unitBlock
	body := func(worker, i int) { r.vectors(worker, i/blocks, i%blocks*unitBlock) }
	if !r.panels() {
		return func(d int) { run(d, blocks, body) }
	}
	strips := r.strips()
	rows := blockRows(r.state.Tile())
	parts := (r.sumRows() + rows - 1) / rows
	load := func(_, i int) { r.load(i/blocks/strips, i/blocks%strips, i%blocks*unitBlock) }
	multiply := func(_, i int) { r.multiply(i/parts/strips, i/parts%strips, i%parts*rows, rows) }
	finish := func(worker, i int) {
		r.panel(worker, i/blocks/strips, i/blocks%strips, i%blocks*unitBlock)
	}
	return func(d int) {
		if r.start() {
			run(d, blocks, body)
			return
		}
		run(d, strips*blocks, load)
		run(d, strips*parts, multiply)
		run(d, strips*blocks, finish)
	}
}

// states are what the stage multiplies.
func (r *recurrence) states() []float32 {
	if r.stage.reset {
		return r.rh
	}
	return r.h[r.step%2]
}

// vectors multiplies the states of direction d, as tokens or sample by sample, for the
// units from j on, and brings these on.
func (r *recurrence) vectors(worker, d, j int) {
	buf, u, n := r.scratch[worker], &r.units[worker], min(unitBlock, r.hidden-j)
	*u = units{d: d, j: j, n: n}
	if r.linears != nil && !r.start() {
		r.tokens(buf, d, j, n)
	}
	for u.b = range r.batch {
		for g := r.stage.from; g < r.stage.to; g++ {
			u.s[g] = r.product(u, g, buf[g*unitRoom:][:unitRoom])
		}
		r.finish(u)
	}
}

// tokens multiplies the states of direction d for n units from j on.
func (r *recurrence) tokens(buf []float32, d, j, n int) {
	each := r.gatesEach()
	x := r.states()[d*r.batch*r.hidden:][:r.batch*r.hidden]
	size := each * len(x)
	if each > 1 {
		from := r.stage.from * r.hidden / backend.Panel * backend.Panel
		r.linears[d].Tokens(r.sums[d*size:][:size], x, r.batch, from, r.stage.to*r.hidden, buf)
		return
	}
	for g := d*r.gates + r.stage.from; g < d*r.gates+r.stage.to; g++ {
		r.linears[g].Tokens(r.sums[g*size:][:size], x, r.batch, j, j+n, buf)
	}
}

// start reports whether the products are those with zero states.
func (r *recurrence) start() bool { return r.step == 0 && r.first != nil }

// product returns that of one gate of some units, which may change; buf is room for it.
func (r *recurrence) product(u *units, g int, buf []float32) []float32 {
	row := (u.d*r.gates+g)*r.hidden + u.j
	switch {
	case r.start():
		copy(buf[:u.n], r.first[row:])
		return buf[:u.n]
	case r.linears != nil:
		each := r.gatesEach()
		k, at := (u.d*r.gates+g)/each, g%each*r.hidden+u.j
		return r.sums[(k*r.batch+u.b)*each*r.hidden+at:][:u.n]
	}
	lo := row / backend.VecTile * backend.VecTile
	r.state.Vec(buf, r.states()[(u.d*r.batch+u.b)*r.hidden:][:r.hidden], lo, row+u.n)
	return buf[row-lo:][:u.n]
}

// load puts units from j on of a strip of samples into its panel.
func (r *recurrence) load(d, strip, j int) {
	b := strip * backend.Panel
	panel := r.hs[((d*r.strips()+strip)*r.hidden+j)*backend.Panel:]
	vec.Transpose(panel, backend.Panel, r.states()[(d*r.batch+b)*r.hidden+j:], r.hidden,
		min(backend.Panel, r.batch-b), min(unitBlock, r.hidden-j))
}

// multiply computes a block of rows of the products of direction d with a strip of
// samples, row counting from the first tile that the direction has a part in.
func (r *recurrence) multiply(d, strip, row, rows int) {
	m := r.gates * r.hidden
	first := r.firstRow(d)
	from, to := d*m+r.stage.from*r.hidden, d*m+r.stage.to*r.hidden
	lo, hi := first+row, min(first+row+rows, r.dirs*m)
	if lo >= to || hi <= from {
		return
	}
	x := r.hs[(d*r.strips()+strip)*r.hidden*backend.Panel:]
	y := r.sums[((d*r.strips()+strip)*r.sumRows()+row)*backend.Panel:]
	granules := backend.Columns(max(2, min(backend.Panel, r.batch-strip*backend.Panel))) / backend.Granule
	bounds := r.state.Bounds()
	for b := range len(bounds) - 1 {
		r.state.Panel(y, x[bounds[b]*backend.Panel:], b, granules, lo, hi)
	}
}

// firstRow is the first row of the tile in which direction d begins.
func (r *recurrence) firstRow(d int) int {
	return d * r.gates * r.hidden / r.state.Tile() * r.state.Tile()
}

// panel brings the units from j on of a strip of samples on.
func (r *recurrence) panel(worker, d, strip, j int) {
	buf, u := r.scratch[worker], &r.units[worker]
	n, b := min(unitBlock, r.hidden-j), strip*backend.Panel
	samples := min(backend.Panel, r.batch-b)
	sums := r.sums[(d*r.strips()+strip)*r.sumRows()*backend.Panel:]
	for g := r.stage.from; g < r.stage.to; g++ {
		row := (d*r.gates+g)*r.hidden + j - r.firstRow(d)
		vec.Transpose(buf[g*unitBlock*backend.Panel:], unitBlock, sums[row*backend.Panel:], backend.Panel, n, samples)
	}
	*u = units{d: d, j: j, n: n}
	for i := range samples {
		u.b = b + i
		for g := r.stage.from; g < r.stage.to; g++ {
			u.s[g] = buf[(g*backend.Panel+i)*unitBlock:][:n]
		}
		r.finish(u)
	}
}

// units are n hidden units from j on of sample b of direction d. By gate, g is the
// share of the inputs and s that of the states.
type units struct {
	d, b, j, n int
	g, s       [4][]float32
	at         int       // where they are in states
	h, next    []float32 // their state before and after the step
}

// finish ends a stage for some units of a sample, unless its sequence is over.
func (r *recurrence) finish(u *units) {
	length := r.seq
	if r.lengths != nil {
		length = int(r.lengths[u.b])
	}
	u.at = (u.d*r.batch+u.b)*r.hidden + u.j
	u.h, u.next = r.h[r.step%2][u.at:][:u.n], r.h[1-r.step%2][u.at:][:u.n]
	if r.step >= length {
		copy(u.next, u.h)
		return
	}
	t := r.step
	if r.reverse || u.d == 1 {
		t = length - 1 - r.step
	}
	for g := r.stage.from; g < r.stage.to; g++ {
		u.g[g] = r.gx[((t*r.batch+u.b)*r.dirs+u.d)*r.gates*r.hidden+g*r.hidden+u.j:][:u.n]
	}
	r.stage.cell(r, u)
	if r.y != nil && r.stage.to == r.gates {
		copy(r.y[((t*r.dirs+u.d)*r.batch+u.b)*r.hidden+u.j:], u.next)
	}
}

// lstm has the gates i, o, f, c.
func lstm(r *recurrence, u *units) {
	for g, s := range u.s {
		vec.Add(s, s, u.g[g])
	}
	for _, s := range u.s[:3] {
		vec.Sigmoid(s, s)
	}
	i, o, f, z := u.s[0], u.s[1], u.s[2], u.s[3]
	c := r.c[u.at:][:u.n]
	vec.Tanh(z, z)
	vec.Mul(c, c, f)
	vec.Mul(z, z, i)
	vec.Add(c, c, z)
	vec.Tanh(u.next, c)
	vec.Mul(u.next, u.next, o)
}

// gru has the gates z, r, h, and resets the product with the state.
func gru(r *recurrence, u *units) {
	z, reset, fresh := u.s[0], u.s[1], u.s[2]
	vec.Add(z, z, u.g[0])
	vec.Sigmoid(z, z)
	vec.Add(reset, reset, u.g[1])
	vec.Sigmoid(reset, reset)
	if r.resetBias != nil {
		vec.Add(fresh, fresh, r.resetBias[u.d*r.hidden+u.j:][:u.n])
	}
	vec.Mul(fresh, fresh, reset)
	mix(u, z, fresh)
}

// gruReset is the first stage of a GRU that resets the state.
func gruReset(r *recurrence, u *units) {
	z, rh := r.z[u.at:][:u.n], r.rh[u.at:][:u.n]
	vec.Add(z, u.s[0], u.g[0])
	vec.Sigmoid(z, z)
	vec.Add(rh, u.s[1], u.g[1])
	vec.Sigmoid(rh, rh)
	vec.Mul(rh, rh, u.h)
}

// gruFresh is the second.
func gruFresh(r *recurrence, u *units) { mix(u, r.z[u.at:][:u.n], u.s[2]) }

// mix makes the state z h + (1-z) tanh(fresh + the input's share).
func mix(u *units, z, fresh []float32) {
	vec.Add(fresh, fresh, u.g[2])
	vec.Tanh(fresh, fresh)
	vec.Sub(u.next, u.h, fresh)
	vec.Mul(u.next, u.next, z)
	vec.Add(u.next, u.next, fresh)
}

func rnn(_ *recurrence, u *units) {
	vec.Add(u.next, u.s[0], u.g[0])
	vec.Tanh(u.next, u.next)
}
