package spc

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/cuda"
	"spc/backend/format"
	"spc/backend/ref"
	"spc/internal/reduce"
	"spc/internal/verify"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/fold"
)

// ImportOptions say which ONNX model to import, as those of the same names do for Compile.
type ImportOptions struct {
	Model  string
	Bytes  []byte
	Shapes map[string][]int
	Dims   map[string]int
}

// read imports the model, with further options of how.
func (o *ImportOptions) read(how onnx.Options) (*ir.Graph, *onnx.Info, error) {
	if (o.Model == "") == (o.Bytes == nil) {
		return nil, nil, fmt.Errorf("want either the path or the bytes of a model: %w", ErrInvalid)
	}
	how.Shapes, how.Dims = o.Shapes, o.Dims
	if o.Model != "" {
		return onnx.Import(o.Model, how)
	}
	return onnx.ImportBytes(o.Bytes, "", how)
}

// Original is an ONNX model as it was imported: no pass has changed it, and the reference
// interpreter evaluates it, slowly, and obviously right.
type Original struct {
	graph *ir.Graph
	name  string
}

// Import imports an ONNX model.
func Import(ctx context.Context, o ImportOptions) (*Original, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g, _, err := o.read(onnx.Options{})
	if err != nil {
		return nil, err
	}
	return &Original{g, cmp.Or(o.Model, "the ONNX model")}, nil
}

// Inputs lists the inputs in the model's order.
func (o *Original) Inputs() []Port { return inputs(o.graph) }

// Outputs lists the outputs in the model's order.
func (o *Original) Outputs() []Port { return outputs(o.graph) }

// Interpret evaluates the model on one tensor for each input, by name, and returns the
// outputs by name.
func (o *Original) Interpret(ctx context.Context, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	return interpret(ctx, o.graph, inputs)
}

// Tolerance is the relative l2 error that the outputs of this model and another may have
// by default, and the type in use that is the reason for it.
func (o *Original) Tolerance() Tolerance { return verify.ToleranceOf("", o.graph) }

// interpret evaluates a graph by the reference interpreter.
func interpret(ctx context.Context, g *ir.Graph, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	in := make([]*tensor.Tensor, len(g.Inputs))
	if err := arrange(g, in, inputs); err != nil {
		return nil, err
	}
	out := make(map[string]*tensor.Tensor, len(g.Outputs))
	err := ir.Guard(func() error {
		it := ref.Interpreter{Unpack: unpack}
		outs, err := it.Run(ctx, g, in)
		for i, t := range outs {
			out[g.OutputName(i)] = t.Clone() // which may be an input or a constant
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func unpack(v *ir.Value) (*tensor.Tensor, error) { return format.Unpack(v.Store, v.Type) }

// Altered says how the model's weights differ from those of the ONNX model by intent:
// pruned, quantised, or both; empty where they do not.
func (m *Model) Altered() string {
	switch pruned, quantised := m.report.Prune != nil && m.report.Prune.Asks, m.report.Quant != nil; {
	case pruned && quantised:
		return "pruned and quantised"
	case pruned:
		return "pruned"
	case quantised:
		return "quantised"
	}
	return ""
}

// Tolerance is that of Original, for the model's device.
func (m *Model) Tolerance() Tolerance {
	d := m.options.Device
	if f, ok := d.(*fallback); ok {
		d = f.first
	}
	precision := ""
	if gpu, ok := d.(cuda.Device); ok {
		precision = gpu.Precision.String()
	}
	return verify.ToleranceOf(precision, m.graph)
}

// The kinds of a Reference.
const (
	AsImported  = "imported" // the ONNX model as it was imported
	WithWeights = "weights"  // its graph, with the weights of the compiled model
	OwnGraph    = "graph"    // the graph of the compiled model
)

// Reference is what a compiled model must compute: a graph for the interpreter.
type Reference struct {
	Kind string
	// About says which graph and which weights.
	About string

	model    *Model
	original *Original // nil where there is none
	graph    *ir.Graph
	dense    *ir.Graph // of which only the weights are others, nil where there is none
}

// Reference returns what m must compute if it was compiled from o: o itself or, where m was
// pruned or quantised, the graph of o with the constants of m. Where these do not fit it,
// or o is nil, it is the graph of m.
func (m *Model) Reference(ctx context.Context, o *Original) (r *Reference, err error) {
	err = m.guard(func() error {
		r, err = m.reference(ctx, o)
		return err
	})
	return r, err
}

func (m *Model) reference(ctx context.Context, o *Original) (*Reference, error) {
	r := &Reference{Kind: OwnGraph, model: m, original: o, graph: m.graph}
	altered := m.Altered()
	switch {
	case o == nil:
		r.About = "the graph of the compiled model"
		return r, nil
	case altered == "":
		return m.Unaltered(o), nil
	}
	names := passes.Names()
	prune := slices.Index(names, "prune")
	before := passes.Options{StopAfter: names[prune-1]}
	folded, err := o.passed(ctx, before)
	if err != nil {
		return nil, err
	}
	widened, err := o.widened(ctx, before)
	if err != nil {
		return nil, err
	}
	rest := widened.Clone()
	if err := runPasses(ctx, rest, passes.Options{Disable: slices.Concat(names[1:prune], passes.With(passes.Alters))}); err != nil {
		return nil, err
	}
	fused, err := o.passed(ctx, unaltered())
	if err != nil {
		return nil, err
	}
	why := ""
	for _, try := range []struct {
		dense, fused *ir.Graph
		about        string
	}{
		{folded, fused, "after the passes up to " + before.StopAfter},
		{fused, fused, "after all passes but prune, quantize and choose"},
		{widened, rest, "as it is pruned, after the passes up to " + before.StopAfter},
		{rest, rest, "as it is pruned, after all passes but prune, quantize and choose"},
	} {
		g, err := verify.WithWeights(try.dense, m.graph, try.fused, unpack)
		if err != nil {
			why = err.Error()
			continue
		}
		r.Kind, r.graph, r.dense = WithWeights, g, try.dense
		r.About = fmt.Sprintf("%s %s, with the weights of the %s model", o.name, try.about, altered)
		return r, nil
	}
	r.dense = fused
	r.About = fmt.Sprintf("the graph of the %s model itself, since its weights do not fit that of %s: %s", altered, o.name, why)
	return r, nil
}

// Unaltered returns o as what m must compute, also where m was pruned or quantised.
func (m *Model) Unaltered(o *Original) *Reference {
	return &Reference{Kind: AsImported, About: o.name + " as imported", model: m, original: o, graph: o.graph}
}

// Interpret evaluates the reference as Original.Interpret does.
func (r *Reference) Interpret(ctx context.Context, inputs map[string]*tensor.Tensor) (out map[string]*tensor.Tensor, err error) {
	err = r.model.guard(func() error {
		out, err = interpret(ctx, r.graph, inputs)
		return err
	})
	return out, err
}

// Passed evaluates, with the original's own weights, the graph that the passes made of it
// for the reference: it must compute what the original does. It is nil where there is none.
func (r *Reference) Passed(ctx context.Context, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	if r.dense == nil {
		return nil, nil
	}
	return interpret(ctx, r.dense, inputs)
}

// unaltered are the passes but those that change weights or how they are stored.
func unaltered() passes.Options { return passes.Options{Disable: passes.With(passes.Alters)} }

// passed returns the graph after some passes.
func (o *Original) passed(ctx context.Context, po passes.Options) (*ir.Graph, error) {
	g := o.graph.Clone()
	return g, runPasses(ctx, g, po)
}

// widened returns the graph after passes that leave narrow weights to pruning, which widens them.
func (o *Original) widened(ctx context.Context, before passes.Options) (*ir.Graph, error) {
	g := o.graph.Clone()
	c, err := new(CompileOptions).passContext(nil)
	if err != nil {
		return nil, err
	}
	c.Unpruned = true
	if err := passes.Run(ctx, c, g, before); err != nil {
		return nil, err
	}
	_, err = fold.Constants(g)
	return g, err
}

// runPasses runs the passes of a compilation with default options.
func runPasses(ctx context.Context, g *ir.Graph, po passes.Options) error {
	c, err := new(CompileOptions).passContext(nil)
	if err != nil {
		return err
	}
	return passes.Run(ctx, c, g, po)
}

// Fault is where a model first computes something else than its reference.
type Fault = verify.Fault

// Locate finds the first node, in the order of execution, with an output that differs from
// the reference by more than the tolerance; it is nil where none is found. progress, where
// it is not nil, is called before each step of the search.
func (r *Reference) Locate(ctx context.Context, inputs map[string]*tensor.Tensor, tolerance float64, progress func(steps int)) (f *Fault, err error) {
	err = r.model.guard(func() error {
		f, err = r.locate(ctx, inputs, tolerance, progress)
		return err
	})
	return f, err
}

func (r *Reference) locate(ctx context.Context, inputs map[string]*tensor.Tensor, tolerance float64, progress func(steps int)) (*Fault, error) {
	b := r.bench(tolerance, progress)
	in := make([]*tensor.Tensor, len(r.model.graph.Inputs))
	if err := arrange(r.model.graph, in, inputs); err != nil {
		return nil, err
	}
	f, err := b.OfRun(ctx, r.model.graph, in)
	if err != nil || f != nil || r.original == nil {
		return f, err
	}
	imported := make([]*tensor.Tensor, len(in))
	if err := arrange(r.original.graph, imported, inputs); err != nil {
		return nil, err
	}
	if f, err = b.OfPass(ctx, r.original.graph, imported, func(g *ir.Graph, each func(pass string, g *ir.Graph) error) error {
		return runPasses(ctx, g, passes.Options{Dump: func(_ int, pass string, g *ir.Graph) error { return each(pass, g) }})
	}); err != nil || f != nil {
		return f, err
	}
	own, err := b.Evaluate(ctx, r.model.graph, in)
	if err != nil {
		return nil, err
	}
	twin, err := r.original.passed(ctx, unaltered())
	if err != nil {
		return nil, err
	}
	if r.Kind != AsImported {
		if twin, err = verify.WithWeights(twin, r.model.graph, twin, unpack); err != nil {
			return nil, nil // the weights belong to another graph, which runs as it should
		}
	}
	var refs []*verify.Evaluated
	for _, g := range []*ir.Graph{twin, r.original.graph} {
		e, err := b.Evaluate(ctx, g, imported)
		if err != nil {
			return nil, err
		}
		refs = append(refs, e)
	}
	return b.OfGraph(own, refs...), nil
}

// Case is a small model that, compiled, computes something else than it should.
type Case = verify.Case

// Reduce finds a smallest part of the original with a fault that Locate found, as a case
// that does not need the model any more. It is nil where what is compiled anew has none.
func (r *Reference) Reduce(ctx context.Context, f *Fault, inputs map[string]*tensor.Tensor, tolerance float64, progress func(steps int)) (c *Case, err error) {
	if f == nil {
		return nil, fmt.Errorf("no fault to reduce to: %w", ErrInvalid)
	}
	if r.original == nil {
		return nil, fmt.Errorf("only a model in ONNX can be reduced: %w", ErrInvalid)
	}
	err = r.model.guard(func() error {
		c, err = r.reduce(ctx, f, inputs, tolerance, progress)
		return err
	})
	return c, err
}

func (r *Reference) reduce(ctx context.Context, f *Fault, inputs map[string]*tensor.Tensor, tolerance float64, progress func(steps int)) (*Case, error) {
	expected := r.original.graph
	g := expected
	if f.Stage == verify.InWeights || f.Stage == verify.InRun && r.Kind != AsImported {
		fused, err := r.original.passed(ctx, unaltered())
		if err != nil {
			return nil, err
		}
		if expected, err = r.original.passed(ctx, passes.Options{Disable: passes.With(passes.Unportable | passes.Alters)}); err != nil {
			return nil, err
		}
		if g, err = verify.WithWeights(expected, r.model.graph, fused, unpack); err != nil {
			return nil, fmt.Errorf("the weights of the compiled model do not fit the graph of the original: %w", err)
		}
		if f.Stage != verify.InWeights {
			expected = g
		}
	}
	in := make([]*tensor.Tensor, len(g.Inputs))
	if err := arrange(g, in, inputs); err != nil {
		return nil, err
	}
	return r.bench(tolerance, progress).Reduce(ctx, g, expected, in, f.Node)
}

// SaveCase writes a case as an ONNX file, and its inputs and the outputs that it should
// have beside it: see reduce.Save.
func SaveCase(path string, c *Case) error {
	return reduce.Save(path, c.Graph, c.In, c.Out, "spc", Version)
}

// bench is what faults of the model are looked for with, on its device.
func (r *Reference) bench(tolerance float64, progress func(steps int)) *verify.Bench {
	return &verify.Bench{
		Run: func(ctx context.Context, g *ir.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			p, err := r.model.on().Load(g, backend.Options{Threads: r.model.options.Threads})
			if err != nil {
				return nil, err
			}
			defer p.Close()
			out := make([]*tensor.Tensor, len(g.Outputs))
			return out, p.Run(ctx, in, out)
		},
		Compile: func(ctx context.Context, g *ir.Graph) (*ir.Graph, error) {
			return g, runPasses(ctx, g, passes.Options{})
		},
		Unpack:    unpack,
		Tolerance: tolerance,
		Progress:  progress,
	}
}

// on is the device that runs the model.
func (m *Model) on() backend.Device {
	if m.options.Device == nil {
		return cpu.Device{}
	}
	return m.options.Device
}

// Interpretable is a model that the interpreter can evaluate: a *Model or an *Original.
type Interpretable interface {
	interpretable() *ir.Graph
	hold() (release func(), err error)
}

func (m *Model) interpretable() *ir.Graph    { return m.graph }
func (o *Original) interpretable() *ir.Graph { return o.graph }
func (o *Original) hold() (func(), error)    { return func() {}, nil }

// FirstDifference finds, as the interpreter evaluates two models, the first node of a with
// an output that differs by more than the tolerance from that of its name in b, or from all
// values of b where there is none; it is nil where there is no such node.
func FirstDifference(ctx context.Context, a, b Interpretable, inputs map[string]*tensor.Tensor, tolerance float64) (f *Fault, err error) {
	for _, m := range []Interpretable{a, b} {
		release, err := m.hold()
		if err != nil {
			return nil, err
		}
		defer release()
	}
	err = ir.Guard(func() error {
		f, err = firstDifference(ctx, a, b, inputs, tolerance)
		return err
	})
	return f, err
}

func firstDifference(ctx context.Context, a, b Interpretable, inputs map[string]*tensor.Tensor, tolerance float64) (*Fault, error) {
	bench := verify.Bench{Unpack: unpack, Tolerance: tolerance}
	var e [2]*verify.Evaluated
	for i, m := range []Interpretable{a, b} {
		g := m.interpretable()
		in := make([]*tensor.Tensor, len(g.Inputs))
		err := arrange(g, in, inputs)
		if err == nil {
			e[i], err = bench.Evaluate(ctx, g, in)
		}
		if err != nil {
			return nil, err
		}
	}
	return bench.OfGraph(e[0], e[1]), nil
}
