package contrib

import "spc/ir/tensor"

func skipLayerNormalization(m *Maker) {
	for _, s := range []struct{ x, skip []int }{
		{[]int{2, 3, 8}, []int{2, 3, 8}},
		{[]int{2, 3, 8}, []int{1, 3, 8}},
		{[]int{2, 3, 8}, []int{3, 8}},
		{[]int{1, 1, 5}, []int{1, 1, 5}},
		{[]int{4, 33}, []int{4, 33}},
	} {
		for bits := range 4 {
			c := m.Case("shapes %v %v, beta %d, bias %d", s.x, s.skip, bits&1, bits>>1)
			h := s.x[len(s.x)-1]
			in := []string{c.Input("x", m.Floats(2, s.x...)), c.Input("skip", m.Floats(2, s.skip...)), c.Weight("gamma", m.Floats(1, h)), "", ""}
			if bits&1 != 0 {
				in[3] = c.Weight("beta", m.Floats(1, h))
			}
			if bits&2 != 0 {
				in[4] = c.Weight("bias", m.Floats(1, h))
			}
			c.Node(m.kind, nil, in, "y", "", "", "sum")
		}
	}
	for _, eps := range []float32{0, 1e-5, 0.5} {
		c := m.Case("epsilon %v", eps)
		c.Node(m.kind, Attrs{"epsilon": eps}, []string{c.Input("x", m.Floats(2, 2, 3, 8)), c.Input("skip", m.Floats(2, 2, 3, 8)), c.Weight("gamma", m.Floats(1, 8))}, "y")
	}
	c := m.Case("open")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(2, 2, 3, 8), "batch", "tokens"), c.Input("skip", m.Floats(2, 2, 3, 8), "batch", "tokens"),
		c.Input("gamma", m.Floats(1, 8)), c.Input("beta", m.Floats(1, 8)), c.Input("bias", m.Floats(1, 8))}, "y", "", "", "sum")
	c = m.Case("open, skip of a sample")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(2, 3, 2, 8), "batch", "tokens"), c.Input("skip", m.Floats(2, 1, 2, 8), "", "tokens"), c.Weight("gamma", m.Floats(1, 8))}, "y")
	c = m.Case("twice")
	x := c.Input("x", m.Floats(2, 2, 3, 8), "batch", "tokens")
	c.Node(m.kind, nil, []string{x, c.Input("skip", m.Floats(2, 2, 3, 8), "batch", "tokens"), c.Weight("g1", m.Floats(1, 8))}, "h", "", "", "s")
	c.Node(m.kind, nil, []string{"h", "s", c.Weight("g2", m.Floats(1, 8)), c.Weight("b2", m.Floats(1, 8))}, "y")
	c = m.Case("statistics")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(2, 2, 3, 8)), c.Input("skip", m.Floats(2, 2, 3, 8)), c.Weight("gamma", m.Floats(1, 8))}, "y", "mean", "inverse")
}

func embedLayerNormalization(m *Maker) {
	const words, positions, segments, h = 7, 6, 2, 8
	for bits := range 16 {
		segmented, masked, placed, open := bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
		c := m.Case("segments %v, mask %v, positions %v, open %v", segmented, masked, placed, open)
		dims := []string{}
		if open {
			dims = []string{"batch", "tokens"}
		}
		in := []string{c.Input("ids", m.Ints(tensor.I32, 0, words-1, 2, 4), dims...), "", c.Weight("words", m.Floats(1, words, h)),
			c.Weight("positions", m.Floats(1, positions, h)), "", c.Weight("gamma", m.Floats(1, h)), c.Weight("beta", m.Floats(1, h)), "", ""}
		if segmented {
			in[1] = c.Input("segments", m.Ints(tensor.I32, 0, segments-1, 2, 4), dims...)
			in[4] = c.Weight("kinds", m.Floats(1, segments, h))
		}
		if masked {
			in[7] = c.Input("mask", m.Ints(tensor.I32, 0, 2, 2, 4), dims...)
		}
		if placed {
			in[8] = c.Input("places", m.Ints(tensor.I32, 0, positions-1, 2, 4), dims...)
		}
		c.Node(m.kind, Attrs{"epsilon": float32(1e-5)}, in, "y", "count:i32", "sum")
	}
	for i, kind := range []int{0, 1, 2} {
		c := m.Case("mask index type %d", kind)
		c.Node(m.kind, Attrs{"mask_index_type": kind}, []string{c.Input("ids", m.Ints(tensor.I32, 0, words-1, 2, 3)), "", c.Weight("words", m.Floats(1, words, h)),
			c.Weight("positions", m.Floats(1, positions, h)), "", c.Weight("gamma", m.Floats(1, h)), c.Weight("beta", m.Floats(1, h)), c.Input("mask", m.Ints(tensor.I32, 0, i, 2, 3))}, "y", "count:i32")
	}
	c := m.Case("no segment ids")
	c.Node(m.kind, nil, []string{c.Input("ids", m.Ints(tensor.I32, 0, words-1, 2, 3)), "", c.Weight("words", m.Floats(1, words, h)),
		c.Weight("positions", m.Floats(1, positions, h)), c.Weight("kinds", m.Floats(1, segments, h)), c.Weight("gamma", m.Floats(1, h)), c.Weight("beta", m.Floats(1, h))}, "y", "", "sum")
	c = m.Case("positions of all samples")
	c.Node(m.kind, nil, []string{c.Input("ids", m.Ints(tensor.I32, 0, words-1, 3, 4), "batch", "tokens"), "", c.Weight("words", m.Floats(1, words, h)),
		c.Weight("positions", m.Floats(1, positions, h)), "", c.Weight("gamma", m.Floats(1, h)), c.Weight("beta", m.Floats(1, h)), "", c.Input("places", m.Ints(tensor.I32, 0, positions-1, 1, 4), "", "tokens")}, "y", "count:i32")
}
