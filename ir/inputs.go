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
	if len(in) != len(g.Inputs) {
		names := make([]string, len(g.Inputs))
		for i, v := range g.Inputs {
			names[i] = v.Name
		}
		return fmt.Errorf("%d inputs, want %d: %s: %w", len(in), len(names), strings.Join(names, ", "), ErrInvalid)
	}
	sizes := map[string]int{}
	for i, v := range g.Inputs {
		t := in[i]
		if t == nil {
			return fmt.Errorf("input %s is missing: %w", v.Name, ErrInvalid)
		}
		fits := t.DType() == v.Type.DType && (!v.Type.Ranked || len(v.Type.Dims) == t.Rank())
		if !fits {
			return fmt.Errorf("input %s is %v, want %v: %w", v.Name, t, v.Type, ErrInvalid)
		}
		for j, d := range v.Type.Dims {
			n := t.Dim(j)
			if d.Known() {
				if n != d.Size() {
					return fmt.Errorf("input %s is %v, want %v: %w", v.Name, t, v.Type, ErrInvalid)
				}
				continue
			}
			if have, ok := sizes[d.Symbol()]; ok && have != n {
				return fmt.Errorf("input %s is %v, want %v with %s = %d as before: %w", v.Name, t, v.Type, d, have, ErrInvalid)
			}
			sizes[d.Symbol()] = n
		}
	}
	return nil
}
