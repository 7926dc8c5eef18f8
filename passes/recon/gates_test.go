package recon

import (
	"cmp"
	"context"
	"iter"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

func TestTheSlopeOfAGateIsThatOfFiniteDifferences(t *testing.T) {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	inside := 0
	for range 2000 {
		l, u := 4*r.NormFloat64(), r.Float64()
		z, slope := concrete(l, u)
		const h = 1e-6
		up, _ := concrete(l+h, u)
		down, _ := concrete(l-h, u)
		if z > 1e-4 && z < 1-1e-4 {
			inside++
		} else if z > 0 && z < 1 {
			continue // the difference may be across a corner
		}
		if want := (up - down) / (2 * h); math.Abs(slope-want) > 1e-5 {
			t.Fatalf("slope at logit %v, draw %v is %v, want %v", l, u, slope, want)
		}
	}
	if inside < 200 {
		t.Errorf("only %d of 2000 gates were between 0 and 1", inside)
	}
}

func TestGatesAreNotZeroAsOftenAsTheirProbabilitySays(t *testing.T) {
	const draws = 20000
	for _, l := range []float64{-5, -2, -1.6, 0, 1, 3} {
		open := 0
		for i := range draws {
			if z, _ := concrete(l, (float64(i)+0.5)/draws); z > 0 {
				open++
			}
		}
		if have, want := passing(l), float64(open)/draws; math.Abs(have-want) > 2.0/draws {
			t.Errorf("logit %v passes with a probability of %v, want %v", l, have, want)
		}
	}
}

func TestProbabilitiesOfAGroupAddUpToWhatStays(t *testing.T) {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	for n := 2; n < 200; n += 13 {
		logit, list := make([]float64, n), make([]int32, n)
		for i := range logit {
			logit[i], list[i] = 6*r.NormFloat64(), int32(i)
		}
		want := float64(1 + r.IntN(n-1))
		shift, sum := balance(logit, list, want), 0.0
		for _, l := range logit {
			sum += passing(l + shift)
		}
		if math.Abs(sum-want) > 1e-3 {
			t.Errorf("%d probabilities add up to %v, want %v", n, sum, want)
		}
	}
}

// gatedRow is a param of one row of weights with a gate for each, half of them open.
func gatedRow(t *testing.T, weights []float32) *param {
	t.Helper()
	n := len(weights)
	g := ir.NewGraph("g")
	v := g.NewConst("w", tensor.From(slices.Clone(weights), n))
	p := &param{value: v, tensor: v.Const.Clone(), row: make([]int32, n), scale: make([]float32, n), grad: make([]float32, n),
		m: make([]float32, n), v: make([]float32, n), best: make([]float32, n)}
	gates := &Gates{Weight: v, Value: weights, Group: make([]int32, n), Open: make([]bool, n)}
	for i := range n {
		gates.Unit = append(gates.Unit, int32(i))
		gates.Open[i] = i%2 == 0
	}
	if err := p.gate(gates, 1, seed); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGradientsByLogitsAreThoseOfFiniteDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(seed, 5))
	weights := make([]float32, 64)
	for i := range weights {
		weights[i] = float32(r.NormFloat64())
	}
	p := gatedRow(t, weights)
	for i := range p.gating.logit {
		p.gating.logit[i] = r.NormFloat64()
	}
	loss := func() float64 { // half of the squares of what passes in step 7, minus 1
		p.draw(7)
		sum := 0.0
		for _, v := range p.tensor.F32s() {
			sum += (float64(v) - 1) * (float64(v) - 1) / 2
		}
		return sum
	}
	loss()
	for i, v := range p.tensor.F32s() {
		p.grad[i] = v - 1
	}
	p.gating.slopes(p.grad)
	have, moves := slices.Clone(p.gating.grad), 0
	for i := range have {
		const h = 1e-3
		at := p.gating.logit[i]
		p.gating.logit[i] = at + h
		up := loss()
		p.gating.logit[i] = at - h
		want := (up - loss()) / (2 * h)
		p.gating.logit[i] = at
		if math.Abs(have[i]-want) > 2e-3*(1+math.Abs(want)) {
			t.Errorf("gradient by logit %d is %v, want %v", i, have[i], want)
		}
		if want != 0 {
			moves++
		}
	}
	if moves < 5 {
		t.Errorf("only %d of %d gates have a gradient", moves, len(have))
	}
}

const pointwise = `graph "pointwise"(%x: f32[n,8,2,2]) {
  %w: f32[3,8,1,1] = const {0.9, -0.8, 0.7, -0.6, 0.5, 0.55, -0.4, 0.35, 0.2, 0.6, -0.5, 0.7, 0.9, -0.3, 0.4, 0.8, -0.7, 0.3, 0.85, 0.6, -0.45, 0.9, 0.5, -0.65}
  %y: f32[n,3,2,2] = Conv "y" (%x, %w) {kernel_shape = [1, 1]}
  return %y
}
`

// alike sees samples of shape [1,8,2,2] whose channels are alike in pairs, and of different sizes.
func alike(samples int) *calib.Observer {
	return &calib.Observer{
		Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
			return func(yield func([]*tensor.Tensor, error) bool) {
				r := rand.New(rand.NewPCG(seed, 6))
				for range samples {
					x := tensor.New(tensor.F32, 1, 8, 2, 2)
					for i := range 4 {
						for c := range 8 {
							v := r.NormFloat64() * (0.4 + 0.2*float64(c))
							if c%2 == 1 {
								v = 0.9*float64(x.F32s()[(c-1)*4+i]) + 0.3*v
							}
							x.F32s()[c*4+i] = float32(v)
						}
					}
					if !yield([]*tensor.Tensor{x}, nil) {
						return
					}
				}
			}
		},
		Run: graphtest.Run,
	}
}

// largest marks the largest of each eight.
func largest(p []float32, keep int) []bool {
	open := make([]bool, len(p))
	for lo := 0; lo < len(p); lo += 8 {
		order := []int{0, 1, 2, 3, 4, 5, 6, 7}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[lo+j], p[lo+i]) })
		for _, c := range order[:keep] {
			open[lo+c] = true
		}
	}
	return open
}

func TestGatesFindMasksThatAreNearlyTheBestOfAll(t *testing.T) {
	t.Logf("seed %d", seed)
	dense := graphtest.Parse(t, pointwise)
	w := constOf(dense, "w").F32s()
	h := make([][]float64, 8)
	for i := range h {
		h[i] = make([]float64, 8)
	}
	for in := range alike(320).Inputs(context.Background(), dense) {
		x := in[0].F32s()
		for i := range 8 {
			for j := range 8 {
				for k := range 4 {
					h[i][j] += float64(x[i*4+k]) * float64(x[j*4+k])
				}
			}
		}
	}
	const keep = 3
	size := make([]float32, len(w))
	for i, x := range w {
		size[i] = max(x, -x)
	}
	g := dense.Clone()
	v := g.WeightUses()[0].Value
	gates := &Gates{Weight: v, Value: slices.Clone(w), Open: largest(size, keep)}
	magnitude, best := 0.0, 0.0
	for row := range 3 {
		mask := uint(0)
		for c := range 8 {
			if gates.Open[row*8+c] {
				mask |= 1 << c
			}
		}
		magnitude += graphtest.Leftover(h, w[row*8:][:8], mask)
		least := math.Inf(1)
		for m := range uint(1 << 8) {
			if bits.OnesCount(m) == keep {
				least = min(least, graphtest.Leftover(h, w[row*8:][:8], m))
			}
		}
		best += least
	}
	c := v.Const.Clone()
	for i := range 24 {
		gates.Unit, gates.Group = append(gates.Unit, int32(i)), append(gates.Group, int32(i/8))
		if !gates.Open[i] {
			c.F32s()[i] = 0
		}
	}
	v.SetConst(c)
	gates.Harden = func(p []float32) ([]bool, error) { return largest(p, keep), nil }
	opt := Options{Epochs: 12, Rate: 0.005, Warmup: 0.1, Batch: 4, Workers: 2, Seed: 1, Gates: []*Gates{gates}, GateTravel: 80}
	rep, err := Run(context.Background(), alike(320), g, dense, opt)
	if err != nil {
		t.Fatal(err)
	}
	found := 0.0
	for row := range 3 {
		mask := uint(0)
		for c := range 8 {
			if gates.Open[row*8+c] {
				mask |= 1 << c
			}
			if zero := v.Const.F32s()[row*8+c] == 0; zero == gates.Open[row*8+c] {
				t.Errorf("weight %d of row %d is %v, its gate open: %v", c, row, v.Const.F32s()[row*8+c], gates.Open[row*8+c])
			}
		}
		if bits.OnesCount(mask) != keep {
			t.Errorf("row %d keeps %b, want %d", row, mask, keep)
		}
		found += graphtest.Leftover(h, w[row*8:][:8], mask)
	}
	t.Logf("errors by magnitude %.4g, gates %.4g, the best masks %.4g; %+v", magnitude, found, best, rep.Blocks)
	if found > 1.25*best || found > 0.5*magnitude {
		t.Errorf("the error of gates is %.4g, want within 1.25 of %.4g and below half of %.4g, that of magnitudes", found, best, magnitude)
	}
}
