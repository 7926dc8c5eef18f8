package chart

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Rows is a picture of bars beside the names of their rows, the first row on top.
type Rows struct {
	Title string
	Axis  string // what bars measure, empty where the title says so
	Names []string
	Bars  []Bars
	Marks []Marks
	// Log has a logarithmic scale, on which bars begin at one; they begin at nought else. Least and Most are values that it shows.
	Log         bool
	Least, Most float64
	Pitch       vg.Length // of rows
	Text        func(float64) string
}

// Bars are the bars of a kind: row At[i] has Values[i].
type Bars struct {
	Label  string
	Color  color.Color
	At     []int
	Values []float64
	Lane   int // bars of a row lie beside each other where theirs differ
}

// Marks are short vertical lines: row At[i] has one at Values[i].
type Marks struct {
	Label  string
	At     []int
	Values []float64
}

// Save draws the picture into a file.
func (r *Rows) Save(path string) error {
	lanes := 0
	for _, b := range r.Bars {
		lanes = max(lanes, b.Lane+1)
	}
	p := plot.New()
	p.Title.Text = r.Title
	p.Title.Padding = 8
	p.X.Label.Text = r.Axis
	if r.Log {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powersOfTwo{}
		p.X.Min, p.X.Max = r.Least/1.3, r.Most*1.3
	} else {
		p.X.Min, p.X.Max, p.X.Tick.Marker = r.Least, r.Most*1.12, round{}
	}
	p.NominalY(r.Names...)
	p.Y.Scale = plot.InvertedScale{Normalizer: plot.LinearScale{}} // the first on top
	p.Y.Min, p.Y.Max = -0.6, float64(len(r.Names))-0.4
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	p.Y.Tick.Label.Font.Size = min(p.Y.Tick.Label.Font.Size, r.Pitch*3/4)
	p.Legend.Top, p.Legend.Padding = r.Log, 3 // where bars that grow shorter leave room
	p.Add(verticals{r.start()})
	thick := r.Pitch * 3 / 4 / vg.Length(max(1, lanes))
	for _, b := range r.Bars {
		drawn := bars{b, r, thick, thick * (vg.Length(lanes-1)/2 - vg.Length(b.Lane))}
		p.Add(drawn)
		if b.Label != "" {
			p.Legend.Add(b.Label, drawn)
		}
	}
	for _, m := range r.Marks {
		p.Add(marks{m, r.Pitch})
		p.Legend.Add(m.Label, marks{m, r.Pitch})
	}
	return save(path, 800, 120+r.Pitch*vg.Length(len(r.Names)), func(c draw.Canvas) { p.Draw(c) })
}

// start is where bars begin.
func (r *Rows) start() float64 {
	if r.Log {
		return 1
	}
	return 0
}

// round ticks an axis at some multiples of one, two or five times a power of ten.
type round struct{}

// Ticks lists the ticks from least to most.
func (round) Ticks(least, most float64) []plot.Tick {
	const few = 6
	power := math.Pow(10, math.Floor(math.Log10((most-least)/few)))
	step := 10 * power
	for _, k := range []float64{5, 2, 1} {
		if (most-least)/(k*power) <= few {
			step = k * power
		}
	}
	var out []plot.Tick
	for i := math.Ceil(least / step); i*step <= most; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 6, 64)})
	}
	return out
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

// verticals draws a line at each tick with a label, a dark one where bars begin.
type verticals struct{ start float64 }

// Plot draws the lines.
func (v verticals) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		s := faint
		if t.Value == v.start {
			s = firm
		}
		if !t.IsMinor() {
			c.StrokeLine2(s, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
}

// bars draws Bars of a picture.
type bars struct {
	Bars
	of            *Rows
	thick, offset vg.Length
}

// Plot draws the bars and writes each value at its end.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := writing(min(8, b.thick), color.Black, text.XLeft, text.YCenter)
	for i, v := range b.Values {
		from, to, at := x(b.of.start()), x(v), y(float64(b.At[i]))+b.offset
		rect(&c, b.Color, from, to, at-b.thick/2, at+b.thick/2)
		said := b.of.Text(v)
		end := max(from, to) + 3
		for _, m := range b.of.Marks { // which the text must not lie under
			for j, row := range m.At {
				if mark := x(m.Values[j]); row == b.At[i] && mark > end-3 && mark < end+style.Width(said)+2 {
					end = mark + 4
				}
			}
		}
		c.FillText(style, vg.Point{X: end, Y: at}, said)
	}
}

// Thumbnail draws a bar into the legend.
func (b bars) Thumbnail(c *draw.Canvas) {
	rect(c, b.Color, c.Min.X, c.Max.X, c.Min.Y+1, c.Max.Y-1)
}

// marks draws Marks.
type marks struct {
	Marks
	pitch vg.Length
}

var markStyle = draw.LineStyle{Color: color.Black, Width: 2}

// Plot draws the marks.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, at := range m.At {
		c.StrokeLine2(markStyle, x(m.Values[i]), y(float64(at))-m.pitch/2+1, x(m.Values[i]), y(float64(at))+m.pitch/2-1)
	}
}

// Thumbnail draws a mark into the legend.
func (m marks) Thumbnail(c *draw.Canvas) {
	x := (c.Min.X + c.Max.X) / 2
	c.StrokeLine2(markStyle, x, c.Min.Y, x, c.Max.Y)
}
