//go:build amd64 && !noasm

package group

import (
	"unsafe"

	"spc/backend/format/ukernel"
	"spc/internal/isa"
)

// native returns the assembly kernels that this machine runs.
func native() (sets []*kernels) {
	if !isa.AVX2() || !isa.F16C() {
		return nil
	}
	if isa.AVX512() {
		sets = append(sets, &kernels{isa: "avx512", lanes: 16, sums: sums(sums_avx512), nibbles: nibbles, forms: map[form]routines{
			{wholes, false, false}:  {vec8(float32s, vec8_f32_avx512), widen8(float32s, widen8_f32_avx512)},
			{wholes, false, true}:   {vec8(bits16, vec8_f16_avx512), widen8(bits16, widen8_f16_avx512)},
			{wholes, true, false}:   {vec8z(float32s, vec8z_f32_avx512), widen8z(float32s, widen8z_f32_avx512)},
			{wholes, true, true}:    {vec8z(bits16, vec8z_f16_avx512), widen8z(bits16, widen8z_f16_avx512)},
			{halves, false, false}:  {vec4(float32s, vec4_f32_avx512), widen4(float32s, widen4_f32_avx512)},
			{halves, false, true}:   {vec4(bits16, vec4_f16_avx512), widen4(bits16, widen4_f16_avx512)},
			{halves, true, false}:   {vec4z(float32s, vec4z_f32_avx512), widen4z(float32s, widen4z_f32_avx512)},
			{halves, true, true}:    {vec4z(bits16, vec4z_f16_avx512), widen4z(bits16, widen4z_f16_avx512)},
			{bitmaps, false, false}: {vecb(float32s, vecb_f32_avx512), widenb(float32s, widenb_f32_avx512)},
			{bitmaps, false, true}:  {vecb(bits16, vecb_f16_avx512), widenb(bits16, widenb_f16_avx512)},
		}})
	}
	return append(sets, &kernels{isa: "avx2", lanes: 8, sums: sums(sums_avx2), nibbles: nibbles, forms: map[form]routines{
		{wholes, false, false}:  {vec8(float32s, vec8_f32_avx2), widen8(float32s, widen8_f32_avx2)},
		{wholes, false, true}:   {vec8(bits16, vec8_f16_avx2), widen8(bits16, widen8_f16_avx2)},
		{wholes, true, false}:   {vec8z(float32s, vec8z_f32_avx2), widen8z(float32s, widen8z_f32_avx2)},
		{wholes, true, true}:    {vec8z(bits16, vec8z_f16_avx2), widen8z(bits16, widen8z_f16_avx2)},
		{halves, false, false}:  {vec4(float32s, vec4_f32_avx2), widen4(float32s, widen4_f32_avx2)},
		{halves, false, true}:   {vec4(bits16, vec4_f16_avx2), widen4(bits16, widen4_f16_avx2)},
		{halves, true, false}:   {vec4z(float32s, vec4z_f32_avx2), widen4z(float32s, widen4z_f32_avx2)},
		{halves, true, true}:    {vec4z(bits16, vec4z_f16_avx2), widen4z(bits16, widen4z_f16_avx2)},
		{bitmaps, false, false}: {vecb(float32s, vecb_f32_avx2), widenb(float32s, widenb_f32_avx2)},
		{bitmaps, false, true}:  {vecb(bits16, vecb_f16_avx2), widenb(bits16, widenb_f16_avx2)},
	}})
}

// scale is a number of the type of scales.
type scale interface{ float32 | uint16 }

func float32s(v ukernel.Values) *float32 { return unsafe.SliceData(v.Float32s()) }
func bits16(v ukernel.Values) *uint16    { return unsafe.SliceData(v.Bits()) }

// The functions below let routines of assembly take operands.

func sums(f func(chunks, per int, factor float32, x, sums *float32)) func(chunks, per int, factor float32, x, sums []float32) {
	return func(chunks, per int, factor float32, x, sums []float32) {
		f(chunks, per, factor, unsafe.SliceData(x), unsafe.SliceData(sums))
	}
}

func nibbles(blocks int, src []byte, dst []int8) {
	nibbles_avx2(blocks, unsafe.SliceData(src), unsafe.SliceData(dst))
}

// whole are codes as i8.
func (o operands) whole() *int8 { return unsafe.SliceData(asSigned(o.codes)) }

func vec8[T scale](of func(ukernel.Values) *T, f func(blocks, whole, per, rest int, w *int8, ldw int, scale *T, lds int, x, y *float32)) func(operands) {
	return func(o operands) {
		f(o.blocks, o.chunks/o.per, o.per, o.chunks%o.per, o.whole(), o.ldw, of(o.scales), o.lds, unsafe.SliceData(o.x), unsafe.SliceData(o.y))
	}
}

func widen8[T scale](of func(ukernel.Values) *T, f func(chunks, per int, w *int8, scale *T, dst *float32)) func(operands) {
	return func(o operands) { f(o.chunks, o.per, o.whole(), of(o.scales), unsafe.SliceData(o.y)) }
}

func vec8z[T scale](of func(ukernel.Values) *T, f func(blocks, whole, per, rest int, w *int8, ldw int, scale *T, lds int, zero *int8, sums, x, y *float32)) func(operands) {
	return func(o operands) {
		f(o.blocks, o.chunks/o.per, o.per, o.chunks%o.per, o.whole(), o.ldw, of(o.scales), o.lds, unsafe.SliceData(o.zeros), unsafe.SliceData(o.sums),
			unsafe.SliceData(o.x), unsafe.SliceData(o.y))
	}
}

func widen8z[T scale](of func(ukernel.Values) *T, f func(chunks, per int, w *int8, scale *T, zero *int8, dst *float32)) func(operands) {
	return func(o operands) {
		f(o.chunks, o.per, o.whole(), of(o.scales), unsafe.SliceData(o.zeros), unsafe.SliceData(o.y))
	}
}

func vec4[T scale](of func(ukernel.Values) *T, f func(blocks, whole, per, rest int, w *uint8, ldw int, scale *T, lds int, sums, x, y *float32)) func(operands) {
	return func(o operands) {
		f(o.blocks, o.chunks/o.per, o.per, o.chunks%o.per, unsafe.SliceData(o.codes), o.ldw, of(o.scales), o.lds, unsafe.SliceData(o.sums),
			unsafe.SliceData(o.x), unsafe.SliceData(o.y))
	}
}

func widen4[T scale](of func(ukernel.Values) *T, f func(chunks, per int, w *uint8, scale *T, dst *float32)) func(operands) {
	return func(o operands) {
		f(o.chunks, o.per, unsafe.SliceData(o.codes), of(o.scales), unsafe.SliceData(o.y))
	}
}

func vec4z[T scale](of func(ukernel.Values) *T, f func(blocks, whole, per, rest int, w *uint8, ldw int, scale *T, lds int, zero *int8, sums, x, y *float32)) func(operands) {
	return func(o operands) {
		f(o.blocks, o.chunks/o.per, o.per, o.chunks%o.per, unsafe.SliceData(o.codes), o.ldw, of(o.scales), o.lds, unsafe.SliceData(o.zeros), unsafe.SliceData(o.sums),
			unsafe.SliceData(o.x), unsafe.SliceData(o.y))
	}
}

func widen4z[T scale](of func(ukernel.Values) *T, f func(chunks, per int, w *uint8, scale *T, zero *int8, dst *float32)) func(operands) {
	return func(o operands) {
		f(o.chunks, o.per, unsafe.SliceData(o.codes), of(o.scales), unsafe.SliceData(o.zeros), unsafe.SliceData(o.y))
	}
}

func vecb[T scale](of func(ukernel.Values) *T, f func(blocks, whole, per, rest int, bits *uint64, ldw int, start *int, value *int8, scale *T, lds int, x, y *float32)) func(operands) {
	return func(o operands) {
		f(o.blocks, o.chunks/o.per, o.per, o.chunks%o.per, unsafe.SliceData(o.bits), o.ldw, unsafe.SliceData(o.start), unsafe.SliceData(o.values), of(o.scales), o.lds,
			unsafe.SliceData(o.x), unsafe.SliceData(o.y))
	}
}

func widenb[T scale](of func(ukernel.Values) *T, f func(chunks, per int, bits *uint64, value *int8, scale *T, dst *float32)) func(operands) {
	return func(o operands) {
		f(o.chunks, o.per, unsafe.SliceData(o.bits), unsafe.SliceData(o.values), of(o.scales), unsafe.SliceData(o.y))
	}
}
