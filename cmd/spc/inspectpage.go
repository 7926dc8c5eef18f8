package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/backend/cpu"
	"spc/data"
	"spc/internal/atomicfile"
	"spc/internal/claims"
	"spc/internal/pace"
	"spc/internal/page"
	"spc/ir/tensor"
)

// pageFlags are the flags of inspect that make a page.
type pageFlags struct {
	html, serve string
	unmeasured  bool
	inputs      inputFlags
	shapes      shapeFlags
	threads     int

	names []string // of the flags that only a page takes
}

func (f *pageFlags) add(c *cobra.Command) {
	fs := c.Flags()
	before := map[string]bool{}
	fs.VisitAll(func(l *pflag.Flag) { before[l.Name] = true })
	f.define(c, fs)
	fs.VisitAll(func(l *pflag.Flag) {
		if !before[l.Name] && l.Name != "html" && l.Name != "serve" {
			f.names = append(f.names, l.Name)
		}
	})
}

func (f *pageFlags) define(c *cobra.Command, fs *pflag.FlagSet) {
	fs.StringVar(&f.html, "html", "", "write a page that shows the model, or two beside each other, to a `FILE`")
	fs.StringVar(&f.serve, "serve", "", "serve the page at an `ADDRESS` such as :8090, on this machine alone unless it names a\nhost, and measure again when it is asked to")
	fs.BoolVar(&f.unmeasured, "no-run", false, "do not run the model for the page, which then has predicted times alone")
	f.inputs.add(c)
	f.shapes.add(fs)
	fs.IntVar(&f.threads, "threads", 1, "threads to run on; predictions are for 1; 0: one for each physical core")
	complete(c, "serve", cobra.NoFileCompletions)
	complete(c, "threads", cobra.NoFileCompletions)
}

// asked reports whether a page is wanted. Where it is not, what only a page takes is an error.
func (f *pageFlags) asked(c *cobra.Command, args []string) (bool, error) {
	switch {
	case f.html != "" || f.serve != "":
		return true, nil
	}
	for _, name := range f.names {
		if c.Flags().Changed(name) {
			return false, fmt.Errorf("--%s needs --html or --serve, too", name)
		}
	}
	return false, nil
}

// How often a model runs for a page: timed, before that, and with its nodes timed.
const pageRuns, pageWarmup, pageProfiles = 20, 3, 11

// run makes the page of one model or of two.
func (f *pageFlags) run(c *cobra.Command, paths []string) error {
	s, err := f.shapes.parse()
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := claims.Write("--html", f.html); err != nil {
			return err
		}
		if err := atomicfile.Check(f.html); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	var at *page.Listener
	if f.serve != "" {
		if at, err = page.Listen(c.Context(), f.serve); err != nil {
			return fmt.Errorf("--serve: %w", err)
		}
		defer at.Close()
	}
	var models []*page.Model
	var measures []page.Measure
	for _, path := range paths {
		m, err := loadModel(c, path, s, spc.RunOptions{Threads: f.threads})
		if err != nil {
			return err
		}
		defer m.Close()
		p, measure, err := f.model(c, path, m, s)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		models, measures = append(models, p), append(measures, measure)
	}
	if f.html != "" {
		if err := atomicfile.Write(f.html, func(w io.Writer) error { return page.Write(w, models, false) }); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s  the page of %s\n", printable(f.html), printable(strings.Join(paths, ", ")))
	}
	if at == nil {
		return nil
	}
	fmt.Fprintf(c.OutOrStdout(), "%s  (an interrupt ends it)\n", at.URL())
	return at.Serve(c.Context(), models, measures)
}

// model describes a model and, unless it is not to run, measures it. Where its inputs cannot be made up, the page says why
// it was not.
func (f *pageFlags) model(c *cobra.Command, path string, m *spc.Model, s sizes) (*page.Model, page.Measure, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	r := request{ports: m.Inputs(), sizes: s, missing: &data.Random{Seed: 1}, norm: func() (data.Norm, error) { return f.inputs.norm.norm(c.Flags()) }}
	if r.sources, err = f.inputs.sources(r.ports); err != nil {
		return nil, nil, err
	}
	in, inputErr := r.tensors()
	if inputErr != nil && len(r.sources)+len(s.dims)+len(s.shapes) > 0 { // which was to give them
		return nil, nil, inputErr
	}
	p, err := page.New(m, filepath.Base(path), info.Size(), in)
	if err != nil {
		return nil, nil, err
	}
	measure := func(ctx context.Context) (*page.Measured, error) {
		if inputErr != nil {
			return nil, inputErr
		}
		t, err := f.measure(c, ctx, path, m, in)
		return t, r.explain(err)
	}
	switch {
	case f.unmeasured:
	case inputErr != nil:
		p.Why = message(inputErr)
	default:
		if p.Measured, err = measure(c.Context()); err != nil {
			return nil, nil, err
		}
	}
	return p, measure, nil
}

// measure runs a model as bench does, but takes medians of nodes' times, too: one that was disturbed would be seen in the page.
func (f *pageFlags) measure(c *cobra.Command, ctx context.Context, path string, m *spc.Model, in map[string]*tensor.Tensor) (*page.Measured, error) {
	progress := newProgress(c)
	defer progress.close()
	const steps = pageWarmup + pageRuns + pageProfiles
	progress.runs(path, pace.Even("measure", steps, 1))
	var runs []float64
	out := map[string]*tensor.Tensor{}
	for i := range pageWarmup + pageRuns {
		progress.At("measure", i, steps)
		start := time.Now()
		if err := m.RunInto(ctx, in, out); err != nil {
			return nil, err
		}
		if i >= pageWarmup {
			runs = append(runs, time.Since(start).Seconds()*1e3)
		}
	}
	nodes := map[string][]float64{}
	for i := range pageProfiles {
		progress.At("measure", pageWarmup+pageRuns+i, steps)
		_, times, err := m.Profile(ctx, in)
		if err != nil {
			return nil, err
		}
		us := map[string]float64{}
		for _, t := range times { // several of a node in a loop
			us[t.Node] += t.Time.Seconds() * 1e6
		}
		for name, t := range us {
			nodes[name] = append(nodes[name], t)
		}
	}
	ms := latencies(runs)
	t := &page.Measured{Device: cpu.Device{}.Name(), Threads: cmp.Or(f.threads, cpu.Cores()), Runs: pageRuns, Ms: ms.P50, Min: ms.Min, Us: map[string]float64{}}
	for name, us := range nodes {
		slices.Sort(us)
		t.Us[name] = percentile(us, 50)
	}
	return t, nil
}
