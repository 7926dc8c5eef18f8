// Package passes runs the compiler's passes over a graph. Pipeline is the list,
// to be read from top to bottom; each pass lives in a folder of its own. The
// package imports ir and the passes. It may change in any version, as may those below
// it: programs import spc.
package passes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"spc/internal/pace"
	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/passes/fit"
	"spc/passes/fold"
	"spc/passes/fuse"
	"spc/passes/prune"
	"spc/passes/quant"
)

// Fact is something that holds of a graph, which passes need, establish and break.
type Fact uint

// The facts.
const (
	Typed   Fact = 1 << iota // every value has the type that inference gives it
	Folded                   // nodes whose inputs are constant are gone
	Fused                    // epilogues are part of their producers
	Pruned                   // which weights are zero is decided
	Integer                  // products between quantised tensors compute in integers
	Stored                   // every weight has its format
)

var factNames = []string{"typed", "folded", "fused", "pruned", "integer", "stored"}

func (f Fact) String() string {
	var s []string
	for i, n := range factNames {
		if f&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	return strings.Join(s, ", ")
}

// Role is what kind of change a pass makes.
type Role uint

// The roles.
const (
	Fuses      Role = 1 << iota // it recognises and fuses operators: the graph computes the same faster
	Unportable                  // its results have no form in ONNX, or one that few runtimes read
	Alters                      // it changes weights, or how they are stored
)

// Pass is a row of Pipeline. Run changes the graph in place and returns the
// number of changes that it made.
type Pass struct {
	Name   string
	Doc    string
	Needs  Fact
	Makes  Fact
	Breaks Fact
	Role   Role
	Run    func(ctx context.Context, c *Context, g *ir.Graph) (int, error)
	// Stages, where it is set, plans the stages that Run reports, of which the first one begins with it.
	Stages func(c *Context, g *ir.Graph) []pace.Stage
}

// Context is what passes share.
type Context struct {
	Prune   fit.Options
	Masks   bool           // report where pruned weights are not zero
	Quant   *quant.Options // nil where products stay as they are
	Choose  choose.Options
	Formats []choose.Format
	Model   choose.Model
	Report  Report

	Portable bool // the graph is to be written as ONNX
	Unpruned bool // the passes before prune do what they do where zeros are asked for
	Store16  bool // the target reads weights of 16 bits as they are

	// Settle, where it is set, has the elements of a large tensor that a pass has made lie elsewhere than in memory; Unsettle is told of
	// those that nobody reads any more.
	Settle, Unsettle func(t *tensor.Tensor)

	Depthwise8 bool // the target has kernels for depthwise convolutions of 8-bit integers

	halves quant.Halves // what computed in 16-bit floats
}

// Report collects what the passes did.
type Report struct {
	Passes []PassReport
	Prune  *fit.Result
	// Masks tells, where asked for, which elements of each pruned weight are not zero,
	// by the weight's name.
	Masks  map[string]*tensor.Tensor
	Quant  *quant.Result
	Layers []choose.Layer
	Open   []choose.Open // the open dimensions that formats were chosen for
	// Transposes names the Transpose nodes that are left.
	Transposes []string
	// Recognised counts what the passes that recognise operators left, nil where the last of them did not run.
	Recognised *fuse.Recognised
}

// PassReport is what one pass did.
type PassReport struct {
	Name    string        `json:"name"`
	Changes int           `json:"changes"`
	Nodes   int           `json:"nodes"` // after the pass
	Time    time.Duration `json:"-"`     // not part of an artefact
}

// Pipeline is the order in which passes run.
var Pipeline = []Pass{
	{
		Name: "infer", Doc: "infer the type of every value",
		Makes: Typed,
		Run:   func(_ context.Context, _ *Context, g *ir.Graph) (int, error) { return 0, g.Infer() },
	},
	{
		Name: "floats", Doc: "compute in f32 what the model computes in 16-bit floats",
		Needs: Typed,
		Run: func(_ context.Context, c *Context, g *ir.Graph) (n int, err error) {
			c.halves, err = quant.WidenFloats(g)
			return len(c.halves), err
		},
	},
	{
		Name: "spell", Doc: "spell out how weights are quantised that are to be pruned",
		Needs: Typed,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			if !c.asks() {
				return 0, nil
			}
			return quant.Spell(g)
		},
	},
	{
		Name: "quantized", Doc: "recognise products of integers between DequantizeLinear nodes",
		Needs: Typed, Role: Unportable,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			if c.asks() { // narrow comes after that
				return 0, nil
			}
			return quant.Products(g, c.Depthwise8)
		},
	},
	{
		Name: "fold", Doc: "evaluate what is constant, shape arithmetic included, and pick constant branches",
		Needs: Typed, Makes: Folded,
		Run: foldConstants,
	},
	{
		Name: "dead", Doc: "remove nodes whose outputs nobody reads",
		Needs: Typed,
		Run:   func(_ context.Context, _ *Context, g *ir.Graph) (int, error) { return fold.Dead(g), nil },
	},
	{
		Name: "lists", Doc: "take sequences and optionals apart whose elements are known",
		Needs: Typed | Folded,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			count := 0
			for { // what was taken apart may have hidden what other lists hold
				n, err := fold.Lists(g)
				if n == 0 || err != nil {
					return count, err
				}
				fold.Dead(g)
				k, err := foldConstants(ctx, c, g)
				if err != nil {
					return count, err
				}
				count += n + k + fold.Dead(g)
			}
		},
	},
	{
		Name: "einsum", Doc: "spell Einsum as products of matrices, sums and transposes",
		Needs: Typed | Folded,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			n, err := fuse.Einsums(g)
			if n == 0 || err != nil {
				return n, err
			}
			k, err := foldConstants(ctx, c, g) // transposed weights
			return n + k + fold.Dead(g), err
		},
	},
	{
		Name: "spans", Doc: "make channels of the columns of an image that a kernel is as wide as",
		Needs: Typed | Folded,
		Run:   tidy(fuse.Spans),
	},
	{
		Name: "identity", Doc: "remove what changes nothing, join transposes and reshapes that follow each other",
		Needs: Typed | Folded,
		Run:   tidy(fuse.Identities),
	},
	{
		Name: "assign", Doc: "make what is added to a part of a tensor a sum, and have indices name rows",
		Needs: Typed | Folded,
		Run:   tidy(fuse.Assignments),
	},
	{
		Name: "pads", Doc: "make zeros around images part of the convolutions and pools that read them",
		Needs: Typed | Folded,
		Run:   tidy(fuse.Pads),
	},
	{
		Name: "scales", Doc: "fold batch normalisation and constant factors into weights",
		Needs: Typed | Folded,
		Run:   tidy(fuse.Scales),
	},
	{
		Name: "biases", Doc: "fold constant summands into the bias of their producer",
		Needs: Typed | Folded,
		Run:   tidy(fuse.Biases),
	},
	{
		Name: "prune", Doc: "decide which weights are zero",
		Needs: Typed | Folded, Makes: Pruned, Role: Alters,
		Run:    pruneWeights,
		Stages: func(c *Context, g *ir.Graph) []pace.Stage { return c.Prune.Stages(g) },
	},
	{
		Name: "narrow", Doc: "recognise products of integers whose weights were pruned, and fold what makes the other weights",
		Needs: Typed | Pruned, Role: Unportable,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			if !c.Prune.Asks() {
				return 0, nil
			}
			n, err := quant.Products(g, c.Depthwise8)
			if err != nil {
				return n, err
			}
			others, err := quant.Widen(g)
			if err != nil {
				return n, err
			}
			k, err := fold.Constants(g)
			fold.Dead(g)
			return n + len(others) + k, err
		},
	},
	{
		Name: "round", Doc: "round weights to codes of a few bits, with scales of blocks",
		Needs: Typed | Folded | Pruned, Role: Alters,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			if !c.Quant.Rounds() {
				return 0, nil
			}
			return c.quantise(ctx, g)
		},
		Stages: func(c *Context, g *ir.Graph) []pace.Stage {
			if !c.Quant.Rounds() {
				return nil
			}
			return c.Quant.Stages(g, c.Prune.Count)
		},
	},
	{
		Name: "gemm", Doc: "spell Gemm of a right side that is not constant as a product of matrices and a sum",
		Needs: Typed | Folded, Role: Fuses | Unportable,
		Run: tidy(fuse.Gemms),
	},
	{
		Name: "activations", Doc: "recognise GELU, SiLU and HardSwish",
		Needs: Typed | Folded, Role: Fuses | Unportable,
		Run: tidy(fuse.Activations),
	},
	{
		Name: "norms", Doc: "recognise LayerNorm, RMSNorm and GroupNorm",
		Needs: Typed | Folded, Role: Fuses | Unportable,
		Run: tidy(fuse.Norms),
	},
	{
		Name: "rotary", Doc: "recognise rotary embeddings",
		Needs: Typed | Folded, Role: Fuses | Unportable,
		Run: tidy(fuse.Rotaries),
	},
	{
		Name: "attention", Doc: "recognise attention, with the transposes that split and join its heads",
		Needs: Typed | Folded, Role: Fuses | Unportable,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			n, err := tidy(fuse.Attentions)(ctx, c, g)
			if c != nil && err == nil {
				c.Report.Recognised = fuse.Recognise(g)
			}
			return n, err
		},
	},
	{
		Name: "residuals", Doc: "add residuals while the producer stores",
		Needs: Typed | Folded, Role: Fuses | Unportable,
		Run: tidy(fuse.Residuals),
	},
	{
		Name: "epilogues", Doc: "apply activations while the producer stores",
		Needs: Typed | Folded, Makes: Fused, Role: Fuses | Unportable,
		Run: tidy(fuse.Epilogues),
	},
	{
		Name: "quantize", Doc: "quantise products, with the ranges that calibration sees",
		Needs: Typed | Folded | Pruned, Role: Alters,
		Run: func(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
			if c.Quant == nil || c.Quant.Rounds() {
				return 0, nil
			}
			return c.quantise(ctx, g)
		},
		Stages: func(c *Context, g *ir.Graph) []pace.Stage {
			if c.Quant == nil || c.Quant.Rounds() {
				return nil
			}
			return c.Quant.Stages(g, c.Prune.Count)
		},
	},
	{
		Name: "halves", Doc: "give weights that were 16-bit floats that type again, and in ONNX nodes, too",
		Needs: Typed | Folded | Pruned, Role: Alters,
		Run: roundHalves,
	},
	{
		Name: "integers", Doc: "compute quantised products in integers, and pass u8 from one to the next",
		Needs: Typed | Folded | Pruned, Makes: Integer, Role: Unportable,
		Run: func(_ context.Context, c *Context, g *ir.Graph) (int, error) {
			n, err := quant.Products(g, c.Depthwise8)
			if err != nil {
				return n, err
			}
			k, err := quant.Fuse(g)
			return n + k, err
		},
	},
	{
		Name: "choose", Doc: "choose the storage format of every weight",
		Needs: Typed | Pruned | Integer, Makes: Stored, Role: Unportable | Alters,
		Run: func(_ context.Context, c *Context, g *ir.Graph) (int, error) {
			err := Choose(c, g)
			return len(c.Report.Layers), err
		},
		Stages: func(_ *Context, g *ir.Graph) []pace.Stage { return []pace.Stage{choose.Stage(g)} },
	},
}

// Choose chooses the storage format of every weight of a graph, the last of which passes have run.
func Choose(c *Context, g *ir.Graph) (err error) {
	if c.Choose.Recognise == nil {
		c.Choose.Recognise = recognise
	}
	c.Choose.Settle, c.Choose.Unsettle = c.Settle, c.Unsettle
	c.Report.Layers, c.Report.Open, err = choose.Run(g, c.Formats, c.Model, c.Choose)
	return err
}

// asks reports whether the passes before prune leave narrow weights to it.
func (c *Context) asks() bool { return c.Unpruned || c.Prune.Asks() }

// foldConstants folds what is constant but what makes weights that are to be pruned.
func foldConstants(_ context.Context, c *Context, g *ir.Graph) (int, error) {
	if c.asks() {
		return fold.ConstantsBut(g, quant.Widening(g))
	}
	return fold.Constants(g)
}

// pruneWeights prunes weights of floats, and those of narrow types as floats.
func pruneWeights(ctx context.Context, c *Context, g *ir.Graph) (int, error) {
	var narrow []quant.Narrow
	if c.Prune.Asks() {
		var err error
		if narrow, err = quant.Widen(g); err != nil {
			return 0, err
		}
	}
	if c.Prune.Pattern.Removes() {
		for i := range narrow {
			if err := narrow[i].Channels(); err != nil {
				return 0, option.Errorf("%v %v: %v", option.Pattern, c.Prune.Pattern, err)
			}
		}
	}
	o := c.Prune
	o.Settle = c.Settle
	o.Fixed = quant.Ordered(narrow)
	r, err := fit.Run(ctx, g, o)
	if err != nil {
		return 0, err
	}
	c.Report.Prune = r
	if c.Masks {
		c.Report.Masks = masks(g, r)
	}
	if err := quant.Restore(g, narrow); err != nil {
		return 0, err
	}
	if o.Pattern.Kind == prune.Depth { // what stays in the place of branches
		_, err = fuse.Biases(g)
	}
	return len(r.Layers), err
}

// roundHalves gives a model that computed in 16-bit floats the weights, or where it stays ONNX the types, that it had,
// unless its products are quantised.
func roundHalves(_ context.Context, c *Context, g *ir.Graph) (int, error) {
	integers := c.Quant.Integers()
	switch {
	case c.halves == nil || c.Portable && integers:
		return 0, nil
	case c.Portable:
		return len(c.halves), c.halves.Narrow(g)
	case !c.Store16 || c.Quant != nil && !integers && !c.Quant.Rounds():
		return 0, nil
	}
	c.Choose.Half = c.halves.Type(g)
	return c.halves.Round(g), nil
}

// quantise does what Quant says.
func (c *Context) quantise(ctx context.Context, g *ir.Graph) (int, error) {
	o := *c.Quant
	o.Settle = c.Settle
	r, err := quant.Run(ctx, g, o)
	if err != nil {
		return 0, err
	}
	c.Report.Quant = r
	return r.Products, nil
}

// masks returns where the prunable weights are not zero.
func masks(g *ir.Graph, r *fit.Result) map[string]*tensor.Tensor {
	prunable, out := map[string]bool{}, map[string]*tensor.Tensor{}
	for _, l := range r.Layers {
		prunable[l.Weight] = l.Prunable
	}
	for _, u := range g.WeightUses() {
		if v := u.Value; prunable[v.Name] && v.Const != nil {
			m := tensor.New(tensor.Bool, v.Const.Shape()...)
			keeps := tensor.Data[bool](m)
			for i, w := range v.Const.To(tensor.F32).F32s() {
				keeps[i] = w != 0
			}
			out[v.Name] = m
		}
	}
	return out
}

// tidy runs a rewrite and removes the nodes that nobody reads afterwards, which
// would hide from the next rewrite that a value has one reader.
func tidy(rewrite func(g *ir.Graph) (int, error)) func(context.Context, *Context, *ir.Graph) (int, error) {
	return func(_ context.Context, _ *Context, g *ir.Graph) (int, error) {
		n, err := rewrite(g)
		fold.Dead(g)
		return n, err
	}
}

// Fuse runs the passes that recognise and fuse operators, in the order of Pipeline:
// g then computes the same faster. Types are inferred and what is constant is folded.
func Fuse(g *ir.Graph) error {
	for _, p := range Pipeline {
		if p.Role&Fuses != 0 {
			if _, err := p.Run(context.Background(), nil, g); err != nil {
				return err
			}
		}
	}
	return nil
}

func init() {
	if err := check(Pipeline); err != nil {
		panic(err)
	}
}

// check reports a pass that runs before what it needs holds.
func check(list []Pass) error {
	var have Fact
	seen := map[string]bool{}
	for _, p := range list {
		if missing := p.Needs &^ have; missing != 0 {
			return fmt.Errorf("pass %s needs %v, which no pass before it establishes", p.Name, missing)
		}
		if seen[p.Name] {
			return fmt.Errorf("two passes are named %s", p.Name)
		}
		seen[p.Name] = true
		have = have&^p.Breaks | p.Makes
	}
	return nil
}

// Options control which passes run and what is seen of them.
type Options struct {
	Disable   []string // passes that do not run
	StopAfter string   // the last pass that runs; empty for all
	Verify    bool     // verify the graph after every pass
	// Dump, where it is set, is called with the graph after each pass.
	Dump func(index int, pass string, g *ir.Graph) error
	// Progress, where it is set, is called before each pass.
	Progress func(pass string, index, total int)
	// Plan, where it is set, is called with the stages that are to come, of which the first one begins then: a pass, or what its Stages
	// plans. It is called when types are known, and before each pass that plans stages.
	Plan func(stages []pace.Stage)
}

// passSeconds is how long a pass is planned to take for each element of a constant; few look at all of them.
const passSeconds = 1e-9

// plan tells the stages from a pass on.
func (o *Options) plan(c *Context, g *ir.Graph, from int) {
	if o.Plan == nil {
		return
	}
	elements := 0
	for _, v := range g.Constants() {
		if shape, ok := v.Type.Shape(); ok {
			n, _ := tensor.Elems(shape)
			elements += n
		}
	}
	var list []pace.Stage
	for _, p := range Pipeline[from:] {
		switch {
		case slices.Contains(o.Disable, p.Name):
		case p.Stages != nil:
			list = append(list, p.Stages(c, g)...)
		default:
			list = append(list, pace.Even(p.Name, 1, 1e-3+passSeconds*float64(elements)))
		}
		if p.Name == o.StopAfter {
			break
		}
	}
	o.Plan(list)
}

// Staged reports whether a pass reports stages of its own.
func Staged(pass string) bool {
	i := slices.Index(Names(), pass)
	return i >= 0 && Pipeline[i].Stages != nil
}

// Names lists the passes in order.
func Names() []string {
	out := make([]string, len(Pipeline))
	for i, p := range Pipeline {
		out[i] = p.Name
	}
	return out
}

// With lists the passes that have any of the roles.
func With(roles Role) []string {
	var out []string
	for _, p := range Pipeline {
		if p.Role&roles != 0 {
			out = append(out, p.Name)
		}
	}
	return out
}

// checkPass returns an error unless a choice names a pass.
func checkPass(choice option.Name, name string) error {
	if !slices.Contains(Names(), name) {
		return option.Errorf("%v: no pass is named %q; the passes are %s (steps of lowering are left out where the model runs)", choice, name, strings.Join(Names(), ", "))
	}
	return nil
}

// leavesOut returns an error where a pass does not run that something asks for.
func (o *Options) leavesOut(pass, what string) error {
	const asked = "%v %s: %s is asked for, which needs the pass %s"
	switch {
	case slices.Contains(o.Disable, pass):
		return option.Errorf(asked, option.Passes, pass, what, pass)
	case o.StopAfter != "" && slices.Index(Names(), o.StopAfter) < slices.Index(Names(), pass):
		return option.Errorf(asked, option.StopAfter, o.StopAfter, what, pass)
	}
	return nil
}

// Run runs the pipeline over g.
func Run(ctx context.Context, c *Context, g *ir.Graph, o Options) error {
	for _, name := range o.Disable {
		if err := checkPass(option.Passes, name); err != nil {
			return err
		}
	}
	if o.StopAfter != "" {
		if err := checkPass(option.StopAfter, o.StopAfter); err != nil {
			return err
		}
	}
	integers := c.Quant.Integers() && !c.Quant.Portable
	for _, need := range []struct {
		asked      bool
		what, pass string
	}{
		{c.Prune.Asks(), "a sparsity", "prune"},
		{c.Quant != nil && !c.Quant.Rounds(), "quantisation", "quantize"},
		{c.Quant.Rounds(), "quantisation", "round"},
		{integers, "quantisation", "integers"},
		{c.Choose.Sized != nil, "a size", "choose"},
		{c.Choose.Format != "" && c.Choose.Format != choose.Auto, "the format " + c.Choose.Format, "choose"},
	} {
		if err := o.leavesOut(need.pass, need.what); need.asked && err != nil {
			return err
		}
	}
	return run(ctx, c, g, o)
}

// Before runs the passes before one, so that the graph is as that finds it, whatever the context asks of those that do not run.
func Before(ctx context.Context, c *Context, g *ir.Graph, pass string) error {
	if err := checkPass(option.StopAfter, pass); err != nil {
		return err
	}
	at := slices.Index(Names(), pass)
	if at == 0 {
		return nil
	}
	return run(ctx, c, g, Options{StopAfter: Pipeline[at-1].Name})
}

// run runs the pipeline.
func run(ctx context.Context, c *Context, g *ir.Graph, o Options) error {
	defer func() { c.Report.Transposes = transposes(g) }()
	for i, p := range Pipeline {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i == 1 || p.Stages != nil {
			o.plan(c, g, i)
		}
		if o.Progress != nil {
			o.Progress(p.Name, i, len(Pipeline))
		}
		if !slices.Contains(o.Disable, p.Name) {
			start := time.Now()
			n, err := p.Run(ctx, c, g)
			if err != nil {
				return err
			}
			c.settle(g, n)
			c.Report.Passes = append(c.Report.Passes, PassReport{p.Name, n, count(g), time.Since(start)})
			if o.Verify {
				if err := g.Verify(); err != nil {
					return fmt.Errorf("after pass %s: %w", p.Name, err)
				}
			}
		}
		if o.Dump != nil {
			if err := o.Dump(i, p.Name, g); err != nil {
				return err
			}
		}
		if p.Name == o.StopAfter {
			return nil
		}
	}
	return nil
}

func count(g *ir.Graph) (n int) {
	for sub := range g.All() {
		n += len(sub.Nodes)
	}
	return n
}

func transposes(g *ir.Graph) []string {
	names := []string{}
	for sub := range g.All() {
		for _, m := range sub.Nodes {
			if m.Op.Kind() == "Transpose" {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// recognise names the pattern of the zeros of a matrix.
func recognise(w *tensor.Tensor) string {
	l := prune.Layer{Rows: w.Dim(0), Cols: w.Dim(1), Weights: w.F32s()}
	m, err := l.Nonzeros()
	if errors.Is(err, ir.ErrInvalid) {
		return "" // not finite: stays dense
	}
	return prune.Recognise(m).Pattern.String()
}

// settle settles what a pass has made of a graph, if it has made something.
func (c *Context) settle(g *ir.Graph, changes int) {
	if c.Settle == nil || changes == 0 {
		return
	}
	for _, v := range g.Constants() {
		c.Settle(v.Const)
		if v.Store != nil {
			for _, p := range v.Store.Parts {
				c.Settle(p.Data)
			}
		}
	}
}
