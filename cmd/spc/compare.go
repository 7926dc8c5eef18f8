package main

import (
	"fmt"
	"math"
	"slices"

	"spc/ir/tensor"
)

// comparison is how two models' outputs of one name differ, the worst of all runs.
type comparison struct {
	Name   string `json:"name"`
	Shape  []int  `json:"shape"`
	MaxAbs number `json:"max_abs"`
	MaxRel number `json:"max_rel"`
	RelL2  number `json:"rel_l2"`
	Cosine number `json:"cosine"`
	// Top1 is the share of rows, along the axis of the classes, whose largest
	// element is at the same place; nil where there are no floats to rank.
	Top1 *float64 `json:"top1_agreement"`

	exact  string // what differs that must not differ at all
	rows   int
	agreed int
}

// tiny bounds denominators from below.
const tiny = 1e-12

// add compares a with the reference b, and keeps the worst. Integers, bools and
// strings must be equal, and NaN matches only NaN.
func (c *comparison) add(a, b *tensor.Tensor) error {
	if a.DType() != b.DType() || !slices.Equal(a.Shape(), b.Shape()) {
		return fmt.Errorf("output %s is %v, the other's %v", c.Name, a, b)
	}
	first := c.Shape == nil
	c.Shape = b.Shape()
	dt := a.DType()
	x, y := floats(a), floats(b)
	if dt == tensor.String {
		x, y = make([]float64, len(a.Strings())), make([]float64, len(a.Strings()))
		for i, s := range a.Strings() {
			if s != b.Strings()[i] {
				x[i] = 1
			}
		}
	}
	var maxAbs, maxRel, diff2, x2, y2, xy float64
	unequal := 0
	for i, u := range x {
		v := y[i]
		if math.IsNaN(u) || math.IsNaN(v) {
			if math.IsNaN(u) != math.IsNaN(v) {
				unequal++
			}
			continue
		}
		if u != v {
			d := math.Abs(u - v)
			maxAbs = max(maxAbs, d)
			maxRel = max(maxRel, d/max(math.Abs(v), tiny))
			diff2 += d * d
		}
		if !math.IsInf(u, 0) && !math.IsInf(v, 0) {
			x2, y2, xy = x2+u*u, y2+v*v, xy+u*v
		}
	}
	relL2 := math.Sqrt(diff2) / max(math.Sqrt(y2), tiny)
	cosine := 1.0
	if x2 > 0 || y2 > 0 {
		cosine = xy / max(math.Sqrt(x2)*math.Sqrt(y2), tiny*tiny)
	}
	switch {
	case unequal > 0:
		c.exact = fmt.Sprintf("%d elements are NaN on one side only", unequal)
		relL2 = math.Inf(1)
	case !dt.IsFloat() && !isComplex(dt) && !a.Equal(b):
		c.exact = fmt.Sprintf("%v elements differ", dt)
	}
	if first {
		c.Cosine = 1
	}
	c.MaxAbs = max(c.MaxAbs, number(maxAbs))
	c.MaxRel = max(c.MaxRel, number(maxRel))
	c.RelL2 = max(c.RelL2, number(relL2))
	c.Cosine = min(c.Cosine, number(cosine))
	if dt.IsFloat() {
		c.rank(x, y, a.Shape())
	}
	return nil
}

// rank counts the rows whose largest element is at the same place. Rows run along
// the last axis longer than one.
func (c *comparison) rank(x, y []float64, shape []int) {
	axis := len(shape) - 1
	for axis >= 0 && shape[axis] == 1 {
		axis--
	}
	if axis < 0 || len(x) == 0 {
		return
	}
	n := shape[axis]
	for i := 0; i < len(x); i += n {
		c.rows++
		if argmax(x[i:i+n]) == argmax(y[i:i+n]) {
			c.agreed++
		}
	}
	f := float64(c.agreed) / float64(c.rows)
	c.Top1 = &f
}

// argmax is the place of the first largest element, NaN being larger than all.
func argmax(x []float64) int {
	best := 0
	for i, v := range x {
		if math.IsNaN(x[best]) {
			return best
		}
		if !(v <= x[best]) {
			best = i
		}
	}
	return best
}

// pass reports whether the difference is within a tolerance, negative for any.
func (c *comparison) pass(tolerance float64) bool {
	return c.exact == "" && (tolerance < 0 || float64(c.RelL2) <= tolerance)
}

func isComplex(dt tensor.DType) bool { return dt == tensor.C64 || dt == tensor.C128 }

// floats returns the elements as float64, a complex one as two; nil for strings.
func floats(t *tensor.Tensor) []float64 {
	var out []float64
	switch t.DType() {
	case tensor.String:
	case tensor.C64:
		for _, v := range tensor.Data[complex64](t) {
			out = append(out, float64(real(v)), float64(imag(v)))
		}
	case tensor.C128:
		for _, v := range tensor.Data[complex128](t) {
			out = append(out, real(v), imag(v))
		}
	default:
		out = t.Float64s()
	}
	return out
}
