package op

import (
	"spc/ir"
	"spc/ir/tensor"
)

// products are the element types of MatMul and Gemm.
var products = []tensor.DType{tensor.F16, tensor.BF16, tensor.F32, tensor.F64, tensor.I32, tensor.I64, tensor.U32, tensor.U64}

// MatMul is the matrix product Y[..,M,N] of A[..,M,K] and B[..,K,N] with
// broadcast leading dimensions; a vector is a row on the left and a column on
// the right. The fuse passes give it two inputs more: a bias[N] of a right side
// that is a matrix, and the residual of its epilogue.
type MatMul struct {
	Epilogue
	Quant
}

// Kind is MatMul.
func (*MatMul) Kind() string { return "MatMul" }

// Along follows the rows of A, the columns of B and the axes of batches.
func (o *MatMul) Along(n *ir.Node, _, axis int) []int {
	a, b, rank := n.Inputs[0].Type, n.Inputs[1].Type, n.Outputs[0].Type.Rank()
	if !a.Ranked || !b.Ranked || a.Rank() < 2 || b.Rank() < 2 {
		return nil
	}
	in := broadcastAlong(n, len(n.Inputs), axis)
	switch {
	case in == nil || axis == rank-1 && o.Quantised(): // scales of columns are attributes
		return nil
	case axis == rank-1:
		in[0] = Whole
	case axis == rank-2:
		in[1] = Whole
	}
	return in
}

// Infer checks K and broadcasts the leading dimensions.
func (o *MatMul) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if o.Quantised() {
		return o.inferInteger(c)
	}
	if err := wantOneOf(c, 0, products); err != nil {
		return err
	}
	if err := wantSame(c, 1); err != nil {
		return err
	}
	dt := c.In(0).DType
	dims, ok, err := matmulDims(c, c.In(0), c.In(1))
	if err != nil {
		return err
	}
	if !ok {
		c.Set(0, ir.Unranked(dt))
		return nil
	}
	y := ir.Of(dt, dims...)
	c.Set(0, y)
	if c.Has(2) {
		if n := y.Rank(); n < 1 || c.In(1).Rank() != 2 {
			return c.Errorf("a bias beside a right side of rank %d, want rank 2", c.In(1).Rank())
		}
		if err := wantDims(c, 2, "bias", y.Dims[y.Rank()-1]); err != nil {
			return err
		}
	}
	return o.inferEpilogue(c, y)
}

// inferInteger is Infer for a product of 8-bit integers, whose right side is a
// matrix.
func (o *MatMul) inferInteger(c *ir.Infer) error {
	a, b := c.In(0), c.In(1)
	if b.Rank() != 2 {
		return c.Errorf("the weight of a quantised product has rank %d, want 2", b.Rank())
	}
	if a.Rank() == 0 {
		return c.Errorf("input 0 is a scalar, want at least a vector")
	}
	dims, ok, err := matmulDims(c, a, b)
	if err != nil {
		return err
	}
	y := ir.Unranked(a.DType)
	if ok {
		y = ir.Of(a.DType, dims...)
	}
	return o.inferQuant(c, &o.Epilogue, y, b.Dims[1])
}

// matmulDims returns the dimensions of a MatMul-like product; ok is false where
// a rank is unknown.
func matmulDims(c *ir.Infer, a, b ir.Type) (dims []ir.Dim, ok bool, err error) {
	for i, t := range []ir.Type{a, b} {
		if t.Rank() == 0 {
			return nil, false, c.Errorf("input %d is a scalar, want at least a vector", i)
		}
	}
	if !a.Ranked || !b.Ranked {
		return nil, false, nil
	}
	m, n := a.Dims[:len(a.Dims)-1], b.Dims[len(b.Dims)-1:]
	ka, kb := a.Dims[len(a.Dims)-1], b.Dims[max(0, len(b.Dims)-2)]
	if differ(ka, kb) {
		return nil, false, c.Errorf("product of %v and %v: %v columns, want %v", a, b, ka, kb)
	}
	var la, lb []ir.Dim
	if len(m) > 0 {
		la, m = m[:len(m)-1], m[len(m)-1:]
	}
	if len(b.Dims) > 1 {
		lb = b.Dims[:len(b.Dims)-2]
	} else {
		n = nil
	}
	lead, _, err := broadcast(c, ir.Of(a.DType, la...), ir.Of(b.DType, lb...))
	if err != nil {
		return nil, false, c.Errorf("leading dimensions of %v and %v do not broadcast", a, b)
	}
	return append(append(lead, m...), n...), true, nil
}

// Eval multiplies each pair of matrices.
func (o *MatMul) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	if o.Quantised() {
		return o.evalQuant(&o.Epilogue, in, shapes[0], len(shapes[0])-1, 1, func(y *tensor.Tensor, in []*tensor.Tensor) {
			matmul[float64, float64](y, in[0], in[1])
		})
	}
	return viaF32(in, func(in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		y := tensor.New(in[0].DType(), shapes[0]...)
		switch y.DType() {
		case tensor.F32:
			matmul[float32, float64](y, in[0], in[1])
		case tensor.F64:
			matmul[float64, float64](y, in[0], in[1])
		case tensor.I32:
			matmul[int32, int64](y, in[0], in[1])
		case tensor.U32:
			matmul[uint32, int64](y, in[0], in[1])
		case tensor.I64:
			matmul[int64, int64](y, in[0], in[1])
		case tensor.U64:
			matmul[uint64, int64](y, in[0], in[1])
		}
		if b := optional(in, 2); b != nil {
			y = addBias(y, b)
		}
		return o.evalEpilogue(y, in)
	})
}

// matmulPlan lays out a MatMul as products of matrices that broadcasting pairs.
type matmulPlan struct {
	m, k, n int
	lead    []int
	strides [][]int // over lead, in matrices of A and of B
}

func newMatmulPlan(as, bs []int) matmulPlan {
	if len(as) == 1 {
		as = []int{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int{bs[0], 1}
	}
	p := matmulPlan{m: as[len(as)-2], k: as[len(as)-1], n: bs[len(bs)-1]}
	la, lb := as[:len(as)-2], bs[:len(bs)-2]
	if product(lb) == 1 && len(la) >= len(lb) { // one product of all rows
		p.m, la, lb = p.m*product(la), nil, nil
	}
	p.lead = broadcastShapes(la, lb)
	p.strides = [][]int{broadcastStrides(la, p.lead), broadcastStrides(lb, p.lead)}
	return p
}

// each calls f for each product with the offsets of its matrices in A, B and Y.
func (p matmulPlan) each(f func(a, b, y int)) {
	walkRows(p.lead, p.strides, func(at, count int, off, step []int) {
		for i := range count {
			f((off[0]+i*step[0])*p.m*p.k, (off[1]+i*step[1])*p.k*p.n, (at+i)*p.m*p.n)
		}
	})
}

// Forward multiplies each pair of matrices.
func (o *MatMul) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	if err := plainProduct(&o.Epilogue, o.Quantised(), in); err != nil {
		return nil, err
	}
	out := c.New(shapes[0]...)
	a, b, y := in[0].F32s(), in[1].F32s(), out.F32s()
	var beta float32
	if bias := optional(in, 2); bias != nil {
		beta = 1
		v := bias.F32s()
		for i := 0; i < len(y); i += len(v) {
			copy(y[i:], v)
		}
	}
	p := newMatmulPlan(in[0].Shape(), in[1].Shape())
	p.each(func(ai, bi, yi int) {
		c.Gemm(false, false, p.m, p.n, p.k, 1, a[ai:], p.k, b[bi:], p.n, beta, y[yi:], p.n)
	})
	return one(out)
}

// Grad multiplies the gradient of each product by both its factors.
func (o *MatMul) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if err := plainProduct(&o.Epilogue, o.Quantised(), in); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil {
		return din, nil
	}
	p := newMatmulPlan(in[0].Shape(), in[1].Shape())
	a, b, g := in[0].F32s(), in[1].F32s(), dout[0].F32s()
	if c.wants(0) {
		din[0] = c.Zeros(in[0].Shape()...)
		da := din[0].F32s()
		p.each(func(ai, bi, yi int) {
			c.Gemm(false, true, p.m, p.k, p.n, 1, g[yi:], p.n, b[bi:], p.n, 1, da[ai:], p.k)
		})
	}
	if c.wants(1) {
		din[1] = c.Zeros(in[1].Shape()...)
		db := din[1].F32s()
		p.each(func(ai, bi, yi int) {
			c.Gemm(true, false, p.k, p.n, p.m, 1, a[ai:], p.k, g[yi:], p.n, 1, db[bi:], p.n)
		})
	}
	if c.wants(2) {
		din[2] = c.sumTo(dout[0], in[2].Shape())
	}
	return din, nil
}

// matmul sets y to the product of a and b.
func matmul[T interface {
	summand
	tensor.Elem
}, S accum](y, a, b *tensor.Tensor) {
	as, bs := a.Shape(), b.Shape()
	if len(as) == 1 {
		as = []int{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int{bs[0], 1}
	}
	m, k, n := as[len(as)-2], as[len(as)-1], bs[len(bs)-1]
	la, lb := as[:len(as)-2], bs[:len(bs)-2]
	x, w, dst := tensor.Data[T](a), tensor.Data[T](b), tensor.Data[T](y)
	if product(lb) == 1 && len(la) >= len(lb) { // one product of all rows
		m, la, lb = m*product(la), nil, nil
	}
	lead := broadcastShapes(la, lb)
	walkRows(lead, [][]int{broadcastStrides(la, lead), broadcastStrides(lb, lead)}, func(at, count int, off, step []int) {
		for i := range count {
			d := dst[(at+i)*m*n:][:m*n]
			left, right := x[(off[0]+i*step[0])*m*k:][:m*k], w[(off[1]+i*step[1])*k*n:][:k*n]
			multiply(m, k, n, left, matrix[T, S](right, n, 1), func(i, j int, row []S) {
				narrowInto(d[i*n+j:], row)
			})
		}
	})
}

// narrowInto stores sums as elements, rounded or cut to their width.
func narrowInto[T summand, S accum](dst []T, row []S) {
	for i, v := range row {
		dst[i] = T(v)
	}
}

// Work counts the multiply-adds.
func (*MatMul) Work(in, out []ir.Type) ir.Work {
	return productWork(in, out, in[0].Dims[len(in[0].Dims)-1])
}

// productWork is the work of a product with k multiply-adds for each output.
func productWork(in, out []ir.Type, k ir.Dim) ir.Work {
	return streamWork(in, out, 2*float64(k.Size()))
}

// Weights returns B, a matrix up to leading ones, as W[N,K]: each row of A is a
// column of the product. Where B is no constant, A[M,K] is the weight, and each
// column of B one of the product.
func (*MatMul) Weights(n *ir.Node) []ir.Weight {
	var out []ir.Weight
	add := func(input int, view ir.View, cols ir.Dim) {
		out = append(out, ir.Weight{Input: input, View: view, Groups: 1, Cols: cols, Reuse: ir.Size(1)})
	}
	ra, rb := inputRank(n, 0), inputRank(n, 1)
	if rb >= 2 && ones(n.Inputs[1].Type.Dims[:rb-2]) {
		cols := n.Graph().Fresh()
		if ra > 0 {
			cols = ir.Mul(n.Inputs[0].Type.Dims[:ra-1]...)
		}
		perm := make([]int, rb)
		for i := range perm {
			perm[i] = i - 1
		}
		perm[0], perm[rb-1] = rb-1, rb-2
		add(1, ir.View{Perm: perm, RowAxes: 1}, cols)
	}
	if b := n.Input(1); ra == 2 && b != nil && !b.IsConst() {
		cols := n.Graph().Fresh()
		switch d := b.Type.Dims; {
		case rb == 1:
			cols = ir.Size(1)
		case rb > 1:
			cols = ir.Mul(append([]ir.Dim{d[rb-1]}, d[:rb-2]...)...)
		}
		add(0, ir.View{RowAxes: 1}, cols)
	}
	return out
}

// ones reports whether all dimensions are one.
func ones(dims []ir.Dim) bool {
	for _, d := range dims {
		if d != ir.Size(1) {
			return false
		}
	}
	return true
}

// Gemm is Y[M,N] = alpha A[M,K] B[K,N] + beta C, with A and B transposed on
// demand and C broadcast to Y.
type Gemm struct {
	Epilogue
	Quant
	Alpha  float32 `attr:"alpha,1"`
	Beta   float32 `attr:"beta,1"`
	TransA bool    `attr:"transA,0"`
	TransB bool    `attr:"transB,0"`
}

// Kind is Gemm.
func (*Gemm) Kind() string { return "Gemm" }

// Along follows the rows of A and the columns of B, as they are multiplied.
func (o *Gemm) Along(n *ir.Node, _, axis int) []int {
	in := broadcastAlong(n, len(n.Inputs), axis)
	switch {
	case in == nil || axis == 1 && o.Quantised(): // scales of columns are attributes
		return nil
	case axis == 0:
		in[0], in[1] = 0, Whole
		if o.TransA {
			in[0] = 1
		}
	default:
		in[0], in[1] = Whole, 1
		if o.TransB {
			in[1] = 0
		}
	}
	return in
}

// Infer checks K and that C broadcasts to Y.
func (o *Gemm) Infer(c *ir.Infer) error {
	if err := wantPresent(c, 2); err != nil {
		return err
	}
	if !o.Quantised() {
		if err := wantOneOf(c, 0, products); err != nil {
			return err
		}
		if err := wantAllSame(c); err != nil {
			return err
		}
	}
	a, b := c.In(0), c.In(1)
	for i, t := range []ir.Type{a, b} {
		if t.Ranked && t.Rank() != 2 {
			return c.Errorf("input %d has rank %d, want 2", i, t.Rank())
		}
	}
	m, ka := dimOf(c, a, 0), dimOf(c, a, 1)
	if o.TransA {
		m, ka = ka, m
	}
	kb, n := dimOf(c, b, 0), dimOf(c, b, 1)
	if o.TransB {
		kb, n = n, kb
	}
	if differ(ka, kb) {
		return c.Errorf("product of %v and %v: %v columns, want %v", a, b, ka, kb)
	}
	y := ir.Of(a.DType, m, n)
	if o.Quantised() {
		if o.Alpha != 1 || o.Beta != 1 || o.TransA {
			return c.Errorf("a quantised product has alpha %v, beta %v and transA %v, want 1, 1 and false", o.Alpha, o.Beta, o.TransA)
		}
		return o.inferQuant(c, &o.Epilogue, y, n)
	}
	if bias := c.In(2); c.Has(2) && bias.Ranked {
		for i := range bias.Dims {
			j := i + 2 - len(bias.Dims)
			if d := bias.Dims[i]; j < 0 || d != ir.Size(1) && differ(d, y.Dims[j]) {
				return c.Errorf("C is %v, want one that broadcasts to %v", bias, y)
			}
		}
	}
	c.Set(0, y)
	return o.inferEpilogue(c, y)
}

// Eval multiplies in sums wider than the elements and rounds once.
func (o *Gemm) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	if o.Quantised() {
		waxis := 1
		if o.TransB {
			waxis = 0
		}
		return o.evalQuant(&o.Epilogue, in, shapes[0], 1, waxis, func(y *tensor.Tensor, in []*tensor.Tensor) {
			gemm[float64, float64](o, y, in)
		})
	}
	return viaF32(in, func(in []*tensor.Tensor) ([]*tensor.Tensor, error) {
		y := tensor.New(in[0].DType(), shapes[0]...)
		switch y.DType() {
		case tensor.F32:
			gemm[float32, float64](o, y, in)
		case tensor.F64:
			gemm[float64, float64](o, y, in)
		case tensor.I32:
			gemm[int32, int64](o, y, in)
		case tensor.U32:
			gemm[uint32, int64](o, y, in)
		case tensor.I64:
			gemm[int64, int64](o, y, in)
		case tensor.U64:
			gemm[uint64, int64](o, y, in)
		}
		return o.evalEpilogue(y, in)
	})
}

// Forward multiplies.
func (o *Gemm) Forward(c *GradContext, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	if err := plainProduct(&o.Epilogue, o.Quantised(), in); err != nil {
		return nil, err
	}
	out := c.New(shapes[0]...)
	var beta float32
	if bias := optional(in, 2); bias != nil && o.Beta != 0 {
		beta = o.Beta
		tensor.Copy(out, bias, out.Shape(), 0, tensor.Strides(out.Shape()), 0, broadcastStrides(bias.Shape(), out.Shape()))
	}
	a, b := in[0], in[1]
	m, n := out.Dim(0), out.Dim(1)
	c.Gemm(o.TransA, o.TransB, m, n, a.Len()/m, o.Alpha, a.F32s(), a.Dim(1), b.F32s(), b.Dim(1), beta, out.F32s(), n)
	return one(out)
}

// Grad multiplies the gradient by both factors.
func (o *Gemm) Grad(c *GradContext, in, _, dout []*tensor.Tensor) ([]*tensor.Tensor, error) {
	if err := plainProduct(&o.Epilogue, o.Quantised(), in); err != nil {
		return nil, err
	}
	din := make([]*tensor.Tensor, len(in))
	if dout[0] == nil || dout[0].Len() == 0 {
		return din, nil
	}
	a, b, g := in[0], in[1], dout[0].F32s()
	m, n := dout[0].Dim(0), dout[0].Dim(1)
	k := a.Len() / m
	if c.wants(0) {
		din[0] = c.New(a.Shape()...)
		if o.TransA { // [K,M]
			c.Gemm(o.TransB, true, k, m, n, o.Alpha, b.F32s(), b.Dim(1), g, n, 0, din[0].F32s(), m)
		} else {
			c.Gemm(false, !o.TransB, m, k, n, o.Alpha, g, n, b.F32s(), b.Dim(1), 0, din[0].F32s(), k)
		}
	}
	if c.wants(1) {
		din[1] = c.New(b.Shape()...)
		if o.TransB { // [N,K]
			c.Gemm(true, o.TransA, n, k, m, o.Alpha, g, n, a.F32s(), a.Dim(1), 0, din[1].F32s(), k)
		} else {
			c.Gemm(!o.TransA, false, k, n, m, o.Alpha, a.F32s(), a.Dim(1), g, n, 0, din[1].F32s(), n)
		}
	}
	if c.wants(2) {
		d := c.New(in[2].Shape()...)
		for i, v := range c.sumTo(dout[0], in[2].Shape()).F32s() {
			d.F32s()[i] = v * o.Beta
		}
		din[2] = d
	}
	return din, nil
}

func gemm[T interface {
	summand
	tensor.Elem
}, S accum](o *Gemm, y *tensor.Tensor, in []*tensor.Tensor) {
	a, b := in[0], in[1]
	if o.TransA {
		a = a.Permute(1, 0)
	}
	m, k, n := a.Dim(0), a.Dim(1), y.Dim(1)
	right := matrix[T, S](tensor.Data[T](b), n, 1)
	if o.TransB {
		right = matrix[T, S](tensor.Data[T](b), 1, k)
	}
	var bias []T
	var strides []int
	if c := optional(in, 2); c != nil && o.Beta != 0 { // zero hides what C holds, as in BLAS
		bias, strides = tensor.Data[T](c), broadcastStrides(c.Shape(), y.Shape())
	}
	dst := tensor.Data[T](y)
	multiply(m, k, n, tensor.Data[T](a), right, func(i, j int, row []S) {
		d := dst[i*n+j:][:len(row)]
		for t, v := range row {
			v = scale(v, o.Alpha)
			if bias != nil {
				v += scale(S(bias[i*strides[0]+(j+t)*strides[1]]), o.Beta)
			}
			d[t] = T(v)
		}
	})
}

// scale returns v times f, without a detour through floating point where f is 1.
func scale[S accum](v S, f float32) S {
	if f == 1 {
		return v
	}
	return S(float64(v) * float64(f))
}

// Work counts the multiply-adds.
func (o *Gemm) Work(in, out []ir.Type) ir.Work {
	k := in[0].Dims[1]
	if o.TransA {
		k = in[0].Dims[0]
	}
	return productWork(in, out, k)
}

// Weights returns B as W[N,K]; each row of A is a column of the product.
func (o *Gemm) Weights(n *ir.Node) []ir.Weight {
	if inputRank(n, 1) != 2 {
		return nil
	}
	view := ir.View{Perm: []int{1, 0}, RowAxes: 1}
	if o.TransB {
		view.Perm = nil
	}
	cols := n.Graph().Fresh()
	if inputRank(n, 0) == 2 {
		if cols = n.Inputs[0].Type.Dims[0]; o.TransA {
			cols = n.Inputs[0].Type.Dims[1]
		}
	}
	return []ir.Weight{{Input: 1, View: view, Groups: 1, Cols: cols, Reuse: ir.Size(1)}}
}

// upgradeGemm drops what opsets below 7 said of broadcasting C.
func upgradeGemm(l *Legacy) error {
	l.Take("broadcast")
	return nil
}

// addBias adds b[N] to the rows of y, both of one floating-point type.
func addBias(y, b *tensor.Tensor) *tensor.Tensor {
	v, w := y.Float64s(), b.Float64s()
	for i := range v {
		v[i] += w[i%len(w)]
	}
	return tensor.FromFloat64s(y.DType(), v, y.Shape()...)
}
