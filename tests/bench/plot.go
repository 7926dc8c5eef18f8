package bench

import (
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"spc/internal/chart"
)

const pitch = vg.Length(24) // of rows

// Few are the rows of the README's picture: dense models and pruned ones, among them the dense one that
// gains least.
var Few = []string{"resnet50", "mobilenetv2", "bert-base", "minilm", "resnet50-uniform-80", "resnet50-4x1-80", "resnet50-4x1-90", "bert-base-4x1-80", "bert-base-4x1-90", "lstm-16-16x1-90", "resnet50-int8", "resnet50-int8-1x4-80"}

// Plot draws the ratios as a PNG on a logarithmic scale: for each row, or each of those that are
// named where there are such, and number of threads a bar from 1 to the ratio, and a mark where the row's bar is.
func (r *Results) Plot(path string, rows ...string) error {
	if !slices.ContainsFunc(r.Rows, func(x Result) bool { return slices.Contains(rows, x.Name) }) {
		rows = nil
	}
	threads := r.Threads()
	bars := make([]chart.Bars, len(threads))
	for i, t := range threads {
		bars[i] = chart.Bars{Label: plural(t, "thread"), Color: chart.Shades[i%len(chart.Shades)], Lane: i}
	}
	var names []string
	least := chart.Marks{Label: "bar"}
	lo, hi := 0.5, 2.0
	for _, x := range r.sorted() {
		if x.Error != "" || len(rows) > 0 && !slices.Contains(rows, x.Name) {
			continue
		}
		if !slices.Contains(names, x.Name) {
			names = append(names, x.Name)
		}
		at := slices.Index(names, x.Name)
		b := &bars[slices.Index(threads, x.Threads)]
		b.At, b.Values = append(b.At, at), append(b.Values, x.Ratio.Median)
		lo, hi = min(lo, x.Ratio.Median), max(hi, x.Ratio.Median, x.Bar)
		if x.Bar > 0 && !slices.Contains(least.At, at) {
			least.At, least.Values = append(least.At, at), append(least.Values, x.Bar)
		}
	}
	var all []chart.Marks
	if len(least.At) > 0 {
		all = append(all, least)
	}
	return (&chart.Rows{
		Title: fmt.Sprintf("ONNX Runtime's time (%s, dense, f32 but for qdq) / spc's time\n%s, %s, commit %s",
			r.ORT, r.Machine.CPU, strings.SplitN(r.Date, "T", 2)[0], r.Commit),
		Names: names, Bars: bars, Marks: all, Log: true, Least: lo, Most: hi, Pitch: pitch, Text: times,
	}).Save(path)
}
