package op

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

func TestMatMulBroadcastsMatrices(t *testing.T) {
	const seed = 21
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct{ a, b, y []int }{
		{[]int{5}, []int{5}, []int{}},
		{[]int{5}, []int{5, 3}, []int{3}},
		{[]int{2, 5}, []int{5}, []int{2}},
		{[]int{300, 5}, []int{5, 270}, []int{300, 270}},
		{[]int{4, 2, 140}, []int{140, 3}, []int{4, 2, 3}},
		{[]int{2, 5}, []int{4, 5, 3}, []int{4, 2, 3}},
		{[]int{2, 1, 2, 7}, []int{3, 7, 3}, []int{2, 3, 2, 3}},
		{[]int{1, 3, 2, 7}, []int{2, 1, 7, 3}, []int{2, 3, 2, 3}},
		{[]int{0, 2, 5}, []int{5, 3}, []int{0, 2, 3}},
		{[]int{2, 0}, []int{0, 3}, []int{2, 3}},
	} {
		for _, dt := range products {
			lim := dt
			if dt == tensor.U32 || dt == tensor.U64 {
				lim = tensor.U8
			}
			a, b := noise(r, lim, c.a...).To(dt), noise(r, lim, c.b...).To(dt)
			y := evals(t, "MatMul", 1, a, b)[0]
			want := tensor.New(tensor.F64, c.y...)
			x, w, d := a.Float64s(), b.Float64s(), tensor.Data[float64](want)
			if len(c.a) == 1 {
				a = a.Reshape(1, c.a[0])
			}
			if len(c.b) == 1 {
				b = b.Reshape(c.b[0], 1)
			}
			m, k, n := a.Dim(-2), a.Dim(-1), b.Dim(-1)
			la, lb := a.Shape()[:a.Rank()-2], b.Shape()[:b.Rank()-2]
			lead := broadcastShapes(la, lb)
			sa, sb := broadcastStrides(la, lead), broadcastStrides(lb, lead)
			for i := range d {
				p, q := 0, 0
				for axis, at := range coords(i/(m*n), lead) {
					p += at * sa[axis]
					q += at * sb[axis]
				}
				for j := range k {
					d[i] += x[(p*m+i/n%m)*k+j] * w[(q*k+j)*n+i%n]
				}
			}
			if d := far(t, y.To(tensor.F64), want.To(dt).To(tensor.F64)); d != 0 {
				t.Errorf("%v x %v is off by %g", a, b, d)
			}
		}
	}
}

func TestGemmIsScaledMatMul(t *testing.T) {
	const seed = 22
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 16 {
		ta, tb := i&1, i>>1&1
		dt := []tensor.DType{tensor.F32, tensor.I32, tensor.F64, tensor.F16}[i/4]
		a, b := noise(r, dt, 3, 150), noise(r, dt, 150, 4)
		want := evals(t, "MatMul", 1, a, b)[0]
		if ta == 1 {
			a = a.Permute(1, 0)
		}
		if tb == 1 {
			b = b.Permute(1, 0)
		}
		for _, bias := range [][]int{{3, 4}, {4}, {1, 4}, {3, 1}, {1}, {}} {
			c := noise(r, dt, bias...)
			y := evals(t, fmt.Sprintf("Gemm {alpha = 2.0, beta = -1.0, transA = %d, transB = %d}", ta, tb), 1, a, b, c)[0]
			v, e := want.Float64s(), c.Expand(3, 4).Float64s()
			for j := range v {
				v[j] = 2*v[j] - e[j]
			}
			if d := far(t, y, fromFloats(dt, v, 3, 4)); d != 0 {
				t.Errorf("%v, transA %d, transB %d, C %v: off by %g", dt, ta, tb, bias, d)
			}
		}
	}
}

// TestWeightViewsGiveTheProduct multiplies the matrix that an operator says its
// weight is by the operator's input as a matrix.
func TestWeightViewsGiveTheProduct(t *testing.T) {
	const seed = 23
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	tr := []int{1, 0}
	for _, c := range []struct {
		node    string // with the weight %w and the input %x
		w, x    []int
		columns func(x *tensor.Tensor) *tensor.Tensor // X[K,N]
		result  func(y *tensor.Tensor) *tensor.Tensor // Y[M,N]
		want    string
	}{
		{`MatMul "n" (%x, %w)`, []int{5, 3}, []int{2, 4, 5},
			func(x *tensor.Tensor) *tensor.Tensor { return x.Reshape(8, 5).Permute(tr...) },
			func(y *tensor.Tensor) *tensor.Tensor { return y.Reshape(8, 3).Permute(tr...) }, "M 3 K 5 N 8 groups 1"},
		{`MatMul "n" (%x, %w)`, []int{1, 1, 5, 3}, []int{4, 5},
			func(x *tensor.Tensor) *tensor.Tensor { return x.Permute(tr...) },
			func(y *tensor.Tensor) *tensor.Tensor { return y.Reshape(4, 3).Permute(tr...) }, "M 3 K 5 N 4 groups 1"},
		{`MatMul "n" (%w, %x)`, []int{3, 5}, []int{5, 4}, nil, nil, "M 3 K 5 N 4 groups 1"},
		{`Gemm "n" (%x, %w)`, []int{5, 3}, []int{4, 5},
			func(x *tensor.Tensor) *tensor.Tensor { return x.Permute(tr...) },
			func(y *tensor.Tensor) *tensor.Tensor { return y.Permute(tr...) }, "M 3 K 5 N 4 groups 1"},
		{`Gemm "n" (%x, %w) {transA = 1, transB = 1}`, []int{3, 5}, []int{5, 4}, nil,
			func(y *tensor.Tensor) *tensor.Tensor { return y.Permute(tr...) }, "M 3 K 5 N 4 groups 1"},
		{`Conv "n" (%x, %w)`, []int{3, 5, 1, 1}, []int{1, 5, 2, 2},
			func(x *tensor.Tensor) *tensor.Tensor { return x.Reshape(5, 4) },
			func(y *tensor.Tensor) *tensor.Tensor { return y.Reshape(3, 4) }, "M 3 K 5 N 4 groups 1"},
		{`Conv "n" (%x, %w)`, []int{3, 5, 2, 2}, []int{1, 5, 2, 2},
			func(x *tensor.Tensor) *tensor.Tensor { return x.Reshape(20, 1) },
			func(y *tensor.Tensor) *tensor.Tensor { return y.Reshape(3, 1) }, "M 3 K 20 N 1 groups 1"},
		{`ConvTranspose "n" (%x, %w)`, []int{5, 3, 1}, []int{1, 5, 4},
			func(x *tensor.Tensor) *tensor.Tensor { return x.Reshape(5, 4) },
			func(y *tensor.Tensor) *tensor.Tensor { return y.Reshape(3, 4) }, "M 3 K 5 N 4 groups 1"},
	} {
		g, err := ir.Parse(fmt.Sprintf(`graph "g"(%%x: f32%s, %%w: f32%s) { %%y: f32[*] = %s return %%y }`,
			ints(c.x), ints(c.w), c.node), Registry)
		if err == nil {
			err = g.Infer()
		}
		if err != nil {
			t.Fatalf("%s: %v", c.node, err)
		}
		n := g.Nodes[0]
		weights := n.Op.(ir.WeightOp).Weights(n)
		var weight *ir.Weight
		in := make([]*tensor.Tensor, len(n.Inputs))
		x, w := noise(r, tensor.F32, c.x...), noise(r, tensor.F32, c.w...)
		for i, v := range n.Inputs {
			if in[i] = x; v.Name == "w" {
				in[i] = w
				for k := range weights {
					if weights[k].Input == i {
						weight = &weights[k]
					}
				}
			}
		}
		if weight == nil {
			t.Errorf("%s: no weight among %v", c.node, weights)
			continue
		}
		m, k := weight.View.Dims(c.w)
		if have := fmt.Sprintf("M %d K %d N %v groups %d", m, k, weight.Cols, weight.Groups); have != c.want {
			t.Errorf("%s: %s, want %s", c.node, have, c.want)
		}
		out, err := n.Op.Eval(&ir.Eval{Outputs: 1}, in)
		if err != nil {
			t.Fatal(err)
		}
		y := out[0]
		if c.columns != nil {
			x = c.columns(x)
		}
		if c.result != nil {
			y = c.result(y)
		}
		if d := far(t, evals(t, "MatMul", 1, weight.View.Matrix(w), x)[0], y); d != 0 {
			t.Errorf("%s: W X is off by %g", c.node, d)
		}
	}
}

func TestWeightsOfSymbolicAndMalformedNodes(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{`Conv "n" (%x, %w) {group = 2, pads = [1, 1, 1, 1]}`, "[1: 1 rows, groups 2, N H*W*batch, reuse 1]"},
		{`ConvTranspose "n" (%x, %w) {group = 2}`, "[]"},
		{`MatMul "n" (%x, %m)`, "[1: 1 rows, groups 1, N 4*H*batch, reuse 1]"},
		{`MatMul "n" (%m, %x)`, "[0: 1 rows, groups 1, N 4*W*batch, reuse 1]"},
		{`Gemm "n" (%u, %m)`, "[1: 1 rows, groups 1, N ?, reuse 1]"},
		{`LSTM "n" (%s, %k, %k) {direction = "bidirectional"}`, "[1: 2 rows, groups 1, N batch*seq, reuse 1 2: 2 rows, groups 1, N batch, reuse seq]"},
		{`GRU "n" (%s, %k, %k) {layout = 1}`, "[1: 2 rows, groups 1, N batch*seq, reuse 1 2: 2 rows, groups 1, N seq, reuse batch]"},
		{`Conv "n" (%x, %m)`, "[]"},
		{`Conv "n" (%x, _)`, "[]"},
		{`Conv "n" ()`, "[]"},
		{`ConvTranspose "n" (%x)`, "[]"},
		{`MatMul "n" (%u, %u)`, "[]"},
		{`MatMul "n" ()`, "[]"},
		{`Gemm "n" (_, %x)`, "[]"},
		{`RNN "n" (%u, _, %u)`, "[]"},
	} {
		g, err := ir.Parse(`graph "g"(%x: f32[batch,4,H,W], %w: f32[8,2,3,3], %m: f32[5,5], %u: f32[*], %s: f32[seq,batch,5], %k: f32[2,20,5]) {
  %y: f32[*] = `+c.node+`
  return %y
}`, lenient{})
		if err != nil {
			t.Fatal(err)
		}
		n := g.Nodes[0]
		_ = n.Infer() // sets what it can; some of the nodes are malformed
		var have []string
		for _, w := range n.Op.(ir.WeightOp).Weights(n) {
			cols := w.Cols.String()
			if w.Cols.Fresh() {
				cols = "?"
			}
			have = append(have, fmt.Sprintf("%d: %d rows, groups %d, N %s, reuse %v", w.Input, w.View.RowAxes, w.Groups, cols, w.Reuse))
		}
		if fmt.Sprint(have) != c.want {
			t.Errorf("%s: %v, want %s", c.node, have, c.want)
		}
	}
}

func TestProductRefusals(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{`MatMul "n" (%a, %a)`, "n (MatMul): product of f32[2,3] and f32[2,3]: 3 columns, want 2"},
		{`MatMul "n" (%s, %a)`, "n (MatMul): input 0 is a scalar, want at least a vector"},
		{`MatMul "n" (%b, %c)`, "n (MatMul): leading dimensions of f32[4,2,3] and f32[5,3,2] do not broadcast"},
		{`MatMul "n" (%a)`, "n (MatMul): input 1 is absent"},
		{`Gemm "n" (%a, %b)`, "n (Gemm): input 1 has rank 3, want 2"},
		{`Gemm "n" (%a, %a)`, "n (Gemm): product of f32[2,3] and f32[2,3]: 3 columns, want 2"},
		{`Gemm "n" (%a, %a, %a) {transB = 1}`, "n (Gemm): C is f32[2,3], want one that broadcasts to f32[2,2]"},
	} {
		err := inferError(t, `graph "g"(%a: f32[2,3], %b: f32[4,2,3], %c: f32[5,3,2], %s: f32[]) { %z: f32[*] = `+c.node+` return %z }`)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.node, err, c.want)
		}
	}
}
