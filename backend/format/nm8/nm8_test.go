package nm8

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/format/formattest"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// matrix makes an m x k weight of which each group has at most two elements that are not zero.
func matrix(r *rand.Rand, m, k int) *tensor.Tensor {
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

func store(t *testing.T, w *tensor.Tensor) *ir.Store {
	t.Helper()
	parts, err := Format{}.Pack(w.To(tensor.F32), Config)
	if err != nil {
		t.Fatal(err)
	}
	s := &ir.Store{Format: "nm8", Config: Config, Rows: w.Dim(0), Cols: w.Dim(1), Parts: parts}
	if err := (Format{}).Check(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUnpackIsTheInverseOfPack(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []int{0, 1, 5, 48} {
		for _, k := range []int{1, 2, 3, 4, 9, 64, 130} {
			w := matrix(r, m, k)
			s := store(t, w)
			if back, err := (Format{}).Unpack(s); err != nil || !back.Equal(w) {
				t.Fatalf("%d x %d comes back as another: %v", m, k, err)
			}
			kernel, err := Format{}.Kernel(s)
			if err != nil {
				t.Fatal(err)
			}
			sums := make([]int32, m)
			for i, v := range tensor.Data[int8](w) {
				sums[i/k] += int32(v)
			}
			if !slices.Equal(kernel.Sums(), sums) {
				t.Fatalf("%d x %d: other sums of rows", m, k)
			}
			if costs := (Format{}).Costs(choose.NewMatrix(w.To(tensor.F32), ""), 8); m > 0 && (len(costs) != 1 || costs[0].Bytes != s.Bytes()) {
				t.Fatalf("%d x %d: %d bytes stored, but costs %+v", m, k, s.Bytes(), costs)
			}
		}
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	w := tensor.From([]float32{1, 0, 2, 3, 4, 5, 0, 0}, 1, 8)
	if _, err := (Format{}).Pack(w, Config); err == nil {
		t.Error("3 of 4 were packed")
	}
	if costs := (Format{}).Costs(choose.NewMatrix(w, ""), 8); len(costs) != 0 {
		t.Errorf("3 of 4 are offered: %+v", costs)
	}
	for _, v := range []float32{0.5, 128, -129} {
		if _, err := (Format{}).Pack(tensor.From([]float32{v}, 1, 1), Config); err == nil {
			t.Errorf("%v was packed", v)
		}
	}
	if _, err := (Format{}).Pack(tensor.From([]float32{1}, 1, 1), "1:4"); err == nil {
		t.Error("another configuration was packed")
	}
}

// trimmed packs the first two elements of each group, so that any weight suits.
type trimmed struct{ Format }

func (f trimmed) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	w = w.Clone()
	for r := range w.Dim(0) {
		row := w.F32s()[r*w.Dim(1) : (r+1)*w.Dim(1)]
		for group := range slices.Chunk(row, group) {
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
	return f.Format.Pack(w, config)
}

func FuzzCheck(f *testing.F) { formattest.Fuzz8(f, trimmed{}, Config) }

func TestHostileStoresAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(s *ir.Store){
		"another configuration":  func(s *ir.Store) { s.Config = "1:4" },
		"a part less":            func(s *ir.Store) { s.Parts = s.Parts[:1] },
		"equal places":           func(s *ir.Store) { s.Parts[1].Data.Bytes()[3] = 1 | 1<<2 },
		"places that descend":    func(s *ir.Store) { s.Parts[1].Data.Bytes()[3] = 2 | 1<<2 },
		"a place too far":        func(s *ir.Store) { s.Parts[1].Data.Bytes()[3] = 1 | 4<<2 },
		"values of another type": func(s *ir.Store) { s.Parts[0].Data = s.Parts[0].Data.To(tensor.F32) },
		"more rows":              func(s *ir.Store) { s.Rows++ },
		"a negative size":        func(s *ir.Store) { s.Rows = -1 },
		"values outside": func(s *ir.Store) { // columns 28 to 31 of 30
			s.Parts[1].Data.Bytes()[7] = 2 | 3<<2
			tensor.Data[int8](s.Parts[0].Data)[2*7+1] = 1
		},
	} {
		s := store(t, matrix(rand.New(rand.NewPCG(6, 0)), 7, 30))
		spoil(s)
		if (Format{}).Check(s) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
