package ukernel

// Gemm multiplies a dense weight, packed by tiles of MR rows, by a panel.
type Gemm struct {
	// Name says dtype, tile and instruction set.
	Name string
	// MR is the number of rows of a tile.
	MR int

	tile func(rows, k int, w, x, y []float32, ldy int, acc bool)
}

// blockK is the number of panel rows that Panel works on at a time: what stays
// in a 32 KiB level 1 cache beside the stream of weights.
const blockK = 192

// PackedLen returns the number of elements of a packed weight of m rows and k
// columns: m is rounded up to whole tiles.
func (g *Gemm) PackedLen(m, k int) int { return (m + g.MR - 1) / g.MR * g.MR * k }

// Pack lays out w, m rows of k elements, ldw apart, as tiles [m/MR][k][MR] in
// dst; the missing rows of the last tile become zeros. It panics if dst is
// shorter than PackedLen(m, k) or w than its rows.
func (g *Gemm) Pack(dst, w []float32, m, k, ldw int) {
	mr := g.MR
	need("packed weight", len(dst), g.PackedLen(m, k))
	if m > 0 {
		need("weight", len(w), (m-1)*ldw+k)
	}
	for i := 0; i < m; i += mr {
		tile := dst[i*k : (i+mr)*k]
		for r := range mr {
			if i+r >= m {
				for c := range k {
					tile[c*mr+r] = 0
				}
				continue
			}
			row := w[(i+r)*ldw:][:k]
			for c, v := range row {
				tile[c*mr+r] = v
			}
		}
	}
}

// Tile computes the first rows (1 to MR) rows of a tile: Y = W X, or Y += W X
// with acc set. w is [k][MR], x a panel [k][Columns], y has the row stride ldy.
func (g *Gemm) Tile(rows, k int, w, x, y []float32, ldy int, acc bool) {
	if rows < 1 || rows > g.MR {
		panic("ukernel: rows outside the tile")
	}
	checkPanel(rows, k, x, y, ldy)
	need("weight tile", len(w), g.MR*k)
	g.tile(rows, k, w, x, y, ldy, acc)
}

// Panel computes m rows of a packed weight, blocking K for the level 1 cache:
// Y = W X, or Y += W X with acc set. Rows can be split between threads at
// multiples of MR, by slicing w at i*k and y at i*ldy.
func (g *Gemm) Panel(m, k int, w, x, y []float32, ldy int, acc bool) {
	checkPanel(m, k, x, y, ldy)
	mr := g.MR
	need("packed weight", len(w), g.PackedLen(m, k))
	blocks := max(1, (k+blockK-1)/blockK)
	for b := range blocks {
		from, to := b*k/blocks, (b+1)*k/blocks
		for i := 0; i < m; i += mr {
			g.tile(min(mr, m-i), to-from, w[i*k+from*mr:], x[from*Columns:], y[i*ldy:], ldy, acc || b > 0)
		}
	}
}

// MulVec multiplies m dense rows of k elements, ldw apart, by a vector:
// y[r] = sum over i of w[r*ldw+i] * x[i].
func (kern *Kernels) MulVec(m, k int, w []float32, ldw int, x, y []float32) {
	if m < 0 || k < 0 || ldw < k {
		panic("ukernel: no matrix of such a size")
	}
	if m == 0 {
		return
	}
	need("weight", len(w), (m-1)*ldw+k)
	need("vector", len(x), k)
	need("output", len(y), m)
	kern.gemv(m, k, w, ldw, x, y)
}
