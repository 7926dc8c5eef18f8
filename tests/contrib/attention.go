package contrib

import (
	"fmt"
	"math"

	"spc/ir/tensor"
)

// Quarters makes a tensor of f32 of multiples of 1/4 from -1 to 1, so that scores are exact where the sums are short.
func (m *Maker) Quarters(shape ...int) *tensor.Tensor {
	t := tensor.New(tensor.F32, shape...)
	for i := range t.F32s() {
		t.F32s()[i] = float32(m.IntN(9)-4) / 4
	}
	return t
}

// attending is an Attention whose inputs are drawn.
type attending struct {
	batch, tokens, in, heads int
	sizes                    [3]int // of Q, K and V
	past                     int    // tokens; -1 for none
	open                     bool
	exact                    bool // scores are
}

// case makes the case, with further attributes, a mask of i32 and a bias of the scores, nil for none.
func (s attending) node(m *Maker, name string, with Attrs, mask, bias *tensor.Tensor, present bool) {
	c := m.Case("%s", name)
	draw := func(scale float64, shape ...int) *tensor.Tensor {
		if s.exact {
			return m.Quarters(shape...)
		}
		return m.Floats(scale, shape...)
	}
	var dims []string
	if s.open {
		dims = []string{"batch", "tokens"}
	}
	all := s.sizes[0] + s.sizes[1] + s.sizes[2]
	in := []string{c.Input("x", draw(1, s.batch, s.tokens, s.in), dims...), c.Weight("w", draw(1, s.in, all)), c.Weight("b", draw(1, all)), "", "", ""}
	a := Attrs{"num_heads": s.heads}
	if s.sizes[0] != s.sizes[2] {
		a["qkv_hidden_sizes"] = s.sizes[:]
	}
	for k, v := range with {
		a[k] = v
	}
	if mask != nil {
		in[3] = c.Input("mask", mask, s.maskDims(mask)...)
	}
	if s.past >= 0 {
		d := []string{}
		if s.open {
			d = []string{"", "batch", "", "past"}
		}
		in[4] = c.Input("past", draw(1, 2, s.batch, s.heads, s.past, s.sizes[1]/s.heads), d...)
	}
	if bias != nil {
		in[5] = c.Input("bias", bias)
	}
	out := []string{"y"}
	if present {
		out = append(out, "present")
	}
	c.Node(m.kind, a, in, out...)
}

// maskDims names the dimensions of a mask that are open.
func (s attending) maskDims(mask *tensor.Tensor) []string {
	if !s.open {
		return nil
	}
	keys := "tokens"
	if s.past > 0 {
		keys = "all"
	}
	switch {
	case mask.Rank() == 1 && mask.Dim(0) == s.batch:
		return []string{"batch"}
	case mask.Rank() == 2 && mask.Dim(1) > 1:
		return []string{"batch", keys}
	case mask.Rank() == 3:
		return []string{"batch", "tokens", keys}
	}
	return nil
}

// i32 makes a tensor of i32.
func i32(list []int32, shape ...int) *tensor.Tensor { return tensor.From(list, shape...) }

// visible draws a mask of zeros and ones.
func (m *Maker) visible(shape ...int) *tensor.Tensor { return m.Ints(tensor.I32, 0, 1, shape...) }

func attention(m *Maker) {
	plain := attending{batch: 2, tokens: 5, in: 3, heads: 2, sizes: [3]int{4, 4, 4}, past: -1}
	wide := attending{batch: 2, tokens: 4, in: 3, heads: 2, sizes: [3]int{4, 4, 6}, past: -1}
	for _, open := range []bool{false, true} {
		for _, causal := range []int{0, 1} {
			s := plain
			s.open = open
			name := func(what string) string { return fmt.Sprintf("%s, unidirectional %d, open %v", what, causal, open) }
			with := Attrs{"unidirectional": causal}
			s.node(m, name("no mask"), with, nil, nil, false)
			s.node(m, name("present"), with, nil, nil, true)
			s.node(m, name("lengths"), with, i32([]int32{3, 5}, 2), nil, false)
			s.node(m, name("lengths and starts"), with, i32([]int32{4, 5, 1, 2}, 4), nil, false)
			s.node(m, name("mask of keys"), with, m.visible(2, 5), nil, false)
			s.node(m, name("mask of queries and keys"), with, m.visible(2, 5, 5), nil, false)
			s.node(m, name("bias"), with, nil, m.Floats(1, 2, 2, 5, 5), false)
			s.node(m, name("bias and lengths"), with, i32([]int32{3, 5}, 2), m.Floats(1, 1, 2, 5, 5), false)
			s.past = 3
			s.node(m, name("past"), with, nil, nil, true)
			s.node(m, name("past and mask"), with, m.visible(2, 8), nil, true)
			s.tokens = 1
			s.node(m, name("past and a token"), with, nil, nil, true)
			w := wide
			w.open = open
			w.node(m, name("wider V"), with, m.visible(2, 4), nil, false)
		}
	}
	exact := attending{batch: 2, tokens: 4, in: 2, heads: 2, sizes: [3]int{8, 8, 8}, past: -1, exact: true}
	for _, causal := range []int{0, 1} {
		for _, filter := range []float32{-10000, -1, -math.MaxFloat32, -1e29} {
			name := func(what string) string { return fmt.Sprintf("%s, unidirectional %d, filter %v", what, causal, filter) }
			with := Attrs{"unidirectional": causal, "mask_filter_value": filter}
			exact.node(m, name("no length"), with, i32([]int32{0, 2}, 2), nil, false)
			exact.node(m, name("no key"), with, i32([]int32{0, 0, 0, 0, 0, 1, 0, 1}, 2, 4), nil, false)
			exact.node(m, name("no key of a query"), with, i32([]int32{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1}, 2, 4, 4), nil, false)
			exact.node(m, name("empty range"), with, i32([]int32{2, 4, 3, 9}, 4), nil, false)
		}
	}
	for _, scale := range []float32{0.25, 2, -0.5} {
		plain.node(m, fmt.Sprintf("scale %v", scale), Attrs{"scale": scale}, nil, nil, false)
	}
	for _, shape := range [][]int{{1, 1, 5, 5}, {2, 1, 5, 5}, {1, 2, 5, 5}} {
		plain.node(m, fmt.Sprintf("bias of shape %v", shape), nil, nil, m.Floats(1, shape...), false)
	}
	for _, shape := range [][]int{{1, 1}, {2, 1}} {
		plain.node(m, fmt.Sprintf("mask of shape %v", shape), nil, m.visible(shape...), nil, false)
	}
	plain.node(m, "more numbers than samples", nil, i32([]int32{3, 5, 0, 5, 10, 0, 3, 8}, 8), nil, false)
	plain.node(m, "longer than the keys", nil, i32([]int32{3, 50}, 2), nil, false)
	plain.node(m, "other numbers in a mask", nil, i32([]int32{3, -5, 0, 1, 2, 0, 1, 1, -1, 0}, 2, 5), nil, false)
	attending{batch: 1, tokens: 1, in: 3, heads: 1, sizes: [3]int{2, 2, 2}, past: -1}.node(m, "one token", Attrs{"unidirectional": 1}, nil, nil, false)
	attending{batch: 3, tokens: 17, in: 3, heads: 3, sizes: [3]int{3, 3, 3}, past: -1}.node(m, "depth one", Attrs{"unidirectional": 1}, nil, nil, false)
	attending{batch: 1, tokens: 2, in: 3, heads: 2, sizes: [3]int{4, 4, 4}, past: 0}.node(m, "no past", Attrs{"unidirectional": 1}, nil, nil, true)
}
