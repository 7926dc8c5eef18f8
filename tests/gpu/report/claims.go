package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"spc/backend"
)

// Claim is something that spc is meant to reach on a GPU, and what was measured of it.
type Claim struct {
	Name    string  `json:"name"`
	Floor   float64 `json:"floor"`
	Rule    string  `json:"rule"` // the floor in words
	Verdict string  `json:"verdict"`
	Mean    float64 `json:"mean"`  // geometric, by how often a weight is in its model
	Worst   float64 `json:"worst"` // ratio
	Points  []Point `json:"points"`
}

// The verdicts. A claim is incomplete where some of its shapes were not measured and the others do
// not refute it.
const (
	Met         = "met"
	Missed      = "missed"
	Incomplete  = "incomplete"
	NotMeasured = "not measured"
)

// Point is a shape of a claim: the time of a reference over that of ours.
type Point struct {
	What      string  `json:"what"`
	Count     float64 `json:"count"`
	Ours      string  `json:"ours,omitempty"`
	Reference string  `json:"reference,omitempty"`
	OursUs    float64 `json:"ours_us,omitempty"`
	RefUs     float64 `json:"reference_us,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`   // 0 where it was not measured
	Instead   float64 `json:"instead,omitempty"` // the ratio to a second reference, by which the claim holds, too
}

// claim is a row of the table. The floor holds in the geometric mean or, where each is set, for
// every shape; least, where it is not 0, for every shape besides; instead is the floor of
// Point.Instead.
type claim struct {
	name    string
	floor   float64
	each    bool
	least   float64
	instead float64
	points  func(r *Results) []Point
}

const (
	dense   = "cuBLASLt dense"
	csr     = "cuSPARSE CSR"
	fp16    = ", f16, over "
	within5 = 1 / 1.05
	within3 = 1 / 1.03
)

// claims is the table of what spc is meant to reach.
var claims = []claim{
	{name: "ell, Transformer-Big's weights, 65% zeros, N = 1024" + fp16 + csr, floor: 3, least: 1, points: products("ell transformer-big", "ell", library(csr))},
	{name: "ell, ResNet50's weights, 81% zeros, N = 128" + fp16 + csr, floor: 2.5, least: 1, points: products("ell resnet50", "ell", library(csr))},
	{name: "ell, Transformer-Big's weights, 65% zeros, N = 1024" + fp16 + "USpMM", floor: 1.5, points: products("ell transformer-big", "ell", uspmm)},
	{name: "ell, ResNet50's weights, 81% zeros, N = 128" + fp16 + "USpMM", floor: 1.5, points: products("ell resnet50", "ell", uspmm)},
	{name: "ell, M = K = 128 to 1024, 60% zeros, N = 128 and 1024" + fp16 + csr, floor: 4, points: products("ell synthetic", "ell", library(csr))},
	{name: "few columns, 50% zeros" + fp16 + dense, floor: 1.2, each: true, points: products("few columns 50%", "", library(dense))},
	{name: "few columns, 70% zeros" + fp16 + dense, floor: 1.7, each: true, points: products("few columns 70%", "", library(dense))},
	{name: "few columns, 80% zeros" + fp16 + dense, floor: 2.3, each: true, points: products("few columns 80%", "", library(dense))},
	{name: "few columns, 90% zeros" + fp16 + dense, floor: 3.2, each: true, points: products("few columns 90%", "", library(dense))},
	{name: "2:4" + fp16 + dense, floor: 1.5, each: true, instead: within5, points: besides(products("2:4", "nm", library(dense)), products("2:4", "nm", library("cuSPARSELt")))},
	{name: "2:4, int8, over " + dense, floor: 1.5, each: true, instead: within5, points: besides(products("2:4 int8", "nm", library(dense)), products("2:4 int8", "nm", library("cuSPARSELt")))},
	{name: "32 x 32 blocks, 80% zeros" + fp16 + dense, floor: 2.5, each: true, points: products("block 32", "block", library(dense))},
	{name: "64 x 64 blocks, 80% zeros" + fp16 + dense, floor: 3.2, each: true, points: products("block 64", "block", library(dense))},
	{name: "chooser's pick over the best kernel", floor: within5, points: chosen(asRun, bestOfOurs)},
	{name: "chooser's pick over " + dense, floor: within3, each: true, points: chosen(asRun, library(dense))},
	{name: "pick by the grid of this run over the best kernel", floor: within5, points: chosen(byGrid, bestOfOurs)},
	{name: "pick by the grid of this run over " + dense, floor: within3, each: true, points: chosen(byGrid, library(dense))},
	{name: "BERT-base and Transformer-Big, 8 x 128, 2:4 over our dense", floor: 1.25, each: true, points: models("2:4", "dense")},
	{name: "BERT-base and Transformer-Big, 8 x 128, 64 x 64 blocks, 80% zeros, over our dense", floor: 1.4, each: true, points: models("block 64x64 80%", "dense")},
	{name: "BERT-base and Transformer-Big, 8 x 128, our dense over PyTorch with CUDA graphs", floor: 1, each: true, points: models("dense", "PyTorch")},
}

// Claims computes every claim from the measurements.
func (r *Results) Claims() []Claim {
	var out []Claim
	for _, c := range claims {
		out = append(out, c.judge(c.points(r)))
	}
	return out
}

// judge says whether a claim holds.
func (c *claim) judge(points []Point) Claim {
	out := Claim{Name: c.name, Floor: c.floor, Rule: c.rule(), Points: points}
	logs, count, measured := 0.0, 0.0, 0
	refuted := false
	for _, p := range points {
		if p.Ratio == 0 {
			continue
		}
		measured++
		logs += p.Count * math.Log(p.Ratio)
		count += p.Count
		if out.Worst == 0 || p.Ratio < out.Worst {
			out.Worst = p.Ratio
		}
		held := p.Ratio >= c.floor || c.instead > 0 && p.Instead >= c.instead
		refuted = refuted || c.each && !held || p.Ratio < c.least
	}
	if measured > 0 {
		out.Mean = math.Exp(logs / count)
	}
	switch {
	case measured == 0:
		out.Verdict = NotMeasured
	case refuted || !c.each && out.Mean < c.floor && measured == len(points):
		out.Verdict = Missed
	case measured < len(points):
		out.Verdict = Incomplete
	default:
		out.Verdict = Met
	}
	return out
}

// rule is the floor in words.
func (c *claim) rule() string {
	s := fmt.Sprintf("%.3g in the mean", c.floor)
	if c.each {
		s = fmt.Sprintf("%.3g each", c.floor)
	}
	if c.least > 0 {
		s += fmt.Sprintf(", none below %.3g", c.least)
	}
	if c.instead > 0 {
		s += ", or level with cuSPARSELt within 5%"
	}
	return s
}

// verdict is the verdict with how much of the claim was measured.
func (c *Claim) verdict() string {
	n := 0
	for _, p := range c.Points {
		if p.Ratio > 0 {
			n++
		}
	}
	return fmt.Sprintf("%s (%d of %d)", c.Verdict, n, len(c.Points))
}

// side names what a cell is measured with, and its time; empty where it was not.
type side func(c *Cell) (name string, us float64)

// fastest returns the fastest candidate that is asked for.
func (c *Cell) fastest(of func(name string) bool) (name string, us float64) {
	for _, n := range slices.Sorted(maps.Keys(c.Us)) {
		if s := c.Us[n]; of(n) && (name == "" || s.Median < us) {
			name, us = n, s.Median
		}
	}
	return name, us
}

// library is the fastest algorithm of a family.
func library(family string) side {
	return func(c *Cell) (string, float64) {
		return c.fastest(func(name string) bool {
			f, _, ok := strings.Cut(name, "/")
			return ok && f == family && c.Ours[name].Kernel == ""
		})
	}
}

// uspmm is the published kernel with the fastest of its parameters, all of which take 32 rows.
func uspmm(c *Cell) (string, float64) {
	return c.fastest(func(name string) bool { return strings.HasPrefix(c.Ours[name].Kernel, "f16_ell_32x") })
}

// bestOfOurs is the fastest kernel of all formats.
func bestOfOurs(c *Cell) (string, float64) {
	return c.fastest(func(name string) bool { return c.Ours[name].Kernel != "" })
}

// picked is the kernel that the back end picks for a weight in a format; in any but dense where
// none is named.
func picked(format string) side {
	return func(c *Cell) (string, float64) {
		return c.fastest(func(name string) bool {
			k := c.Ours[name]
			return k.Picked && (k.Format == format || format == "" && !strings.HasPrefix(k.Format, "dense"))
		})
	}
}

// least is the kernel, of any format, that is predicted to be the fastest.
func least(predict func(k Candidate) float64) side {
	return func(c *Cell) (string, float64) {
		best, at := "", math.Inf(1)
		for _, name := range slices.Sorted(maps.Keys(c.Ours)) {
			if us := predict(c.Ours[name]); us < at {
				best, at = name, us
			}
		}
		return best, c.Us[best].Median
	}
}

// asRun predicts as the back end did in the run, byGrid as it will with the grid of the run.
func asRun(*Results) func(k Candidate) float64 {
	return func(k Candidate) float64 { return k.Predicted }
}

func byGrid(r *Results) func(k Candidate) float64 {
	rates := backend.DataSheet(r.Arch)
	rates.Grid = r.Grid()
	return func(k Candidate) float64 { return rates.Predict(k.Kernel, k.Work) }
}

// compare is the points of cells, ours against a reference.
func compare(cells []*Cell, ours, reference side) []Point {
	var out []Point
	for _, c := range cells {
		p := Point{What: fmt.Sprintf("%s %d x %d, N = %d, %s %.0f%%", c.Shape, c.M, c.K, c.N, c.Pattern, 100*c.Sparsity), Count: c.Count}
		p.Ours, p.OursUs = ours(c)
		p.Reference, p.RefUs = reference(c)
		if p.OursUs > 0 && p.RefUs > 0 {
			p.Ratio = p.RefUs / p.OursUs
		}
		out = append(out, p)
	}
	return out
}

// cells are those that are asked for.
func (r *Results) cells(of func(c *Cell) bool) []*Cell {
	var out []*Cell
	for i := range r.Kernels {
		if of(&r.Kernels[i]) {
			out = append(out, &r.Kernels[i])
		}
	}
	return out
}

// products is the picked kernel for a format against a reference, in the cells of a group.
func products(group, format string, reference side) func(r *Results) []Point {
	return func(r *Results) []Point {
		return compare(r.cells(func(c *Cell) bool { return c.Group == group }), picked(format), reference)
	}
}

// besides adds the ratios to a second reference.
func besides(first, second func(r *Results) []Point) func(r *Results) []Point {
	return func(r *Results) []Point {
		out := first(r)
		for i, p := range second(r) {
			out[i].Instead = p.Ratio
		}
		return out
	}
}

// chosen is the kernel that is predicted to be the fastest, of all formats, in every cell of f16,
// as often as it was measured.
func chosen(by func(r *Results) func(k Candidate) float64, reference side) func(r *Results) []Point {
	return func(r *Results) []Point {
		points := compare(r.cells(func(c *Cell) bool { return c.DType == "f16" }), least(by(r)), reference)
		for i := range points {
			points[i].Count = 1
		}
		return points
	}
}

// ways are those of PyTorch to run a model.
var ways = []string{"eager", "CUDA graph", "compiled", "compiled, CUDA graph"}

// models is a variant against another, or against the fastest of PyTorch's with CUDA graphs.
func models(variant, reference string) func(r *Results) []Point {
	return func(r *Results) []Point {
		var out []Point
		for _, m := range r.Models {
			if m.Model != "bert-base" && m.Model != "transformer-big" {
				continue
			}
			p := Point{What: fmt.Sprintf("%s, %d x %d", m.Model, m.Batch, m.Tokens), Count: 1, Ours: variant, OursUs: 1e3 * m.Ms[variant].P50}
			if reference != "PyTorch" {
				p.Reference, p.RefUs = reference, 1e3*m.Ms[reference].P50
			} else {
				for _, way := range ways {
					if s := m.PyTorch[way]; strings.HasSuffix(way, "CUDA graph") && s.Median > 0 && (p.RefUs == 0 || 1e3*s.Median < p.RefUs) {
						p.Reference, p.RefUs = "PyTorch, "+way, 1e3*s.Median
					}
				}
			}
			if p.OursUs > 0 && p.RefUs > 0 {
				p.Ratio = p.RefUs / p.OursUs
			}
			out = append(out, p)
		}
		return out
	}
}

// PrintClaims prints the claims, a line each.
func (r *Results) PrintClaims(w io.Writer) {
	wide := 0
	for _, c := range claims {
		wide = max(wide, len(c.name))
	}
	for _, c := range r.Claims() {
		fmt.Fprintf(w, "%-*s  mean %5s  worst %5s  %-26s %s\n", wide, c.Name, times(c.Mean), times(c.Worst), c.verdict(), c.Rule)
	}
}

// WriteClaims writes the claims as JSON.
func (r *Results) WriteClaims(path string) error {
	b, err := json.MarshalIndent(r.Claims(), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o666)
}
