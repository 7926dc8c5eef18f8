//go:build amd64 && !noasm

package winograd

import "spc/internal/isa"

// native returns the assembly kernels that this machine can run.
func native() []*kernels {
	var sets []*kernels
	if isa.AVX512() {
		sets = append(sets, &kernels{isa: "avx512", lanes: 16,
			weights: map[int]kernel{2: weights2_avx512, 4: weights4_avx512},
			input:   map[int]kernel{2: input2_avx512, 4: input4_avx512},
			output:  map[int]kernel{2: output2_avx512, 4: output4_avx512},
			products: []product{
				{64, 6, []rowsMul{product_3x64_avx512, product_4x64_avx512, product_5x64_avx512, product_6x64_avx512}},
				{48, 8, []rowsMul{product_4x48_avx512, product_5x48_avx512, product_6x48_avx512, product_7x48_avx512, product_8x48_avx512}},
				{32, 12, []rowsMul{product_6x32_avx512, product_7x32_avx512, product_8x32_avx512, product_9x32_avx512, product_10x32_avx512, product_11x32_avx512, product_12x32_avx512}},
				{16, 14, []rowsMul{product_7x16_avx512, product_8x16_avx512, product_9x16_avx512, product_10x16_avx512, product_11x16_avx512, product_12x16_avx512, product_13x16_avx512, product_14x16_avx512}},
			},
		})
	}
	if isa.AVX2() {
		sets = append(sets, &kernels{isa: "avx2", lanes: 8,
			weights: map[int]kernel{2: weights2_avx2, 4: weights4_avx2},
			input:   map[int]kernel{2: input2_avx2, 4: input4_avx2},
			output:  map[int]kernel{2: output2_avx2, 4: output4_avx2},
			products: []product{
				{16, 6, []rowsMul{product_3x16_avx2, product_4x16_avx2, product_5x16_avx2, product_6x16_avx2}},
			},
		})
	}
	return sets
}
