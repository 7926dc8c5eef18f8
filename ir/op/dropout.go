package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// Dropout keeps its input, unless its third input asks for training: then each
// element is zero with the probability of the second, and the others are scaled
// to keep the expectation. The second output tells the elements that were kept.
type Dropout struct {
	free
	// Seed starts the Mersenne Twister that numpy's random.seed starts; the seed 0
	// is taken where it is absent, so that results repeat.
	Seed *int `attr:"seed"`
}

// Kind is Dropout.
func (*Dropout) Kind() string { return "Dropout" }

// idle reports whether it is known that nothing is dropped.
func (*Dropout) idle(n *ir.Node) bool {
	return n.Input(2) == nil || constantly(n.Inputs[2], 0) || constantly(n.Input(1), 0)
}

// Same changes nothing outside of training, nor where the probability is zero.
func (o *Dropout) Same(n *ir.Node) int { return sameIf(o.idle(n)) }

// Operands counts none in training, where elements are drawn one after the other.
func (o *Dropout) Operands(n *ir.Node) int {
	if !o.idle(n) {
		return 0
	}
	return 1
}

// Along is that of the identity, and of what is the same for all elements.
func (o *Dropout) Along(n *ir.Node, _, axis int) []int {
	if o.Operands(n) == 0 {
		return nil
	}
	return []int{axis}
}

// Moves changes nothing outside of training.
func (o *Dropout) Moves(n *ir.Node) Motion {
	if !o.idle(n) {
		return Computes
	}
	return Keeps
}

// Infer keeps the type.
func (o *Dropout) Infer(c *ir.Infer) error {
	if err := wantFloat(c, 0); err != nil {
		return err
	}
	if err := wantFloat(c, 1); err != nil {
		return err
	}
	if c.Has(2) && c.In(2).DType != tensor.Bool {
		return c.Errorf("the training mode is %v, want bool", c.In(2))
	}
	for i := 1; i <= 2; i++ {
		if shape, ok := c.In(i).Shape(); ok && product(shape) != 1 {
			return c.Errorf("input %d is %v, want a scalar", i, c.In(i))
		}
	}
	t := c.In(0)
	c.Set(0, t)
	t.DType = tensor.Bool
	c.Set(1, t)
	return nil
}

// Eval drops elements when training.
func (o *Dropout) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, ratio, training := in[0], 0.5, false
	if len(in) > 1 && in[1] != nil {
		if in[1].Len() != 1 {
			return nil, evalErrorf("the ratio is %v, want a scalar", in[1])
		}
		ratio = in[1].Float64s()[0]
	}
	if len(in) > 2 && in[2] != nil {
		if in[2].Len() != 1 {
			return nil, evalErrorf("the training mode is %v, want a scalar", in[2])
		}
		training = tensor.Data[bool](in[2])[0]
	}
	kept := tensor.New(tensor.Bool, x.Shape()...)
	keep := tensor.Data[bool](kept)
	if !training || ratio == 0 {
		for i := range keep {
			keep[i] = true
		}
		return []*tensor.Tensor{x, kept}, nil
	}
	if !(ratio > 0 && ratio < 1) {
		return nil, evalErrorf("ratio %v, want it in [0, 1)", ratio)
	}
	seed := 0
	if o.Seed != nil {
		seed = *o.Seed
	}
	r := newTwister(uint32(seed))
	v := x.Float64s()
	for i := range v {
		if keep[i] = r.float64() >= ratio; keep[i] {
			v[i] /= 1 - ratio
		} else {
			v[i] = 0
		}
	}
	return []*tensor.Tensor{tensor.FromFloat64s(x.DType(), v, x.Shape()...), kept}, nil
}

// Grad passes the gradient, unless elements were dropped.
func (o *Dropout) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if t := optional(in, 2); t != nil && tensor.Data[bool](t)[0] {
		return nil, errNoGrad("of training mode")
	}
	return reshaped(c, in, dout)
}

// upgradeDropout makes the ratio an input, as opsets from 12 have it, where
// inference does not look at it. Opsets below 7 are never asked to train here.
func upgradeDropout(l *Legacy) error {
	if l.Opset < 12 {
		l.Take("ratio")
	}
	if l.Opset < 7 {
		l.Take("is_test")
	}
	l.Take("consumed_inputs")
	return nil
}

// twister is the Mersenne Twister MT19937 (Matsumoto and Nishimura, "Mersenne
// Twister: a 623-dimensionally equidistributed uniform pseudo-random number
// generator", 1998).
type twister struct {
	state [624]uint32
	next  int
}

func newTwister(seed uint32) *twister {
	r := &twister{next: len(twister{}.state)}
	r.state[0] = seed
	for i := 1; i < len(r.state); i++ {
		p := r.state[i-1]
		r.state[i] = 1812433253*(p^p>>30) + uint32(i)
	}
	return r
}

func (r *twister) uint32() uint32 {
	const n, m = len(twister{}.state), 397
	if r.next == n {
		for i := range r.state {
			y := r.state[i]&(1<<31) | r.state[(i+1)%n]&(1<<31-1)
			x := r.state[(i+m)%n] ^ y>>1
			if y&1 != 0 {
				x ^= 0x9908b0df
			}
			r.state[i] = x
		}
		r.next = 0
	}
	y := r.state[r.next]
	r.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float64 returns a number in [0, 1) of 53 random bits.
func (r *twister) float64() float64 {
	a, b := r.uint32()>>5, r.uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}
