package contrib

import "fmt"

// shapes are those of activations.
var shapes = [][]int{{8}, {3, 8}, {2, 5, 16}, {1, 2, 3, 33}}

func gelu(m *Maker) {
	for _, s := range shapes {
		c := m.Case("shape %v", s)
		c.Node(m.kind, nil, []string{c.Input("x", m.Floats(4, s...))}, "y")
	}
}

func biasGelu(m *Maker) {
	for _, s := range shapes {
		c := m.Case("shape %v", s)
		c.Node(m.kind, nil, []string{c.Input("x", m.Floats(4, s...)), c.Weight("b", m.Floats(2, s[len(s)-1]))}, "y")
	}
	c := m.Case("open")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(4, 2, 6), "batch"), c.Input("b", m.Floats(2, 6))}, "y")
}

func fastGelu(m *Maker) {
	gelu(m)
	for _, s := range shapes {
		c := m.Case("bias, shape %v", s)
		c.Node(m.kind, nil, []string{c.Input("x", m.Floats(4, s...)), c.Weight("b", m.Floats(2, s[len(s)-1]))}, "y")
	}
}

func quickGelu(m *Maker) {
	gelu(m)
	for _, alpha := range []float32{1, 0.5, -2, 1.702} {
		c := m.Case("alpha %v", alpha)
		c.Node(m.kind, Attrs{"alpha": alpha}, []string{c.Input("x", m.Floats(4, 2, 9))}, "y")
	}
}

func fusedMatMul(m *Maker) {
	for bits := range 16 {
		ta, tb, ba, bb := bits&1, bits>>1&1, bits>>2&1, bits>>3&1
		shape := func(rows, cols, trans, batch int) []int {
			if trans != 0 {
				rows, cols = cols, rows
			}
			if batch != 0 {
				return []int{rows, 2, 3, cols}
			}
			return []int{2, 3, rows, cols}
		}
		c := m.Case("trans %d %d, batches %d %d", ta, tb, ba, bb)
		c.Node(m.kind, Attrs{"transA": ta, "transB": tb, "transBatchA": ba, "transBatchB": bb, "alpha": float32(0.5) + float32(bits)},
			[]string{c.Input("a", m.Floats(1, shape(4, 5, ta, ba)...)), c.Input("b", m.Floats(1, shape(5, 7, tb, bb)...))}, "y")
	}
	for _, s := range [][2][]int{{{3, 4}, {4, 5}}, {{2, 3, 4}, {4, 5}}, {{3, 4}, {2, 4, 5}}, {{4}, {4, 5}}, {{3, 4}, {4}}} {
		c := m.Case("shapes %v", fmt.Sprint(s))
		c.Node(m.kind, Attrs{"alpha": float32(2)}, []string{c.Input("a", m.Floats(1, s[0]...)), c.Weight("b", m.Floats(1, s[1]...))}, "y")
	}
}
