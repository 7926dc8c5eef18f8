package cpu

import (
	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/ir/tensor"
	"spc/lower/plan"
)

// link is a convolution with one group as a link of a cascade: the products of a
// cascade have the same columns, and each but the first multiplies what the one
// before it made. They are computed strip by strip, so that a strip goes from one
// to the next in the cache, as the panel that it is.
type link struct {
	g      *convGeometry
	kernel backend.FloatKernel
	ep     epilogue
	loader patchLoader
	byRows bool // threads divide the rows
}

// link is that of the step, nil where it is none of a cascade.
func (st *step) link() *link {
	if st.bound == nil {
		return nil
	}
	return st.bound.link
}

// pointwise reports whether the patches are the pixels of the input.
func (l *link) pointwise() bool {
	p, ok := l.loader.(*planes)
	return ok && p.direct && l.g.taps == 1
}

func (l *link) product() product {
	p := product{kernel: l.kernel, m: l.g.rows, k: l.g.channels * l.g.taps, byRows: l.byRows}
	p.n, p.images = l.loader.columns(min(l.loader.batch(), l.g.images))
	return p
}

// tileRows is the number of rows of a whole strip of the result.
func (l *link) tileRows() int {
	t := l.kernel.Tile()
	return (l.g.rows + t - 1) / t * t
}

// cascadeFloats bounds what the strips of a cascade take, in floats of a worker: they
// are to stay in the level 2 cache.
const cascadeFloats = 384 << 10

// cascades lists the steps of the main graph in the order of a run: steps that follow
// each other and are links of a cascade become one, as long as which all that they use
// stays in the arena.
func (b *binding) cascades() (int, error) {
	blk, values := b.main, b.plan.Values
	if b.prog.pool.Threads() > 1 {
		b.divide(blk.steps)
	}
	count := 0
	for i := 0; i < len(blk.steps); {
		end := b.cascadeEnd(blk.steps, i)
		if end-i < 2 {
			blk.order = append(blk.order, blk.steps[i])
			i++
			continue
		}
		members := blk.steps[i:end]
		first, last := members[0].plan.Index, members[len(members)-1].plan.Index
		floats := members[0].bound.link.loader.panel(members[0].bound.link.kernel)
		for _, st := range members {
			st.plan.First = first
			floats += st.bound.link.tileRows() * backend.Panel
			for _, k := range st.in {
				if k >= 0 && values[k].Place != plan.Constant {
					r := b.plan.Root(k)
					values[r].Span.Last = max(values[r].Span.Last, last)
				}
			}
			r := &values[b.plan.Root(st.out[0])].Span
			r.First, r.Last = min(r.First, first), max(r.Last, last)
		}
		b.scratch = max(b.scratch, floats)
		kept := make([]bool, len(members))
		for j, st := range members {
			k := st.out[0]
			if kept[j] = j == len(members)-1 || values[k].Place == plan.Aliased || b.read(k) > 1; !kept[j] {
				values[k].Layout = plan.Strips
			}
		}
		cascade := &step{node: members[0].node, number: len(b.steps), main: true, members: members}
		cascade.bound = &bound{prepare: func(x *exec, _, _ []*tensor.Tensor) func() error { return x.cascade(members, kept) }}
		b.steps = append(b.steps, cascade)
		blk.order = append(blk.order, cascade)
		count++
		i = end
	}
	return count, nil
}

// shareRows is the least number of rows of a product of which a thread's share pays
// for loading all of X.
const shareRows = 48

// divide lets threads divide the rows of those products whose planes they divide
// next, so that a core reads what it wrote, where W has no more columns than rows:
// each thread loads all of X.
func (b *binding) divide(steps []*step) {
	planes := make([]int, len(b.plan.Values)) // steps that read a value plane by plane
	for _, st := range steps {
		if st.bound != nil && st.bound.planes {
			planes[st.in[0]]++
		}
	}
	least := shareRows * b.prog.pool.Threads()
	for _, st := range steps {
		l := st.link()
		if l != nil && l.g.images == 1 && l.pointwise() && l.g.rows >= max(l.g.channels, least) && planes[st.out[0]] > 0 && planes[st.out[0]] == b.read(st.out[0]) {
			l.byRows = true
		}
	}
}

// cascadeEnd returns the end of the longest cascade that starts at step i.
func (b *binding) cascadeEnd(steps []*step, i int) int {
	fits := func(st *step) bool {
		if st.link() == nil {
			return false
		}
		p := st.link().product()
		d := p.divide(b.prog.pool.Threads())
		for _, k := range append(st.in[:len(st.in):len(st.in)], st.out[0]) {
			if k >= 0 && b.plan.Values[k].Place != plan.Constant && !b.inArena(b.plan.Root(k)) {
				return false
			}
		}
		return d.parts == 1
	}
	if !fits(steps[i]) {
		return i
	}
	head := steps[i].link()
	// Other loaders read around a strip what the strips of a later link, which
	// may write over its residual, have already changed. Strips of planes have columns
	// between the rows of the output, with which later links would be wider and finish
	// their rows in pieces: that costs more than to write a result and read it again.
	if p, ok := head.loader.(*planes); !ok || p.strip != nil || head.g.images%min(head.loader.batch(), head.g.images) != 0 {
		return i
	}
	floats := head.loader.panel(head.kernel) + head.tileRows()*backend.Panel
	end := i + 1
	for ; end < len(steps); end++ {
		st := steps[end]
		if !fits(st) || !st.link().pointwise() || st.in[0] != steps[end-1].out[0] ||
			st.link().g.images != head.g.images || st.link().g.outPlane != head.g.outPlane {
			break
		}
		if floats += st.link().tileRows() * backend.Panel; floats > cascadeFloats {
			break
		}
	}
	return end
}

// read counts the reads of a value beside its definition: by steps, through views,
// and as an output.
func (b *binding) read(k int) int {
	n := 0
	for _, st := range b.steps {
		for _, i := range st.in {
			if i == k {
				n++
			}
		}
	}
	for i := range b.plan.Values {
		if v := &b.plan.Values[i]; v.Place == plan.Aliased && v.Of == k {
			n++
		}
	}
	for _, v := range b.plan.Graph.Outputs {
		if b.plan.Number[v] == k {
			n++
		}
	}
	return n
}

// cascade prepares the cascade of the members; those results that are not kept are
// never written to memory.
func (x *exec) cascade(members []*step, keeps []bool) func() error {
	head := members[0].link()
	products := make([]product, len(members))
	type value struct{ ys, res []float32 } // a result and its residual
	values := make([]value, len(members))
	images, begin, load := head.loader.prepare(x)
	batch := min(head.loader.batch(), head.g.images)
	img0 := 0                                                                                       // image of column 0
	finishes, made := make([]ukernel.Finish, x.pool.Threads()), make([][]float32, x.pool.Threads()) // made by the link before
	for i, st := range members {
		p, g, ep := &products[i], st.link().g, &st.link().ep
		*p = st.link().product()
		p.whole, p.load = true, load(0)
		if i > 0 {
			p.load = func(worker int, _ []float32, k0, k1, _, _ int) []float32 {
				return made[worker][k0*backend.Panel : k1*backend.Panel]
			}
		}
		last := i == len(members)-1
		if last {
			p.finish = func(worker, r0, rows, col, n int) *ukernel.Finish {
				if s, v := head.loader.pixels(col, n), &values[i]; s.count == n {
					return ep.direct(&finishes[worker], v.ys, v.res, ((img0+s.img)*g.rows+r0)*g.outPlane+s.pixel, g.outPlane, r0, rows)
				}
				return nil
			}
		}
		p.store = func(_ int, y []float32, r0, rows, col, n int) {
			plane, v := g.outPlane, &values[i]
			if !last && !keeps[i] && v.res == nil {
				ep.within(nil, y, nil, 0, plane, r0, rows, n) // those between pixels, too
				return
			}
			var kept []float32
			if keeps[i] {
				kept = v.ys
			}
			for at := 0; at < n; {
				s := head.loader.pixels(col+at, n-at)
				out, count := ((img0+s.img)*g.rows+r0)*plane+s.pixel, s.count
				if last {
					ep.tile(v.ys, v.res, out, plane, y[at:], r0, rows, count)
				} else {
					ep.within(kept, y[at:], v.res, out, plane, r0, rows, count)
				}
				at += s.width
			}
		}
	}
	d := products[0].divide(x.pool.Threads())
	panelRoom := head.loader.panel(head.kernel)
	body := func(worker, strip int) {
		granules, col, n := d.columns(strip, products[0].n)
		if begin != nil {
			begin(worker, col, n)
		}
		room := x.scratch[worker]
		panel, tile := room[:panelRoom], room[panelRoom:]
		for i := range products {
			p := &products[i]
			p.strip(worker, granules, col, n, 0, p.m, panel, tile)
			made[worker], tile = tile, tile[members[i].link().tileRows()*backend.Panel:]
		}
	}
	return func() error {
		for i, st := range members {
			in := x.frames[st.number].in
			values[i] = value{ys: x.frames[st.number].out[0].F32s()}
			if st.link().ep.residual >= 0 {
				values[i].res = in[st.link().ep.residual].F32s()
			}
		}
		xs := x.frames[members[0].number].in[0].F32s()
		for img0 = 0; img0 < head.g.images; img0 += batch {
			images(xs, img0, batch)
			x.pool.For(d.strips(), body)
		}
		return nil
	}
}
