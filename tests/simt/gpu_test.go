package simt

import (
	"testing"

	"spc/backend/cuda"
	"spc/ir/tensor"
	"spc/tests/gpu/suite"
)

// all are the sources of all kernels.
var all = []string{"backend/format", "backend/cuda/kernels"}

// orders are GPUs whose threads run in each of the orders.
func orders(t *testing.T) (drivers []cuda.Driver) {
	e := Start(t, all...) // which the other tests build, too
	for _, order := range Orders {
		drivers = append(drivers, e.Driver(order, 1))
	}
	return drivers
}

// In no order of the threads do kernels touch memory that is not theirs, or give something
// else than the product.
func TestKernelsOfFormats(t *testing.T)  { suite.Kernels(t, orders(t)...) }
func TestStagedKernels(t *testing.T)     { suite.Staged(t, orders(t)...) }
func TestKernelsOfFormats8(t *testing.T) { suite.Kernels8(t, orders(t)...) }

// Four warps multiply together as the PTX ISA says that they do.
func TestWarpgroups(t *testing.T) {
	e := StartWarpgroups(t, "backend/format/dense", "backend/format/nm", "backend/format/block", "backend/cuda/kernels")
	var drivers []cuda.Driver
	for _, order := range Orders {
		drivers = append(drivers, e.Driver(order, 1))
	}
	suite.Warpgroups(t, drivers...)
}

func TestPrograms(t *testing.T) {
	d := Start(t, all...).Driver(Orders[2], 2)
	for _, dt := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		t.Run(dt.String(), func(t *testing.T) { suite.Programs(t, d, dt) })
	}
}

func TestOverlap(t *testing.T) { suite.Overlap(t, Start(t, all...).Driver(Orders[0], 1)) }

func TestChains(t *testing.T) { suite.Chains(t, Start(t, all...).Driver(Orders[1], 1)) }

func TestIndices(t *testing.T) { suite.Indices(t, Start(t, all...).Driver(Orders[1], 1)) }
