package ukernel

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"
)

// depths are the K that every kernel is tested with.
var depths = []int{0, 1, 2, 7, 64, 257}

// eachISA runs test as a subtest for every kernel set of this machine.
func eachISA(t *testing.T, test func(t *testing.T, k *Kernels)) {
	for _, k := range Available() {
		t.Run(k.ISA, func(t *testing.T) { test(t, k) })
	}
}

// random returns n standard normal values, off elements past an allocation's
// start so that alignments vary.
func random(rng *rand.Rand, n, off int) []float32 {
	s := make([]float32, off+n)[off:]
	for i := range s {
		s[i] = float32(rng.NormFloat64())
	}
	return s
}

// guard is what the elements that a kernel must not write hold.
const guard = -12345

// output is a matrix of rows x cols with row stride ldy among guards.
type output struct {
	rows, cols, ldy, off int
	all, y               []float32
	before               []float32
}

func newOutput(rng *rand.Rand, rows, cols, ldy, off int) *output {
	o := &output{rows: rows, cols: cols, ldy: ldy, off: off, all: make([]float32, off+rows*ldy+Columns)}
	for i := range o.all {
		o.all[i] = guard
	}
	o.y = o.all[off:]
	if rows > 0 {
		o.y = o.y[:(rows-1)*ldy+cols]
	}
	for r := range rows {
		for c := range cols {
			o.y[r*ldy+c] = float32(rng.NormFloat64())
		}
	}
	o.before = append([]float32(nil), o.all...)
	return o
}

// check compares the rows to W X in float64, where want gives the k terms of an
// element, and everything else to the guards.
func (o *output) check(t *testing.T, acc bool, want func(r, c int) (sum, abs float64, terms int)) {
	t.Helper()
	off := o.off
	for i, v := range o.all {
		r, c := (i-off)/o.ldy, (i-off)%o.ldy
		if i < off || r >= o.rows || c >= o.cols {
			if v != o.before[i] {
				t.Fatalf("element %d outside the output changed to %v", i-off, v)
			}
			continue
		}
		sum, abs, terms := want(r, c)
		if acc {
			sum += float64(o.before[i])
			abs += math.Abs(float64(o.before[i]))
			terms++
		}
		near(t, r, c, v, sum, abs, terms)
	}
}

// near compares an element to the exact sum of terms, of which each is rounded
// at most terms+1 times; abs is the sum of their magnitudes.
func near(t *testing.T, r, c int, got float32, sum, abs float64, terms int) {
	t.Helper()
	tol := abs * float64(terms+1) * 0x1p-24
	if d := math.Abs(float64(got) - sum); !(d <= tol) {
		t.Fatalf("row %d column %d: %v, want %v (difference %g, tolerance %g)", r, c, got, sum, d, tol)
	}
}

// widths are those of a panel in granules.
var widths = []int{1, 2, 3, 4}

func TestGemmTileEqualsReference(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *Kernels) {
		g := &kern.Gemm
		rng := rand.New(rand.NewSource(seed))
		for rows := 1; rows <= MR; rows++ {
			for _, width := range widths {
				for i, k := range depths {
					ar, ak, cols := 1, MR, width*Granule
					if i%2 > 0 {
						ar, ak = k+i, 1
					}
					ldb := cols + 3*i
					for _, acc := range []bool{false, true} {
						a, b := random(rng, max(0, (rows-1)*ar+(k-1)*ak+1), i), random(rng, max(0, (k-1)*ldb+cols), 2*i+1)
						o := newOutput(rng, rows, cols, cols+i, i+3)
						g.Tile(rows, width, k, a, ar, ak, b, ldb, o.y, o.ldy, acc)
						o.check(t, acc, func(r, c int) (sum, abs float64, terms int) {
							for i := range k {
								p := float64(a[r*ar+i*ak]) * float64(b[i*ldb+c])
								sum += p
								abs += math.Abs(p)
							}
							return sum, abs, k
						})
					}
				}
			}
		}
	})
}

func TestGemmPanelEqualsReference(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *Kernels) {
		g := &kern.Gemm
		rng := rand.New(rand.NewSource(seed))
		for _, m := range []int{0, 1, MR - 1, MR, MR + 1, 3*MR + 2} {
			for i, k := range depths {
				for _, acc := range []bool{false, true} {
					ldw, width := k+i, widths[i%len(widths)]
					w, x := random(rng, m*ldw, i), random(rng, k*Columns, i)
					packed := random(rng, g.PackedLen(m, k), 5)
					g.Pack(packed, w, m, k, ldw)
					o := newOutput(rng, m, width*Granule, Columns, i)
					o.y = o.all[i : i+m*Columns]
					g.Panel(m, width, k, packed, x, o.y, acc)
					o.check(t, acc, func(r, c int) (sum, abs float64, terms int) {
						for i := range k {
							p := float64(w[r*ldw+i]) * float64(x[i*Columns+c])
							sum += p
							abs += math.Abs(p)
						}
						return sum, abs, k
					})
				}
			}
		}
	})
}

// sparseWeight is a random weight in a layout, with what Mul needs and the same
// weight by rows, the padding included.
type sparseWeight[I Index] struct {
	ptr   []uint32
	index []I
	value []float32
	rows  []map[int]float64
}

// newSparseWeight draws a weight in blocks of the given rows. A group in five is
// empty.
func newSparseWeight[I Index](rng *rand.Rand, height, m, k, off int) *sparseWeight[I] {
	w := &sparseWeight[I]{ptr: []uint32{0}, index: make([]I, off), value: make([]float32, off)}
	for g := 0; g*height < m; g++ {
		steps := 0
		if rng.Intn(5) > 0 {
			steps = rng.Intn(k + 1)
		}
		rows := make([]map[int]float64, height)
		for r := range rows {
			rows[r] = map[int]float64{}
		}
		columns := rng.Perm(k)[:steps]
		slices.Sort(columns)
		for _, c := range columns {
			w.index = append(w.index, I(c))
			for r := range rows {
				v := float32(rng.NormFloat64())
				if g*height+r >= m {
					v = 0
				}
				w.value = append(w.value, v)
				rows[r][c] = float64(v)
			}
		}
		w.rows = append(w.rows, rows...)
		w.ptr = append(w.ptr, w.ptr[g]+uint32(steps))
	}
	w.index, w.value = w.index[off:], w.value[off:]
	return w
}

// terms returns the sum of row r times the column whose element i is x(i), in
// float64, the sum of magnitudes and the number of terms.
func (w *sparseWeight[I]) terms(r int, x func(i int) float32) (sum, abs float64, terms int) {
	for i, v := range w.rows[r] {
		p := v * float64(x(i))
		sum += p
		abs += math.Abs(p)
	}
	return sum, abs, len(w.rows[r])
}

func testSparse[I Index](t *testing.T, kern *Kernels) {
	const seed = 3
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for _, rows := range Blocks {
		for _, m := range []int{0, 1, rows - 1, rows, rows + 1, 5*rows + 1, 64*rows + 1} {
			for i, k := range depths {
				if m > 500 && k > 64 {
					continue
				}
				w := newSparseWeight[I](rng, rows, m, k, i)
				a, err := NewSparse(kern, rows, m, k, w.ptr, w.index, F32(w.value))
				if err != nil {
					t.Fatal(err)
				}
				for _, width := range widths {
					x := random(rng, k*Columns, i)
					first := rng.Intn((m+a.Tile())/a.Tile()) * a.Tile()
					if first > m {
						first = 0
					}
					o := newOutput(rng, a.Groups()*rows-first, width*Granule, Columns, i)
					o.y = o.all[i : i+o.rows*Columns]
					bounds := a.Bounds()
					for b := range len(bounds) - 1 {
						a.Mul(b, first, m, width, x[bounds[b]*Columns:], o.y, true, nil)
					}
					o.check(t, true, func(r, c int) (sum, abs float64, terms int) {
						return w.terms(first+r, func(i int) float32 { return x[i*Columns+c] })
					})
					copy(o.all, o.before)
					for b := range len(bounds) - 1 {
						a.Mul(b, first, m, width, x[bounds[b]*Columns:], o.y, b > 0, nil)
					}
					if k > 0 {
						o.check(t, false, func(r, c int) (sum, abs float64, terms int) {
							sum, abs, terms = w.terms(first+r, func(i int) float32 { return x[i*Columns+c] })
							return sum, abs, terms + len(bounds)
						})
					}
				}
				from := rng.Intn(a.Groups() + 1)
				first := min(from*rows, m)
				x, y := random(rng, k, i), random(rng, m-first+1, i)
				end := y[m-first]
				a.MulVec(from, a.Groups(), x, y[:m-first])
				if y[m-first] != end {
					t.Fatalf("%d x %d: element after the output changed", m, k)
				}
				for r, v := range y[:m-first] {
					sum, abs, terms := w.terms(first+r, func(i int) float32 { return x[i] })
					near(t, r, 0, v, sum, abs, terms)
				}
			}
		}
	}
}

func TestSparseEqualsReference(t *testing.T) {
	eachISA(t, func(t *testing.T, kern *Kernels) {
		t.Run("u16", func(t *testing.T) { testSparse[uint16](t, kern) })
		t.Run("u32", func(t *testing.T) { testSparse[uint32](t, kern) })
	})
}

func testRows[I Index](t *testing.T, kern *Kernels) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for _, columns := range Runs {
		for _, m := range []int{1, 3, 4, 5, 11} {
			for _, blocks := range []int{0, 1, 3, 4, 5, 15, 16, 17, 40} {
				k := blocks * columns
				ptr, index := []uint32{0}, []I{}
				for range m {
					density := rng.Float64()
					for j := range blocks {
						if rng.Float64() < density {
							index = append(index, I(j))
						}
					}
					ptr = append(ptr, uint32(len(index)))
				}
				value := random(rng, len(index)*columns, m)
				a, err := NewRows(kern, columns, m, k, ptr, index, F32(value))
				if err != nil {
					t.Fatal(err)
				}
				from := rng.Intn(m + 1)
				x, y := random(rng, k, m), random(rng, m-from+1, blocks)
				end := y[m-from]
				a.MulVec(from, m, x, y[:m-from])
				if y[m-from] != end {
					t.Fatalf("%d x %d: element after the output changed", m, k)
				}
				for r, v := range y[:m-from] {
					var sum, abs float64
					for j := ptr[from+r]; j < ptr[from+r+1]; j++ {
						for c := range columns {
							p := float64(value[int(j)*columns+c]) * float64(x[int(index[j])*columns+c])
							sum += p
							abs += math.Abs(p)
						}
					}
					near(t, r, 0, v, sum, abs, k)
				}
			}
		}
	}
}

func TestRowsEqualReference(t *testing.T) {
	eachISA(t, func(t *testing.T, kern *Kernels) {
		t.Run("u16", func(t *testing.T) { testRows[uint16](t, kern) })
		t.Run("u32", func(t *testing.T) { testRows[uint32](t, kern) })
	})
}

func TestNewRowsRefusesBrokenWeights(t *testing.T) {
	ptr, index, value := []uint32{0, 1, 3}, []uint16{2, 0, 1}, make([]float32, 12)
	kern := Best()
	a, err := NewRows(kern, 4, 2, 12, ptr, index, F32(value))
	if err != nil {
		t.Fatal(err)
	}
	for name, create := range map[string]func() (*Rows[uint16], error){
		"block":       func() (*Rows[uint16], error) { return NewRows(kern, 2, 2, 12, ptr, index, F32(value)) },
		"edge":        func() (*Rows[uint16], error) { return NewRows(kern, 4, 2, 13, ptr, index, F32(value)) },
		"shape":       func() (*Rows[uint16], error) { return NewRows(kern, 4, -1, 12, ptr, index, F32(value)) },
		"bounds":      func() (*Rows[uint16], error) { return NewRows(kern, 4, 3, 12, ptr, index, F32(value)) },
		"index":       func() (*Rows[uint16], error) { return NewRows(kern, 4, 2, 8, ptr, index, F32(value)) },
		"ascending":   func() (*Rows[uint16], error) { return NewRows(kern, 4, 2, 12, ptr, []uint16{2, 1, 1}, F32(value)) },
		"index count": func() (*Rows[uint16], error) { return NewRows(kern, 4, 2, 12, ptr, index[:2], F32(value)) },
		"value count": func() (*Rows[uint16], error) { return NewRows(kern, 4, 2, 12, ptr, index, F32(value[:11])) },
	} {
		if w, err := create(); err == nil || w != nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, use := range map[string]func(){
		"rows":   func() { a.MulVec(1, 3, make([]float32, 12), make([]float32, 2)) },
		"vector": func() { a.MulVec(0, 2, make([]float32, 11), make([]float32, 2)) },
		"output": func() { a.MulVec(0, 2, make([]float32, 12), make([]float32, 1)) },
	} {
		if !panics(use) {
			t.Errorf("%s: no panic", name)
		}
	}
}

func TestMulVecEqualsReference(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *Kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, m := range []int{0, 1, 3, 4, 5, 11} {
			for i, k := range append([]int{8, 16, 17, 31, 32, 48}, depths...) {
				ldw := k + i
				w, x, y := random(rng, m*ldw, i), random(rng, k, 2*i), random(rng, m+1, i)
				end := y[m]
				kern.MulVec(m, k, w, ldw, x, y[:m])
				if y[m] != end {
					t.Fatalf("%d x %d: element after the output changed", m, k)
				}
				for r, v := range y[:m] {
					var sum, abs float64
					for i := range k {
						p := float64(w[r*ldw+i]) * float64(x[i])
						sum += p
						abs += math.Abs(p)
					}
					near(t, r, 0, v, sum, abs, k)
				}
			}
		}
	})
}

// Kernels take vectors of steps, whole ones and a rest.
func TestMulVecTakesAnyNumberOfSteps(t *testing.T) {
	eachISA(t, func(t *testing.T, kern *Kernels) {
		for _, rows := range Blocks {
			for steps := range 50 {
				ptr, index, value := []uint32{0}, []uint16{}, []float32{}
				x, want := make([]float32, steps+1), make([]float32, 2*rows)
				for g := range 2 {
					for j := range steps {
						index = append(index, uint16(j+g))
						x[j+g] = float32(j + g)
						for r := range rows {
							value = append(value, float32(r+1))
							want[g*rows+r] += float32((r + 1) * (j + g))
						}
					}
					ptr = append(ptr, uint32(len(index)))
				}
				a, err := NewSparse(kern, rows, 2*rows, steps+1, ptr, index, F32(value))
				if err != nil {
					t.Fatal(err)
				}
				y := make([]float32, 2*rows)
				a.MulVec(0, 2, x, y)
				if !slices.Equal(y, want) {
					t.Fatalf("%d steps of %d rows: %v, want %v", steps, rows, y, want)
				}
			}
		}
	})
}

func TestSparseReachesPanelsBeyond16Bits(t *testing.T) {
	const k = 1<<16 + 3
	x := make([]float32, BlockK*Columns)
	eachISA(t, func(t *testing.T, kern *Kernels) {
		a, err := NewSparse(kern, 1, 1, k, []uint32{0, 1}, []uint32{k - 1}, F32([]float32{3}))
		if err != nil {
			t.Fatal(err)
		}
		bounds := a.Bounds()
		last := len(bounds) - 2
		clear(x)
		x[(k-1-bounds[last])*Columns] = 2
		var y [Columns]float32
		for b := range last + 1 {
			a.Mul(b, 0, 1, 1, x, y[:], b > 0, nil)
		}
		if y[0] != 6 || y[1] != 0 {
			t.Fatalf("got %v", y)
		}
		v := make([]float32, k)
		v[k-1] = 5
		a.MulVec(0, 1, v, y[:])
		if y[0] != 15 {
			t.Fatalf("got %v", y[0])
		}
	})
}

func TestNewSparseRefusesBrokenWeights(t *testing.T) {
	ptr, index, value := []uint32{0, 1, 3}, []uint16{4, 0, 1}, make([]float32, 6)
	kern := Best()
	if _, err := NewSparse(kern, 2, 3, 5, ptr, index, F32(value)); err != nil {
		t.Fatal(err)
	}
	for name, create := range map[string]func() (*Sparse[uint16], error){
		"block":       func() (*Sparse[uint16], error) { return NewSparse(kern, 3, 3, 5, ptr, index, F32(value)) },
		"shape":       func() (*Sparse[uint16], error) { return NewSparse(kern, 2, -1, 5, ptr, index, F32(value)) },
		"bounds":      func() (*Sparse[uint16], error) { return NewSparse(kern, 2, 5, 5, ptr, index, F32(value)) },
		"order":       func() (*Sparse[uint16], error) { return NewSparse(kern, 2, 3, 5, []uint32{4, 1, 3}, index, F32(value)) },
		"index count": func() (*Sparse[uint16], error) { return NewSparse(kern, 2, 3, 5, ptr, index[:2], F32(value)) },
		"value count": func() (*Sparse[uint16], error) { return NewSparse(kern, 2, 3, 5, ptr, index, F32(value[:5])) },
		"column order": func() (*Sparse[uint16], error) {
			return NewSparse(kern, 2, 3, 5, ptr, []uint16{4, 1, 1}, F32(value))
		},
		"column range": func() (*Sparse[uint16], error) { return NewSparse(kern, 2, 3, 4, ptr, index, F32(value)) },
	} {
		if a, err := create(); err == nil || a != nil {
			t.Errorf("wrong %s is accepted", name)
		}
	}
}

func TestSparseRefusesShortSlices(t *testing.T) {
	const m, k = 5, 4
	w := newSparseWeight[uint16](rand.New(rand.NewSource(1)), 2, m, k, 0)
	eachISA(t, func(t *testing.T, kern *Kernels) {
		a, err := NewSparse(kern, 2, m, k, w.ptr, w.index, F32(w.value))
		if err != nil {
			t.Fatal(err)
		}
		x, y := make([]float32, k*Columns), make([]float32, 6*Columns)
		if panics(func() { a.Mul(0, 0, m, 4, x, y, false, nil); a.MulVec(0, 3, x[:k], y[:m]) }) {
			t.Fatal("exact lengths are refused")
		}
		for name, f := range map[string]func(){
			"panel":         func() { a.Mul(0, 0, m, 4, x[1:], y, false, nil) },
			"output":        func() { a.Mul(0, 0, m, 4, x, y[1:], false, nil) },
			"from":          func() { a.Mul(0, -1, m, 4, x, y, false, nil) },
			"to":            func() { a.Mul(0, 0, m+1, 4, x, y, false, nil) },
			"part":          func() { a.Mul(0, 0, m-1, 4, x, y, false, nil) },
			"width":         func() { a.Mul(0, 0, m, 5, x, y, false, nil) },
			"block":         func() { a.Mul(1, 0, m, 4, x, y, false, nil) },
			"groups":        func() { a.MulVec(2, 1, x[:k], y) },
			"vector":        func() { a.MulVec(0, 3, x[:k-1], y) },
			"vector output": func() { a.MulVec(0, 3, x, y[:m-1]) },
			"dense weight":  func() { kern.MulVec(m, k, x[:m*k-1], k, x, y) },
			"dense vector":  func() { kern.MulVec(m, k, x, k, x[:k-1], y) },
			"dense output":  func() { kern.MulVec(m, k, x, k, x, y[:m-1]) },
			"dense stride":  func() { kern.MulVec(m, k, x, k-1, x, y) },
		} {
			if !panics(f) {
				t.Errorf("wrong %s is accepted", name)
			}
		}
	})
}

func TestPackPadsTheLastTileWithZeros(t *testing.T) {
	eachISA(t, func(t *testing.T, kern *Kernels) {
		g := &kern.Gemm
		const m, k = MR + 1, 3
		w := make([]float32, m*k)
		for i := range w {
			w[i] = float32(i + 1)
		}
		packed := make([]float32, g.PackedLen(m, k))
		for i := range packed {
			packed[i] = guard
		}
		g.Pack(packed, w, m, k, k)
		for i, v := range packed {
			r, c := i/(MR*k)*MR+i%MR, i/MR%k
			want := float32(0)
			if r < m {
				want = w[r*k+c]
			}
			if v != want {
				t.Fatalf("element %d (row %d column %d) is %v, want %v", i, r, c, v, want)
			}
		}
	})
}

// panics reports whether f panics.
func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

func TestKernelsRefuseShortSlices(t *testing.T) {
	eachISA(t, func(t *testing.T, kern *Kernels) {
		g := &kern.Gemm
		const k = 3
		w, x, y := make([]float32, k*MR), make([]float32, k*Columns), make([]float32, MR*Columns)
		tile := func(rows, width, k int, w, x, y []float32, ldy int) {
			g.Tile(rows, width, k, w, 1, MR, x, Columns, y, ldy, false)
		}
		if panics(func() { tile(MR, 4, k, w, x, y, Columns) }) {
			t.Fatal("exact lengths are refused")
		}
		for name, f := range map[string]func(){
			"weight":   func() { tile(MR, 4, k, w[1:], x, y, Columns) },
			"panel":    func() { tile(MR, 4, k, w, x[1:], y, Columns) },
			"output":   func() { tile(MR, 4, k, w, x, y[1:], Columns) },
			"stride":   func() { tile(MR, 4, k, w, x, y, Columns-1) },
			"width":    func() { tile(MR, 5, k, w, x, make([]float32, 2*len(y)), 2*Columns) },
			"rows":     func() { tile(MR+1, 4, k, w, x, make([]float32, 2*len(y)), Columns) },
			"no rows":  func() { tile(0, 4, k, w, x, y, Columns) },
			"depth":    func() { tile(1, 4, -1, w, x, y, Columns) },
			"packed":   func() { g.Panel(MR, 4, k, w[1:], x, y, false) },
			"pack dst": func() { g.Pack(w[1:], w, MR, k, k) },
			"pack src": func() { g.Pack(w, w[:k*MR-1], MR, k, k) },
		} {
			if !panics(f) {
				t.Errorf("short %s is accepted", name)
			}
		}
	})
}

// measure runs f in b's loop, and then in short windows that alternate with
// windows of the peak loop. It reports the best windows' GFLOP/s, f doing flops
// operations, and their ratio: other load on the machine disturbs it least so.
func measure(b *testing.B, k *Kernels, flops float64, f func()) {
	for b.Loop() {
		f()
	}
	const window = 500 * time.Microsecond
	n := int(window.Seconds()/b.Elapsed().Seconds()*float64(b.N)) + 1
	var rate, top float64
	for range 40 {
		start := time.Now()
		for range n {
			f()
		}
		rate = max(rate, flops*float64(n)/time.Since(start).Seconds())
		start = time.Now()
		done := k.Peak(50_000)
		top = max(top, done/time.Since(start).Seconds())
	}
	b.ReportMetric(rate/1e9, "GFLOP/s")
	b.ReportMetric(100*rate/top, "%peak")
}

// eachBenchISA runs bench as a sub-benchmark for every kernel set.
func eachBenchISA(b *testing.B, name string, bench func(b *testing.B, k *Kernels)) {
	for _, k := range Available() {
		b.Run(name+"/"+k.ISA, func(b *testing.B) { bench(b, k) })
	}
}

func BenchmarkPeak(b *testing.B) {
	eachBenchISA(b, "fma", func(b *testing.B, k *Kernels) {
		const n = 10_000
		measure(b, k, float64(n*k.flop), func() { k.Peak(n) })
	})
}

func BenchmarkGemmPanel(b *testing.B) {
	for _, s := range [][2]int{{12, 192}, {48, 192}, {64, 64}, {64, 576}, {128, 1152}, {384, 384}, {512, 2048}, {2048, 512}} {
		m, k := s[0], s[1]
		eachBenchISA(b, fmt.Sprintf("%dx%d", m, k), func(b *testing.B, kern *Kernels) {
			g := &kern.Gemm
			rng := rand.New(rand.NewSource(1))
			w, x := random(rng, m*k, 0), random(rng, k*Columns, 0)
			packed, y := make([]float32, g.PackedLen(m, k)), make([]float32, m*Columns)
			g.Pack(packed, w, m, k, k)
			measure(b, kern, 2*float64(m)*float64(k)*Columns, func() {
				g.Panel(m, Columns/Granule, k, packed, x, y, false)
			})
		})
	}
}

func BenchmarkSparse(b *testing.B) {
	for _, s := range []struct {
		m, k     int
		sparsity float64
	}{{256, 160, 0}, {256, 256, 0.5}, {256, 256, 0.8}, {256, 256, 0.9}, {256, 256, 0.95}, {128, 1152, 0.8}, {512, 2048, 0.9}} {
		for _, rows := range Blocks {
			eachBenchISA(b, fmt.Sprintf("%dx%d/%v/%dx1", s.m, s.k, s.sparsity, rows), func(b *testing.B, kern *Kernels) {
				a := uniformWeight(b, kern, rows, s.m, s.k, int(float64(s.k)*(1-s.sparsity)+0.5))
				x, y := random(rand.New(rand.NewSource(2)), s.k*Columns, 0), make([]float32, s.m*Columns)
				measure(b, kern, 2*float64(a.value.Len())*Columns, func() {
					for b, at := range a.Bounds()[:len(a.Bounds())-1] {
						a.Mul(b, 0, s.m, Columns/Granule, x[at*Columns:], y, b > 0, nil)
					}
				})
			})
		}
	}
}

// uniformWeight has the same number of nonzeros in every row, at random columns
// in ascending order.
func uniformWeight(b *testing.B, kern *Kernels, rows, m, k, nnz int) *Sparse[uint16] {
	rng := rand.New(rand.NewSource(1))
	ptr, index := []uint32{0}, []uint16{}
	for g := range m / rows {
		columns := rng.Perm(k)[:nnz]
		slices.Sort(columns)
		for _, c := range columns {
			index = append(index, uint16(c))
		}
		ptr = append(ptr, uint32((g+1)*nnz))
	}
	a, err := NewSparse(kern, rows, m, k, ptr, index, F32(random(rng, m*nnz, 0)))
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func BenchmarkMulVec(b *testing.B) {
	for _, s := range [][2]int{{256, 256}, {1000, 2048}} {
		m, k := s[0], s[1]
		x, y := make([]float32, k), make([]float32, m)
		eachBenchISA(b, fmt.Sprintf("%dx%d/dense", m, k), func(b *testing.B, kern *Kernels) {
			w := random(rand.New(rand.NewSource(1)), m*k, 0)
			measure(b, kern, 2*float64(m)*float64(k), func() { kern.MulVec(m, k, w, k, x, y) })
		})
		for _, rows := range Blocks {
			eachBenchISA(b, fmt.Sprintf("%dx%d/0.8/%dx1", m, k, rows), func(b *testing.B, kern *Kernels) {
				a := uniformWeight(b, kern, rows, m/16*16, k, k/5)
				measure(b, kern, 2*float64(a.value.Len()), func() { a.MulVec(0, a.Groups(), x, y) })
			})
		}
		for _, columns := range Runs {
			eachBenchISA(b, fmt.Sprintf("%dx%d/0.8/1x%d", m, k, columns), func(b *testing.B, kern *Kernels) {
				runs := uniformWeight(b, kern, 1, m, k/columns, k/columns/5)
				a, err := NewRows(kern, columns, m, k, runs.ptr, runs.index, F32(random(rand.New(rand.NewSource(1)), len(runs.index)*columns, 0)))
				if err != nil {
					b.Fatal(err)
				}
				measure(b, kern, 2*float64(a.value.Len()), func() { a.MulVec(0, m, x, y) })
			})
		}
	}
}

func TestPlacedReadsColumnsWhereTheyLie(t *testing.T) {
	const seed = 8
	t.Logf("seed %d", seed)
	eachISA(t, func(t *testing.T, kern *Kernels) {
		rng := rand.New(rand.NewSource(seed))
		for _, rows := range Blocks {
			const m, k = 37, 90
			w := newSparseWeight[uint16](rng, rows, m, k, 0)
			a, err := NewSparse(kern, rows, m, k, w.ptr, w.index, F32(w.value))
			if err != nil {
				t.Fatal(err)
			}
			at := make([]int, k)
			for i := range at {
				at[i] = rng.Intn(500)
			}
			at[3] = MaxPlace - 1
			bounds := []int{0, 30, 31, k}
			a = a.Placed(kern, bounds, at)
			if !slices.Equal(a.Bounds(), bounds) {
				t.Fatalf("bounds %v, want %v", a.Bounds(), bounds)
			}
			var x [3][]float32
			for b := range x {
				x[b] = random(rng, MaxPlace+Columns, b)
			}
			for _, width := range widths {
				o := newOutput(rng, a.Groups()*rows, width*Granule, Columns, 1)
				o.y = o.all[1 : 1+o.rows*Columns]
				for b := range x {
					a.Mul(b, 0, m, width, x[b], o.y, b > 0, nil)
				}
				o.check(t, false, func(r, c int) (sum, abs float64, terms int) {
					for i, v := range w.rows[r] {
						b, _ := slices.BinarySearch(bounds[1:], i+1)
						p := v * float64(x[b][at[i]+c])
						sum += p
						abs += math.Abs(p)
					}
					return sum, abs, len(w.rows[r]) + len(bounds)
				})
			}
		}
		a, _ := NewSparse(kern, 4, 4, 2, []uint32{0, 1}, []uint16{1}, F32(make([]float32, 4)))
		for name, f := range map[string]func(){
			"number": func() { a.Placed(kern, []int{0, 2}, []int{0}) },
			"begin":  func() { a.Placed(kern, []int{1, 2}, []int{0, 0}) },
			"end":    func() { a.Placed(kern, []int{0, 1}, []int{0, 0}) },
			"empty":  func() { a.Placed(kern, []int{0, 0, 2}, []int{0, 0}) },
			"place":  func() { a.Placed(kern, []int{0, 2}, []int{0, MaxPlace}) },
			"before": func() { a.Placed(kern, []int{0, 2}, []int{-1, 0}) },
			"panel": func() {
				a.Placed(kern, []int{0, 2}, []int{0, 100}).Mul(0, 0, 4, 1, make([]float32, 115), make([]float32, 4*Columns), false, nil)
			},
		} {
			if !panics(f) {
				t.Errorf("wrong %s is accepted", name)
			}
		}
	})
}
