package backend

import (
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Format8 is a storage format of i8 weights. What it packs is f32 of whole numbers.
type Format8 interface {
	choose.Format
	// Check reports whether a store, which may come from a hostile file, is well
	// formed. The other methods may rely on it.
	Check(s *ir.Store) error
	// Unpack returns the matrix i8 [M,K].
	Unpack(s *ir.Store) (*tensor.Tensor, error)
	// Kernel prepares a store that Check accepts.
	Kernel(s *ir.Store) (Kernel8, error)
}

// Kernel8 multiplies a prepared i8 weight W[M,K] on the CPU by u8 activations, with
// i32 sums. It may be called concurrently.
type Kernel8 interface {
	// Name says format, dtypes and instruction set.
	Name() string
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

// PlaneKernel8 is a Kernel8 of a convolution that can take X from planes of four
// channels, where what a tap reads needs no panel.
type PlaneKernel8 interface {
	Kernel8
	// Planes prepares the weight, whose K is so many taps of each channel, for Columns;
	// false where panels are to be used.
	Planes(taps int) (Columns8, bool)
}

// Columns8 computes rows r0 to r1, multiples of 16, of C = W X for cols columns, at
// most 64. Step s is 64 channels of a tap: those of the first tap, then those of the
// next. What they meet in column j begins at x[at[s]+4*j], four channels side by side
// and the next four pitch elements on; 64 columns are read.
type Columns8 func(c []int32, x []uint8, at []int32, pitch, cols, r0, r1 int)

// TokenKernel8 is a Kernel8 that can multiply activations whose features are
// contiguous without rearranging them.
type TokenKernel8 interface {
	Kernel8
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
