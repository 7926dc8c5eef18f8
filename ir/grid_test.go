package ir_test

import (
	"math"
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
		if m*k > 1 && g.Matrix(ir.View{Perm: []int{1, 0}, RowAxes: 1}, []int{m, k}) != nil {
			t.Fatal("a grid of a matrix whose blocks lie along M")
		}
		{
			bad := *g
			scales := slices.Clone(scales)
			scales[r.IntN(len(scales))] = float32(math.NaN())
			bad.Scales = tensor.From(scales, m, blocks)
			if _, ok := bad.Encode(tensor.New(tensor.F32, m, k)); ok {
				t.Fatal("codes with a scale that is no number")
			}
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
		{Bits: 4, Axis: 1, More: 1, Block: 32, Scales: scales},
		{Bits: 4, More: -1, Axis: 1, Block: 32, Scales: scales},
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

// TestGridViews takes the grid of a matrix to weights of other shapes and orders of axes, whose elements it is to be that of, and back.
func TestGridViews(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct {
		view  ir.View
		shape []int
	}{
		{ir.View{RowAxes: 1}, []int{3, 70}},
		{ir.View{RowAxes: 1}, []int{1, 70}},
		{ir.View{Perm: []int{1, 0}, RowAxes: 1}, []int{70, 3}},
		{ir.View{RowAxes: 1}, []int{3, 40, 1, 1}},
		{ir.View{RowAxes: 1}, []int{3, 8, 3, 3}},
		{ir.View{Perm: []int{1, 2, 0, 3}, RowAxes: 2}, []int{5, 3, 2, 7}},
		{ir.View{Perm: []int{1, 0, 2, 3}, RowAxes: 1}, []int{1, 3, 5, 9}},
	} {
		m, k := c.view.Dims(c.shape)
		blocks := (k + 15) / 16
		scales := make([]float32, m*blocks)
		for i := range scales {
			scales[i] = float32(1 + i)
		}
		g := &ir.Grid{Bits: 4, Axis: 1, Block: 16, Scales: tensor.From(scales, m, blocks)}
		codes := make([]int8, m*k)
		for i := range codes {
			codes[i] = int8(r.IntN(16) - 8)
		}
		w := g.Decode(tensor.From(codes, m, k))
		weight := c.view.Tensor(w, c.shape)
		at := g.Tensor(c.view, c.shape)
		if c.view.Perm != nil && len(c.shape) > 2 && c.shape[0] > 1 { // the axes of blocks do not stay together
			if at != nil {
				t.Errorf("%v of %v: a grid of axes that others lie between", c.view, c.shape)
			}
			continue
		}
		if at == nil || at.Check(c.shape) != nil {
			t.Fatalf("%v of %v: grid %+v", c.view, c.shape, at)
		}
		back := at.Matrix(c.view, c.shape)
		factors := make([]float64, m)
		for i := range factors {
			factors[i] = r.NormFloat64()
		}
		if rows := c.view.Perm; rows == nil || len(rows) == 2 {
			axis := 0
			if rows != nil {
				axis = rows[0]
			}
			scaled, grid := at.Scaled(weight, axis, factors)
			if got, ok := grid.Matrix(c.view, c.shape).Encode(c.view.Matrix(scaled)); !ok || !slices.Equal(tensor.Data[int8](got), codes) {
				t.Errorf("seed %d: %v of %v: other codes of scaled rows", seed, c.view, c.shape)
			}
			for i, v := range c.view.Matrix(scaled).F32s() {
				if want := float64(w.F32s()[i]) * factors[i/k]; math.Abs(float64(v)-want) > 1e-6*math.Abs(want) {
					t.Fatalf("seed %d: %v is %v, want %v", seed, c.view, v, want)
				}
			}
			if s, _ := at.Scaled(weight, at.Axis, []float64{1}); s != nil {
				t.Error("blocks are scaled along themselves")
			}
		}
		if back == nil || !slices.Equal(back.Scales.F32s(), scales) {
			t.Fatalf("%v of %v: %+v, want the scales that there were", c.view, c.shape, back)
		}
		if got, ok := back.Encode(c.view.Matrix(weight)); !ok || !slices.Equal(tensor.Data[int8](got), codes) {
			t.Errorf("seed %d: %v of %v: codes %v, want %v", seed, c.view, c.shape, got, codes)
		}
	}
	g := &ir.Grid{Bits: 4, Axis: 1, More: 1, Block: 16, Scales: tensor.From(make([]float32, 6), 3, 2)}
	if g.Reshape([]int{3, 4, 8}, []int{6, 16}) != nil || g.Reshape([]int{3, 4, 8}, []int{96}) != nil {
		t.Error("a grid of blocks that rows cut")
	}
}

// TestGridScaled scales weights of one to three axes along another than that of their blocks, and wants each element near the product, and on the grid.
func TestGridScaled(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		m, k, block := 1+r.IntN(5), 1+r.IntN(70), ir.GridBlock<<r.IntN(2)
		g := &ir.Grid{Bits: 8, Axis: 1, Block: block}
		scales, codes := make([]float32, m*((k+block-1)/block)), make([]int8, m*k)
		for i := range scales {
			scales[i] = float32(1+r.IntN(60)) / 64
		}
		for i := range codes {
			codes[i] = int8(r.IntN(256) - 128)
		}
		if g.Scales = tensor.From(scales, m, len(scales)/m); r.IntN(2) == 0 {
			g.Scales = g.Scales.To(tensor.F16)
		}
		w := g.Decode(tensor.From(codes, m, k))
		factors := make([]float64, m)
		for i := range factors {
			factors[i] = []float64{0.5, 2, r.NormFloat64()}[r.IntN(3)]
		}
		view, shape := ir.View{RowAxes: 1}, []int{m, k}
		axis := 0
		if r.IntN(2) == 0 { // blocks along the first axis
			w, g = w.Permute(1, 0), g.Permute(1, 0)
			view.Perm, shape, axis = []int{1, 0}, []int{k, m}, 1
		}
		if _, g := g.Scaled(w, 1-axis, make([]float64, k)); g != nil {
			t.Fatal("scaled along blocks")
		}
		got, scaled := g.Scaled(w, axis, factors)
		if scaled == nil {
			t.Fatalf("seed %d: no grid", seed)
		}
		at := scaled.Matrix(view, shape)
		if _, ok := at.Encode(view.Matrix(got)); !ok || at.Check([]int{m, k}) != nil {
			t.Fatalf("seed %d: an element is not on the grid", seed)
		}
		for i, v := range view.Matrix(got).F32s() {
			if want := float64(view.Matrix(w).F32s()[i]) * factors[i/k]; math.Abs(float64(v)-want) > 3e-7*math.Abs(want) {
				t.Fatalf("seed %d: element %d is %g, want %g", seed, i, v, want)
			}
		}
	}
}
