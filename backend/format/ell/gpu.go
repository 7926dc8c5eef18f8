package ell

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// GPU lists the kernels of ell.cu, USpMM by warps and columns of a tile and those for few
// columns by columns, and those of bitmap.cu.
func (Scheme) GPU(b *sparse.Blocks, dt tensor.DType) ([]backend.GPUKernel, error) {
	r := rowsOf(b)
	values, columns := r.columnMajor()
	out := backend.WithParts(uspmm(r.m, r.k, r.width, dt), tensor.From(values, r.width, r.m).To(dt), sparse.Narrow(columns, r.k, r.width, r.m))
	if staged := few(r.m, r.k, r.width, dt); staged != nil {
		g := r.groups(dt)
		for i := range staged {
			staged[i].Extra[0] = g.count
		}
		out = append(out, backend.WithParts(staged, g.values, g.steps, g.slabs)...)
	}
	return append(out, sparse.Bitmap(b.Matrix(), dt)...), nil
}

// GPUKernels lists them without their parts.
func (Scheme) GPUKernels(w *choose.Matrix, _ string, dt tensor.DType) []backend.GPUKernel {
	m, k := w.Dim(0), w.Dim(1)
	out := append(uspmm(m, k, w.RowMax, dt), few(m, k, w.RowMax, dt)...)
	return append(out, sparse.BitmapKernels(sparse.Populate(w), dt)...)
}

// tiles are those of USpMM's parameters, the warps of a block of threads and its columns, that there are kernels for.
var tiles = []struct{ warps, vector int }{{4, 1}, {4, 4}, {4, 8}, {4, 16}, {8, 1}, {8, 4}, {8, 8}, {8, 16}, {16, 4}}

// uspmm lists the kernels whose parts are values [S,M] and columns u16 or u32 [S,M], S nonzeros a row.
func uspmm(m, k, width int, dt tensor.DType) (out []backend.GPUKernel) {
	index := sparse.IndexType(k)
	for _, t := range tiles {
		out = append(out, backend.GPUKernel{
			Name:    fmt.Sprintf("%v_ell_32x%dw%d_%v_simt", dt, t.vector, t.warps, index),
			Bytes:   width * m * (dt.Size() + index.Size()),
			Columns: t.vector, Products: width * m, Loads: width * m,
			Extra: []int{width},
			Launch: func(n, batch int) backend.Geometry {
				return backend.Geometry{
					Grid:  [3]int{sparse.Ceil(n, t.vector), sparse.Ceil(m, 32), batch},
					Block: [3]int{32, t.warps, 1},
				}
			},
		})
	}
	return out
}

// group is the number of nonzeros that a lane of the kernels for few columns loads at once,
// reach how far the column of one may be from that of the one before it.
const group, reach = 8, 255

// few lists the kernels for few columns that stage their columns of X in shared memory. Extra is the
// groups of a row, at least, and the pairs of rows of a block.
func few(m, k, width int, dt tensor.DType) (out []backend.GPUKernel) {
	size, count := dt.Size(), sparse.Ceil(width, group)
	bytes := count * (group*(size+1) + 1) // of a row
	for _, columns := range []int{1, 2, 4, 8} {
		staged := max(1, k) * columns * size
		if staged > backend.GPUShared {
			break
		}
		// A block has as many rows as make its bytes twice what it stages, but not so many that
		// processors are idle: those that its warps have at once or a multiple.
		const processors, most = 128, 32
		rows := 8
		for rows < most && rows*bytes < 2*staged && sparse.Ceil(m, 2*rows) >= processors {
			rows *= 2
		}
		if rows == most {
			rows *= sparse.Ceil(min(sparse.Ceil(2*staged, max(1, bytes)), sparse.Ceil(m, processors)), most)
		}
		down := sparse.Ceil(m, rows)
		out = append(out, backend.GPUKernel{
			Name:    fmt.Sprintf("%v_ell_2x%d_u8_simt", dt, columns),
			Bytes:   m * bytes,
			Columns: columns, Products: width * m, Loads: down * k, Share: gathered(columns, size),
			Extra: []int{count, rows / 2},
			Launch: func(n, batch int) backend.Geometry {
				return backend.Geometry{
					Grid:   [3]int{sparse.Ceil(n, columns), down, batch},
					Block:  [3]int{32, min(rows, most) / 2, 1},
					Shared: staged,
				}
			},
		})
	}
	return out
}

// gathered is the share of the cores' rate that kernels reach whose lanes gather such a row of X
// from shared memory for each nonzero: those that are served together, 32 lanes of up to 4 bytes, 16
// of 8 or 8 of 16, take as many cycles as want the bank that most of them want, on average.
func gathered(columns, size int) float64 {
	cycles := 3.53
	switch bytes := columns * size; {
	case bytes >= 16:
		cycles = 4 * 2.6 * float64(bytes/16)
	case bytes == 8:
		cycles = 2 * 3.08
	}
	const warps = 4 // whose lanes multiply in a cycle
	return float64(columns) / cycles / warps
}

// rows are the nonzeros of each row, in the order of their columns: those of row i are
// ptr[i] to ptr[i+1], at most width.
type rows struct {
	m, k, width int
	ptr         []int
	values      []float32
	columns     []uint32
}

func rowsOf(b *sparse.Blocks) *rows {
	r := &rows{m: b.M, k: b.K, ptr: make([]int, b.M+1)}
	all := b.Values.Float32s()
	r.values, r.columns = make([]float32, 0, len(all)), make([]uint32, 0, len(all))
	for i := range b.M {
		for j := b.Ptr[i/b.R]; j < b.Ptr[i/b.R+1]; j++ {
			if v := all[int(j)*b.R+i%b.R]; v != 0 {
				r.values, r.columns = append(r.values, v), append(r.columns, b.Column[j])
			}
		}
		r.ptr[i+1] = len(r.values)
		r.width = max(r.width, r.ptr[i+1]-r.ptr[i])
	}
	return r
}

// columnMajor lists the nonzeros nonzero by nonzero: element s*M+m is nonzero s of row m.
// Rows with fewer than width are filled up with zeros at column 0.
func (r *rows) columnMajor() (values []float32, columns []uint32) {
	values, columns = make([]float32, r.width*r.m), make([]uint32, r.width*r.m)
	const together = 32 // rows, so that what is written has neighbours in the cache
	for first := 0; first < r.m; first += together {
		for s := range r.width {
			for i := first; i < min(first+together, r.m); i++ {
				if at := r.ptr[i] + s; at < r.ptr[i+1] {
					values[s*r.m+i], columns[s*r.m+i] = r.values[at], r.columns[at]
				}
			}
		}
	}
	return values, columns
}

// groups are the nonzeros of rows by groups of ell.cu, count in each row, of an even number of rows.
type groups struct {
	count                int
	values, steps, slabs *tensor.Tensor // dt and u8 [M/2,count,2,8], u8 [M/2,count,2]
}

// groups arranges them. Where the next nonzero is out of reach there is a zero between the two;
// zeros fill up the last groups.
func (r *rows) groups(dt tensor.DType) groups {
	// walk calls f for each place of a row that is taken.
	walk := func(i int, f func(place int, column uint32, value float32)) (places int) {
		var last uint32
		for j := r.ptr[i]; j < r.ptr[i+1]; j++ {
			for places%group > 0 && r.columns[j]-last > reach {
				last += reach
				f(places, last, 0)
				places++
			}
			last = r.columns[j]
			f(places, last, r.values[j])
			places++
		}
		return places
	}
	var g groups
	for i := range r.m {
		g.count = max(g.count, sparse.Ceil(walk(i, func(int, uint32, float32) {}), group))
	}
	pairs := sparse.Ceil(r.m, 2)
	n := pairs * g.count * 2
	values, steps, slabs := make([]float32, n*group), make([]uint8, n*group), make([]uint8, n)
	for i := range r.m {
		var last uint32
		walk(i, func(place int, column uint32, value float32) {
			at := (i/2*g.count+place/group)*2 + i%2
			if place%group == 0 {
				slabs[at] = uint8(column >> 8)
				last = column &^ 255
			}
			values[at*group+place%group], steps[at*group+place%group] = value, uint8(column-last)
			last = column
		})
	}
	g.values = tensor.From(values, pairs, g.count, 2, group).To(dt)
	g.steps, g.slabs = tensor.From(steps, pairs, g.count, 2, group), tensor.From(slabs, pairs, g.count, 2)
	return g
}
