// Package diff looks for models that spc compiles wrongly: it builds graphs at random
// over the whole table of operators, compiles and runs them as users do, and compares
// the outputs with those of the graph as it was imported, evaluated node by node by the
// operators' own Eval, without a pass or a plan of memory. What differs it makes as small
// as it can. Only tests and tests/diff/cmd import it.
package diff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	runtimedebug "runtime/debug"
	"slices"
	"strings"

	"spc"
	"spc/backend/ref"
	"spc/internal/debug"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxtest"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Case is a model, what it is run on, and how it is compiled.
type Case struct {
	Seed, Index uint64
	Model       []byte // an ONNX file
	Runs        []Run  // of one program, one after another
	Variants    []Variant
	Kinds       map[string]int // nodes by operator

	known []known // what the oracle has told
}

// known is what a model's outputs are.
type known struct {
	model  []byte
	in     map[string]*tensor.Tensor
	passes int
	out    map[string]*value
	err    error
}

// Run is one call.
type Run struct {
	Inputs map[string]*tensor.Tensor
	// Into keeps the outputs of the run before and writes into them. Feed names, for
	// outputs by name, the input that is written over as a state is.
	Into bool
	Feed map[string]string
}

// Variant is a way to compile a model.
type Variant struct {
	Name     string
	Sparsity float64
	Pattern  spc.Pattern
	Quantize tensor.DType
	Block    int // of weights alone in codes
	Format   spc.Format
	Threads  int
	Memory   bool // have the back end check its plan of memory
	// Export judges the passes that change weights before they are pruned: what spc.Prune
	// writes is interpreted, in place of a run.
	Export bool
	// Specified judges what importing made of operators of ONNX Runtime's own, in place of a run.
	Specified bool
}

func (v Variant) String() string { return fmt.Sprintf("%s, %d threads", v.Name, v.Threads) }

// weights reports whether the variant changes the weights' values, so that what it is
// compared with is the file that spc.Prune writes.
func (v Variant) weights() bool { return v.Sparsity > 0 || v.Quantize != 0 }

// integers reports whether products are to be of 8-bit integers.
func (v Variant) integers() bool { return v.Quantize == tensor.I8 && v.Block == 0 }

// Finding is a difference.
type Finding struct {
	Class   string // panic, refused, shape, value, missing, input
	Variant Variant
	Run     int
	Output  string // empty where it concerns no single output
	Detail  string

	got, want *tensor.Tensor // of a difference from ONNX Runtime
}

func (f *Finding) String() string {
	s := fmt.Sprintf("%s (%s), run %d", f.Class, f.Variant, f.Run)
	if f.Output != "" {
		s += ", output " + f.Output
	}
	return s + ": " + f.Detail
}

// Same reports whether two findings are of one class.
func (f *Finding) Same(o *Finding) bool { return o != nil && f.Class == o.Class }

// The variants beside the dense one, of which each graph has two.
var pruned = []Variant{
	{Name: "uniform", Sparsity: 0.5},
	{Name: "uniform, 90%", Sparsity: 0.9},
	{Name: "unstructured", Sparsity: 0.6, Pattern: spc.Pattern{Kind: spc.Unstructured}},
	{Name: "2:4", Sparsity: 0.5, Pattern: spc.Pattern{Kind: spc.NM, N: 2, M: 4}},
	{Name: "block", Sparsity: 0.5, Pattern: spc.Pattern{Kind: spc.Block, R: 4, C: 1}},
	{Name: "2:4 in blocks", Sparsity: 0.7, Pattern: spc.Pattern{Kind: spc.Block, R: 4, C: 4, N: 2, M: 4}},
	{Name: "uniform-block", Sparsity: 0.5, Pattern: spc.Pattern{Kind: spc.UniformBlock, R: 4, C: 1}},
	{Name: "channel", Sparsity: 0.5, Pattern: spc.Pattern{Kind: spc.Channel}},
}

var formats = spc.Formats()

// narrowed are the types of products that are not those of the model.
var narrowed = []Variant{
	{Name: "fp16", Quantize: tensor.F16}, {Name: "bf16", Quantize: tensor.BF16}, {Name: "int8", Quantize: tensor.I8},
	{Name: "int4", Quantize: tensor.I4, Block: 32}, {Name: "int4:16", Quantize: tensor.I4, Block: 16}, {Name: "int8w:16", Quantize: tensor.I8, Block: 16},
}

// draw draws how a case is run and compiled.
func (c *Case) draw(g *Gen) {
	r := g.r
	threads := func() int { return 1 + r.IntN(3) }
	c.Variants = []Variant{{Name: "dense", Threads: threads(), Memory: r.IntN(2) == 0}}
	if g.long {
		c.Variants = append(c.Variants, Variant{Name: "format hyb", Format: "hyb", Threads: threads(), Memory: r.IntN(3) > 0})
	}
	for len(c.Variants) < 3 {
		var v Variant
		switch k := r.IntN(12); {
		case k < 5:
			v = pruned[r.IntN(len(pruned))]
			if r.IntN(2) == 0 {
				v.Format = formats[r.IntN(len(formats))]
				v.Name += ", format " + string(v.Format)
			}
			if r.IntN(5) == 0 {
				q := narrowed[r.IntN(len(narrowed))]
				v.Quantize, v.Name = q.Quantize, v.Name+", "+q.Name
			}
		case k < 7:
			v = narrowed[r.IntN(len(narrowed))]
		case k < 9:
			v = narrowed[2+r.IntN(2)]
		case k < 11:
			v = Variant{Name: "export", Export: true}
		default:
			v.Format = formats[r.IntN(len(formats))]
			v.Name = "format " + string(v.Format)
		}
		v.Threads, v.Memory = threads(), r.IntN(3) > 0
		c.Variants = append(c.Variants, v)
	}
	if c.hasSpecified() {
		c.Variants = append(c.Variants, Variant{Name: "specification", Specified: true, Threads: 1})
	}
	c.Runs = append(c.Runs, Run{Inputs: c.Runs[0].Inputs, Into: true})
	if c.Runs[1].Inputs == nil {
		c.Runs = slices.Delete(c.Runs, 1, 2)
	}
	c.Runs = append(c.Runs, Run{Inputs: c.Runs[0].Inputs, Into: true, Feed: c.feed(r)})
}

// feed draws outputs that are written over inputs of their type and shape.
func (c *Case) feed(r *rand.Rand) map[string]string {
	in := c.Runs[0].Inputs
	out, err := c.oracle(c.Model, in, passes)
	if err != nil {
		return nil
	}
	feed, taken := map[string]string{}, map[string]bool{}
	for _, o := range slices.Sorted(maps.Keys(out)) {
		for _, i := range slices.Sorted(maps.Keys(in)) {
			if !taken[i] && feed[o] == "" && out[o].base.Fits(in[i]) && r.IntN(3) > 0 {
				feed[o], taken[i] = i, true
			}
		}
	}
	return feed
}

// options are those to compile a case with.
func (c *Case) options(model []byte, v Variant) spc.CompileOptions {
	o := spc.CompileOptions{
		Bytes: model, Format: v.Format,
		Prune:    spc.PruneOptions{Sparsity: v.Sparsity, Pattern: v.Pattern},
		Quantize: spc.QuantizeOptions{Type: v.Quantize, Block: v.Block},
		Run:      spc.RunOptions{Threads: v.Threads},
		Debug:    spc.DebugOptions{Verify: true},
	}
	if v.Sparsity > 0 {
		o.Prune.KeepNone, o.Prune.Method = true, spc.Magnitude
	}
	if v.integers() {
		o.Quantize.KeepNone, o.Quantize.Ranges.Method, o.Prune.Allocate = true, spc.MinMax, spc.PerLayer
		o.Calibration.Threads = v.Threads
		o.Calibration.Inputs = func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
			return func(yield func(map[string]*tensor.Tensor, error) bool) { yield(c.Runs[0].Inputs, nil) }
		}
	}
	return o
}

// oracle is interpret for what it has not been asked yet.
func (c *Case) oracle(model []byte, in map[string]*tensor.Tensor, passes int) (map[string]*value, error) {
	for _, k := range c.known {
		if k.passes == passes && maps.Equal(k.in, in) && bytes.Equal(k.model, model) {
			return k.out, k.err
		}
	}
	out, err := c.interpret(model, in, passes)
	c.known = append(c.known, known{model, in, passes, out, err})
	return out, err
}

// imported imports a model for inputs of these shapes: what a Loop of no rounds makes has the sizes that are known. It returns
// the inputs in the order of the graph's.
func imported(model []byte, in map[string]*tensor.Tensor) (*ir.Graph, []*tensor.Tensor, error) {
	o := onnx.Options{Shapes: map[string][]int{}}
	for name, t := range in {
		if !t.DType().IsList() {
			o.Shapes[name] = t.Shape()
		}
	}
	g, _, err := onnx.ImportBytes(model, "", o)
	if err != nil {
		return nil, nil, err
	}
	list := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		if list[i] = in[v.Name]; list[i] == nil {
			return nil, nil, fmt.Errorf("no input %s: %w", v.Name, ir.ErrInvalid)
		}
	}
	return g, list, nil
}

// interpret evaluates a model as it is imported for inputs of these shapes.
func (c *Case) interpret(model []byte, in map[string]*tensor.Tensor, passes int) (map[string]*value, error) {
	g, list, err := imported(model, in)
	if err != nil {
		return nil, err
	}
	types := make([]ir.Type, len(g.Outputs)) // as the interpreter knows them
	for i, v := range g.Outputs {
		types[i] = v.Type
	}
	values := make([]*value, len(list))
	for i, t := range list {
		values[i] = plain(t)
	}
	noisy, err := evaluate(context.Background(), g, values, c.Seed^c.Index, passes) // which bounds what is computed
	if err != nil {
		return nil, err
	}
	want, err := ref.Run(context.Background(), g, list)
	if err != nil {
		return nil, err
	}
	if err := inferBodies(g, list); err != nil {
		return nil, err
	}
	out := make(map[string]*value, len(want))
	for i, t := range want {
		if d, _ := plain(t).differs(noisy[i].base); d != "" {
			return nil, fmt.Errorf("the interpreter and the evaluation without noise disagree on %s", g.OutputName(i))
		}
		noisy[i].open, noisy[i].rank, noisy[i].loops = open(types[i], t.Rank()), !types[i].Ranked, repeats(g)
		out[g.OutputName(i)] = noisy[i]
	}
	return out, nil
}

// open lists the axes of a tensor of the type t whose sizes it does not tell.
func open(t ir.Type, rank int) (axes []int) {
	for i := range rank {
		if !t.Ranked || !t.Dims[i].Known() {
			axes = append(axes, i)
		}
	}
	return axes
}

// repeats reports whether g evaluates a subgraph any number of times.
func repeats(g *ir.Graph) bool {
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			switch n.Op.(type) {
			case *op.Loop, *op.Scan:
				return true
			}
		}
	}
	return false
}

// inferBodies returns an error where a subgraph does not fit the elements of the lists among
// the inputs, whose shapes importing is not told: it is refused even where it is not run.
func inferBodies(g *ir.Graph, in []*tensor.Tensor) error {
	lists := false
	for i, v := range g.Inputs {
		if v.Type.Elem != nil {
			v.Type, lists = ir.TypeOf(in[i]), true
		}
	}
	if !lists {
		return nil
	}
	for _, n := range g.Nodes {
		if err := n.Infer(); err != nil {
			if len(ir.Subgraphs(n.Op)) == 0 {
				return nil // a run is to tell
			}
			return err
		}
	}
	return nil
}

// Check compiles and runs the case in each of its variants and returns what differs, the
// first of each.
func (c *Case) Check(ctx context.Context) []*Finding {
	var out []*Finding
	for _, v := range c.Variants {
		if f := c.check(ctx, v); f != nil {
			out = append(out, f)
		}
	}
	return out
}

// guarded calls f and turns a panic into a finding.
func guarded(v Variant, what string, f func() *Finding) (found *Finding) {
	defer func() {
		if p := recover(); p != nil {
			found = &Finding{Class: "panic", Variant: v, Detail: fmt.Sprintf("%s: %v at %s", what, p, frameOf(string(runtimedebug.Stack())))}
		}
	}()
	return f()
}

// frameOf is the first function of the module below a panic in a stack.
func frameOf(stack string) string {
	_, below, _ := strings.Cut(stack, "panic(")
	for line := range strings.Lines(below) {
		if strings.HasPrefix(line, "spc/") || strings.HasPrefix(line, "spc.") {
			name, _, _ := strings.Cut(line, "(0x")
			return strings.TrimSpace(name)
		}
	}
	return "?"
}

// exported is what spc.Prune makes of the model.
func (c *Case) exported(ctx context.Context, v Variant) ([]byte, changed, error) {
	o := c.options(c.Model, v)
	if v.Export {
		o.Opset = spc.LeastOpset
	}
	p, err := spc.Prune(ctx, o)
	if err != nil {
		return nil, changed{}, err
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		return nil, changed{}, err
	}
	if p.Explain().Written.Anew == "" && !v.Export && onnxtest.Check(c.Model) != nil {
		return b.Bytes(), changes(p.Explain()), nil // the file stays what it was
	}
	return b.Bytes(), changes(p.Explain()), onnxtest.Check(b.Bytes())
}

// changed counts what was done to weights. spc.Prune leaves out passes that ONNX has no
// form for, and sometimes has other products than spc.Compile: what that folds to a
// constant, or makes part of an Attention.
type changed struct{ products, prunable, zeros int }

func changes(r *spc.Report) changed {
	c := changed{prunable: r.Totals.Prunable, zeros: r.Totals.PrunableZeros}
	if r.Quant != nil {
		c.products = r.Quant.Products
	}
	return c
}

// expected is a reason for which a variant may be refused: it asks for what the model
// does not have.
func expected(v Variant, err error) bool {
	return (v.weights() || v.Export) && (errors.Is(err, spc.ErrInvalid) || errors.Is(err, spc.ErrUnsupported))
}

func (c *Case) check(ctx context.Context, v Variant) *Finding {
	checks := ""
	if v.Memory {
		checks = debug.Memory
	}
	os.Setenv(debug.Variable, checks)
	if v.Specified {
		return guarded(v, "specification", func() *Finding { return c.compareSpecified(v) })
	}
	model, did := c.Model, changed{}
	if v.weights() || v.Export {
		if f := guarded(v, "prune", func() *Finding {
			b, n, err := c.exported(ctx, v)
			switch {
			case err == nil:
				model, did = b, n
			case expected(v, err):
				model = nil
			default:
				return &Finding{Class: "refused", Variant: v, Detail: err.Error()}
			}
			return nil
		}); f != nil || model == nil {
			return f
		}
	}
	if v.Export {
		return c.compareExport(v, model)
	}
	if !v.integers() {
		return c.compare(ctx, v, c.options(c.Model, v), model, &did)
	}
	// To read biases that are corrected, and inputs that stay in floating point, takes
	// spc: its own compile is not the file that others read, and is to be of the same shapes.
	if f := c.compare(ctx, v, c.options(c.Model, v), model, &changed{-1, -1, -1}); f != nil {
		return f
	}
	return c.compare(ctx, v, c.options(model, Variant{Format: v.Format, Threads: v.Threads}), model, nil)
}

// compare compiles with options and compares each run with that of a model as it is
// imported; only the shapes of outputs where weights were not changed as that model's were.
func (c *Case) compare(ctx context.Context, v Variant, o spc.CompileOptions, model []byte, did *changed) *Finding {
	var m *spc.Model
	values := true
	if f := guarded(v, "compile", func() *Finding {
		var err error
		if m, err = compile(ctx, o); err != nil {
			if _, refused := c.oracle(model, c.Runs[0].Inputs, passes); refused != nil {
				return nil // so does the interpreter
			}
			if v.integers() && errors.Is(err, spc.ErrInvalid) && strings.Contains(err.Error(), "has no elements in any calibration sample") {
				return nil // the model's inputs may have none
			}
			return &Finding{Class: "refused", Variant: v, Detail: "compile: " + err.Error()}
		}
		values = !(v.weights() && did != nil && changes(m.Explain()) != *did)
		return nil
	}); f != nil || m == nil {
		return f
	}
	defer m.Close()
	passes := passes
	if v.integers() {
		passes = passes8bit
	}
	outputs := map[string]*tensor.Tensor{}
	for i, r := range c.Runs {
		want, err := c.oracle(model, r.Inputs, passes)
		if err != nil {
			continue // what the interpreter refuses may fail anywhere, or be dead code
		}
		if v.weights() {
			want = inexact(want)
		}
		f := guarded(v, "run", func() *Finding { return c.run(ctx, m, v, r, outputs, want, values) })
		if f != nil {
			f.Run = i
			return f
		}
	}
	return nil
}

// inexact is what a file that spc wrote gives, which may hold as constants what is computed, and rounded, in others.
func inexact(of map[string]*value) map[string]*value {
	out := map[string]*value{}
	for name, v := range of {
		rounded := *v
		rounded.exact = false
		out[name] = &rounded
	}
	return out
}

// compareExport compares what spc.Prune writes with the model, both interpreted.
func (c *Case) compareExport(v Variant, model []byte) *Finding {
	for i, r := range c.Runs[:1] {
		want, err := c.oracle(c.Model, r.Inputs, passes)
		if err != nil {
			continue
		}
		got, err := c.oracle(model, r.Inputs, passes)
		if err != nil {
			return &Finding{Class: "refused", Variant: v, Run: i, Detail: "the exported model: " + err.Error()}
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			var t *tensor.Tensor
			if got[name] != nil {
				t = got[name].base
			}
			if class, detail := want[name].differs(t); class != "" {
				return &Finding{Class: class, Variant: v, Run: i, Output: name, Detail: detail}
			}
		}
	}
	return nil
}

// compile compiles the model and reads back what it writes.
func compile(ctx context.Context, o spc.CompileOptions) (*spc.Model, error) {
	m, err := spc.Compile(ctx, o)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		return nil, err
	}
	return spc.Read(b.Bytes(), o.Run)
}

func (c *Case) run(ctx context.Context, m *spc.Model, v Variant, r Run, outputs map[string]*tensor.Tensor, want map[string]*value, values bool) *Finding {
	in := make(map[string]*tensor.Tensor, len(r.Inputs))
	for name, t := range r.Inputs {
		in[name] = t.Clone()
	}
	over := map[string]bool{}
	if !r.Into {
		clear(outputs)
	}
	for o, i := range r.Feed {
		if in[i] != nil && want[o] != nil && want[o].base.Fits(in[i]) {
			outputs[o], over[i] = in[i], true
		}
	}
	if err := m.RunInto(ctx, in, outputs); err != nil {
		if !values { // what differs may be an index
			return nil
		}
		return &Finding{Class: "refused", Variant: v, Detail: "run: " + err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		class, detail := want[name].differs(outputs[name])
		follows := class == "value" || class == "shape" && len(want[name].open) > 0 // from the values of weights
		if class != "" && (values || !follows) {
			return &Finding{Class: class, Variant: v, Output: name, Detail: detail}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if !over[name] && !in[name].Equal(r.Inputs[name]) {
			return &Finding{Class: "input", Variant: v, Detail: "input " + name + " was written to"}
		}
	}
	for o := range r.Feed { // the next run has outputs of its own
		delete(outputs, o)
	}
	return nil
}
