package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"spc/internal/atomicfile"
)

// PrunedResults are cells of the table, each with where and of which commit it was
// measured: a run may measure some of them anew.
type PrunedResults struct {
	Cells []PrunedResult `json:"cells"`
}

// ReadPruned reads what Write wrote; a file that is missing holds nothing.
func ReadPruned(path string) (*PrunedResults, error) { return readResults[PrunedResults](path) }

// readResults reads what writeResults wrote; a file that is missing, or has no name, holds nothing.
func readResults[T any](path string) (*T, error) {
	r := new(T)
	if path == "" {
		return r, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// writeResults writes results as JSON.
func writeResults(path string, r any) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}

// Write writes the cells as JSON.
func (r *PrunedResults) Write(path string) error { return writeResults(path, r) }

// find returns the index of the cell that x measures, or -1.
func (r *PrunedResults) find(model, cell string, reconstruct bool) int {
	return slices.IndexFunc(r.Cells, func(c PrunedResult) bool {
		return c.Model == model && c.Cell == cell && c.Reconstruct == reconstruct
	})
}

// Put replaces what an earlier run measured of the cell.
func (r *PrunedResults) Put(x PrunedResult) {
	if i := r.find(x.Model, x.Cell, x.Reconstruct); i >= 0 {
		r.Cells[i] = x
		return
	}
	r.Cells = append(r.Cells, x)
}

// Judge gives a cell of 8-bit integers its bar: what the same model reached in floating
// point, dense or in a cell that was measured, and what may be lost of that.
func (r *PrunedResults) Judge(x *PrunedResult) {
	rest, ok := quantised(x.Cell)
	m := pruned(x.Model)
	if !ok || m == nil || m.Perplexity {
		return
	}
	reconstruct := x.Reconstruct
	if rest == "" {
		rest, reconstruct = Whole, false
	}
	if i := r.find(x.Model, rest, reconstruct); i >= 0 && r.Cells[i].Error == "" {
		bar := r.Cells[i].Value - quantisedLoss
		x.Bar = &bar
	}
}

func pruned(model string) *PrunedModel {
	for i := range PrunedModels {
		if PrunedModels[i].Model == model {
			return &PrunedModels[i]
		}
	}
	return nil
}

// Table renders the cells, a line each.
func (r *PrunedResults) Table() string {
	w := table.NewWriter()
	w.AppendHeader(table.Row{"model", "zeros", "reconstructed", "measured", "bar", "", "allocation", "samples", "compile"})
	for i := range r.Cells {
		x := &r.Cells[i]
		m := pruned(x.Model)
		bar, yes := "", ""
		if x.Bar != nil {
			bar = fmt.Sprintf("%.4g", *x.Bar)
		}
		if x.Reconstruct {
			yes = "yes"
		}
		w.AppendRow(table.Row{x.Model, x.Cell, yes, fmt.Sprintf("%.4g", x.Value), bar, m.Verdict(x), x.Allocate, x.Samples, fmt.Sprintf("%.0f s", x.Compile)})
	}
	return w.Render()
}

// Commands lists the command lines of the cells.
func (r *PrunedResults) Commands() []string {
	var out []string
	for _, x := range r.Cells {
		if !slices.Contains(out, x.Command) {
			out = append(out, x.Command)
		}
	}
	return out
}

// Mark names the table of docs/results/accuracy.md.
const Mark = "accuracy"

// text is what the table says of a result.
func (m *PrunedModel) text(r *PrunedResult) string {
	if r.Error != "" {
		return "failed"
	}
	s := fmt.Sprintf("%.4g", r.Value)
	if m.Former(r) {
		s += "*"
	}
	if m.Verdict(r) == Missed {
		s += fmt.Sprintf(" (bar %.4g)", *r.Bar)
	}
	return s
}

// Markdown returns the table of docs/results/accuracy.md: a row for each model without reconstruction, and
// one with. Behind a value stands the bar that it misses by more than the noise, and a star where it is of former flags.
func (r *PrunedResults) Markdown() string {
	var b strings.Builder
	var where []string
	for _, x := range r.Cells {
		if s := fmt.Sprintf("%s, commit %s, %s", x.CPU, x.Commit, strings.SplitN(x.Date, "T", 2)[0]); !slices.Contains(where, s) {
			where = append(where, s)
		}
	}
	fmt.Fprintf(&b, "Measured on %s.\n\n", strings.Join(where, "; "))
	b.WriteString("| model (dense) | |")
	for _, c := range Cells[1:] {
		rest, integers := quantised(c)
		if strings.Trim(rest, "0123456789") == "" && rest != "" {
			rest += "%"
		}
		if integers {
			rest = strings.TrimSpace(rest + " int8")
		}
		fmt.Fprintf(&b, " %s |", strings.Replace(rest, "@", " ", 1))
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(Cells)-1) + "\n")
	for i := range PrunedModels {
		m := &PrunedModels[i]
		for _, reconstruct := range []bool{false, true} {
			row, found := "| "+m.Model, false
			if i := r.find(m.Model, Whole, false); i >= 0 && r.Cells[i].Error == "" {
				row += fmt.Sprintf(" (%.4g)", r.Cells[i].Value)
			}
			row += " | obs |"
			if reconstruct {
				row = "| | and reconstruct |"
			}
			for _, c := range Cells[1:] {
				at := r.find(m.Model, c, reconstruct)
				if at < 0 {
					row += " |"
					continue
				}
				found = true
				row += " " + m.text(&r.Cells[at]) + " |"
			}
			if found {
				b.WriteString(row + "\n")
			}
		}
	}
	return b.String()
}
