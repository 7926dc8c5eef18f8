package format

import (
	"spc/backend"
	"spc/backend/machine"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// gpuChoice is a format as choosing sees it for a GPU: its costs are those of the kernel that is
// predicted to be the fastest. Efficiencies are shares of the rate of tensor cores for 16-bit
// floats.
type gpuChoice struct {
	*backend.Format
	float tensor.DType // of X
	rates backend.GPURates
}

// GPUChoices returns the formats as choosing sees them for a GPU whose floats are of a type: those of one form.
func GPUChoices(rates backend.GPURates, float tensor.DType) []choose.Format {
	out := make([]choose.Format, len(single))
	for i, f := range single {
		out[i] = gpuChoice{f, float, rates}
	}
	return out
}

// Costs lists the configurations that the format offers.
func (g gpuChoice) Costs(w *choose.Matrix, n int) []choose.Cost {
	x := backend.GPUInput(w.Type, g.float)
	var out []choose.Cost
	for _, c := range g.Format.Costs(machine.Default, w, n) {
		k := g.rates.Pick(g.GPUKernels(w, c.Config, x), n, 1, x.Size())
		if k == nil {
			continue
		}
		work := 2 * float64(k.Products) * float64(n)
		if work == 0 { // a weight of zeros
			work = 2 * float64(n)
		}
		out = append(out, choose.Cost{
			Config: c.Config, Kernel: k.Name, Work: work, Bytes: k.Bytes,
			Efficiency: work / (g.rates.Tensor * g.rates.Time(k, n, 1, x.Size())), Bound: g.rates.Bound(k, n, 1, x.Size()),
		})
	}
	return out
}
