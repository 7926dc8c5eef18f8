package quant_test

import (
	"math"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir/tensor"
	"spc/passes/quant"
	"spc/tests/graphtest"
)

// 127 steps do not hold the rows of the weight exactly, and the rows differ by far in size.
const depthwise = `graph "g"(%x: f32[1,3,4,4]) {
  %w: f32[3,1,2,2] = const {1, -0.7, 0.313, 0.01, 20, 7.77, -13.1, 3, 0.02, 0.0333, -0.011, 0.017}
  %y: f32[1,3,2,2] = Conv "d" (%x, %w) {group = 3, strides = [2, 2]}
  return %y
}`

// Pixels are whole steps of the range, each window sees one number, and the channels have other means: what is off is the weight's rounding, whose
// mean the bias makes up for if it is that of the right channel.
func TestDepthwiseConvolutionsAreQuantisedWhereTheyHaveKernels(t *testing.T) {
	x := tensor.New(tensor.F32, 1, 3, 4, 4)
	for i := range x.F32s() {
		c, window := i/16, i/8%2*2+i/2%2
		x.F32s()[i] = float32([]int{0, 7, 30, 19, 255, 180, 201, 222, 90, 91, 17, 60}[4*c+window])
	}
	for _, has := range []bool{false, true} {
		g := graphtest.Parse(t, depthwise)
		float := g.Clone()
		r, err := quant.Insert(t.Context(), g, quant.Options{Observer: observer(x), Ranges: quant.Ranges{Method: quant.MinMax}, Depthwise: has, All: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := quant.Products(g, has); err != nil {
			t.Fatal(err)
		}
		want := "QuantizeLinear:u8 Conv:f32"
		if !has {
			want = "Conv:f32"
			if len(r.Kept) != 1 || r.Kept[0].Node != "d" || !strings.Contains(r.Kept[0].Why, "3 groups") {
				t.Errorf("kept %+v, want d for its groups", r.Kept)
			}
		}
		if got := kinds(g); got != want {
			t.Errorf("%s, want %s in\n%s", got, want, g)
		}
		it := &ref.Interpreter{}
		y, err := it.Run(t.Context(), g, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		z, err := it.Run(t.Context(), float, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		for c := range 3 {
			most, mean, step := 0.0, 0.0, []float64{1, 20, 0.0333}[c]/127
			for i := range 4 {
				d := float64(y[0].F32s()[4*c+i] - z[0].F32s()[4*c+i])
				most, mean = max(most, math.Abs(d)), mean+d/4
			}
			if most > 4*step/2*255 || math.Abs(mean) > 1e-3*step*255 || has == (most == 0) {
				t.Errorf("kernels %v, channel %d: off by at most %v, %v in the mean", has, c, most, mean)
			}
		}
	}
}

func TestOnlySomeWeightsAreQuantisedWhereThatIsAsked(t *testing.T) {
	g := graphtest.Parse(t, chain)
	r, err := quant.Insert(t.Context(), g, quant.Options{Observer: observer(ramp(32, 1, 2, 4, 4)), All: true, Only: map[string]bool{"w1": true}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Products != 1 || len(r.Kept) != 2 || r.Kept[0].Weight != "w2" || r.Kept[0].Why != quant.LeftOut {
		t.Errorf("%+v, want one product, and two that are left out", r)
	}
}
