package recon

import (
	"math"
	"math/rand/v2"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// loss is how far a value of the pruned model is from the dense one's.
type loss struct {
	value  *ir.Value
	aside  bool    // it guides training and does not count
	scores bool    // the Kullback-Leibler divergence of distributions over classes
	weight float64 // of this loss in the sum
	power  float64 // of an element of the target, that squared errors are relative to
	axis   int
	gone   []bool // slices along the axis that do not count in squared errors; nil where all do
}

// runs calls do with the runs of the elements of t that count, and returns their number.
func (l *loss) runs(t *tensor.Tensor, do func(lo, hi int)) (n int) {
	if l.gone == nil {
		do(0, t.Len())
		return t.Len()
	}
	inner := 1
	for _, d := range t.Shape()[l.axis+1:] {
		inner *= d
	}
	for lo, c := 0, 0; lo < t.Len(); lo += inner {
		if !l.gone[c] {
			do(lo, lo+inner)
			n += inner
		}
		if c++; c == len(l.gone) {
			c = 0
		}
	}
	return n
}

// eval returns the loss of y, summed over the samples, and, where g is not nil, sets
// it to factor times the gradient. The targets of a divergence are scores as well.
func (l *loss) eval(y, target *tensor.Tensor, samples int, g []float32, factor float64) float64 {
	a, b := y.F32s(), target.F32s()
	if !l.scores {
		return l.squares(y, target, samples, g, factor)
	}
	n := calib.Classes(y)
	scale := l.scale(y, samples)
	p, q := make([]float64, n), make([]float64, n)
	sum := 0.0
	for i := 0; i < len(a); i += n {
		logSoftmax(p, b[i:][:n])
		logSoftmax(q, a[i:][:n])
		for j := range p {
			e := math.Exp(p[j])
			sum += e * (p[j] - q[j])
			if g != nil {
				g[i+j] = float32(factor * scale * (math.Exp(q[j]) - e))
			}
		}
	}
	return sum * scale
}

// squares is eval of squared errors.
func (l *loss) squares(y, target *tensor.Tensor, samples int, g []float32, factor float64) float64 {
	a, b := y.F32s(), target.F32s()
	sum := 0.0
	l.runs(y, func(lo, hi int) {
		s := 0.0
		for i, v := range a[lo:hi] {
			d := float64(v - b[lo+i])
			s += d * d
		}
		sum += s
	})
	scale := l.scale(y, samples)
	if g != nil {
		clear(g)
		f := float32(2 * scale * factor)
		l.runs(y, func(lo, hi int) {
			for i, v := range a[lo:hi] {
				g[lo+i] = f * (v - b[lo+i])
			}
		})
	}
	return sum * scale
}

// bend sets g to factor times the second derivative of the loss of y, summed over the samples, times
// moved - y.
func (l *loss) bend(y, moved *tensor.Tensor, samples int, g []float32, factor float64) {
	a, b := y.F32s(), moved.F32s()
	if !l.scores {
		clear(g)
		f := float32(2 * l.scale(y, samples) * factor)
		l.runs(y, func(lo, hi int) {
			for i, v := range a[lo:hi] {
				g[lo+i] = f * (b[lo+i] - v)
			}
		})
		return
	}
	n := calib.Classes(y)
	factor *= l.scale(y, samples)
	p := make([]float64, n)
	for i := 0; i < len(a); i += n {
		logSoftmax(p, a[i:][:n])
		mean := 0.0
		for j, v := range p {
			p[j] = math.Exp(v)
			mean += p[j] * float64(b[i+j]-a[i+j])
		}
		for j, v := range p {
			g[i+j] = float32(factor * v * (float64(b[i+j]-a[i+j]) - mean))
		}
	}
}

// signs sets u to random signs times a root of factor times the second derivative of the loss of y, a sample.
func (l *loss) signs(y *tensor.Tensor, u []float32, factor float64, rng *rand.Rand) {
	e := end{scores: l.scores, scale: math.Sqrt(factor * l.scale(y, 1))}
	if !l.scores {
		e.scale *= math.Sqrt2
	}
	e.draw(u, y, rng)
	if l.gone != nil {
		kept := slices.Clone(u)
		clear(u)
		l.runs(y, func(lo, hi int) { copy(u[lo:hi], kept[lo:hi]) })
	}
}

// scale is what a row of scores, or the square of an element's error, counts in the loss of y, summed
// over the samples.
func (l *loss) scale(y *tensor.Tensor, samples int) float64 {
	if l.scores {
		return l.weight * float64(samples) / float64(max(1, y.Len()/calib.Classes(y)))
	}
	return l.weight * float64(samples) / (l.power * float64(max(1, l.runs(y, func(int, int) {}))))
}

func logSoftmax(dst []float64, x []float32) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, float64(v))
	}
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	top += math.Log(sum)
	for i, v := range x {
		dst[i] = float64(v) - top
	}
}
