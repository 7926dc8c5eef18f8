package ikernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// windowsCase is a plane with windows over it, and what they sum up by the definition of a convolution.
type windowsCase struct {
	p    *Windows
	x    []uint8
	w    []int8
	want []int32
}

func newWindowsCase(r *rand.Rand, h, w Axis) windowsCase {
	pitch := (w.Windows-1)*w.Stride + (w.Taps-1)*w.Dilation + 1 + r.IntN(3)
	height := (h.Windows-1)*h.Stride + (h.Taps-1)*h.Dilation + 1
	p := NewWindows(pitch, h, w)
	c := windowsCase{p: p, x: u8s(r, max(p.Bytes(), height*pitch)), want: make([]int32, h.Windows*w.Windows)}
	taps := i8s(r, h.Taps*w.Taps)
	for i := range c.want {
		y, x := i/w.Windows*h.Stride, i%w.Windows*w.Stride
		for t, v := range taps {
			c.want[i] += int32(v) * int32(c.x[(y+t/w.Taps*h.Dilation)*pitch+x+t%w.Taps*w.Dilation])
		}
	}
	c.w = p.Weights(taps)
	return c
}

func TestDepthwiseMatchesItsDefinition(t *testing.T) {
	r := rng(t)
	each(t, func(t *testing.T, k *Kernels) {
		for _, columns := range []int{1, 7, 8, 9, 14, 16, 17, 31, 33, 56, 64, 65, 112} {
			for range 12 {
				h := Axis{1 + r.IntN(4), 1 + r.IntN(7), 1 + r.IntN(3), 1 + r.IntN(2)}
				w := Axis{columns, 1 + r.IntN(7), 1 + r.IntN(5), 1 + r.IntN(6)}
				c := newWindowsCase(r, h, w)
				got := make([]int32, c.p.Sums())
				k.Depthwise(got, c.x, c.w, c.p)
				for i, want := range c.want {
					if got[i] != want {
						t.Fatalf("windows along %+v and %+v: sum %d is %d, want %d", h, w, i, got[i], want)
					}
				}
			}
		}
	})
}

func BenchmarkDepthwise(b *testing.B) {
	for _, size := range []int{7, 14, 56, 112} {
		c := newWindowsCase(rng(b), Axis{size, 3, 1, 1}, Axis{size, 3, 1, 1})
		for _, k := range available {
			b.Run(fmt.Sprintf("%s/%dx%d", k.ISA, size, size), func(b *testing.B) {
				got := make([]int32, c.p.Sums())
				for b.Loop() {
					k.Depthwise(got, c.x, c.w, c.p)
				}
				b.ReportMetric(float64(len(c.want))*9*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
			})
		}
	}
}
