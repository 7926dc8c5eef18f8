package spc

import (
	"cmp"
	"fmt"
	"slices"

	"spc/backend"
	"spc/backend/cpu"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Interpreted is an operator of which the CPU has no kernel for some nodes: what computes them is slow.
type Interpreted struct {
	Op    string   `json:"op"`
	Nodes []string `json:"nodes"`
	// Share is the part of a run's time that they are predicted to take, 0 where sizes are open.
	Share float64 `json:"share"`
}

// Forecast is what is known of a run before it.
type Forecast struct {
	// Interpreted lists the operators for which the CPU has no kernel, the slowest first. Where sizes are open the nodes are those
	// for assumed sizes, and there are no shares. It is empty where the model does not fit such sizes.
	Interpreted []Interpreted
	// Predicted is the time of a run; nil where sizes are open or another device runs the model.
	Predicted *PredictedRun
}

// PredictedRun is the time that a run is predicted to take on a CPU as the model's profile describes it.
type PredictedRun struct {
	Threads int     `json:"threads"`
	Ms      float64 `json:"ms"`
	DenseMs float64 `json:"dense_ms"` // were all weights dense
	// Unsized counts the nodes whose sizes are not known before they run: they are not in these times.
	Unsized int `json:"unsized,omitempty"`
}

// Interpreted is Forecast's.
func (m *Model) Interpreted() []Interpreted { return m.Forecast(1, nil).Interpreted }

// Forecast predicts a run on so many threads with inputs, whose elements do not matter. Without any it is at the shapes that these have
// or were given; the number of samples, where it is open, is taken for one.
func (m *Model) Forecast(threads int, inputs map[string]*tensor.Tensor) (f Forecast) {
	in, known := make([]*tensor.Tensor, len(m.graph.Inputs)), true
	if inputs == nil {
		in, known = m.sizes()
	} else if arrange(m.graph, in, inputs) != nil {
		return f
	}
	if in == nil {
		return f
	}
	var list []cpu.Prediction
	err := m.guard(func() (err error) {
		list, err = cpu.Predict(m.graph, in, backend.Options{Threads: threads, Checked: true}, m.report.Options.CPU(), m.report.products())
		return err
	})
	if err != nil {
		return f
	}
	run := PredictedRun{Threads: threads}
	total := 0.0
	for _, p := range list {
		total += p.Seconds
		run.DenseMs += 1e3 * p.Dense
		if p.Unsized {
			run.Unsized++
		}
		if !p.Interpreted {
			continue
		}
		kind := p.Node.Op.Kind()
		i := slices.IndexFunc(f.Interpreted, func(r Interpreted) bool { return r.Op == kind })
		if i < 0 {
			i = len(f.Interpreted)
			f.Interpreted = append(f.Interpreted, Interpreted{Op: kind})
		}
		f.Interpreted[i].Nodes = append(f.Interpreted[i].Nodes, p.Node.Name)
		f.Interpreted[i].Share += p.Seconds
	}
	for i := range f.Interpreted {
		if f.Interpreted[i].Share /= max(total, 1e-9); !known {
			f.Interpreted[i].Share = 0
		}
	}
	slices.SortStableFunc(f.Interpreted, func(a, b Interpreted) int { return cmp.Compare(b.Share, a.Share) })
	if run.Ms = 1e3 * total; known && total > 0 && m.report.Options.Target == string(CPU) {
		f.Predicted = &run
	}
	return f
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

// products tells the times that were measured or predicted for weights on the CPU. For columns that these are not known for those of the
// nearest are scaled.
func (r *Report) products() cpu.Products {
	if r.Options.Target != string(CPU) {
		return nil
	}
	type choice struct {
		*Layer
		chosen, dense *Candidate
	}
	known := map[[2]string]choice{}
	for i := range r.Layers {
		c := choice{Layer: &r.Layers[i]}
		for k := range c.Candidates {
			a := &c.Candidates[k]
			if a.Chosen {
				c.chosen = a
			}
			if a.Format == choose.Dense {
				c.dense = a
			}
		}
		if c.chosen != nil {
			known[[2]string{c.Name, c.Weight}] = c
		}
	}
	return func(node, weight string, columns int) (p cpu.Product, ok bool) {
		c, ok := known[[2]string{node, weight}]
		if !ok {
			return p, false
		}
		p.Seconds = c.Scaled(c.chosen, columns) / 1e6
		if p.Dense = p.Seconds; c.dense != nil {
			p.Dense = c.Scaled(c.dense, columns) / 1e6
		}
		return p, true
	}
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
