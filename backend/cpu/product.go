package cpu

import (
	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/ukernel"
	"spc/ir"
	"spc/ir/tensor"
)

// product is Y[M,N] = W[M,K] X[K,N] for one prepared weight, strip of columns by
// strip: what every operator with a weight comes down to. Only how X is loaded
// into panels and how Y is stored differs.
type product struct {
	kernel  backend.FloatKernel
	m, k, n int
	images  int  // how often n columns follow each other, 0 for once; no strip has those of two
	room    int  // floats of a panel, 0 for the rows of the kernel's largest block
	byRows  bool // threads divide the rows, however many columns there are
	whole   bool // all rows of a strip of Y stay where they were computed
	// begin is called before a strip of columns col to col+n is loaded.
	begin func(worker, col, n int)
	load  loader
	// finish says where rows r0 to r0+rows of the columns go as they are computed, nil where store takes them.
	finish func(worker, r0, rows, col, n int) *ukernel.Finish
	// store takes rows r0 to r0+rows of the columns of Y as [rows][64].
	store func(worker int, y []float32, r0, rows, col, n int)
}

// loader brings rows k0 to k1 of the columns col to col+n of X to where kernels read
// them: into the panel [k1-k0][64] that it is given and returns, or into one that it
// has. What lies behind the columns does not matter.
type loader func(worker int, panel []float32, k0, k1, col, n int) []float32

// rowBlock is the number of rows of Y that are computed before they are stored.
const rowBlock = 64

// blockRows is rowBlock rounded up to whole tiles.
func blockRows(tile int) int { return (rowBlock + tile - 1) / tile * tile }

// panelRows is the largest number of rows of a panel.
func panelRows(k backend.FloatKernel) int {
	rows, bounds := 0, k.Bounds()
	for b := range max(0, len(bounds)-1) {
		rows = max(rows, bounds[b+1]-bounds[b])
	}
	return rows
}

// productScratch is the number of floats that a worker needs for products of m
// rows: a panel, and as many rows of Y as are computed before they are stored.
func productScratch(kernel backend.FloatKernel, m int) int {
	rows := blockRows(kernel.Tile())
	if len(kernel.Bounds()) > 2 {
		rows = (m + kernel.Tile() - 1) / kernel.Tile() * kernel.Tile()
	}
	return (panelRows(kernel) + rows) * backend.Panel
}

// division says how a product is shared between threads: the columns of each image into strips, of
// which strip i has the granules from cuts[i] to cuts[i+1]-1, and the rows into parts of so
// many where there are too few strips and enough rows.
type division struct {
	cuts        []int
	images      int
	parts, rows int
}

func (d *division) strips() int { return d.images * (len(d.cuts) - 1) }

// columns returns the granules of strip i, and its columns, col to col+count, where images have n of them.
func (d *division) columns(i, n int) (granules, col, count int) {
	image := i / (len(d.cuts) - 1)
	i -= image * (len(d.cuts) - 1)
	first, last := d.cuts[i], d.cuts[i+1]
	col = first * backend.Granule
	return last - first, image*n + col, min(last*backend.Granule, n) - col
}

// divide divides the product.
func (p *product) divide(threads int) division {
	const width = backend.Panel / backend.Granule
	granules := (p.n + backend.Granule - 1) / backend.Granule
	strips := (granules + width - 1) / width
	tile := p.kernel.Tile()
	d := division{images: max(1, p.images), parts: 1, rows: (p.m + tile - 1) / tile * tile}
	few := d.images*strips < 4*threads && d.images*strips%threads != 0
	if p.byRows || few {
		rows := (p.m + threads - 1) / threads
		rows = (rows + tile - 1) / tile * tile
		// Rows that are too few tiles for the threads leave more of them idle than narrower strips cost.
		if byColumns := (granules + threads - 1) / threads; p.byRows || rows*granules <= p.m*byColumns {
			d.rows, d.parts = rows, (p.m+rows-1)/rows
		}
	}
	share := 1
	if d.parts == 1 && (few || d.images == 1) {
		share = threads
	}
	// The strips that a thread begins with have an equal share of the granules.
	for ; d.cuts == nil; strips++ {
		d.cuts = cuts(granules, strips, share, width)
	}
	return d
}

// cuts cuts granules into strips of at most width of them, so that each of so many
// shares of the strips has an equal share of the granules; nil where there are too
// few strips for that.
func cuts(granules, strips, shares, width int) []int {
	list := make([]int, 1, strips+1)
	for w := range shares {
		from, to := w*granules/shares, (w+1)*granules/shares
		n := (w+1)*strips/shares - w*strips/shares
		if n*width < to-from {
			return nil
		}
		for i := range n {
			list = append(list, from+(i+1)*(to-from)/n)
		}
	}
	return list
}

// prepare returns what computes the product.
func (p *product) prepare(x *exec) func() {
	x.warm(p.kernel, false)
	d := p.divide(x.pool.Threads())
	room := p.room
	if room == 0 {
		room = panelRows(p.kernel) * backend.Panel
	}
	body := func(worker, i int) {
		granules, col, n := d.columns(i%d.strips(), p.n)
		r0 := i / d.strips() * d.rows
		r1 := min(p.m, r0+d.rows)
		panel, y := x.scratch[worker][:room], x.scratch[worker][room:]
		if p.begin != nil {
			p.begin(worker, col, n)
		}
		p.strip(worker, granules, col, n, r0, r1, panel, y)
	}
	return func() { x.pool.For(d.strips()*d.parts, body) }
}

// strip computes and stores rows r0 to r1 of a strip of so many granules, which are the
// columns from col to col+n. panel has room for a block of X, and y for the rows, or
// for those that are stored together where each block of them is computed at once.
func (p *product) strip(worker, granules, col, n, r0, r1 int, panel, y []float32) {
	bounds, block := p.kernel.Bounds(), blockRows(p.kernel.Tile())
	last := len(bounds) - 2 // block of columns of W
	for b := range last {
		p.kernel.Panel(y, p.load(worker, panel, bounds[b], bounds[b+1], col, n), b, granules, r0, r1)
	}
	if last >= 0 {
		panel = p.load(worker, panel, bounds[last], bounds[last+1], col, n)
	}
	finisher := p.finishes(n)
	for r := r0; r < r1; r += block {
		end, tile := min(r1, r+block), y
		if p.whole || last > 0 {
			tile = y[(r-r0)*backend.Panel:]
		}
		if finisher != nil && last >= 0 {
			if f := p.finish(worker, r, end-r, col, n); f != nil && finisher.Finish(tile, panel, last, granules, r, end, f) {
				continue
			}
		}
		if last >= 0 {
			p.kernel.Panel(tile, panel, last, granules, r, end)
		} else {
			clear(tile[:(end-r)*backend.Panel])
		}
		p.store(worker, tile, r, end-r, col, n)
	}
}

// finishes returns the kernel where it may finish rows of n columns itself, else nil.
func (p *product) finishes(n int) ukernel.Finisher {
	if p.finish == nil || n%backend.Granule != 0 {
		return nil
	}
	k, _ := p.kernel.(ukernel.Finisher)
	return k
}

// loadRows loads rows of X stored as [K][ldx]: columns are contiguous.
func loadRows(panel, x []float32, k, ldx, col, n int) []float32 {
	for i := range k {
		copy(panel[i*backend.Panel:][:n], x[i*ldx+col:])
	}
	return panel
}

// loadTransposed loads k rows of X from column col on, X being stored as [N][ldx]:
// the elements of a column are contiguous, as the features of a token are.
func loadTransposed(panel, x []float32, k, ldx, col, n int) []float32 {
	vec.Transpose(panel, backend.Panel, x[col*ldx:], ldx, n, k)
	return panel
}

// constant returns the f32 elements of a constant input, nil where it is absent;
// ok is false when it is present and not a constant f32.
func constantF32(n *ir.Node, i int) (data []float32, ok bool) {
	v := n.Input(i)
	if v == nil {
		return nil, true
	}
	if v.Const == nil || v.Const.DType() != tensor.F32 {
		return nil, false
	}
	return v.Const.F32s(), true
}

// f32 reports whether all present inputs and outputs of n are f32.
func f32(n *ir.Node) bool {
	for _, vs := range [][]*ir.Value{n.Inputs, n.Outputs} {
		for _, v := range vs {
			if v != nil && v.Type.DType != tensor.F32 {
				return false
			}
		}
	}
	return true
}

// shapeOf is the shape of a value whose type is static.
func shapeOf(v *ir.Value) []int {
	s, _ := v.Type.Shape()
	return s
}

func prod(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
