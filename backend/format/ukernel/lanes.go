package ukernel

import "spc/internal/lent"

// maxFill is the number of places to a nonzero up to which lanes are worth it.
const maxFill = 4

// laneShape says how an instruction set takes rows as lanes: so many together, which choose among the elements of a window of
// the vector, at most step each, and say in so many bits which.
type laneShape struct{ laneRows, window, step, bits int }

// lanesKernel multiplies consecutive blocks of laneRows rows by a vector. Block b has ptr[b+1]-ptr[b]
// bundles; start, place and value begin at the first of them. Values far bytes ahead are fetched unless that is 0.
type lanesKernel func(blocks int, ptr, start []uint32, place []uint8, value Values, x, y []float32, far int)

// lanes is a weight of single rows for products with a vector that gather nothing. laneRows rows go on
// together: a bundle is a window of the vector, which begins at start, and for each row up to step
// places in it, side by side in the row's bytes from the lowest bits on, and what to multiply these by: [step][laneRows]
// values, zero where a row has no more in the window.
type lanes struct {
	laneShape
	ptr, start []uint32
	place      []uint8
	value      Values
}

// Lanes reports whether products with vectors gather nothing, unless most lanes would be idle.
func (a *Sparse[I]) Lanes() bool { return a.lanes != nil }

// size is the number of bytes in which a row says its places in a window.
func (s laneShape) size() int { return s.step * s.bits / 8 }

// newLanes returns the rows of a as lanes, nil where these are mostly empty.
func newLanes[I Index](a *Sparse[I]) *lanes {
	s := a.kern.laneShape
	blocks := (a.m + s.laneRows - 1) / s.laneRows
	bundles := 3 * int(a.ptr[a.m]) / (2 * s.laneRows * s.step)
	l := &lanes{
		laneShape: s, ptr: make([]uint32, 1, blocks+1), start: make([]uint32, 0, bundles),
		place: make([]uint8, 0, bundles*s.laneRows*s.size()), value: a.value.Make(bundles * s.laneRows * s.step),
	}
	for b := range blocks {
		addLanes(l, a.ptr[b*s.laneRows:min((b+1)*s.laneRows, a.m)+1], a)
		l.ptr = append(l.ptr, uint32(len(l.start)))
	}
	if l.value.Len() > maxFill*int(a.ptr[a.m]) {
		return nil
	}
	return l
}

// addLanes appends the bundles of some rows of a, which ptr bounds.
func addLanes[I Index](l *lanes, ptr []uint32, a *Sparse[I]) {
	next, from := append([]uint32(nil), ptr[:len(ptr)-1]...), make([]int, l.laneRows*l.step)
	for {
		first := a.k
		for r, end := range ptr[1:] {
			if next[r] < end {
				first = min(first, int(a.index[next[r]]))
			}
		}
		if first == a.k {
			return
		}
		first = max(0, min(first, a.k-l.window))
		l.start = append(l.start, uint32(first))
		for r := range l.laneRows {
			place := uint32(0)
			for s := range l.step {
				at := &from[s*l.laneRows+r]
				*at = -1
				if r >= len(next) || next[r] == ptr[r+1] || int(a.index[next[r]]) >= first+l.window {
					continue
				}
				place |= uint32(int(a.index[next[r]])-first) << (s * l.bits)
				*at = int(next[r])
				next[r]++
			}
			for b := range l.size() {
				l.place = append(l.place, uint8(place>>(8*b)))
			}
		}
		l.value.AppendAt(a.value, from)
	}
}

// mul computes the rows from to to-1 of the product, from being a multiple of laneRows. Lanes that are read once, and do
// not fit into level 2, are fetched ahead.
func (l *lanes) mul(kern *Kernels, from, to int, x, y []float32, once bool) {
	if len(x) < l.window {
		filled := windows.Get()
		defer windows.Put(filled)
		clear(filled[copy(filled[:], x):])
		x = filled[:]
	}
	far := 0
	if once {
		far = l.value.ahead()
	}
	run := func(b, blocks int, y []float32) {
		ptr := l.ptr[b : b+blocks+1]
		first, last := int(ptr[0]), int(ptr[blocks])
		kern.lanes[l.value.kind](blocks, ptr, l.start[first:last], l.place[first*l.laneRows*l.size():last*l.laneRows*l.size()],
			l.value.Slice(first*l.step*l.laneRows, last*l.step*l.laneRows), x, y, far)
	}
	whole := (to - from) / l.laneRows
	if whole > 0 {
		run(from/l.laneRows, whole, y)
	}
	if y = y[whole*l.laneRows : to-from]; len(y) > 0 {
		last := tails.Get()
		defer tails.Put(last)
		run(from/l.laneRows+whole, 1, last[:])
		copy(y, last[:])
	}
}

// maxWindow is the largest window.
const maxWindow = 32

// windows lends vectors that are shorter than a window, filled up with zeros.
var windows = lent.NewPool(func() *[maxWindow]float32 { return new([maxWindow]float32) })
