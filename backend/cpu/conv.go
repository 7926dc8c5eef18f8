package cpu

import (
	"slices"

	"spc/backend"
	"spc/backend/format/dense"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindConv computes a convolution as the product of W[M, C/group*k...] with the
// patches X[C/group*k..., pixels] of each image, panel by panel: no patch matrix
// is ever in memory. A depthwise convolution runs on the planes directly.
func bindConv(p *program, n *ir.Node) (*bound, error) { return bindConvTiles(p, n, winogradTile) }

// bindConvTiles is bindConv with a function that says which tiles a convolution
// with dense 3x3 kernels is computed by, 0 for none.
func bindConvTiles(p *program, n *ir.Node, tiles func(g *convGeometry) int) (*bound, error) {
	o := n.Op.(*op.Conv)
	if o.Quantised() {
		return bindIntegerConv(p, n)
	}
	if b, err := bindDepthwise(p, n); b != nil || err != nil {
		return b, err
	}
	bias, ok := constantF32(n, 2)
	if !ok || !f32(n) {
		return nil, nil
	}
	g, err := newConvGeometry(n, o, o.Group)
	if err != nil {
		return nil, err
	}
	if g.images*g.groups*g.rows*g.outPlane == 0 {
		return nil, nil
	}
	if !n.Inputs[1].IsConst() {
		return g.bindComputed(newEpilogue(n, &o.Epilogue, bias), p.pool.Threads()), nil
	}
	_, kernels, err := p.weightOf(n, 1)
	if err != nil || kernels == nil {
		return nil, err
	}
	kernels = sized(kernels, g.images*g.outPlane)
	ep := newEpilogue(n, &o.Epilogue, bias)
	if g.flat() {
		l := &linear{kernel: kernels[0], tokens: g.images, m: g.rows, k: g.channels * g.taps, scale: 1, ep: ep, add: -1}
		return l.bound(), nil
	}
	if b, err := bindTaps(p, n, g, ep); b != nil || err != nil {
		return b, err
	}
	g = g.sliced()
	if g.groups > 1 {
		if kernels, err = p.grouped(n, g); err != nil {
			return nil, err
		}
	}
	direct := g.plain(kernels, ep, p.pool.Threads())
	if win, ok := g.winogradWindow(n.Inputs[1]); ok {
		if w := p.winogradWeight(n.Inputs[1], g, tiles(g)); w != nil {
			return g.bindWinograd(w, win, ep, direct, p.pool.Threads()), nil
		}
	}
	return direct, nil
}

// plain makes the kernel of the product of the weight with patches.
func (g *convGeometry) plain(kernels []backend.FloatKernel, ep epilogue, threads int) *bound {
	if len(g.spans) > 2 {
		return g.bind(kernels, ep, &tapLoader{g: g, list: func(tap, col, count int, f func(j, n, p int)) {
			op.TapRuns(g.spans, g.out, g.in, tap, col, count, f)
		}})
	}
	l := newPlanes(g, g.groups == 1 || g.taps == 1)
	if k, ok := kernels[0].(backend.Narrow); ok && g.narrow(l, threads) {
		return g.bindNarrow(k, ep, l)
	}
	kernels = l.place(kernels)
	if g.groups > 1 && g.images*g.groups >= 2*threads {
		return g.bindBands(kernels, ep, l)
	}
	if q := l.inBands(threads); q != nil {
		return g.bindBands(kernels, ep, q)
	}
	return g.bind(kernels, ep, l)
}

// bindComputed makes the kernel of a convolution by a weight that a run computes.
func (g *convGeometry) bindComputed(ep epilogue, threads int) *bound {
	g = g.sliced()
	k := g.channels * g.taps
	views := func() (views []*dense.View, kernels []backend.FloatKernel) {
		for range g.groups {
			v := dense.NewView(g.rows, k)
			views, kernels = append(views, v), append(kernels, v)
		}
		return views, kernels
	}
	_, kernels := views()
	b := g.plain(kernels, ep, threads)
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		views, kernels := views() // which hold the weight of this exec's run
		run := g.plain(kernels, ep, threads).prepare(x, in, out)
		return func() error {
			w := in[1].F32s()
			for i, v := range views {
				v.Use(w[i*g.rows*k:])
			}
			return run()
		}
	}
	return b
}

// bindConvTranspose computes a transposed convolution by way of plain ones.
func bindConvTranspose(p *program, n *ir.Node) (*bound, error) {
	o, v := n.Op.(*op.ConvTranspose), n.Inputs[1]
	bias, ok := constantF32(n, 2)
	if !ok || !f32(n) {
		return nil, nil
	}
	if o.Group == 1 && v.IsConst() { // whose weight may be stored
		if _, kernels, err := p.weightOf(n, 1); err != nil || kernels == nil {
			return nil, err
		}
	}
	xs, ys, ws := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0]), shapeOf(v)
	spans, out, err := o.Geometry(xs[2:], ws[2:])
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if slices.Contains(ys, 0) || slices.Contains(xs, 0) {
		return nil, nil
	}
	if b := bindDisjoint(p, n, spans, xs[2:], out); b != nil {
		return b, nil
	}
	g := convGeometry{
		spans: spans, in: xs[2:], out: out, channels: xs[1] / o.Group, images: xs[0],
		inPlane: prod(xs[2:]), outPlane: prod(out), rows: ws[1], groups: o.Group, taps: prod(ws[2:]), transposed: true,
	}
	ep := newEpilogue(n, &o.Epilogue, bias)
	if g.spread() && v.IsConst() {
		return bindSpread(p, n, &g, ep)
	}
	if b, err := bindPhased(n, &g, ep); b != nil || err != nil {
		return b, err
	}
	return bindPieces(p, n, &g, g.pieces(phases), ep, false)
}

// convGeometry is the shape of a convolution.
type convGeometry struct {
	spans             []op.Span
	in, out           []int // spatial sizes
	inPlane, outPlane int
	images, groups    int
	channels, rows    int // of one group
	taps              int
	transposed        bool
	depth             *depth // of images that are slices of volumes, else nil
}

// newConvGeometry is that of a convolution of groups.
func newConvGeometry(n *ir.Node, o *op.Conv, groups int) (*convGeometry, error) {
	xs, ws := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1])
	spans, out, err := o.Geometry(xs, ws)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	return &convGeometry{
		spans: spans, in: xs[2:], out: out, channels: ws[1], images: xs[0],
		inPlane: prod(xs[2:]), outPlane: prod(out), rows: ws[0] / groups, groups: groups,
		taps: prod(ws[2:]),
	}, nil
}

// flat reports whether the one patch of an image is the image: the convolution is a
// linear layer then.
func (g *convGeometry) flat() bool {
	for i, s := range g.spans {
		if g.out[i] != 1 || s.Kernel != g.in[i] || s.Begin != 0 || s.Kernel > 1 && s.Dilation != 1 {
			return false
		}
	}
	return g.groups == 1
}

// patchLoader loads patches of images into panels.
type patchLoader interface {
	// shared is the number of floats that the loaders of one exec share.
	shared() int
	// batch is the number of images whose columns follow each other in a product.
	batch() int
	// columns is the number of columns of so many images, which come in as many stretches that are apart, and pixels the
	// first pixels that n columns from col on are, n being at least 1.
	columns(images int) (n, apart int)
	pixels(col, n int) pixelRun
	// panel is the number of floats of a panel for the kernel.
	panel(k backend.FloatKernel) int
	// prepare returns what begins with the next images, x holding all of them,
	// and the functions of a product for one group of their channels.
	prepare(x *exec) (images func(xs []float32, img, n int), begin func(worker, col, n int), load func(group int) loader)
}

// pixelRun says that of width columns the first count are the pixels of an image from
// pixel on, and the others no pixels.
type pixelRun struct{ img, pixel, count, width int }

// pixels is that of columns that are the pixels of one image after the other.
func (g *convGeometry) pixels(col, n int) pixelRun {
	img, pixel := col/g.outPlane, col%g.outPlane
	count := min(n, g.outPlane-pixel)
	return pixelRun{img, pixel, count, count}
}

// bind makes the kernel.
func (g *convGeometry) bind(kernels []backend.FloatKernel, ep epilogue, l patchLoader) *bound {
	k := g.channels * g.taps
	b := &bound{inplace: ep.residual, alone: true, shared: l.shared()}
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		var ys, res []float32
		var first int // image of column 0
		images, begin, load := l.prepare(x)
		batch := min(l.batch(), g.images)
		rest := g.images % batch
		// runs are the products of a group for a whole batch and for the last.
		runs := make([][2]func(), g.groups)
		finishes := make([]ukernel.Finish, x.pool.Threads())
		for group := range runs {
			finish := func(worker, r0, rows, col, n int) *ukernel.Finish {
				s, m := l.pixels(col, n), group*g.rows+r0
				if s.count < n {
					return nil
				}
				to, ld := g.result(first+s.img, m)
				return ep.direct(&finishes[worker], ys, res, to+s.pixel, ld, m, rows)
			}
			store := func(_ int, y []float32, r0, rows, col, n int) {
				m := group*g.rows + r0
				for at := 0; at < n; {
					s := l.pixels(col+at, n-at)
					to, ld := g.result(first+s.img, m)
					ep.tile(ys, res, to+s.pixel, ld, y[at:], m, rows, s.count)
					at += s.width
				}
			}
			for i, images := range []int{batch, rest} {
				p := product{kernel: kernels[group], m: g.rows, k: k, room: l.panel(kernels[group]), begin: begin, load: load(group), finish: finish, store: store}
				p.n, p.images = l.columns(images)
				p.byRows = b.link != nil && b.link.byRows
				runs[group][i] = p.prepare(x)
			}
		}
		return func() error {
			xs := in[0].F32s()
			ys, res = out[0].F32s(), nil
			if ep.residual >= 0 {
				res = in[ep.residual].F32s()
			}
			for first = 0; first < g.images; first += batch {
				last := 0
				if g.images-first < batch {
					last = 1
				}
				images(xs, first, min(batch, g.images-first))
				for _, run := range runs {
					run[last]()
				}
			}
			return nil
		}
	}
	for _, kernel := range kernels {
		b.scratch = max(b.scratch, productScratch(kernel, g.rows)+l.panel(kernel))
	}
	if g.groups == 1 && k > 0 && g.depth == nil {
		b.link = &link{g: g, kernel: kernels[0], ep: ep, loader: l}
	}
	return b
}

// tapLoader loads patches from the images as they are, tap by tap.
type tapLoader struct {
	g    *convGeometry
	list runLister
}

// tapRun is a run of columns of a panel that read neighbouring pixels.
type tapRun struct{ col, n, pos int }

// runLister yields the runs of the columns col to col+count that a tap feeds:
// column j+i reads pixel p+i*stride, i below n.
type runLister func(tap, col, count int, f func(j, n, p int))

func (l *tapLoader) shared() int { return 0 }
func (l *tapLoader) batch() int  { return 1 }

func (l *tapLoader) columns(images int) (n, apart int) { return images * l.g.outPlane, 1 }
func (l *tapLoader) pixels(col, n int) pixelRun        { return l.g.pixels(col, n) }
func (l *tapLoader) panel(k backend.FloatKernel) int   { return panelRows(k) * backend.Panel }

func (l *tapLoader) prepare(x *exec) (func(xs []float32, img, n int), func(worker, col, n int), func(group int) loader) {
	g := l.g
	var image []float32
	step := g.spans[len(g.spans)-1].Stride
	type strip struct {
		runs []tapRun
		end  []int // by tap, of its runs
	}
	strips := make([]strip, x.pool.Threads())
	yields := make([]func(j, n, p int), len(strips))
	cols := make([]int, len(strips))
	for w := range strips {
		strips[w].end = make([]int, g.taps)
		yields[w] = func(j, n, p int) { strips[w].runs = append(strips[w].runs, tapRun{j - cols[w], n, p}) }
	}
	begin := func(worker, col, n int) {
		s := &strips[worker]
		s.runs, cols[worker] = s.runs[:0], col
		for t := range g.taps {
			l.list(t, col, n, yields[worker])
			s.end[t] = len(s.runs)
		}
	}
	images := func(xs []float32, img, _ int) {
		size := g.groups * g.channels * g.inPlane
		image = xs[img*size:][:size]
	}
	load := func(group int) loader {
		return func(worker int, panel []float32, k0, k1, _, n int) []float32 {
			s := &strips[worker]
			for k := k0; k < k1; k++ {
				row := panel[(k-k0)*backend.Panel:][:n]
				plane := image[(group*g.channels+k/g.taps)*g.inPlane:][:g.inPlane]
				t, from := k%g.taps, 0
				if t > 0 {
					from = s.end[t-1]
				}
				clear(row)
				for _, r := range s.runs[from:s.end[t]] {
					if step == 1 {
						copy(row[r.col:r.col+r.n], plane[r.pos:])
						continue
					}
					pos := r.pos
					for j := r.col; j < r.col+r.n; j++ {
						row[j] = plane[pos]
						pos += step
					}
				}
			}
			return panel
		}
	}
	return images, begin, load
}
