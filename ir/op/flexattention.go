package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// FlexAttention is attention whose scores [B,Hq,S,T] go through a subgraph before
// the softmax and its probabilities through another after it (Dong et al., Flex
// Attention, 2024). Q[B,Hq,S,D], K[B,Hkv,T,D] and V[B,Hkv,T,Dv] are as in
// Attention. It belongs to the domain ai.onnx.preview.
type FlexAttention struct {
	ProbMod   *ir.Graph    `attr:"prob_mod"`
	Scale     *float32     `attr:"scale"` // 1/sqrt(D) where absent
	ScoreMod  *ir.Graph    `attr:"score_mod"`
	Precision tensor.DType `attr:"softmax_precision"` // of scores and probabilities; f32 where absent, or f64 for f64 inputs
}

// Kind is ai.onnx.preview:FlexAttention.
func (*FlexAttention) Kind() string { return "ai.onnx.preview:FlexAttention" }

// Subgraphs returns those of the two that are there.
func (o *FlexAttention) Subgraphs() []*ir.Graph {
	var out []*ir.Graph
	for _, g := range []*ir.Graph{o.ScoreMod, o.ProbMod} {
		if g != nil {
			out = append(out, g)
		}
	}
	return out
}

func (o *FlexAttention) attention() *Attention {
	return &Attention{LeftWindow: -1, RightWindow: -1, Scale: o.Scale}
}

// precision is the element type of scores and probabilities.
func (o *FlexAttention) precision(in tensor.DType) tensor.DType {
	switch {
	case o.Precision != tensor.Undefined:
		return o.Precision
	case in == tensor.F64:
		return tensor.F64
	}
	return tensor.F32
}

// Infer checks the shapes as Attention does and infers the subgraphs, which keep
// the type of the scores.
func (o *FlexAttention) Infer(c *ir.Infer) error {
	if err := o.attention().Infer(c); err != nil {
		return err
	}
	q, k := c.In(attnQ), c.In(attnK)
	if q.Ranked && q.Rank() != 4 {
		return c.Errorf("input 0 has rank %d, want 4", q.Rank())
	}
	if err := wantSame(c, attnV); err != nil {
		return err
	}
	scores := ir.Unranked(o.precision(q.DType))
	if !scores.DType.IsFloat() {
		return c.Errorf("softmax_precision is %v, want a floating-point type", scores.DType)
	}
	if q.Ranked && k.Ranked {
		scores = ir.Of(scores.DType, q.Dims[0], q.Dims[1], q.Dims[2], k.Dims[2])
	}
	for _, g := range o.Subgraphs() {
		if len(g.Inputs) != 1 || len(g.Outputs) != 1 {
			return c.Errorf("subgraph %s has %d inputs and %d outputs, want 1 and 1", g.Name, len(g.Inputs), len(g.Outputs))
		}
		setInput(g, 0, scores)
		if err := c.Subgraph(g); err != nil {
			return err
		}
		out := g.Outputs[0].Type
		fits := out.DType == scores.DType && (!out.Ranked || !scores.Ranked || out.Rank() == 4)
		for i := 0; fits && out.Ranked && scores.Ranked && i < 4; i++ {
			fits = !differ(out.Dims[i], scores.Dims[i])
		}
		if !fits {
			return c.Errorf("subgraph %s gives %v, want %v", g.Name, out, scores)
		}
	}
	return nil
}

// Eval computes products and softmax in float64, rounded to the precision of the
// scores where a subgraph takes them.
func (o *FlexAttention) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	_, empty, err := evalOutputs(o.attention(), 4, in)
	if err != nil {
		return nil, err
	}
	q, k, v := in[attnQ], in[attnK], in[attnV]
	if q.Rank() != 4 {
		return nil, evalErrorf("input 0 has rank %d, want 4", q.Rank())
	}
	if empty != nil {
		return empty[:1], nil
	}
	dt, keys := o.precision(q.DType()), k.Dim(2)
	modify := func(g *ir.Graph, x []float64) ([]float64, error) {
		if g == nil {
			return x, nil
		}
		t := tensor.FromFloat64s(dt, x, q.Dim(0), q.Dim(1), q.Dim(2), keys)
		out, err := c.Run(g, []*tensor.Tensor{t})
		if err != nil {
			return nil, err
		}
		if !ir.TypeOf(out[0]).Equal(ir.TypeOf(t)) {
			return nil, evalErrorf("subgraph %s gives %v, want %v", g.Name, out[0], t)
		}
		return out[0].Float64s(), nil
	}
	p, err := modify(o.ScoreMod, headScores(q, k, o.Scale))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(p); i += keys {
		softmax(p[i:][:keys])
	}
	if p, err = modify(o.ProbMod, p); err != nil {
		return nil, err
	}
	return one(weighValues(p, v, q.DType(), q.Dim(1), q.Dim(2)))
}

// Work counts the multiply-adds of both products and the work of the subgraphs.
func (o *FlexAttention) Work(in, out []ir.Type) ir.Work {
	w := o.attention().Work(in, out)
	for _, g := range o.Subgraphs() {
		k := graphWork(g)
		w.FLOPs += k.FLOPs
		w.Bytes += k.Bytes
	}
	return w
}
