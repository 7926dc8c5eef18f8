package plan

import (
	"cmp"
	"slices"
)

// Buffer is a request for bytes of the arena during a span.
type Buffer struct {
	Size int
	Span Span
}

// peak is the most bytes that are in use at once, each buffer rounded up to a
// multiple of align: no arena is smaller, but for the rounding of its last buffer.
func peak(buffers []Buffer, align int) int {
	most := 0
	for _, n := range live(buffers, align) {
		most = max(most, n)
	}
	return most
}

// live returns the bytes in use at each step.
func live(buffers []Buffer, align int) []int {
	var at []int
	for _, b := range buffers {
		for len(at) <= b.Span.Last {
			at = append(at, 0)
		}
		for i := b.Span.First; i <= b.Span.Last; i++ {
			at[i] += roundUp(b.Size, align)
		}
	}
	return at
}

// Offsets places buffers so that those whose spans overlap do not, each at a
// multiple of align, and returns their offsets and the size of the arena. Each
// goes into the smallest gap that holds it, in one of two orders after Pisarchyk
// and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020):
// the largest first (section 4.3), and where that takes more than the peak, those
// of the fullest steps first (section 4.2).
func Offsets(buffers []Buffer, align int) (offsets []int, size int) {
	order := make([]int, len(buffers))
	for i := range order {
		order[i] = i
	}
	bySize := func(a, b int) int { return buffers[b].Size - buffers[a].Size }
	slices.SortStableFunc(order, bySize)
	offsets, size = place(buffers, order, align)
	at := live(buffers, align)
	if len(at) == 0 || size <= slices.Max(at) {
		return offsets, size
	}
	breadth := make([]int, len(buffers))
	for i, b := range buffers {
		breadth[i] = slices.Max(at[b.Span.First : b.Span.Last+1])
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Or(breadth[b]-breadth[a], bySize(a, b)) })
	if o, n := place(buffers, order, align); n < size {
		return o, n
	}
	return offsets, size
}

func place(buffers []Buffer, order []int, align int) (offsets []int, size int) {
	offsets = make([]int, len(buffers))
	var placed []int // by offset
	for _, i := range order {
		b := buffers[i]
		if b.Size == 0 {
			continue
		}
		best, gap := -1, 0
		end := 0
		for _, j := range placed {
			o := buffers[j]
			if o.Span.Last < b.Span.First || b.Span.Last < o.Span.First {
				continue
			}
			if free := offsets[j] - end; free >= b.Size && (best < 0 || free < gap) {
				best, gap = end, free
			}
			end = max(end, roundUp(offsets[j]+o.Size, align))
		}
		if best < 0 {
			best = end
		}
		offsets[i] = best
		size = max(size, best+b.Size)
		at, _ := slices.BinarySearchFunc(placed, best, func(j, off int) int { return offsets[j] - off })
		placed = slices.Insert(placed, at, i)
	}
	return offsets, size
}

func roundUp(n, align int) int { return (n + align - 1) / align * align }
