package ukernel

// LaneRows is the number of rows that meet a vector at a time, each in a lane.
const LaneRows = 16

const (
	window   = 2 * LaneRows // consecutive elements of the vector among which lanes choose theirs
	laneStep = 4            // elements of a row that one window serves at most
	maxFill  = 4            // places to a nonzero up to which lanes are worth it
)

// lanesKernel multiplies consecutive blocks of LaneRows rows by a vector. Block b has ptr[b+1]-ptr[b]
// bundles; start, place and value begin at the first of them. Values far bytes ahead are fetched unless that is 0.
type lanesKernel func(blocks int, ptr, start, place []uint32, value Values, x, y []float32, far int)

// lanes is a weight of single rows for products with a vector that gather nothing. LaneRows rows go on
// together: a bundle is a window of the vector, which begins at start, and for each row up to laneStep
// places in it, a byte of the row's word each, and what to multiply these by: [laneStep][LaneRows]
// values, zero where a row has no more in the window.
type lanes struct {
	ptr, start, place []uint32
	value             Values
}

// Lanes reports whether products with vectors gather nothing, unless most lanes would be idle.
func (a *Sparse[I]) Lanes() bool { return a.lanes != nil }

// newLanes returns the rows of a as lanes, nil where these are mostly empty.
func newLanes[I Index](a *Sparse[I]) *lanes {
	blocks := (a.m + LaneRows - 1) / LaneRows
	bundles := 3 * int(a.ptr[a.m]) / (2 * LaneRows * laneStep)
	l := &lanes{
		ptr: make([]uint32, 1, blocks+1), start: make([]uint32, 0, bundles), place: make([]uint32, 0, bundles*LaneRows),
		value: a.value.Make(bundles * LaneRows * laneStep),
	}
	for b := range blocks {
		addLanes(l, a.ptr[b*LaneRows:min(b*LaneRows+LaneRows, a.m)+1], a)
		l.ptr = append(l.ptr, uint32(len(l.start)))
	}
	if l.value.Len() > maxFill*int(a.ptr[a.m]) {
		return nil
	}
	return l
}

// addLanes appends the bundles of some rows of a, which ptr bounds.
func addLanes[I Index](l *lanes, ptr []uint32, a *Sparse[I]) {
	var next [LaneRows]uint32
	copy(next[:], ptr)
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
		first = min(first, a.k-window)
		var place [LaneRows]uint32
		from := [laneStep][LaneRows]int{}
		for s := range from {
			for r := range from[s] {
				from[s][r] = -1
				if r >= len(ptr)-1 || next[r] == ptr[r+1] || int(a.index[next[r]]) >= first+window {
					continue
				}
				place[r] |= uint32(int(a.index[next[r]])-first) << (8 * s)
				from[s][r] = int(next[r])
				next[r]++
			}
			l.value.AppendAt(a.value, from[s][:])
		}
		l.start = append(l.start, uint32(first))
		l.place = append(l.place, place[:]...)
	}
}

// mul computes the rows from to to-1 of the product, from being a multiple of LaneRows. Lanes that are read once, and do
// not fit into level 2, are fetched ahead.
func (l *lanes) mul(kernel lanesKernel, from, to int, x, y []float32, once bool) {
	far := 0
	if once {
		far = l.value.ahead()
	}
	run := func(b, blocks int, y []float32) {
		ptr := l.ptr[b : b+blocks+1]
		first, last := int(ptr[0]), int(ptr[blocks])
		kernel(blocks, ptr, l.start[first:last], l.place[first*LaneRows:last*LaneRows],
			l.value.Slice(first*laneStep*LaneRows, last*laneStep*LaneRows), x, y, far)
	}
	whole := (to - from) / LaneRows
	if whole > 0 {
		run(from/LaneRows, whole, y)
	}
	if y = y[whole*LaneRows : to-from]; len(y) > 0 {
		last := tails.Get().(*[16]float32)
		defer tails.Put(last)
		run(from/LaneRows+whole, 1, last[:])
		copy(y, last[:])
	}
}
