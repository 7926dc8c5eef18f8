package op

import (
	"fmt"

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
