package recon

import (
	"fmt"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// piece is a run of nodes with its values numbered, which is evaluated and
// differentiated on a few samples at a time.
type piece struct {
	nodes  []*ir.Node
	in     []*ir.Value // what comes from outside and is no constant
	out    []*ir.Value // what is compared
	params []*param
	slots  int
	slot   map[*ir.Value]int
	fixed  []*tensor.Tensor // by slot, constants that are no parameters
	steps  []step
}

// step is a node with the slots of its inputs and outputs, -1 for absent ones.
type step struct {
	node    *ir.Node
	in, out []int
	wants   []bool // the inputs that depend on parameters
	back    bool   // gradients pass through it
	forward op.Forward
}

// newPiece numbers the values of nodes, which stand in their order. A constant among
// params is read from there.
func newPiece(nodes []*ir.Node, out []*ir.Value, params []*param) (*piece, error) {
	p := &piece{nodes: nodes, out: out, params: params, slot: map[*ir.Value]int{}}
	add := func(v *ir.Value) int {
		p.slot[v] = p.slots
		p.slots++
		p.fixed = append(p.fixed, nil)
		return p.slots - 1
	}
	moves := map[int]bool{} // slots that depend on parameters
	for _, q := range params {
		moves[add(q.value)] = true
	}
	for _, n := range nodes {
		if len(ir.Subgraphs(n.Op)) > 0 {
			return nil, n.Errorf(ir.ErrUnsupported, "no gradient through subgraphs")
		}
		s := step{node: n}
		for _, v := range n.Inputs {
			k, ok := -1, false
			if v != nil {
				if k, ok = p.slot[v]; !ok {
					k = add(v)
					switch {
					case v.Const != nil:
						p.fixed[k] = v.Const
					case v.Store != nil:
						return nil, n.Errorf(ir.ErrUnsupported, "weight %s is stored in format %s", v.Name, v.Store.Format)
					default:
						p.in = append(p.in, v)
					}
				}
			}
			s.in = append(s.in, k)
			s.wants = append(s.wants, moves[k])
		}
		for _, v := range n.Outputs {
			k := -1
			if v != nil {
				k = add(v)
				if slices.Contains(s.wants, true) && v.Type.DType == tensor.F32 {
					moves[k], s.back = true, true
				}
			}
			s.out = append(s.out, k)
		}
		if s.back {
			if _, ok := n.Op.(op.Differentiable); !ok {
				return nil, n.Errorf(ir.ErrUnsupported, "the operator has no gradient")
			}
		}
		if v := n.Input(0); v != nil && v.Type.DType == tensor.F32 {
			s.forward, _ = n.Op.(op.Forward)
		}
		p.steps = append(p.steps, s)
	}
	for _, v := range out {
		if _, ok := p.slot[v]; !ok {
			return nil, fmt.Errorf("%s is no value of the block: %w", v.Name, ir.ErrInvalid)
		}
	}
	return p, nil
}

// pass is one evaluation of a piece at a time, and its memory.
type pass struct {
	*piece
	c      op.GradContext
	values []*tensor.Tensor
	grads  []*tensor.Tensor
	owned  []bool // gradients that nothing else shares
	check  bool   // that operators take what they get
}

func newPass(p *piece, kernels op.Kernels) *pass {
	s := &pass{piece: p, values: make([]*tensor.Tensor, p.slots), grads: make([]*tensor.Tensor, p.slots), owned: make([]bool, p.slots)}
	s.c.Kernels = kernels
	return s
}

// forward evaluates the piece; the tensors of in belong to piece.in. What it computes
// is valid until the next forward.
func (s *pass) forward(in []*tensor.Tensor) error {
	s.c.Reset()
	copy(s.values, s.fixed)
	for i, v := range s.in {
		s.values[s.slot[v]] = in[i]
	}
	for i, q := range s.params {
		s.values[i] = q.tensor
	}
	for i := range s.steps {
		if err := s.eval(&s.steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *pass) eval(st *step) error {
	in := s.pick(s.values, st.in)
	if s.check {
		if _, err := st.node.InferFor(in); err != nil {
			return err
		}
	}
	var out []*tensor.Tensor
	var err error
	if st.forward != nil {
		out, err = st.forward.Forward(&s.c, in)
	} else {
		out, err = st.node.Op.Eval(&ir.Eval{Outputs: len(st.out)}, in)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", st.node, err)
	}
	for i, k := range st.out {
		if k < 0 {
			continue
		}
		if i >= len(out) || out[i] == nil {
			return st.node.Errorf(ir.ErrUnsupported, "output %d was not computed", i)
		}
		s.values[k] = out[i]
	}
	return nil
}

func (s *pass) pick(from []*tensor.Tensor, slots []int) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(slots))
	for i, k := range slots {
		if k >= 0 {
			out[i] = from[k]
		}
	}
	return out
}

// value is what forward computed of v.
func (s *pass) value(v *ir.Value) *tensor.Tensor { return s.values[s.slot[v]] }

// adder takes the gradient by a value.
type adder = func(v *ir.Value, g *tensor.Tensor)

// backward computes the gradients by the parameters from those by values of the piece,
// which seed sets; they are valid until the next forward.
func (s *pass) backward(seed func(add adder)) error {
	clear(s.grads)
	clear(s.owned)
	seed(func(v *ir.Value, g *tensor.Tensor) { s.add(s.slot[v], g) })
	for i := len(s.steps) - 1; i >= 0; i-- {
		st := &s.steps[i]
		if !st.back {
			continue
		}
		dout := s.pick(s.grads, st.out)
		if !slices.ContainsFunc(dout, func(t *tensor.Tensor) bool { return t != nil }) {
			continue
		}
		s.c.Wants = st.wants
		din, err := st.node.Op.(op.Differentiable).Grad(&s.c, s.pick(s.values, st.in), s.pick(s.values, st.out), dout)
		if err != nil {
			return fmt.Errorf("%v: %w", st.node, err)
		}
		for i, g := range din {
			if g != nil && st.wants[i] {
				s.add(st.in[i], g)
			}
		}
	}
	return nil
}

// add adds g to the gradient by the value of a slot.
func (s *pass) add(k int, g *tensor.Tensor) {
	have := s.grads[k]
	switch {
	case have == nil:
		s.grads[k] = g
		return
	case !s.owned[k]:
		sum := s.c.New(g.Shape()...)
		copy(sum.F32s(), have.F32s())
		s.grads[k], s.owned[k], have = sum, true, sum
	}
	d := have.F32s()
	for i, v := range g.F32s()[:len(d)] {
		d[i] += v
	}
}
