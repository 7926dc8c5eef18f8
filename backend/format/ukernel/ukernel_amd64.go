//go:build amd64 && !noasm

package ukernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// native returns the assembly kernels that this machine can run.
func native() []*Kernels {
	var sets []*Kernels
	if cpu.X86.HasAVX512F {
		sets = append(sets, &avx512)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, &avx2)
	}
	return sets
}

var avx512 = Kernels{
	ISA: "avx512",
	Gemm: Gemm{Name: "gemm_f32_12x32_avx512", MR: 12, tile: tiles{
		gemm_f32_1x32_avx512, gemm_f32_2x32_avx512, gemm_f32_3x32_avx512, gemm_f32_4x32_avx512,
		gemm_f32_5x32_avx512, gemm_f32_6x32_avx512, gemm_f32_7x32_avx512, gemm_f32_8x32_avx512,
		gemm_f32_9x32_avx512, gemm_f32_10x32_avx512, gemm_f32_11x32_avx512, gemm_f32_12x32_avx512,
	}.run},
	peak: fmaPeak_avx512,
	flop: 12 * 16 * 2,
}

var avx2 = Kernels{
	ISA: "avx2",
	Gemm: Gemm{Name: "gemm_f32_6x16_avx2", MR: 6, tile: tiles{
		gemm_f32_1x16_avx2, gemm_f32_2x16_avx2, gemm_f32_3x16_avx2,
		gemm_f32_4x16_avx2, gemm_f32_5x16_avx2, gemm_f32_6x16_avx2,
	}.run},
	peak: fmaPeak_avx2,
	flop: 12 * 8 * 2,
}

// tiles are the kernels of a GEMM tile by the number of rows less one.
type tiles []func(k int, w, x, y *float32, ldy int, acc bool)

func (t tiles) run(rows, k int, w, x, y []float32, ldy int, acc bool) {
	t[rows-1](k, unsafe.SliceData(w), unsafe.SliceData(x), unsafe.SliceData(y), ldy, acc)
}
