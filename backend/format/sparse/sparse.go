// Package sparse is what the sparse storage formats share: a weight as a list
// of blocks, its checks, its CPU kernel and what that costs. It imports backend
// and ukernel.
//
// Zeros of either sign count as zeros, since masking by multiplication leaves
// negative ones: a -0 may come back as +0. All other values, NaN included, come
// back bit by bit.
package sparse

import (
	"fmt"
	"math"

	"spc/ir/tensor"
)

// Blocks is a weight W[M,K] as a list of blocks of R rows by C columns, those of
// a block row in the order of their columns. Blocks at the lower and the right
// edge reach over the matrix; their elements out there are zero.
type Blocks struct {
	M, K, R, C int
	Ptr        []uint32  // block row i has the blocks Ptr[i] to Ptr[i+1]
	Column     []uint32  // the block column of each block
	Values     []float32 // [blocks][C][R]: block by block, column by column
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
	data := w.F32s()
	across := Ceil(b.K, c)
	if width > across {
		return nil, fmt.Errorf("%d blocks in a row of %d", width, across)
	}
	b.Ptr = make([]uint32, 1, Ceil(b.M, r)+1)
	used := make([]bool, across)
	for r0 := 0; r0 < b.M; r0 += r {
		clear(used)
		h := min(r, b.M-r0)
		n := 0
		for i := r0; i < r0+h; i++ {
			row := data[i*b.K : (i+1)*b.K]
			for j := range used {
				if used[j] {
					continue
				}
				for _, v := range row[j*c : min(j*c+c, b.K)] {
					if v != 0 {
						used[j] = true
						n++
						break
					}
				}
			}
		}
		if width > 0 && n > width {
			return nil, fmt.Errorf("rows from %d on have %d blocks, want at most %d", r0, n, width)
		}
		for j := 0; n < width; j++ {
			if !used[j] {
				used[j] = true
				n++
			}
		}
		for j, is := range used {
			if !is {
				continue
			}
			b.Column = append(b.Column, uint32(j))
			for k := j * c; k < j*c+c; k++ {
				for i := r0; i < r0+r; i++ {
					var v float32
					if k < b.K && i < b.M {
						v = data[i*b.K+k]
					}
					b.Values = append(b.Values, v)
				}
			}
		}
		if uint64(len(b.Column)) > math.MaxUint32 {
			return nil, fmt.Errorf("more than %d blocks", uint32(math.MaxUint32))
		}
		b.Ptr = append(b.Ptr, uint32(len(b.Column)))
	}
	return b, nil
}

// Matrix returns the weight f32 [M,K].
func (b *Blocks) Matrix() *tensor.Tensor {
	w := tensor.New(tensor.F32, b.M, b.K)
	data := w.F32s()
	for row := range len(b.Ptr) - 1 {
		for j := b.Ptr[row]; j < b.Ptr[row+1]; j++ {
			block := b.Values[int(j)*b.R*b.C:]
			for c := range min(b.C, b.K-int(b.Column[j])*b.C) {
				k := int(b.Column[j])*b.C + c
				for r := range min(b.R, b.M-row*b.R) {
					data[(row*b.R+r)*b.K+k] = block[c*b.R+r]
				}
			}
		}
	}
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
	if len(b.Values)/(b.R*b.C) != len(b.Column) || len(b.Values)%(b.R*b.C) != 0 {
		return fmt.Errorf("%d values for %d blocks of %d x %d", len(b.Values), len(b.Column), b.R, b.C)
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
			for at, v := range b.Values[int(j)*b.R*b.C : (int(j)+1)*b.R*b.C] {
				if (at%b.R >= edge || at/b.R >= width) && v != 0 {
					return fmt.Errorf("block row %d, block column %d: a value outside the matrix is not zero", i, c)
				}
			}
		}
	}
	return nil
}
