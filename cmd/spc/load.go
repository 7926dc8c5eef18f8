package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"spc/client"
	"spc/data"
	"spc/ir/tensor"
)

// loadTest is what bench prints of a model that a server has.
type loadTest struct {
	Model      string      `json:"model"`
	Batch      int         `json:"batch"`
	Clients    int         `json:"clients"`
	Requests   int         `json:"requests"`
	Seconds    float64     `json:"seconds"`
	Ms         latency     `json:"ms"`         // of a request
	Throughput float64     `json:"throughput"` // samples a second
	Server     *serverTime `json:"server"`     // nil where the server does not tell
}

// serverTime is what a server says of the requests that it answered meanwhile, whoever sent them.
type serverTime struct {
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Runs     int     `json:"runs"`
	Rows     int     `json:"rows"`
	QueueMs  float64 `json:"queue_ms"` // this and those below of one request, in the mean
	InputMs  float64 `json:"compute_input_ms"`
	InferMs  float64 `json:"compute_infer_ms"`
	OutputMs float64 `json:"compute_output_ms"`
}

// runURL measures a model that a server has.
func (f *benchFlags) runURL(c *cobra.Command, url string) error {
	if err := refuse(c.Flags(), "for "+url+": its server decides how it runs", ofServer...); err != nil {
		return err
	}
	if err := refuse(c.Flags(), "for "+url+", whose sizes have no names; give --shape NAME=DIMS", "dim"); err != nil {
		return err
	}
	s, err := f.shapes.parse()
	if err != nil {
		return err
	}
	r, err := f.remote.openURL(c.Context(), url)
	if err != nil {
		return err
	}
	defer r.c.Close()
	if f.batch != 0 {
		fixed, err := setBatch(r.inputs, f.batch, &s)
		if err == nil && fixed {
			err = fmt.Errorf("--batch %d, but the server's model has another; its inputs are %s", f.batch, describe(r.inputs))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
	}
	q := request{ports: r.inputs, sizes: s, missing: &data.Random{Seed: 1}, norm: func() (data.Norm, error) { return f.inputs.norm.norm(c.Flags()) }}
	if q.sources, err = f.inputs.sources(q.ports); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	in, err := q.tensors()
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	b := loadTest{Model: url, Batch: f.batch, Clients: f.clients}
	if b.Batch == 0 {
		b.Batch = 1
		if len(r.inputs) > 0 && in[r.inputs[0].Name].Rank() > 0 {
			b.Batch = in[r.inputs[0].Name].Dim(0)
		}
	}
	runs := 0 // until the time is over
	if c.Flags().Changed("runs") {
		runs = f.runs
	}
	if err := b.measure(c.Context(), r, in, f.warmup, runs, f.duration); err != nil {
		return err
	}
	if f.asJSON {
		return printJSON(c.OutOrStdout(), b)
	}
	b.print(c.OutOrStdout())
	return nil
}

// measure has all clients send requests, one after the other each: some before, and then as many as runs says together, or for a time where that is 0. The
// first that fails ends it.
func (b *loadTest) measure(ctx context.Context, r *remote, in map[string]*tensor.Tensor, warmup, runs int, duration time.Duration) error {
	var before, after []client.ModelStatistics
	if _, err := b.together(ctx, r, in, warmup, 0); err != nil {
		return err
	}
	before, untold := r.c.ModelStatistics(ctx, r.model, r.version)
	start := time.Now()
	times, err := b.together(ctx, r, in, runs, duration)
	if err != nil {
		return err
	}
	b.Seconds = time.Since(start).Seconds()
	if untold == nil {
		after, untold = r.c.ModelStatistics(ctx, r.model, r.version)
	}
	if untold == nil {
		b.Server = between(before, after)
	}
	b.Requests, b.Ms = len(times), latencies(times)
	b.Throughput = float64(b.Batch*b.Requests) / b.Seconds
	return nil
}

// together has all clients send requests, and returns the milliseconds that each took.
func (b *loadTest) together(ctx context.Context, r *remote, in map[string]*tensor.Tensor, runs int, duration time.Duration) ([]float64, error) {
	if runs == 0 && duration == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sent atomic.Int64
	times := make([][]float64, b.Clients)
	end := time.Now().Add(duration)
	var wg sync.WaitGroup
	for i := range b.Clients {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if runs > 0 && sent.Add(1) > int64(runs) || runs == 0 && n > 0 && !time.Now().Before(end) {
					return
				}
				start := time.Now()
				if _, err := r.run(ctx, in); err != nil {
					cancel(err) // the first one stays
					return
				}
				times[i] = append(times[i], time.Since(start).Seconds()*1e3)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var all []float64
	for _, t := range times {
		all = append(all, t...)
	}
	return all, nil
}

// between is what a server did between two looks at the statistics of a model's versions; nil where it answered nothing, as one that was
// loaded anew.
func between(before, after []client.ModelStatistics) *serverTime {
	var d serverTime
	var queue, input, infer, output client.Duration
	for _, a := range after {
		var b client.ModelStatistics
		for _, s := range before {
			if s.Version == a.Version && s.Name == a.Name && s.Success.Count <= a.Success.Count {
				b = s
			}
		}
		d.Requests += a.Success.Count - b.Success.Count
		d.Failed += a.Fail.Count - b.Fail.Count
		d.Runs += a.Runs - b.Runs
		d.Rows += a.Rows - b.Rows
		for _, of := range []struct {
			sum  *client.Duration
			a, b client.Duration
		}{{&queue, a.Queue, b.Queue}, {&input, a.Input, b.Input}, {&infer, a.Infer, b.Infer}, {&output, a.Output, b.Output}} {
			of.sum.Count += of.a.Count - of.b.Count
			of.sum.Total += of.a.Total - of.b.Total
		}
	}
	if d.Requests == 0 {
		return nil
	}
	each := func(s client.Duration) float64 { return s.Total.Seconds() * 1e3 / float64(max(s.Count, 1)) }
	d.QueueMs, d.InputMs, d.InferMs, d.OutputMs = each(queue), each(input), each(infer), each(output)
	return &d
}

func (b *loadTest) print(w io.Writer) {
	fmt.Fprintf(w, "%s  batch %d, %s, %s in %.3g s\n\n", printable(b.Model), b.Batch, plural(b.Clients, "client"), plural(b.Requests, "request"), b.Seconds)
	ms := func(v float64) string { return fmt.Sprintf("%.4g ms", v) }
	t := newTable(w, "mean", "p50", "p90", "p99", "min", "throughput")
	right(t, 1, 2, 3, 4, 5, 6)
	t.AppendRow([]any{ms(b.Ms.Mean), ms(b.Ms.P50), ms(b.Ms.P90), ms(b.Ms.P99), ms(b.Ms.Min), fmt.Sprintf("%.4g/s", b.Throughput)})
	t.Render()
	s := b.Server
	if s == nil {
		fmt.Fprintln(w, "\nthe server tells no times of its own")
		return
	}
	fmt.Fprintln(w)
	t = newTable(w, "of a request in the server", "time")
	right(t, 2)
	rest := b.Ms.Mean - s.QueueMs - s.InputMs - s.InferMs - s.OutputMs
	for _, row := range []struct {
		name string
		ms   float64
	}{{"queue", s.QueueMs}, {"inputs", s.InputMs}, {"model", s.InferMs}, {"outputs", s.OutputMs}, {"the rest, with the way there and back", max(rest, 0)}} {
		t.AppendRow([]any{row.name, ms(row.ms)})
	}
	t.Render()
	if s.Runs > 0 {
		fmt.Fprintf(w, "\n%s, %.3g rows in each on average", plural(s.Runs, "run"), float64(s.Rows)/float64(s.Runs))
	}
	if s.Requests != b.Requests || s.Failed > 0 {
		fmt.Fprintf(w, "; the server answered %s meanwhile, and %d with an error: others use it, too", plural(s.Requests, "request"), s.Failed)
	}
	fmt.Fprintln(w)
}
