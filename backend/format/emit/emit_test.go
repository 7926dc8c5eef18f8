package emit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spc/backend/format/ukernel"
)

// needCode skips a test where no code is generated.
func needCode(tb testing.TB) {
	tb.Helper()
	if !Available() {
		tb.Skip("no code is generated here: it takes Linux, amd64, AVX-512 and memory that may be executed")
	}
}

// random returns a weight in which an element is not zero with this probability.
func random[I Index](rng *rand.Rand, m, k int, density float64) *Weight[I] {
	w := &Weight[I]{M: m, K: k, Ptr: make([]uint32, 1, m+1)}
	for range m {
		for c := range k {
			if rng.Float64() < density {
				w.Index = append(w.Index, I(c))
				w.Value = append(w.Value, rng.Float32()-0.5)
			}
		}
		w.Ptr = append(w.Ptr, uint32(len(w.Index)))
	}
	return w
}

// floats returns n random floats at an address that is no multiple of 64.
func floats(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n+1)[1:]
	for i := range x {
		x[i] = rng.Float32() - 0.5
	}
	return x
}

// check multiplies all blocks in the given ranges of rows and compares with a sum
// in float64. What lies behind the columns and the rows must stay as it was.
func check[I Index](tb testing.TB, rng *rand.Rand, w *Weight[I], s Shape, granules int, ranges ...int) {
	tb.Helper()
	c := New(w, s)
	if c == nil {
		tb.Fatal("no code")
	}
	g := generator[I]{w: w, s: s}
	const mark = 12345
	y := make([]float32, (w.M+1)*columns)
	for i := range y {
		y[i] = mark
	}
	want := make([]float64, len(y))
	for b := range len(s.Bounds) - 1 {
		reach := 0
		for k := s.Bounds[b]; k < s.Bounds[b+1]; k++ {
			reach = max(reach, g.element(b, k))
		}
		x := floats(rng, reach+granules*granule)
		for r := range w.M {
			for j := w.Ptr[r]; j < w.Ptr[r+1]; j++ {
				if k := int(w.Index[j]); k >= s.Bounds[b] && k < s.Bounds[b+1] {
					for i := range granules * granule {
						want[r*columns+i] += float64(w.Value[j]) * float64(x[g.element(b, k)+i])
					}
				}
			}
		}
		r0 := 0
		for _, r1 := range append(ranges, w.M) {
			c.Mul(b, r0, r1, granules, x, y[r0*columns:], nil)
			r0 = r1
		}
	}
	for i, v := range y {
		r, col := i/columns, i%columns
		if r >= w.M || col >= granules*granule {
			if v != mark {
				tb.Fatalf("row %d of %d, column %d of %d granules was written", r, w.M, col, granules)
			}
		} else if math.Abs(float64(v)-want[i]) > 1e-4 {
			tb.Fatalf("%d x %d, bounds %v, %d granules: y[%d,%d] = %v, want %v", w.M, w.K, s.Bounds, granules, r, col, v, want[i])
		}
	}
}

// widest cuts k columns into blocks that are as wide as may be.
func widest(k int) []int {
	bounds := []int{0}
	for at := 0; at < k; {
		at = min(k, at+ukernel.BlockK)
		bounds = append(bounds, at)
	}
	return bounds
}

func TestCodeMultiplies(t *testing.T) {
	needCode(t)
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []int{1, 21, 22, 30, 31, 32, 63, 64, 65, 129, 200} {
		for _, k := range []int{1, 31, 32, 33, BlockK - 1, BlockK, BlockK + 1, 3*BlockK + 5} {
			for _, density := range []float64{0, 0.003, 0.1, 0.5, 1} {
				granules := 1 + rng.IntN(4)
				check(t, rng, random[uint16](rng, m, k, density), Shape{Bounds: Bounds(k), Chunk: 64}, granules)
				check(t, rng, random[uint32](rng, m, k, density), Shape{Bounds: widest(k), Chunk: 1 + rng.IntN(200)}, granules)
			}
		}
	}
	wide := random[uint32](rng, 40, 70_000, 0.01)
	check(t, rng, wide, Shape{Bounds: Bounds(wide.K), Chunk: 64}, 3)
}

func TestRangesOfRowsAreWholeChunks(t *testing.T) {
	needCode(t)
	const seed = 12
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := random[uint16](rng, 150, 300, 0.2)
	s := Shape{Bounds: Bounds(w.K), Chunk: 64}
	check(t, rng, w, s, 4, 64)
	check(t, rng, w, s, 4, 64, 128)
	check(t, rng, w, s, 4, 0, 0, 128)
	c := New(w, s)
	x, y := make([]float32, 128*columns), make([]float32, 150*columns)
	for what, f := range map[string]func(){
		"rows within a chunk":     func() { c.Mul(0, 0, 65, 4, x, y, nil) },
		"rows from within one":    func() { c.Mul(0, 1, 64, 4, x, y, nil) },
		"rows behind the last":    func() { c.Mul(0, 128, 192, 4, x, y, nil) },
		"rows backwards":          func() { c.Mul(0, 64, 0, 4, x, y, nil) },
		"no granules":             func() { c.Mul(0, 0, 64, 0, x, y, nil) },
		"too many granules":       func() { c.Mul(0, 0, 64, 5, x, y, nil) },
		"a short panel":           func() { c.Mul(0, 0, 64, 4, x[:99*columns], y, nil) },
		"a short output":          func() { c.Mul(0, 0, 64, 4, x, y[:64*columns-1], nil) },
		"a block that is not one": func() { c.Mul(3, 0, 64, 4, x, y, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
}

func TestCodeReadsColumnsWhereTheyLie(t *testing.T) {
	needCode(t)
	const seed = 13
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		cut := 1 + rng.IntN(ukernel.BlockK)
		k := cut + 1 + rng.IntN(ukernel.BlockK)
		at := make([]int, k)
		for i := range at {
			at[i] = rng.IntN(1 << rng.IntN(15))
		}
		at[rng.IntN(k)] = ukernel.MaxPlace - 1
		check(t, rng, random[uint16](rng, 1+rng.IntN(150), k, rng.Float64()), Shape{Bounds: []int{0, cut, k}, Chunk: 64, At: at}, 1+rng.IntN(4))
	}
}

func TestShapesAreThoseOfTheWeight(t *testing.T) {
	const k = ukernel.BlockK + 1
	w := &Weight[uint16]{M: 1, K: k, Ptr: []uint32{0, 0}}
	at := func(e int) []int {
		places := make([]int, k)
		places[7] = e
		return places
	}
	good := []int{0, k - 1, k}
	for what, c := range map[string]struct {
		s    Shape
		fits bool
	}{
		"the widest block":      {Shape{good, 64, nil}, true},
		"the last place":        {Shape{good, 64, at(ukernel.MaxPlace - 1)}, true},
		"a place behind it":     {Shape{good, 64, at(ukernel.MaxPlace)}, false},
		"a negative place":      {Shape{good, 64, at(-1)}, false},
		"too few places":        {Shape{good, 64, at(0)[1:]}, false},
		"no chunks":             {Shape{good, 0, nil}, false},
		"no bounds":             {Shape{nil, 64, nil}, false},
		"a later begin":         {Shape{[]int{1, k}, 64, nil}, false},
		"an earlier end":        {Shape{[]int{0, k - 1}, 64, nil}, false},
		"a later end":           {Shape{[]int{0, k - 1, k + 1}, 64, nil}, false},
		"too wide a block":      {Shape{[]int{0, k}, 64, nil}, false},
		"a block of no columns": {Shape{[]int{0, 9, 9, k}, 64, nil}, false},
		"a block backwards":     {Shape{[]int{0, 9, 8, k}, 64, nil}, false},
	} {
		func() {
			defer func() {
				if got := recover(); (got == nil) != c.fits {
					t.Errorf("%s: panic %v", what, got)
				}
			}()
			New(w, c.s)
		}()
	}
}

func TestValuesNeedNotBeFinite(t *testing.T) {
	needCode(t)
	inf := float32(math.Inf(1))
	w := &Weight[uint16]{M: 2, K: 3, Ptr: []uint32{0, 2, 3}, Index: []uint16{0, 2, 1}, Value: []float32{inf, 1, 2}}
	c := New(w, Shape{Bounds: []int{0, 3}, Chunk: 64})
	x, y := make([]float32, 3*columns), make([]float32, 2*columns)
	x[0], x[columns], x[2*columns] = 1, float32(math.NaN()), 1
	c.Mul(0, 0, 2, 1, x, y, nil)
	if y[0] != inf || y[columns] == y[columns] || y[1] == y[1] || y[columns+1] != 0 {
		t.Errorf("%v %v %v %v, want +Inf, NaN, NaN, 0", y[0], y[columns], y[1], y[columns+1])
	}
}

// TestCodeSurvivesTheRuntime runs code while garbage is collected, stacks grow and
// move, goroutines are preempted and profiled, and codes come and go.
func TestCodeSurvivesTheRuntime(t *testing.T) {
	needCode(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	if f, err := os.Create(t.TempDir() + "/profile"); err != nil {
		t.Fatal(err)
	} else if err := pprof.StartCPUProfile(f); err != nil {
		t.Logf("not profiled: %v", err)
	} else {
		defer f.Close()
		defer pprof.StopCPUProfile()
	}
	const seed = 14
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := random[uint16](rng, 256, 500, 0.2)
	s := Shape{Bounds: Bounds(w.K), Chunk: 64}
	x := floats(rng, 125*columns)
	product := func(c *Code) []float32 {
		y := make([]float32, w.M*columns)
		for b := range len(s.Bounds) - 1 {
			c.Mul(b, 0, w.M, 4, x, y, nil)
		}
		return y
	}
	shared := New(w, s)
	want := product(shared)
	var deep func(n int) []float32
	deep = func(n int) []float32 { // on a stack that has just grown
		var room [1 << 10]byte
		if n > 0 {
			y := deep(n - 1)
			room[n] = byte(n)
			return y
		}
		return product(shared)
	}
	duration := time.Second
	if testing.Short() {
		duration /= 4
	}
	end := time.Now().Add(duration)
	var group sync.WaitGroup
	var wrong, rounds atomic.Int64
	compare := func(y []float32) {
		rounds.Add(1)
		for i, v := range y {
			if v != want[i] {
				wrong.Add(1)
				return
			}
		}
	}
	work := []func(){
		func() { compare(product(shared)) },
		func() {
			done := make(chan []float32)
			go func() { done <- deep(20) }()
			compare(<-done)
		},
		func() { compare(product(New(w, s))) }, // unreachable at once
		func() { runtime.GC() },
		func() {
			keep := make([][]byte, 64)
			for i := range keep {
				keep[i] = make([]byte, 1<<14)
			}
			runtime.KeepAlive(keep)
		},
	}
	for _, f := range work {
		group.Go(func() {
			for time.Now().Before(end) {
				f()
			}
		})
	}
	group.Wait()
	if wrong.Load() > 0 {
		t.Errorf("%d of %d products are wrong", wrong.Load(), rounds.Load())
	}
}

func TestMemoryIsGivenBack(t *testing.T) {
	needCode(t)
	const seed = 15
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := random[uint16](rng, 10, 10, 0.5)
	before := maps.Load()
	for range 100 {
		if New(w, Shape{Bounds: []int{0, 10}, Chunk: 64}) == nil {
			t.Fatal("no code")
		}
	}
	for range 100 {
		runtime.GC()
		if maps.Load() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d mappings are left of 100", maps.Load()-before)
}

func TestThereIsNoCodeBeyondTheLimits(t *testing.T) {
	needCode(t)
	w := &Weight[uint16]{M: 1, K: 1, Ptr: []uint32{0, 0}}
	s := Shape{Bounds: []int{0, 1}, Chunk: 64}
	maps.Add(maxMaps)
	c := New(w, s)
	maps.Add(-maxMaps)
	if c != nil {
		t.Error("there is code for one more weight than may have some")
	}
	if c := New(w, s); c == nil || c.Len() == 0 {
		t.Error("there is no code afterwards")
	}
}

// FuzzCode compares code of any shape with a sum in float64.
func FuzzCode(f *testing.F) {
	f.Add(uint64(1), byte(31), uint16(128), byte(50), byte(4), byte(64), false)
	f.Add(uint64(2), byte(65), uint16(300), byte(255), byte(1), byte(3), true)
	f.Add(uint64(3), byte(0), uint16(0), byte(0), byte(3), byte(0), true)
	f.Add(uint64(4), byte(200), uint16(511), byte(3), byte(2), byte(127), false)
	f.Fuzz(func(t *testing.T, seed uint64, rows byte, cols uint16, density, granules, chunk byte, placed bool) {
		needCode(t)
		rng := rand.New(rand.NewPCG(seed, 0))
		w := random[uint16](rng, int(rows)+1, int(cols%700)+1, float64(density)/255)
		s := Shape{Bounds: []int{0}, Chunk: int(chunk) + 1}
		for at := 0; at < w.K; {
			at = min(w.K, at+1+rng.IntN(ukernel.BlockK))
			s.Bounds = append(s.Bounds, at)
		}
		if placed {
			for range w.K {
				s.At = append(s.At, rng.IntN(1<<rng.IntN(14)))
			}
		}
		check(t, rng, w, s, int(granules%4)+1)
	})
}

// uniform has as many nonzeros in each row, at random columns.
func uniform(rng *rand.Rand, m, k int, zeros float64) *Weight[uint16] {
	w := &Weight[uint16]{M: m, K: k, Ptr: []uint32{0}}
	for range m {
		columns := rng.Perm(k)[:int(float64(k)*(1-zeros)+0.5)]
		used := make([]bool, k)
		for _, c := range columns {
			used[c] = true
		}
		for c, is := range used {
			if is {
				w.Index = append(w.Index, uint16(c))
				w.Value = append(w.Value, rng.Float32())
			}
		}
		w.Ptr = append(w.Ptr, uint32(len(w.Index)))
	}
	return w
}

// BenchmarkCode measures one block of columns with one group of rows, whose code and
// operands are in the level 1 cache, and with many, whose code is in level 2, as
// shares of the peak.
func BenchmarkCode(b *testing.B) {
	needCode(b)
	kern := ukernel.Best()
	flops := kern.Peak(1000)
	for _, zeros := range []float64{0.8, 0.9} {
		for _, rows := range []int{28, 448} {
			for _, k := range []int{64, 96, 128, 160, 256} {
				b.Run(fmt.Sprintf("%v/%dx%d", zeros, rows, k), func(b *testing.B) {
					w := uniform(rand.New(rand.NewPCG(1, 1)), rows, k, zeros)
					c := New(w, Shape{Bounds: []int{0, k}, Chunk: 28})
					x, y := make([]float32, k*columns), make([]float32, rows*columns)
					best, peak := time.Hour, time.Hour
					calls := max(1, 1_000_000/len(w.Value)/columns)
					for b.Loop() {
						start := time.Now()
						kern.Peak(1000)
						peak = min(peak, time.Since(start))
						start = time.Now()
						for range calls {
							c.Mul(0, 0, rows, columns/granule, x, y, nil)
						}
						best = min(best, time.Since(start)/time.Duration(calls))
					}
					work := 2 * columns * float64(len(w.Value))
					b.ReportMetric(100*work/float64(best)/(flops/float64(peak)), "%peak")
				})
			}
		}
	}
}

// BenchmarkGenerate measures how fast code is generated.
func BenchmarkGenerate(b *testing.B) {
	needCode(b)
	for _, zeros := range []float64{0.8, 0.9} {
		b.Run(fmt.Sprint(zeros), func(b *testing.B) {
			w := uniform(rand.New(rand.NewPCG(1, 1)), 512, 4608, zeros)
			s := Shape{Bounds: Bounds(w.K), Chunk: 64}
			n := 0
			for b.Loop() {
				n = New(w, s).Len()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(w.Value)), "ns/nonzero")
			b.ReportMetric(float64(n)/float64(len(w.Value)), "B/nonzero")
		})
	}
}
