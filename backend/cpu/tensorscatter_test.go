package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/ir/tensor"
)

// Rows go into caches of elements of each size, at places of each sample, also around the end.
func TestTensorScatter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, dt := range []tensor.DType{tensor.Bool, tensor.F16, tensor.F32, tensor.I64} {
		for _, places := range []tensor.DType{tensor.I32, tensor.I64} {
			for _, mode := range []string{"linear", "circular"} {
				for range 5 {
					batch, heads, size, depth := 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(9), 1+r.IntN(5)
					rows := 1 + r.IntN(size)
					at := tensor.New(tensor.I64, batch)
					for b := range batch {
						if tensor.Data[int64](at)[b] = int64(r.IntN(size)); mode == "linear" {
							tensor.Data[int64](at)[b] = int64(r.IntN(size - rows + 1))
						}
					}
					text := fmt.Sprintf(`graph "g"(%%x: %[1]v[%[2]d,%[3]d,%[4]d,%[5]d], %%u: %[1]v[%[2]d,%[3]d,%[6]d,%[5]d], %%at: %[7]v[%[2]d]) { %%y: %[1]v[%[2]d,%[3]d,%[4]d,%[5]d] = TensorScatter "n" (%%x, %%u, %%at) {mode = %[8]q} return %%y }`,
						dt, batch, heads, size, depth, rows, places, mode)
					got, want := compared(t, text, 2, whole(r, dt, []int{batch, heads, size, depth}), whole(r, dt, []int{batch, heads, rows, depth}), at.To(places))
					if !got.Equal(want) {
						t.Fatalf("%s, at %v: %v, want %v", text, at.Ints(), got, want)
					}
				}
			}
		}
	}
}
