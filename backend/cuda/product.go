package cuda

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/format/dense"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// weightKey identifies a weight as kernels take it: a store, or a constant seen through a
// view, of which groups of rows are weights of their own.
type weightKey struct {
	store  *ir.Store
	dense  *tensor.Tensor
	view   string
	groups int
	last   bool // columns are in the order of lastWeight
}

// weight is a weight W[M,K] and the kernels for it.
type weight struct {
	sums       []int32 // of the rows of integers, by which a zero point of X shifts products; else nil
	rows, cols int
	kernels    []backend.GPUKernel
	matrix     func() (*tensor.Tensor, error) // W as it lies, of the device's floats, nil where no library takes it
	sparse     bool                           // it is one for SparseLibrary
}

// operands are the places of X, Y and the residual of a product, and their strides.
type operands struct {
	x, y     param
	residual *ir.Value
	n, batch int
	xs, ys   [3]int // by row, by column and by matrix

	// X is patches of the images at x: what describes them to kernels on tensor cores, nil where
	// those cannot take them; the elements of an image; and what makes a matrix of them in memory,
	// nil where X is the matrix at x.
	patches []int32
	image   int
	lay     func(o *operands) error
}

// weightOf returns the weight of a node, nil where it is no constant.
func (b *binder) weightOf(n *ir.Node, input int) (*weight, error) { return b.weightIn(n, input, nil) }

// weightIn is weightOf with the columns in an order, as they are if that is nil. A weight that cannot be had so is nil, too.
func (b *binder) weightIn(n *ir.Node, input int, columns []int) (*weight, error) {
	w, ok := n.Op.(ir.WeightOp)
	v := n.Input(input)
	if !ok || v == nil || !v.IsConst() {
		return nil, nil
	}
	i := slices.IndexFunc(w.Weights(n), func(r ir.Weight) bool { return r.Input == input })
	if i < 0 {
		return nil, nil
	}
	ref := w.Weights(n)[i]
	key := weightKey{store: v.Store, groups: ref.Groups, last: columns != nil}
	if v.Store == nil {
		key.dense, key.view = v.Const, fmt.Sprint(ref.View)
	}
	if known, ok := b.prog.weights[key]; ok {
		return known, nil
	}
	store := v.Store
	if store != nil && columns != nil {
		var err error
		if store, err = reordered(store, columns); err != nil {
			return nil, n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
		}
		if store == nil {
			b.prog.weights[key] = nil
			return nil, nil
		}
	}
	lasts := v.Store != nil || b.prog.lasting[v.Const]
	made, err := b.newWeight(v, ref, store, columns, lasts)
	if err != nil {
		return nil, n.Errorf(ir.ErrCorrupt, "weight %s: %v", v.Name, err)
	}
	if made != nil && lasts {
		b.prog.weights[key] = made
		for _, k := range made.kernels {
			for _, part := range k.Parts {
				b.prog.lasting[part] = true
			}
		}
	}
	return made, nil
}

// newWeight prepares a weight with its columns in an order: in a store, which has them so, or as
// elements. It is nil where there are no kernels for it.
func (b *binder) newWeight(v *ir.Value, ref ir.Weight, store *ir.Store, columns []int, lasts bool) (*weight, error) {
	shape, _ := v.Type.Shape()
	made := &weight{}
	made.rows, made.cols = ref.View.Dims(shape)
	integers, x := v.Type.DType == tensor.I8, backend.GPUInput(v.Type.DType, b.prog.float)
	var err error
	if store != nil {
		if made.kernels, err = format.Lookup(store.Format).GPU(store, x); err != nil {
			return nil, err
		}
	}
	if store != nil && store.Format == choose.Dense && !integers {
		w, err := format.Lookup(choose.Dense).Unpack(store)
		if err != nil {
			return nil, err
		}
		made.matrix = b.plain(w, lasts)
	}
	if len(made.kernels) > 0 && made.kernels[0].Unit == backend.SparseTensorCores {
		float := b.prog.float
		made.sparse, made.matrix = true, func() (*tensor.Tensor, error) { // not kept: it is compressed
			t, err := format.Lookup(store.Format).Unpack(store)
			if err != nil {
				return nil, err
			}
			return t.To(float), nil
		}
	}
	if made.kernels == nil || integers {
		t, err := b.prog.elements(v)
		if err != nil {
			return nil, err
		}
		w := ref.View.Matrix(t)
		if columns != nil {
			w = reorder(w, columns)
		}
		if made.kernels == nil {
			if made.kernels, err = format.Lookup(choose.Dense).GPU(dense.Store(w), x); err != nil || made.kernels == nil {
				return nil, err
			}
		}
		if integers {
			made.sums = sums(w)
		} else if made.matrix == nil {
			made.matrix = b.plain(w, lasts)
		}
	}
	return made, nil
}

// sums are those of the rows of a matrix i8.
func sums(w *tensor.Tensor) []int32 {
	out := make([]int32, w.Dim(0))
	for i, v := range tensor.Data[int8](w) {
		out[i/w.Dim(1)] += int32(v)
	}
	return out
}

// plain returns what makes a matrix of floats of the device, once.
func (b *binder) plain(w *tensor.Tensor, lasts bool) func() (*tensor.Tensor, error) {
	p := b.prog
	return sync.OnceValues(func() (*tensor.Tensor, error) {
		m := w.To(p.float)
		if lasts {
			p.lasting[m] = true
		}
		return m, nil
	})
}

// multiply computes a product of a weight as is predicted to be the fastest; false where no way
// is in reach.
func (b *binder) multiply(w *weight, o operands, alpha float32, bias []float32, ep *op.Epilogue) (bool, error) {
	rates, size := b.prog.rates, b.prog.float.Size()
	k := rates.Pick(w.kernels, o.n, o.batch, size)
	if w.matrix != nil {
		lib := b.prog.library
		if w.sparse {
			lib = b.prog.sparse
		}
		if ok, err := b.library(lib, b.prog.beside(w.sparse).Time(k, o.n, o.batch, size), multiplier{nil, w.matrix, [3]int{w.cols, 1, 0}, w.rows, w.cols}, o, alpha, bias, ep); ok || err != nil {
			return ok, err
		}
	}
	var scale []float32
	if alpha != 1 {
		scale = slices.Repeat([]float32{alpha}, w.rows)
	}
	return b.product(k, nil, w.rows, w.cols, o, scale, bias, ep)
}

// product launches a kernel on its operands, and what finishes its sums where it has splits; false
// where no grid is large enough. w, where it is not nil, is a weight that is no constant.
func (b *binder) product(k *backend.GPUKernel, w *ir.Value, rows, cols int, o operands, alpha, bias []float32, ep *op.Epilogue) (bool, error) {
	epilogue, err := epilogueOf(ep, alpha, bias, o.residual)
	if err != nil {
		return false, err
	}
	g := k.Launch(o.n, o.batch)
	if g.Grid[1] > maxGrid || g.Grid[2] > maxGrid {
		return false, nil
	}
	var patches []int32
	if o.lay != nil {
		if o.patches != nil && k.Unit != backend.Cores {
			patches, o.xs[2] = o.patches, o.image
		} else if err := o.lay(&o); err != nil {
			return false, err
		}
	}
	weight := tensors(k.Parts...)
	if w != nil {
		weight = append(values(w), weight...)
	}
	count, sums, own := rows*o.n*o.batch, param{}, epilogue
	if k.Splits > 1 {
		sums, own = b.temp(k.Splits*count*tensor.F32.Size()), make(params, len(epilogue))
	}
	err = b.launch(k.Name, g, weight, params{o.x, o.y}, ints(rows, cols, o.n), ints(o.xs[:]...), ints(o.ys[:]...), data(patches),
		params{sums}, ints(max(1, k.Splits)), ints(k.Extra...), own)
	if err == nil && k.Splits > 1 {
		err = b.finish(sums, o.y, count, rows, o.ys[0], k.Splits, epilogue)
	}
	return err == nil, err
}

// finish applies an epilogue to sums of a product, which lie as Y does: rows come one after
// another, step elements each. There may be several for each element.
func (b *binder) finish(sums, y param, count, rows, step, splits int, epilogue params) error {
	return b.launch(b.name("finish"), flat(count), params{sums, y}, ints(count, rows, step, splits), epilogue)
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
	w, err := b.weightOf(n, 1)
	if err != nil {
		return false, err
	}
	if w != nil && len(bs) == 2 {
		return b.multiply(w, operands{
			x: value(n.Inputs[0]), y: value(n.Outputs[0]), residual: n.Input(op.Residual), n: prod(as[:len(as)-1]), batch: 1,
			xs: [3]int{1, k, 0}, ys: [3]int{1, m, 0},
		}, 1, bias, &o.Epilogue)
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
	strides := [3]int{k, 1, ab}
	kernel := dense.GEMM(b.prog.float, aRows, k, strides)
	p := operands{
		x: value(n.Inputs[1]), y: value(n.Outputs[0]), n: m, batch: batch,
		xs: [3]int{m, 1, bb}, ys: [3]int{m, 1, aRows * m},
	}
	best := b.prog.beside(false).Time(&kernel, m, batch, b.prog.float.Size())
	if ok, err := b.library(b.prog.library, best, multiplier{n.Inputs[0], nil, strides, aRows, k}, p, 1, nil, &o.Epilogue); ok || err != nil {
		return ok, err
	}
	return b.product(&kernel, n.Inputs[0], aRows, k, p, nil, nil, &o.Epilogue)
}

// bindGemm multiplies tokens by a constant.
func bindGemm(b *binder, n *ir.Node) (bool, error) {
	o := n.Op.(*op.Gemm)
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	w, err := b.weightOf(n, 1)
	if o.Quantised() || w == nil || err != nil || prod(ys) == 0 {
		return false, err
	}
	bias, ok := biasOf(n, 2, w.rows)
	if o.Beta == 0 { // whatever it holds
		bias, ok = nil, true
	}
	if !ok {
		return false, nil
	}
	x := [3]int{1, w.cols, 0}
	if o.TransA {
		x = [3]int{xs[1], 1, 0}
	}
	if bias != nil && o.Beta != 1 {
		bias = slices.Clone(bias)
		for i := range bias {
			bias[i] *= o.Beta
		}
	}
	return b.multiply(w, operands{
		x: value(n.Inputs[0]), y: value(n.Outputs[0]), residual: n.Input(op.Residual), n: ys[0], batch: 1, xs: x, ys: [3]int{1, w.rows, 0},
	}, o.Alpha, bias, &o.Epilogue)
}

// bindConv multiplies the weight with the patches of each image, which kernels on tensor cores
// read from the image, and which are in memory for others; groups are convolved directly.
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
	b.follow(n.Outputs[0], n.Input(op.Residual))
	geometry := window(xs[2:], out, spans)
	pixels, plane := prod(out), prod(xs[2:])
	if o.Group > 1 {
		return b.convolveGroups(n, ws, out, geometry, bias)
	}
	// A single pixel lies as if its channels came last, and as if they came first.
	direct := prod(ws[2:]) == 1 && pixels == plane && !slices.ContainsFunc(spans, func(s op.Span) bool { return s.Begin != 0 || s.Stride != 1 })
	last, written := b.last[n.Inputs[0]] || direct && pixels == 1, b.last[n.Outputs[0]] || pixels == 1
	weightOf := func(n *ir.Node) (*weight, error) { return b.weightOf(n, 1) }
	if last {
		weightOf = b.lastWeight
	}
	w, err := weightOf(n)
	if err != nil || w == nil {
		return false, err
	}
	p := operands{
		x: value(n.Inputs[0]), y: value(n.Outputs[0]), residual: n.Input(op.Residual), n: pixels, batch: xs[0],
		xs: [3]int{pixels, 1, w.cols * pixels}, ys: [3]int{pixels, 1, w.rows * pixels},
	}
	if last {
		p.xs = [3]int{1, w.cols, w.cols * pixels}
	}
	if written {
		p.ys = [3]int{1, w.rows, w.rows * pixels}
	}
	if last && written { // images are columns of one matrix
		p.n, p.batch, p.xs[2], p.ys[2] = xs[0]*pixels, 1, 0, 0
	}
	if !direct {
		p.patches, p.image = Patches(xs[1], xs[2:], out, spans, last), xs[1]*plane
		p.lay = func(o *operands) error {
			count := xs[0] * w.cols * pixels
			o.x, o.lay = b.temp(count*b.prog.float.Size()), nil
			places := params{value(n.Inputs[0]), o.x}
			if last {
				return b.launch(b.name("patches_last"), flat(count/ChannelUnit), places, ints(count/ChannelUnit, xs[1]), geometry)
			}
			return b.launch(b.name("patches"), flat(count), places, ints(count), geometry)
		}
	}
	return b.multiply(w, p, 1, bias, &o.Epilogue)
}

// convolveGroups convolves groups of channels: by a kernel for channels of their own and squares of 3 or 5
// at steps of 1 or 2, or else an element at a time.
func (b *binder) convolveGroups(n *ir.Node, ws, out []int, geometry params, bias []float32) (bool, error) {
	o, ys := n.Op.(*op.Conv), shapeOf(n.Outputs[0])
	t, err := b.prog.elements(n.Inputs[1])
	if err != nil {
		return false, err
	}
	epilogue, err := epilogueOf(&o.Epilogue, nil, bias, n.Input(op.Residual))
	if err != nil {
		return false, err
	}
	g := flat(prod(ys))
	name, w, own := "grouped_conv", b.round(t), params{}
	b.follow(n.Outputs[0], n.Inputs[0])
	kernel, across := depthwise(o, shapeOf(n.Inputs[0]), ws, ys), out[0]*((out[len(out)-1]+3)/4) // fours of pixels
	switch last := b.last[n.Outputs[0]]; {
	case last != b.last[n.Inputs[0]]: // of which the residual is to blame
		return false, nil
	case last:
		name, w = "depthwise_last_"+kernel, b.round(t.Reshape(ys[1], prod(ws[2:])).Permute(1, 0))
		const processors = 128
		units, threads := across*(ys[1]/ChannelUnit), 128
		if units*ys[0] < threads*processors {
			threads = 32
		}
		g = backend.Geometry{Grid: [3]int{(units + threads - 1) / threads, 1, ys[0]}, Block: [3]int{threads, 1, 1}}
		own = ints(ys[1])
	case kernel != "":
		name = "depthwise_" + kernel
		g = backend.Geometry{Grid: [3]int{(across + 127) / 128, ys[1], ys[0]}, Block: [3]int{128, 1, 1}}
	default:
		own = ints(prod(ys), ys[1], ws[1], ys[1]/o.Group, o.Group)
	}
	return true, b.launch(b.name(name), g, tensors(w), values(n.Inputs[0], n.Outputs[0]), own, geometry, epilogue)
}

// Patches describes the images [channels, in...] of a convolution to kernels, as Patches and Taps of
// spc/device.cuh; nil where a number is too large for them. Where channels come last, which are a multiple of
// ChannelUnit then, a matrix may be of several images, and rows of X are those of a tap after each other.
func Patches(channels int, in, out []int, spans []op.Span, last bool) []int32 {
	const most = 1<<14 - 1 // rows and columns of an image whose channels come last, and how far taps are from one
	s := sliding(in, out, spans)
	plane := s.in[0] * s.in[1]
	begins := max((s.out[0]-1)*s.axes[0].Stride, (s.out[1]-1)*s.axes[1].Stride) // the last patch
	if channels*plane > math.MaxInt32 || last && max(s.in[0], s.in[1], begins) > most {
		return nil
	}
	words := []int32{int32(s.in[0]), int32(s.in[1]), int32(s.out[1]), int32(s.axes[0].Stride), int32(s.axes[1].Stride), 0, int32(s.out[0] * s.out[1]), int32(channels * plane)}
	var taps [][2]int
	for i := range s.axes[0].Kernel {
		for j := range s.axes[1].Kernel {
			y, x := i*s.axes[0].Dilation-s.axes[0].Begin, j*s.axes[1].Dilation-s.axes[1].Begin
			if far := max(y, -y, x, -x); far > math.MaxInt16 || last && far > most {
				return nil
			}
			taps = append(taps, [2]int{y, x})
		}
	}
	tap := func(plane int, at [2]int) { words = append(words, int32(plane), int32(uint16(at[0]))|int32(at[1])<<16) }
	if !last {
		for c := range channels {
			for _, at := range taps {
				tap(c*plane, at)
			}
		}
		return words
	}
	words[5] = int32(channels)
	for _, at := range taps {
		for c := 0; c < channels; c += ChannelUnit {
			tap(c, at)
		}
	}
	return words
}

// ChannelUnit is how many channels of a pixel kernels load at once where these come last.
const ChannelUnit = 8

// slide is how a kernel goes over an image, of one or two axes: those of one are a row.
type slide struct {
	in, out [2]int
	axes    [2]op.Span
}

func sliding(in, out []int, spans []op.Span) slide {
	one := op.Span{Kernel: 1, Stride: 1, Dilation: 1}
	s := slide{in: [2]int{1, 1}, out: [2]int{1, 1}, axes: [2]op.Span{one, one}}
	for i := range spans {
		at := 2 - len(spans) + i
		s.axes[at], s.in[at], s.out[at] = spans[i], in[i], out[i]
	}
	return s
}

// window is the parameters SPC_WINDOW.
func window(in, out []int, spans []op.Span) params {
	s := sliding(in, out, spans)
	h, v := s.axes[0], s.axes[1]
	return ints(s.in[0], s.in[1], s.out[0], s.out[1], h.Kernel, v.Kernel, h.Stride, v.Stride, h.Dilation, v.Dilation, h.Begin, v.Begin)
}
