package group_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend/format"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// random returns a weight [M,K] with a share of zeros, and its grid.
func random(r *rand.Rand, m, k int, g choose.Grid, zeros, sparsity bool) (*tensor.Tensor, *ir.Grid) {
	blocks := (k + g.Block - 1) / g.Block
	grid := &ir.Grid{Bits: g.Bits, Axis: 1, Block: g.Block}
	least, most := grid.Codes()
	scales := make([]float32, m*blocks)
	for i := range scales {
		scales[i] = float32(1+r.IntN(2000)) / 1024
	}
	grid.Scales = tensor.From(scales, m, blocks)
	if r.IntN(2) == 0 {
		grid.Scales = grid.Scales.To(tensor.F16)
	}
	if zeros {
		z := make([]int8, m*blocks)
		for i := range z {
			z[i] = int8(least + r.IntN(most-least+1))
		}
		grid.Zeros = tensor.From(z, m, blocks)
	}
	codes := make([]int8, m*k)
	for i := range codes {
		if codes[i] = int8(least + r.IntN(most-least+1)); sparsity && r.IntN(3) > 0 {
			codes[i] = 0
		}
	}
	return grid.Decode(tensor.From(codes, m, k)), grid
}

// TestStores packs weights on grids in the formats that have codes of them, and gets them back bit by bit from as many bytes as the layout says.
func TestStores(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	packed := map[string]int{}
	for range 400 {
		m, k := 1+r.IntN(6), 1+r.IntN(200)
		conf := choose.Grid{Bits: 4 << r.IntN(2), Block: 16 << r.IntN(4)}
		w, grid := random(r, m, k, conf, r.IntN(2) == 0, r.IntN(2) == 0)
		matrix := choose.NewMatrix(w, "")
		matrix.Grid = grid
		for _, name := range []string{"dense", "bitmap"} {
			f := format.Lookup(name)
			for _, l := range f.Layouts(matrix) {
				what := fmt.Sprintf("seed %d: %d x %d as %s:%s", seed, m, k, name, l.Config)
				parts, err := f.PackGrid(w, grid, l.Config)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				s := &ir.Store{Format: name, Config: l.Config, View: ir.View{RowAxes: 1}, Rows: m, Cols: k, Parts: parts}
				if s.Bytes() != l.Bytes {
					t.Errorf("%s takes %d bytes, the layout says %d", what, s.Bytes(), l.Bytes)
				}
				if err := format.Check(s, ir.TypeOf(w)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				back, err := f.Unpack(s)
				if err != nil || !slices.Equal(back.F32s(), w.F32s()) {
					t.Errorf("%s is unpacked as another: %v", what, err)
				}
				packed[name]++
				damage(t, r, what, s, ir.TypeOf(w))
			}
		}
		if w.F32s()[0] *= 1.001; w.F32s()[0] != 0 {
			if _, err := format.Lookup("dense").PackGrid(w, grid, conf.String()); !errors.Is(err, choose.ErrFit) {
				t.Errorf("an element beside the grid: %v", err)
			}
		}
	}
	if packed["dense"] < 300 || packed["bitmap"] < 100 {
		t.Errorf("%v stores", packed)
	}
}

// TestScalesAreFinite: with another, elements of a bitmap that are not stored would be 0 or NaN.
func TestScalesAreFinite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for _, name := range []string{"dense", "bitmap"} {
		for _, half := range []bool{false, true} {
			f := format.Lookup(name)
			w, grid := random(r, 3, 70, choose.Grid{Bits: 4, Block: 32}, false, true)
			grid.Scales = grid.Scales.To(tensor.F32)
			if half {
				grid.Scales = grid.Scales.To(tensor.F16)
				codes := tensor.New(tensor.I8, 3, 70)
				copy(tensor.Data[int8](codes)[1:], []int8{5, 0, -8})
				w = grid.Decode(codes)
			}
			parts, err := f.PackGrid(w, grid, "int4x32")
			if err != nil {
				t.Fatal(err)
			}
			s := &ir.Store{Format: name, Config: "int4x32", View: ir.View{RowAxes: 1}, Rows: 3, Cols: 70, Parts: parts}
			if err := format.Check(s, ir.TypeOf(w)); err != nil {
				t.Fatal(err)
			}
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				scales := slices.Clone(s.Part("scales").To(tensor.F32).F32s())
				scales[4] = float32(bad)
				broken := *s
				broken.Parts = slices.Clone(s.Parts)
				i := slices.IndexFunc(s.Parts, func(p ir.Part) bool { return p.Name == "scales" })
				broken.Parts[i].Data = tensor.From(scales, 3, 3).To(s.Part("scales").DType())
				if err := format.Check(&broken, ir.TypeOf(w)); err == nil || !strings.Contains(err.Error(), "scale 4 is ") {
					t.Errorf("%s with a scale %v: %v", name, bad, err)
				}
			}
		}
	}
}

// damage changes a byte of a part, or leaves a part out, and wants an error or a store that can be unpacked.
func damage(t *testing.T, r *rand.Rand, what string, s *ir.Store, typ ir.Type) {
	t.Helper()
	bad := *s
	i := r.IntN(len(s.Parts))
	bad.Parts = slices.Delete(slices.Clone(s.Parts), i, i+1)
	if s.Parts[i].Name != "zeros" && format.Check(&bad, typ) == nil {
		t.Errorf("%s without %s is taken", what, s.Parts[i].Name)
	}
	bad.Parts = slices.Clone(s.Parts)
	if at := slices.IndexFunc(s.Parts, func(p ir.Part) bool { return p.Name == "scales" }); r.IntN(4) == 0 {
		scales := slices.Clone(s.Parts[at].Data.To(tensor.F32).F32s())
		scales[r.IntN(len(scales))] = float32(math.Inf(1))
		bad.Parts[at].Data = tensor.From(scales, s.Parts[at].Data.Shape()...)
		if format.Check(&bad, typ) == nil {
			t.Errorf("%s with an infinite scale is taken", what)
		}
		bad.Parts = slices.Clone(s.Parts)
	}
	data := slices.Clone(s.Parts[i].Data.Bytes())
	data[r.IntN(len(data))] ^= 1 << r.IntN(8)
	part, err := tensor.FromBytes(s.Parts[i].Data.DType(), s.Parts[i].Data.Shape(), data)
	if err != nil {
		t.Fatal(err)
	}
	bad.Parts[i].Data = part
	if format.Check(&bad, typ) == nil {
		if _, err := format.Lookup(s.Format).Unpack(&bad); err != nil {
			t.Errorf("%s with another %s is checked, but: %v", what, s.Parts[i].Name, err)
		}
	}
}
