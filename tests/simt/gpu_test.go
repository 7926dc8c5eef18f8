package simt

import (
	"testing"

	"spc/backend/cuda"
	"spc/tests/gpu/suite"
)

// all are the sources of all kernels.
var all = []string{"backend/format", "backend/cuda/kernels"}

// In no order of the threads do kernels touch memory that is not theirs, or give something
// else than the product.
func TestKernelsOfFormats(t *testing.T) {
	e := Start(t, "backend/format")
	var drivers []cuda.Driver
	for _, order := range Orders {
		drivers = append(drivers, e.Driver(order, 1))
	}
	suite.Kernels(t, drivers...)
}

func TestPrograms(t *testing.T) { suite.Programs(t, Start(t, all...).Driver(Orders[2], 2)) }
func TestOverlap(t *testing.T)  { suite.Overlap(t, Start(t, all...).Driver(Orders[0], 1)) }
