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
		vec.Swish(y, x, a)
	},
	chain.LeakyRelu: func(y, x []float32, a, _ float32) { vec.Leaky(y, x, a) },
	chain.Abs:       ofRow(vec.Abs),
	chain.Floor:     ofRow(vec.Floor),
	chain.Ceil:      ofRow(vec.Ceil),
	chain.Round:     ofRow(vec.RoundToEven),
	chain.Log:       ofRow(vec.Log),
	chain.Erf:       ofRow(vec.Erf),
	chain.Sin:       ofRow(vec.Sin),
	chain.Cos:       ofRow(vec.Cos),
	chain.Tan:       ofRow(vec.Tan),
	chain.Asin:      ofRow(vec.Asin),
	chain.Acos:      ofRow(vec.Acos),
	chain.Atan:      ofRow(vec.Atan),
	chain.Sinh:      ofRow(vec.Sinh),
	chain.Cosh:      ofRow(vec.Cosh),
	chain.Asinh:     ofRow(vec.Asinh),
	chain.Acosh:     ofRow(vec.Acosh),
	chain.Atanh:     ofRow(vec.Atanh),
	chain.Sign:      ofRow(vec.Sign),
	chain.Softplus:  ofRow(vec.Softplus),
	chain.Softsign:  ofRow(vec.Softsign),
	chain.Mish:      ofRow(vec.Mish),

	chain.Not: func(y, x []float32, _, _ float32) { not(y, x) },
	chain.NotZero: func(y, x []float32, _, _ float32) {
		equals(y, x, zero, 1, 0)
		not(y, y)
	},
	chain.IsNaN: func(y, x []float32, _, _ float32) {
		vec.Equal(y, x, x)
		not(y, y)
	},
	chain.Reciprocal: ofRow(vec.Reciprocal),
	chain.Sqrt:       ofRow(vec.Sqrt),
	chain.IsInf: func(y, x []float32, negative, positive float32) {
		switch {
		case negative != 0 && positive != 0:
			vec.Abs(y, x)
			equals(y, y, infinity, 1, 0)
		case positive != 0:
			equals(y, x, infinity, 1, 0)
		case negative != 0:
			equals(y, x, negativeInfinity, 1, 0)
		default:
			clear(y)
		}
	},
	chain.Elu:  func(y, x []float32, a, _ float32) { vec.Elu(y, x, 1, a, 1) },
	chain.Selu: func(y, x []float32, a, g float32) { vec.Elu(y, x, 1, a*g, g) },
	chain.Celu: func(y, x []float32, a, _ float32) {
		if a > 0 {
			vec.Elu(y, x, 1/a, a, 1)
			return
		}
		each(y, x, func(v float64) float64 { return max(v, 0) + min(0, float64(a)*math.Expm1(v/float64(a))) })
	},
	chain.ThresholdedRelu: func(y, x []float32, a, _ float32) { vec.Threshold(y, x, a) },
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
	chain.Div: quotients,
	chain.Max: paired(vec.Max),
	chain.Min: paired(vec.Min),
	chain.PRelu: func(y, x, z []float32, sx, sz int) {
		if sx == 1 && sz == 0 {
			vec.Leaky(y, x, z[0])
			return
		}
		leaks(y, x, z, sx, sz)
	},
	chain.Pow:            powers,
	chain.FMod:           paired(func(y, a, b []float32) { remainders(y, a, b, false) }),
	chain.Mod:            paired(func(y, a, b []float32) { remainders(y, a, b, true) }),
	chain.Equal:          equals,
	chain.Less:           paired(vec.Less),
	chain.LessOrEqual:    paired(vec.LessOrEqual),
	chain.Greater:        paired(func(y, a, b []float32) { vec.Less(y, b, a) }),
	chain.GreaterOrEqual: paired(func(y, a, b []float32) { vec.LessOrEqual(y, b, a) }),
	chain.And:            paired(vec.Mul),
	chain.Or:             paired(vec.Max),
	chain.Xor: paired(func(y, a, b []float32) {
		vec.Equal(y, a, b)
		not(y, y)
	}),
}

var (
	equals, quotients, leaks, otherPowers = paired(vec.Equal), paired(vec.Div), paired(vec.Leak), paired(vec.Pow)

	zero, infinity, negativeInfinity = []float32{0}, []float32{inf}, []float32{-inf}
)

// remainders computes those of divisions, with the signs of the dividends, or of the divisors.
func remainders(y, a, b []float32, divisors bool) {
	rows := vec.Borrow()
	defer rows.GiveBack()
	for lo := 0; lo < len(y); lo += chainBlock {
		n := min(len(y)-lo, chainBlock)
		r, b := rows[0][:n], b[lo:][:n]
		vec.Fmod(r, a[lo:], b)
		if divisors {
			for i, v := range r {
				if v != 0 && (v < 0) != (b[i] < 0) {
					r[i] += b[i]
				}
			}
		}
		copy(y[lo:], r)
	}
}

// not turns 0 and 1 into the other.
func not(y, x []float32) { vec.Affine(y, x, -1, 1, 0, 1) }

// powers raises x to z. One whole exponent of a few is a product, and one half a root.
func powers(y, x, z []float32, sx, sz int) {
	if len(y) == 0 {
		return
	}
	switch e := z[0]; {
	case sx == 1 && sz == 0 && e == 2:
		vec.Mul(y, x[:len(y)], x[:len(y)])
		return
	case sx == 1 && sz == 0 && (e == 3 || e == 4):
		for i, v := range x[:len(y)] {
			f := float64(v)
			p := f * f
			if p *= f; e == 4 {
				p *= f
			}
			y[i] = float32(p)
		}
		return
	case sx == 1 && sz == 0 && e == 0.5:
		if least, _, ok := vec.Range(x[:len(y)]); ok && least > 0 {
			vec.Sqrt(y, x)
			return
		}
	}
	otherPowers(y, x, z, sx, sz)
}

// selects is the function of three values: y[i] = if[i*sif] is not 0, then x[i*sx], else z[i*sz].
func selects(y, which, x, z []float32, sw, sx, sz int) {
	inRows(y, [3][]float32{which, x, z}, [3]int{sw, sx, sz}, func(y []float32, in [3][]float32) { vec.Where(y, in[0], in[1], in[2]) })
}

// inRows calls f for pieces of y with operands that are as long, those of step 0 repeated.
func inRows(y []float32, in [3][]float32, steps [3]int, f func(y []float32, in [3][]float32)) {
	rows := vec.Borrow()
	defer rows.GiveBack()
	for k, x := range in {
		if x != nil && steps[k] == 0 {
			vec.Repeat(rows[k][:min(len(y), chainBlock)], x, min(len(y), chainBlock))
		}
	}
	for lo := 0; lo < len(y); lo += chainBlock {
		n := min(len(y)-lo, chainBlock)
		piece := in
		for k, x := range in {
			if steps[k] == 0 {
				piece[k] = rows[k][:n]
			} else if x != nil {
				piece[k] = x[lo:][:n]
			}
		}
		f(y[lo:][:n], piece)
	}
}

// paired combines whole rows, in which a single operand is repeated.
func paired(rows func(y, a, b []float32)) binary {
	each := func(y []float32, in [3][]float32) { rows(y, in[0], in[1]) }
	return func(y, x, z []float32, sx, sz int) {
		if sx == 1 && sz == 1 {
			rows(y, x[:len(y)], z[:len(y)])
			return
		}
		inRows(y, [3][]float32{x, z, nil}, [3]int{sx, sz, 1}, each)
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
