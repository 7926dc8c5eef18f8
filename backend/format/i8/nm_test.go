package i8

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend"
	"spc/backend/format/formattest"
	"spc/backend/format/nm"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// pairsOf makes an m x k weight of which each group has at most two elements that are not zero.
func pairsOf(r *rand.Rand, m, k int) *tensor.Tensor {
	w := tensor.New(tensor.I8, m, k)
	data := tensor.Data[int8](w)
	for i := range m {
		for c := 0; c < k; c += group {
			for _, j := range r.Perm(group)[:r.IntN(kept+1)] {
				if c+j < k {
					data[i*k+c+j] = int8(r.Uint32())
				}
			}
		}
	}
	return w
}

var nmFormat = sparse.New(nm.Scheme{}, NM)

func TestStoredPairsAreTheWeight(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []int{0, 1, 5, 48} {
		for _, k := range []int{1, 2, 3, 4, 9, 64, 130} {
			w := pairsOf(r, m, k)
			s := formattest.Integers(t, nmFormat, w, "2:4")
			if back, err := nmFormat.Unpack(s); err != nil || !back.To(tensor.I8).Equal(w) {
				t.Fatalf("%d x %d comes back as another: %v", m, k, err)
			}
			kernel, err := nmFormat.Kernel(s)
			if err != nil {
				t.Fatal(err)
			}
			sums := make([]int32, m)
			for i, v := range tensor.Data[int8](w) {
				sums[i/k] += int32(v)
			}
			if !slices.Equal(kernel.(backend.IntegerKernel).Sums(), sums) {
				t.Fatalf("%d x %d: other sums of rows", m, k)
			}
			values, places, err := pairs(s)
			if err != nil {
				t.Fatal(err)
			}
			across := (k + group - 1) / group
			back := tensor.New(tensor.I8, m, across*group)
			for i, p := range places {
				first, second := int(p&3), int(p>>2)
				if first >= second || second >= group {
					t.Fatalf("%d x %d: places %d and %d", m, k, first, second)
				}
				tensor.Data[int8](back)[i*group+first] = values[kept*i]
				tensor.Data[int8](back)[i*group+second] = values[kept*i+1]
			}
			for i, v := range tensor.Data[int8](w) {
				if got := tensor.Data[int8](back)[i/k*across*group+i%k]; got != v {
					t.Fatalf("%d x %d: element %d is %d, want %d", m, k, i, got, v)
				}
			}
		}
	}
}

func TestPairsAreOffered(t *testing.T) {
	costs := func(w *tensor.Tensor) []choose.Cost {
		m := choose.NewMatrix(w.To(tensor.F32), "")
		m.Type = tensor.I8
		return nmFormat.Costs(machine.Default, m, 8)
	}
	w := pairsOf(rand.New(rand.NewPCG(8, 0)), 5, 30)
	if c := costs(w); len(c) != 1 || c[0].Config != "2:4" || c[0].Bytes != formattest.Integers(t, nmFormat, w, "2:4").Bytes() {
		t.Errorf("offered are %+v", c)
	}
	if c := costs(tensor.From([]float32{1, 0, 2, 3, 4, 5, 0, 0}, 1, 8)); len(c) != 0 {
		t.Errorf("3 of 4 are offered: %+v", c)
	}
}

// FuzzNM leaves the first two elements of each group, so that any weight suits.
func FuzzNM(f *testing.F) {
	formattest.FuzzIntegers(f, nmFormat, func(w *tensor.Tensor) {
		for r := range w.Dim(0) {
			for group := range slices.Chunk(w.F32s()[r*w.Dim(1):(r+1)*w.Dim(1)], group) {
				left := kept
				for i, v := range group {
					if v != 0 {
						left--
					}
					if left < 0 {
						group[i] = 0
					}
				}
			}
		}
	}, "2:4", "3:4")
}
