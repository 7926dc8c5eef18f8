package cuda

import (
	"fmt"
	"slices"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// weightKey identifies a weight as kernels take it: a store, or a constant seen through a
// view, of which groups of rows are weights of their own.
type weightKey struct {
	store  *ir.Store
	dense  *tensor.Tensor
	view   string
	groups int
}

// weight is the kernels for a weight.
type weight struct{ kernels []backend.GPUKernel }

// operands are the places of X, Y and the residual of a product, and their strides.
type operands struct {
	x, y, residual *ir.Value
	temp           int // of X where x is nil
	n, batch       int
	xs, ys         [3]int // by row, by column and by matrix
}

// weightOf returns the kernels for the weight of a node, nil where it is no constant.
func (b *binder) weightOf(n *ir.Node, input int) ([]backend.GPUKernel, int, int, error) {
	w, ok := n.Op.(ir.WeightOp)
	v := n.Input(input)
	if !ok || v == nil || !v.IsConst() {
		return nil, 0, 0, nil
	}
	i := slices.IndexFunc(w.Weights(n), func(r ir.Weight) bool { return r.Input == input })
	if i < 0 {
		return nil, 0, 0, nil
	}
	ref := w.Weights(n)[i]
	shape, _ := v.Type.Shape()
	rows, cols := ref.View.Dims(shape)
	key := weightKey{store: v.Store, groups: ref.Groups}
	if v.Store == nil {
		key.dense, key.view = v.Const, fmt.Sprint(ref.View)
	}
	if known := b.prog.weights[key]; known != nil {
		return known.kernels, rows, cols, nil
	}
	made := &weight{}
	lasts := v.Store != nil || b.prog.lasting[v.Const]
	if v.Store != nil {
		if f, ok := format.Lookup(v.Store.Format).(backend.GPUFormat); ok {
			var err error
			if made.kernels, err = f.GPU(v.Store, b.prog.float); err != nil {
				return nil, 0, 0, n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
			}
		}
	}
	if made.kernels == nil {
		t, err := b.prog.elements(v)
		if err != nil {
			return nil, 0, 0, err
		}
		made.kernels = dense.GPU(ref.View.Matrix(t), b.prog.float)
	}
	if lasts {
		b.prog.weights[key] = made
		for _, k := range made.kernels {
			for _, part := range k.Parts {
				b.prog.lasting[part] = true
			}
		}
	}
	return made.kernels, rows, cols, nil
}

// product launches a kernel on its operands; false where no grid is large enough. w, where
// it is not nil, is a weight that is no constant.
func (b *binder) product(k *backend.GPUKernel, w *ir.Value, rows, cols int, o operands, alpha, bias []float32, ep *op.Epilogue) (bool, error) {
	act, a1, a2, err := backend.GPUActivation(ep)
	if err != nil {
		return false, err
	}
	g := k.Launch(o.n, o.batch)
	if g.Grid[1] > maxGrid || g.Grid[2] > maxGrid {
		return false, nil
	}
	var params []any
	if w != nil {
		params = append(params, w)
	}
	for _, part := range k.Parts {
		params = append(params, part)
	}
	x := any(o.x)
	if o.x == nil {
		x = tempParam(o.temp)
	}
	params = append(params, x, o.y, rows, cols, o.n)
	for _, v := range slices.Concat(o.xs[:], o.ys[:], k.Extra) {
		params = append(params, v)
	}
	return true, b.launch(k.Name, g, append(params, floats(alpha), floats(bias), valueOrNil(o.residual), act, a1, a2)...)
}

// floats is a parameter of f32 that may be missing.
func floats(v []float32) any {
	if v == nil {
		return nil
	}
	return v
}

func valueOrNil(v *ir.Value) any {
	if v == nil {
		return nil
	}
	return v
}

// biasOf returns the elements of a node's constant input, nil where it has none; ok is false
// where it is no constant vector of so many.
func biasOf(n *ir.Node, input, rows int) (b []float32, ok bool) {
	v := n.Input(input)
	if v == nil {
		return nil, true
	}
	if v.Const == nil || v.Const.DType() != tensor.F32 || v.Const.Rank() == 0 || v.Const.Len() != rows || v.Const.Dim(-1) != rows {
		return nil, false
	}
	return v.Const.F32s(), true
}

// bindMatMul multiplies the features of tokens by a constant, or matrices by matrices.
func bindMatMul(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.MatMul)
	as, bs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1]), shapeOf(n.Outputs[0])
	if o.Quantised() || len(as) < 2 || len(bs) < 2 || prod(ys) == 0 {
		return false, nil
	}
	m, k := bs[len(bs)-1], bs[len(bs)-2]
	bias, ok := biasOf(n, 2, m)
	if !ok {
		return false, nil
	}
	kernels, rows, cols, err := b.weightOf(n, 1)
	if err != nil {
		return false, err
	}
	if kernels != nil && len(bs) == 2 {
		tokens := prod(as[:len(as)-1])
		return b.product(b.prog.rates.Pick(kernels, tokens, 1, b.prog.float.Size()), nil, rows, cols, operands{
			x: n.Inputs[0], y: n.Outputs[0], residual: n.Input(op.Residual), n: tokens, batch: 1,
			xs: [3]int{1, k, 0}, ys: [3]int{1, m, 0},
		}, nil, bias, &o.Epilogue)
	}
	if n.Inputs[0].IsConst() || n.Inputs[1].IsConst() || bias != nil || n.Input(op.Residual) != nil {
		return false, nil
	}
	// Y = A B for each matrix of a batch, of which either side may have but one.
	aRows := as[len(as)-2]
	batch := prod(ys[:len(ys)-2])
	stride := func(s []int, size int) (int, bool) {
		switch prod(s[:len(s)-2]) {
		case batch:
			return size, true
		case 1:
			return 0, true
		}
		return 0, false
	}
	ab, ok1 := stride(as, aRows*k)
	bb, ok2 := stride(bs, k*m)
	if !ok1 || !ok2 {
		return false, nil
	}
	kernel := dense.GEMM(b.prog.float, aRows, k, [3]int{k, 1, ab})
	return b.product(&kernel, n.Inputs[0], aRows, k, operands{
		x: n.Inputs[1], y: n.Outputs[0], n: m, batch: batch,
		xs: [3]int{m, 1, bb}, ys: [3]int{m, 1, aRows * m},
	}, nil, nil, &o.Epilogue)
}

// bindGemm multiplies tokens by a constant.
func bindGemm(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.Gemm)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	kernels, rows, cols, err := b.weightOf(n, 1)
	if err != nil {
		return false, err
	}
	bias, ok := biasOf(n, 2, rows)
	if o.Beta == 0 { // whatever it holds
		bias, ok = nil, true
	}
	if o.Quantised() || kernels == nil || !ok || prod(ys) == 0 {
		return false, nil
	}
	x := [3]int{1, cols, 0}
	if o.TransA {
		x = [3]int{xs[1], 1, 0}
	}
	var alpha []float32
	if o.Alpha != 1 {
		alpha = slices.Repeat([]float32{o.Alpha}, rows)
	}
	if bias != nil && o.Beta != 1 {
		bias = slices.Clone(bias)
		for i := range bias {
			bias[i] *= o.Beta
		}
	}
	return b.product(b.prog.rates.Pick(kernels, ys[0], 1, b.prog.float.Size()), nil, rows, cols, operands{
		x: n.Inputs[0], y: n.Outputs[0], residual: n.Input(op.Residual), n: ys[0], batch: 1, xs: x, ys: [3]int{1, rows, 0},
	}, alpha, bias, &o.Epilogue)
}

// bindConv multiplies the weight with the patches of each image, which are in memory unless
// they are the image; groups are convolved directly.
func bindConv(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.Conv)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	if o.Quantised() || len(xs) < 3 || len(xs) > 4 || prod(ys) == 0 || !n.Inputs[1].IsConst() || n.Inputs[0].IsConst() {
		return false, nil
	}
	ws := shapeOf(n.Inputs[1])
	spans, out, err := o.Geometry(xs, ws)
	if err != nil {
		return false, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	bias, ok := biasOf(n, 2, ys[1])
	if !ok {
		return false, nil
	}
	w := window(xs[2:], out, spans)
	pixels, plane := prod(out), prod(xs[2:])
	if o.Group > 1 {
		t, err := b.prog.elements(n.Inputs[1])
		if err != nil {
			return false, err
		}
		act, a1, a2, err := backend.GPUActivation(&o.Epilogue)
		if err != nil {
			return false, err
		}
		params := []any{b.round(t), n.Inputs[0], n.Outputs[0], prod(ys), ys[1], ws[1], ys[1] / o.Group, o.Group}
		params = append(append(params, w...), nil, floats(bias), valueOrNil(n.Input(op.Residual)), act, a1, a2)
		return true, b.launch(b.name("grouped_conv"), flat(prod(ys)), params...)
	}
	kernels, rows, cols, err := b.weightOf(n, 1)
	if err != nil || kernels == nil {
		return false, err
	}
	p := operands{
		x: n.Inputs[0], y: n.Outputs[0], residual: n.Input(op.Residual), n: pixels, batch: xs[0],
		xs: [3]int{pixels, 1, cols * pixels}, ys: [3]int{pixels, 1, rows * pixels},
	}
	if cols != xs[1] || pixels != plane || slices.ContainsFunc(spans, func(s op.Span) bool { return s.Begin != 0 || s.Stride != 1 }) {
		count := xs[0] * cols * pixels
		p.x, p.temp = nil, b.temp(count*b.prog.float.Size())
		params := append([]any{n.Inputs[0], tempParam(p.temp), count}, w...)
		if err := b.launch(b.name("patches"), flat(count), params...); err != nil {
			return false, err
		}
	}
	return b.product(b.prog.rates.Pick(kernels, pixels, xs[0], b.prog.float.Size()), nil, rows, cols, p, nil, bias, &o.Epilogue)
}

// window is the parameters SPC_WINDOW; one spatial axis is a row.
func window(in, out []int, spans []op.Span) []any {
	axes := []op.Span{{Kernel: 1, Stride: 1, Dilation: 1}, {Kernel: 1, Stride: 1, Dilation: 1}}
	ins, outs := []int{1, 1}, []int{1, 1}
	for i := range spans {
		at := 2 - len(spans) + i
		axes[at], ins[at], outs[at] = spans[i], in[i], out[i]
	}
	h, v := axes[0], axes[1]
	return []any{ins[0], ins[1], outs[0], outs[1], h.Kernel, v.Kernel, h.Stride, v.Stride, h.Dilation, v.Dilation, h.Begin, v.Begin}
}
