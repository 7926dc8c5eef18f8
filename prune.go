package spc

import (
	"context"
	"io"

	"spc/internal/atomicfile"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
)

// Pruned is a model that was pruned, and perhaps quantised, and is still an ONNX model.
type Pruned struct {
	graph  *ir.Graph
	report Report
	masks  map[string]*tensor.Tensor
}

// Prune prunes an ONNX model, and quantises it, as Compile would with the same options;
// Format, OneFormat and Open are not used. Batch normalisation is folded into the weights.
func Prune(ctx context.Context, o CompileOptions) (*Pruned, error) {
	o.Format, o.OneFormat, o.Open = "", false, nil
	m, err := compile(ctx, o, passes.With(passes.Unportable))
	if err != nil {
		return nil, err
	}
	return &Pruned{m.graph, m.report, m.masks}, nil
}

// Explain says what pruning did.
func (p *Pruned) Explain() *Report { return &p.report }

// Masks is that of Model.
func (p *Pruned) Masks() map[string]*tensor.Tensor { return p.masks }

// Write writes the content of an ONNX file. Quantised products stand between
// QuantizeLinear and DequantizeLinear nodes.
func (p *Pruned) Write(w io.Writer) error { return onnx.Export(w, p.graph, "spc", Version) }

// Save writes the model as an ONNX file: whole, or not at all.
func (p *Pruned) Save(path string) error { return atomicfile.Write(path, p.Write) }
