//go:build amd64 && !noasm

package bitmap

import (
	"unsafe"

	"spc/backend/format/ukernel"
	"spc/internal/isa"
	"spc/ir/tensor"
)

// native returns the assembly kernels that this machine runs.
func native() (sets []*kernels) {
	if !isa.AVX2() || !isa.F16C() {
		return nil
	}
	f32 := func(v ukernel.Values) []float32 { return v.Float32s() }
	if isa.AVX512() {
		sets = append(sets, &kernels{"avx512", map[tensor.DType][]tile{
			tensor.F32:  {{8, of(bitmap_f32_1x8_avx512, f32)}, {4, of(bitmap_f32_1x4_avx512, f32)}, {2, of(bitmap_f32_1x2_avx512, f32)}, {1, of(bitmap_f32_1x1_avx512, f32)}},
			tensor.F16:  {{8, of(bitmap_f16_1x8_avx512, bits16)}, {4, of(bitmap_f16_1x4_avx512, bits16)}, {2, of(bitmap_f16_1x2_avx512, bits16)}, {1, of(bitmap_f16_1x1_avx512, bits16)}},
			tensor.BF16: {{8, of(bitmap_bf16_1x8_avx512, bits16)}, {4, of(bitmap_bf16_1x4_avx512, bits16)}, {2, of(bitmap_bf16_1x2_avx512, bits16)}, {1, of(bitmap_bf16_1x1_avx512, bits16)}},
		}})
	}
	return append(sets, &kernels{"avx2", map[tensor.DType][]tile{
		tensor.F32:  {{8, of(bitmap_f32_1x8_avx2, f32)}, {4, of(bitmap_f32_1x4_avx2, f32)}, {2, of(bitmap_f32_1x2_avx2, f32)}, {1, of(bitmap_f32_1x1_avx2, f32)}},
		tensor.F16:  {{8, of(bitmap_f16_1x8_avx2, bits16)}, {4, of(bitmap_f16_1x4_avx2, bits16)}, {2, of(bitmap_f16_1x2_avx2, bits16)}, {1, of(bitmap_f16_1x1_avx2, bits16)}},
		tensor.BF16: {{8, of(bitmap_bf16_1x8_avx2, bits16)}, {4, of(bitmap_bf16_1x4_avx2, bits16)}, {2, of(bitmap_bf16_1x2_avx2, bits16)}, {1, of(bitmap_bf16_1x1_avx2, bits16)}},
	}})
}

func bits16(v ukernel.Values) []uint16 { return v.Bits() }

// of lets a routine take operands, with values of a type.
func of[T float32 | uint16](f func(rows, words int, bits *uint64, value *T, x *float32, ldx int, tail, y *float32, ldy int), values func(ukernel.Values) []T) func(operands) {
	return func(o operands) {
		f(o.rows, o.words, unsafe.SliceData(o.bits), unsafe.SliceData(values(o.values)), unsafe.SliceData(o.x), o.ldx, unsafe.SliceData(o.tail),
			unsafe.SliceData(o.y), o.ldy)
	}
}
