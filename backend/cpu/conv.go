package cpu

import (
	"slices"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindConv computes a convolution as the product of W[M, C/group*k...] with the
// patches X[C/group*k..., pixels] of each image, panel by panel: no patch matrix
// is ever in memory. A depthwise convolution runs on the planes directly.
func bindConv(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Conv)
	if b, err := bindDepthwise(p, n); b != nil || err != nil {
		return b, err
	}
	ref, kernels, err := p.weightOf(n, 1)
	bias, ok := constantF32(n, 2)
	if err != nil || kernels == nil || !ok || !f32(n) {
		return nil, err
	}
	xs, ws, ys := shapeOf(n.Inputs[0]), n.Inputs[1].Type, shapeOf(n.Outputs[0])
	wshape, _ := ws.Shape()
	spans, out, err := o.Geometry(xs, wshape)
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if slices.Contains(ys, 0) {
		return nil, nil
	}
	g := convGeometry{
		spans: spans, in: xs[2:], out: out, channels: wshape[1], images: xs[0],
		inPlane: prod(xs[2:]), outPlane: prod(out), rows: ys[1] / ref.Groups, groups: ref.Groups,
		taps: prod(wshape[2:]),
	}
	ep := newEpilogue(n, &o.Epilogue, bias)
	return g.bind(kernels, ep, func(tap, col, count int, f func(j, n, p int)) {
		op.TapRuns(g.spans, g.out, g.in, tap, col, count, f)
	}), nil
}

// bindConvTranspose computes a transposed convolution with one group as the
// product of W[M, C*k...] with patches of the input as seen from the output: tap
// t of output pixel o reads the input pixel i with i*stride + t*dilation - begin
// = o, zero where there is none.
func bindConvTranspose(p *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.ConvTranspose)
	ref, kernels, err := p.weightOf(n, 1)
	bias, ok := constantF32(n, 2)
	if err != nil || kernels == nil || !ok || !f32(n) || ref.Groups != 1 {
		return nil, err
	}
	xs, ys := shapeOf(n.Inputs[0]), shapeOf(n.Outputs[0])
	wshape, _ := n.Inputs[1].Type.Shape()
	spans, out, err := o.Geometry(xs[2:], wshape[2:])
	if err != nil {
		return nil, n.Errorf(ir.ErrInvalid, "%v", err)
	}
	if slices.Contains(ys, 0) || slices.Contains(xs, 0) {
		return nil, nil
	}
	g := convGeometry{
		spans: spans, in: xs[2:], out: out, channels: xs[1], images: xs[0],
		inPlane: prod(xs[2:]), outPlane: prod(out), rows: ys[1], groups: 1, taps: prod(wshape[2:]), transposed: true,
	}
	return g.bind(kernels, newEpilogue(n, &o.Epilogue, bias), g.transposedRuns), nil
}

// transposedRuns yields, one by one, the output pixels col to col+count that a tap
// feeds and the input pixels that it reads.
func (g *convGeometry) transposedRuns(tap, col, count int, f func(j, n, p int)) {
next:
	for j := col; j < col+count; j++ {
		o, t, pos, scale := j, tap, 0, 1
		for d := len(g.spans) - 1; d >= 0; d-- {
			s := g.spans[d]
			q := o%g.out[d] + s.Begin - t%s.Kernel*s.Dilation
			if q < 0 || q%s.Stride != 0 || q/s.Stride >= g.in[d] {
				continue next
			}
			pos += q / s.Stride * scale
			scale *= g.in[d]
			o /= g.out[d]
			t /= s.Kernel
		}
		f(j, 1, pos)
	}
}

// convGeometry is the shape of a convolution.
type convGeometry struct {
	spans             []op.Span
	in, out           []int // spatial sizes
	inPlane, outPlane int
	images, groups    int
	channels, rows    int // of one group
	taps              int
	transposed        bool
}

// pointwise reports whether the patches are the pixels themselves.
func (g *convGeometry) pointwise() bool {
	if g.transposed {
		return false
	}
	for _, s := range g.spans {
		if s.Kernel != 1 || s.Stride != 1 || s.Begin != 0 || s.End != 0 {
			return false
		}
	}
	return true
}

// tapRun is a run of columns of a panel that read neighbouring pixels.
type tapRun struct{ col, n, pos int }

// runLister yields the runs of the columns col to col+count that a tap feeds:
// column j+i reads pixel p+i*stride, i below n.
type runLister func(tap, col, count int, f func(j, n, p int))

// bind makes the kernel.
func (g *convGeometry) bind(kernels []backend.Kernel, ep epilogue, list runLister) *bound {
	k := g.channels * g.taps
	step := g.spans[len(g.spans)-1].Stride
	pointwise := g.pointwise()
	images := make([]int, g.images)
	for i := range images {
		images[i] = g.outPlane
	}
	run := func(x *exec, in, out []*tensor.Tensor) error {
		xs, ys := in[0].F32s(), out[0].F32s()
		var res []float32
		if ep.residual >= 0 {
			res = in[ep.residual].F32s()
		}
		for group, kernel := range kernels {
			p := product{kernel: kernel, m: g.rows, k: k, groups: images}
			p.load = func(panel []float32, img, col, n int) {
				src := xs[(img*g.groups+group)*g.channels*g.inPlane:][:g.channels*g.inPlane]
				if pointwise {
					loadRows(panel, src, g.channels, g.inPlane, col, n)
					return
				}
				g.loadPatches(panel, src, list, step, col, n)
			}
			p.store = func(y []float32, r0, rows, img, col, n int) {
				for r := range rows {
					m := group*g.rows + r0 + r
					at := (img*g.groups*g.rows+m)*g.outPlane + col
					var rs []float32
					if res != nil {
						rs = res[at : at+n]
					}
					ep.apply(ys[at:at+n], y[r*backend.Panel:][:n], m, rs)
				}
			}
			p.run(x)
		}
		return nil
	}
	b := &bound{run: run, inplace: -1}
	for _, kernel := range kernels {
		b.scratch = max(b.scratch, (&product{kernel: kernel, k: k}).scratch())
	}
	return b
}

// loadPatches writes the patches of the output pixels col to col+n of one image
// into a panel: row c*taps+t holds what tap t reads of channel c.
func (g *convGeometry) loadPatches(panel, x []float32, list runLister, step, col, n int) {
	var buf [backend.Panel]tapRun
	for t := range g.taps {
		runs := buf[:0]
		covered := 0
		list(t, col, n, func(j, n, p int) {
			runs = append(runs, tapRun{j - col, n, p})
			covered += n
		})
		for c := range g.channels {
			row := panel[(c*g.taps+t)*backend.Panel:][:backend.Panel]
			if covered < backend.Panel {
				clear(row)
			}
			plane := x[c*g.inPlane:][:g.inPlane]
			for _, r := range runs {
				if step == 1 {
					copy(row[r.col:r.col+r.n], plane[r.pos:])
					continue
				}
				pos := r.pos
				for j := r.col; j < r.col+r.n; j++ {
					row[j] = plane[pos]
					pos += step
				}
			}
		}
	}
}
