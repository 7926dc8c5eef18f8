package cpu

import (
	"maps"
	"math"

	"spc/backend/cpu/vec"
	"spc/ir/op"
	"spc/lower/chain"
)

// unary applies a function to a run of elements: y[i] = f(x[i]), with the parameters a and b. y may be x.
type unary func(y, x []float32, a, b float32)

// binary combines runs of two operands: y[i] = x[i*sx] f z[i*sz], steps 0 or 1. y may be either.
type binary func(y, x, z []float32, sx, sz int)

// unaryOf is a function of one value with its parameters, in vectors or as its operator computes it; nil of others.
func unaryOf(f chain.Function, a, b float32) unary {
	if own := unaries[f]; own != nil {
		return own
	}
	scalar := op.Scalar(f.String(), f.Args(), a, b)
	if scalar == nil {
		return nil
	}
	return func(y, x []float32, _, _ float32) { each(y, x, scalar) }
}

// binaries are the functions of two values.
var binaries = func() map[chain.Function]binary {
	all := maps.Clone(ownBinaries)
	for _, f := range chain.Functions() {
		if row := op.Row(f.String()); all[f] == nil && row != nil {
			all[f] = row
		}
	}
	return all
}()

// unaries are the functions of one value that are faster than as their operators compute them, or give bools.
var unaries = map[chain.Function]unary{
	chain.Copy:        func(y, x []float32, _, _ float32) { copy(y, x) },
	chain.Clip:        func(y, x []float32, lo, hi float32) { vec.Clip(y, x, lo, hi) },
	chain.HardSigmoid: func(y, x []float32, a, b float32) { vec.Affine(y, x, a, b, 0, 1) },
	chain.HardSwish:   ofRow(vec.HardSwish),
	chain.Sigmoid:     ofRow(vec.Sigmoid),
	chain.Tanh:        ofRow(vec.Tanh),
	chain.Gelu:        ofRow(vec.GELU),
	chain.GeluTanh:    ofRow(vec.GELUTanh),
	chain.Exp:         ofRow(vec.Exp),
	chain.Neg:         func(y, x []float32, _, _ float32) { vec.Affine(y, x, -1, negativeZero, -inf, inf) },
	chain.Swish: func(y, x []float32, a, _ float32) {
		if a == 1 {
			vec.SiLU(y, x)
			return
		}
		each(y, x, func(v float64) float64 { return v * (1 / (1 + math.Exp(-float64(a)*v))) })
	},
	chain.LeakyRelu: func(y, x []float32, a, _ float32) { vec.LeakyReLU(y, x, a) },

	chain.Not:        test(func(v float32) bool { return v == 0 }),
	chain.NotZero:    test(func(v float32) bool { return v != 0 }),
	chain.IsNaN:      test(func(v float32) bool { return v != v }),
	chain.Reciprocal: ofRow(reciprocals),
	chain.Sqrt:       ofRow(roots),
	chain.IsInf: func(y, x []float32, negative, positive float32) {
		test(func(v float32) bool { return negative != 0 && v == -inf || positive != 0 && v == inf })(y, x, 0, 0)
	},
	chain.Elu:  func(y, x []float32, a, _ float32) { vec.ELU(y, x, a, 1, 1) },
	chain.Selu: func(y, x []float32, a, g float32) { vec.ELU(y, x, a*g, 1, g) },
	chain.Celu: func(y, x []float32, a, _ float32) {
		if a > 0 {
			vec.ELU(y, x, a, 1/a, 1)
			return
		}
		each(y, x, func(v float64) float64 { return max(v, 0) + min(0, float64(a)*math.Expm1(v/float64(a))) })
	},
	chain.ThresholdedRelu: func(y, x []float32, a, _ float32) {
		for i, v := range x {
			y[i] = 0
			if v > a {
				y[i] = v
			}
		}
	},
}

// ownBinaries are those that have kernels, or are computed with bools as floats.
var ownBinaries = map[chain.Function]binary{
	chain.Add: vector(vec.Add, func(y, x []float32, s float32, _ bool) { vec.Affine(y, x, 1, s, -inf, inf) }),
	chain.Mul: vector(vec.Mul, func(y, x []float32, s float32, _ bool) { vec.Affine(y, x, s, 0, -inf, inf) }),
	chain.Sub: vector(vec.Sub, func(y, x []float32, s float32, left bool) {
		if left {
			vec.Affine(y, x, -1, s, -inf, inf)
			return
		}
		vec.Affine(y, x, 1, -s, -inf, inf)
	}),
	chain.Div: vector(vec.Div, func(y, x []float32, s float32, left bool) {
		for i, v := range x {
			if left {
				y[i] = s / v
			} else {
				y[i] = v / s
			}
		}
	}),
	chain.Pow:  powers,
	chain.FMod: pairs(func(v, w float32) float32 { return float32(math.Mod(float64(v), float64(w))) }),
	chain.Mod: pairs(func(v, w float32) float32 {
		r := math.Mod(float64(v), float64(w))
		if r != 0 && (r < 0) != (w < 0) {
			r += float64(w)
		}
		return float32(r)
	}),
	chain.Equal:          holds(func(v, w float32) bool { return v == w }),
	chain.Less:           holds(func(v, w float32) bool { return v < w }),
	chain.LessOrEqual:    holds(func(v, w float32) bool { return v <= w }),
	chain.Greater:        holds(func(v, w float32) bool { return v > w }),
	chain.GreaterOrEqual: holds(func(v, w float32) bool { return v >= w }),
	chain.And:            holds(func(v, w float32) bool { return v != 0 && w != 0 }),
	chain.Or:             holds(func(v, w float32) bool { return v != 0 || w != 0 }),
	chain.Xor:            holds(func(v, w float32) bool { return (v != 0) != (w != 0) }),
}

// powers raises x to z. One exponent of a few quarters is a product of roots.
func powers(y, x, z []float32, sx, sz int) {
	power := func(v, e float32) float32 { return float32(math.Pow(float64(v), float64(e))) }
	if len(y) == 0 {
		return
	}
	e := z[0]
	quarters := 4 * e
	switch {
	case sz != 0 || quarters != float32(math.Trunc(float64(quarters))) || quarters < 1 || quarters > 16:
		pairs(power)(y, x, z, sx, sz)
	case e == 2 && sx == 1:
		vec.Mul(y, x[:len(y)], x[:len(y)])
	default:
		whole, half, quarter := int(quarters)/4, int(quarters)&2 != 0, int(quarters)&1 != 0
		for i := range y {
			v := x[i*sx]
			if v < 0 && (half || quarter) || v == 0 || math.IsInf(float64(v), 0) {
				y[i] = power(v, e)
				continue
			}
			f := float64(v)
			p, root := 1.0, 0.0
			if half || quarter {
				root = math.Sqrt(f)
			}
			for range whole {
				p *= f
			}
			if half {
				p *= root
			}
			if quarter {
				p *= math.Sqrt(root)
			}
			y[i] = float32(p)
		}
	}
}

// selects is the function of three values: y[i] = if[i*sif] is not 0, then x[i*sx], else z[i*sz].
func selects(y, which, x, z []float32, sw, sx, sz int) {
	for i := range y {
		if which[i*sw] != 0 {
			y[i] = x[i*sx]
		} else {
			y[i] = z[i*sz]
		}
	}
}

var (
	inf          = float32(math.Inf(1))
	negativeZero = float32(math.Copysign(0, -1)) // what added changes nothing
)

// ofRow makes a unary of a function without parameters.
func ofRow(f func(y, x []float32)) unary { return func(y, x []float32, _, _ float32) { f(y, x) } }

func each(y, x []float32, f func(v float64) float64) {
	for i, v := range x {
		y[i] = float32(f(float64(v)))
	}
}

func test(f func(v float32) bool) unary {
	return func(y, x []float32, _, _ float32) {
		for i, v := range x {
			y[i] = 0
			if f(v) {
				y[i] = 1
			}
		}
	}
}

func pairs(f func(v, w float32) float32) binary {
	return func(y, x, z []float32, sx, sz int) {
		for i := range y {
			y[i] = f(x[i*sx], z[i*sz])
		}
	}
}

func holds(f func(v, w float32) bool) binary {
	return func(y, x, z []float32, sx, sz int) {
		for i := range y {
			v := float32(0)
			if f(x[i*sx], z[i*sz]) {
				v = 1
			}
			y[i] = v
		}
	}
}

// vector combines whole rows with rows, or rows with a scalar, which is the left one or the right one.
func vector(rows func(y, x, z []float32), scalar func(y, x []float32, s float32, left bool)) binary {
	return func(y, x, z []float32, sx, sz int) {
		n := len(y)
		switch {
		case sx == 1 && sz == 1:
			rows(y, x[:n], z[:n])
		case sx == 1:
			scalar(y, x[:n], z[0], false)
		case sz == 1:
			scalar(y, z[:n], x[0], true)
		default:
			s := z[0] // y may be z
			for i := range y {
				y[i] = x[0]
			}
			scalar(y, y, s, false)
		}
	}
}

func reciprocals(y, x []float32) {
	for i, v := range x {
		y[i] = 1 / v
	}
}

func roots(y, x []float32) {
	for i, v := range x {
		y[i] = float32(math.Sqrt(float64(v)))
	}
}
