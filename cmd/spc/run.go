package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"spc"
	"spc/data"
	"spc/internal/atomicfile"
	"spc/internal/claims"
	"spc/internal/filename"
	"spc/internal/verify"
	"spc/ir/tensor"
)

// onceFlags are the flags of what runs a model once: its inputs, and where outputs go.
type onceFlags struct {
	inputs inputFlags
	shapes shapeFlags
	dir    string
	asJSON bool
}

func (f *onceFlags) add(c *cobra.Command) {
	f.inputs.add(c)
	fs := c.Flags()
	fs.StringVarP(&f.dir, "output", "o", "", "a `DIR` for the outputs")
	f.shapes.add(fs)
	jsonFlag(fs, &f.asJSON)
	complete(c, "output", folders)
}

// runFlags are the flags of run.
type runFlags struct {
	onceFlags
	device    deviceFlags
	steps     stepFlags
	interpret bool
}

func runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run MODEL.{spx,onnx} -i NAME=FILE ...",
		Short: "Run a model once on inputs from files",
		Long: `Run a model once. Outputs go to DIR/NAME.npy, strings to DIR/NAME.pb, with _ for what
no file name should hold; without -o a summary is printed, for a classifier with the five best classes of
the first images.

With --interpret an interpreter evaluates the model node by node, slowly, without passes,
memory plan and kernels: an .onnx as it was imported, an .spx by its own graph.`,
		Example: `  spc run model.spx -i input=cat.npy -o out/
  spc run model.spx -i cat.jpg --preprocess imagenet
  spc run model.onnx -i input=random:1 --dim batch=4
  spc run model.onnx -i cat.npy --interpret -o right/
  spc run decoder.onnx -i input_ids=ids.npy -i position_ids=positions.npy --steps 4 --tie 'present.*=past_key_values.*'`,
		Args:              usage(1, 1),
		ValidArgsFunction: files(1, "spx", "onnx"),
	}
	f.add(c)
	fs := c.Flags()
	fs.BoolVar(&f.interpret, "interpret", false, "evaluate the model by the interpreter")
	f.steps.add(c)
	f.device.add(c, "the model")
	addModelFlags(fs)

	c.RunE = f.run
	return c
}

// run runs the command.
func (f *runFlags) run(c *cobra.Command, args []string) error {
	s, err := f.shapes.parse()
	if err != nil {
		return err
	}
	m, err := openSide(c, args[0], s, f.interpret, &f.device)
	if err != nil {
		return err
	}
	defer m.close()
	return f.once(c, m, s, f.steps)
}

// once runs a model, once or in steps, and writes or shows its outputs.
func (f *onceFlags) once(c *cobra.Command, m *side, s sizes, steps stepFlags) (err error) {
	var files []string
	if f.dir != "" {
		files = outputFiles(f.dir, m.outputs())
		if err := checkFolder(f.dir, files, m.outputs()); err != nil {
			return err
		}
	}
	r := request{ports: m.inputs(), sizes: s, steps: steps.steps, norm: func() (data.Norm, error) { return f.inputs.norm.norm(c.Flags()) }}
	out, err := f.outputs(c, m, &r, steps.ties)
	if err != nil {
		return err
	}
	var names []string
	for _, p := range m.outputs() {
		names = append(names, p.Name)
	}
	listed := flat(names, out)
	sum := summarise(listed)
	if f.dir != "" {
		p := place(files, names, out)
		if err := p.write(c.Context(), f.dir); err != nil {
			return err
		}
		for i, file := range p.shown {
			sum.Outputs[i].File = file
		}
	}
	w := c.OutOrStdout()
	switch {
	case f.asJSON:
		return printJSON(w, sum)
	case f.dir == "":
		sum.print(w)
	default:
		for i, o := range sum.Outputs {
			fmt.Fprintf(w, "%s  %v\n", printable(o.File), listed[i].tensor)
		}
	}
	return nil
}

// outputs runs a model on the inputs of a request.
func (f *onceFlags) outputs(c *cobra.Command, m *side, r *request, tieArgs []string) (out map[string]*tensor.Tensor, err error) {
	if r.sources, err = f.inputs.sources(r.ports); err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	ties, err := tiesOf(tieArgs, r.ports, m.outputs())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	tied := func(p spc.Port) bool { return slices.Contains(slices.Collect(maps.Values(ties)), p.Name) }
	r.states = slices.DeleteFunc(slices.Clone(r.ports), func(p spc.Port) bool { return !tied(p) })
	r.ports = slices.DeleteFunc(slices.Clone(r.ports), func(p spc.Port) bool { // which begin as zeros
		_, given := r.sources[p.Name]
		return !given && tied(p)
	})
	in, err := r.tensors()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	warnOfNaN(c, m, in)
	if r.steps == 0 {
		out, err = m.run(c.Context(), in)
	} else {
		out, err = m.steps(c.Context(), ties, r.steps, func(i int) map[string]*tensor.Tensor { return r.step(in, ties, i) })
	}
	if err != nil {
		return nil, r.explain(err)
	}
	return out, nil
}

// warnOfNaN warns of inputs with NaN that a model rounds to integers, of which none stands
// for it: outputs do not show it then.
func warnOfNaN(c *cobra.Command, m *side, in map[string]*tensor.Tensor) {
	if m.model == nil {
		return
	}
	kinds := m.model.Explain().Nodes
	if kinds["QuantizeLinear"]+kinds["DynamicQuantizeLinear"] == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		count := 0
		for _, v := range verify.Floats(in[name]) {
			if math.IsNaN(v) {
				count++
			}
		}
		if count > 0 {
			warn(c, fmt.Sprintf("input %s holds %s; the model rounds to integers, so that its outputs may not show them", name, plural(count, "NaN")))
		}
	}
}

// fileNames returns for each output the name of its file or folder, without the extension.
func fileNames(names []string) []string { return filename.Distinct(names, filename.Safe, true) }

// outputFiles returns the files that outputs go to, and the folders of sequences and
// optionals.
func outputFiles(dir string, ports []spc.Port) []string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Name
	}
	files := fileNames(names)
	for i, p := range ports {
		ext := ".npy"
		switch {
		case inFolder(p.DType):
			ext = ""
		case hasStrings(p.DType):
			ext = ".pb"
		}
		files[i] = filepath.Join(dir, files[i]+ext)
	}
	return files
}

// checkFolder refuses, before the run, a folder that cannot be one, and files in it that
// have been read. What is read later does not open then.
func checkFolder(dir string, files []string, ports []spc.Port) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("-o %s is a file, want a folder", dir)
	}
	for i, f := range files {
		if inFolder(ports[i].DType) { // whose files are not known yet
			continue
		}
		if err := claims.Write("-o", f); err != nil {
			return err
		}
	}
	return nil
}

// stagedFiles bounds how many outputs are complete without having their names; each is an
// open file.
const stagedFiles = 256

// write writes each output to its file in the folder dir, which is made where it is
// missing. After an error no file is left that was not there, and those that were are
// mostly as they were: of many outputs, some may be new.
func (p *places) write(ctx context.Context, dir string) (err error) {
	var undo []func()
	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, f := range made {
			os.Remove(f)
		}
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	for _, folder := range append([]string{dir}, p.folders...) {
		f, err := makeFolder(folder)
		if err != nil {
			return err
		}
		undo = append(undo, f)
	}
	for batch := range slices.Chunk(p.files, stagedFiles) {
		written, err := writeTogether(ctx, batch)
		if made = append(made, written...); err != nil {
			return err
		}
	}
	return p.sweep()
}

// writeTogether writes some outputs, and returns the files that were not there before.
func writeTogether(ctx context.Context, files []placed) (made []string, err error) {
	var staged []*atomicfile.Staged
	defer func() {
		for _, s := range staged {
			s.Discard()
		}
	}()
	for _, f := range files {
		s, err := atomicfile.Stage(f.path, func(w io.Writer) error {
			w = contextWriter{ctx, w}
			if hasStrings(f.tensor.DType()) {
				return tensor.EncodeProto(w, f.name, f.tensor)
			}
			return tensor.EncodeNPY(w, f.tensor)
		})
		var named *os.PathError
		if err != nil && !errors.As(err, &named) {
			err = fmt.Errorf("%s: %w", f.path, err)
		}
		if err != nil {
			return nil, err
		}
		staged = append(staged, s)
	}
	for i, s := range staged {
		old := exists(files[i].path)
		if err := s.Commit(); err != nil {
			return made, err
		}
		if !old {
			made = append(made, files[i].path)
		}
	}
	return made, nil
}

// makeFolder makes a folder, and those around it that are missing. What it returns removes
// them again if they are empty.
func makeFolder(dir string) (undo func(), err error) {
	var missing []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	undo = func() {
		for _, d := range missing {
			os.Remove(d)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// summary is what run prints in place of files.
type summary struct {
	Outputs []outputSummary `json:"outputs"`
}

type outputSummary struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int   `json:"shape"`
	File  string  `json:"file,omitempty"`
	Min   number  `json:"min"`
	Max   number  `json:"max"`
	Mean  number  `json:"mean"`
	NaNs  int     `json:"nans"`
	Top   [][]top `json:"top,omitempty"` // of a classifier, one of the first images at a time
}

type top struct {
	Class int    `json:"class"`
	Score number `json:"score"`
}

func summarise(outs []named) summary {
	var s summary
	for _, out := range outs {
		t := out.tensor
		o := outputSummary{Name: out.name, DType: t.DType().String(), Shape: t.Shape(), Min: number(math.NaN()), Max: number(math.NaN()), Mean: number(math.NaN())}
		if v := verify.Floats(t); len(v) > 0 {
			lo, hi, sum, n := math.Inf(1), math.Inf(-1), 0.0, 0
			for _, x := range v {
				if math.IsNaN(x) {
					o.NaNs++
					continue
				}
				lo, hi, sum, n = min(lo, x), max(hi, x), sum+x, n+1
			}
			if n > 0 {
				o.Min, o.Max, o.Mean = number(lo), number(hi), number(sum/float64(n))
			}
			if len(outs) == 1 {
				o.Top = best(t, v)
			}
		}
		s.Outputs = append(s.Outputs, o)
	}
	return s
}

// rankedImages is how many images a summary ranks the classes of, and rankedClasses how many of these it has.
const rankedImages, rankedClasses = 10, 5

// best returns the best classes of the first images, where t is what a classifier
// returns: floats of shape [n,c], or [n,c,1,1].
func best(t *tensor.Tensor, v []float64) [][]top {
	n, c, ok := scores(t)
	if !ok {
		return nil
	}
	var out [][]top
	for row := range slices.Chunk(v[:min(n, rankedImages)*c], c) {
		var tops []top
		for k, score := range row {
			i, _ := slices.BinarySearchFunc(tops, score, func(t top, score float64) int { // NaN comes last
				return cmp.Or(cmp.Compare(score, float64(t.Score)), -1)
			})
			if i < rankedClasses {
				tops = slices.Insert(tops[:min(len(tops), rankedClasses-1)], i, top{k, number(score)})
			}
		}
		out = append(out, tops)
	}
	return out
}

// scores returns the number of samples and of classes of a classifier's output.
func scores(t *tensor.Tensor) (n, classes int, ok bool) {
	shape := t.Shape()
	if !t.DType().IsFloat() || len(shape) < 2 || t.Len() == 0 || shape[1] < 2 {
		return 0, 0, false
	}
	for _, d := range shape[2:] {
		if d != 1 {
			return 0, 0, false
		}
	}
	return shape[0], shape[1], true
}

func (s summary) print(w io.Writer) {
	t := newTable(w, "output", "type", "min", "max", "mean", "NaN")
	right(t, 3, 4, 5, 6)
	for _, o := range s.Outputs {
		t.AppendRow([]any{o.Name, o.DType + shapeText(o.Shape), o.Min, o.Max, o.Mean, o.NaNs})
	}
	t.Render()
	for _, o := range s.Outputs {
		if len(o.Top) == 0 {
			continue
		}
		fmt.Fprintln(w)
		t := newTable(w, "image", "class", "score")
		right(t, 1, 2, 3)
		for i, tops := range o.Top {
			for _, c := range tops {
				t.AppendRow([]any{i, c.Class, c.Score})
			}
		}
		t.Render()
		if n := o.Shape[0] - len(o.Top); n > 0 {
			fmt.Fprintf(w, "... %d more\n", n)
		}
	}
}
