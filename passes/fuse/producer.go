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
// is no constant f32 tensor or the channels are split into groups of inputs.
func (p *producer) locate() bool {
	n := p.node
	p.weight = 1
	w := n.Inputs[1].Const
	if w == nil || w.DType() != tensor.F32 {
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
	b = make([]float64, p.m)
	v := p.node.Input(2)
	if v == nil {
		return b, true
	}
	scale := 1.0
	if p.node.Op.Kind() == "Gemm" {
		beta, _ := ir.AttrOf(p.node.Op, "beta").(float32)
		scale = float64(beta)
	}
	c, ok := channels(v, p.node.Outputs[0].Type.Rank(), p.channel, p.m)
	if p.node.Op.Kind() != "Gemm" { // a vector, whatever the rank of the output
		if ok = v.Const != nil && v.Const.Len() == p.m; ok {
			c = v.Const.Float64s()
		}
	}
	for i := range c {
		b[i] = scale * c[i]
	}
	return b, ok
}

// channels returns the elements of a constant that broadcasts along the channel
// axis of an output of the given rank only, one for each of m channels.
func channels(v *ir.Value, rank, axis, m int) ([]float64, bool) {
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
// nil scale is one.
func (p *producer) affine(scale, shift []float64) error {
	n, g := p.node, p.node.Graph()
	bias, _ := p.bias()
	if scale != nil {
		w := n.Inputs[1]
		t := w.Const.Clone()
		scaleAxis(t, p.rows, scale)
		n.SetInput(1, g.NewConst(w.Name+".scaled", t))
	}
	b := tensor.New(tensor.F32, p.m)
	for i := range bias {
		if scale != nil {
			bias[i] *= scale[i]
		}
		b.F32s()[i] = float32(bias[i] + shift[i])
	}
	if n.Op.Kind() == "Gemm" {
		n.Op = ir.CloneOp(n.Op)
		if err := ir.SetAttr(n.Op, "beta", float32(1)); err != nil {
			return err
		}
	}
	n.SetInput(2, g.NewConst(n.Name+".bias", b))
	return n.Infer()
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

// Scales folds into the weights of Conv, ConvTranspose, MatMul and Gemm what
// scales and shifts their channels by constants: BatchNormalization in inference,
// Mul and Div.
func Scales(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		kind := n.Op.Kind()
		if kind != "BatchNormalization" && kind != "Mul" && kind != "Div" {
			return false, nil
		}
		for i := range 2 {
			if i == 1 && kind != "Mul" {
				break
			}
			p, ok := producerOf(n.Inputs[i])
			if !ok || !p.locate() || !n.Outputs[0].Type.Equal(n.Inputs[i].Type) {
				continue
			}
			if _, ok := p.bias(); !ok {
				continue
			}
			var scale, shift []float64
			if kind == "BatchNormalization" {
				scale, shift, ok = batchNorm(n, &p)
			} else if scale, ok = channels(n.Inputs[1-i], n.Outputs[0].Type.Rank(), p.channel, p.m); ok {
				shift = make([]float64, p.m)
				for k := range scale {
					if kind == "Div" {
						scale[k] = 1 / scale[k]
					}
				}
			}
			if !ok || slices.ContainsFunc(scale, func(s float64) bool { return math.IsInf(s, 0) || math.IsNaN(s) }) {
				continue
			}
			if err := p.affine(scale, shift); err != nil {
				return false, err
			}
			p.absorb(n)
			return true, nil
		}
		return false, nil
	})
}

// batchNorm returns what a BatchNormalization with constant statistics multiplies
// its channels by and adds to them.
func batchNorm(n *ir.Node, p *producer) (scale, shift []float64, ok bool) {
	if ir.AttrOf(n.Op, "training_mode") == 1 || p.channel != 1 {
		return nil, nil, false
	}
	var par [4][]float64 // scale, bias, mean, variance
	for i := range par {
		v := n.Input(1 + i)
		if v == nil || v.Const == nil || v.Const.Len() != p.m {
			return nil, nil, false
		}
		par[i] = v.Const.Float64s()
	}
	eps, _ := ir.AttrOf(n.Op, "epsilon").(float32)
	scale, shift = make([]float64, p.m), make([]float64, p.m)
	for i := range scale {
		scale[i] = par[0][i] / math.Sqrt(par[3][i]+float64(eps))
		shift[i] = par[1][i] - par[2][i]*scale[i]
	}
	return scale, shift, true
}

// Biases folds additions of a constant per channel into the bias of the producer.
func Biases(g *ir.Graph) (int, error) {
	return rewrite(g, func(n *ir.Node) (bool, error) {
		kind := n.Op.Kind()
		if kind != "Add" && kind != "Sub" {
			return false, nil
		}
		for i := range 2 {
			if i == 1 && kind == "Sub" {
				break
			}
			p, ok := producerOf(n.Inputs[i])
			if !ok || !p.locate() || !n.Outputs[0].Type.Equal(n.Inputs[i].Type) {
				continue
			}
			if _, ok := p.bias(); !ok {
				continue
			}
			shift, ok := channels(n.Inputs[1-i], n.Outputs[0].Type.Rank(), p.channel, p.m)
			if !ok {
				continue
			}
			if kind == "Sub" {
				for k := range shift {
					shift[k] = -shift[k]
				}
			}
			if err := p.affine(nil, shift); err != nil {
				return false, err
			}
			p.absorb(n)
			return true, nil
		}
		return false, nil
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
			if !ok || r.IsConst() || r == n.Inputs[i] || !r.Type.Equal(n.Inputs[i].Type) || openDims(r.Type) {
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

// openDims reports whether a type has unknown dimensions that need not be equal
// although they look it.
func openDims(t ir.Type) bool {
	return !t.Ranked || slices.ContainsFunc(t.Dims, ir.Dim.Fresh)
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
