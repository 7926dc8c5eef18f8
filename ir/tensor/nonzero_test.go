package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestNonzeros(t *testing.T) {
	values := []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, float32(math.NaN()), float32(math.Inf(-1)), math.MaxFloat32}
	for n := range 200 {
		row, words := make([]float32, n), make([]uint64, (n+63)/64)
		zeros := 0
		for i := range row {
			if row[i] = values[rand.IntN(len(values))]; row[i] == 0 {
				zeros++
			}
		}
		for i := range words {
			words[i] = rand.Uint64()
		}
		Nonzeros(words, row)
		for k := range 64 * len(words) {
			if set := words[k/64]>>(k%64)&1 != 0; set != (k < n && row[k] != 0) {
				t.Fatalf("element %d of %v is %v", k, row, set)
			}
		}
		if got := CountZeros(row); got != zeros {
			t.Errorf("%d zeros in %v, want %d", got, row, zeros)
		}
	}
}
