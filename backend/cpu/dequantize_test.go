package cpu

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/ir/tensor"
)

// Integers of each width have a scale for all, for each index of an axis, or for each block along it.
func TestDequantizeParts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, dt := range []tensor.DType{tensor.U8, tensor.I8, tensor.U4, tensor.I4, tensor.U2, tensor.I2} {
		for axis := -3; axis < 3; axis++ {
			for _, block := range []int{-1, 0, 1, 2, 3, 9} { // -1 for one of all
				shape := []int{1 + r.IntN(4), 1 + r.IntN(5), 1 + r.IntN(6)}
				at := (axis + 3) % 3
				scales := []int{1}
				switch {
				case block == 0:
					scales = []int{shape[at]}
				case block > 0:
					scales = append([]int{}, shape...)
					scales[at] = (scales[at] + block - 1) / block
				}
				codes := func(shape []int) *tensor.Tensor {
					c := tensor.New(tensor.I64, shape...)
					for i := range tensor.Data[int64](c) {
						tensor.Data[int64](c)[i] = int64(r.IntN(256) - 128)
					}
					return c.To(dt)
				}
				in := []*tensor.Tensor{codes(shape), whole(r, tensor.F32, scales)}
				params, args := fmt.Sprintf("%%x: %v[%s], %%s: f32[%s]", dt, joined(shape), joined(scales)), "%x, %s"
				if r.IntN(2) == 0 {
					in, params, args = append(in, codes(scales)), params+fmt.Sprintf(", %%z: %v[%s]", dt, joined(scales)), args+", %z"
				}
				text := fmt.Sprintf(`graph "g"(%s) { %%y: f32[%s] = DequantizeLinear "n" (%s) {axis = %d, block_size = %d} return %%y }`, params, joined(shape), args, axis, max(block, 0))
				got, want := compared(t, strings.ReplaceAll(text, ", block_size = 0", ""), 2, in...)
				if !got.Equal(want) {
					t.Fatalf("%s: %v, want %v", text, got, want)
				}
			}
		}
	}
}
