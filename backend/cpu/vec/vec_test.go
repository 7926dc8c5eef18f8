package vec

import (
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"testing"
)

// lengths cover the unrolled loops, single vectors and every masked rest.
var lengths = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 23, 24, 31, 32, 33, 47, 48, 63, 64, 65, 79, 127, 128, 129, 257}

// eachISA runs test as a subtest for all kernels of this machine.
func eachISA(t *testing.T, test func(t *testing.T, k *kernels)) {
	for _, k := range available {
		t.Run(k.isa, func(t *testing.T) { test(t, k) })
	}
}

// row returns n values drawn by f, off elements past an allocation's start and
// with two guards behind them.
func row(n, off int, f func() float32) []float32 {
	s := make([]float32, off+n+2)[off:]
	for i := range n {
		s[i] = f()
	}
	s[n], s[n+1] = guard, guard
	return s[:n]
}

const guard = -12345

var negativeZero = float32(math.Copysign(0, -1))

// guarded fails if the elements behind a row changed.
func guarded(t *testing.T, y []float32) {
	t.Helper()
	if end := y[len(y) : len(y)+2]; end[0] != guard || end[1] != guard {
		t.Fatalf("length %d: wrote past the end: %v", len(y), end)
	}
}

// near reports whether got is within relative tolerance rel of want, or within
// abs; infinities and NaN must be equal.
func near(got float32, want, rel, abs float64) bool {
	g := float64(got)
	if math.IsNaN(want) || math.IsNaN(g) {
		return math.IsNaN(want) && math.IsNaN(g)
	}
	return g == want || math.Abs(g-want) <= max(rel*math.Abs(want), abs)
}

func limit(x, lo, hi float64) float64 { return min(max(x, lo), hi) }

// rowOp is an elementwise function: y holds what y held before.
type rowOp struct {
	name string
	args int // rows beside y
	run  func(k *kernels, y []float32, a [][]float32)
	want func(y float64, a []float64) float64
	rel  float64 // of the largest magnitude among the operands and the result
}

const ulp = 0x1p-23

var rowOps = []rowOp{
	{"add", 2, func(k *kernels, y []float32, a [][]float32) { k.add(y, a[0], a[1]) },
		func(_ float64, a []float64) float64 { return a[0] + a[1] }, ulp},
	{"sub", 2, func(k *kernels, y []float32, a [][]float32) { k.sub(y, a[0], a[1]) },
		func(_ float64, a []float64) float64 { return a[0] - a[1] }, ulp},
	{"mul", 2, func(k *kernels, y []float32, a [][]float32) { k.mul(y, a[0], a[1]) },
		func(_ float64, a []float64) float64 { return a[0] * a[1] }, ulp},
	{"div", 2, func(k *kernels, y []float32, a [][]float32) { k.div(y, a[0], a[1]) },
		func(_ float64, a []float64) float64 { return a[0] / a[1] }, ulp},
	{"larger", 2, func(k *kernels, y []float32, a [][]float32) { k.larger(y, a[0], a[1]) },
		func(_ float64, a []float64) float64 { return max(a[0], a[1]) }, 0},
	{"smaller", 2, func(k *kernels, y []float32, a [][]float32) { k.smaller(y, a[0], a[1]) },
		func(_ float64, a []float64) float64 { return min(a[0], a[1]) }, 0},
	{"affine", 1, func(k *kernels, y []float32, a [][]float32) { k.affine(y, a[0], 1.5, 0.25, -1, 2) },
		func(_ float64, a []float64) float64 { return limit(a[0]*1.5+0.25, -1, 2) }, 2 * ulp},
	{"addClip", 2, func(k *kernels, y []float32, a [][]float32) { k.addClip(y, a[0], a[1], 0.25, 0, 6) },
		func(_ float64, a []float64) float64 { return limit(a[0]+a[1]+0.25, 0, 6) }, 2 * ulp},
	{"axpy", 1, func(k *kernels, y []float32, a [][]float32) { k.axpy(y, a[0], -1.5) },
		func(y float64, a []float64) float64 { return y - 1.5*a[0] }, 4 * ulp},
	{"normalize", 3, func(k *kernels, y []float32, a [][]float32) { k.normalize(y, a[0], a[1], a[2], 0.5, 2) },
		func(_ float64, a []float64) float64 { return (a[0]-0.5)*2*a[1] + a[2] }, 20 * ulp},
	{"hardSwish", 1, func(k *kernels, y []float32, a [][]float32) { k.hardSwish(y, a[0]) },
		func(_ float64, a []float64) float64 { return a[0] * limit(a[0]/6+0.5, 0, 1) }, 4 * ulp},
}

func TestRowOpsEqualReference(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		normal := func() float32 { return float32(3 * rng.NormFloat64()) }
		for _, op := range rowOps {
			for _, n := range lengths {
				for _, inPlace := range []bool{false, true} {
					rows := make([][]float32, op.args)
					for j := range rows {
						rows[j] = row(n, n%5+j, normal)
					}
					y := row(n, n%3, normal)
					if inPlace {
						copy(y, rows[0])
						rows[0] = y
					}
					want, scale := make([]float64, n), make([]float64, n)
					for i := range want {
						args := make([]float64, op.args)
						scale[i] = max(1, math.Abs(float64(y[i])))
						for j := range args {
							args[j] = float64(rows[j][i])
							scale[i] = max(scale[i], math.Abs(args[j]))
						}
						want[i] = op.want(float64(y[i]), args)
						scale[i] = max(scale[i], math.Abs(want[i]))
					}
					op.run(k, y, rows)
					guarded(t, y)
					for i, v := range y {
						if !near(v, want[i], 0, op.rel*scale[i]) {
							t.Fatalf("%s, length %d, in place %v: element %d is %v, want %v", op.name, n, inPlace, i, v, want[i])
						}
					}
				}
			}
		}
	})
}

// activations are tested against float64 on a dense grid. Below lo the error
// bound is abs instead of rel.
var activations = []struct {
	name    string
	f       func(k *kernels) unary
	want    func(x float64) float64
	lo, hi  float64
	rel     float64
	low     float64
	abs     float64
	special map[float32]float64
}{
	{"exp", func(k *kernels) unary { return k.exp }, math.Exp, -87, 88.7, 1e-6, -110, 1e-38,
		map[float32]float64{200: math.Inf(1), -200: 0, 0: 1}},
	{"sigmoid", func(k *kernels) unary { return k.sigmoid }, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
		-87, 100, 1e-6, -110, 1e-37, map[float32]float64{0: 0.5, 1e30: 1, -1e30: 0}},
	{"tanh", func(k *kernels) unary { return k.tanh }, math.Tanh, -30, 30, 1e-6, -30, 0,
		map[float32]float64{0: 0, 1e30: 1, -1e30: -1, 1e-20: 1e-20, -1e-30: -1e-30}},
	{"silu", func(k *kernels) unary { return k.silu }, func(x float64) float64 { return x / (1 + math.Exp(-x)) },
		-87, 100, 1e-6, -110, 1e-35, map[float32]float64{0: 0, 1e30: 1e30, -1e30: 0, 1e-20: 5e-21}},
	{"gelu", func(k *kernels) unary { return k.gelu }, func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) },
		-3, 30, 1e-6, -30, 1e-8, map[float32]float64{0: 0, 1e30: 1e30, -1e30: 0, 1e-20: 5e-21, -1e-20: -5e-21, inf: math.Inf(1), -inf: math.NaN()}},
	{"geluTanh", func(k *kernels) unary { return k.geluTanh }, func(x float64) float64 {
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}, -3, 30, 1e-6, -30, 1e-8, map[float32]float64{0: 0, 1e10: 1e10, -1e10: 0, 1e-20: 5e-21}},
	{"sqrt", func(k *kernels) unary { return k.sqrt }, math.Sqrt, -1, 1e4, ulp, -1, 0,
		map[float32]float64{0: 0, inf: math.Inf(1), -inf: math.NaN(), 1e-40: math.Sqrt(float64(float32(1e-40)))}},
	{"reciprocal", func(k *kernels) unary { return k.reciprocal }, func(x float64) float64 { return 1 / x }, -30, 30, ulp, -30, 0,
		map[float32]float64{0: math.Inf(1), inf: 0, -inf: 0}},
	{"abs", func(k *kernels) unary { return k.abs }, math.Abs, -30, 30, 0, -30, 0, map[float32]float64{0: 0, -inf: math.Inf(1)}},
	{"floor", func(k *kernels) unary { return k.floor }, math.Floor, -30, 30, 0, -30, 0, map[float32]float64{-0x1p100: -0x1p100, inf: math.Inf(1)}},
	{"ceil", func(k *kernels) unary { return k.ceil }, math.Ceil, -30, 30, 0, -30, 0, map[float32]float64{-0x1p100: -0x1p100, inf: math.Inf(1)}},
	{"roundToEven", func(k *kernels) unary { return k.roundToEven }, math.RoundToEven, -30, 30, 0, -30, 0,
		map[float32]float64{2.5: 2, -3.5: -4, -0x1p100: -0x1p100, inf: math.Inf(1)}},
	{"softsign", func(k *kernels) unary { return k.softsign }, func(x float64) float64 { return x / (1 + math.Abs(x)) }, -30, 30, 2 * ulp, -30, 0,
		map[float32]float64{0: 0, 1e30: 1, inf: math.NaN()}},
	{"softplus", func(k *kernels) unary { return k.softplus }, softplus, -87, 100, 1e-6, -110, 1e-37,
		map[float32]float64{0: math.Ln2, 1e30: 1e30, -1e30: 0, inf: math.Inf(1), -inf: 0}},
	{"mish", func(k *kernels) unary { return k.mish }, func(x float64) float64 { return x * math.Tanh(softplus(x)) }, -87, 100, 1e-6, -110, 1e-35,
		map[float32]float64{0: 0, 1e30: 1e30, -1e30: 0, inf: math.Inf(1), -inf: math.NaN(), 1e-20: 0.6e-20}},
	{"erf", func(k *kernels) unary { return k.erf }, math.Erf, -10, 10, 1e-6, -10, 0,
		map[float32]float64{0: 0, inf: 1, -inf: -1, 1e-30: 2 / math.Sqrt(math.Pi) * float64(float32(1e-30))}},
	{"log", func(k *kernels) unary { return k.log }, math.Log, -1, 1e4, 1e-7, -1, 0, map[float32]float64{0: math.Inf(-1), -1: math.NaN(), 1: 0,
		inf: math.Inf(1), -inf: math.NaN(), 1e-44: math.Log(float64(float32(1e-44))), 3e38: math.Log(float64(float32(3e38)))}},
	{"sin", func(k *kernels) unary { return k.sin }, math.Sin, -2000, 2000, 1e-7, -2000, 0, map[float32]float64{0: 0, 1e9: math.Sin(1e9), 1e-30: 1e-30}},
	{"cos", func(k *kernels) unary { return k.cos }, math.Cos, -2000, 2000, 1e-7, -2000, 0, map[float32]float64{0: 1, 1e9: math.Cos(1e9)}},
	{"tan", func(k *kernels) unary { return k.tan }, math.Tan, -2000, 2000, 1e-7, -2000, 0,
		map[float32]float64{0: 0, 1e9: math.Tan(1e9), 1e-30: 1e-30, -1e-45: -1.401298464324817e-45}},
	{"asin", func(k *kernels) unary { return k.asin }, math.Asin, -1.1, 1.1, 1e-6, -1.1, 0,
		map[float32]float64{0: 0, 1: math.Pi / 2, -1: -math.Pi / 2, inf: math.NaN(), 1e-30: 1e-30, -1e-45: -1.401298464324817e-45}},
	{"acos", func(k *kernels) unary { return k.acos }, math.Acos, -1.1, 1.1, 1e-6, -1.1, 0,
		map[float32]float64{0: math.Pi / 2, 1: 0, -1: math.Pi, -inf: math.NaN(), 0.99999994: math.Acos(float64(float32(0.99999994)))}},
	{"atan", func(k *kernels) unary { return k.atan }, math.Atan, -100, 100, 1e-6, -100, 0,
		map[float32]float64{0: 0, inf: math.Pi / 2, -inf: -math.Pi / 2, 3e38: math.Pi / 2, 1e-30: 1e-30, -1e-45: -1.401298464324817e-45}},
	{"sinh", func(k *kernels) unary { return k.sinh }, math.Sinh, -89, 89, 3e-7, -89, 0,
		map[float32]float64{0: 0, 200: math.Inf(1), inf: math.Inf(1), -inf: math.Inf(-1), 1e-30: 1e-30, -1e-45: -1.401298464324817e-45}},
	{"cosh", func(k *kernels) unary { return k.cosh }, math.Cosh, -89, 89, 3e-7, -89, 0,
		map[float32]float64{0: 1, 200: math.Inf(1), inf: math.Inf(1), -inf: math.Inf(1)}},
	{"asinh", func(k *kernels) unary { return k.asinh }, math.Asinh, -1e4, 1e4, 3e-7, -1e4, 0,
		map[float32]float64{0: 0, inf: math.Inf(1), -inf: math.Inf(-1), 3e38: math.Asinh(float64(float32(3e38))), 1e-30: 1e-30, -1e-45: -1.401298464324817e-45}},
	{"acosh", func(k *kernels) unary { return k.acosh }, math.Acosh, -1, 1e4, 3e-7, -1, 0,
		map[float32]float64{1: 0, inf: math.Inf(1), -inf: math.NaN(), -5: math.NaN(), 3e38: math.Acosh(float64(float32(3e38))),
			1.0000001: math.Acosh(float64(float32(1.0000001)))}},
	{"atanh", func(k *kernels) unary { return k.atanh }, math.Atanh, -1.1, 1.1, 3e-7, -1.1, 0,
		map[float32]float64{0: 0, 1: math.Inf(1), -1: math.Inf(-1), inf: math.NaN(), 1e-30: 1e-30, -1e-45: -1.401298464324817e-45,
			0.99999994: math.Atanh(float64(float32(0.99999994)))}},
	{"sign", func(k *kernels) unary { return k.sign }, func(x float64) float64 { return min(max(x*0x1p160, -1), 1) }, -30, 30, 0, -30, 0,
		map[float32]float64{0: 0, inf: 1, -inf: -1, 1e-45: 1}},
	{"elu", func(k *kernels) unary { return func(y, x []float32) { k.elu(y, x, 0.5, 1.5, 2) } }, func(x float64) float64 {
		if x < 0 {
			return 1.5 * math.Expm1(x/2)
		}
		return 2 * x
	}, -100, 100, 1e-6, -100, 0, map[float32]float64{0: 0, inf: math.Inf(1), -inf: -1.5, -1e-30: -0.75e-30}},
	{"swish", func(k *kernels) unary { return func(y, x []float32) { k.swish(y, x, 0.5) } }, func(x float64) float64 { return x / (1 + math.Exp(-x/2)) },
		-174, 200, 1e-6, -220, 1e-35, map[float32]float64{0: 0, inf: math.Inf(1), 1e30: 1e30}},
	{"leaky", func(k *kernels) unary { return func(y, x []float32) { k.leaky(y, x, 0.25) } }, func(x float64) float64 {
		return max(x, x/4)
	}, -30, 30, 0, -30, 0, map[float32]float64{0: 0, inf: math.Inf(1), -inf: math.Inf(-1)}},
	{"pow", func(k *kernels) unary {
		return func(y, x []float32) {
			defer func(k *kernels) { best = k }(best)
			best = k
			Pow(y, x, slices.Repeat([]float32{2.75}, len(x)))
		}
	}, func(x float64) float64 { return math.Pow(x, 2.75) }, -1, 1e10, 1e-7, -1, 0, map[float32]float64{0: 0, inf: math.Inf(1), 1e30: math.Inf(1)}},
}

// Zeros keep their signs where functions say so.
func TestNegativeZero(t *testing.T) {
	zero := float32(math.Copysign(0, -1))
	eachISA(t, func(t *testing.T, k *kernels) {
		for name, f := range map[string]unary{
			"sqrt": k.sqrt, "floor": k.floor, "ceil": k.ceil, "roundToEven": k.roundToEven, "softsign": k.softsign, "erf": k.erf,
			"sin": k.sin, "mish": k.mish, "tan": k.tan, "asin": k.asin, "atan": k.atan, "sinh": k.sinh, "asinh": k.asinh, "atanh": k.atanh,
			"sign":  k.sign,
			"elu":   func(y, x []float32) { k.elu(y, x, 1, 1, 1) },
			"leaky": func(y, x []float32) { k.leaky(y, x, 0.5) },
			"leak":  func(y, x []float32) { k.leak(y, x, []float32{0.5}) },
		} {
			y := []float32{1}
			if f(y, []float32{zero}); !math.Signbit(float64(y[0])) || y[0] != 0 {
				t.Errorf("%s of the negative zero is %v", name, y[0])
			}
		}
		y := []float32{1}
		if k.abs(y, []float32{zero}); math.Signbit(float64(y[0])) {
			t.Error("abs keeps the sign of zero")
		}
		if k.reciprocal(y, []float32{zero}); y[0] != -inf {
			t.Errorf("the reciprocal of the negative zero is %v", y[0])
		}
		defer func(k *kernels) { best = k }(best)
		best = k
		if Pow(y, []float32{zero}, []float32{5}); !math.Signbit(float64(y[0])) {
			t.Error("an odd power of the negative zero is positive")
		}
	})
}

// Tests, choices and powers of pairs are what plain Go makes of them, whatever the numbers.
func TestPairsOfAnyNumbers(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	whole := func() float32 { return float32(rng.Intn(21) - 10) }
	odd := []float32{0, float32(math.Copysign(0, -1)), 1, -1, inf, -inf, float32(math.NaN()), 1e-45, -1e-40, 3e38, 0.5, 2, 3}
	any := func() float32 {
		if rng.Intn(3) == 0 {
			return odd[rng.Intn(len(odd))]
		}
		return float32(rng.NormFloat64() * math.Exp(8*rng.NormFloat64()))
	}
	positive := func() float32 { return float32(math.Exp(20 * rng.NormFloat64())) }
	defer func(k *kernels) { best = k }(best)
	eachISA(t, func(t *testing.T, k *kernels) {
		best = k
		for _, n := range slices.Repeat(lengths, 4) {
			draw := any
			if rng.Intn(2) == 0 {
				draw = positive
			}
			a, b, c := row(n, n%3, draw), row(n, n%5, any), row(n, n%7, any)
			if n%2 == 0 {
				for i := range b {
					b[i] = float32(rng.NormFloat64() * 5)
				}
			}
			if n%4 == 0 { // powers of what is negative, too
				for i := range b {
					b[i] = []float32{b[i], whole(), whole() / 2, 1 << 24, 1<<23 + 1}[rng.Intn(5)]
					a[i] = []float32{whole() / 4, float32(rng.NormFloat64()), negativeZero}[rng.Intn(3)]
				}
			}
			for name, f := range map[string][2]func(y []float32){
				"equal":       {func(y []float32) { Equal(y, a, b) }, func(y []float32) { portable.equal(y, a, b) }},
				"less":        {func(y []float32) { Less(y, a, b) }, func(y []float32) { portable.less(y, a, b) }},
				"lessOrEqual": {func(y []float32) { LessOrEqual(y, a, b) }, func(y []float32) { portable.lessOrEqual(y, a, b) }},
				"leak":        {func(y []float32) { Leak(y, a, b) }, func(y []float32) { portable.leak(y, a, b) }},
				"where":       {func(y []float32) { Where(y, a, b, c) }, func(y []float32) { portable.where(y, a, b, c) }},
				"pow":         {func(y []float32) { Pow(y, a, b) }, func(y []float32) { portable.pow(y, a, b) }},
				"fmod":        {func(y []float32) { Fmod(y, a, b) }, func(y []float32) { portable.fmod(y, a, b) }},
				"shrink":      {func(y []float32) { Shrink(y, a, 0.5, 0.25) }, func(y []float32) { portable.shrink(y, a, 0.5, 0.25) }},
				"threshold":   {func(y []float32) { Threshold(y, a, 0.5) }, func(y []float32) { portable.threshold(y, a, 0.5) }},
				"sin":         {func(y []float32) { Sin(y, a) }, func(y []float32) { portable.sin(y, a) }},
			} {
				y, want := row(n, n%3, any), make([]float32, n)
				f[0](y)
				f[1](want)
				guarded(t, y)
				for i, v := range y {
					near := math.Nextafter32(want[i], inf) == v || math.Nextafter32(want[i], -inf) == v || math.Abs(float64(v-want[i])) < 1e-7 && name == "sin"
					if math.Signbit(float64(v)) != math.Signbit(float64(want[i])) && v == v {
						t.Fatalf("%s, length %d: of %v and %v is %v, want %v", name, n, a[i], b[i], v, want[i])
					}
					if v != want[i] && !(v != v && want[i] != want[i]) && !(near && (name == "pow" || name == "sin")) {
						t.Fatalf("%s, length %d: of %v, %v and %v is %v, want %v", name, n, a[i], b[i], c[i], v, want[i])
					}
				}
			}
		}
	})
}

func TestActivationsKeepTheirErrorBounds(t *testing.T) {
	eachISA(t, func(t *testing.T, k *kernels) {
		for _, a := range activations {
			var xs []float32
			const steps = 200_000
			for i := range steps + 1 {
				xs = append(xs, float32(a.low+(a.hi-a.low)*float64(i)/steps))
			}
			for e := -30; e < 2; e++ { // small magnitudes
				for m := 1.0; m < 2; m += 1. / 64 {
					xs = append(xs, float32(math.Ldexp(m, e)), float32(-math.Ldexp(m, e)))
				}
			}
			y := make([]float32, len(xs))
			a.f(k)(y, xs)
			worst := 0.0
			for i, x := range xs {
				want := a.want(float64(x))
				rel, abs := a.rel, 0.0
				if float64(x) < a.lo {
					rel, abs = 0, a.abs
				}
				if !near(y[i], want, rel, abs) {
					t.Fatalf("%s(%v) is %v, want %v (relative error %g)", a.name, x, y[i], want, math.Abs(float64(y[i])/want-1))
				}
				if float64(x) >= a.lo && want != 0 && want-want == 0 {
					worst = max(worst, math.Abs(float64(y[i])/want-1))
				}
			}
			t.Logf("%s: largest relative error %.2g", a.name, worst)
			for x, want := range a.special {
				var y [1]float32
				a.f(k)(y[:], []float32{x})
				if !near(y[0], want, a.rel, 0) {
					t.Errorf("%s(%v) is %v, want %v", a.name, x, y[0], want)
				}
			}
		}
	})
}

func TestActivationsHandleEveryLength(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, a := range activations {
			for _, n := range lengths {
				x := row(n, n%3, func() float32 { return float32(3 * rng.NormFloat64()) })
				y := row(n, n%5, func() float32 { return guard })
				a.f(k)(y, x)
				guarded(t, y)
				a.f(k)(x, x)
				guarded(t, x)
				if !slices.EqualFunc(x, y, func(v, w float32) bool { return v == w || v != v && w != w }) {
					t.Fatalf("%s, length %d: in place %v, else %v", a.name, n, x, y)
				}
			}
		}
	})
}

func TestNaNStays(t *testing.T) {
	nan := float32(math.NaN())
	eachISA(t, func(t *testing.T, k *kernels) {
		ops := map[string]unary{
			"hardSwish":  k.hardSwish,
			"larger, a":  func(y, x []float32) { k.larger(y, x, make([]float32, len(x))) },
			"larger, b":  func(y, x []float32) { k.larger(y, make([]float32, len(x)), x) },
			"smaller, a": func(y, x []float32) { k.smaller(y, x, make([]float32, len(x))) },
			"smaller, b": func(y, x []float32) { k.smaller(y, make([]float32, len(x)), x) },
			"affine":     func(y, x []float32) { k.affine(y, x, 1, 0, 0, 6) },
			"addClip":    func(y, x []float32) { k.addClip(y, x, x, 0, 0, inf) },
			"taps": func(y, x []float32) {
				k.taps(y, x, []int{0}, []float32{1}, 0, 0, 6, false)
			},
		}
		for _, a := range activations {
			ops[a.name] = a.f(k)
		}
		ops["largest"] = func(y, x []float32) { y[len(y)-1] = k.largest(x) }
		for name, op := range ops {
			for _, n := range []int{1, 16, 64} {
				x := slices.Repeat([]float32{1}, n) // of which each has a function
				x[n-1] = nan
				y := make([]float32, n)
				op(y, x)
				if v := y[n-1]; v == v {
					t.Errorf("%s turns NaN into %v", name, v)
				}
				if n > 1 && y[0] != y[0] {
					t.Errorf("%s turns 1 into NaN", name)
				}
			}
		}
	})
}

func TestReductionsEqualReference(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		normal := func() float32 { return float32(rng.NormFloat64()) }
		for _, n := range append([]int{5000}, lengths...) {
			x, z, y := row(n, n%7, normal), row(n, n%5, normal), row(n, n%3, normal)
			const mean = 0.75
			var sum, abs, dot, dotAbs, squares, exps float64
			top, low := math.Inf(-1), math.Inf(1)
			for i := range x {
				v := float64(x[i])
				sum += v
				abs += math.Abs(v)
				dot += v * float64(z[i])
				dotAbs += math.Abs(v * float64(z[i]))
				squares += (v - mean) * (v - mean)
				exps += math.Exp(v - 2)
				top, low = max(top, v), min(low, v)
			}
			tol := float64(n+2) * ulp
			for _, c := range []struct {
				name      string
				got       float32
				want, tol float64
			}{
				{"sum", k.sum(x), sum, tol * abs},
				{"dot", k.dot(x, z), dot, tol * dotAbs},
				{"sumSquares", k.sumSquares(x, mean), squares, 2 * tol * squares},
				{"maximum", k.maximum(x), top, 0},
				{"minimum", k.minimum(x), low, 0},
				{"largest", k.largest(x), max(top, -low, 0), 0},
				{"expSum", k.expSum(y, x, 2), exps, (tol + 1e-6) * exps},
			} {
				if !near(c.got, c.want, 0, c.tol) {
					t.Fatalf("%s, length %d: %v, want %v", c.name, n, c.got, c.want)
				}
			}
			guarded(t, y)
			for i, v := range y {
				if want := math.Exp(float64(x[i]) - 2); !near(v, want, 2e-6, 0) {
					t.Fatalf("expSum, length %d: element %d is %v, want %v", n, i, v, want)
				}
			}
		}
	})
}

func TestTapsEqualReference(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		normal := func() float32 { return float32(rng.NormFloat64()) }
		for _, n := range lengths {
			for _, taps := range []int{0, 1, 2, 9} {
				for _, acc := range []bool{false, true} {
					x, w := row(n+40, n%5, normal), row(taps, 0, normal)
					offset := make([]int, taps)
					for i := range offset {
						offset[i] = rng.Intn(41)
					}
					y := row(n, n%3, normal)
					want := make([]float64, n)
					for i := range want {
						want[i] = 0.5
						if acc {
							want[i] += float64(y[i])
						}
						for j, o := range offset {
							want[i] += float64(w[j]) * float64(x[o+i])
						}
						want[i] = limit(want[i], -1, 4)
					}
					k.taps(y, x, offset, w, 0.5, -1, 4, acc)
					guarded(t, y)
					for i, v := range y {
						if !near(v, want[i], 0, 1e-5) {
							t.Fatalf("length %d, %d taps, acc %v: element %d is %v, want %v", n, taps, acc, i, v, want[i])
						}
					}
				}
			}
		}
	})
}

func TestTapRowsEqualReference(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, k *kernels) {
		rng := rand.New(rand.NewSource(seed))
		normal := func() float32 { return float32(rng.NormFloat64()) }
		for _, n := range lengths {
			if n == 0 {
				continue
			}
			for round := range 4 {
				height, shift := TappedRows-1+rng.Intn(6), make([]int, 1+rng.Intn(4))
				xrow, yrow := rng.Intn(n+9), n+rng.Intn(3)
				for i := range shift {
					shift[i] = rng.Intn(20)
				}
				x, w := row(19+(TappedRows+height-2)*xrow+n, n%5, normal), row(len(shift)*height, 0, normal)
				y, res := row((TappedRows-1)*yrow+n, n%3, normal), row((TappedRows-1)*yrow+n, n%7, normal)
				if round%2 == 0 {
					res = nil
				}
				before := slices.Clone(y)
				k.tapRows(y, res, yrow, n, x, xrow, shift, height, w, 0.5, -1, 4)
				guarded(t, y)
				for at, v := range y {
					r, i := at/yrow, at%yrow
					if i >= n {
						if v != before[at] {
							t.Fatalf("length %d: what lies between rows is written", n)
						}
						continue
					}
					want := 0.5
					if res != nil {
						want += float64(res[at])
					}
					for b, o := range shift {
						for k := range height {
							want += float64(w[b*height+k]) * float64(x[o+(r+k)*xrow+i])
						}
					}
					if want = limit(want, -1, 4); !near(v, want, 0, 1e-5) {
						t.Fatalf("length %d, height %d, row %d: element %d is %v, want %v", n, height, r, i, v, want)
					}
				}
			}
		}
	})
}

func TestTransposeIsExact(t *testing.T) {
	eachISA(t, func(t *testing.T, k *kernels) {
		for _, rows := range []int{1, 7, 8, 9, 15, 16, 17, 21, 24, 32, 33} {
			for _, cols := range []int{1, 3, 4, 5, 7, 8, 9, 24, 31} {
				for pad := range 2 {
					lds, ldd := cols+3*pad, rows+5*pad
					src := make([]float32, (rows-1)*lds+cols)
					for i := range src {
						src[i] = float32(i + 1)
					}
					dst := row((cols-1)*ldd+rows, 1, func() float32 { return guard })
					transpose(k, dst, ldd, src, lds, rows, cols)
					guarded(t, dst)
					for i, v := range dst {
						want := float32(guard)
						if r, c := i%ldd, i/ldd; r < rows {
							want = src[r*lds+c]
						}
						if v != want {
							t.Fatalf("%dx%d: element %d is %v, want %v", rows, cols, i, v, want)
						}
					}
				}
			}
		}
	})
}

// Who takes logarithms of a softmax sees its small parts, as far as they are normal numbers.
// Elements are repeated, and rows dealt to columns, and nothing is written behind them.
func TestRepeatAndDeal(t *testing.T) {
	const seed = 8
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	normal := func() float32 { return float32(rng.NormFloat64()) }
	defer func(k *kernels) { best = k }(best)
	eachISA(t, func(t *testing.T, k *kernels) {
		best = k
		for _, n := range lengths[1:] {
			for _, rows := range []int{1, 2, 7, 8, 9, 15, 16, 17, 40, 64} {
				x := row(rows*n, n%3, normal)
				y := row(rows*n, n%5, normal)
				Repeat(y, x, n)
				guarded(t, y)
				for i, v := range y {
					if v != x[i/n] {
						t.Fatalf("%d elements, each %d times: element %d is %v, want %v", rows, n, i, v, x[i/n])
					}
				}
				ld := rows + n%2
				z := row(ld*((n+7)&^7), n%5, normal)
				Deal(z, ld, x, n, rows)
				guarded(t, z)
				for i, v := range x {
					if got := z[i%n*ld+i/n]; got != v {
						t.Fatalf("%d rows of %d dealt to columns: element %d is %v, want %v", rows, n, i, got, v)
					}
				}
			}
		}
	})
}

func TestSmallPartsOfSoftmax(t *testing.T) {
	eachISA(t, func(t *testing.T, k *kernels) {
		const n = 350
		x, y := row(n, 1, func() float32 { return 0 }), row(n, 0, func() float32 { return guard })
		for i := range x {
			x[i] = 3 - float32(i)/4
		}
		k.expSum(y, x, 3)
		guarded(t, y)
		for i, v := range y {
			if want := math.Exp(-float64(i) / 4); want > 0x1p-125 && !near(v, want, 1e-5, 0) || want < 0x1p-126 && v > 0x1p-126 {
				t.Errorf("e to the %v is %v, want %v", -float64(i)/4, v, want)
			}
		}
	})
}

func TestSoftmaxSumsToOne(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for _, shift := range []float32{0, 1000, -1000} {
		for _, n := range []int{1, 5, 16, 77, 1000} {
			x := row(n, 1, func() float32 { return shift + float32(4*rng.NormFloat64()) })
			sum := 0.0
			for _, v := range x {
				sum += math.Exp(float64(v - shift))
			}
			y := row(n, 0, func() float32 { return guard })
			Softmax(y, x)
			guarded(t, y)
			for i, v := range y {
				if want := math.Exp(float64(x[i]-shift)) / sum; !near(v, want, 5e-6, 0) {
					t.Fatalf("shift %v, length %d: element %d is %v, want %v", shift, n, i, v, want)
				}
			}
		}
	}
}

func TestLayerNormEqualsReference(t *testing.T) {
	const seed, eps = 6, 1e-5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	normal := func() float32 { return float32(2 + rng.NormFloat64()) }
	for _, n := range []int{1, 7, 64, 384} {
		x, gamma, beta := row(n, 0, normal), row(n, 1, normal), row(n, 2, normal)
		var mean, variance float64
		for _, v := range x {
			mean += float64(v) / float64(n)
		}
		for _, v := range x {
			variance += (float64(v) - mean) * (float64(v) - mean) / float64(n)
		}
		y := row(n, 3, normal)
		LayerNorm(y, x, gamma, beta, eps)
		guarded(t, y)
		inv := 1 / math.Sqrt(variance+eps)
		for i, v := range y {
			want := (float64(x[i])-mean)*inv*float64(gamma[i]) + float64(beta[i])
			if !near(v, want, 1e-5, 1e-5*(1+inv)) {
				t.Fatalf("length %d: element %d is %v, want %v", n, i, v, want)
			}
		}
	}
}

func TestShortOperandsPanic(t *testing.T) {
	long, short := make([]float32, 8), make([]float32, 7)
	for name, f := range map[string]func(){
		"Add a":         func() { Add(long, short, long) },
		"Sub b":         func() { Sub(long, long, short) },
		"Mul b":         func() { Mul(long, long, short) },
		"Div a":         func() { Div(long, short, long) },
		"AddClip":       func() { AddClip(long, long, short, 0, 0, 1) },
		"Axpy":          func() { Axpy(long, 1, short) },
		"Exp":           func() { Exp(long, short) },
		"Sigmoid":       func() { Sigmoid(long, short) },
		"Tanh":          func() { Tanh(long, short) },
		"SiLU":          func() { SiLU(long, short) },
		"GELU":          func() { GELU(long, short) },
		"GELUTanh":      func() { GELUTanh(long, short) },
		"HardSwish":     func() { HardSwish(long, short) },
		"Leaky":         func() { Leaky(long, short, 0.5) },
		"Elu":           func() { Elu(long, short, 1, 1, 1) },
		"Dot":           func() { Dot(long, short) },
		"Softmax":       func() { Softmax(long, short) },
		"LayerNorm":     func() { LayerNorm(long, long, long, short, 0) },
		"Normalize":     func() { Normalize(long, long, short, long, 0, 1) },
		"Taps weights":  func() { Taps(short, long, []int{0, 1}, long[:1], 0, 0, 1, false) },
		"Taps right":    func() { Taps(short, long, []int{2}, long, 0, 0, 1, false) },
		"TapRows right": func() { TapRows(long, nil, 0, 1, long[:5], 1, []int{1}, 3, long, 0, 0, 1) },
		"TapRows left":  func() { TapRows(long, nil, 0, 1, long, 1, []int{-1}, 3, long, 0, 0, 1) },
		"TapRows low":   func() { TapRows(long, nil, 0, 1, long, 1, []int{0}, 2, long, 0, 0, 1) },
		"Taps left":     func() { Taps(short, long, []int{-1}, long, 0, 0, 1, false) },
		"Transpose src": func() { Transpose(long, 4, short, 2, 4, 2) },
		"Transpose dst": func() { Transpose(short, 4, long, 2, 4, 2) },
		"Transpose ldd": func() { Transpose(long, 3, long, 2, 4, 2) },
		"Transpose lds": func() { Transpose(long, 4, long, 1, 4, 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", name)
				}
			}()
			f()
		}()
	}
}

// BenchmarkRow reports nanoseconds and elements per second for rows that fit
// into the level 1 cache.
func BenchmarkRow(b *testing.B) {
	const n = 2048
	rng := rand.New(rand.NewSource(1))
	normal := func() float32 { return float32(rng.NormFloat64()) }
	x, z, y := row(n, 0, normal), row(n, 0, normal), row(n, 0, normal)
	offset := []int{0, 1, 2, 100, 101, 102, 200, 201, 202}
	for _, k := range available {
		ops := map[string]func(){
			"add":        func() { k.add(y, x, z) },
			"affine":     func() { k.affine(y, x, 1, 0.5, 0, 6) },
			"axpy":       func() { k.axpy(y, x, 1e-9) },
			"sum":        func() { k.sum(x) },
			"dot":        func() { k.dot(x, z) },
			"sumSquares": func() { k.sumSquares(x, 1) },
			"maximum":    func() { k.maximum(x) },
			"minimum":    func() { k.minimum(x) },
			"expSum":     func() { k.expSum(y, x, 1) },
			"normalize":  func() { k.normalize(y, x, z, z, 0, 1) },
			"hardSwish":  func() { k.hardSwish(y, x) },
			"taps9":      func() { k.taps(y[:1792], x, offset, x, 0, 0, 6, false) },
			"transpose":  func() { transpose(k, y, 32, x, 64, 32, 64) },
		}
		for _, a := range activations {
			ops[a.name] = func() { a.f(k)(y, x) }
		}
		for _, name := range slices.Sorted(maps.Keys(ops)) {
			b.Run(fmt.Sprintf("%s/%s", name, k.isa), func(b *testing.B) {
				for b.Loop() {
					ops[name]()
				}
				b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelem/s")
			})
		}
	}
}

// Conversions are what Go makes of each element, and write nothing behind the last.
func TestConversions(t *testing.T) {
	const seed = 10
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	defer func(k *kernels) { best = k }(best)
	eachISA(t, func(t *testing.T, k *kernels) {
		best = k
		converted[float32, uint8](t, rng)
		converted[float32, int8](t, rng)
		converted[float32, uint16](t, rng)
		converted[float32, int16](t, rng)
		converted[float32, int32](t, rng)
		converted[float32, int64](t, rng)
		converted[float32, float64](t, rng)
		converted[float64, float32](t, rng)
		converted[float64, int32](t, rng)
		converted[int32, float64](t, rng)
		converted[uint32, int8](t, rng)
		converted[float64, int8](t, rng)
		converted[int8, uint8](t, rng)
		converted[uint8, uint64](t, rng)
		converted[int16, uint32](t, rng)
		converted[int64, int16](t, rng)
		converted[uint64, uint16](t, rng)
		converted[uint64, uint32](t, rng)
		converted[uint32, int64](t, rng)
		converted[int64, uint8](t, rng)
		converted[int8, int32](t, rng)
		converted[uint8, int32](t, rng)
		converted[int16, int32](t, rng)
		converted[uint16, int32](t, rng)
		converted[int64, int32](t, rng)
		converted[int32, int64](t, rng)
		converted[int32, float32](t, rng)
		for _, n := range lengths {
			truths(t, row(n, n%5, func() float32 { return []float32{0, negativeZero, 1e-45, -2, float32(math.NaN())}[rng.Intn(5)] }))
			ints, words := make([]int32, n), make([]int16, n)
			for i := range ints {
				ints[i], words[i] = 1<<rng.Intn(32)&rng.Int31(), 1<<rng.Intn(16)&int16(rng.Int31())
			}
			truths(t, ints)
			truths(t, words)
		}
	})
}

func truths[X Number](t *testing.T, x []X) {
	t.Helper()
	n := len(x)
	y := make([]bool, n+1)
	y[n] = true
	Bools(y[:n], x)
	for i, v := range x {
		if y[i] != (v != 0) || !y[n] {
			t.Fatalf("length %d: of %v is %v, and behind the last %v", n, v, y[i], y[n])
		}
	}
}

// converted draws numbers up to the largest of their type, or of 31 bits.
func converted[Y, X Number](t *testing.T, rng *rand.Rand) {
	t.Helper()
	for _, n := range lengths {
		x, y := make([]X, n+3)[3:], make([]Y, n+1)
		y[n] = 77
		for i := range x {
			if x[i] = X(rng.Int63() >> rng.Intn(63)); X(1)/2 != 0 { // floats
				x[i] = X(float64(rng.Int31()-1<<30) * 1.2345)
			}
		}
		Convert(y[:n], x)
		for i, v := range x {
			if y[i] != Y(v) || y[n] != 77 {
				t.Fatalf("%T of %T, length %d: of %v is %v, and behind the last %v", y[i], v, n, v, y[i], y[n])
			}
		}
	}
}
