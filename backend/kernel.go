package backend

import (
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Panel is the number of columns of a panel: CPU kernels multiply a weight
// W[M,K] with 32 columns of X at a time, laid out as [K][32].
const Panel = 32

// Columns is the number of columns that kernels compute for a product of n
// columns: whole panels, or a single vector.
func Columns(n int) int {
	if n <= 1 {
		return n
	}
	return (n + Panel - 1) / Panel * Panel
}

// Kernel multiplies a prepared weight W[M,K] on the CPU. It may be called
// concurrently.
type Kernel interface {
	// Name says format, dtype, tile and instruction set.
	Name() string
	// Tile is the number of rows that are computed together: row ranges start
	// at a multiple of it.
	Tile() int
	// Panel computes rows r0 to r1 of Y = W X for one panel:
	//
	//	y[(r-r0)*ldy + j] = sum over k of W[r,k] * x[k*32+j], for j in 0..31
	//
	// x holds K*32 elements, y room for the rows up to the next multiple of Tile.
	Panel(y []float32, ldy int, x []float32, r0, r1 int)
	// Vec computes rows r0 to r1 of y = W x for one column: y[r-r0] and x[k].
	// y has room for the rows up to the next multiple of Tile.
	Vec(y, x []float32, r0, r1 int)
}

// Format is a storage format: what choosing asks of it, and what it takes to
// read it back and to compute with it.
type Format interface {
	choose.Format
	// Check reports whether a store, which may come from a hostile file, is
	// well formed: every part present with the right type and shape, every index
	// in range. The other methods may rely on it.
	Check(s *ir.Store) error
	// Unpack is the inverse of Pack: the matrix f32 [M,K].
	Unpack(s *ir.Store) (*tensor.Tensor, error)
	// Kernel prepares a store that Check accepts.
	Kernel(s *ir.Store) (Kernel, error)
}
