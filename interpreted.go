package spc

import (
	"cmp"
	"fmt"

	"spc/ir/tensor"
)

// Interpreted is an operator of which the CPU has no kernel for some nodes: what computes them is slow.
type Interpreted struct {
	Op    string   `json:"op"`
	Nodes []string `json:"nodes"`
	// Share is the part of a run's time that they are predicted to take, 0 where sizes are open.
	Share float64 `json:"share"`
}

// assumedSize is what sizes count as that are open, but for numbers of samples.
const assumedSize = 32

// sizes returns inputs without elements, and whether the sizes of one sample are known; nil where not even the number
// of dimensions is.
func (m *Model) sizes() (in []*tensor.Tensor, known bool) {
	known = true
	sizes := map[string]int{}
	for _, v := range m.graph.Inputs {
		if !v.Type.Ranked || !v.Type.DType.Numeric() {
			return nil, false
		}
		for i, d := range v.Type.Dims {
			if !d.Known() && !(i == 0 && len(v.Type.Dims) > 1) {
				known = false
				for _, symbol := range d.Symbols() {
					sizes[symbol] = assumedSize
				}
			}
		}
	}
	for _, v := range m.graph.Inputs {
		shape := make([]int, len(v.Type.Dims))
		for i, d := range v.Type.Dims {
			shape[i] = d.Size()
			if !d.Known() {
				n, _ := d.At(sizes)
				shape[i] = cmp.Or(n, 1)
			}
		}
		in = append(in, tensor.Header(v.Type.DType, shape...))
	}
	return in, known
}

// slowShare is the part of the time from which on it is worth a warning that it goes into the interpreter.
const slowShare = 0.05

// slow says how much of the time goes into the interpreter, empty where it is not worth a warning.
func (r *Report) slow() string {
	total := 0.0
	var parts []string
	for _, k := range r.Interpreted {
		total += k.Share
		nodes := "1 node"
		if n := len(k.Nodes); n > 1 {
			nodes = fmt.Sprintf("%d nodes", n)
		}
		parts = append(parts, fmt.Sprintf("%s %.0f%% (%s)", k.Op, 100*k.Share, nodes))
	}
	if total <= slowShare {
		return ""
	}
	return fmt.Sprintf("about %.0f%% of the time will be spent in the interpreter: %s", 100*total, some(parts))
}
