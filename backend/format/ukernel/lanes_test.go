package ukernel

import (
	"math/rand"
	"slices"
	"testing"
)

// Rows that are lanes are those of the weight, however full, for numbers of any width. Whole numbers make sums exact.
func TestLanesMultiplyVectors(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *Kernels) {
		rng := rand.New(rand.NewSource(seed))
		used, short, window, rows := 0, 0, max(kern.window, 1), max(kern.laneRows, 1)
		for _, m := range []int{1, rows - 1, rows, rows + 1, 70} {
			for _, k := range []int{1, 8, window - 1, window, window + 1, 100, 700, 9000} {
				for _, density := range []float64{0, 0.02, 0.1, 0.5, 1} {
					ptr, index, value := []uint32{0}, []uint16{}, []uint16{}
					dense := make([]float32, m*k)
					for r := range m {
						for c := range k {
							if rng.Float64() < density*float64(r%3+2)/4 {
								half := uint16(0x3f80 | rng.Intn(2)<<15 | rng.Intn(2)<<6) // bf16: 1, -1, 1.5, -1.5
								index, value = append(index, uint16(c)), append(value, half)
								dense[r*k+c] = BF16([]uint16{half}).Float32s()[0]
							}
						}
						ptr = append(ptr, uint32(len(index)))
					}
					x, want := make([]float32, k), make([]float32, m)
					for i := range x {
						x[i] = float32(rng.Intn(17) - 8)
					}
					for r := range want {
						for c, w := range dense[r*k:][:k] {
							want[r] += w * x[c]
						}
					}
					wide := BF16(value).Float32s()
					ieee := make([]uint16, len(value))
					for i, v := range wide {
						ieee[i] = map[float32]uint16{1: 0x3c00, -1: 0xbc00, 1.5: 0x3e00, -1.5: 0xbe00}[v]
					}
					for _, v := range []Values{F32(wide), F16(ieee), BF16(value)} {
						a, err := NewSparse(kern, 1, m, k, ptr, index, v)
						if err != nil {
							t.Fatal(err)
						}
						if a.Lanes() && a.lanes() != nil {
							if used++; k < window {
								short++
							}
						}
						from := rng.Intn(m + 1)
						if rng.Intn(2) == 0 {
							from = from / rows * rows
						}
						to := from + rng.Intn(m-from+1)
						y := make([]float32, m+1)
						y[to-from] = 7
						if a.MulVec(from, to, x, y[:to-from]); rng.Intn(2) == 0 {
							a.MulVecOnce(from, to, x, y[:to-from])
						}
						if !slices.Equal(y[:to-from], want[from:to]) || y[to-from] != 7 {
							t.Fatalf("%d x %d, rows %d to %d: %v, want %v and nothing behind", m, k, from, to, y, want[from:to])
						}
					}
				}
			}
		}
		if (used > 0) != (kern.ISA != "go") || (short > 0) != (kern.ISA != "go") {
			t.Errorf("%d weights are lanes, %d of which shorter than a window", used, short)
		}
	})
}

// One full row among empty ones would leave fifteen lanes idle.
func TestLanesAreNotMostlyIdle(t *testing.T) {
	const m, k = 64, 200
	ptr, index, value := make([]uint32, m+1), []uint16{}, []float32{}
	for c := range k {
		index, value = append(index, uint16(c)), append(value, 1)
	}
	for r := 5; r <= m; r++ {
		ptr[r] = k
	}
	a, err := NewSparse(Best(), 1, m, k, ptr, index, F32(value))
	if err != nil {
		t.Fatal(err)
	}
	if a.Lanes() && a.lanes() != nil {
		t.Error("there are lanes")
	}
	x, y := slices.Repeat([]float32{2}, k), make([]float32, m)
	a.MulVec(0, m, x, y)
	if y[4] != 2*k || y[3] != 0 || y[5] != 0 {
		t.Errorf("got %v", y)
	}
}
