package contrib

import (
	"fmt"

	"spc/ir/tensor"
)

func expandDims(m *Maker) {
	for _, axis := range []int32{0, 1, 2, 3, -1, -2, -4} {
		c := m.Case("axis %d", axis)
		c.Node(m.kind, nil, []string{c.Input("x", m.Floats(1, 2, 3, 4), "batch"), c.Weight("axis", tensor.Scalar(axis))}, "y")
	}
	c := m.Case("axis of rank 1")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(1, 5)), c.Weight("axis", i32([]int32{1}, 1))}, "y")
	c = m.Case("axis that a run tells")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(1, 2, 3)), c.Input("axis", tensor.Scalar(int32(1)))}, "y")
}

func trilu(m *Maker) {
	for _, s := range [][]int{{4, 4}, {2, 5, 3}} {
		for upper := range 2 {
			c := m.Case("shape %v, upper %d", fmt.Sprint(s), upper)
			c.Node(m.kind, Attrs{"upper": upper}, []string{c.Input("x", m.Floats(1, s...))}, "y")
			for _, k := range []int64{-1, 2, 9} {
				c := m.Case("shape %v, upper %d, k %d", fmt.Sprint(s), upper, k)
				c.Node(m.kind, Attrs{"upper": upper}, []string{c.Input("x", m.Floats(1, s...)), c.Weight("k", tensor.Scalar(k))}, "y")
			}
		}
	}
	c := m.Case("open")
	c.Node(m.kind, nil, []string{c.Input("x", m.Floats(1, 2, 4, 3), "batch", "rows", "columns"), c.Input("k", tensor.Scalar(int64(1)))}, "y")
	c = m.Case("i64")
	c.Node(m.kind, nil, []string{c.Input("x", m.Ints(tensor.I64, -9, 9, 3, 4))}, "y:i64")
}

func transposeMatMul(m *Maker) {
	for bits := range 4 {
		a, b := []int{2, 3, 4}, []int{2, 4, 5}
		if bits&1 != 0 {
			a = []int{2, 4, 3}
		}
		if bits&2 != 0 {
			b = []int{2, 5, 4}
		}
		c := m.Case("trans %d %d", bits&1, bits>>1)
		c.Node(m.kind, Attrs{"transA": bits & 1, "transB": bits >> 1, "alpha": float32(0.5)}, []string{c.Input("a", m.Floats(1, a...), "batch"), c.Input("b", m.Floats(1, b...), "batch")}, "y")
	}
	c := m.Case("weight")
	c.Node(m.kind, Attrs{"transB": 1}, []string{c.Input("a", m.Floats(1, 3, 4), "batch"), c.Weight("b", m.Floats(1, 5, 4))}, "y")
}
