package contrib

import (
	"fmt"
	"math"

	"spc/ir/tensor"
)

// multihead is a MultiHeadAttention whose inputs are drawn.
type multihead struct {
	batch, queries, keys, heads int
	depth, width                int  // of the heads of Q and K, and of V
	byHeads                     bool // K and V come as [batch, heads, tokens, depth]
	biased                      bool
	past                        int // tokens; -1 for none
	mask, bias                  *tensor.Tensor
	open                        bool
	exact                       bool // scores are
	outputs                     []string
}

func (s multihead) node(m *Maker, name string, with Attrs) {
	c := m.Case("%s", name)
	draw := m.Floats
	if s.exact {
		draw = func(_ float64, shape ...int) *tensor.Tensor { return m.Quarters(shape...) }
	}
	dims := func(tokens string) []string {
		if !s.open {
			return nil
		}
		return []string{"batch", tokens}
	}
	d := s.heads * s.depth
	in := []string{c.Input("q", draw(1, s.batch, s.queries, d), dims("queries")...), "", "", "", "", "", "", ""}
	keys := "keys"
	if s.queries == s.keys {
		keys = "queries"
	}
	if s.byHeads {
		var dims []string
		if s.open {
			dims = []string{"batch", "", keys}
		}
		in[1] = c.Input("k", draw(1, s.batch, s.heads, s.keys, s.depth), dims...)
		in[2] = c.Input("v", draw(1, s.batch, s.heads, s.keys, s.width), dims...)
	} else {
		in[1] = c.Input("k", draw(1, s.batch, s.keys, d), dims(keys)...)
		in[2] = c.Input("v", draw(1, s.batch, s.keys, s.heads*s.width), dims(keys)...)
	}
	if s.biased {
		in[3] = c.Weight("b", draw(1, 2*d+s.heads*s.width))
	}
	if s.mask != nil {
		in[4] = c.Input("mask", s.mask)
	}
	if s.bias != nil {
		in[5] = c.Input("bias", s.bias)
	}
	if s.past >= 0 {
		in[6] = c.Input("past_k", draw(1, s.batch, s.heads, s.past, s.depth))
		in[7] = c.Input("past_v", draw(1, s.batch, s.heads, s.past, s.width))
	}
	a := Attrs{"num_heads": s.heads}
	for k, v := range with {
		a[k] = v
	}
	out := s.outputs
	if out == nil {
		out = []string{"y"}
	}
	c.Node(m.kind, a, in, out...)
}

func multiHeadAttention(m *Maker) {
	self := multihead{batch: 2, queries: 4, keys: 4, heads: 2, depth: 2, width: 2, past: -1}
	cross := multihead{batch: 2, queries: 3, keys: 5, heads: 2, depth: 2, width: 3, past: -1}
	short := multihead{batch: 1, queries: 5, keys: 3, heads: 2, depth: 2, width: 2, past: -1}
	states := []string{"y", "k_out", "v_out"}
	for _, open := range []bool{false, true} {
		for _, causal := range []int{0, 1} {
			with := Attrs{"unidirectional": causal}
			for i, s := range []multihead{self, cross, short} {
				s.open = open
				what := []string{"self", "cross", "fewer keys"}[i]
				name := func(format string, args ...any) string {
					return fmt.Sprintf("%s, %s, unidirectional %d, open %v", what, fmt.Sprintf(format, args...), causal, open)
				}
				s.node(m, name("plain"), with)
				b := s
				b.biased, b.outputs = true, states
				b.node(m, name("biased, present"), with)
				b = s
				b.mask = m.visible(s.batch, s.keys)
				b.node(m, name("mask of keys"), with)
				b = s
				b.bias = m.Floats(1, 1, s.heads, s.queries, s.keys)
				b.node(m, name("bias of scores"), with)
			}
			s := self
			s.open = open
			s.past, s.outputs, s.biased = 2, states, true
			s.node(m, fmt.Sprintf("past, unidirectional %d, open %v", causal, open), with)
			s = multihead{batch: 2, queries: 1, keys: 1, heads: 2, depth: 4, width: 4, past: 3, open: open, outputs: states}
			s.node(m, fmt.Sprintf("a token and its past, unidirectional %d, open %v", causal, open), with)
			s = multihead{batch: 2, queries: 3, keys: 5, heads: 2, depth: 2, width: 2, past: -1, open: open, byHeads: true}
			s.node(m, fmt.Sprintf("by heads, unidirectional %d, open %v", causal, open), with)
			s.outputs = []string{"y", "", "", "qk"}
			s.node(m, fmt.Sprintf("by heads, scores, unidirectional %d, open %v", causal, open), with)
		}
	}
	byHeads := multihead{batch: 2, queries: 3, keys: 5, heads: 2, depth: 2, width: 2, past: -1, byHeads: true}
	byHeads.mask = m.visible(2, 5)
	byHeads.node(m, "by heads, mask", nil)
	byHeads.biased = true
	byHeads.node(m, "by heads, biased", nil)
	byHeads.biased = false
	byHeads.outputs = states
	byHeads.node(m, "by heads, present", nil)
	byHeads.past = 2
	byHeads.mask = nil
	byHeads.node(m, "by heads, past", nil)

	exact := multihead{batch: 2, queries: 3, keys: 4, heads: 2, depth: 4, width: 2, past: -1, exact: true}
	for _, causal := range []int{0, 1} {
		for _, filter := range []float32{-10000, -math.MaxFloat32} {
			name := func(what string) string { return fmt.Sprintf("%s, unidirectional %d, filter %v", what, causal, filter) }
			with := Attrs{"unidirectional": causal, "mask_filter_value": filter}
			s := exact
			s.mask = i32([]int32{0, 2}, 2)
			s.node(m, name("no length"), with)
			s.mask = i32([]int32{0, 0, 0, 0, 0, 1, 0, 1}, 2, 4)
			s.node(m, name("no key"), with)
			s.mask = i32([]int32{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0}, 2, 3, 4)
			s.node(m, name("no key of a query"), with)
			s.outputs = []string{"y", "", "", "qk"}
			s.node(m, name("no key of a query, scores"), with)
		}
	}
	for _, scale := range []float32{0.25, 2, -0.5} {
		s := cross
		s.node(m, fmt.Sprintf("scale %v", scale), Attrs{"scale": scale})
		s.outputs = []string{"y", "", "", "qk"}
		s.node(m, fmt.Sprintf("scale %v, scores", scale), Attrs{"scale": scale})
	}
	for _, shape := range [][]int{{1, 1, 3, 5}, {2, 1, 3, 5}, {1, 2, 3, 5}, {2, 2, 3, 5}} {
		s := cross
		s.bias = m.Floats(1, shape...)
		s.node(m, fmt.Sprintf("bias of shape %v", shape), nil)
		s.mask = i32([]int32{3, 4}, 2)
		s.node(m, fmt.Sprintf("bias of shape %v and lengths", shape), nil)
	}
	s := cross
	s.mask = i32([]int32{3, 5, 0, 3, 6, 0, 3, 8}, 8)
	s.node(m, "more numbers than samples", nil)
	s.mask = nil
	s.outputs = []string{"y", "", "", "qk"}
	s.node(m, "scores alone", nil)
	s.outputs = []string{"y", "k_out", "v_out", "qk"}
	s.node(m, "scores and present", nil)
	s.outputs = []string{"y", "k_out"}
	s.node(m, "present key", nil)
	s = self
	s.past, s.outputs, s.mask = 2, []string{"y", "k_out", "v_out", "qk"}, m.visible(2, 6)
	s.node(m, "past, scores", Attrs{"unidirectional": 1})
}
