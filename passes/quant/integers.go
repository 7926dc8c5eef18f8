package quant

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
)

// meetsCodes reports whether what a node makes is read with what a DequantizeLinear node makes of codes that are computed.
func meetsCodes(t *ir.Node) bool {
	return slices.ContainsFunc(t.Outputs[0].Uses(), func(u ir.Use) bool {
		return slices.ContainsFunc(u.Node.Inputs, func(v *ir.Value) bool {
			n := defined(v)
			if n == nil || n == t {
				return false
			}
			_, ok := n.Op.(*op.DequantizeLinear)
			return ok && n.Inputs[0].Const == nil
		})
	})
}

// Products makes the products of g whose operands DequantizeLinear nodes make, QLinearConv and
// QLinearMatMul nodes, and MatMulInteger and ConvInteger nodes behind DynamicQuantizeLinear
// nodes, products of 8-bit integers with an f32 result, and returns their number; depthwise convolutions
// only where that is asked for. It must come before constants are folded: a folded DequantizeLinear of a weight cannot be
// told from an f32 weight.
func Products(g *ir.Graph, depthwise bool) (int, error) {
	if _, err := spell(g); err != nil {
		return 0, err
	}
	unsign(g)
	if _, err := hoist(g, meetsCodes); err != nil {
		return 0, err
	}
	count := 0
	for _, n := range slices.Clone(g.Nodes) {
		done, err := integers(n, depthwise)
		if err != nil {
			return count, err
		}
		if done {
			count++
		}
	}
	if count == 0 {
		return 0, nil
	}
	fold.Dead(g)
	return count, g.Infer()
}

// Fuse has quantised products read and write u8 where they can: what quantises a
// product's result becomes part of it, what dequantises its residual too, and nodes
// that only move elements move u8. It returns the number of changes.
func Fuse(g *ir.Graph) (int, error) {
	count := 0
	for changed := true; changed; {
		changed = false
		for _, n := range slices.Clone(g.Nodes) {
			if n.Graph() != g {
				continue
			}
			for _, f := range []func(*ir.Node) (bool, error){residual, requantise, move} {
				done, err := f(n)
				if err != nil {
					return count, err
				}
				if done {
					count++
					changed = true
				}
			}
		}
		fold.Dead(g)
	}
	return count, g.Infer()
}

// integers makes n a product of 8-bit integers where its operands allow it.
func integers(n *ir.Node, depthwise bool) (bool, error) {
	o, ok := n.Op.(op.Quantisable)
	if !ok || o.Integers().Quantised() {
		return false, nil
	}
	left := defined(n.Inputs[0])
	x, ok := quantizer(left, "DequantizeLinear")
	runtime := !ok && atRunTime(left)
	if !ok && !runtime {
		return false, nil
	}
	w, ok := integersOf(defined(n.Inputs[1]))
	if !ok || !runtime && !w.scaledBy(x.scale) {
		return false, nil
	}
	bias := n.Input(2)
	var b []float32
	if bias != nil {
		if o, gemm := n.Op.(*op.Gemm); gemm && o.Beta != 1 {
			return false, nil
		}
		if b, ok = constantBias(bias); !ok {
			return false, nil
		}
		n.SetInput(2, nil)
	}
	p, ok := shaped(n, w.ints, depthwise && !runtime)
	if !ok || !w.alongs(p) || bias != nil && (len(b) != p.rows || !vector(bias.Type, p.rows)) {
		n.SetInput(2, bias)
		return false, nil
	}
	g := n.Graph()
	n.Op = ir.CloneOp(n.Op)
	q := n.Op.(op.Quantisable).Integers()
	q.XScale, q.XZero, q.WScale, q.WZero = x.scale, x.zero, w.scales, w.zeros
	if runtime {
		q.XScale, q.XZero = 1, 0
		n.SetInput(op.DynamicScale, left.Inputs[1])
		n.SetInput(op.DynamicZero, left.Inputs[2])
	}
	v := n.Inputs[1].Def.Inputs[0]
	if v.Const != w.ints {
		c := g.NewConst(v.Name, w.ints)
		swapNames(c, v)
		v = c
	}
	n.SetInput(1, v)
	n.SetInput(0, left.Inputs[0])
	if bias != nil {
		n.SetInput(2, g.NewConst(n.Name+".bias", tensor.From(b, len(b))))
	}
	return true, n.Infer()
}

// atRunTime reports whether a node dequantises u8 with a scalar scale and zero point of which one is
// computed as the model runs.
func atRunTime(n *ir.Node) bool {
	if n == nil || n.Op.Kind() != "DequantizeLinear" || n.Input(2) == nil || n.Outputs[0].Type.DType != tensor.F32 {
		return false
	}
	if n.Op.(*op.DequantizeLinear).BlockSize != 0 {
		return false
	}
	for i, dt := range []tensor.DType{tensor.U8, tensor.F32, tensor.U8} {
		if t := n.Inputs[i].Type; t.DType != dt || i > 0 && (!t.Ranked || t.Rank() != 0) {
			return false
		}
	}
	return !n.Inputs[1].IsConst() || !n.Inputs[2].IsConst()
}

// weight8 is a weight i8 with a scale and a zero point, or one of each for each row of those that
// lie along an axis. There are no zeros where all are 0.
type weight8 struct {
	ints   *tensor.Tensor
	scales []float32
	zeros  []int
	axis   int
}

// scaledBy reports whether a product with what has the constant scale x computes with normal
// numbers, on all devices.
func (w *weight8) scaledBy(x float32) bool {
	most := x * slices.Max(w.scales)
	return w.zeros == nil && normal(most) && !slices.ContainsFunc(w.scales, func(s float32) bool { return !fits(x*s, most) })
}

// alongs reports whether scales and zero points are those of the rows of p.
func (w *weight8) alongs(p product) bool {
	for _, k := range []int{len(w.scales), len(w.zeros)} {
		if k > 1 && (k != p.rows || w.axis != p.axis) {
			return false
		}
	}
	return true
}

// integersOf returns the weight that a DequantizeLinear node makes of a constant: i8, or u8, which
// is then shifted.
func integersOf(n *ir.Node) (w weight8, ok bool) {
	if n == nil || n.Op.Kind() != "DequantizeLinear" {
		return w, false
	}
	o := n.Op.(*op.DequantizeLinear)
	c, s := n.Inputs[0].Const, n.Inputs[1].Const
	if c == nil || s == nil || s.DType() != tensor.F32 || s.Rank() > 1 || s.Len() == 0 || o.BlockSize != 0 || n.Outputs[0].Type.DType != tensor.F32 || !positive(s) {
		return w, false
	}
	var zeros *tensor.Tensor
	if z := n.Input(2); z != nil {
		if zeros = z.Const; zeros == nil {
			return w, false
		}
	}
	if c.DType() != tensor.U8 && c.DType() != tensor.I8 {
		return w, false
	}
	w = weight8{scales: s.F32s(), axis: o.Axis}
	w.ints, w.zeros = op.Signed(c, zeros)
	if w.axis < 0 {
		w.axis += c.Rank()
	}
	return w, true
}

// positive reports whether the scales of s are positive numbers by which floats hold all 8-bit
// integers.
func positive(s *tensor.Tensor) bool {
	return !slices.ContainsFunc(s.F32s(), func(v float32) bool { return !(v > 0) || math.IsInf(float64(128*v), 0) })
}

// constantBias returns the elements of a bias: f32, or i32 behind a DequantizeLinear.
func constantBias(v *ir.Value) ([]float32, bool) {
	if v.Const != nil && v.Const.DType() == tensor.F32 {
		return v.Const.F32s(), true
	}
	n := defined(v)
	if n == nil || n.Op.Kind() != "DequantizeLinear" {
		return nil, false
	}
	in := make([]*tensor.Tensor, len(n.Inputs))
	for i, x := range n.Inputs {
		if x != nil {
			if x.Const == nil {
				return nil, false
			}
			in[i] = x.Const
		}
	}
	out, err := n.Op.Eval(&ir.Eval{Outputs: 1}, in)
	if err != nil || out[0].DType() != tensor.F32 {
		return nil, false
	}
	return out[0].F32s(), true
}

// unsign makes i8 tensors between QuantizeLinear and DequantizeLinear nodes u8: the
// elements and the zero point grow by 128, so that they stand for the same numbers.
func unsign(g *ir.Graph) {
	for _, n := range g.Nodes {
		p, dt, ok := byteParams(n, "QuantizeLinear")
		if !ok || dt != tensor.I8 || n.Outputs[0].IsOutput() {
			continue
		}
		uses := slices.Clone(n.Outputs[0].Uses())
		if slices.ContainsFunc(uses, func(u ir.Use) bool {
			_, _, ok := byteParams(u.Node, "DequantizeLinear")
			return !ok || u.Index != 0
		}) {
			continue
		}
		shift := func(m *ir.Node, zero int) {
			m.SetInput(2, g.NewConst(m.Name+".zero", tensor.Scalar(uint8(zero+128))))
		}
		for _, u := range uses {
			q, _, _ := byteParams(u.Node, "DequantizeLinear")
			shift(u.Node, q.zero)
		}
		n.Op = ir.CloneOp(n.Op)
		n.Op.(*op.QuantizeLinear).DType = tensor.Undefined
		shift(n, p.zero)
		if n.Infer() != nil {
			return
		}
	}
}

// isQuantised reports whether n is a product of 8-bit integers.
func isQuantised(n *ir.Node) bool {
	o, ok := n.Op.(op.Quantisable)
	return ok && o.Integers().Quantised()
}

// residual has a quantised product read its residual as u8.
func residual(n *ir.Node) (bool, error) {
	if !isQuantised(n) || n.Input(op.Residual) == nil {
		return false, nil
	}
	d := defined(n.Input(op.Residual))
	p, ok := quantizer(d, "DequantizeLinear")
	if y := n.Op.(op.Quantisable).Integers().YScale; !ok || y != 0 && !fits(p.scale, y) {
		return false, nil
	}
	n.Op = ir.CloneOp(n.Op)
	q := n.Op.(op.Quantisable).Integers()
	q.RScale, q.RZero = p.scale, p.zero
	n.SetInput(op.Residual, d.Inputs[0])
	return true, n.Infer()
}

// quantizedBy returns the parameters with which all readers of v quantise it to u8.
func quantizedBy(v *ir.Value) (p params, ok bool) {
	if v.IsOutput() || len(v.Uses()) == 0 {
		return p, false
	}
	for i, u := range v.Uses() {
		q, ok := quantizer(u.Node, "QuantizeLinear")
		if !ok || u.Index != 0 || i > 0 && q != p || u.Node.Graph() != v.Graph() {
			return p, false
		}
		p = q
	}
	return p, true
}

// requantise has a quantised product store u8 where its result is only quantised.
func requantise(n *ir.Node) (bool, error) {
	if !isQuantised(n) || n.Outputs[0].Type.DType != tensor.F32 {
		return false, nil
	}
	p, ok := quantizedBy(n.Outputs[0])
	if !ok || !divides(p.scale, n) {
		return false, nil
	}
	n.Op = ir.CloneOp(n.Op)
	q := n.Op.(op.Quantisable).Integers()
	q.YScale, q.YZero = p.scale, p.zero
	return true, replaceReaders(n)
}

// divides reports whether what a quantised product adds up may be scaled by 1/y.
func divides(y float32, n *ir.Node) bool {
	q := n.Op.(op.Quantisable).Integers()
	if n.Input(op.DynamicScale) != nil {
		return false
	}
	for _, s := range q.WScale {
		if !fits(q.XScale*s, y) {
			return false
		}
	}
	if b := n.Input(2); b != nil && (b.Const == nil || slices.ContainsFunc(b.Const.F32s(), func(v float32) bool { return !(max(v, -v)/y <= 0x1p100) })) {
		return false
	}
	return q.RScale == 0 || fits(q.RScale, y)
}

// replaceReaders puts the output of n in the place of those of the nodes that
// quantise it.
func replaceReaders(n *ir.Node) error {
	if err := n.Infer(); err != nil {
		return err
	}
	for _, u := range slices.Clone(n.Outputs[0].Uses()) {
		n.Graph().ReplaceUses(u.Node.Outputs[0], n.Outputs[0])
		n.Graph().Remove(u.Node)
	}
	return nil
}

// move has a transparent node read and write u8 where it stands between nodes that
// dequantise and quantise with the same parameters.
func move(n *ir.Node) (bool, error) {
	in := data(n)
	if in == nil {
		return false, nil
	}
	p, ok := quantizedBy(n.Outputs[0])
	if !ok {
		return false, nil
	}
	for _, v := range in {
		if q, ok := quantizer(defined(v), "DequantizeLinear"); !ok || q != p {
			return false, nil
		}
	}
	for i, v := range in {
		n.SetInput(i, v.Def.Inputs[0])
	}
	return true, replaceReaders(n)
}
