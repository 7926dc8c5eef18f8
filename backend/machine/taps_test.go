package machine

import (
	"math"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// dilated is a weight of 32 rows that is moved over an image of 12 x 12 with c channels and as many zeros around it as the dilation.
func dilated(c, dilation int) *choose.Matrix {
	w := choose.NewMatrix(tensor.New(tensor.F32, 32, c*9), "")
	d, n := []int{dilation, dilation}, []ir.Dim{ir.Size(12), ir.Size(12)}
	w.Slide = &ir.Slide{Kernel: []int{3, 3}, Stride: []int{1, 1}, Dilation: d, Begin: d, Images: ir.Size(1), Out: n, In: n}
	return w
}

func TestTapsThatReachLittle(t *testing.T) {
	for _, c := range []struct {
		w             *choose.Matrix
		dense, sparse int // taps, 0 where a convolution is computed whole
	}{
		{dilated(256, 1), 0, 0},
		{dilated(256, 2), 0, 0},   // 32*32 of 36*36 pairs
		{dilated(1024, 9), 9, 0},  // 18*18 of 36*36
		{dilated(1024, 12), 1, 1}, // the one in the middle
		{dilated(4, 12), 0, 0},    // which saves too little
	} {
		for _, k := range []struct {
			dense bool
			want  int
		}{{true, c.dense}, {false, c.sparse}} {
			got, ok := TapsOf(c.w, k.dense)
			if ok != (k.want > 0) || got.count != k.want {
				t.Errorf("%v, dense %v: %d taps, %v, want %d", c.w.Slide.Dilation, k.dense, got.count, ok, k.want)
			}
		}
	}
	open := dilated(1024, 12)
	open.Slide.In = nil
	if _, ok := TapsOf(open, true); ok {
		t.Error("padding that is not known leaves out taps")
	}
}

// The work of one tap of nine is counted by hand: its columns of W, for all pixels, which fill granules.
func TestWorkOfTaps(t *testing.T) {
	p := *Default
	p.Images = Images{Near: 1, Farther: 3, Row: 2}
	taps, _ := TapsOf(dilated(1024, 12), true)
	k := p.Of(Dense).Panels()
	work, got := p.ByTap(taps, k, 32*9*1024, 32)
	if want := 2 * 32 * 1024 * 144.; work != want {
		t.Errorf("%v operations, want %v", work, want)
	}
	want := work/k.Efficiency(1024, 1024, 144) + 3*2*1024*144 + 2*PieceProducts
	if math.Abs(got-want) > 1e-6*want {
		t.Errorf("%v at the peak, want %v", got, want)
	}
}
