package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Commits is the time of a row by two builds of spc, in processes that take turns.
type Commits struct {
	Name    string  `json:"name"`
	Threads int     `json:"threads"`
	Old     float64 `json:"old_ms"` // the fastest run of all rounds
	New     float64 `json:"new_ms"`
	// Ratio is that of the old build's median to the new one's, by round.
	Ratio Spread `json:"ratio"`
	Error string `json:"error,omitempty"`
}

// sittings is the number of rounds in which each build has a process.
const sittings = 5

// RunCommits compares b.Program with an older build on rows that this module compiles.
func (b *Bench) RunCommits(ctx context.Context, old string, rows []Row) ([]Commits, error) {
	s := session{Bench: b}
	var out []Commits
	for i, row := range rows {
		if row.Start != NoStart {
			continue // the way there is compared in other ways
		}
		for k, threads := range b.Threads {
			b.progress(row.Name, i*len(b.Threads)+k, len(rows)*len(b.Threads))
			c := Commits{Name: row.Name, Threads: threads}
			err := s.commits(ctx, old, row, &c)
			if ctx.Err() != nil {
				return out, ctx.Err()
			}
			if errors.Is(err, ErrNoData) {
				if b.Skip != nil {
					b.Skip(row.Name, err)
				}
				break
			}
			if err != nil {
				c.Error = b.reason(err)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// commits measures a row.
func (s *session) commits(ctx context.Context, old string, row Row, c *Commits) error {
	if err := s.open(ctx, row); err != nil {
		return err
	}
	o, err := s.options(row)
	if err != nil {
		return err
	}
	m, err := s.source.compile(ctx, o)
	if err != nil {
		return err
	}
	path := filepath.Join(s.Scratch, "model.spx")
	defer os.Remove(path)
	err = m.Save(path)
	m.Close()
	if err != nil {
		return err
	}
	programs, medians := []string{old, s.Program}, make([][]float64, 2)
	best := []float64{math.Inf(1), math.Inf(1)}
	runs := 3
	for round := range sittings + 1 {
		for side := range programs {
			side := (side + round) % 2
			ms, err := timed(ctx, programs[side], path, c.Threads, runs)
			if err != nil {
				return err
			}
			if round == 0 { // which tells how many fill a second
				runs = int(min(max(5, 1000/ms.Median), 2000))
				continue
			}
			best[side] = min(best[side], ms.Min)
			medians[side] = append(medians[side], ms.Median)
		}
	}
	c.Old, c.New, c.Ratio = best[0], best[1], Describe(Ratios(medians[0], medians[1]))
	return nil
}

// milliseconds are what spc bench tells of its runs.
type milliseconds struct {
	Min    float64 `json:"min"`
	Median float64 `json:"p50"`
}

// benched is what spc bench tells.
type benched struct {
	MS   milliseconds `json:"ms"`
	Peak float64      `json:"peak_bytes"`
}

// timed runs spc bench on a compiled model.
func timed(ctx context.Context, program, path string, threads, runs int) (milliseconds, error) {
	told, err := spcBench(ctx, program, path, "--warmup", "3", "--threads", fmt.Sprint(threads), "--runs", fmt.Sprint(runs))
	return told.MS, err
}

// spcBench runs spc bench on a compiled model in a process of its own.
func spcBench(ctx context.Context, program, path string, args ...string) (told benched, err error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"bench", path, "--json"}, args...)...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err == nil && told.MS.Min <= 0 {
		err = fmt.Errorf("%s tells no times", program)
	}
	if err != nil {
		return told, fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(failed.String()))
	}
	return told, nil
}

// PrintCommits prints the rows, and by how much the new build is faster in geometric mean; an error where
// a measurement failed.
func PrintCommits(w io.Writer, rows []Commits) error {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.AppendHeader(table.Row{"row", "threads", "old ms", "new ms", "old/new", "medians"})
	logs, n, failed := 0.0, 0, 0
	for _, c := range rows {
		if c.Error != "" {
			failed++
			t.AppendRow(table.Row{c.Name, c.Threads, "", "", "", c.Error})
			continue
		}
		logs, n = logs+math.Log(c.Old/c.New), n+1
		t.AppendRow(table.Row{c.Name, c.Threads, fmt.Sprintf("%.4g", c.Old), fmt.Sprintf("%.4g", c.New), fmt.Sprintf("%.3f", c.Old/c.New),
			fmt.Sprintf("%.3f (%.3f to %.3f)", c.Ratio.Median, c.Ratio.Min, c.Ratio.Max)})
	}
	t.Render()
	fmt.Fprintf(w, "geometric mean of old/new over %d rows: %.4f\n", n, math.Exp(logs/float64(max(n, 1))))
	if failed > 0 {
		return fmt.Errorf("%d measurements failed", failed)
	}
	return nil
}
