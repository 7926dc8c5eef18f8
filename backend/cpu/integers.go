package cpu

import (
	"unsafe"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/dense"
	"spc/backend/format/i8"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// integerRows is the number of rows of an integer product that are finished together: their
// sums stay in the first-level cache.
const integerRows = 64

// integerWeight returns the kernel of the constant weight of n, nil where it has none for integers.
func (p *program) integerWeight(n *ir.Node) (backend.IntegerKernel, error) {
	_, kernels, err := kernelsOf[backend.IntegerKernel](p, n, 1)
	if len(kernels) == 0 {
		return nil, err
	}
	return kernels[0], nil
}

// elemsOf returns the elements of t, f32 or u8, or the bits of i32; none where it is nil.
func elemsOf(t *tensor.Tensor) ikernel.Elems {
	switch {
	case t == nil:
		return ikernel.Elems{}
	case t.DType() == tensor.U8:
		return ikernel.Elems{U8: t.Bytes()}
	case t.DType() == tensor.I32:
		return ikernel.Elems{F32: asFloats(tensor.Data[int32](t))}
	}
	return ikernel.Elems{F32: t.F32s()}
}

// asBytes and asInts view scratch.
func asBytes(s []float32) []uint8 {
	return unsafe.Slice((*uint8)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}

func asInts(s []float32) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

func asFloats(s []int32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// floats is the number of floats that hold n bytes and keep what follows aligned.
func floats(n int) int { return (n + 63) / 64 * 16 }

// integerConv is a convolution of integers: the weight times the patches of each image. Where
// patches are not the pixels themselves, each image is first laid out as planes. Columns are output
// pixels in rows as long as those of the planes, of which the last few are not stored: what a tap
// reads is then at a fixed distance from them.
type integerConv struct {
	*planes
	kernel backend.IntegerKernel
	ep     *integerEpilogue
	m, k4  int
	at     []int32 // of each row of a panel in an image's planes
	zero   int     // of X, where the node knows it

	// Where the kernel takes columns from planes of four channels, those are laid out.
	group   int // channels side by side in a plane
	columns backend.PlaneColumns
	steps   []int32

	// What windows that lie apart see is laid out as a matrix, of which planes and g are then, from here in an image.
	within, firsts []int // nil where there is no such matrix, see convGeometry.windows
	size, plane    int   // of an image and a plane of its own
}

// matrixOf is the geometry of the product of a weight with a matrix of what the windows of g see.
func (g *convGeometry) matrixOf() *convGeometry {
	unit, k := op.Span{Kernel: 1, Stride: 1, Dilation: 1}, g.channels*g.taps
	return &convGeometry{spans: []op.Span{unit}, in: []int{g.outPlane}, out: []int{g.outPlane}, inPlane: g.outPlane, outPlane: g.outPlane,
		images: g.images, groups: 1, channels: k, rows: g.rows, taps: 1}
}

// bindIntegerConv makes the kernel of a quantised Conv, of one group or depthwise, over at most op.MaxQuantAxes spatial axes.
func bindIntegerConv(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Conv)
	if o.Group != 1 {
		return bindIntegerDepthwise(p, n, o)
	}
	kernel, err := p.integerWeight(n)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if err != nil || kernel == nil || len(xs) > 2+op.MaxQuantAxes || prod(ys) == 0 || prod(xs) == 0 {
		return nil, err
	}
	g, err := newConvGeometry(n, o, 1)
	if err != nil {
		return nil, err
	}
	ep, ok := newIntegerEpilogue(n, &o.Quant, &o.Epilogue, kernel.Sums(), g.channels*g.taps)
	if !ok {
		return nil, nil
	}
	if g.flat() && ep.ones == nil {
		return newIntegerLinear(kernel, ep, g.images, g.rows, g.channels*g.taps).bound(), nil
	}
	if c := g.patches(kernel, ep); c != nil {
		return c.bound(), nil
	}
	return newIntegerConv(g, kernel, ep, o.XZero), nil
}

// bindConvInteger makes the kernel of a convolution of u8 whose sums are the result, with a constant
// weight, of one group over one or two spatial axes.
func bindConvInteger(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.ConvInteger)
	xs, w := shapeOf(n.Inputs[0]), n.Inputs[1].Const
	if w == nil || o.Group != 1 || n.Inputs[0].Type.DType != tensor.U8 || len(xs) > 2+op.MaxQuantAxes || prod(shapeOf(n.Outputs[0])) == 0 || prod(xs) == 0 {
		return nil, nil
	}
	g, err := newConvGeometry(n, &op.Conv{Window: o.Window, Group: 1}, 1)
	if err != nil {
		return nil, err
	}
	var zeros *tensor.Tensor
	if z := n.Input(3); z != nil {
		if zeros = z.Const; zeros == nil {
			return nil, nil
		}
	}
	k := g.channels * g.taps
	if k > op.MaxQuantK {
		return nil, nil
	}
	ints, shifted := op.Signed(w, zeros)
	kernel, err := prepared(p, keyOfWeight(n.Inputs[1], "integers"), func() (backend.Kernel, error) {
		return i8.Dense.CPU(dense.Store(ints.Reshape(g.rows, k)))
	})
	if err != nil {
		return nil, err
	}
	return newIntegerConv(g, kernel.(backend.IntegerKernel), newSums(kernel.(backend.IntegerKernel), shifted, k), 0), nil
}

// newIntegerConv is that of a geometry with at most two spatial axes; nil where it is too large.
func newIntegerConv(g *convGeometry, kernel backend.IntegerKernel, ep *integerEpilogue, zero int) *bound {
	c := &integerConv{kernel: kernel, ep: ep, m: g.rows, k4: ep.groups(kernel), group: 1, zero: zero, size: g.channels * g.inPlane, plane: g.inPlane}
	if g.disjoint() && g.outPlane <= ikernel.Columns && g.taps > 4 { // of few taps planes are as near
		c.within, c.firsts = g.windows()
		g = g.matrixOf()
	}
	c.planes = newPlanes(g, g.taps == 1)
	if g.channels*max(c.channel, g.inPlane) >= 1<<31-64 { // of which offsets are 32 bits
		return nil
	}
	step := 0
	if k, ok := kernel.(backend.PlaneKernel); ok && !c.direct && ep.ones == nil {
		if c.columns, step = k.Planes(g.taps); step > 0 {
			c.group = ikernel.Group
		}
	}
	if c.columns != nil {
		for _, t := range c.taps {
			for i := 0; i < g.channels; i += step {
				c.steps = append(c.steps, int32(i*c.channel+c.group*(t.phase*c.planes.rows*c.cols+t.shift)))
			}
		}
	} else {
		c.at = make([]int32, ikernel.Group*c.k4)
		for k, at := range c.offset {
			c.at[k] = int32(at)
		}
	}
	return c.bound()
}

// laid is the size of the planes of an image in bytes, 0 where there are none. More
// is read behind them than matters.
func (c *integerConv) laid() int {
	if c.direct && c.within == nil {
		return 0
	}
	return c.g.channels*max(c.channel, c.g.inPlane) + ikernel.PanelRow
}

func (c *integerConv) bound() *bound {
	const sums = integerRows * ikernel.Columns
	g := c.g
	shared, panel := floats(c.laid()), floats(c.k4*ikernel.PanelRow)
	if c.columns != nil {
		panel = 0
	}
	cols := (c.outH-1)*c.cols + c.outW
	panels := (cols + ikernel.Columns - 1) / ikernel.Columns
	return &bound{inplace: -1, scratch: shared + panel + sums + ikernel.Columns + c.ep.scratch(), prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		if c.columns == nil {
			x.warm(c.kernel, false)
		}
		ep, zero := c.ep.own(), 0
		var src, image []uint8
		var y, res ikernel.Elems
		planes := asBytes(x.scratch[0][:shared])
		parts := 1
		if t := x.pool.Threads(); panels < 2*t {
			parts = min(t, (c.m+integerRows-1)/integerRows)
		}
		rows := ((c.m+parts-1)/parts + integerRows - 1) / integerRows * integerRows
		spread := func(_, i int) { c.spread(planes, src, i*c.group, uint8(zero)) }
		gather := func(_, k int) {
			row, plane := planes[k*g.outPlane:][:g.outPlane], src[k/len(c.within)*c.plane+c.within[k%len(c.within)]:]
			for j, at := range c.firsts {
				row[j] = plane[at]
			}
		}
		multiply := func(worker, i int) {
			i, part := i/parts, i%parts
			s := x.scratch[worker][shared:]
			col := i * ikernel.Columns
			n := min(ikernel.Columns, cols-col)
			p := patches{image[c.group*col:], n, asBytes(s[:panel]), asInts(s[panel:][:sums]), asInts(s[panel+sums:][:ikernel.Columns])}
			tmp := s[panel+sums+ikernel.Columns:]
			c.pack(ep, p)
			end := min(c.m, (part+1)*rows)
			for r := part * rows; r < end; r += integerRows {
				count := min(integerRows, end-r)
				c.multiply(ep, p, r, count)
				for j := col; j < col+n; {
					line, at := j/c.cols, j%c.cols
					k := min(c.outW-at, col+n-j)
					if k > 0 {
						to := r*g.outPlane + line*c.outW + at
						ep.finish(r, count, k, panelSums(p.sums[j-col:]), y.From(to), res.From(to), g.outPlane, tmp)
					}
					j += min(c.cols-at, col+n-j)
				}
			}
		}
		return func() error {
			zero = ep.begin(in, c.zero)
			for img := range g.images {
				src = in[0].Bytes()[img*c.size:][:c.size]
				y = elemsOf(out[0]).From(img * c.m * g.outPlane)
				if ep.residual >= 0 {
					res = elemsOf(in[op.Residual]).From(img * c.m * g.outPlane)
				}
				image = src
				if c.within != nil {
					x.pool.For(g.channels, gather)
					image = planes[:c.laid()]
				} else if !c.direct {
					x.pool.For(g.channels/c.group, spread)
					image = planes[:c.laid()]
				}
				x.pool.For(panels*parts, multiply)
			}
			return nil
		}
	}}
}

// patches are the n columns of a panel.
type patches struct {
	image       []uint8 // from the first column on
	n           int
	panel       []uint8
	sums, xsums []int32 // of products with rows of the weight, and of the columns themselves
}

// pack makes the panel, where the kernel wants one.
func (c *integerConv) pack(ep *integerEpilogue, p patches) {
	if c.columns == nil {
		ep.kern.Pack(p.panel, p.image, c.at, p.n)
	}
	if ep.ones != nil {
		ep.ones.Panel(p.xsums, p.panel, p.n, 0, 1)
	}
}

// multiply computes the sums of so many rows of the weight from r on.
func (c *integerConv) multiply(ep *integerEpilogue, p patches, r, count int) {
	if c.columns != nil {
		c.columns(p.sums, p.image, c.steps, c.group*c.channel, p.n, r, r+count)
	} else {
		c.kernel.Panel(p.sums, p.panel, p.n, r, r+count)
	}
	if ep.ones != nil {
		ep.lessZeros(r, count, p.n, p.sums, p.xsums)
	}
}

// spread copies channels of an image, as many as lie side by side from a multiple of that on, to
// their planes, with a byte around them.
func (c *integerConv) spread(planes, src []uint8, channel int, fill uint8) {
	group, plane := c.group, c.g.inPlane
	pitch, sw := c.cols*group, c.w.Stride
	lines := c.h.Stride * c.inW // from a line of a phase to the next in src
	src = src[channel*plane:][:group*plane]
	for i, f := range c.copies {
		dst := planes[channel*c.channel+i*c.planes.rows*pitch:][:c.planes.rows*pitch]
		fillBytes(dst[:f.top*pitch], fill)
		fillBytes(dst[f.end*pitch:], fill)
		if f.top == f.end {
			continue
		}
		rest := c.cols - f.left - f.width
		switch {
		case group > 1 && sw <= 2:
			c.ep.kern.Interleave(dst[f.top*pitch:], pitch, src[f.at:], lines, plane, sw, f.end-f.top, f.width, f.left, rest, fill)
			continue
		case group == 1 && sw <= 2:
			c.ep.kern.Frame(dst[f.top*pitch:], pitch, src[f.at:], lines, sw, f.end-f.top, f.width, f.left, rest, fill)
			continue
		}
		for y := range f.end - f.top {
			row := dst[(f.top+y)*pitch:][:pitch]
			fillBytes(row[:group*f.left], fill)
			fillBytes(row[group*(f.left+f.width):], fill)
			for k := range group {
				q := src[k*plane+f.at+y*lines:]
				for j := range f.width {
					row[group*(f.left+j)+k] = q[j*sw]
				}
			}
		}
	}
}

// fillBytes sets all bytes to v.
func fillBytes(x []uint8, v uint8) {
	if len(x) == 0 {
		return
	}
	x[0] = v
	for n := 1; n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
}

// integerLinear is a product of 8-bit integers with tokens whose features are contiguous.
type integerLinear struct {
	kernel       backend.IntegerKernel
	direct       backend.TokenKernel // which takes tokens as they are, nil where panels are faster
	ep           *integerEpilogue
	tokens, m, k int
	k4           int // groups of a token, or of a panel
}

// bindIntegerLinear makes the kernel of a quantised MatMul or Gemm.
func bindIntegerLinear(p *program, n *ir.Node, q *op.Quant, e *op.Epilogue) (*bound, error) {
	kernel, err := p.integerWeight(n)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if err != nil || kernel == nil || prod(ys) == 0 || prod(xs) == 0 {
		return nil, err
	}
	k := xs[len(xs)-1]
	ep, ok := newIntegerEpilogue(n, q, e, kernel.Sums(), k)
	if !ok {
		return nil, nil
	}
	return newIntegerLinear(kernel, ep, prod(xs)/k, ys[len(ys)-1], k).bound(), nil
}

func newIntegerLinear(kernel backend.IntegerKernel, ep *integerEpilogue, tokens, m, k int) *integerLinear {
	ep.ByColumn = true
	l := &integerLinear{kernel: kernel, ep: ep, tokens: tokens, m: m, k: k, k4: ep.groups(kernel)}
	if direct, ok := kernel.(backend.TokenKernel); ok && direct.Direct(tokens) {
		l.direct, l.k4 = direct, ikernel.Groups(k)
	}
	return l
}

// tokens are rows of X that are multiplied together, with room for sums of products with features
// of the weight, and of the tokens themselves.
type tokens struct {
	from        []uint8
	n           int
	panel       []uint8
	turned      []int32 // sums by feature
	sums, xsums []int32
}

const tokenRows = ikernel.Columns // of tokens, and of rows of the weight

// room is the number of floats that hold tokens beside their sums.
func (l *integerLinear) room() int {
	if l.direct != nil {
		return 0
	}
	return floats(l.k4*ikernel.PanelRow) + tokenRows*tokenRows
}

// at views scratch as tokens, and returns what is left of it.
func (l *integerLinear) at(s []float32, from []uint8, n int) (tokens, []float32) {
	const block = tokenRows * tokenRows
	t := tokens{from: from, n: n, sums: asInts(s[:block]), xsums: asInts(s[block:][:tokenRows])}
	s = s[block+tokenRows:]
	if l.direct == nil {
		t.turned, t.panel = asInts(s[:block]), asBytes(s[block:])[:l.k4*ikernel.PanelRow]
	}
	return t, s[l.room():]
}

// pack makes the panel for a kernel that wants one.
func (l *integerLinear) pack(ep *integerEpilogue, t tokens) {
	ep.kern.PackTokens(t.panel, t.from, ikernel.Group*l.k4, t.n, l.k4)
	if ep.ones != nil {
		ep.ones.Panel(t.xsums, t.panel, t.n, 0, 1)
	}
}

// sumUp sums up tokens for a kernel that takes them as they are.
func (l *integerLinear) sumUp(ep *integerEpilogue, t tokens, xsums []int32) {
	ep.ones.Tokens(t.sums, t.from, ikernel.Group*l.k4, t.n, 0, 1)
	for i := range t.n {
		xsums[i] = t.sums[i*tokenRows]
	}
}

// multiply computes the sums of so many features from r on.
func (l *integerLinear) multiply(ep *integerEpilogue, t tokens, r, count int) {
	if l.direct != nil {
		l.direct.Tokens(t.sums, t.from, ikernel.Group*l.k4, t.n, r, r+count)
	} else {
		l.kernel.Panel(t.turned, t.panel, t.n, r, r+count)
		vec.Transpose(asFloats(t.sums), tokenRows, asFloats(t.turned), tokenRows, count, t.n)
	}
	if ep.ones != nil {
		ep.lessZeros(r, t.n, count, t.sums, t.xsums)
	}
}

func (l *integerLinear) bound() *bound {
	const block = tokenRows
	ldx := ikernel.Group * l.k4
	copied, summed := 0, 0
	if ldx != l.k {
		copied = floats(l.tokens * ldx)
	}
	if l.direct != nil && l.ep.ones != nil {
		summed = floats(4 * l.tokens)
	}
	shared := copied + summed
	tokens, rows := (l.tokens+block-1)/block, (l.m+block-1)/block
	return &bound{inplace: -1, scratch: shared + block*block + block + l.room() + l.ep.scratch(), prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		x.warm(l.kernel, l.direct != nil)
		ep := l.ep.own()
		var xs []uint8
		var y, res ikernel.Elems
		padded, xsums := asBytes(x.scratch[0][:copied]), asInts(x.scratch[0][copied:shared])
		// Panels of tokens are made for many rows of the weight.
		parts := rows
		if l.direct == nil {
			parts = min(rows, max(1, (2*x.pool.Threads()+tokens-1)/tokens))
		}
		multiply := func(worker, i int) {
			t0, part := i/parts*block, i%parts
			t, tmp := l.at(x.scratch[worker][shared:], xs[t0*ldx:], min(block, l.tokens-t0))
			if summed > 0 {
				t.xsums = xsums[t0:]
			}
			if l.direct == nil {
				l.pack(ep, t)
			}
			for r := part * rows / parts * block; r < min(l.m, (part+1)*rows/parts*block); r += block {
				count := min(block, l.m-r)
				l.multiply(ep, t, r, count)
				to := t0*l.m + r
				ep.finish(r, t.n, count, panelSums(t.sums), y.From(to), res.From(to), l.m, tmp)
			}
		}
		sumUp := func(worker, i int) {
			t, _ := l.at(x.scratch[worker][shared:], xs[i*block*ldx:], min(block, l.tokens-i*block))
			l.sumUp(ep, t, xsums[i*block:])
		}
		pad := func(_, t int) {
			copy(padded[t*ldx:][:l.k], in[0].Bytes()[t*l.k:])
			clear(padded[t*ldx+l.k : (t+1)*ldx])
		}
		return func() error {
			ep.begin(in, 0)
			xs, y = in[0].Bytes(), elemsOf(out[0])
			if ep.residual >= 0 {
				res = elemsOf(in[op.Residual])
			}
			if copied > 0 {
				x.pool.For(l.tokens, pad)
				xs = padded[:l.tokens*ldx]
			}
			if summed > 0 {
				x.pool.For(tokens, sumUp)
			}
			x.pool.For(tokens*parts, multiply)
			return nil
		}
	}}
}
