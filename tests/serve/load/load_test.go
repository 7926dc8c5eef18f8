package load

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	EchoIfAsked()
	os.Exit(m.Run())
}

// Everything is measured for a moment, in which all answers are right; how fast they come is for make serve-load.
func TestTrialRun(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "spc")
	if out, err := exec.Command("go", "build", "-o", program, "spc/cmd/spc").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := &Options{Program: program, Dir: dir, Sittings: 2, Calls: 3, Turns: 2, Clients: 8, Turn: 200 * time.Millisecond, Runs: 3, Log: t.Output()}
	var r Results
	var err error
	if r.Overhead, err = o.Overhead(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Overhead.Sittings {
		if s.Echo.P50 <= 0 || s.Server.P50 <= 0 || s.Server.P99 < s.Server.P50 || s.Bench <= 0 {
			t.Errorf("latencies %+v", s)
		}
	}
	b, err := o.Batching(t.Context(), &Tiny)
	if err != nil {
		t.Fatal(err)
	}
	r.Put(b)
	for _, s := range b.Settings {
		for i, rows := range s.Rows {
			if s.Rates[i] <= 0 || rows < 1 || !s.Together && rows != 1 || rows > 16 {
				t.Errorf("%s: %.1f rows a run, %.0f rows/s", s.Name, rows, s.Rates[i])
			}
		}
	}
	path := filepath.Join(dir, "results.json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	again, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.Markdown(), r.Markdown(); got != want || !strings.Contains(got, "together, by default") {
		t.Errorf("the tables are\n%s\nand of what was read\n%s", want, got)
	}
}

// Bars are told where they are missed, and not within what is noise.
func TestMisses(t *testing.T) {
	with := func(model string, together, alone, bench []float64) *Batching {
		return &Batching{Model: model, Bench: bench, Settings: []Setting{{Together: true, Rates: together}, {Rates: []float64{1}}, {Rates: alone}}}
	}
	for _, c := range []struct {
		b    *Batching
		want int
	}{
		{with("minilm", []float64{115, 120, 110}, []float64{100, 90, 95}, []float64{120, 130, 140}), 0},
		{with("minilm", []float64{119, 119, 119}, []float64{100, 90, 95}, []float64{120, 130, 140}), 1},
		{with("minilm", []float64{119, 119, 119}, []float64{100, 90, 95}, []float64{120, 130, 141}), 2},
		{with("resnet20", []float64{95, 90, 98}, []float64{100, 90, 96}, []float64{100}), 0},
		{with("resnet20", []float64{92, 90, 91}, []float64{100, 94, 96}, []float64{100}), 1},
	} {
		if got := c.b.Misses(); len(got) != c.want {
			t.Errorf("%s, %v: %q, want %d", c.b.Model, c.b.Settings, got, c.want)
		}
	}
	r := &Results{Overhead: &Overhead{Sittings: []OverheadSitting{{Server: Latency{P50: 160}}, {Server: Latency{P50: 100}}, {Server: Latency{P50: 170}, Echo: Latency{P50: 19}}}}}
	if got := r.Misses(); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
