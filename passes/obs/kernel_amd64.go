//go:build amd64 && !noasm

package obs

import "spc/internal/isa"

// native returns the assembly kernels that this machine can run, the best first.
func native() []*kernels {
	var sets []*kernels
	if isa.AVX512() {
		sets = append(sets, &kernels{
			isa: "avx512", lanes: 8, columns: 4,
			one8: subRows1x8_avx512, one1: subRows1x1_avx512, many4: subRows4x4_avx512,
		})
	}
	if isa.AVX2() {
		sets = append(sets, &kernels{
			isa: "avx2", lanes: 4, columns: 2,
			one8: subRows1x8_avx2, one1: subRows1x1_avx2, many4: subRows2x4_avx2,
		})
	}
	return sets
}
