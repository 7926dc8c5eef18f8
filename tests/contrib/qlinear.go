package contrib

import (
	"fmt"

	"spc/ir/tensor"
)

// bytes8 are the integers of quantised tensors.
var bytes8 = []tensor.DType{tensor.U8, tensor.I8}

// ints makes integers of a type from its lowest to its highest.
func (m *Maker) ints(dt tensor.DType, shape ...int) *tensor.Tensor {
	low, high := limits(dt)
	return m.Ints(dt, low, high, shape...)
}

// small makes integers of 8 bits whose products with others of 8 bits can be added in pairs in 16 bits: without VNNI instructions ONNX
// Runtime saturates sums of two products of u8 and i8.
func (m *Maker) small(dt tensor.DType, shape ...int) *tensor.Tensor {
	if dt == tensor.I8 {
		return m.Ints(dt, -64, 63, shape...)
	}
	return m.ints(dt, shape...)
}

func limits(dt tensor.DType) (low, high int) {
	if dt.IsSigned() {
		return -1 << (dt.Bits() - 1), 1<<(dt.Bits()-1) - 1
	}
	return 0, 1<<dt.Bits() - 1
}

// middle is a zero point a bit off the middle of a type's range.
func middle(dt tensor.DType) int {
	low, high := limits(dt)
	return (low+high)/2 + 5
}

// scalar is an integer of a type.
func scalar(dt tensor.DType, v int) *tensor.Tensor { return tensor.Ints(v).To(dt).Reshape() }

// params is a quantisation. Its scale and zero point are constants, or inputs where computed is set; the zero point
// is absent where none is set.
type params struct {
	scale          float32
	zero           int
	computed, none bool
}

// names adds a scale and a zero point of type dt to a case and returns their names.
func (p params) names(c *Case, name string, dt tensor.DType) []string {
	add := func(name string, t *tensor.Tensor) string { return c.Weight(name, t) }
	if p.computed {
		add = func(name string, t *tensor.Tensor) string { return c.Input(name, t) }
	}
	s := add(name+"_scale", tensor.Scalar(p.scale))
	if p.none {
		return []string{s, ""}
	}
	return []string{s, add(name+"_zero", scalar(dt, p.zero))}
}

// trim cuts absent inputs at the end.
func trim(in []string) []string {
	for in[len(in)-1] == "" {
		in = in[:len(in)-1]
	}
	return in
}

// unary adds a node on integers, of whose inputs the first is x, the next two its quantisation, and then that of the result.
// Inputs that are absent at the end are there without a name, as ONNX Runtime reads some beyond the end otherwise.
func (m *Maker) unary(c *Case, a Attrs, x *tensor.Tensor, px, py params, dims ...string) {
	dt := x.DType()
	in := append([]string{c.Input("x", x, dims...)}, px.names(c, "x", dt)...)
	c.Node(m.kind, a, append(in, py.names(c, "y", dt)...), "y:"+dt.String())
}

func qlinearBinary(m *Maker) {
	y := float32(0.0193)
	node := func(c *Case, a, b *tensor.Tensor, p params, dims ...string) {
		dt := a.DType()
		pa, pb, py := p, p, p
		pa.scale, pa.zero = 0.0131, middle(dt)
		pb.scale, pb.zero = 0.0217, middle(dt)-20
		py.scale, py.zero = y, middle(dt)+9
		pa.none, pb.none = false, false // which ONNX Runtime does not load
		in := append([]string{c.Input("a", a, dims...)}, pa.names(c, "a", dt)...)
		in = append(append(in, c.Input("b", b)), pb.names(c, "b", dt)...)
		c.Node(m.kind, nil, trim(append(in, py.names(c, "y", dt)...)), "y:"+dt.String())
	}
	for _, dt := range bytes8 {
		for _, s := range [][2][]int{{{40}, {40}}, {{2, 3, 7}, {2, 3, 7}}, {{2, 3, 7}, {7}}, {{1}, {2, 9}}, {{2, 3, 4}, {3, 1}}, {{}, {5}}, {{1, 3, 1}, {2, 1, 4}}} {
			node(m.Case("%v, shapes %v", dt, s), m.ints(dt, s[0]...), m.ints(dt, s[1]...), params{})
		}
		node(m.Case("%v, no zero point of the result", dt), m.ints(dt, 2, 20), m.ints(dt, 2, 20), params{none: true})
		node(m.Case("%v, computed", dt), m.ints(dt, 2, 20), m.ints(dt, 2, 20), params{computed: true})
		node(m.Case("%v, open", dt), m.ints(dt, 2, 20), m.ints(dt, 2, 20), params{}, "batch", "n")
		y = 0.003
		node(m.Case("%v, saturated", dt), m.ints(dt, 2, 20), m.ints(dt, 2, 20), params{})
		y = 0.0193
	}
}

func qlinearLeakyRelu(m *Maker) {
	for _, dt := range bytes8 {
		px, py := params{scale: 0.0311, zero: middle(dt)}, params{scale: 0.0197, zero: middle(dt) - 7}
		m.unary(m.Case("%v", dt), nil, m.ints(dt, 3, 80), px, py)
		for _, alpha := range []float32{0.25, 0, -0.5, 2} {
			m.unary(m.Case("%v, alpha %v", dt, alpha), Attrs{"alpha": alpha}, m.ints(dt, 100), px, py)
		}
		m.qlinearForms(dt, nil, px, py)
	}
}

func qlinearSigmoid(m *Maker) {
	for _, dt := range bytes8 {
		low, _ := limits(dt)
		px, py := params{scale: 0.06, zero: middle(dt)}, params{scale: 1.0 / 256, zero: low}
		m.unary(m.Case("%v", dt), nil, m.ints(dt, 3, 80), px, py)
		m.qlinearForms(dt, nil, px, py)
	}
}

// qlinearForms makes cases of what may be absent, computed and open.
func (m *Maker) qlinearForms(dt tensor.DType, a Attrs, px, py params) {
	m.unary(m.Case("%v, open", dt), a, m.ints(dt, 3, 2, 10), px, py, "n", "", "k")
	with := func(p params, computed, none bool) params { p.computed, p.none = computed, none; return p }
	m.unary(m.Case("%v, computed", dt), a, m.ints(dt, 4, 9), with(px, true, false), with(py, true, false))
	m.unary(m.Case("%v, no zero points", dt), a, m.ints(dt, 4, 9), with(px, false, true), with(py, false, true))
	m.unary(m.Case("%v, no zero point of the input", dt), a, m.ints(dt, 4, 9), with(px, false, true), py)
}

func qlinearSoftmax(m *Maker) {
	for _, dt := range bytes8 {
		low, _ := limits(dt)
		px, py := params{scale: 0.0193, zero: middle(dt)}, params{scale: 1.0 / 256, zero: low}
		for _, a := range []Attrs{
			{"opset": 13}, {"opset": 13, "axis": 0}, {"opset": 13, "axis": 1}, {"opset": 13, "axis": -2},
			{"opset": 11}, {"opset": 12, "axis": 0}, {"opset": 9, "axis": 2}, {"opset": 11, "axis": -1},
		} {
			m.unary(m.Case("%v, opset %v, axis %v", dt, a["opset"], a["axis"]), a, m.ints(dt, 3, 4, 10), px, py)
		}
		m.unary(m.Case("%v, open", dt), Attrs{"opset": 13}, m.ints(dt, 3, 20), px, py, "n", "k")
		px.computed, py.computed = true, true
		m.unary(m.Case("%v, computed", dt), Attrs{"opset": 13}, m.ints(dt, 3, 20), px, py)
		px.computed, px.none, py.computed, py.scale = false, true, false, 0.0041 // of which no whole number is 1
		m.unary(m.Case("%v, no zero point of the input, uneven scale", dt), Attrs{"opset": 13}, m.ints(dt, 3, 20), px, py)
	}
}

func qlinearAveragePool(m *Maker) {
	for _, dt := range bytes8 {
		px, py := params{scale: 0.0311, zero: middle(dt)}, params{scale: 0.0197, zero: middle(dt) - 30}
		for _, p := range []struct {
			name  string
			shape []int
			attrs Attrs
		}{
			{"2 x 2", []int{1, 3, 6, 8}, Attrs{"kernel_shape": []int{2, 2}, "strides": []int{2, 2}}},
			{"padded", []int{2, 3, 5, 7}, Attrs{"kernel_shape": []int{3, 3}, "strides": []int{2, 1}, "pads": []int{1, 1, 1, 1}}},
			{"padding counts", []int{2, 3, 5, 7}, Attrs{"kernel_shape": []int{3, 3}, "pads": []int{1, 0, 0, 1}, "count_include_pad": 1}},
			{"same", []int{1, 2, 6, 7}, Attrs{"kernel_shape": []int{3, 2}, "strides": []int{2, 2}, "auto_pad": "SAME_UPPER"}},
			{"same, lower", []int{1, 2, 6, 7}, Attrs{"kernel_shape": []int{3, 2}, "strides": []int{2, 2}, "auto_pad": "SAME_LOWER"}},
			{"up", []int{1, 2, 6, 8}, Attrs{"kernel_shape": []int{3, 3}, "strides": []int{2, 2}, "ceil_mode": 1}},
			{"one axis", []int{2, 3, 11}, Attrs{"kernel_shape": []int{4}, "strides": []int{3}}},
			{"three axes", []int{1, 2, 4, 3, 5}, Attrs{"kernel_shape": []int{2, 2, 3}}},
		} {
			m.unary(m.Case("%v, %s", dt, p.name), p.attrs, m.ints(dt, p.shape...), px, py)
			last := append(append([]int{p.shape[0]}, p.shape[2:]...), p.shape[1])
			p.attrs["channels_last"] = 1
			m.unary(m.Case("%v, %s, channels last", dt, p.name), p.attrs, m.ints(dt, last...), px, py)
		}
		m.unary(m.Case("%v, open", dt), Attrs{"kernel_shape": []int{2, 2}}, m.ints(dt, 1, 2, 4, 5), px, py, "n", "", "h", "w")
		px.computed, py.computed = true, true
		m.unary(m.Case("%v, computed", dt), Attrs{"kernel_shape": []int{2, 2}}, m.ints(dt, 1, 2, 4, 5), px, py)
	}
}

func qlinearGlobalAveragePool(m *Maker) {
	for _, dt := range bytes8 {
		px, py := params{scale: 0.0311, zero: middle(dt)}, params{scale: 0.00617, zero: middle(dt) - 30}
		for _, last := range []int{0, 1} {
			for _, s := range [][]int{{2, 3, 9}, {2, 7, 5, 6}, {1, 3, 2, 3, 4}} {
				m.unary(m.Case("%v, channels_last %d, shape %v", dt, last, s), Attrs{"channels_last": last}, m.ints(dt, s...), px, py)
			}
			m.unary(m.Case("%v, channels_last %d, open", dt, last), Attrs{"channels_last": last}, m.ints(dt, 2, 3, 4, 5), px, py, "n", "", "h", "")
		}
	}
}

func qlinearConcat(m *Maker) {
	for _, dt := range bytes8 {
		node := func(c *Case, axis int, py params, parts []params, shapes [][]int, dims ...string) {
			in := py.names(c, "y", dt)
			for i, p := range parts {
				name := fmt.Sprintf("x%d", i)
				in = append(append(in, c.Input(name, m.ints(dt, shapes[i]...), dims...)), p.names(c, name, dt)...)
			}
			c.Node(m.kind, Attrs{"axis": axis}, in, "y:"+dt.String())
		}
		py := params{scale: 0.0193, zero: middle(dt)}
		other, third := params{scale: 0.0131, zero: 3}, params{scale: 0.0473, zero: middle(dt)}
		node(m.Case("%v, one", dt), 1, py, []params{other}, [][]int{{2, 5}})
		node(m.Case("%v, the same", dt), 1, py, []params{py, py}, [][]int{{2, 5}, {2, 6}})
		node(m.Case("%v, rows", dt), 0, py, []params{other, third}, [][]int{{2, 7}, {3, 7}})
		node(m.Case("%v, one of another", dt), -1, py, []params{py, other, third}, [][]int{{2, 3, 5}, {2, 3, 1}, {2, 3, 2}})
		node(m.Case("%v, open", dt), 1, py, []params{other, third}, [][]int{{2, 7}, {2, 7}}, "n", "k")
		other.computed = true
		node(m.Case("%v, computed", dt), -2, py, []params{other, py}, [][]int{{2, 3, 5}, {2, 2, 5}})
	}
}

func qlinearWhere(m *Maker) {
	for _, dt := range bytes8 {
		node := func(c *Case, shapes [3][]int, same, computed bool) {
			pz := params{scale: 0.0193, zero: middle(dt), computed: computed}
			px, py := pz, pz
			if !same {
				px.scale, px.zero, py.scale, py.zero = 0.0131, 7, 0.0473, middle(dt)-20
			}
			in := append([]string{c.Input("c", m.Ints(tensor.Bool, 0, 1, shapes[0]...)), c.Input("x", m.ints(dt, shapes[1]...))}, px.names(c, "x", dt)...)
			in = append(append(in, c.Input("y", m.ints(dt, shapes[2]...))), py.names(c, "y", dt)...)
			c.Node(m.kind, nil, append(in, pz.names(c, "z", dt)...), "z:"+dt.String())
		}
		for _, s := range [][3][]int{{{2, 9}, {2, 9}, {2, 9}}, {{1}, {2, 9}, {2, 9}}, {{2, 9}, {1}, {9}}, {{3, 1}, {2, 1, 4}, {3, 4}}} {
			node(m.Case("%v, shapes %v", dt, s), s, false, false)
		}
		node(m.Case("%v, one quantisation", dt), [3][]int{{3, 7}, {3, 7}, {3, 7}}, true, false)
		node(m.Case("%v, computed", dt), [3][]int{{3, 7}, {3, 7}, {3, 7}}, false, true)
	}
}

func qlinearConv(m *Maker) {
	for _, p := range []struct {
		name   string
		x, w   []int
		attrs  Attrs
		groups bool
	}{
		{"1 x 1", []int{1, 3, 4, 5}, []int{4, 3, 1, 1}, Attrs{}, false},
		{"3 x 3", []int{2, 3, 6, 7}, []int{4, 3, 3, 3}, Attrs{"pads": []int{1, 1, 1, 1}, "strides": []int{2, 1}}, true},
		{"groups", []int{1, 4, 6, 6}, []int{6, 2, 3, 3}, Attrs{"group": 2, "dilations": []int{2, 1}}, false},
		{"depthwise", []int{1, 5, 6, 6}, []int{5, 1, 3, 3}, Attrs{"group": 5, "auto_pad": "SAME_UPPER"}, true},
		{"one axis", []int{1, 3, 9}, []int{2, 3, 3}, Attrs{}, true},
	} {
		for _, last := range []int{0, 1} {
			if p.attrs["channels_last"] = last; last != 0 {
				p.x = append(append([]int{p.x[0]}, p.x[2:]...), p.x[1])
			}
			for _, types := range [][2]tensor.DType{{tensor.U8, tensor.U8}, {tensor.U8, tensor.I8}, {tensor.I8, tensor.I8}} {
				if last != 0 && types[1] == tensor.U8 {
					continue
				}
				c := m.Case("%v, %v, channels_last %d, %s", types[0], types[1], last, p.name)
				in := append([]string{c.Input("x", m.ints(types[0], p.x...))}, params{scale: 0.0211, zero: middle(types[0])}.names(c, "x", types[0])...)
				in = append(in, c.Weight("w", m.small(types[1], p.w...)))
				zero := 0
				if types[1] == tensor.U8 {
					zero = 120
				}
				if p.groups {
					zeros := tensor.New(tensor.I64, p.w[0])
					for i := range p.w[0] {
						tensor.Data[int64](zeros)[i] = int64(zero)
					}
					in = append(in, c.Weight("w_scale", m.positive(0.0207, p.w[0])), c.Weight("w_zero", zeros.To(types[1])))
				} else {
					in = append(in, params{scale: 0.0103, zero: zero}.names(c, "w", types[1])...)
				}
				in = append(in, params{scale: 0.0517, zero: middle(types[0])}.names(c, "y", types[0])...)
				if p.name != "1 x 1" {
					in = append(in, c.Weight("b", m.Ints(tensor.I32, -3000, 3000, p.w[0])))
				}
				c.Node(m.kind, p.attrs, in, "y:"+types[0].String())
			}
		}
	}
}

// positive makes scales, numbers above 0.
func (m *Maker) positive(scale float64, shape ...int) *tensor.Tensor {
	t := tensor.New(tensor.F32, shape...)
	for i := range t.F32s() {
		t.F32s()[i] = float32(float64(m.IntN(64)+16) / 64 * scale)
	}
	return t
}

var quantised = []tensor.DType{tensor.U8, tensor.I8, tensor.U16, tensor.I16}

func quantizeLinear(m *Maker) {
	for _, float := range []tensor.DType{tensor.F32, tensor.F16} {
		for _, dt := range quantised {
			scale := 6.0 / float64(int(1)<<dt.Bits())
			add := func(name string, a Attrs, s *tensor.Tensor, zero *tensor.Tensor, dims ...string) {
				c := m.Case("%v to %v, %s", float, dt, name)
				in := []string{c.Input("x", m.Floats(4, 3, 4, 5).To(float), dims...), c.Weight("s", s.To(float))}
				if zero != nil {
					in = append(in, c.Weight("z", zero))
				}
				c.Node(m.kind, a, in, "y:"+dt.String())
			}
			one := tensor.Scalar(float32(scale))
			add("all", nil, one, scalar(dt, middle(dt)))
			add("open", nil, one, scalar(dt, middle(dt)), "a", "b")
			for _, axis := range []int{0, 1, -1} {
				n := []int{3, 4, 5}[(axis+3)%3]
				add(fmt.Sprint("axis ", axis), Attrs{"axis": axis}, m.positive(scale, n), m.Ints(dt, 0, 9, n))
			}
			if dt == tensor.U8 {
				add("no zero point", nil, one, nil)
			}
		}
	}
}

func dequantizeLinear(m *Maker) {
	for _, float := range []tensor.DType{tensor.F32, tensor.F16} {
		for _, dt := range append(quantised, tensor.I32) {
			add := func(name string, a Attrs, s *tensor.Tensor, zero *tensor.Tensor, dims ...string) {
				c := m.Case("%v to %v, %s", dt, float, name)
				x := m.Ints(tensor.I32, -5000, 5000, 3, 4, 5)
				if dt != tensor.I32 {
					x = m.ints(dt, 3, 4, 5)
				}
				in := []string{c.Input("x", x, dims...), c.Weight("s", s.To(float))}
				if zero != nil {
					in = append(in, c.Weight("z", zero))
				}
				c.Node(m.kind, a, in, "y:"+float.String())
			}
			if dt == tensor.I32 {
				add("all", nil, tensor.Scalar(float32(0.01)), nil)
				add("axis 2", Attrs{"axis": 2}, m.positive(0.01, 5), nil)
				continue
			}
			add("all", nil, tensor.Scalar(float32(0.01)), scalar(dt, middle(dt)))
			add("no zero point, open", nil, tensor.Scalar(float32(0.01)), nil, "", "n")
			add("axis 1", Attrs{"axis": 1}, m.positive(0.01, 4), m.Ints(dt, 0, 9, 4))
			add("axis -1", Attrs{"axis": -1}, m.positive(0.01, 5), m.Ints(dt, 0, 9, 5))
		}
	}
}
