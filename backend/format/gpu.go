package format

import (
	"spc/backend"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// gpuChoice is a format as choosing sees it for a GPU: its costs are those of the kernel that is
// predicted to be the fastest. Efficiencies are shares of the rate of tensor cores for 16-bit
// floats.
type gpuChoice struct {
	choose.Format
	kernels func(w *choose.Matrix, config string) []backend.GPUKernel
	size    int // of an element of X
	rates   backend.GPURates
}

// GPUChoices returns the formats that have kernels for GPUs as choosing sees them for one
// whose floats are of type dt.
func GPUChoices(rates backend.GPURates, dt tensor.DType) []choose.Format {
	var out []choose.Format
	for _, f := range Table {
		if g, ok := f.(backend.GPUFormat); ok {
			kernels := func(w *choose.Matrix, config string) []backend.GPUKernel { return g.GPUKernels(w, config, dt) }
			out = append(out, gpuChoice{g, kernels, dt.Size(), rates})
		}
	}
	return out
}

// GPUChoices8 returns those of i8 weights.
func GPUChoices8(rates backend.GPURates) []choose.Format {
	var out []choose.Format
	for _, f := range Table8 {
		if g, ok := f.(backend.GPUFormat8); ok {
			out = append(out, gpuChoice{g, g.GPUKernels, tensor.U8.Size(), rates})
		}
	}
	return out
}

// Costs lists the configurations that the format offers.
func (g gpuChoice) Costs(w *choose.Matrix, n int) []choose.Cost {
	var out []choose.Cost
	for _, c := range g.Format.Costs(w, n) {
		k := g.rates.Pick(g.kernels(w, c.Config), n, 1, g.size)
		if k == nil {
			continue
		}
		work := 2 * float64(k.Products) * float64(n)
		if work == 0 { // a weight of zeros
			work = 2 * float64(n)
		}
		out = append(out, choose.Cost{
			Config: c.Config, Kernel: k.Name, Work: work, Bytes: k.Bytes,
			Efficiency: work / (g.rates.Tensor * g.rates.Time(k, n, 1, g.size)), Bound: g.rates.Bound(k, n, 1, g.size),
		})
	}
	return out
}
