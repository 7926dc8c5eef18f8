package recon

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// SquareOptions say how squared gradients are summed up.
type SquareOptions struct {
	Seed    uint64
	Workers int // 0 is 1
	// Progress, where it is set, is called with the number of runs that are done.
	Progress func(done int)
}

// Squares returns the sum over the samples of the squared gradients (dL/dw)^2 by each
// of the weights, f32 constants of the root graph g, in the weight's shape. Times w^2
// it is what a loss L changes by when w becomes zero, to first order and squared: the
// importance of Molchanov et al., "Importance estimation for neural network pruning"
// (2019), section 3.2.
//
// Against its own outputs y a model's loss has no gradient. Labels drawn from what it
// predicts give one, whose mean is zero and whose covariance by y is H: diag(p) - pp' for
// the cross entropy of scores with probabilities p, and the identity for the squared
// error of other outputs. Here L is u'y, where u is the image of random signs under a
// root of H. The square of its gradient has the same expectation, the diagonal of the
// Fisher information, which is that of the Gauss-Newton matrix J'HJ, and spreads less:
// drawn labels hardly ever show what a confident model would learn from. The most
// probable label alone would show next to nothing.
//
// Rows of a sample that do not meet are samples of their own. Where they meet, and where
// a sample has several rows of scores, signs are independent, so that products of
// different rows' gradients vanish on average. Of several outputs each counts by its
// mean over rows of scores, or its error relative to its mean square.
//
// The result does not depend on the number of workers. An operator without a gradient is
// an error that wraps ir.ErrUnsupported and names it.
func Squares(ctx context.Context, o *calib.Observer, g *ir.Graph, weights []*ir.Value, opt SquareOptions) ([][]float64, error) {
	s, err := newSquarer(g, weights, opt.Seed)
	if err != nil {
		return nil, err
	}
	for range max(1, opt.Workers) {
		s.ring = append(s.ring, &flight{pass: newPass(s.piece, o.Loops()), done: make(chan error, 1)})
	}
	defer s.wait()
	runs := 0
	for in, err := range o.Inputs(ctx, g) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = s.see(in)
		}
		if err != nil {
			return nil, err
		}
		if runs++; opt.Progress != nil {
			opt.Progress(runs)
		}
	}
	if runs == 0 {
		return nil, fmt.Errorf("no calibration samples: %w", ir.ErrInvalid)
	}
	return s.sums, s.landAll()
}

// squarer sums up squared gradients.
type squarer struct {
	graph *ir.Graph
	piece *piece
	ends  []end
	seed  uint64
	sums  [][]float64 // by weight

	seen    bool // what follows was decided
	divides bool // runs into their rows

	ring            []*flight // sample i is evaluated by flight i modulo their number
	started, landed int       // samples
}

// flight is the evaluation of a sample.
type flight struct {
	pass *pass
	done chan error
}

// end is an output of the model.
type end struct {
	value  *ir.Value
	scores bool
	scale  float64 // of its share in the loss
}

func newSquarer(g *ir.Graph, weights []*ir.Value, seed uint64) (*squarer, error) {
	s := &squarer{graph: g, seed: seed}
	var params []*param
	for _, v := range weights {
		params = append(params, &param{value: v, tensor: v.Const})
		s.sums = append(s.sums, make([]float64, v.Const.Len()))
	}
	var out []*ir.Value
	for _, v := range g.Outputs {
		if v.Type.DType == tensor.F32 && v.Def != nil && !slices.Contains(out, v) {
			out = append(out, v)
			s.ends = append(s.ends, end{v, calib.Scores(g, v), 1})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no output of the model is computed in float32, want one to compute gradients of: %w", ir.ErrUnsupported)
	}
	var err error
	s.piece, err = newPiece(g.Nodes, out, params)
	return s, err
}

// see starts the samples of a run.
func (s *squarer) see(in []*tensor.Tensor) error {
	if err := ir.CheckInputs(s.graph, in); err != nil {
		return err
	}
	var run []*tensor.Tensor // what the piece reads
	for _, v := range s.piece.in {
		run = append(run, in[slices.Index(s.graph.Inputs, v)])
	}
	n := rowsOf(run)
	if !s.seen {
		if err := s.decide(run, n); err != nil {
			return err
		}
	}
	if n < 2 || !s.divides {
		return s.start(run)
	}
	for k := range n {
		if err := s.start(rowOf(run, k)); err != nil {
			return err
		}
	}
	return nil
}

// decide finds out from the first run whether rows are samples, and what outputs count.
func (s *squarer) decide(run []*tensor.Tensor, n int) error {
	p := s.ring[0].pass
	p.check = true
	var err error
	if n > 1 {
		s.divides, err = p.apart(run, s.piece.out)
	}
	if err == nil {
		err = p.forward(run)
	}
	if err != nil {
		return err
	}
	s.seen = true
	if len(s.ends) < 2 {
		return nil
	}
	for i := range s.ends {
		e := &s.ends[i]
		y := p.value(e.value)
		sum := 0.0
		for _, v := range y.F32s() {
			sum += float64(v) * float64(v)
		}
		switch {
		case e.scores:
			e.scale = math.Sqrt(float64(calib.Classes(y)) / float64(max(1, y.Len())))
		case sum > 0:
			e.scale = 1 / math.Sqrt(sum)
		}
	}
	return nil
}

// start evaluates a sample when the one before it in its flight has landed.
func (s *squarer) start(in []*tensor.Tensor) error {
	if s.started-s.landed == len(s.ring) {
		if err := s.land(); err != nil {
			return err
		}
	}
	i := s.started
	f := s.ring[i%len(s.ring)]
	go func() { f.done <- mapped.Guard(func() error { return s.gradients(f.pass, in, i) }) }()
	s.started++
	return nil
}

// gradients computes those of sample i.
func (s *squarer) gradients(p *pass, in []*tensor.Tensor, i int) error {
	p.check = true
	if err := p.forward(in); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(s.seed, uint64(i)))
	return p.backward(func(add func(*ir.Value, *tensor.Tensor)) {
		for _, e := range s.ends {
			y := p.value(e.value)
			u := p.c.New(y.Shape()...)
			e.draw(u.F32s(), y, rng)
			add(e.value, u)
		}
	})
}

// draw writes the gradient of a sample's loss by the output y: random signs times a root
// of the covariance that Squares speaks of.
func (e *end) draw(u []float32, y *tensor.Tensor, rng *rand.Rand) {
	for j := range u {
		u[j] = float32(e.scale)
		if rng.Uint64()>>63 == 1 {
			u[j] = -u[j]
		}
	}
	if !e.scores || len(u) == 0 {
		return
	}
	n := calib.Classes(y)
	logs := make([]float64, n)
	for at := 0; at < len(u); at += n {
		row, u := y.F32s()[at:][:n], u[at:][:n]
		if calib.Probabilities(row) {
			// By p the covariance is diag(1/p), but for what leaves their sum as it is.
			for j, p := range row {
				if p > 0 {
					u[j] /= float32(math.Sqrt(float64(p)))
				} else {
					u[j] = 0
				}
			}
			continue
		}
		logSoftmax(logs, row)
		sum := 0.0
		for j, l := range logs {
			sum += math.Exp(l/2) * float64(u[j])
		}
		for j, l := range logs {
			u[j] = float32(math.Exp(l/2)*float64(u[j]) - math.Exp(l)*sum)
		}
	}
}

// land adds the squared gradients of the first sample in flight, so that sums are formed
// in the order of the samples.
func (s *squarer) land() error {
	f := s.ring[s.landed%len(s.ring)]
	err := <-f.done
	s.landed++ // before wait, where that is a fault
	if err = mapped.Raise(err); err != nil {
		return err
	}
	for k, sum := range s.sums {
		g := f.pass.grads[k]
		if g == nil {
			continue
		}
		for i, v := range g.F32s()[:len(sum)] {
			sum[i] += float64(v) * float64(v)
		}
	}
	return nil
}

// landAll lands what is in flight, and checks the sums.
func (s *squarer) landAll() error {
	for s.landed < s.started {
		if err := s.land(); err != nil {
			return err
		}
	}
	for k, sum := range s.sums {
		for _, v := range sum {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("a gradient by %s is not a finite number: want finite samples, and outputs that are finite on them: %w", s.piece.params[k].value.Name, ir.ErrInvalid)
			}
		}
	}
	return nil
}

// wait returns when nothing is evaluated any more.
func (s *squarer) wait() {
	for ; s.landed < s.started; s.landed++ {
		<-s.ring[s.landed%len(s.ring)].done
	}
}
