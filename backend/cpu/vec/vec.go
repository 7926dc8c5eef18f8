// Package vec computes on rows of float32: elementwise arithmetic, activations,
// reductions, sums of shifted rows and transposition, for the operators beside
// the matrix products; and it converts rows of numbers to other types. It imports internal/isa only.
//
// A function's result goes to its first argument, whose length is that of the
// row; the others are at least as long (a panic says otherwise) and may be the
// result itself, but not overlap it otherwise. Nothing needs to be aligned.
//
// On amd64 the work is done by assembly for AVX-512 or AVX2, elsewhere and
// under the build tag noasm by plain Go. The order of the additions in a
// reduction depends on the instruction set, so results may differ in the last
// bits between machines. A NaN in the input gives a NaN where it is used, except
// in Range, which tells that there is one.
package vec

import "math"

type (
	unary     func(y, x []float32)
	binary    func(y, a, b []float32)
	reduction func(x []float32) float32
	finish    func(dst []float32, ldd int, y []float32, ldy, rows, cols int, bias, res []float32, ldr int, lo, hi float32, back bool)
	finishes  struct{ rows, columns finish } // by what has a bias
	gather    func(dst, src []float32, offset []int, chunks []Chunk)
	padRows   func(dst []float32, rows, left, n, right int, src []float32, lds, step int)
)

// kernels are the loops of one instruction set. They trust the lengths.
type kernels struct {
	isa string

	add, sub, mul, div binary
	larger, smaller    binary
	shrink             func(y, x []float32, least, bias float32)
	affine             func(y, x []float32, scale, bias, lo, hi float32)
	addClip            func(y, a, b []float32, bias, lo, hi float32)
	axpy               func(y, x []float32, a float32)
	normalize          func(y, x, gamma, beta []float32, mean, inv float32)

	sum, maximum, minimum reduction
	largest               reduction
	dot                   func(a, b []float32) float32
	sumSquares            func(x []float32, mean float32) float32
	expSum                func(y, x []float32, shift float32) float32

	exp, sigmoid, tanh, silu, gelu, geluTanh, hardSwish unary

	sqrt, reciprocal, abs, floor, ceil, roundToEven, softsign, softplus, mish, erf, log, sin, cos unary
	tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh, sign                                  unary
	elu                                                                                           func(y, x []float32, slope, scale, gain float32)
	swish, leaky, threshold                                                                       func(y, x []float32, factor float32)
	leak, pow, fmod, equal, less, lessOrEqual                                                     binary
	where                                                                                         func(y, which, a, b []float32)

	// Conversions of so many elements times the number of vectors; those that are missing are plain loops.
	lanes                  int
	floatBools, int32Bools converter
	conversions            map[conversion]converter

	taps    func(y, x []float32, offset []int, w []float32, bias, lo, hi float32, acc bool)
	tapRows func(y, res []float32, yrow, n int, x []float32, xrow int, shift []int, height int, w []float32, bias, lo, hi float32)

	repeat func(y, x []float32, n int)

	finishRows, finishColumns finish
	finishAct                 [acts]finishes // without limits
	gather                    gather
	chunk                     int        // the most elements of a Chunk
	padRows                   [2]padRows // by step less one

	// transpose8 transposes 8 rows of 8*blocks columns; nil where plain loops
	// are as good.
	transpose8 func(blocks int, dst *float32, ldd int, src *float32, lds int)
	// transpose16 transposes 16 rows of 4*blocks columns; nil where the registers
	// are too short.
	transpose16 func(blocks int, dst *float32, ldd int, src *float32, lds int)
}

// available lists the kernels that this machine can run, the best first.
var available = append(native(), &portable)

var best = available[0]

// same panics unless each of xs is at least as long as y.
func same(y []float32, xs ...[]float32) {
	for _, x := range xs {
		if len(x) < len(y) {
			panic("vec: operand is shorter than the result")
		}
	}
}

var inf = float32(math.Inf(1))

// Add computes y = a + b.
func Add(y, a, b []float32) { same(y, a, b); best.add(y, a, b) }

// Sub computes y = a - b.
func Sub(y, a, b []float32) { same(y, a, b); best.sub(y, a, b) }

// Mul computes y = a * b.
func Mul(y, a, b []float32) { same(y, a, b); best.mul(y, a, b) }

// Div computes y = a / b.
func Div(y, a, b []float32) { same(y, a, b); best.div(y, a, b) }

// Max computes y = max(a, b), NaN where either is.
func Max(y, a, b []float32) { same(y, a, b); best.larger(y, a, b) }

// Min computes y = min(a, b), NaN where either is.
func Min(y, a, b []float32) { same(y, a, b); best.smaller(y, a, b) }

// Clip computes y = min(max(x, lo), hi).
func Clip(y, x []float32, lo, hi float32) { Affine(y, x, 1, 0, lo, hi) }

// Affine computes y = x*scale + bias, limited to lo and hi: the epilogue of a
// row of a product, or a HardSigmoid. The limits are not NaN.
func Affine(y, x []float32, scale, bias, lo, hi float32) {
	same(y, x)
	best.affine(y, x, scale, bias, lo, hi)
}

// AddClip computes y = a + b + bias, limited to lo and hi: the epilogue of a row
// with a residual.
func AddClip(y, a, b []float32, bias, lo, hi float32) {
	same(y, a, b)
	best.addClip(y, a, b, bias, lo, hi)
}

// Axpy computes y += a * x.
func Axpy(y []float32, a float32, x []float32) { same(y, x); best.axpy(y, x, a) }

// Taps computes a sum of shifted rows:
//
//	y[i] = clip(bias + sum over t of w[t]*x[offset[t]+i], lo, hi)
//
// to which the former y[i] is added before the limits if acc is set. With the
// taps' places in a padded plane as offsets this is a row of a convolution with
// stride 1, dense or sparse. y must not overlap x. It panics if a tap reaches
// outside x.
func Taps(y, x []float32, offset []int, w []float32, bias, lo, hi float32, acc bool) {
	if len(w) < len(offset) {
		panic("vec: fewer weights than taps")
	}
	for _, o := range offset {
		if o < 0 || o > len(x)-len(y) {
			panic("vec: tap outside the row")
		}
	}
	best.taps(y, x, offset, w, bias, lo, hi, acc)
}

// TappedRows is how many rows TapRows computes, and one more than the least height of a column of their taps.
const TappedRows = 4

// TapRows computes TappedRows rows of y, of n elements each and yrow apart:
//
//	y[r*yrow+i] = clip(bias + res[r*yrow+i] + sum over b and k of w[b*height+k]*x[shift[b]+(r+k)*xrow+i], lo, hi)
//
// where k is below height, and res, which may be y, may be nil. y must not overlap x. It panics if a slice is too short.
func TapRows(y, res []float32, yrow, n int, x []float32, xrow int, shift []int, height int, w []float32, bias, lo, hi float32) {
	if n <= 0 {
		return
	}
	if height < TappedRows-1 || len(shift) == 0 || yrow < 0 || xrow < 0 {
		panic("vec: rows of no such window")
	}
	_, _ = y[(TappedRows-1)*yrow+n-1], w[len(shift)*height-1]
	for _, o := range shift {
		if o < 0 || o+(TappedRows+height-2)*xrow+n > len(x) {
			panic("vec: tap outside the rows")
		}
	}
	if res != nil {
		_ = res[(TappedRows-1)*yrow+n-1]
	}
	best.tapRows(y, res, yrow, n, x, xrow, shift, height, w, bias, lo, hi)
}

// Repeat writes each element of x n times: y[i*n+j] = x[i]. The length of y is a multiple of n, which is positive.
func Repeat(y, x []float32, n int) {
	if len(y)%n != 0 || len(x) < len(y)/n {
		panic("vec: elements do not fill the row")
	}
	best.repeat(y, x, n)
}

// Deal copies a matrix of rows with n elements to columns that begin ld apart: y[j*ld+i] = x[i*n+j]. y has room for n
// columns rounded up to whole vectors, which are written as far as there are rows.
func Deal(y []float32, ld int, x []float32, n, rows int) {
	whole := n
	switch {
	case best.transpose16 != nil:
		whole = (n + 3) &^ 3
	case best.transpose8 != nil:
		whole = (n + 7) &^ 7
	}
	// What follows a row is read with it, but not behind the last.
	most := max(0, rows-(whole-1)/n)
	if whole > n && most >= 8 {
		transpose(best, y, ld, x, n, most, whole)
	} else {
		most = 0
	}
	if most < rows {
		transpose(best, y[most:], ld, x[most*n:], n, rows-most, n)
	}
}

// Exp computes y = e to the x, with a relative error of at most 1e-6 where the
// result is a normal number.
func Exp(y, x []float32) { same(y, x); best.exp(y, x) }

// Sigmoid computes y = 1 / (1 + exp(-x)), with a relative error of at most 1e-6
// where the result is a normal number.
func Sigmoid(y, x []float32) { same(y, x); best.sigmoid(y, x) }

// Tanh computes y = tanh(x), with a relative error of at most 1e-6.
func Tanh(y, x []float32) { same(y, x); best.tanh(y, x) }

// SiLU computes y = x * Sigmoid(x), with a relative error of at most 1e-6 where
// the logistic function is a normal number.
func SiLU(y, x []float32) { same(y, x); best.silu(y, x) }

// GELU computes y = x/2 * (1 + erf(x/sqrt 2)), with an error of at most 1e-6
// relative for x >= -3, and of 1e-8 below. That of -Inf is NaN, as the formula says.
func GELU(y, x []float32) { same(y, x); best.gelu(y, x) }

// GELUTanh computes the tanh approximation of GELU, x/2 * (1 + tanh(sqrt(2/pi) *
// (x + 0.044715 x^3))), with an error of at most 1e-6 relative for x >= -3, and
// of 1e-8 below.
func GELUTanh(y, x []float32) { same(y, x); best.geluTanh(y, x) }

// HardSwish computes y = x * min(max(x/6 + 0.5, 0), 1).
func HardSwish(y, x []float32) { same(y, x); best.hardSwish(y, x) }

// Sqrt computes the square root of each x.
func Sqrt(y, x []float32) { same(y, x); best.sqrt(y, x) }

// Reciprocal computes y = 1 / x.
func Reciprocal(y, x []float32) { same(y, x); best.reciprocal(y, x) }

// Abs computes y = |x|.
func Abs(y, x []float32) { same(y, x); best.abs(y, x) }

// Floor, Ceil and RoundToEven round to integers.
func Floor(y, x []float32)       { same(y, x); best.floor(y, x) }
func Ceil(y, x []float32)        { same(y, x); best.ceil(y, x) }
func RoundToEven(y, x []float32) { same(y, x); best.roundToEven(y, x) }

// Softsign computes y = x / (1 + |x|).
func Softsign(y, x []float32) { same(y, x); best.softsign(y, x) }

// Softplus computes y = log(1 + exp(x)), with a relative error of at most 1e-6 where the result is a normal number.
func Softplus(y, x []float32) { same(y, x); best.softplus(y, x) }

// Mish computes y = x * tanh(Softplus(x)), with a relative error of at most 1e-6 where exp(x) is a normal number.
func Mish(y, x []float32) { same(y, x); best.mish(y, x) }

// Erf computes the error function, with a relative error of at most 1e-6.
func Erf(y, x []float32) { same(y, x); best.erf(y, x) }

// Log computes y = log(x), with a relative error of at most 1e-7.
func Log(y, x []float32) { same(y, x); best.log(y, x) }

// Sin and Cos compute sines and cosines, with an error of at most 1e-7 relative to the larger of both.
func Sin(y, x []float32) { circular(y, x, best.sin, math.Sin) }
func Cos(y, x []float32) { circular(y, x, best.cos, math.Cos) }

// Tan computes tangents, with a relative error of at most 1e-7.
func Tan(y, x []float32) { circular(y, x, best.tan, math.Tan) }

// Asin, Acos and Atan compute angles, with a relative error of at most 1e-6.
func Asin(y, x []float32) { same(y, x); best.asin(y, x) }
func Acos(y, x []float32) { same(y, x); best.acos(y, x) }
func Atan(y, x []float32) { same(y, x); best.atan(y, x) }

// Sinh and Cosh compute hyperbolic functions, Asinh, Acosh and Atanh their inverses, with a relative error of at most 3e-7.
func Sinh(y, x []float32)  { same(y, x); best.sinh(y, x) }
func Cosh(y, x []float32)  { same(y, x); best.cosh(y, x) }
func Asinh(y, x []float32) { same(y, x); best.asinh(y, x) }
func Acosh(y, x []float32) { same(y, x); best.acosh(y, x) }
func Atanh(y, x []float32) { same(y, x); best.atanh(y, x) }

// Sign computes 1 or -1 with the sign of x, or x where that is zero or NaN.
func Sign(y, x []float32) { same(y, x); best.sign(y, x) }

// Threshold computes y = x where x > least, else 0.
func Threshold(y, x []float32, least float32) { same(y, x); best.threshold(y, x, least) }

// Shrink computes y = x - bias where x > least, x + bias where x < -least, else 0.
func Shrink(y, x []float32, least, bias float32) { same(y, x); best.shrink(y, x, least, bias) }

// circular computes f in vectors where no element is so large that its quarter of the circle needs more digits.
func circular(y, x []float32, f unary, scalar func(float64) float64) {
	same(y, x)
	const most = 1 << 30
	if !(Largest(x[:len(y)]) <= most) {
		f = each(in64(scalar))
	}
	f(y, x)
}

// Elu computes y = scale * (exp(slope*x) - 1) where x is negative, else gain * x; slope is positive.
func Elu(y, x []float32, slope, scale, gain float32) {
	same(y, x)
	best.elu(y, x, slope, scale, gain)
}

// Swish computes y = x * Sigmoid(alpha*x), with the error of SiLU.
func Swish(y, x []float32, alpha float32) { same(y, x); best.swish(y, x, alpha) }

// Leak computes y = a * b where a is negative, else a.
func Leak(y, a, b []float32) { same(y, a, b); best.leak(y, a, b) }

// Leaky computes y = x * slope where x is negative, else x.
func Leaky(y, x []float32, slope float32) { same(y, x); best.leaky(y, x, slope) }

// Pow computes y = a to the b, as math.Pow rounded, or its neighbour.
func Pow(y, a, b []float32) {
	same(y, a, b)
	f := portable.pow
	if Largest(a[:len(y)]) < inf && Largest(b[:len(y)]) < inf {
		f = best.pow
	}
	f(y, a, b)
}

// Fmod computes the remainder y = math.Mod(a, b). y must not be a or b.
func Fmod(y, a, b []float32) {
	same(y, a, b)
	best.fmod(y, a, b)
	if Largest(y) < inf {
		return
	}
	for i, v := range y { // more digits than the kernel knows
		if v != v {
			y[i] = remainder(a[i], b[i])
		}
	}
}

// Equal, Less and LessOrEqual give 1 where a is so to b, else 0.
func Equal(y, a, b []float32)       { same(y, a, b); best.equal(y, a, b) }
func Less(y, a, b []float32)        { same(y, a, b); best.less(y, a, b) }
func LessOrEqual(y, a, b []float32) { same(y, a, b); best.lessOrEqual(y, a, b) }

// Where takes a where which is not 0, else b.
func Where(y, which, a, b []float32) { same(y, which, a, b); best.where(y, which, a, b) }

// Sum returns the sum of x.
func Sum(x []float32) float32 { return best.sum(x) }

// Largest returns the largest magnitude in x, NaN where there is one, 0 of none.
func Largest(x []float32) float32 { return best.largest(x) }

// Range returns the least and the largest element of x; ok is false where they may not be, as the
// sum of x is not finite: an element is not, or others add up to an infinity.
func Range(x []float32) (lo, hi float32, ok bool) {
	sum := best.sum(x)
	return best.minimum(x), best.maximum(x), sum-sum == 0
}

// Dot returns the sum of a[i]*b[i] over the length of a.
func Dot(a, b []float32) float32 { same(a, b); return best.dot(a, b) }

// SumSquares returns the sum of (x[i]-mean)^2.
func SumSquares(x []float32, mean float32) float32 { return best.sumSquares(x, mean) }

// Softmax computes y = exp(x) / sum of exp(x), shifted so that nothing
// overflows. Parts below 2 to the -125 of the largest are zero: denormal numbers
// would be slow.
func Softmax(y, x []float32) {
	same(y, x)
	x = x[:len(y)]
	sum := best.expSum(y, x, best.maximum(x))
	best.affine(y, y, 1/sum, 0, -inf, inf)
}

// LogSoftmax computes the logarithm of Softmax, and y must not be x.
func LogSoftmax(y, x []float32) {
	same(y, x)
	x = x[:len(y)]
	most := best.maximum(x)
	sum := best.expSum(y, x, most)
	best.affine(y, x, 1, -most, -inf, inf) // the largest first: a sum of both would be rounded as that is
	best.affine(y, y, 1, -float32(math.Log(float64(sum))), -inf, inf)
}

// LayerNorm computes y = (x-mean)/sqrt(variance+eps) * gamma + beta over the
// row. It returns the mean and the factor 1/sqrt(variance+eps).
func LayerNorm(y, x, gamma, beta []float32, eps float32) (mean, inv float32) {
	same(y, x, gamma, beta)
	x = x[:len(y)]
	n := float32(len(x))
	mean = best.sum(x) / n
	inv = float32(1 / math.Sqrt(float64(best.sumSquares(x, mean)/n+eps)))
	best.normalize(y, x, gamma, beta, mean, inv)
	return mean, inv
}

// Normalize computes y = (x-mean) * inv * gamma + beta with a row's gamma and
// beta.
func Normalize(y, x, gamma, beta []float32, mean, inv float32) {
	same(y, x, gamma, beta)
	best.normalize(y, x, gamma, beta, mean, inv)
}

// Transpose copies the transpose of src, rows x cols with the row stride lds, to
// dst, cols x rows with the row stride ldd: dst[c*ldd+r] = src[r*lds+c]. It
// turns tokens [N][K] into a panel [K][64] and back. dst must not overlap src.
func Transpose(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	if rows <= 0 || cols <= 0 {
		return
	}
	if lds < cols || ldd < rows || (len(src)-cols)/lds < rows-1 || len(src) < cols ||
		(len(dst)-rows)/ldd < cols-1 || len(dst) < rows {
		panic("vec: matrix does not fit its slice")
	}
	transpose(best, dst, ldd, src, lds, rows, cols)
}

// transpose does Transpose with the kernels of k.
func transpose(k *kernels, dst []float32, ldd int, src []float32, lds, rows, cols int) {
	r := 0
	for _, strip := range [...]struct {
		rows, cols int
		f          func(blocks int, dst *float32, ldd int, src *float32, lds int)
	}{{16, 4, k.transpose16}, {8, 8, k.transpose8}} {
		blocks, rest := cols/strip.cols, cols%strip.cols
		if strip.f == nil || blocks == 0 {
			continue
		}
		for rows-r >= strip.rows || strip.rows == 8 && r > 0 && r < rows {
			r = min(r, rows-strip.rows) // the last rows and columns may be copied again
			strip.f(blocks, &dst[r], ldd, &src[r*lds], lds)
			if c := cols - strip.cols; rest > 0 {
				strip.f(1, &dst[c*ldd+r], ldd, &src[r*lds+c], lds)
			}
			r += strip.rows
		}
	}
	if r < rows {
		transposeGo(dst[r:], ldd, src[r*lds:], lds, rows-r, cols)
	}
}
