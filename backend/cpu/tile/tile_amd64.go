//go:build amd64 && !noasm

package tile

import "spc/internal/isa"

// native returns the assembly kernels that this machine can run.
func native() []*kernels {
	var sets []*kernels
	if isa.AVX512() {
		sets = append(sets, &avx512)
	}
	if isa.AVX2() {
		sets = append(sets, &avx2)
	}
	return sets
}

var avx512 = kernels{
	isa: "avx512", lanes: 16,
	products: [][Rows]product{
		{product_f32_1x16_avx512, product_f32_2x16_avx512, product_f32_3x16_avx512, product_f32_4x16_avx512, product_f32_5x16_avx512, product_f32_6x16_avx512},
		{product_f32_1x32_avx512, product_f32_2x32_avx512, product_f32_3x32_avx512, product_f32_4x32_avx512, product_f32_5x32_avx512, product_f32_6x32_avx512},
		{product_f32_1x48_avx512, product_f32_2x48_avx512, product_f32_3x48_avx512, product_f32_4x48_avx512, product_f32_5x48_avx512, product_f32_6x48_avx512},
		{product_f32_1x64_avx512, product_f32_2x64_avx512, product_f32_3x64_avx512, product_f32_4x64_avx512, product_f32_5x64_avx512, product_f32_6x64_avx512},
	},
	max:     []columnMax{columnMax_f32_16_avx512, columnMax_f32_32_avx512, columnMax_f32_48_avx512, columnMax_f32_64_avx512},
	maskMax: []columnMax{columnMaskMax_f32_16_avx512, columnMaskMax_f32_32_avx512, columnMaskMax_f32_48_avx512, columnMaskMax_f32_64_avx512},
	exp:     []columnExp{columnExp_f32_16_avx512, columnExp_f32_32_avx512, columnExp_f32_48_avx512, columnExp_f32_64_avx512},
	scale:   []columnScale{columnScale_f32_16_avx512, columnScale_f32_32_avx512, columnScale_f32_48_avx512, columnScale_f32_64_avx512},
	rotate:  rotate_f32_avx512,
}

var avx2 = kernels{
	isa: "avx2", lanes: 8,
	products: [][Rows]product{
		{product_f32_1x8_avx2, product_f32_2x8_avx2, product_f32_3x8_avx2, product_f32_4x8_avx2, product_f32_5x8_avx2, product_f32_6x8_avx2},
		{product_f32_1x16_avx2, product_f32_2x16_avx2, product_f32_3x16_avx2, product_f32_4x16_avx2, product_f32_5x16_avx2, product_f32_6x16_avx2},
	},
	max:     []columnMax{columnMax_f32_8_avx2, columnMax_f32_16_avx2},
	maskMax: []columnMax{columnMaskMax_f32_8_avx2, columnMaskMax_f32_16_avx2},
	exp:     []columnExp{columnExp_f32_8_avx2, columnExp_f32_16_avx2},
	scale:   []columnScale{columnScale_f32_8_avx2, columnScale_f32_16_avx2},
	rotate:  rotate_f32_avx2,
}
