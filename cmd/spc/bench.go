package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"spc"
	"spc/client"
	"spc/internal/pace"
	"spc/ir/tensor"
)

// benchmark is what bench prints. Times are of a run on a whole batch.
type benchmark struct {
	Model      string  `json:"model"`
	Batch      int     `json:"batch"`
	Device     string  `json:"device"`
	Threads    int     `json:"threads"`
	Runs       int     `json:"runs"`
	Ms         latency `json:"ms"`
	Throughput float64 `json:"throughput"`       // samples a second
	PeakBytes  int64   `json:"peak_bytes"`       // resident in the process at most, from before the first run on
	Graphs     int     `json:"graphs,omitempty"` // on a GPU, that a run launches
	// Predicted is the time of a run on the CPU that was predicted.
	Predicted *spc.PredictedRun `json:"predicted,omitempty"`
	Layers    []layerTime       `json:"layers"`

	report *spc.Report
}

type latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Min  float64 `json:"min"`
}

type layerTime struct {
	Name   string  `json:"name"`
	Op     string  `json:"op"`
	Format string  `json:"format"`
	Us     float64 `json:"us"`            // the median
	CPU    string  `json:"cpu,omitempty"` // why a GPU leaves it to the CPU
	// Interpreted says that the CPU has no kernel for it.
	Interpreted bool `json:"interpreted,omitempty"`

	times []float64
}

// benchFlags are the flags of bench.
type benchFlags struct {
	timedFlags
	remote       remoteFlags
	runs, warmup int
	clients      int
	duration     time.Duration
	asJSON       bool
	decode       decoding
	ties         []string
}

func benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench MODEL.{spx,onnx}|URL",
		Short: "Measure a model's latency, memory, and time by layer",
		Long: `Run a model some times on the same inputs, by default random ones, and show the
percentiles of its latency, its throughput, its peak memory, and the median time of
each layer, which is measured in further runs. The peak memory is the most that the
process had resident from before the first run on, the model's weights included;
where the system (other than Linux) does not tell that, since the start of the process.
On a GPU the layers are told that run on the CPU, and why; on the CPU those that are
interpreted, as there is no kernel for them or for nodes of their subgraphs.

With --decode a model that keeps a cache of tokens goes on where it was left: what is shown is
how long it takes from a prompt to the first token, and then how many it makes a second.

` + urlHelp + ` --clients callers send it requests for
--duration, or --runs of them, and what is shown is how long one takes, and of that the
server's queue and runs as far as its statistics tell.`,
		Example: `  spc bench model.spx
  spc bench model.onnx --batch 8 --threads 1 --runs 100
  spc bench model.spx --dim batch=4 --json
  spc bench decoder.onnx --decode 128:64
  spc bench grpc://localhost:9000/v2/models/model --clients 2 --duration 100ms`,
		Args:              usage(1, 1),
		ValidArgsFunction: files(1, "spx", "onnx"),
	}
	f.add(c)
	fs := c.Flags()
	fs.IntVar(&f.runs, "runs", 50, "timed runs")
	fs.IntVar(&f.warmup, "warmup", 10, "runs before those")
	fs.IntVar(&f.clients, "clients", 1, "callers of a URL at the same time, each with one request")
	choiceVar(fs, &f.duration, "duration", "5s", parseTime, "how long they send requests, unless --runs is given")
	f.remote.add(c)
	f.duration = 5 * time.Second
	choiceVar(fs, &f.decode, "decode", "", parseDecoding, "`PROMPT:STEPS`: tokens of a prompt, and steps of one token behind it, with the\ncaches that --tie names, by default auto")
	tieVar(c, fs, &f.ties)
	jsonFlag(fs, &f.asJSON)
	for _, f := range []string{"runs", "warmup", "clients", "duration", "decode"} {
		complete(c, f, cobra.NoFileCompletions)
	}

	c.RunE = f.run
	return c
}

// run runs the command.
func (f *benchFlags) run(c *cobra.Command, args []string) error {
	if client.IsURL(args[0]) {
		return f.runURL(c, args[0])
	}
	if err := refuse(c.Flags(), "for "+args[0]+", want a URL", append([]string{"clients", "duration"}, remoteNames...)...); err != nil {
		return err
	}
	if f.decode.Steps > 0 {
		return f.runDecode(c, args[0])
	}
	p := newProgress(c)
	defer p.close()
	p.runs(args[0], pace.Even("bench", f.warmup+f.runs, 1), pace.Even("profile", min(f.runs, profiles), 1))
	m, err := f.open(c, args[0])
	if err != nil {
		return err
	}
	defer m.model.Close()
	b := benchmark{Model: args[0], Batch: m.batch, Threads: m.threads, Runs: f.runs}
	for b.Device != f.device.used() { // again where another device has taken over
		if err := b.measure(c.Context(), m.model, &f.device, m.in, f.warmup, p); err != nil {
			return m.explain(err)
		}
	}
	p.close()
	if f.asJSON {
		return printJSON(c.OutOrStdout(), b)
	}
	b.print(c.OutOrStdout())
	return nil
}

// profiles is the number of further runs in which layers are timed.
const profiles = 10

// measure runs the model on inputs, and replaces what was measured before. It stops where another device
// takes over.
func (b *benchmark) measure(ctx context.Context, m *spc.Model, device *deviceFlags, in map[string]*tensor.Tensor, warmup int, p *progress) error {
	b.Device, b.Layers, b.Graphs = device.used(), nil, 0
	var times []float64
	out := map[string]*tensor.Tensor{}
	forgetPeak()
	p.Plan(nil)
	for i := range warmup + b.Runs {
		p.At("bench", i, warmup+b.Runs)
		start := time.Now()
		if err := m.RunInto(ctx, in, out); err != nil {
			return err
		}
		if i >= warmup {
			times = append(times, time.Since(start).Seconds()*1e3)
		}
		if err := ctx.Err(); err != nil || device.used() != b.Device {
			return err
		}
	}
	b.PeakBytes = peakBytes()
	places, err := m.Placements(in)
	if err != nil {
		return err
	}
	b.Ms, b.Predicted, b.report = latencies(times), nil, m.Explain()
	if b.Device == string(spc.CPU) {
		f, err := m.Forecast(b.Threads, in)
		if err != nil {
			return err
		}
		b.Predicted = f.Predicted
	}
	b.Throughput = float64(b.Batch) / b.Ms.Mean * 1e3
	traced := min(b.Runs, profiles)
	for i := range traced {
		p.At("profile", i, traced)
		_, nodes, err := m.Profile(ctx, in)
		if err != nil || device.used() != b.Device {
			return err
		}
		b.add(nodes)
	}
	for i := range b.Layers {
		b.Layers[i].Us = median(b.Layers[i].times)
	}
	b.place(places)
	return nil
}

// add adds the times of one profile, in which each node is once. Runs need not have the same, as those of an If's branches.
func (b *benchmark) add(nodes []spc.NodeTime) {
	at := map[string]int{}
	for i, l := range b.Layers {
		at[l.Name] = i
	}
	for _, n := range nodes {
		i, met := at[n.Node]
		if !met {
			i = len(b.Layers)
			b.Layers = append(b.Layers, layerTime{Name: n.Node, Op: n.Op, Format: n.Format})
		}
		b.Layers[i].times = append(b.Layers[i].times, us(n.Time))
	}
}

// place tells where layers run on a GPU, and which have no kernel on the CPU.
func (b *benchmark) place(places []spc.NodePlace) {
	where := map[string]spc.NodePlace{}
	for _, at := range places {
		b.Graphs = max(b.Graphs, at.Part)
		where[at.Node] = at
	}
	for i := range b.Layers {
		l := &b.Layers[i]
		l.CPU, l.Interpreted = where[l.Name].Why, where[l.Name].Interpreted
	}
}

// latencies sorts the times and takes their percentiles.
func latencies(ms []float64) latency {
	slices.Sort(ms)
	sum := 0.0
	for _, t := range ms {
		sum += t
	}
	return latency{sum / float64(len(ms)), percentile(ms, 50), percentile(ms, 90), percentile(ms, 99), ms[0]}
}

// percentile interpolates between the two closest ranks of sorted values.
func percentile(sorted []float64, p float64) float64 {
	at := p / 100 * float64(len(sorted)-1)
	lo := int(math.Floor(at))
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}

func (b *benchmark) print(w io.Writer) {
	on := ""
	if b.Device != "cpu" {
		on = b.Device + ", "
	}
	fmt.Fprintf(w, "%s  batch %d, %s%s, %s\n\n", printable(b.Model), b.Batch, on, plural(b.Threads, "thread"), plural(b.Runs, "run"))
	t := newTable(w, "mean", "p50", "p90", "p99", "min", "throughput", "peak memory")
	right(t, 1, 2, 3, 4, 5, 6, 7)
	ms := func(v float64) string { return fmt.Sprintf("%.4g ms", v) }
	t.AppendRow([]any{ms(b.Ms.Mean), ms(b.Ms.P50), ms(b.Ms.P90), ms(b.Ms.P99), ms(b.Ms.Min), fmt.Sprintf("%.4g/s", b.Throughput), size(b.PeakBytes)})
	t.Render()
	if b.Predicted != nil {
		fmt.Fprintln(w, predictedText(b.Predicted, b.report))
	}
	fmt.Fprintln(w)
	total, left, slow := 0.0, 0, false
	for _, l := range b.Layers {
		total += l.Us
		if l.CPU != "" {
			left++
		}
		slow = slow || l.Interpreted
	}
	if b.Graphs > 0 || left > 0 {
		fmt.Fprintf(w, "%s on the GPU, %s on the CPU\n\n", plural(b.Graphs, "CUDA graph"), plural(left, "layer"))
	}
	order := slices.Clone(b.Layers)
	slices.SortStableFunc(order, func(x, y layerTime) int { return cmp.Compare(y.Us, x.Us) })
	head := []any{"layer", "operator", "format", "time", "share"}
	if left > 0 {
		head = append(head, "on the CPU because")
	}
	if slow {
		head = append(head, "")
	}
	t = newTable(w, head...)
	right(t, 4, 5)
	for _, l := range order {
		row := []any{l.Name, l.Op, l.Format, fmt.Sprintf("%.4g us", l.Us), percent(l.Us / max(total, tiny))}
		if left > 0 {
			row = append(row, l.CPU)
		}
		if l.Interpreted {
			row = append(row, "interpreted")
		}
		t.AppendRow(row)
	}
	t.Render()
}
