package group_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/cpu/vec"
	"spc/backend/format/bitmap"
	"spc/backend/format/dense"
	"spc/backend/format/group"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// far is how many bytes of weights take turns, so that each comes from memory.
const far = 96 << 20

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

// stored is how weights are stored that BenchmarkStream measures.
type stored struct {
	name    string
	dtype   tensor.DType // i4 stands for codes of 4 bits
	density float64      // 0 where all elements are stored
}

func (f stored) String() string {
	if f.density == 0 {
		return "dense/" + f.name
	}
	return fmt.Sprintf("bitmap/%s/%.0f%%", f.name, 100*(1-f.density))
}

// make returns what makes kernels for weights of their own, all of the same elements, and the bytes of one.
func (f stored) make(m, k int) (prepare func() backend.FloatKernel, bytes int) {
	rng := rand.New(rand.NewPCG(1, 2))
	if bits := map[string]int{"int4": 4, "int8": 8}[f.name]; bits > 0 {
		w := f.codes(rng, m, k, bits)
		return func() backend.FloatKernel {
			own := *w
			own.Codes, own.Set, own.Scales = slices.Clone(w.Codes), slices.Clone(w.Set), w.Scales.Clone()
			if f.density > 0 {
				return must(own.Kernel())
			}
			return must(own.Weight.Kernel())
		}, len(w.Codes) + 8*len(w.Set) + 2*w.Scales.Len()
	}
	w := tensor.New(tensor.F32, m, k)
	for i := range w.F32s() {
		if f.stores(rng) {
			w.F32s()[i] = float32(rng.Uint32()>>8)/0x1p24 + 0.1
		}
	}
	if f.density == 0 {
		w = w.To(f.dtype)
		return func() backend.FloatKernel { return dense.Kernel(w.Clone()).(backend.Sizer).Sized(1) }, len(w.Bytes())
	}
	format := bitmap.New()
	s := &ir.Store{Format: bitmap.Name, Rows: m, Cols: k, Parts: choose.Narrow(must(format.Pack(w, "")), f.dtype)}
	return func() backend.FloatKernel {
		own := *s
		own.Parts = slices.Clone(s.Parts)
		for i := range own.Parts {
			own.Parts[i].Data = own.Parts[i].Data.Clone()
		}
		return must(format.Kernels[0].CPU(&own)).(backend.FloatKernel)
	}, s.Bytes()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// stores draws whether an element is stored.
func (f stored) stores(rng *rand.Rand) bool { return f.density == 0 || rng.Float64() < f.density }

// codes draws a weight in groups of 32, with scales of f16.
func (f stored) codes(rng *rand.Rand, m, k, bits int) *group.Bitmap {
	w := &group.Bitmap{Weight: group.Weight{M: m, K: k, Bits: bits, Block: 32, Blocks: (k + 31) / 32}, Words: (k + 63) / 64}
	scales := tensor.New(tensor.F32, m, w.Blocks)
	for i := range scales.F32s() {
		scales.F32s()[i] = rng.Float32() + 0.1
	}
	w.Scales = scales.To(tensor.F16)
	n := m * w.RowBytes()
	if f.density > 0 {
		w.Set = make([]uint64, m*w.Words)
		for i := range m * k {
			if f.stores(rng) {
				w.Set[i/k*w.Words+i%k/64] |= 1 << (i % k % 64)
			}
		}
		n = w.Starts()[m] + group.Beyond*bits/8
	}
	w.Codes = make([]byte, n)
	for i := range w.Codes {
		w.Codes[i] = byte(rng.Uint32())
	}
	return w
}

// stream is a kernel whose weights come from memory: copies take turns, some rows at a time.
type stream struct {
	kernels []backend.FloatKernel
	m, k    int
	bytes   int // of a copy
	at      int
	x, y    []float32
}

// streamRows are few enough for interruptions to leave most calls alone.
const streamRows = 128

func newStream(f stored, m, k int) *stream {
	s := &stream{m: m, k: k, x: make([]float32, k), y: make([]float32, m)}
	for i := range s.x {
		s.x[i] = 1
	}
	make, bytes := f.make(m, k)
	for n := 0; n < far; n += bytes {
		s.kernels = append(s.kernels, make())
	}
	s.bytes = bytes
	return s
}

// rounds are the steps that read all copies.
func (s *stream) rounds() int { return len(s.kernels) * (s.m / streamRows) }

func (s *stream) step() {
	r := s.at % (s.m / streamRows) * streamRows
	s.kernels[s.at/(s.m/streamRows)%len(s.kernels)].Vec(s.y, s.x, r, r+streamRows)
	s.at++
}

// rate is the bytes a second of steps of so many seconds.
func (s *stream) rate(seconds float64) float64 {
	return float64(s.bytes) / float64(s.m) * streamRows / seconds
}

// bandwidth is the bytes a second at which one thread reads memory, by the better of two loops that do little else.
func bandwidth() float64 {
	const k, some = 4096, 1 << 20
	data := make([]float32, far/4)
	for i := range data {
		data[i] = 1 // a page that nothing was written to is read from one place
	}
	floats := dense.Kernel(tensor.From(data, len(data)/k, k)).(backend.Sizer).Sized(1)
	x, y := make([]float32, k), make([]float32, some/4/k)
	at, row := 0, len(data)/k/2 // of which no cache has what the other loop read
	t := typical(600, func() {
		vec.Sum(data[at : at+some/4])
		at = (at + some/4) % len(data)
	}, func() {
		floats.Vec(y, x, row, row+len(y))
		row = (row + len(y)) % (len(data) / k)
	})
	return some / min(t[0], t[1])
}

// BenchmarkStream measures products of one column on one thread, with weights that come from memory: bytes a second, what memory brings
// and what the same kernel reaches with a weight in the level 1 cache, the share of the lower of both, and how many times as fast as
// others products of equal sizes are.
func BenchmarkStream(b *testing.B) {
	memory := bandwidth()
	for _, size := range [][2]int{{4096, 4096}, {4096, 11008}} {
		for _, f := range []stored{{"f32", tensor.F32, 0}, {"int8", 0, 0}, {"int4", 0, 0}} {
			b.Run(fmt.Sprintf("%dx%d/%v", size[0], size[1], f), func(b *testing.B) { stream1(b, f, size, memory) })
		}
		for _, zeros := range []float64{0.5, 0.7, 0.8} {
			for _, f := range []stored{{"f16", tensor.F16, 1 - zeros}, {"int8", 0, 1 - zeros}, {"int4", 0, 1 - zeros}} {
				b.Run(fmt.Sprintf("%dx%d/%v", size[0], size[1], f), func(b *testing.B) { stream1(b, f, size, memory) })
			}
		}
		ratio(b, stored{"int8", 0, 0.3}, stored{"int8", 0, 0}, size)
		ratio(b, stored{"int4", 0, 0.5}, stored{"int4", 0, 0}, size)
	}
}

func stream1(b *testing.B, f stored, size [2]int, memory float64) {
	s := newStream(f, size[0], size[1])
	const nearRows, nearColumns, again = 16, 1024, 16
	make, bytes := f.make(nearRows, nearColumns)
	near := make()
	for b.Loop() {
		t := typical(2*s.rounds(), s.step, func() {
			for range again {
				near.Vec(s.y, s.x[:nearColumns], 0, nearRows)
			}
		})
		rate, hot := s.rate(t[0]), again*float64(bytes)/t[1]
		b.ReportMetric(rate/1e9, "GB/s")
		b.ReportMetric(memory/1e9, "GB/s-memory")
		b.ReportMetric(hot/1e9, "GB/s-L1")
		b.ReportMetric(100*rate/min(hot, memory), "%lower")
		b.ReportMetric(1e6*t[0]/streamRows*float64(s.m), "us")
	}
	b.ReportMetric(0, "ns/op")
}

// ratio measures how many times as fast as another form one is.
func ratio(b *testing.B, f, other stored, size [2]int) {
	b.Run(fmt.Sprintf("%dx%d/%v-over-%v", size[0], size[1], f, other), func(b *testing.B) {
		one, two := newStream(f, size[0], size[1]), newStream(other, size[0], size[1])
		for b.Loop() {
			var all []float64
			for range 9 {
				t := typical(max(one.rounds(), two.rounds())/4, one.step, two.step)
				all = append(all, t[1]/t[0])
			}
			slices.Sort(all)
			b.ReportMetric(all[len(all)/2], "times")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkColumns measures products of some columns on one thread: of tokens, of which each is taken as Tokens of the kernel for so
// many takes it, and by panels.
func BenchmarkColumns(b *testing.B) {
	const m, k = 512, 4096
	for _, f := range []stored{{"f32", tensor.F32, 0}, {"int8", 0, 0}, {"int4", 0, 0}, {"int8", 0, 0.3}, {"int4", 0, 0.5}} {
		prepare, _ := f.make(m, k)
		kern := prepare()
		for _, n := range []int{1, 2, 4, 8, 12, 16, 32, 64} {
			x, y := make([]float32, max(n*k, k*backend.Panel)), make([]float32, max(n, backend.Panel)*(m+backend.Panel))
			tokens := func() { kern.Vec(y, x[:k], 0, m) }
			if l := kern.(backend.Linear); n > 1 {
				scratch := make([]float32, backend.Panel*backend.Panel)
				tokens = func() {
					for r := 0; r < m; r += backend.Panel {
						l.Tokens(y, x, n, r, r+backend.Panel, scratch)
					}
				}
			}
			panels := kern.(backend.Sizer).Sized(64)
			all := func() {
				for b := range len(panels.Bounds()) - 1 {
					for r := 0; r < m; r += 60 {
						panels.Panel(y[r*backend.Panel:], x[panels.Bounds()[b]*backend.Panel:], b, backend.Columns(max(2, n))/backend.Granule, r, min(m, r+60))
					}
				}
			}
			tokens()
			all()
			b.Run(fmt.Sprintf("%v/%d", f, n), func(b *testing.B) {
				for b.Loop() {
					t := typical(60, tokens, all)
					b.ReportMetric(1e6*t[0], "us-tokens")
					b.ReportMetric(1e6*t[1], "us-panels")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
