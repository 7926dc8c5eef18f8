package ir

import (
	"fmt"
	"strings"

	"spc/ir/tensor"
)

// CheckInputs returns an error that wraps ErrInvalid unless the tensors are what
// g takes: one an input, of its element type and dimensions, a symbol standing
// for the same size everywhere.
func CheckInputs(g *Graph, in []*tensor.Tensor) error {
	_, err := BindInputs(g, in)
	return err
}

// BindInputs is CheckInputs, and returns the sizes that the symbols of g's inputs stand for.
func BindInputs(g *Graph, in []*tensor.Tensor) (sizes map[string]int, err error) {
	if len(in) != len(g.Inputs) {
		names := make([]string, len(g.Inputs))
		for i, v := range g.Inputs {
			names[i] = v.Name
		}
		return nil, fmt.Errorf("%d inputs, want %d: %s: %w", len(in), len(names), strings.Join(names, ", "), ErrInvalid)
	}
	sizes = map[string]int{}
	for i, v := range g.Inputs {
		t := in[i]
		if t == nil {
			return nil, fmt.Errorf("input %s is missing: %w", v.Name, ErrInvalid)
		}
		if ok, why := accepts(v.Type, t, sizes); !ok {
			return nil, fmt.Errorf("input %s is %v, want %v%s: %w", v.Name, t, v.Type, why, ErrInvalid)
		}
	}
	for i, v := range g.Inputs {
		for j, d := range v.Type.Dims {
			if !d.Computed() {
				continue
			}
			if n, ok := d.At(sizes); ok && max(n, 0) != in[i].Dim(j) {
				return nil, fmt.Errorf("input %s is %v, want %v with %s = %d: %w", v.Name, in[i], v.Type, d, n, ErrInvalid)
			}
		}
	}
	return sizes, nil
}

// accepts reports whether t is of the type want, with the sizes that symbols have, to
// which it adds; otherwise it may tell why not.
func accepts(want Type, t *tensor.Tensor, sizes map[string]int) (ok bool, why string) {
	if t.DType() != want.DType || want.Ranked && len(want.Dims) != t.Rank() {
		return false, ""
	}
	for j, d := range want.Dims {
		n := t.Dim(j)
		if d.Known() {
			if n != d.Size() {
				return false, ""
			}
			continue
		}
		if d == Any {
			continue
		}
		if have, ok := sizes[d.Symbol()]; ok && have != n {
			return false, fmt.Sprintf(" with %s = %d as before", d, have)
		}
		sizes[d.Symbol()] = n
	}
	if want.Elem == nil {
		return true, ""
	}
	for i, e := range t.Items() {
		if ok, why := accepts(*want.Elem, e, sizes); !ok {
			return false, fmt.Sprintf("%s: element %d is %v", why, i, e)
		}
	}
	return true, ""
}

// Specialise returns a copy of g, which has been inferred, for inputs of the types of in.
// Where the body of a Loop or Scan does not fit these, it is refused when it runs, as it is
// where g is interpreted, and not before.
func (g *Graph) Specialise(in []*tensor.Tensor) (*Graph, error) {
	g = g.Clone()
	g.root.specialised = true
	sizes := map[string]int{}
	for i, v := range g.Inputs {
		accepts(v.Type, in[i], sizes) // which a part of a batch need not be
		v.Type = TypeOf(in[i])
	}
	// The stack of a body that is refused has the sizes that the body's outputs had.
	size := func(d Dim) Dim {
		if n, ok := d.At(sizes); ok {
			return Size(max(n, 0))
		}
		return d
	}
	for _, sub := range g.root.graphs[1:] {
		for _, v := range sub.Outputs {
			v.Type = v.Type.Map(size)
		}
	}
	return g, g.Infer()
}
