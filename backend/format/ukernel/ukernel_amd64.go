//go:build amd64 && !noasm

package ukernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// native returns the assembly kernels that this machine can run.
func native() []*Kernels {
	var sets []*Kernels
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ {
		sets = append(sets, &avx512)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, &avx2)
	}
	return sets
}

var avx512 = Kernels{
	ISA: "avx512",
	Gemm: Gemm{Name: "gemm_f32_12x32_avx512", MR: 12, tile: gemmTiles{
		gemm_f32_1x32_avx512, gemm_f32_2x32_avx512, gemm_f32_3x32_avx512, gemm_f32_4x32_avx512,
		gemm_f32_5x32_avx512, gemm_f32_6x32_avx512, gemm_f32_7x32_avx512, gemm_f32_8x32_avx512,
		gemm_f32_9x32_avx512, gemm_f32_10x32_avx512, gemm_f32_11x32_avx512, gemm_f32_12x32_avx512,
	}.run},
	spmm16: map[Layout]spmm[uint16]{
		{1, false}: sparse(spmm_f32_u16_row1_avx512),
		{2, false}: sparse(spmm_f32_u16_row2_avx512),
		{4, false}: sparse(spmm_f32_u16_row4_avx512),
		{2, true}:  sparse(spmm_f32_u16_block2_avx512),
		{4, true}:  sparse(spmm_f32_u16_block4_avx512),
		{8, true}:  sparse(spmm_f32_u16_block8_avx512),
		{16, true}: sparse(spmm_f32_u16_block16_avx512),
	},
	spmm32: map[Layout]spmm[uint32]{
		{1, false}: sparse(spmm_f32_u32_row1_avx512),
		{2, false}: sparse(spmm_f32_u32_row2_avx512),
		{4, false}: sparse(spmm_f32_u32_row4_avx512),
		{2, true}:  sparse(spmm_f32_u32_block2_avx512),
		{4, true}:  sparse(spmm_f32_u32_block4_avx512),
		{8, true}:  sparse(spmm_f32_u32_block8_avx512),
		{16, true}: sparse(spmm_f32_u32_block16_avx512),
	},
	peak: fmaPeak_avx512,
	flop: 12 * 16 * 2,
}

var avx2 = Kernels{
	ISA: "avx2",
	Gemm: Gemm{Name: "gemm_f32_6x16_avx2", MR: 6, tile: gemmTiles{
		gemm_f32_1x16_avx2, gemm_f32_2x16_avx2, gemm_f32_3x16_avx2,
		gemm_f32_4x16_avx2, gemm_f32_5x16_avx2, gemm_f32_6x16_avx2,
	}.run},
	spmm16: map[Layout]spmm[uint16]{
		{1, false}: sparse(spmm_f32_u16_row1_avx2),
		{2, false}: sparse(spmm_f32_u16_row2_avx2),
		{4, false}: sparse(spmm_f32_u16_row4_avx2),
		{2, true}:  sparse(spmm_f32_u16_block2_avx2),
		{4, true}:  sparse(spmm_f32_u16_block4_avx2),
		{8, true}:  sparse(spmm_f32_u16_block8_avx2),
		{16, true}: sparse(spmm_f32_u16_block16_avx2),
	},
	spmm32: map[Layout]spmm[uint32]{
		{1, false}: sparse(spmm_f32_u32_row1_avx2),
		{2, false}: sparse(spmm_f32_u32_row2_avx2),
		{4, false}: sparse(spmm_f32_u32_row4_avx2),
		{2, true}:  sparse(spmm_f32_u32_block2_avx2),
		{4, true}:  sparse(spmm_f32_u32_block4_avx2),
		{8, true}:  sparse(spmm_f32_u32_block8_avx2),
		{16, true}: sparse(spmm_f32_u32_block16_avx2),
	},
	peak: fmaPeak_avx2,
	flop: 12 * 8 * 2,
}

// gemmTiles are the kernels of a GEMM tile by the number of rows less one.
type gemmTiles []func(k int, w, x, y *float32, ldy int, acc bool)

func (t gemmTiles) run(rows, k int, w, x, y []float32, ldy int, acc bool) {
	t[rows-1](k, unsafe.SliceData(w), unsafe.SliceData(x), unsafe.SliceData(y), ldy, acc)
}

// sparse lets an assembly kernel take slices.
func sparse[I Index](f func(groups int, ptr *uint32, index *I, value, x, y *float32, ldy int, acc bool)) spmm[I] {
	return func(groups int, ptr []uint32, index []I, value, x, y []float32, ldy int, acc bool) {
		f(groups, unsafe.SliceData(ptr), unsafe.SliceData(index), unsafe.SliceData(value),
			unsafe.SliceData(x), unsafe.SliceData(y), ldy, acc)
	}
}
