package backend

import (
	"spc/ir"
	"spc/passes/choose"
)

// GPUFormat8 is a Format8 that has kernels for GPUs. They compute as those of GPUFormat do, but
// X is u8, sums are i32, after the patches comes what X is outside of images, and the parameters of the epilogue
// are those of SPC_EPILOGUE8 in spc/product8.cuh.
type GPUFormat8 interface {
	Format8
	// GPU prepares a store that Check accepts, and lists its kernels.
	GPU(s *ir.Store) ([]GPUKernel, error)
	// GPUKernels lists those that GPU would list for w, f32 of whole numbers, in a
	// configuration that Costs offers, without parts.
	GPUKernels(w *choose.Matrix, config string) []GPUKernel
}

// GPUTiles8 are those of kernels for integers, SPC_TILES8 of spc/product8.cuh: for many and for fewer
// rows and columns, and for few.
var GPUTiles8 = []GPUTile{
	{MW: 2, NW: 2, KW: 1, R: 4, C: 8, Depth: 64, Stages: 2},
	{MW: 2, NW: 2, KW: 1, R: 2, C: 4, Depth: 64, Stages: 2},
	{MW: 1, NW: 1, KW: 4, R: 2, C: 4, Depth: 256, Stages: 2},
	{MW: 1, NW: 1, KW: 4, R: 1, C: 1, Depth: 256, Stages: 2},
}

// GPURows8 is a multiple of the rows of each, which weights are made up to.
const GPURows8 = 128
