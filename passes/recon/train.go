package recon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// sample is what a piece reads and what its values are compared with.
type sample struct {
	in, target []*tensor.Tensor
	held       bool // out; where no sample is, every eighth is
}

// trainer changes the parameters of a piece so that its values come near targets.
type trainer struct {
	piece   *piece
	losses  []loss
	teacher *piece      // gives the targets, where samples do not
	goals   []*ir.Value // its values that are the targets, by loss
	vary    bool        // samples are augmented
	seed    uint64      // of the augmentation
	samples []sample
	kernels op.Kernels
	workers int
	batched bool // samples are evaluated several at a time
	chunk   int  // how many
	pool    []*worker
	seen    []int // samples to learn from; the others are held out
	held    []int
}

// worker evaluates chunks of samples, one at a time.
type worker struct {
	pass    *pass
	teacher *pass
	moved   *pass          // the piece with other parameters, see newton
	in      op.GradContext // holds the inputs of a chunk
	sum     float64
}

// chunkFloats is the number of elements of values that a chunk of samples should not
// pass by much: they stay in a core's caches.
const chunkFloats = 1 << 21

// prepare finds out how samples are evaluated. It fails with ir.ErrUnsupported where
// some operator has no gradient.
func (t *trainer) prepare(size int) error {
	p := t.piece
	t.chunk = 1
	w := t.worker()
	w.pass.check = true
	floats := 0
	if err := t.split(w); err != nil {
		return err
	}
	marked := slices.ContainsFunc(t.samples, func(s sample) bool { return s.held })
	for i, s := range t.samples {
		if marked && s.held || !marked && isHeld(i) {
			t.held = append(t.held, i)
		} else {
			t.seen = append(t.seen, i)
		}
	}
	if len(t.held) == 0 {
		t.held = t.seen
	}
	if err := w.run(t, []int{0}, &batch{1, 0}); err != nil {
		return err
	}
	for _, st := range p.steps {
		for _, k := range st.out {
			if k >= 0 {
				floats += w.pass.values[k].Len()
			}
		}
	}
	if err := t.scale(w); err != nil {
		return err
	}
	t.batched = t.joins(w)
	w.pass.check = false
	t.pool = append(t.pool, w)
	if t.batched {
		t.chunk = min(max(1, chunkFloats/max(1, floats)), max(1, (size+3)/4))
	}
	return nil
}

// split makes samples of single rows where samples hold several and their rows do not
// meet.
func (t *trainer) split(w *worker) error {
	var rows []sample
	for _, s := range t.samples {
		n := rowsOf(slices.Concat(s.in, s.target))
		if n < 0 {
			return nil
		}
		for k := range n {
			rows = append(rows, sample{rowOf(s.in, k), rowOf(s.target, k), s.held})
		}
	}
	if len(rows) == len(t.samples) {
		return nil
	}
	var values []*ir.Value
	for _, l := range t.losses {
		values = append(values, l.value)
	}
	apart, err := w.pass.apart(t.samples[0].in, values)
	if apart {
		t.samples = rows
	}
	return err
}

// apart reports whether the rows of the inputs do not meet: the first and the last one
// give alone what they give among the others.
func (s *pass) apart(in []*tensor.Tensor, values []*ir.Value) (bool, error) {
	if err := s.forward(in); err != nil {
		return false, err
	}
	var whole []*tensor.Tensor
	for _, v := range values {
		whole = append(whole, s.value(v).Clone())
	}
	n := rowsOf(in)
	for _, k := range []int{0, n - 1} {
		if err := s.forward(rowOf(in, k)); err != nil {
			return false, nil
		}
		for i, v := range values {
			y := s.value(v).F32s()
			if whole[i].Len() != len(y)*n || !near(whole[i].F32s()[k*len(y):][:len(y)], y) {
				return false, nil
			}
		}
	}
	return true, nil
}

// rowsOf is the number of rows that tensors have, all the same, else -1.
func rowsOf(all []*tensor.Tensor) int {
	n := -1
	for i, x := range all {
		if x.Rank() == 0 || i > 0 && x.Dim(0) != n {
			return -1
		}
		n = x.Dim(0)
	}
	return n
}

// rowOf is row k of tensors, of which it shares the storage.
func rowOf(all []*tensor.Tensor, k int) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(all))
	for i, x := range all {
		n := len(x.Bytes()) / x.Dim(0)
		shape := slices.Clone(x.Shape())
		shape[0] = 1
		row, err := tensor.FromBytes(x.DType(), shape, x.Bytes()[k*n:][:n])
		if err != nil {
			return nil
		}
		out[i] = row
	}
	return out
}

// scaleSamples is the number of samples that tell how far values spread.
const scaleSamples = 32

// scale finds out how large steps of shifts are.
func (t *trainer) scale(w *worker) error {
	seen := make([]spread, len(t.piece.params))
	for i := range min(scaleSamples, len(t.samples)) {
		if err := w.pass.forward(t.samples[i].in); err != nil {
			return err
		}
		for k, q := range t.piece.params {
			if q.shift != nil {
				seen[k].add(w.pass.value(q.shift.Outputs[0]), q.tensor.Len())
			}
		}
	}
	for k, q := range t.piece.params {
		q.byOutput(&seen[k])
	}
	return nil
}

func (t *trainer) worker() *worker {
	w := &worker{pass: newPass(t.piece, t.kernels)}
	if t.teacher != nil {
		w.teacher = newPass(t.teacher, t.kernels)
	}
	return w
}

// joins reports whether samples may be joined along their first axis: all have the
// same shapes, and two of them give the same together as alone.
func (t *trainer) joins(w *worker) bool {
	first := t.samples[0]
	if len(t.samples) < 2 || len(first.in) == 0 {
		return false
	}
	for _, s := range t.samples {
		for i, x := range s.in {
			if !x.Fits(first.in[i]) || x.Rank() == 0 {
				return false
			}
		}
		for i, x := range s.target {
			if !x.Fits(first.target[i]) || x.Rank() == 0 {
				return false
			}
		}
	}
	alone := make([][]*tensor.Tensor, 2)
	for i := range alone {
		if err := w.pass.forward(t.samples[i].in); err != nil {
			return false
		}
		for _, l := range t.losses {
			alone[i] = append(alone[i], w.pass.value(l.value).Clone())
		}
	}
	if err := w.pass.forward(w.join(t, []int{0, 1}, inputs)); err != nil {
		return false
	}
	for i, l := range t.losses {
		both := w.pass.value(l.value)
		a, b := alone[0][i], alone[1][i]
		if both.Len() != a.Len()+b.Len() {
			return false
		}
		if !near(both.F32s()[:a.Len()], a.F32s()) || !near(both.F32s()[a.Len():], b.F32s()) {
			return false
		}
	}
	return true
}

// near reports whether x is y up to rounding.
func near(x, y []float32) bool {
	d, n := 0.0, 0.0
	for i, v := range x {
		e := float64(v - y[i])
		d += e * e
		n += float64(v) * float64(v)
	}
	return d <= 1e-8*n
}

func inputs(s sample) []*tensor.Tensor  { return s.in }
func targets(s sample) []*tensor.Tensor { return s.target }

// join returns the tensors of the samples, joined along the first axis.
func (w *worker) join(t *trainer, index []int, of func(sample) []*tensor.Tensor) []*tensor.Tensor {
	first := of(t.samples[index[0]])
	if len(index) == 1 {
		return first
	}
	out := make([]*tensor.Tensor, len(first))
	for i, x := range first {
		shape := slices.Clone(x.Shape())
		shape[0] *= len(index)
		if x.DType() == tensor.F32 {
			out[i] = w.in.New(shape...)
		} else {
			out[i] = tensor.New(x.DType(), shape...)
		}
		for k, s := range index {
			n := len(x.Bytes())
			copy(out[i].Bytes()[k*n:], of(t.samples[s])[i].Bytes())
		}
	}
	return out
}

// batch is a step's: the number of its samples and that of the step.
type batch struct{ size, step int }

// run evaluates the samples together and adds their loss to w.sum; for a batch that is
// not nil it computes the gradients of its mean.
func (w *worker) run(t *trainer, index []int, of *batch) error {
	w.in.Reset()
	in := w.join(t, index, inputs)
	if t.vary && of != nil {
		var err error
		if in, err = w.vary(t, index, in, of.step); err != nil {
			return err
		}
	}
	if err := w.pass.forward(in); err != nil {
		return err
	}
	want, err := w.targets(t, index, in)
	if err != nil {
		return err
	}
	for i, l := range t.losses {
		if y := w.pass.value(l.value); y.Len() != want[i].Len() {
			return fmt.Errorf("%s is %v, the dense model's is %v: %w", l.value.Name, y, want[i], ir.ErrInvalid)
		}
	}
	if of == nil {
		for i, l := range t.losses {
			if !l.aside {
				w.sum += l.eval(w.pass.value(l.value), want[i], len(index), nil, 0)
			}
		}
		return nil
	}
	return w.pass.backward(func(add func(*ir.Value, *tensor.Tensor)) {
		for i, l := range t.losses {
			y := w.pass.value(l.value)
			g := w.pass.c.New(y.Shape()...)
			w.sum += l.eval(y, want[i], len(index), g.F32s(), 1/float64(of.size))
			add(l.value, g)
		}
	})
}

// targets are what the losses compare with.
func (w *worker) targets(t *trainer, index []int, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if w.teacher == nil {
		return w.join(t, index, targets), nil
	}
	if err := w.teacher.forward(in); err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(t.goals))
	for i, v := range t.goals {
		out[i] = w.teacher.value(v)
	}
	return out, nil
}

// vary augments the samples.
func (w *worker) vary(t *trainer, index []int, in []*tensor.Tensor, step int) ([]*tensor.Tensor, error) {
	out := make([]*tensor.Tensor, len(in))
	draws := make([]*rand.Rand, len(index))
	for i, x := range in {
		out[i] = x.Clone()
		n := len(x.Bytes()) / len(index)
		for k, s := range index {
			// All inputs of a sample change the same way: masks belong to tokens.
			draws[k] = rand.New(rand.NewPCG(t.seed+uint64(step), uint64(s)))
			from := t.samples[s].in[i]
			to, err := tensor.FromBytes(x.DType(), from.Shape(), out[i].Bytes()[k*n:][:n])
			if err != nil {
				return nil, err
			}
			augment(to, from, t.samples[t.seen[draws[k].IntN(len(t.seen))]].in[i], draws[k])
		}
	}
	if w.teacher == nil || len(out) != 1 || !t.losses[0].scores || !out[0].DType().IsInt() {
		return out, nil
	}
	if err := w.teacher.forward(out); err != nil {
		return nil, err
	}
	redraw(out[0], w.teacher.value(t.goals[0]), draws)
	return out, nil
}

// each runs chunks of samples on all workers and calls done for each chunk, in their order.
func (t *trainer) each(ctx context.Context, index []int, chunk int, run func(w *worker, index []int) error, done func(w *worker)) error {
	chunks := slices.Collect(slices.Chunk(index, chunk))
	workers := max(1, min(t.workers, len(chunks)))
	for len(t.pool) < workers {
		t.pool = append(t.pool, t.worker())
	}
	var wait sync.WaitGroup
	var lock sync.Mutex
	turn := sync.NewCond(&lock)
	next, finished := 0, 0
	var failed error
	for _, w := range t.pool[:workers] {
		wait.Go(func() {
			lock.Lock()
			defer lock.Unlock()
			for next < len(chunks) && failed == nil {
				k := next
				next++
				lock.Unlock()
				w.sum = 0
				err := ctx.Err()
				if err == nil {
					err = mapped.Guard(func() error { return run(w, chunks[k]) })
				}
				lock.Lock()
				for finished < k && failed == nil {
					turn.Wait()
				}
				if failed == nil {
					if failed = err; err == nil {
						done(w)
					}
				}
				finished++
				turn.Broadcast()
			}
		})
	}
	wait.Wait()
	return mapped.Raise(failed)
}

// mean is the mean loss of the samples.
func (t *trainer) mean(ctx context.Context, index []int) (float64, error) {
	sum := 0.0
	err := t.each(ctx, index, t.chunk, func(w *worker, index []int) error { return w.run(t, index, nil) }, func(w *worker) { sum += w.sum })
	return sum / float64(max(1, len(index))), err
}

// errDiverged says that a loss is not finite any more.
var errDiverged = errors.New("the loss is not finite")

// step makes step k, counted from 1, of Adam on the mean loss of a batch.
func (t *trainer) step(ctx context.Context, index []int, k int, rate float64) (float64, error) {
	for _, q := range t.piece.params {
		clear(q.grad)
	}
	sum := 0.0
	of := &batch{len(index), k}
	err := t.each(ctx, index, t.chunk, func(w *worker, index []int) error { return w.run(t, index, of) }, func(w *worker) {
		sum += w.sum
		for i, q := range t.piece.params {
			if g := w.pass.grads[i]; g != nil {
				d := g.F32s()
				for j, v := range d[:len(q.grad)] {
					q.grad[j] += v
				}
			}
		}
	})
	if err != nil {
		return 0, err
	}
	if sum /= float64(len(index)); math.IsNaN(sum) || math.IsInf(sum, 0) {
		return sum, errDiverged
	}
	for _, q := range t.piece.params {
		q.adam(k, rate)
	}
	return sum, nil
}

// course is how a trainer goes through its samples.
type course struct {
	epochs, batch int
	rate, warmup  float64
	seed          uint64
	looks         int // how often held-out samples are looked at
	newton        int // steps of Newton's method, in the place of epochs
	progress      func(done, total int)
}

// result is what training did to the mean loss of the samples held out.
type result struct {
	steps         int
	before, after float64
}

// negligible is the loss below which nothing is left to do but rounding.
const negligible = 1e-9

// HeldOut is how many samples there are for each that is held out.
const HeldOut = 8

// train leaves the parameters with which the loss of the samples that are held out was
// the least, those that there were before included.
func (t *trainer) train(ctx context.Context, c course) (result, error) {
	var r result
	var err error
	if r.before, err = t.mean(ctx, t.held); err != nil {
		return r, err
	}
	if r.after = r.before; r.before < negligible || math.IsNaN(r.before) || math.IsInf(r.before, 0) {
		return r, nil
	}
	rng := rand.New(rand.NewPCG(c.seed, 0))
	perEpoch := (len(t.seen) + c.batch - 1) / c.batch
	total := c.epochs * perEpoch
	look := max(1, total/max(1, c.looks))
	order := slices.Clone(t.seen)
	t.paceGates(total, c.rate)
	for r.steps < total {
		at := r.steps % perEpoch
		if at == 0 {
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		batch := order[at*c.batch:]
		batch = batch[:min(c.batch, len(batch))]
		if err := t.drawGates(r.steps+1, total); err != nil {
			return r, err
		}
		_, err := t.step(ctx, batch, r.steps+1, rate(r.steps, total, c.rate, c.warmup))
		if errors.Is(err, errDiverged) {
			break
		}
		if err != nil {
			return r, err
		}
		if r.steps++; r.steps%look == 0 || r.steps == total {
			now, err := t.look(ctx)
			if err != nil {
				return r, err
			}
			if now < r.after || t.gated() && r.steps == total {
				r.after = now
				for _, q := range t.piece.params {
					q.keep()
				}
			}
			if c.progress != nil {
				c.progress(r.steps, total)
			}
		}
	}
	for _, q := range t.piece.params {
		copy(q.tensor.F32s(), q.best)
	}
	return r, nil
}
