package suite

import (
	"math"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/cuda"
	"spc/ir/tensor"
)

// Reductions tests both kernels that join the rows of [outer][n][step]: a block for each, and a block for 32 neighbours.
func Reductions(t *testing.T, d cuda.Driver) {
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 11))
	sum := func(f func(float64) float64) func(v []float64) float64 {
		return func(v []float64) (s float64) {
			for _, x := range v {
				s += f(x)
			}
			return s
		}
	}
	square := func(x float64) float64 { return x * x }
	fold := func(f func(a, b float64) float64) func(v []float64) float64 {
		return func(v []float64) float64 {
			s := v[0]
			for _, x := range v[1:] {
				s = f(s, x)
			}
			return s
		}
	}
	kinds := []func(v []float64) float64{ // as rows.cu numbers them
		sum(func(x float64) float64 { return x }), fold(math.Max), fold(math.Min), fold(func(a, b float64) float64 { return a * b }), sum(math.Abs), sum(square),
		func(v []float64) float64 { return math.Sqrt(sum(square)(v)) }, func(v []float64) float64 { return math.Log(sum(math.Abs)(v)) },
		func(v []float64) float64 { return math.Log(sum(math.Exp)(v)) },
	}
	for _, s := range [][3]int{{1, 1, 1}, {2, 3, 33}, {3, 70, 40}, {1, 17, 64}} {
		outer, n, step := s[0], s[1], s[2]
		x := draw(rng, tensor.F32, outer, n, step)
		for kind, f := range kinds {
			if kind == 7 { // a logarithm of what is not negative
				for i, v := range x.F32s() {
					x.F32s()[i] = float32(math.Abs(float64(v)))
				}
			}
			for name, g := range map[string]backend.Geometry{
				"f32_reduce":         {Grid: [3]int{outer * step, 1, 1}, Block: [3]int{128, 1, 1}},
				"f32_reduce_columns": {Grid: [3]int{outer * ((step + 31) / 32), 1, 1}, Block: [3]int{512, 1, 1}},
			} {
				y := tensor.From(make([]float32, outer*step), outer, step)
				if err := launch(d, name, g, read(x), written(y), ints(n, step, kind), floats(1)); err != nil {
					t.Fatal(err)
				}
				for i, have := range y.F32s() {
					var row []float64
					for j := range n {
						row = append(row, float64(x.F32s()[(i/step*n+j)*step+i%step]))
					}
					if want := f(row); math.Abs(float64(have)-want) > 1e-5*(1+math.Abs(want)) {
						t.Fatalf("%s, kind %d of %v: element %d is %v, want %v", name, kind, s, i, have, want)
					}
				}
			}
		}
	}
}
