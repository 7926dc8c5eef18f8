package sparse

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// parts returns a matrix as vectors of r rows, and single elements of every fifth row.
func parts(t *testing.T, m, k, r int) (w *tensor.Tensor, vectors, rest *Blocks) {
	t.Helper()
	rng, period := rand.New(rand.NewPCG(uint64(m), uint64(k))), max(9, k/200)
	var of [2]*tensor.Tensor
	for i := range of {
		of[i] = tensor.New(tensor.F32, m, k)
	}
	w = tensor.New(tensor.F32, m, k)
	for i := range w.F32s() {
		row, c, part := i/k, i%k, -1
		switch {
		case (c+row/r*7)%period == 0:
			part = 0
		case row%5 == 3 && rng.IntN(period/4) == 0:
			part = 1
		default:
			continue
		}
		w.F32s()[i] = rng.Float32() - 0.5
		of[part].F32s()[i] = w.F32s()[i]
	}
	vectors, err := Find(of[0], r, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err = Find(of[1], 1, 1, 0); err != nil {
		t.Fatal(err)
	}
	return w, vectors, rest
}

// One block of columns, two, which are not finished alike, and several; 16 and 32 bit indices.
func TestSumsOfEveryInstructionSet(t *testing.T) {
	for _, s := range [][2]int{{9, 100}, {33, 400}, {120, 700}, {4, 70_000}} {
		for _, r := range ukernel.Blocks {
			w, vectors, rest := parts(t, s[0], s[1], r)
			if got := Sum(vectors, rest); !got.Equal(w) || CheckSum(vectors, rest) != nil {
				t.Errorf("%d x %d, %d rows: the lists are another matrix, or none: %v", s[0], s[1], r, CheckSum(vectors, rest))
			}
			for _, kern := range ukernel.Available() {
				k, err := bindSum("test", vectors, rest, kern)
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf("f32_test_%dx64__%s", r, kern.ISA); k.Name() != want {
					t.Errorf("kernel %s, want %s", k.Name(), want)
				}
				check(t, k, w, fmt.Sprintf("%v by %s", s, k.Name()))
				check(t, k.(backend.Sizer).Sized(1), w, fmt.Sprintf("%v by %s, once", s, k.Name()))
			}
		}
	}
}

// Placed kernels read the same columns where they are said to be, here in panels [K][64], cut otherwise.
func TestSumsArePlaced(t *testing.T) {
	w, vectors, rest := parts(t, 70, 300, 4)
	k, err := SumKernel("test", vectors, rest)
	if err != nil {
		t.Fatal(err)
	}
	bounds := []int{0, 120, 130, 300}
	placed := k.(backend.Placer).Placed(bounds, inPanels(bounds))
	check(t, placed, w, "placed")
	if again := k.(backend.Placer).Placed(bounds, inPanels(bounds)); again != placed {
		t.Error("the same places make another kernel")
	}
	if _, low, more := parts(t, 70, 300, 2); low != nil {
		k, err := SumKernel("test", low, more)
		if err != nil || k.(backend.Placer).Placed(bounds, inPanels(bounds)) != nil {
			t.Errorf("blocks of 2 rows are placed, %v", err)
		}
	}
}

// The sum of a row does not depend on which rows are asked for with it: threads divide them.
func TestSingleColumnsSumAlikeInAnyRange(t *testing.T) {
	w, vectors, rest := parts(t, 800, 200, 4)
	for _, kern := range ukernel.Available() {
		k, err := bindSum("test", vectors, rest, kern)
		if err != nil {
			t.Fatal(err)
		}
		x, all := make([]float32, 200), make([]float32, 800+k.Tile())
		for i := range x {
			x[i] = w.F32s()[i*37%w.Len()] + 0.3
		}
		k.Vec(all, x, 0, 800)
		for r0 := 0; r0 < 800; r0 += 3 * backend.VecTile {
			r1 := min(800, r0+3*backend.VecTile)
			some := make([]float32, r1-r0+k.Tile())
			k.Vec(some, x, r0, r1)
			for i, v := range some[:r1-r0] {
				if v != all[r0+i] {
					t.Fatalf("%s: row %d is %v among rows %d to %d, and %v among all", kern.ISA, r0+i, v, r0, r1, all[r0+i])
				}
			}
		}
	}
}

func TestElementsInBothListsAreRefused(t *testing.T) {
	_, vectors, rest := parts(t, 20, 90, 4)
	rest.Column[0] = vectors.Column[vectors.Ptr[0]] // row 3 is the first that has a rest, of the first block row
	if err := CheckSum(vectors, rest); err == nil || err.Error() != "row 3: column 0 is in a vector and in the rest" {
		t.Errorf("%v", err)
	}
}

// Rows that wait for long ones in products with single columns cost, in panels they do not wait.
func TestLongRowsAreWaitedForInSingleColumns(t *testing.T) {
	even, long := tensor.New(tensor.F32, 64, 256), tensor.New(tensor.F32, 64, 256)
	for row := range 64 {
		for c := range 256 {
			if (c+row)%8 == 0 {
				even.F32s()[row*256+c] = 1
			}
			if (c+row)%8 == 0 && row != 0 || row == 0 && c < 256 {
				long.F32s()[row*256+c] = 1
			}
		}
	}
	per := func(w *tensor.Tensor, n int) float64 { // time by values
		m := choose.NewMatrix(w, "")
		c, ok := cost(machine.Default, "csr", m, n, backend.Layout{Rows: 1, Values: m.Nonzeros, Bytes: 6 * m.Nonzeros})
		if !ok {
			t.Fatal("csr does not suit the weight")
		}
		return c.Work / c.Efficiency / float64(m.Nonzeros)
	}
	if a, b := per(even, 1), per(long, 1); b < 1.5*a {
		t.Errorf("a value takes %v where a row is long, else %v", b, a)
	}
	if a, b := per(even, 64), per(long, 64); b > 1.01*a {
		t.Errorf("a value takes %v in panels where a row is long, else %v", b, a)
	}
}
