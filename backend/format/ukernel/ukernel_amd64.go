//go:build amd64 && !noasm

package ukernel

import (
	"unsafe"

	"spc/internal/isa"
)

// native returns the assembly kernels that this machine can run.
func native() []*Kernels {
	var sets []*Kernels
	if isa.AVX512() {
		sets = append(sets, &avx512)
	}
	if isa.AVX2() {
		sets = append(sets, &avx2)
	}
	return sets
}

var avx512 = Kernels{
	ISA: "avx512",
	Gemm: Gemm{Name: "gemm_f32_6x64_avx512", tile: gemmTiles{
		{gemm_f32_1x16_avx512, gemm_f32_2x16_avx512, gemm_f32_3x16_avx512, gemm_f32_4x16_avx512, gemm_f32_5x16_avx512, gemm_f32_6x16_avx512},
		{gemm_f32_1x32_avx512, gemm_f32_2x32_avx512, gemm_f32_3x32_avx512, gemm_f32_4x32_avx512, gemm_f32_5x32_avx512, gemm_f32_6x32_avx512},
		{gemm_f32_1x48_avx512, gemm_f32_2x48_avx512, gemm_f32_3x48_avx512, gemm_f32_4x48_avx512, gemm_f32_5x48_avx512, gemm_f32_6x48_avx512},
		{gemm_f32_1x64_avx512, gemm_f32_2x64_avx512, gemm_f32_3x64_avx512, gemm_f32_4x64_avx512, gemm_f32_5x64_avx512, gemm_f32_6x64_avx512},
	}.run},
	gemv: dense(gemv_f32_4x1_avx512),
	spmm: map[int][Columns / Granule]spmm{
		1:  {sparse(spmm_f32_1x1x16_avx512), sparse(spmm_f32_1x1x32_avx512), sparse(spmm_f32_1x1x48_avx512), sparse(spmm_f32_1x1x64_avx512)},
		2:  {sparse(spmm_f32_2x1x16_avx512), sparse(spmm_f32_2x1x32_avx512), sparse(spmm_f32_2x1x48_avx512), sparse(spmm_f32_2x1x64_avx512)},
		4:  {sparse(spmm_f32_4x1x16_avx512), sparse(spmm_f32_4x1x32_avx512), sparse(spmm_f32_4x1x48_avx512), sparse(spmm_f32_4x1x64_avx512)},
		8:  {sparse(spmm_f32_8x1x16_avx512), sparse(spmm_f32_8x1x32_avx512), sparse(spmm_f32_8x1x48_avx512), sparse(spmm_f32_8x1x64_avx512)},
		16: {sparse(spmm_f32_16x1x16_avx512), sparse(spmm_f32_16x1x32_avx512), sparse(spmm_f32_16x1x48_avx512), sparse(spmm_f32_16x1x64_avx512)},
	},
	spmv16: map[int]spmv[uint16]{
		1:  sparseVec(spmv_f32_u16_1x1_avx512),
		2:  sparseVec(spmv_f32_u16_2x1_avx512),
		4:  sparseVec(spmv_f32_u16_4x1_avx512),
		8:  sparseVec(spmv_f32_u16_8x1_avx512),
		16: sparseVec(spmv_f32_u16_16x1_avx512),
	},
	spmv32: map[int]spmv[uint32]{
		1:  sparseVec(spmv_f32_u32_1x1_avx512),
		2:  sparseVec(spmv_f32_u32_2x1_avx512),
		4:  sparseVec(spmv_f32_u32_4x1_avx512),
		8:  sparseVec(spmv_f32_u32_8x1_avx512),
		16: sparseVec(spmv_f32_u32_16x1_avx512),
	},
	run16: map[int]spmv[uint16]{
		4:  sparseVec(spmv_f32_u16_1x4_avx512),
		8:  sparseVec(spmv_f32_u16_1x8_avx512),
		16: sparseVec(spmv_f32_u16_1x16_avx512),
	},
	run32: map[int]spmv[uint32]{
		4:  sparseVec(spmv_f32_u32_1x4_avx512),
		8:  sparseVec(spmv_f32_u32_1x8_avx512),
		16: sparseVec(spmv_f32_u32_1x16_avx512),
	},
	widen: widening{ieee: inBlocks(widen_f16_avx512, widenF16), brain: inBlocks(widen_bf16_avx512, widenBF16)},
	peak:  fmaPeak_avx512,
	flop:  12 * 16 * 2,
}

var avx2 = Kernels{
	ISA: "avx2",
	Gemm: Gemm{Name: "gemm_f32_6x16_avx2", tile: gemmTiles{
		{gemm_f32_1x16_avx2, gemm_f32_2x16_avx2, gemm_f32_3x16_avx2, gemm_f32_4x16_avx2, gemm_f32_5x16_avx2, gemm_f32_6x16_avx2},
		{gemm_f32_1x32_avx2, gemm_f32_2x32_avx2, gemm_f32_3x32_avx2, gemm_f32_4x32_avx2, gemm_f32_5x32_avx2, gemm_f32_6x32_avx2},
		{gemm_f32_1x48_avx2, gemm_f32_2x48_avx2, gemm_f32_3x48_avx2, gemm_f32_4x48_avx2, gemm_f32_5x48_avx2, gemm_f32_6x48_avx2},
		{gemm_f32_1x64_avx2, gemm_f32_2x64_avx2, gemm_f32_3x64_avx2, gemm_f32_4x64_avx2, gemm_f32_5x64_avx2, gemm_f32_6x64_avx2},
	}.run},
	gemv: dense(gemv_f32_4x1_avx2),
	spmm: map[int][Columns / Granule]spmm{
		1:  {sparse(spmm_f32_1x1x16_avx2), sparse(spmm_f32_1x1x32_avx2), sparse(spmm_f32_1x1x48_avx2), sparse(spmm_f32_1x1x64_avx2)},
		2:  {sparse(spmm_f32_2x1x16_avx2), sparse(spmm_f32_2x1x32_avx2), sparse(spmm_f32_2x1x48_avx2), sparse(spmm_f32_2x1x64_avx2)},
		4:  {sparse(spmm_f32_4x1x16_avx2), sparse(spmm_f32_4x1x32_avx2), sparse(spmm_f32_4x1x48_avx2), sparse(spmm_f32_4x1x64_avx2)},
		8:  {sparse(spmm_f32_8x1x16_avx2), sparse(spmm_f32_8x1x32_avx2), sparse(spmm_f32_8x1x48_avx2), sparse(spmm_f32_8x1x64_avx2)},
		16: {sparse(spmm_f32_16x1x16_avx2), sparse(spmm_f32_16x1x32_avx2), sparse(spmm_f32_16x1x48_avx2), sparse(spmm_f32_16x1x64_avx2)},
	},
	spmv16: map[int]spmv[uint16]{
		1:  sparseVec(spmv_f32_u16_1x1_avx2),
		2:  sparseVec(spmv_f32_u16_2x1_avx2),
		4:  sparseVec(spmv_f32_u16_4x1_avx2),
		8:  sparseVec(spmv_f32_u16_8x1_avx2),
		16: sparseVec(spmv_f32_u16_16x1_avx2),
	},
	spmv32: map[int]spmv[uint32]{
		1:  sparseVec(spmv_f32_u32_1x1_avx2),
		2:  sparseVec(spmv_f32_u32_2x1_avx2),
		4:  sparseVec(spmv_f32_u32_4x1_avx2),
		8:  sparseVec(spmv_f32_u32_8x1_avx2),
		16: sparseVec(spmv_f32_u32_16x1_avx2),
	},
	run16: map[int]spmv[uint16]{
		4:  sparseVec(spmv_f32_u16_1x4_avx2),
		8:  sparseVec(spmv_f32_u16_1x8_avx2),
		16: sparseVec(spmv_f32_u16_1x16_avx2),
	},
	run32: map[int]spmv[uint32]{
		4:  sparseVec(spmv_f32_u32_1x4_avx2),
		8:  sparseVec(spmv_f32_u32_1x8_avx2),
		16: sparseVec(spmv_f32_u32_1x16_avx2),
	},
	widen: widening{ieee: widenF16AVX2(), brain: inBlocks(widen_bf16_avx2, widenBF16)},
	peak:  fmaPeak_avx2,
	flop:  12 * 8 * 2,
}

// widenF16AVX2 returns what widens f16 beside AVX2, with which F16C nearly always comes.
func widenF16AVX2() func(dst []float32, src []uint16) {
	if !isa.F16C() {
		return widenF16
	}
	return inBlocks(widen_f16_avx2, widenF16)
}

// gemmTiles are the kernels of GEMM tiles by their width and rows, each less one.
type gemmTiles [Columns / Granule][MR]func(k int, a *float32, ar, ak int, b *float32, ldb int, y *float32, ldy int, acc bool)

func (t gemmTiles) run(rows, width, k int, a []float32, ar, ak int, b []float32, ldb int, y []float32, ldy int, acc bool) {
	t[width-1][rows-1](k, unsafe.SliceData(a), ar, ak, unsafe.SliceData(b), ldb, unsafe.SliceData(y), ldy, acc)
}

// sparse lets an assembly kernel take slices.
func sparse(f func(groups int, group *uint32, offset *uint16, value, x, y *float32, acc bool)) spmm {
	return func(groups int, group []uint32, offset []uint16, value, x, y []float32, acc bool) {
		f(groups, unsafe.SliceData(group), unsafe.SliceData(offset), unsafe.SliceData(value),
			unsafe.SliceData(x), unsafe.SliceData(y), acc)
	}
}

// sparseVec is sparse for products with a vector.
func sparseVec[I Index](f func(groups int, ptr *uint32, index *I, value, x, y *float32)) spmv[I] {
	return func(groups int, ptr []uint32, index []I, value, x, y []float32) {
		f(groups, unsafe.SliceData(ptr), unsafe.SliceData(index), unsafe.SliceData(value),
			unsafe.SliceData(x), unsafe.SliceData(y))
	}
}

// dense lets an assembly kernel of groups of four rows take slices and any
// number of rows: the last four overlap those before, and fewer than four are
// each computed four times.
func dense(f func(groups, k int, w *float32, ldw int, x, y *float32)) func(rows, k int, w []float32, ldw int, x, y []float32) {
	return func(rows, k int, w []float32, ldw int, x, y []float32) {
		if rows < 4 {
			var s [4]float32
			for r := range rows {
				f(1, k, unsafe.SliceData(w[r*ldw:]), 0, unsafe.SliceData(x), &s[0])
				y[r] = s[0]
			}
			return
		}
		f(rows/4, k, unsafe.SliceData(w), ldw, unsafe.SliceData(x), unsafe.SliceData(y))
		if rows%4 > 0 {
			f(1, k, unsafe.SliceData(w[(rows-4)*ldw:]), ldw, unsafe.SliceData(x), unsafe.SliceData(y[rows-4:]))
		}
	}
}
