package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Attention is scaled dot-product attention softmax(scale Q K' + bias) V (Vaswani
// et al., 2017) for Q[B,Hq,S,D], K[B,Hkv,T,D] and V[B,Hkv,T,Dv], or the same with
// the heads packed, Q[B,S,Hq*D]. Equal groups of query heads share a key head
// (Ainslie et al., 2023). The bias is the sum of an optional mask, the causal
// order, a sliding window and the padding of the keys. A past of K and V goes
// before them; further outputs are K and V with their past and the scores. The fuse
// passes make packed ones, whose Q, K and V are parts of the features of their
// inputs, the product of one weight: [B,S,(Hq+2*Hkv)*D]; and aligned ones, whose K and V
// begin with the past, so that the last query stands at the last key. A query that sees no key gets zeros, or the mean of all values
// where such are alike: what hid their keys was a number, beside which scores vanish.
type Attention struct {
	Causal      bool `attr:"is_causal,0"`
	QHeads      *int `attr:"q_num_heads"`
	KVHeads     *int `attr:"kv_num_heads"`
	LeftWindow  int  `attr:"left_window_size,-1"` // keys before a query that it sees, -1 for all
	RightWindow int  `attr:"right_window_size,-1"`
	// Stage is what the fourth output holds: scale Q K' (0), that after the soft
	// cap (1), with the bias (2), after the softmax (3).
	Stage     int          `attr:"qk_matmul_output_mode,0"`
	Scale     *float32     `attr:"scale"`             // 1/sqrt(D) where absent
	Softcap   float32      `attr:"softcap,0"`         // scores become softcap*tanh(score/softcap)
	Precision tensor.DType `attr:"softmax_precision"` // to which the softmax is rounded, where given
	Packed    bool         `attr:"spc_packed,0"`
	Aligned   bool         `attr:"spc_aligned,0"`
	Alike     bool         `attr:"spc_alike,0"`
}

// Kind is Attention.
func (*Attention) Kind() string { return "Attention" }

// The inputs of Attention.
const (
	attnQ = iota
	attnK
	attnV
	attnMask
	attnPastKey
	attnPastValue
	attnLengths
)

// Along keeps samples apart. A mask may be the same for all.
func (*Attention) Along(n *ir.Node, _, axis int) []int {
	if axis > 0 {
		return nil
	}
	in := slices.Repeat([]int{0}, len(n.Inputs))
	if m := n.Input(attnMask); m != nil && (!m.Type.Ranked || m.Type.Rank() > 4) {
		return nil
	} else if m != nil && m.Type.Rank() < 4 {
		in[attnMask] = Whole
	}
	return in
}

// Infer checks every shape and sets those of the outputs.
func (o *Attention) Infer(c *ir.Infer) error {
	if err := o.check(c); err != nil {
		return err
	}
	q, k, v := c.In(attnQ), c.In(attnK), c.In(attnV)
	if !q.Ranked || !k.Ranked || !v.Ranked {
		for i, dt := range []tensor.DType{q.DType, q.DType, v.DType, q.DType} {
			c.Set(i, ir.Unranked(dt))
		}
		return nil
	}
	if r := q.Rank(); r != 3 && r != 4 || k.Rank() != r || v.Rank() != r {
		return c.Errorf("Q, K and V have the ranks %d, %d and %d, want all 3 or all 4", r, k.Rank(), v.Rank())
	}
	if o.Packed {
		if err := o.inferParts(c, []*ir.Type{&q, &k, &v}); err != nil {
			return err
		}
	}
	qd, kd, vd, err := o.heads(c, q, k, v)
	if err != nil {
		return err
	}
	batch, heads, queries := qd[0], qd[1], qd[2]
	past := ir.Size(0)
	if c.Has(attnPastKey) {
		past = dimOf(c, c.In(attnPastKey), 2)
	}
	if err := wantDims(c, attnPastKey, "past_key", batch, kd[1], past, kd[3]); err != nil {
		return err
	}
	if err := wantDims(c, attnPastValue, "past_value", batch, kd[1], past, vd[3]); err != nil {
		return err
	}
	if err := wantDims(c, attnLengths, "nonpad_kv_seqlen", batch); err != nil {
		return err
	}
	total := ir.Sum(past, kd[2])
	if err := o.inferMask(c, []ir.Dim{batch, heads, queries, total}); err != nil {
		return err
	}
	if q.Rank() == 4 {
		c.Set(0, ir.Of(q.DType, batch, heads, queries, vd[3]))
	} else {
		c.Set(0, ir.Of(q.DType, batch, queries, ir.Mul(heads, vd[3])))
	}
	c.Set(1, ir.Of(q.DType, batch, kd[1], total, kd[3]))
	c.Set(2, ir.Of(v.DType, batch, kd[1], total, vd[3]))
	c.Set(3, ir.Of(q.DType, batch, heads, queries, total))
	return nil
}

// check checks the types of the inputs, which of them come together, and the attributes.
func (o *Attention) check(c *ir.Infer) error {
	if err := wantPresent(c, 3); err != nil {
		return err
	}
	for i, like := range []int{attnQ, attnQ, attnV, -1, attnQ, attnV} {
		if like < 0 {
			continue
		}
		if err := wantOneOf(c, i, reals); err != nil {
			return err
		}
		if c.Has(i) && c.In(i).DType != c.In(like).DType {
			return c.Errorf("input %d is %v, want %v as input %d", i, c.In(i).DType, c.In(like).DType, like)
		}
	}
	if err := wantOneOf(c, attnLengths, []tensor.DType{tensor.I64}); err != nil {
		return err
	}
	switch {
	case c.Has(attnPastKey) != c.Has(attnPastValue):
		return c.Errorf("past_key and past_value must come together")
	case c.Has(attnPastKey) && c.Has(attnLengths):
		return c.Errorf("nonpad_kv_seqlen cannot be used with past_key")
	case o.Aligned && (c.Has(attnPastKey) || c.Has(attnLengths)):
		return c.Errorf("what is aligned can have no past_key and no nonpad_kv_seqlen")
	case o.LeftWindow < -1 || o.RightWindow < -1:
		return c.Errorf("window sizes are %d and %d, want at least -1", o.LeftWindow, o.RightWindow)
	case o.Stage < 0 || o.Stage > 3:
		return c.Errorf("qk_matmul_output_mode is %d, want 0 to 3", o.Stage)
	case o.Precision != tensor.Undefined && !o.Precision.IsFloat():
		return c.Errorf("softmax_precision is %v, want a floating-point type", o.Precision)
	case o.Scale != nil && *o.Scale < 0:
		return c.Errorf("scale is %v, want at least 0", *o.Scale)
	}
	return nil
}

// heads returns the dimensions [B,H,S,D] of Q, K and V, which fit each other.
func (o *Attention) heads(c *ir.Infer, q, k, v ir.Type) (qd, kd, vd []ir.Dim, err error) {
	if qd, err = headDims(c, "Q", q, o.QHeads, "q_num_heads"); err != nil {
		return nil, nil, nil, err
	}
	if kd, err = headDims(c, "K", k, o.KVHeads, "kv_num_heads"); err != nil {
		return nil, nil, nil, err
	}
	if vd, err = headDims(c, "V", v, o.KVHeads, "kv_num_heads"); err != nil {
		return nil, nil, nil, err
	}
	if h, kv := qd[1], kd[1]; h.Known() && kv.Known() && (kv.Size() == 0 || h.Size()%kv.Size() != 0) {
		return nil, nil, nil, c.Errorf("%v query heads are no multiple of %v key heads", h, kv)
	}
	for i, pair := range [][2]ir.Dim{{qd[0], kd[0]}, {qd[0], vd[0]}, {kd[1], vd[1]}, {kd[2], vd[2]}, {qd[3], kd[3]}} {
		if differ(pair[0], pair[1]) {
			return nil, nil, nil, c.Errorf("Q is %v, K %v and V %v: %s of %v and %v", q, k, v,
				[]string{"batches", "batches", "key heads", "keys", "depths"}[i], pair[0], pair[1])
		}
	}
	return qd, kd, vd, nil
}

// inferParts takes each of Q, K and V from the features that its input packs.
func (o *Attention) inferParts(c *ir.Infer, parts []*ir.Type) error {
	if o.QHeads == nil || o.KVHeads == nil || min(*o.QHeads, *o.KVHeads) < 1 || max(*o.QHeads, *o.KVHeads) > maxHeads {
		return c.Errorf("q_num_heads or kv_num_heads is missing or not within 1 and %d, which packed inputs need", maxHeads)
	}
	for i, t := range parts {
		if t.Rank() != 3 {
			return c.Errorf("input %d has rank %d, want 3 as it is packed", i, t.Rank())
		}
		depth, ok := ir.Div(t.Dims[2], ir.Size(*o.QHeads+2**o.KVHeads))
		if !ok && t.Dims[2].Known() {
			return c.Errorf("input %d is %v, whose last dimension does not split into %d heads of Q and %d each of K and V", i, *t, *o.QHeads, *o.KVHeads)
		}
		if !ok {
			depth = c.Fresh()
		}
		*t = ir.Of(t.DType, t.Dims[0], t.Dims[1], ir.Mul(depth, ir.Size(o.partHeads(i))))
	}
	return nil
}

// partHeads is the number of heads of Q (0), K (1) or V (2).
func (o *Attention) partHeads(i int) int {
	if i == attnQ {
		return *o.QHeads
	}
	return *o.KVHeads
}

// part returns Q (0), K (1) or V (2), of rank 3, from the features that an input
// packs.
func (o *Attention) part(t *tensor.Tensor, i int) *tensor.Tensor {
	depth := t.Dim(2) / (*o.QHeads + 2**o.KVHeads)
	from := 0
	for j := range i {
		from += o.partHeads(j) * depth
	}
	out := tensor.New(t.DType(), t.Dim(0), t.Dim(1), o.partHeads(i)*depth)
	tensor.Copy(out, t, out.Shape(), 0, tensor.Strides(out.Shape()), from, tensor.Strides(t.Shape()))
	return out
}

// AttentionPlan is how an Attention without a past, a soft cap or further outputs
// reads its operands, for back ends.
type AttentionPlan struct {
	Batch, Heads  int
	Queries, Keys int
	Depth, Width  int // of the heads of Q and K, and of V
	Group         int // query heads that share a key head
	Scale         float32
	Band          AttentionBand
	Q, K, V, Y    AttentionHeads
	Mask          *AttentionMask
	Alike         bool // queries that see no key get the mean of all values
}

// AttentionBand says that query i of a sample sees its keys from Offset+i+From to Offset+i+To. With
// Lengths input 6 has the number of keys that a sample has, which its last query stands at, in the
// place of Offset.
type AttentionBand struct {
	Offset, From, To int
	Lengths          bool
}

// A band is open where it ends further away than any key.
const (
	openBefore = math.MinInt / 2
	openBehind = math.MaxInt / 2
)

// Causal reports whether a query sees the keys up to its own place, and nothing but that is asked.
func (b AttentionBand) Causal() bool { return !b.Lengths && b.From == openBefore && b.Offset+b.To == 0 }

// Open reports whether queries see all keys.
func (b AttentionBand) Open() bool { return !b.Lengths && b.From == openBefore && b.To == openBehind }

// band is what the attributes make of so many queries and keys, the past among these.
func (o *Attention) band(queries, keys, past int) AttentionBand {
	b := AttentionBand{Offset: past, From: openBefore, To: openBehind}
	if o.Aligned {
		b.Offset = keys - queries
	}
	if o.LeftWindow >= 0 {
		b.From = -min(o.LeftWindow, openBehind)
	}
	if o.RightWindow >= 0 {
		b.To = min(o.RightWindow, openBehind)
	}
	if o.Causal {
		b.To = min(b.To, 0)
	}
	return b
}

// AttentionHeads says where the heads of a tensor are: element d of a token t of a head h of
// a sample b is at From + b*Batch + h*Head + t*Token + d.
type AttentionHeads struct{ From, Batch, Head, Token int }

// At is where a token begins.
func (h AttentionHeads) At(b, head, token int) int {
	return h.From + b*h.Batch + head*h.Head + token*h.Token
}

// AttentionMask is a mask [B,H,S,T'], f32 or bool, with strides of 0 along the axes that it is
// repeated along; keys from T' on are hidden.
type AttentionMask struct {
	Bool               bool
	Batch, Head, Query int
	Keys               int
}

// Plan returns the plan of a node whose shapes are known; ok is false where the operator does
// more than it says, or nothing.
func (o *Attention) Plan(n *ir.Node) (a *AttentionPlan, ok bool) {
	if n.Input(attnPastKey) != nil {
		return nil, false
	}
	for _, v := range n.Outputs[1:] {
		if v != nil {
			return nil, false
		}
	}
	if o.Softcap > 0 || o.Precision != tensor.Undefined && o.Precision != tensor.F32 {
		return nil, false
	}
	var shapes [4][]int
	for i, v := range []*ir.Value{n.Inputs[attnQ], n.Inputs[attnK], n.Inputs[attnV], n.Outputs[0]} {
		shapes[i], _ = v.Type.Shape()
		if size, err := tensor.Elems(shapes[i]); err != nil || size == 0 {
			return nil, false
		}
	}
	q, k, v, y := shapes[0], shapes[1], shapes[2], shapes[3]
	a = &AttentionPlan{Batch: q[0], Alike: o.Alike}
	var kvHeads int
	if len(q) == 4 {
		a.Heads, kvHeads = q[1], k[1]
		a.Queries, a.Keys, a.Depth, a.Width = q[2], k[2], q[3], v[3]
		packed := func(s []int) AttentionHeads {
			return AttentionHeads{Batch: s[1] * s[2] * s[3], Head: s[2] * s[3], Token: s[3]}
		}
		a.Q, a.K, a.V, a.Y = packed(q), packed(k), packed(v), packed(y)
	} else {
		a.Heads, kvHeads = *o.QHeads, *o.KVHeads
		a.Queries, a.Keys, a.Depth, a.Width = q[1], k[1], q[2]/a.Heads, v[2]/kvHeads
		tokens := func(s []int, width int) AttentionHeads {
			return AttentionHeads{Batch: s[1] * s[2], Head: width, Token: s[2]}
		}
		if o.Packed {
			a.Depth = q[2] / (a.Heads + 2*kvHeads)
			a.Width = a.Depth
		}
		a.Q, a.K, a.V, a.Y = tokens(q, a.Depth), tokens(k, a.Depth), tokens(v, a.Width), tokens(y, a.Width)
		if o.Packed {
			a.K.From = a.Heads * a.Depth
			a.V.From = (a.Heads + kvHeads) * a.Depth
		}
	}
	a.Group = a.Heads / kvHeads
	a.Band = o.band(a.Queries, a.Keys, 0)
	a.Band.Lengths = n.Input(attnLengths) != nil
	a.Scale = float32(1 / math.Sqrt(float64(a.Depth)))
	if o.Scale != nil {
		a.Scale = *o.Scale
	}
	if !(a.Scale > 0) { // a hidden key would get a score that is no number
		return nil, false
	}
	if m := n.Input(attnMask); m != nil {
		if m.Type.DType != tensor.F32 && m.Type.DType != tensor.Bool {
			return nil, false
		}
		s, _ := m.Type.Shape()
		s = append([]int{1, 1, 1, 1}[len(s):], s...)
		a.Mask = &AttentionMask{Bool: m.Type.DType == tensor.Bool, Keys: s[3]}
		for i, at := range []*int{&a.Mask.Batch, &a.Mask.Head, &a.Mask.Query} {
			if s[i] == 1 {
				continue
			}
			*at = s[3]
			for _, d := range s[i+1 : 3] {
				*at *= d
			}
		}
	}
	return a, true
}

// maxHeads bounds the heads that packed dimensions split into.
const maxHeads = 1 << 16

// headDims returns the dimensions of Q, K or V as [batch, heads, tokens, depth].
func headDims(c *ir.Infer, what string, t ir.Type, heads *int, attr string) ([]ir.Dim, error) {
	if t.Rank() == 4 {
		if heads != nil && differ(t.Dims[1], ir.Size(*heads)) {
			return nil, c.Errorf("%s is %v, want %d heads as %s", what, t, *heads, attr)
		}
		return t.Dims, nil
	}
	if heads == nil || *heads < 1 || *heads > maxHeads {
		return nil, c.Errorf("%s is missing or not within 1 and %d, which %s of rank 3 needs", attr, maxHeads, what)
	}
	h := ir.Size(*heads)
	depth, ok := ir.Div(t.Dims[2], h)
	if !ok {
		if t.Dims[2].Known() {
			return nil, c.Errorf("%s is %v, whose last dimension does not split into %d heads", what, t, *heads)
		}
		depth = c.Fresh()
	}
	return []ir.Dim{t.Dims[0], h, t.Dims[1], depth}, nil
}

// inferMask refuses a mask that does not broadcast to the scores; it may have
// fewer keys than they have.
func (o *Attention) inferMask(c *ir.Infer, scores []ir.Dim) error {
	m := c.In(attnMask)
	if !c.Has(attnMask) {
		return nil
	}
	if !m.DType.IsFloat() && !m.DType.IsInt() && m.DType != tensor.Bool {
		return c.Errorf("mask is %v, want bool or numbers", m.DType)
	}
	if !m.Ranked {
		return nil
	}
	fits := m.Rank() >= 1 && m.Rank() <= 4
	for i := 0; fits && i < m.Rank(); i++ {
		d, s := m.Dims[i], scores[4-m.Rank()+i]
		if i == m.Rank()-1 {
			fits = !d.Known() || !s.Known() || d.Size() <= s.Size()
		} else {
			fits = d == ir.Size(1) || !differ(d, s)
		}
	}
	if !fits {
		return c.Errorf("mask is %v, want one that broadcasts to %v", m, ir.Of(m.DType, scores...))
	}
	return nil
}

// splitHeads brings Q, K or V to [batch, heads, tokens, depth].
func splitHeads(t *tensor.Tensor, heads *int) *tensor.Tensor {
	if t.Rank() == 4 {
		return t
	}
	return t.Reshape(t.Dim(0), t.Dim(1), *heads, t.Dim(2) / *heads).Permute(0, 2, 1, 3)
}

// joinTokens appends the tokens of t to those of past, both [batch, heads,
// tokens, depth]; past may be nil.
func joinTokens(past, t *tensor.Tensor) *tensor.Tensor {
	if past == nil {
		return t
	}
	shape := []int{t.Dim(0), t.Dim(1), past.Dim(2) + t.Dim(2), t.Dim(3)}
	out := tensor.New(t.DType(), shape...)
	st, at := tensor.Strides(shape), 0
	for _, p := range []*tensor.Tensor{past, t} {
		tensor.Copy(out, p, p.Shape(), at, st, 0, tensor.Strides(p.Shape()))
		at += p.Dim(2) * p.Dim(3)
	}
	return out
}

// Eval computes the scores of each head in float64. A query that sees no key
// gives zeros.
func (o *Attention) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 4, in)
	if err != nil || empty != nil {
		return empty, err
	}
	if o.Packed {
		in = slices.Clone(in)
		for i := range attnMask {
			in[i] = o.part(in[i], i)
		}
	}
	qt := splitHeads(in[attnQ], o.QHeads)
	kt := joinTokens(optional(in, attnPastKey), splitHeads(in[attnK], o.KVHeads))
	vt := joinTokens(optional(in, attnPastValue), splitHeads(in[attnV], o.KVHeads))
	batch, heads, queries, keys := qt.Dim(0), qt.Dim(1), qt.Dim(2), kt.Dim(2)
	bias, err := o.bias(in, []int{batch, heads, queries, keys})
	if err != nil {
		return nil, err
	}
	scores := headScores(qt, kt, o.Scale)
	stage := o.Stage // 3 also where nobody wants the scores
	if c.Outputs < 4 {
		stage = 3
	}
	shown := scores // the fourth output
	if stage < 3 {
		shown = make([]float64, len(scores))
	}
	line := make([]float64, keys)
	for b := range batch {
		for h := range heads {
			head := b*heads + h
			s := scores[head*queries*keys:][:queries*keys]
			for i := range queries {
				row := s[i*keys:][:keys]
				show := func(now int) {
					if now == stage {
						copy(shown[(head*queries+i)*keys:], row)
					}
				}
				show(0)
				o.limit(row)
				show(1)
				bias.line(line, b, h, i)
				seen := false
				for j, x := range line {
					if row[j] += x; math.IsInf(x, -1) {
						row[j] = x // also where the score is no number
					} else {
						seen = true
					}
				}
				roundRow(row, in[attnQ].DType()) // as a sum of tensors would be
				show(2)
				if !seen || math.IsInf(maximum(row), -1) {
					clear(row)
					if n := bias.visible[b]; o.Alike {
						copy(row[:n], slices.Repeat([]float64{1 / float64(n)}, n))
					}
					continue
				}
				roundRow(row, o.Precision)
				softmax(row)
				roundRow(row, o.Precision)
			}
		}
	}
	out := weighValues(scores, vt, in[attnQ].DType(), heads, queries)
	if in[attnQ].Rank() == 3 {
		out = out.Permute(0, 2, 1, 3).Reshape(shapes[0]...)
	}
	outs := []*tensor.Tensor{out, kt, vt}
	if c.Outputs > 3 {
		outs = append(outs, tensor.FromFloat64s(in[attnQ].DType(), shown, shapes[3]...))
	}
	return outs, nil
}

// limit keeps scores within the soft cap, where there is one.
func (o *Attention) limit(row []float64) {
	if limit := float64(o.Softcap); limit > 0 {
		for j, x := range row {
			row[j] = limit * math.Tanh(x/limit)
		}
	}
}

// headScores returns scale Q K' [B,Hq,S,T] for Q[B,Hq,S,D] and K[B,Hkv,T,D]; a nil
// scale is 1/sqrt(D).
func headScores(q, k *tensor.Tensor, scale *float32) []float64 {
	heads, queries, depth := q.Dim(0)*q.Dim(1), q.Dim(2), q.Dim(3)
	keys, f := k.Dim(2), 1/math.Sqrt(float64(depth))
	if scale != nil {
		f = float64(*scale)
	}
	x, w := q.Float64s(), k.Float64s()
	scores := make([]float64, heads*queries*keys)
	for h := range heads {
		kv := h / (q.Dim(1) / k.Dim(1))
		multiply(queries, depth, keys, x[h*queries*depth:][:queries*depth],
			matrix[float64, float64](w[kv*keys*depth:][:keys*depth], 1, depth),
			func(i, j int, row []float64) {
				for t, v := range row {
					scores[(h*queries+i)*keys+j+t] = v * f
				}
			})
	}
	return scores
}

// weighValues returns P V [B,Hq,S,Dv] for P[B,Hq,S,T] and V[B,Hkv,T,Dv].
func weighValues(p []float64, v *tensor.Tensor, dt tensor.DType, heads, queries int) *tensor.Tensor {
	batch, keys, width := v.Dim(0), v.Dim(2), v.Dim(3)
	w := v.Float64s()
	y := make([]float64, batch*heads*queries*width)
	for h := range batch * heads {
		kv := h / (heads / v.Dim(1))
		multiply(queries, keys, width, p[h*queries*keys:][:queries*keys],
			matrix[float64, float64](w[kv*keys*width:][:keys*width], width, 1),
			func(i, j int, row []float64) { copy(y[(h*queries+i)*width+j:], row) })
	}
	return tensor.FromFloat64s(dt, y, batch, heads, queries, width)
}

// attentionBias is what Attention adds to its scores [B,Hq,S,T].
type attentionBias struct {
	mask    []float64 // 0 or -infinity where it was bool
	shape   []int     // of the mask, of rank 4
	strides []int     // of the mask, broadcast to the scores
	offset  []int     // for each batch, the keys before the first query
	visible []int     // for each batch, the keys that are no padding
	band    AttentionBand
}

func (o *Attention) bias(in []*tensor.Tensor, scores []int) (*attentionBias, error) {
	batch, queries, keys := scores[0], scores[2], scores[3]
	a := &attentionBias{offset: make([]int, batch), visible: make([]int, batch)}
	past := 0
	if t := optional(in, attnPastKey); t != nil {
		past = t.Dim(2)
	}
	a.band = o.band(queries, keys, past)
	lengths := optional(in, attnLengths)
	for b := range batch {
		a.offset[b], a.visible[b] = a.band.Offset, keys
		if lengths == nil {
			continue
		}
		n := int(tensor.Data[int64](lengths)[b])
		if n < 0 || n > keys {
			return nil, evalErrorf("nonpad_kv_seqlen has %d, want 0 to %d", n, keys)
		}
		a.offset[b], a.visible[b] = n-queries, n
	}
	if t := optional(in, attnMask); t != nil {
		a.mask = t.Float64s()
		if t.DType() == tensor.Bool {
			for i, x := range a.mask {
				a.mask[i] = 0
				if x == 0 {
					a.mask[i] = math.Inf(-1)
				}
			}
		}
		a.shape = append([]int{1, 1, 1, 1}[t.Rank():], t.Shape()...)
		a.strides = broadcastStrides(a.shape, []int{batch, scores[1], queries, a.shape[3]})
	}
	return a, nil
}

// line sets dst to the bias of query i of a head.
func (a *attentionBias) line(dst []float64, batch, head, i int) {
	clear(dst)
	if a.mask != nil {
		copy(dst, a.mask[batch*a.strides[0]+head*a.strides[1]+i*a.strides[2]:][:a.shape[3]])
		for j := a.shape[3]; j < len(dst); j++ {
			dst[j] = math.Inf(-1)
		}
	}
	at := a.offset[batch] + i
	for j := range dst {
		if j >= a.visible[batch] || j < at+a.band.From || j > at+a.band.To {
			dst[j] = math.Inf(-1)
		}
	}
}

// roundRow rounds a row to an element type, if one is given.
func roundRow(row []float64, to tensor.DType) {
	switch to {
	case tensor.Undefined, tensor.F64:
	case tensor.F32:
		for i, x := range row {
			row[i] = float64(float32(x))
		}
	default:
		copy(row, tensor.FromFloat64s(to, row, len(row)).Float64s())
	}
}

// Work counts the multiply-adds of both products.
func (o *Attention) Work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	d := in[attnK].Dims
	keys := float64(d[len(d)-2].Size()) // [B,T,H*D] or [B,H,T,D]
	if len(in) > attnPastKey && in[attnPastKey].Ranked {
		keys += float64(in[attnPastKey].Dims[2].Size())
	}
	w.FLOPs = 2 * keys * (elems(in[attnQ]) + elems(out[0]))
	if o.Packed {
		w.Bytes -= 2 * typeBytes(in[attnQ]) // one tensor
		w.FLOPs = 4 * keys * elems(out[0])
	}
	return w
}
