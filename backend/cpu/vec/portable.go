package vec

import "math"

// portable is the kernels in plain Go.
var portable = kernels{
	isa: "go",
	add: func(y, a, b []float32) {
		for i := range y {
			y[i] = a[i] + b[i]
		}
	},
	sub: func(y, a, b []float32) {
		for i := range y {
			y[i] = a[i] - b[i]
		}
	},
	mul: func(y, a, b []float32) {
		for i := range y {
			y[i] = a[i] * b[i]
		}
	},
	div: func(y, a, b []float32) {
		for i := range y {
			y[i] = a[i] / b[i]
		}
	},
	larger: func(y, a, b []float32) {
		for i := range y {
			y[i] = max(a[i], b[i])
		}
	},
	smaller: func(y, a, b []float32) {
		for i := range y {
			y[i] = min(a[i], b[i])
		}
	},
	affine: func(y, x []float32, scale, bias, lo, hi float32) {
		for i := range y {
			y[i] = clamp(x[i]*scale+bias, lo, hi)
		}
	},
	addClip: func(y, a, b []float32, bias, lo, hi float32) {
		for i := range y {
			y[i] = clamp(a[i]+b[i]+bias, lo, hi)
		}
	},
	axpy: func(y, x []float32, a float32) {
		for i := range y {
			y[i] += a * x[i]
		}
	},
	normalize: func(y, x, gamma, beta []float32, mean, inv float32) {
		for i := range y {
			y[i] = (x[i]-mean)*inv*gamma[i] + beta[i]
		}
	},
	sum: func(x []float32) float32 {
		return lanes(len(x), func(i int) float32 { return x[i] })
	},
	dot: func(a, b []float32) float32 {
		return lanes(len(a), func(i int) float32 { return a[i] * b[i] })
	},
	sumSquares: func(x []float32, mean float32) float32 {
		return lanes(len(x), func(i int) float32 { return (x[i] - mean) * (x[i] - mean) })
	},
	maximum: func(x []float32) float32 {
		s := -inf
		for _, v := range x {
			s = max(s, v)
		}
		return s
	},
	minimum: func(x []float32) float32 {
		s := inf
		for _, v := range x {
			s = min(s, v)
		}
		return s
	},
	largest: func(x []float32) float32 {
		s := float32(0)
		for _, v := range x {
			s = max(s, -v, v)
		}
		return s
	},
	expSum: func(y, x []float32, shift float32) float32 {
		return lanes(len(y), func(i int) float32 {
			y[i] = exp(x[i] - shift)
			return y[i]
		})
	},
	exp:     each(exp),
	sigmoid: each(sigmoid),
	tanh:    each(func(x float32) float32 { return float32(math.Tanh(float64(x))) }),
	silu:    each(silu),
	gelu:    each(gelu),
	geluTanh: each(func(x float32) float32 {
		v := float64(x)
		return float32(v / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))))
	}),
	sqrt:        each(in64(math.Sqrt)),
	reciprocal:  each(func(x float32) float32 { return 1 / x }),
	abs:         each(in64(math.Abs)),
	floor:       each(in64(math.Floor)),
	ceil:        each(in64(math.Ceil)),
	roundToEven: each(in64(math.RoundToEven)),
	softsign:    each(in64(func(x float64) float64 { return x / (1 + math.Abs(x)) })),
	softplus:    each(in64(softplus)),
	mish:        each(in64(func(x float64) float64 { return x * math.Tanh(softplus(x)) })),
	erf:         each(in64(math.Erf)),
	log:         each(in64(math.Log)),
	sin:         each(in64(math.Sin)),
	cos:         each(in64(math.Cos)),
	tan:         each(in64(math.Tan)),
	asin:        each(in64(math.Asin)),
	acos:        each(in64(math.Acos)),
	atan:        each(in64(math.Atan)),
	sinh:        each(in64(math.Sinh)),
	cosh:        each(in64(math.Cosh)),
	asinh:       each(in64(math.Asinh)),
	acosh:       each(in64(math.Acosh)),
	atanh:       each(in64(math.Atanh)),
	sign: each(func(x float32) float32 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return x
	}),
	shrink: func(y, x []float32, least, bias float32) {
		for i, v := range x[:len(y)] {
			switch {
			case v < -least:
				y[i] = v + bias
			case v > least:
				y[i] = v - bias
			default:
				y[i] = 0
			}
		}
	},
	threshold: func(y, x []float32, least float32) {
		for i, v := range x[:len(y)] {
			if y[i] = 0; v > least {
				y[i] = v
			}
		}
	},
	elu: func(y, x []float32, slope, scale, gain float32) {
		for i, v := range x[:len(y)] {
			if v < 0 {
				y[i] = float32(float64(scale) * math.Expm1(float64(slope)*float64(v)))
			} else {
				y[i] = gain * v
			}
		}
	},
	leak: func(y, a, b []float32) {
		for i := range y {
			if v := a[i]; v < 0 {
				y[i] = v * b[i]
			} else {
				y[i] = v
			}
		}
	},
	swish: func(y, x []float32, alpha float32) {
		for i, v := range x[:len(y)] {
			y[i] = float32(float64(v) * (1 / (1 + math.Exp(-float64(alpha)*float64(v)))))
		}
	},
	leaky: func(y, x []float32, slope float32) {
		for i, v := range x[:len(y)] {
			if v < 0 {
				v *= slope
			}
			y[i] = v
		}
	},
	pow: func(y, a, b []float32) {
		for i := range y {
			y[i] = float32(math.Pow(float64(a[i]), float64(b[i])))
		}
	},
	fmod: func(y, a, b []float32) {
		for i := range y {
			y[i] = remainder(a[i], b[i])
		}
	},
	equal:       holds(func(a, b float32) bool { return a == b }),
	less:        holds(func(a, b float32) bool { return a < b }),
	lessOrEqual: holds(func(a, b float32) bool { return a <= b }),
	where: func(y, which, a, b []float32) {
		for i := range y {
			if which[i] != 0 {
				y[i] = a[i]
			} else {
				y[i] = b[i]
			}
		}
	},
	finishRows:    finishGo(1, 0, clamp),
	finishColumns: finishGo(0, 1, clamp),
	finishAct:     [acts]finishes{ActSiLU: actGo(silu), ActHardSwish: actGo(hardSwish), ActGELU: actGo(gelu)},
	gather:        gatherGo,
	repeat:        repeatGo,
	chunk:         TileStride,
	padRows:       [2]padRows{padRowsGo, padRowsGo},
	hardSwish:     each(hardSwish),
	taps: func(y, x []float32, offset []int, w []float32, bias, lo, hi float32, acc bool) {
		if !acc {
			clear(y)
		}
		for t, o := range offset {
			v, x := w[t], x[o:][:len(y)]
			for i := range y {
				y[i] += v * x[i]
			}
		}
		for i := range y {
			y[i] = clamp(y[i]+bias, lo, hi)
		}
	},
	tapRows: tapRowsGo,
}

func tapRowsGo(y, res []float32, yrow, n int, x []float32, xrow int, shift []int, height int, w []float32, bias, lo, hi float32) {
	sums := make([]float32, n)
	for r := range TappedRows {
		for i := range sums {
			if sums[i] = bias; res != nil {
				sums[i] += res[r*yrow+i]
			}
		}
		for t, v := range w[:len(shift)*height] {
			for i, x := range x[shift[t/height]+(r+t%height)*xrow:][:n] {
				sums[i] += v * x
			}
		}
		for i, s := range sums {
			y[r*yrow+i] = clamp(s, lo, hi)
		}
	}
}

// clamp limits x to lo and hi; a NaN stays.
func clamp(x, lo, hi float32) float32 {
	if x < lo {
		return lo
	}
	if x > hi {
		return hi
	}
	return x
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }

func silu(x float32) float32 { return x * sigmoid(x) }

func gelu(x float32) float32 { return float32(float64(x) / 2 * math.Erfc(-float64(x)/math.Sqrt2)) }

func hardSwish(x float32) float32 { return x * clamp(x/6+0.5, 0, 1) }

// remainder is that of the division of a by b, with the sign of a.
func remainder(a, b float32) float32 { return float32(math.Mod(float64(a), float64(b))) }

// softplus is log(1+exp(x)), without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// in64 rounds what f computes.
func in64(f func(float64) float64) func(float32) float32 {
	return func(x float32) float32 { return float32(f(float64(x))) }
}

// holds returns the row form of a test, which gives 1 or 0.
func holds(f func(a, b float32) bool) binary {
	return func(y, a, b []float32) {
		for i := range y {
			v := float32(0)
			if f(a[i], b[i]) {
				v = 1
			}
			y[i] = v
		}
	}
}

// each returns the row form of f.
func each(f func(float32) float32) unary {
	return func(y, x []float32) {
		for i := range y {
			y[i] = f(x[i])
		}
	}
}

// lanes adds f(0) to f(n-1) in eight sums, which keeps the rounding errors of
// long rows small.
func lanes(n int, f func(i int) float32) float32 {
	var s [8]float32
	for i := range n {
		s[i%8] += f(i)
	}
	return (s[0] + s[4]) + (s[1] + s[5]) + ((s[2] + s[6]) + (s[3] + s[7]))
}

// repeatGo is Repeat without assembly.
func repeatGo(y, x []float32, n int) {
	for i := 0; len(y) > 0; i++ {
		for j := range y[:n] {
			y[j] = x[i]
		}
		y = y[n:]
	}
}

// transposeGo is Transpose without assembly.
func transposeGo(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	for r := range rows {
		for c, v := range src[r*lds:][:cols] {
			dst[c*ldd+r] = v
		}
	}
}
