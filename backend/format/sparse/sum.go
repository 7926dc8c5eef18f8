package sparse

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"spc/backend"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/internal/lent"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Rest is what single rows of a weight hold beside its blocks.
type Rest struct{ Values, Rows int }

// farther is the share of their speed that single rows reach with the panels of higher blocks, which are too large for the level
// 1 cache.
const farther = 0.6

// alone is that which rows that are taken by themselves reach of rows that kernels take together, with single columns.
const alone = 0.15

// SumCost is that of a product of floats of n columns with the sum of vectors of l.Rows rows and a rest, of which l counts the
// values and bytes together, if that suits w: what both parts take by themselves, and what a product takes beside them once.
func SumCost(p *machine.Profile, format string, w *choose.Matrix, n int, l backend.Layout, rest Rest) (choose.Cost, bool) {
	if _, taps := machine.TapsOf(w, false); taps || !Suits(w, l) { // one tap may hold no long rows
		return choose.Cost{}, false
	}
	blocks := Ceil(w.Dim(0), l.Rows)
	r, single := p.Of(machine.OfRows(l.Rows)), p.Of(machine.Rows1)
	panels := w.Slide != nil || n > min(r.VecColumns(), single.VecColumns())
	if panels { // for both parts
		r, single = r.Panels(), single.Panels()
	}
	columns, vectors := float64(r.Columns(n)), l.Values-rest.Values
	spent := 2 * columns * float64(vectors) / r.Efficiency(float64(vectors)/float64(blocks*l.Rows), w.Dim(1), n)
	if rest.Rows > 0 {
		e := single.Efficiency(float64(rest.Values)/float64(rest.Rows), w.Dim(1), n)
		switch {
		case !panels:
			e *= alone
		case l.Rows >= placedHeight:
			e *= farther
		}
		spent += 2 * columns * float64(rest.Values) / e
	}
	spent += p.Loaded(w) + beside(p, w, n, panels, l.Bytes, false)
	work := 2 * columns * float64(l.Values)
	return choose.Cost{Config: l.Config, Kernel: Family(format, l.Rows), Work: work, Bytes: l.Bytes, Efficiency: work / spent}, true
}

// SumKernel prepares a weight for the CPU's best kernels that is the sum of two: vectors, whose blocks are R x 1, R being one of
// ukernel.Blocks, and rest, whose blocks are single elements. The format's name goes into that of the kernel.
func SumKernel(format string, vectors, rest *Blocks) (backend.FloatKernel, error) {
	return bindSum(format, vectors, rest, ukernel.Best())
}

func bindSum(format string, vectors, rest *Blocks, kern *ukernel.Kernels) (backend.FloatKernel, error) {
	if vectors.K > 1<<16 {
		return newSum[uint32](format, vectors, rest, kern)
	}
	return newSum[uint16](format, vectors, rest, kern)
}

// sum is the kernel of vectors and, added to their products, a rest.
type sum[I ukernel.Index] struct {
	*ukernel.Sparse[I] // the vectors
	rest               *ukernel.Sparse[I]
	name               string
	height             int
	single             int  // columns that are best multiplied one by one
	once               bool // a run reads the weight once
	kern               *ukernel.Kernels
	placed             *lastPlaced

	long []int              // the rows that have a rest
	few  *ukernel.Sparse[I] // the rest of these alone, for single columns

	wide func() backend.FloatKernel // the kernel with values of f32, nil where they are that
}

func newSum[I ukernel.Index](format string, vectors, rest *Blocks, kern *ukernel.Kernels) (backend.FloatKernel, error) {
	w, err := ukernel.NewSparse(kern, vectors.R, vectors.M, vectors.K, vectors.Ptr, convert[I](vectors.Column), vectors.Values)
	if err != nil {
		return nil, err
	}
	column := convert[I](rest.Column)
	all, err := ukernel.NewSparse(kern, 1, rest.M, rest.K, rest.Ptr, column, rest.Values)
	if err != nil {
		return nil, err
	}
	s := &sum[I]{
		Sparse: w, name: Family(format, vectors.R) + "__" + kern.ISA, height: vectors.R, kern: kern, placed: &lastPlaced{},
		single: min(machine.OfRows(vectors.R).VecColumns(), machine.Rows1.VecColumns()),
	}
	ptr := []uint32{0}
	for row, end := range rest.Ptr[1:] {
		if end > rest.Ptr[row] {
			s.long, ptr = append(s.long, row), append(ptr, end)
		}
	}
	few, err := ukernel.NewSparse(kern, 1, len(s.long), rest.K, ptr, column, rest.Values)
	if err != nil {
		return nil, err
	}
	if !few.Lanes() {
		s.single = min(s.single, machine.GatheredColumns)
	}
	s.few = few.Alone()
	s.rest = all.Addend(kern, w.Bounds(), inPanels(w.Bounds()))
	if vectors.Values.Half() {
		s.wide = sync.OnceValue(func() backend.FloatKernel {
			v, r := *vectors, *rest
			v.Values, r.Values = kern.Widen(v.Values), kern.Widen(r.Values)
			k, _ := newSum[I](format, &v, &r, kern) // which the same blocks became before
			return k
		})
	}
	return s, nil
}

// inPanels is where columns begin in panels [K][64] of these bounds.
func inPanels(bounds []int) (at []int) {
	for b := range max(0, len(bounds)-1) {
		for k := range bounds[b+1] - bounds[b] {
			at = append(at, k*backend.Panel)
		}
	}
	return at
}

func (s *sum[I]) Name() string { return s.name }

func (s *sum[I]) VecColumns() int { return s.single }

// Sized returns the kernel with widened values for many columns, and one that fetches a large weight ahead for few.
func (s *sum[I]) Sized(n int) backend.FloatKernel {
	if s.wide != nil && n >= machine.WidenedColumns {
		return s.wide().(backend.Sizer).Sized(n)
	}
	if n <= s.single {
		once := *s
		once.once = true
		return &once
	}
	return s
}

// Panel adds the rest to the vectors in the first block, and the vectors, which reach every row, to the rest in the others.
func (s *sum[I]) Panel(y, x []float32, b, granules, r0, r1 int) {
	if b > 0 {
		s.rest.Mul(b, r0, r1, granules, x, y, true, nil)
	}
	s.Mul(b, r0, r1, granules, x, y, b > 0, nil)
	if b == 0 {
		s.rest.Mul(b, r0, r1, granules, x, y, true, nil)
	}
}

// Finish is Panel of the last block, with rows that go to f: whole blocks of the weight. The first block is not finished.
func (s *sum[I]) Finish(y, x []float32, b, granules, r0, r1 int, f *ukernel.Finish) bool {
	if !s.kern.Finishes() || r1%s.height != 0 || b == 0 {
		return false
	}
	s.rest.Mul(b, r0, r1, granules, x, y, true, nil)
	s.Mul(b, r0, r1, granules, x, y, true, f)
	return true
}

// Placed is that of kernels of blocks as high.
func (s *sum[I]) Placed(bounds, at []int) backend.FloatKernel {
	if s.height < placedHeight {
		return nil
	}
	return s.placed.of(bounds, at, func() backend.FloatKernel {
		placed := *s
		placed.placed = &lastPlaced{}
		placed.Sparse, placed.rest = s.Sparse.Placed(s.kern, bounds, at), s.rest.Placed(s.kern, bounds, at)
		return &placed
	})
}

// someRows is the number of rows of the rest that are multiplied before they are added.
const someRows = 64

// someSums lends their products.
var someSums = lent.NewPool(func() *[someRows]float32 { return new([someRows]float32) })

func (s *sum[I]) Vec(y, x []float32, r0, r1 int) {
	mul, more := s.MulVec, s.few.MulVec
	if s.once {
		mul, more = s.MulVecOnce, s.few.MulVecOnce
	}
	mul(r0/s.height, Ceil(r1, s.height), x, y)
	first, end := sort.SearchInts(s.long, r0), sort.SearchInts(s.long, r1)
	if first == end {
		return
	}
	sums := someSums.Get()
	defer someSums.Put(sums)
	for from := first; from < end; from += someRows {
		to := min(from+someRows, end)
		more(from, to, x, sums[:])
		for i, row := range s.long[from:to] {
			y[row-r0] += sums[i]
		}
	}
}

// Sum is the matrix f32 [M,K] of the elements of both lists, each of which is in one of them.
func Sum(vectors, rest *Blocks) *tensor.Tensor {
	w := vectors.Matrix()
	data := w.F32s()
	rest.each(func(block []float32, m, k int) { data[m*rest.K+k] = block[0] })
	return w
}

// CheckSum checks both lists, and that no element is in both: the single ones of rest are not in columns that the vectors of
// their rows have.
func CheckSum(vectors, rest *Blocks) error {
	if err := vectors.Check(); err != nil {
		return err
	}
	if err := rest.Check(); err != nil {
		return err
	}
	for row := range rest.M {
		has := vectors.Column[vectors.Ptr[row/vectors.R]:vectors.Ptr[row/vectors.R+1]]
		for _, c := range rest.Column[rest.Ptr[row]:rest.Ptr[row+1]] {
			if _, ok := slices.BinarySearch(has, c); ok {
				return fmt.Errorf("row %d: column %d is in a vector and in the rest", row, c)
			}
		}
	}
	return nil
}
