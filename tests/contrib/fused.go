package contrib

import (
	"fmt"
	"maps"
)

func fusedGemm(m *Maker) {
	act := func(name string, params ...float32) Attrs {
		a := Attrs{"activation": name}
		for i, p := range params {
			a[[]string{"activation_alpha", "activation_beta", "activation_gamma"}[i]] = p
		}
		return a
	}
	for bits := range 8 {
		ta, tb := bits&1, bits>>1&1
		a, b := []int{3, 5}, []int{5, 4}
		if ta != 0 {
			a = []int{5, 3}
		}
		if tb != 0 {
			b = []int{4, 5}
		}
		c := m.Case("trans %d %d, C %d", ta, tb, bits>>2)
		in := []string{c.Input("a", m.Floats(1, a...)), c.Weight("b", m.Floats(1, b...))}
		if bits&4 != 0 {
			in = append(in, c.Weight("c", m.Floats(1, 4)))
		}
		with := act("Relu")
		with["transA"], with["transB"] = ta, tb
		c.Node(m.kind, with, in, "y")
	}
	for _, s := range [][]int{{}, {1}, {4}, {1, 4}, {3, 1}, {3, 4}} {
		c := m.Case("alpha and beta, C of shape %v", fmt.Sprint(s))
		with := act("Tanh")
		with["alpha"], with["beta"] = float32(0.5), float32(-2)
		c.Node(m.kind, with, []string{c.Input("a", m.Floats(1, 3, 5)), c.Weight("b", m.Floats(1, 5, 4)), c.Weight("c", m.Floats(1, s...))}, "y")
	}
	for _, a := range []Attrs{act("Relu"), act("Tanh"), act("Sigmoid"), act("Softplus"), act("Softsign"), act("LeakyRelu", 0.1), act("Elu", 0.5), act("ThresholdedRelu", 0.2),
		act("HardSigmoid", 0.3, 0.4), act("ScaledTanh", 0.5, 2), act("ParametricSoftplus", 0.5, 2), act("Celu", 0.5), {"activation": "Selu", "activation_alpha": float32(1.5), "activation_gamma": float32(0.5)}} {
		for _, open := range []string{"", "batch"} {
			c := m.Case("%v, rows %q", a["activation"], open)
			c.Node(m.kind, a, []string{c.Input("a", m.Floats(2, 3, 6), open), c.Weight("b", m.Floats(1, 6, 5)), c.Weight("c", m.Floats(1, 5))}, "y")
		}
	}
}

func fusedConv(m *Maker) {
	type activation struct {
		name   string
		params []float32
	}
	for _, a := range []activation{{"", nil}, {"Relu", nil}, {"Tanh", nil}, {"Sigmoid", nil}, {"LeakyRelu", []float32{0.1}}, {"Clip", []float32{-0.2, 0.3}}, {"HardSigmoid", []float32{0.3, 0.4}}} {
		for bits := range 4 {
			c := m.Case("activation %q, B %d, Z %d", a.name, bits&1, bits>>1)
			in := []string{c.Input("x", m.Floats(1, 2, 2, 4, 4)), c.Weight("w", m.Floats(1, 3, 2, 3, 3)), "", ""}
			if bits&1 != 0 {
				in[2] = c.Weight("b", m.Floats(1, 3))
			}
			if bits&2 != 0 {
				in[3] = c.Input("z", m.Floats(1, 2, 3, 2, 2))
			}
			with := Attrs{}
			if a.name != "" {
				with["activation"] = a.name
			}
			if a.params != nil {
				with["activation_params"] = a.params
			}
			c.Node(m.kind, with, in, "y")
		}
	}
	for _, s := range []struct {
		name    string
		x, w, z []int
		with    Attrs
	}{
		{"one axis", []int{1, 2, 9}, []int{3, 2, 3}, []int{1, 3, 7}, nil},
		{"three axes", []int{1, 2, 3, 4, 3}, []int{2, 2, 2, 2, 2}, []int{1, 2, 2, 3, 2}, nil},
		{"pads", []int{1, 2, 4, 4}, []int{2, 2, 3, 3}, []int{1, 2, 5, 4}, Attrs{"pads": []int{1, 0, 2, 2}, "kernel_shape": []int{3, 3}}},
		{"strides", []int{1, 2, 7, 7}, []int{2, 2, 3, 3}, []int{1, 2, 3, 2}, Attrs{"strides": []int{2, 3}}},
		{"dilations", []int{1, 2, 7, 7}, []int{2, 2, 3, 3}, []int{1, 2, 3, 3}, Attrs{"dilations": []int{2, 2}}},
		{"groups", []int{1, 4, 4, 4}, []int{6, 2, 3, 3}, []int{1, 6, 2, 2}, Attrs{"group": 2}},
		{"depthwise", []int{1, 4, 4, 4}, []int{4, 1, 3, 3}, []int{1, 4, 4, 4}, Attrs{"group": 4, "auto_pad": "SAME_UPPER"}},
		{"same lower", []int{1, 2, 5, 5}, []int{2, 2, 2, 2}, []int{1, 2, 5, 5}, Attrs{"auto_pad": "SAME_LOWER"}},
		{"valid", []int{1, 2, 5, 5}, []int{2, 2, 2, 2}, []int{1, 2, 4, 4}, Attrs{"auto_pad": "VALID"}},
	} {
		c := m.Case("%s", s.name)
		with := Attrs{"activation": "Relu"}
		maps.Copy(with, s.with)
		c.Node(m.kind, with, []string{c.Input("x", m.Floats(1, s.x...)), c.Weight("w", m.Floats(1, s.w...)), "", c.Input("z", m.Floats(1, s.z...))}, "y")
	}
	c := m.Case("open")
	c.Node(m.kind, Attrs{"activation": "LeakyRelu", "activation_params": []float32{0.2}, "pads": []int{1, 1, 1, 1}},
		[]string{c.Input("x", m.Floats(1, 2, 3, 4, 5), "batch", "", "height", "width"), c.Weight("w", m.Floats(1, 2, 3, 3, 3)), c.Weight("b", m.Floats(1, 2)), c.Input("z", m.Floats(1, 2, 2, 4, 5), "batch", "", "height", "width")}, "y")
	c = m.Case("parameters of none")
	c.Node(m.kind, Attrs{"activation": "Relu", "activation_params": []float32{0.2}}, []string{c.Input("x", m.Floats(1, 1, 2, 3, 3)), c.Weight("w", m.Floats(1, 2, 2, 2, 2))}, "y")
	c = m.Case("residual of itself")
	x := c.Input("x", m.Floats(1, 1, 3, 4, 4), "batch")
	c.Node(m.kind, Attrs{"activation": "Relu", "pads": []int{1, 1, 1, 1}}, []string{x, c.Weight("w", m.Floats(1, 3, 3, 3, 3)), c.Weight("b", m.Floats(1, 3)), x}, "h")
	c.Node(m.kind, Attrs{"activation": "Relu", "pads": []int{1, 1, 1, 1}}, []string{"h", c.Weight("v", m.Floats(1, 3, 3, 3, 3)), "", "h"}, "y")
}
