package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"spc/internal/atomicfile"
	"spc/tests/bench"
)

// Mark names the table of docs/results/protocol.md.
const Mark = "protocol"

// Results are what came of the calls of all clients.
type Results struct {
	Date    string        `json:"date"`
	Commit  string        `json:"commit"`
	Machine bench.Machine `json:"machine"`
	Clients []Result      `json:"clients"`
}

// Result is what came of a client's calls.
type Result struct {
	Client  string  `json:"client"`
	Of      string  `json:"of"`
	Version string  `json:"version"`
	Checks  []Check `json:"checks"`
}

// NewResults returns results without clients, of this machine, time and commit.
func NewResults() *Results {
	here := bench.Here()
	return &Results{Date: here.Date, Commit: here.Commit, Machine: here.Machine}
}

// ReadResults reads what Write wrote.
func ReadResults(path string) (*Results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Results)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write writes the results as JSON, a check a line.
func (r *Results) Write(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	b = bytes.ReplaceAll(b, []byte(`{"call":`), []byte("\n"+`{"call":`))
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}

// Failed counts the checks that fail.
func (r *Result) Failed() (n int) {
	for _, x := range r.Checks {
		if x.Wrong != "" {
			n++
		}
	}
	return n
}

// cell is what the table says of a call by a client: how many checks pass, and of how many where some do not.
func (r *Result) cell(call string) string {
	all, passed := 0, 0
	for _, x := range r.Checks {
		if x.Call == call {
			all++
			if x.Wrong == "" {
				passed++
			}
		}
	}
	switch {
	case all == 0:
		return ""
	case passed == all:
		return fmt.Sprint(all)
	}
	return fmt.Sprintf("**%d of %d**", passed, all)
}

// Markdown returns the tables: a row for each call and a column for each client that makes some of them.
func (r *Results) Markdown() string {
	var b strings.Builder
	all, failed := 0, 0
	for i := range r.Clients {
		all += len(r.Clients[i].Checks)
		failed += r.Clients[i].Failed()
	}
	fmt.Fprintf(&b, "Run on %s, commit %s, %.10s: of %d checks %d passed.\n", r.Machine.CPU, r.Commit, r.Date, all, all-failed)
	for _, over := range []struct {
		name string
		is   bool
	}{{"REST", true}, {"gRPC", false}} {
		var columns []*Result
		for i := range r.Clients {
			for _, c := range Calls {
				if rest(c) == over.is && r.Clients[i].cell(c.Name) != "" {
					columns = append(columns, &r.Clients[i])
					break
				}
			}
		}
		fmt.Fprintf(&b, "\n| %s | of |", over.name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s %s |", c.Client, c.Version)
		}
		b.WriteString("\n|---|---|" + strings.Repeat("---:|", len(columns)) + "\n")
		for _, call := range Calls {
			if rest(call) != over.is {
				continue
			}
			name := call.Name
			if call.From != "" {
				name = "`" + name + "`"
			}
			fmt.Fprintf(&b, "| %s | %s |", name, call.From)
			for _, c := range columns {
				fmt.Fprintf(&b, " %s |", c.cell(call.Name))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
