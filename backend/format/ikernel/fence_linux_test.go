package ikernel

import (
	"syscall"
	"testing"
	"unsafe"
)

// fence returns n elements, the last of which ends where a page begins that may not be
// touched, or, with first set, the first of which begins where such a page ends.
func fence[T any](t *testing.T, n int, first bool) []T {
	t.Helper()
	page := syscall.Getpagesize()
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	room := (size + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, room+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(all) })
	for _, p := range [][]byte{all[:page], all[page+room:]} {
		if err := syscall.Mprotect(p, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	at := page
	if !first {
		at += room - size
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&all[at])), n)
}

// fenced is a copy of x between fences.
func fenced[T any](t *testing.T, x []T, first bool) []T {
	y := fence[T](t, len(x), first)
	copy(y, x)
	return y
}

// A kernel that reads or writes outside of its arguments dies here.
func TestKernelsStayWithinTheirArguments(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, first := range []bool{false, true} {
			for _, rows := range []int{1, 4, 7, 17, 33} {
				for _, k4 := range []int{1, 3, 16, 97} {
					for _, cols := range []int{1, 17, 64} {
						n, ld := lanes(cols), Group*k4
						w, a := fenced(t, trained(r, rows*ld), first), fenced(t, u8s(r, rows*ld), first)
						x, b := fenced(t, u8s(r, k4*PanelRow), first), fenced(t, i8s(r, k4*PanelRow), first)
						c := fence[int32](t, span(rows, n, Columns), first)
						k.Gemm(rows, k4, w, ld, x, cols, c, Columns)
						k.GemmTokens(rows, k4, a, ld, b, cols, c, Columns)
						if narrowed, rest := k.Narrow(w, rows, ld); narrowed != nil {
							k.GemmNarrow(rows, k4, fenced(t, narrowed, first), ld, x, cols, c, Columns)
							k.Spmm(rest, 0, rows, k4, x, cols, c, Columns, true)
						}
						g := k.Prepare(groups(r, rows, k4, 0.5, i8s))
						g.Ptr, g.Index, g.Value = fenced(t, g.Ptr, first), fenced(t, g.Index, first), fenced(t, g.Value, first)
						k.Spmm(g, 0, rows, k4, x, cols, c, Columns, false)
						k.Spmm(g, 0, rows, k4, x, cols, c, Columns, true)
						k.PackTokens(fence[uint8](t, k4*PanelRow, first), fenced(t, u8s(r, cols*ld), first), ld, cols, k4)
						offset := make([]int32, 4*k4)
						for i := range offset {
							offset[i] = int32(i % 70)
						}
						k.Pack(fence[uint8](t, k4*PanelRow, first), fenced(t, u8s(r, 69+cols), first), fenced(t, offset, first), cols)
					}
				}
			}
			if step := k.planeStep; step > 0 {
				for _, tall := range []int{1, 2, 3, 7} {
					rows := tall * k.planeRows
					for _, at := range [][]int32{{0}, {0, 5, 259}} {
						for _, cols := range []int{1, 16, 17, 33, 64} {
							const pitch = 301
							ld := step * len(at)
							x := fenced(t, u8s(r, int(at[len(at)-1])+(step/Group-1)*pitch+Group*Columns), first)
							c := fence[int32](t, span(rows, lanes(cols), Columns), first)
							k.GemmPlanes(rows, fenced(t, i8s(r, rows*ld), first), ld, x, fenced(t, at, first), pitch, cols, c)
						}
					}
				}
			}
			for _, n := range []int{1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65} {
				f, u := func(n int) []float32 { return fenced(t, f32s(r, n), first) }, func(n int) []uint8 { return fenced(t, u8s(r, n), first) }
				l := NoLimits()
				l.ToU8(0.05, 30)
				k.Quantize(&l, u(n), f(n))
				k.Dequantize(f(n), u(n), 0.3, 7)
				k.Max(u(n), u(n))
				k.Split(u((n+1)/2), u(n/2), u(n))
				k.MaxPool(u(span(3, n, n+1)), n+1, u(span(7, 2*n+1, 2*n+2)), 2*n+2, 3, n)
				for step := 1; step <= 2; step++ {
					src := step*(n-1) + 1
					k.Frame(u(3*(n+3)), n+3, u(3*src), src, step, 3, n, 1, 2, 9)
					k.Interleave(u(3*4*(n+3)), 4*(n+3), u(4*3*src), src, 3*src, step, 3, n, 1, 2, 9)
				}
				for _, taps := range []int{1, 3, 5} {
					p := NewWindows(4*n+6*taps, Axis{2, taps, 1, 1}, Axis{n, taps, 1 + r.IntN(4), 1 + r.IntN(6)})
					p.at = fenced(t, p.at, first)
					k.Depthwise(fence[int32](t, p.Sums(), first), u(p.Bytes()), fenced(t, i8s(r, Group*len(p.at)), first), p)
				}
				for variant := range 24 {
					const rows = 3
					near := variant/12 > 0
					variant %= 12
					e := Epilogue{ByColumn: variant&1 != 0, Limits: l, near: near}
					which := rows
					if e.ByColumn {
						which = n
					}
					e.Sum, e.Scale, e.Bias = fence[int32](t, which, first), f(which), f(which)
					e.mul, e.add = f(which), f(which)
					var y, res Elems
					if variant&2 != 0 {
						y.U8 = u(rows * n)
					} else {
						y.F32 = f(rows * n)
					}
					switch variant / 4 {
					case 1:
						res.F32 = f(rows * n)
					case 2:
						res.U8 = u(rows * n)
					}
					k.Finish(&e, 0, rows, n, fence[int32](t, span(rows, n, n+5), first), n+5, y, res, n)
				}
			}
		}
	})
}
