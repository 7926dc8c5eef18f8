package vec

// TileStride is the number of elements from one row of a panel or of a tile of a
// product to the next.
const TileStride = 64

// Chunk is a run of N columns of a panel, from Dst on, that is read from Src on.
type Chunk struct{ Dst, Src, N int }

// ChunkLen is the largest N of a Chunk: larger ones are split.
func ChunkLen() int { return best.chunk }

// Gather loads rows of a panel: for each row r and each chunk c,
//
//	dst[r*64+c.Dst:][:c.N] = src[offset[r]+c.Src:]
//
// N is at least 1 and at most ChunkLen. What lies between the chunks stays.
func Gather(dst, src []float32, offset []int, chunks []Chunk) {
	if len(offset) == 0 || len(chunks) == 0 {
		return
	}
	lo, hi := offset[0], offset[0]
	for _, o := range offset {
		lo, hi = min(lo, o), max(hi, o)
	}
	for _, c := range chunks {
		if c.N < 1 || c.N > best.chunk || c.Dst < 0 || c.Dst+c.N > TileStride || lo+c.Src < 0 || hi+c.Src+c.N > len(src) {
			panic("vec: chunk does not fit its slice")
		}
	}
	if len(dst) < len(offset)*TileStride {
		panic("vec: panel is too short")
	}
	best.gather(dst, src, offset, chunks)
}

// FinishRows is the epilogue of a product: for rows rows of cols columns
//
//	dst[r*ldd+c] = clip(y[r*ldy+c] + bias[r] + res[r*ldr+c], lo, hi)
//
// where bias and res may be nil. dst may be y or res, with their strides.
func FinishRows(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int, lo, hi float32) {
	if fits(dst, ldd, y, ldy, rows, cols, bias, rows, res, ldr) {
		best.finishRows(dst, ldd, y, ldy, rows, cols, bias, res, ldr, lo, hi, false)
	}
}

// FinishTwice is FinishRows whose result goes to y, too.
func FinishTwice(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int, lo, hi float32) {
	if fits(dst, ldd, y, ldy, rows, cols, bias, rows, res, ldr) {
		best.finishRows(dst, ldd, y, ldy, rows, cols, bias, res, ldr, lo, hi, true)
	}
}

// FinishColumns is FinishRows with a bias for each column, bias[c].
func FinishColumns(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int, lo, hi float32) {
	if fits(dst, ldd, y, ldy, rows, cols, bias, cols, res, ldr) {
		best.finishColumns(dst, ldd, y, ldy, rows, cols, bias, res, ldr, lo, hi, false)
	}
}

// Act is an activation with which epilogues end in place of limits.
type Act int

const (
	ActSiLU Act = iota
	ActHardSwish
	ActGELU
	acts
)

// FinishRows is as the function of its name, and with twice set as FinishTwice.
func (a Act) FinishRows(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int, twice bool) {
	if fits(dst, ldd, y, ldy, rows, cols, bias, rows, res, ldr) {
		best.finishAct[a].rows(dst, ldd, y, ldy, rows, cols, bias, res, ldr, -inf, inf, twice)
	}
}

// FinishColumns is as the function of its name.
func (a Act) FinishColumns(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int) {
	if fits(dst, ldd, y, ldy, rows, cols, bias, cols, res, ldr) {
		best.finishAct[a].columns(dst, ldd, y, ldy, rows, cols, bias, res, ldr, -inf, inf, false)
	}
}

// fits panics unless the slices are long enough, and reports whether there is
// anything to do.
func fits(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias []float32, biases int, res []float32, ldr int) bool {
	if rows <= 0 || cols <= 0 {
		return false
	}
	if ldd < cols || ldy < cols || len(dst) < (rows-1)*ldd+cols || len(y) < (rows-1)*ldy+cols ||
		bias != nil && len(bias) < biases || res != nil && (ldr < cols || len(res) < (rows-1)*ldr+cols) {
		panic("vec: tile does not fit its slice")
	}
	return true
}

// finishGo returns the epilogue that ends with last and whose bias moves on by these
// steps.
func finishGo(byRow, byColumn int, last func(v, lo, hi float32) float32) finish {
	return func(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int, lo, hi float32, back bool) {
		for r := range rows {
			d, y := dst[r*ldd:][:cols], y[r*ldy:][:cols]
			for c, v := range y {
				if bias != nil {
					v += bias[r*byRow+c*byColumn]
				}
				if res != nil {
					v += res[r*ldr+c]
				}
				d[c] = last(v, lo, hi)
			}
			if back {
				copy(y, d)
			}
		}
	}
}

// actGo returns the epilogues that end with an activation.
func actGo(f func(float32) float32) finishes {
	last := func(v, _, _ float32) float32 { return f(v) }
	return finishes{finishGo(1, 0, last), finishGo(0, 1, last)}
}

func gatherGo(dst, src []float32, offset []int, chunks []Chunk) {
	for r, o := range offset {
		for _, c := range chunks {
			copy(dst[r*TileStride+c.Dst:][:c.N], src[o+c.Src:])
		}
	}
}

// PadRows copies every step-th element of rows, between zeros:
//
//	dst[r*(left+n+right)+left+i] = src[r*lds+i*step], i below n
func PadRows(dst []float32, rows, left, n, right int, src []float32, lds, step int) {
	if rows <= 0 {
		return
	}
	if left < 0 || n < 0 || right < 0 || step < 1 || lds < 0 || len(dst) < rows*(left+n+right) ||
		n > 0 && len(src) < (rows-1)*lds+(n-1)*step+1 {
		panic("vec: rows do not fit their slice")
	}
	kernel := padRowsGo
	if step <= len(best.padRows) && n > 0 && left <= best.chunk/4 {
		kernel = best.padRows[step-1]
	}
	if len(src) < (rows-1)*lds+n*step { // assembly reads whole steps
		rows--
		defer padRowsGo(dst[rows*(left+n+right):], 1, left, n, right, src[min(len(src), rows*lds):], lds, step)
		if rows == 0 {
			return
		}
	}
	kernel(dst, rows, left, n, right, src, lds, step)
}

func padRowsGo(dst []float32, rows, left, n, right int, src []float32, lds, step int) {
	for r := range rows {
		row := dst[r*(left+n+right):][:left+n+right]
		clear(row[:left])
		clear(row[left+n:])
		for i := range row[left : left+n] {
			row[left+i] = src[r*lds+i*step]
		}
	}
}
