package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// Promises are what came of budgets, each with where it was measured.
type Promises struct {
	Promises []PromiseResult `json:"promises"`
}

// PromiseResult is a promise, and where and of which commit it was measured.
type PromiseResult struct {
	Promise
	Date   string `json:"date"`
	Commit string `json:"commit"`
	CPU    string `json:"cpu"`
}

// PromiseMark names the table of docs/results/budgets.md.
const PromiseMark = "budgets"

// ReadPromises reads a file, none where there is no such file.
func ReadPromises(path string) (*Promises, error) { return readResults[Promises](path) }

// Put replaces what was there of a budget.
func (r *Promises) Put(x PromiseResult) {
	i := slices.IndexFunc(r.Promises, func(o PromiseResult) bool { return o.Model == x.Model && o.Budget == x.Budget })
	if i >= 0 {
		r.Promises[i] = x
		return
	}
	r.Promises = append(r.Promises, x)
}

// Write writes a file.
func (r *Promises) Write(path string) error { return writeResults(path, r) }

// Markdown returns the table of docs/results/budgets.md, and how many budgets are kept.
func (r *Promises) Markdown() string {
	var b strings.Builder
	var where []string
	count := map[string]int{}
	for _, x := range r.Promises {
		if s := fmt.Sprintf("%s, commit %s, %s", x.CPU, x.Commit, x.Date); !slices.Contains(where, s) {
			where = append(where, s)
		}
		verdict := x.Verdict
		if verdict != Kept && verdict != Cannot {
			verdict = Broken
		}
		count[verdict]++
	}
	fmt.Fprintf(&b, "Measured on %s: of %d budgets %d kept, %d that cannot be met, %d broken.\n\n", strings.Join(where, "; "), len(r.Promises), count[Kept], count[Cannot], count[Broken])
	b.WriteString("| model | budget | | speed-up | multiply-adds | size | points lost | at most | found in |\n|---|---|---|---:|---:|---:|---:|---:|---:|\n")
	for _, x := range r.Promises {
		fmt.Fprintf(&b, "| %s | `%s` |", x.Model, x.Budget)
		if x.Verdict == Kept || strings.HasPrefix(x.Verdict, Broken) {
			fmt.Fprintf(&b, " %s | %.2f | %.0f%% | %.2f MB | %.2f | %.2f |", x.Verdict, x.Speedup, 100*x.FLOPs, float64(x.Bytes)/1e6, x.Drop, x.Bound)
		} else {
			fmt.Fprintf(&b, " %s | | | | | |", strings.TrimSuffix(x.Verdict+": "+x.Why, ": "))
		}
		fmt.Fprintf(&b, " %.0f s |\n", x.Seconds)
	}
	return b.String()
}
