package contrib

func simplifiedLayerNorm(m *Maker) {
	for _, s := range shapes {
		c := m.Case("shape %v", s)
		c.Node(m.kind, Attrs{"epsilon": float32(1e-3)}, []string{c.Input("x", m.Floats(2, s...)), c.Weight("g", m.Floats(1, s[len(s)-1]))}, "y")
	}
	for _, axis := range []int{1, 2, -2} {
		s := []int{2, 3, 4, 5}
		at := axis
		if at < 0 {
			at += 4
		}
		c := m.Case("axis %d", axis)
		c.Node(m.kind, Attrs{"axis": axis}, []string{c.Input("x", m.Floats(2, s...), "batch"), c.Weight("g", m.Floats(1, s[at:]...))}, "y", "inverse")
	}
	c := m.Case("inverse, last axis")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(2, 3, 8)), c.Input("g", m.Floats(1, 8))}, "y", "inverse")
	c = m.Case("stash")
	c.Node(m.kind, Attrs{"stash_type": 1}, []string{c.Input("x", m.Floats(2, 2, 3, 8)), c.Input("g", m.Floats(1, 8))}, "y")
}

func skipSimplifiedLayerNorm(m *Maker) {
	for _, s := range [][]int{{3, 8}, {2, 3, 8}, {1, 1, 16}} {
		for _, bias := range []bool{false, true} {
			for _, sum := range []bool{false, true} {
				c := m.Case("shape %v, bias %v, sum %v", s, bias, sum)
				n := s[len(s)-1]
				in := []string{c.Input("x", m.Floats(2, s...), "batch"), c.Input("skip", m.Floats(2, s...), "batch"), c.Weight("g", m.Floats(1, n))}
				if bias {
					in = append(in, c.Weight("b", m.Floats(1, n)))
				}
				out := []string{"y"}
				if sum {
					out = append(out, "", "", "sum")
				}
				c.Node(m.kind, Attrs{"epsilon": float32(1e-6)}, in, out...)
			}
		}
	}
	for _, skip := range [][]int{{1, 3, 8}, {3, 8}} {
		c := m.Case("skip %v", skip)
		c.Node(m.kind, nil, []string{c.Input("x", m.Floats(2, 2, 3, 8)), c.Input("skip", m.Floats(2, skip...)), c.Weight("g", m.Floats(1, 8))}, "y", "", "", "sum")
	}
}
