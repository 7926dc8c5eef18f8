package backend

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

// Kernel multiplies a prepared weight W[M,K] on the CPU: a FloatKernel or an IntegerKernel. It
// may be called concurrently.
type Kernel interface {
	// Name says format, dtype, tile and instruction set.
	Name() string
}

// FloatKernel multiplies by f32, with f32 sums.
type FloatKernel interface {
	Kernel
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

// Sizer is a FloatKernel that is not the fastest for any number of columns.
type Sizer interface {
	FloatKernel
	// Sized returns the kernel for products of n columns: this one itself where none
	// is better.
	Sized(n int) FloatKernel
}

// Placer is a FloatKernel for which the columns of X need not lie 64 elements apart in a
// panel, nor apart at all: those that the taps of a convolution read overlap.
type Placer interface {
	FloatKernel
	// Placed returns a kernel with these bounds, of at most MaxBlock columns a
	// block, for panels in which the columns of X that column k of W meets begin
	// at element at[k], below MaxPlace; nil where panels [K][64] are faster.
	Placed(bounds, at []int) FloatKernel
}

// MaxBlock is the most columns of a block of a Placer, MaxPlace what the elements
// of its panels at which columns begin are below.
const (
	MaxBlock = 256
	MaxPlace = 1 << 14
)

// Narrow is a FloatKernel that also multiplies with its rows as the columns of tiles, so that few columns of X leave
// no lanes idle.
type Narrow interface {
	FloatKernel
	// Narrow computes Panel rows, or those that there are, from m0 on, a multiple of Panel, of the product of blocks b0 to b1-1
	// of W with n columns of X, and adds it to what y holds if b0 is not 0. x begins with the first row of block b0, and rows
	// are ldx elements apart. Y is stored as [n][Panel]; what lies behind the rows does not matter.
	Narrow(y, x []float32, ldx, n, m0, b0, b1 int)
}

// Linear is a FloatKernel that also multiplies from the right, so that operands whose
// K is contiguous need no transposition.
type Linear interface {
	FloatKernel
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

// IntegerKernel multiplies a weight of integers by u8, with i32 sums.
type IntegerKernel interface {
	Kernel
	// Sums holds the sum of each row of W, by which a zero point shifts the
	// products.
	Sums() []int32
	// Groups is the number of groups of four rows of a panel, ceil(K/4) or more; what
	// lies behind row K is read and does not matter.
	Groups() int
	// Panel computes rows r0 to r1 of C = W X for a panel of 64 columns of X, of which
	// the first cols matter:
	//
	//	c[(r-r0)*64 + j] = sum over k of W[r,k] * x[k/4*256 + 4*j + k%4]
	//
	// x holds Groups()*256 elements, c room for the rows.
	Panel(c []int32, x []uint8, cols, r0, r1 int)
}

// PlaneKernel is a IntegerKernel of a convolution that can take X from planes of four
// channels, where what a tap reads needs no panel.
type PlaneKernel interface {
	IntegerKernel
	// Planes prepares the weight, whose K is so many taps of each channel, for Columns, and says how many channels
	// a step of them is; 0 where panels are to be used.
	Planes(taps int) (columns PlaneColumns, step int)
}

// PlaneColumns computes rows r0 to r1, multiples of 16 or the number of all rows, of C = W X for cols columns, at
// most 64. Step s is some channels of a tap: those of the first tap, then those of the
// next. What they meet in column j begins at x[at[s]+4*j], four channels side by side
// and the next four pitch elements on; 64 columns are read.
type PlaneColumns func(c []int32, x []uint8, at []int32, pitch, cols, r0, r1 int)

// TokenKernel is a IntegerKernel that can multiply activations whose features are
// contiguous without rearranging them.
type TokenKernel interface {
	IntegerKernel
	// Tokens computes rows r0 to r1 of W, at most 64 from a multiple of 64 on, for
	// tokens that are ldx apart:
	//
	//	c[t*64 + r-r0] = sum over k of W[r,k] * x[t*ldx + k]
	//
	// x is read up to the next multiple of 4 behind K in each token.
	Tokens(c []int32, x []uint8, ldx, tokens, r0, r1 int)
	// Direct reports whether that is faster for so many tokens than to make a panel of
	// them for Panel.
	Direct(tokens int) bool
}
