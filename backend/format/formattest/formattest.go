// Package formattest checks that a storage format keeps its contract: packing
// loses nothing, kernels multiply right, and stores from hostile files are
// refused or harmless.
package formattest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// fill says which elements of a matrix are not zero.
type fill struct {
	name string
	at   func(rng *rand.Rand, r, k int) bool
}

// fills lists patterns, those that formats are made for and those that hurt.
var fills = []fill{
	{"none", func(*rand.Rand, int, int) bool { return false }},
	{"all", func(*rand.Rand, int, int) bool { return true }},
	{"half", func(rng *rand.Rand, _, _ int) bool { return rng.IntN(2) == 0 }},
	{"tenth", func(rng *rand.Rand, _, _ int) bool { return rng.IntN(10) == 0 }},
	{"hundredth", func(rng *rand.Rand, _, _ int) bool { return rng.IntN(100) == 0 }},
	{"one row", func(rng *rand.Rand, r, _ int) bool { return r == 1 }},
	{"even rows", func(rng *rand.Rand, r, _ int) bool { return r%2 == 0 && rng.IntN(3) == 0 }},
	{"last column", func(_ *rand.Rand, r, k int) bool { return k%31 == 30 || k%32 == 0 }},
	{"2:4", func(_ *rand.Rand, r, k int) bool { return k%4 == r%4 || k%4 == (r+1+r%3)%4 }},
	{"1:8", func(_ *rand.Rand, r, k int) bool { return k%8 == (r+k/8)%8 }},
	{"uniform", func(_ *rand.Rand, r, k int) bool { return (k+3*r)%5 == 0 }},
	{"uniform 4x1", func(_ *rand.Rand, r, k int) bool { return (k+r/4*7)%6 == 0 }},
	{"uniform 16x1", func(_ *rand.Rand, r, k int) bool { return (k+r/16*7)%6 == 0 }},
	{"blocks 4x4", func(_ *rand.Rand, r, k int) bool { return (k/4*5+r/4*3)%4 == 0 }},
	{"blocks 1x4", func(_ *rand.Rand, r, k int) bool { return (k/4*5+r*3)%4 == 0 }},
	{"blocks 16x16", func(_ *rand.Rand, r, k int) bool { return (k/16+r/16)%2 == 0 }},
}

// matrix returns w [m,k] filled so with random values, NaN and infinities
// (where special), and zeros of both signs.
func (f fill) matrix(rng *rand.Rand, m, k int, special bool) *tensor.Tensor {
	w := tensor.New(tensor.F32, m, k)
	data := w.F32s()
	for i := range data {
		if !f.at(rng, i/k, i%k) {
			if rng.IntN(4) == 0 {
				data[i] = float32(math.Copysign(0, -1))
			}
			continue
		}
		for data[i] == 0 {
			data[i] = float32(rng.NormFloat64())
		}
		if special && rng.IntN(8) == 0 {
			data[i] = []float32{float32(math.NaN()), float32(math.Inf(-1)), math.SmallestNonzeroFloat32, math.MaxFloat32}[rng.IntN(4)]
		}
	}
	return w
}

// shapes lists [M,K]: edges of tiles, of panels, of segments, of index types.
var shapes = [][2]int{
	{0, 0}, {0, 9}, {3, 0}, {1, 1}, {1, 31}, {2, 64}, {3, 7}, {4, 64}, {5, 63}, {7, 65}, {8, 300}, {9, 33}, {12, 40}, {13, 1}, {15, 128},
	{16, 31}, {17, 64}, {33, 257}, {50, 100}, {31, 700}, {2, 65535}, {1, 65536}, {5, 70000},
}

// halves are the types of 16 bits that some of the weights are stored in, too.
var halves = []tensor.DType{tensor.F16, tensor.Undefined, tensor.BF16, tensor.Undefined, tensor.Undefined}

// Run runs the tests on the configurations that the format offers and on those
// given, which the format may refuse to pack.
func Run(t *testing.T, f *backend.Format, configs ...string) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	stored := 0
	run := func(name string, w *tensor.Tensor, dt tensor.DType, kernels bool) {
		m, k := w.Dim(0), w.Dim(1)
		mat := choose.NewMatrix(w, "")
		mat.Type = dt
		costs := f.Costs(machine.Default, mat, 1)
		for _, config := range union(costs, configs) {
			what := fmt.Sprintf("%s of %v %d x %d as %q", name, dt, m, k, config)
			offered := slices.IndexFunc(costs, func(c choose.Cost) bool { return c.Config == config })
			parts, err := f.Pack(w, config)
			if err != nil {
				if offered >= 0 {
					t.Errorf("%s is offered: %v", what, err)
				}
				continue
			}
			s := &ir.Store{Format: f.Name(), Config: config, Rows: m, Cols: k, Parts: choose.Narrow(parts, dt)}
			stored++
			if offered >= 0 {
				checkCost(t, what, s, costs[offered])
			}
			checkRoundTrip(t, what, f, s, w)
			if kernels && m > 0 {
				name := checkKernel(t, what, f, s, w, rng)
				if offered >= 0 && !strings.HasPrefix(name, costs[offered].Kernel) {
					t.Errorf("%s is multiplied by %s, its cost is that of %s", what, name, costs[offered].Kernel)
				}
			}
		}
	}
	for n, shape := range shapes {
		m, k := shape[0], shape[1]
		for i, fill := range fills {
			if wide := k > 1000; (wide || testing.Short()) && i%4 != 3 || wide && testing.Short() {
				continue // the rest takes long and shows little that is new
			}
			for _, special := range []bool{false, true} {
				w := fill.matrix(rng, m, k, special)
				run(fill.name, w, tensor.F32, !special)
				if dt := halves[(n+i)%len(halves)]; dt != tensor.Undefined {
					run(fill.name, w.To(dt).To(tensor.F32), dt, !special)
				}
			}
		}
	}
	if stored < len(shapes)*len(fills)/16 {
		t.Errorf("only %d matrices could be stored", stored)
	}
}

func union(costs []choose.Cost, configs []string) []string {
	out := slices.Clone(configs)
	for _, c := range costs {
		if !slices.Contains(out, c.Config) {
			out = append(out, c.Config)
		}
	}
	return out
}

func checkCost(t *testing.T, what string, s *ir.Store, c choose.Cost) {
	t.Helper()
	if c.Bytes != s.Bytes() {
		t.Errorf("%s takes %d bytes, its cost says %d", what, s.Bytes(), c.Bytes)
	}
	if s.Format != choose.Dense && c.Bytes >= s.Part("values").DType().Size()*s.Rows*s.Cols {
		t.Errorf("%s is offered though it takes %d bytes", what, c.Bytes)
	}
	if !(c.Efficiency > 0 && c.Efficiency <= 1) || c.Work < 0 || c.Kernel == "" {
		t.Errorf("%s: cost %+v", what, c)
	}
}

func checkRoundTrip(t *testing.T, what string, f *backend.Format, s *ir.Store, w *tensor.Tensor) {
	t.Helper()
	if err := f.Check(s); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	got, err := f.Unpack(s)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if got.DType() != tensor.F32 || !slices.Equal(got.Shape(), w.Shape()) {
		t.Errorf("%s is unpacked as %v", what, got)
		return
	}
	for i, v := range got.F32s() {
		want := w.F32s()[i]
		if math.Float32bits(v) != math.Float32bits(want) && !(v == 0 && want == 0) {
			t.Errorf("%s: element %d is %v, want %v", what, i, v, want)
			return
		}
	}
}

// Concurrently multiplies with one kernel in several goroutines, for each of the
// configurations.
func Concurrently(t *testing.T, f *backend.Format, configs ...string) {
	const seed = 1
	t.Logf("seed %d", seed)
	w := Sample(50, 600)
	for _, config := range configs {
		kern, err := floats(f, store(t, f, w, config))
		if err != nil {
			t.Errorf("%q: %v", config, err)
			continue
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if err := multiply(kern, weight{Tensor: w}, rand.New(rand.NewPCG(uint64(i), seed)), [2]int{0, 50}); err != nil {
					t.Errorf("%q by %s, concurrently: %v", config, kern.Name(), err)
				}
			})
		}
		wg.Wait()
	}
}

// checkKernel multiplies ranges of rows, compares with a sum in float64, and
// returns the kernel's name.
func checkKernel(t *testing.T, what string, f *backend.Format, s *ir.Store, w *tensor.Tensor, rng *rand.Rand) (name string) {
	t.Helper()
	kern, err := floats(f, s)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return ""
	}
	for _, k := range sizes(kern) {
		if !checkRanges(t, what, k, s, w, rng) {
			return ""
		}
	}
	return kern.Name()
}

// floats prepares a store of floats.
func floats(f *backend.Format, s *ir.Store) (backend.FloatKernel, error) {
	k, err := f.Kernel(s)
	if err != nil {
		return nil, err
	}
	kern, ok := k.(backend.FloatKernel)
	if !ok {
		return nil, fmt.Errorf("%v is no kernel for floats", k)
	}
	return kern, nil
}

// sizes are kern and, if that is another one, the kernel for many columns.
func sizes(kern backend.FloatKernel) []backend.FloatKernel {
	if s, ok := kern.(backend.Sizer); ok && s.Sized(math.MaxInt) != kern {
		return []backend.FloatKernel{kern, s.Sized(math.MaxInt)}
	}
	return []backend.FloatKernel{kern}
}

func checkRanges(t *testing.T, what string, kern backend.FloatKernel, s *ir.Store, w *tensor.Tensor, rng *rand.Rand) bool {
	t.Helper()
	tile := kern.Tile()
	if tile < 1 || kern.Name() == "" {
		t.Errorf("%s: kernel %q has a tile of %d rows", what, kern.Name(), tile)
		return false
	}
	last := (s.Rows - 1) / tile * tile
	ranges := [][2]int{{0, s.Rows}}
	if s.Cols < 1000 {
		ranges = append(ranges, [2]int{last, s.Rows}, [2]int{0, min(tile, s.Rows)}, [2]int{last / 2 / tile * tile, s.Rows})
	}
	if err := multiply(kern, weight{Tensor: w}, rng, ranges...); err != nil {
		t.Errorf("%s by %s: %v", what, kern.Name(), err)
		return false
	}
	return true
}

// multiply runs a kernel for ranges of rows between guards: what it reads outside of x makes a sum
// NaN, what it writes outside of y is seen. Panels are whole, and of some smaller width.
func multiply(kern backend.FloatKernel, w weight, rng *rand.Rand, ranges ...[2]int) error {
	for _, n := range []int{1, backend.Panel, (1 + rng.IntN(3)) * backend.Granule} {
		p := newProblem(w, n, rng)
		for _, span := range ranges {
			if err := p.columns(kern, span[0], span[1]); err != nil {
				return fmt.Errorf("rows %d to %d, %d columns: %w", span[0], span[1], n, err)
			}
		}
	}
	if l, ok := kern.(backend.Linear); ok && slices.Contains(ranges, [2]int{0, w.Dim(0)}) {
		for _, n := range []int{1, 5, 13} {
			if err := tokens(l, w, n, rng); err != nil {
				return fmt.Errorf("%d tokens: %w", n, err)
			}
		}
	}
	return nil
}

// problem is a product of a weight [m,k] and n columns: one, or granules of a panel.
type problem struct {
	n, k, ld int
	x        []float32 // [k][ld], NaN beyond n
	want     []sum     // [m][ld]
}

func newProblem(w weight, n int, rng *rand.Rand) *problem {
	p := &problem{n: n, k: w.Dim(1), ld: 1}
	if n > 1 {
		p.ld = backend.Panel
	}
	p.x = guarded(p.k * p.ld)
	const distinct, apart = 16381, 67 // primes: no two elements of rows near each other, or a power of two apart, are the same
	noise := make([]float32, distinct+n)
	for i := range noise {
		noise[i] = rng.Float32() - 0.5
	}
	for r := range p.k {
		copy(p.x[r*p.ld:][:n], noise[r*apart%distinct:])
	}
	p.want = reference(w, p.x, p.ld)
	return p
}

// columns computes rows r0 to r1.
func (p *problem) columns(kern backend.FloatKernel, r0, r1 int) error {
	n, k, ld, rows, tile := p.n, p.k, p.ld, r1-r0, kern.Tile()
	room := (rows + tile - 1) / tile * tile
	all := guarded(room*ld + guard)
	y := all[:room*ld]
	if n == 1 {
		kern.Vec(y, p.x, r0, r1)
	} else {
		bounds := kern.Bounds()
		for b := range max(0, len(bounds)-1) {
			part := guarded((bounds[b+1] - bounds[b]) * ld)
			copy(part, p.x[bounds[b]*ld:])
			before := slices.Clone(y)
			kern.Panel(y, part, b, n/backend.Granule, r0, r1)
			if f, ok := kern.(ukernel.Finisher); ok && b == len(bounds)-2 {
				if err := finished(f, b, before, part, y, n, r0, r1); err != nil {
					return err
				}
			}
		}
	}
	want := p.want[r0*ld:]
	for i, v := range all {
		r, j := i/ld, i%ld
		if i >= len(y) || j >= n {
			if math.Float32bits(v) != math.Float32bits(poison) {
				return fmt.Errorf("element %d of row %d is written", j, r)
			}
			continue
		}
		if r >= rows || k == 0 && n > 1 {
			continue
		}
		if err := want[r*ld+j].check(v, k); err != nil {
			return fmt.Errorf("y[%d,%d]: %w", r0+r, j, err)
		}
	}
	return nil
}

// finished computes the last block, b, again, where y holds what the others made and want is the product, with and without a
// residual, and compares bit by bit. The kernel may say that it does not finish these rows.
func finished(kern ukernel.Finisher, b int, y, x, want []float32, n, r0, r1 int) error {
	rows, rng := r1-r0, rand.New(rand.NewPCG(uint64(n), uint64(r1)))
	for _, residual := range []bool{false, true} {
		f := ukernel.Finish{Dst: guarded((rows-1)*(n+guard) + n + guard), Ldd: n + guard, Bias: make([]float32, rows), Lo: -0.5, Hi: 0.25}
		for i := range f.Bias {
			f.Bias[i] = rng.Float32() - 0.5
		}
		if residual {
			f.Ldr = n + 1
			f.Res = make([]float32, rows*f.Ldr)
			for i := range f.Res {
				f.Res[i] = rng.Float32() - 0.5
			}
		}
		dst := slices.Clone(f.Dst)
		if kern.Finish(slices.Clone(y), x, b, n/backend.Granule, r0, r1, &f) {
			for i := range rows * n {
				r, j := i/n, i%n
				v := want[r*backend.Panel+j] + f.Bias[r]
				if residual {
					v += f.Res[r*f.Ldr+j]
				}
				dst[r*f.Ldd+j] = min(max(v, f.Lo), f.Hi)
			}
		}
		for i, v := range f.Dst {
			if math.Float32bits(v) != math.Float32bits(dst[i]) {
				return fmt.Errorf("row %d, column %d of a finished product is %g, want %g", r0+i/f.Ldd, i%f.Ldd, v, dst[i])
			}
		}
	}
	return nil
}

// tokens multiplies n rows of X from the right.
func tokens(l backend.Linear, w weight, n int, rng *rand.Rand) error {
	m, k := w.Dim(0), w.Dim(1)
	x, xt := guarded(n*k), make([]float32, k*n)
	for i := range x {
		x[i] = rng.Float32() - 0.5
		xt[i%k*n+i/k] = x[i]
	}
	all := guarded(n*m + guard)
	scratch := guarded(backend.Panel * backend.Panel)
	for m0 := 0; m0 < m; m0 += backend.Panel {
		l.Tokens(all[:n*m], x, n, m0, min(m, m0+backend.Panel), scratch)
	}
	want := reference(w, xt, n)
	for i, v := range all {
		if i >= n*m {
			if math.Float32bits(v) != math.Float32bits(poison) {
				return fmt.Errorf("element %d past the result is written", i-n*m)
			}
			continue
		}
		if err := want[i%m*n+i/m].check(v, k); err != nil {
			return fmt.Errorf("y[%d,%d]: %w", i/m, i%m, err)
		}
	}
	return nil
}

// weight is W [m,k]. Kernels of dense codes multiply these by a single column as they are stored, and subtract what they are shifted by,
// times the sum of what they meet: shifts are these, times the scales, by which such sums are rounded even where W is zero. Others have none.
type weight struct {
	*tensor.Tensor
	shifts []float32
}

// sum is a sum of products and the sum of their magnitudes.
type sum struct{ sum, size float64 }

// check compares v with a sum of k products.
func (s sum) check(v float32, k int) error {
	if d := math.Abs(float64(v) - s.sum); !(d <= 1e-6*s.size*math.Sqrt(float64(k))+1e-37) {
		return fmt.Errorf("%v, want %v", v, s.sum)
	}
	return nil
}

// reference multiplies w by x [k,n].
func reference(w weight, x []float32, n int) []sum {
	k := w.Dim(1)
	shifted := w.shifts != nil && n == 1
	out := make([]sum, w.Dim(0)*n)
	for i, v := range w.F32s() {
		if v == 0 && !shifted {
			continue
		}
		row := out[i/k*n:][:n]
		for j, u := range x[i%k*n:][:n] {
			p := float64(v) * float64(u)
			row[j].sum += p
			row[j].size += math.Abs(p)
			if shifted {
				row[j].size += float64(w.shifts[i]) * math.Abs(float64(u))
			}
		}
	}
	return out
}

// guard is the number of elements on either side of a guarded slice.
const guard = 64

var poison = float32(math.NaN())

// guarded returns n elements among others that are NaN.
func guarded(n int) []float32 {
	all := make([]float32, n+2*guard)
	all[0] = poison
	for i := 1; i < len(all); i *= 2 {
		copy(all[i:], all[:i])
	}
	return all[guard : guard+n]
}
