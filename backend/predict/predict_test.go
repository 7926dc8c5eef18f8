package predict

import (
	"math"
	"testing"

	"spc/backend/machine"
	"spc/passes/choose"
)

func TestPredictIsBoundByWorkOrByBytes(t *testing.T) {
	a := Analytic{Peak: 1e9, Bandwidth: 1e6, Cache: 400}
	c := choose.Cost{Work: 2e6, Efficiency: 0.5, Bytes: 8000}
	for _, x := range []struct {
		m, k int
		want float64
	}{{10, 10, 4e-3}, {10, 11, 8e-3}} {
		if s, peak := a.Predict(c, x.m, x.k, 1); s != x.want || peak != a.Peak {
			t.Errorf("%d x %d: %v s of %v, want %v", x.m, x.k, s, peak, x.want)
		}
	}
	c.Bytes = 100
	if s, _ := a.Predict(c, 10, 11, 1); s != 4e-3 {
		t.Errorf("%v s, want what the work takes", s)
	}
	// What is multiplied again and again is bound by the bytes that do not fit the cache.
	for bytes, want := range map[int]float64{800: 4e-3, 8000: 8e-3} {
		c.Bytes, c.Again = bytes, true
		if s, _ := a.Predict(c, 100, 100, 1); s != want {
			t.Errorf("%d bytes, again: %v s, want %v", bytes, s, want)
		}
	}
	// Weights that do not fit the cache together come from the next one, however small, where it is known how fast.
	cold, small := Analytic{Peak: 1e9, Bandwidth: 1e6, Cache: 4000, Next: machine.Level{Bytes: 9000, Bandwidth: 4e6}}, choose.Cost{Work: 2e3, Efficiency: 0.5, Bytes: 800}
	for _, x := range []struct {
		cold  float64
		total int
		want  float64
	}{{0, 8000, 4e-6}, {2e6, 4000, 4e-6}, {2e6, 4001, 4e-4}, {2e6, 9001, 8e-4}} {
		cold.Cold, small.Total = x.cold, x.total
		if s, _ := cold.Predict(small, 10, 10, 1); math.Abs(s-x.want) > 1e-12 {
			t.Errorf("%+v: %v s", x, s)
		}
	}
	// Weights that all fit into the next cache come from there.
	a.Next, c = machine.Level{Bytes: 9000, Bandwidth: 4e6}, choose.Cost{Work: 2e3, Efficiency: 0.5, Bytes: 8000}
	for total, want := range map[int]float64{0: 8e-3, 9000: 2e-3, 9001: 8e-3} {
		c.Total = total
		if s, _ := a.Predict(c, 10, 11, 1); s != want {
			t.Errorf("%d bytes of weights: %v s, want %v", total, s, want)
		}
	}
}
