package recon

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// param is a constant that is trained. Zeros of a weight are no parameters: they stay.
type param struct {
	value  *ir.Value
	was    *tensor.Tensor // before
	tensor *tensor.Tensor // what it is now
	weight bool           // of a weight-bearing operator
	shift  *ir.Node       // the node to whose output it is added, channel by channel
	scale  []float32      // by element, the size of a step of relative length 1
	grad   []float32
	m, v   []float32 // running means of the gradient and of its square
	old    []float32 // the elements of was
	row    []int32   // of a weight, the row of each element
	gain   *gains    // where only the sizes of rows are trained
	gating *gating   // where elements pass gates
	best   []float32
}

// parameters lists what may change in nodes: weights and biases of products, and the
// scales and shifts of normalisations, unless fixed names them or a node outside reads
// them too.
func parameters(nodes []*ir.Node, fixed func(name string) bool) []*param {
	inside := map[*ir.Node]bool{}
	for _, n := range nodes {
		inside[n] = true
	}
	var out []*param
	seen := map[*ir.Value]*param{}
	add := func(n *ir.Node, v *ir.Value) *param {
		if v == nil || v.Const == nil || v.Type.DType != tensor.F32 || v.Const.Len() == 0 || fixed(v.Name) || fixed(n.Name) || v.IsOutput() {
			return nil
		}
		for _, u := range v.Uses() {
			if !inside[u.Node] {
				return nil
			}
		}
		if p := seen[v]; p != nil {
			return p
		}
		p := &param{value: v, was: v.Const, tensor: v.Const.Clone()}
		seen[v] = p
		out = append(out, p)
		return p
	}
	for _, n := range nodes {
		if w, ok := n.Op.(ir.WeightOp); ok {
			for _, u := range w.Weights(n) {
				if p := add(n, n.Input(u.Input)); p != nil && !p.weight {
					p.weight = true
					p.byRows(u.View)
				}
			}
		}
		switch n.Op.(type) {
		case op.Fusable:
			if p := add(n, n.Input(2)); p != nil && p.scale == nil {
				p.shift = n
			}
		case *op.BatchNormalization, *op.LayerNormalization:
			if p := add(n, n.Input(2)); p != nil && p.scale == nil {
				p.shift = n
			}
			add(n, n.Input(1))
		case *op.RMSNormalization:
			add(n, n.Input(1))
		case *op.Binary:
			if kind := n.Op.Kind(); kind != "Add" && kind != "Mul" {
				continue
			}
			for i := range n.Inputs {
				if v := n.Input(i); v != nil && v.Const != nil && vector(v.Const.Shape()) {
					if p := add(n, v); p != nil && p.scale == nil && n.Op.Kind() == "Add" {
						p.shift = n
					}
				}
			}
		}
	}
	for _, p := range out {
		if p.scale == nil {
			p.uniform(rms(p.tensor.F32s()))
		}
		n := p.tensor.Len()
		p.grad, p.m, p.v = make([]float32, n), make([]float32, n), make([]float32, n)
		p.old, p.best = p.was.F32s(), slices.Clone(p.tensor.F32s())
	}
	return out
}

// vector reports whether one axis alone has more than one element.
func vector(shape []int) bool {
	n := 0
	for _, d := range shape {
		if d != 1 {
			n++
		}
	}
	return n == 1
}

// byRows makes steps of a weight as long as the elements of the row, an output channel,
// are large: rows of folded batch normalisations differ much.
func (p *param) byRows(view ir.View) {
	w := p.tensor.F32s()
	rows, cols := view.Dims(p.tensor.Shape())
	index := make([]int32, len(w))
	for i := range index {
		index[i] = int32(i)
	}
	at := tensor.Data[int32](view.Matrix(tensor.From(index, p.tensor.Shape()...)))
	p.scale, p.row = make([]float32, len(w)), make([]int32, len(w))
	least := rms(w) / 100
	row := make([]float32, cols)
	for r := range rows {
		for c := range row {
			row[c] = w[at[r*cols+c]]
		}
		s := max(rms(row), least)
		for c := range row {
			p.row[at[r*cols+c]] = int32(r)
			if row[c] != 0 {
				p.scale[at[r*cols+c]] = s
			}
		}
	}
}

// uniform makes the steps of all elements as long.
func (p *param) uniform(s float32) {
	p.scale = make([]float32, p.tensor.Len())
	for i := range p.scale {
		p.scale[i] = s
	}
}

// spread sums up the channels of values, to tell their deviations.
type spread struct {
	count       int
	sum, square []float64
}

// add sees values y to which a shift of n channels is added.
func (s *spread) add(y *tensor.Tensor, n int) {
	axis := -1
	switch {
	case y.Rank() > 3 && y.Dim(1) == n:
		axis = 1
	case y.Rank() > 0 && y.Dim(-1) == n:
		axis = y.Rank() - 1
	case y.Rank() > 1 && y.Dim(1) == n:
		axis = 1
	}
	if axis < 0 {
		return
	}
	if s.sum == nil {
		s.sum, s.square = make([]float64, n), make([]float64, n)
	}
	inner := 1
	for _, d := range y.Shape()[axis+1:] {
		inner *= d
	}
	for c, v := 0, y.F32s(); len(v) > 0; v = v[inner:] {
		sum, square := 0.0, 0.0
		for _, e := range v[:inner] {
			sum += float64(e)
			square += float64(e) * float64(e)
		}
		s.sum[c] += sum
		s.square[c] += square
		if c++; c == n {
			c = 0
		}
	}
	s.count += y.Len() / n
}

// byOutput makes steps of a shift as long as the deviation of the channel that it is
// added to.
func (p *param) byOutput(s *spread) {
	for c := range s.sum {
		mean := s.sum[c] / float64(s.count)
		if d := math.Sqrt(max(s.square[c]/float64(s.count)-mean*mean, 0)); d > 0 {
			p.scale[c] = float32(d)
		}
	}
}

// rms is the root of the mean square of the elements that are not zero.
func rms(x []float32) float32 {
	s, n := 0.0, 0
	for _, v := range x {
		if v != 0 {
			s += float64(v) * float64(v)
			n++
		}
	}
	return float32(math.Sqrt(s / float64(max(n, 1))))
}

// Running means of Adam (Kingma and Ba, 2015), and what keeps its quotient finite.
const (
	beta1, beta2 = 0.9, 0.999
	tiny         = 1e-12
)

// adam makes step t, counted from 1, against the gradient. Steps are relative to the
// scale of each element, so that the rate means the same in all layers.
func (p *param) adam(t int, rate float64) {
	w := p.tensor.F32s()
	if p.gain != nil {
		p.gain.adam(p, t, rate)
		return
	}
	if p.gating != nil {
		p.gating.adam(p, t, rate)
		return
	}
	c1 := float32(rate / (1 - math.Pow(beta1, float64(t))))
	c2 := float32(1 / (1 - math.Pow(beta2, float64(t))))
	for i, g := range p.grad {
		s := p.scale[i]
		if s == 0 {
			continue
		}
		m := beta1*p.m[i] + (1-beta1)*g
		v := beta2*p.v[i] + (1-beta2)*g*g
		p.m[i], p.v[i] = m, v
		next := w[i] - c1*s*m/(float32(math.Sqrt(float64(v*c2)))+tiny)
		if p.weight && next == 0 {
			next = w[i]
		}
		w[i] = next
	}
}

// gains are factors of the rows of a weight.
type gains struct{ value, grad, m, v []float64 }

// byGain makes the factors of rows the only parameters of a weight.
func (p *param) byGain() {
	n := int(slices.Max(p.row)) + 1
	p.gain = &gains{make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
	for i := range p.gain.value {
		p.gain.value[i] = 1
	}
}

func (g *gains) adam(p *param, t int, rate float64) {
	clear(g.grad)
	for i, d := range p.grad {
		g.grad[p.row[i]] += float64(d) * float64(p.old[i])
	}
	c1, c2 := rate/(1-math.Pow(beta1, float64(t))), 1/(1-math.Pow(beta2, float64(t)))
	for i, d := range g.grad {
		g.m[i] = beta1*g.m[i] + (1-beta1)*d
		g.v[i] = beta2*g.v[i] + (1-beta2)*d*d
		g.value[i] -= c1 * g.m[i] / (math.Sqrt(g.v[i]*c2) + tiny)
	}
	w := p.tensor.F32s()
	for i, r := range p.row {
		if v := p.old[i] * float32(g.value[r]); v != 0 {
			w[i] = v
		}
	}
}
