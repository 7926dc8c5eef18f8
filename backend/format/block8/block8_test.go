package block8

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/format/dense8"
	"spc/backend/format/formattest"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/tensor"
)

// matrix makes an m x k weight of which about a share of the groups is there.
func matrix(r *rand.Rand, m, k int, share float64) *tensor.Tensor {
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

func store(t *testing.T, w *tensor.Tensor) *ir.Store {
	t.Helper()
	parts, err := Format{}.Pack(w.To(tensor.F32), Config)
	if err != nil {
		t.Fatal(err)
	}
	s := &ir.Store{Format: "block8", Config: Config, Rows: w.Dim(0), Cols: w.Dim(1), Parts: parts}
	if err := (Format{}).Check(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUnpackIsTheInverseOfPackAndProductsAreThoseOfDense(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []int{0, 1, 5, 48, 70} {
		for _, k := range []int{1, 3, 4, 9, 64, 130, 1030, 2400} {
			w := matrix(r, m, k, 0.2)
			s := store(t, w)
			back, err := Format{}.Unpack(s)
			if err != nil || !back.Equal(w) {
				t.Fatalf("%d x %d comes back as another: %v", m, k, err)
			}
			b := dense8.New(w)
			x := make([]uint8, b.Groups()*ikernel.PanelRow)
			for i := range x {
				x[i] = uint8(r.Uint32())
			}
			got, want := make([]int32, m*ikernel.Columns), make([]int32, m*ikernel.Columns)
			b.Panel(want, x, ikernel.Columns, 0, m)
			for _, set := range ikernel.Available() {
				a, err := bind(s, set)
				if err != nil {
					t.Fatal(err)
				}
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

func FuzzCheck(f *testing.F) { formattest.Fuzz8(f, Format{}, Config) }

func TestHostileStoresAreRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 0))
	fresh := func() *ir.Store {
		s := store(t, matrix(r, 7, 30, 0.5))
		for i := range s.Parts {
			s.Parts[i].Data = s.Parts[i].Data.Clone()
		}
		return s
	}
	for name, spoil := range map[string]func(s *ir.Store){
		"another configuration":  func(s *ir.Store) { s.Config = "4x1" },
		"a part less":            func(s *ir.Store) { s.Parts = s.Parts[:2] },
		"a column too far":       func(s *ir.Store) { tensor.Data[uint16](s.Parts[1].Data)[2] = 8 },
		"columns out of order":   func(s *ir.Store) { d := tensor.Data[uint16](s.Parts[1].Data); d[0], d[1] = d[1], d[0] },
		"rows out of order":      func(s *ir.Store) { tensor.Data[uint32](s.Parts[0].Data)[3] = 1 << 30 },
		"rows that end early":    func(s *ir.Store) { tensor.Data[uint32](s.Parts[0].Data)[7]-- },
		"values of another type": func(s *ir.Store) { s.Parts[2].Data = s.Parts[2].Data.To(tensor.F32) },
		"more rows":              func(s *ir.Store) { s.Rows++ },
		"a negative size":        func(s *ir.Store) { s.Rows = -1 },
		"values outside": func(s *ir.Store) {
			cols, vals := tensor.Data[uint16](s.Parts[1].Data), tensor.Data[int8](s.Parts[2].Data)
			for i, c := range cols {
				if c == 7 { // columns 28 to 31 of 30
					vals[4*i+3] = 1
				}
			}
		},
	} {
		s := fresh()
		spoil(s)
		if (Format{}).Check(s) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
