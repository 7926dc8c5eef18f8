package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spc/ir/tensor"
)

// Triangles on both sides of any diagonal, of elements of each size.
func TestTrilu(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, dt := range []tensor.DType{tensor.Bool, tensor.F16, tensor.F32, tensor.I64} {
		for _, shape := range [][]int{{4, 5}, {3, 7, 2}, {2, 2, 130, 140}, {1, 1}} {
			for upper := range 2 {
				for _, k := range []int64{0, 1, -1, 3, -140, 1 << 62, math.MinInt64} {
					text := fmt.Sprintf(`graph "g"(%%x: %[1]v[%[2]s], %%k: i64[]) { %%y: %[1]v[%[2]s] = Trilu "n" (%%x, %%k) {upper = %[3]d} return %%y }`, dt, joined(shape), upper)
					got, want := compared(t, text, 2, whole(r, dt, shape), tensor.Scalar(k))
					if !got.Equal(want) {
						t.Fatalf("%s, diagonal %d: %v, want %v", text, k, got, want)
					}
				}
			}
		}
	}
}
