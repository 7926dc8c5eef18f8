//go:build amd64 && !noasm

package ikernel

import "unsafe"

// avx2 has no VNNI: see narrow.go.
var avx2 = Kernels{
	ISA:        "avx2",
	Tile:       "4x16",
	step:       1,
	narrow:     true,
	gemm:       wideTiles(widen_s8_avx2, wideS8U8),
	gemmNarrow: inSlices(narrowS8U8[:]),
	gemmTokens: wideTiles(widen_u8_avx2, wideU8S8),
	spmm:       groupsBy(&spmmNarrow),
	pack:       packAVX2,
	packTokens: packTokensAVX2,
	finish: finishTable(func(byColumn bool, out, res int) finish {
		if byColumn {
			return finishColumnsAVX2[out][res]
		}
		return finishAVX2[out][res]
	}),
	quantize: func(y []uint8, x []float32, l *Limits) {
		if len(y) < 8 {
			quantizeGo(y, x, l)
			return
		}
		quantize_avx2(len(y), unsafe.SliceData(y), unsafe.SliceData(x), &l.Lo)
	},
	dequantize: func(y []float32, x []uint8, scale, zero float32) {
		if len(y) < 8 {
			dequantizeGo(y, x, scale, zero)
			return
		}
		p := [2]float32{scale, zero}
		dequantize_avx2(len(y), unsafe.SliceData(y), unsafe.SliceData(x), &p[0])
	},
	split: func(n int, even, odd, x []uint8) {
		if n < 16 {
			splitGo(n, even, odd, x)
			return
		}
		split_avx2(n, unsafe.SliceData(even), unsafe.SliceData(odd), unsafe.SliceData(x))
	},
	frame:      [2]frame{frameRows, frameSecond},
	interleave: [2]interleave{interleaveGo(1), interleaveGo(2)},
	maxPool: func(rows, n int, dst []uint8, ldd int, src []uint8, lds int) {
		f := maxPool_u8_3x3s2_16_avx2
		switch {
		case n < 8:
			maxPoolGo(rows, n, dst, ldd, src, lds)
			return
		case n < 16:
			f = maxPool_u8_3x3s2_8_avx2
		}
		f(rows, n, unsafe.SliceData(dst), ldd, unsafe.SliceData(src), lds)
	},
	max: func(y, x []uint8) {
		if len(y) < 16 {
			maxGo(y, x)
			return
		}
		max_u8_avx2(len(y), unsafe.SliceData(y), unsafe.SliceData(x))
	},
	depthwise: depthwiseAVX2,
}

func depthwiseAVX2(c []int32, x []uint8, w []int8, p *Windows) {
	depthwise_u8s8_32_avx2(p.Lines, (p.Columns+7)/8, len(p.at), unsafe.SliceData(x), p.line, unsafe.SliceData(p.at), unsafe.SliceData(w),
		unsafe.SliceData(c), p.Columns, 8*p.step, &p.pairs[0][0])
}

// avxvnni is avx2 with products by VNNI.
var avxvnni = func() Kernels {
	k := avx2
	k.ISA, k.Tile, k.narrow, k.gemmNarrow = "avxvnni", "6x16", false, nil
	k.gemm, k.gemmTokens, k.spmm = inSlices(vexS8U8[:]), inSlices(vexU8S8[:]), groupsBy(&spmmVEX)
	return k
}()

// sliceTile computes some rows of a product with slices of 16 columns of a panel.
type sliceTile[A, B octet] func(k4 int, a *A, lda int, b *B, slices int, c *int32, ldc int)

var (
	narrowS8U8 = [...]sliceTile[int8, uint8]{
		gemm_s8u8_narrow_1x16_avx2, gemm_s8u8_narrow_2x16_avx2, gemm_s8u8_narrow_3x16_avx2, gemm_s8u8_narrow_4x16_avx2,
	}
	vexS8U8 = [...]sliceTile[int8, uint8]{
		gemm_s8u8_1x16_avxvnni, gemm_s8u8_2x16_avxvnni, gemm_s8u8_3x16_avxvnni,
		gemm_s8u8_4x16_avxvnni, gemm_s8u8_5x16_avxvnni, gemm_s8u8_6x16_avxvnni,
	}
	vexU8S8 = [...]sliceTile[uint8, int8]{
		gemm_u8s8_1x16_avxvnni, gemm_u8s8_2x16_avxvnni, gemm_u8s8_3x16_avxvnni,
		gemm_u8s8_4x16_avxvnni, gemm_u8s8_5x16_avxvnni, gemm_u8s8_6x16_avxvnni,
	}
)

// inSlices lets the tiles of a table by rows compute any number of rows.
func inSlices[A, B octet](table []sliceTile[A, B]) func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
	return func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
		for r := 0; r < rows; {
			n := min(rows-r, len(table))
			if rows-r == len(table)+1 { // rather two of about the same height
				n = (len(table) + 1) / 2
			}
			table[n-1](k4, unsafe.SliceData(a[r*lda:]), lda, unsafe.SliceData(b), (cols+15)/16, unsafe.SliceData(c[r*ldc:]), ldc)
			r += n
		}
	}
}

// wideTile is a sliceTile whose rows are words of 16 bits.
type wideTile[B octet] func(k4 int, a *int16, lda int, b *B, slices int, c *int32, ldc int, acc bool)

// wideRows is the most rows of a wideTile.
const wideRows = 4

var (
	wideS8U8 = [wideRows]wideTile[uint8]{gemm_s8u8_1x16_avx2, gemm_s8u8_2x16_avx2, gemm_s8u8_3x16_avx2, gemm_s8u8_4x16_avx2}
	wideU8S8 = [wideRows]wideTile[int8]{gemm_u8s8_1x16_avx2, gemm_u8s8_2x16_avx2, gemm_u8s8_3x16_avx2, gemm_u8s8_4x16_avx2}
)

// wideGroups is the number of groups that are widened at a time: as many rows of a
// panel stay in the level 1 cache while the rows of the other operand are worked on.
const wideGroups = 96

// wideTiles widens rows for the tiles of a table.
func wideTiles[A, B octet](widen func(k4 int, y *int16, x *A), table [wideRows]wideTile[B]) func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
	return func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
		var wide [wideRows][Group * wideGroups]int16
		for k := 0; k == 0 || k < k4; k += wideGroups {
			some := min(wideGroups, k4-k)
			for r := 0; r < rows; r += wideRows {
				n := min(rows-r, wideRows)
				for i := range n {
					widen(some, &wide[i][0], unsafe.SliceData(a[(r+i)*lda+Group*k:]))
				}
				table[n-1](some, &wide[0][0], len(wide[0]), unsafe.SliceData(b[k*PanelRow:]), (cols+15)/16, unsafe.SliceData(c[r*ldc:]), ldc, k > 0)
			}
		}
	}
}

var (
	spmmNarrow = spmms{spmm_s8u8_narrow_1x4_16_avx2, spmm_s8u8_narrow_1x4_32_avx2, spmm_s8u8_narrow_1x4_48_avx2, spmm_s8u8_narrow_1x4_64_avx2}
	spmmVEX    = spmms{spmm_s8u8_1x4_16_avxvnni, spmm_s8u8_1x4_32_avxvnni, spmm_s8u8_1x4_48_avxvnni, spmm_s8u8_1x4_64_avxvnni}
)

// packAVX2 leaves groups to Go of which a row ends with src: the kernel reads a whole
// panel row.
func packAVX2(groups int, dst, src []uint8, offset []int32, cols int) {
	last := int32(min(len(src)-Columns, 1<<31-1))
	for g := 0; g < groups; {
		end := g
		for end < groups && max(offset[Group*end], offset[Group*end+1], offset[Group*end+2], offset[Group*end+3]) <= last {
			end++
		}
		if end > g {
			pack_4x64_avx2(end-g, unsafe.SliceData(dst[g*PanelRow:]), unsafe.SliceData(src), unsafe.SliceData(offset[Group*g:]), cols)
		} else {
			end++
			packGo(1, dst[g*PanelRow:], src, offset[Group*g:], cols)
		}
		g = end
	}
}

func packTokensAVX2(tokens, groups int, dst, src []uint8, lds int) {
	whole := tokens &^ 7
	for t := 0; t < whole; t += 8 {
		packTokens_8x32_avx2(groups, unsafe.SliceData(dst[Group*t:]), unsafe.SliceData(src[t*lds:]), lds)
	}
	if whole < tokens {
		packTokensGo(tokens-whole, groups, dst[Group*whole:], src[whole*lds:], lds)
	}
}

// frameRows copies whole rows, for which Go has vectors.
func frameRows(rows, n int, dst []uint8, ldd int, src []uint8, lds, left, right int, fill uint8) {
	for r := range rows {
		d := dst[r*ldd:][:left+n+right]
		copy(d[left:], src[r*lds:][:n])
		edges(d, left, right, fill)
	}
}

// frameSecond copies every second byte.
func frameSecond(rows, n int, dst []uint8, ldd int, src []uint8, lds, left, right int, fill uint8) {
	f := everySecond_16_avx2
	switch {
	case n < 9 || rows == 0:
		portable.frame[1](rows, n, dst, ldd, src, lds, left, right, fill)
		return
	case n < 17:
		f = everySecond_8_avx2
	}
	f(rows, n, unsafe.SliceData(dst[left:]), ldd, unsafe.SliceData(src), lds)
	for r := range rows {
		edges(dst[r*ldd:][:left+n+right], left, right, fill)
	}
}

// edges fills the first and the last bytes of a row.
func edges(row []uint8, left, right int, fill uint8) {
	for i := range left {
		row[i] = fill
	}
	for i := len(row) - right; i < len(row); i++ {
		row[i] = fill
	}
}

var finishAVX2 = [2][3]finish{
	{stores(finish_f32_avx2), stores(finish_f32_f32_avx2), stores(finish_f32_u8_avx2)},
	{stores(finish_u8_avx2), stores(finish_u8_f32_avx2), stores(finish_u8_u8_avx2)},
}

var finishColumnsAVX2 = [2][3]finish{
	{stores(finishColumns_f32_avx2), stores(finishColumns_f32_f32_avx2), stores(finishColumns_f32_u8_avx2)},
	{stores(finishColumns_u8_avx2), stores(finishColumns_u8_f32_avx2), stores(finishColumns_u8_u8_avx2)},
}
