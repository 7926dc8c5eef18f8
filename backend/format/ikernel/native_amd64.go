//go:build amd64 && !noasm

package ikernel

import (
	"unsafe"

	"spc/internal/isa"
)

// native returns the assembly kernels that this machine can run.
func native() []*Kernels {
	var sets []*Kernels
	if isa.AMX() && mayUseTiles() {
		sets = append(sets, &amx)
	}
	if isa.VBMI() {
		sets = append(sets, &vbmi)
	}
	if isa.VNNI() {
		sets = append(sets, &vnni)
	}
	if isa.AVXVNNI() {
		sets = append(sets, &avxvnni)
	}
	if isa.AVX2() {
		sets = append(sets, &avx2)
	}
	return sets
}

var vnni = Kernels{
	ISA:        "vnni",
	Tile:       "6x64",
	step:       1,
	gemm:       tiles(gemmS8U8),
	gemmTokens: tiles(gemmU8S8),
	spmm:       groupsBy(&spmmVNNI),
	pack: func(groups int, dst, src []uint8, offset []int32, cols int) {
		pack_4x64_avx512(groups, unsafe.SliceData(dst), unsafe.SliceData(src), unsafe.SliceData(offset), 1<<cols-1)
	},
	packTokens: packTokensAVX512,
	finish: finishTable(func(byColumn bool, out, res int) finish {
		if byColumn {
			return finishColumnsAVX512[out][res]
		}
		return finishAVX512[out][res]
	}),
	quantize: func(y []uint8, x []float32, l *Limits) {
		quantize_avx512(len(y), unsafe.SliceData(y), unsafe.SliceData(x), &l.Lo)
	},
	dequantize: func(y []float32, x []uint8, scale, zero float32) {
		p := [2]float32{scale, zero}
		dequantize_avx512(len(y), unsafe.SliceData(y), unsafe.SliceData(x), &p[0])
	},
	split: func(n int, even, odd, x []uint8) {
		split_avx512(n, unsafe.SliceData(even), unsafe.SliceData(odd), unsafe.SliceData(x))
	},
	frame:      [2]frame{framed(frame1_avx512), framed(frame2_avx512)},
	interleave: [2]interleave{interleaveGo(1), interleaveGo(2)},
	maxPool: func(rows, n int, dst []uint8, ldd int, src []uint8, lds int) {
		maxPool_u8_3x3s2_avx512(rows, n, unsafe.SliceData(dst), ldd, unsafe.SliceData(src), lds)
	},
	max:       func(y, x []uint8) { max_u8_avx512(len(y), unsafe.SliceData(y), unsafe.SliceData(x)) },
	depthwise: depthwiseAVX2,
}

// vbmi is vnni where any bytes of a register can be picked, which planes of four channels are made with, and windows.
var vbmi = func() Kernels {
	k := vnni
	k.interleave = [2]interleave{interleaved(interleave1_avx512), interleaved(interleave2_avx512)}
	k.planeStep, k.planeRows = Group, 1
	k.gemmPlanes = func(rows int, w []int8, ldw int, x []uint8, at []int32, _, cols int, c []int32) {
		by := &planesS8U8[(cols-1)/16]
		for r := 0; r < rows; {
			n := tileOf(rows - r)
			by[n-1](len(at), unsafe.SliceData(w[r*ldw:]), ldw, unsafe.SliceData(x), unsafe.SliceData(at), unsafe.SliceData(c[r*Columns:]), Columns)
			r += n
		}
	}
	k.depthwise = func(c []int32, x []uint8, w []int8, p *Windows) {
		f := depthwise_u8s8_64_vbmi
		if 15*p.step+3*p.spread < 32 {
			f = depthwise_u8s8_32_vbmi
		}
		f(p.Lines, (p.Columns+15)/16, len(p.at), unsafe.SliceData(x), p.line, unsafe.SliceData(p.at), unsafe.SliceData(w),
			unsafe.SliceData(c), p.Columns, 16*p.step, &p.order[0])
	}
	return k
}()

// amx computes what is large enough in tiles, and else as vbmi does.
var amx = func() Kernels {
	k := vbmi
	k.ISA, k.Tile, k.step = "amx", "32x32", tileStep
	k.planeStep, k.planeRows = Group*tileStep, 16
	tiles := [2][2]amxTile[int8, uint8]{
		{gemm_s8u8_16x16_amx, gemm_s8u8_16x32_amx}, {gemm_s8u8_32x16_amx, gemm_s8u8_32x32_amx},
	}
	k.gemm = blocks(vnni.gemm, tiles)
	k.gemmPlanes = func(rows int, w []int8, ldw int, x []uint8, at []int32, pitch, cols int, c []int32) {
		inTiles(&tiles, rows, w, ldw, x, at, pitch, cols, c)
	}
	k.gemmTokens = blocks(vnni.gemmTokens, [2][2]amxTile[uint8, int8]{
		{gemm_u8s8_16x16_amx, gemm_u8s8_16x32_amx}, {gemm_u8s8_32x16_amx, gemm_u8s8_32x32_amx},
	})
	return k
}()

// amxTile computes blocks of 16 or 32 rows of a product with 16 or 32 columns of a
// panel.
type amxTile[A, B octet] func(blocks, k64 int, a *A, lda int, b *B, at *int32, pitch int, c *int32)

// panelSteps are the steps of a panel.
var panelSteps = func() (at [1 << 16 / (Group * tileStep)]int32) {
	for s := range at {
		at[s] = int32(s * tileStep * PanelRow)
	}
	return at
}()

// inTiles computes a multiple of 16 rows.
func inTiles[A, B octet](tiles *[2][2]amxTile[A, B], rows int, a []A, lda int, b []B, at []int32, pitch, cols int, c []int32) {
	tall, steps := rows/32, unsafe.SliceData(at)
	for v := 0; v < cols; v += 32 {
		wide := min(2, (cols-v+15)/16)
		if tall > 0 {
			tiles[1][wide-1](tall, len(at), unsafe.SliceData(a), lda, unsafe.SliceData(b[Group*v:]), steps, pitch, unsafe.SliceData(c[v:]))
		}
		if r := 32 * tall; r < rows {
			tiles[0][wide-1](1, len(at), unsafe.SliceData(a[r*lda:]), lda, unsafe.SliceData(b[Group*v:]), steps, pitch, unsafe.SliceData(c[r*Columns+v:]))
		}
	}
}

// tileStep is the number of groups of a step of a tile.
const tileStep = 16

// blocks lets tiles, by rows and columns, compute what they divide, and rest what is
// left.
func blocks[A, B octet](rest func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int), tiles [2][2]amxTile[A, B]) func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
	return func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
		if rows < 16 || k4 == 0 || k4%tileStep != 0 || k4/tileStep > len(panelSteps) || ldc != Columns {
			rest(rows, k4, a, lda, b, cols, c, ldc)
			return
		}
		done := rows &^ 15
		inTiles(&tiles, done, a, lda, b, panelSteps[:k4/tileStep], PanelRow, cols, c)
		if done < rows {
			rest(rows-done, k4, a[done*lda:], lda, b, cols, c[done*ldc:], ldc)
		}
	}
}

// tile computes some rows of a product with a panel.
type tile[A, B octet] func(k4 int, a *A, lda int, b *B, c *int32, ldc int)

// tileRows is the most rows of a tile.
const tileRows = 6

var gemmS8U8 = [4][tileRows]tile[int8, uint8]{
	{gemm_s8u8_1x16_vnni, gemm_s8u8_2x16_vnni, gemm_s8u8_3x16_vnni, gemm_s8u8_4x16_vnni, gemm_s8u8_5x16_vnni, gemm_s8u8_6x16_vnni},
	{gemm_s8u8_1x32_vnni, gemm_s8u8_2x32_vnni, gemm_s8u8_3x32_vnni, gemm_s8u8_4x32_vnni, gemm_s8u8_5x32_vnni, gemm_s8u8_6x32_vnni},
	{gemm_s8u8_1x48_vnni, gemm_s8u8_2x48_vnni, gemm_s8u8_3x48_vnni, gemm_s8u8_4x48_vnni, gemm_s8u8_5x48_vnni, gemm_s8u8_6x48_vnni},
	{gemm_s8u8_1x64_vnni, gemm_s8u8_2x64_vnni, gemm_s8u8_3x64_vnni, gemm_s8u8_4x64_vnni, gemm_s8u8_5x64_vnni, gemm_s8u8_6x64_vnni},
}

var gemmU8S8 = [4][tileRows]tile[uint8, int8]{
	{gemm_u8s8_1x16_vnni, gemm_u8s8_2x16_vnni, gemm_u8s8_3x16_vnni, gemm_u8s8_4x16_vnni, gemm_u8s8_5x16_vnni, gemm_u8s8_6x16_vnni},
	{gemm_u8s8_1x32_vnni, gemm_u8s8_2x32_vnni, gemm_u8s8_3x32_vnni, gemm_u8s8_4x32_vnni, gemm_u8s8_5x32_vnni, gemm_u8s8_6x32_vnni},
	{gemm_u8s8_1x48_vnni, gemm_u8s8_2x48_vnni, gemm_u8s8_3x48_vnni, gemm_u8s8_4x48_vnni, gemm_u8s8_5x48_vnni, gemm_u8s8_6x48_vnni},
	{gemm_u8s8_1x64_vnni, gemm_u8s8_2x64_vnni, gemm_u8s8_3x64_vnni, gemm_u8s8_4x64_vnni, gemm_u8s8_5x64_vnni, gemm_u8s8_6x64_vnni},
}

// tileOf is the height of the next tile where so many rows are left.
func tileOf(rows int) int {
	if rows == tileRows+1 { // rather two of about the same height
		return (tileRows + 1) / 2
	}
	return min(rows, tileRows)
}

// planesS8U8 are tiles of columns in planes, by vectors of columns and rows.
var planesS8U8 = [4][tileRows]func(k4 int, a *int8, lda int, b *uint8, at *int32, c *int32, ldc int){
	{gemm_s8u8_planes_1x16_vnni, gemm_s8u8_planes_2x16_vnni, gemm_s8u8_planes_3x16_vnni, gemm_s8u8_planes_4x16_vnni, gemm_s8u8_planes_5x16_vnni, gemm_s8u8_planes_6x16_vnni},
	{gemm_s8u8_planes_1x32_vnni, gemm_s8u8_planes_2x32_vnni, gemm_s8u8_planes_3x32_vnni, gemm_s8u8_planes_4x32_vnni, gemm_s8u8_planes_5x32_vnni, gemm_s8u8_planes_6x32_vnni},
	{gemm_s8u8_planes_1x48_vnni, gemm_s8u8_planes_2x48_vnni, gemm_s8u8_planes_3x48_vnni, gemm_s8u8_planes_4x48_vnni, gemm_s8u8_planes_5x48_vnni, gemm_s8u8_planes_6x48_vnni},
	{gemm_s8u8_planes_1x64_vnni, gemm_s8u8_planes_2x64_vnni, gemm_s8u8_planes_3x64_vnni, gemm_s8u8_planes_4x64_vnni, gemm_s8u8_planes_5x64_vnni, gemm_s8u8_planes_6x64_vnni},
}

// tiles lets the tiles of a table, by vectors of columns and rows, compute any number
// of rows.
func tiles[A, B octet](table [4][tileRows]tile[A, B]) func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
	return func(rows, k4 int, a []A, lda int, b []B, cols int, c []int32, ldc int) {
		by := &table[(cols-1)/16]
		for r := 0; r < rows; {
			n := tileOf(rows - r)
			by[n-1](k4, unsafe.SliceData(a[r*lda:]), lda, unsafe.SliceData(b), unsafe.SliceData(c[r*ldc:]), ldc)
			r += n
		}
	}
}

// spmms are kernels for 1x4 groups by vectors of 16 columns.
type spmms [4]func(rows int, ptr *uint32, index *uint16, value *int8, b *uint8, c *int32, ldc int, acc bool)

var spmmVNNI = spmms{spmm_s8u8_1x4_16_vnni, spmm_s8u8_1x4_32_vnni, spmm_s8u8_1x4_48_vnni, spmm_s8u8_1x4_64_vnni}

// groupsBy lets the kernels of a table take slices.
func groupsBy(table *spmms) func(rows int, ptr []uint32, index []uint16, value []int8, x []uint8, cols int, c []int32, ldc int, acc bool) {
	return func(rows int, ptr []uint32, index []uint16, value []int8, x []uint8, cols int, c []int32, ldc int, acc bool) {
		table[(cols-1)/16](rows, unsafe.SliceData(ptr), unsafe.SliceData(index), unsafe.SliceData(value),
			unsafe.SliceData(x), unsafe.SliceData(c), ldc, acc)
	}
}

func packTokensAVX512(tokens, groups int, dst, src []uint8, lds int) {
	whole := tokens &^ 15
	for t := 0; t < whole; t += 16 {
		for g := 0; g < groups; g += 16 {
			packTokens_16x64_avx512(min(16, groups-g), unsafe.SliceData(dst[g*PanelRow+Group*t:]),
				unsafe.SliceData(src[t*lds+Group*g:]), lds)
		}
	}
	if whole < tokens {
		packTokensGo(tokens-whole, groups, dst[Group*whole:], src[whole*lds:], lds)
	}
}

// framed lets a kernel take slices.
func framed(f func(rows, n int, dst *uint8, ldd int, src *uint8, lds, left, right int, fill uint8)) frame {
	return func(rows, n int, dst []uint8, ldd int, src []uint8, lds, left, right int, fill uint8) {
		f(rows, n, unsafe.SliceData(dst), ldd, unsafe.SliceData(src), lds, left, right, fill)
	}
}

// interleaved lets a kernel take slices.
func interleaved(f func(rows, n int, dst *uint8, ldd int, src *uint8, lds, plane, left, right int, fill uint32)) interleave {
	return func(rows, n int, dst []uint8, ldd int, src []uint8, lds, plane, left, right int, fill uint8) {
		f(rows, n, unsafe.SliceData(dst), ldd, unsafe.SliceData(src), lds, plane, left, right, 0x01010101*uint32(fill))
	}
}

// stores lets a kernel that stores Y and adds a residual R take slices.
func stores[Y, R float32 | uint8](f func(rows, n int, c *int32, ldc int, sum *int32, scale, bias *float32, y *Y, res *R, ldy int, p *float32)) finish {
	return func(rows, n int, c []int32, ldc int, e *Epilogue, first int, y, res Elems, ldy int) {
		f(rows, n, unsafe.SliceData(c), ldc, &e.Sum[first], &e.Scale[first], &e.Bias[first], data[Y](y), data[R](res), ldy, &e.Lo)
	}
}

// whereNear lets a kernel for results that are near take slices, and f finish others.
func whereNear[R float32 | uint8](f finish, near func(rows, n int, c *int32, ldc int, scale, bias *float32, y *uint8, res *R, ldy int, p *float32)) finish {
	return func(rows, n int, c []int32, ldc int, e *Epilogue, first int, y, res Elems, ldy int) {
		if !e.near {
			f(rows, n, c, ldc, e, first, y, res, ldy)
			return
		}
		near(rows, n, unsafe.SliceData(c), ldc, &e.mul[first], &e.add[first], data[uint8](y), data[R](res), ldy, &e.Lo)
	}
}

// data is a pointer to the first element, nil where there is none.
func data[T float32 | uint8](e Elems) *T {
	if e.F32 != nil {
		return (*T)(unsafe.Pointer(unsafe.SliceData(e.F32)))
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(e.U8)))
}

var finishAVX512 = [2][3]finish{
	{stores(finish_f32_avx512), stores(finish_f32_f32_avx512), stores(finish_f32_u8_avx512)},
	{
		whereNear(stores(finish_u8_avx512), finish_u8_near_avx512), stores(finish_u8_f32_avx512),
		whereNear(stores(finish_u8_u8_avx512), finish_u8_u8_near_avx512),
	},
}

var finishColumnsAVX512 = [2][3]finish{
	{stores(finishColumns_f32_avx512), stores(finishColumns_f32_f32_avx512), stores(finishColumns_f32_u8_avx512)},
	{
		whereNear(stores(finishColumns_u8_avx512), finishColumns_u8_near_avx512), stores(finishColumns_u8_f32_avx512),
		whereNear(stores(finishColumns_u8_u8_avx512), finishColumns_u8_u8_near_avx512),
	},
}
