package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// LinearAttention keeps a state S[D,Dv] for each head and, for each token, sets
// S = exp(g) S + k (beta (v - S' k))' and gives scale S' q (Katharopoulos et al.,
// 2020; Yang et al., Gated Delta Networks, 2024). The rule says whether there is
// a decay g and whether there is a correction by S' k, with a rate beta. Inputs
// pack their heads: query[B,T,Hq*D], key[B,T,Hkv*D], value[B,T,Hkv*Dv], state
// [B,Hkv,D,Dv], decay [B,T,Hkv*D] or [B,T,Hkv], beta [B,T,Hkv] or [B,T,1]. Equal
// groups of query heads share a state.
type LinearAttention struct {
	ChunkSize int     `attr:"chunk_size,64"` // a hint that changes no result
	KVHeads   int     `attr:"kv_num_heads,0"`
	QHeads    int     `attr:"q_num_heads,0"`
	Scale     float32 `attr:"scale,0"` // 0 for 1/sqrt(D)
	Rule      string  `attr:"update_rule,gated_delta"`
}

// Kind is LinearAttention.
func (*LinearAttention) Kind() string { return "LinearAttention" }

func (o *LinearAttention) gated() bool     { return o.Rule == "gated" || o.Rule == "gated_delta" }
func (o *LinearAttention) corrected() bool { return o.Rule == "delta" || o.Rule == "gated_delta" }

// The inputs of LinearAttention.
const (
	linQuery = iota
	linKey
	linValue
	linState
	linDecay
	linBeta
)

// Infer checks the rule and every shape.
func (o *LinearAttention) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 3); err != nil {
		return err
	}
	for i := range c.Len() {
		if err := wantOneOf(c, i, reals); err != nil {
			return err
		}
		if i != linState {
			if err := wantSame(c, i); err != nil {
				return err
			}
		}
	}
	switch o.Rule {
	case "linear", "gated", "delta", "gated_delta":
	default:
		return c.Errorf("update_rule is %q, want linear, gated, delta or gated_delta", o.Rule)
	}
	if c.Has(linDecay) != o.gated() || c.Has(linBeta) != o.corrected() {
		return c.Errorf("update_rule %s has decay: %t and beta: %t, want %t and %t",
			o.Rule, c.Has(linDecay), c.Has(linBeta), o.gated(), o.corrected())
	}
	if o.QHeads < 1 || o.KVHeads < 1 || o.QHeads > maxHeads || o.QHeads%o.KVHeads != 0 {
		return c.Errorf("%d query heads and %d key heads, want a multiple of at most %d", o.QHeads, o.KVHeads, maxHeads)
	}
	batch, tokens := dimOf(c, c.In(0), 0), dimOf(c, c.In(0), 1)
	depth := make([]ir.Dim, 3)
	for i, heads := range []int{o.QHeads, o.KVHeads, o.KVHeads} {
		t := c.In(i)
		what := []string{"query", "key", "value"}[i]
		if err := wantDims(c, i, what, batch, tokens, dimOf(c, t, 2)); err != nil {
			return err
		}
		var ok bool
		if depth[i], ok = ir.Div(dimOf(c, t, 2), ir.Size(heads)); !ok {
			if t.Ranked && t.Dims[2].Known() {
				return c.Errorf("%s is %v, whose last dimension does not split into %d heads", what, t, heads)
			}
			depth[i] = c.Fresh()
		}
	}
	if differ(depth[0], depth[1]) {
		return c.Errorf("query heads of %v elements and key heads of %v, want the same", depth[0], depth[1])
	}
	kv := ir.Size(o.KVHeads)
	d := known(depth[0], depth[1])
	state := []ir.Dim{batch, kv, d, depth[2]}
	if err := wantDims(c, linState, "past_state", state...); err != nil {
		return err
	}
	for _, s := range []struct {
		input int
		what  string
		most  ir.Dim
		other ir.Dim
	}{{linDecay, "decay", ir.Mul(kv, d), kv}, {linBeta, "beta", kv, ir.Size(1)}} {
		last := s.most
		if t := c.In(s.input); t.Rank() == 3 && t.Dims[2] == s.other {
			last = s.other
		}
		if err := wantDims(c, s.input, s.what, batch, tokens, last); err != nil {
			return err
		}
	}
	x := c.In(0).DType
	c.Set(0, ir.Of(x, batch, tokens, ir.Mul(ir.Size(o.QHeads), depth[2])))
	if c.Has(linState) {
		x = c.In(linState).DType
	}
	c.Set(1, ir.Of(x, state...))
	return nil
}

// Eval runs the recurrence of each head in float64.
func (o *LinearAttention) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 2, in)
	if err != nil || empty != nil {
		return empty, err
	}
	q, k, v := in[linQuery].Float64s(), in[linKey].Float64s(), in[linValue].Float64s()
	decay, beta := float64s(in, linDecay), float64s(in, linBeta)
	batch, tokens := in[0].Dim(0), in[0].Dim(1)
	d, width := in[linKey].Dim(2)/o.KVHeads, in[linValue].Dim(2)/o.KVHeads
	state := make([]float64, product(shapes[1]))
	copy(state, float64s(in, linState))
	scale := float64(o.Scale)
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d))
	}
	y := make([]float64, product(shapes[0]))
	group := o.QHeads / o.KVHeads
	write := make([]float64, width) // what the token adds along its key
	for b := range batch {
		for h := range o.KVHeads {
			s := state[(b*o.KVHeads+h)*d*width:][:d*width]
			for t := range tokens {
				at := b*tokens + t
				key, value := k[(at*o.KVHeads+h)*d:][:d], v[(at*o.KVHeads+h)*width:][:width]
				if decay != nil {
					n := len(decay) / (batch * tokens * o.KVHeads) // 1 or d
					g := decay[(at*o.KVHeads+h)*n:][:n]
					for i := range s {
						s[i] *= math.Exp(g[i/width%n])
					}
				}
				copy(write, value)
				if beta != nil {
					n := len(beta) / (batch * tokens) // 1 or the heads
					for i, x := range key {
						for j := range write {
							write[j] -= s[i*width+j] * x
						}
					}
					for j := range write {
						write[j] *= beta[at*n+h%n]
					}
				}
				for i, x := range key {
					for j, w := range write {
						s[i*width+j] += x * w
					}
				}
				for r := range group {
					head := at*o.QHeads + h*group + r
					out := y[head*width:][:width]
					for i, x := range q[head*d:][:d] {
						for j := range out {
							out[j] += scale * x * s[i*width+j]
						}
					}
				}
			}
		}
	}
	dt := in[linQuery].DType()
	out := tensor.FromFloat64s(dt, y, shapes[0]...)
	if past := optional(in, linState); past != nil {
		dt = past.DType()
	}
	return []*tensor.Tensor{out, tensor.FromFloat64s(dt, state, shapes[1]...)}, nil
}

// Work counts the update of the state and its products with keys and queries.
func (o *LinearAttention) Work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	tokens := elems(in[linValue]) // times the depth of a key
	d := float64(in[linKey].Dims[2].Size()) / float64(o.KVHeads)
	w.FLOPs = 2 * tokens * d * (3 + float64(o.QHeads/o.KVHeads))
	return w
}
