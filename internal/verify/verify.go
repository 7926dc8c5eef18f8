// Package verify judges what a compiled model computes: how far tensors lie apart, what
// is within tolerance, what a model must compute, and where it first computes something
// else. It imports the reference interpreter, reduce, ir and ir/tensor, and leaves the
// compilation and the device to whoever calls it.
package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Difference is how far a tensor lies from a reference.
type Difference struct {
	MaxAbs float64
	MaxRel float64
	RelL2  float64 // |a-b| / max(|b|, 1e-12), infinite where NaN stands on one side only
	Cosine float64
	// Unequal says what differs that must not differ at all: integers, bools, strings, and
	// where NaN is. It is empty where there is no such difference.
	Unequal string
}

// Within reports whether the difference passes a tolerance of the relative l2 error; a
// negative tolerance is passed by any.
func (d Difference) Within(tolerance float64) bool {
	return d.Unequal == "" && (tolerance < 0 || d.RelL2 <= tolerance)
}

func (d Difference) String() string {
	if d.Unequal != "" {
		return d.Unequal
	}
	return fmt.Sprintf("rel l2 %.4g", d.RelL2)
}

// tiny bounds denominators from below.
const tiny = 1e-12

// Compare compares a with the reference b, which has the same type and shape. NaN matches
// only NaN.
func Compare(a, b *tensor.Tensor) Difference {
	dt := a.DType()
	if dt.IsList() {
		return compareItems(a.Items(), b.Items())
	}
	x, y := Floats(a), Floats(b)
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
	d := Difference{MaxAbs: maxAbs, MaxRel: maxRel, RelL2: math.Sqrt(diff2) / max(math.Sqrt(y2), tiny), Cosine: 1}
	if x2 > 0 || y2 > 0 {
		d.Cosine = xy / max(math.Sqrt(x2)*math.Sqrt(y2), tiny*tiny)
	}
	switch {
	case unequal > 0:
		d.Unequal = fmt.Sprintf("%d elements are NaN on one side only", unequal)
		d.RelL2 = math.Inf(1)
	case !dt.IsFloat() && !isComplex(dt) && !a.Equal(b):
		d.Unequal = fmt.Sprintf("%v elements differ", dt)
	}
	return d
}

// compareItems returns the worst difference of the elements of lists of one length.
func compareItems(a, b []*tensor.Tensor) Difference {
	worst := Difference{Cosine: 1}
	for i, e := range a {
		if e.DType() != b[i].DType() || !slices.Equal(e.Shape(), b[i].Shape()) {
			worst.RelL2, worst.Unequal = math.Inf(1), fmt.Sprintf("element %d is %v, the other's %v", i, e, b[i])
			return worst
		}
		d := Compare(e, b[i])
		worst.MaxAbs, worst.MaxRel = max(worst.MaxAbs, d.MaxAbs), max(worst.MaxRel, d.MaxRel)
		worst.RelL2, worst.Cosine = max(worst.RelL2, d.RelL2), min(worst.Cosine, d.Cosine)
		worst.Unequal = cmp.Or(worst.Unequal, d.Unequal)
	}
	return worst
}

func isComplex(dt tensor.DType) bool { return dt == tensor.C64 || dt == tensor.C128 }

// Floats returns the elements as float64, a complex one as two; nil for strings and
// lists.
func Floats(t *tensor.Tensor) []float64 {
	if !t.DType().Numeric() {
		return nil
	}
	var out []float64
	switch t.DType() {
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

// Tolerance is the relative l2 error that outputs may have by default.
type Tolerance struct {
	RelL2 float64
	For   string // the least exact type in use
}

// Tolerances lists the defaults from the least exact type on: of 8-bit integers, which
// round to one of 256 numbers, so that an error of the last bit of a float becomes one of
// 1/256; then of the floats. Integers, bools and strings must be equal.
var Tolerances = []Tolerance{
	{0.1, "int8"},
	{0.08, "bf16"},
	{0.01, "f16"},
	{1e-4, "f32"},
}

// ToleranceOf returns the default for the types that the values of the graphs have which
// nodes compute, and those of the devices' floats, such as f16.
func ToleranceOf(precision string, graphs ...*ir.Graph) Tolerance {
	in := map[string]bool{precision: true}
	for _, g := range graphs {
		for sub := range g.All() {
			for _, n := range sub.Nodes {
				for _, v := range n.Outputs {
					if v == nil {
						continue
					}
					switch dt := v.Type.DType; {
					case n.Op.Kind() == "QuantizeLinear", n.Op.Kind() == "DynamicQuantizeLinear":
						in["int8"] = true
					case dt == tensor.F16, dt == tensor.BF16:
						in[dt.String()] = true
					}
				}
			}
		}
	}
	i := slices.IndexFunc(Tolerances, func(t Tolerance) bool { return in[t.For] })
	if i < 0 {
		i = len(Tolerances) - 1
	}
	return Tolerances[i]
}
