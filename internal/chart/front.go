package chart

import (
	"cmp"
	"image/color"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Front is a picture of what is lost for what is gained: points, of which a line joins those that no other beats.
type Front struct {
	Title, X, Y string
	List        []Trade
}

// Trade is a point of a front.
type Trade struct {
	Name string // beside it, unless it is beaten
	X, Y float64
	High float64 // to which a line goes up from it, as to a bound of Y; Y for none
	// Beaten points are grey, and not on the line.
	Beaten bool
}

const frontWidth, frontHeight = 620, 420

// Save draws the picture into a PNG or SVG file.
func (f *Front) Save(path string) error { return save(path, frontWidth, frontHeight, f.paint) }

// SVG draws the picture.
func (f *Front) SVG(w io.Writer) error {
	_, err := render(true, frontWidth, frontHeight, f.paint).WriteTo(w)
	return err
}

func (f *Front) paint(c draw.Canvas) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.X, f.Y
	p.Title.TextStyle.Font.Size, p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = 11, 10, 10
	p.Title.Padding = vg.Points(6)
	var line plotter.XYs
	for _, t := range f.List {
		if !t.Beaten {
			line = append(line, plotter.XY{X: t.X, Y: t.Y})
		}
	}
	slices.SortFunc(line, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	if l, err := plotter.NewLine(line); err == nil { // but for points that are no numbers
		l.Color, l.Width = Shades[0], 1
		p.Add(plotter.NewGrid(), l)
	}
	p.Add(trades{f})
	p.Draw(c)
}

// trades draws the points of a front, their bounds and names.
type trades struct{ *Front }

// Plot implements plot.Plotter.
func (t trades) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, q := range t.List {
		at := vg.Point{X: x(q.X), Y: y(q.Y)}
		if q.High > q.Y {
			c.StrokeLine2(draw.LineStyle{Color: color.Gray{Y: 150}, Width: 1}, at.X, at.Y, at.X, y(q.High))
		}
		fill := Shades[0]
		if q.Beaten {
			fill = color.RGBA{170, 170, 170, 255}
		}
		disc(&c, fill, at, 3)
		if q.Beaten {
			continue
		}
		c.FillText(writing(9, color.Gray{Y: 60}, text.XLeft, text.YTop), vg.Point{X: at.X + 4, Y: at.Y - 3}, q.Name)
	}
}

// DataRange implements plot.DataRanger.
func (t trades) DataRange() (xmin, xmax, ymin, ymax float64) {
	if len(t.List) == 0 {
		return 0, 1, 0, 1
	}
	first := t.List[0]
	xmin, xmax, ymin, ymax = first.X, first.X, first.Y, first.Y
	for _, q := range t.List {
		xmin, xmax = min(xmin, q.X), max(xmax, q.X)
		ymin, ymax = min(ymin, q.Y), max(ymax, q.Y, q.High)
	}
	// Of a narrow range the marks of an axis would be alike.
	const narrow = 0.1
	if room := narrow - (xmax - xmin); room > 0 {
		xmin, xmax = xmin-room/2, xmax+room/2
	}
	return xmin, xmax + 0.08*(xmax-xmin), ymin - 0.05*(ymax-ymin), ymax + 0.05*(ymax-ymin)
}
