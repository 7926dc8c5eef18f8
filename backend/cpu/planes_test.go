package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Convolutions with stored weights compute what their operator does: those of high
// blocks from strips of planes, others from gathered panels; alone and as the head of a
// cascade, whatever the strides, pads and sizes.
func TestStoredConvolutionsAgreeWithTheOperator(t *testing.T) {
	const seed = 40
	t.Logf("seed %d", seed)
	formats := [][2]string{{"csr", ""}, {"ell", "2x1"}, {"ell", "4x1"}, {"block", "8x1"}, {"block", "16x1"}, {"block", "4x4"}}
	strips := 0
	for round := range 90 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		f := formats[round%len(formats)]
		images, c, h, w := 1+r.IntN(3), 1+r.IntN(70), 1+r.IntN(20), 1+r.IntN(30)
		kh, kw, sh, sw := 1+r.IntN(4), 1+r.IntN(4), 1+r.IntN(2), 1+r.IntN(3)
		dh, dw := 1+r.IntN(2), 1+r.IntN(2)
		top, left, bottom, right := r.IntN(kh), r.IntN(kw), r.IntN(kh), r.IntN(kw)
		if round%5 == 0 { // taps that reach no pixel
			kh, kw, dh, dw = 3, 3, 1+r.IntN(24), 1+r.IntN(24)
			top, left, bottom, right = dh, dw, dh, dw
		}
		if h+top+bottom < (kh-1)*dh+1 || w+left+right < (kw-1)*dw+1 {
			continue
		}
		random := func(zeros bool, shape ...int) *tensor.Tensor {
			x := tensor.New(tensor.F32, shape...)
			for i := range x.F32s() {
				if !zeros || r.IntN(3) == 0 {
					x.F32s()[i] = float32(r.NormFloat64())
				}
			}
			return x
		}
		m := 1 + r.IntN(80)
		src := fmt.Sprintf(`graph "g"(%%x: f32[%d,%d,%d,%d], %%w: f32[%d,%d,%d,%d], %%v: f32[9,%d,1,1]) {
  %%y: f32[*] = Conv "c" (%%x, %%w) {strides = [%d, %d], dilations = [%d, %d], pads = [%d, %d, %d, %d], spc_act = "Relu"}
  %%z: f32[*] = Conv "d" (%%y, %%v) {strides = [1, 1]}
  return %%z, %%y
}`, images, c, h, w, m, c, kh, kw, m, sh, sw, dh, dw, top, left, bottom, right)
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatalf("%v in %s", err, src)
		}
		in, weight, second := random(false, images, c, h, w), random(true, m, c, kh, kw), random(false, 9, m, 1, 1)
		for i, constant := range []*tensor.Tensor{weight, second} {
			g.Inputs[1+i].Const = constant
		}
		g.Inputs = g.Inputs[:1]
		if err := g.Infer(); err != nil {
			t.Fatalf("%v in %s", err, src)
		}
		want, err := ref.Run(context.Background(), g, []*tensor.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range g.WeightUses() {
			if use.Value.Const != weight {
				continue
			}
			mat := use.View.Matrix(weight)
			parts, err := format.Lookup(f[0]).Pack(mat, f[1])
			if err != nil {
				t.Fatal(err)
			}
			use.Value.Store = &ir.Store{Format: f[0], Config: f[1], View: use.View, Rows: mat.Dim(0), Cols: mat.Dim(1), Parts: parts}
			use.Value.Const = nil
		}
		dev, err := Device{}.Load(g, backend.Options{Threads: 1 + round%2})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := run(context.Background(), dev, []*tensor.Tensor{in})
			if err != nil {
				t.Fatalf("%v in %s", err, src)
			}
			for i := range want {
				var diff, size float64
				for j, w := range want[i].F32s() {
					d := float64(got[i].F32s()[j]) - float64(w)
					diff, size = diff+d*d, size+float64(w)*float64(w)
				}
				if !(diff <= 1e-10*size) {
					t.Fatalf("%v, output %d: relative l2 error %g in %s", f, i, math.Sqrt(diff/size), src)
				}
			}
		}
		s, err := dev.(*program).specialise([]*tensor.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		if l := s.main.steps[0].link(); l != nil {
			if p, ok := l.loader.(*planes); ok && p.strip != nil {
				strips++
			}
		}
		dev.Close()
	}
	if strips < 20 {
		t.Errorf("%d convolutions from strips", strips)
	}
}
