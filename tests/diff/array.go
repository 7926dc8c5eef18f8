package diff

import (
	"math"
	"slices"

	"spc/ir/tensor"
)

// array is a tensor as a specification computes with it, in float64.
type array struct {
	shape []int
	x     []float64
}

func newArray(shape ...int) *array {
	return &array{slices.Clone(shape), make([]float64, product(shape))}
}

func arrayOf(t *tensor.Tensor) *array { return &array{t.Shape(), t.Float64s()} }

// tensor is the array in a type: floats are rounded, integers are there already.
func (a *array) tensor(dt tensor.DType) *tensor.Tensor {
	if dt.IsFloat() {
		return tensor.FromFloat64s(dt, a.x, a.shape...)
	}
	x := make([]int64, len(a.x))
	for i, v := range a.x {
		x[i] = int64(v)
	}
	return tensor.FromInt64s(dt, x, a.shape...)
}

func (a *array) rank() int { return len(a.shape) }

// dim is a dimension, from the end where i is negative.
func (a *array) dim(i int) int { return a.shape[(i+len(a.shape))%len(a.shape)] }

func (a *array) reshaped(shape ...int) *array { return &array{shape, a.x} }

// each is f of each element.
func (a *array) each(f func(float64) float64) *array {
	y := newArray(a.shape...)
	for i, v := range a.x {
		y.x[i] = f(v)
	}
	return y
}

// with is f of elements that broadcast; a where b is nil.
func (a *array) with(b *array, f func(x, y float64) float64) *array {
	if b == nil {
		return a
	}
	y := newArray(joint(a.shape, b.shape)...)
	for i := range y.x {
		y.x[i] = f(a.x[placeIn(y.shape, a.shape, i)], b.x[placeIn(y.shape, b.shape, i)])
	}
	return y
}

func (a *array) plus(b *array) *array {
	return a.with(b, func(x, y float64) float64 { return x + y })
}

func (a *array) scaled(by float64) *array {
	return a.each(func(x float64) float64 { return x * by })
}

// joint is the shape to which two shapes broadcast.
func joint(a, b []int) []int {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := slices.Clone(a)
	for i, d := range b {
		if at := len(a) - len(b) + i; out[at] == 1 {
			out[at] = d
		}
	}
	return out
}

// placeIn is where, in a tensor of a shape that broadcasts to another, element i of that is.
func placeIn(to, shape []int, i int) int {
	at, step := 0, 1
	for k := len(to) - 1; k >= len(to)-len(shape); k-- {
		p := i % to[k]
		i /= to[k]
		d := shape[k-len(to)+len(shape)]
		if d > 1 {
			at += p * step
		}
		step *= d
	}
	return at
}

// permuted has axis perm[i] of a as axis i.
func (a *array) permuted(perm ...int) *array {
	shape, strides := make([]int, len(perm)), tensor.Strides(a.shape)
	for i, p := range perm {
		shape[i] = a.shape[p]
	}
	y := newArray(shape...)
	for i := range y.x {
		at := 0
		for k, rest := len(perm)-1, i; k >= 0; k-- {
			at += rest % shape[k] * strides[perm[k]]
			rest /= shape[k]
		}
		y.x[i] = a.x[at]
	}
	return y
}

// transposed has the last two axes swapped.
func (a *array) transposed() *array {
	perm := allAxes(a.rank())
	slices.Reverse(perm[a.rank()-2:])
	return a.permuted(perm...)
}

func allAxes(rank int) []int {
	perm := make([]int, rank)
	for i := range perm {
		perm[i] = i
	}
	return perm
}

// times is the product of matrices, whose other axes broadcast.
func (a *array) times(b *array) *array {
	m, k, n := a.dim(-2), a.dim(-1), b.dim(-1)
	left, right := a.shape[:a.rank()-2], b.shape[:b.rank()-2]
	lead := joint(left, right)
	y := newArray(append(slices.Clone(lead), m, n)...)
	for l := range product(lead) {
		p, q := a.x[placeIn(lead, left, l)*m*k:], b.x[placeIn(lead, right, l)*k*n:]
		for i := range m {
			for j := range n {
				sum := 0.0
				for e := range k {
					sum += p[i*k+e] * q[e*n+j]
				}
				y.x[(l*m+i)*n+j] = sum
			}
		}
	}
	return y
}

// part is what an axis has from one index to another.
func (a *array) part(axis, from, to int) *array {
	axis = (axis + a.rank()) % a.rank()
	shape := slices.Clone(a.shape)
	shape[axis] = to - from
	inner := product(a.shape[axis+1:])
	y := newArray(shape...)
	for i := range y.x {
		outer, rest := i/(inner*(to-from)), i%(inner*(to-from))
		y.x[i] = a.x[outer*inner*a.shape[axis]+from*inner+rest]
	}
	return y
}

// parts cuts the last axis.
func (a *array) parts(sizes ...int) (out []*array) {
	at := 0
	for _, n := range sizes {
		out = append(out, a.part(-1, at, at+n))
		at += n
	}
	return out
}

// followed is a and b along an axis.
func (a *array) followed(axis int, b *array) *array {
	shape := slices.Clone(a.shape)
	shape[axis] += b.shape[axis]
	y := &array{shape: shape}
	p, q := product(a.shape[axis:]), product(b.shape[axis:])
	for i := range product(shape[:axis]) {
		y.x = append(append(y.x, a.x[i*p:][:p]...), b.x[i*q:][:q]...)
	}
	return y
}

// rows are those of a table that ids name, from the end where they are negative.
func (a *array) rows(ids *array) *array {
	n := product(a.shape[1:])
	y := &array{shape: append(slices.Clone(ids.shape), a.shape[1:]...)}
	for _, id := range ids.x {
		y.x = append(y.x, a.x[(int(id)+a.shape[0])%a.shape[0]*n:][:n]...)
	}
	return y
}

// normalised divides what the last axis has, less its mean where centred, by its deviation from zero then. The inverse of that, and
// the mean, come second and third.
func (a *array) normalised(epsilon float64, centred bool) (y, inverse, mean *array) {
	n := a.dim(-1)
	one := append(slices.Clone(a.shape[:a.rank()-1]), 1)
	y, inverse, mean = newArray(a.shape...), newArray(one...), newArray(one...)
	for r := range inverse.x {
		row, out := a.x[r*n:][:n], y.x[r*n:][:n]
		if centred {
			for _, v := range row {
				mean.x[r] += v / float64(n)
			}
		}
		squares := 0.0
		for _, v := range row {
			squares += (v - mean.x[r]) * (v - mean.x[r]) / float64(n)
		}
		inverse.x[r] = 1 / math.Sqrt(squares+epsilon)
		for i, v := range row {
			out[i] = (v - mean.x[r]) * inverse.x[r]
		}
	}
	if n == 0 { // nothing is said of the mean of nothing
		return y, nil, nil
	}
	return y, inverse, mean
}
