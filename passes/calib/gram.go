package calib

import (
	"context"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Gram holds second moments of the columns that a weight W[M,K] multiplies, which are
// the patches of a convolution, in the order [Cin, k1, .., kn] of the weight's rows, or
// tokens. They are sums and not means; matrices are row-major.
type Gram struct {
	K int
	N int // columns that were summed over
	// Seen is the number of columns that there were, of which N were picked.
	Seen int
	XX   []float64 // [K,K], x x^T of the inputs x of the model as it is; symmetric
	X    []float64 // [K], x

	// Of Twins, the inputs xd of the dense model at the same places; nil where they
	// were not asked for.
	DX []float64 // [K,K], xd x^T
	DD []float64 // [K,K], xd xd^T; symmetric
	D  []float64 // [K], xd

	// Of a target t[M], what GramOptions.Want has less GramOptions.Less where the product gives its output; nil without one.
	TX []float64 // [M,K], t x^T
	T  []float64 // [M], t
}

// GramOptions say what GramOf sums.
type GramOptions struct {
	Twins *Twins // whose pruned copy the use belongs to, nil for other graphs
	Cross bool   // sum DX
	Dense bool   // sum DD and D
	// Want and Less, where they are set, are values of the shape of the output of a Conv, or of another product with its
	// weight on the right, of whose difference TX and T are summed.
	Want, Less *ir.Value
	// MaxColumns bounds the columns that are summed over: where there are more, so
	// many are picked, as many in each sample and evenly spread. 0 is for 65536 or
	// 16 K, whichever is more.
	MaxColumns int
}

// minColumns is the least number of columns that MaxColumns stands for if it is 0.
const minColumns = 1 << 16

// GramOf returns the moments of what a weight multiplies, seen by the frontier, whose
// position stays: advancing to the node first, of twins to its dense copy, which comes
// before the pruned one, makes what it reads be kept. An error that wraps
// ir.ErrUnsupported says why the inputs of a weight cannot be seen.
func GramOf(ctx context.Context, f *Frontier, use ir.WeightUse, o GramOptions) (*Gram, error) {
	m, err := newMoments(ctx, f, use, o)
	if err != nil {
		return nil, err
	}
	if err := f.See(ctx, m.values, m.add); err != nil {
		return nil, err
	}
	return m.gram()
}

// blockColumns is the number of columns whose products are summed in float32, before
// these sums are added up in float64.
const blockColumns = 2048

// blockRows is the number of rows of a symmetric matrix that are computed at once, of
// which those below the diagonal are for nothing.
const blockRows = 480

// moments sums up a Gram.
type moments struct {
	node *ir.Node
	op.Kernels
	in     *operand
	values []*ir.Value // x, xd where there is one, and the operand's lengths
	twin   bool        // values has xd

	samples, most int
	picks         []int
	x, xd         []float32 // the columns of a block, [K][blockColumns] or as tokens [blockColumns][K]
	fill          int       // columns in the block
	product       []float32
	t             []float32 // of the block, the target as x, of rows
	rows          int       // of the target, 0 without one

	gramOf *Gram
	equal  bool // xd is the same as x
	o      GramOptions
}

func newMoments(ctx context.Context, f *Frontier, use ir.WeightUse, o GramOptions) (*moments, error) {
	in, err := operandOf(use)
	if err != nil {
		return nil, err
	}
	if in.x.Graph() != f.g {
		return nil, use.Node.Errorf(ir.ErrUnsupported, "it lies in a subgraph, where inputs cannot be seen")
	}
	if in.x.Type.DType != tensor.F32 {
		return nil, use.Node.Errorf(ir.ErrUnsupported, "input %s is %v, want f32", in.x.Name, in.x.Type)
	}
	samples, err := f.Samples(ctx)
	if err != nil {
		return nil, err
	}
	m := &moments{node: use.Node, Kernels: f.o.Loops(), in: in, values: []*ir.Value{in.x}, samples: samples, most: o.MaxColumns, o: o}
	if m.most <= 0 {
		m.most = max(minColumns, 16*in.k)
	}
	m.gramOf = &Gram{K: in.k, XX: make([]float64, in.k*in.k), X: make([]float64, in.k)}
	if o.Cross || o.Dense {
		var dense *ir.Node
		if o.Twins != nil {
			dense = o.Twins.beside[use.Node]
		}
		if dense == nil {
			return nil, use.Node.Errorf(ir.ErrInvalid, "it is no pruned copy of twins, beside which there is a dense one")
		}
		xd := dense.Inputs[in.input]
		if m.equal = f.equal(in.x, xd); !m.equal {
			m.twin = true
			m.values = append(m.values, xd)
			if o.Cross {
				m.gramOf.DX = make([]float64, in.k*in.k)
			}
			if o.Dense {
				m.gramOf.DD, m.gramOf.D = make([]float64, in.k*in.k), make([]float64, in.k)
			}
		}
	}
	if o.Want != nil {
		if _, conv := use.Node.Op.(*op.Conv); !conv && (!in.tokens || in.lengths != nil) {
			return nil, use.Node.Errorf(ir.ErrUnsupported, "its outputs are not known to lie as its inputs do")
		}
		shape, _ := use.Value.Type.Shape()
		m.rows, _ = use.View.Dims(shape)
		m.gramOf.TX, m.gramOf.T = make([]float64, m.rows*in.k), make([]float64, m.rows)
		m.values = append(m.values, o.Want, o.Less)
	}
	if in.lengths != nil {
		m.values = append(m.values, in.lengths)
	}
	return m, nil
}

// equal reports whether values ahead of the position are computed the same way.
func (f *Frontier) equal(a, b *ir.Value) bool {
	same := f.sameness(max(f.at, f.origin(a), f.origin(b)))
	return find(same, a) == find(same, b)
}

// add adds a sample.
func (m *moments) add(sample int, values []*tensor.Tensor) error {
	x := values[0]
	var lengths *tensor.Tensor
	if m.in.lengths != nil {
		lengths = values[len(values)-1]
	}
	n, load, err := m.in.columns(x.Shape(), lengths)
	if err != nil {
		return m.node.Errorf(ir.ErrInvalid, "%v", err)
	}
	var xd *tensor.Tensor
	if m.twin {
		if xd = values[1]; !slices.Equal(xd.Shape(), x.Shape()) {
			return m.node.Errorf(ir.ErrInvalid, "its input is %v, that of its dense copy %v", x, xd)
		}
	}
	aim, err := m.target(values, n)
	if err != nil {
		return err
	}
	m.gramOf.Seen += n
	quota := (sample+1)*m.most/m.samples - sample*m.most/m.samples
	m.picks = pick(m.picks[:0], n, quota, sample)
	for picks := m.picks; len(picks) > 0; {
		k := min(len(picks), blockColumns-m.fill)
		if m.x == nil {
			m.x = make([]float32, m.in.k*blockColumns)
		}
		load(m.x, m.fill, x.F32s(), picks[:k])
		if xd != nil {
			if m.xd == nil {
				m.xd = make([]float32, m.in.k*blockColumns)
			}
			load(m.xd, m.fill, xd.F32s(), picks[:k])
		}
		aim(picks[:k])
		picks = picks[k:]
		if m.fill += k; m.fill == blockColumns {
			m.flush()
		}
	}
	return nil
}

// target returns what writes the target of some of n columns to the block, from m.fill on.
func (m *moments) target(values []*tensor.Tensor, n int) (func(picks []int), error) {
	if m.rows == 0 {
		return func([]int) {}, nil
	}
	both := values[len(values)-2:]
	y := both[0].Shape()
	columns := strided(m.rows, func(y []int) int { return product(y[2:]) })
	if m.in.tokens {
		columns = tokens(m.rows)
	}
	have, load, err := columns(y, nil)
	if err != nil || have != n || !slices.Equal(y, both[1].Shape()) {
		return nil, m.node.Errorf(ir.ErrInvalid, "its target is %v less %v, want %d columns of %d", both[0], both[1], n, m.rows)
	}
	if m.t == nil {
		m.t = make([]float32, m.rows*blockColumns)
	}
	want, less := both[0].F32s(), both[1].F32s()
	t := make([]float32, len(want))
	for i, x := range want {
		t[i] = x - less[i]
	}
	return func(picks []int) { load(m.t, m.fill, t, picks) }, nil
}

// aimed adds the block to the sums of the target.
func (m *moments) aimed() {
	g, k := m.gramOf, m.in.k
	p := make([]float32, m.rows*k)
	if m.in.tokens {
		m.Gemm(true, false, m.rows, k, m.fill, 1, m.t, m.rows, m.x, k, 0, p, k)
	} else {
		m.Gemm(false, true, m.rows, k, m.fill, 1, m.t, blockColumns, m.x, blockColumns, 0, p, k)
	}
	for i, v := range p {
		g.TX[i] += float64(v)
	}
	for r := range m.rows {
		for j := range m.fill {
			at := r*blockColumns + j
			if m.in.tokens {
				at = j*m.rows + r
			}
			g.T[r] += float64(m.t[at])
		}
	}
}

// pick appends the indices of up to quota of n columns, evenly spread from a place
// that changes from sample to sample, so that columns of an image do not all have one
// place in its rows.
func pick(picks []int, n, quota, sample int) []int {
	if n <= quota {
		for i := range n {
			picks = append(picks, i)
		}
		return picks
	}
	// The fractional part of the multiples of the golden ratio, as 32 bits.
	phase := int(uint64(n) * (uint64(sample) * 0x9e3779b97f4a7c15 >> 32) >> 32)
	for j := range quota {
		picks = append(picks, (j*n+phase)/quota)
	}
	return picks
}

// flush adds the block to the sums.
func (m *moments) flush() {
	if m.fill == 0 {
		return
	}
	g := m.gramOf
	m.symmetric(g.XX, m.x)
	m.sum(g.X, m.x)
	if g.DX != nil {
		for r := 0; r < g.K; r += blockRows {
			m.block(g.DX, m.xd, m.x, r, 0)
		}
	}
	if g.DD != nil {
		m.symmetric(g.DD, m.xd)
		m.sum(g.D, m.xd)
	}
	if m.rows > 0 {
		m.aimed()
	}
	g.N += m.fill
	m.fill = 0
}

// symmetric adds x x^T on the diagonal and above it.
func (m *moments) symmetric(sum []float64, x []float32) {
	for r := 0; r < m.in.k; r += blockRows {
		m.block(sum, x, x, r, r)
	}
}

// block adds a b^T to the rows of a sum from r on and its columns from c on.
func (m *moments) block(sum []float64, a, b []float32, r, c int) {
	k := m.in.k
	rows, cols := min(blockRows, k-r), k-c
	if m.product == nil {
		m.product = make([]float32, min(blockRows, k)*k)
	}
	p := m.product[:rows*cols]
	if m.in.tokens {
		m.Gemm(true, false, rows, cols, m.fill, 1, a[r:], k, b[c:], k, 0, p, cols)
	} else {
		m.Gemm(false, true, rows, cols, m.fill, 1, a[r*blockColumns:], blockColumns, b[c*blockColumns:], blockColumns, 0, p, cols)
	}
	for i := range rows {
		dst := sum[(r+i)*k+c:][:cols]
		for j, v := range p[i*cols:][:cols] {
			dst[j] += float64(v)
		}
	}
}

// sum adds the columns.
func (m *moments) sum(sum []float64, x []float32) {
	if m.in.tokens {
		for j := range m.fill {
			for i, v := range x[j*m.in.k:][:m.in.k] {
				sum[i] += float64(v)
			}
		}
		return
	}
	for i := range sum {
		row := x[i*blockColumns:][:m.fill]
		var a, b, c, d float64
		for ; len(row) >= 4; row = row[4:] {
			a, b, c, d = a+float64(row[0]), b+float64(row[1]), c+float64(row[2]), d+float64(row[3])
		}
		for _, v := range row {
			a += float64(v)
		}
		sum[i] += a + b + (c + d)
	}
}

// gram returns the sums over all samples.
func (m *moments) gram() (*Gram, error) {
	m.flush()
	g := m.gramOf
	if g.N == 0 {
		return nil, m.node.Errorf(ir.ErrInvalid, "its input has no columns in any sample")
	}
	for _, s := range [][]float64{g.XX, g.DX, g.DD, g.TX} {
		for _, v := range s {
			if !(v-v == 0) {
				return nil, m.node.Errorf(ir.ErrInvalid, "products of its inputs overflow float32")
			}
		}
	}
	mirror(g.XX, g.K)
	if g.DD != nil {
		mirror(g.DD, g.K)
	}
	if m.equal && m.o.Cross {
		g.DX = slices.Clone(g.XX)
	}
	if m.equal && m.o.Dense {
		g.DD, g.D = slices.Clone(g.XX), slices.Clone(g.X)
	}
	return g, nil
}

// mirror copies what lies above the diagonal below it.
func mirror(s []float64, k int) {
	for i := range k {
		for j := range i {
			s[i*k+j] = s[j*k+i]
		}
	}
}
