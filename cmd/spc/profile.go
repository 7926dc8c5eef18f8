package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spc"
	"spc/backend/cpu"
	"spc/backend/machine"
	"spc/internal/pace"
	"spc/ir"
)

// profile is what profile prints. Times are medians, of a run on a whole batch.
type profile struct {
	Model   string  `json:"model"`
	Batch   int     `json:"batch"`
	Device  string  `json:"device"`
	Threads int     `json:"threads"`
	Runs    int     `json:"runs"`     // that were traced, and as many that were not
	Us      float64 `json:"us"`       // of a run that is not traced
	StepsUs float64 `json:"steps_us"` // the sum of the layers' times
	// Roof is what a layer's share of the roofline is of: that of a machine's profile; nil on a GPU, of which there is none.
	Machine string        `json:"machine,omitempty"`
	Roof    *machine.Roof `json:"roof,omitempty"`
	Layers  []profiled    `json:"layers"`

	trace []spc.NodeTime     // the steps of the traced run that took the median time
	left  map[string]float64 // by node, the share of its work that is left where some of it lies in its place
	tuned int                // threads that tuning measured times on; 0 where it did not
}

// profiled is a layer. Numbers of its work are 0 where sizes do not tell.
type profiled struct {
	Name        string  `json:"name"`
	Op          string  `json:"op"`
	Format      string  `json:"format"`
	Us          float64 `json:"us"`
	Share       float64 `json:"share"`                  // of the sum
	PredictedUs float64 `json:"predicted_us,omitempty"` // of its products on one core, for as many columns
	FLOPs       float64 `json:"flops"`
	Bytes       float64 `json:"bytes"`
	GFLOPs      float64 `json:"gflops"`             // a second
	Roofline    float64 `json:"roofline,omitempty"` // the share of what the roof allows
	CPU         string  `json:"cpu,omitempty"`      // why a GPU leaves it to the CPU
	Interpreted bool    `json:"interpreted,omitempty"`
	Cascade     int     `json:"cascade,omitempty"` // of layers that runs which are not traced compute together
}

// orders are the values of --sort, and how layers compare by each.
var orders = map[string]func(a, b profiled) int{
	"time":     func(a, b profiled) int { return cmp.Compare(b.Us, a.Us) },
	"order":    func(a, b profiled) int { return 0 },
	"name":     func(a, b profiled) int { return cmp.Compare(a.Name, b.Name) },
	"operator": func(a, b profiled) int { return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(b.Us, a.Us)) },
	"gflops":   func(a, b profiled) int { return cmp.Compare(b.GFLOPs, a.GFLOPs) },
	"bytes":    func(a, b profiled) int { return cmp.Compare(b.Bytes, a.Bytes) },
	"roofline": func(a, b profiled) int { return cmp.Compare(b.Roofline, a.Roofline) },
}

// profileFlags are the flags of profile.
type profileFlags struct {
	timedFlags
	plotFlags
	runs, warmup int
	sort, trace  string
	asJSON       bool
}

func profileCommand() *cobra.Command {
	var f profileFlags
	c := &cobra.Command{
		Use:   "profile MODEL.{spx,onnx} [--plot PICTURE FILE.{png,svg}]",
		Short: "Measure each layer's time, and compare it with what the machine allows",
		Long: `Run a model some times on the same inputs, by default random ones, and show the
median time of each layer; the time that its format was predicted to take, where that is
known for as many columns or for fewer and for more; its operations a second and the bytes
that it reads and writes, of sparse weights the values and indices that are stored; and the
share that it reaches of the roofline, the least time that the peak and the bandwidth of
the profile allow that the model was compiled by. More than 100% is possible: the machine
may be a faster one, the bytes may lie in a nearer cache, and convolutions may be
transformed to multiply less.

Runs with times for layers alternate with runs without. Layers that the latter compute
together, in cascades, are told: their times are those of layers computed one by one.
--trace writes the steps of a run for chrome://tracing or ui.perfetto.dev.`,
		Example: `  spc profile model.spx
  spc profile model.spx -i input=cat.npy --threads 1 --sort roofline
  spc profile model.onnx --batch 4 --trace trace.json
  spc profile model.spx --plot roofline roofline.svg`,
		Args:              usage(1, 2),
		ValidArgsFunction: files(1, "spx", "onnx"),
	}
	f.timedFlags.add(c)
	fs := c.Flags()
	fs.IntVar(&f.runs, "runs", 20, "runs with times for layers, and as many without")
	fs.IntVar(&f.warmup, "warmup", 3, "runs before those")
	fs.StringVar(&f.sort, "sort", "time", "the order of layers: "+strings.Join(sortedOrders(), ", "))
	fs.StringVar(&f.trace, "trace", "", "a `FILE` for the steps of a run, in Chrome's trace event format")
	f.plotFlags.add(c)
	jsonFlag(fs, &f.asJSON)
	for _, f := range []string{"runs", "warmup"} {
		complete(c, f, cobra.NoFileCompletions)
	}
	complete(c, "sort", values(sortedOrders()...))
	complete(c, "trace", files(0, "json"))

	c.RunE = f.run
	return c
}

func sortedOrders() []string { return slices.Sorted(maps.Keys(orders)) }

// run runs the command.
func (f *profileFlags) run(c *cobra.Command, args []string) error {
	order := orders[f.sort]
	if order == nil {
		return fmt.Errorf("--sort %q, want one of %s", f.sort, strings.Join(sortedOrders(), ", "))
	}
	args, err := f.plotFlags.take(args, 1)
	if err != nil {
		return err
	}
	if f.trace != "" {
		if err := checkOutput("--trace", f.trace); err != nil {
			return err
		}
	}
	bar := newProgress(c)
	defer bar.close()
	bar.runs(args[0], pace.Even("profile", f.warmup+f.runs, 2))
	m, err := f.open(c, args[0])
	if err != nil {
		return err
	}
	defer m.model.Close()
	p := profile{Model: args[0], Batch: m.batch, Threads: m.threads, Runs: f.runs}
	for p.Device != f.device.used() { // again where another device has taken over
		if err := p.measure(c.Context(), m, &f.device, f.warmup, bar); err != nil {
			return m.explain(err)
		}
	}
	bar.close()
	// A picture that cannot be drawn leaves no trace.
	commit := func() error { return nil }
	if f.trace != "" {
		trace, err := p.stageTrace(f.trace)
		if err != nil {
			return err
		}
		defer trace.Discard()
		commit = trace.Commit
	}
	slices.SortStableFunc(p.Layers, order)
	if err := f.plotFlags.draw(args[0], func() (*figure, error) { return p.figure(), nil }); err != nil {
		return err
	}
	if err := commit(); err != nil {
		return err
	}
	if f.asJSON {
		return printJSON(c.OutOrStdout(), p)
	}
	p.print(c.OutOrStdout())
	return nil
}

// measure runs the model, and replaces what was measured before. It stops where another device takes over.
func (p *profile) measure(ctx context.Context, m *timed, device *deviceFlags, warmup int, bar *progress) error {
	p.Device, p.Layers, p.trace = device.used(), nil, nil
	var plain []float64
	var traces [][]spc.NodeTime
	times := map[string][]float64{} // in microseconds, by node
	bar.Plan(nil)
	for i := range warmup + p.Runs {
		bar.At("profile", i, warmup+p.Runs)
		start := time.Now()
		if _, err := m.model.Run(ctx, m.in); err != nil {
			return err
		}
		took := us(time.Since(start))
		_, steps, err := m.model.Trace(ctx, m.in)
		if err != nil || device.used() != p.Device {
			return err
		}
		if i < warmup {
			continue
		}
		plain, traces = append(plain, took), append(traces, steps)
		for _, n := range spc.SumSteps(steps) {
			times[n.Node] = append(times[n.Node], us(n.Time))
		}
	}
	places, err := m.model.Placements(m.in)
	if err != nil {
		return err
	}
	p.Us = median(plain)
	slices.SortStableFunc(traces, func(a, b []spc.NodeTime) int { return cmp.Compare(duration(a), duration(b)) })
	p.trace = traces[len(traces)/2]
	if p.Device == (cpu.Device{}).Name() {
		r := m.model.Explain()
		on := r.Options.CPU()
		roof := on.Roof(p.Threads, r.Totals.StoredBytes)
		p.Machine, p.Roof = on.Name, &roof
		if r.Tuned != nil && r.Tuned.Measured+r.Tuned.Known > 0 {
			p.tuned = r.Tuned.Threads
		}
	}
	p.add(spc.SumSteps(p.trace), times, places)
	return nil
}

// add adds the layers, with the medians of their times.
func (p *profile) add(nodes []spc.NodeTime, times map[string][]float64, places []spc.NodePlace) {
	where := map[string]spc.NodePlace{}
	for _, at := range places {
		where[at.Node] = at
	}
	p.StepsUs, p.left = 0, map[string]float64{}
	for _, n := range nodes {
		at := where[n.Node]
		if at.Spared > 0 && n.Bytes > 0 { // what is not copied is no work
			p.left[n.Node] = max(0, 1-float64(at.Spared)/n.Bytes)
			n.FLOPs, n.Bytes = n.FLOPs*p.left[n.Node], n.Bytes*p.left[n.Node]
		}
		l := profiled{
			Name: n.Node, Op: n.Op, Format: n.Format, Us: median(times[n.Node]), PredictedUs: us(n.Predicted), FLOPs: n.FLOPs, Bytes: n.Bytes,
			CPU: at.Why, Interpreted: at.Interpreted, Cascade: at.Cascade,
		}
		seconds := max(l.Us/1e6, tiny)
		l.GFLOPs = l.FLOPs / seconds / 1e9
		if p.Roof != nil {
			l.Roofline = p.Roof.Seconds(ir.Work{FLOPs: l.FLOPs, Bytes: l.Bytes}) / seconds
		}
		p.StepsUs += l.Us
		p.Layers = append(p.Layers, l)
	}
	for i := range p.Layers {
		p.Layers[i].Share = p.Layers[i].Us / max(p.StepsUs, tiny)
	}
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// duration is how long steps take together.
func duration(steps []spc.NodeTime) (d time.Duration) {
	for _, s := range steps {
		d += s.Time
	}
	return d
}

// median sorts some values and returns the one in their middle.
func median(v []float64) float64 {
	slices.Sort(v)
	return percentile(v, 50)
}

func (p *profile) print(w io.Writer) {
	on := ""
	if p.Device != "cpu" {
		on = p.Device + ", "
	}
	fmt.Fprintf(w, "%s  batch %d, %s%s, medians of %s\n", printable(p.Model), p.Batch, on, plural(p.Threads, "thread"), plural(p.Runs, "run"))
	fmt.Fprintf(w, "a run takes %s; its layers, each timed by itself in other runs, take %s together\n", micros(p.Us), micros(p.StepsUs))
	left, cascades, members, slow := 0, map[int]bool{}, 0, false
	for _, l := range p.Layers {
		if l.CPU != "" {
			left++
		}
		if l.Cascade > 0 {
			cascades[l.Cascade] = true
			members++
		}
		slow = slow || l.Interpreted
	}
	if members > 0 {
		fmt.Fprintf(w, "%d of the layers are computed together in %s where nobody times them\n", members, plural(len(cascades), "cascade"))
	}
	if p.Roof != nil {
		fmt.Fprintf(w, "roofline of %s, profile %s: %s\n", plural(p.Threads, "core"), p.Machine, roofText(p.Roof))
	}
	fmt.Fprintln(w)
	head := []any{"layer", "operator", "format", "time", "share", "predicted", "GFLOP/s", "moved", "roofline"}
	numbers := []int{4, 5, 6, 7, 8, 9}
	if left > 0 {
		head = append(head, "on the CPU because")
	}
	if members > 0 || slow {
		head = append(head, "")
	}
	t := newTable(w, head...)
	right(t, numbers...)
	t.SuppressEmptyColumns()
	for _, l := range p.Layers {
		row := []any{l.Name, l.Op, l.Format, micros(l.Us), percent(l.Share), "", "", "", ""}
		if l.PredictedUs > 0 {
			row[5] = micros(l.PredictedUs)
		}
		if l.FLOPs > 0 {
			row[6] = fmt.Sprintf("%.3g", l.GFLOPs)
		}
		if l.Bytes > 0 {
			row[7] = size(int64(l.Bytes))
		}
		if l.Roofline > 0 {
			row[8] = percent(l.Roofline)
		}
		if left > 0 {
			row = append(row, l.CPU)
		}
		switch {
		case l.Interpreted:
			row = append(row, "interpreted")
		case l.Cascade > 0:
			row = append(row, fmt.Sprintf("cascade %d", l.Cascade))
		}
		t.AppendRow(row)
	}
	t.Render()
	if max(p.Threads, p.tuned) > 1 && slices.ContainsFunc(p.Layers, func(l profiled) bool { return l.PredictedUs > 0 }) {
		fmt.Fprintln(w, "\npredictions are for "+p.foretoldOn())
	}
}

// foretoldOn says what predictions are for.
func (p *profile) foretoldOn() string {
	if p.tuned > 0 {
		return "one core, and where tuning measured for " + plural(p.tuned, "thread")
	}
	return "one core"
}

// roofText says what bounds a roofline.
func roofText(r *machine.Roof) string {
	from := "memory"
	if r.Cached {
		from = "the cache that holds all weights"
	}
	return fmt.Sprintf("%.4g GFLOP/s, %.4g GB/s from %s", r.Peak/1e9, r.Bandwidth/1e9, from)
}

// micros writes microseconds, from a thousand on milliseconds.
func micros(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.4g ms", v/1000)
	}
	return fmt.Sprintf("%.3g us", v)
}
