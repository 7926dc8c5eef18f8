package spc

import (
	"math"
	"math/rand/v2"
	"testing"
)

// In nine of ten experiments the bound is above the mean that samples are drawn with.
func TestBoundsCoverTheTrueDrop(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	for _, c := range []struct {
		n            int
		worse, other float64 // probabilities that only the dense model is right, and only the other
	}{{500, 0.02, 0.01}, {500, 0.06, 0.05}, {2500, 0.03, 0.01}, {200, 0.01, 0.01}, {500, 0.004, 0}} {
		covered := 0
		const experiments = 4000
		for range experiments {
			dense, model := make([]float64, c.n), make([]float64, c.n)
			for i := range dense {
				switch x := rng.Float64(); {
				case x < c.worse:
					dense[i] = 100
				case x < c.worse+c.other:
					model[i] = 100
				}
			}
			d, err := dropOf(dense, model, rightOrWrong)
			if err != nil {
				t.Fatal(err)
			}
			if d.Bound >= 100*(c.worse-c.other) {
				covered++
			}
		}
		share := float64(covered) / experiments
		if share < 0.87 || share > 0.97 && c.other > 0 {
			t.Errorf("%+v: the bound covers %.3f, want 0.9", c, share)
		}
	}
	d, err := dropOf([]float64{100, 0, 100, 100}, []float64{100, 100, 0, 0}, rightOrWrong)
	if err != nil || d.Points != 25 || d.Dense != 75 || d.N != 4 || !(d.Bound > 25) {
		t.Errorf("%+v, %v", d, err)
	}
	for _, c := range [][2][]float64{{nil, nil}, {{1}, {1, 2}}} {
		if _, err := dropOf(c[0], c[1], 0); err == nil {
			t.Errorf("%v are compared", c)
		}
	}
	if d, err := dropOf(make([]float64, 100), []float64(nil), 0); err == nil {
		t.Errorf("%+v", d)
	}
	if d, _ := dropOf([]float64{0, 0}, []float64{math.NaN(), math.Inf(-1)}, 0); !(d.Bound >= d.Points) || math.IsInf(d.Bound, 0) {
		t.Errorf("%+v", d)
	}
}
