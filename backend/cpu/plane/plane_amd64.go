//go:build amd64 && !noasm

package plane

import "spc/internal/isa"

// native returns the assembly kernels that this machine can run.
func native() []*kernels {
	var sets []*kernels
	if isa.AVX512() {
		sets = append(sets, &kernels{isa: "avx512", lanes: 16, windows: map[[2]int]kernel{
			{2, 2}: depthwise_2x2s2_avx512,
			{3, 1}: depthwise_3x3s1_avx512,
			{3, 2}: depthwise_3x3s2_avx512,
			{5, 1}: depthwise_5x5s1_avx512,
			{5, 2}: depthwise_5x5s2_avx512,
			{7, 1}: depthwise_7x7s1_avx512,
		}, maxima: map[[2]int]maxKernel{
			{2, 2}: maxPool_2x2s2_avx512,
			{3, 1}: maxPool_3x3s1_avx512,
			{3, 2}: maxPool_3x3s2_avx512,
		}, larger: larger_avx512})
	}
	if isa.AVX2() {
		sets = append(sets, &kernels{isa: "avx2", lanes: 8, windows: map[[2]int]kernel{
			{2, 2}: depthwise_2x2s2_avx2,
			{3, 1}: depthwise_3x3s1_avx2,
			{3, 2}: depthwise_3x3s2_avx2,
			{5, 1}: depthwise_5x5s1_avx2,
			{5, 2}: depthwise_5x5s2_avx2,
			{7, 1}: depthwise_7x7s1_avx2,
		}, maxima: map[[2]int]maxKernel{
			{2, 2}: maxPool_2x2s2_avx2,
			{3, 1}: maxPool_3x3s1_avx2,
			{3, 2}: maxPool_3x3s2_avx2,
		}, larger: larger_avx2})
	}
	return sets
}
