package spc

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/backend/predict"
	"spc/internal/pace"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/calib"
	"spc/passes/choose"
	"spc/passes/fit"
	"spc/passes/permute"
	"spc/passes/prune"
	"spc/passes/quant"
	"spc/passes/recon"
	"spc/passes/steps"
)

// AnySize, in CompileOptions.Shapes, leaves a dimension to each run.
const AnySize = onnx.AnySize

// The operator sets that Prune writes nodes anew in.
const (
	MinOpset = onnx.MinOpset
	MaxOpset = onnx.MaxOpset

	LeastOpset = -1
)

// CompileOptions say what to compile and how. The zero value of everything but
// the model keeps the weights as they are.
type CompileOptions struct {
	Model string // path of an ONNX file
	Bytes []byte // or its content, without external data

	Shapes map[string][]int // sizes of inputs by name, in place of declared ones; AnySize leaves one open
	Dims   map[string]int   // sizes of symbols
	// Open says of symbols that stay open what sizes formats are chosen for. Runs may have others.
	Open map[string]Sizes

	// Opset has Prune write nodes anew, in the form that they have in this operator set, of MinOpset to MaxOpset, or in the least one that has
	// forms for all, LeastOpset; 0 keeps the model's file.
	Opset int

	Target Target // the device that formats are chosen for
	Format Format // of all weights that it suits
	// Profile is what is known of the speed of the CPU that formats are chosen for; nil is DefaultProfile.
	Profile *Profile
	// OneFormat forbids that weights are kept in two formats, one for few columns and one for many.
	OneFormat bool
	// Size, where it is above 0, is how many bytes the .spx may have: weights have a second format, one in codes of 4 or 8 bits one in floats for
	// many columns, where that fits, and those that cost the least time are stored in the fewest bytes where it does not fit otherwise. What
	// does not fit at all is an error that wraps ErrUnmet. CompileWithin has its own.
	Size int64

	Prune       PruneOptions
	Quantize    QuantizeOptions
	Calibration Calibration
	Run         RunOptions // of the model that Compile returns
	Debug       DebugOptions

	// Command, where it is set, is the command that asks for all this. The model keeps it for
	// ReportOptions.
	Command []string

	// Progress, where it is set, is called as the stages go on.
	Progress func(stage string, done, total int)

	// Plan, where it is set, is called with the stages that are to come, the first of which begins then, in the place of those
	// that it was called with before: the more is known of the model, the better the seconds that they are planned to take.
	Plan func(stages []Stage)

	// Spool, where it is set, is a folder with room for the weights, with samples for three times that, where a file without a name has what
	// passes make of large ones until Close; those that no pass changes stay in the model's external data, which must not change until then.
	// Memory is needed for few layers at a time, unless what is asked for runs or ranks the whole model at once. CompileWithin has no use for it. Otherwise files may change once Compile or Prune has returned.
	Spool string

	small map[string]bool // weights that a budget has stored in the fewest bytes
}

// Stage is a part of a compilation, with the seconds that its steps are planned to take on some machine.
type Stage = pace.Stage

// PruneOptions say which weights become zero: none, unless a sparsity is asked for, by Sparsity, Layers or a pattern that
// sets it.
type PruneOptions struct {
	Sparsity float64         // the fraction of zeros over all prunable weights
	Pattern  Pattern         // where zeros may lie
	Layers   []LayerSparsity // layers with a sparsity of their own; the last that matches counts
	// Keep holds globs of nodes or weights that stay as they are, beside a first convolution of at most 4 input channels
	// and the last weights where they are less than a tenth of the prunable multiply-adds, which are not pruned.
	Keep     []string
	KeepNone bool // those are pruned, too
	KeepEnds bool // a first convolution and the last weights are not pruned, whatever their size
	// Allocate spreads the sparsity over the layers. Empty is AutoAllocation with samples, else
	// PerLayer.
	Allocate Allocation
	// Method chooses the weights that go. Empty is OBS with samples, else Magnitude.
	Method Method
	// Refine changes the masks that Method chose, or the weights on them, with samples. Empty is Unrefined.
	Refine Refinement
	// Permute puts channels in an order in which the pattern costs less. Empty is PermuteAuto with samples, else PermuteNone.
	Permute Permute
	// Aim is what layers stay near. Empty is AimOutputs with samples where Method updates weights, else AimWeights.
	Aim Aim
	// Uncorrected leaves the means and variances of outputs as pruning with samples makes them.
	Uncorrected bool
	// Reconstruct, unless it is nil, changes what is left by gradients, block by block, towards
	// what the dense model computes on the samples. An empty recipe is what suits the model.
	Reconstruct Recipe
	Masks       bool // keep where pruned weights are not zero, for Masks of the result

	unjudged bool // whoever compiles measures what is lost
}

// QuantizeOptions say which numbers products have: those of the model, unless there is a type.
type QuantizeOptions struct {
	// Type is I8, of weights and activations, which needs samples, or, of weights alone, F16 or BF16, or I4, or I8 with a Block.
	Type tensor.DType
	// Block is how many weights share a scale, along what products add up, where weights alone are I4 or I8: a power of two of at
	// least 16, or 0 for 32 of I4. Samples, where there are some, are what weights make up for each other's errors on.
	Block  int
	Ranges Ranges // of activations in 8 bits
	// KeepFloat holds globs of nodes or weights whose products stay in floating point.
	KeepFloat []string
	KeepNone  bool // also sensitive products, which otherwise stay, are quantised

	only map[string]bool // the weights that a budget has in integers, nil for all
}

// Calibration is samples of what a model sees.
type Calibration struct {
	// Inputs yields inputs by the names of the ports, in the same order every time; an error
	// ends them. What it yields is copied.
	Inputs func(ctx context.Context, ports []Port) iter.Seq2[map[string]*tensor.Tensor, error]
	Count  int // of samples in what Inputs yields, for the report; 0 for one in each
	// Threads run the model on them, at most MaxThreads; 0 for one a physical core. The result does not depend on it.
	Threads int
	// Cache is a file for what allocations see of the dense model, which is made
	// where there is none and saves time where it is there. Identity is a text that
	// tells these samples from others, whose statistics are an error.
	Cache, Identity string
	// Spool, where it is set, is a folder with room for values of the samples, where a file without a name has, until the compilation is
	// done, those that would take more than Memory bytes; 0 is for half of what the machine has left, or 1 GB where that cannot be told. What one layer, and a sample on
	// each thread, takes while it is in work comes besides. Otherwise each part of the work keeps up to calib.DefaultBudget bytes, and
	// computes anew what would take more, as it does on Windows. The result is the same for any Memory.
	Spool  string
	Memory int64
}

// DebugOptions are for whoever works on the compiler.
type DebugOptions struct {
	Disable   []string // passes that do not run
	StopAfter string   // the last pass that runs
	Verify    bool     // verify the graph after every pass
	DumpDir   string   // a folder for the graph after every pass and, where the inputs' shapes are known, every step of the CPU's lowering
}

// Pattern says where zeros may lie: its Kind, with N and M of NM, or R and C of Block and UniformBlock, and N and M within these. The zero Pattern is
// uniform.
type Pattern = prune.Pattern

// The kinds of patterns.
const (
	Uniform      = prune.Uniform      // the same number of nonzeros in each row of a layer
	Unstructured = prune.Unstructured // anywhere
	NM           = prune.NM           // at most N nonzeros among M neighbours in a row, which sets the sparsity
	Block        = prune.Block        // blocks of R rows and C columns are zero or not
	UniformBlock = prune.UniformBlock // as many blocks in each row of blocks
	Channel      = prune.Channel      // whole output channels, which are removed
	Head         = prune.Head         // whole attention heads, which are removed
	Depth        = prune.Depth        // whole residual branches, which are removed
)

// ParsePattern reads uniform, unstructured, N:M, block:RxC, uniform-block:RxC, either of these with +N:M, channel, head or depth.
func ParsePattern(s string) (Pattern, error) { return prune.ParsePattern(s) }

// LayerSparsity is the sparsity of layers that a glob of nodes or weights names.
type LayerSparsity struct {
	Glob     string
	Sparsity float64
	Pattern  *Pattern // where its zeros may lie, nil for PruneOptions.Pattern
}

func (l LayerSparsity) String() string {
	if l.Pattern == nil {
		return fmt.Sprintf("%s=%v", l.Glob, l.Sparsity)
	}
	return fmt.Sprintf("%s=%v,%v", l.Glob, l.Sparsity, *l.Pattern)
}

// ParseLayerSparsity reads GLOB=SPARSITY, GLOB=SPARSITY,PATTERN, or GLOB=PATTERN where the pattern sets its own sparsity.
func ParseLayerSparsity(s string) (LayerSparsity, error) {
	t, err := prune.ParseLayerTarget(s)
	return LayerSparsity{t.Glob.String(), t.Sparsity, t.Pattern}, err
}

// Allocation says how the sparsity is spread over the layers.
type Allocation = prune.Allocation

// The allocations. Those from Normalised on need samples.
const (
	PerLayer       = prune.PerLayer // the same in each
	Global         = prune.Global   // the pattern's published threshold
	Normalised     = fit.Normalised // one threshold on saliencies that samples make comparable
	Curves         = fit.Curves     // by error curves
	Joint          = fit.Joint      // by these and the effects that layers have together
	AutoAllocation = fit.Auto       // whichever of these but Global is nearest the dense model's outputs
)

// Aim is what a layer stays near when its weights are pruned.
type Aim = fit.Aim

// The aims.
const (
	AimWeights = fit.Weights // the dense model's weights
	AimOutputs = fit.Outputs // the dense model's outputs
)

// ParseAim reads weights or dense.
func ParseAim(s string) (Aim, error) { return fit.ParseAim(s) }

// Aims lists the aims.
func Aims() []Aim { return fit.Aims() }

// Permute says whether channels are put in an order in which the pattern costs less.
type Permute = permute.Choice

// The choices of Permute.
const (
	PermuteNone = permute.None
	PermuteAuto = permute.Auto // where the pattern is N:M or has blocks
)

// ParsePermute reads none or auto.
func ParsePermute(s string) (Permute, error) { return permute.Parse(s) }

// Permutes lists the choices of Permute.
func Permutes() []Permute { return permute.Choices() }

// ParseAllocation reads layer, global, normalised, curves, joint or auto.
func ParseAllocation(s string) (Allocation, error) { return fit.ParseAllocation(s) }

// Allocations lists the allocations.
func Allocations() []Allocation { return fit.Allocations() }

// Method is how the weights that go are chosen.
type Method = fit.Method

// The methods. All but Magnitude need samples.
const (
	Magnitude = fit.Magnitude // by |w|
	Wanda     = fit.Wanda     // by |w| times the norm of its input
	Taylor    = fit.Taylor    // by gradients of the model's outputs
	OBS       = fit.OBS       // by what the others cannot make up for, and these are updated
	ALPS      = fit.ALPS      // by splitting weights that fit from weights that are sparse, and the others are updated
	Gates     = fit.Gates     // by probabilities that are learnt by gradients, and the others are updated
)

// ParseMethod reads magnitude, wanda, taylor, obs, alps or gates.
func ParseMethod(s string) (Method, error) { return fit.ParseMethod(s) }

// Methods lists the methods.
func Methods() []Method { return fit.Methods() }

// Refinement is what becomes of the masks that a method chose: one of those below, or several with
// commas between them.
type Refinement = fit.Refinement

// The refinements. All but Unrefined need samples.
const (
	Unrefined = fit.Unrefined
	Swaps     = fit.Swaps // exchanges what goes for what stays
	Snows     = fit.Snows // solves for what stays by the outputs of blocks of layers
)

// ParseRefinement reads none, or swaps and snows with a comma between them or one of these.
func ParseRefinement(s string) (Refinement, error) { return fit.ParseRefinement(s) }

// Refinements lists the refinements.
func Refinements() []Refinement { return fit.Refinements() }

// Recipe changes how a model is reconstructed, by the names of settings: blocks (epochs for
// each block), rate, gains (epochs for the sizes of rows), gain-rate, model (epochs for the
// whole), model-rate, inside, warmup, batch, window, augment (0 or 1) and seed.
type Recipe = recon.Recipe

// ParseRecipe reads NAME=VALUE after NAME=VALUE, with commas between them.
func ParseRecipe(s string) (Recipe, error) { return recon.ParseRecipe(s) }

// Ranges says what the steps of an activation span of its range on the samples: its Method, and the Percentile of that
// method. The zero value is MSE.
type Ranges = quant.Ranges

// The methods of Ranges.
const (
	MSE        = quant.MSE        // what makes the squared error least
	MinMax     = quant.MinMax     // all of it
	Percentile = quant.Percentile // the middle so many percent
)

// ParseRanges reads mse, minmax, percentile or percentile:P.
func ParseRanges(s string) (Ranges, error) { return quant.ParseRanges(s) }

// quantised names the numbers of QuantizeOptions.
var quantised = func() words[quant.Kind] {
	list := []word[quant.Kind]{{"none", quant.Kind{}}}
	for _, k := range quant.Kinds {
		list = append(list, word[quant.Kind]{k.Name, k})
	}
	return words[quant.Kind]{option.Quantize, list}
}()

// ParseQuantized reads none, which is the zero type, int8, fp16 or bf16, or int8w or int4, either with a colon and a
// number of weights that share a scale: the Type and the Block of QuantizeOptions.
func ParseQuantized(s string) (dt tensor.DType, block int, err error) {
	name, number, some := strings.Cut(s, ":")
	k, err := quantised.parse(name)
	switch {
	case err != nil:
		return 0, 0, err
	case some && !k.Codes:
		return 0, 0, option.Errorf("%v %q: want no number behind %s", option.Quantize, s, name)
	case !k.Codes:
		return k.Type, 0, nil
	case !some:
		return k.Type, steps.DefaultBlock, nil
	}
	if block, err = strconv.Atoi(number); err == nil {
		err = steps.Steps{Bits: k.Type.Bits(), Block: block}.Check()
	}
	if err != nil {
		return 0, 0, option.Errorf("%v %q: want %s:BLOCK, a power of two from %d to %d", option.Quantize, s, name, ir.GridBlock, steps.MaxBlock)
	}
	return k.Type, block, nil
}

// codes reports whether weights alone are to be codes of a few bits.
func (o *QuantizeOptions) codes() bool {
	return o.Type == tensor.I4 || o.Type == tensor.I8 && o.Block != 0
}

// integers reports whether products of 8-bit integers are asked for.
func (o *QuantizeOptions) integers() bool { return o.Type == tensor.I8 && !o.codes() }

// word is what ParseQuantized reads.
func (o *QuantizeOptions) word() (string, error) {
	if o.Type == 0 {
		return "none", nil
	}
	for _, k := range quant.Kinds {
		if k.Type != o.Type || k.Codes != o.codes() {
			continue
		}
		if b := o.Block; b != 0 && b != steps.DefaultBlock {
			return fmt.Sprintf("%s:%d", k.Name, b), nil
		}
		return k.Name, nil
	}
	return "", option.Errorf("%v %v: want one of %s", option.Quantize, o.Type, strings.Join(quantised.names(), ", "))
}

// Quantized lists what ParseQuantized reads.
func Quantized() []string { return quantised.names() }

// Format is how weights are stored. The zero Format is the fastest for each.
type Format string

// ParseFormat reads auto, which is the zero Format, or one of Formats.
func ParseFormat(s string) (Format, error) {
	f, err := option.OneOf(option.Format, s, append([]Format{choose.Auto}, Formats()...))
	if f == choose.Auto {
		f = ""
	}
	return f, err
}

// Formats lists the formats.
func Formats() []Format {
	var list []Format
	for _, f := range format.Table {
		list = append(list, Format(f.Name()))
	}
	return list
}

// Sizes are what an open dimension may be.
type Sizes = choose.Sizes

// ParseSizes reads FROM..TO, or sizes with commas between them.
func ParseSizes(s string) (Sizes, error) { return choose.ParseSizes(s) }

// Target is a device that formats are chosen for. The zero Target is the CPU. GPUs are taken to
// compute in 16-bit floats, and products of 8-bit integers in these.
type Target string

// The targets. CUDA is the last of those that name an architecture.
const (
	CPU      Target = "cpu"
	CUDA     Target = "cuda"
	CUDASM80 Target = "cuda:sm_80"
	CUDASM90 Target = "cuda:sm_90"
)

// Targets lists the targets.
func Targets() []Target { return []Target{CPU, CUDA, CUDASM80, CUDASM90} }

// ParseTarget reads one of Targets.
func ParseTarget(s string) (Target, error) { return option.OneOf(option.Target, s, Targets()) }

// formats are those to choose from, and how their speed on the target is predicted, on a CPU by a profile of this version.
func (t Target) formats(p *Profile) ([]choose.Format, choose.Model) {
	if t == CPU {
		if p == nil || p.Version != machine.Version {
			p = machine.Default
		}
		return format.Choices(p), predict.Of(p)
	}
	rates := backend.RatesOf(strings.TrimPrefix(strings.TrimPrefix(string(t), string(CUDA)), ":"))
	return format.GPUChoices(rates, tensor.F16), predict.GPU(rates)
}

// words are the words for the values of an option.
type words[T comparable] struct {
	option option.Name
	list   []word[T]
}

type word[T comparable] struct {
	text  string
	value T
}

func (w words[T]) parse(s string) (v T, err error) {
	for _, x := range w.list {
		if x.text == s {
			return x.value, nil
		}
	}
	return v, option.Errorf("%v %q: want one of %s", w.option, s, strings.Join(w.names(), ", "))
}

// of is the word for a value.
func (w words[T]) of(v T) (string, error) {
	for _, x := range w.list {
		if x.value == v {
			return x.text, nil
		}
	}
	return "", option.Errorf("%v %v: want one of %s", w.option, v, strings.Join(w.names(), ", "))
}

func (w words[T]) names() []string {
	var names []string
	for _, x := range w.list {
		names = append(names, x.text)
	}
	return names
}

// globs reads the globs of an option.
func globs(o option.Name, texts []string) ([]prune.Glob, error) {
	var list []prune.Glob
	for _, s := range texts {
		g, err := prune.ParseGlob(s)
		if err != nil {
			return nil, option.Errorf("%v: %v", o, err)
		}
		list = append(list, g)
	}
	return list, nil
}

// report is the options as reports tell them, once passContext has checked them.
func (o *CompileOptions) report(c *passes.Context) (ReportOptions, error) {
	quantize, err := o.Quantize.word()
	r := ReportOptions{
		Pattern: c.Prune.Pattern.String(), Sparsity: c.Prune.Sparsity, Allocate: string(c.Prune.Allocate),
		Format: c.Choose.Format, Target: string(o.Target), Quantize: quantize, OneFormat: o.OneFormat, Size: o.Size, Command: o.Command,
	}
	if o.Profile != nil && o.Profile != machine.Default {
		r.Profile = o.Profile
	}
	return r, err
}

// passContext checks the options, which are all that a compilation depends on, and makes of them
// what the passes want. Where there are no samples seen is nil.
func (o *CompileOptions) passContext(seen *calib.Observer) (*passes.Context, error) {
	if o.Target == "" {
		o.Target = CPU
	}
	if _, err := ParseTarget(string(o.Target)); err != nil {
		return nil, err
	}
	c := &passes.Context{Masks: o.Prune.Masks, Store16: o.Target == CPU, Depthwise8: o.Target == CPU}
	if p := o.Profile; p != nil {
		if o.Target != CPU {
			return nil, option.Errorf("%v %s: profiles are of CPUs, want none where %v is %s", option.Profile, p.Name, option.Target, o.Target)
		}
		if err := p.Check(); err != nil {
			return nil, option.Errorf("%v %s: %v", option.Profile, p.Name, err)
		}
	}
	c.Formats, c.Model = o.Target.formats(o.Profile)
	c.Choose.Format, c.Choose.OneFormat, c.Choose.Small = choose.Auto, o.OneFormat, o.small
	for _, symbol := range slices.Sorted(maps.Keys(o.Open)) {
		if err := o.Open[symbol].Check(); err != nil {
			return nil, option.Errorf("%v %s=%v", option.Open, symbol, err)
		}
		if n, fixed := o.Dims[symbol]; fixed {
			return nil, option.Errorf("%v %s=%v, but %v %s=%d", option.Open, symbol, o.Open[symbol], option.Dims, symbol, n)
		}
	}
	switch {
	case o.Size < 0:
		return nil, option.Errorf("%v %d: want a size above 0, such as 10MB", option.FileSize, o.Size)
	case o.Size > 0 && o.Format != "" && o.Format != choose.Auto:
		return nil, option.Errorf("%v %s leaves %v no choice, want %s", option.Format, o.Format, option.FileSize, choose.Auto)
	case o.Size > 0 && o.Target != CPU:
		return nil, option.Errorf("%v %s: %v chooses among formats of the CPU", option.Target, o.Target, option.FileSize)
	case o.Size > 0:
		c.Choose.Sized = new(choose.Sized)
	}
	if o.OneFormat && o.Format == choose.PairFormat {
		return nil, option.Errorf("%v %s, but %v", option.Format, o.Format, option.OneFormat)
	}
	if o.Format != "" {
		if _, err := ParseFormat(string(o.Format)); err != nil {
			return nil, err
		}
		c.Choose.Format = string(o.Format)
	}
	if o.Progress != nil {
		c.Choose.Progress = func(done, total int) { o.Progress("choose", done, total) }
	}
	var err error
	if c.Quant, err = o.Quantize.pass(o.Target, seen); err != nil {
		return nil, err
	}
	if c.Quant != nil && !c.Quant.Integers() && !c.Quant.Rounds() {
		c.Choose.Half = c.Quant.Type
	}
	if c.Prune, err = o.Prune.pass(); err != nil {
		return nil, err
	}
	if o.Calibration.Cache != "" && o.Calibration.Identity == "" && seen != nil {
		return nil, option.Errorf("%v %s needs %v, by which samples of others are told", option.CalibrationCache, o.Calibration.Cache, option.CalibrationIdentity)
	}
	if c.Prune.Permute == "" && seen != nil { // which takes long beside what magnitudes do
		c.Prune.Permute = permute.Auto
	}
	c.Prune.Count = o.Calibration.Count
	if c.Quant != nil {
		c.Quant.Progress = o.Progress
	}
	c.Prune.Observer, c.Prune.Cache, c.Prune.Samples, c.Prune.Progress = seen, o.Calibration.Cache, o.Calibration.Identity, o.Progress
	if err := c.Prune.Check(); err != nil {
		return nil, err
	}
	if seen != nil && !c.Prune.Asks() && o.Quantize.Type != tensor.I8 && !o.Quantize.codes() {
		return nil, option.Errorf("%v has no use without %v, a %v that sets its own, or %v int8, int8w or int4", option.Calibration, option.Sparsity, option.Pattern, option.Quantize)
	}
	return c, nil
}

// open returns the sizes of open dimensions by their symbols in a graph.
func (o *CompileOptions) open(g *ir.Graph, info *onnx.Info) (map[string]Sizes, error) {
	open := map[string]bool{}
	for _, v := range g.Inputs {
		for _, d := range v.Type.Dims {
			open[d.Symbol()] = !d.Known() && !d.Fresh() && !d.Computed()
		}
	}
	sizes := map[string]Sizes{}
	for _, name := range slices.Sorted(maps.Keys(o.Open)) {
		symbol, named := info.Symbols[name]
		if !named && open[name] { // as messages call it
			symbol = name
		}
		switch {
		case open[symbol]:
			sizes[symbol] = o.Open[name]
		case named:
			return nil, option.Errorf("%v %s=%v: the dimension has a size, want an open one", option.Open, name, o.Open[name])
		case len(info.Symbols) == 0:
			return nil, option.Errorf("%v: no dimension is called %q: the model has no symbolic dimensions", option.Open, name)
		default:
			return nil, option.Errorf("%v: no dimension is called %q, want one of: %s", option.Open, name, strings.Join(slices.Sorted(maps.Keys(info.Symbols)), ", "))
		}
	}
	return sizes, nil
}

// pass makes of the options what the pass wants, but for the samples.
func (o *PruneOptions) pass() (fit.Options, error) {
	f := fit.Options{
		GraphOptions: prune.GraphOptions{Options: prune.Options{Pattern: o.Pattern, Sparsity: o.Sparsity}, KeepNone: o.KeepNone, KeepEnds: o.KeepEnds},
		Method:       o.Method, Refine: o.Refine, Allocate: o.Allocate, Permute: o.Permute, Aim: o.Aim, Unjudged: o.unjudged, Uncorrected: o.Uncorrected, Reconstruct: o.Reconstruct,
	}
	if err := prune.CheckSparsity(o.Pattern, o.Sparsity); err != nil {
		return f, err
	}
	if own, ok := o.Pattern.OwnSparsity(); ok {
		f.Sparsity = own
	}
	if o.KeepNone && o.KeepEnds {
		return f, option.Errorf("%v: none and ends exclude each other", option.Keep)
	}
	for _, l := range o.Layers {
		g, err := prune.ParseGlob(l.Glob)
		if err != nil {
			return f, option.Errorf("%v: %v", option.Layers, err)
		}
		if !(l.Sparsity >= 0 && l.Sparsity < 1) {
			return f, option.Errorf("%v: sparsity %v of %s, want at least 0 and below 1", option.Layers, l.Sparsity, l.Glob)
		}
		if own, ok := o.Pattern.OwnSparsity(); ok && l.Pattern == nil && prune.CheckSparsity(o.Pattern, l.Sparsity) != nil {
			return f, option.Errorf("%v %s=%v: %v %v sets its own, %.4g", option.Layers, l.Glob, l.Sparsity, option.Pattern, o.Pattern, own)
		}
		if least := o.Pattern.LeastSparsity(); l.Pattern == nil && l.Sparsity != 0 && prune.CheckSparsity(o.Pattern, l.Sparsity) != nil {
			return f, option.Errorf("%v %s=%v: %v %v has %.4g zeros within blocks, want 0 or at least that", option.Layers, l.Glob, l.Sparsity, option.Pattern, o.Pattern, least)
		}
		f.Targets = append(f.Targets, prune.LayerTarget{Glob: g, Sparsity: l.Sparsity, Pattern: l.Pattern})
	}
	if err := o.Reconstruct.Check(); err != nil {
		return f, option.Errorf("%v: %v", option.Reconstruct, err)
	}
	var err error
	if f.Keep, err = globs(option.Keep, o.Keep); err != nil {
		return f, err
	}
	if o.Reconstruct != nil || o.Aim == AimOutputs || o.Uncorrected || o.refines() {
		if !f.Asks() {
			return f, option.Errorf("%v has no use without %v, or a %v that sets its own", o.needless(), option.Sparsity, option.Pattern)
		}
	}
	return f, nil
}

// needless is a choice that makes no difference where nothing is pruned.
func (o *PruneOptions) needless() option.Name {
	switch {
	case o.Reconstruct != nil:
		return option.Reconstruct
	case o.Aim == AimOutputs:
		return option.Aim
	case o.refines():
		return option.Refine
	}
	return option.Uncorrected
}

// refines reports whether a refinement is asked for.
func (o *PruneOptions) refines() bool { return o.Refine != "" && o.Refine != Unrefined }

// pass makes of the options what the pass wants: nil where nothing is to be quantised.
func (o *QuantizeOptions) pass(t Target, seen *calib.Observer) (*quant.Options, error) {
	name, err := o.word()
	if err != nil {
		return nil, err
	}
	switch {
	case o.Type == 0 && len(o.KeepFloat) > 0:
		return nil, option.Errorf("%v %s has no use without %v", option.KeepFloat, o.KeepFloat[0], option.Quantize)
	case o.Type == 0 && o.KeepNone:
		return nil, option.Errorf("%v none has no use without %v", option.KeepFloat, option.Quantize)
	case !o.integers() && o.Ranges != Ranges{}:
		return nil, option.Errorf("%v %v has no use without %v int8", option.Ranges, o.Ranges, option.Quantize)
	case o.Block != 0 && !o.codes():
		return nil, option.Errorf("%v %v has no blocks, want none but of i4 and i8", option.Quantize, o.Type)
	case o.Type == 0:
		return nil, nil
	case o.integers() && seen == nil:
		return nil, option.Errorf("%v int8 needs %v, samples that show the ranges of activations", option.Quantize, option.Calibration)
	case o.codes() && o.KeepNone:
		return nil, option.Errorf("%v none has no use with %v %s, which no product is too sensitive for", option.KeepFloat, option.Quantize, name)
	case !o.integers() && t != CPU:
		return nil, fmt.Errorf("%w: %w", option.Errorf("%v %s: weights of %s are for the CPU, a GPU rounds them to its precision", option.Target, t, name), ErrUnsupported)
	}
	if err := o.Ranges.Check(); err != nil {
		return nil, err
	}
	q := &quant.Options{Type: o.Type, Observer: seen, Ranges: o.Ranges, All: o.KeepNone, Only: o.only, Depthwise: t == CPU}
	if o.codes() {
		q.Steps = steps.Steps{Bits: o.Type.Bits(), Block: cmp.Or(o.Block, steps.DefaultBlock)}
		if err := q.Steps.Check(); err != nil {
			return nil, option.Errorf("%v %s: %v", option.Quantize, name, err)
		}
	}
	q.KeepFloat, err = globs(option.KeepFloat, o.KeepFloat)
	return q, err
}

// pipeline makes of the options what the pipeline wants, with some passes left out.
func (o *CompileOptions) pipeline(k *kept) (passes.Options, error) {
	var leaveOut []string
	if k != nil {
		leaveOut = passes.With(passes.Unportable)
	}
	po := passes.Options{
		Disable: slices.Concat(leaveOut, o.Debug.Disable), StopAfter: o.Debug.StopAfter, Verify: o.Debug.Verify, Plan: o.Plan,
	}
	if o.Progress != nil {
		po.Progress = func(pass string, _, _ int) {
			if !passes.Staged(pass) { // which tell of stages themselves
				o.Progress(pass, 0, 1)
			}
		}
	}
	var err error
	if o.Debug.DumpDir != "" {
		po.Dump, err = passes.DumpTo(o.Debug.DumpDir)
	}
	if dump := po.Dump; k != nil {
		po.Dump = func(index int, pass string, g *ir.Graph) error {
			if err := k.seen(pass, g); err != nil || dump == nil {
				return err
			}
			return dump(index, pass, g)
		}
	}
	return po, err
}
