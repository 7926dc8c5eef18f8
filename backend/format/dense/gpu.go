package dense

import (
	"fmt"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

type gpu struct{}

// GPU lists the kernels of dense.cu: on the cores for floats their part is the
// values, and on tensor cores tiles of them as lanes hold them. Codes of a grid become floats.
func (gpu) GPU(s *ir.Store, x tensor.DType) ([]backend.GPUKernel, error) {
	f32, err := Storage{}.Unpack(s)
	if err != nil {
		return nil, err
	}
	w := f32.To(x)
	out := kernels(w.Dim(0), w.Dim(1), x)
	if x == tensor.F32 {
		return backend.WithParts(out, w), nil
	}
	registers := sparse.Fragments(w)
	return backend.WithParts(out, tensor.From(registers, len(registers))), nil
}

// GPUKernels lists them without their parts.
func (gpu) GPUKernels(w *choose.Matrix, _ string, x tensor.DType) []backend.GPUKernel {
	return kernels(w.Dim(0), w.Dim(1), x)
}

func kernels(m, k int, dt tensor.DType) []backend.GPUKernel {
	if dt == tensor.F32 {
		return []backend.GPUKernel{GEMM(dt, m, k, [3]int{k, 1, 0})}
	}
	var out []backend.GPUKernel
	for _, t := range backend.GPUTiles {
		kernel := t.Kernel(fmt.Sprintf("%v_dense_%v_mma", dt, t), m, k, m*k*dt.Size(), sparse.TilesAcross(k))
		out = append(out, t.Divided(t.Shared(kernel, t.Rows()*t.Depth*dt.Size()), sparse.Ceil(k, t.Depth))...)
	}
	return out
}

// GEMM is the kernel for matrices W[M,K] of type dt as they lie, with their strides by row, by
// column and from one matrix of a batch to the next. W is the kernel's only part, or, where it
// is no constant, comes before the other parameters.
func GEMM(dt tensor.DType, m, k int, strides [3]int) backend.GPUKernel {
	t := backend.GPUTile{MW: 4, NW: 1, KW: 1, R: 1, C: 8, Depth: 32, Stages: 3}
	if dt != tensor.F32 {
		return t.Kernel(fmt.Sprintf("%v_dense_strided_%v_mma", dt, t), m, k, m*k*dt.Size(), strides[:]...).Holding(t.Memory())
	}
	g := t.Kernel("f32_dense_64x64x16_simt", m, k, m*k*dt.Size(), strides[:]...)
	launch := g.Launch
	g.Unit, g.Launch = backend.Cores, func(n, batch int) backend.Geometry {
		l := launch(n, batch)
		l.Block[0] = 256
		return l
	}
	return g
}
