package cpu

import (
	"math"
	"sync"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/ukernel"
	"spc/ir/op"
)

// BLAS multiplies matrices on threads of its own. It may be used concurrently.
type BLAS struct {
	kern  *ukernel.Gemm
	pool  *Pool
	calls sync.Pool // of *gemmCall
}

// NewBLAS starts the threads; 0 stands for one a physical core.
func NewBLAS(threads int) *BLAS { return newBLAS(threads, ukernel.Best()) }

func newBLAS(threads int, kern *ukernel.Kernels) *BLAS {
	if threads == 0 {
		threads = Cores()
	}
	b := &BLAS{kern: &kern.Gemm, pool: NewPool(threads)}
	b.calls.New = func() any { return newGemmCall(b) }
	return b
}

// Close ends the threads. A Gemm that is called afterwards uses one.
func (b *BLAS) Close() { b.pool.Close() }

// Kernels are what calibration and reconstruction multiply with.
func (b *BLAS) Kernels() op.Kernels {
	return op.Kernels{Gemm: b.Gemm, Taps: taps, Dot: vec.Dot, Add: vec.Add, Clip: vec.Clip}
}

func taps(y, x []float32, offset []int, w []float32, bias float32) {
	inf := float32(math.Inf(1))
	vec.Taps(y, x, offset, w, bias, -inf, inf, false)
}

// Gemm computes C = alpha op(A) op(B) + beta C for row-major float32 matrices, where
// op(A)[m,k] is A[m,k] or, with tA, the transpose of A[k,m], and op(B)[k,n] likewise;
// rows are lda, ldb and ldc elements apart. With beta 0, C is not read; with alpha 0 or
// k 0, A and B are not. C must not overlap A or B. Products are added in the order of
// k, in blocks that depend on k alone, so that the result is the same for any number of
// threads. It panics where a matrix does not fit its slice.
func (b *BLAS) Gemm(tA, tB bool, m, n, k int, alpha float32, a []float32, lda int, bm []float32, ldb int, beta float32, c []float32, ldc int) {
	if m < 0 || n < 0 || k < 0 {
		panic("cpu: negative size of a matrix")
	}
	if m == 0 || n == 0 {
		return
	}
	fits("C", m, n, ldc, c)
	if alpha == 0 || k == 0 {
		for i := range m {
			scaleRow(c[i*ldc:][:n], beta)
		}
		return
	}
	if tA {
		fits("A", k, m, lda, a)
	} else {
		fits("A", m, k, lda, a)
	}
	if tB {
		fits("B", n, k, ldb, bm)
	} else {
		fits("B", k, n, ldb, bm)
	}
	g := b.calls.Get().(*gemmCall)
	g.tA, g.tB, g.m, g.n, g.alpha, g.beta = tA, tB, m, n, alpha, beta
	g.a, g.lda, g.b, g.ldb, g.c, g.ldc = a, lda, bm, ldb, c, ldc
	g.run(b.kern.Bounds(k))
	g.a, g.b, g.c = nil, nil, nil
	b.calls.Put(g)
}

// fits panics unless rows of cols elements, ld apart, lie in a slice.
func fits(name string, rows, cols, ld int, s []float32) {
	if ld < cols || rows > 0 && cols > 0 && (len(s) < cols || (len(s)-cols)/ld < rows-1) {
		panic("cpu: matrix " + name + " does not fit its slice")
	}
}

func scaleRow(row []float32, beta float32) {
	switch beta {
	case 1:
	case 0:
		clear(row)
	default:
		for i := range row {
			row[i] *= beta
		}
	}
}

const (
	gemmDepth   = 8                  // blocks of k whose products are summed before they are added to C
	gemmRows    = 8 * gemmChunk      // of A that are packed at a time
	gemmColumns = 32 * backend.Panel // of B that are packed at a time
	gemmChunk   = 80 * ukernel.MR    // the most rows of a task: tiles that meet a block of B while it is in the level 2 cache
	gemmStrip   = 64                 // rows of B that are packed together
	gemmTiles   = 16                 // tiles of A that are packed together
)

// gemmCall is one product, and the memory that it takes.
type gemmCall struct {
	kern          *ukernel.Gemm
	team          *Team
	tA, tB        bool
	m, n          int
	alpha, beta   float32
	a, b, c       []float32
	lda, ldb, ldc int

	bounds         []int // of the blocks of k that are summed
	i0, i1         int   // the rows of A that are multiplied,
	j0, j1         int   // and the columns of B
	packed         bool  // the rows of A lie in tiles
	chunks, groups int   // of rows and of panels: each pair is a task
	rows, width    int   // of a chunk, and the panels of a group

	panels []float32   // columns of B, [panel][k][64]
	tiles  []float32   // rows of A by block of k, [tile][MR][k], or with tA [tile][k][MR]
	sums   [][]float32 // by worker, rows of a panel of the product

	packing, packingRows, multiplying func(worker, i int)
}

func newGemmCall(b *BLAS) *gemmCall {
	g := &gemmCall{kern: b.kern, team: b.pool.NewTeam(), sums: make([][]float32, b.pool.Threads())}
	for w := range g.sums {
		g.sums[w] = make([]float32, gemmChunk*backend.Panel)
	}
	g.packing = func(_, i int) { g.pack(i) }
	g.packingRows = func(_, i int) { g.packTiles(i) }
	g.multiplying = g.multiply
	return g
}

func (g *gemmCall) run(bounds []int) {
	for ; len(bounds) > 1; bounds = bounds[min(gemmDepth, len(bounds)-1):] {
		g.bounds = bounds[:min(gemmDepth+1, len(bounds))]
		for g.j0 = 0; g.j0 < g.n; g.j0 = g.j1 {
			g.j1 = min(g.n, g.j0+gemmColumns)
			panels := ceil(g.j1-g.j0, backend.Panel)
			g.panels = atLeast(g.panels, panels*backend.Panel*g.depth())
			if g.tB {
				g.team.For(panels, g.packing)
			} else {
				g.team.For(ceil(g.depth(), gemmStrip), g.packing)
			}
			// Few columns do not repay that A is copied.
			g.packed = g.tA || panels >= 8
			for g.i0 = 0; g.i0 < g.m; g.i0 = g.i1 {
				g.i1 = min(g.m, g.i0+gemmRows)
				if g.packed {
					tiles := ceil(g.i1-g.i0, ukernel.MR)
					g.tiles = atLeast(g.tiles, tiles*ukernel.MR*g.depth())
					g.team.For(ceil(tiles, gemmTiles), g.packingRows)
				}
				g.divide(panels)
				g.team.For(g.chunks*g.groups, g.multiplying)
			}
		}
		g.beta = 1
	}
}

func ceil(n, by int) int { return (n + by - 1) / by }

// atLeast returns s, or where that is shorter a new slice of n elements.
func atLeast(s []float32, n int) []float32 {
	if len(s) < n {
		return make([]float32, n)
	}
	return s
}

// depth is the number of columns of A and rows of B that are multiplied.
func (g *gemmCall) depth() int { return g.bounds[len(g.bounds)-1] - g.bounds[0] }

// divide cuts the product into tasks, enough for threads to share evenly.
func (g *gemmCall) divide(panels int) {
	const mr = ukernel.MR
	tasks, tiles := 4*g.team.Threads(), ceil(g.i1-g.i0, mr)
	g.chunks = ceil(tiles*mr, gemmChunk)
	if g.chunks*panels < tasks {
		g.chunks = min(ceil(tasks, panels), tiles)
	}
	g.rows = ceil(tiles, g.chunks) * mr
	g.chunks = ceil(g.i1-g.i0, g.rows)
	g.width = max(1, min(panels, panels*g.chunks/tasks))
	g.groups = ceil(panels, g.width)
}

// panel returns panel p, and the columns of C that it is for.
func (g *gemmCall) panel(p int) (x []float32, col, n int) {
	col = g.j0 + p*backend.Panel
	size := g.depth() * backend.Panel
	return g.panels[p*size:][:size], col, min(backend.Panel, g.j1-col)
}

// pack packs panel i of the transpose of B, or strip i of the rows of B into all
// panels. Columns behind the last one are zeros.
func (g *gemmCall) pack(i int) {
	k, k0 := g.depth(), g.bounds[0]
	if g.tB {
		x, col, n := g.panel(i)
		if n < backend.Panel {
			clear(x)
		}
		vec.Transpose(x, backend.Panel, g.b[col*g.ldb+k0:], g.ldb, n, k)
		return
	}
	for r := i * gemmStrip; r < min(k, (i+1)*gemmStrip); r++ {
		src := g.b[(k0+r)*g.ldb+g.j0:][:g.j1-g.j0]
		dst := g.panels[r*backend.Panel:]
		for ; len(src) >= backend.Panel; src = src[backend.Panel:] {
			copy(dst[:backend.Panel], src)
			dst = dst[min(len(dst), k*backend.Panel):]
		}
		if len(src) > 0 {
			clear(dst[copy(dst[:backend.Panel], src):backend.Panel])
		}
	}
}

// packTiles packs gemmTiles tiles of the rows of A, beginning with tile i*gemmTiles.
func (g *gemmCall) packTiles(i int) {
	const mr = ukernel.MR
	r0 := g.i0 + i*gemmTiles*mr
	r1 := min(g.i1, r0+gemmTiles*mr)
	for b, from := range g.bounds[:len(g.bounds)-1] {
		k := g.bounds[b+1] - from
		dst, _, _ := g.tile(r0, from, k)
		if !g.tA {
			for r := r0; r < r1; r++ {
				copy(dst[(r-r0)*k:][:k], g.a[r*g.lda+from:])
			}
			continue
		}
		for j := range k {
			src, at := g.a[(from+j)*g.lda+r0:][:r1-r0], dst[j*mr:]
			for ; len(src) >= mr; src = src[mr:] {
				t, s := (*[mr]float32)(at), (*[mr]float32)(src)
				t[0], t[1], t[2], t[3], t[4], t[5] = s[0], s[1], s[2], s[3], s[4], s[5]
				at = at[min(len(at), mr*k):]
			}
			copy(at, src)
		}
	}
}

// tile returns rows of A from r on, columns from..from+k of them, and the strides
// between rows and columns.
func (g *gemmCall) tile(r, from, k int) (a []float32, ar, ak int) {
	switch {
	case !g.packed:
		return g.a[r*g.lda+from:], g.lda, 1
	case g.tA:
		ar, ak = 1, ukernel.MR
	default:
		ar, ak = k, 1
	}
	rows := ceil(g.i1-g.i0, ukernel.MR) * ukernel.MR
	return g.tiles[(from-g.bounds[0])*rows+(r-g.i0)*k:], ar, ak
}

// multiply computes a task: a chunk of rows of C in a group of panels.
func (g *gemmCall) multiply(worker, i int) {
	r0, p0 := g.i0+i%g.chunks*g.rows, i/g.chunks*g.width
	r1, p1 := min(g.i1, r0+g.rows), min(ceil(g.j1-g.j0, backend.Panel), p0+g.width)
	y := g.sums[worker]
	for p := p0; p < p1; p++ {
		x, col, n := g.panel(p)
		granules := ceil(n, backend.Granule)
		for b, from := range g.bounds[:len(g.bounds)-1] {
			k := g.bounds[b+1] - from
			block := x[(from-g.bounds[0])*backend.Panel:]
			for r := r0; r < r1; r += ukernel.MR {
				a, ar, ak := g.tile(r, from, k)
				g.kern.Tile(min(ukernel.MR, r1-r), granules, k, a, ar, ak, block, backend.Panel, y[(r-r0)*backend.Panel:], backend.Panel, b > 0)
			}
		}
		for r := r0; r < r1; r++ {
			g.add(g.c[r*g.ldc+col:][:n], y[(r-r0)*backend.Panel:])
		}
	}
}

// add stores a row of the product.
func (g *gemmCall) add(c, y []float32) {
	switch {
	case g.alpha == 1 && g.beta == 0:
		copy(c, y)
	case g.alpha == 1 && g.beta == 1:
		vec.Add(c, c, y)
	case g.beta == 0:
		for i := range c {
			c[i] = g.alpha * y[i]
		}
	default:
		for i := range c {
			c[i] = g.alpha*y[i] + g.beta*c[i]
		}
	}
}
