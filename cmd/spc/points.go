package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"spc"
	"spc/passes/choose"
)

// printOpen says what sizes of open dimensions formats were chosen for, and what two forms of weights cost.
func printOpen(w io.Writer, r *spc.Report) {
	if !slices.ContainsFunc(r.Layers, func(l spc.Layer) bool { return len(l.Candidates) > 1 }) {
		return
	}
	var parts []string
	for _, o := range r.Open {
		name := o.Name
		switch {
		case name == "" && o.Batch:
			name = "batches without a name"
		case name == "":
			name = "sizes without a name"
		}
		between := fmt.Sprintf("%d to %d", o.From, o.To)
		switch {
		case o.From == o.To:
			between = fmt.Sprint(o.From)
		case len(o.Only) > 0:
			between = strings.Join(strings.Split(o.Sizes.String(), ","), " and ")
		}
		parts = append(parts, printable(name)+" "+between)
	}
	narrow := ""
	if len(r.Open) > 0 && r.Open[0].Name != "" { // which come first
		narrow = " (--dim narrows that)"
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "chosen    for %s%s\n", strings.Join(parts, ", "), narrow)
	}
	two, second := map[string]bool{}, 0
	for _, l := range r.Layers {
		if l.Format == choose.PairFormat && !two[l.Weight] {
			two[l.Weight] = true
			second += l.SecondBytes
		}
	}
	if len(two) > 0 {
		more := "more"
		if second < 0 {
			second, more = -second, "less"
		}
		fmt.Fprintf(w, "pairs     %s in two forms, %s %s than in one (--one-format forbids that)\n", plural(len(two), "weight"), size(int64(second)), more)
	}
}

// predictedFor says what numbers of columns a layer's times were predicted for.
func predictedFor(l *spc.Layer) string {
	if len(l.Points) == 0 {
		return fmt.Sprintf("%d columns", l.N)
	}
	return fmt.Sprintf("%d to %d columns", l.Points[0].N, l.N)
}

// printPoints prints a layer's candidates with their times for each number of columns that was predicted, of those that were measured
// as the measurement has them, with ~ those that it did not measure.
func printPoints(w io.Writer, l *spc.Layer) {
	measured := slices.ContainsFunc(l.Candidates, func(c spc.Candidate) bool { return c.MeasuredUs > 0 })
	header := []any{"", "format", "stored", "mean"}
	if measured {
		header = append(header, "")
	}
	numbers := []int{3, 4}
	for _, p := range l.Points {
		header = append(header, fmt.Sprintf("N=%d", p.N))
		numbers = append(numbers, len(header))
	}
	t := newTable(w, append(header, "why")...)
	right(t, numbers...)
	for _, c := range l.Candidates {
		mark := ""
		if c.Chosen {
			mark = "*"
		}
		row := []any{mark, withConfig(c.Format, c.Config), size(int64(c.StoredBytes)), fmt.Sprintf("%.4g us", cmp.Or(c.MeasuredUs, c.PredictedUs))}
		switch {
		case measured && c.MeasuredUs > 0:
			row = append(row, "measured")
		case measured:
			row = append(row, "predicted")
		}
		for k, us := range c.PointsUs {
			about := ""
			if slices.Contains(c.ScaledPoints, k) {
				about = "~"
			}
			row = append(row, about+fmt.Sprintf("%.4g", us))
		}
		t.AppendRow(append(row, c.Why))
	}
	t.Render()
	if slices.ContainsFunc(l.Candidates, func(c spc.Candidate) bool { return len(c.ScaledPoints) > 0 }) {
		fmt.Fprintln(w, "~ predicted, scaled as the nearest measured number of columns")
	}
}
