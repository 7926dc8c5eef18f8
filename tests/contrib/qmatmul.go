package contrib

import (
	"fmt"
	"slices"

	"spc/ir/tensor"
)

// weights are matrices of integers with a scale and a zero point, or one of each for each column, or each column of each matrix.
type weights struct {
	name    string // b where it is empty
	dt      tensor.DType
	shape   []int
	columns string // one, column, matrix
	zeros   string // none, some, middle: of the range, so that they are symmetric
	trans   bool   // they are [N,K]
}

// weights adds B, its scales and its zero points to a case, and returns their names.
func (m *Maker) weights(c *Case, w weights) (b, scale, zero string) {
	if w.name == "" {
		w.name = "b"
	}
	shape := []int{}
	switch w.columns {
	case "column":
		if shape = w.shape[len(w.shape)-1:]; w.trans {
			shape = w.shape[:1]
		}
	case "matrix":
		shape = slices.Clone(w.shape)
		shape[len(shape)-2] = 1
	}
	if w.zeros != "none" {
		low, high := limits(w.dt)
		low, high = (low+high+1)/2, (low+high+1)/2
		if w.zeros == "some" {
			low, high = low-20, high+12
		}
		zero = c.Weight(w.name+"_zero", m.Ints(w.dt, low, high, shape...))
	}
	return c.Weight(w.name, m.small(w.dt, w.shape...)), c.Weight(w.name+"_scale", m.positive(0.01, shape...)), zero
}

// eachWeights calls f for the types of weights and for how their scales lie.
func eachWeights(shape []int, f func(w weights)) {
	for _, dt := range bytes8 {
		for _, columns := range []string{"one", "column"} {
			for _, zeros := range []string{"none", "some", "middle"} {
				f(weights{dt: dt, shape: shape, columns: columns, zeros: zeros})
			}
		}
	}
}

func dynamicQuantizeMatMul(m *Maker) {
	eachWeights([]int{12, 7}, func(w weights) {
		c := m.Case("%v, %s, zeros %s", w.dt, w.columns, w.zeros)
		b, s, z := m.weights(c, w)
		c.Node(m.kind, nil, trim([]string{c.Input("a", m.Floats(2, 3, 12)), b, s, z}), "y")
		c = m.Case("%v, %s, zeros %s, bias", w.dt, w.columns, w.zeros)
		b, s, z = m.weights(c, w)
		c.Node(m.kind, nil, []string{c.Input("a", m.Floats(2, 2, 3, 12), "batch", "tokens"), b, s, z, c.Weight("bias", m.Floats(1, 7))}, "y")
	})
	c := m.Case("matrices")
	b, s, z := m.weights(c, weights{dt: tensor.U8, shape: []int{2, 12, 7}, columns: "matrix", zeros: "some"})
	c.Node(m.kind, nil, []string{c.Input("a", m.Floats(2, 2, 3, 12)), b, s, z}, "y")
	c = m.Case("one sign")
	b, s, z = m.weights(c, weights{dt: tensor.I8, shape: []int{12, 7}, columns: "one", zeros: "some"})
	c.Node(m.kind, nil, []string{c.Input("a", tensor.Ints(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12).To(tensor.F32).Reshape(1, 12)), b, s, z}, "y")
	c = m.Case("zeros alone")
	b, s, z = m.weights(c, weights{dt: tensor.I8, shape: []int{12, 7}, columns: "one", zeros: "none"})
	c.Node(m.kind, nil, trim([]string{c.Input("a", tensor.New(tensor.F32, 2, 12)), b, s, z}), "y")
}

func matMulIntegerToFloat(m *Maker) {
	left := func(c *Case, dt tensor.DType, p params, shape []int, dims ...string) (a, s, z string) {
		n := p.names(c, "a", dt)
		return c.Input("a", m.ints(dt, shape...), dims...), n[0], n[1]
	}
	p := params{scale: 0.02, zero: 120}
	eachWeights([]int{12, 7}, func(w weights) {
		c := m.Case("%v, %s, zeros %s", w.dt, w.columns, w.zeros)
		b, s, z := m.weights(c, w)
		a, as, az := left(c, tensor.U8, p, []int{3, 12})
		c.Node(m.kind, nil, trim([]string{a, b, as, s, az, z}), "y")
		c = m.Case("%v, %s, zeros %s, bias", w.dt, w.columns, w.zeros)
		b, s, z = m.weights(c, w)
		a, as, az = left(c, tensor.U8, p, []int{2, 3, 12}, "batch", "tokens")
		c.Node(m.kind, nil, []string{a, b, as, s, az, z, c.Weight("bias", m.Floats(1, 7))}, "y")
		c = m.Case("%v, %s, zeros %s, computed", w.dt, w.columns, w.zeros)
		b, s, z = m.weights(c, w)
		computed := p
		computed.computed = true
		a, as, az = left(c, tensor.U8, computed, []int{3, 12})
		c.Node(m.kind, nil, []string{a, b, as, s, az, z, c.Weight("bias", m.Floats(1, 7))}, "y")
	})
	c := m.Case("i8")
	b, s, z := m.weights(c, weights{dt: tensor.I8, shape: []int{12, 7}, columns: "one", zeros: "some"})
	a, as, az := left(c, tensor.I8, params{scale: 0.02, zero: -3}, []int{3, 12})
	c.Node(m.kind, nil, []string{a, b, as, s, az, z}, "y")
	c = m.Case("no zero points")
	b, s, _ = m.weights(c, weights{dt: tensor.U8, shape: []int{12, 7}, columns: "column", zeros: "none"})
	a, as, _ = left(c, tensor.U8, params{scale: 0.02, none: true}, []int{3, 12})
	c.Node(m.kind, nil, []string{a, b, as, s}, "y")
	c = m.Case("matrices")
	b, s, z = m.weights(c, weights{dt: tensor.U8, shape: []int{2, 12, 7}, columns: "matrix", zeros: "some"})
	a, as, az = left(c, tensor.U8, p, []int{2, 3, 12})
	c.Node(m.kind, nil, []string{a, b, as, s, az, z}, "y")
	c = m.Case("weights are an input")
	a, as, az = left(c, tensor.U8, p, []int{3, 12})
	c.Node(m.kind, nil, []string{a, c.Input("b", m.ints(tensor.U8, 12, 7)), as, c.Weight("b_scale", tensor.Scalar(float32(0.01))), az}, "y")
}

func qGemm(m *Maker) {
	for _, types := range [][2]tensor.DType{{tensor.U8, tensor.U8}, {tensor.U8, tensor.I8}, {tensor.I8, tensor.I8}} {
		zeros := "some"
		if types[1] == tensor.I8 {
			zeros = "middle"
		}
		for trans := range 4 {
			m.gemm(gemm{types: types, trans: trans, columns: "one", zeros: zeros, floats: trans%2 == 1, bias: []int{7}, alpha: 1})
			m.gemm(gemm{types: types, trans: trans, columns: "column", zeros: zeros, floats: trans%2 == 0, bias: []int{7}, alpha: 1})
		}
		m.gemm(gemm{types: types, columns: "one", alpha: 1})
		for _, alpha := range []float32{0.5, 3, -1} {
			m.gemm(gemm{types: types, columns: "column", zeros: zeros, bias: []int{7}, alpha: alpha})
		}
		m.gemm(gemm{types: types, columns: "column", bias: []int{5, 7}, alpha: 2})
		m.gemm(gemm{types: types, columns: "column", bias: []int{7}, alpha: 2, computed: true})
	}
	for _, bias := range [][]int{{}, {1}, {1, 7}, {5, 1}, {5, 7}, {1, 1}} {
		m.gemm(gemm{types: [2]tensor.DType{tensor.U8, tensor.I8}, columns: "one", zeros: "middle", bias: bias, alpha: 1})
	}
	for _, dt := range bytes8 {
		m.between(dt)
	}
}

// between makes two products behind a QLinearLeakyRelu.
func (m *Maker) between(dt tensor.DType) {
	c := m.Case("%v between operators", dt)
	x := append([]string{c.Input("x", m.ints(dt, 4, 12), "m")}, params{scale: 0.02, zero: middle(dt)}.names(c, "x", dt)...)
	y := append([]string{"y"}, params{scale: 0.03, zero: middle(dt)}.names(c, "y", dt)...)
	c.Node(Domain+":QLinearLeakyRelu", nil, append(x, y[1:]...), "y:"+dt.String())
	for _, to := range []string{"h", "z"} {
		w, s, zero := m.weights(c, weights{name: to + "_b", dt: tensor.I8, shape: []int{12, 12}, columns: "column", zeros: "middle"})
		q := params{scale: 0.0517, zero: middle(dt)}.names(c, to, dt)
		c.Node(Domain+":QGemm", nil, append(append(y, w, s, zero, ""), q...), to+":"+dt.String())
		y = append([]string{to}, q...)
	}
}

// gemm is a case of QGemm for A[5,12] and B[12,7].
type gemm struct {
	types    [2]tensor.DType // of A and B
	trans    int             // bit 0 of A, bit 1 of B
	columns  string
	zeros    string
	floats   bool // the result is not quantised
	bias     []int
	alpha    float32
	computed bool // the quantisation of A, and the bias
}

func (m *Maker) gemm(g gemm) {
	bias := "none"
	if g.bias != nil {
		bias = fmt.Sprint(g.bias)
	}
	if g.zeros == "" {
		g.zeros = "some"
	}
	c := m.Case("%v, trans %d %d, %s, zeros %s, floats %v, bias %s, alpha %v, computed %v", g.types, g.trans&1, g.trans>>1, g.columns, g.zeros, g.floats, bias, g.alpha, g.computed)
	dt := g.types[0]
	a, b := []int{5, 12}, []int{12, 7}
	if g.trans&1 != 0 {
		a = []int{12, 5}
	}
	if g.trans&2 != 0 {
		b = []int{7, 12}
	}
	w, s, z := m.weights(c, weights{dt: g.types[1], shape: b, columns: g.columns, zeros: g.zeros, trans: g.trans&2 != 0})
	in := append([]string{c.Input("a", m.ints(dt, a...), "m")}, params{scale: 0.02, zero: middle(dt), computed: g.computed}.names(c, "a", dt)...)
	in = append(in, w, s, z, "", "", "")
	if ints := m.Ints(tensor.I32, -3000, 3000, g.bias...); g.bias != nil && g.computed {
		in[6] = c.Input("c", ints)
	} else if g.bias != nil {
		in[6] = c.Weight("c", ints)
	}
	out := "y"
	if !g.floats {
		copy(in[7:], params{scale: 0.05, zero: middle(dt)}.names(c, "y", dt))
		out += ":" + dt.String()
	}
	c.Node(m.kind, Attrs{"transA": g.trans & 1, "transB": g.trans >> 1, "alpha": g.alpha}, trim(in), out)
}
