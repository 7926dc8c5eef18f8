package cpu

import (
	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/machine"
	"spc/ir/op"
	"spc/ir/tensor"
)

// narrow reports whether a convolution of one image leaves more lanes idle as columns of panels than its rows would.
func (g *convGeometry) narrow(l *planes, threads int) bool {
	n, m := g.outPlane, g.rows
	strips, panels := narrowStrips(n), (m+backend.Panel-1)/backend.Panel
	balanced := strips*panels%threads == 0 || strips*panels >= 4*threads
	if !balanced || g.images > 1 || g.groups > 1 || g.depth != nil || g.channels == 0 {
		return false
	}
	if l.matrix() {
		return machine.Narrow(m, n)
	}
	return machine.NarrowWindow(m, n)
}

// matrix reports whether the planes as they are hold the rows of X.
func (p *planes) matrix() bool { return p.direct && p.g.taps == 1 }

// narrowStrips is the number of strips of so many columns.
func narrowStrips(n int) int { return (n + backend.Panel - 1) / backend.Panel }

// narrowFloats is the number of elements of X that are loaded at a time: they stay in the level 2 cache.
const narrowFloats = 64 << 10

// bindNarrow makes the kernel of a convolution that is narrow: rows of W are the lanes, and results are transposed
// on their way. What windows see is loaded into a panel first, some blocks of rows at a time.
func (g *convGeometry) bindNarrow(k backend.Narrow, ep epilogue, l *planes) *bound {
	const tile = backend.Panel * backend.Panel
	n, strips, panels, bounds := g.outPlane, narrowStrips(g.outPlane), (g.rows+backend.Panel-1)/backend.Panel, k.Bounds()
	parts, room := [][2]int{{0, len(bounds) - 1}}, 0 // blocks at a time, and their largest number of rows
	at, loadPart := l.shared(), l.loadPart
	if g.disjoint() {
		at, loadPart = 0, g.loadWindows()
	}
	b := &bound{inplace: ep.residual, alone: true, scratch: 2 * tile}
	if !l.matrix() {
		parts, room = narrowParts(bounds, narrowFloats/backend.Columns(n))
		b.shared = at + room*backend.Panel + panels*tile
	}
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		x.warm(k, true)
		var cols, ys, res []float32 // rows of cols are ldx apart
		var part [2]int
		ldx, begin, load := n, func(xs []float32) { cols = xs }, func() {}
		if !l.matrix() {
			ldx, cols = backend.Panel, x.shared[at:][:room*backend.Panel]
			begin, load = loadPart(x, n, cols, func() (k0, k1 int) { return bounds[part[0]], bounds[part[1]] })
		}
		body := func(worker, i int) {
			col, end := i%strips*n/strips, (i%strips+1)*n/strips
			m0 := i / strips * backend.Panel
			m1 := min(g.rows, m0+backend.Panel)
			t, y := x.scratch[worker][:tile], x.scratch[worker][tile:]
			if len(parts) > 1 {
				t = x.shared[at+room*backend.Panel+i*tile:][:tile]
			}
			k.Narrow(t, cols[col:], ldx, end-col, m0, part[0], part[1])
			if part[1] == len(bounds)-1 {
				vec.Transpose(y, backend.Panel, t, backend.Panel, end-col, m1-m0)
				ep.tile(ys, res, m0*n+col, n, y, m0, m1-m0, end-col)
			}
		}
		return func() error {
			ys, res = out[0].F32s(), nil
			if ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			begin(in[0].F32s())
			for _, part = range parts {
				load()
				x.pool.For(strips*panels, body)
			}
			return nil
		}
	}
	return b
}

// narrowParts cuts blocks into parts of about so many rows, and returns the most rows of one.
func narrowParts(bounds []int, rows int) (parts [][2]int, most int) {
	blocks := len(bounds) - 1
	n := (bounds[blocks] + rows - 1) / rows
	for i := range n {
		if p := [2]int{i * blocks / n, (i + 1) * blocks / n}; p[0] < p[1] {
			parts, most = append(parts, p), max(most, bounds[p[1]]-bounds[p[0]])
		}
	}
	return parts, most
}

// disjoint reports whether no two windows of a plane share a pixel and none reaches over an edge, as in patches of an image: laid out as planes,
// each pixel would be moved twice, and in runs as short as a row has windows.
func (g *convGeometry) disjoint() bool {
	for _, s := range g.spans {
		if s.Stride < s.Extent() || s.Stride == 1 || s.Begin != 0 || s.End != 0 {
			return false
		}
	}
	return len(g.spans) <= 2 && g.depth == nil
}

// windows lists where in a plane the taps of the first window lie, and where the first taps of all windows.
func (g *convGeometry) windows() (taps, firsts []int) {
	places := func(counts []int, steps func(s op.Span) int) (at []int) { // of what is counted on each axis
		at = []int{0}
		for i, s := range g.spans {
			var next []int
			for _, a := range at {
				for j := range counts[i] {
					next = append(next, a*g.in[i]+j*steps(s))
				}
			}
			at = next
		}
		return at
	}
	var kernel []int
	for _, s := range g.spans {
		kernel = append(kernel, s.Kernel)
	}
	return places(kernel, func(s op.Span) int { return s.Dilation }), places(g.out, func(s op.Span) int { return s.Stride })
}

// loadWindows returns a function like planes.loadPart that takes pixels from where they lie.
func (g *convGeometry) loadWindows() func(x *exec, n int, panel []float32, part func() (k0, k1 int)) (begin func(xs []float32), load func()) {
	const block = 64
	taps, firsts := g.windows()
	return func(x *exec, n int, panel []float32, part func() (k0, k1 int)) (begin func(xs []float32), load func()) {
		var xs []float32
		var k0, k1 int
		body := func(_, i int) {
			for k := k0 + i*block; k < min(k1, k0+(i+1)*block); k++ {
				plane, row := xs[k/g.taps*g.inPlane+taps[k%g.taps]:], panel[(k-k0)*backend.Panel:][:n]
				for j, w := range firsts[:n] {
					row[j] = plane[w]
				}
			}
		}
		return func(images []float32) { xs = images }, func() {
			k0, k1 = part()
			x.pool.For((k1-k0+block-1)/block, body)
		}
	}
}

// loadPart returns what begins with an image, and what loads the rows of X that part says, for its n columns, into a panel.
func (p *planes) loadPart(x *exec, n int, panel []float32, part func() (k0, k1 int)) (begin func(xs []float32), load func()) {
	const block = 64
	images, start, group := p.prepare(x)
	gather := group(0)
	var k0, k1 int
	body := func(worker, i int) {
		from, to := k0+i*block, min(k1, k0+(i+1)*block)
		start(worker, 0, n)
		gather(worker, panel[(from-k0)*backend.Panel:], from, to, 0, n)
	}
	begin = func(xs []float32) { images(xs, 0, 1) }
	return begin, func() {
		k0, k1 = part()
		x.pool.For((k1-k0+block-1)/block, body)
	}
}
