package spc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"spc/backend"
	"spc/backend/cpu"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Forecast is what is known of a run on a CPU before it.
type Forecast struct {
	// Interpreted lists the operators for which the CPU has no kernel, the slowest first. Where sizes are open the nodes are those
	// for assumed sizes, and there are no shares.
	Interpreted []Interpreted
	// Predicted is the time of a run; nil where sizes are open, where the model does not fit such sizes, or another device runs it.
	Predicted *PredictedRun
}

// PredictedRun is the time that a run is predicted to take on a CPU as the model's profile describes it, in three digits.
type PredictedRun struct {
	Threads int     `json:"threads"`
	Ms      float64 `json:"ms"`
	DenseMs float64 `json:"dense_ms"` // were all weights dense
	// Unsized counts the nodes whose sizes are not known before they run: they are not in these times.
	Unsized int `json:"unsized,omitempty"`
}

// check reports numbers that cannot be.
func (p *PredictedRun) check() error {
	if p.Threads < 1 || p.Threads > MaxThreads || !(p.Ms >= 0) || !(p.DenseMs >= 0) || p.Unsized < 0 {
		return fmt.Errorf("the prediction of a run is %+v", *p)
	}
	return nil
}

// Interpreted is that of Forecast.
func (m *Model) Interpreted() []Interpreted {
	f, _ := m.Forecast(1, nil)
	return f.Interpreted
}

// Forecast predicts a run on so many threads, 0 for all cores, with inputs, whose elements do not matter; it is an error that they do not fit.
// Without any it is at the shapes that they have or were given, the number of samples, where it is open, being one; it is empty where
// the model does not fit the sizes that open ones are taken for.
func (m *Model) Forecast(threads int, inputs map[string]*tensor.Tensor) (f Forecast, err error) {
	if err := checkThreads("threads", threads); err != nil {
		return f, err
	}
	if threads == 0 {
		threads = cpu.Cores()
	}
	in, known := make([]*tensor.Tensor, len(m.graph.Inputs)), true
	if inputs == nil {
		if in, known = m.sizes(); in == nil {
			return f, nil
		}
	} else if err := arrange(m.graph, in, inputs); err != nil {
		return f, err
	}
	var list []cpu.Prediction
	err = m.guard(func() (err error) {
		list, err = cpu.Predict(m.graph, in, backend.Options{Threads: 1, Checked: true}, m.rates(threads))
		return err
	})
	if err != nil && inputs == nil {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	f.add(list, known)
	if p := f.Predicted; p != nil {
		p.Threads = threads
		if !known || m.report.Options.Target != string(CPU) {
			f.Predicted = nil
		}
	}
	return f, nil
}

// add sums predictions up.
func (f *Forecast) add(list []cpu.Prediction, known bool) {
	run, total := PredictedRun{}, 0.0
	for _, p := range list {
		if p.Untaken {
			continue
		}
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
	if total > 0 {
		run.Ms, run.DenseMs = digits3(1e3*total), digits3(run.DenseMs)
		f.Predicted = &run
	}
}

// digits3 keeps three digits, so that sums which round otherwise on another machine are the same.
func digits3(v float64) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		return v
	}
	return out
}

// rates are what the model's runs are predicted by.
func (m *Model) rates(threads int) cpu.Rates {
	return cpu.Rates{Profile: m.report.Options.CPU(), Threads: threads, Products: m.report.products()}
}

// products tells the times that were measured or predicted for weights on the CPU. For columns that these are not known for those of the
// nearest are scaled.
func (r *Report) products() func(node, weight string, columns int) (cpu.Product, bool) {
	if r.Options.Target != string(CPU) {
		return nil
	}
	type choice struct {
		*Layer
		chosen, dense *Candidate
	}
	tuned := 1
	if r.Tuned != nil {
		tuned = max(1, r.Tuned.Threads)
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
	time := func(c choice, a *Candidate, columns int) cpu.Time {
		t := cpu.Time{Seconds: c.Scaled(a, columns) / 1e6}
		if a.MeasuredUs > 0 {
			t.Threads = tuned
		}
		return t
	}
	return func(node, weight string, columns int) (p cpu.Product, ok bool) {
		c, ok := known[[2]string{node, weight}]
		if !ok {
			return p, false
		}
		p.Chosen = time(c, c.chosen, columns)
		if p.Dense = p.Chosen; c.dense != nil {
			p.Dense = time(c, c.dense, columns)
		}
		return p, true
	}
}

// forecast keeps in the report what Forecast tells of a run on one thread.
func (m *Model) forecast() {
	f, _ := m.Forecast(1, nil)
	m.report.Interpreted, m.report.Predicted = f.Interpreted, f.Predicted
}
