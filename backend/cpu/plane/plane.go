// Package plane computes on planes of float32, the images of one channel: it moves
// windows over them. It imports vec and internal/isa.
//
// On amd64 the usual windows are assembly for AVX-512 or AVX2, one call for any
// number of planes; others, other machines and the build tag noasm go through a
// padded copy of each plane and the row kernels of vec.
package plane

import (
	"cmp"
	"math"

	"spc/backend/cpu/vec"
)

// Window says how a window moves over planes: output pixel (i, j) sees the input
// pixels (i*SH - Top + a*DH, j*SW - Left + b*DW) for a below KH and b below KW.
// Pixels outside the plane are zeros.
type Window struct {
	H, W, OH, OW int // sizes of the input and of the output, at least 1
	KH, KW       int
	SH, SW       int // strides, at least 1
	DH, DW       int // dilations, at least 1
	Top, Left    int // padding before the first row and column, at least 0

	// Elements from the beginning of a plane to that of the next, 0 where planes lie side by side.
	In, Out int
}

// apart is how far planes are from each other.
func (w *Window) apart() (in, out int) { return cmp.Or(w.In, w.H*w.W), cmp.Or(w.Out, w.OH*w.OW) }

// kernel is an assembly kernel for one size of window and stride.
type kernel func(planes int, x *float32, xplane int, w, bias, res, y *float32, yplane, h, pitch, top, oh, ow, blocks int, table *uint32, lo, hi float32, wide *float32)

// maxKernel is an assembly kernel for the maxima of one size of window and stride.
type maxKernel func(planes int, x *float32, xplane int, y *float32, yplane, h, pitch, top, oh, ow, blocks int, table *uint32)

// kernels are those of one instruction set, by size and stride of the window.
type kernels struct {
	isa     string
	lanes   int
	windows map[[2]int]kernel
	maxima  map[[2]int]maxKernel
	larger  func(y, a, b []float32) // y = max(a, b) over the length of y
}

// available lists the instruction sets that this machine has, the best first.
var available = append(native(), &kernels{isa: "go", larger: largerGo})

// Depthwise convolves each plane with a window of its own.
type Depthwise struct {
	win    Window
	run    kernel // nil for the general way
	table  []uint32
	pitch  int   // of a row of the padded copy
	phase  int   // columns of one phase in it
	offset []int // of each tap in the padded copy
	tiles  *tiles
}

// tiles says how rows of output are computed several at a time from the padded copy: those that are apart rows apart see
// input rows that lie as far apart, which are loaded once for all of them. It is nil where windows are too low for that.
type tiles struct {
	apart, step int // rows of a tile; input rows that they share, in elements
	columns     []column
}

// column is every so many taps of each column of a window.
type column struct {
	first, stride, height int   // the row of the first tap, and how far they are apart
	shift                 []int // of the first tap of each column in the padded copy
}

// tiled makes the tiles of d.
func (d *Depthwise) tiled() *tiles {
	win := &d.win
	common := win.SH
	for r := win.DH; r != 0; {
		common, r = r, common%r
	}
	t, stride := &tiles{apart: win.DH / common}, win.SH/common
	t.step = t.apart * win.SH * d.pitch
	for first := range stride {
		c := column{first: first, stride: stride, height: (win.KH - first + stride - 1) / stride}
		if c.height < vec.TappedRows-1 {
			return nil
		}
		c.shift = d.offset[first*win.KW:][:win.KW]
		t.columns = append(t.columns, c)
	}
	return t
}

// NewDepthwise prepares the convolution with a window.
func NewDepthwise(win Window) *Depthwise { return newDepthwise(available[0], win) }

func newDepthwise(k *kernels, win Window) *Depthwise {
	d := &Depthwise{win: win}
	if win.KH == win.KW && win.SH == win.SW && win.DH == 1 && win.DW == 1 {
		d.run = k.windows[[2]int{win.KH, win.SH}]
	}
	if d.run != nil {
		d.table = win.blocks(k.lanes)
		return d
	}
	// Columns that are SW apart lie together in the copy: a row of it has SW phases.
	padded := (win.OW-1)*win.SW + (win.KW-1)*win.DW + 1
	d.phase = (padded + win.SW - 1) / win.SW
	d.pitch = win.SW * d.phase
	for a := range win.KH {
		for b := range win.KW {
			at := b * win.DW
			d.offset = append(d.offset, a*win.DH*d.pitch+at%win.SW*d.phase+at/win.SW)
		}
	}
	d.tiles = d.tiled()
	return d
}

// Fields of a block of the table that assembly reads.
const (
	blockOff   = iota // of its first input column, in bytes
	blockInner        // 1 where no mask is needed
	blockMasks        // of the columns that each load may read
	blockStore = blockMasks + 7
	blockLen   = blockStore + 1
)

// blocks describes the blocks of lanes columns of output.
func (w *Window) blocks(lanes int) []uint32 {
	var table []uint32
	for at := 0; at < w.OW; at += lanes {
		block := make([]uint32, blockLen)
		first := at*w.SW - w.Left
		block[blockOff] = uint32(int32(4 * first))
		all := uint32(1)<<lanes - 1
		block[blockStore] = all >> max(0, at+lanes-w.OW)
		inner := block[blockStore] == all
		// Under stride 2 two loads give a pair of taps.
		for b := 0; b < w.KW; b += w.SW {
			for half := range w.SW {
				mask := uint32(0)
				for l := range lanes {
					if c := first + b + half*lanes + l; c >= 0 && c < w.W {
						mask |= 1 << l
					}
				}
				block[blockMasks+b+half] = mask
				inner = inner && mask == all
			}
		}
		if inner {
			block[blockInner] = 1
		}
		table = append(table, block...)
	}
	return table
}

// wide is the room for the weights of a window of 49 taps, repeated 8 times.
const wide = 49 * 8

// Scratch is the number of floats that Run needs.
func (d *Depthwise) Scratch() int {
	if d.run != nil {
		return wide
	}
	return d.padded() + len(d.offset)
}

// padded is the number of floats of the padded copy.
func (d *Depthwise) padded() int {
	return ((d.win.OH-1)*d.win.SH + (d.win.KH-1)*d.win.DH + 1) * d.pitch
}

// Run convolves planes of x with the windows in w:
//
//	y = min(max(sum of w*x + bias + res, lo), hi)
//
// where bias has one element a plane and res, which may be nil and is not y, the shape of y.
// scratch has at least Scratch elements. It panics if a slice is too short.
func (d *Depthwise) Run(planes int, y, x, w, bias, res []float32, lo, hi float32, scratch []float32) {
	if planes <= 0 {
		return
	}
	win := &d.win
	in, out := win.apart()
	taps, area, size := win.KH*win.KW, win.H*win.W, win.OH*win.OW
	_, _, _, _ = x[(planes-1)*in+area-1], y[(planes-1)*out+size-1], w[planes*taps-1], bias[planes-1]
	var r *float32
	if res != nil {
		_, r = res[(planes-1)*out+size-1], &res[0]
	}
	if d.run != nil {
		d.run(planes, &x[0], in, &w[0], &bias[0], r, &y[0], out, win.H, win.W, win.Top, win.OH, win.OW,
			len(d.table)/blockLen, &d.table[0], lo, hi, &scratch[:wide][0])
		return
	}
	s, turned := scratch[:d.padded()], scratch[d.padded():d.Scratch()]
	clear(s)
	for p := range planes {
		d.pad(s, x[p*in:][:area])
		var r []float32
		if res != nil {
			r = res[p*out:][:size]
		}
		d.plane(y[p*out:][:size], r, s, w[p*taps:][:taps], turned, bias[p], lo, hi)
	}
}

// plane convolves a padded copy. turned has room for the weights.
func (d *Depthwise) plane(y, res, s, w, turned []float32, bias, lo, hi float32) {
	win, apart := &d.win, 1
	if d.tiles != nil {
		apart = d.tiles.apart
		d.tiles.turn(turned, w, win.KW)
	}
	for r := range min(apart, win.OH) {
		count := (win.OH - r + apart - 1) / apart
		if d.tiles != nil && count >= vec.TappedRows {
			for i := 0; i < count; i += vec.TappedRows {
				at := r + min(i, count-vec.TappedRows)*apart // the last may compute rows again
				d.tile(at, y, res, s, turned, bias, lo, hi)
			}
			continue
		}
		for i := r; i < win.OH; i += apart {
			row := y[i*win.OW:][:win.OW]
			if res != nil {
				copy(row, res[i*win.OW:])
			}
			vec.Taps(row, s[i*win.SH*d.pitch:], d.offset, w, bias, lo, hi, res != nil)
		}
	}
}

// turn orders the weights of a window by column.
func (t *tiles) turn(to, w []float32, width int) {
	for _, c := range t.columns {
		for b := range width {
			for k := range c.height {
				to[b*c.height+k] = w[(c.first+k*c.stride)*width+b]
			}
		}
		to = to[width*c.height:]
	}
}

// tile computes the rows of a tile, the first of which is at.
func (d *Depthwise) tile(at int, y, res, s, turned []float32, bias, lo, hi float32) {
	win, t := &d.win, d.tiles
	y = y[at*win.OW:]
	if res != nil {
		res = res[at*win.OW:]
	}
	inf := float32(math.Inf(1))
	for i, c := range t.columns {
		low, high := -inf, inf
		if i == len(t.columns)-1 {
			low, high = lo, hi
		}
		vec.TapRows(y, res, t.apart*win.OW, win.OW, s[at*win.SH*d.pitch:], t.step, c.shift, c.height, turned, bias, low, high)
		turned, res, bias = turned[win.KW*c.height:], y, 0
	}
}

// pad copies the part of a plane that windows see into the padded copy, whose
// border is cleared.
func (d *Depthwise) pad(s, x []float32) {
	win := &d.win
	for r := 0; r < win.H && (r+win.Top+1)*d.pitch <= len(s); r++ {
		src, dst := x[r*win.W:][:win.W], s[(r+win.Top)*d.pitch:][:d.pitch]
		if win.SW == 1 {
			copy(dst[min(win.Left, d.pitch):], src)
			continue
		}
		for phase := range win.SW {
			row := dst[phase*d.phase:][:d.phase]
			// The first column c >= 0 with (c+Left)%SW == phase.
			c := ((phase-win.Left)%win.SW + win.SW) % win.SW
			for q := (c + win.Left) / win.SW; q < len(row) && c < len(src); q++ {
				row[q] = src[c]
				c += win.SW
			}
		}
	}
}
