package cuda

import (
	"fmt"
	"testing"

	"spc/backend"
	"spc/backend/format/dense"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// A matrix by columns, or its transposed, has its elements where strides say, and is found where
// there is one.
func TestInColumns(t *testing.T) {
	is := func(rows, cols, row, column, distance int, transposed bool) bool {
		long := rows
		if transposed {
			long = cols
		}
		for r := range rows {
			for c := range cols {
				at := r + c*distance
				if transposed {
					at = c + r*distance
				}
				if at != r*row+c*column {
					return false
				}
			}
		}
		return distance >= long
	}
	seen := map[string]int{}
	for i := range 4 * 4 * 6 * 6 {
		rows, cols, row, column := 1+i%4, 1+i/4%4, 1+i/16%6, 1+i/96
		distance, transposed, ok := InColumns(rows, cols, row, column)
		seen[fmt.Sprint(ok, ok && transposed)]++
		if ok && !is(rows, cols, row, column, distance, transposed) {
			t.Errorf("%d x %d by %d and %d: not %d, %t", rows, cols, row, column, distance, transposed)
		}
		for d := range 8 {
			for _, way := range []bool{false, true} {
				if !ok && is(rows, cols, row, column, d, way) {
					t.Errorf("%d x %d by %d and %d: %d, %t is not found", rows, cols, row, column, d, way)
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("%v", seen)
	}
}

// A library is predicted to win wide products in 16 bits, and never takes less than its peak or
// the weight's bytes need.
func TestLibraryTime(t *testing.T) {
	for _, arch := range []string{"sm_80", "sm_90"} {
		rates := backend.RatesOf(arch)
		for _, dt := range []tensor.DType{tensor.F32, tensor.F16} {
			peak := map[tensor.DType]float64{tensor.F32: rates.Cores, tensor.F16: rates.Tensor * rates.Library}[dt]
			for _, s := range [][3]int{{1, 1, 1}, {64, 576, 3136}, {1000, 2048, 1}, {4096, 4096, 128}, {4096, 4096, 4096}} {
				m, k, n := s[0], s[1], s[2]
				have := libraryTime(rates, dt, m, k, n, 1, false)
				least := rates.Launch + max(2*float64(m*k)*float64(n)/peak, float64(m*k*dt.Size())/rates.Memory)
				if have < least*(1-1e-9) {
					t.Errorf("%s %v %v: %v s, but it needs %v", arch, dt, s, have, least)
				}
				kernels := dense.New().GPUKernels(choose.NewMatrix(tensor.New(tensor.F32, m, k), ""), "", dt)
				own := rates.Time(rates.Pick(kernels, n, 1, dt.Size()), n, 1, dt.Size())
				if dt == tensor.F16 && n == 4096 && have >= own {
					t.Errorf("%s: %v s, own kernels %v", arch, have, own)
				}
			}
		}
	}
}
