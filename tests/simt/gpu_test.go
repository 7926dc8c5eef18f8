package simt

import (
	"testing"

	"spc/backend/cuda"
	"spc/ir/tensor"
	"spc/tests/gpu/suite"
)

// all are the sources of all kernels.
var all = []string{"backend/format", "backend/cuda/kernels"}

// orders are GPUs whose threads run in each of the orders, each of an emulator that start starts.
func orders(t *testing.T, start func(testing.TB, ...string) *Emulator, sources ...string) (drivers []cuda.Driver) {
	for _, order := range Orders {
		drivers = append(drivers, start(t, sources...).Driver(order, 1))
	}
	return drivers
}

// In no order of the threads do kernels touch memory that is not theirs, or give something
// else than the product.
func TestKernelsOfFormats(t *testing.T)  { suite.Kernels(t, orders(t, Start, all...)...) }
func TestStagedKernels(t *testing.T)     { suite.Staged(t, orders(t, Start, all...)...) }
func TestKernelsOfFormats8(t *testing.T) { suite.Kernels8(t, orders(t, Start, all...)...) }

// Four warps multiply together as the PTX ISA says that they do.
func TestWarpgroups(t *testing.T) {
	sources := []string{"backend/format/dense", "backend/format/nm", "backend/format/block", "backend/cuda/kernels/elementwise.cu"}
	suite.Warpgroups(t, orders(t, StartWarpgroups, sources...)...)
}

// In bf16 the code is that of f16, and tests/gpu runs the same programs.
func TestPrograms(t *testing.T) {
	d := Start(t, all...).Driver(Orders[2], 2)
	for _, dt := range []tensor.DType{tensor.F32, tensor.F16} {
		t.Run(dt.String(), func(t *testing.T) { suite.Programs(t, d, dt) })
	}
}

func TestOverlap(t *testing.T) { suite.Overlap(t, Start(t, all...).Driver(Orders[0], 1)) }

func TestChains(t *testing.T) { suite.Chains(t, Start(t, all...).Driver(Orders[1], 1)) }

func TestPairs(t *testing.T) { suite.Pairs(t, Start(t, all...).Driver(Orders[0], 1)) }

func TestReductions(t *testing.T) { suite.Reductions(t, Start(t, all...).Driver(Orders[0], 1)) }

func TestIndices(t *testing.T) { suite.Indices(t, Start(t, all...).Driver(Orders[1], 1)) }

func TestLowering(t *testing.T) { suite.Lowering(t, Start(t, all...).Driver(Orders[1], 1)) }

func TestServed(t *testing.T) { suite.Served(t, Start(t, all...).Driver(Orders[0], 1)) }
