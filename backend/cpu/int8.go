package cpu

import (
	"math"
	"slices"
	"unsafe"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// rows8 is the number of rows of an integer product that are finished together: their
// sums stay in the first-level cache.
const rows8 = 64

// integerWeight returns the kernel of the constant weight of n, nil where it has none for integers.
func (p *program) integerWeight(n *ir.Node) (backend.IntegerKernel, error) {
	_, kernels, err := kernelsOf[backend.IntegerKernel](p, n, 1)
	if len(kernels) == 0 {
		return nil, err
	}
	return kernels[0], nil
}

// epilogue8 finishes the sums of a product of 8-bit integers.
type epilogue8 struct {
	ikernel.Epilogue
	kern     *ikernel.Kernels
	act      activation     // applied to f32, nil where the limits say it all
	quant    ikernel.Limits // how what act returns becomes u8
	residual bool
	u8       bool // the result is u8
}

// newEpilogue8 prepares the epilogue of n, whose weight has the given sums of rows; ok
// is false where its bias is no constant.
func newEpilogue8(n *ir.Node, q *op.Quant, e *op.Epilogue, sums []int32) (*epilogue8, bool) {
	bias, ok := constantF32(n, 2)
	if !ok {
		return nil, false
	}
	f := newEpilogue(n, e, nil)
	ep := &epilogue8{kern: ikernel.Best(), act: f.act, residual: f.residual >= 0, u8: q.YScale != 0}
	shift := float32(0)
	if ep.residual && q.RScale != 0 {
		ep.ResScale = q.RScale
		shift = -q.RScale * float32(q.RZero)
	}
	for m, s := range sums {
		ep.Sum = append(ep.Sum, -int32(q.XZero)*s)
		ep.Scale = append(ep.Scale, q.XScale*q.WScale[m%len(q.WScale)])
		b := shift
		if bias != nil {
			b += bias[m]
		}
		ep.Bias = append(ep.Bias, b)
	}
	ep.Lo, ep.Hi = f.lo, f.hi
	if ep.u8 && ep.act == nil {
		ep.ToU8(q.YScale, q.YZero)
	} else if ep.u8 {
		ep.quant = ikernel.NoLimits()
		ep.quant.ToU8(q.YScale, q.YZero)
	}
	return ep, true
}

// scratch is the number of floats that finish needs.
func (e *epilogue8) scratch() int {
	if e.act != nil && e.u8 {
		return ikernel.Columns
	}
	return 0
}

// finish stores rows of n sums, 64 apart: y and res have rows ldy apart. first is the
// first row, or with ByColumn the first column, and tmp as long as scratch says.
func (e *epilogue8) finish(first, rows, n int, c []int32, y, res ikernel.Elems, ldy int, tmp []float32) {
	const ldc = ikernel.Columns
	if e.act == nil {
		e.kern.Finish(&e.Epilogue, first, rows, n, c, ldc, y, res, ldy)
		return
	}
	for r := range rows {
		at := first
		if !e.ByColumn {
			at += r
		}
		row := ikernel.Elems{F32: tmp}
		if !e.u8 {
			row = y.From(r * ldy)
		}
		row.F32 = row.F32[:n]
		e.kern.Finish(&e.Epilogue, at, 1, n, c[r*ldc:], ldc, row, res.From(r*ldy), ldy)
		e.act(row.F32)
		if e.u8 {
			e.kern.Quantize(&e.quant, y.U8[r*ldy:][:n], row.F32)
		}
	}
}

// elems8 returns the elements of t, f32 or u8; none where it is nil.
func elems8(t *tensor.Tensor) ikernel.Elems {
	switch {
	case t == nil:
		return ikernel.Elems{}
	case t.DType() == tensor.U8:
		return ikernel.Elems{U8: t.Bytes()}
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

// conv8 is a convolution of 8-bit integers. Where patches are not the pixels
// themselves, each image is first copied to padded planes, one for each phase of the
// strides: a tap then reads a plane at a fixed distance from the output pixel, and
// columns are output pixels in rows as long as those of the planes, of which the last
// few are not stored.
type conv8 struct {
	kernel            backend.IntegerKernel
	ep                *epilogue8
	m, k4             int
	images, channels  int
	h, w, oh, ow      int
	sh, sw, top, left int
	phases            [][2]int // vertical and horizontal, of the planes of a channel
	ph, pw            int      // size of a plane; 0 where patches are the pixels
	offset            []int32  // of each row of a panel in an image's planes
	fill              uint8

	// Where the kernel takes columns from planes of four channels, those are laid out.
	planeColumns backend.PlaneColumns
	steps        []int32
}

// bindConv8 makes the kernel of a quantised Conv of one group over one or two spatial
// axes.
func bindConv8(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Conv)
	kernel, err := p.integerWeight(n)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if err != nil || kernel == nil || len(xs) > 4 || prod(ys) == 0 || prod(xs) == 0 {
		return nil, err
	}
	wshape, _ := n.Inputs[1].Type.Shape()
	spans, out, err := o.Geometry(xs, wshape)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	ep, ok := newEpilogue8(n, &o.Quant, &o.Epilogue, kernel.Sums())
	if !ok {
		return nil, nil
	}
	in := xs[2:]
	if len(in) == 1 {
		in, out = []int{1, in[0]}, []int{1, out[0]}
		spans = []op.Span{{Kernel: 1, Stride: 1, Dilation: 1}, spans[0]}
	}
	c := &conv8{
		kernel: kernel, ep: ep, m: ys[1], images: xs[0], channels: xs[1],
		h: in[0], w: in[1], oh: out[0], ow: out[1], fill: uint8(o.XZero),
		sh: spans[0].Stride, sw: spans[1].Stride, top: spans[0].Begin, left: spans[1].Begin,
	}
	if !c.place(spans[0], spans[1]) {
		return nil, nil
	}
	return c.bound(), nil
}

// place lays out the planes and finds where in them the rows of a panel are; it is
// false where planes are too large.
func (c *conv8) place(v, h op.Span) bool {
	taps := v.Kernel * h.Kernel
	c.k4 = c.kernel.Groups()
	c.offset = make([]int32, ikernel.Group*c.k4)
	if taps == 1 && c.sh == 1 && c.sw == 1 && v.Begin == 0 && v.End == 0 && h.Begin == 0 && h.End == 0 {
		c.pw = 0
		for i := range c.channels {
			c.offset[i] = int32(i * c.h * c.w)
		}
		return c.channels*c.h*c.w < 1<<31
	}
	type tap struct{ phase, at int }
	list := make([]tap, 0, taps)
	index := map[[2]int]int{}
	group := 1 // channels of a plane
	if k, ok := c.kernel.(backend.PlaneKernel); ok {
		if c.planeColumns, ok = k.Planes(taps); ok {
			group = ikernel.Group
		}
	}
	c.ph = c.oh + (v.Kernel-1)*v.Dilation/c.sh
	c.pw = c.ow + (h.Kernel-1)*h.Dilation/c.sw
	for i := range v.Kernel {
		for j := range h.Kernel {
			y, x := i*v.Dilation, j*h.Dilation
			phase := [2]int{y % c.sh, x % c.sw}
			if _, ok := index[phase]; !ok {
				index[phase] = len(c.phases)
				c.phases = append(c.phases, phase)
			}
			list = append(list, tap{index[phase], y/c.sh*c.pw + x/c.sw})
		}
	}
	if size, err := tensor.Elems([]int{c.channels, len(c.phases), c.ph, c.pw}); err != nil || size >= 1<<31-64 {
		return false
	}
	if c.planeColumns != nil {
		for _, t := range list {
			for i := 0; i < c.channels; i += ikernel.PlaneStep {
				c.steps = append(c.steps, int32(((i/group*len(c.phases)+t.phase)*c.ph*c.pw+t.at)*group))
			}
		}
		return true
	}
	for k := range c.channels * taps {
		t := list[k%taps]
		c.offset[k] = int32((k/taps*len(c.phases)+t.phase)*c.ph*c.pw + t.at)
	}
	return true
}

// planes is the size of the planes of an image in bytes, 0 where there are none. More
// is read behind them than matters.
func (c *conv8) planes() int {
	if c.pw == 0 {
		return 0
	}
	return c.channels*len(c.phases)*c.ph*c.pw + ikernel.PanelRow
}

// columns is the number of columns of an image.
func (c *conv8) columns() int {
	if c.pw == 0 {
		return c.oh * c.ow
	}
	return (c.oh-1)*c.pw + c.ow
}

func (c *conv8) bound() *bound {
	const sums = rows8 * ikernel.Columns
	shared, panel := floats(c.planes()), floats(c.k4*ikernel.PanelRow)
	pitch := c.pw
	if pitch == 0 {
		pitch = c.ow
	}
	stored := c.ow
	if c.pw == 0 { // rows follow each other without gaps
		pitch, stored = c.oh*c.ow, c.oh*c.ow
	}
	if c.planeColumns != nil {
		panel = 0
	}
	cols := c.columns()
	panels := (cols + ikernel.Columns - 1) / ikernel.Columns
	plane := c.oh * c.ow
	return &bound{inplace: -1, scratch: shared + panel + sums + c.ep.scratch(), prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, image []uint8
		var y, res ikernel.Elems
		planes := asBytes(x.scratch[0][:shared])
		parts := 1
		if t := x.pool.Threads(); panels < 2*t {
			parts = min(t, (c.m+rows8-1)/rows8)
		}
		rows := ((c.m+parts-1)/parts + rows8 - 1) / rows8 * rows8
		group, spreads := 1, c.channels
		if c.planeColumns != nil {
			group, spreads = ikernel.Group, c.channels/ikernel.Group
		}
		pitch8 := group * len(c.phases) * c.ph * c.pw
		spread := func(_, i int) { c.spread(planes, src, i*group, group) }
		multiply := func(worker, i int) {
			i, part := i/parts, i%parts
			s := x.scratch[worker][shared:]
			xs, sum, tmp := asBytes(s[:panel]), asInts(s[panel:][:sums]), s[panel+sums:]
			col := i * ikernel.Columns
			n := min(ikernel.Columns, cols-col)
			if c.planeColumns == nil {
				c.ep.kern.Pack(xs, image[col:], c.offset, n)
			}
			end := min(c.m, (part+1)*rows)
			for r := part * rows; r < end; r += rows8 {
				count := min(rows8, end-r)
				if c.planeColumns != nil {
					c.planeColumns(sum, image[group*col:], c.steps, pitch8, n, r, r+count)
				} else {
					c.kernel.Panel(sum, xs, n, r, r+count)
				}
				for j := col; j < col+n; {
					line, at := j/pitch, j%pitch
					k := min(stored-at, col+n-j)
					if k > 0 {
						to := r*plane + line*stored + at
						c.ep.finish(r, count, k, sum[j-col:], y.From(to), res.From(to), plane, tmp)
					}
					j += min(pitch-at, col+n-j)
				}
			}
		}
		return func() error {
			for img := range c.images {
				src = in[0].Bytes()[img*c.channels*c.h*c.w:][:c.channels*c.h*c.w]
				y = elems8(out[0]).From(img * c.m * plane)
				if c.ep.residual {
					res = elems8(in[op.Residual]).From(img * c.m * plane)
				}
				image = src
				if c.pw > 0 {
					x.pool.For(spreads, spread)
					image = planes[:c.planes()]
				}
				x.pool.For(panels*parts, multiply)
			}
			return nil
		}
	}}
}

// spread copies channels of an image, 1 or 4 from a multiple of that on, to their
// planes.
func (c *conv8) spread(planes, src []uint8, channel, group int) {
	size := c.ph * c.pw * group
	pitch := c.pw * group
	plane := c.h * c.w
	src = src[channel*plane:][:group*plane]
	for p, phase := range c.phases {
		dst := planes[(channel/group*len(c.phases)+p)*size:][:size]
		// Row i holds the line i*sh + phase[0] - top, column j its byte j*sw + at.
		first, last := reach(phase[0]-c.top, c.sh, c.h, c.ph)
		at := phase[1] - c.left
		from, to := reach(at, c.sw, c.w, c.pw)
		if to == from {
			last = first
		}
		fill8(dst[:first*pitch], c.fill)
		fill8(dst[last*pitch:], c.fill)
		if last == first {
			continue
		}
		line := first*c.sh + phase[0] - c.top
		if group > 1 && c.sw <= 2 {
			c.ep.kern.Interleave(dst[first*pitch:], pitch, src[line*c.w+from*c.sw+at:], c.sh*c.w, plane, c.sw, last-first, to-from, from, c.pw-to, c.fill)
			continue
		}
		if group == 1 && c.sw <= 2 {
			c.ep.kern.Frame(dst[first*c.pw:], c.pw, src[line*c.w+from*c.sw+at:], c.sh*c.w, c.sw, last-first, to-from, from, c.pw-to, c.fill)
			continue
		}
		for i := first; i < last; i++ {
			row := dst[i*pitch:][:pitch]
			fill8(row[:group*from], c.fill)
			fill8(row[group*to:], c.fill)
			for k := range group {
				q := src[k*plane+line*c.w:][:c.w][from*c.sw+at:]
				for j := range to - from {
					row[group*(from+j)+k] = q[j*c.sw]
				}
			}
			line += c.sh
		}
	}
}

// reach returns which of the positions 0 to n-1 lie in 0 to size-1 when position i is
// at i*stride + at: those from first to last-1.
func reach(at, stride, size, n int) (first, last int) {
	if at < 0 {
		first = min((-at+stride-1)/stride, n)
	}
	if end := size - 1 - at; end >= 0 {
		last = min(end/stride+1, n)
	}
	return first, max(first, last)
}

// fill8 sets all bytes to v.
func fill8(x []uint8, v uint8) {
	if len(x) == 0 {
		return
	}
	x[0] = v
	for n := 1; n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
}

// linear8 is a product of 8-bit integers with tokens whose features are contiguous.
type linear8 struct {
	kernel       backend.IntegerKernel
	ep           *epilogue8
	tokens, m, k int
}

// bindLinear8 makes the kernel of a quantised MatMul or Gemm.
func bindLinear8(p *program, n *ir.Node, q *op.Quant, e *op.Epilogue) (*bound, error) {
	kernel, err := p.integerWeight(n)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if err != nil || kernel == nil || prod(ys) == 0 || prod(xs) == 0 {
		return nil, err
	}
	ep, ok := newEpilogue8(n, q, e, kernel.Sums())
	if !ok {
		return nil, nil
	}
	ep.ByColumn = true
	l := &linear8{kernel: kernel, ep: ep, m: ys[len(ys)-1], k: xs[len(xs)-1]}
	l.tokens = prod(xs) / l.k
	return l.bound(), nil
}

func (l *linear8) bound() *bound {
	const block = ikernel.Columns // of tokens, and of rows of the weight
	k4 := ikernel.Groups(l.k)
	direct, ok := l.kernel.(backend.TokenKernel)
	if ok && !direct.Direct(l.tokens) {
		direct, ok = nil, false
	}
	if !ok {
		k4 = l.kernel.Groups()
	}
	ldx := ikernel.Group * k4
	shared, panel := 0, 0
	if ldx != l.k {
		shared = floats(l.tokens * ldx)
	}
	if !ok {
		panel = floats(k4*ikernel.PanelRow) + block*block
	}
	tokens, rows := (l.tokens+block-1)/block, (l.m+block-1)/block
	return &bound{inplace: -1, scratch: shared + panel + block*block + l.ep.scratch(), prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var xs []uint8
		var y, res ikernel.Elems
		padded := asBytes(x.scratch[0][:shared])
		// Panels of tokens are made for many rows of the weight.
		parts := rows
		if direct == nil {
			parts = min(rows, max(1, (2*x.pool.Threads()+tokens-1)/tokens))
		}
		multiply := func(worker, i int) {
			t0, part := i/parts*block, i%parts
			n := min(block, l.tokens-t0)
			s := x.scratch[worker][shared:]
			sum, tmp := asInts(s[:block*block]), s[block*block+panel:]
			from := xs[t0*ldx:]
			var packed []uint8
			var turned []int32
			if direct == nil {
				turned = asInts(s[block*block:][:block*block])
				packed = asBytes(s[2*block*block:])[:k4*ikernel.PanelRow]
				l.ep.kern.PackTokens(packed, from, ldx, n, k4)
			}
			for r := part * rows / parts * block; r < min(l.m, (part+1)*rows/parts*block); r += block {
				count := min(block, l.m-r)
				if direct != nil {
					direct.Tokens(sum, from, ldx, n, r, r+count)
				} else {
					l.kernel.Panel(turned, packed, n, r, r+count)
					vec.Transpose(asFloats(sum), block, asFloats(turned), block, count, n)
				}
				to := t0*l.m + r
				l.ep.finish(r, n, count, sum, y.From(to), res.From(to), l.m, tmp)
			}
		}
		pad := func(_, t int) {
			copy(padded[t*ldx:][:l.k], in[0].Bytes()[t*l.k:])
			clear(padded[t*ldx+l.k : (t+1)*ldx])
		}
		return func() error {
			xs, y = in[0].Bytes(), elems8(out[0])
			if l.ep.residual {
				res = elems8(in[op.Residual])
			}
			if shared > 0 {
				x.pool.For(l.tokens, pad)
				xs = padded[:l.tokens*ldx]
			}
			x.pool.For(tokens*parts, multiply)
			return nil
		}
	}}
}

// bindQuantize quantises f32 to u8 with one scale and zero point.
func bindQuantize(_ *program, n *ir.Node) (*bound, error) {
	scale, zero, ok := scaleAndZero(n)
	if !ok || n.Inputs[0].Type.DType != tensor.F32 || n.Outputs[0].Type.DType != tensor.U8 {
		return nil, nil
	}
	if o := n.Op.(*op.QuantizeLinear); o.Precision != tensor.Undefined && o.Precision != tensor.F32 {
		return nil, nil
	}
	l := ikernel.NoLimits()
	l.ToU8(scale, zero)
	for _, v := range []float32{l.Inv, l.Lo, l.Hi} {
		if math.IsInf(float64(v), 0) {
			return nil, nil
		}
	}
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []float32
		var dst []uint8
		body := func(lo, hi int) { kern.Quantize(&l, dst[lo:hi], src[lo:hi]) }
		return func() error {
			src, dst = in[0].F32s(), out[0].Bytes()
			x.pool.Range(len(dst), body)
			return nil
		}
	}}, nil
}

// bindDequantize is the inverse of bindQuantize.
func bindDequantize(_ *program, n *ir.Node) (*bound, error) {
	scale, zero, ok := scaleAndZero(n)
	if !ok || n.Inputs[0].Type.DType != tensor.U8 || n.Outputs[0].Type.DType != tensor.F32 {
		return nil, nil
	}
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []uint8
		var dst []float32
		body := func(lo, hi int) { kern.Dequantize(dst[lo:hi], src[lo:hi], scale, zero) }
		return func() error {
			src, dst = in[0].Bytes(), out[0].F32s()
			x.pool.Range(len(dst), body)
			return nil
		}
	}}, nil
}

// scaleAndZero returns the constants of a QuantizeLinear or DequantizeLinear of whole
// tensors.
func scaleAndZero(n *ir.Node) (scale float32, zero int, ok bool) {
	s, z := n.Inputs[1].Const, n.Input(2)
	if s == nil || s.DType() != tensor.F32 || s.Len() != 1 || !(s.F32s()[0] > 0) || prod(shapeOf(n.Outputs[0])) == 0 {
		return 0, 0, false
	}
	if z != nil {
		if z.Const == nil || z.Const.Len() != 1 || !z.Const.DType().IsInt() {
			return 0, 0, false
		}
		zero = int(z.Const.Int64s()[0])
	}
	return s.F32s()[0], zero, true
}

// bindMaxPool8 takes the maximum of u8 over windows of one or two axes, first down the
// rows, then along them.
func bindMaxPool8(n *ir.Node) (*bound, error) {
	o := n.Op.(*op.MaxPool)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if len(xs) != 4 || prod(ys) == 0 || prod(xs) == 0 {
		return nil, nil
	}
	spans, out, err := o.Window.Resolve(xs[2:], o.KernelShape, o.CeilMode)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	v, h := spans[0], spans[1]
	height, width := xs[2], xs[3]
	kern := ikernel.Best()
	// The row, with zeros on both sides, which no u8 is below: output column j takes
	// the maximum of row[j*stride + t*dilation] over the taps t.
	length := (out[1]-1)*h.Stride + (h.Kernel-1)*h.Dilation + 1
	length = max(length, h.Begin+width)
	half := (length + 1) / 2
	need := floats(length) + 2*floats(half)
	if size := [2]int{3, 3}; [2]int{v.Kernel, h.Kernel} == size && v.Stride == 2 && h.Stride == 2 && v.Dilation == 1 && h.Dilation == 1 {
		return boundMaxPool3x3s2(xs, out, v.Begin, h.Begin), nil
	}
	return &bound{inplace: -1, scratch: need, prepare: func(x *exec, in, out8 []*tensor.Tensor) func() error {
		var src, dst []uint8
		body := func(worker, i int) {
			s := x.scratch[worker]
			row := asBytes(s)[:length]
			even := asBytes(s[floats(length):])[:half]
			odd := asBytes(s[floats(length)+floats(half):])[:half]
			plane, to := src[i*height*width:][:height*width], dst[i*out[0]*out[1]:][:out[0]*out[1]]
			clear(row)
			for y := range out[0] {
				first := true
				line := row[h.Begin:][:width]
				for t := range v.Kernel {
					at := y*v.Stride + t*v.Dilation - v.Begin
					if at < 0 || at >= height {
						continue
					}
					if first {
						copy(line, plane[at*width:])
						first = false
						continue
					}
					kern.Max(line, plane[at*width:][:width])
				}
				if first {
					clear(line)
				}
				d := to[y*out[1]:][:out[1]]
				switch h.Stride {
				case 1:
					copy(d, row)
					for t := 1; t < h.Kernel; t++ {
						kern.Max(d, row[t*h.Dilation:])
					}
				case 2:
					kern.Split(even, odd, row)
					half := [2][]uint8{even, odd}
					copy(d, even)
					for t := 1; t < h.Kernel; t++ {
						at := t * h.Dilation
						kern.Max(d, half[at%2][at/2:])
					}
				default:
					for j := range d {
						m := row[j*h.Stride]
						for t := 1; t < h.Kernel; t++ {
							m = max(m, row[j*h.Stride+t*h.Dilation])
						}
						d[j] = m
					}
				}
			}
		}
		return func() error {
			src, dst = in[0].Bytes(), out8[0].Bytes()
			x.pool.For(xs[0]*xs[1], body)
			return nil
		}
	}}, nil
}

// boundMaxPool3x3s2 takes the maxima of windows of 3x3 at strides of 2. Those that lie
// inside of the image are the kernel's.
func boundMaxPool3x3s2(xs, out []int, top, left int) *bound {
	height, width, oh, ow := xs[2], xs[3], out[0], out[1]
	inside := func(begin, size, n int) (lo, hi int) {
		lo = min((begin+1)/2, n)
		return lo, max(lo, min((size-3+begin)/2+1, n))
	}
	y0, y1 := inside(top, height, oh)
	x0, x1 := inside(left, width, ow)
	kern := ikernel.Best()
	return &bound{inplace: -1, prepare: func(x *exec, in, out8 []*tensor.Tensor) func() error {
		var src, dst []uint8
		body := func(_, i int) {
			plane, to := src[i*height*width:][:height*width], dst[i*oh*ow:][:oh*ow]
			if y0 < y1 && x0 < x1 {
				kern.MaxPool(to[y0*ow+x0:], ow, plane[(2*y0-top)*width+2*x0-left:], width, y1-y0, x1-x0)
			}
			for y := range oh {
				for x := 0; x < ow; x++ {
					if y >= y0 && y < y1 && x == x0 {
						if x = x1; x == ow {
							break
						}
					}
					m := uint8(0)
					for a := max(0, 2*y-top); a < min(height, 2*y-top+3); a++ {
						for b := max(0, 2*x-left); b < min(width, 2*x-left+3); b++ {
							m = max(m, plane[a*width+b])
						}
					}
					to[y*ow+x] = m
				}
			}
		}
		return func() error {
			src, dst = in[0].Bytes(), out8[0].Bytes()
			x.pool.For(xs[0]*xs[1], body)
			return nil
		}
	}}
}

// u8Only reports whether n takes and gives u8.
func u8Only(n *ir.Node) bool {
	return !slices.ContainsFunc(append(slices.Clone(n.Inputs[:1]), n.Outputs...), func(v *ir.Value) bool {
		return v != nil && v.Type.DType != tensor.U8
	})
}
