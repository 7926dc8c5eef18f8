package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Roofline is a picture of operations a second over operations a byte, under what a machine allows, on logarithmic scales: what
// is drawn are decimal logarithms, as gonum puts the label of a logarithmic axis at its end.
type Roofline struct {
	Title     string
	Peak      float64 // operations a second
	Bandwidth float64 // bytes a second
	Kinds     []Points
}

// Points are the points of a kind.
type Points struct {
	Label string
	Color color.RGBA
	List  []Point
}

// Point is something with operations a byte and operations a second. Its area grows with its weight, and names are written for those
// that weigh most, as far as there is room.
type Point struct {
	Name            string
	Intensity, Rate float64
	Weight          float64 // 0..1
}

// Save draws the picture into a file.
func (r *Roofline) Save(path string) error {
	p := plot.New()
	p.Title.Text, p.Title.Padding = r.Title, 8
	p.X.Label.Text, p.Y.Label.Text = "floating-point operations a byte that is read or written", "GFLOP/s"
	p.X.Tick.Marker, p.Y.Tick.Marker = decades{}, decades{}
	ridge := r.Peak / r.Bandwidth // which is shown
	lo, hi, low, high := ridge/8, ridge*4, r.Peak, r.Peak
	for _, k := range r.Kinds {
		for _, q := range k.List {
			lo, hi = min(lo, q.Intensity/2), max(hi, q.Intensity*2)
			low, high = min(low, q.Rate), max(high, q.Rate)
		}
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = math.Log10(lo), math.Log10(hi), math.Log10(low/2/1e9), math.Log10(high*2/1e9)
	p.Legend.Left, p.Legend.Top, p.Legend.Padding, p.Legend.XOffs = true, true, 3, 6
	p.Add(squares{}, roof{r})
	for _, k := range r.Kinds {
		p.Add(points{k})
		p.Legend.Add(k.Label, points{k})
	}
	p.Add(names{r})
	return save(path, 800, 560, func(c draw.Canvas) { p.Draw(c) })
}

// decades ticks an axis of decimal logarithms, with labels at powers of ten.
type decades struct{}

// Ticks lists the ticks from least to most.
func (decades) Ticks(least, most float64) []plot.Tick {
	var out []plot.Tick
	for e := math.Floor(least); e <= most; e++ {
		for d := 1.0; d < 10; d++ {
			t := plot.Tick{Value: e + math.Log10(d)}
			if t.Value < least || t.Value > most {
				continue
			}
			if d == 1 {
				t.Label = strconv.FormatFloat(math.Pow(10, e), 'g', 4, 64)
			}
			out = append(out, t)
		}
	}
	return out
}

// squares draws lines at the ticks with labels of both axes.
type squares struct{}

// Plot draws the lines.
func (squares) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if !t.IsMinor() {
			c.StrokeLine2(faint, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if !t.IsMinor() {
			c.StrokeLine2(faint, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
}

// roof draws the peak and the slope that leads to it.
type roof struct{ *Roofline }

// Plot draws the lines.
func (r roof) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	top, up := math.Log10(r.Peak/1e9), math.Log10(r.Bandwidth/1e9)
	from := max(p.X.Min, p.Y.Min-up)
	c.StrokeLine2(firm, x(from), y(from+up), x(top-up), y(top))
	c.StrokeLine2(firm, x(top-up), y(top), c.Max.X, y(top))
}

// points draws Points.
type points struct{ Points }

// at is where a point is.
func (q Point) at(x, y func(float64) vg.Length) vg.Point {
	return vg.Point{X: x(math.Log10(q.Intensity)), Y: y(math.Log10(q.Rate / 1e9))}
}

// radius is that of a point.
func (q Point) radius() vg.Length { return vg.Length(2.5 + 14*math.Sqrt(q.Weight)) }

// Plot draws discs that show what lies behind them.
func (k points) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, q := range k.List {
		disc(&c, k.Color, q.at(x, y), q.radius())
	}
}

// Thumbnail draws a disc into the legend.
func (k points) Thumbnail(c *draw.Canvas) {
	disc(c, k.Color, vg.Point{X: (c.Min.X + c.Max.X) / 2, Y: (c.Min.Y + c.Max.Y) / 2}, 4)
}

func disc(c *draw.Canvas, fill color.RGBA, at vg.Point, radius vg.Length) {
	var path vg.Path
	path.Move(vg.Point{X: at.X + radius, Y: at.Y})
	path.Arc(at, radius, 0, 2*math.Pi)
	path.Close()
	c.SetColor(color.NRGBA{R: fill.R, G: fill.G, B: fill.B, A: 150})
	c.Fill(path)
	c.SetLineStyle(draw.LineStyle{Color: fill, Width: 1})
	c.Stroke(path)
}

// names writes the names of the points that weigh most where nothing is in their way.
type names struct{ *Roofline }

// most is how many names are written.
const most = 10

// Plot writes the names.
func (r names) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	type named struct {
		Point
		at   vg.Point
		more int // points in the same place
	}
	var all []named
	for _, k := range r.Kinds {
		for _, q := range k.List {
			at := q.at(x, y)
			if i := slices.IndexFunc(all, func(o named) bool { return overlap(around(o.at, 0.5), around(at, 0.5)) }); i >= 0 {
				all[i].more++
				all[i].Weight = max(all[i].Weight, q.Weight)
				continue
			}
			all = append(all, named{q, at, 0})
		}
	}
	slices.SortStableFunc(all, func(a, b named) int { return cmp.Compare(b.Weight, a.Weight) })
	var taken []vg.Rectangle
	for i, q := range all[:min(len(all), most)] {
		room := q.radius() + 3
		style := writing(8, color.Black, text.XLeft, text.YCenter)
		label := q.Name
		if q.more > 0 {
			label += fmt.Sprintf(" and %d more", q.more)
		}
		for _, try := range []struct {
			dx, dy vg.Length
			x      text.XAlignment
			y      text.YAlignment
		}{
			{room, 0, text.XLeft, text.YCenter}, {-room, 0, text.XRight, text.YCenter}, {0, room, text.XCenter, text.YBottom}, {0, -room, text.XCenter, text.YTop},
			{room, room, text.XLeft, text.YBottom}, {room, -room, text.XLeft, text.YTop}, {-room, room, text.XRight, text.YBottom}, {-room, -room, text.XRight, text.YTop},
		} {
			style.XAlign, style.YAlign = try.x, try.y
			at := vg.Point{X: q.at.X + try.dx, Y: q.at.Y + try.dy}
			box := style.Rectangle(label).Add(at)
			free := box.Min.X >= c.Min.X && box.Max.X <= c.Max.X && box.Min.Y >= c.Min.Y && box.Max.Y <= c.Max.Y
			for _, t := range taken {
				free = free && !overlap(box, t)
			}
			for j, o := range all {
				free = free && (i == j || !overlap(box, around(o.at, min(o.radius(), 6))))
			}
			if free {
				c.FillText(style, at, label)
				taken = append(taken, box)
				break
			}
		}
	}
}

// around is the square around a disc.
func around(at vg.Point, radius vg.Length) vg.Rectangle {
	d := vg.Point{X: radius, Y: radius}
	return vg.Rectangle{Min: at.Sub(d), Max: at.Add(d)}
}

func overlap(a, b vg.Rectangle) bool {
	return a.Min.X < b.Max.X && b.Min.X < a.Max.X && a.Min.Y < b.Max.Y && b.Min.Y < a.Max.Y
}
