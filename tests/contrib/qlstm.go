package contrib

import (
	"slices"

	"spc/ir/tensor"
)

// qlstm is a DynamicQuantizeLSTM of 4 steps of 2 samples of 5 features, with a state of 3.
type qlstm struct {
	dt         tensor.DType
	channels   bool // each has a scale
	directions int
	with       []string // of B, sequence_lens, initial_h, initial_c and P
	open       bool
	outputs    []string
}

func (m *Maker) qlstm(name string, a Attrs, s qlstm) {
	const steps, batch, features, hidden = 4, 2, 5, 3
	c := m.Case("%s", name)
	d := max(1, s.directions)
	var dims []string
	if s.open {
		dims = []string{"steps", "batch"}
	}
	in := []string{c.Input("x", m.Floats(1, steps, batch, features), dims...), "", "", "", "", "", "", "", "", "", "", ""}
	for i, name := range []string{"w", "r"} {
		shape := []int{d}
		if s.channels {
			shape = []int{d, 4 * hidden}
		}
		low, high := limits(s.dt)
		zero := (low + high + 1) / 2
		if !s.channels { // else ONNX Runtime wants zero points that are the same, and for i8 none
			zero += 3
		}
		in[1+i] = c.Weight(name, m.small(s.dt, d, []int{features, hidden}[i], 4*hidden))
		in[8+2*i] = c.Weight(name+"_scale", m.positive(0.006, shape...))
		in[9+2*i] = c.Weight(name+"_zero", m.Ints(s.dt, zero, zero, shape...))
	}
	for i, t := range []struct {
		name  string
		make  func() *tensor.Tensor
		input bool
	}{
		{"B", func() *tensor.Tensor { return m.Floats(0.5, d, 8*hidden) }, false},
		{"sequence_lens", func() *tensor.Tensor { return i32([]int32{4, 2}, 2) }, true},
		{"initial_h", func() *tensor.Tensor { return m.Floats(0.5, d, batch, hidden) }, true},
		{"initial_c", func() *tensor.Tensor { return m.Floats(0.5, d, batch, hidden) }, true},
		{"P", func() *tensor.Tensor { return m.Floats(0.5, d, 3*hidden) }, false},
	} {
		switch {
		case !slices.Contains(s.with, t.name):
		case t.input:
			in[3+i] = c.Input(t.name, t.make())
		default:
			in[3+i] = c.Weight(t.name, t.make())
		}
	}
	all := Attrs{"hidden_size": hidden}
	for k, v := range a {
		all[k] = v
	}
	if s.outputs == nil {
		s.outputs = []string{"y", "h", "c"}
	}
	c.Node(m.kind, all, in, s.outputs...)
}

func dynamicQuantizeLSTM(m *Maker) {
	for _, dt := range bytes8 {
		for _, channels := range []bool{false, true} {
			name := dt.String() + ", one scale"
			if channels {
				name = dt.String() + ", scales of channels"
			}
			m.qlstm(name, nil, qlstm{dt: dt, channels: channels})
			m.qlstm(name+", bias, both directions", Attrs{"direction": "bidirectional"}, qlstm{dt: dt, channels: channels, directions: 2, with: []string{"B"}})
		}
	}
	base := qlstm{dt: tensor.U8, with: []string{"B"}}
	with := func(names ...string) qlstm { s := base; s.with = names; return s }
	m.qlstm("reverse", Attrs{"direction": "reverse"}, base)
	m.qlstm("lengths", nil, with("B", "sequence_lens"))
	m.qlstm("initial states", nil, with("B", "initial_h", "initial_c"))
	m.qlstm("peepholes", nil, with("B", "P"))
	m.qlstm("all", nil, with("B", "sequence_lens", "initial_h", "initial_c", "P"))
	m.qlstm("coupled gates", Attrs{"input_forget": 1}, base)
	m.qlstm("clip", Attrs{"clip": float32(0.3)}, base)
	m.qlstm("activations", Attrs{"activations": []string{"HardSigmoid", "Relu", "Tanh"}, "activation_alpha": []float32{0.3, 0, 0}, "activation_beta": []float32{0.4, 0, 0}}, base)
	open := base
	open.open = true
	m.qlstm("open", nil, open)
	for _, outputs := range [][]string{{"y"}, {"", "h"}, {"", "", "c"}} {
		s := base
		s.outputs = outputs
		m.qlstm("outputs "+outputs[len(outputs)-1]+" alone", nil, s)
	}
}
