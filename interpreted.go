package spc

import (
	"cmp"
	"fmt"
	"slices"

	"spc/backend"
	"spc/backend/cpu"
	"spc/ir/tensor"
)

// Interpreted is an operator of which the CPU has no kernel for some nodes: what computes them is slow.
type Interpreted struct {
	Op    string   `json:"op"`
	Nodes []string `json:"nodes"`
	// Share is the part of a run's time that they are predicted to take, 0 where sizes are open.
	Share float64 `json:"share"`
}

// Interpreted lists the operators for which the CPU has no kernel, the slowest first, at the shapes that inputs have or
// were given; the number of samples, where it is open, is taken for one. Where other sizes are open the nodes are those
// for assumed sizes, and there are no shares. It is empty where the model does not fit such sizes.
func (m *Model) Interpreted() []Interpreted {
	in, known := m.sizes()
	if in == nil {
		return nil
	}
	var list []cpu.Prediction
	err := m.guard(func() (err error) {
		list, err = cpu.Predict(m.graph, in, backend.Options{Threads: 1, Checked: true}, m.report.predicted())
		return err
	})
	if err != nil {
		return nil
	}
	var out []Interpreted
	total := 0.0
	for _, p := range list {
		total += p.Seconds
		if !p.Interpreted {
			continue
		}
		kind := p.Node.Op.Kind()
		i := slices.IndexFunc(out, func(r Interpreted) bool { return r.Op == kind })
		if i < 0 {
			i = len(out)
			out = append(out, Interpreted{Op: kind})
		}
		out[i].Nodes = append(out[i].Nodes, p.Node.Name)
		out[i].Share += p.Seconds
	}
	for i := range out {
		if out[i].Share /= max(total, 1e-9); !known {
			out[i].Share = 0
		}
	}
	slices.SortStableFunc(out, func(a, b Interpreted) int { return cmp.Compare(b.Share, a.Share) })
	return out
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
				sizes[d.Symbol()] = assumedSize
			}
		}
	}
	for _, v := range m.graph.Inputs {
		shape := make([]int, len(v.Type.Dims))
		for i, d := range v.Type.Dims {
			shape[i] = d.Size()
			if !d.Known() {
				shape[i] = cmp.Or(sizes[d.Symbol()], 1)
			}
		}
		in = append(in, tensor.Header(v.Type.DType, shape...))
	}
	return in, known
}

// predicted sums the times that were predicted for the formats of nodes' weights on the CPU, for the fewest columns where
// these are open.
func (r *Report) predicted() map[string]float64 {
	out := map[string]float64{}
	if r.Options.Target != string(CPU) {
		return out
	}
	for _, l := range r.Layers {
		for _, c := range l.Candidates {
			us := cmp.Or(c.MeasuredUs, c.PredictedUs)
			if c.PointsUs != nil {
				us = c.PointsUs[0]
			}
			if c.Chosen {
				out[l.Name] += us / 1e6
			}
		}
	}
	return out
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
