// Package plane computes on planes of float32, the images of one channel: it moves
// windows over them. It imports vec and internal/isa.
//
// On amd64 the usual windows are assembly for AVX-512 or AVX2, one call for any
// number of planes; others, other machines and the build tag noasm go through a
// padded copy of each plane and the row kernels of vec.
package plane

import (
	"cmp"

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
	s := scratch[:d.Scratch()]
	clear(s)
	for p := range planes {
		d.pad(s, x[p*in:][:area])
		if res != nil {
			copy(y[p*out:][:size], res[p*out:])
		}
		for i := range win.OH {
			vec.Taps(y[p*out+i*win.OW:][:win.OW], s[i*win.SH*d.pitch:], d.offset, w[p*taps:][:taps], bias[p], lo, hi, res != nil)
		}
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
