package suite

import (
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/cuda"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// Pairs tests that a product takes of a weight in two forms the one for its columns.
func Pairs(t *testing.T, driver cuda.Driver) {
	text := `graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = WEIGHT
  %y: f32[n,2] = MatMul "fc" (%x, %w)
  return %y
}`
	stored := graphtest.Parse(t, strings.Replace(text, "WEIGHT", `stored "pair"("ell:1x1<3,dense") [1, 0] 1, 2 x 3 {first_columns = u16[2,1] {0, 2}, `+
		`first_values = f32[2,1,1] {1.5, -2.0}, second_values = f32[2,3] {1.5, 0.0, 0.0, 0.0, 0.0, -2.0}}`, 1))
	dense := graphtest.Parse(t, strings.Replace(text, "WEIGHT", "const {1.5, 0.0, 0.0, 0.0, 0.0, -2.0}", 1))
	d := &Counted{Driver: driver}
	p, err := cuda.Device{Driver: d, Precision: tensor.F32}.Load(stored, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	met := func(format string) (is bool) {
		d.kernels.Range(func(name, _ any) bool {
			is = is || strings.HasPrefix(name.(string), "f32_"+format)
			return true
		})
		return is || format == "dense" && d.products.Load() > 0 // where the device has a library, it computes dense products
	}
	for _, n := range []int{2, 1, 3, 40, 2} {
		in := []*tensor.Tensor{tensor.New(tensor.F32, n, 3)}
		for i := range in[0].F32s() {
			in[0].F32s()[i] = float32(i%7) - 2
		}
		var want []*tensor.Tensor
		if err := graphtest.Run(t.Context(), dense, one(in), func(out []*tensor.Tensor) error {
			want = slices.Clone(out)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		have := make([]*tensor.Tensor, 1)
		if err := p.Run(t.Context(), in, have); err != nil {
			t.Fatal(err)
		}
		if !have[0].Equal(want[0]) {
			t.Errorf("%d columns: %v, want %v", n, have[0].F32s(), want[0].F32s())
		}
		if n < 3 && !met("ell") || n == 1 && met("dense") || n >= 3 && !met("dense") {
			t.Errorf("%d columns: kernels of ell %v, of dense %v", n, met("ell"), met("dense"))
		}
	}
}
