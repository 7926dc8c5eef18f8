package cuda

import (
	"math"

	"spc/backend"
)

// Rates of a GPU by which kernels are compared: those of an H100 SXM's data sheet, of which
// kernels reach shares that are about the same. Only their ratios count.
const (
	coresRate    = 67e12  // floating-point operations a second, f32
	tensorRate   = 600e12 // by mma.sync, 16-bit floats
	memoryRate   = 3.3e12 // bytes a second
	cacheRate    = 6e12   // of the L2 cache
	processors   = 132
	blocksToFill = 2 // on each of them
)

// predicted is about how long a kernel takes for n columns in each of some matrices of
// elements of so many bytes: what its unit, the cache or the memory needs, whichever is most,
// on the multiprocessors that have blocks.
func predicted(k *backend.GPUKernel, n, batch, size int) float64 {
	g := k.Launch(n, batch)
	columns := float64(g.Grid[0] * k.Columns * batch)
	bytes := 0
	for _, p := range k.Parts {
		bytes += len(p.Bytes())
	}
	rate := map[backend.GPUUnit]float64{backend.Cores: coresRate, backend.TensorCores: tensorRate, backend.SparseTensorCores: 2 * tensorRate}[k.Unit]
	compute := 2 * float64(k.Products) * columns / rate
	cache := (float64(k.Loads)*columns*float64(size) + float64(bytes*g.Grid[0]*batch)) / cacheRate
	share := min(1, float64(g.Grid[0]*g.Grid[1]*g.Grid[2])/(processors*blocksToFill))
	return max(max(compute, cache)/share, float64(bytes)/memoryRate)
}

// Pick chooses the kernel that is predicted to be the fastest.
func Pick(kernels []backend.GPUKernel, n, batch, size int) *backend.GPUKernel {
	best, least := &kernels[0], math.Inf(1)
	for i := range kernels {
		if t := predicted(&kernels[i], n, batch, size); t < least {
			best, least = &kernels[i], t
		}
	}
	return best
}
