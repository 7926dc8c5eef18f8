package cpu

import (
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindPhased computes a transposed convolution of planes, each with windows of its own: a row of the output is woven of those
// that its phases are of a padded copy of the plane. It is nil for others.
func bindPhased(n *ir.Node, g *convGeometry, ep epilogue) (*bound, error) {
	const most, mostRows, together = 1 << 24, 4, 1 << 11
	spans, in, out := g.spans, g.in, g.out
	if len(spans) == 1 {
		spans = append([]op.Span{{Kernel: 1, Stride: 1, Dilation: 1}}, spans...)
		in, out = []int{1, in[0]}, []int{1, out[0]}
	}
	if len(spans) != 2 || g.channels > 1 || g.rows > mostRows || !n.Inputs[1].IsConst() {
		return nil, nil
	}
	f := &phased{geo: g, in: in, out: out, ep: ep}
	f.down, f.top, f.height = padded(phases(spans[0], in[0], out[0]), in[0])
	f.across, f.left, f.width = padded(phases(spans[1], in[1], out[1]), in[1])
	if f.height > most/f.width {
		return nil, nil
	}
	if len(f.across) == 0 { // no tap reaches a pixel
		f.down = nil
	}
	f.rows = max(1, together/f.width)
	w, err := elementsOf(n)
	if err != nil {
		return nil, err
	}
	for _, a := range f.down {
		for _, b := range f.across {
			var offset, taps []int
			for i, t := range a.taps {
				for j, u := range b.taps {
					taps = append(taps, t*spans[1].Kernel+u)
					offset = append(offset, (f.top-a.window.Begin+i*a.window.Dilation)*f.width+f.left-b.window.Begin+j*b.window.Dilation)
				}
			}
			f.offset = append(f.offset, offset)
			f.weight = append(f.weight, g.ofTaps(w, taps).F32s())
		}
	}
	if ep.bias == nil {
		f.ep.bias = make([]float32, g.groups*g.rows)
	}
	return f.bound(), nil
}

// phased is such a convolution over two axes.
type phased struct {
	geo          *convGeometry
	in, out      []int
	down, across []axisPiece
	// The padded copy of a plane, and where in it the plane begins.
	height, width, top, left int
	rows                     int     // of a piece that are computed at a time
	offset                   [][]int // of the taps of a pair of pieces in the copy
	weight                   [][]float32
	ep                       epilogue
}

// padded returns how many pixels before an axis its pieces see, and of how many in all.
func padded(list []axisPiece, in int) (_ []axisPiece, before, all int) {
	for _, p := range list {
		before = max(before, p.window.Begin)
	}
	all = before + in
	for _, p := range list {
		all = max(all, before-p.window.Begin+p.count+p.window.Extent()-1)
	}
	return list, before, all
}

func (f *phased) bound() *bound {
	g, size := f.geo, f.height*f.width
	return &bound{inplace: -1, planes: true, scratch: size + len(f.across)*f.rows*f.width, prepare: func(x *exec, ins, outs []*tensor.Tensor) func() error {
		var src, dst, res []float32
		body := func(worker, i int) {
			copied, parts := x.scratch[worker][:size], x.scratch[worker][size:]
			clear(copied)
			for r := range f.in[0] {
				copy(copied[(f.top+r)*f.width+f.left:], src[i*g.inPlane+r*f.in[1]:][:f.in[1]])
			}
			for m := range g.rows {
				at := (i*g.rows + m) * g.outPlane
				y, r := dst[at:][:g.outPlane], []float32(nil)
				if res != nil {
					r = res[at:][:g.outPlane]
				}
				f.plane(y, r, copied, i%g.groups*g.rows+m, parts)
			}
		}
		return func() error {
			if src, dst = ins[0].F32s(), outs[0].F32s(); f.ep.residual >= 0 {
				res = ins[f.ep.residual].F32s()
			}
			x.pool.For(g.images*g.groups, body)
			return nil
		}
	}}
}

// plane computes plane m of an image's output of a padded copy. parts has room for some rows of
// each piece.
func (f *phased) plane(y, res, x []float32, m int, parts []float32) {
	bias, lo, hi := f.ep.bias[m], f.ep.lo, f.ep.hi
	later := res != nil || f.ep.act != nil
	if later {
		lo, hi = -inf, inf
	}
	covered := 0
	for _, a := range f.down {
		for _, b := range f.across {
			covered += a.count * b.count
		}
	}
	if covered < len(y) { // pixels that no tap reaches
		clear(y)
		vec.Affine(y, y, 1, bias, lo, hi)
	}
	for i, a := range f.down {
		for n := 0; n < a.count; n += f.rows {
			count := min(f.rows, a.count-n)
			for j, b := range f.across {
				k := i*len(f.across) + j
				offset := f.offset[k]
				w := f.weight[k][m*len(offset):][:len(offset)]
				vec.Taps(parts[j*f.rows*f.width:][:(count-1)*f.width+b.count], x[n*f.width:], offset, w, bias, lo, hi, false)
			}
			for r := range count {
				weave(y[(a.first+(n+r)*a.step)*f.out[1]:][:f.out[1]], parts[r*f.width:], f.rows*f.width, f.across)
			}
		}
	}
	if later {
		ep := f.ep
		ep.bias = nil
		ep.apply(y, y, 0, res)
	}
}

// weave puts the pixels of pieces, which lie apart from each other, where they belong in a row.
func weave(row, x []float32, apart int, pieces []axisPiece) {
	n := 0
	if step := pieces[0].step; len(pieces) == step { // all phases, the last of which has the least pixels
		n = pieces[step-1].count
		interleave(row, step, x, apart, step, n)
	}
	for j, p := range pieces {
		for i := n; i < p.count; i++ {
			row[p.first+i*p.step] = x[j*apart+i]
		}
	}
}

// interleave writes rows of n elements, which lie apart from each other, beside each other: y[i*step+j] = x[j*apart+i].
func interleave(y []float32, step int, x []float32, apart, rows, n int) {
	switch {
	case step == 1:
		copy(y[:n], x)
	case step == 2 && rows == 2:
		a, b := x[:n], x[apart:][:n]
		for i, v := range a {
			y := y[2*i:][:2]
			y[0], y[1] = v, b[i]
		}
	case step == 3 && rows == 3:
		a, b, c := x[:n], x[apart:][:n], x[2*apart:][:n]
		for i, v := range a {
			y := y[3*i:][:3]
			y[0], y[1], y[2] = v, b[i], c[i]
		}
	default:
		for j := range rows {
			for i, v := range x[j*apart:][:n] {
				y[i*step+j] = v
			}
		}
	}
}
