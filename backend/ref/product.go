package ref

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"spc/ir"
	"spc/ir/tensor"
)

// products lists the operators that the interpreter evaluates by code of its own, which
// nothing else uses. Each takes f32 inputs that inference has accepted and the shape of
// the output.
var products = map[string]func(ctx context.Context, n *ir.Node, in []*tensor.Tensor, shape []int) *tensor.Tensor{
	"Conv":   conv,
	"Gemm":   gemm,
	"MatMul": matmul,
}

// product evaluates n where it is one of the products of ONNX between f32 tensors; it
// returns nil where it is not, or where the fuse and quant passes have added to it.
func product(ctx context.Context, n *ir.Node, in []*tensor.Tensor) (*tensor.Tensor, error) {
	f := products[n.Op.Kind()]
	if f == nil {
		return nil, nil
	}
	for i, t := range in {
		if t != nil && (t.DType() != tensor.F32 || t.Len() == 0 || i > 2 || i > 1 && n.Op.Kind() == "MatMul") {
			return nil, nil
		}
	}
	for _, a := range ir.Attrs(n.Op) { // none that ONNX does not have
		if len(a.Name) > 4 && a.Name[:4] == "spc_" {
			return nil, nil
		}
	}
	types, err := n.InferFor(in)
	if err != nil {
		return nil, err
	}
	shape, ok := types[0].Shape()
	if elems, err := tensor.Elems(shape); !ok || err != nil || elems == 0 {
		return nil, nil
	}
	y := f(ctx, n, in, shape)
	return y, ctx.Err()
}

// The tile of the output that one goroutine computes at a time.
const (
	tileRows = 256
	tileCols = 32
)

// multiply sums, in float64 and in ascending order of p, a[i,p] x[p,j] for all rows i of
// the row-major a[m,k] and all columns j, and calls store with each sum once, from
// several goroutines. columns writes columns j to j+n of x to dst, one after the other.
// Where ctx is done, sums are left out.
func multiply(ctx context.Context, m, n, k int, a []float64, columns func(dst []float64, j, n int), store func(i, j int, sum float64)) {
	across := (n + tileCols - 1) / tileCols
	tiles := across * ((m + tileRows - 1) / tileRows)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), tiles) {
		wg.Go(func() {
			x := make([]float64, min(n, tileCols)*k)
			for ctx.Err() == nil {
				t := int(next.Add(1)) - 1
				if t >= tiles {
					return
				}
				i, j := t/across*tileRows, t%across*tileCols
				nn := min(tileCols, n-j)
				columns(x[:nn*k], j, nn)
				tile(a[i*k:][:min(tileRows, m-i)*k], x[:nn*k], k, func(r, c int, sum float64) { store(i+r, j+c, sum) })
			}
		})
	}
	wg.Wait()
}

// tile calls store with the products of each row of a and each row of x, of k elements.
func tile(a, x []float64, k int, store func(i, j int, sum float64)) {
	for j := 0; j < len(x)/k; j += 4 {
		if j+4 > len(x)/k { // fewer than four are left
			for ; j < len(x)/k; j++ {
				for i := range len(a) / k {
					var s float64
					for p, v := range a[i*k:][:k] {
						s += float64(v * x[j*k+p])
					}
					store(i, j, s)
				}
			}
			return
		}
		x0, x1, x2, x3 := x[j*k:][:k], x[(j+1)*k:][:k], x[(j+2)*k:][:k], x[(j+3)*k:][:k]
		for i := range len(a) / k {
			var s0, s1, s2, s3 float64
			for p, v := range a[i*k:][:k] {
				s0 += float64(v * x0[p])
				s1 += float64(v * x1[p])
				s2 += float64(v * x2[p])
				s3 += float64(v * x3[p])
			}
			store(i, j, s0)
			store(i, j+1, s1)
			store(i, j+2, s2)
			store(i, j+3, s3)
		}
	}
}

// matmul is Y[..,M,N] = A[..,M,K] B[..,K,N].
func matmul(ctx context.Context, _ *ir.Node, in []*tensor.Tensor, shape []int) *tensor.Tensor {
	as, bs := in[0].Shape(), in[1].Shape()
	if len(as) == 1 {
		as = []int{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int{bs[0], 1}
	}
	m, k, n := as[len(as)-2], as[len(as)-1], bs[len(bs)-1]
	a, b := in[0].Float64s(), in[1].F32s()
	y := tensor.New(tensor.F32, shape...)
	la, lb := as[:len(as)-2], bs[:len(bs)-2]
	rank := max(len(la), len(lb))
	for at := range y.Len() / (m * n) { // a pair of matrices
		// The index of the pair, from the last axis on, in A and in B.
		ai, bi, astep, bstep, rest := 0, 0, 1, 1, at
		for axis := 1; axis <= rank; axis++ {
			da, db := 1, 1
			if axis <= len(la) {
				da = la[len(la)-axis]
			}
			if axis <= len(lb) {
				db = lb[len(lb)-axis]
			}
			i := rest % max(da, db)
			rest /= max(da, db)
			ai += i % da * astep
			bi += i % db * bstep
			astep *= da
			bstep *= db
		}
		w, dst := b[bi*k*n:][:k*n], y.F32s()[at*m*n:][:m*n]
		multiply(ctx, m, n, k, a[ai*m*k:][:m*k], func(cols []float64, j, jn int) {
			for p := range k {
				for c := range jn {
					cols[c*k+p] = float64(w[p*n+j+c])
				}
			}
		}, func(i, j int, sum float64) { dst[i*n+j] = float32(sum) })
	}
	return y
}

// gemm is Y[M,N] = alpha A[M,K] B[K,N] + beta C, with A and B transposed on demand.
func gemm(ctx context.Context, n *ir.Node, in []*tensor.Tensor, shape []int) *tensor.Tensor {
	flag := func(name string) bool { v, _ := ir.AttrOf(n.Op, name).(int); return v != 0 }
	scale := func(name string) float64 { v, _ := ir.AttrOf(n.Op, name).(float32); return float64(v) }
	a, b := in[0], in[1].F32s()
	if flag("transA") {
		a = a.Permute(1, 0)
	}
	rows, cols, k := shape[0], shape[1], a.Dim(1)
	down, right := cols, 1 // from one element of B to the next in its column, and in its row
	if flag("transB") {
		down, right = 1, k
	}
	alpha, beta := scale("alpha"), scale("beta")
	c := func(int, int) float64 { return 0 }
	if len(in) > 2 && in[2] != nil && beta != 0 { // else whatever C holds
		bias, shape := in[2].F32s(), append([]int{1, 1}[min(2, in[2].Rank()):], in[2].Shape()...)
		c = func(i, j int) float64 { return float64(bias[i%shape[0]*shape[1]+j%shape[1]]) }
	}
	y := tensor.New(tensor.F32, shape...)
	multiply(ctx, rows, cols, k, a.Float64s(), func(dst []float64, j, jn int) {
		for i := range jn {
			for p := range k {
				dst[i*k+p] = float64(b[p*down+(j+i)*right])
			}
		}
	}, func(i, j int, sum float64) { y.F32s()[i*cols+j] = float32(alpha*sum + beta*c(i, j)) })
	return y
}

// conv multiplies, for each image and group, the weight W[M,C*taps] by the patches that
// the taps see at each output pixel; what lies in the padding is zero.
func conv(ctx context.Context, n *ir.Node, in []*tensor.Tensor, shape []int) *tensor.Tensor {
	x, w := in[0].F32s(), in[1].Float64s()
	size, kernel, out := in[0].Shape()[2:], in[1].Shape()[2:], shape[2:]
	ints := func(name string, def int) []int {
		if v, _ := ir.AttrOf(n.Op, name).([]int); len(v) > 0 {
			return v
		}
		return slices.Repeat([]int{def}, len(size))
	}
	stride, dilation, begin := ints("strides", 1), ints("dilations", 1), ints("pads", 0)
	auto, _ := ir.AttrOf(n.Op, "auto_pad").(string)
	if auto != "" && auto != "NOTSET" {
		begin = make([]int, len(size))
	}
	for i := range size { // padding so that the last window ends where the image does
		all := max(0, (out[i]-1)*stride[i]+(kernel[i]-1)*dilation[i]+1-size[i])
		switch auto {
		case "SAME_UPPER":
			begin[i] = all / 2
		case "SAME_LOWER":
			begin[i] = all - all/2
		}
	}
	groups, _ := ir.AttrOf(n.Op, "group").(int)
	taps, pixels, plane := count(kernel), count(out), count(size)
	channels, m := in[1].Dim(1), shape[1]/groups
	k := channels * taps
	y := tensor.New(tensor.F32, shape...)
	for at := range shape[0] * groups {
		g := at % groups
		src, dst := x[at*channels*plane:][:channels*plane], y.F32s()[at*m*pixels:][:m*pixels]
		multiply(ctx, m, pixels, k, w[g*m*k:][:m*k], func(cols []float64, j, jn int) {
			for pixel := j; pixel < j+jn; pixel++ {
				for tap := range taps {
					p, inside := place(pixel, tap, out, kernel, size, stride, dilation, begin)
					for c := range channels {
						v := 0.0
						if inside {
							v = float64(src[c*plane+p])
						}
						cols[(pixel-j)*k+c*taps+tap] = v
					}
				}
			}
		}, func(i, j int, sum float64) {
			if len(in) > 2 && in[2] != nil {
				sum += float64(in[2].F32s()[g*m+i])
			}
			dst[i*pixels+j] = float32(sum)
		})
	}
	return y
}

// place returns which pixel of an image a tap sees at an output pixel, all of them
// numbered in row-major order; inside is false in the padding.
func place(pixel, tap int, out, kernel, size, stride, dilation, begin []int) (p int, inside bool) {
	step := 1
	for i := len(size) - 1; i >= 0; i-- {
		at := pixel%out[i]*stride[i] + tap%kernel[i]*dilation[i] - begin[i]
		if at < 0 || at >= size[i] {
			return 0, false
		}
		p += at * step
		step *= size[i]
		pixel /= out[i]
		tap /= kernel[i]
	}
	return p, true
}

// count is the number of elements of a shape.
func count(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
