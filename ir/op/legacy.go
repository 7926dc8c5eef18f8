package op

import (
	"fmt"
	"maps"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Legacy is a node as an ONNX file has it, before its operator is made. An
// operator's Upgrade brings what older opsets wrote differently to the form of
// the current opset: attributes that became inputs, defaults that changed,
// renamed operators.
type Legacy struct {
	Opset  int            // the version of the node's domain that the model imports
	Kind   string         // may be changed to another operator of Table
	Attrs  map[string]any // int, float32, string, []int, []float32, []string, *tensor.Tensor, *ir.Graph
	Inputs []*ir.Value    // nil where absent
	Graph  *ir.Graph      // where constants are made
	Outs   int            // the number of outputs
}

// Take removes an attribute and returns it, nil where it is absent.
func (l *Legacy) Take(name string) any {
	v := l.Attrs[name]
	delete(l.Attrs, name)
	return v
}

// Default sets an attribute where the node does not.
func (l *Legacy) Default(name string, v any) {
	if _, ok := l.Attrs[name]; !ok {
		l.Attrs[name] = v
	}
}

// SetInput sets input i, with absent inputs before it.
func (l *Legacy) SetInput(i int, v *ir.Value) {
	for len(l.Inputs) <= i {
		l.Inputs = append(l.Inputs, nil)
	}
	l.Inputs[i] = v
}

// ConstInput makes t input i.
func (l *Legacy) ConstInput(i int, t *tensor.Tensor) {
	l.SetInput(i, l.Graph.NewConst("", t))
}

// IntsToInput moves an attribute, an int or a list of ints, to input i as an i64
// vector; an absent attribute leaves the input as it is.
func (l *Legacy) IntsToInput(name string, i int) error {
	switch v := l.Take(name).(type) {
	case nil:
	case int:
		l.ConstInput(i, tensor.Ints(v))
	case []int:
		l.ConstInput(i, tensor.Ints(v...))
	default:
		return fmt.Errorf("attribute %s has type %T, want ints: %w", name, v, ir.ErrInvalid)
	}
	return nil
}

// FloatToInput moves a float attribute to input i as a scalar of type f32.
func (l *Legacy) FloatToInput(name string, i int) error {
	switch v := l.Take(name).(type) {
	case nil:
	case float32:
		l.ConstInput(i, tensor.Scalar(v))
	default:
		return fmt.Errorf("attribute %s has type %T, want a float: %w", name, v, ir.ErrInvalid)
	}
	return nil
}

// Make upgrades the node and makes its operator. It refuses attributes that the
// operator does not have and inputs or outputs that it does not take; absent
// inputs at the end are cut.
func (l *Legacy) Make() (ir.Op, error) {
	def := Lookup(l.Kind)
	if def != nil && def.Upgrade != nil {
		if err := def.Upgrade(l); err != nil {
			return nil, err
		}
		def = Lookup(l.Kind)
	}
	if def == nil {
		return nil, fmt.Errorf("the operator %s has no definition: %w", l.Kind, ir.ErrUnsupported)
	}
	o, err := New(l.Kind)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(l.Attrs)) {
		if err := ir.SetAttr(o, name, l.Attrs[name]); err != nil {
			return nil, fmt.Errorf("%w in opset %d: %w", err, l.Opset, ir.ErrInvalid)
		}
	}
	for len(l.Inputs) > 0 && l.Inputs[len(l.Inputs)-1] == nil {
		l.Inputs = l.Inputs[:len(l.Inputs)-1]
	}
	if err := def.CheckArity(len(l.Inputs), l.Outs); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	for i := range def.In[0] {
		if l.Inputs[i] == nil {
			return nil, fmt.Errorf("input %d is absent: %w", i, ir.ErrInvalid)
		}
	}
	return o, nil
}

// Constant returns the tensor that a Constant node's attributes give.
func (l *Legacy) Constant() (*tensor.Tensor, error) {
	if len(l.Inputs) > 0 || l.Outs != 1 {
		return nil, fmt.Errorf("%d inputs and %d outputs, want 0 and 1: %w", len(l.Inputs), l.Outs, ir.ErrInvalid)
	}
	if len(l.Attrs) != 1 {
		return nil, fmt.Errorf("%d values, want one: %w", len(l.Attrs), ir.ErrInvalid)
	}
	for name, v := range l.Attrs {
		switch v := v.(type) {
		case *tensor.Tensor:
			if name == "value" || name == "sparse_value" {
				return v, nil
			}
		case int:
			if name == "value_int" {
				return tensor.Scalar(int64(v)), nil
			}
		case float32:
			if name == "value_float" {
				return tensor.Scalar(v), nil
			}
		case string:
			if name == "value_string" {
				return tensor.FromStrings([]string{v}), nil
			}
		case []int:
			if name == "value_ints" {
				return tensor.Ints(v...), nil
			}
		case []float32:
			if name == "value_floats" {
				return tensor.From(v, len(v)), nil
			}
		case []string:
			if name == "value_strings" {
				return tensor.FromStrings(v, len(v)), nil
			}
		}
		return nil, fmt.Errorf("attribute %s of type %T is no constant: %w", name, v, ir.ErrInvalid)
	}
	return nil, nil
}
