package bitmap

import (
	"math/bits"

	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/ir/tensor"
)

// portable are the kernels in Go.
var portable = func() *kernels {
	k := &kernels{isa: "go", tiles: map[tensor.DType][]tile{}}
	for _, dt := range sparse.Floats {
		k.tiles[dt] = []tile{{1, rowsGo}}
	}
	return k
}()

// rowsGo multiplies one column.
func rowsGo(o operands) {
	at := 0
	for r := range o.rows {
		set, n := o.bits[r*o.words:][:o.words], 0
		for _, word := range set {
			n += bits.OnesCount64(word)
		}
		ukernel.Best().Widened(o.values, at, at+n, func(v []float32) {
			var sum float32
			for i, word := range set {
				x := o.x[64*i:]
				if o.tail != nil && i == len(set)-1 {
					x = o.tail
				}
				for ; word != 0; word &= word - 1 {
					sum += v[0] * x[bits.TrailingZeros64(word)]
					v = v[1:]
				}
			}
			o.y[r] = sum
		})
		at += n
	}
}

// available lists the kernels that this machine runs, the best first.
var available = append(native(), portable)

func best() *kernels { return available[0] }
