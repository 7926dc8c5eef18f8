package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// RoiAlign pools regions of interest, [m, 4] with corners x1, y1, x2, y2, from the
// images [n, c, h, w] that its third input numbers, to [m, c, Height, Width]: each
// bin is the mean or the largest of samples that are interpolated linearly (He et
// al., "Mask R-CNN", 2017).
type RoiAlign struct {
	Coordinates string  `attr:"coordinate_transformation_mode,half_pixel"`
	Mode        string  `attr:"mode,avg"`
	Height      int     `attr:"output_height,1"`
	Width       int     `attr:"output_width,1"`
	Samples     int     `attr:"sampling_ratio,0"` // along each axis of a bin; 0: as many as it has elements
	Scale       float32 `attr:"spatial_scale,1"`
}

// Kind is RoiAlign.
func (*RoiAlign) Kind() string { return "RoiAlign" }

// Work counts eight operations for each sample, and four samples where their
// number depends on data.
func (o *RoiAlign) Work(in, out []ir.Type) ir.Work {
	samples := 4.0
	if o.Samples > 0 {
		samples = float64(o.Samples) * float64(o.Samples)
	}
	return streamWork(in, out, 8*samples)
}

// Infer joins the number of regions and the size of the output.
func (o *RoiAlign) Infer(c *ir.Infer) error {
	if o.Mode != "avg" && o.Mode != "max" {
		return c.Errorf("mode %q, want avg or max", o.Mode)
	}
	if o.Coordinates != "half_pixel" && o.Coordinates != "output_half_pixel" {
		return c.Errorf("coordinate_transformation_mode %q, want half_pixel or output_half_pixel", o.Coordinates)
	}
	if o.Height < 1 || o.Width < 1 || o.Samples < 0 || o.Samples > maxSamples {
		return c.Errorf("output %d by %d of %d samples, want it positive and at most %d samples", o.Height, o.Width, o.Samples, maxSamples)
	}
	if err := wantFloat(c, 0); err != nil {
		return err
	}
	if err := wantFloat(c, 1); err != nil {
		return err
	}
	if err := wantRank(c, 0, 4); err != nil {
		return err
	}
	m := known(dimOf(c, c.In(1), 0), dimOf(c, c.In(2), 0))
	if err := wantDims(c, 1, "regions", m, ir.Size(4)); err != nil {
		return err
	}
	if err := needInts(c, 2, 1); err != nil {
		return err
	}
	if err := wantDims(c, 2, "batch indices", m); err != nil {
		return err
	}
	c.Set(0, ir.Of(c.In(0).DType, m, dimOf(c, c.In(0), 1), ir.Size(o.Height), ir.Size(o.Width)))
	return nil
}

// maxSamples bounds the samples along an axis of a bin.
const maxSamples = 1 << 12

// Eval samples each bin of each region.
func (o *RoiAlign) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, rois, batch := in[0].Float64s(), in[1].Float64s(), in[2].Ints()
	s := in[0].Shape()
	n, channels, h, w := s[0], s[1], s[2], s[3]
	shape := []int{len(batch), channels, o.Height, o.Width}
	if err := checkOutput(shape); err != nil {
		return nil, err
	}
	y := make([]float64, product(shape))
	for r, b := range batch {
		b, err := o.Image(r, b, n)
		if err != nil {
			return nil, err
		}
		at, err := o.Place([4]float64(rois[4*r:]))
		if err != nil {
			return nil, err
		}
		rows, cols := at.Y.samples(h), at.X.samples(w)
		for ch := range channels {
			image := x[(b*channels+ch)*h*w:][:h*w]
			out := y[(r*channels+ch)*o.Height*o.Width:]
			for i, rs := range rows {
				for j, cs := range cols {
					out[i*o.Width+j] = o.pool(image, w, rs, cs)
				}
			}
		}
	}
	return one(tensor.FromFloat64s(in[0].DType(), y, shape...))
}

// lineSample is a position between two elements of an axis and the weight of the
// second; low is -1 outside.
type lineSample struct {
	low, high int
	frac      float64
}

// Image checks that region r is of an image that there is.
func (*RoiAlign) Image(r, b, images int) (int, error) {
	if b < 0 || b >= images {
		return 0, evalErrorf("region %d is of image %d, want one of %d", r, b, images)
	}
	return b, nil
}

// RoiPlace is where the bins of a region lie.
type RoiPlace struct{ Y, X RoiLine }

// RoiLine is bins that share a span of an axis, and have Count samples each.
type RoiLine struct {
	Bins, Count int
	start, size float64 // of the first bin
}

// Place returns where the bins of a region lie, whose corners are x1, y1, x2, y2.
func (o *RoiAlign) Place(corner [4]float64) (p RoiPlace, err error) {
	shift := 0.0
	if o.Coordinates == "half_pixel" {
		shift = 0.5
	}
	for i := range corner {
		corner[i] = corner[i]*float64(o.Scale) - shift
	}
	width, height := corner[2]-corner[0], corner[3]-corner[1]
	if shift == 0 {
		width, height = max(width, 1), max(height, 1)
	}
	if p.Y, err = o.line(corner[1], height, o.Height); err == nil {
		p.X, err = o.line(corner[0], width, o.Width)
	}
	return p, err
}

func (o *RoiAlign) line(start, span float64, n int) (RoiLine, error) {
	l := RoiLine{Bins: n, Count: o.Samples, start: start, size: span / float64(n)}
	if o.Samples == 0 {
		k := math.Ceil(l.size)
		if !(k <= maxSamples) {
			return l, evalErrorf("a bin spans %v elements, want at most %d", l.size, maxSamples)
		}
		l.Count = max(int(k), 0)
	}
	return l, nil
}

// Sample returns the elements, of d along the axis, that sample i of bin b lies between, and the weight of the second;
// low is -1 outside.
func (l *RoiLine) Sample(b, i, d int) (low, high int, frac float64) {
	p := l.start + l.size*(float64(b)+(float64(i)+0.5)/float64(l.Count))
	if !(p >= -1 && p <= float64(d)) || d == 0 {
		return -1, 0, 0
	}
	p = max(p, 0)
	low = min(int(p), d-1)
	high = min(low+1, d-1)
	return low, high, min(p-float64(low), float64(high-low))
}

// samples returns the samples of each bin.
func (l *RoiLine) samples(d int) [][]lineSample {
	bins := make([][]lineSample, l.Bins)
	for b := range bins {
		bins[b] = make([]lineSample, l.Count)
		for i := range bins[b] {
			s := &bins[b][i]
			s.low, s.high, s.frac = l.Sample(b, i, d)
		}
	}
	return bins
}

// pool joins the samples of a bin, of which those outside are zero. The largest is
// taken over the weighted elements, before a sample's four are added: ONNX defines
// it so.
func (o *RoiAlign) pool(image []float64, w int, rows, cols []lineSample) float64 {
	sum, most := 0.0, math.Inf(-1)
	for _, r := range rows {
		for _, c := range cols {
			var v [4]float64
			if r.low >= 0 && c.low >= 0 {
				v = [4]float64{
					(1 - r.frac) * (1 - c.frac) * image[r.low*w+c.low],
					(1 - r.frac) * c.frac * image[r.low*w+c.high],
					r.frac * (1 - c.frac) * image[r.high*w+c.low],
					r.frac * c.frac * image[r.high*w+c.high],
				}
			}
			sum += v[0] + v[1] + v[2] + v[3]
			most = max(most, v[0], v[1], v[2], v[3])
		}
	}
	switch count := len(rows) * len(cols); {
	case count == 0:
		return 0
	case o.Mode == "max":
		return most
	default:
		return sum / float64(count)
	}
}

// upgradeRoiAlign gives the coordinates the default that they had before opset 16.
func upgradeRoiAlign(l *Legacy) error {
	if l.Opset < 16 {
		l.Default("coordinate_transformation_mode", "output_half_pixel")
	}
	return nil
}

// NonMaxSuppression picks, for each image and class, the boxes [n, boxes, 4] of the
// best scores [n, classes, boxes] that overlap no box picked before by more than a
// threshold. The output lists image, class and box of each, [picked, 3].
type NonMaxSuppression struct {
	streaming
	Center int `attr:"center_point_box,0"` // 1 says that boxes are x, y, width, height instead of y1, x1, y2, x2
}

// Kind is NonMaxSuppression.
func (*NonMaxSuppression) Kind() string { return "NonMaxSuppression" }

// Infer checks that boxes and scores fit; the number of picks is not known.
func (o *NonMaxSuppression) Infer(c *ir.Infer) error {
	if o.Center != 0 && o.Center != 1 {
		return c.Errorf("center_point_box is %d, want 0 or 1", o.Center)
	}
	for i := range 2 {
		if c.In(i).DType != tensor.F32 {
			return c.Errorf("input %d is %v, want f32", i, c.In(i))
		}
	}
	n := known(dimOf(c, c.In(0), 0), dimOf(c, c.In(1), 0))
	boxes := known(dimOf(c, c.In(0), 1), dimOf(c, c.In(1), 2))
	if err := wantDims(c, 0, "boxes", n, boxes, ir.Size(4)); err != nil {
		return err
	}
	if err := wantDims(c, 1, "scores", n, c.Fresh(), boxes); err != nil {
		return err
	}
	for i, dt := range []tensor.DType{tensor.I64, tensor.F32, tensor.F32} {
		t := c.In(2 + i)
		if shape, ok := t.Shape(); c.Has(2+i) && (t.DType != dt || ok && product(shape) != 1) {
			return c.Errorf("input %d is %v, want one %v", 2+i, t, dt)
		}
	}
	c.Set(0, ir.Of(tensor.I64, c.Fresh(), ir.Size(3)))
	return nil
}

// Limits reads how many boxes of a class are picked at most, above which overlap with one that is a box is not, and what
// its score must exceed.
func (o *NonMaxSuppression) Limits(in []*tensor.Tensor) (most int, overlap, least float32, err error) {
	least = float32(math.Inf(-1))
	for i := 2; i < len(in); i++ {
		if in[i] == nil {
			continue
		}
		if in[i].Len() != 1 {
			return 0, 0, 0, evalErrorf("input %d is %v, want a scalar", i, in[i])
		}
		switch i {
		case 2:
			most = in[i].Ints()[0]
		case 3:
			overlap = in[i].F32s()[0]
		case 4:
			least = in[i].F32s()[0]
		}
	}
	return most, overlap, least, nil
}

// Eval picks greedily.
func (o *NonMaxSuppression) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	boxes, scores := in[0].F32s(), in[1].F32s()
	n, classes, count := in[1].Dim(0), in[1].Dim(1), in[1].Dim(2)
	most, overlap, least, err := o.Limits(in)
	if err != nil {
		return nil, err
	}
	var picked []int64
	for b := range n {
		corners := o.Corners(boxes[b*count*4:][:count*4])
		for class := range classes {
			score := scores[(b*classes+class)*count:][:count]
			var order, kept []int
			for i, s := range score {
				if s > least || math.IsInf(float64(least), -1) {
					order = append(order, i)
				}
			}
			slices.SortStableFunc(order, func(i, j int) int {
				switch {
				case score[i] > score[j]:
					return -1
				case score[i] < score[j]:
					return 1
				}
				return 0
			})
			for _, i := range order {
				if len(kept) >= most {
					break
				}
				if !slices.ContainsFunc(kept, func(k int) bool { return IoU(corners[i], corners[k]) > overlap }) {
					kept = append(kept, i)
					picked = append(picked, int64(b), int64(class), int64(i))
				}
			}
		}
	}
	return one(tensor.From(picked, len(picked)/3, 3))
}

// Corners returns boxes as the lower and the upper corner.
func (o *NonMaxSuppression) Corners(boxes []float32) [][4]float32 {
	out := make([][4]float32, len(boxes)/4)
	for i := range out {
		b := [4]float32(boxes[4*i:])
		if o.Center == 1 {
			out[i] = [4]float32{b[0] - b[2]/2, b[1] - b[3]/2, b[0] + b[2]/2, b[1] + b[3]/2}
			continue
		}
		out[i] = [4]float32{min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3])}
	}
	return out
}

// IoU is the intersection over the union of two boxes, zero where one is empty.
func IoU(a, b [4]float32) float32 {
	side := func(i int) float32 { return max(min(a[i+2], b[i+2])-max(a[i], b[i]), 0) }
	area := func(c [4]float32) float32 { return (c[2] - c[0]) * (c[3] - c[1]) }
	inter := side(0) * side(1)
	if union := area(a) + area(b) - inter; area(a) > 0 && area(b) > 0 && union > 0 {
		return inter / union
	}
	return 0
}
