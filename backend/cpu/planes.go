package cpu

import (
	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/ir/op"
)

// planes loads the patches of a convolution of one or two spatial dimensions. The
// images are laid out with their zeros around them, and with a stride as phases: a
// plane for each pixel position modulo the strides. Then what a tap reads for the
// output pixels of a row lies side by side, at an offset of the tap and the
// channel. Images that need neither are read as they are.
type planes struct {
	g          *convGeometry
	direct     bool
	h, w       op.Span // of rows and columns; one row where there is one dimension
	inH, inW   int
	outH, outW int
	phases     []phase  // those that taps read
	bands      int      // into which images are divided, each of outH rows of the output, but the last
	copies     []copies // by band and phase
	rows, cols int      // of a phase
	channel    int      // elements of a channel
	offset     []int    // by row of X within a group
	taps       []tap
	strip      *strip // of a kernel that reads the rows of planes, nil for panels [K][64]
}

// tap is where a tap reads: an offset in the plane of a phase.
type tap struct{ phase, shift int }

// strip is a panel of parts of planes, from which a kernel takes what each tap reads
// without a copy for each of them. Columns are then those of the planes, those
// between the rows of the output included.
type strip struct {
	inPlace  bool  // the planes are the panel
	channels int   // of a block
	begin    []int // by phase, its first element in the panel
	length   []int // by phase, of a channel
	read     []int // by phase, the elements of a channel that are used
}

// phase is the pixels with these positions modulo the strides.
type phase struct{ y, x int }

// copies is how a phase is laid out: rows top to end and columns left to
// left+width of it are pixels of the input, from at on; the others are zeros.
type copies struct{ top, end, left, width, at int }

// batchFloats bounds the size of the images that are laid out at a time, placedFloats that of those that strips are
// taken from: several threads share many images better than the rows of one, and what is laid out stays near.
const (
	batchFloats  = 2 << 20
	placedFloats = 256 << 10
)

// newPlanes lays images out; those that need no zeros around them are read as they are if that is
// allowed.
func newPlanes(g *convGeometry, asTheyAre bool) *planes {
	p := &planes{g: g, inH: 1, outH: 1, h: op.Span{Kernel: 1, Stride: 1, Dilation: 1}}
	last := len(g.spans) - 1
	p.w, p.inW, p.outW = g.spans[last], g.in[last], g.out[last]
	if last == 1 {
		p.h, p.inH, p.outH = g.spans[0], g.in[0], g.out[0]
	}
	unit := func(s op.Span) bool { return s.Stride == 1 && s.Begin == 0 && s.End == 0 }
	p.direct = asTheyAre && g.depth == nil && unit(p.h) && unit(p.w)
	if p.direct && g.taps == 1 {
		p.inW, p.outW, p.inH, p.outH = g.inPlane, g.outPlane, 1, 1
	}
	p.rows = p.outH + p.reach()
	p.cols = p.outW + (p.w.Kernel-1)*p.w.Dilation/p.w.Stride
	if p.direct {
		p.rows, p.cols = p.inH, p.inW
	}
	for ky := range p.h.Kernel {
		for kx := range p.w.Kernel {
			y, x := ky*p.h.Dilation, kx*p.w.Dilation
			at := p.phase(phase{y % p.h.Stride, x % p.w.Stride})
			p.taps = append(p.taps, tap{at, y/p.h.Stride*p.cols + x/p.w.Stride})
		}
	}
	p.cut(1)
	for c := range g.channels {
		for _, t := range p.taps {
			p.offset = append(p.offset, c*p.channel+t.phase*p.rows*p.cols+t.shift)
		}
	}
	return p
}

// reach is how many rows of a phase, beside its own, a row of the output depends on.
func (p *planes) reach() int { return (p.h.Kernel - 1) * p.h.Dilation / p.h.Stride }

// cut says how the phases of each band are laid out.
func (p *planes) cut(bands int) {
	p.bands, p.channel, p.copies = bands, len(p.phases)*p.rows*p.cols, nil
	for band := range bands {
		for _, f := range p.phases {
			first := f.y + band*p.outH*p.h.Stride
			top, end := inside(p.h, first, p.rows, p.inH)
			left, right := inside(p.w, f.x, p.cols, p.inW)
			c := copies{top: top, end: end, left: left, width: right - left}
			if c.top >= c.end || c.width <= 0 {
				c = copies{}
			} else {
				c.at = (top*p.h.Stride+first-p.h.Begin)*p.inW + left*p.w.Stride + f.x - p.w.Begin
			}
			p.copies = append(p.copies, c)
		}
	}
}

// banded is p for bands of so many rows of the output. Kernels of strips are those of whole images.
func (p *planes) banded(rows int) *planes {
	q := *p
	q.outH, q.rows, q.offset = rows, rows+p.reach(), nil
	q.cut((p.outH + rows - 1) / rows)
	return &q
}

// stripFloats is the size of a strip that stays in the level 1 cache.
const stripFloats = 10 << 10

// inPlace is the least number of rows of X in a block for which kernels read the planes of a group where they are.
const inPlace = 32

// place returns the kernels, one for each group, for strips, or as they are where panels [K][64] are as good.
func (p *planes) place(kernels []backend.FloatKernel) []backend.FloatKernel {
	g := p.g
	if p.direct || g.taps == 1 || g.taps > backend.MaxBlock {
		return kernels
	}
	if p.w.Kernel == 1 && p.cols >= backend.Panel { // taps share nothing
		return kernels
	}
	if strips := (p.outH-1)*p.cols + p.outW; 2*strips > 3*g.outPlane { // too many columns would be no pixels, as behind large dilations
		return kernels
	}
	s := &strip{begin: make([]int, len(p.phases)), length: make([]int, len(p.phases)), read: make([]int, len(p.phases))}
	channel := 0
	for _, t := range p.taps {
		s.read[t.phase] = max(s.read[t.phase], t.shift+backend.Panel)
		channel = max(channel, t.phase*p.rows*p.cols+t.shift)
	}
	most := min(g.channels, backend.MaxBlock/g.taps, (backend.MaxPlace-1-channel)/p.channel+1)
	if s.inPlace = g.groups > 1 && channel < backend.MaxPlace && most*g.taps >= min(inPlace, g.channels*g.taps); !s.inPlace {
		channel = 0
		for f, n := range s.read {
			s.length[f] = (n + backend.Granule - 1) / backend.Granule * backend.Granule
			channel += s.length[f]
		}
		most = min(g.channels, stripFloats/channel, backend.MaxBlock/g.taps)
	}
	if most < 1 {
		return kernels
	}
	blocks := (g.channels + most - 1) / most
	s.channels = (g.channels + blocks - 1) / blocks
	for f := range s.begin[1:] {
		s.begin[f+1] = s.begin[f] + s.channels*s.length[f]
	}
	bounds, at := []int{0}, make([]int, 0, g.channels*g.taps)
	for b := range blocks {
		from, to := b*g.channels/blocks, (b+1)*g.channels/blocks
		for c := range to - from {
			for _, t := range p.taps {
				if s.inPlace {
					at = append(at, c*p.channel+t.phase*p.rows*p.cols+t.shift)
				} else {
					at = append(at, s.begin[t.phase]+c*s.length[t.phase]+t.shift)
				}
			}
		}
		bounds = append(bounds, to*g.taps)
	}
	placed := make([]backend.FloatKernel, len(kernels))
	for i, k := range kernels {
		if placer, ok := k.(backend.Placer); ok {
			placed[i] = placer.Placed(bounds, at)
		}
		if placed[i] == nil {
			return kernels
		}
	}
	p.strip = s
	return placed
}

func (p *planes) panel(k backend.FloatKernel) int {
	if p.strip == nil {
		return panelRows(k) * backend.Panel
	}
	if p.strip.inPlace {
		return 0
	}
	last := len(p.phases) - 1
	return p.strip.begin[last] + p.strip.channels*p.strip.length[last]
}

func (p *planes) columns(images int) (n, apart int) {
	if p.strip == nil {
		return images * p.g.outPlane, 1
	}
	return (p.outH-1)*p.cols + p.outW, images
}

// bandColumns is the number of columns of a band of one image.
func (p *planes) bandColumns(band int) int {
	if p.bands == 1 {
		n, _ := p.columns(1)
		return n
	}
	return (min(p.outH, p.g.out[len(p.g.out)-2]-band*p.outH)-1)*p.cols + p.outW
}

func (p *planes) pixels(col, n int) pixelRun {
	if p.strip == nil {
		return p.g.pixels(col, n)
	}
	each, _ := p.columns(1)
	img := col / each
	y, x := (col-img*each)/p.cols, (col-img*each)%p.cols
	width := min(n, p.cols-x)
	return pixelRun{img: img, pixel: y*p.outW + x, count: max(0, min(width, p.outW-x)), width: width}
}

// phase returns the number of a phase.
func (p *planes) phase(f phase) int {
	for i, q := range p.phases {
		if q == f {
			return i
		}
	}
	p.phases = append(p.phases, f)
	return len(p.phases) - 1
}

// image is the number of elements of an image as it is read.
func (p *planes) image() int { return p.g.groups * p.g.channels * p.channel }

func (p *planes) batch() int {
	if p.direct {
		return p.g.images
	}
	most := batchFloats
	if p.strip != nil {
		most = placedFloats
	}
	return min(p.g.images, max(1, most/p.image()))
}

func (p *planes) shared() int {
	if p.direct {
		return 0
	}
	// Behind the last image strips read what no pixel depends on.
	return p.batch()*p.image() + 2*backend.Panel
}

func (p *planes) prepare(x *exec) (func(xs []float32, img, n int), func(worker, col, n int), func(group int) loader) {
	g := p.g
	var in, src []float32
	first, channels := 0, g.groups*g.channels
	layOut := func(_, i int) { p.layOut(src[i*p.channel:][:p.channel], in, first+i/channels, i%channels, 0) }
	images := func(xs []float32, img, n int) {
		if p.direct {
			src = xs[g.plane(img, 0):]
			return
		}
		in, src, first = xs, x.shared, img
		x.pool.For(n*channels, layOut)
	}
	begin, load := p.loads(x.pool.Threads())
	return images, begin, func(group int) loader {
		return func(worker int, panel []float32, k0, k1, col, _ int) []float32 {
			return load(worker, panel, src[group*g.channels*p.channel:], k0, k1, col)
		}
	}
}

// loads returns what begins with a strip of columns, and what loads one for rows k0 to k1 of X from the planes of a group.
func (p *planes) loads(threads int) (begin func(worker, col, n int), load func(worker int, panel, src []float32, k0, k1, col int) []float32) {
	if s := p.strip; s != nil {
		each, _ := p.columns(1)
		return nil, func(_ int, panel, src []float32, k0, k1, col int) []float32 {
			from, channels := k0/p.g.taps, (k1-k0)/p.g.taps
			img := col / each
			src = src[img*p.image()+from*p.channel+col-img*each:]
			if s.inPlace {
				return src
			}
			for f, n := range s.read {
				vec.PadRows(panel[s.begin[f]:], channels, 0, n, s.length[f]-n, src[f*p.rows*p.cols:], p.channel, 1)
			}
			return panel
		}
	}
	chunks := make([][]vec.Chunk, threads)
	for w := range chunks {
		chunks[w] = make([]vec.Chunk, 0, backend.Panel)
	}
	begin = func(worker, col, n int) { chunks[worker] = p.chunks(chunks[worker][:0], col, n) }
	return begin, func(worker int, panel, src []float32, k0, k1, _ int) []float32 {
		vec.Gather(panel, src, p.offset[k0:k1], chunks[worker])
		return panel
	}
}

// layOut writes a band of a plane of the input as its phases.
func (p *planes) layOut(dst, xs []float32, img, channel, band int) {
	at := p.g.plane(img, channel)
	if at < 0 {
		clear(dst)
		return
	}
	src := xs[at:][:p.g.inPlane]
	for _, c := range p.copies[band*len(p.phases):][:len(p.phases)] {
		clear(dst[:c.top*p.cols])
		vec.PadRows(dst[c.top*p.cols:], c.end-c.top, c.left, c.width, p.cols-c.left-c.width, src[c.at:], p.h.Stride*p.inW, p.w.Stride)
		clear(dst[c.end*p.cols : p.rows*p.cols])
		dst = dst[p.rows*p.cols:]
	}
}

// inside returns the positions lo to hi of the size ones of a phase whose pixels
// are among the n of the input.
func inside(s op.Span, f, size, n int) (lo, hi int) {
	if first := s.Begin - f; first > 0 {
		lo = (first + s.Stride - 1) / s.Stride
	}
	if last := n - 1 + s.Begin - f; last >= 0 {
		hi = min(size, last/s.Stride+1)
	}
	return min(lo, size), hi
}

// chunks lists the runs of pixels that the columns col to col+n read.
func (p *planes) chunks(list []vec.Chunk, col, n int) []vec.Chunk {
	longest := vec.ChunkLen()
	for at := 0; at < n; {
		img, pixel := (col+at)/p.g.outPlane, (col+at)%p.g.outPlane
		y, x := pixel/p.outW, pixel%p.outW
		count := min(n-at, p.outW-x, longest)
		list = append(list, vec.Chunk{Dst: at, Src: img*p.image() + y*p.cols + x, N: count})
		at += count
	}
	return list
}
