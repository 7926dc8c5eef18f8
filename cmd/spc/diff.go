package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spc"
)

// difference is what --diff prints of two compiles, A and B.
type difference struct {
	A       string        `json:"a"`
	B       string        `json:"b"`
	Options []changed     `json:"options"` // that differ
	Layers  []layerChange `json:"layers"`  // that differ
	Same    int           `json:"same"`    // layers that do not
	Totals  struct {
		A spc.Totals `json:"a"`
		B spc.Totals `json:"b"`
	} `json:"totals"`
	Predicted struct { // on one thread; null where sizes are open
		A *spc.PredictedRun `json:"a"`
		B *spc.PredictedRun `json:"b"`
	} `json:"predicted"`
	Formats struct { // layers by format
		A map[string]int `json:"a"`
		B map[string]int `json:"b"`
	} `json:"formats"`
}

// changed is something that A and B have, and what it is in each; empty where one has none.
type changed struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// layerChange is a layer that differs: it is in A alone where it was removed, in B alone where it was added.
type layerChange struct {
	Name   string    `json:"name"`
	Weight string    `json:"weight"`
	Op     string    `json:"op"`
	Change string    `json:"change"` // changed, removed or added
	Fields []changed `json:"fields,omitempty"`
	A      *stored   `json:"a,omitempty"`
	B      *stored   `json:"b,omitempty"`
}

// stored is what is compared of a layer.
type stored struct {
	Format      string  `json:"format"`
	Config      string  `json:"config"`
	DType       string  `json:"dtype"`
	Sparsity    float64 `json:"sparsity"`
	Nonzeros    int     `json:"nonzeros"`
	StoredBytes int     `json:"stored_bytes"`
	Reason      string  `json:"reason"`
}

func storedAs(l *spc.Layer) *stored {
	return &stored{l.Format, l.Config, l.DType, l.Sparsity, l.Nonzeros, l.StoredBytes, l.Reason}
}

// fields lists what differs between two layers.
func (a *stored) fields(b *stored) (out []changed) {
	add := func(name, x, y string, differs bool) {
		if differs {
			out = append(out, changed{name, x, y})
		}
	}
	add("format", a.Format, b.Format, a.Format != b.Format)
	add("config", a.Config, b.Config, a.Config != b.Config)
	add("dtype", a.DType, b.DType, a.DType != b.DType)
	add("zeros", percent(a.Sparsity), percent(b.Sparsity), a.Nonzeros != b.Nonzeros || a.Sparsity != b.Sparsity)
	add("stored", size(int64(a.StoredBytes)), size(int64(b.StoredBytes)), a.StoredBytes != b.StoredBytes)
	add("reason", a.Reason, b.Reason, a.Reason != b.Reason)
	return out
}

// printDiff prints what differs between the two models that are the arguments.
func printDiff(c *cobra.Command, args []string, asJSON bool) error {
	if len(args) != 2 {
		return fmt.Errorf("--diff with %s, want two models", plural(len(args), "argument"))
	}
	d, err := diff(c, args[0], args[1])
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.OutOrStdout(), d)
	}
	d.print(c.OutOrStdout())
	return nil
}

// diff compares two models.
func diff(c *cobra.Command, a, b string) (*difference, error) {
	d := &difference{A: a, B: b, Options: []changed{}, Layers: []layerChange{}}
	var reports [2]spc.Report
	for i, path := range []string{a, b} {
		m, err := loadModel(c, path, sizes{}, spc.RunOptions{})
		if err != nil {
			return nil, err
		}
		reports[i] = *m.Explain()
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	d.Totals.A, d.Totals.B = reports[0].Totals, reports[1].Totals
	d.Predicted.A, d.Predicted.B = reports[0].Predicted, reports[1].Predicted
	d.Formats.A, d.Formats.B = byFormat(reports[0].Layers), byFormat(reports[1].Layers)
	d.layers(reports[0].Layers, reports[1].Layers)
	var err error
	d.Options, err = differing(reports[0].Options, reports[1].Options)
	return d, err
}

// byFormat counts the layers of each format.
func byFormat(layers []spc.Layer) map[string]int {
	count := map[string]int{}
	for _, l := range layers {
		count[l.Format]++
	}
	return count
}

// layers lists the layers that differ, those of A in its order before what B added.
func (d *difference) layers(a, b []spc.Layer) {
	type key struct {
		name, weight string
		again        int // of a node that reads the same weight several times
	}
	keyed := func(layers []spc.Layer) ([]key, map[key]*spc.Layer) {
		var keys []key
		of := map[key]*spc.Layer{}
		count := map[key]int{}
		for i := range layers {
			k := key{layers[i].Name, layers[i].Weight, 0}
			count[k]++
			k.again = count[k] - 1
			keys, of[k] = append(keys, k), &layers[i]
		}
		return keys, of
	}
	inA, ofA := keyed(a)
	inB, ofB := keyed(b)
	for _, k := range inA {
		la, lb := ofA[k], ofB[k]
		change := layerChange{Name: k.name, Weight: k.weight, Op: la.Op, Change: "removed", A: storedAs(la)}
		if lb != nil {
			change.Change, change.B = "changed", storedAs(lb)
			if change.Fields = change.A.fields(change.B); len(change.Fields) == 0 {
				d.Same++
				continue
			}
		}
		d.Layers = append(d.Layers, change)
	}
	for _, k := range inB {
		if ofA[k] == nil {
			d.Layers = append(d.Layers, layerChange{Name: k.name, Weight: k.weight, Op: ofB[k].Op, Change: "added", B: storedAs(ofB[k])})
		}
	}
}

// differing lists the options that differ, the command that asks for them last.
func differing(a, b spc.ReportOptions) ([]changed, error) {
	out := []changed{}
	var maps [2]map[string]any
	for i, o := range []spc.ReportOptions{a, b} {
		o.Command, o.Profile = nil, nil
		text, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(text, &maps[i])
		}
		if err != nil {
			return nil, err
		}
	}
	var names []string
	for _, m := range maps {
		for name := range m {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	text := func(v any) string {
		if v == nil {
			return ""
		}
		return fmt.Sprint(v)
	}
	for _, name := range names {
		if x, y := text(maps[0][name]), text(maps[1][name]); x != y {
			out = append(out, changed{name, x, y})
		}
	}
	if x, y := profileName(a.Profile), profileName(b.Profile); x != y {
		out = append(out, changed{"profile", x, y})
	}
	if x, y := shell(a.Command), shell(b.Command); x != y {
		out = append(out, changed{"command", x, y})
	}
	return out, nil
}

func (d *difference) print(w io.Writer) {
	fmt.Fprintf(w, "A  %s\nB  %s\n\n", printable(d.A), printable(d.B))
	if len(d.Layers) > 0 {
		d.table(w)
		fmt.Fprintln(w)
	}
	count := map[string]int{}
	for _, l := range d.Layers {
		count[l.Change]++
	}
	said := []string{plural(d.Same, "layer") + " alike"}
	for _, change := range []string{"changed", "removed", "added"} {
		if n := count[change]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, change))
		}
	}
	fmt.Fprintf(w, "%s\n\n", strings.Join(said, ", "))
	t := newTable(w, "", "A", "B")
	a, b := d.Totals.A, d.Totals.B
	zeros := func(t spc.Totals) string { return percent(share(t.Weights-t.Nonzeros, t.Weights)) }
	prunable := func(t spc.Totals) string { return percent(share(t.PrunableZeros, t.Prunable)) }
	for _, row := range [][3]string{
		{"weights", fmt.Sprint(a.Weights), fmt.Sprint(b.Weights)},
		{"zeros", zeros(a), zeros(b)},
		{"of the prunable", prunable(a), prunable(b)},
		{"stored", size(int64(a.StoredBytes)), size(int64(b.StoredBytes))},
		{"formats", formatCounts(d.Formats.A), formatCounts(d.Formats.B)},
		{"predicted", foreseen(d.Predicted.A), foreseen(d.Predicted.B)},
	} {
		if row[1]+row[2] != "" {
			t.AppendRow([]any{row[0], row[1], row[2]})
		}
	}
	for _, o := range d.Options {
		t.AppendRow([]any{o.Name, o.A, o.B})
	}
	t.Render()
}

// formatCounts writes how many layers have each format.
func formatCounts(count map[string]int) string {
	var parts []string
	for _, f := range formats() {
		if count[f] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", f, count[f]))
		}
	}
	return strings.Join(parts, ", ")
}

// table prints the layers that differ: of those in both what differs, as A -> B, of others what they are.
func (d *difference) table(w io.Writer) {
	t := newTable(w, "", "layer", "operator", "format", "dtype", "zeros", "stored", "reason")
	right(t, 6, 7)
	t.SuppressEmptyColumns()
	named := make([]spc.Layer, len(d.Layers))
	for i, l := range d.Layers {
		named[i] = spc.Layer{Name: l.Name, Weight: l.Weight}
	}
	names := rowNames(named)
	for i, l := range d.Layers {
		if l.Change != "changed" {
			mark, s := "-", l.A
			if s == nil {
				mark, s = "+", l.B
			}
			t.AppendRow([]any{mark, names[i], l.Op, withConfig(s.Format, s.Config), s.DType, percent(s.Sparsity), size(int64(s.StoredBytes)), s.Reason})
			continue
		}
		row := []any{"", names[i], l.Op, "", "", "", "", ""}
		for _, f := range l.Fields {
			switch text := f.A + " -> " + f.B; f.Name {
			case "format", "config":
				row[3] = withConfig(l.A.Format, l.A.Config) + " -> " + withConfig(l.B.Format, l.B.Config)
			case "dtype":
				row[4] = text
			case "zeros":
				row[5] = text
			case "stored":
				row[6] = text
			case "reason":
				row[7] = f.B
			}
		}
		t.AppendRow(row)
	}
	t.Render()
}

// foreseen is how long a run was predicted to take, empty where it was not.
func foreseen(p *spc.PredictedRun) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s, dense %s", millis(p.Ms), millis(p.DenseMs))
}
