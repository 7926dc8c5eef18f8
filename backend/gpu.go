package backend

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// GPUFormat is a Format that has kernels for GPUs.
type GPUFormat interface {
	Format
	// GPU prepares a store that Check accepts for the kernels that multiply it by X of
	// type dt, f32, f16 or bf16, and lists them. Values are rounded to dt.
	GPU(s *ir.Store, dt tensor.DType) ([]GPUKernel, error)
}

// GPUKernel is a kernel in CUDA C++ that computes Y = W X for a prepared weight W[M,K] and
// a batch of matrices X[K,N], and finishes each Y[M,N] by an epilogue. All of them take the
// same parameters: the parts; pointers to X and Y; M, K, N; the strides in elements of X by
// row, by column and by matrix, and those of Y, which are also the residual's; Extra; and
// those of the epilogue. Sizes are 32-bit integers, strides those of 64 bits.
type GPUKernel struct {
	Name    string           // format, dtype, tile and instruction set
	Parts   []*tensor.Tensor // what the device holds of the weight
	Columns int              // of a tile
	Extra   []int
	// Launch returns the shape of a launch for N columns and so many matrices.
	Launch func(n, batch int) Geometry
}

// Geometry is the shape of a launch.
type Geometry struct {
	Grid, Block [3]int
	Shared      int // bytes of dynamic shared memory
}

// gpuActivations are the activations of epilogues, numbered as in spc/device.cuh.
var gpuActivations = []string{"", "Clip", "LeakyRelu", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Swish", "Gelu", "GeluTanh"}

// GPUActivation returns the number by which kernels know the activation of an epilogue,
// and its two parameters.
func GPUActivation(e *op.Epilogue) (number int, a, b float32, err error) {
	name, args := e.Act, append(slices.Clone(e.ActArgs), 0, 0)
	switch {
	case name == "Relu":
		name, args = "Clip", []float32{0, float32(math.Inf(1))}
	case name == "Gelu" && args[0] != 0:
		name = "GeluTanh"
	}
	if number = slices.Index(gpuActivations, name); number < 0 {
		return 0, 0, 0, fmt.Errorf("no GPU kernel applies the activation %s: %w", e.Act, ir.ErrUnsupported)
	}
	return number, args[0], args[1], nil
}

// Cell is a parameter of a kernel, an int, uint64 or float32, as the driver takes it:
// eight bytes of which it reads as many as the parameter has.
func Cell(v any) (uint64, error) {
	switch v := v.(type) {
	case int:
		return uint64(v), nil
	case uint64:
		return v, nil
	case float32:
		return uint64(math.Float32bits(v)), nil
	}
	return 0, fmt.Errorf("a parameter of type %T: %w", v, ir.ErrInvalid)
}
