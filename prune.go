package spc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"spc/internal/atomicfile"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/unfold"
)

// Pruned is a model that was pruned, and perhaps quantised, and is still an ONNX model.
type Pruned struct {
	patch  *onnx.Patch // nil where the graph is written anew
	graph  *ir.Graph
	opset  int
	report Report
	masks  map[string]*tensor.Tensor
	data   func() error // closes the files that weights lie in; may be nil
}

// Written tells how Prune writes a model.
type Written struct {
	// Anew says why nodes are written anew, in the form that they have today; empty where the file stays as it is but for weights, and for what is removed.
	Anew string `json:"anew,omitempty"`
	// Notes tell what in the file is not as it was, or as it was to be.
	Notes []string `json:"notes,omitempty"`
}

// kept is what Prune keeps of a model on its way through the passes.
type kept struct {
	unfold.Graphs
	weights *weights
	opset   int
}

// Prune prunes an ONNX model, and quantises it, as Compile would with the same options;
// Format, OneFormat, Size and Open are not used. Its file stays as it is but for the weights, and biases, that pruning changes: with its operator
// sets, names, order, metadata, and batch normalisation, into whose parameters what was folded is put back. Channels, heads and branches that go
// take what they have of it with them. Where o.Opset asks for it,
// or the file has no place for what has changed (Report.Written), nodes are written anew, with batch normalisation folded into the weights.
func Prune(ctx context.Context, o CompileOptions) (*Pruned, error) {
	o.Format, o.OneFormat, o.Size, o.Open = "", false, 0, nil
	k := &kept{opset: o.Opset}
	m, err := compile(ctx, o, k)
	if err != nil {
		return nil, err
	}
	var p *Pruned
	err = ir.Guard(func() (err error) {
		p, err = pruned(ctx, m, &o, k)
		return err
	})
	if o.Spool != "" && err == nil {
		p.data = k.weights.close
		return p, nil
	}
	if err = errors.Join(err, k.weights.close()); err != nil {
		return nil, err
	}
	return p, nil
}

// pruned is what Prune returns, of which nothing lies in external data unless there is a spool.
func pruned(ctx context.Context, m *Model, o *CompileOptions, k *kept) (*Pruned, error) {
	p := &Pruned{graph: m.graph, opset: max(0, o.Opset), report: m.report, masks: m.masks}
	p.report.Written = &Written{}
	if o.Opset != 0 {
		k.weights.keep(p.graph)
		return p, nil
	}
	var notes []string
	var err error
	p.patch, notes, err = k.patch(ctx, o)
	switch {
	case errors.Is(err, ErrUnsupported):
		p.report.Written.Anew = err.Error()
		k.weights.keep(p.graph)
	case err != nil:
		return nil, err
	default:
		p.graph, p.report.Written.Notes = nil, notes
	}
	return p, nil
}

// seen keeps the graph after a pass.
func (k *kept) seen(pass string, g *ir.Graph) error {
	switch {
	case k == nil:
	case k.opset == LeastOpset:
	case pass == "biases" && k.opset != 0:
		return onnx.CheckOpset(g, k.opset)
	case pass == "biases":
		k.Before = g.Clone()
	case pass == "prune" && k.opset == 0:
		k.After = g.Clone()
	}
	return nil
}

// patch returns the model's file with what has changed, and what is worth saying of that.
func (k *kept) patch(ctx context.Context, o *CompileOptions) (*onnx.Patch, []string, error) {
	refuse := func(text string) (*onnx.Patch, []string, error) { return nil, nil, &refusal{text} }
	switch {
	case o.Quantize.Type != tensor.Undefined:
		return refuse("it is quantised")
	case o.Debug.StopAfter != "":
		return refuse("passes are left out")
	}
	k.Holds, k.Packing = k.weights.info.Holds, k.weights.info.Packing
	for _, s := range k.weights.info.Opsets {
		if s.Domain == "" {
			k.Opset = s.Version
		}
	}
	r, err := unfold.Find(k.Graphs)
	if err != nil {
		return nil, nil, err
	}
	e, err := k.edits(ctx, o, r)
	if err != nil {
		return nil, nil, err
	}
	k.Graphs = unfold.Graphs{}
	for _, t := range e.Tensors {
		k.weights.made(t)
	}
	for _, i := range e.Initializers {
		k.weights.made(i.Tensor)
	}
	p, err := onnx.NewPatch(o.Model, o.Bytes, k.weights.info, e)
	return p, r.Notes, err
}

// edits are those of the file. Where more than elements changes, the passes must make of the file, as it is then, what pruning has made.
func (k *kept) edits(ctx context.Context, o *CompileOptions, r *unfold.Result) (e onnx.Edits, err error) {
	e = onnx.Edits{Tensors: r.Tensors, Inputs: map[string]onnx.Inputs{}, Attributes: map[string]onnx.Attributes{}, Aliases: r.Aliases}
	for _, c := range slices.Concat(r.Biases, r.Constants) {
		if e.Inputs[c.Output].Names == nil {
			e.Inputs[c.Output] = onnx.Inputs{Kind: c.Kind, Names: map[int]string{}}
		}
		e.Inputs[c.Output].Names[c.Index] = c.Name
		e.Initializers = append(e.Initializers, onnx.Initializer{Name: c.Name, Tensor: c.Tensor})
		if c.Kind == "Split" && k.Opset >= 18 { // which has the one or the other
			e.Attributes[c.Output] = onnx.Attributes{Kind: c.Kind, Values: map[string]any{"num_outputs": nil}}
		}
	}
	for _, a := range r.Attrs {
		if e.Attributes[a.Output].Values == nil {
			e.Attributes[a.Output] = onnx.Attributes{Kind: a.Kind, Values: map[string]any{}}
		}
		e.Attributes[a.Output].Values[a.Name] = a.Value
	}
	if !r.Changes() {
		return e, nil
	}
	g := k.File.Clone()
	if e.Shapes, err = r.Apply(g); err != nil {
		return e, &refusal{err.Error()}
	}
	left := slices.Concat(passes.With(passes.Unportable), o.Debug.Disable)
	if err := passes.Run(ctx, &passes.Context{Portable: true, Unpruned: true}, g, passes.Options{Disable: left, StopAfter: "biases"}); err != nil {
		if ctx.Err() != nil {
			return e, ctx.Err()
		}
		return e, &refusal{err.Error()}
	}
	return e, unfold.Same(g, k.After)
}

// refusal is an error that wraps ErrUnsupported.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return ErrUnsupported }

// Close gives back what CompileOptions.Spool asks for. The model must not be written afterwards.
func (p *Pruned) Close() error {
	if p.data == nil {
		return nil
	}
	data := p.data
	p.data = nil
	return data()
}

// Explain says what pruning did.
func (p *Pruned) Explain() *Report { return &p.report }

// Masks is that of Model.
func (p *Pruned) Masks() map[string]*tensor.Tensor { return p.masks }

// Write writes the content of an ONNX file, with what the model has in external data. Quantised products stand between
// QuantizeLinear and DequantizeLinear nodes. The files of the model that was pruned must not have changed.
func (p *Pruned) Write(w io.Writer) error {
	if p.patch != nil {
		return p.patch.Write(w)
	}
	return onnx.ExportAt(w, p.graph, "spc", Version, p.opset)
}

// File is one of those that a model is written in.
type File struct {
	Path  string
	Write func(w io.Writer) error
}

// Files lists the files that Save writes, the ONNX file last: external data of the model stay such.
func (p *Pruned) Files(path string) ([]File, error) {
	if p.patch == nil {
		return []File{{path, p.Write}}, nil
	}
	list, err := p.patch.Files(path)
	var out []File
	for _, f := range list {
		out = append(out, File(f))
	}
	return out, err
}

// Save writes the model as an ONNX file, with its external data in others: whole, or not at all. In the folder of the model that was
// pruned external data that do not change are used by both; where there is a file of their name already, others have path's name before theirs.
func (p *Pruned) Save(path string) error {
	files, err := p.Files(path)
	if err != nil {
		return err
	}
	var staged []*atomicfile.Staged
	for i, f := range files {
		if i < len(files)-1 { // external data may lie in folders of their own
			if err := os.MkdirAll(filepath.Dir(f.Path), 0o777); err != nil {
				return err
			}
		}
		s, err := atomicfile.Stage(f.Path, f.Write)
		if err != nil {
			return err
		}
		defer s.Discard()
		staged = append(staged, s)
	}
	for _, s := range staged {
		if err := s.Commit(); err != nil {
			return err
		}
	}
	return nil
}
