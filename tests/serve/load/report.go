package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"spc/internal/atomicfile"
	"spc/tests/bench"
)

// Results are what was measured last of each part.
type Results struct {
	Overhead *Overhead   `json:"overhead,omitempty"`
	Batching []*Batching `json:"batching,omitempty"`
}

// Read reads what Write wrote; a file that is missing, or has no name, holds nothing.
func Read(path string) (*Results, error) {
	r := &Results{}
	if path == "" {
		return r, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write writes the results as JSON.
func (r *Results) Write(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}

// Put takes the place of what there is of a model.
func (r *Results) Put(b *Batching) {
	if i := slices.IndexFunc(r.Batching, func(x *Batching) bool { return x.Model == b.Model }); i >= 0 {
		r.Batching[i] = b
		return
	}
	r.Batching = append(r.Batching, b)
}

// Misses says which bars are missed.
func (r *Results) Misses() (list []string) {
	if r.Overhead != nil {
		if us := bench.Median(r.Overhead.Added()); us > MostOverhead {
			list = append(list, fmt.Sprintf("the server adds %.0f us, want at most %d", us, MostOverhead))
		}
	}
	for _, b := range r.Batching {
		list = append(list, b.Misses()...)
	}
	return list
}

// Mark names the tables of docs/results/serving.md.
const Mark = "load"

func (w *Where) String() string {
	return fmt.Sprintf("%s, %d cores, commit %s, %s", w.CPU, w.Cores, w.Commit, w.Date)
}

// Markdown returns the tables of docs/results/serving.md.
func (r *Results) Markdown() string {
	var b strings.Builder
	if o := r.Overhead; o != nil {
		fmt.Fprintf(&b, "What the server adds: %s.\n\n", &o.Where)
		fmt.Fprintf(&b, "One client sends %d bytes over gRPC and gets as many, %d times to each side in a sitting, in turns.\n\n", o.Bytes, o.Calls)
		b.WriteString("| sitting | echo, median | 99% | server, median | 99% | added at the median | a run alone |\n|---|---:|---:|---:|---:|---:|---:|\n")
		for i, s := range o.Sittings {
			fmt.Fprintf(&b, "| %d | %.0f us | %.0f us | %.0f us | %.0f us | %.0f us | %.0f us |\n", i+1, s.Echo.P50, s.Echo.P99, s.Server.P50, s.Server.P99, s.Server.P50-s.Echo.P50, s.Bench)
		}
		fmt.Fprintf(&b, "\nAdded in the median of the sittings: %.0f us; at most %d are aimed at.\n\n", bench.Median(o.Added()), MostOverhead)
	}
	for _, x := range r.Batching {
		x.markdown(&b)
	}
	return b.String()
}

func (r *Batching) markdown(b *strings.Builder) {
	about := r.Model
	for _, s := range Subjects {
		if s.Name == r.Model {
			about = s.About
		}
	}
	fmt.Fprintf(b, "%s: %s.\n\n", about, &r.Where)
	fmt.Fprintf(b, "%d clients ask for a row each, again and again, for %.0f s of each setting in each of %d sittings.\n\n", r.Clients, r.Seconds, len(r.Bench))
	b.WriteString("| | rows a second, best | quartiles | median latency | 99% | rows a run |\n|---|---:|---:|---:|---:|---:|\n")
	line := func(name string, rates []float64, rest string) {
		d := bench.Describe(rates)
		fmt.Fprintf(b, "| %s | %.0f | %.0f to %.0f | %s |\n", name, d.Max, d.Q1, d.Q3, rest)
	}
	for i := range r.Settings {
		s := &r.Settings[i]
		var p50, p99 []float64
		for _, l := range s.Latency {
			p50, p99 = append(p50, l.P50), append(p99, l.P99)
		}
		name := "together, by default"
		if !s.Together {
			name = "alone, `" + strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimSpace(s.Config), "\n", ", ")), " ") + "`"
		}
		line(name, s.Rates, fmt.Sprintf("%.1f ms | %.1f ms | %.1f", bench.Median(p50)/1e3, bench.Median(p99)/1e3, bench.Median(s.Rows)))
	}
	line("`spc bench --batch 16`", r.Bench, " | | 16")
	fmt.Fprintf(b, "\nTogether over the best alone: %.2f; over `spc bench`: %.2f.\n\n", r.Gain(), r.OfBench())
}
