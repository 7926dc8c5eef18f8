package cpu

import (
	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Images that are read at places between their elements, which are the same for all channels.

// blend is the elements that results are made of, and their weights: those of result i are from[begin[i]:begin[i+1]].
type blend struct {
	begin  []int
	from   []int
	weight []float32
}

func (t *blend) reset() { t.begin, t.from, t.weight = append(t.begin[:0], 0), t.from[:0], t.weight[:0] }

func (t *blend) add(from int, weight float32) {
	t.from, t.weight = append(t.from, from), append(t.weight, weight)
}

// end ends the taps of a result.
func (t *blend) end() { t.begin = append(t.begin, len(t.from)) }

// sum computes the results of an image.
func (t *blend) sum(y, image []float32) {
	lo := 0
	for i, hi := range t.begin[1:] {
		s, w := float32(0), t.weight[lo:hi]
		for k, from := range t.from[lo:hi] {
			s += w[k] * image[from]
		}
		y[i] = s
		lo = hi
	}
}

// rows computes the results of n channels at a time, whose elements lie together, into rows of to.
func (t *blend) rows(to, image []float32, n int) {
	lo := 0
	for i, hi := range t.begin[1:] {
		vec.Taps(to[i*n:][:n], image, t.from[lo:hi], t.weight[lo:hi], 0, -inf, inf, false)
		lo = hi
	}
}

// turn copies images [channels,size] so that the channels of an element lie together.
func turn(x *exec, dst, src []float32, images, channels, size int) {
	const most = 1 << 10 // elements at a time
	blocks := (size + most - 1) / most
	x.pool.For(images*blocks, func(_, i int) {
		first, at := i%blocks*most, i/blocks*channels*size
		vec.Transpose(dst[at+first*channels:], channels, src[at+first:at+channels*size], size, channels, min(most, size-first))
	})
}

// samplePoints is how many points of a grid are looked up at a time.
const samplePoints = 64

// bindGridSample reads images at the points of a grid.
func bindGridSample(_ *program, n *ir.Node) (*bound, error) {
	o, xs, gs := n.Op.(*op.GridSample), shapeOf(n.Inputs[0]), shapeOf(n.Inputs[1])
	rank := len(xs) - 2
	if !f32(n) || prod(shapeOf(n.Outputs[0])) == 0 || prod(xs) == 0 || rank > 3 {
		return nil, nil
	}
	images, channels, sizes := xs[0], xs[1], xs[2:]
	image, points := prod(sizes), prod(gs[1:len(gs)-1])
	strides, linear := tensor.Strides(sizes), o.Mode == "linear"
	blocks := (points + samplePoints - 1) / samplePoints
	b := &bound{inplace: -1}
	turned := channels >= 8 && 4*points >= image // all channels of a point are then read together
	if turned {
		b.shared, b.scratch = prod(xs), samplePoints*channels
		for i := range strides {
			strides[i] *= channels
		}
	}
	b.prepare = func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, grid, dst []float32
		units := images * blocks
		count, each := parts(x, units, images*points*(channels+4))
		workers := make([]struct {
			blend
			lines [3]op.GridTap
		}, x.pool.Threads())
		body := func(worker, i int) {
			t := &workers[worker]
			for u := i * each; u < min(units, (i+1)*each); u++ {
				b, first := u/blocks, u%blocks*samplePoints
				last := min(points, first+samplePoints)
				t.reset()
				for p := first; p < last; p++ {
					at := grid[(b*points+p)*rank:][:rank]
					for a := range rank {
						if v := float64(at[rank-1-a]); !linear || !amid(&t.lines[a], v, sizes[a], o.AlignCorners) {
							t.lines[a] = o.Taps(v, sizes[a])
						}
					}
					t.join(t.lines[:rank], strides, 0, 1)
					t.end()
				}
				if turned {
					y := x.scratch[worker][:(last-first)*channels]
					t.rows(y, src[b*channels*image:][:channels*image], channels)
					vec.Transpose(dst[b*channels*points+first:], points, y, channels, last-first, channels)
					continue
				}
				for c := b * channels; c < (b+1)*channels; c++ {
					t.sum(dst[c*points+first:c*points+last], src[c*image:][:image])
				}
			}
		}
		return func() error {
			if src, grid, dst = in[0].F32s(), in[1].F32s(), out[0].F32s(); turned {
				turn(x, x.shared, src, images, channels, image)
				src = x.shared[:len(src)]
			}
			x.pool.For(count, body)
			return nil
		}
	}
	return b, nil
}

// amid finds what linear interpolation makes of a position among the elements of an axis; it is false for others.
func amid(t *op.GridTap, v float64, d int, corners bool) bool {
	x := ((v+1)*float64(d) - 1) / 2
	if corners {
		x = (v + 1) / 2 * float64(d-1)
	}
	if !(x >= 0 && x <= float64(d-1)) {
		return false
	}
	left := int(x)
	frac := x - float64(left)
	t.N, t.At[0], t.Weight[0] = 1, left, 1-frac
	if frac > 0 { // what has no weight is not read
		t.N, t.At[1], t.Weight[1] = 2, left+1, frac
	}
	return true
}

// join adds every combination of the taps of axes.
func (t *blend) join(lines []op.GridTap, strides []int, at int, weight float64) {
	l := &lines[0]
	if len(lines) == 1 {
		for i := range l.N {
			t.add(at+l.At[i]*strides[0], float32(weight*l.Weight[i]))
		}
		return
	}
	for i := range l.N {
		t.join(lines[1:], strides[1:], at+l.At[i]*strides[0], weight*l.Weight[i])
	}
}

// bindRoiAlign averages samples of regions. The weights of the samples of a bin are products of those along its axes, so that elements
// which several samples are made of are read once.
func bindRoiAlign(_ *program, n *ir.Node) (*bound, error) {
	o, xs := n.Op.(*op.RoiAlign), shapeOf(n.Inputs[0])
	if n.Inputs[0].Type.DType != tensor.F32 || n.Inputs[1].Type.DType != tensor.F32 || o.Mode != "avg" || prod(shapeOf(n.Outputs[0])) == 0 || prod(xs) == 0 {
		return nil, nil
	}
	images, channels, h, w := xs[0], xs[1], xs[2], xs[3]
	regions, bins := shapeOf(n.Inputs[1])[0], o.Height*o.Width
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, rois, dst []float32
		image, places := make([]int, regions), make([]op.RoiPlace, regions)
		workers := make([]struct{ rows, cols, all blend }, x.pool.Threads())
		body := func(worker, r int) {
			t, p := &workers[worker], &places[r]
			t.rows.line(p.Y, h)
			t.cols.line(p.X, w)
			scale := 1 / float32(p.Y.Count*p.X.Count) // of no samples nothing is left to be scaled
			t.all.reset()
			for i := range o.Height {
				for j := range o.Width {
					for a := t.rows.begin[i]; a < t.rows.begin[i+1]; a++ {
						for b := t.cols.begin[j]; b < t.cols.begin[j+1]; b++ {
							t.all.add(t.rows.from[a]*w+t.cols.from[b], t.rows.weight[a]*t.cols.weight[b]*scale)
						}
					}
					t.all.end()
				}
			}
			for c := range channels {
				t.all.sum(dst[(r*channels+c)*bins:][:bins], src[(image[r]*channels+c)*h*w:][:h*w])
			}
		}
		return func() error {
			src, rois, dst = in[0].F32s(), in[1].F32s(), out[0].F32s()
			for r := range image {
				var err error
				if image[r], err = o.Image(r, intAt(in[2], r), images); err == nil {
					places[r], err = o.Place([4]float64{float64(rois[4*r]), float64(rois[4*r+1]), float64(rois[4*r+2]), float64(rois[4*r+3])})
				}
				if err != nil {
					return nodeError(n, err)
				}
			}
			x.pool.For(regions, body)
			return nil
		}
	}}, nil
}

// line finds what samples along an axis of d elements are made of: the taps of a bin are those of all its samples.
func (t *blend) line(l op.RoiLine, d int) {
	t.reset()
	for b := range l.Bins {
		for i := range l.Count {
			low, high, frac := l.Sample(b, i, d)
			if low < 0 {
				continue
			}
			t.merge(low, float32(1-frac))
			t.merge(high, float32(frac))
		}
		t.end()
	}
}

// merge adds to the weight of an element that the result has among its last. Zero stays a weight of its own: times
// infinity it is NaN.
func (t *blend) merge(from int, weight float32) {
	first := t.begin[len(t.begin)-1]
	for k := len(t.from) - 1; k >= max(first, len(t.from)-2); k-- {
		if t.from[k] == from && weight != 0 && t.weight[k] != 0 {
			t.weight[k] += weight
			return
		}
	}
	t.add(from, weight)
}
