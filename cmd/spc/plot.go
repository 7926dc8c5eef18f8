package main

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spc"
	"spc/backend/machine"
	"spc/internal/chart"
	"spc/passes/choose"
)

// plots are the values of --plot.
var plots = map[string]func(f *figure, path string) error{
	"layers":   (*figure).drawLayers,
	"roofline": (*figure).drawRoofline,
}

// plotFlags say which picture is drawn, and into which file, which is the argument that follows.
type plotFlags struct{ plot, file string }

func (f *plotFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.plot, "plot", "", "the `PICTURE` to draw, roofline or layers, into a .png or .svg file, the last argument")
	complete(c, "plot", values("roofline", "layers"))
}

// take takes the picture's file out of the arguments, of which as many are left as models.
func (f *plotFlags) take(args []string, models int) ([]string, error) {
	switch n := len(args); {
	case f.plot == "" && n > models:
		return nil, fmt.Errorf("%s given, want %d; only --plot takes a file besides, and --diff, --html and --serve another model", plural(n, "argument"), models)
	case f.plot == "":
		return args, nil
	case plots[f.plot] == nil:
		return nil, fmt.Errorf("--plot %q, want roofline or layers", f.plot)
	case n <= models:
		return nil, fmt.Errorf("--plot %s: want a .png or .svg file after it", f.plot)
	}
	at := max(len(args)-1, 0)
	if i := slices.IndexFunc(args, func(a string) bool { return chart.Check(a) == nil }); i >= 0 {
		at = i
	}
	f.file = args[at]
	if err := chart.Check(f.file); err != nil {
		return nil, fmt.Errorf("--plot %s %w", f.plot, err)
	}
	return slices.Delete(slices.Clone(args), at, at+1), checkOutput("--plot "+f.plot, f.file)
}

// draw draws the picture, if one is asked for.
func (f *plotFlags) draw(model string, of func() (*figure, error)) error {
	if f.plot == "" {
		return nil
	}
	fig, err := of()
	if err != nil {
		return fmt.Errorf("--plot %s of %s: %w", f.plot, printable(model), err)
	}
	if err := plots[f.plot](fig, f.file); err != nil {
		return fmt.Errorf("--plot %s of %s: %w", f.plot, printable(model), err)
	}
	return nil
}

// figure is what pictures show: layers with their times, measured or predicted.
type figure struct {
	title  string
	axis   string        // how the times were found
	mark   string        // what other times are, by which bars have marks
	roof   *machine.Roof // nil where there is none
	cores  string        // whose it is
	layers []shown
}

// shown is a layer of a figure.
type shown struct {
	name, format string
	us, mark     float64 // mark is 0 for none
	flops, bytes float64
}

// plain is the kind of layers without weights.
const plain = "no weights"

// kind is what a layer's colour tells: its format, or that it has no weights.
func (l *shown) kind() string { return cmp.Or(l.format, plain) }

// kinds lists the kinds of a figure's layers, dense first and what has no weights last, with the colours that they have in all figures.
func (f *figure) kinds() (list []string, colors []color.RGBA) {
	all := append(formats()[1:], plain)
	for i, k := range all {
		if slices.ContainsFunc(f.layers, func(l shown) bool { return l.kind() == k }) {
			list, colors = append(list, k), append(colors, chart.Shades[i%len(chart.Shades)])
		}
	}
	return list, colors
}

// longest sorts the layers by time, and bounds their number. The title says so.
func (f *figure) longest(most int) {
	slices.SortStableFunc(f.layers, func(a, b shown) int { return cmp.Compare(b.us, a.us) })
	if n := len(f.layers); n > most {
		f.title += fmt.Sprintf("; the %d longest of %d", most, n)
		f.layers = f.layers[:most]
	}
}

// pictureName is the name of a layer as pictures have room for it: without the parts of a path that the next one begins with, as exporters write
// them in /features/features.3/block/block.0.
func pictureName(name string) string {
	const most = 44
	parts := strings.Split(printable(name), "/")
	var kept []string
	for i, p := range parts {
		if i+1 == len(parts) || p == "" || !strings.HasPrefix(parts[i+1], p+".") {
			kept = append(kept, p)
		}
	}
	return chart.Short(strings.Join(kept, "/"), most)
}

// drawLayers draws a bar for each layer.
func (f *figure) drawLayers(path string) error {
	const rows = 50
	if len(f.layers) == 0 {
		return errors.New("no layer has a time")
	}
	f.longest(rows)
	unit, scale := "microseconds", 1.0
	if f.layers[0].us >= 10e3 {
		unit, scale = "milliseconds", 1e-3
	}
	r := chart.Rows{Title: f.title, Axis: unit + ", " + f.axis, Pitch: 15, Text: func(v float64) string { return micros(v / scale) }}
	kinds, colors := f.kinds()
	for i, k := range kinds {
		r.Bars = append(r.Bars, chart.Bars{Label: k, Color: colors[i]})
	}
	marks := chart.Marks{Label: f.mark}
	for i, l := range f.layers {
		r.Names = append(r.Names, pictureName(l.name))
		b := &r.Bars[slices.Index(kinds, l.kind())]
		b.At, b.Values = append(b.At, i), append(b.Values, scale*l.us)
		r.Most = max(r.Most, scale*l.us, scale*l.mark)
		if l.mark > 0 {
			marks.At, marks.Values = append(marks.At, i), append(marks.Values, scale*l.mark)
		}
	}
	if len(marks.At) > 0 {
		r.Marks = append(r.Marks, marks)
	}
	return r.Save(path)
}

// drawRoofline draws the layers under the roofline, but those that take next to no time.
func (f *figure) drawRoofline(path string) error {
	const least = 0.001 // of the time
	if f.roof == nil {
		return errors.New("there is no profile of this device")
	}
	r := chart.Roofline{Title: fmt.Sprintf("%s\nroofline of %s: %s", f.title, f.cores, roofText(f.roof)), Peak: f.roof.Peak, Bandwidth: f.roof.Bandwidth}
	kinds, colors := f.kinds()
	for i, k := range kinds {
		r.Kinds = append(r.Kinds, chart.Points{Label: k, Color: colors[i]})
	}
	total, some := 0.0, false
	for _, l := range f.layers {
		total += l.us
	}
	for _, l := range f.layers {
		if l.us < least*total || l.flops <= 0 || l.bytes <= 0 {
			continue
		}
		some = true
		k := &r.Kinds[slices.Index(kinds, l.kind())]
		k.List = append(k.List, chart.Point{Name: pictureName(l.name), Intensity: l.flops / l.bytes, Rate: l.flops / l.us * 1e6, Weight: l.us / total})
	}
	r.Kinds = slices.DeleteFunc(r.Kinds, func(k chart.Points) bool { return len(k.List) == 0 })
	if !some {
		return errors.New("no layer has a time and known sizes")
	}
	return r.Save(path)
}

// figure is what pictures of a profile show.
func (p *profile) figure() *figure {
	f := &figure{
		title: fmt.Sprintf("%s: measured time of each layer\nbatch %d, %s", filepath.Base(printable(p.Model)), p.Batch, plural(p.Threads, "thread")),
		axis:  "medians of " + plural(p.Runs, "run"), mark: "predicted, for " + p.foretoldOn(),
		roof: p.Roof, cores: plural(p.Threads, "core") + ", profile " + p.Machine,
	}
	for _, l := range p.Layers {
		f.layers = append(f.layers, shown{name: l.Name, format: l.Format, us: l.Us, mark: l.PredictedUs, flops: l.FLOPs, bytes: l.Bytes})
	}
	return f
}

// known is what is known of a node's weights, in microseconds: of one evaluation of each product as they are stored and were they dense, and
// what the whole node took with a dense weight, 0 where that was not measured.
type known struct {
	chosen, dense, denseNode float64
	measured                 bool // as they are stored
}

// knownOf lists what a report knows, by node.
func knownOf(layers []spc.Layer) map[string]known {
	nodes := map[string]known{}
	for i := range layers {
		l, at := &layers[i], nodes[layers[i].Name]
		for k := range l.Candidates {
			c := &l.Candidates[k]
			us, _ := l.Us(c, l.N)
			if c.Chosen {
				at.chosen += us
				at.measured = at.measured || c.MeasuredUs > 0
			}
			if c.Format != choose.Dense {
				continue
			}
			at.dense += us
			if c.MeasuredUs > 0 {
				at.denseNode = max(at.denseNode, us)
			}
		}
		nodes[l.Name] = at
	}
	return nodes
}

// foretold is what pictures of a model show that has not run: the products of its weights, or the nodes where tuning measured these, with the
// time that dense ones were predicted or measured to take.
func foretold(path string, m *spc.Model) (*figure, error) {
	r := m.Explain()
	if r.Options.Target != string(spc.CPU) {
		return nil, fmt.Errorf("formats were chosen for %s, and there are only profiles of CPUs", r.Options.Target)
	}
	f, nodes, measured := &figure{}, knownOf(r.Layers), 0
	for _, n := range m.Predicted() {
		s, of := shown{name: n.Node, format: n.Format, us: us(n.Predicted), flops: n.FLOPs, bytes: n.Bytes}, nodes[n.Node]
		if of.measured {
			measured++
		}
		switch {
		case n.Format == choose.Dense:
		case of.measured:
			s.mark = of.denseNode
		default: // which counts what is evaluated again
			s.mark = s.us * of.dense / max(of.chosen, tiny)
		}
		f.layers = append(f.layers, s)
	}
	f.label(filepath.Base(printable(path)), r, measured)
	if slices.ContainsFunc(r.Layers, func(l spc.Layer) bool { return len(l.Points) > 1 }) {
		f.axis += "; each at its largest size"
	}
	return f, nil
}

// label says of how many layers the times were measured when the model was tuned, the others being predicted.
func (f *figure) label(name string, r *spc.Report, measured int) {
	p, threads := r.Options.CPU(), 1
	predicted := "one core of profile " + p.Name
	switch {
	case measured == 0:
		f.title, f.axis, f.mark = name+": predicted time of each layer with weights", predicted, "predicted as dense"
	case measured == len(f.layers):
		f.title, f.mark = name+": time of each layer with weights, measured when it was tuned", "measured as dense"
	default:
		f.title, f.mark = name+": time of each layer with weights, measured when it was tuned, else predicted", "as dense, likewise"
	}
	if measured > 0 {
		if r.Tuned != nil {
			threads = max(1, r.Tuned.Threads)
		}
		if f.axis = plural(threads, "thread"); measured < len(f.layers) {
			f.axis += ", else " + predicted
		}
	}
	roof := p.Roof(threads, r.Totals.StoredBytes)
	f.roof, f.cores = &roof, plural(threads, "core")+", profile "+p.Name
}
