package cpu

import (
	"fmt"
	"sync/atomic"

	"spc/backend/cpu/winograd"
	"spc/backend/format/dense"
	"spc/backend/machine"
	"spc/internal/memory"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// denseValues returns the elements of a weight that are stored as they are, f32 or
// narrower; nil where those of a sparse format are, and where codes are.
func denseValues(v *ir.Value) *tensor.Tensor {
	switch {
	case v.Const != nil:
		return v.Const
	case v.Store != nil && v.Store.Format == dense.Name: // no part where there are codes
		return v.Store.Part("values")
	}
	return nil
}

// winogradWeight returns the weight of a convolution transformed for tiles, nil for
// tiles of size 0 and where memory does not hold it. The transformed weight is f32,
// whatever its elements are stored as.
func (p *program) winogradWeight(v *ir.Value, g *convGeometry, tile int) *winograd.Weight {
	if tile == 0 {
		return nil
	}
	t, err := prepared(p, keyOfWeight(v, fmt.Sprintf("winograd %d", tile)), func() (*winograd.Weight, error) {
		if err := memory.Check(4 * winograd.WeightLen(g.rows, g.channels, tile)); err != nil {
			return nil, err
		}
		w := g.slicesFirst(denseValues(v).To(tensor.F32).F32s())
		return winograd.NewWeight(w, g.rows, g.channels, tile, p.pool.NewTeam().For), nil
	})
	if err != nil {
		return nil // the direct kernels need less
	}
	return t
}

// winogradNear is the number of floats of half a level 2 cache.
const winogradNear = 1 << 18

// winogradFloats bounds the transformed tiles that are in memory at a time: they
// leave room for the transformed weight in the level 2 cache, or are worth fetching
// a weight for that does not fit there.
func winogradFloats(w *winograd.Weight) int {
	return min(max(winograd.WeightLen(w.M, w.C, w.Tile), winogradNear), 8*winogradNear)
}

// winogradWindow returns where a dense 3x3 kernel stands if one does everywhere.
func (g *convGeometry) winogradWindow(w *ir.Value) (win winograd.Window, ok bool) {
	if g.groups != 1 || len(g.spans) != 2 || denseValues(w) == nil || g.depth != nil && g.depth.span.Kernel > 1 && g.channels/g.depth.span.Kernel%winograd.Lanes != 0 {
		return win, false
	}
	for _, s := range g.spans {
		if s.Kernel != 3 || s.Stride != 1 || s.Dilation != 1 || s.Begin < 0 {
			return win, false
		}
	}
	win = winograd.Window{
		H: g.in[0], W: g.in[1], OH: g.out[0], OW: g.out[1], Top: g.spans[0].Begin, Left: g.spans[1].Begin,
	}
	if d := g.depth; d != nil {
		c := g.channels / d.span.Kernel
		win.Step = d.in * g.inPlane
		win.Plane = func(img, channel int) int { return g.plane(img, channel%c*d.span.Kernel+channel/c) }
	}
	return win, true
}

// bindWinograd makes a kernel that convolves by way of tiles, and as direct does
// where a result is not finite: there Winograd's differences spoil other pixels of
// the tile, too.
func (g *convGeometry) bindWinograd(w *winograd.Weight, win winograd.Window, ep epilogue, direct *bound, threads int) *bound {
	// Threads have rows of the result of their own where there are so many that it is
	// little to transform all of the input in each; else blocks of their own where all
	// weights fit into their caches and there are tiles enough; else blocks are worked
	// on one by one, each by all.
	byRows := threads > 1 && w.M >= threads*w.C
	blocks := 1
	if !byRows && winograd.WeightLen(w.M, w.C, w.Tile) <= winogradNear {
		blocks = 2 * threads
	}
	conv := winograd.NewConv(w, win, g.images, winogradFloats(w), blocks)
	parts := 1
	if byRows {
		parts = min(threads, conv.Outs())
	}
	tiles := conv.InputLen() + conv.OutputLen()
	apart := byRows || conv.Blocks()%threads == 0 || conv.Blocks() >= 2*threads
	b := &bound{inplace: -1, scratch: max(direct.scratch, conv.Scratch()), shared: direct.shared}
	if apart {
		b.scratch = max(b.scratch, conv.Scratch()+tiles)
	} else {
		b.shared = max(b.shared, tiles)
	}
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		t := &tiledConv{Conv: conv}
		t.store = func(y []float32, img, row, rows, pixel, n int) {
			at, ld := g.result(img, row)
			ep.tile(t.y, t.residual, at+pixel, ld, y, row, rows, n)
		}
		var run func()
		if apart {
			run = t.apart(x, parts)
		} else {
			run = t.together(x)
		}
		direct := direct.prepare(x, in, out)
		return func() error {
			t.x, t.y, t.residual = in[0].F32s(), out[0].F32s(), nil
			if ep.residual >= 0 {
				t.residual = in[op.Residual].F32s()
			}
			t.spoilt.Store(false)
			run()
			if t.spoilt.Load() {
				return direct()
			}
			return nil
		}
	}
	return b
}

// tiledConv is a convolution by way of tiles, with what a run of it reads and writes.
type tiledConv struct {
	*winograd.Conv
	x, y, residual []float32
	store          func(y []float32, img, row, rows, pixel, n int) // finishes pixels of y
	spoilt         atomic.Bool                                     // whether a result is not finite
}

// output stores a group of channels of a block.
func (t *tiledConv) output(block, group int, z, scratch []float32) {
	if !t.Output(block, group, z, scratch, t.store) {
		t.spoilt.Store(true)
	}
}

// apart computes blocks, or parts of their rows, each on a thread of its own.
func (t *tiledConv) apart(x *exec, parts int) (run func()) {
	inputs, tiles := t.InputLen(), t.InputLen()+t.OutputLen()
	body := func(worker, i int) {
		s := x.scratch[worker]
		v, z, s := s[:inputs], s[inputs:tiles], s[tiles:]
		part, block := i/t.Blocks(), i%t.Blocks()
		first, last := part*t.Outs()/parts, (part+1)*t.Outs()/parts
		for group := range t.Groups() {
			t.Input(block, group, v, t.x, s)
		}
		for point := range t.Points() {
			t.Multiply(block, point, first, last, v, z)
		}
		for group := first; group < last; group++ {
			t.output(block, group, z, s)
		}
	}
	return func() { x.pool.For(parts*t.Blocks(), body) }
}

// together computes blocks one by one, each on all threads.
func (t *tiledConv) together(x *exec) (run func()) {
	v, z := x.shared[:t.InputLen()], x.shared[t.InputLen():t.InputLen()+t.OutputLen()]
	block := 0
	load := func(worker, group int) { t.Input(block, group, v, t.x, x.scratch[worker]) }
	multiply := func(_, point int) { t.Multiply(block, point, 0, t.Outs(), v, z) }
	finish := func(worker, group int) { t.output(block, group, z, x.scratch[worker]) }
	return func() {
		for block = range t.Blocks() {
			x.pool.For(t.Groups(), load)
			x.pool.For(t.Points(), multiply)
			x.pool.For(t.Outs(), finish)
		}
	}
}

// winogradTile is the size of the tiles that a convolution is computed by, 0 where
// the product with patches is faster.
func winogradTile(g *convGeometry) int {
	return machine.Tile(machine.Conv{M: g.rows, C: g.channels, Images: g.images, OH: g.out[0], OW: g.out[1]})
}
