// Package sparse is what the sparse storage formats share: a weight as a list
// of blocks, its checks, its CPU kernels and what they cost. It imports backend,
// ukernel, emit and rate.
//
// Zeros of either sign count as zeros, since masking by multiplication leaves
// negative ones: a -0 may come back as +0. All other values, NaN included, come
// back bit by bit.
package sparse

import (
	"fmt"
	"math"

	"spc/backend/format/ukernel"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Blocks is a weight W[M,K] as a list of blocks of R rows by C columns, those of
// a block row in the order of their columns. Blocks at the lower and the right
// edge reach over the matrix; their elements out there are zero.
type Blocks struct {
	M, K, R, C int
	Ptr        []uint32       // block row i has the blocks Ptr[i] to Ptr[i+1]
	Column     []uint32       // the block column of each block
	Values     ukernel.Values // [blocks][C][R]: block by block, column by column
}

// Ceil is a/b, rounded up.
func Ceil(a, b int) int {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// Find lists the blocks of w, f32 [M,K], that are not all zero. With a width
// every block row has that many: zero blocks fill up what is missing.
func Find(w *tensor.Tensor, r, c, width int) (*Blocks, error) {
	b := &Blocks{M: w.Dim(0), K: w.Dim(1), R: r, C: c}
	used := make([]bool, Ceil(b.K, c))
	if width > len(used) {
		return nil, fmt.Errorf("%d blocks in a row of %d", width, len(used))
	}
	data := w.F32s()
	b.Ptr = make([]uint32, 1, Ceil(b.M, r)+1)
	b.Column = make([]uint32, 0, width*Ceil(b.M, r))
	for r0 := 0; r0 < b.M; r0 += r {
		clear(used)
		for i := r0; i < min(r0+r, b.M); i++ {
			mark(used, data[i*b.K:(i+1)*b.K], c)
		}
		n := 0
		for _, is := range used {
			if is {
				n++
			}
		}
		if width > 0 && n > width {
			return nil, fmt.Errorf("rows from %d on have %d blocks, want at most %d: %w", r0, n, width, choose.ErrFit)
		}
		for j := 0; n < width; j++ {
			if !used[j] {
				used[j] = true
				n++
			}
		}
		for j, is := range used {
			if is {
				b.Column = append(b.Column, uint32(j))
			}
		}
		if uint64(len(b.Column)) > math.MaxUint32 {
			return nil, fmt.Errorf("more than %d blocks", uint32(math.MaxUint32))
		}
		b.Ptr = append(b.Ptr, uint32(len(b.Column)))
	}
	b.Values = ukernel.F32(make([]float32, len(b.Column)*r*c))
	b.each(func(block []float32, m, k int) {
		for i := range min(r, b.M-m) {
			row := data[(m+i)*b.K+k:]
			for j := range min(c, b.K-k) {
				block[j*r+i] = row[j]
			}
		}
	})
	return b, nil
}

// mark sets used for each c elements of a row of which one is not zero.
func mark(used []bool, row []float32, c int) {
	j, left := 0, c
	for _, v := range row {
		if v != 0 {
			used[j] = true
		}
		if left--; left == 0 {
			j, left = j+1, c
		}
	}
}

// each calls f with the values of each block, its first row and its first column.
func (b *Blocks) each(f func(block []float32, m, k int)) {
	size := b.R * b.C
	values := b.Values.Float32s()
	for i := range len(b.Ptr) - 1 {
		for j := int(b.Ptr[i]); j < int(b.Ptr[i+1]); j++ {
			f(values[j*size:(j+1)*size], i*b.R, int(b.Column[j])*b.C)
		}
	}
}

// Matrix returns the weight f32 [M,K].
func (b *Blocks) Matrix() *tensor.Tensor {
	w := tensor.New(tensor.F32, b.M, b.K)
	data := w.F32s()
	b.each(func(block []float32, m, k int) {
		for i := range min(b.R, b.M-m) {
			row := data[(m+i)*b.K+k:]
			for j := range min(b.C, b.K-k) {
				row[j] = block[j*b.R+i]
			}
		}
	})
	return w
}

// Check reports whether the list is well formed: block rows follow each other
// and cover all blocks, block columns ascend within the matrix, and what lies
// outside of the matrix is zero. M, K, R and C are the caller's to check.
func (b *Blocks) Check() error {
	rows, across := Ceil(b.M, b.R), Ceil(b.K, b.C)
	if len(b.Ptr) != rows+1 || b.Ptr[0] != 0 {
		return fmt.Errorf("row pointers do not begin at 0 and bound %d block rows", rows)
	}
	for i := range rows {
		if b.Ptr[i] > b.Ptr[i+1] {
			return fmt.Errorf("row pointer %d is %d, below the one before it", i+1, b.Ptr[i+1])
		}
	}
	if int(b.Ptr[rows]) != len(b.Column) {
		return fmt.Errorf("row pointers end at %d, want the number of blocks %d", b.Ptr[rows], len(b.Column))
	}
	if n := b.Values.Len(); n/(b.R*b.C) != len(b.Column) || n%(b.R*b.C) != 0 {
		return fmt.Errorf("%d values for %d blocks of %d x %d", n, len(b.Column), b.R, b.C)
	}
	for i := range rows {
		edge := b.M - i*b.R // rows of the matrix in this block row
		for j := b.Ptr[i]; j < b.Ptr[i+1]; j++ {
			c := b.Column[j]
			if uint64(c) >= uint64(across) {
				return fmt.Errorf("block row %d: block column %d of %d", i, c, across)
			}
			if j > b.Ptr[i] && c <= b.Column[j-1] {
				return fmt.Errorf("block row %d: block column %d after %d", i, c, b.Column[j-1])
			}
			width := b.K - int(c)*b.C
			if edge >= b.R && width >= b.C {
				continue
			}
			for at, v := range b.Values.Slice(int(j)*b.R*b.C, (int(j)+1)*b.R*b.C).Float32s() {
				if (at%b.R >= edge || at/b.R >= width) && v != 0 {
					return fmt.Errorf("block row %d, block column %d: a value outside the matrix is not zero", i, c)
				}
			}
		}
	}
	return nil
}
