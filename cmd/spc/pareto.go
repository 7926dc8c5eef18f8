package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spc"
	"spc/internal/atomicfile"
	"spc/internal/chart"
)

// fronts are the kinds of files that a front is written into, by their endings.
var fronts = map[string]func(model, path string, r *spc.BudgetReport) error{
	".csv": writeFrontCSV, ".png": drawFront, ".svg": drawFront, ".html": writeFrontPage,
}

// frontEnding is the ending of a file for a front, in small letters.
func frontEnding(path string) string { return strings.ToLower(filepath.Ext(path)) }

// checkFront refuses, before the work begins, a file that a front cannot be written into.
func checkFront(path string) error {
	if fronts[frontEnding(path)] == nil {
		return fmt.Errorf("--pareto %s: want a .csv, .png, .svg or .html file", path)
	}
	return checkOutput("--pareto", path)
}

// writeFront writes the front that is asked for.
func (f *budgetFlags) writeFront(model string, r *spc.BudgetReport) error {
	if f.pareto == "" {
		return nil
	}
	return fronts[frontEnding(f.pareto)](model, f.pareto, r)
}

// frontColumns are those of a table of a front.
var frontColumns = []string{"sparsity", "predicted_ms", "divergence", "ms", "dense_ms", "speedup", "bytes", "flops", "drop", "bound", "samples", "layers", "integers", "keep_float", "beaten"}

// beaten reports whether another point of a front is at least as fast, and loses no more.
func beaten(front []spc.BudgetPoint, i int) bool {
	lost := func(p *spc.BudgetPoint) float64 {
		if p.Drop == nil {
			return 0
		}
		return p.Drop.Points
	}
	p := &front[i]
	return slices.ContainsFunc(front, func(q spc.BudgetPoint) bool {
		return q.Speedup >= p.Speedup && lost(&q) <= lost(p) && (q.Speedup > p.Speedup || lost(&q) < lost(p))
	})
}

// frontRow is a row of that table.
func frontRow(front []spc.BudgetPoint, i int) []string {
	p := &front[i]
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	row := []string{
		number(p.Sparsity), number(p.Predicted), number(p.Divergence), number(p.Ms), number(p.DenseMs), number(p.Speedup),
		strconv.FormatInt(p.Size, 10), number(p.FLOPs), "", "", "", strings.Join(p.Layers, " "),
		strconv.Itoa(p.Integers), strings.Join(p.KeepFloat, " "), strconv.FormatBool(beaten(front, i)),
	}
	if d := p.Drop; d != nil {
		row[8], row[9], row[10] = number(d.Points), number(d.Bound), strconv.Itoa(d.N)
	}
	return row
}

func writeFrontCSV(_, path string, r *spc.BudgetReport) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		c := csv.NewWriter(w)
		c.Write(frontColumns) // errors are those of Flush
		for i := range r.Front {
			c.Write(frontRow(r.Front, i))
		}
		c.Flush()
		return c.Error()
	})
}

// frontPicture is a picture of what is lost for the speed of programs.
func frontPicture(model string, r *spc.BudgetReport) *chart.Front {
	types := r.Types
	if types == "mixed" {
		types = "f32 and int8"
	}
	f := &chart.Front{Title: fmt.Sprintf("%s, products in %s", filepath.Base(model), types), X: "times as fast as dense in f32", Y: "points lost"}
	if r.Judge == "divergence" {
		f.Y = "divergence, hundredths of a nat"
	}
	for i, p := range r.Front {
		t := chart.Trade{Name: percent(p.Sparsity), X: p.Speedup, Beaten: beaten(r.Front, i)}
		if p.Integers > 0 {
			t.Name = fmt.Sprintf("%s, %d int8", t.Name, p.Integers)
		}
		if p.Drop != nil {
			t.Y, t.High = p.Drop.Points, p.Drop.Bound
		}
		f.List = append(f.List, t)
	}
	return f
}

func drawFront(model, path string, r *spc.BudgetReport) error {
	return frontPicture(model, r).Save(path)
}

// frontPage is a page of a front.
var frontPage = template.Must(template.New("front").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{.Title}}</title>
<style>body{font:14px sans-serif;margin:2em;max-width:60em}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}</style>
<h1>{{.Title}}</h1>
<p>Each point is a program that was built and measured: how many times as fast it is as the dense one in f32, and the points that it loses on
samples that its making did not see. A line goes up to what these are with a confidence of 90% at most. Beside a point on the line stands its share of zeros,
and how many of its weights are in 8-bit integers. Grey points are beaten by another that is at least as fast and loses no more.</p>
{{.Picture}}
<table><tr><th>zeros<th>time<th>speed-up<th>size<th>multiply-adds<th>points lost<th>at most<th>--layer</tr>
{{range .Rows}}<tr><td>{{.Zeros}}<td>{{.Time}}<td>{{.Speedup}}<td>{{.Size}}<td>{{.FLOPs}}<td>{{.Lost}}<td>{{.Bound}}<td style="text-align:left"><details><summary>{{.Count}}</summary>{{range .Layers}}{{.}}<br>{{end}}</details></tr>
{{end}}</table></html>
`))

func writeFrontPage(model, path string, r *spc.BudgetReport) error {
	type row struct {
		Zeros, Time, Speedup, Size, FLOPs, Lost, Bound string
		Count                                          string
		Layers                                         []string
	}
	picture := frontPicture(model, r)
	var svg bytes.Buffer
	if err := picture.SVG(&svg); err != nil {
		return err
	}
	_, inner, _ := strings.Cut(svg.String(), "<svg") // without what comes before it in a file of its own
	page := struct {
		Title   string
		Picture template.HTML
		Rows    []row
	}{Title: picture.Title, Picture: template.HTML("<svg" + inner)}
	for _, p := range r.Front {
		x := row{Zeros: percent(p.Sparsity), Time: millis3(p.Ms), Speedup: ratio(p.Speedup), Size: size(p.Size), FLOPs: percent(p.FLOPs), Count: plural(len(p.Layers), "layer"), Layers: p.Layers}
		if p.Integers > 0 {
			x.Count += fmt.Sprintf(", %d int8", p.Integers)
			x.Layers = slices.Concat(p.Layers, []string{fmt.Sprintf("%s in 8-bit integers, not:", plural(p.Integers, "weight"))}, p.KeepFloat)
		}
		if p.Drop != nil {
			x.Lost, x.Bound = fmt.Sprintf("%.2f", p.Drop.Points), fmt.Sprintf("%.2f", p.Drop.Bound)
		}
		page.Rows = append(page.Rows, x)
	}
	return atomicfile.Write(path, func(w io.Writer) error { return frontPage.Execute(w, page) })
}
