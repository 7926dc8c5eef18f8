package bench

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"spc/internal/atomicfile"
)

func newTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Box.PaddingLeft, t.Style().Box.PaddingRight = "", "  "
	t.Style().Format.Header = text.FormatDefault
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	return t
}

// right makes some columns, counted from 1, right-aligned.
func right(t table.Writer, columns ...int) {
	var c []table.ColumnConfig
	for _, n := range columns {
		c = append(c, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(c)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// left is the share of multiply-adds that are left.
func (m Macs) share() string {
	if m.Dense == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*m.Left/m.Dense)
}

func times(x float64) string { return fmt.Sprintf("%.2f", x) }

// bar names a bar and whether it is met.
func bar(b float64, met bool) (least, verdict string) {
	switch {
	case b == 0:
		return "", ""
	case met:
		return times(b), "met"
	}
	return times(b), "MISSED"
}

// Print prints results as text.
func (r *Results) Print(w io.Writer) {
	fmt.Fprintf(w, "%s, commit %s\n%s, %s, %s\n", r.Date, r.Commit, r.Machine.CPU, plural(r.Machine.Cores, "core"), r.Machine.Go)
	if r.ORT != "" {
		fmt.Fprintf(w, "ONNX Runtime %s (node %s) runs the dense model in f32, in rows named qdq the quantised one, in those named 4bits, dynamic and extended the file that spc has\n", r.ORT, r.Node)
	}
	if len(r.Rows) > 0 {
		r.printRows(w)
	}
	if len(r.Sparse) > 0 {
		r.printSparse(w)
	}
	if len(r.Zoo) > 0 {
		r.printZoo(w)
	}
	if len(r.Regret) > 0 {
		r.printRegret(w)
	}
	if len(r.Predicted) > 0 {
		r.printPredicted(w)
	}
	if len(r.Decode) > 0 {
		r.printDecode(w)
	}
	if s := r.warning(); s != "" {
		fmt.Fprintf(w, "\n%s\n", s)
	}
}

func (r *Results) warning() string {
	var v []float64
	for _, x := range r.Rows {
		v = append(v, x.Others)
	}
	for _, x := range r.Sparse {
		if !x.Same {
			v = append(v, x.Others)
		}
	}
	for _, x := range r.Zoo {
		v = append(v, x.Others)
	}
	return warning(v)
}

func share(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }

func (r *Results) printRows(w io.Writer) {
	fmt.Fprintln(w, "\nRatios are ONNX Runtime's time to spc's, medians of rounds with their quartiles and range;\nbest is that of the fastest runs, others the share of the processors that other processes used.")
	for _, threads := range r.Threads() {
		fmt.Fprintf(w, "\n%s\n\n", plural(threads, "thread"))
		t := newTable(w, "row", "m-adds left", "ORT ms", "spc ms", "ratio", "quartiles", "range", "rounds", "others", "best", "bar", "", "rel l2")
		right(t, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13)
		var failed []Result
		bars, met := 0, 0
		count := func(bar float64, ok bool) {
			if bar > 0 {
				bars++
				if ok {
					met++
				}
			}
		}
		for _, x := range r.sorted() {
			if x.Threads != threads {
				continue
			}
			count(x.Bar, x.Met())
			if x.Error != "" {
				failed = append(failed, x)
				continue
			}
			least, verdict := bar(x.Bar, x.Met())
			t.AppendRow(table.Row{
				x.Name, x.Macs.share(), fmt.Sprintf("%.4g", x.ORT), fmt.Sprintf("%.4g", x.SPC), times(x.Ratio.Median),
				times(x.Ratio.Q1) + "-" + times(x.Ratio.Q3), times(x.Ratio.Min) + "-" + times(x.Ratio.Max), x.Rounds,
				share(x.Others), times(x.Best), least, verdict, fmt.Sprintf("%.0e", x.RelL2),
			})
		}
		for _, m := range r.Means() {
			if m.Threads == threads {
				count(m.Bar, m.Ratio >= m.Bar)
				least, verdict := bar(m.Bar, m.Ratio >= m.Bar)
				t.AppendRow(table.Row{fmt.Sprintf("mean of %d dense rows", m.Rows), "", "", "", times(m.Ratio), "", "", "", "", "", least, verdict, ""})
			}
		}
		t.Render()
		fmt.Fprintf(w, "\n%d of %d bars met\n", met, bars)
		for _, x := range failed {
			fmt.Fprintf(w, "failed: %s: %s\n", x.Name, x.Error)
		}
	}
}

// sorted returns the rows by group, as Groups has them, else in their order.
func (r *Results) sorted() []Result {
	rows := slices.Clone(r.Rows)
	at := func(g string) int {
		if i := slices.Index(Groups, g); i >= 0 {
			return i
		}
		return len(Groups)
	}
	slices.SortStableFunc(rows, func(a, b Result) int { return at(a.Group) - at(b.Group) })
	return rows
}

func (r *Results) printSparse(w io.Writer) {
	fmt.Fprintf(w, "\nRatios are the pruned model's time to that of the dense compile; the limit is %.2f, of tuned models 1.\n", Limit)
	fmt.Fprintln(w, "One is slower by the medians and by the fastest runs (best), and in three of four rounds at all.")
	fmt.Fprintln(w, "Where no ratio stands, every weight stays dense.")
	commits := map[string]int{}
	for _, x := range r.Sparse {
		if x.Commit != "" {
			commits[x.Commit]++
		}
	}
	for _, c := range slices.Sorted(maps.Keys(commits)) {
		fmt.Fprintf(w, "%d of them are of commit %s.\n", commits[c], c)
	}
	fmt.Fprintln(w)
	t := newTable(w, "model", "pattern", "zeros", "threads", "dense ms", "sparse ms", "ratio", "quartiles", "rounds", "others", "best", "", "formats")
	right(t, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	measured := 0
	var worse, failed []Sparse
	for _, x := range r.Sparse {
		zeros := fmt.Sprintf("%g%%", 100*x.Sparsity)
		switch {
		case x.Error != "":
			failed = append(failed, x)
		case x.Same:
			t.AppendRow(table.Row{x.Model, x.Pattern, zeros, x.Threads, "", "", "", "", "", "", "", "", x.Formats})
		default:
			measured++
			verdict := ""
			if x.Exception() {
				worse = append(worse, x)
				verdict = "SLOWER"
			}
			t.AppendRow(table.Row{
				x.Model, x.Pattern, zeros, x.Threads, fmt.Sprintf("%.4g", x.Dense), fmt.Sprintf("%.4g", x.Sparse),
				times(x.Ratio.Median), times(x.Ratio.Q1) + "-" + times(x.Ratio.Q3), x.Rounds, share(x.Others), times(x.Best), verdict, x.Formats,
			})
		}
	}
	t.Render()
	fmt.Fprintf(w, "\n%d of %d measured, the rest all dense; %d are slower than dense\n", measured, len(r.Sparse)-len(failed), len(worse))
	for _, x := range worse {
		fmt.Fprintf(w, "slower: %s, %s %g on %s: %s, by the fastest runs %s\n", x.Model, x.Pattern, x.Sparsity, plural(x.Threads, "thread"), times(x.Ratio.Median), times(x.Best))
	}
	for _, x := range failed {
		fmt.Fprintf(w, "failed: %s, %s %g: %s\n", x.Model, x.Pattern, x.Sparsity, x.Error)
	}
}

// mark names the table of docs/results/speed.md.
const mark = "bench-ort"

// Markdown returns the table of docs/results/speed.md.
func (r *Results) Markdown() string {
	r = r.rounded()
	var b strings.Builder
	threads := r.Threads()
	fmt.Fprintf(&b, "%s, %s; ONNX Runtime %s runs the dense model in f32, in rows named\nqdq the quantised one; commit %s, %s.\n\n",
		r.Machine.CPU, plural(r.Machine.Cores, "core"), r.ORT, r.Commit, strings.SplitN(r.Date, "T", 2)[0])
	if s := r.warning(); s != "" {
		b.WriteString(strings.ToUpper(s[:1]) + s[1:] + ".\n\n")
	}
	b.WriteString("| | multiply-adds left | bar |")
	for _, t := range threads {
		fmt.Fprintf(&b, " %s: ONNX Runtime, ms | spc, ms | ratio |", plural(t, "thread"))
	}
	b.WriteString("\n|---|---:|---:|" + strings.Repeat("---:|---:|---:|", len(threads)) + "\n")
	rows := r.sorted()
	seen := map[string]bool{}
	cell := func(ratio, bar float64) string {
		if bar > 0 && ratio < bar {
			return fmt.Sprintf("%s (below %s)", times(ratio), times(bar))
		}
		return times(ratio)
	}
	for _, x := range rows {
		if seen[x.Name] {
			continue
		}
		seen[x.Name] = true
		least := ""
		if x.Bar > 0 {
			least = times(x.Bar)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", x.Name, x.Macs.share(), least)
		for _, t := range threads {
			i := slices.IndexFunc(rows, func(y Result) bool { return y.Name == x.Name && y.Threads == t })
			switch {
			case i < 0:
				b.WriteString(" | | |")
			case rows[i].Error != "":
				b.WriteString(" | | failed |")
			default:
				y := rows[i]
				fmt.Fprintf(&b, " %.4g | %.4g | %s |", y.ORT, y.SPC, cell(y.Ratio.Median, y.Bar))
			}
		}
		b.WriteString("\n")
	}
	if means := r.Means(); len(means) > 0 {
		b.WriteString("| geometric mean of the dense rows | | |")
		for _, t := range threads {
			i := slices.IndexFunc(means, func(m Mean) bool { return m.Threads == t })
			if i < 0 {
				b.WriteString(" | | |")
				continue
			}
			fmt.Fprintf(&b, " | | %s |", cell(means[i].Ratio, means[i].Bar))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Replace returns a document with another table between the lines <!-- mark --> and
// <!-- /mark -->.
func Replace(text, mark, table string) (string, error) {
	begin, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->"
	before, rest, ok1 := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("no lines %s and %s around a table", strings.TrimSpace(begin), end)
	}
	return before + begin + table + end + after, nil
}

// UpdateFile writes a table between the lines that mark names in the file at path.
func UpdateFile(path, mark, table string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s, err := Replace(string(b), mark, table)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	})
}

// UpdateTable writes the table of r into the document at path.
func (r *Results) UpdateTable(path string) error { return UpdateFile(path, mark, r.Markdown()) }
