package format

import (
	"spc/backend"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// gpuChoice is a format as choosing sees it for a GPU.
type gpuChoice struct {
	backend.GPUFormat
	rates backend.GPURates
	dt    tensor.DType
}

// GPUChoices returns the formats that have kernels for GPUs as choosing sees them for one
// whose floats are of type dt: their costs are those of the kernels that are predicted to be
// the fastest. Efficiencies are shares of the rate of tensor cores.
func GPUChoices(rates backend.GPURates, dt tensor.DType) []choose.Format {
	var out []choose.Format
	for _, f := range Table {
		if g, ok := f.(backend.GPUFormat); ok {
			out = append(out, gpuChoice{g, rates, dt})
		}
	}
	return out
}

// Costs lists the configurations that the format offers.
func (g gpuChoice) Costs(w *choose.Matrix, n int) []choose.Cost {
	var out []choose.Cost
	for _, c := range g.GPUFormat.Costs(w, n) {
		k := g.rates.Pick(g.GPUKernels(w, c.Config, g.dt), n, 1, g.dt.Size())
		if k == nil {
			continue
		}
		work := 2 * float64(k.Products) * float64(n)
		if work == 0 { // a weight of zeros
			work = 2 * float64(n)
		}
		out = append(out, choose.Cost{
			Config: c.Config, Kernel: k.Name, Work: work, Bytes: k.Bytes,
			Efficiency: work / (g.rates.Tensor * g.rates.Time(k, n, 1, g.dt.Size())),
		})
	}
	return out
}
