package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// The boxes that are picked are those that the operator picks, whatever they and the limits are.
func TestSuppressPicksThoseOfTheOperator(t *testing.T) {
	const seed = 53
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	nan := float32(math.NaN())
	picked, all := 0, 0
	for round := range 400 {
		images, classes, count := 1+rng.IntN(2), 1+rng.IntN(3), 1+rng.IntN(400)
		boxes, scores := tensor.New(tensor.F32, images, count, 4), tensor.New(tensor.F32, images, classes, count)
		apart, size := []float64{0, 0, 300}[rng.IntN(3)], []float64{1, 10, 100}[rng.IntN(3)]
		center := rng.IntN(2)
		for i := range images * count {
			at := apart * float64(rng.IntN(20))
			for a := range 2 {
				b := boxes.F32s()[4*i:]
				b[a] = float32(at + rng.Float64()*100)
				b[a+2] = float32(math.Round(rng.NormFloat64() * size))
				if center == 0 {
					b[a+2] += b[a]
				}
			}
			if round%4 == 0 && rng.IntN(30) == 0 {
				boxes.F32s()[4*i+rng.IntN(4)] = []float32{nan, inf, -inf, 0, 1e30}[rng.IntN(5)]
			}
		}
		for i := range scores.F32s() {
			scores.F32s()[i] = float32(rng.IntN(50)) / 50
			if round%8 == 0 && rng.IntN(30) == 0 {
				scores.F32s()[i] = []float32{nan, inf, -inf}[rng.IntN(3)]
			}
		}
		in := []*tensor.Tensor{boxes, scores, tensor.Scalar(int64([]int{1000, 1000, 5, 0}[rng.IntN(4)])),
			tensor.Scalar([]float32{0, 0.3, 0.5, 0.9, -0.5, nan}[rng.IntN(6)]), tensor.Scalar([]float32{0, 0.4, -inf}[rng.IntN(3)])}
		o := &op.NonMaxSuppression{Center: center}
		want, err := o.Eval(&ir.Eval{Outputs: 1}, in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := suppress(&ir.Node{Op: o}, in)
		if err != nil {
			t.Fatal(err)
		}
		if !got[0].Equal(want[0]) {
			t.Fatalf("round %d: %v, want %v", round, got[0], want[0])
		}
		picked, all = picked+got[0].Dim(0), all+scores.Len()
	}
	if picked == 0 || picked == all {
		t.Errorf("%d of %d boxes were picked: nothing was suppressed", picked, all)
	}
}
