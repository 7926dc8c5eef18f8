package sparse

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"spc/backend"
	"spc/backend/format/emit"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
)

// Kernel prepares the blocks for the CPU's best kernels. The format's name goes
// into that of the kernel.
func (b *Blocks) Kernel(format string) (backend.FloatKernel, error) {
	return b.bind(format, ukernel.Best())
}

func (b *Blocks) bind(format string, kern *ukernel.Kernels) (backend.FloatKernel, error) {
	if b.K > 1<<16 {
		return newKernel[uint32](b, format, kern)
	}
	return newKernel[uint16](b, format, kern)
}

// Height is the number of rows that a kernel computes together for blocks of r
// rows: the largest for which there is a kernel and that divides r.
func Height(r int) int {
	h := 1
	for _, rows := range ukernel.Blocks {
		if r%rows == 0 {
			h = max(h, rows)
		}
	}
	return h
}

// Family is the name of the kernels of a format for blocks of r rows: dtype,
// format, rows and columns of a tile.
func Family(format string, r int) string {
	return fmt.Sprintf("f32_%s_%dx%d", format, Height(r), backend.Panel)
}

// kernel multiplies panels with vectors of height rows or by code generated for the
// weight, and vectors with these or with runs of columns of one row.
type kernel[I ukernel.Index] struct {
	*ukernel.Sparse[I]
	name   string
	height int
	rows   *ukernel.Rows[I] // nil where blocks are no such runs
	single int              // columns that are best multiplied one by one
	once   bool             // a run reads the weight once
	kern   *ukernel.Kernels
	placed *lastPlaced

	wide      func() backend.FloatKernel // the kernel with values of f32, nil where they are that
	generated func() *kernel[I]          // the kernel with code for many columns, nil where there is none
	weight    *emit.Weight[I]            // what code is generated of
	code      func() *emit.Code          // nil in a kernel without; it returns nil where there is none after all
}

func newKernel[I ukernel.Index](b *Blocks, format string, kern *ukernel.Kernels) (backend.FloatKernel, error) {
	h := Height(b.R)
	ptr, column, value := b.Ptr, b.Column, b.Values
	if b.R != h || b.C != 1 {
		if v := len(b.Column) * b.C * (b.R / h); uint64(v) > math.MaxUint32 {
			return nil, fmt.Errorf("%d vectors, want at most %d", v, uint32(math.MaxUint32))
		}
		ptr, column, value = b.vectors(h)
	}
	w, err := ukernel.NewSparse(kern, h, b.M, b.K, ptr, convert[I](column), value)
	if err != nil {
		return nil, err
	}
	d := &kernel[I]{Sparse: w, name: Family(format, b.R) + "__" + kern.ISA, height: h, kern: kern, placed: &lastPlaced{}, single: machine.OfRows(h).VecColumns()}
	if h == 1 && !w.Lanes() {
		d.single = machine.GatheredColumns
	}
	if b.R == 1 && slices.Contains(ukernel.Runs, b.C) && b.K%b.C == 0 {
		d.single = family(1, b.C).VecColumns()
		d.rows, err = ukernel.NewRows(kern, b.C, b.M, b.K, b.Ptr, convert[I](b.Column), b.Values)
	}
	if value.Half() {
		d.wide = sync.OnceValue(func() backend.FloatKernel {
			w := *b
			w.Values = kern.Widen(b.Values)
			k, _ := newKernel[I](&w, format, kern) // which the same blocks became before
			return k
		})
	}
	if h == 1 && !value.Half() && kern == ukernel.Best() && emit.Available() && b.K > 0 {
		w := &emit.Weight[I]{M: b.M, K: b.K, Ptr: ptr, Index: convert[I](column), Value: value.Float32s()}
		d.generated = sync.OnceValue(func() *kernel[I] {
			g := *d
			g.placed = &lastPlaced{}
			g.name, g.weight = Family(format, b.R)+"_generated__"+kern.ISA, w
			g.generate(emit.Bounds(w.K), nil)
			return &g
		})
	}
	return d, err
}

// generatedColumns is the least number of columns for which code is generated. Code
// and values are twice as large as what it takes to interpret them: that pays when
// they are read from near caches once they were read from far ones.
// BenchmarkGenerated of package format has both.
const generatedColumns = 2 * backend.Panel

// Sized returns the kernel with widened values, or with generated code, for many columns, and one that fetches a large
// weight ahead for few.
func (d *kernel[I]) Sized(n int) backend.FloatKernel {
	if d.wide != nil && n >= machine.WidenedColumns {
		return d.wide().(backend.Sizer).Sized(n)
	}
	if n <= d.single {
		once := *d
		once.once = true
		return &once
	}
	if d.generated == nil || n < generatedColumns {
		return d
	}
	return d.generated()
}

// generate has panels multiplied by generated code, see emit.Shape. Where there is
// none after all, other kernels multiply the same panels.
func (d *kernel[I]) generate(bounds, at []int) {
	w, s := d.weight, emit.Shape{Bounds: bounds, Chunk: d.Sparse.Tile(), At: at}
	d.code = sync.OnceValue(func() *emit.Code { return emit.New(w, s) })
	if at == nil {
		at = make([]int, w.K)
		for b := range len(bounds) - 1 {
			for k := bounds[b]; k < bounds[b+1]; k++ {
				at[k] = (k - bounds[b]) * backend.Panel
			}
		}
	}
	d.Sparse = d.Sparse.Placed(d.kern, bounds, at)
}

// vectors lists the vectors of h rows of the blocks, as ukernel wants them.
func (b *Blocks) vectors(h int) (ptr, column []uint32, value ukernel.Values) {
	n := len(b.Column) * b.C * (b.R / h)
	ptr = make([]uint32, 1, Ceil(b.M, h)+1)
	column = make([]uint32, 0, n)
	value = b.Values.Make(n * h)
	for row := range len(b.Ptr) - 1 {
		for sub := 0; sub < min(b.R, b.M-row*b.R); sub += h {
			for j := int(b.Ptr[row]); j < int(b.Ptr[row+1]); j++ {
				k := int(b.Column[j]) * b.C
				for c := range min(b.C, b.K-k) {
					column = append(column, uint32(k+c))
					at := (j*b.C+c)*b.R + sub
					value.Append(b.Values.Slice(at, at+h))
				}
			}
			ptr = append(ptr, uint32(len(column)))
		}
	}
	return ptr, column, value
}

func (d *kernel[I]) Name() string { return d.name }

func (d *kernel[I]) Panel(y, x []float32, b, granules, r0, r1 int) {
	d.panel(y, x, b, granules, r0, r1, nil)
}

// Finish is Panel of the last block, with rows that go to f: whole blocks of the weight.
func (d *kernel[I]) Finish(y, x []float32, b, granules, r0, r1 int, f *ukernel.Finish) bool {
	if !d.kern.Finishes() || r1%d.height != 0 {
		return false
	}
	d.panel(y, x, b, granules, r0, r1, f)
	return true
}

func (d *kernel[I]) panel(y, x []float32, b, granules, r0, r1 int, f *ukernel.Finish) {
	if d.code != nil {
		if c := d.code(); c != nil {
			c.Mul(b, r0, r1, granules, x, y, f)
			return
		}
	}
	d.Mul(b, r0, r1, granules, x, y, b > 0, f)
}

// Warm generates the code.
func (d *kernel[I]) Warm(tokens bool) {
	if !tokens && d.code != nil {
		d.code()
	}
}

func (d *kernel[I]) VecColumns() int { return d.single }

// placedHeight is the least height of blocks that compute long enough on a column
// to load it from where two lines of the cache meet. Generated code does, too.
const placedHeight = 4

// lastPlaced is the kernel that was last placed: convolutions of other numbers of images
// want the same.
type lastPlaced struct {
	mu         sync.Mutex
	bounds, at []int
	kernel     backend.FloatKernel
}

func (d *kernel[I]) Placed(bounds, at []int) backend.FloatKernel {
	if d.height < placedHeight && d.code == nil {
		return nil
	}
	return d.placed.of(bounds, at, func() backend.FloatKernel { return d.place(bounds, at) })
}

// of returns the kernel of these places, which place makes where it is another one than the last.
func (l *lastPlaced) of(bounds, at []int, place func() backend.FloatKernel) backend.FloatKernel {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kernel == nil || !slices.Equal(l.bounds, bounds) || !slices.Equal(l.at, at) {
		l.bounds, l.at, l.kernel = bounds, at, place()
	}
	return l.kernel
}

func (d *kernel[I]) place(bounds, at []int) backend.FloatKernel {
	placed := *d
	placed.placed = &lastPlaced{}
	if d.code != nil {
		placed.generate(bounds, at)
	} else {
		placed.Sparse = d.Sparse.Placed(d.kern, bounds, at)
	}
	return &placed
}

func (d *kernel[I]) Vec(y, x []float32, r0, r1 int) {
	if d.rows != nil {
		d.rows.MulVec(r0, r1, x, y)
		return
	}
	if d.once {
		d.MulVecOnce(r0/d.height, Ceil(r1, d.height), x, y)
		return
	}
	d.MulVec(r0/d.height, Ceil(r1, d.height), x, y)
}
