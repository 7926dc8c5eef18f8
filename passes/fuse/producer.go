package fuse

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// producer is a node with a constant weight into which what follows it can go.
type producer struct {
	node    *ir.Node
	op      op.Fusable
	weight  int // the input that holds the weight
	rows    int // the axis of the weight that counts output channels
	channel int // the axis of the output that counts them
	m       int // their number
}

// producerOf returns the producer that defines v, where nobody but one node reads
// v and the producer has no epilogue yet.
func producerOf(v *ir.Value) (p producer, ok bool) {
	if v == nil || v.Def == nil || !sole(v) {
		return p, false
	}
	n := v.Def
	f, ok := n.Op.(op.Fusable)
	if !ok || !f.Fused().Empty() || n.Input(op.Residual) != nil || !isF32(v) || !v.Type.Ranked {
		return p, false
	}
	return producer{node: n, op: f}, true
}

// locate finds the weight's axis of output channels; ok is false where the weight
// is no constant tensor of f32, or of i8 in a product of integers, or the channels are split into groups of inputs.
func (p *producer) locate() bool {
	n := p.node
	p.weight = 1
	w := n.Inputs[1].Const
	if w == nil || w.DType() != tensor.F32 && w.DType() != tensor.I8 {
		return false
	}
	rank := n.Outputs[0].Type.Rank()
	switch n.Op.Kind() {
	case "Conv":
		p.rows, p.channel = 0, 1
	case "ConvTranspose":
		p.rows, p.channel = 1, 1
		if ir.AttrOf(n.Op, "group") != 1 {
			return false
		}
	case "MatMul":
		p.rows, p.channel = 1, rank-1
		if w.Rank() != 2 || rank < 1 {
			return false
		}
	case "Gemm":
		p.rows, p.channel = 1, 1
		if ir.AttrOf(n.Op, "transB") == 1 {
			p.rows = 0
		}
	default:
		return false
	}
	p.m = w.Dim(p.rows)
	return true
}

// bias returns the constant that the producer adds, per channel; ok is false
// where it adds something else.
func (p *producer) bias() (b []float64, ok bool) {
	v := p.node.Input(2)
	if v == nil {
		return make([]float64, p.m), true
	}
	if p.node.Op.Kind() != "Gemm" { // a vector, whatever the rank of the output
		if v.Const == nil || v.Const.Len() != p.m {
			return nil, false
		}
		return v.Const.Float64s(), true
	}
	if b, ok = p.channels(v); !ok {
		return nil, false
	}
	beta, _ := ir.AttrOf(p.node.Op, "beta").(float32)
	for i := range b {
		b[i] *= float64(beta)
	}
	return b, true
}

// channels returns the elements of a constant that broadcasts to the output along
// the channel axis only, one for each of the m channels.
func (p *producer) channels(v *ir.Value) ([]float64, bool) {
	return perChannel(v, p.node.Outputs[0].Type.Rank(), p.channel, p.m)
}

// perChannel returns the elements of a constant that broadcasts to a tensor of a rank along one
// axis only, one for each of its m indices.
func perChannel(v *ir.Value, rank, axis, m int) ([]float64, bool) {
	if v == nil || v.Const == nil || !v.Const.DType().IsFloat() || v.Const.Rank() > rank {
		return nil, false
	}
	c := v.Const
	for i, d := range c.Shape() {
		if d != 1 && (rank-c.Rank()+i != axis || d != m) {
			return nil, false
		}
	}
	e := c.Float64s()
	if len(e) == 1 {
		e = slices.Repeat(e, m)
	}
	return e, len(e) == m
}

// affine makes the producer compute scale*y + shift per channel in place of y; a
// nil scale is one. It is false, and nothing is done, where f32 cannot hold the
// result.
func (p *producer) affine(scale, shift []float64) (bool, error) {
	n, g := p.node, p.node.Graph()
	bias, ok := p.bias()
	if !ok || scale != nil && p.node.Inputs[1].Const.DType() != tensor.F32 {
		return false, nil
	}
	b := tensor.New(tensor.F32, p.m)
	for i := range bias {
		if scale != nil {
			bias[i] = float64(bias[i] * scale[i]) // rounded: the same bytes with and without fused multiply-adds
		}
		b.F32s()[i] = float32(bias[i] + shift[i])
	}
	if !finite(b.F32s()) {
		return false, nil
	}
	if scale != nil {
		w := n.Inputs[1]
		var grid *ir.Grid
		t := w.Const.Clone()
		if w.Grid != nil {
			grid, t = w.Grid.Scaled(t, p.rows, scale)
		}
		if grid == nil {
			t = w.Const.Clone()
			scaleAxis(t, p.rows, scale)
		}
		if !finite(t.F32s()) {
			return false, nil
		}
		setWeight(n, t, ".scaled")
		n.Inputs[1].Grid = grid
	}
	if n.Op.Kind() == "Gemm" {
		n.Op = ir.CloneOp(n.Op)
		if err := ir.SetAttr(n.Op, "beta", float32(1)); err != nil {
			return false, err
		}
	}
	n.SetInput(2, g.NewConst(n.Name+".bias", b))
	return true, n.Infer()
}

// setWeight makes input 1 of n, a constant, hold t. It keeps its name, by which users
// know the weight, unless others read it.
func setWeight(n *ir.Node, t *tensor.Tensor, suffix string) {
	if w := n.Inputs[1]; len(w.Uses()) == 1 && !w.IsOutput() {
		w.SetConst(t)
	} else {
		n.SetInput(1, n.Graph().NewConst(w.Name+suffix, t))
	}
}

func finite(x []float32) bool {
	return !slices.ContainsFunc(x, func(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) })
}

// scaleAxis multiplies the slices of t along an axis.
func scaleAxis(t *tensor.Tensor, axis int, scale []float64) {
	inner := 1
	for _, d := range t.Shape()[axis+1:] {
		inner *= d
	}
	data := t.F32s()
	for i := range data {
		data[i] = float32(float64(data[i]) * scale[i/inner%len(scale)])
	}
}

// absorb removes the only reader of a producer's output, which now computes what
// that node did.
func (p *producer) absorb(n *ir.Node) {
	n.Graph().ReplaceUses(n.Outputs[0], p.node.Outputs[0])
	n.Graph().Remove(n)
}

// foldInto folds nodes of the given operators into the producers that they read.
// f says by what node n multiplies the channels of its input i, which p makes, and
// what it adds to them; a nil scale is one.
func foldInto(g *ir.Graph, kinds []string, f func(n *ir.Node, p *producer, i int) (scale, shift []float64, ok bool)) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if !slices.Contains(kinds, n.Op.Kind()) || !numpy(n) || !spare(n) {
			return false, nil
		}
		for i := range min(2, len(n.Inputs)) {
			p, ok := producerOf(n.Inputs[i])
			if !ok || !p.locate() || !n.Outputs[0].Type.Equal(n.Inputs[i].Type) {
				continue
			}
			scale, shift, ok := f(n, &p, i)
			if !ok {
				continue
			}
			done, err := p.affine(scale, shift)
			if err != nil {
				return false, err
			}
			if done {
				p.absorb(n)
				return true, nil
			}
		}
		return false, nil
	})
}

// Scales folds into the weights of Conv, ConvTranspose, MatMul and Gemm what
// scales and shifts their channels by constants: BatchNormalization in inference,
// Mul and Div.
func Scales(g *ir.Graph) (int, error) {
	return foldInto(g, []string{"BatchNormalization", "Mul", "Div"}, func(n *ir.Node, p *producer, i int) (scale, shift []float64, ok bool) {
		kind := n.Op.Kind()
		if o, is := n.Op.(*op.BatchNormalization); is {
			if i == 0 && p.channel == 1 {
				scale, shift = o.Affine(n)
			}
			return scale, shift, len(scale) == p.m
		}
		if kind == "Div" && i > 0 {
			return nil, nil, false
		}
		scale, ok = p.channels(n.Inputs[1-i])
		for k := range scale {
			if kind == "Div" {
				scale[k] = 1 / scale[k]
			}
		}
		return scale, make([]float64, p.m), ok
	})
}

// Biases folds additions of a constant per channel into the bias of the producer,
// and the scales that then follow it.
func Biases(g *ir.Graph) (int, error) {
	total := 0
	for {
		for _, f := range []func(*ir.Graph) (int, error){biases, Scales} {
			n, err := f(g)
			if total += n; err != nil || n == 0 {
				return total, err
			}
		}
	}
}

func biases(g *ir.Graph) (int, error) {
	return foldInto(g, []string{"Add", "Sub"}, func(n *ir.Node, p *producer, i int) (scale, shift []float64, ok bool) {
		minus := n.Op.Kind() == "Sub"
		if minus && i > 0 {
			return nil, nil, false
		}
		shift, ok = p.channels(n.Inputs[1-i])
		for k := range shift {
			if minus {
				shift[k] = -shift[k]
			}
		}
		return nil, shift, ok
	})
}

// Residuals makes a product add another tensor of its output's type while it
// stores: the last of the two products, where both summands are one.
func Residuals(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if n.Op.Kind() != "Add" {
			return false, nil
		}
		nodes := n.Graph().Nodes
		best, at := producer{}, -1
		for i := range 2 {
			p, ok := producerOf(n.Inputs[i])
			r := n.Inputs[1-i]
			if !ok || r.IsConst() || r == n.Inputs[i] || !equal(r, n.Inputs[i]) {
				continue
			}
			if k := slices.Index(nodes, p.node); k > at {
				best, at = p, k
			}
		}
		if at < 0 {
			return false, nil
		}
		r := other(n, best.node.Outputs[0])
		n.Graph().MoveBefore(best.node, n)
		best.node.SetInput(op.Residual, r)
		best.absorb(n)
		return true, best.node.Infer()
	})
}

// Epilogues makes a product apply the activation that follows it.
func Epilogues(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		if _, ok := op.Activations[n.Op.Kind()]; !ok {
			return false, nil
		}
		v := n.Inputs[0]
		if v.Def == nil || !sole(v) || !isF32(v) {
			return false, nil
		}
		f, ok := v.Def.Op.(op.Fusable)
		if !ok || !f.Fused().Empty() {
			return false, nil
		}
		args, ok := op.ActivationArgs(n)
		if !ok {
			return false, nil
		}
		p := v.Def
		p.Op = ir.CloneOp(p.Op)
		e := p.Op.(op.Fusable).Fused()
		e.Act, e.ActArgs = n.Op.Kind(), args
		(&producer{node: p}).absorb(n)
		return true, nil
	})
}
