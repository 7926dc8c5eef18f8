//go:build amd64 && !noasm

package vec

import (
	"unsafe"

	"spc/internal/isa"
)

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
	isa:         "avx512",
	add:         add_avx512,
	sub:         sub_avx512,
	mul:         mul_avx512,
	div:         div_avx512,
	larger:      larger_avx512,
	smaller:     smaller_avx512,
	affine:      affine_avx512,
	addClip:     addClip_avx512,
	axpy:        axpy_avx512,
	normalize:   normalize_avx512,
	sum:         sum_avx512,
	maximum:     maximum_avx512,
	minimum:     minimum_avx512,
	largest:     largest_avx512,
	dot:         dot_avx512,
	sumSquares:  sumSquares_avx512,
	expSum:      expSum_avx512,
	exp:         exp_avx512,
	sigmoid:     sigmoid_avx512,
	tanh:        tanh_avx512,
	silu:        silu_avx512,
	gelu:        gelu_avx512,
	geluTanh:    geluTanh_avx512,
	hardSwish:   hardSwish_avx512,
	sqrt:        sqrt_avx512,
	reciprocal:  reciprocal_avx512,
	abs:         abs_avx512,
	floor:       floor_avx512,
	ceil:        ceil_avx512,
	roundToEven: roundToEven_avx512,
	softsign:    softsign_avx512,
	softplus:    softplus_avx512,
	mish:        mish_avx512,
	erf:         erf_avx512,
	log:         log_avx512,
	sin:         sin_avx512,
	cos:         cos_avx512,
	tan:         tan_avx512,
	asin:        asin_avx512,
	acos:        acos_avx512,
	atan:        atan_avx512,
	sinh:        sinh_avx512,
	cosh:        cosh_avx512,
	asinh:       asinh_avx512,
	acosh:       acosh_avx512,
	atanh:       atanh_avx512,
	sign:        sign_avx512,
	threshold:   threshold_avx512,
	shrink:      shrink_avx512,
	fmod:        fmod_avx512,
	elu:         elu_avx512,
	swish:       swish_avx512,
	leak:        leak_avx512,
	leaky:       leaky_avx512,
	pow:         pow_avx512,
	equal:       equal_avx512,
	less:        less_avx512,
	lessOrEqual: lessOrEqual_avx512,
	where:       where_avx512,
	lanes:       16,
	floatBools:  floatBools_avx512,
	int32Bools:  int32Bools_avx512,
	conversions: map[conversion]converter{
		{float32(0), uint8(0)}:   byteFloats_avx512,
		{float32(0), int8(0)}:    int8Floats_avx512,
		{float32(0), uint16(0)}:  uint16Floats_avx512,
		{float32(0), int16(0)}:   int16Floats_avx512,
		{float32(0), int32(0)}:   int32Floats_avx512,
		{int32(0), float32(0)}:   floatInt32s_avx512,
		{float64(0), float32(0)}: floatDoubles_avx512,
		{int64(0), int32(0)}:     int32Int64s_avx512,
		{int8(0), int32(0)}:      int32Int8s_avx512,
		{uint8(0), int32(0)}:     int32Int8s_avx512,
		{int16(0), int32(0)}:     int32Int16s_avx512,
		{uint16(0), int32(0)}:    int32Int16s_avx512,
		{float32(0), float64(0)}: doubleFloats_avx512,
		{int32(0), int64(0)}:     int64Int32s_avx512,
		{int32(0), uint64(0)}:    int64Int32s_avx512,
		{uint32(0), int64(0)}:    int64Int32s_avx512,
		{uint32(0), uint64(0)}:   int64Int32s_avx512,
		{uint64(0), int32(0)}:    int32Int64s_avx512,
		{int32(0), uint8(0)}:     byteInt32s_avx512,
		{int32(0), int8(0)}:      int8Int32s_avx512,
		{int32(0), uint16(0)}:    uint16Int32s_avx512,
		{int32(0), int16(0)}:     int16Int32s_avx512,
		{float64(0), int32(0)}:   int32Doubles_avx512,
		{int32(0), float64(0)}:   doubleInt32s_avx512,
	},
	taps:          taps_avx512,
	tapRows:       tapRows_avx512,
	repeat:        repeated(repeat_avx512, 16),
	finishRows:    finishTile(finishRows_avx512),
	finishColumns: finishTile(finishColumns_avx512),
	gather:        gatherChunks(gather_avx512),
	padRows:       [2]padRows{padded(padRows1_avx512), padded(padRows2_avx512)},
	chunk:         64,
	transpose8:    transpose8_avx2,
	transpose16:   transpose16_avx512,

	finishAct: [acts]finishes{
		ActSiLU:      {finishTile(finishRowsSiLU_avx512), finishTile(finishColumnsSiLU_avx512)},
		ActHardSwish: {finishTile(finishRowsHardSwish_avx512), finishTile(finishColumnsHardSwish_avx512)},
		ActGELU:      {finishTile(finishRowsGELU_avx512), finishTile(finishColumnsGELU_avx512)},
	},
}

var avx2 = kernels{
	isa:         "avx2",
	add:         add_avx2,
	sub:         sub_avx2,
	mul:         mul_avx2,
	div:         div_avx2,
	larger:      larger_avx2,
	smaller:     smaller_avx2,
	affine:      affine_avx2,
	addClip:     addClip_avx2,
	axpy:        axpy_avx2,
	normalize:   normalize_avx2,
	sum:         sum_avx2,
	maximum:     maximum_avx2,
	minimum:     minimum_avx2,
	largest:     largest_avx2,
	dot:         dot_avx2,
	sumSquares:  sumSquares_avx2,
	expSum:      expSum_avx2,
	exp:         exp_avx2,
	sigmoid:     sigmoid_avx2,
	tanh:        tanh_avx2,
	silu:        silu_avx2,
	gelu:        gelu_avx2,
	geluTanh:    geluTanh_avx2,
	hardSwish:   hardSwish_avx2,
	sqrt:        sqrt_avx2,
	reciprocal:  reciprocal_avx2,
	abs:         abs_avx2,
	floor:       floor_avx2,
	ceil:        ceil_avx2,
	roundToEven: roundToEven_avx2,
	softsign:    softsign_avx2,
	softplus:    softplus_avx2,
	mish:        mish_avx2,
	erf:         erf_avx2,
	log:         log_avx2,
	sin:         sin_avx2,
	cos:         cos_avx2,
	tan:         tan_avx2,
	asin:        asin_avx2,
	acos:        acos_avx2,
	atan:        atan_avx2,
	sinh:        sinh_avx2,
	cosh:        cosh_avx2,
	asinh:       asinh_avx2,
	acosh:       acosh_avx2,
	atanh:       atanh_avx2,
	sign:        sign_avx2,
	threshold:   threshold_avx2,
	shrink:      shrink_avx2,
	fmod:        fmod_avx2,
	elu:         elu_avx2,
	swish:       swish_avx2,
	leak:        leak_avx2,
	leaky:       leaky_avx2,
	pow:         pow_avx2,
	equal:       equal_avx2,
	less:        less_avx2,
	lessOrEqual: lessOrEqual_avx2,
	where:       where_avx2,
	lanes:       8,
	floatBools:  floatBools_avx2,
	int32Bools:  int32Bools_avx2,
	conversions: map[conversion]converter{
		{float32(0), uint8(0)}:   byteFloats_avx2,
		{float32(0), int8(0)}:    int8Floats_avx2,
		{float32(0), uint16(0)}:  uint16Floats_avx2,
		{float32(0), int16(0)}:   int16Floats_avx2,
		{float32(0), int32(0)}:   int32Floats_avx2,
		{int32(0), float32(0)}:   floatInt32s_avx2,
		{float64(0), float32(0)}: floatDoubles_avx2,
		{int64(0), int32(0)}:     int32Int64s_avx2,
		{int8(0), int32(0)}:      int32Int8s_avx2,
		{uint8(0), int32(0)}:     int32Int8s_avx2,
		{int16(0), int32(0)}:     int32Int16s_avx2,
		{uint16(0), int32(0)}:    int32Int16s_avx2,
		{float32(0), float64(0)}: doubleFloats_avx2,
		{int32(0), int64(0)}:     int64Int32s_avx2,
		{int32(0), uint64(0)}:    int64Int32s_avx2,
		{uint32(0), int64(0)}:    int64Int32s_avx2,
		{uint32(0), uint64(0)}:   int64Int32s_avx2,
		{uint64(0), int32(0)}:    int32Int64s_avx2,
		{int32(0), uint8(0)}:     byteInt32s_avx2,
		{int32(0), int8(0)}:      int8Int32s_avx2,
		{int32(0), uint16(0)}:    uint16Int32s_avx2,
		{int32(0), int16(0)}:     int16Int32s_avx2,
		{float64(0), int32(0)}:   int32Doubles_avx2,
		{int32(0), float64(0)}:   doubleInt32s_avx2,
	},
	taps:          taps_avx2,
	tapRows:       tapRows_avx2,
	repeat:        repeated(repeat_avx2, 8),
	finishRows:    finishTile(finishRows_avx2),
	finishColumns: finishTile(finishColumns_avx2),
	gather:        gatherChunks(gather_avx2),
	padRows:       [2]padRows{padded(padRows1_avx2), padded(padRows2_avx2)},
	chunk:         32,
	transpose8:    transpose8_avx2,

	finishAct: [acts]finishes{
		ActSiLU:      {finishTile(finishRowsSiLU_avx2), finishTile(finishColumnsSiLU_avx2)},
		ActHardSwish: {finishTile(finishRowsHardSwish_avx2), finishTile(finishColumnsHardSwish_avx2)},
		ActGELU:      {finishTile(finishRowsGELU_avx2), finishTile(finishColumnsGELU_avx2)},
	},
}

// finishTile lets an assembly kernel take slices.
func finishTile(f func(dst *float32, ldd int, y *float32, ldy, rows, cols int, bias, res *float32, ldr int, lo, hi float32, back bool)) finish {
	return func(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int, lo, hi float32, back bool) {
		f(unsafe.SliceData(dst), ldd, unsafe.SliceData(y), ldy, rows, cols, unsafe.SliceData(bias), unsafe.SliceData(res), ldr, lo, hi, back)
	}
}

// gatherChunks lets an assembly kernel take slices.
func gatherChunks(f func(dst *float32, rows int, src *float32, offset *int, chunks *int, n int)) gather {
	return func(dst, src []float32, offset []int, chunks []Chunk) {
		f(unsafe.SliceData(dst), len(offset), unsafe.SliceData(src), unsafe.SliceData(offset), &chunks[0].Dst, len(chunks))
	}
}

// padded lets an assembly kernel take slices.
func padded(f func(dst *float32, rows, left, n, right int, src *float32, lds int)) padRows {
	return func(dst []float32, rows, left, n, right int, src []float32, lds, _ int) {
		f(unsafe.SliceData(dst), rows, left, n, right, unsafe.SliceData(src), lds)
	}
}

// repeated lets an assembly kernel, which writes whole vectors of so many lanes, take slices.
func repeated(f func(y, x *float32, rows, n int), lanes int) func(y, x []float32, n int) {
	return func(y, x []float32, n int) {
		over := (n+lanes-1)/lanes*lanes - n
		rows := max(0, len(y)-over) / n
		if rows > 0 {
			f(&y[0], &x[0], rows, n)
		}
		repeatGo(y[rows*n:], x[rows:], n)
	}
}
