package plane

import "math"

var lowest = float32(math.Inf(-1))

// MaxPool takes the maximum of each window of each plane, over the pixels that lie
// in the plane; -Inf where there are none. A NaN in a window is its maximum.
type MaxPool struct {
	win    Window
	run    maxKernel // nil for the general way
	table  []uint32
	rounds int // how often run is applied, the first time to the input
	row    int // length of a row of maxima with its padding
	larger func(y, a, b []float32)
}

// NewMaxPool prepares the maxima of a window.
func NewMaxPool(win Window) *MaxPool { return newMaxPool(available[0], win) }

func newMaxPool(k *kernels, win Window) *MaxPool {
	p := &MaxPool{win: win, rounds: 1, larger: k.larger}
	if win.KH == win.KW && win.SH == win.SW && win.DH == 1 && win.DW == 1 {
		p.run = k.maxima[[2]int{win.KH, win.SH}]
	}
	if p.run == nil {
		p.wide(k)
	}
	if p.run != nil {
		p.table = p.win.blocks(k.lanes)
		return p
	}
	p.row = max((win.OW-1)*win.SW+(win.KW-1)*win.DW+1, win.Left+win.W)
	return p
}

// wide composes a window that keeps the plane's size of windows of three: a maximum
// of maxima.
func (p *MaxPool) wide(k *kernels) {
	w := p.win
	half := w.KH / 2
	if w.KH != w.KW || w.KH%2 == 0 || w.KH > 31 || w.SH != 1 || w.SW != 1 || w.DH != 1 || w.DW != 1 ||
		w.OH != w.H || w.OW != w.W || w.Top != half || w.Left != half || half == 0 {
		return
	}
	if p.run = k.maxima[[2]int{3, 1}]; p.run != nil {
		p.rounds = half
		p.win.KH, p.win.KW, p.win.Top, p.win.Left = 3, 3, 1, 1
	}
}

// Scratch is the number of floats that Run needs.
func (p *MaxPool) Scratch() int {
	switch {
	case p.run == nil:
		return p.row
	case p.rounds > 1:
		return p.win.H * p.win.W
	}
	return 0
}

// Run pools planes, one after the other in x. scratch has at least Scratch elements.
// It panics if a slice is too short.
func (p *MaxPool) Run(planes int, y, x, scratch []float32) {
	if planes <= 0 {
		return
	}
	in, out := p.win.H*p.win.W, p.win.OH*p.win.OW
	_, _ = x[planes*in-1], y[planes*out-1]
	switch {
	case p.run == nil:
		for i := range planes {
			p.plane(y[i*out:][:out], x[i*in:][:in], scratch[:p.row])
		}
	case p.rounds == 1:
		p.call(planes, y, x)
	default:
		for i := range planes {
			// The last round ends in y.
			from, to, other := x[i*in:][:in], y[i*out:][:out], scratch[:in]
			if p.rounds%2 == 0 {
				to, other = other, to
			}
			for range p.rounds {
				p.call(1, to, from)
				from, to, other = to, other, to
			}
		}
	}
}

func (p *MaxPool) call(planes int, y, x []float32) {
	w := &p.win
	p.run(planes, &x[0], w.H*w.W, &y[0], w.OH*w.OW, w.H, w.W, w.Top, w.OH, w.OW, len(p.table)/blockLen, &p.table[0])
}

// plane takes the maxima of columns of windows, then those of rows of these.
func (p *MaxPool) plane(y, x, row []float32) {
	w := &p.win
	for i := range row {
		row[i] = lowest
	}
	cols := row[w.Left:][:w.W]
	for i := range w.OH {
		for j := range cols {
			cols[j] = lowest
		}
		for a := range w.KH {
			if r := i*w.SH - w.Top + a*w.DH; r >= 0 && r < w.H {
				p.larger(cols, cols, x[r*w.W:][:w.W])
			}
		}
		to := y[i*w.OW:][:w.OW]
		if w.SW == 1 {
			copy(to, row)
			for b := 1; b < w.KW; b++ {
				p.larger(to, to, row[b*w.DW:])
			}
			continue
		}
		for j := range to {
			v := row[j*w.SW]
			for b := 1; b < w.KW; b++ {
				v = max(v, row[j*w.SW+b*w.DW])
			}
			to[j] = v
		}
	}
}

func largerGo(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for i := range y {
		y[i] = max(a[i], b[i])
	}
}
