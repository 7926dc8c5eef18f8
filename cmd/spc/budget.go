package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/data"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// budgetFlags say what a model may take and lose.
type budgetFlags struct {
	speedup, flops, drop    float64
	latency                 time.Duration
	size                    int64
	data, labels, samples   string
	metric                  string
	skip                    []int
	pareto                  string
	points, search, threads int
}

// budgetLimits lists the flags of a budget, budgetNames those that make programs be built and measured, and budgetMore what is of use with these alone.
var (
	budgetLimits = []string{"speedup", "max-drop", "latency", "size", "flops"}
	budgetNames  = append([]string{"pareto"}, budgetLimits...)
	budgetMore   = []string{"eval-data", "labels", "eval-samples", "metric", "skip-class", "points", "search", "threads"}
)

// add adds the flags.
func (f *budgetFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.Float64Var(&f.speedup, "speedup", 0, "find the program that loses least among those so many times as fast as the dense\none in floats, the best runs of both as measured")
	fs.Float64Var(&f.drop, "max-drop", 0, "find the fastest program that loses at most so many points of --metric on --eval-data,\nor hundredths of a nat of divergence without that, with a confidence of 90%; with\n--speedup: both")
	choiceVar(fs, &f.latency, "latency", "", parseLatency, "find one whose runs take at most so long in the median, such as 5ms")
	choiceVar(fs, &f.size, "size", "", parseSize, "find one whose file has at most so many bytes, such as 10MB; without --calib, or with\n--quantize int4 or int8w, by formats alone")
	fs.Float64Var(&f.flops, "flops", 0, "find one that has at most this share of the multiply-adds of products")
	fs.StringVar(&f.pareto, "pareto", "", "a `FILE` .csv, .png, .svg or .html for the front from the dense program to the fastest,\nbuilt and measured")
	fs.IntVar(&f.points, "points", 12, "how many programs --pareto has")
	fs.StringVar(&f.data, "eval-data", "", "labelled samples for --max-drop and --pareto, as spc eval reads them: a folder of\nimages, or an npy or idx `FILE`")
	fs.StringVar(&f.labels, "labels", "", "the classes of --eval-data, a .csv, npy or idx `FILE`; of a folder, by default its labels.csv")
	fs.StringVar(&f.samples, "eval-samples", "all", "which of --eval-data: all, even, odd or A:B:STEP; none that --calib shows")
	fs.StringVar(&f.metric, "metric", "", "of --eval-data: top1, top5 or perplexity, of which a point is a percent")
	fs.IntSliceVar(&f.skip, "skip-class", nil, "scores to leave out, such as 0 for a background class")
	fs.IntVar(&f.search, "search", 64, "combinations of layers that are compared for a target; 0: what adds up best is taken")
	fs.IntVar(&f.threads, "threads", 0, "threads that are measured; 0: one for each physical core")
	complete(c, "pareto", files(0, "csv", "png", "html"))
	complete(c, "labels", files(0, "csv", "npy", "gz", "idx"))
	complete(c, "eval-samples", values("all", "even", "odd"))
	complete(c, "metric", values(top1, top5, perplexity))
	for _, name := range []string{"speedup", "max-drop", "latency", "size", "flops", "points", "skip-class", "search", "threads"} {
		complete(c, name, cobra.NoFileCompletions)
	}
}

// parseLatency reads a time above 0.
func parseLatency(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > time.Hour {
		return 0, option.Errorf("%v %q: want a time such as 5ms or 800us, up to 1h", option.Latency, s)
	}
	return d, nil
}

// sizeUnits are the units of sizes.
var sizeUnits = []struct {
	name  string
	bytes float64
}{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}

// parseSize reads a number of bytes above 0.
func parseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && v > 0 && v*u.bytes < 1<<50 && v*u.bytes >= 1 {
			return int64(v * u.bytes), nil
		}
		break
	}
	return 0, option.Errorf("%v %q: want a size such as 10MB or 800KB", option.Size, s)
}

// given reports whether any of some flags was given.
func given(fs *pflag.FlagSet, names []string) bool {
	return slices.ContainsFunc(names, fs.Changed)
}

// needless returns an error for flags that need others.
func (f *budgetFlags) needless(c *cobra.Command, searches bool) error {
	fs := c.Flags()
	if !searches {
		for _, name := range budgetMore {
			if fs.Changed(name) {
				return fmt.Errorf("--%s has no use without a budget: --speedup, --max-drop, --latency, --size, --flops or --pareto", name)
			}
		}
		return nil
	}
	for _, name := range []string{"sparsity", "allocate", "stop-after", "dump-passes", "masks", "tune", "disable"} {
		if fs.Changed(name) {
			return fmt.Errorf("--%s and a budget exclude each other, want one of them", name)
		}
	}
	if fs.Changed("search") && !given(fs, []string{"speedup", "latency", "size", "flops"}) {
		return errors.New("--search has no use without --speedup, --latency, --size or --flops, which a combination is sought for")
	}
	if f.data == "" {
		for _, name := range []string{"labels", "eval-samples", "metric", "skip-class"} {
			if fs.Changed(name) {
				return fmt.Errorf("--%s needs --eval-data, too", name)
			}
		}
	}
	for _, name := range []string{"speedup", "flops"} {
		if v := map[string]float64{"speedup": f.speedup, "flops": f.flops}[name]; fs.Changed(name) && !(v > 0) {
			return fmt.Errorf("--%s %v, want %s", name, v, bounds[name].want)
		}
	}
	return nil
}

// options are those of spc. What they return closes the samples.
func (f *budgetFlags) options(c *cobra.Command, calib *calibFlags, s sizes) (b spc.BudgetOptions, done func(), err error) {
	done = func() {}
	b.Budget = spc.Budget{Speedup: f.speedup, Latency: f.latency, Size: f.size, FLOPs: f.flops}
	if c.Flags().Changed("max-drop") {
		b.MaxDrop = &f.drop
	}
	if b.Search = f.search; f.search == 0 {
		b.Search = -1
	}
	if f.pareto != "" {
		b.Front = f.points
	}
	b.Inputs = func(ports []spc.Port) (map[string]*tensor.Tensor, error) {
		return (&request{ports: ports, sizes: s, missing: &data.Random{Seed: 1}}).tensors()
	}
	if f.data == "" {
		return b, done, nil
	}
	chosen, err := data.ParseSamples(f.samples)
	if err != nil {
		return b, done, fmt.Errorf("--eval-samples: %w", err)
	}
	set, err := data.Open(f.data, f.labels)
	if err != nil {
		return b, done, fmt.Errorf("--eval-data: %w", err)
	}
	done = func() { set.Close() }
	e := evaluator{metric: f.metric, set: set, index: chosen.Of(set.Len()), skip: f.skip}
	if len(e.index) == 0 {
		return b, done, fmt.Errorf("--eval-samples %s chooses none of the %d of %s", f.samples, set.Len(), f.data)
	}
	if i := calib.shares(set, e.index); i >= 0 {
		return b, done, fmt.Errorf("--eval-samples %s: sample %d of %s is one of --calib, which cannot judge what was made by it", f.samples, i, f.data)
	}
	if err = e.checkMetric(); err == nil && !set.Tokens() {
		e.feed.Norm, err = calib.norm.norm(c.Flags())
	}
	b.Evaluate = func(ctx context.Context, m *spc.Model) ([]float64, error) {
		e := e // scores start anew
		e.path, e.model, e.output = c.Flags().Arg(0), m, m.Outputs()[0].Name
		if err := e.fit(m.Inputs(), s); err != nil {
			return nil, err
		}
		if _, err := e.run(ctx, nil); err != nil {
			return nil, err
		}
		return e.points, nil
	}
	return b, done, err
}

// compileWithin compiles a model for a budget, and writes the front that is asked for. The model is nil where there is no other.
func (f *compileFlags) compileWithin(c *cobra.Command, p *progress) (*spc.Model, error) {
	b, done, err := f.within.options(c, &f.data, f.sizes)
	defer done()
	if err != nil {
		return nil, err
	}
	o := f.o
	if c.Flags().Changed("pattern") {
		b.Patterns, o.Prune.Pattern = []spc.Pattern{o.Prune.Pattern}, spc.Pattern{}
	}
	b.Mixed = f.quantise.mixed
	o.Run.Threads, o.Progress, o.Plan = f.within.threads, p.At, p.Plan
	if quiet, err := c.Flags().GetBool("quiet"); err == nil && !quiet {
		b.Tell = func(front []spc.BudgetPoint, seconds float64) {
			p.print(func() { printForetold(c.ErrOrStderr(), &b.Budget, front, seconds) })
		}
	}
	if !given(c.Flags(), budgetLimits) {
		r, err := spc.Front(c.Context(), o, b)
		if err != nil {
			return nil, err
		}
		p.close()
		return nil, f.front(c, r)
	}
	m, err := spc.CompileWithin(c.Context(), o, b)
	var cannot *spc.BudgetError
	if errors.As(err, &cannot) {
		p.close()
		show := func() error { return printNearest(c.OutOrStdout(), cannot) }
		if f.asJSON {
			show = func() error { return printJSON(c.OutOrStdout(), cannot) }
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", f.o.Model, err), f.within.writeFront(f.o.Model, &cannot.BudgetReport), show())
	}
	if err == nil {
		err = f.within.writeFront(f.o.Model, m.Explain().Budget)
	}
	return m, err
}

// front writes and prints a front for which no program is kept.
func (f *compileFlags) front(c *cobra.Command, r *spc.BudgetReport) error {
	if err := f.within.writeFront(f.o.Model, r); err != nil {
		return err
	}
	if f.asJSON {
		return printJSON(c.OutOrStdout(), r)
	}
	return printMeasured(c.OutOrStdout(), r.Judge, r.Front)
}

// printNearest prints the points that are nearest to a budget that cannot be met.
func printNearest(w io.Writer, e *spc.BudgetError) error {
	fmt.Fprintf(w, "%s at most, were what is pruned to take no time; nearest are:\n", ratio(e.Amdahl))
	if err := printMeasured(w, e.Judge, e.Nearest); err != nil || e.Quantised == nil {
		return err
	}
	also := ""
	if len(e.Quantised.Unmet) == 0 {
		also = ", which meets the budget"
	}
	fmt.Fprintf(w, "without zeros in 8-bit integers, by --quantize int8%s:\n", also)
	return printMeasured(w, e.Judge, []spc.BudgetPoint{*e.Quantised})
}

// hundredths are what divergences of a unit are printed in: what --max-drop counts without labels.
func hundredths(unit string) string {
	switch unit {
	case calib.Variances:
		return "hundredths of the variance"
	case calib.Either:
		return "hundredths of a nat or the variance"
	}
	return "hundredths of a nat"
}

// divergence writes that of a point in hundredths.
func divergence(x float64) string {
	switch {
	case math.Abs(x) < 0.005: // which may be just below nothing
		x = 0
	case x >= 1e6:
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// lostName is the heading of what points lose, by what they are judged by.
func lostName(judge string, list []spc.BudgetPoint) string {
	if judge != "divergence" || len(list) == 0 {
		return "points lost"
	}
	return "divergence, " + hundredths(list[0].Unit)
}

// printMeasured prints a table of programs that were measured and judged.
func printMeasured(w io.Writer, judge string, list []spc.BudgetPoint) error {
	t, ints := newPoints(w, list, "zeros", "best", "median", "dense, best", "speed-up", "size", "flops", lostName(judge, list), "at most", "not met")
	for _, p := range list {
		lost, bound := "-", "-"
		if p.Drop != nil {
			lost, bound = divergence(p.Drop.Points), divergence(p.Drop.Bound)
		}
		var unmet []string
		for _, u := range p.Unmet {
			unmet = append(unmet, unmetText(u))
		}
		t.AppendRow(ints(&p, percent(p.Sparsity), millis3(p.Ms), millis3(p.Median), millis3(p.DenseMs), ratio(p.Speedup), size(p.Size), percent(p.FLOPs), lost, bound, strings.Join(unmet, ", ")))
	}
	t.Render()
	return nil
}

// newPoints begins a table of points, whose columns but the last are of numbers. Where any has weights in integers of its own choice, there is one more after the first, which
// ints puts into a row.
func newPoints(w io.Writer, list []spc.BudgetPoint, columns ...any) (t table.Writer, ints func(p *spc.BudgetPoint, row ...any) []any) {
	ints = func(_ *spc.BudgetPoint, row ...any) []any { return row }
	if slices.ContainsFunc(list, func(p spc.BudgetPoint) bool { return p.Integers > 0 }) {
		columns = slices.Insert(columns, 1, any("int8"))
		ints = func(p *spc.BudgetPoint, row ...any) []any {
			return slices.Insert(row, 1, any(plural(p.Integers, "weight")))
		}
	}
	t = newTable(w, columns...)
	var numbers []int
	for i := range columns[1:] {
		numbers = append(numbers, i+1)
	}
	right(t, numbers...)
	return t, ints
}

// unmetText says what is not met, as flags say it.
func unmetText(u spc.Unmet) string {
	text := fmt.Sprintf("%.4g", u.Want)
	switch u.What {
	case "latency":
		text = fmt.Sprint(time.Duration(math.Round(u.Want * 1e6)))
	case "size":
		text = fmt.Sprintf("%.0f", u.Want)
	}
	return "--" + u.What + " " + text
}

func millis3(ms float64) string { return fmt.Sprintf("%.3g ms", ms) }

// printBudget says how a budget is met, and reports whether there was one.
func printBudget(w io.Writer, r *spc.Report) bool {
	b := r.Budget
	if b == nil || len(b.Tried) == 0 {
		return false
	}
	p := b.Tried[len(b.Tried)-1]
	fmt.Fprintf(w, "measured  %s at best, dense %s, %s (at most %s); %s in the median", millis3(p.Ms), millis3(p.DenseMs), ratio(p.Speedup), ratio(b.Amdahl), millis3(p.Median))
	if b.Size > 0 {
		fmt.Fprintf(w, "; %s", size(p.Size))
	}
	if b.FLOPs > 0 {
		fmt.Fprintf(w, "; %s of the multiply-adds", percent(p.FLOPs))
	}
	switch d := p.Drop; {
	case d == nil:
	case b.Judge == "divergence":
		fmt.Fprintf(w, "; divergence %s %s on %s, at most %s with a confidence of 90%%", divergence(d.Points), hundredths(p.Unit), plural(d.N, "input"), divergence(d.Bound))
	default:
		fmt.Fprintf(w, "; %.2f points lost on %s, at most %.2f with a confidence of 90%%", d.Points, plural(d.N, "sample"), d.Bound)
	}
	if p.Integers > 0 {
		fmt.Fprintf(w, "; %s in 8-bit integers", plural(p.Integers, "weight"))
	}
	fmt.Fprintf(w, "; %s built\n", plural(len(b.Tried), "program"))
	if b.MaxDrop != nil && p.Drop != nil && p.Sparsity == 0 && p.Integers == 0 {
		fmt.Fprintf(w, "          dense: of no sparse program do %s show that it loses so little\n", plural(p.Drop.N, "sample"))
	}
	return true
}

// printForetold prints a front as the layers alone foretell it, with what a budget limits.
func printForetold(w io.Writer, b *spc.Budget, front []spc.BudgetPoint, seconds float64) {
	fmt.Fprintln(w, "predicted, by what layers take and lose:")
	columns := []any{"zeros", "time", "speed-up"}
	if b.Size > 0 {
		columns = append(columns, "size")
	}
	if b.FLOPs > 0 {
		columns = append(columns, "flops")
	}
	t, ints := newPoints(w, front, append(columns, lostName("divergence", front), "")...)
	for _, p := range front {
		row := []any{percent(p.Sparsity), millis(p.Predicted), ratio(front[0].Predicted / p.Predicted)}
		if b.Size > 0 {
			row = append(row, size(p.Size))
		}
		if b.FLOPs > 0 {
			row = append(row, percent(p.FLOPs))
		}
		t.AppendRow(ints(&p, append(row, divergence(100*p.Divergence))...))
	}
	t.Render()
	if seconds > 0 {
		fmt.Fprintf(w, "building and measuring takes up to %v\n", (time.Duration(seconds) * time.Second).Round(time.Second))
	}
}

func ratio(x float64) string {
	if math.IsInf(x, 0) || x != x {
		return "-"
	}
	return fmt.Sprintf("%.2fx", x)
}
