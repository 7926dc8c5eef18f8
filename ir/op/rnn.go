package op

import (
	"math"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// Recurrent holds the attributes that LSTM, GRU and RNN share.
type Recurrent struct {
	Activations []string  `attr:"activations"`
	Alpha       []float32 `attr:"activation_alpha"`
	Beta        []float32 `attr:"activation_beta"`
	Clip        *float32  `attr:"clip"` // bounds the inputs of the activations
	Direction   string    `attr:"direction,forward"`
	HiddenSize  *int      `attr:"hidden_size"`
	// BatchFirst puts the batch before the sequence in X and Y, and before the
	// directions in the states.
	BatchFirst bool `attr:"layout,0"`
}

// directions is 2 for a bidirectional operator, else 1.
func (o *Recurrent) directions() int {
	if o.Direction == "bidirectional" {
		return 2
	}
	return 1
}

// infer checks the inputs of an operator with that many gates and states, and
// the default activations of one direction, and sets the outputs: Y and the last
// states.
func (o *Recurrent) infer(c *ir.Infer, gates, states int, defaults []string) error {
	if err := wantPresent(c, 3); err != nil {
		return err
	}
	for i := range c.Len() {
		types := reals
		if i == 4 {
			types = []tensor.DType{tensor.I32}
		} else if err := wantSame(c, i); err != nil {
			return err
		}
		if err := wantOneOf(c, i, types); err != nil {
			return err
		}
	}
	switch o.Direction {
	case "forward", "reverse", "bidirectional":
	default:
		return c.Errorf("direction is %q, want forward, reverse or bidirectional", o.Direction)
	}
	if _, err := o.functions(defaults); err != nil {
		return c.Errorf("%v", err)
	}
	x, w, r := c.In(0), c.In(1), c.In(2)
	seq, batch := dimOf(c, x, 0), dimOf(c, x, 1)
	if o.BatchFirst {
		seq, batch = batch, seq
	}
	hidden := dimOf(c, r, 2)
	if o.HiddenSize != nil {
		if hidden = ir.Size(*o.HiddenSize); hidden.Size() < 0 {
			return c.Errorf("hidden_size is %v, want at least 0", hidden)
		}
	}
	dirs, gated, in := ir.Size(o.directions()), ir.Mul(ir.Size(gates), hidden), known(dimOf(c, x, 2), dimOf(c, w, 2))
	state := o.order(dirs, batch, hidden)
	for i, t := range []struct {
		what string
		dims []ir.Dim
	}{
		{"X", o.order(seq, batch, in)},
		{"W", []ir.Dim{dirs, gated, in}},
		{"R", []ir.Dim{dirs, gated, hidden}},
		{"B", []ir.Dim{dirs, ir.Mul(ir.Size(2), gated)}},
		{"sequence_lens", []ir.Dim{batch}},
		{"initial_h", state},
		{"initial_c", state},
		{"P", []ir.Dim{dirs, ir.Mul(ir.Size(3), hidden)}},
	} {
		if err := wantDims(c, i, t.what, t.dims...); err != nil {
			return err
		}
	}
	if o.BatchFirst {
		c.Set(0, ir.Of(x.DType, batch, seq, dirs, hidden))
	} else {
		c.Set(0, ir.Of(x.DType, seq, dirs, batch, hidden))
	}
	for i := range states {
		c.Set(1+i, ir.Of(x.DType, state...))
	}
	return nil
}

// order swaps the first two dimensions, of which the second is the batch, where
// the batch goes first.
func (o *Recurrent) order(a, batch, c ir.Dim) []ir.Dim {
	if o.BatchFirst {
		return []ir.Dim{batch, a, c}
	}
	return []ir.Dim{a, batch, c}
}

// cell is one direction of a recurrent operator.
type cell struct {
	hidden, gates int
	rT            []float64 // the recurrent weight transposed, [H, gates*H]
	bias          []float64 // of the recurrent product, [gates*H]
	peep          []float64 // the peepholes of LSTM, [3*H], nil where absent
	act           []func(float64) float64
	sums          []float64 // scratch, [gates*H]
}

// product sets sums to R h + bias.
func (k *cell) product(h []float64) {
	copy(k.sums, k.bias)
	accumulate(k.sums, h, k.rT)
}

// step brings the states h and c of one sample a step on; x holds the gates'
// products with the input, biases included.
type step func(k *cell, x, h, c []float64)

// eval runs all directions.
func (o *Recurrent) eval(op ir.Op, in []*tensor.Tensor, gates, states int, defaults []string, step step) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(op, 1+states, in)
	if err != nil || empty != nil {
		return empty, err
	}
	functions, err := o.functions(defaults)
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	r, err := o.recurrence(in, gates, states)
	if err != nil {
		return nil, err
	}
	for d := range r.dirs {
		r.run(d, r.cell(d, functions[d*len(defaults):][:len(defaults)]), step)
	}
	dt := in[0].DType()
	out := make([]*tensor.Tensor, 1+states)
	out[0] = tensor.FromFloat64s(dt, r.y, r.seq, r.dirs, r.batch, r.hidden)
	if o.BatchFirst {
		out[0] = out[0].Permute(2, 0, 1, 3)
	}
	for i := range states {
		s := tensor.FromFloat64s(dt, r.last[i], r.dirs, r.batch, r.hidden)
		if o.BatchFirst {
			s = s.Permute(1, 0, 2)
		}
		out[1+i] = s
	}
	for i, t := range out {
		out[i] = t.Reshape(shapes[i]...)
	}
	return out, nil
}

// recurrence is what a recurrent operator reads and writes, with the batch after the
// sequence, and after the directions, whatever the operator says.
type recurrence struct {
	*Recurrent
	gates, dirs, seq, batch, hidden, inputs int

	lengths []int     // of the sequences of the samples
	x, w    []float64 // [seq, batch, I] and [dirs, gates*H, I]
	rT      []float64 // [dirs, H, gates*H]
	b, p    []float64 // [dirs, 2*gates*H] and [dirs, 3*H], nil where absent

	y    []float64    // [seq, dirs, batch, H]
	last [2][]float64 // h and c, [dirs, batch, H]
}

// recurrence reads the inputs of an operator with that many gates and states.
func (o *Recurrent) recurrence(in []*tensor.Tensor, gates, states int) (*recurrence, error) {
	seq, batch, hidden := in[0].Dim(0), in[0].Dim(1), in[2].Dim(2)
	xs := in[0]
	if o.BatchFirst {
		seq, batch = batch, seq
		xs = xs.Permute(1, 0, 2)
	}
	r := &recurrence{Recurrent: o, gates: gates, dirs: o.directions(), seq: seq, batch: batch, hidden: hidden, inputs: in[0].Dim(2)}
	r.lengths = make([]int, batch)
	for i := range r.lengths {
		r.lengths[i] = seq
	}
	if t := optional(in, 4); t != nil {
		r.lengths = t.Ints()
		for _, n := range r.lengths {
			if n < 0 || n > seq {
				return nil, evalErrorf("sequence_lens has %d, want 0 to %d", n, seq)
			}
		}
	}
	r.x, r.w, r.b, r.p = xs.Float64s(), in[1].Float64s(), float64s(in, 3), float64s(in, 7)
	r.rT = in[2].Permute(0, 2, 1).Float64s()
	r.y = make([]float64, seq*r.dirs*batch*hidden)
	for i := range r.last {
		r.last[i] = make([]float64, r.dirs*batch*hidden)
		if t := optional(in, 5+i); t != nil && i < states {
			if o.BatchFirst {
				t = t.Permute(1, 0, 2)
			}
			copy(r.last[i], t.Float64s())
		}
	}
	return r, nil
}

// cell returns that of a direction.
func (r *recurrence) cell(d int, functions []func(float64) float64) *cell {
	n := r.gates * r.hidden
	k := &cell{hidden: r.hidden, gates: r.gates, act: functions, bias: make([]float64, n), sums: make([]float64, n)}
	if r.b != nil {
		copy(k.bias, r.b[d*2*n+n:][:n])
	}
	if r.p != nil {
		k.peep = r.p[d*3*r.hidden:][:3*r.hidden]
	}
	k.rT = r.rT[d*r.hidden*n:][:r.hidden*n]
	return k
}

// products returns X W' + bias of a direction, [seq*batch, gates*H].
func (r *recurrence) products(d int) []float64 {
	n := r.gates * r.hidden
	bias := make([]float64, n)
	if r.b != nil {
		copy(bias, r.b[d*2*n:])
	}
	gx := make([]float64, r.seq*r.batch*n)
	w := matrix[float64, float64](r.w[d*n*r.inputs:][:n*r.inputs], 1, r.inputs)
	multiply(r.seq*r.batch, r.inputs, n, r.x, w, func(i, j int, row []float64) {
		for t, v := range row {
			gx[i*n+j+t] = v + bias[j+t]
		}
	})
	return gx
}

// run goes through the steps of a direction, of each sample as many as it has.
func (r *recurrence) run(d int, k *cell, step step) {
	n := r.gates * r.hidden
	gx := r.products(d)
	backward := d == 1 || r.Direction == "reverse"
	for i, length := range r.lengths {
		at := (d*r.batch + i) * r.hidden
		h, c := r.last[0][at:][:r.hidden], r.last[1][at:][:r.hidden]
		for s := range length {
			t := s
			if backward {
				t = length - 1 - s
			}
			step(k, gx[(t*r.batch+i)*n:][:n], h, c)
			copy(r.y[((t*r.dirs+d)*r.batch+i)*r.hidden:], h)
		}
	}
}

// activations are the functions that recurrent operators may use, with their
// default alpha and beta; NaN stands for none.
var activations = map[string]struct {
	alpha, beta float64
	f           func(x, alpha, beta float64) float64
}{
	"relu":            {math.NaN(), math.NaN(), func(x, _, _ float64) float64 { return max(x, 0) }},
	"tanh":            {math.NaN(), math.NaN(), func(x, _, _ float64) float64 { return math.Tanh(x) }},
	"sigmoid":         {math.NaN(), math.NaN(), func(x, _, _ float64) float64 { return sigmoid(x) }},
	"affine":          {1, 0, func(x, a, b float64) float64 { return a*x + b }},
	"leakyrelu":       {0.01, math.NaN(), func(x, a, _ float64) float64 { return max(x, 0) + a*min(x, 0) }},
	"thresholdedrelu": {1, math.NaN(), thresholded},
	"scaledtanh":      {1, 1, func(x, a, b float64) float64 { return a * math.Tanh(b*x) }},
	"hardsigmoid":     {0.2, 0.5, func(x, a, b float64) float64 { return min(max(a*x+b, 0), 1) }},
	"elu":             {1, math.NaN(), func(x, a, _ float64) float64 { return max(x, 0) + a*math.Expm1(min(x, 0)) }},
	"softsign":        {math.NaN(), math.NaN(), func(x, _, _ float64) float64 { return x / (1 + math.Abs(x)) }},
	"softplus":        {math.NaN(), math.NaN(), func(x, _, _ float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }},
}

func thresholded(x, a, _ float64) float64 {
	if x > a {
		return x
	}
	return 0
}

// functions returns the activations of all directions, clipping included. Alphas
// and betas go, in order, to the functions that have them.
func (o *Recurrent) functions(defaults []string) ([]func(float64) float64, error) {
	names := o.Activations
	if len(names) == 0 {
		for range o.directions() {
			names = append(names, defaults...)
		}
	}
	if want := o.directions() * len(defaults); len(names) != want {
		return nil, evalErrorf("%d activations, want %d", len(names), want)
	}
	limit := math.Inf(1)
	if o.Clip != nil && *o.Clip > 0 {
		limit = float64(*o.Clip)
	}
	alphas, betas := o.Alpha, o.Beta
	take := func(def float64, list *[]float32) float64 {
		if math.IsNaN(def) || len(*list) == 0 {
			return def
		}
		v := (*list)[0]
		*list = (*list)[1:]
		return float64(v)
	}
	out := make([]func(float64) float64, len(names))
	for i, name := range names {
		a, ok := activations[strings.ToLower(name)]
		if !ok {
			return nil, evalErrorf("unknown activation %q", name)
		}
		alpha, beta := take(a.alpha, &alphas), take(a.beta, &betas)
		out[i] = func(x float64) float64 { return a.f(min(max(x, -limit), limit), alpha, beta) }
	}
	return out, nil
}

// work counts the multiply-adds of both products of each step.
func (o *Recurrent) work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	steps := elems(ir.Of(tensor.F32, in[0].Dims[:2]...))
	w.FLOPs = 2 * steps * (elems(in[1]) + elems(in[2]))
	return w
}

// Weights returns W[dirs*gates*H, I], used for each step and sample, and
// R[dirs*gates*H, H], used for each sample in each step: the rows of a direction
// with its states.
func (o *Recurrent) Weights(n *ir.Node) []ir.Weight {
	seq, batch := n.Graph().Fresh(), n.Graph().Fresh()
	if inputRank(n, 0) == 3 {
		d := n.Inputs[0].Type.Dims
		if seq, batch = d[0], d[1]; o.BatchFirst {
			seq, batch = batch, seq
		}
	}
	var out []ir.Weight
	view := ir.View{RowAxes: 2}
	if inputRank(n, 1) == 3 {
		out = append(out, ir.Weight{Input: 1, View: view, Groups: 1, Cols: ir.Mul(seq, batch), Reuse: ir.Size(1)})
	}
	if inputRank(n, 2) == 3 {
		out = append(out, ir.Weight{Input: 2, View: view, Groups: 1, Cols: batch, Reuse: seq})
	}
	return out
}

// upgradeRecurrent drops what opset 1 said of the outputs wanted.
func upgradeRecurrent(l *Legacy) error {
	l.Take("output_sequence")
	return nil
}

// RNN is H = f(X W' + H R' + Wb + Rb), step by step over X[seq,batch,I].
type RNN struct{ Recurrent }

// Kind is RNN.
func (*RNN) Kind() string { return "RNN" }

var rnnActivations = []string{"Tanh"}

// Infer checks the inputs and sets Y and Y_h.
func (o *RNN) Infer(c *ir.Infer) error { return o.infer(c, 1, 1, rnnActivations) }

// Eval runs the steps.
func (o *RNN) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return o.eval(o, in, 1, 1, rnnActivations, func(k *cell, x, h, _ []float64) {
		k.product(h)
		for i, v := range k.sums {
			h[i] = k.act[0](x[i] + v)
		}
	})
}

// Work counts the products.
func (o *RNN) Work(in, out []ir.Type) ir.Work { return o.work(in, out) }

// GRU is the gated recurrent unit of Cho et al. (2014), with the gates z, r, h:
//
//	z = f(X Wz' + H Rz' + b), r = f(X Wr' + H Rr' + b)
//	n = g(X Wh' + (r*H) Rh' + b), H = (1-z)*n + z*H
type GRU struct {
	Recurrent
	// ResetAfter applies r after the product: n = g(X Wh' + Wb + r*(H Rh' + Rb)).
	ResetAfter bool `attr:"linear_before_reset,0"`
}

// Kind is GRU.
func (*GRU) Kind() string { return "GRU" }

var gruActivations = []string{"Sigmoid", "Tanh"}

// Infer checks the inputs and sets Y and Y_h.
func (o *GRU) Infer(c *ir.Infer) error { return o.infer(c, 3, 1, gruActivations) }

// Eval runs the steps.
func (o *GRU) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return o.eval(o, in, 3, 1, gruActivations, o.step)
}

func (o *GRU) step(k *cell, x, h, _ []float64) {
	n, f, g := k.hidden, k.act[0], k.act[1]
	k.product(h)
	z, s := make([]float64, n), k.sums
	fresh := make([]float64, n)
	reset := make([]float64, n)
	for i := range n {
		z[i] = f(x[i] + s[i])
		r := f(x[n+i] + s[n+i])
		fresh[i] = r * s[2*n+i]
		reset[i] = r * h[i]
	}
	if !o.ResetAfter {
		k.product(reset)
		copy(fresh, s[2*n:])
	}
	for i := range n {
		h[i] = (1-z[i])*g(x[2*n+i]+fresh[i]) + z[i]*h[i]
	}
}

// Work counts the products.
func (o *GRU) Work(in, out []ir.Type) ir.Work { return o.work(in, out) }

// LSTM is the long short-term memory of Hochreiter and Schmidhuber (1997) with
// the gates i, o, f, c, and peepholes P (Gers and Schmidhuber, 2000):
//
//	i = f(X Wi' + H Ri' + Pi*C + b), f = f(X Wf' + H Rf' + Pf*C + b)
//	C = f*C + i*g(X Wc' + H Rc' + b)
//	o = f(X Wo' + H Ro' + Po*C + b), H = o*h(C)
type LSTM struct {
	Recurrent
	// InputForget couples the gates: f = 1-i.
	InputForget bool `attr:"input_forget,0"`
}

// Kind is LSTM.
func (*LSTM) Kind() string { return "LSTM" }

var lstmActivations = []string{"Sigmoid", "Tanh", "Tanh"}

// Infer checks the inputs and sets Y, Y_h and Y_c.
func (o *LSTM) Infer(c *ir.Infer) error { return o.infer(c, 4, 2, lstmActivations) }

// Eval runs the steps.
func (o *LSTM) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	return o.eval(o, in, 4, 2, lstmActivations, o.step)
}

func (o *LSTM) step(k *cell, x, h, c []float64) {
	n, f, g, out := k.hidden, k.act[0], k.act[1], k.act[2]
	k.product(h)
	for i := range n {
		gate := func(j int) float64 { return x[j*n+i] + k.sums[j*n+i] }
		peep := func(j int) float64 {
			if k.peep == nil {
				return 0
			}
			return k.peep[j*n+i] * c[i]
		}
		in := f(gate(0) + peep(0))
		forget := 1 - in
		if !o.InputForget {
			forget = f(gate(2) + peep(2))
		}
		c[i] = forget*c[i] + in*g(gate(3))
		h[i] = f(gate(1)+peep(1)) * out(c[i])
	}
}

// Work counts the products.
func (o *LSTM) Work(in, out []ir.Type) ir.Work { return o.work(in, out) }
