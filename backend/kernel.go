package backend

import (
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Panel is the number of columns of a panel: CPU kernels multiply a weight W[M,K]
// with up to 64 columns of X at a time, laid out as [K][64].
const Panel = 64

// Granule is the number of columns by which a product narrows: the first so many
// granules of a panel's columns are computed.
const Granule = 16

// VecTile is the number of rows at whose multiples the ranges of Vec start.
const VecTile = 16

// Columns is the number of columns that kernels compute for a product of n
// columns: whole granules, or a single vector.
func Columns(n int) int {
	if n <= 1 {
		return n
	}
	return (n + Granule - 1) / Granule * Granule
}

// Kernel multiplies a prepared weight W[M,K] on the CPU. It may be called
// concurrently.
type Kernel interface {
	// Name says format, dtype, tile and instruction set.
	Name() string
	// Tile is the number of rows at whose multiples row ranges start and end.
	Tile() int
	// Bounds are the blocks of columns that a product is made of: block b has
	// the columns from bounds[b] to bounds[b+1]-1. There are none where K is 0.
	Bounds() []int
	// Panel computes rows r0 to r1 of the product of block b with the first so
	// many granules of a panel's columns:
	//
	//	y[(r-r0)*64 + j] = sum over k of W[r, bounds[b]+k] * x[k*64 + j]
	//
	// and adds it to what y holds if b is not 0. x holds the rows of the block,
	// y room for whole tiles.
	Panel(y, x []float32, b, granules, r0, r1 int)
	// Vec computes rows r0 to r1 of y = W x for one column: y[r-r0] and x[k].
	// r0 is a multiple of VecTile, and y has room for a multiple of that.
	Vec(y, x []float32, r0, r1 int)
	// VecColumns is the number of columns up to which a product is fastest column
	// by column, at least 1.
	VecColumns() int
}

// Sizer is a Kernel that is not the fastest for any number of columns.
type Sizer interface {
	Kernel
	// Sized returns the kernel for products of n columns: this one itself where none
	// is better.
	Sized(n int) Kernel
}

// Placer is a Kernel for which the columns of X need not lie 64 elements apart in a
// panel, nor apart at all: those that the taps of a convolution read overlap.
type Placer interface {
	Kernel
	// Placed returns a kernel with these bounds, of at most MaxBlock columns a
	// block, for panels in which the columns of X that column k of W meets begin
	// at element at[k], below MaxPlace; nil where panels [K][64] are faster.
	Placed(bounds, at []int) Kernel
}

// MaxBlock is the most columns of a block of a Placer, MaxPlace what the elements
// of its panels at which columns begin are below.
const (
	MaxBlock = 256
	MaxPlace = 1 << 14
)

// Linear is a Kernel that also multiplies from the right, so that operands whose
// K is contiguous need no transposition.
type Linear interface {
	Kernel
	// Tokens computes the columns m0 to m1 of Y[T,M] = X[T,K] W^T for T tokens,
	// whose features are contiguous in x; tokens are K elements apart in x, and M
	// in y, which begins with the first token. m0 is a multiple of Panel. panel
	// is scratch of Panel*Panel elements.
	Tokens(y, x []float32, tokens, m0, m1 int, panel []float32)
}

// Warmer is a Kernel that works on copies of its weight, which it makes when it
// needs them first.
type Warmer interface {
	Kernel
	// Warm makes the copy that Tokens works on, or that of Panel. It may be called
	// concurrently.
	Warm(tokens bool)
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
