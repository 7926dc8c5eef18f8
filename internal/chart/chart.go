// Package chart draws pictures into PNG and SVG files: rows of bars, and rooflines.
package chart

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"spc/internal/atomicfile"
)

// Shades colour kinds that are drawn together.
var Shades = []color.RGBA{
	{R: 31, G: 119, B: 180, A: 255}, {R: 255, G: 159, B: 64, A: 255}, {R: 44, G: 160, B: 44, A: 255}, {R: 150, G: 103, B: 189, A: 255},
	{R: 214, G: 69, B: 80, A: 255}, {R: 23, G: 180, B: 190, A: 255}, {R: 160, G: 170, B: 30, A: 255}, {R: 112, G: 66, B: 20, A: 255}, {R: 140, G: 140, B: 140, A: 255},
}

// Check returns an error unless a picture can be drawn into a file of the path's ending.
func Check(path string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".png", ".svg":
		return nil
	}
	return fmt.Errorf("%s: want a .png or .svg file", path)
}

// save draws a picture of a size on white, into a PNG or, where the path ends so, an SVG.
func save(path string, width, height vg.Length, paint func(c draw.Canvas)) error {
	to := render(strings.EqualFold(filepath.Ext(path), ".svg"), width, height, paint)
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := to.WriteTo(w)
		return err
	})
}

// render draws a picture as save does.
func render(svg bool, width, height vg.Length, paint func(c draw.Canvas)) io.WriterTo {
	var canvas vg.CanvasSizer
	var to io.WriterTo
	if svg {
		c := vgsvg.New(width, height)
		canvas, to = c, c
	} else {
		c := vgimg.New(width, height)
		canvas, to = c, vgimg.PngCanvas{Canvas: c}
	}
	c := draw.New(canvas)
	rect(&c, color.White, c.Min.X, c.Max.X, c.Min.Y, c.Max.Y)
	paint(draw.Crop(c, 14, -14, 8, -8))
	return to
}

// writing is the style of a text within a picture.
func writing(size vg.Length, fill color.Color, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{Color: fill, Font: font.From(plot.DefaultFont, size), XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
}

func rect(c *draw.Canvas, fill color.Color, x0, x1, y0, y1 vg.Length) {
	c.FillPolygon(fill, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}

var (
	faint = draw.LineStyle{Color: color.Gray{Y: 220}, Width: 0.5}
	firm  = draw.LineStyle{Color: color.Gray{Y: 90}, Width: 1}
)

// Short leaves out the middle of a text that has more than so many letters.
func Short(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	head := most / 3
	return string(r[:head]) + "…" + string(r[len(r)-(most-head-1):])
}
