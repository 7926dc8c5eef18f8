package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"spc/internal/verify"
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
	// Unequal says what differs that must not differ at all, as that of verify.Difference.
	Unequal string `json:"unequal,omitempty"`

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
	if first {
		c.Cosine = 1
	}
	if a.DType().IsList() {
		return c.addItems(a, b)
	}
	d := verify.Compare(a, b)
	c.Unequal = cmp.Or(c.Unequal, d.Unequal)
	c.MaxAbs = max(c.MaxAbs, number(d.MaxAbs))
	c.MaxRel = max(c.MaxRel, number(d.MaxRel))
	c.RelL2 = max(c.RelL2, number(d.RelL2))
	c.Cosine = min(c.Cosine, number(d.Cosine))
	if a.DType().IsFloat() {
		c.rank(verify.Floats(a), verify.Floats(b), a.Shape())
	}
	return nil
}

// addItems compares lists element by element.
func (c *comparison) addItems(a, b *tensor.Tensor) error {
	n := c.Shape
	defer func() { c.Shape = n }()
	for i, e := range a.Items() {
		if err := c.add(e, b.Items()[i]); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
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
	return c.Unequal == "" && (tolerance < 0 || float64(c.RelL2) <= tolerance)
}
