package zoo

import (
	"fmt"
	"strings"

	"spc"
	"spc/data"
	"spc/ir/tensor"
)

// Notes are what the exporter writes into the metadata of a member.
type Notes map[string]string

// Inputs draws inputs: floats are standard normal unless the exporter noted a range.
func (notes Notes) Inputs(ports []spc.Port) (map[string]*tensor.Tensor, error) {
	inputs := map[string]*tensor.Tensor{}
	for _, p := range ports {
		r := data.Random{Seed: seed}
		if s := notes["zoo.input."+p.Name]; s != "" {
			if _, err := fmt.Sscan(s, &r.Lo, &r.Hi); err != nil {
				return nil, fmt.Errorf("input %s: range %q: %w", p.Name, s, err)
			}
			if r.Ranged = true; !p.DType.IsFloat() {
				r.Hi++ // the exporter's range includes it
			}
		}
		shape := make([]int, len(p.Dims))
		for i, d := range p.Dims {
			if !d.Known() {
				return nil, fmt.Errorf("input %s %v: a size is open", p.Name, p)
			}
			shape[i] = d.Size()
		}
		x, err := r.Tensor(p.Name, p.DType, shape, p.Bound)
		if err != nil {
			return nil, err
		}
		inputs[p.Name] = x
	}
	return inputs, nil
}

// Compared keeps of outputs by name those that are compared: all but those that follow by sorting near-equal scores.
func (notes Notes) Compared(outputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	list := notes["zoo.outputs"]
	if list == "" {
		return outputs, nil
	}
	kept := map[string]*tensor.Tensor{}
	for _, name := range strings.Fields(list) {
		if outputs[name] == nil {
			return nil, fmt.Errorf("there is no output %s, which is to be compared", name)
		}
		kept[name] = outputs[name]
	}
	return kept, nil
}
