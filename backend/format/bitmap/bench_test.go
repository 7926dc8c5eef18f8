package bitmap_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// far is how many bytes of weights take turns, so that each comes from memory.
const far = 128 << 20

// typical alternates calls, and returns what one of each takes when other load on the machine leaves it alone: of the times, the
// longest of the least tenth. The least of all would be that of something that a cache still had.
func typical(calls int, fs ...func()) []float64 {
	times := make([][]float64, len(fs))
	for range calls {
		for i, f := range fs {
			start := time.Now()
			f()
			times[i] = append(times[i], time.Since(start).Seconds())
		}
	}
	out := make([]float64, len(fs))
	for i, t := range times {
		slices.Sort(t)
		out[i] = t[len(t)/10]
	}
	return out
}

// stream is the bytes a second at which one thread reads memory, by the best of two loops that do little else.
func stream() float64 {
	const k, some = 4096, 1 << 20
	data := make([]float32, far/4)
	for i := range data {
		data[i] = 1 // a page that nothing was written to is read from one place
	}
	dense := kernel(choose.Form{Format: choose.Dense}, tensor.From(data, len(data)/k, k), tensor.F32)
	x, y := make([]float32, k), make([]float32, some/4/k)
	at, row := 0, len(data)/k/2 // of which no cache has what the other loop read
	t := typical(600, func() {
		vec.Sum(data[at : at+some/4])
		at = (at + some/4) % len(data)
	}, func() {
		dense.Vec(y, x, row, row+len(y))
		row = (row + len(y)) % (len(data) / k)
	})
	return some / min(t[0], t[1])
}

// store stores w in a form.
func store(form choose.Form, w *tensor.Tensor, dt tensor.DType) *ir.Store {
	parts, err := format.Lookup(form.Format).Pack(w, form.Config)
	if err != nil {
		panic(err)
	}
	return &ir.Store{Format: form.Format, Config: form.Config, Rows: w.Dim(0), Cols: w.Dim(1), Parts: choose.Narrow(parts, dt)}
}

// kernel is the one for one column of a weight in a form.
func kernel(form choose.Form, w *tensor.Tensor, dt tensor.DType) backend.FloatKernel {
	return prepare(store(form, w, dt))
}

func prepare(s *ir.Store) backend.FloatKernel {
	k, err := format.Lookup(s.Format).Kernel(s)
	if err != nil {
		panic(err)
	}
	return k.(backend.Sizer).Sized(1)
}

// copied is the same with parts of its own.
func copied(s *ir.Store) *ir.Store {
	c := *s
	c.Parts = slices.Clone(s.Parts)
	for i := range c.Parts {
		c.Parts[i].Data = c.Parts[i].Data.Clone()
	}
	return &c
}

// uniform returns values [m,k], as many in each row, in blocks of so many rows and one column.
func uniform(m, k, rows int, zeros float64, dt tensor.DType) *tensor.Tensor {
	rng := rand.New(rand.NewPCG(1, 2))
	w := tensor.New(tensor.F32, m, k)
	for block := 0; block < m; block += rows {
		for _, c := range rng.Perm(k)[:int(float64(k)*(1-zeros))] {
			for r := block; r < min(block+rows, m); r++ {
				w.F32s()[r*k+c] = rng.Float32() + 0.1
			}
		}
	}
	return w.To(dt).To(tensor.F32)
}

// BenchmarkStream measures the bandwidth that BenchmarkColumn compares with.
func BenchmarkStream(b *testing.B) {
	var best float64
	for b.Loop() {
		best = max(best, stream())
	}
	b.ReportMetric(best/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkColumn measures products of one column on one thread, with weights that come from memory, in bytes a second, as a share of
// what memory brings, of the rate of the same kernel with a weight in the level 1 cache, and of the lower of the two.
func BenchmarkColumn(b *testing.B) {
	bandwidth := stream()
	for _, shape := range [][2]int{{4096, 4096}, {4096, 11008}} {
		for _, zeros := range []float64{0.5, 0.7, 0.8} {
			for _, dt := range []tensor.DType{tensor.F32, tensor.F16} {
				for _, form := range []choose.Form{{Format: "bitmap"}, {Format: "csr"}, {Format: "ell", Config: "1x1"}, {Format: "block", Config: "4x1"}, {Format: "dense"}} {
					b.Run(fmt.Sprintf("%dx%d/%.0f%%/%v/%s", shape[0], shape[1], 100*zeros, dt, form.Format), func(b *testing.B) {
						near := [2]int{1, 4096}
						if form.Format != "bitmap" && form.Format != "dense" { // whose kernels have rows as lanes
							near = [2]int{16, 512}
						}
						rows := 1 // of a block
						if form.Format == "block" {
							rows = 4
						}
						far := store(form, uniform(shape[0], shape[1], rows, zeros, dt), dt)
						for b.Loop() {
							column(b, far, store(form, uniform(near[0], near[1], rows, zeros, dt), dt), bandwidth)
						}
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		}
	}
}

// column measures the kernels of a store that comes from memory, and of one that stays near.
func column(b *testing.B, s, near *ir.Store, bandwidth float64) {
	const rows, again = 128, 64 // few enough for interruptions to leave most calls alone
	var all []backend.FloatKernel
	for n := 0; n < far; n += s.Bytes() {
		all = append(all, prepare(copied(s)))
	}
	x, y := make([]float32, s.Cols), make([]float32, s.Rows)
	for i := range x {
		x[i] = 1
	}
	at := 0
	read := func() {
		r := at % (s.Rows / rows) * rows
		all[at/(s.Rows/rows)%len(all)].Vec(y, x, r, r+rows)
		at++
	}
	for range len(all) * s.Rows / rows { // what kernels copy is copied
		read()
	}
	kernel := prepare(near)
	t := typical(2*len(all)*s.Rows/rows, read, func() {
		for range again {
			kernel.Vec(y, x, 0, near.Rows)
		}
	})
	size := float64(s.Bytes()) / float64(s.Rows*s.Cols) // of an element, in bytes
	elements := [2]float64{rows * float64(s.Cols), again * float64(near.Rows*near.Cols)}
	rate, hot := elements[0]*size/t[0], elements[1]*size/t[1]
	b.ReportMetric(rate/1e9, "GB/s")
	b.ReportMetric(100*rate/bandwidth, "%memory")
	b.ReportMetric(100*rate/hot, "%L1")
	b.ReportMetric(100*rate/min(hot, bandwidth), "%lower")
	b.ReportMetric(1e6*t[0]/rows*float64(s.Rows), "us")
}
