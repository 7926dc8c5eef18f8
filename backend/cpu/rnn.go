package cpu

import (
	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// recurrent is an LSTM or a GRU with the default activations: the products with
// the inputs of all steps at once, those with the states step by step.
type recurrent struct {
	seq, batch, hidden, inputs int
	dirs, gates                int
	reverse                    bool
	input                      linear           // X W' + b for all steps, [seq*batch, dirs*gates*H]
	state                      []backend.Kernel // R of each direction, [gates*H, H]
	stateBias                  []float32        // added to R h, [dirs*gates*H], nil for none
	resetAfter                 bool             // of a GRU
}

func bindLSTM(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.LSTM)
	if o.InputForget || n.Input(7) != nil {
		return nil, nil
	}
	return bindRecurrent(p, n, &o.Recurrent, 4, false)
}

func bindGRU(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.GRU)
	return bindRecurrent(p, n, &o.Recurrent, 3, o.ResetAfter)
}

func bindRecurrent(p *program, n *ir.Node, o *op.Recurrent, gates int, resetAfter bool) (*bound, error) {
	if !f32(n) || len(o.Activations) > 0 || o.Clip != nil || o.BatchFirst || n.Input(4) != nil {
		return nil, nil
	}
	_, w, err := p.weightOf(n, 1)
	if err != nil {
		return nil, err
	}
	_, r, err := p.weightOf(n, 2)
	if err != nil || w == nil || r == nil {
		return nil, err
	}
	b, ok := constantF32(n, 3)
	xs, rs := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[2])
	c := &recurrent{
		seq: xs[0], batch: xs[1], inputs: xs[2], hidden: rs[2], dirs: rs[0], gates: gates,
		reverse: o.Direction == "reverse", state: r, resetAfter: resetAfter,
	}
	if !ok || len(r) != c.dirs || prod(xs) == 0 || c.hidden == 0 {
		return nil, nil
	}
	m := c.gates * c.hidden
	c.input = linear{kernel: w[0], tokens: c.seq * c.batch, m: c.dirs * m, k: c.inputs, scale: 1, add: -1,
		ep: epilogue{residual: -1, lo: -inf, hi: inf}}
	if b != nil {
		c.input.ep.bias = make([]float32, c.dirs*m)
		c.stateBias = make([]float32, c.dirs*m)
		for d := range c.dirs {
			copy(c.input.ep.bias[d*m:(d+1)*m], b[d*2*m:])
			copy(c.stateBias[d*m:(d+1)*m], b[d*2*m+m:])
		}
	}
	return &bound{run: c.run, inplace: -1, scratch: c.input.scratch()}, nil
}

func (c *recurrent) run(x *exec, in, out []*tensor.Tensor) error {
	n, m := c.hidden, c.gates*c.hidden
	gx := tensor.New(tensor.F32, c.seq*c.batch, c.dirs*m)
	c.input.prepare(x, &operands{xs: in[0].F32s(), ys: gx.F32s()})()
	initial := func(i int) []float32 {
		s := make([]float32, c.dirs*c.batch*n)
		if i < len(in) && in[i] != nil {
			copy(s, in[i].F32s())
		}
		return s
	}
	h, cell := initial(5), initial(6)
	sums := make([]float32, m+c.state[0].Tile())
	var y []float32
	if out[0] != nil {
		y = out[0].F32s()
	}
	for d := range c.dirs {
		var bias []float32
		if c.stateBias != nil {
			bias = c.stateBias[d*m : (d+1)*m]
		}
		for s := range c.seq {
			t := s
			if c.reverse || d == 1 {
				t = c.seq - 1 - s
			}
			for b := range c.batch {
				at := (d*c.batch + b) * n
				hb := h[at : at+n]
				c.product(x, d, sums, hb, bias, 0, m)
				g := gx.F32s()[(t*c.batch+b)*c.dirs*m+d*m:][:m]
				if c.gates == 4 {
					lstmStep(g, sums, hb, cell[at:at+n])
				} else {
					c.gruStep(x, d, g, sums, hb, bias)
				}
				if y != nil {
					copy(y[((t*c.dirs+d)*c.batch+b)*n:], hb)
				}
			}
		}
	}
	for i, s := range [][]float32{nil, h, cell} {
		if i > 0 && i < len(out) && out[i] != nil {
			copy(out[i].F32s(), s)
		}
	}
	return nil
}

// product sets sums[r0:r1] to R h + bias of a direction.
func (c *recurrent) product(x *exec, d int, sums, h, bias []float32, r0, r1 int) {
	k := c.state[d]
	block := blockRows(k.Tile())
	start := r0 / k.Tile() * k.Tile() // the kernel's rows begin at whole tiles
	x.pool.For((r1-start+block-1)/block, func(worker, i int) {
		lo := start + i*block
		hi := min(r1, lo+block)
		buf := x.scratch[worker][:block]
		k.Vec(buf, h, lo, hi)
		from := max(lo, r0)
		buf = buf[from-lo : hi-lo]
		if bias != nil {
			vec.Add(sums[from:hi], buf, bias[from:hi])
		} else {
			copy(sums[from:hi], buf)
		}
	})
}

// lstmStep brings the states on; g holds the input's share of the gates i, o, f,
// c and s that of the state.
func lstmStep(g, s, h, c []float32) {
	n := len(h)
	vec.Add(s[:4*n], s[:4*n], g)
	vec.Sigmoid(s[:3*n], s[:3*n])
	vec.Tanh(s[3*n:4*n], s[3*n:4*n])
	i, o, f, z := s[:n], s[n:2*n], s[2*n:3*n], s[3*n:4*n]
	vec.Mul(c, c, f)
	vec.Mul(z, z, i)
	vec.Add(c, c, z)
	vec.Tanh(h, c)
	vec.Mul(h, h, o)
}

// gruStep brings the state on; g holds the input's share of the gates z, r, h and
// s that of the state.
func (c *recurrent) gruStep(x *exec, d int, g, s, h, bias []float32) {
	n := c.hidden
	vec.Add(s[:2*n], s[:2*n], g[:2*n])
	vec.Sigmoid(s[:2*n], s[:2*n])
	z, r, f := s[:n], s[n:2*n], s[2*n:3*n]
	if c.resetAfter {
		vec.Mul(f, f, r)
	} else {
		vec.Mul(r, r, h)
		c.product(x, d, s, r, bias, 2*n, 3*n)
	}
	vec.Add(f, f, g[2*n:3*n])
	vec.Tanh(f, f)
	vec.Sub(h, h, f)
	vec.Mul(h, h, z)
	vec.Add(h, h, f)
}
