package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spc"
	"spc/data"
	"spc/internal/atomicfile"
	"spc/ir/tensor"
)

// Bounds of --tune-budget.
const (
	leastBudget = time.Second
	mostBudget  = 24 * time.Hour
)

// parseBudget reads a duration.
func parseBudget(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < leastBudget || d > mostBudget {
		return 0, fmt.Errorf("%q, want a time such as 60s or 5m, from 1s to 24h", s)
	}
	return d, nil
}

// measureFlags say how formats are measured.
type measureFlags struct {
	budget  time.Duration
	timings string
	anew    bool
}

// add adds the flags.
func (f *measureFlags) add(c *cobra.Command) {
	fs := c.Flags()
	choiceVar(fs, &f.budget, "tune-budget", "60s", parseBudget, "how long measuring formats takes at most, such as 60s or 5m")
	fs.StringVar(&f.timings, "timings", "", "a `FILE` of what was measured on this machine, which is not measured again: by\ndefault spc/timings-*.json in the user's folder of caches, one for each build")
	fs.BoolVar(&f.anew, "anew", false, "measure again what --timings or the model has")
	complete(c, "tune-budget", cobra.NoFileCompletions)
	complete(c, "timings", files(0, "json"))
}

// options are those of tuning. A file that is named has to be of this machine and build, and one that can be written; the one by
// default is done without where it cannot be, and made anew where it is damaged.
func (f *measureFlags) options(c *cobra.Command) (spc.TuneOptions, error) {
	o := spc.TuneOptions{Budget: f.budget, Timings: f.timings, Anew: f.anew}
	if f.timings != "" {
		err := atomicfile.Check(f.timings)
		if err == nil {
			err = spc.CheckTimings(f.timings, f.anew)
		}
		if err != nil {
			return o, fmt.Errorf("--timings %s: %w", f.timings, err)
		}
		return o, nil
	}
	path, err := defaultTimings()
	switch {
	case err == nil:
		o.Timings = path
	case (errors.Is(err, spc.ErrCorrupt) || errors.Is(err, spc.ErrVersion)) && os.Remove(path) == nil:
		o.Timings = path
		warn(c, fmt.Sprintf("%s is made anew: %v", path, err))
	default:
		warn(c, fmt.Sprintf("what is measured is not kept for other models: %v", err))
	}
	return o, nil
}

// defaultTimings is the file of timings where none is named. It makes its folder. The path is there where the content is at fault.
func defaultTimings() (path string, err error) {
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	name, err := spc.TimingsName()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, "spc")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	path = filepath.Join(folder, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return path, checkOutput("the timings", path)
	}
	if err := atomicfile.Check(path); err != nil {
		return "", err
	}
	return path, spc.CheckTimings(path, false)
}

// tuneFlags are the flags of tune.
type tuneFlags struct {
	measureFlags
	out     string
	threads int
	asJSON  bool
	all     detail
}

func tuneCommand() *cobra.Command {
	var f tuneFlags
	c := &cobra.Command{
		Use:   "tune MODEL.spx -o FILE",
		Short: "Choose a compiled model's formats by what they take on this machine",
		Long: `Measure on this machine's CPU what each weight takes dense and in the formats that are
predicted to be the fastest, in its place in the network, on random inputs of sizes that
stand for what open dimensions may be, and write the model with the fastest: a format wins
over dense only where it is faster by more than the noise. In the end whole programs run,
one with these formats, one with those by prediction, and one all dense, which wins ties
and wherever the others are slower. spc compile --tune does the same when it compiles.`,
		Example: `  spc tune model.spx -o tuned.spx
  spc tune model.spx -o tuned.spx --tune-budget 5m --threads 1`,
		Args:              usage(1, 1),
		ValidArgsFunction: files(1, "spx"),
	}
	fs := c.Flags()
	fs.StringVarP(&f.out, "output", "o", "", "the .spx `FILE` to write")
	f.measureFlags.add(c)
	fs.IntVar(&f.threads, "threads", 0, "threads to run on; 0: one for each physical core")
	f.all.add(fs)
	quietFlag(fs)
	jsonFlag(fs, &f.asJSON)
	complete(c, "output", files(0, "spx"))
	complete(c, "threads", cobra.NoFileCompletions)
	if err := c.MarkFlagRequired("output"); err != nil {
		panic(err)
	}
	c.RunE = f.run
	return c
}

// run runs the command.
func (f *tuneFlags) run(c *cobra.Command, args []string) error {
	if is, err := isSPX(args[0]); err != nil {
		return err
	} else if !is {
		return fmt.Errorf("%s is not compiled, want an .spx file; spc compile --tune tunes what it compiles", args[0])
	}
	if strings.EqualFold(filepath.Ext(f.out), ".onnx") {
		return fmt.Errorf("-o %s, want an .spx file", f.out)
	}
	files := outputs{model: f.out, timings: f.timings}
	if err := files.check(); err != nil {
		return err
	}
	o, err := f.options(c)
	if err != nil {
		return err
	}
	p := newProgress(c)
	defer p.close()
	p.writes(args[0])
	o.Plan = p.Plan
	m, err := loadModel(c, args[0], sizes{}, spc.RunOptions{Threads: f.threads})
	if err != nil {
		return err
	}
	defer m.Close()
	tuned, err := tuneModel(c, p, m, o)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	defer tuned.Close()
	p.At(writeStage, 0, 1)
	if err := files.write(c.Context(), inOne{tuned}); err != nil {
		return err
	}
	p.close()
	warnOf(c, tuned.Explain())
	if f.asJSON {
		return printReport(c.OutOrStdout(), *tuned.Explain())
	}
	return printCompiled(c.OutOrStdout(), tuned.Explain(), args[0], f.out, f.all)
}

// tuneModel tunes a model on random inputs.
func tuneModel(c *cobra.Command, p *progress, m *spc.Model, o spc.TuneOptions) (*spc.Model, error) {
	ports := m.Inputs()
	o.Progress = p.At
	o.Inputs = func(shapes map[string][]int) (map[string]*tensor.Tensor, error) {
		in := map[string]*tensor.Tensor{}
		for _, port := range ports {
			t, err := data.Random{Seed: 1}.Tensor(port.Name, port.DType, shapes[port.Name], port.Bound)
			if err != nil {
				return nil, err
			}
			in[port.Name] = t
		}
		return in, nil
	}
	return m.Tune(c.Context(), o)
}

// printTuned says what tuning measured, and what came of it.
func printTuned(w io.Writer, r *spc.Report) {
	t := r.Tuned
	if t == nil || t.Why != "" { // which is a warning
		return
	}
	if t.Measured+t.Known == 0 {
		fmt.Fprintln(w, "tuned     no weight has more than one form")
		return
	}
	known := ""
	if t.Known > 0 {
		known = fmt.Sprintf(", %d known from before", t.Known)
	}
	fmt.Fprintf(w, "tuned     %s measured%s, in %.1f s, %s\n", plural(t.Measured, "product"), known, t.Seconds, plural(t.Threads, "thread"))
	for i := range t.Places {
		if last := len(t.Places) - 1; i > 0 && i < last {
			continue
		}
		p := &t.Places[i]
		fmt.Fprintf(w, "          %s: by measurement %s, by prediction %s, dense %s\n", shapesText(p.Shapes), micros(1e3*p.MeasuredMs), micros(1e3*p.PredictedMs), micros(1e3*p.DenseMs))
	}
	what := map[string]string{
		"dense": "the dense program, as no other was faster at all sizes beyond the noise", "predicted": "the program by prediction", "measured": "the program by measurement",
	}[t.Kept]
	fmt.Fprintf(w, "kept      %s", cmp.Or(what, printable(t.Kept)))
	if b, err := json.Marshal(t.Hints); err == nil && t.Hints != nil {
		fmt.Fprintf(w, "; and %s of what was measured, which is not measured again", size(int64(len(b))))
	}
	fmt.Fprintln(w)
}

// shapesText lists inputs with their shapes.
func shapesText(shapes map[string][]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		list = append(list, fmt.Sprintf("%s %v", printable(name), shapes[name]))
	}
	return detail(false).list(list)
}
