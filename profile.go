package spc

import (
	"cmp"
	"context"
	"time"

	"spc/backend/cpu"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// NodeTime is the time that a node took, and its work.
type NodeTime struct {
	Node, Op, Format string
	Start            time.Duration // since the first node's
	Time             time.Duration
	// Sized says that sizes tell the work: floating-point operations, of stored weights those on the values that are stored,
	// and the bytes that are read and written, weights and their indices as they are stored.
	Sized        bool
	FLOPs, Bytes float64
	// Predicted is the time of the products of the node's weights on one core that the report's candidates give for as many columns, or of
	// the node as tuning measured it, on as many threads as that had; 0 where there is none.
	Predicted time.Duration
}

// Profile is Run, and reports the time of each node in the order of execution. Nodes that runs compute in cascades, see
// NodePlace, are computed one by one.
func (m *Model) Profile(ctx context.Context, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, []NodeTime, error) {
	out, steps, err := m.Trace(ctx, inputs)
	if err != nil {
		return nil, nil, err
	}
	return out, SumSteps(steps), nil
}

// SumSteps makes of what Trace returns what Profile does.
func SumSteps(steps []NodeTime) []NodeTime {
	var times []NodeTime
	index := map[string]int{}
	for _, s := range steps {
		i, met := index[s.Node]
		if !met {
			index[s.Node] = len(times)
			times = append(times, s)
			continue
		}
		t := &times[i]
		t.Time, t.FLOPs, t.Bytes, t.Sized = t.Time+s.Time, t.FLOPs+s.FLOPs, t.Bytes+s.Bytes, t.Sized && s.Sized
		if t.Predicted > 0 && s.Predicted > 0 {
			t.Predicted += s.Predicted
		} else {
			t.Predicted = 0
		}
	}
	return times
}

// Trace is Profile, but a node that is computed in portions of a batch has a NodeTime for each.
func (m *Model) Trace(ctx context.Context, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, []NodeTime, error) {
	type step struct {
		node        *ir.Node
		start, took time.Duration
	}
	var steps []step
	began, last := time.Now(), time.Duration(0)
	outputs := make(map[string]*tensor.Tensor, len(m.graph.Outputs))
	err := m.run(ctx, inputs, outputs, func(n *ir.Node, d time.Duration) {
		start := max(last, time.Since(began)-d) // devices may tell of steps when all are done
		last = start + d
		steps = append(steps, step{n, start, d})
	})
	if err != nil {
		return nil, nil, err
	}
	times := make([]NodeTime, len(steps))
	for i, s := range steps {
		times[i] = m.timed(s.node)
		times[i].Start, times[i].Time = s.start-steps[0].start, s.took
	}
	return outputs, times, nil
}

// timed is a node's part of a NodeTime.
func (m *Model) timed(n *ir.Node) NodeTime {
	t := NodeTime{Node: n.Name, Op: n.Op.Kind()}
	work, sized := n.Work()
	t.Sized, t.FLOPs, t.Bytes = sized, work.FLOPs, work.Bytes
	o, ok := n.Op.(ir.WeightOp)
	if !ok {
		return t
	}
	var whole cpu.Whole // of the node, where a weight of it was measured
	seconds, measured, known := 0.0, false, true
	for _, w := range o.Weights(n) {
		v := n.Input(w.Input)
		if v == nil || !v.IsConst() {
			continue
		}
		if v.Store != nil {
			t.Format = v.Store.Format
		} else if t.Format == "" {
			t.Format = choose.Dense
		}
		s, dense := m.report.predictedOf(n.Name, v.WeightName(), w)
		seconds, known = seconds+s, known && s > 0
		if dense > 0 {
			measured = true
			whole.Add(s, dense)
		}
	}
	if measured {
		seconds = whole.Time()
	}
	if known {
		t.Predicted = time.Duration(seconds * 1e9)
	}
	return t
}

// predictedOf is the time in seconds that was predicted for the products of a node's weight, or measured for the whole node, and then what that
// took dense; 0 where nothing is known of so many columns, or where it was for another device.
func (r *Report) predictedOf(node, weight string, w ir.Weight) (seconds, dense float64) {
	if r.Options.Target != string(CPU) || !w.Cols.Known() || !w.Reuse.Known() {
		return 0, 0
	}
	for _, l := range r.Layers {
		if l.Name != node || l.Weight != weight {
			continue
		}
		whole := false
		for i := range l.Candidates {
			c := &l.Candidates[i]
			us, _ := l.Us(c, w.Cols.Size())
			if c.Chosen {
				seconds, whole = us/1e6, c.MeasuredUs > 0
			}
			if c.Format == choose.Dense {
				dense = us / 1e6
			}
		}
		if whole {
			return seconds, dense
		}
		return seconds * float64(w.Reuse.Size()), 0
	}
	return 0, 0
}

// Predicted lists the nodes with weights in the order of the model, with the work of their products, and the time that it was
// predicted to take in the format that was chosen: for the columns that the report says, on one core, or on the GPU of the report's
// target. Times, and the nodes of weights that no format was chosen for, are missing.
func (m *Model) Predicted() []NodeTime {
	type choice struct {
		*Candidate
		columns   int
		us, dense float64 // of so many
	}
	chosen := map[[2]string]choice{}
	for i := range m.report.Layers {
		l := &m.report.Layers[i]
		of := choice{columns: l.N}
		for j := range l.Candidates {
			c := &l.Candidates[j]
			us, _ := l.Us(c, l.N)
			if c.Chosen {
				of.Candidate, of.us = c, us
			}
			if c.Format == choose.Dense {
				of.dense = us
			}
		}
		if of.Candidate != nil {
			chosen[[2]string{l.Name, l.Weight}] = of
		}
	}
	wholes := map[string]*cpu.Whole{}
	var list []NodeTime
	for _, u := range m.graph.WeightUses() {
		key := [2]string{u.Node.Name, u.Value.Name}
		shape, ok := u.Value.Type.Shape()
		c, is := chosen[key]
		if !is || !ok {
			continue
		}
		if k := len(list); k == 0 || list[k-1].Node != u.Node.Name {
			list = append(list, NodeTime{Node: u.Node.Name, Op: u.Node.Op.Kind(), Sized: true})
		}
		t := &list[len(list)-1]
		rows, cols := u.View.Dims(shape)
		values, stored := rows*cols, rows*cols*u.Value.Type.DType.Size()
		if s := u.Value.Store; s != nil {
			values, stored = s.Values(), s.Bytes()
		}
		in := float64(cols * u.Groups) // elements of the input for a column
		if u.Slide != nil {
			for i, k := range u.Slide.Kernel {
				in *= float64(u.Slide.Stride[i]) / float64(k)
			}
		}
		n, reuse := float64(c.columns), float64(max(1, u.Reuse.AtOne()))
		t.Format = c.Format
		t.FLOPs += 2 * float64(values) * n * reuse
		t.Bytes += float64(stored) + (in+float64(rows))*n*reuse*float64(u.Value.Type.DType.Size())
		switch whole := wholes[t.Node]; {
		case c.MeasuredUs > 0: // in place of what was predicted for other weights
			whole = cmp.Or(whole, &cpu.Whole{})
			whole.Add(c.us, c.dense)
			wholes[t.Node], t.Predicted = whole, time.Duration(whole.Time()*1e3)
		case whole == nil:
			t.Predicted += time.Duration(c.us * reuse * 1e3)
		}
	}
	return list
}
