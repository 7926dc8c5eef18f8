package tensor

import (
	"fmt"
	"runtime"

	"spc/internal/memory"
)

// Copy moves a box of elements between two tensors of one element type:
//
//	for i in box: dst[dstOff + i·dstStrides] = src[srcOff + i·srcStrides]
//
// with i running over shape in row-major order. Strides are in elements and may
// be zero or negative. It is what transpose, slice, expand, concat, split, pad
// and tile are made of. Every index must lie inside its tensor.
func Copy(dst, src *Tensor, shape []int, dstOff int, dstStrides []int, srcOff int, srcStrides []int) {
	if dst.dtype != src.dtype {
		panic(fmt.Sprintf("tensor.Copy: %v into %v", src, dst))
	}
	if n := mustElems(shape); n == 0 {
		return
	}
	shape, dstStrides, srcStrides = merge(shape, dstStrides, srcStrides)
	switch {
	case dst.dtype == String:
		copyBox(dst.strs, src.strs, shape, dstOff, dstStrides, srcOff, srcStrides)
	case dst.dtype.Size() == 1:
		copyBox(dst.data, src.data, shape, dstOff, dstStrides, srcOff, srcStrides)
	case dst.dtype.Size() == 2:
		copyBox(view[uint16](dst), view[uint16](src), shape, dstOff, dstStrides, srcOff, srcStrides)
	case dst.dtype.Size() == 4:
		copyBox(view[uint32](dst), view[uint32](src), shape, dstOff, dstStrides, srcOff, srcStrides)
	case dst.dtype.Size() == 8:
		copyBox(view[uint64](dst), view[uint64](src), shape, dstOff, dstStrides, srcOff, srcStrides)
	default:
		copyBox(view[complex128](dst), view[complex128](src), shape, dstOff, dstStrides, srcOff, srcStrides)
	}
}

// merge drops dimensions of one and joins neighbours that are contiguous in
// both tensors, so that inner loops are long.
func merge(shape, a, b []int) (s, x, y []int) {
	for i, d := range shape {
		if d == 1 {
			continue
		}
		if n := len(s); n > 0 && x[n-1] == a[i]*d && y[n-1] == b[i]*d {
			s[n-1] *= d
			x[n-1], y[n-1] = a[i], b[i]
			continue
		}
		s, x, y = append(s, d), append(x, a[i]), append(y, b[i])
	}
	return s, x, y
}

func copyBox[T any](dst, src []T, shape []int, do int, ds []int, so int, ss []int) {
	if len(shape) == 0 {
		dst[do] = src[so]
		return
	}
	n, d, s := shape[0], ds[0], ss[0]
	if len(shape) == 1 {
		if d == 1 && s == 1 {
			memory.Copy(dst[do:do+n], src[so:so+n])
			return
		}
		for range n {
			dst[do] = src[so]
			do += d
			so += s
		}
		return
	}
	if len(shape) == 2 && ds[1] == 1 && ss[0] == 1 && min(d, ss[1]) > 0 && min(n, shape[1]) >= tileSize {
		copyTiles(dst[do:], src[so:], n, shape[1], d, ss[1])
		return
	}
	for range n {
		copyBox(dst, src, shape[1:], do, ds[1:], so, ss[1:])
		do += d
		so += s
	}
}

// tileSize is how many rows and columns of a matrix are transposed together.
const tileSize = 16

// copyTiles transposes: dst[i*d+j] = src[i+j*s] for i < n and j < m. It goes through tiles, as rows whose length is a power of two share a
// few lines of the cache.
func copyTiles[T any](dst, src []T, n, m, d, s int) {
	var tile [tileSize][tileSize]T
	for i0 := 0; i0 < n; i0 += tileSize {
		if i0%256 == 0 {
			runtime.Gosched() // as memory.Copy
		}
		high := min(tileSize, n-i0)
		for j0 := 0; j0 < m; j0 += tileSize {
			wide := min(tileSize, m-j0)
			for j := range wide {
				for i, v := range src[i0+(j0+j)*s:][:high] {
					tile[i][j] = v
				}
			}
			for i := range high {
				copy(dst[(i0+i)*d+j0:][:wide], tile[i][:])
			}
		}
	}
}

// Permute returns a new tensor whose axis i is axis perm[i] of t.
func (t *Tensor) Permute(perm ...int) *Tensor {
	shape := make([]int, len(perm))
	strides := make([]int, len(perm))
	st := Strides(t.shape)
	for i, p := range perm {
		shape[i], strides[i] = t.shape[p], st[p]
	}
	out := New(t.dtype, shape...)
	Copy(out, t, shape, 0, Strides(shape), 0, strides)
	return out
}

// Expand returns a new tensor broadcast to shape, which t's shape must match
// from the right with dimensions that are equal or one.
func (t *Tensor) Expand(shape ...int) *Tensor {
	st := Strides(t.shape)
	strides := make([]int, len(shape))
	for i := range t.shape {
		if j := len(shape) - len(t.shape) + i; t.shape[i] != 1 {
			strides[j] = st[i]
		}
	}
	out := New(t.dtype, shape...)
	Copy(out, t, shape, 0, Strides(shape), 0, strides)
	return out
}
