//go:build cuda

// The tests of the CUDA back end on the first GPU of the machine, through the binding of
// the driver.
package gpu

import (
	"errors"
	"testing"

	"spc/backend/cuda"
	"spc/backend/cuda/driver"
	"spc/ir"
	"spc/ir/tensor"
	"spc/tests/gpu/suite"
)

func open(t *testing.T) cuda.Driver {
	t.Helper()
	d, err := driver.Open(0)
	if errors.Is(err, ir.ErrNoDevice) {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestKernelsOfFormats(t *testing.T)  { suite.Kernels(t, open(t)) }
func TestWarpgroups(t *testing.T)        { suite.Warpgroups(t, open(t)) }
func TestStagedKernels(t *testing.T)     { suite.Staged(t, open(t)) }
func TestKernelsOfFormats8(t *testing.T) { suite.Kernels8(t, open(t)) }
func TestQuantisedModels(t *testing.T)   { suite.Quantised(t, open(t)) }
func TestLibrary(t *testing.T)           { suite.Library(t, open(t)) }
func TestSparseLibrary(t *testing.T)     { suite.SparseLibrary(t, open(t)) }
func TestOverlap(t *testing.T)           { suite.Overlap(t, open(t)) }
func TestChains(t *testing.T)            { suite.Chains(t, open(t)) }
func TestFunctions(t *testing.T)         { suite.Functions(t, open(t)) }
func TestReductions(t *testing.T)        { suite.Reductions(t, open(t)) }
func TestIndices(t *testing.T)           { suite.Indices(t, open(t)) }
func TestLowering(t *testing.T)          { suite.Lowering(t, open(t)) }
func TestPairs(t *testing.T)             { suite.Pairs(t, open(t)) }
func TestOfficialSuite(t *testing.T)     { suite.Official(t, open(t)) }
func TestServed(t *testing.T)            { suite.Served(t, open(t)) }

func TestTrainedModels(t *testing.T) { suite.Models(t, open(t)) }

func TestPrograms(t *testing.T) {
	d := open(t)
	for _, dt := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		t.Run(dt.String(), func(t *testing.T) { suite.Programs(t, d, dt) })
	}
}
