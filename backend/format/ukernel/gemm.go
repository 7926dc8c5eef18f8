package ukernel

import "runtime"

// MR is the number of rows of a GEMM tile.
const MR = 6

// Gemm multiplies dense matrices tile by tile.
type Gemm struct {
	// Name says dtype, tile and instruction set.
	Name string

	tile gemmTile
}

// gemmTile computes tiles that are below each other, at least one, of rows rows, at most MR, and width granules of columns.
// Those of A are at elements apart. It may prefetch what next begins with, and changes f, which is nil for none.
type gemmTile func(tiles, rows, width, k int, a []float32, at, ar, ak int, b []float32, ldb int, y []float32, ldy int, acc bool, f *FinishArgs, next []float32)

// PackedLen returns the number of elements of a packed weight of m rows and k
// columns: m is rounded up to whole tiles.
func (g *Gemm) PackedLen(m, k int) int { return (m + MR - 1) / MR * MR * k }

// Pack lays out w, m rows of k elements, ldw apart, as tiles [m/MR][k][MR] in
// dst; the missing rows of the last tile become zeros. It panics if dst is
// shorter than PackedLen(m, k) or w than its rows.
func (g *Gemm) Pack(dst, w []float32, m, k, ldw int) { Pack(g, dst, w, m, k, ldw) }

// Pack is Gemm.Pack for a weight of f32, or of bits of 16-bit numbers.
func Pack[T float32 | uint16](g *Gemm, dst, w []T, m, k, ldw int) {
	need("packed weight", len(dst), g.PackedLen(m, k))
	if m > 0 {
		need("weight", len(w), (m-1)*ldw+k)
	}
	for i := 0; i < m; i += MR {
		tile := dst[i*k : (i+MR)*k]
		if i+MR <= m {
			row := func(r int) []T { return w[(i+r)*ldw:][:k] }
			r0, r1, r2, r3, r4, r5 := row(0), row(1), row(2), row(3), row(4), row(5)
			for c, v := range r0 {
				t := (*[MR]T)(tile[c*MR:])
				t[0], t[1], t[2], t[3], t[4], t[5] = v, r1[c], r2[c], r3[c], r4[c], r5[c]
			}
			continue
		}
		for r := range MR {
			if i+r >= m {
				for c := range k {
					tile[c*MR+r] = 0
				}
				continue
			}
			row := w[(i+r)*ldw:][:k]
			for c, v := range row {
				tile[c*MR+r] = v
			}
		}
	}
}

// Tile computes rows (1 to MR) rows and width (1 to Columns/Granule) granules of
// columns of Y = A B, or Y += A B with acc set. Row r and column i of A are at
// a[r*ar+i*ak], of which strides at least one is not negative; rows of B and of Y
// are ldb and ldy elements apart.
func (g *Gemm) Tile(rows, width, k int, a []float32, ar, ak int, b []float32, ldb int, y []float32, ldy int, acc bool) {
	g.TileAhead(rows, width, k, a, ar, ak, b, ldb, y, ldy, acc, b)
}

// TileAhead is Tile, which meanwhile brings what next begins with, up to 8 elements for each of k, into the level 2 cache.
func (g *Gemm) TileAhead(rows, width, k int, a []float32, ar, ak int, b []float32, ldb int, y []float32, ldy int, acc bool, next []float32) {
	cols := width * Granule
	if rows < 1 || rows > MR || width < 1 || cols > Columns || k < 0 || ar < 0 || ak < 0 || ldb < 0 || ldy < cols {
		panic("ukernel: no such tile")
	}
	need("output", len(y), (rows-1)*ldy+cols)
	if k > 0 {
		need("left operand", len(a), (rows-1)*ar+(k-1)*ak+1)
		need("right operand", len(b), (k-1)*ldb+cols)
	}
	if len(next) == 0 {
		next = b
	}
	g.tile(1, rows, width, k, a, 0, ar, ak, b, ldb, y, ldy, acc, nil, next)
}

// Panel computes m rows of a packed weight times width granules of a panel's
// columns: Y = W X, or Y += W X with acc set. The rows of Y are Columns apart.
// Rows can be split between threads at multiples of MR, by slicing w at i*k and y
// at i*Columns.
func (g *Gemm) Panel(m, width, k int, w, x, y []float32, acc bool) {
	g.panel(m, width, k, w, x, y, acc, nil)
}

// panel is Panel, whose rows go to f, which it changes, unless that is nil.
func (g *Gemm) panel(m, width, k int, w, x, y []float32, acc bool, f *FinishArgs) {
	checkPanel(m, width, k, x, y)
	need("packed weight", len(w), g.PackedLen(m, k))
	whole := m / MR * MR
	if whole > 0 {
		g.tile(whole/MR, MR, width, k, w, MR*k, 1, MR, x, Columns, y, Columns, acc, f, x)
	}
	if whole < m {
		g.tile(1, m-whole, width, k, w[whole*k:], 0, 1, MR, x, Columns, y[whole*Columns:], Columns, acc, f, x)
	}
}

// PanelOf is Gemm.Panel for a packed weight of any type, whose rows go to f unless that is nil.
func (kern *Kernels) PanelOf(m, width, k int, w Values, x, y []float32, acc bool, f *Finish) {
	g, to := &kern.Gemm, kern.finish(f, m, width)
	defer runtime.KeepAlive(f)
	if !w.Half() {
		g.panel(m, width, k, w.f32, x, y, acc, to)
		return
	}
	lent := w.lend()
	defer lent.giveBack()
	for i := 0; i < m; i += MR {
		tile := kern.widened(lent, w, i*k, (i+MR)*k)
		g.panel(min(MR, m-i), width, k, tile, x, y[i*Columns:], acc, to)
	}
}
