package op

import (
	"errors"
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// evalTypes infers the types of n outputs from the tensors that an operator is
// evaluated on. It is how an Eval learns its output shapes and refuses what its
// Infer refuses, where the types in the graph knew too little to tell.
func evalTypes(o ir.Op, n int, in []*tensor.Tensor) ([]ir.Type, error) {
	g := ir.NewGraph("")
	values := make([]*ir.Value, len(in))
	for i, t := range in {
		if t != nil {
			values[i] = g.NewConst("", t)
		}
	}
	node := g.NewNode("", o, values, make([]string, n)...)
	if err := node.Infer(); err != nil {
		var ne *ir.NodeError
		if errors.As(err, &ne) {
			return nil, fmt.Errorf("%s: %w", ne.Msg, ne.Kind)
		}
		return nil, err
	}
	types := make([]ir.Type, n)
	for i, v := range node.Outputs {
		types[i] = v.Type
	}
	return types, nil
}

// evalShapes is evalTypes for operators whose outputs' shapes follow from those
// of their inputs.
func evalShapes(o ir.Op, n int, in []*tensor.Tensor) ([][]int, error) {
	types, err := evalTypes(o, n, in)
	if err != nil {
		return nil, err
	}
	return staticShapes(types)
}

// staticShapes returns the shapes of types that are static and refuses others, and
// more than maxOutput elements.
func staticShapes(types []ir.Type) ([][]int, error) {
	shapes := make([][]int, len(types))
	for i, t := range types {
		s, ok := t.Shape()
		if !ok {
			return nil, evalErrorf("output %d has the type %v, want a known shape", i, t)
		}
		if n, err := tensor.Elems(s); err != nil || n > maxOutput {
			return nil, evalErrorf("output %d of shape %v has more than %d elements", i, s, maxOutput)
		}
		shapes[i] = s
	}
	return shapes, nil
}

// evalOutputs is evalShapes that also returns the outputs where all of them are
// empty, else nil: their inputs may have dimensions that no loop should run over.
func evalOutputs(o ir.Op, n int, in []*tensor.Tensor) (shapes [][]int, empty []*tensor.Tensor, err error) {
	types, err := evalTypes(o, n, in)
	if err != nil {
		return nil, nil, err
	}
	if shapes, err = staticShapes(types); err != nil {
		return nil, nil, err
	}
	for i, s := range shapes {
		if product(s) > 0 {
			return shapes, nil, nil
		}
		empty = append(empty, tensor.New(types[i].DType, s...))
	}
	return shapes, empty, nil
}

// reals are the element types of most neural network operators.
var reals = []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64}

// wantOneOf refuses an input that is present and has none of the element types.
func wantOneOf(c *ir.Infer, i int, types []tensor.DType) error {
	if !c.Has(i) || slices.Contains(types, c.In(i).DType) {
		return nil
	}
	return c.Errorf("input %d is %v, want one of %v", i, c.In(i).DType, types)
}

// wantAllSame refuses inputs whose element types differ from that of input 0.
func wantAllSame(c *ir.Infer) error {
	for i := range c.Len() {
		if err := wantSame(c, i); err != nil {
			return err
		}
	}
	return nil
}

// wantSameReals refuses a node that lacks one of its first n inputs, and inputs that
// are not all of one real type.
func wantSameReals(c *ir.Infer, n int) error {
	if err := wantPresent(c, n); err != nil {
		return err
	}
	if err := wantOneOf(c, 0, reals); err != nil {
		return err
	}
	return wantAllSame(c)
}

// differ reports whether two dimensions are known and unequal.
func differ(a, b ir.Dim) bool { return a.Known() && b.Known() && a != b }

// wantDims refuses an input of another rank or with a dimension known to
// differ. A fresh dimension in dims fits any.
func wantDims(c *ir.Infer, i int, what string, dims ...ir.Dim) error {
	t := c.In(i)
	if !c.Has(i) || !t.Ranked {
		return nil
	}
	want := ir.Of(t.DType, dims...)
	if t.Rank() != len(dims) {
		return c.Errorf("%s is %v, want %v", what, t, want)
	}
	for k, d := range dims {
		if differ(d, t.Dims[k]) {
			return c.Errorf("%s is %v, want %v", what, t, want)
		}
	}
	return nil
}

// dimOf returns dimension i of a type, a fresh one where it is unknown.
func dimOf(c *ir.Infer, t ir.Type, i int) ir.Dim {
	if t.Ranked && i < len(t.Dims) {
		return t.Dims[i]
	}
	return c.Fresh()
}

// known returns the first dimension that is a size, else the first.
func known(a, b ir.Dim) ir.Dim {
	if !a.Known() && b.Known() {
		return b
	}
	return a
}

// fromFloats rounds values to a floating-point type, or converts whole values to
// an integer type.
func fromFloats(dt tensor.DType, v []float64, shape ...int) *tensor.Tensor {
	if dt.IsFloat() {
		return tensor.FromFloat64s(dt, v, shape...)
	}
	ints := make([]int64, len(v))
	for i, x := range v {
		ints[i] = int64(x)
	}
	return tensor.FromInt64s(dt, ints, shape...)
}

// float64s returns the elements of an optional input, nil where it is absent.
func float64s(in []*tensor.Tensor, i int) []float64 {
	if t := optional(in, i); t != nil {
		return t.Float64s()
	}
	return nil
}
