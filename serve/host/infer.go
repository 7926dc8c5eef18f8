package host

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"spc"
	"spc/ir/tensor"
	"spc/serve/queue"
)

// Request is the inputs of a run. They must not change until the run has ended, which may be after Infer has.
type Request struct {
	Inputs   map[string]*tensor.Tensor
	Sequence *Sequence // nil where it is of none; models without states take no notice of it

	Times Times // set by Infer
}

// Times say when a request waited and ran. Where it did not run, all but Queued may be zero.
type Times struct {
	Queued, Began        time.Time     // when it came into the queue, and when the run began that it was part of
	Input, Infer, Output time.Duration // of that run: to join inputs, to run, to split outputs
	Rows, Batch          int           // of the request, and of the run
}

// task is a request on its way, with what becomes of it.
type task struct {
	inputs  map[string]*tensor.Tensor
	outputs map[string]*tensor.Tensor
	times   times
	queued  time.Time
}

// Infer runs a request, maybe together with others, and returns the outputs by name. What is wrong with the inputs is an error that wraps
// spc.ErrInvalid.
func (h *Model) Infer(ctx context.Context, r *Request) (out map[string]*tensor.Tensor, err error) {
	began := time.Now()
	t := &task{inputs: r.Inputs}
	rows := 1
	defer func() {
		h.stats.add(t, rows, time.Since(began), err)
		if r.Times.Queued = t.queued; err == nil { // else the run may still go on
			w := &t.times
			r.Times = Times{Queued: t.queued, Began: w.began, Input: w.input, Infer: w.infer, Output: w.output, Rows: rows, Batch: w.rows}
		}
	}()
	if h.seqs != nil {
		err = h.seqs.infer(ctx, h, t, r.Sequence)
	} else {
		rows, err = h.ask(ctx, t)
	}
	if err != nil { // the run may still go on, and write outputs
		return nil, err
	}
	return t.outputs, nil
}

// ask checks a task and has it run.
func (h *Model) ask(ctx context.Context, t *task) (rows int, err error) {
	rows, key, err := h.check(t.inputs)
	if err != nil {
		return 1, err
	}
	running := &task{inputs: t.inputs} // which may go on when nobody waits for it any more
	q := &queue.Request{Key: key, Rows: rows, Value: running}
	err = h.queue.Do(ctx, q)
	if t.queued = q.Queued; err != nil {
		return rows, err
	}
	t.outputs, t.times = running.outputs, running.times
	t.times.queue = q.Began.Sub(q.Queued)
	return rows, nil
}

// check says what is wrong with inputs, how many rows they have, and which others they may run with.
func (h *Model) check(inputs map[string]*tensor.Tensor) (rows int, key string, err error) {
	var b strings.Builder
	rows = 1
	for _, p := range h.inputs {
		t := inputs[p.Name]
		switch {
		case t == nil:
			return 0, "", fmt.Errorf("input %s: missing, want %v: %w", p.Name, p, spc.ErrInvalid)
		case p.Elem != nil || !p.Ranked:
		case t.DType() != p.DType || t.Rank() != len(p.Dims):
			return 0, "", fmt.Errorf("input %s: %v, want %v: %w", p.Name, t, p, spc.ErrInvalid)
		default:
			for i, d := range p.Dims {
				if d.Known() && d.Size() != t.Dim(i) {
					return 0, "", fmt.Errorf("input %s: %v, want %v: %w", p.Name, t, p, spc.ErrInvalid)
				}
			}
		}
		if h.batch > 1 {
			if n := t.Dim(0); b.Len() == 0 {
				rows = n
			} else if n != rows {
				return 0, "", fmt.Errorf("input %s has %d rows, input %s %d: %w", p.Name, n, h.inputs[0].Name, rows, spc.ErrInvalid)
			}
			fmt.Fprint(&b, t.Shape()[1:], ";")
		}
	}
	if len(inputs) > len(h.inputs) {
		for _, name := range names(inputs) {
			if !h.has(name) {
				return 0, "", fmt.Errorf("the model has no input %s: %w", name, spc.ErrInvalid)
			}
		}
	}
	if h.batch > 1 && rows < 1 { // of nothing there is nothing to join
		return 1, "none", nil
	}
	return rows, b.String(), nil
}

func (h *Model) has(input string) bool {
	for _, p := range h.inputs {
		if p.Name == input {
			return true
		}
	}
	return false
}

// run runs what the queue gives it together. Where that fails, each runs alone, so that what is wrong with one is no error of others.
func (h *Model) run(ctx context.Context, batch []*queue.Request) {
	if len(batch) > 1 && h.together(ctx, batch) == nil {
		return
	}
	for _, r := range batch {
		t := r.Value.(*task)
		began := time.Now()
		t.outputs, r.Err = h.spc.Run(ctx, t.inputs)
		took := time.Since(began)
		t.times.began, t.times.rows, t.times.infer = began, r.Rows, took
		if r.Err == nil {
			h.stats.ran(r.Rows, 0, took, 0)
		}
	}
}

// together runs several requests as one.
func (h *Model) together(ctx context.Context, batch []*queue.Request) error {
	began := time.Now()
	in, rows := map[string]*tensor.Tensor{}, 0
	for _, p := range h.inputs {
		parts := make([]*tensor.Tensor, len(batch))
		for i, r := range batch {
			parts[i] = r.Value.(*task).inputs[p.Name]
		}
		in[p.Name] = joined(parts)
		rows = in[p.Name].Dim(0)
	}
	ready := time.Now()
	out, err := h.spc.Run(ctx, in)
	if err != nil {
		return err
	}
	done := time.Now()
	for _, r := range batch {
		r.Value.(*task).outputs = map[string]*tensor.Tensor{}
	}
	for name, t := range out {
		at := 0
		for _, r := range batch {
			p, err := part(t, at, r.Rows)
			if err != nil {
				return fmt.Errorf("output %s: %w", name, err)
			}
			r.Value.(*task).outputs[name] = p
			at += r.Rows
		}
		if at != t.Dim(0) {
			return fmt.Errorf("output %s has %d rows for %d of the inputs", name, t.Dim(0), at)
		}
	}
	split := time.Since(done)
	for _, r := range batch {
		r.Value.(*task).times = times{began: began, rows: rows, input: ready.Sub(began), infer: done.Sub(ready), output: split}
	}
	h.stats.ran(rows, ready.Sub(began), done.Sub(ready), split)
	return nil
}

// joined is tensors of one type one after the other along their first axis; of one it is that.
func joined(parts []*tensor.Tensor) *tensor.Tensor {
	if len(parts) == 1 {
		return parts[0]
	}
	shape := append([]int(nil), parts[0].Shape()...)
	shape[0] = 0
	for _, p := range parts {
		shape[0] += p.Dim(0)
	}
	out := tensor.New(parts[0].DType(), shape...)
	at := 0
	for _, p := range parts {
		at += copy(out.Bytes()[at:], p.Bytes())
	}
	return out
}

// part is some rows of a tensor, whose storage it shares.
func part(t *tensor.Tensor, from, rows int) (*tensor.Tensor, error) {
	if t == nil || t.Rank() == 0 || from+rows > t.Dim(0) {
		return nil, fmt.Errorf("no rows %d to %d in %v", from, from+rows, t)
	}
	row := len(t.Bytes()) / max(1, t.Dim(0))
	shape := append([]int{rows}, t.Shape()[1:]...)
	return tensor.FromBytes(t.DType(), shape, t.Bytes()[from*row:][:rows*row:rows*row])
}

// distance is the norm of the difference of two tensors over that of the second, in float64; infinite where one has NaN or an infinity
// that the other has not.
func distance(a, b *tensor.Tensor) float64 {
	x, y := a.To(tensor.F64), b.To(tensor.F64)
	diff, norm := 0.0, 0.0
	for i, v := range tensor.Data[float64](x) {
		w := tensor.Data[float64](y)[i]
		if v == w || math.IsNaN(v) && math.IsNaN(w) {
			continue
		}
		diff += (v - w) * (v - w)
	}
	for _, w := range tensor.Data[float64](y) {
		if !math.IsNaN(w) && !math.IsInf(w, 0) {
			norm += w * w
		}
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / norm)
}
