package ir_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// TestGridCodes encodes and decodes matrices of a grid, as they are and transposed, and wants no codes for others.
func TestGridCodes(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		bits := 4 << r.IntN(2)
		m, k, block := 1+r.IntN(5), 1+r.IntN(70), ir.GridBlock<<r.IntN(3)
		blocks := (k + block - 1) / block
		g := &ir.Grid{Bits: bits, Axis: 1, Block: block}
		least, most := g.Codes()
		scales, zeros, codes, want := make([]float32, m*blocks), make([]int8, m*blocks), make([]int8, m*k), make([]float32, m*k)
		for i := range scales {
			scales[i] = float32(r.NormFloat64())
			zeros[i] = int8(least + r.IntN(most-least+1))
		}
		for i := range codes {
			codes[i] = int8(least + r.IntN(most-least+1))
			b := i/k*blocks + i%k/block
			want[i] = (float32(codes[i]) - float32(zeros[b])) * scales[b]
		}
		g.Scales, g.Zeros = tensor.From(scales, m, blocks), tensor.From(zeros, m, blocks)
		if err := g.Check([]int{m, k}); err != nil {
			t.Fatal(err)
		}
		w := tensor.From(want, m, k)
		at := g.Permute(1, 0).Matrix(ir.View{Perm: []int{1, 0}, RowAxes: 1}, []int{k, m})
		if at == nil {
			t.Fatal("no grid of the transposed weight's view")
		}
		back := at.Tensor(ir.View{Perm: []int{1, 0}, RowAxes: 1}, []int{k, m}).Permute(1, 0)
		for _, g := range []*ir.Grid{g, at, back} {
			got, ok := g.Encode(w)
			if !ok || !slices.Equal(tensor.Data[int8](got), codes) {
				t.Fatalf("seed %d: codes %v, want %v", seed, got, codes)
			}
			if back := g.Decode(got).F32s(); !slices.Equal(back, want) {
				t.Fatalf("seed %d: %v, want %v", seed, back, want)
			}
		}
		if g.Matrix(ir.View{Perm: []int{1, 0}, RowAxes: 1}, []int{m, k}) != nil {
			t.Fatal("a grid of a matrix whose blocks lie along M")
		}
		want[r.IntN(m*k)] += 0.3 * scales[0]
		want[r.IntN(m*k)] = 1e30
		if _, ok := g.Encode(w); ok {
			t.Fatalf("seed %d: codes of what is no multiple of the scale", seed)
		}
	}
}

// TestGridCheck names what is wrong with a grid.
func TestGridCheck(t *testing.T) {
	scales := tensor.From(make([]float32, 6), 3, 2)
	for _, g := range []ir.Grid{
		{Bits: 3, Axis: 1, Block: 32, Scales: scales},
		{Bits: 4, Axis: 2, Block: 32, Scales: scales},
		{Bits: 4, Axis: 1, Block: 8, Scales: scales},
		{Bits: 4, Axis: 1, Block: 64, Scales: scales},
		{Bits: 4, Axis: 1, Block: 32},
		{Bits: 4, Axis: 1, Block: 32, Scales: scales.To(tensor.BF16)},
		{Bits: 4, Axis: 1, Block: 32, Scales: scales, Zeros: scales},
	} {
		if err := g.Check([]int{3, 40}); err == nil {
			t.Errorf("%+v suits [3,40]", g)
		}
	}
	if err := (&ir.Grid{Bits: 4, Axis: 1, Block: 32, Scales: scales}).Check([]int{3, 40}); err != nil {
		t.Error(err)
	}
}
