package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/internal/pace"
)

var shownPercent = regexp.MustCompile(`(\d+)%( done, | \|)`)

// percents are those that a text shows, which never fall.
func percents(t *testing.T, text string) []int {
	t.Helper()
	var all []int
	for _, m := range shownPercent.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 && n < all[len(all)-1] {
			t.Errorf("%d%% after %d%%", n, all[len(all)-1])
		}
		all = append(all, n)
	}
	return all
}

// Where standard error is no terminal a line tells now and then how far a command is, through all of its stages.
func TestProgressIsPrintedInLines(t *testing.T) {
	workspace(t)
	was := lineEvery
	defer func() { lineEvery = was }()
	lineEvery = 2 * time.Millisecond
	for _, args := range [][]string{
		{"bench", "model.onnx", "--runs", "30"},
		{"compile", "model.onnx", "-o", "m.spx", "--sparsity", "0.5", "--calib", "random:1", "--calib-samples", "8", "--allocate", "layer"},
		{"prune", "model.onnx", "-o", "p.onnx", "--sparsity", "0.5", "--calib", "random:1", "--quantize", "int8"},
		{"profile", "model.onnx", "--runs", "15"},
		{"verify", "model.onnx", "--seeds", "40"},
		{"compile", "model.onnx", "-o", "t.spx", "--sparsity", "0.8", "--tune", "--tune-budget", "2s", "--anew"},
		{"tune", "m.spx", "-o", "t.spx", "--tune-budget", "2s", "--anew"},
	} {
		r := unhinted(args...)
		for _, longer := range []string{"4s", "16s"} { // on a busy machine
			if i := slices.Index(args, "--tune-budget"); i >= 0 && strings.Contains(r.errors, "too little time") {
				args[i+1] = longer
				r = unhinted(args...)
			}
		}
		if r.status != 0 {
			t.Fatalf("spc %v: %+v", args, r)
		}
		lines := strings.Split(strings.TrimSuffix(r.errors, "\n"), "\n")
		for _, l := range lines {
			if !regexp.MustCompile(`^spc: ([a-zA-Z0-9 ,/]+)(, \d+% done, .* left|, for .*)$`).MatchString(l) {
				t.Errorf("spc %v prints %q", args, l)
			}
		}
		if !strings.Contains(r.errors, "spc: tune") && slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, "tune") }) {
			t.Errorf("spc %v tells nothing of tuning", args)
		}
		if all := percents(t, r.errors); len(all) == 0 || all[len(all)-1] < 10 {
			t.Errorf("spc %v shows %v percent", args, all)
		}
		if quiet := spcRun(append(args, "--quiet")...); quiet.status != 0 || quiet.errors != "" {
			t.Errorf("spc %v --quiet: %+v", args, quiet)
		}
	}
}

func TestStatesAreShort(t *testing.T) {
	for _, c := range []struct {
		state pace.State
		want  string
	}{
		{pace.State{Stage: "import", Total: 1, Elapsed: 2 * time.Second}, "import, for 2 s"},
		{pace.State{Stage: "locate", Done: 7, Elapsed: 80 * time.Second}, "locate 7, for 1 min 20 s"},
		{pace.State{Stage: "prune", Done: 3, Total: 21, Fraction: 0.421, Left: 3700 * time.Second, Planned: true}, "prune 3/21, 42% done, 1 h 1 min left"},
		{pace.State{Planned: true, Left: time.Second}, "start, 0% done, 1 s left"},
	} {
		if got := stateText(c.state); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Runs of a model need not have the same nodes, as where what is random chooses a branch.
func TestLayersOfRunsThatDiffer(t *testing.T) {
	node := func(name string, ms int) spc.NodeTime {
		return spc.NodeTime{Node: name, Time: time.Duration(ms) * time.Millisecond}
	}
	var b benchmark
	b.add([]spc.NodeTime{node("a", 2), node("then", 4)})
	b.add([]spc.NodeTime{node("a", 4), node("else", 8), node("more", 10)})
	var got []string
	for _, l := range b.Layers {
		got = append(got, fmt.Sprint(l.Name, l.times))
	}
	if want := []string{"a[2000 4000]", "then[4000]", "else[8000]", "more[10000]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
