package i8

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend"
	"spc/backend/format/block"
	"spc/backend/format/formattest"
	"spc/backend/format/ikernel"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
)

// fours makes an m x k weight of which about a share of the groups is there.
func fours(r *rand.Rand, m, k int, share float64) *tensor.Tensor {
	w := tensor.New(tensor.I8, m, k)
	data := tensor.Data[int8](w)
	for i := range m {
		for g := 0; g < k; g += 4 {
			if r.Float64() < share {
				for j := g; j < min(g+4, k); j++ {
					data[i*k+j] = int8(r.Uint32())
				}
			}
		}
	}
	return w
}

var blockFormat = sparse.New(block.Scheme{}, Block)

func TestProductsOfBlocksAreThoseOfDense(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []int{0, 1, 5, 48, 70} {
		for _, k := range []int{1, 3, 4, 9, 64, 130, 1030, 2400} {
			w := fours(r, m, k, 0.2)
			s := formattest.Integers(t, blockFormat, w, groups)
			back, err := blockFormat.Unpack(s)
			if err != nil || !back.To(tensor.I8).Equal(w) {
				t.Fatalf("%d x %d comes back as another: %v", m, k, err)
			}
			b := bindDense(w, ikernel.Best())
			x := make([]uint8, b.Groups()*ikernel.PanelRow)
			for i := range x {
				x[i] = uint8(r.Uint32())
			}
			got, want := make([]int32, m*ikernel.Columns), make([]int32, m*ikernel.Columns)
			b.Panel(want, x, ikernel.Columns, 0, m)
			for _, set := range ikernel.Available() {
				k, err := bindBlock(s, set)
				if err != nil {
					t.Fatal(err)
				}
				a := k.(backend.IntegerKernel)
				if !slices.Equal(a.Sums(), b.Sums()) {
					t.Fatalf("%s: %d x %d: other sums of rows", a.Name(), m, k)
				}
				clear(got)
				a.Panel(got, x, ikernel.Columns, 0, m)
				if !slices.Equal(got, want) {
					t.Fatalf("%s: %d x %d: other products", a.Name(), m, k)
				}
			}
		}
	}
}

// Blocks that have no kernels are multiplied as dense.
func TestOtherBlocksAreMultiplied(t *testing.T) {
	w := fours(rand.New(rand.NewPCG(7, 0)), 9, 30, 0.5)
	k, err := blockFormat.Kernel(formattest.Integers(t, blockFormat, w, "4x4"))
	if err != nil || k.(backend.IntegerKernel).Groups() < ikernel.Groups(30) {
		t.Errorf("%v, %v", k, err)
	}
}

func FuzzBlock(f *testing.F) { formattest.FuzzIntegers(f, blockFormat, nil, groups, "2x2") }
