// Command cmd looks for models that spc compiles wrongly; see package diff.
//
//	go run ./tests/diff/cmd -seed 1 -count 5000 -fresh 500
//	go run ./tests/diff/cmd -duration 1h
//	go run ./tests/diff/cmd -seed 1 -from 1234 -count 1
//	go run ./tests/diff/cmd mutants
//
// It prints a line for each finding, writes what it shrinks it to below -out, and ends
// with status 1 where there is one. Graphs are checked by processes of their own, so
// that one that crashes or hangs is a finding, too. With mutants it builds itself with each
// of the faults that package diff lists, and ends with status 1 where one is not found.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"spc/tests/diff"
)

// hang is the time after which a graph counts as one that hangs.
const hang = 2 * time.Minute

// task is a line to a worker.
type task struct {
	Seed, Index uint64
	Out         string        // where findings go, empty for nowhere
	Shrink      time.Duration // time for each
	ORT         string        // where ONNX Runtime is, empty for no comparison with it
}

// result is the line that a worker answers.
type result struct {
	Seed, Index uint64
	Error       string // where there is no graph
	Kinds       map[string]int
	Variants    int
	Findings    []finding
	Refused     string   // by ONNX Runtime
	Decided     []string // differences from it that the specification decides
}

// peers are ONNX Runtime's processes by folder.
var peers = map[string]*diff.Peer{}

func peer(folder string) (*diff.Peer, error) {
	if peers[folder] == nil {
		p, err := diff.FindPeer(folder)
		if err != nil {
			return nil, err
		}
		peers[folder] = p
	}
	return peers[folder], nil
}

// finding is a line of the report.
type finding struct {
	Seed    uint64 `json:"seed"`
	Index   uint64 `json:"graph"`
	Class   string `json:"class"`
	Variant string `json:"variant"`
	Detail  string `json:"detail"`
	Nodes   int    `json:"nodes"`
	Folder  string `json:"folder,omitempty"`
}

func (f finding) String() string {
	s := fmt.Sprintf("seed %d, graph %d: %s (%s): %s", f.Seed, f.Index, f.Class, f.Variant, f.Detail)
	if f.Folder != "" {
		s += fmt.Sprintf("; %d nodes in %s", f.Nodes, f.Folder)
	}
	return s + fmt.Sprintf("; again: make diff SEED=%d FROM=%d COUNT=1", f.Seed, f.Index)
}

func main() {
	do := run
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker":
			work()
			return
		case "mutants":
			do = mutants
		}
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work answers tasks on standard input.
func work() {
	if os.Getenv("GOGC") == "" { // graphs are small, and what is collected most is garbage at once
		debug.SetGCPercent(400)
	}
	ctx := context.Background()
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var t task
		if in.Decode(&t) != nil {
			return
		}
		if out.Encode(t.check(ctx)) != nil {
			return
		}
	}
}

func (t task) check(ctx context.Context) result {
	r := result{Seed: t.Seed, Index: t.Index}
	c, err := diff.Generate(t.Seed, t.Index)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Kinds, r.Variants = c.Kinds, len(c.Variants)
	differs, found := diff.Differs, []*diff.Finding(nil)
	if t.ORT == "" {
		found = c.Check(ctx)
	} else {
		p, err := peer(t.ORT)
		if err != nil {
			r.Error = err.Error()
			return r
		}
		differs = p.Differs
		switch f, refused := p.Check(ctx, c); {
		case refused != nil:
			r.Refused = short(refused.Error())
		case f != nil:
			found = append(found, f)
		}
	}
	for _, f := range found {
		found := finding{Seed: t.Seed, Index: t.Index, Class: f.Class, Variant: f.Variant.String(), Detail: short(f.String()), Nodes: c.Nodes()}
		if t.Out != "" {
			small, last := diff.Shrink(ctx, c, f, t.Shrink, differs)
			if t.ORT != "" {
				if why := diff.Decided(small, last); why != "" {
					r.Decided = append(r.Decided, why)
					continue
				}
			}
			found.Detail, found.Nodes = short(last.String()), small.Nodes()
			found.Folder = filepath.Join(t.Out, fmt.Sprintf("%d-%d-%s", t.Seed, t.Index, f.Class))
			if err := small.Write(found.Folder, found.String()+"\n\n"+small.Text()+"\n"); err != nil {
				found.Detail += "; " + err.Error()
			}
		}
		r.Findings = append(r.Findings, found)
	}
	return r
}

// short is a message without what would fill a screen.
func short(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 300 {
		s = s[:300] + "..."
	}
	return s
}

// worker is a process that checks graphs.
type worker struct {
	cmd    *exec.Cmd
	in     *json.Encoder
	out    *json.Decoder
	stdin  io.Closer
	stderr bytes.Buffer
}

func start() (*worker, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(path, "worker")}
	w.cmd.Stderr = &w.stderr
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.in, w.out, w.stdin = json.NewEncoder(in), json.NewDecoder(out), in
	return w, w.cmd.Start()
}

// do has the worker check a graph. A worker that ends or hangs is a finding, and ok is
// false: it is of no more use.
func (w *worker) do(ctx context.Context, t task) (r result, ok bool) {
	var why string
	limit := hang
	if t.Out != "" {
		limit += 4 * t.Shrink
	}
	timer := time.AfterFunc(limit, func() { why = fmt.Sprintf("no answer in %v", limit); w.cmd.Process.Kill() })
	defer timer.Stop()
	stop := context.AfterFunc(ctx, func() { w.cmd.Process.Kill() })
	defer stop()
	err := w.in.Encode(t)
	if err == nil {
		err = w.out.Decode(&r)
	}
	if err == nil {
		return r, true
	}
	w.stdin.Close()
	w.cmd.Wait()
	if ctx.Err() != nil {
		return r, false
	}
	class := "hang"
	if why == "" {
		class, why = "crash", short(strings.TrimSpace(w.stderr.String()))
	}
	r = result{Seed: t.Seed, Index: t.Index, Findings: []finding{{Seed: t.Seed, Index: t.Index, Class: class, Variant: "any", Detail: why}}}
	if t.Out != "" {
		r.Findings[0].write(t, w.stderr.String())
	}
	return r, false
}

// write writes a graph that was not shrunk. An operator that panics does so while the
// graph is built, which leaves nothing to write.
func (f *finding) write(t task, log string) {
	defer func() {
		if p := recover(); p != nil {
			f.Detail += fmt.Sprintf("; building the graph: %v", p)
		}
	}()
	c, err := diff.Generate(t.Seed, t.Index)
	if err != nil {
		return
	}
	f.Nodes, f.Folder = c.Nodes(), filepath.Join(t.Out, fmt.Sprintf("%d-%d-%s", t.Seed, t.Index, f.Class))
	if err := c.Write(f.Folder, f.String()+"\n\n"+log+"\n"+c.Text()); err != nil {
		f.Detail += "; " + err.Error()
	}
}

func run() error {
	var (
		seed     = flag.Uint64("seed", 1, "the seed of the graphs")
		from     = flag.Uint64("from", 0, "the number of the first graph")
		count    = flag.Int("count", 0, "the number of graphs of the seed; 0 for as many as duration has time for, or 5000")
		fresh    = flag.Int("fresh", 0, "graphs of a fresh seed beside them")
		duration = flag.Duration("duration", 0, "go on with fresh seeds until this time is over")
		workers  = flag.Int("workers", 2, "graphs at a time")
		out      = flag.String("out", "out/diff", "the folder for what is found, empty for none")
		shrink   = flag.Duration("shrink", 20*time.Second, "the time to shrink a finding in")
		first    = flag.Bool("first", false, "end at the first finding")
		asJSON   = flag.Bool("json", false, "print the findings as JSON lines, and a last line with the counts")
		quiet    = flag.Bool("quiet", false, "print no progress")
		ort      = flag.String("ort", "", "compare the interpreter with the ONNX Runtime that npm installed in this folder, in place of spc's compile with the interpreter")
		cover    = flag.Bool("cover", false, "print how many nodes of each operator there were")
	)
	flag.Parse()
	if *count == 0 && *duration == 0 {
		*count = 5000
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	begin := time.Now()
	freshSeed := rand.Uint64() >> 1
	if *fresh > 0 || *duration > 0 {
		fmt.Fprintf(os.Stderr, "seed %d, and the fresh seed %d\n", *seed, freshSeed)
	}
	var mu sync.Mutex
	var next int
	total := *count + *fresh
	takes := func() (task, bool) {
		mu.Lock()
		defer mu.Unlock()
		i := next
		next++
		t := task{Out: *out, Shrink: *shrink, ORT: *ort}
		switch {
		case i < *count:
			t.Seed, t.Index = *seed, *from+uint64(i)
		case i < total || *duration > 0 && time.Since(begin) < *duration:
			t.Seed, t.Index = freshSeed, uint64(i-*count)
		default:
			return t, false
		}
		return t, ctx.Err() == nil
	}
	s := summary{Kinds: map[string]int{}, Decided: map[string]int{}}
	ended := errors.New("")
	each := func(r result) error {
		mu.Lock()
		defer mu.Unlock()
		if r.Error != "" {
			r.Findings = append(r.Findings, finding{Seed: r.Seed, Index: r.Index, Class: "generator", Detail: r.Error})
		}
		s.Graphs++
		s.Compiles += r.Variants
		for k, n := range r.Kinds {
			s.Kinds[k] += n
		}
		if r.Refused != "" {
			s.Refused++
			if *cover {
				fmt.Printf("refused: %s\n", r.Refused)
			}
		}
		for _, why := range r.Decided {
			s.Decided[why]++
		}
		for _, f := range r.Findings {
			if s.Findings++; s.Findings == 1 {
				s.First = s.Graphs
			}
			if *asJSON {
				b, err := json.Marshal(f)
				if err != nil {
					return err
				}
				fmt.Println(string(b))
			} else {
				fmt.Println(f)
			}
		}
		if *first && len(r.Findings) > 0 {
			return ended
		}
		return nil
	}
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	if *quiet {
		tick.Stop()
	}
	done := make(chan error, *workers)
	working, end := context.WithCancel(ctx)
	defer end()
	for range *workers {
		go func() {
			done <- func() error {
				var w *worker
				defer func() {
					if w != nil {
						w.stdin.Close()
						w.cmd.Wait()
					}
				}()
				for working.Err() == nil {
					t, ok := takes()
					if !ok {
						break
					}
					if w == nil {
						var err error
						if w, err = start(); err != nil {
							return err
						}
					}
					r, ok := w.do(working, t)
					if !ok {
						w = nil
					}
					if working.Err() != nil {
						break
					}
					if err := each(r); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	var err error
	for left := *workers; left > 0; {
		select {
		case e := <-done:
			left--
			if e != nil {
				if !errors.Is(e, ended) {
					err = e
				}
				end()
			}
		case <-tick.C:
			mu.Lock()
			fmt.Fprintf(os.Stderr, "%v: %d graphs, %d compiles, %d findings\n", time.Since(begin).Round(time.Second), s.Graphs, s.Compiles, s.Findings)
			mu.Unlock()
		}
	}
	if err != nil {
		return err
	}
	if *cover {
		for _, kind := range slices.Sorted(maps.Keys(diff.Rules)) {
			if diff.Rules[kind].Make != nil {
				fmt.Printf("%6d %s\n", s.Kinds[kind], kind)
			}
		}
	}
	s.Seconds = time.Since(begin).Seconds()
	if *asJSON {
		s.Kinds = nil
		b, err := json.Marshal(s)
		if err != nil {
			return err
		}
		fmt.Println(string(b))
	} else {
		for _, why := range slices.Sorted(maps.Keys(s.Decided)) {
			fmt.Printf("%d differences from ONNX Runtime: %s\n", s.Decided[why], why)
		}
		if *ort != "" {
			fmt.Printf("ONNX Runtime does not take %d graphs\n", s.Refused)
		}
		fmt.Printf("%d graphs, %d compiles, %d findings in %.0f s\n", s.Graphs, s.Compiles, s.Findings, s.Seconds)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.Findings > 0 {
		os.Exit(1)
	}
	return nil
}

// summary is the last line of a report.
type summary struct {
	Graphs   int            `json:"graphs"`
	Compiles int            `json:"compiles"`
	Findings int            `json:"findings"`
	First    int            `json:"first,omitempty"` // the graphs that were checked when the first was found
	Seconds  float64        `json:"seconds"`
	Refused  int            `json:"refused,omitempty"` // graphs that ONNX Runtime does not take
	Decided  map[string]int `json:"decided,omitempty"` // differences from it, by what decides them
	Kinds    map[string]int `json:"-"`
}
