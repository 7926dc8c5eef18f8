package quant_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/quant"
	"spc/tests/graphtest"
)

const halves = `graph "g"(%x: f32[n,2]) {
  %w: f32[2,2] = const {0.1, -3.14159, 1e-9, 1000.1}
  %v: f32[2,2] = const {1, 2, 3, 70000}
  %t: f32[2,2] = const {0.3, 0, 0.7, 1}
  %k: f32[2,2] = const {0.1, 0.2, 0.3, 0.4}
  %a: f32[n,2] = MatMul "a" (%x, %w)
  %b: f32[n,2] = MatMul "b" (%a, %v)
  %c: f32[n,2] = MatMul "c" (%b, %t)
  %d: f32[n,2] = MatMul "d" (%c, %t)
  %e: f32[n,2] = MatMul "e" (%d, %k)
  return %e
}`

// weights returns the constants of g by name.
func weights(g *ir.Graph) map[string]*tensor.Tensor {
	out := map[string]*tensor.Tensor{}
	for _, v := range g.Constants() {
		out[v.Name] = v.Const
	}
	return out
}

func TestHalfRoundsWeights(t *testing.T) {
	before := weights(graphtest.Parse(t, halves))
	for dt, want := range map[tensor.DType][]float32{
		tensor.F16:  {0.099975586, -3.140625, 0, 1000},
		tensor.BF16: {0.10009766, -3.140625, 9.968062e-10, 1000},
	} {
		for _, portable := range []bool{false, true} {
			g := graphtest.Parse(t, halves)
			r, err := quant.Run(context.Background(), g, quant.Options{Type: dt, KeepFloat: globs(t, "e"), Portable: portable})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Verify(); err != nil {
				t.Fatalf("%v in\n%s", err, g)
			}
			after := weights(g)
			for i, v := range after["w"].To(tensor.F32).F32s() {
				if math.Abs(float64(v-want[i])) > 1e-6*math.Abs(float64(want[i])) {
					t.Errorf("%v: element %d of w is %v, want %v", dt, i, v, want[i])
				}
			}
			for _, name := range []string{"t", "k"} { // read twice, and kept
				if after[name].DType() != tensor.F32 || after[name].F32s()[0] != before[name].F32s()[0] {
					t.Errorf("%v: %s is %v, want it as it was", dt, name, after[name])
				}
			}
			const twice = "c: the weight is read more than once; d: the weight is read more than once; e: kept by e"
			products, why := 2, twice
			if dt == tensor.F16 {
				products, why = 1, "b: an element is 7e+04, too large for f16; "+twice
			}
			var kept []string
			for _, k := range r.Kept {
				kept = append(kept, k.Node+": "+k.Why)
			}
			if got := strings.Join(kept, "; "); r.Products != products || got != why || r.Type != dt.String() {
				t.Errorf("%v: %d weights of %s, kept %s; want %d, kept %s", dt, r.Products, r.Type, got, products, why)
			}
			if stored := after["w"].DType(); portable && stored != dt || !portable && stored != tensor.F32 {
				t.Errorf("portable %v: w is %v", portable, stored)
			}
			x := tensor.From([]float32{1, 2}, 1, 2)
			y, err := (&ref.Interpreter{}).Run(context.Background(), g, []*tensor.Tensor{x})
			if err != nil {
				t.Fatal(err)
			}
			z, err := (&ref.Interpreter{}).Run(context.Background(), graphtest.Parse(t, halves), []*tensor.Tensor{x})
			if err != nil {
				t.Fatal(err)
			}
			if d := graphtest.Difference(y[0], z[0]); d > 0.01 {
				t.Errorf("%v: outputs differ by %g", dt, d)
			}
		}
	}
}

// A weight of which rounding would leave nothing, or few digits, stays as it is.
func TestHalfKeepsTinyWeights(t *testing.T) {
	for w, kept := range map[string]string{
		"1e-9, -2e-9, 3e-9, 4e-9":     "its elements are too small for f16, which would change it by 100%",
		"1e-7, 2e-7, -1e-7, 1.5e-7":   "its elements are too small for f16, which would change it by 16%",
		"1e-9, 2e-9, 0.5, 1e-9":       "", // what is lost is small beside what is not
		"0, 0, 0, 0":                  "",
		"1e-4, -2e-4, 3.3e-4, 4.4e-4": "",
	} {
		g := graphtest.Parse(t, `graph "g"(%x: f32[n,2]) {
  %w: f32[2,2] = const {`+w+`}
  %y: f32[n,2] = MatMul "y" (%x, %w)
  return %y
}`)
		before := slices.Clone(weights(g)["w"].F32s())
		r, err := quant.Run(t.Context(), g, quant.Options{Type: tensor.F16})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case kept == "":
			if r.Products != 1 || len(r.Kept) > 0 {
				t.Errorf("%s: kept: %v", w, r.Kept)
			}
		case len(r.Kept) != 1 || r.Kept[0].Why != kept || !slices.Equal(weights(g)["w"].F32s(), before):
			t.Errorf("%s: kept %v, want %q; it is %v", w, r.Kept, kept, weights(g)["w"].F32s())
		}
	}
}
