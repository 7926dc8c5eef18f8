package bench

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"spc/internal/atomicfile"
)

// shades colour the kinds of bars.
var shades = []color.RGBA{{R: 31, G: 119, B: 180, A: 255}, {R: 255, G: 159, B: 64, A: 255}, {R: 44, G: 160, B: 44, A: 255}, {R: 150, G: 103, B: 189, A: 255}}

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
	bars := make([]ratioBars, len(threads))
	for i, t := range threads {
		bars[i] = ratioBars{label: plural(t, "thread"), color: shades[i%len(shades)]}
	}
	var names []string
	var least marks
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
		b.at, b.ratio = append(b.at, at), append(b.ratio, x.Ratio.Median)
		lo, hi = min(lo, x.Ratio.Median), max(hi, x.Ratio.Median, x.Bar)
		if x.Bar > 0 && !slices.Contains(least.at, at) {
			least.at, least.bar = append(least.at, at), append(least.bar, x.Bar)
		}
	}
	return chart{
		title: fmt.Sprintf("ONNX Runtime's time (%s, dense, f32 but for qdq) / spc's time\n%s, %s, commit %s",
			r.ORT, r.Machine.CPU, strings.SplitN(r.Date, "T", 2)[0], r.Commit),
		rows: names, bars: bars, least: least, lo: lo, hi: hi, pitch: pitch,
	}.draw(path)
}

// chart is a picture of ratios on a logarithmic scale from lo to hi: in each row a bar of each kind, and
// marks where a row has a bar to reach.
type chart struct {
	title  string
	rows   []string
	bars   []ratioBars
	least  marks
	lo, hi float64
	pitch  vg.Length // of rows
}

// place gives the bars of a row their thickness and their places beside each other.
func (c chart) place() {
	thick := c.pitch * 3 / 4 / vg.Length(len(c.bars))
	for i := range c.bars {
		c.bars[i].thick = thick
		c.bars[i].offset = thick * (vg.Length(len(c.bars)-1)/2 - vg.Length(i))
	}
}

// draw draws the chart as a PNG.
func (c chart) draw(path string) error {
	c.place()
	p := plot.New()
	p.Title.Text = c.title
	p.Title.Padding = 8
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powersOfTwo{}
	p.X.Min, p.X.Max = c.lo/1.3, c.hi*1.3
	p.NominalY(c.rows...)
	p.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}} // the first on top
	p.Y.Min, p.Y.Max = -0.6, float64(len(c.rows))-0.4
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	p.Y.Tick.Label.Font.Size = min(p.Y.Tick.Label.Font.Size, c.pitch*3/4)
	p.Legend.Top = true
	p.Add(verticals{})
	for _, b := range c.bars {
		p.Add(b)
		p.Legend.Add(b.label, b)
	}
	if len(c.least.at) > 0 {
		p.Add(c.least)
		p.Legend.Add("bar", c.least)
	}
	im := vgimg.New(800, 120+c.pitch*vg.Length(len(c.rows)))
	dc := draw.New(im)
	dc.FillPolygon(color.White, []vg.Point{{X: dc.Min.X, Y: dc.Min.Y}, {X: dc.Max.X, Y: dc.Min.Y}, {X: dc.Max.X, Y: dc.Max.Y}, {X: dc.Min.X, Y: dc.Max.Y}})
	p.Draw(draw.Crop(dc, 14, -14, 8, -8))
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := vgimg.PngCanvas{Canvas: im}.WriteTo(w)
		return err
	})
}

// powersOfTwo ticks a logarithmic axis.
type powersOfTwo struct{}

// Ticks lists the powers of two from least to most.
func (powersOfTwo) Ticks(least, most float64) []plot.Tick {
	var out []plot.Tick
	for e := math.Ceil(math.Log2(least)); e <= math.Log2(most); e++ {
		v := math.Exp2(e)
		out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 4, 64)})
	}
	return out
}

// verticals draws a line at each tick, a dark one where both sides take the same time.
type verticals struct{}

// Plot draws the lines.
func (verticals) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		s := draw.LineStyle{Color: color.Gray{Y: 220}, Width: 0.5}
		if t.Value == 1 {
			s = draw.LineStyle{Color: color.Gray{Y: 90}, Width: 1}
		}
		c.StrokeLine2(s, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
	}
}

// ratioBars are the bars of a kind: row at[i] has ratio[i].
type ratioBars struct {
	label         string
	at            []int
	ratio         []float64
	color         color.Color
	thick, offset vg.Length
}

// Plot draws the bars and writes each ratio at its end.
func (b ratioBars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := text.Style{Color: color.Black, Font: font.From(plot.DefaultFont, min(8, b.thick)), XAlign: text.XLeft, YAlign: text.YCenter, Handler: plot.DefaultTextHandler}
	for i, r := range b.ratio {
		from, to, at := x(1), x(r), y(float64(b.at[i]))+b.offset
		rect(&c, b.color, from, to, at-b.thick/2, at+b.thick/2)
		c.FillText(style, vg.Point{X: max(from, to) + 3, Y: at}, times(r))
	}
}

// Thumbnail draws a bar into the legend.
func (b ratioBars) Thumbnail(c *draw.Canvas) {
	rect(c, b.color, c.Min.X, c.Max.X, c.Min.Y+1, c.Max.Y-1)
}

func rect(c *draw.Canvas, fill color.Color, x0, x1, y0, y1 vg.Length) {
	c.FillPolygon(fill, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}

// marks are short vertical lines: row at[i] has bar[i].
type marks struct {
	at  []int
	bar []float64
}

var markStyle = draw.LineStyle{Color: color.Black, Width: 2}

// Plot draws the marks.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, at := range m.at {
		c.StrokeLine2(markStyle, x(m.bar[i]), y(float64(at))-pitch/2+1, x(m.bar[i]), y(float64(at))+pitch/2-1)
	}
}

// Thumbnail draws a mark into the legend.
func (m marks) Thumbnail(c *draw.Canvas) {
	x := (c.Min.X + c.Max.X) / 2
	c.StrokeLine2(markStyle, x, c.Min.Y, x, c.Max.Y)
}
