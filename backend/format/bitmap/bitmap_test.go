package bitmap

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"spc/backend/format/formattest"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

func TestBitmap(t *testing.T) { formattest.Run(t, New(), "") }

func TestKernelsMayRunConcurrently(t *testing.T) { formattest.Concurrently(t, New(), "") }

func FuzzCheck(f *testing.F) { formattest.Fuzz(f, New(), "") }

func FuzzCodes(f *testing.F) { formattest.FuzzGrids(f, New(), false) }

func TestCheckRefusesOtherCodes(t *testing.T) { formattest.RefusesGrids(t, New()) }

// A file of a few bytes may claim any number of rows, if they are empty.
func TestRowsWithoutColumnsAreRefused(t *testing.T) {
	s := &ir.Store{Format: Name, Rows: 1 << 40, Parts: []ir.Part{{Name: "bits", Data: tensor.New(tensor.U64, 1<<40, 0)}, {Name: "values", Data: tensor.New(tensor.F32, beyond)}}}
	if err := New().Check(s); err == nil {
		t.Error("they are accepted")
	}
	if _, err := New().Pack(tensor.New(tensor.F32, 3, 0), ""); !errors.Is(err, choose.ErrFit) {
		t.Errorf("Pack gives %v, want %v", err, choose.ErrFit)
	}
}

// Each instruction set's kernels compute the same, for any number of columns and from any row on, with values of any type and a
// last word that is whole or not.
func TestKernelsOfEveryInstructionSet(t *testing.T) {
	for _, size := range [][2]int{{1, 5}, {3, 64}, {16, 128}, {37, 200}} {
		for _, dt := range sparse.Floats {
			w := formattest.Sample(size[0], size[1]).To(dt).To(tensor.F32)
			parts, err := storage{}.Pack(w, "")
			if err != nil {
				t.Fatal(err)
			}
			m, err := view(&ir.Store{Format: Name, Rows: size[0], Cols: size[1], Parts: choose.Narrow(parts, dt)})
			if err != nil {
				t.Fatal(err)
			}
			for _, kern := range available {
				k, err := bind(m, kern)
				if err != nil {
					t.Fatal(err)
				}
				for n := 1; n <= 11; n++ {
					tokens(t, k.(*weight), w, n)
				}
			}
		}
	}
}

// tokens compares products of n columns with sums of float64, and those of some rows with those of all.
func tokens(t *testing.T, k *weight, w *tensor.Tensor, n int) {
	t.Helper()
	m, cols := w.Dim(0), w.Dim(1)
	rng := rand.New(rand.NewPCG(uint64(m), uint64(n)))
	x, y, half := make([]float32, n*cols), make([]float32, n*m), make([]float32, n*m)
	for i := range x {
		x[i] = rng.Float32() - 0.5
	}
	k.Tokens(y, x, n, 0, m, nil)
	k.Tokens(half, x, n, m/2, m, nil)
	for i, got := range y {
		var want, size float64
		for c := range cols {
			p := float64(w.F32s()[i%m*cols+c]) * float64(x[i/m*cols+c])
			want, size = want+p, size+math.Abs(p)
		}
		if math.Abs(float64(got)-want) > 1e-6*size {
			t.Errorf("%d x %d by %s: column %d of %d, row %d is %v, want %v", m, cols, k.Name(), i/m, n, i%m, got, want)
			return
		}
		if i%m >= m/2 && half[i] != got {
			t.Errorf("%d x %d by %s: column %d, row %d is %v among half of the rows, %v among all", m, cols, k.Name(), i/m, i%m, half[i], got)
			return
		}
	}
}

func TestCheckRefusesBrokenBits(t *testing.T) {
	words := func(s *ir.Store) []uint64 { return tensor.Data[uint64](s.Part("bits")) }
	values := func(s *ir.Store) []float32 { return tensor.Data[float32](s.Part("values")) }
	formattest.Refuses(t, New(), formattest.Sample(9, 100), "",
		formattest.Mutation{Name: "a bit more", Apply: func(s *ir.Store) { words(s)[0] |= 1 << 3 }},
		formattest.Mutation{Name: "a bit less", Apply: func(s *ir.Store) { words(s)[3] &^= 1 << 5 }},
		formattest.Mutation{Name: "a bit behind the last column", Apply: func(s *ir.Store) { words(s)[1] ^= 1<<36 | 1<<5 }},
		formattest.Mutation{Name: "the last bit", Apply: func(s *ir.Store) { words(s)[17] |= 1 << 63 }},
		formattest.Mutation{Name: "a value behind the last", Apply: func(s *ir.Store) { values(s)[len(values(s))-1] = 1 }},
		formattest.Mutation{Name: "too few zeros", Apply: func(s *ir.Store) {
			p := &s.Parts[1]
			p.Data = tensor.From(p.Data.F32s()[:p.Data.Len()-1], p.Data.Len()-1)
		}},
		formattest.Mutation{Name: "configuration", Apply: func(s *ir.Store) { s.Config = "1x1" }},
	)
}
