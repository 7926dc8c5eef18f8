package contrib

import (
	"fmt"

	"spc/ir/tensor"
)

// qAttending is a QAttention of 2 samples of 5 tokens, or as many as are given, of 6 features, with 2 heads of 4.
type qAttending struct {
	weights weights
	tokens  int
	past    int // tokens; -1 for none
	open    bool
	present bool
	zero    bool // the input has a zero point
	mask    *tensor.Tensor
}

func (m *Maker) qAttending(name string, a Attrs, s qAttending) {
	const batch, features, heads, depth = 2, 6, 2, 4
	c := m.Case("%s", name)
	if s.tokens == 0 {
		s.tokens = 5
	}
	s.weights.shape = []int{features, 3 * heads * depth}
	if s.weights.columns == "" {
		s.weights.columns, s.weights.zeros = "one", "middle"
	}
	var dims []string
	if s.open {
		dims = []string{"batch", "tokens"}
	}
	x := c.Input("x", m.ints(tensor.U8, batch, s.tokens, features), dims...)
	p := params{scale: 0.01, zero: 120, none: !s.zero}.names(c, "x", tensor.U8)
	w, ws, wz := m.weights(c, s.weights)
	in := []string{x, w, c.Weight("bias", m.Floats(0.5, 3*heads*depth)), p[0], ws, "", p[1], wz, ""}
	if s.mask != nil {
		in[5] = c.Input("mask", s.mask, map[bool][]string{true: {"batch"}}[s.open]...)
	}
	if s.past >= 0 {
		in[8] = c.Input("past", m.Floats(1, 2, batch, heads, s.past, depth), map[bool][]string{true: {"", "batch", "", "past"}}[s.open]...)
	}
	out := []string{"y"}
	if s.present {
		out = append(out, "present")
	}
	all := Attrs{"num_heads": heads}
	for k, v := range a {
		all[k] = v
	}
	c.Node(m.kind, all, trim(in), out...)
}

func qAttention(m *Maker) {
	for _, dt := range bytes8 {
		for _, columns := range []string{"one", "column"} {
			for _, zeros := range []string{"none", "some", "middle"} {
				m.qAttending(fmt.Sprintf("%v, %s, zeros %s", dt, columns, zeros), nil, qAttending{weights: weights{dt: dt, columns: columns, zeros: zeros}, past: -1, zero: zeros != "none"})
			}
		}
	}
	for _, causal := range []int{0, 1} {
		a := Attrs{"unidirectional": causal}
		for _, open := range []bool{false, true} {
			name := func(what string) string { return fmt.Sprintf("%s, unidirectional %d, open %v", what, causal, open) }
			i8 := weights{dt: tensor.I8}
			m.qAttending(name("no mask"), a, qAttending{weights: i8, past: -1, open: open, zero: true})
			m.qAttending(name("lengths"), a, qAttending{weights: i8, past: -1, open: open, zero: true, mask: i32([]int32{3, 5}, 2)})
			m.qAttending(name("present"), a, qAttending{weights: i8, past: -1, open: open, zero: true, present: true})
			m.qAttending(name("past"), a, qAttending{weights: i8, past: 3, open: open, zero: true, present: true})
			m.qAttending(name("past and a token"), a, qAttending{weights: i8, past: 3, tokens: 1, open: open, zero: true, present: true})
		}
		name := func(what string) string { return fmt.Sprintf("%s, unidirectional %d", what, causal) }
		u8 := weights{dt: tensor.U8}
		m.qAttending(name("lengths and starts"), a, qAttending{weights: u8, past: -1, mask: i32([]int32{4, 5, 1, 2}, 4)})
		m.qAttending(name("mask of keys"), a, qAttending{weights: u8, past: -1, mask: m.visible(2, 5)})
		m.qAttending(name("mask of queries and keys"), a, qAttending{weights: u8, past: -1, mask: m.visible(2, 5, 5)})
		m.qAttending(name("past and mask"), a, qAttending{weights: u8, past: 3, present: true, mask: m.visible(2, 8)})
	}
	m.qAttending("scale", Attrs{"scale": float32(0.25)}, qAttending{weights: weights{dt: tensor.U8}, past: -1})
	m.qAttending("filter", Attrs{"mask_filter_value": float32(-1)}, qAttending{weights: weights{dt: tensor.U8}, past: -1, mask: i32([]int32{3, 5}, 2)})
}

func qEmbedLayerNormalization(m *Maker) {
	const words, positions, segments, h = 7, 6, 2, 8
	for _, dt := range bytes8 {
		for bits := range 8 {
			segmented, masked, open := bits&1 != 0, bits&2 != 0, bits&4 != 0
			c := m.Case("%v, segments %v, mask %v, open %v", dt, segmented, masked, open)
			var dims []string
			if open {
				dims = []string{"batch", "tokens"}
			}
			in := make([]string, 18)
			in[0] = c.Input("ids", m.Ints(tensor.I32, 0, words-1, 2, 4), dims...)
			table := func(i int, name string, scale float32, shape ...int) {
				in[i] = c.Weight(name, m.ints(dt, shape...))
				p := params{scale: scale, zero: middle(dt)}.names(c, name, dt)
				in[i+6], in[i+11] = p[0], p[1]
			}
			table(2, "words", 0.02, words, h)
			table(3, "positions", 0.01, positions, h)
			if segmented {
				in[1] = c.Input("segments", m.Ints(tensor.I32, 0, segments-1, 2, 4), dims...)
				table(4, "kinds", 0.005, segments, h)
			}
			table(5, "gamma", 0.01, h)
			table(6, "beta", 0.004, h)
			if masked {
				in[7] = c.Input("mask", m.Ints(tensor.I32, 0, 2, 2, 4), dims...)
			}
			a := Attrs{}
			if bits > 0 {
				a["epsilon"] = float32(1e-5)
			}
			c.Node(m.kind, a, in, "y", "count:i32")
		}
	}
}
