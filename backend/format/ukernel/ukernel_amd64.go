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

// tables are the kernels of an instruction set by their sizes.
type tables struct {
	lanes  laneShape
	gemm   gemmTiles
	spmm   map[int][Columns / Granule]spmm // by the rows of a block
	spmv16 map[int]spmv[uint16]
	spmv32 map[int]spmv[uint32]
	run16  map[int]spmv[uint16] // by the columns of a block
	run32  map[int]spmv[uint32]
}

// kernels are those of the tables, without what has no sizes.
func (t *tables) kernels(name string) Kernels {
	return Kernels{ISA: name, finishes: true, Gemm: Gemm{tile: t.gemm.run}, spmm: t.spmm, spmv16: t.spmv16, spmv32: t.spmv32, run16: t.run16, run32: t.run32, laneShape: t.lanes}
}

var avx512 = func() Kernels {
	k := avx512Tables.kernels("avx512")
	k.Gemm.Name = "gemm_f32_6x64_avx512"
	k.gemv = dense(gemv_f32_4x1_avx512)
	k.halves[ieee], k.halves[brain] = dense(gemv_f16_4x1_avx512), dense(gemv_bf16_4x1_avx512)
	k.widen = widening{ieee: inBlocks(widen_f16_avx512, widenF16), brain: inBlocks(widen_bf16_avx512, widenBF16)}
	k.narrow = inBlocks(narrow_f16_avx512, nil)
	k.lanes[full] = inLanes(lanes_f32_avx512, func(v Values) []float32 { return v.f32 })
	k.lanes[ieee], k.lanes[brain] = inLanes(lanes_f16_avx512, halves), inLanes(lanes_bf16_avx512, halves)
	k.peak, k.flop = fmaPeak_avx512, 12*16*2
	return k
}()

var avx2 = func() Kernels {
	k := avx2Tables.kernels("avx2")
	k.Gemm.Name = "gemm_f32_6x16_avx2"
	k.gemv = dense(gemv_f32_4x1_avx2)
	k.halves[brain] = dense(gemv_bf16_4x1_avx2)
	k.lanes[full] = inLanes(lanes_f32_avx2, func(v Values) []float32 { return v.f32 })
	k.lanes[brain] = inLanes(lanes_bf16_avx2, halves)
	k.widen = widening{ieee: widenF16, brain: inBlocks(widen_bf16_avx2, widenBF16)}
	if isa.F16C() { // nearly always
		k.widen[ieee], k.narrow = inBlocks(widen_f16_avx2, widenF16), inBlocks(narrow_f16_avx2, nil)
		k.halves[ieee], k.lanes[ieee] = dense(gemv_f16_4x1_avx2), inLanes(lanes_f16_avx2, halves)
	}
	k.peak, k.flop = fmaPeak_avx2, 12*8*2
	return k
}()

// gemmTiles are the kernels of GEMM tiles by their width and rows, each less one.
type gemmTiles [Columns / Granule][MR]func(tiles, k int, a *float32, at, ar, ak int, b *float32, ldb int, y *float32, ldy int, acc bool, f *[6]uint64, next *float32)

func (t *gemmTiles) run(tiles, rows, width, k int, a []float32, at, ar, ak int, b []float32, ldb int, y []float32, ldy int, acc bool, f *FinishArgs, next []float32) {
	t[width-1][rows-1](tiles, k, unsafe.SliceData(a), at, ar, ak, unsafe.SliceData(b), ldb, unsafe.SliceData(y), ldy, acc, f.words(), unsafe.SliceData(next))
}

// words is f as the assembly names it.
func (f *FinishArgs) words() *[unsafe.Sizeof(FinishArgs{}) / 8]uint64 {
	return (*[unsafe.Sizeof(FinishArgs{}) / 8]uint64)(unsafe.Pointer(f))
}

// sparse lets an assembly kernel take slices.
func sparse(f func(groups int, group *uint32, offset *uint16, value, x, y *float32, acc bool, to *[6]uint64)) spmm {
	return func(groups int, group []uint32, offset []uint16, value, x, y []float32, acc bool, to *FinishArgs) {
		f(groups, unsafe.SliceData(group), unsafe.SliceData(offset), unsafe.SliceData(value),
			unsafe.SliceData(x), unsafe.SliceData(y), acc, to.words())
	}
}

// sparseVec is sparse for products with a vector.
func sparseVec[I Index](f func(groups int, ptr *uint32, index *I, value, x, y *float32)) spmv[I] {
	return func(groups int, ptr []uint32, index []I, value, x, y []float32) {
		f(groups, unsafe.SliceData(ptr), unsafe.SliceData(index), unsafe.SliceData(value),
			unsafe.SliceData(x), unsafe.SliceData(y))
	}
}

// inLanes lets an assembly kernel take slices, of such values.
func inLanes[T float32 | uint16](f func(blocks int, ptr, start *uint32, place *uint8, value *T, x, y *float32, far int), of func(Values) []T) lanesKernel {
	return func(blocks int, ptr, start []uint32, place []uint8, value Values, x, y []float32, far int) {
		f(blocks, unsafe.SliceData(ptr), unsafe.SliceData(start), unsafe.SliceData(place), unsafe.SliceData(of(value)),
			unsafe.SliceData(x), unsafe.SliceData(y), far)
	}
}

func halves(v Values) []uint16 { return v.half }

// dense lets an assembly kernel of groups of four rows take slices and any
// number of rows: the last four overlap those before, and fewer than four are
// each computed four times.
func dense[T float32 | uint16](f func(groups, k int, w *T, ldw int, x, y *float32, far int)) func(rows, k int, w []T, ldw int, x, y []float32, far int) {
	return func(rows, k int, w []T, ldw int, x, y []float32, far int) {
		if rows < 4 {
			var s [4]float32
			for r := range rows {
				f(1, k, unsafe.SliceData(w[r*ldw:]), 0, unsafe.SliceData(x), &s[0], 0)
				y[r] = s[0]
			}
			return
		}
		f(rows/4, k, unsafe.SliceData(w), ldw, unsafe.SliceData(x), unsafe.SliceData(y), far)
		if rows%4 > 0 {
			f(1, k, unsafe.SliceData(w[(rows-4)*ldw:]), ldw, unsafe.SliceData(x), unsafe.SliceData(y[rows-4:]), 0)
		}
	}
}
