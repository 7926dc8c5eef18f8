package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spc"
	"spc/client"
	"spc/data"
	"spc/internal/atomicfile"
	"spc/internal/claims"
	"spc/internal/pace"
	"spc/internal/reduce"
	"spc/internal/verify"
	"spc/ir/tensor"
)

// verification is what verify prints.
type verification struct {
	Model     string        `json:"model"`     // what was judged
	Reference string        `json:"reference"` // what it was compared with
	Outputs   []*comparison `json:"outputs"`
	Tolerance number        `json:"tolerance"`
	// For is the type in use whose default the tolerance is, empty where it was given.
	For string `json:"tolerance_for,omitempty"`
	// Seeds is how often inputs were made up; the worst of these runs counts. 0 where all inputs were given.
	Seeds int `json:"seeds,omitempty"`
	// Passed is the largest relative l2 error that the passes give the original with its own
	// weights, where the reference is no original.
	Passed *number `json:"passes_rel_l2,omitempty"`
	// Original compares the model with the original, where the reference is another; no
	// bound applies.
	Original []*comparison `json:"original,omitempty"`
	// Interpreted compares the interpreter with the stored outputs, where the model fails.
	Interpreted []*comparison `json:"interpreted,omitempty"`
	Fault       *faultReport  `json:"fault,omitempty"`
	Reduced     *reduced      `json:"reduced,omitempty"`
	Pass        bool          `json:"pass"`

	served bool // by another, which does not show its nodes
}

// faultReport is where a model first differs.
type faultReport struct {
	Stage     string   `json:"stage"` // run, pass or weights
	Node      string   `json:"node"`
	Op        string   `json:"op"`
	Output    string   `json:"output"`
	After     string   `json:"after"`
	Pass      string   `json:"pass,omitempty"`
	Constants []string `json:"constants,omitempty"`
	MaxAbs    number   `json:"max_abs"`
	RelL2     number   `json:"rel_l2"`
	Unequal   string   `json:"unequal,omitempty"`

	text string
}

// reduced is the case that --reduce wrote.
type reduced struct {
	Model  string `json:"model"`
	Folder string `json:"folder"`
	Nodes  int    `json:"nodes"`
	RelL2  number `json:"rel_l2"`
}

// The values of --against.
const (
	againstOriginal = "original"
	againstCompiled = "compiled"
)

// verifier is one run of the command.
type verifier struct {
	c         *cobra.Command
	against   string
	expect    []string
	repro     string
	tolerance float64
	given     bool // the tolerance
	seeds     int
	inputs    inputFlags
	shapes    shapeFlags
	device    deviceFlags
	remote    remoteFlags
	sizes     sizes

	paths []string
	a, b  *side                     // a is judged; b is the reference, nil where outputs are stored
	want  map[string]*tensor.Tensor // stored outputs
	ref   *spc.Reference            // of a, where it is compiled and b is interpreted or nil
	bad   map[string]*tensor.Tensor // the first inputs on which the outputs differ
}

func verifyCommand() *cobra.Command {
	v := &verifier{}
	c := &cobra.Command{
		Use:   "verify A.{spx,onnx}|URL [B.{spx,onnx}|URL]",
		Short: "Check what a model computes against its ONNX model, another, or stored outputs",
		Long: `Run two models on the same inputs, given or random, and show how far the outputs of
the one lie from those of the other. Inputs not given are made up from the seeds 1 to
--seeds; of several runs, the worst counts.

An .onnx file is evaluated as it was imported, by an interpreter without passes, memory
plan and kernels, and is the reference; of two models of one kind the second is. A single
.onnx file is compiled in memory and compared with itself. Where an .spx was pruned or
quantised, the interpreter takes its weights, and how far it lies from the original is
shown without a bound. --against original takes the original's weights; --against
compiled compiles every .onnx, in place of the interpreter.

--expect compares a single model with stored outputs: of NAME=FILE, or of a folder
that has input_K and output_K in the model's order, as official test cases have, or
NAME, as run -o writes, each .pb or .npy; of outputs that it lacks a line warns. Inputs
in the folder are taken, too.

Integers, bools and strings must be equal, and NaN matches only NaN. Where they are
not, or an output's relative l2 error |a-b| / max(|b|, 1e-12) is above --tolerance,
the exit status is 1, and the first node in the order of execution with an output
that differs by more is named. --reduce writes the smallest part of the .onnx around
it which, compiled, still differs, with its inputs and the outputs that it should have:
spc verify repro.onnx --expect repro then fails, too. Without --tolerance the bound is
that of the least exact type that values have: ` + defaults() + `.

` + urlHelp + ` What the server answers is judged
by the file beside it, in any order, or by --expect. What weights and types the server's
model has is not known: where it was pruned or quantised, compare it with its .spx.`,
		Example: `  spc verify model.spx model.onnx
  spc verify model.onnx
  spc verify model.onnx model.spx -i input=cat.npy --json
  spc verify model.spx -i cat.npy --expect logits=out/logits.npy
  spc verify model.onnx --expect testcase
  spc verify model.spx model.onnx --reduce repro.onnx
  spc verify model.onnx http://localhost:8080/v2/models/model
  spc verify model.spx model.onnx --against original --tolerance 1e-4`,
		Args:              usage(1, 2),
		ValidArgsFunction: files(2, "spx", "onnx"),
	}
	v.c = c
	v.inputs.add(c)
	fs := c.Flags()
	fs.IntVar(&v.seeds, "seeds", 3, "how many random inputs to compare on")
	fs.Float64Var(&v.tolerance, "tolerance", 0, "the largest relative l2 error that passes")
	fs.StringVar(&v.against, "against", "", "the `REFERENCE` that an .onnx file is: original, as it was imported, also for an\n.spx with other weights; or compiled, compiled in memory")
	fs.StringArrayVar(&v.expect, "expect", nil, "compare with outputs that are stored in `NAME=FILE` or in a folder")
	fs.StringVar(&v.repro, "reduce", "", "write the smallest part that differs to this .onnx `FILE`, and its inputs and\noutputs to the folder of its name")
	v.device.add(c, "the first compiled model")
	v.remote.add(c)
	v.shapes.add(fs)
	addModelFlags(fs)
	var asJSON bool
	jsonFlag(fs, &asJSON)
	completeVerify(c)

	c.RunE = func(c *cobra.Command, args []string) error {
		v.paths, v.given = args, fs.Changed("tolerance")
		result, err := v.verify()
		if err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(c.OutOrStdout(), result); err != nil {
				return err
			}
		} else {
			result.print(c.OutOrStdout())
		}
		if !result.Pass {
			return errFailed
		}
		return nil
	}
	return c
}

// completeVerify sets how values of the command's own flags are completed.
func completeVerify(c *cobra.Command) {
	complete(c, "seeds", cobra.NoFileCompletions)
	complete(c, "tolerance", cobra.NoFileCompletions)
	complete(c, "against", values(againstOriginal, againstCompiled))
	complete(c, "expect", expected)
	complete(c, "reduce", files(0, "onnx"))
}

// expected completes --expect: folders, and after NAME= files.
func expected(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(typed, "=") {
		return []string{"npy", "pb"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// defaults lists the default tolerances.
func defaults() string {
	var s []string
	for _, t := range slices.Backward(verify.Tolerances) {
		s = append(s, fmt.Sprintf("%s %g", t.For, t.RelL2))
	}
	return strings.Join(s, ", ")
}

// check refuses flags that contradict each other.
func (v *verifier) check() error {
	switch {
	case v.seeds < 1:
		return fmt.Errorf("--seeds %d, want 1 or more", v.seeds)
	case v.given && !(v.tolerance >= 0):
		return fmt.Errorf("--tolerance %v, want a number from 0", v.tolerance)
	case v.against != "" && v.against != againstOriginal && v.against != againstCompiled:
		return fmt.Errorf("--against %q, want original or compiled", v.against)
	case len(v.expect) > 0 && len(v.paths) > 1:
		return fmt.Errorf("--expect takes the place of a second model, here %s", v.paths[1])
	case len(v.expect) > 0 && v.against != "":
		return fmt.Errorf("--expect and --against %s contradict each other", v.against)
	case len(v.paths) == 1 && v.against == againstCompiled:
		return fmt.Errorf("--against compiled needs two models")
	case v.c.Flags().Changed("reduce") && filepath.Ext(v.repro) != ".onnx":
		return fmt.Errorf("--reduce %s, want an .onnx file", v.repro)
	}
	return v.checkURL()
}

// checkURL refuses flags that have no meaning with a URL among the models, or without.
func (v *verifier) checkURL() error {
	i, fs := slices.IndexFunc(v.paths, client.IsURL), v.c.Flags()
	switch {
	case i < 0:
		return refuse(fs, "without a URL", remoteNames...)
	case v.against == againstOriginal:
		return fmt.Errorf("--against original has no meaning for %s, whose weights are not known", v.paths[i])
	case len(v.paths) == 1 && fs.Changed("dim"):
		return fmt.Errorf("--dim has no meaning for %s, whose sizes have no names; give --shape NAME=DIMS", v.paths[i])
	}
	return refuse(fs, "for "+v.paths[i]+": its server decides how it runs", ofServer...)
}

// open opens the models. One that is compiled comes first, on the device of the flags.
func (v *verifier) open() error {
	var sides []*side
	compiled := 0
	for _, path := range v.paths {
		if client.IsURL(path) {
			r, err := v.remote.openURL(v.c.Context(), path)
			if err != nil {
				return err
			}
			s := &side{path: path, remote: r}
			if sides = append(sides, s); v.a == nil || v.a.remote == nil {
				v.b, v.a = v.a, s
			}
			continue
		}
		spx, err := isSPX(path)
		if err != nil {
			return err
		}
		s := &side{path: path}
		sides = append(sides, s)
		if spx || v.against == againstCompiled || len(v.paths) == 1 {
			compiled++
			if v.a == nil {
				v.a = s
				if err := v.device.open(v.c); err != nil {
					return err
				}
			}
			o := v.device.run
			if v.a != s {
				o.Device = nil
			}
			if s.model, err = loadModel(v.c, path, v.sizes, o); err != nil {
				return err
			}
		}
		if !spx && v.against != againstCompiled {
			if s.original, err = spc.Import(v.c.Context(), spc.ImportOptions{Model: path, Shapes: v.sizes.shapes, Dims: v.sizes.dims}); err != nil {
				return err
			}
		}
	}
	if v.a == nil {
		v.a = sides[0]
	}
	for _, s := range sides {
		if s != v.a {
			v.b = s
		}
	}
	switch one := len(sides) == 1; {
	case one && len(v.expect) == 0 && v.a.remote != nil:
		return fmt.Errorf("%s: want the .onnx or .spx that it should compute, too, or --expect", v.a.path)
	case one && len(v.expect) == 0 && v.a.original == nil:
		return fmt.Errorf("%s: want the .onnx that it was compiled from, too, or --expect", v.a.path)
	case one && len(v.expect) == 0:
		v.b = &side{path: v.a.path, original: v.a.original}
	case !one && compiled != 1 && v.against == againstOriginal:
		return fmt.Errorf("--against original needs a compiled model and an .onnx file")
	}
	if v.repro != "" && v.originalOf() == nil {
		return fmt.Errorf("--reduce needs an .onnx file that is compared with a compiled model")
	}
	return nil
}

// originalOf is the ONNX model that the compiled one was made from, nil where it is not at
// hand or not compared with.
func (v *verifier) originalOf() *spc.Original {
	switch {
	case v.a.model == nil:
		return nil
	case v.b == nil:
		return v.a.original
	case v.b.model == nil:
		return v.b.original
	}
	return nil
}

// name is that of the models in errors.
func (v *verifier) name() string {
	if v.b == nil || v.b.path == v.a.path {
		return v.a.path
	}
	return v.paths[0] + " and " + v.paths[1]
}

// verify does what the command says.
func (v *verifier) verify() (*verification, error) {
	const interpreted = 50 // times the time of a run
	p := newProgress(v.c)
	defer p.close()
	p.runs(v.paths[0], pace.Even("verify", v.seeds, interpreted))
	if err := v.check(); err != nil {
		return nil, err
	}
	var err error
	if v.sizes, err = v.shapes.parse(); err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range []*side{v.a, v.b} {
			if s != nil {
				s.close()
			}
		}
	}()
	if err := v.open(); err != nil {
		return nil, err
	}
	r := &request{ports: v.a.inputs(), sizes: v.sizes, norm: func() (data.Norm, error) { return v.inputs.norm.norm(v.c.Flags()) }}
	if v.b != nil {
		if err := samePorts(v.a, v.b); err != nil {
			return nil, err
		}
		if known, others := r.ports, v.b.inputs(); v.a.remote != nil {
			r.ports = tighter(others, known) // whose sizes have names
		} else {
			r.ports = tighter(known, others)
		}
	}
	if r.sources, err = v.inputs.sources(r.ports); err != nil {
		return nil, fmt.Errorf("%s: %w", v.name(), err)
	}
	if len(v.expect) > 0 {
		if err := v.stored(r); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name(), err)
		}
	}
	if err := v.checkReduce(r); err != nil {
		return nil, err
	}
	result, err := v.begin()
	if err != nil {
		return nil, err
	}
	seeds := v.seeds
	if len(r.sources) == len(r.ports) || v.b == nil {
		seeds = 1 // nothing is made up
	} else {
		result.Seeds = seeds
	}
	p.Plan(nil)
	for seed := range seeds {
		p.At("verify", seed, seeds)
		if v.b != nil {
			r.missing = &data.Random{Seed: uint64(seed + 1)}
		}
		if err := v.compare(result, r); err != nil {
			return nil, err
		}
	}
	if !result.Pass && v.a.remote == nil { // whose nodes nobody sees
		if err := v.locate(result, p); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// begin finds out what the reference is, and what tolerance holds.
func (v *verifier) begin() (*verification, error) {
	result := &verification{Model: v.a.about(), Pass: true, served: v.a.remote != nil}
	var t verify.Tolerance
	for _, s := range []*side{v.a, v.b} {
		if s == nil {
			continue
		}
		if own := s.tolerance(); own.RelL2 > t.RelL2 {
			t = own
		}
	}
	result.For = t.For
	if v.given {
		t.RelL2, result.For = v.tolerance, ""
	}
	v.tolerance, result.Tolerance = t.RelL2, number(t.RelL2)
	for _, p := range v.a.outputs() {
		if v.b != nil || v.want[p.Name] != nil {
			result.Outputs = append(result.Outputs, &comparison{Name: p.Name})
		}
	}
	var err error
	switch o := v.originalOf(); {
	case v.b == nil:
		result.Reference = "the stored outputs of " + strings.Join(v.expect, ", ")
		if v.a.remote != nil {
			break
		}
		if v.a.model.Altered() != "" {
			o = nil // of what is stored nothing tells of which weights it is
		}
		v.ref, err = v.a.model.Reference(v.c.Context(), o)
	case o != nil && v.against == againstOriginal:
		v.ref = v.a.model.Unaltered(o)
	case o != nil:
		v.ref, err = v.a.model.Reference(v.c.Context(), o)
	default:
		if result.Reference = v.b.about(); v.b.model != nil && v.a.model != nil {
			v.ref, err = v.a.model.Reference(v.c.Context(), nil)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.name(), err)
	}
	if result.Reference == "" {
		result.Reference = v.ref.About
		if v.ref.Kind != spc.AsImported {
			for _, p := range v.a.outputs() {
				result.Original = append(result.Original, &comparison{Name: p.Name})
			}
		}
	}
	return result, nil
}

// compare compares the models on one set of inputs.
func (v *verifier) compare(result *verification, r *request) error {
	ctx := v.c.Context()
	in, err := r.tensors()
	if err != nil {
		return fmt.Errorf("%s: %w", v.name(), err)
	}
	warnOfNaN(v.c, v.a, in)
	got, err := v.a.run(ctx, in)
	if err != nil {
		return r.explain(err)
	}
	add := func(list []*comparison, got, want map[string]*tensor.Tensor) error {
		for _, c := range list {
			if err := c.add(got[c.Name], want[c.Name]); err != nil {
				return fmt.Errorf("%s: %w", v.name(), err)
			}
		}
		return nil
	}
	want := v.want
	switch {
	case v.b == nil:
	case v.originalOf() == nil || v.ref.Kind != spc.AsImported:
		if want, err = v.b.run(ctx, in); err != nil {
			return r.explain(err)
		}
	}
	if v.originalOf() != nil && v.b != nil {
		if err := add(result.Original, got, want); err != nil {
			return err
		}
		if err := v.passes(result, in, want); err != nil {
			return err
		}
		if want, err = v.ref.Interpret(ctx, in); err != nil {
			return r.explain(fmt.Errorf("%s: %w", v.b.path, err))
		}
	}
	if err := add(result.Outputs, got, want); err != nil {
		return err
	}
	for _, o := range result.Outputs {
		result.Pass = result.Pass && o.pass(v.tolerance)
	}
	if !result.Pass && v.bad == nil {
		v.bad = in
	}
	return nil
}

// passes checks that what the passes made of the original for the reference computes, with
// the original's weights, what the original does.
func (v *verifier) passes(result *verification, in, want map[string]*tensor.Tensor) error {
	got, err := v.ref.Passed(v.c.Context(), in)
	if err != nil || got == nil {
		return err
	}
	worst := number(0)
	if result.Passed != nil {
		worst = *result.Passed
	}
	for _, p := range v.b.outputs() {
		c := &comparison{Name: p.Name}
		if err := c.add(got[p.Name], want[p.Name]); err != nil {
			return fmt.Errorf("%s: %w", v.b.path, err)
		}
		worst = max(worst, c.RelL2)
		result.Pass = result.Pass && c.pass(max(v.tolerance, v.b.original.Tolerance().RelL2))
	}
	result.Passed = &worst
	return nil
}

// locate finds the first node that differs, and writes the smallest part that does where
// that is asked for.
func (v *verifier) locate(result *verification, p *progress) error {
	ctx := v.c.Context()
	p.Then() // nobody knows how many steps there are
	p.Plan(nil)
	step := func(name string) func(int) {
		return func(steps int) { p.At(name, steps, 0) }
	}
	var f *spc.Fault
	var err error
	if v.b == nil {
		want, err := v.ref.Interpret(ctx, v.bad)
		if err != nil {
			return fmt.Errorf("%s: %w", v.a.path, err)
		}
		for _, o := range result.Outputs {
			c := &comparison{Name: o.Name}
			if err := c.add(want[o.Name], v.want[o.Name]); err != nil {
				return fmt.Errorf("%s: %w", v.a.path, err)
			}
			result.Interpreted = append(result.Interpreted, c)
		}
	}
	if v.ref != nil {
		f, err = v.ref.Locate(ctx, v.bad, v.tolerance, step("locate"))
	}
	if err == nil && f == nil && v.b != nil && v.b.model != nil {
		var second *spc.Reference
		if second, err = v.b.model.Reference(ctx, nil); err == nil {
			f, err = second.Locate(ctx, v.bad, v.tolerance, step("locate"))
		}
	}
	if err == nil && f == nil && v.b != nil && v.originalOf() == nil {
		f, err = spc.FirstDifference(ctx, v.a.interpretable(), v.b.interpretable(), v.bad, v.tolerance)
	}
	if err != nil {
		return err
	}
	if f == nil {
		if v.repro != "" {
			p.close()
			warn(v.c, "--reduce: nothing is written: no node of the model computes anything but what the interpreter makes of it")
		}
		return nil
	}
	result.Fault = &faultReport{f.Stage, f.Node, f.Op, f.Output, f.After, f.Pass, f.Constants, number(f.MaxAbs), number(f.RelL2), f.Unequal, f.String()}
	if v.repro == "" {
		return nil
	}
	made, err := v.ref.Reduce(ctx, f, v.bad, v.tolerance, step("reduce"))
	p.close()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		warn(v.c, fmt.Sprintf("--reduce: nothing is written: %s", message(err)))
		return nil
	case made == nil:
		warn(v.c, fmt.Sprintf("--reduce: nothing is written: no output of %s differs when compiled anew", v.name()))
		return nil
	}
	if err := spc.SaveCase(v.repro, made); err != nil {
		return err
	}
	result.Reduced = &reduced{v.repro, reduce.Folder(v.repro), len(made.Graph.Nodes), number(made.RelL2)}
	return nil
}

// checkReduce refuses, before the work begins, what --reduce must not write to.
func (v *verifier) checkReduce(r *request) error {
	if v.repro == "" {
		return nil
	}
	if err := claims.Write("--reduce", v.repro); err != nil {
		return err
	}
	if err := atomicfile.Check(v.repro); err != nil {
		return fmt.Errorf("--reduce: %w", err)
	}
	folder := reduce.Folder(v.repro)
	read := slices.Clone(v.expect)
	for _, s := range r.sources {
		read = append(read, s.file)
	}
	switch entries, err := os.ReadDir(folder); {
	case len(entries) > 0:
		return fmt.Errorf("--reduce: %s is not empty, and would hold the inputs and outputs of %s", folder, v.repro)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--reduce: %w", err)
	}
	for _, f := range read {
		_, file, named := strings.Cut(f, "=")
		if !named {
			file = f
		}
		if file = cmp.Or(file, f); sameFile(file, folder) || sameFile(filepath.Dir(file), folder) {
			return fmt.Errorf("--reduce %s would write over %s, which is read", v.repro, file)
		}
	}
	return nil
}

// sameFile reports whether two paths name one file or folder.
func sameFile(a, b string) bool {
	ia, erra := os.Stat(a)
	ib, errb := os.Stat(b)
	return erra == nil && errb == nil && os.SameFile(ia, ib)
}

// samePorts checks that the models have inputs and outputs of the same names and
// types.
func samePorts(x, y *side) error {
	for _, kind := range []struct {
		name string
		a, b []spc.Port
	}{{"inputs", x.inputs(), y.inputs()}, {"outputs", x.outputs(), y.outputs()}} {
		same := func(a, b []spc.Port) bool {
			for _, p := range a {
				if !slices.ContainsFunc(b, func(q spc.Port) bool { return p.Name == q.Name && p.DType == q.DType }) {
					return false
				}
			}
			return true
		}
		if !same(kind.a, kind.b) || !same(kind.b, kind.a) {
			return fmt.Errorf("%s of %s are %s, those of %s are %s", kind.name, x.path, describe(kind.a), y.path, describe(kind.b))
		}
	}
	return nil
}

// tighter returns the inputs, each as the model declares it that knows more of
// its dimensions.
func tighter(ports, others []spc.Port) []spc.Port {
	known := func(p spc.Port) int {
		n := 0
		for _, d := range p.Dims {
			if d.Known() {
				n++
			}
		}
		return n
	}
	for _, q := range others {
		i := slices.IndexFunc(ports, func(p spc.Port) bool { return p.Name == q.Name })
		if !ports[i].Ranked || known(q) > known(ports[i]) {
			q.Bound = max(q.Bound, ports[i].Bound)
			ports[i] = q
		} else {
			ports[i].Bound = max(ports[i].Bound, q.Bound)
		}
	}
	return ports
}

func (v *verification) print(w io.Writer) {
	v.table(w, v.Outputs, float64(v.Tolerance))
	fmt.Fprintf(w, "\nreference: %s\n", printable(v.Reference))
	tolerance := fmt.Sprintf("tolerance: rel l2 %g", float64(v.Tolerance))
	if v.For != "" {
		tolerance += ", the default for " + v.For
	}
	fmt.Fprintln(w, tolerance)
	if v.Seeds > 0 {
		fmt.Fprintf(w, "inputs: random numbers, made up %s; the worst counts\n", plural(v.Seeds, "time"))
	}
	if v.Passed != nil {
		fmt.Fprintf(w, "passes: what they change of the original, before its weights are pruned or quantised: rel l2 %.4g\n", float64(*v.Passed))
	}
	if v.Original != nil {
		fmt.Fprintln(w, "\nfrom the original, without a bound:")
		v.table(w, v.Original, -1)
	}
	if v.Interpreted != nil {
		fmt.Fprintln(w, "\nthe interpreter from the stored outputs:")
		v.table(w, v.Interpreted, -1)
	}
	switch {
	case v.Fault != nil:
		fmt.Fprintln(w, "\n"+printable(v.Fault.text))
	case !v.Pass && !v.served:
		fmt.Fprintln(w, "\nno node of the model computes anything but what the interpreter makes of it")
	}
	if v.Reduced != nil {
		fmt.Fprintf(w, "reduced to %s: %s, with its inputs and outputs in %s\n", plural(v.Reduced.Nodes, "node"), printable(v.Reduced.Model), printable(v.Reduced.Folder))
	}
	verdict := "PASS"
	if !v.Pass {
		verdict = "FAIL"
	}
	fmt.Fprintf(w, "\n%s\n", verdict)
}

func (v *verification) table(w io.Writer, list []*comparison, tolerance float64) {
	t := newTable(w, "output", "shape", "max abs", "max rel", "rel l2", "cosine", "top-1", "")
	right(t, 3, 4, 5, 6, 7)
	for _, o := range list {
		top1, verdict := "-", ""
		if o.Top1 != nil {
			top1 = percent(*o.Top1)
		}
		switch {
		case o.Unequal != "":
			verdict = o.Unequal
		case !o.pass(tolerance):
			verdict = fmt.Sprintf("rel l2 above %g", tolerance)
		}
		t.AppendRow([]any{o.Name, shapeText(o.Shape), o.MaxAbs, o.MaxRel, o.RelL2, fmt.Sprintf("%.6f", float64(o.Cosine)), top1, verdict})
	}
	t.Render()
}
