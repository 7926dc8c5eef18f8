package recon

import (
	"context"
	"math"
	"math/rand/v2"

	"spc/ir/tensor"
)

// Newton's method on a piece: what SNOWS (Lucas and Mazumder, "Preserving deep
// representations in one-shot pruning: a Hessian-free second-order optimization framework",
// arXiv 2411.18376, sections 3.2 and 3.3) does to the weights that a mask leaves, so that
// values some operators further on are those of the dense model. No matrix is ever formed:
// conjugate gradients need products of the curvature with directions alone. Here the
// curvature is Gauss and Newton's, J'HJ, which is never negative, where SNOWS takes the
// Hessian; the difference is small where values are near their targets. Its product with v
// is the gradient of a loss by values H Jv, and Jv is the difference of two evaluations of
// the piece: an operator needs nothing that reconstruction by gradients does not, and an
// error of a thousandth of the product (see difference) changes a direction that a line
// search judges anyhow. A derivative of its own for each operator would be exact, and
// another method to write and test for each of them.

const (
	// difference is how far, relative to the size of parameters, the piece is moved to see
	// what it does to its values. Ten times as far and values bend, ten times less and they
	// round.
	difference = 1e-3
	// So many samples show the curvature, or as many more as give so many values for each parameter:
	// gradients and the line search see all (Byrd et al., "On the use of stochastic Hessian
	// information in optimization methods for machine learning", 2011).
	curvatureLeast, curvatureValues = 64, 8

	firstDamping = 1e-2 // of the diagonal of the curvature, added to it (Marquardt, 1963)
	conjugate    = 10   // the most steps of conjugate gradients
	residual     = 1e-3 // of the gradient, at which they end
	armijo       = 1e-4 // of what the gradient promises, which a step must gain
	halvings     = 6    // of a step, before it is given up
)

// newton minimises the loss of a piece. Its vectors are of the elements that may change, in
// units of their scales.
type newton struct {
	*trainer
	free    [][]int32 // by parameter, the elements that may change
	size    int
	some    []int     // the samples that show the curvature
	moved   []*param  // as the parameters of the piece, with other tensors
	diag    []float64 // of the curvature, about
	damping float64
	seed    uint64
}

func newNewton(t *trainer, seed uint64) *newton {
	n := &newton{trainer: t, damping: firstDamping, seed: seed}
	for _, q := range t.piece.params {
		var free []int32
		for i, s := range q.scale {
			if s != 0 {
				free = append(free, int32(i))
			}
		}
		n.free = append(n.free, free)
		n.size += len(free)
		n.moved = append(n.moved, &param{value: q.value, tensor: q.tensor.Clone()})
	}
	values := 0
	for _, x := range t.samples[0].target {
		values += x.Len()
	}
	q := quota{of: len(t.seen), take: min(len(t.seen), max(curvatureLeast, curvatureValues*n.size/max(1, values)))}
	for _, i := range t.seen {
		if q.next() {
			n.some = append(n.some, i)
		}
	}
	return n
}

// vector calls do with the place of each element that may change in a vector, its parameter
// and its place there.
func (n *newton) vector(do func(at int, q, moved *param, i int32)) {
	at := 0
	for k, free := range n.free {
		for _, i := range free {
			do(at, n.piece.params[k], n.moved[k], i)
			at++
		}
	}
}

// move makes the moved parameters those of the piece and a multiple of v. Weights do not
// become zero.
func (n *newton) move(v []float64, by float64) {
	n.vector(func(at int, q, moved *param, i int32) {
		was := q.tensor.F32s()[i]
		w := was + float32(by*v[at]*float64(q.scale[i]))
		if w == 0 && q.weight {
			w = was
		}
		moved.tensor.F32s()[i] = w
	})
}

// swap exchanges the parameters for the moved ones.
func (n *newton) swap() {
	for k, q := range n.piece.params {
		q.tensor, n.moved[k].tensor = n.moved[k].tensor, q.tensor
	}
}

// gather adds what a worker found for the parameters, changed by f, to a vector.
func (n *newton) gather(w *worker, v []float64, f func(g float64) float64) {
	at := 0
	for k, free := range n.free {
		g := w.pass.grads[k]
		if g == nil {
			at += len(free)
			continue
		}
		d, scale := g.F32s(), n.piece.params[k].scale
		for _, i := range free {
			v[at] += f(float64(d[i]) * float64(scale[i]))
			at++
		}
	}
}

func itself(g float64) float64 { return g }
func square(g float64) float64 { return g * g }

// gradient returns the mean loss of the samples to learn from and sets g to its gradient.
func (n *newton) gradient(ctx context.Context, g []float64) (float64, error) {
	clear(g)
	sum, of := 0.0, &batch{size: len(n.seen)}
	err := n.each(ctx, n.seen, n.chunk, func(w *worker, index []int) error { return w.run(n.trainer, index, of) }, func(w *worker) {
		sum += w.sum
		n.gather(w, g, itself)
	})
	return sum / float64(len(n.seen)), err
}

// times sets out to the product of the curvature and v.
func (n *newton) times(ctx context.Context, out, v []float64) error {
	clear(out)
	by := n.reach(v)
	if by == 0 {
		return nil
	}
	n.move(v, by)
	factor := 1 / (by * float64(len(n.some)))
	return n.each(ctx, n.some, n.chunk, func(w *worker, index []int) error { return w.curve(n, index, factor) }, func(w *worker) {
		n.gather(w, out, itself)
	})
}

// reach is the multiple of v that moves a parameter by difference.
func (n *newton) reach(v []float64) float64 {
	most, at := 0.0, 0
	for _, free := range n.free {
		sum := 0.0
		for range free {
			sum += v[at] * v[at]
			at++
		}
		most = max(most, sum/float64(max(1, len(free))))
	}
	if most == 0 {
		return 0
	}
	return difference / math.Sqrt(most)
}

// curve computes the gradients by values H Jv of a chunk, of which moved parameters show Jv.
func (w *worker) curve(n *newton, index []int, factor float64) error {
	if w.moved == nil {
		p := *n.piece
		p.params = n.moved
		w.moved = newPass(&p, n.kernels)
	}
	w.in.Reset()
	in := w.join(n.trainer, index, inputs)
	if err := w.pass.forward(in); err != nil {
		return err
	}
	if err := w.moved.forward(in); err != nil {
		return err
	}
	return w.pass.backward(w.seeds(n, func(l *loss, y *tensor.Tensor, u []float32) {
		l.bend(y, w.moved.value(l.value), len(index), u, factor)
	}))
}

// seeds are gradients by the values of losses.
func (w *worker) seeds(n *newton, set func(l *loss, y *tensor.Tensor, u []float32)) func(adder) {
	return func(add adder) {
		for i := range n.losses {
			l := &n.losses[i]
			y := w.pass.value(l.value)
			u := w.pass.c.New(y.Shape()...)
			set(l, y, u.F32s())
			add(l.value, u)
		}
	}
}

// diagonal finds the diagonal of the curvature: the mean square of gradients by random
// signs times a root of H, as in Squares.
func (n *newton) diagonal(ctx context.Context, step int) error {
	clear(n.diag)
	err := n.each(ctx, n.some, 1, func(w *worker, index []int) error {
		w.in.Reset()
		if err := w.pass.forward(w.join(n.trainer, index, inputs)); err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(n.seed+uint64(step), uint64(index[0])))
		return w.pass.backward(w.seeds(n, func(l *loss, y *tensor.Tensor, u []float32) {
			l.signs(y, u, 1/float64(len(n.some)), rng)
		}))
	}, func(w *worker) { n.gather(w, n.diag, square) })
	if err != nil {
		return err
	}
	mean := 0.0
	for _, d := range n.diag {
		mean += d / float64(n.size)
	}
	for i, d := range n.diag {
		n.diag[i] = max(d, 1e-3*mean, math.SmallestNonzeroFloat32)
	}
	return nil
}

// direction sets d to a solution of (G + damping D) d = -g by conjugate gradients, of which D is the
// preconditioner, and returns what the quadratic model promises to gain.
func (n *newton) direction(ctx context.Context, d, g []float64, done func()) (float64, error) {
	clear(d)
	rest, way, image := make([]float64, n.size), make([]float64, n.size), make([]float64, n.size)
	size := 0.0
	for i, v := range g {
		rest[i] = -v
		way[i] = -v / n.diag[i]
		size += v * v / n.diag[i]
	}
	want, gain := residual*residual*size, 0.0
	for range conjugate {
		if !(size > want) {
			break
		}
		if err := n.times(ctx, image, way); err != nil {
			return 0, err
		}
		bend := 0.0
		for i, v := range way {
			image[i] += n.damping * n.diag[i] * v
			bend += image[i] * v
		}
		if !(bend > 0) || math.IsInf(bend, 0) {
			break
		}
		step, last := size/bend, size
		gain += step * size / 2
		size = 0
		for i, v := range way {
			d[i] += step * v
			rest[i] -= step * image[i]
			size += rest[i] * rest[i] / n.diag[i]
		}
		turn := size / last
		for i, r := range rest {
			way[i] = r/n.diag[i] + turn*way[i]
		}
		done()
	}
	return gain, nil
}

// search halves the step d until the loss falls by a share of what the gradient promises, makes it, and
// returns the loss; ok is false where no step does.
func (n *newton) search(ctx context.Context, d, g []float64, now float64) (loss float64, ok bool, err error) {
	slope := 0.0
	for i, v := range d {
		slope += v * g[i]
	}
	for k := range halvings {
		by := math.Ldexp(1, -k)
		n.move(d, by)
		n.swap()
		loss, err := n.mean(ctx, n.seen)
		if err != nil {
			return 0, false, err
		}
		if loss < now && loss <= now+armijo*by*slope {
			return loss, true, nil
		}
		n.swap()
	}
	return now, false, nil
}

// solve makes steps of Newton's method. It leaves, as train does, the parameters with which
// the loss of the samples that are held out was the least, those that there were before included.
func (t *trainer) solve(ctx context.Context, c course) (result, error) {
	var r result
	var err error
	if r.before, err = t.mean(ctx, t.held); err != nil {
		return r, err
	}
	r.after = r.before
	n := newNewton(t, c.seed)
	if r.before < negligible || math.IsNaN(r.before) || math.IsInf(r.before, 0) || n.size == 0 {
		return r, nil
	}
	g, d := make([]float64, n.size), make([]float64, n.size)
	n.diag = make([]float64, n.size)
	done, total := 0, c.newton*(conjugate+1)
	count := func() {
		if done++; c.progress != nil {
			c.progress(done, total)
		}
	}
	for r.steps < c.newton {
		now, err := n.gradient(ctx, g)
		if err != nil {
			return r, err
		}
		if err := n.diagonal(ctx, r.steps); err != nil {
			return r, err
		}
		promised, err := n.direction(ctx, d, g, count)
		if err != nil {
			return r, err
		}
		next, ok, err := n.search(ctx, d, g, now)
		if err != nil {
			return r, err
		}
		r.steps++
		if done = r.steps*(conjugate+1) - 1; !ok {
			break
		}
		count()
		switch ratio := (now - next) / promised; {
		case ratio > 0.75:
			n.damping /= 2
		case ratio < 0.25:
			n.damping *= 4
		}
		held, err := t.mean(ctx, t.held)
		if err != nil {
			return r, err
		}
		if held < r.after {
			r.after = held
			for _, q := range t.piece.params {
				copy(q.best, q.tensor.F32s())
			}
		}
	}
	for _, q := range t.piece.params {
		copy(q.tensor.F32s(), q.best)
	}
	return r, nil
}
