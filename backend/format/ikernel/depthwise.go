package ikernel

import "slices"

// Windows are those of a convolution over a plane of bytes: Lines of Columns windows.
type Windows struct {
	Lines, Columns int

	line, step, spread int     // bytes from a line of windows to the next, from a window to the next, between taps of a group
	at                 []int32 // of each group of taps from a window's first
	kh, kw, each       int     // taps, and how many of them are a group

	order [64]uint8 // for kernels, where there are some: which bytes belong to lanes
	pairs [2][16]uint8
}

// mostStep is the most bytes between windows for which there are kernels beside that in pure Go, and mostReach that and what lies between
// taps for which they take four taps at a time.
const (
	mostStep  = 4
	mostReach = 5
)

// windowSlack is the number of bytes that are read from the first of the last columns of a group of taps on, and that of the sums that are written
// behind those of windows.
const (
	windowSlack = 64
	sumsSlack   = 15
)

// Axis is an axis of a plane that windows lie along.
type Axis struct{ Windows, Taps, Stride, Dilation int }

// NewWindows returns windows over a plane of rows of pitch bytes.
func NewWindows(pitch int, h, w Axis) *Windows {
	p := &Windows{Lines: h.Windows, Columns: w.Windows, line: h.Stride * pitch, step: w.Stride, spread: w.Dilation, kh: h.Taps, kw: w.Taps, each: Group}
	if w.Stride+w.Dilation > mostReach || w.Stride > mostStep {
		p.each, p.spread = 1, 1
	}
	for y := range h.Taps {
		for x := 0; x < w.Taps; x += p.each {
			p.at = append(p.at, int32(y*h.Dilation*pitch+x*w.Dilation))
		}
	}
	if w.Stride > mostStep {
		return p
	}
	for i := range p.order {
		p.order[i] = uint8(i/Group*p.step + i%Group*p.spread)
	}
	for half := range p.pairs {
		for i := range p.pairs[half] {
			p.pairs[half][i] = 0x80 // a zero
			if i%2 == 0 {
				p.pairs[half][i] = uint8(i/Group*p.step + (2*half+i%Group/2)*p.spread)
			}
		}
	}
	return p
}

// Weights puts the taps of w into groups of four, zeros where there are fewer.
func (p *Windows) Weights(w []int8) []int8 {
	var out []int8
	for y := range p.kh {
		for x := 0; x < p.kw; x += p.each {
			var g [Group]int8
			copy(g[:], w[y*p.kw+x:][:min(p.each, p.kw-x)])
			out = append(out, g[:]...)
		}
	}
	return out
}

// Bytes is how long the plane must be: more is read behind it than matters.
func (p *Windows) Bytes() int {
	return (p.Lines-1)*p.line + (p.Columns-1)*p.step + int(slices.Max(p.at)) + windowSlack
}

// Sums is how long the sums must be: more is written behind them than matters.
func (p *Windows) Sums() int { return p.Lines*p.Columns + sumsSlack }

// Depthwise sums up what windows see of a plane x, by the weights w that p has put into groups: c[i*Columns+j] of window j of line i.
func (k *Kernels) Depthwise(c []int32, x []uint8, w []int8, p *Windows) {
	if p.Lines == 0 || p.Columns == 0 {
		return
	}
	need("plane", len(x), p.Bytes())
	need("weight", len(w), Group*len(p.at))
	need("output", len(c), p.Sums())
	if p.step > mostStep {
		depthwiseGo(c, x, w, p)
		return
	}
	k.depthwise(c, x, w, p)
}

func depthwiseGo(c []int32, x []uint8, w []int8, p *Windows) {
	for i := range p.Lines {
		sums := c[i*p.Columns:][:p.Columns]
		clear(sums)
		for g, at := range p.at {
			for t := range p.each {
				v := int32(w[Group*g+t])
				if v == 0 {
					continue
				}
				row := x[i*p.line+int(at)+t*p.spread:][:(p.Columns-1)*p.step+1]
				for j := range sums {
					sums[j] += v * int32(row[j*p.step])
				}
			}
		}
	}
}
