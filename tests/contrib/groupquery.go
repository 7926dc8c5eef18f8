package contrib

import (
	"slices"

	"spc/ir/tensor"
)

// groupQuery is a case of GroupQueryAttention.
type groupQuery struct {
	batch, tokens   int
	past            int   // rows of the past's buffer, -1 without one
	totals          []int // of each sample
	packed, rotary  bool
	positions, bias bool
	sink            bool
	attrs           Attrs
}

func groupQueryAttention(m *Maker) {
	add := func(name string, g groupQuery) {
		for _, packed := range []bool{false, true} {
			for _, rotary := range []bool{false, true} {
				g.packed, g.rotary = packed, rotary
				m.groupQuery(m.Case("%s, packed %v, rotary %v", name, packed, rotary), g)
			}
		}
	}
	add("prompt", groupQuery{batch: 1, tokens: 5, past: -1, totals: []int{5}})
	add("prompts", groupQuery{batch: 2, tokens: 5, past: -1, totals: []int{5, 5}})
	add("padded prompts", groupQuery{batch: 2, tokens: 5, past: -1, totals: []int{5, 3}})
	add("prompt with an empty past", groupQuery{batch: 1, tokens: 4, past: 0, totals: []int{4}})
	add("prompt into a buffer", groupQuery{batch: 2, tokens: 4, past: 8, totals: []int{4, 2}})
	add("token", groupQuery{batch: 1, tokens: 1, past: 4, totals: []int{5}})
	add("token into a buffer", groupQuery{batch: 1, tokens: 1, past: 8, totals: []int{5}})
	add("tokens of samples", groupQuery{batch: 3, tokens: 1, past: 8, totals: []int{5, 2, 7}})
	add("several tokens", groupQuery{batch: 1, tokens: 3, past: 4, totals: []int{7}})
	for _, a := range []struct {
		name  string
		attrs Attrs
	}{
		{"scale", Attrs{"scale": float32(0.3)}}, {"softcap", Attrs{"softcap": float32(0.7)}}, {"window of 1", Attrs{"local_window_size": 1}},
		{"window of 2", Attrs{"local_window_size": 2}}, {"window of 9", Attrs{"local_window_size": 9}}, {"interleaved", Attrs{"rotary_interleaved": 1}},
		{"smooth", Attrs{"smooth_softmax": 1}}, {"smooth, softcap", Attrs{"smooth_softmax": 1, "softcap": float32(0.7)}},
	} {
		rotary := a.attrs["rotary_interleaved"] != nil
		m.groupQuery(m.Case("%s, prompt", a.name), groupQuery{batch: 2, tokens: 5, past: -1, totals: []int{5, 4}, attrs: a.attrs, rotary: rotary})
		m.groupQuery(m.Case("%s, token", a.name), groupQuery{batch: 2, tokens: 1, past: 6, totals: []int{6, 4}, attrs: a.attrs, rotary: rotary})
		m.groupQuery(m.Case("%s, tokens", a.name), groupQuery{batch: 1, tokens: 2, past: 6, totals: []int{7}, attrs: a.attrs, rotary: rotary})
	}
	m.groupQuery(m.Case("sink, prompt"), groupQuery{batch: 1, tokens: 4, past: -1, totals: []int{4}, sink: true})
	m.groupQuery(m.Case("sink, token"), groupQuery{batch: 2, tokens: 1, past: 6, totals: []int{6, 4}, sink: true})
	m.groupQuery(m.Case("positions, prompt"), groupQuery{batch: 1, tokens: 4, past: -1, totals: []int{4}, rotary: true, positions: true})
	m.groupQuery(m.Case("positions, token"), groupQuery{batch: 2, tokens: 1, past: 6, totals: []int{6, 4}, rotary: true, positions: true})
	m.groupQuery(m.Case("bias, prompt"), groupQuery{batch: 1, tokens: 4, past: -1, totals: []int{4}, bias: true})
	m.groupQuery(m.Case("bias, token"), groupQuery{batch: 2, tokens: 1, past: 8, totals: []int{6, 4}, bias: true})
}

func (m *Maker) groupQuery(c *Case, g groupQuery) {
	const heads, keys, depth = 4, 2, 16
	a := Attrs{"num_heads": heads, "kv_num_heads": keys}
	for name, v := range g.attrs {
		a[name] = v
	}
	in := make([]string, 12)
	tokens := "tokens"
	if g.packed {
		in[0] = c.Input("qkv", m.Floats(1, g.batch, g.tokens, (heads+2*keys)*depth), "batch", tokens)
	} else {
		in[0] = c.Input("q", m.Floats(1, g.batch, g.tokens, heads*depth), "batch", tokens)
		in[1] = c.Input("k", m.Floats(1, g.batch, g.tokens, keys*depth), "batch", tokens)
		in[2] = c.Input("v", m.Floats(1, g.batch, g.tokens, keys*depth), "batch", tokens)
	}
	last := tensor.New(tensor.I32, g.batch)
	total := 0
	for i, n := range g.totals {
		tensor.Data[int32](last)[i] = int32(n - 1)
		total = max(total, n)
	}
	if g.past >= 0 {
		for i, name := range []string{"past_key", "past_value"} {
			t := m.Floats(1, g.batch, keys, g.past, depth)
			for b, n := range g.totals { // what is behind the past is nothing
				for h := range keys {
					for row := max(0, n-g.tokens); row < g.past; row++ {
						clear(t.F32s()[((b*keys+h)*g.past+row)*depth:][:depth])
					}
				}
			}
			in[3+i] = c.Input(name, t, "batch", "", "past")
		}
	}
	in[5] = c.Input("seqlens_k", last, "batch")
	in[6] = c.Weight("total_sequence_length", tensor.From([]int32{int32(total)}))
	if g.rotary {
		a["do_rotary"] = 1
		in[7], in[8] = c.Weight("cos", m.Floats(1, 16, depth/2)), c.Weight("sin", m.Floats(1, 16, depth/2))
	}
	if g.positions {
		ids := tensor.New(tensor.I64, g.batch, g.tokens)
		for b, n := range g.totals {
			for i := range g.tokens {
				tensor.Data[int64](ids)[b*g.tokens+i] = int64(n - g.tokens + i)
			}
		}
		in[9] = c.Input("positions", ids)
	}
	if g.bias {
		in[10] = c.Input("bias", m.Floats(1, 1, heads, g.tokens, total))
	}
	if g.sink {
		in[11] = c.Weight("sink", m.Floats(1, heads))
	}
	for in[len(in)-1] == "" {
		in = in[:len(in)-1]
	}
	c.Node(m.kind, a, in, "y", "present_key", "present_value")
	if slices.Min(g.totals) < total { // what is computed of padding says nothing
		valid := tensor.New(tensor.Bool, g.batch, g.tokens, 1)
		for b, n := range g.totals {
			for i := range g.tokens {
				if g.tokens < total || i < n {
					valid.Bytes()[b*g.tokens+i] = 1
				}
			}
		}
		c.Node("Where", nil, []string{c.Weight("valid", valid), "y", c.Weight("zero", tensor.Scalar(float32(0)))}, "seen")
	}
}
