package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/internal/claims"
	"spc/ir/tensor"
	"spc/passes"
)

// patterns are what shells offer for --pattern.
var patterns = []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:4x1", "uniform-block:8x1", "channel", "head", "depth"}

// makeFlags are the flags that say what becomes of a model's weights.
type makeFlags struct {
	o            spc.CompileOptions
	keep, layers []string
	reconstruct  bool
	shapes       shapeFlags
	sizes        sizes // of these, once they are applied
	data         calibFlags
	quantise     quantFlags
	masks        string
	all          detail
}

// add adds the flags that say which weights become zero, and what others see.
func (f *makeFlags) add(c *cobra.Command) {
	fs, o := c.Flags(), &f.o.Prune
	fs.StringVar(&f.masks, "masks", "", "an npz `FILE` for where pruned weights are not zero, a bool array for each\nby its name, with _ for what a path inside a folder cannot hold")
	complete(c, "masks", files(0, "npz"))
	fs.Float64Var(&o.Sparsity, "sparsity", 0, "the fraction of zeros over all prunable weights")
	choiceVar(fs, &o.Pattern, "pattern", "uniform", spc.ParsePattern, "where zeros may lie: uniform, unstructured, N:M, block:RxC,\nuniform-block:RxC, either with +N:M within the blocks; channel, head or depth:\nwhole output channels, attention heads, or residual branches, are removed")
	choiceVar(fs, &o.Allocate, "allocate", "", spc.ParseAllocation, "layer: the same sparsity in each; global: the pattern's published threshold for\nall; with --calib also normalised: one threshold over comparable saliencies,\ncurves: by each layer's error curve, joint: by effects of layers together, and auto: the\nbest of all but global. By default auto with --calib, else layer")
	choiceVar(fs, &o.Method, "prune", "", spc.ParseMethod, methodHelp())
	choiceVar(fs, &o.Refine, "refine", string(spc.Unrefined), spc.ParseRefinement, refinementHelp())
	choiceVar(fs, &o.Permute, "permute", "", spc.ParsePermute, "auto: put channels in an order in which the pattern costs less, where it is N:M or\nhas blocks; none: leave them as they are. By default auto with --calib, else none")
	choiceVar(fs, &o.Aim, "aim", "", spc.ParseAim, "what layers stay near: the dense model's weights, or dense: its outputs. By default dense\nwhere --prune updates weights, else weights")
	fs.BoolVar(&f.reconstruct, "reconstruct", false, "afterwards change what is left by gradients, block by block, towards the dense\nmodel's outputs on --calib; takes minutes to hours")
	choiceVar(fs, &o.Reconstruct, "recipe", "", spc.ParseRecipe, "changes how --reconstruct trains, as in blocks=20,rate=0.01,model=60,model-rate=0.01:\nepochs and peak rates for each block and for the whole model, and gains, gain-rate,\ninside, warmup, batch, window, augment, seed; by default what suits the kind of model")
	fs.BoolVar(&o.Uncorrected, "uncorrected", false, "leave the means and variances of outputs as pruning with --calib makes them")
	fs.StringArrayVar(&f.keep, "keep", nil, "`GLOB` of layers that stay as they are. none lifts the exceptions: a first convolution\nof at most 4 channels, and the last layer below a tenth of the multiply-adds; ends\nmakes them for any first convolution and last layer")
	fs.StringArrayVar(&f.layers, "layer", nil, "`GLOB=S`: a sparsity of their own for some layers; GLOB=S,PATTERN, or GLOB=N:M, with\na pattern of their own besides")
	complete(c, "pattern", values(patterns...))
	complete(c, "allocate", values(names(spc.Allocations())...))
	complete(c, "permute", values(names(spc.Permutes())...))
	complete(c, "prune", values(names(spc.Methods())...))
	complete(c, "refine", values(names(spc.Refinements())...))
	complete(c, "aim", values(names(spc.Aims())...))
	f.data.add(c)
	f.quantise.add(c, &f.o.Quantize)
	f.shapes.add(fs)
	f.all.add(fs)
	quietFlag(fs)
}

// methodHelp is the help of --prune.
func methodHelp() string {
	var always, seen []string
	for _, m := range spc.Methods() {
		which, samples := m.Doc()
		text := fmt.Sprintf("%s: %s", m, which)
		if samples {
			seen = append(seen, text)
		} else {
			always = append(always, text)
		}
	}
	return wrapped(fmt.Sprintf("what goes: %s; with --calib also %s. By default obs with --calib, else magnitude", strings.Join(always, ", "), strings.Join(seen, ", ")))
}

// refinementHelp is the help of --refine.
func refinementHelp() string {
	var list []string
	for _, r := range spc.Refinements() {
		list = append(list, fmt.Sprintf("%s: %s", r, r.Doc()))
	}
	return wrapped("what becomes of what --prune chose, with --calib: " + strings.Join(list, "; "))
}

// of sets the model.
func (f *makeFlags) of(path string) error {
	f.o.Model = path
	spx, err := isSPX(path)
	if err == nil && spx {
		err = fmt.Errorf("%s is compiled already, want an .onnx file", path)
	}
	return err
}

// apply sets the options of the model. What it returns closes the samples when the
// compilation is done.
func (f *makeFlags) apply(c *cobra.Command) (func(), error) {
	fs, o := c.Flags(), &f.o.Prune
	s, err := f.shapes.parse()
	if err != nil {
		return nil, err
	}
	f.sizes, f.o.Shapes, f.o.Dims, f.o.Open = s, s.shapes, s.dims, s.open
	for _, text := range f.layers {
		l, err := spc.ParseLayerSparsity(text)
		if err != nil {
			return nil, err
		}
		o.Layers = append(o.Layers, l)
	}
	o.Keep, o.KeepNone = part(f.keep, none)
	o.Keep, o.KeepEnds = part(o.Keep, ends)
	o.Masks = f.masks != ""
	f.quantise.apply(&f.o.Quantize)
	if err := cmp.Or(f.quantise.needless(f.searches(fs)), f.needless(fs)); err != nil {
		return nil, err
	}
	if f.reconstruct && o.Reconstruct == nil {
		o.Reconstruct = spc.Recipe{}
	}
	f.o.Command = commandOf(c, f.o.Model)
	return f.data.apply(c, &f.o, s)
}

// searches reports whether programs are built and measured for a budget: --size alone only says what formats may take where no samples
// show what zeros cost, or where weights become codes.
func (f *makeFlags) searches(fs *pflag.FlagSet) bool {
	alone := fs.Changed("size") && !given(fs, []string{"pareto", "speedup", "max-drop", "latency", "flops"}) && (!fs.Changed("calib") || f.quantise.codes())
	return given(fs, budgetNames) && !alone
}

// needless returns an error for a flag that was given and makes no difference, as far as the
// options do not show that it was.
func (f *makeFlags) needless(fs *pflag.FlagSet) error {
	o := &f.o.Prune
	own, sets := o.Pattern.OwnSparsity()
	switch {
	case fs.Changed("ranges") && (f.o.Quantize.Type != tensor.I8 || f.o.Quantize.Block != 0):
		return fmt.Errorf("--ranges %v has no use without --quantize int8", f.o.Quantize.Ranges)
	case fs.Changed("recipe") && !f.reconstruct:
		return fmt.Errorf("--recipe %v has no use without --reconstruct", fs.Lookup("recipe").Value)
	case sets && fs.Changed("sparsity") && o.Sparsity == 0:
		return fmt.Errorf("--sparsity 0, but --pattern %v sets its own, %.4g", o.Pattern, own)
	case sets || len(o.Layers) > 0 || fs.Changed("sparsity") || f.searches(fs):
		return nil
	}
	for _, name := range []string{"prune", "refine", "allocate", "permute"} {
		if fs.Changed(name) {
			return fmt.Errorf("--%s has no use without --sparsity, or a pattern that sets its own", name)
		}
	}
	if fs.Changed("pattern") {
		return fmt.Errorf("--pattern %v has no use without --sparsity", o.Pattern)
	}
	return nil
}

// collectEarly keeps the peak of memory near two copies of the weights, which are most
// of the heap while passes replace them.
func collectEarly() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(20)
	}
}

// compileFlags are the flags of compile.
type compileFlags struct {
	makeFlags
	measureFlags
	within budgetFlags
	out    string
	tune   bool
	asJSON bool
}

// commandOnly lists the flags of what a command writes or measures, which a model that is compiled to run at once has no use for.
var commandOnly = append([]string{"output", "tune", "stop-after", "masks", "dump-passes", "memory"}, budgetNames...)

func compileCommand() *cobra.Command { return new(compileFlags).command() }

func (f *compileFlags) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "compile MODEL.onnx",
		Short: "Compile an ONNX model into an .spx file",
		Long: `Compile an ONNX model into an .spx file: prune its weights to a sparsity, choose
a storage format for each, and write the program. Without --sparsity, weights stay
as they are; those of a model that arrives sparse keep their zeros.

Without --calib the smallest weights go. Most models that were not trained for that are
ruined where half of them are gone; some hundred samples of what a model sees, given as
--calib, keep it far better. spc eval tells how accurate a model is.`,
		Example: `  spc compile model.onnx -o model.spx --sparsity 0.8
  spc compile model.onnx -o model.spx --sparsity 0.6 --calib photos/ --preprocess imagenet
  spc compile model.onnx -o model.spx --pattern 2:4
  spc compile model.onnx -o model.spx --sparsity 0.5 --allocate global --keep '*head*'
  spc compile model.onnx -o model.spx --sparsity 0.5 --layer '/layer1*=0.9'
  spc compile model.onnx -o model.spx --quantize int8 --calib photos/ --preprocess imagenet
  spc compile model.onnx -o model.spx --sparsity 0.8 --tune
  spc compile model.onnx --stop-after fold`,
		Args:              usage(1, 1),
		ValidArgsFunction: files(1, "onnx"),
	}
	fs := c.Flags()
	f.shapes.open = true
	fs.StringVarP(&f.out, "output", "o", "", "the .spx `FILE` to write; by default the model's name with .spx, in the current folder")
	f.makeFlags.add(c)
	targets := names(spc.Targets())
	choiceVar(fs, &f.o.Format, "format", "auto", spc.ParseFormat, "the storage format: "+strings.Join(formats(), ", "))
	fs.BoolVar(&f.tune, "tune", false, "choose formats by what they take on this machine, see spc tune")
	f.measureFlags.add(c)
	f.within.add(c)
	fs.BoolVar(&f.o.OneFormat, "one-format", false, "keep no weight in two formats, one for few columns and one for many")
	choiceVar(fs, &f.o.Target, "target", "cpu", spc.ParseTarget, "the device that formats are chosen for: "+strings.Join(targets, ", ")+";\nGPUs are taken to compute in 16-bit floats")
	choiceVar(fs, &f.o.Profile, "profile", "default", findProfile, "the speed of the CPU that formats are chosen for: "+strings.Join(spc.Profiles(), ", ")+",\nnative for this machine's, which spc devices --measure stores, or a `FILE`")
	fs.StringVar(&f.o.Debug.StopAfter, "stop-after", "", "the last `PASS` that runs; without -o the graph is printed")
	fs.StringVar(&f.o.Debug.DumpDir, "dump-passes", "", "a `DIR` for the graph's text after each pass and, where the\nshapes of its inputs are known, each step of the CPU's lowering")
	fs.StringArrayVar(&f.o.Debug.Disable, "disable", nil, "a `PASS` that does not run")
	addConfig(c)
	groupFlags(c)
	jsonFlag(fs, &f.asJSON)
	complete(c, "output", files(0, "spx"))
	complete(c, "format", values(formats()...))
	complete(c, "target", values(targets...))
	complete(c, "profile", files(0, "json"))
	complete(c, "stop-after", values(passes.Names()...))
	complete(c, "disable", values(passes.Names()...))
	complete(c, "dump-passes", folders)

	c.RunE = f.run
	return c
}

// frontAlone reports whether all that is asked for is a front.
func (f *compileFlags) frontAlone(c *cobra.Command) bool {
	return f.searches(c.Flags()) && !given(c.Flags(), budgetLimits)
}

// prints reports whether the graph is printed in the place of a file.
func (f *compileFlags) prints() bool { return f.o.Debug.StopAfter != "" && f.out == "" }

// check refuses, before the work begins, flags that do not go together, and files that cannot be written. It names the file of the model where
// there is to be one.
func (f *compileFlags) check(c *cobra.Command, model string) (files outputs, err error) {
	if err := f.of(model); err != nil {
		return files, err
	}
	if err := f.within.needless(c, f.searches(c.Flags())); err != nil {
		return files, err
	}
	switch {
	case f.prints() && f.masks != "":
		return files, fmt.Errorf("--masks %s needs -o: without, --stop-after prints the graph and writes no files", f.masks)
	case f.tune && c.Flags().Changed("size"):
		return files, errors.New("--tune and --size exclude each other, want one of them")
	case f.tune && f.o.Target != "" && f.o.Target != spc.CPU:
		return files, fmt.Errorf("--tune measures this machine's CPU, but --target is %s", f.o.Target)
	case f.frontAlone(c) && f.out != "":
		return files, fmt.Errorf("-o %s has no use with --pareto alone, which keeps no program: give a budget, too", f.out)
	case !f.prints() && !f.frontAlone(c) && f.out == "":
		base := filepath.Base(model)
		f.out = strings.TrimSuffix(base, filepath.Ext(base)) + ".spx"
	}
	if f.within.pareto != "" {
		if err := checkFront(f.within.pareto); err != nil {
			return files, err
		}
	}
	files = outputs{model: f.out, masks: f.masks, cache: f.data.cache, timings: f.timings, dump: f.o.Debug.DumpDir}
	if err := files.check(); err != nil {
		return files, err
	}
	if strings.EqualFold(filepath.Ext(f.out), ".onnx") {
		return files, fmt.Errorf("-o %s, want an .spx file; spc prune writes ONNX models", f.out)
	}
	return files, nil
}

// run runs the command.
func (f *compileFlags) run(c *cobra.Command, args []string) error {
	collectEarly()
	prints := f.prints()
	files, err := f.check(c, args[0])
	if err != nil {
		return err
	}
	p := newProgress(c)
	defer p.close()
	done, err := f.apply(c)
	if err != nil {
		return err
	}
	defer done()
	var measure spc.TuneOptions
	var after []spc.Stage
	if f.tune {
		if measure, err = f.measureFlags.options(c); err != nil {
			return err
		}
		after = spc.TuneStages(f.budget)
	}
	if f.out != "" {
		p.writes(f.o.Model, after...)
	}
	pace := begin()
	m, err := f.compile(c, p)
	if err != nil || m == nil { // of which nothing is to be written
		return err
	}
	defer m.Close()
	if f.tune {
		if m, err = tuneModel(c, p, m, measure); err != nil {
			return fmt.Errorf("%s: %w", f.o.Model, err)
		}
		defer m.Close()
	}
	if prints {
		p.close()
		_, err := io.WriteString(c.OutOrStdout(), m.Graph())
		return err
	}
	warnOf(c, m.Explain())
	p.At(writeStage, 0, 1)
	if err := files.write(c.Context(), inOne{m}); err != nil {
		return err
	}
	p.close()
	hintOf(c, m.Explain())
	return errors.Join(f.tell(c, m), pace.tell(c, f.asJSON, m.Explain()))
}

// tell prints what became of a model that was written.
func (f *compileFlags) tell(c *cobra.Command, m *spc.Model) error {
	if f.asJSON {
		return printReport(c.OutOrStdout(), *m.Explain())
	}
	if !choosesFormats(m.Explain()) {
		stopped := ""
		if f.o.Debug.StopAfter != "" {
			stopped = ", stopped after " + f.o.Debug.StopAfter
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s  %s%s, no formats were chosen\n", printable(f.out), fileSize(f.out), stopped)
		return err
	}
	return printCompiled(c.OutOrStdout(), m.Explain(), f.o.Model, f.out, f.all)
}

// compile compiles the model, for a budget where there is one; nil where no model was asked for.
func (f *compileFlags) compile(c *cobra.Command, p *progress) (*spc.Model, error) {
	if f.out != "" && !f.tune { // which compares models that share weights
		f.o.Spool = claims.Folder(f.out)
	}
	f.o.Calibration.Spool = claims.Folder(cmp.Or(f.out, f.within.pareto))
	if f.searches(c.Flags()) {
		return f.compileWithin(c, p)
	}
	f.o.Size = f.within.size
	return compileModel(c, f.o)
}

// printCompiled prints what became of the model in a few lines.
func printCompiled(w io.Writer, r *spc.Report, model, out string, all detail) error {
	t := r.Totals
	before, err := os.Stat(model)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s  %s, from %s of %s\n", printable(out), fileSize(out), printable(model), size(before.Size()))
	fmt.Fprintf(w, "weights   %d in %s, %s stored, %s dense\n", t.Weights, plural(len(r.Layers), "layer"), size(int64(t.StoredBytes)), size(int64(t.DenseBytes)))
	fmt.Fprintln(w, zeros(r))
	printRebuilt(w, r, "%-9s %s\n", all)
	spilled(w, r)
	if text := formatCounts(byFormat(r.Layers)); text != "" {
		fmt.Fprintf(w, "formats   %s\n", text)
	}
	printOpen(w, r)
	printTimes(w, r)
	printTuned(w, r)
	if err := printQuantised(w, r, all); err != nil {
		return err
	}
	printRecognised(w, r, all)
	printTransposes(w, r, all)
	printRemoved(w, r, "%-9s ", "they count as zeros")
	if r.Prune != nil {
		var bounded []string
		for _, l := range r.Prune.Layers {
			if l.Bounded > 0 {
				bounded = append(bounded, fmt.Sprintf("%s (%s)", printable(l.Node), plural(l.Bounded, "row")))
			}
		}
		if len(bounded) > 0 {
			fmt.Fprintf(w, "kept one nonzero a row: %s\n", all.list(bounded))
		}
	}
	return nil
}

// printTimes says how long a run takes: as it was measured for a budget, else what is predicted.
func printTimes(w io.Writer, r *spc.Report) {
	if !printBudget(w, r) {
		printPredicted(w, r)
	}
}

// printPredicted says how long a run will take, and how long it would were all weights dense.
func printPredicted(w io.Writer, r *spc.Report) {
	switch {
	case r.Predicted != nil:
		fmt.Fprintln(w, predictedText(r.Predicted, r))
	case r.Options.Target == string(spc.CPU) && len(r.Open) > 0:
		fmt.Fprintln(w, "predicted no time, as sizes of inputs are open; spc bench MODEL --dim SYMBOL=N predicts a run")
	}
}

// basis says what predictions for a model go by.
func basis(r *spc.Report) string {
	text := "the profile " + r.Options.CPU().Name
	if t := r.Tuned; t != nil && t.Measured+t.Known > 0 {
		text += ", and what tuning measured on " + plural(t.Threads, "thread")
	}
	return text
}

// sparsified reports whether weights of the model were made zero, and stay.
func sparsified(r *spc.Report) bool {
	return r.Prune != nil && r.Prune.Asks && removed(r) == 0 && r.Totals.Nonzeros < r.Totals.Weights
}

// removed counts the weights that went with whole channels, heads or branches.
func removed(r *spc.Report) (n int) {
	if r.Prune != nil {
		for _, l := range r.Prune.Layers {
			n += l.Removed
		}
	}
	return n
}

// printRemoved says how many weights went with what is whole, and how they count; the line begins with a word in some form.
func printRemoved(w io.Writer, r *spc.Report, form, count string) {
	n := removed(r)
	if n == 0 {
		return
	}
	what := "channels"
	switch r.Prune.Pattern {
	case (spc.Pattern{Kind: spc.Head}).String():
		what = "attention heads"
	case (spc.Pattern{Kind: spc.Depth}).String():
		what = "residual branches"
	}
	fmt.Fprintf(w, form+"%d of the weights, with whole %s; %s\n", "removed", n, what, count)
}

// predictedText says what a run of a model takes, and where that is less or was meant to be, what it would take dense.
func predictedText(p *spc.PredictedRun, r *spc.Report) string {
	text := fmt.Sprintf("predicted %s on %s", millis(p.Ms), plural(p.Threads, "thread"))
	if p.DenseMs > 1.005*p.Ms || sparsified(r) {
		text += fmt.Sprintf(", dense %s, %.1fx", millis(p.DenseMs), p.DenseMs/p.Ms)
	}
	text += ", by " + basis(r)
	if p.Unsized > 0 {
		text += fmt.Sprintf("; without %s of unknown size", plural(p.Unsized, "node"))
	}
	return text
}

// millis writes milliseconds, which have three digits.
func millis(ms float64) string {
	return strconv.FormatFloat(math.Round(1e6*ms)/1e6, 'f', -1, 64) + " ms"
}

// printRebuilt says what samples did for the weights that are left, in lines of a word
// and what it stands for.
func printRebuilt(w io.Writer, r *spc.Report, line string, all detail) {
	unseen := blind(r)
	text := ""
	if len(unseen) > 0 {
		text = "by magnitude: " + all.list(unseen)
	}
	for _, l := range [][2]string{{"pruned", fitted(r)}, {"unseen", text}, {"rebuilt", reconstructed(r, all)}} {
		if l[1] != "" {
			fmt.Fprintf(w, line, l[0], l[1])
		}
	}
}

// blind lists the layers that were pruned by magnitude since samples do not show their
// inputs, and why.
func blind(r *spc.Report) (out []string) {
	if r.Prune == nil {
		return nil
	}
	for _, l := range r.Prune.Layers {
		if l.Unseen != "" {
			out = append(out, fmt.Sprintf("%s (%s)", printable(l.Node), l.Unseen))
		}
	}
	return out
}

// warnOf prints what was asked for and not done.
func warnOf(c *cobra.Command, r *spc.Report) {
	for _, w := range r.Warnings() {
		warn(c, printable(w))
	}
}

// zeros says how many there are.
func zeros(r *spc.Report) string {
	t := r.Totals
	return fmt.Sprintf("zeros     %s of all weights, %s of the %d prunable", percent(share(t.Weights-t.Nonzeros, t.Weights)), percent(share(t.PrunableZeros, t.Prunable)), t.Prunable)
}

// detail says how lists are printed whose length is the model's: the first few of their texts, or all.
type detail bool

// add adds --verbose.
func (all *detail) add(fs *pflag.FlagSet) {
	fs.BoolVar((*bool)(all), "verbose", false, "print lists whole, a name in each line")
}

// list joins texts: all, a line for each, or the first few, and how many more there are.
func (all detail) list(texts []string) string {
	const (
		most    = 5
		letters = 200
	)
	if all {
		return "\n    " + strings.Join(texts, "\n    ")
	}
	long := 0
	for i, s := range texts {
		if long += len(s); i > 0 && (i >= most || long > letters) {
			if n := len(texts) - i; n > 1 {
				return strings.Join(append(texts[:i:i], fmt.Sprintf("and %d more, which --verbose lists", n)), ", ")
			}
			break
		}
	}
	return strings.Join(texts, ", ")
}

// printRecognised says how many attentions, norms, rotary embeddings and activations there are, and what looks like one and is none.
func printRecognised(w io.Writer, r *spc.Report, all detail) {
	k := r.Recognised
	if k == nil {
		return
	}
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{{k.Attentions, "attention"}, {k.Norms, "norm"}, {k.Rotaries, "rotary embedding"}, {k.Activations, "activation"}} {
		if c.n > 0 {
			parts = append(parts, plural(c.n, c.what))
		}
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "recognised %s\n", strings.Join(parts, ", "))
	}
	var missed []string
	for _, m := range k.Missed {
		missed = append(missed, fmt.Sprintf("%s at %s (%s)", m.What, printable(m.Node), printable(m.Reason)))
	}
	if len(missed) > 0 {
		fmt.Fprintf(w, "not recognised, though it looks like one: %s\n", all.list(missed))
	}
}

// printTransposes says how many are left, and which with all details.
func printTransposes(w io.Writer, r *spc.Report, all detail) {
	n := len(r.Transposes)
	if n == 0 {
		return
	}
	names := ""
	if all {
		names = ":" + all.list(printables(r.Transposes))
	}
	fmt.Fprintf(w, "left over %s that nothing could absorb%s\n", plural(n, "Transpose"), names)
}

// printQuantised prints what was quantised, if anything was to be.
func printQuantised(w io.Writer, r *spc.Report, all detail) error {
	q := r.Quant
	if q == nil {
		return nil
	}
	what, unit := "quantised", "product"
	if q.Type != tensor.I8.String() {
		what, unit = "as "+q.Type, "weight"
	}
	fmt.Fprintf(w, "%-9s %s", what, plural(q.Products, unit))
	if q.Error > 0 {
		fmt.Fprintf(w, ", changed by %.3g%%", 100*q.Error)
	}
	if q.Divergence > 0 {
		fmt.Fprintf(w, ", the outputs diverge by %s", nats(q.Divergence, 2))
	}
	if len(q.Kept) > 0 {
		var names []string
		for _, k := range q.Kept {
			if n := printable(k.Node); !slices.Contains(names, n) { // which may read several weights
				names = append(names, n)
			}
		}
		fmt.Fprintf(w, "; not %s", all.list(names))
	}
	_, err := fmt.Fprintln(w)
	return err
}

func fileSize(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "?"
	}
	return size(info.Size())
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
