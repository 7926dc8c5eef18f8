package ukernel

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
)

// Index is the type of column indices: uint16 where K allows it.
type Index interface{ uint16 | uint32 }

// Sparse is a sparse weight bound to its kernels. It is made of vertical blocks:
// R consecutive rows, R being one of Blocks, form a group, and a group is a
// sequence of steps, a step being a column and its values in the R rows.
type Sparse[I Index] struct {
	rows, m, k int
	ptr        []uint32
	index      []I
	value      Values
	kern       *Kernels
	spmv       spmv[I]
	lanes      func() *lanes // nil where there are none
	bounds     []int         // of the blocks of columns
	addend     bool          // see Addend
	panels     func() *panels
}

// spmm multiplies consecutive groups by a panel: group g writes the rows from
// group[2*g] on and has group[2*g+1] bundles of steps, a step being an offset into
// x in bytes and its values. The rows go to f unless that is nil.
type spmm func(groups int, group []uint32, offset []uint16, value, x, y []float32, acc bool, f *FinishArgs)

// NewSparse binds a weight of m rows and k columns, stored in blocks of the
// given number of rows, to the kernels of kern. Group g owns the steps ptr[g]
// to ptr[g+1]-1; step j is the column index[j], ascending within a group, with
// value[j*rows:][:rows]. The last group is padded with zeros if m does not fill
// it. The slices are kept and must not change. The error says which of these
// properties is violated.
func NewSparse[I Index](kern *Kernels, rows, m, k int, ptr []uint32, index []I, value Values) (*Sparse[I], error) {
	if !slices.Contains(Blocks, rows) {
		return nil, fmt.Errorf("sparse weight: no kernel for %dx1 blocks", rows)
	}
	if m < 0 || k < 0 || k > math.MaxInt32 {
		return nil, fmt.Errorf("sparse weight: no kernel for %d x %d", m, k)
	}
	if err := checkSteps((m+rows-1)/rows, k, rows, ptr, index, value); err != nil {
		return nil, err
	}
	a := &Sparse[I]{rows: rows, m: m, k: k, ptr: ptr, index: index, value: value, kern: kern}
	a.spmv = vecKernel[I](kern.spmv16[rows], kern.spmv32[rows])
	if rows == 1 && k > 0 && kern.lanes[value.kind] != nil {
		a.lanes = sync.OnceValue(func() *lanes { return newLanes(a) })
	}
	a.place(kern, blockBounds(k, blockK(rows)), nil)
	return a, nil
}

// checkSteps returns an error unless there are so many groups, whose indices ascend
// below k, and size values for each index.
func checkSteps[I Index](groups, k, size int, ptr []uint32, index []I, value Values) error {
	if len(ptr) != groups+1 {
		return fmt.Errorf("sparse weight: %d group bounds, want %d", len(ptr), groups+1)
	}
	for g := range groups {
		if ptr[g] > ptr[g+1] {
			return fmt.Errorf("sparse weight: group %d ends before it begins", g)
		}
	}
	steps := uint64(ptr[groups])
	if have := uint64(len(index)); have < steps {
		return fmt.Errorf("sparse weight: %d indices, want %d", have, steps)
	}
	if have := uint64(value.Len()); have < steps*uint64(size) {
		return fmt.Errorf("sparse weight: %d values, want %d", have, steps*uint64(size))
	}
	for g := range groups {
		before := -1
		for i := ptr[g]; i < ptr[g+1]; i++ {
			c := int(index[i])
			if c >= k {
				return fmt.Errorf("sparse weight: index %d is column %d of %d", i, c, k)
			}
			if c <= before {
				return fmt.Errorf("sparse weight: index %d is column %d after %d", i, c, before)
			}
			before = c
		}
	}
	return nil
}

// place says where the panels have the columns of W, see Placed; at is nil for
// panels [K][Columns].
func (a *Sparse[I]) place(kern *Kernels, bounds, at []int) {
	a.bounds = bounds
	a.panels = sync.OnceValue(func() *panels { return newPanels(a, kern.spmm[a.rows], at) })
}

// Placed returns a for panels of other forms. Panel b is that of the columns from
// bounds[b] to bounds[b+1]-1; the columns of X that column k of W meets begin at its
// element at[k]. It panics unless there are at most BlockK columns in a panel, the
// first is column 0, the last column k-1, and elements are below MaxPlace.
func (a *Sparse[I]) Placed(kern *Kernels, bounds, at []int) *Sparse[I] {
	if len(at) != a.k || len(bounds) == 0 || bounds[0] != 0 || bounds[len(bounds)-1] != a.k {
		panic("ukernel: places are not those of the columns")
	}
	for b := range len(bounds) - 1 {
		if n := bounds[b+1] - bounds[b]; n < 1 || n > BlockK {
			panic("ukernel: no panel of so many columns")
		}
	}
	for _, e := range at {
		if e < 0 || e >= MaxPlace {
			panic("ukernel: place outside of a panel")
		}
	}
	placed := *a
	placed.place(kern, bounds, at)
	return &placed
}

// Addend returns a for products with the same panels that are added to others and finish nothing: rows without steps take no
// time.
func (a *Sparse[I]) Addend(kern *Kernels, bounds, at []int) *Sparse[I] {
	added := *a
	added.addend = true
	return added.Placed(kern, bounds, at)
}

// Alone returns a for products with vectors in which no row waits for others: few rows of any length, from any one on.
func (a *Sparse[I]) Alone() *Sparse[I] {
	alone := *a
	alone.lanes = nil
	return &alone
}

// MaxPlace bounds the elements at which the columns of a panel begin.
const MaxPlace = 1 << 14

// Kernel returns the name of the kernel that multiplies panels: dtype, block,
// columns and instruction set.
func (a *Sparse[I]) Kernel() string {
	return fmt.Sprintf("spmm_f32_%dx1x%d_%s", a.rows, Columns, a.kern.ISA)
}

// panels is a sparse weight in the order in which panels are multiplied: cut into
// blocks of columns, whose rows of a panel stay in the level 1 cache, and these
// into chunks of rows, in which groups with as many bundles of steps follow each
// other, so that the processor foresees where each ends. Bundles are filled up
// with zeros.
type panels struct {
	chunk  int // rows
	blocks []panelBlock
	kernel [Columns / Granule]spmm // by the width less one
}

type panelBlock struct {
	start  []panelStart // by chunk, and the end
	group  []uint32     // pairs of row in the chunk and bundles
	offset []uint16
	value  Values
	reach  int // the element of the panel at which the last column begins
}

type panelStart struct{ group, step int }

// bundle is the number of steps that kernels take at a time by the rows of a
// block.
var bundle = map[int]int{1: 4, 2: 2, 4: 2, 8: 1, 16: 1}

// blockK is the number of rows of the panel that stay in the level 1 cache while
// blocks of rows rows multiply them: single rows meet every row anew, higher
// blocks compute longer on each.
func blockK(rows int) int {
	switch rows {
	case 1:
		return 160
	case 2:
		return 192
	}
	return BlockK
}

// chunkRows is the number of rows of a chunk: a multiple of the highest block,
// enough for groups of equal length to meet, few enough for threads to share.
func chunkRows(m int) int { return min(max((m+127)/128*16, 64), 256) }

// Bounds cuts the k columns of a dense weight into the blocks that products with
// panels are made of.
func (g *Gemm) Bounds(k int) []int { return blockBounds(k, BlockK) }

// blockBounds cuts k columns evenly into blocks of at most size.
func blockBounds(k, size int) []int {
	n := (k + size - 1) / size
	bounds := make([]int, n+1)
	for i := range bounds {
		if n > 0 {
			bounds[i] = i * k / n
		}
	}
	return bounds
}

func newPanels[I Index](a *Sparse[I], kernel [Columns / Granule]spmm, at []int) *panels {
	p := &panels{chunk: chunkRows(a.m), kernel: kernel}
	u, groups := bundle[a.rows], a.Groups()
	chunks, per := (a.m+p.chunk-1)/p.chunk, p.chunk/a.rows
	next := slices.Clone(a.ptr[:groups])
	// By group of a chunk, where its steps in this block begin and end.
	from, to := make([]uint32, per), make([]uint32, per)
	byLength := make([][]int, BlockK+1)
	place := make([]uint16, BlockK)
	for b := range len(a.bounds) - 1 {
		lo, hi := a.bounds[b], a.bounds[b+1]
		var blk panelBlock
		for k := lo; k < hi; k++ {
			e := (k - lo) * Columns
			if at != nil {
				e = at[k]
			}
			place[k-lo] = uint16(4 * e)
			blk.reach = max(blk.reach, e)
		}
		steps := 0
		for g, j := range next {
			for end := a.ptr[g+1]; j < end && int(a.index[j]) < hi; j++ {
			}
			steps += (int(j-next[g]) + u - 1) / u * u
		}
		blk.offset = make([]uint16, 0, steps)
		blk.value = a.value.Make(steps * a.rows)
		blk.group = make([]uint32, 0, 2*groups)
		for c := range chunks {
			blk.start = append(blk.start, panelStart{len(blk.group) / 2, len(blk.offset)})
			n := min(per, groups-c*per)
			for i := range n {
				g := c*per + i
				j := next[g]
				from[i] = j
				for end := a.ptr[g+1]; j < end && int(a.index[j]) < hi; j++ {
				}
				to[i], next[g] = j, j
				l := (int(j-from[i]) + u - 1) / u
				byLength[l] = append(byLength[l], i)
			}
			for l, is := range byLength {
				for _, i := range is {
					if l == 0 && (a.addend || b > 0 && b < len(a.bounds)-2) {
						continue // adds nothing, and finishes nothing
					}
					blk.group = append(blk.group, uint32(i*a.rows), uint32(l))
					for j := from[i]; j < to[i]; j++ {
						blk.offset = append(blk.offset, place[int(a.index[j])-lo])
					}
					blk.value.Append(a.value.Slice(int(from[i])*a.rows, int(to[i])*a.rows))
					for range l*u - int(to[i]-from[i]) {
						blk.offset = append(blk.offset, blk.offset[len(blk.offset)-1])
						blk.value.AppendZeros(a.rows)
					}
				}
				byLength[l] = is[:0]
			}
		}
		blk.start = append(blk.start, panelStart{len(blk.group) / 2, len(blk.offset)})
		p.blocks = append(p.blocks, blk)
	}
	return p
}

// Tile is the number of rows at whose multiples products with panels can be
// split.
func (a *Sparse[I]) Tile() int { return chunkRows(a.m) }

// Bounds returns the blocks of columns that products with panels are made of:
// block b has the columns from bounds[b] to bounds[b+1]-1.
func (a *Sparse[I]) Bounds() []int { return a.bounds }

// Groups returns the number of groups, the last of which may be partial.
func (a *Sparse[I]) Groups() int { return (a.m + a.rows - 1) / a.rows }

// Mul computes the rows r0 to r1-1 of the product of a block of columns with
// width granules of a panel, Y = W X, or Y += W X with acc set. r0 is a multiple
// of Tile, and r1 one too or the number of rows. x is the panel of the block's
// columns; y begins with row r0, its rows are Columns apart, and it has room for
// all rows of the last group. In the last block the rows go to f, which has as much
// room, unless it is nil.
func (a *Sparse[I]) Mul(block, r0, r1, width int, x, y []float32, acc bool, f *Finish) {
	p := a.panels()
	if a.addend && (!acc || f != nil) {
		panic("ukernel: an addend is added, and finishes nothing")
	}
	if r0 < 0 || r0%p.chunk != 0 || r0 > r1 || r1 > a.m || r1%p.chunk != 0 && r1 != a.m {
		panic("ukernel: rows are not whole chunks")
	}
	b := &p.blocks[block]
	rows := (r1 - r0 + a.rows - 1) / a.rows * a.rows
	checkPanel(rows, width, 0, x, y)
	if f != nil && block != len(p.blocks)-1 {
		panic("ukernel: rows are finished in the last block")
	}
	to := a.kern.finish(f, rows, width)
	defer runtime.KeepAlive(f)
	need("panel", len(x), b.reach+width*Granule)
	lent := b.value.lend()
	defer lent.giveBack()
	for c := r0 / p.chunk; c*p.chunk < r1; c++ {
		at, end, row := b.start[c], b.start[c+1], c*p.chunk-r0
		if f != nil {
			to = f.From(row)
		}
		for at.group < end.group {
			next := b.strip(at, end, a.rows)
			value := a.kern.widened(lent, b.value, at.step*a.rows, next.step*a.rows)
			p.kernel[width-1](next.group-at.group, b.group[2*at.group:2*next.group], b.offset[at.step:next.step], value,
				x, y[row*Columns:], acc, to)
			at = next
		}
	}
}

// strip returns the end of the groups from at to end whose values are read together:
// all of them but where values are widened.
func (b *panelBlock) strip(at, end panelStart, rows int) panelStart {
	if !b.value.Half() {
		return end
	}
	for first := at.step; at.group < end.group; at.group++ {
		steps := int(b.group[2*at.group+1]) * bundle[rows]
		if at.step > first && (at.step+steps-first)*rows > stripLen {
			break
		}
		at.step += steps
	}
	return at
}
