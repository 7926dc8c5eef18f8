package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// random fills x with distinct values of random sign, whose gaps are wide
// enough that a small step changes no maximum and no sign.
func random(r *rand.Rand, x []float64) {
	for i, k := range r.Perm(len(x)) {
		x[i] = (float64(k) + 0.5 + 0.2*r.Float64()) * 2 / float64(len(x))
		if r.IntN(2) == 0 {
			x[i] = -x[i]
		}
	}
}

// checkGradient compares what backward returns and stores with central
// differences of the loss <r, forward(x)> for a random r.
func checkGradient(t *testing.T, l layer[float64], c, n, h, w int) {
	t.Helper()
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := act[float64]{c, n, h, w, make([]float64, c*n*h*w)}
	random(r, x.data)
	for _, p := range l.params() {
		if p.grad != nil {
			random(r, p.value)
		}
	}
	out := l.forward(x, true)
	along := out
	along.data = make([]float64, len(out.data))
	random(r, along.data)
	loss := func() float64 { return dot(along.data, l.forward(x, true).data) }
	loss()
	got := map[string][]float64{"input": append([]float64(nil), l.backward(along).data...)}
	values := map[string][]float64{"input": x.data}
	for _, p := range l.params() {
		if p.grad != nil {
			got[p.name], values[p.name] = p.grad, p.value
		}
	}
	for name, v := range values {
		for i := range v {
			const step = 1e-5
			at := v[i]
			v[i] = at + step
			up := loss()
			v[i] = at - step
			down := loss()
			v[i] = at
			want := (up - down) / (2 * step)
			if math.Abs(got[name][i]-want) > 1e-7*(1+math.Abs(want)) {
				t.Errorf("%s: gradient [%d] is %g, finite differences say %g", name, i, got[name][i], want)
				return
			}
		}
	}
}

func TestGradients(t *testing.T) {
	for name, test := range map[string]struct {
		layer      layer[float64]
		c, n, h, w int
	}{
		"conv 3x3":           {newConv[float64]("l", 2, 9, 3, 1, 1), 2, 3, 4, 5},
		"conv 3x3, stride 2": {newConv[float64]("l", 3, 2, 3, 2, 1), 3, 2, 5, 4},
		"conv wider than x":  {newConv[float64]("l", 2, 3, 5, 2, 2), 2, 2, 2, 1},
		"conv 2x2 unpadded":  {newConv[float64]("l", 1, 2, 2, 2, 0), 1, 2, 4, 4},
		"conv 1x1":           {newConv[float64]("l", 10, 5, 1, 1, 0), 10, 2, 3, 2},
		"batchNorm":          {newBatchNorm[float64]("l", 3), 3, 4, 2, 3},
		"relu":               {&relu[float64]{}, 2, 3, 2, 2},
		"maxPool 2x2":        {&maxPool[float64]{kernel: 2, stride: 2}, 2, 2, 4, 5},
		"maxPool 3x3, pad 1": {&maxPool[float64]{kernel: 3, stride: 2, pad: 1}, 2, 3, 5, 4},
		"flatten":            {&flatten[float64]{}, 3, 4, 2, 3},
		"gemm":               {newGemm[float64]("l", 11, 5), 11, 3, 1, 1},
		"residual": {&residual[float64]{body: chain[float64]{
			newConv[float64]("a", 2, 4, 3, 1, 1), newBatchNorm[float64]("n", 4), newConv[float64]("b", 4, 2, 1, 1, 0),
		}}, 2, 3, 3, 3},
	} {
		t.Run(name, func(t *testing.T) { checkGradient(t, test.layer, test.c, test.n, test.h, test.w) })
	}
}

func TestLossGradient(t *testing.T) {
	const classes, n, smoothing = 5, 3, 0.1
	r := rand.New(rand.NewPCG(8, 0))
	x := make([]float64, classes*n)
	random(r, x)
	labels := []int{4, 0, 2}
	loss := func(x []float64) (float64, []float64) {
		logits := act[float64]{classes, n, 1, 1, append([]float64(nil), x...)}
		return softmaxLoss(logits, labels, smoothing), logits.data
	}
	_, got := loss(x)
	for i, v := range x {
		const step = 1e-5
		x[i] = v + step
		up, _ := loss(x)
		x[i] = v - step
		down, _ := loss(x)
		x[i] = v
		if want := (up - down) / (2 * step); math.Abs(got[i]-want) > 1e-8 {
			t.Errorf("gradient [%d] is %g, finite differences say %g", i, got[i], want)
		}
	}
}

func TestExpNegative(t *testing.T) {
	for x := 0.0; x > -690; x = x*1.01 - 0.003 {
		if got, want := expNegative(x), math.Exp(x); math.Abs(got-want) > 4e-13*want {
			t.Errorf("expNegative(%g) = %g, want %g", x, got, want)
		}
	}
	if got := expNegative(-1e6); got != 0 {
		t.Errorf("expNegative(-1e6) = %g, want 0", got)
	}
}

func TestBatchNormInferenceUsesRunningStatistics(t *testing.T) {
	l := newBatchNorm[float64]("l", 1)
	l.scale.value[0], l.shift.value[0] = 3, 0.5
	seen := l.replica().(*batchNorm[float64])
	seen.forward(act[float64]{1, 4, 1, 1, []float64{1, 3, 5, 7}}, true)
	l.observe(seen, 0.5) // halfway from (0, 1) to mean 4, variance 5
	y := l.forward(act[float64]{1, 1, 1, 1, []float64{4}}, false)
	if want := 0.5 + 3*(4-2)/math.Sqrt(3+normEpsilon); math.Abs(y.data[0]-want) > 1e-12 {
		t.Errorf("normalised value %g, want %g", y.data[0], want)
	}
}

func TestMatrixProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 0))
	for _, d := range [][3]int{{1, 1, 1}, {2, 8, panel}, {3, 9, panel + 1}, {5, 19, 7}, {4, 36, 2*panel + 3}} {
		m, k, n := d[0], d[1], d[2]
		a, b := make([]float64, m*k), make([]float64, k*n)
		random(r, a)
		random(r, b)
		want := make([]float64, m*n)
		for i := range want {
			want[i] = 1
			for p := range k {
				want[i] += a[i/n*k+p] * b[p*n+i%n]
			}
		}
		bt := make([]float64, k*n)
		transpose(bt, b, k, n)
		direct, turned := make([]float64, m*n), make([]float64, m*n)
		for i := range want {
			direct[i], turned[i] = 1, 1
		}
		matMul(direct, a, b, m, k, n)
		matMulT(turned, a, bt, m, k, n)
		for i := range want {
			if math.Abs(direct[i]-want[i]) > 1e-12*float64(k) || math.Abs(turned[i]-want[i]) > 1e-12*float64(k) {
				t.Errorf("[%d, %d] x [%d, %d]: element %d is %g and, transposed, %g, want %g", m, k, k, n, i, direct[i], turned[i], want[i])
				break
			}
		}
	}
}
