// Package permute orders the channels of a graph so that a pattern of zeros costs its weights
// less. What the graph computes stays the same: producers' rows and consumers' columns change
// places, and nothing is added that a run would have to do.
//
// Under N:M the channels that a weight reads are ordered, so that in few groups of M more than N weights are wanted; under blocks
// along a row these, too, so that the weights of a block are wanted together; under blocks of several rows those that a weight
// computes, so that the rows of a block want the same columns. Which channels may
// change places is what package prune finds by the flow that it removes channels with. The package imports
// internal/pace, internal/parallel, ir, ir/option and passes/prune.
package permute

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"spc/internal/pace"
	"spc/ir"
	"spc/ir/option"
	"spc/passes/prune"
)

// Choice says whether channels are ordered.
type Choice string

// The choices.
const (
	None Choice = "none"
	Auto Choice = "auto" // where a pattern gains by it: N:M, and blocks
)

// Choices lists the choices.
func Choices() []Choice { return []Choice{None, Auto} }

// Parse reads one of Choices.
func Parse(s string) (Choice, error) { return option.OneOf(option.Permute, s, Choices()) }

// Gains reports whether there is a pattern that gains by an order of channels.
func Gains(p prune.Pattern) bool {
	r, _ := p.Unit()
	return p.Kind == prune.NM && p.M > 1 || r > 1 || along(p)
}

// along reports whether a pattern is of blocks along a row, whose weights stand or fall together.
func along(p prune.Pattern) bool {
	r, c := p.Unit()
	_, within := p.Within()
	return r == 1 && c > 1 && !within
}

// byColumns reports whether a pattern gains by an order of what the columns of a weight multiply, not of its rows.
func byColumns(p prune.Pattern) bool { return p.Kind == prune.NM || along(p) }

// Weight is a weight to prune, as a matrix [rows, cols].
type Weight struct {
	Layer    int       // of the plan
	Saliency []float32 // [rows, cols], in units whose squares add up
	Sparsity float64
}

// Options say how to order.
type Options struct {
	Workers int
	// Fixed, where it is set, says why the channels of a weight must keep their places.
	Fixed    func(v *ir.Value) string
	Progress func(done, total int)
}

// Result is what was done.
type Result struct {
	Groups []Group `json:"groups"`
	Layers []Layer `json:"layers"`
}

// Group is channels that changed places.
type Group struct {
	Channels int      `json:"channels"`
	From     []string `json:"from"` // the nodes that compute them
	To       []string `json:"to"`   // those whose weights read them
}

// Layer is a weight to prune.
type Layer struct {
	At   int    `json:"-"` // in the plan
	Node string `json:"node"`
	// Before and After are the shares of the sum of squared saliencies that the weights have which the pattern
	// keeps, without and with the order. They are 0 where it has none.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Why    string  `json:"why,omitempty"` // why no order of channels suits it better
}

// Run orders the channels of the plan's graph for weights, each of which has its pattern of the plan. Where several patterns would gain by
// the order of some channels, that of most weights decides. It returns nil Exchanges where nothing changed.
func Run(ctx context.Context, p *prune.Plan, weights []Weight, o Options) (*Result, *prune.Exchanges, error) {
	r := &run{Options: o, ctx: ctx, plan: p, x: p.Exchanges(o.Fixed), weights: map[int]*matrix{}, why: map[int]string{}}
	for i := range weights {
		r.weights[weights[i].Layer] = r.matrix(&weights[i])
	}
	orders := make([][]int, len(r.x.Groups))
	res, changed := &Result{Groups: []Group{}}, false
	for k := range r.x.Groups {
		if o.Progress != nil {
			o.Progress(k, len(r.x.Groups))
		}
		order, err := r.order(&r.x.Groups[k])
		if err != nil {
			return nil, nil, err
		}
		if order == nil {
			continue
		}
		orders[k], changed = order, true
		res.Groups = append(res.Groups, r.describe(&r.x.Groups[k]))
	}
	if o.Progress != nil {
		o.Progress(len(orders), len(orders))
	}
	if changed {
		if err := r.x.Apply(orders); err != nil {
			return nil, nil, err
		}
	}
	var err error
	if res.Layers, err = r.report(weights); err != nil {
		return nil, nil, err
	}
	if !changed {
		r.x = nil
	}
	return res, r.x, nil
}

// Note says in the plan what became of its weights; r may be nil.
func (r *Result) Note(p *prune.Plan) {
	if r == nil {
		return
	}
	for _, l := range r.Layers {
		text := l.Why
		if text == "" {
			text = fmt.Sprintf("channels permuted: keeps %.1f%% of its saliency, without that %.1f%%", 100*l.After, 100*l.Before)
		}
		if n := &p.Layers[l.At].Note; *n != "" {
			text = *n + "; " + text
		}
		p.Layers[l.At].Note = text
	}
}

// additions is how many of them a core makes in a second, by which Stage plans.
const additions = 1e9

// Stage plans Run on the plan's graph, as a stage of that name.
func Stage(p *prune.Plan, name string) pace.Stage {
	s := pace.Stage{Name: name}
	r := &run{plan: p, x: p.Exchanges(nil), weights: map[int]*matrix{}}
	for i, l := range p.Layers {
		if Gains(p.Pattern(i)) && l.Prunable {
			rows, cols := p.Use(i).View.Dims(p.Use(i).Value.Const.Shape())
			r.weights[i] = &matrix{Weight: &Weight{Layer: i}, rows: rows, cols: cols, pattern: p.Pattern(i)}
		}
	}
	for i := range r.x.Groups {
		g := &r.x.Groups[i]
		width := 0.0
		for _, c := range side(r.pattern(g), g) {
			if m := r.weights[c.Layer]; m != nil {
				width += float64((&term{matrix: m, Channels: c}).length())
			}
		}
		n := float64(min(g.Size, most))
		lots := math.Ceil(float64(g.Size) / most)
		s.Steps = append(s.Steps, lots*min(n*n*width, work)*rounds/2/additions/float64(runtime.GOMAXPROCS(0)))
	}
	return s
}

// run is the state of Run.
type run struct {
	Options
	ctx     context.Context
	plan    *prune.Plan
	x       *prune.Exchanges
	weights map[int]*matrix
	why     map[int]string // by layer, why an order would be of no use
}

// matrix is a weight with squares of saliencies, of which the sum is 1.
type matrix struct {
	*Weight
	rows, cols int
	pattern    prune.Pattern
	squares    []float32
}

// side lists the weights of a group whose rows, or columns, its order is that of, as far as a pattern gains by it.
func side(p prune.Pattern, g *prune.Group) []prune.Channels {
	if byColumns(p) {
		return g.Cols
	}
	return g.Rows
}

// pattern is that for which a group is ordered: the one of most weights that gain by it.
func (r *run) pattern(g *prune.Group) (best prune.Pattern) {
	sizes, most := map[prune.Pattern]int{}, 0
	for _, c := range slices.Concat(g.Rows, g.Cols) {
		m := r.weights[c.Layer]
		if m == nil || !slices.ContainsFunc(side(m.pattern, g), func(d prune.Channels) bool { return d.Layer == c.Layer }) {
			continue
		}
		if sizes[m.pattern] += m.rows * m.cols; sizes[m.pattern] > most {
			best, most = m.pattern, sizes[m.pattern]
		}
	}
	return best
}

func (r *run) matrix(w *Weight) *matrix {
	l := r.plan.Matrix(w.Layer)
	m := &matrix{Weight: w, rows: l.Rows, cols: l.Cols, pattern: r.plan.Pattern(w.Layer), squares: make([]float32, len(w.Saliency))}
	sum := 0.0
	for _, s := range w.Saliency {
		sum += float64(s) * float64(s)
	}
	for i, s := range w.Saliency {
		if sum > 0 {
			m.squares[i] = float32(float64(s) * float64(s) / sum)
		}
	}
	return m
}

func (r *run) describe(g *prune.Group) Group {
	out := Group{Channels: g.Size}
	for _, c := range g.Rows {
		out.From = append(out.From, r.plan.Use(c.Layer).Node.Name)
	}
	for _, c := range g.Cols {
		out.To = append(out.To, r.plan.Use(c.Layer).Node.Name)
	}
	return out
}

// report tells what each weight retains.
func (r *run) report(weights []Weight) ([]Layer, error) {
	var out []Layer
	for i := range weights {
		w := &weights[i]
		m := r.weights[w.Layer]
		l := Layer{At: w.Layer, Node: r.plan.Use(w.Layer).Node.Name}
		rows, cols := r.x.Moved(w.Layer)
		var err error
		if l.Before, err = r.retained(m, nil, nil); err != nil {
			return nil, err
		}
		if l.After = l.Before; rows != nil || cols != nil {
			if l.After, err = r.retained(m, rows, cols); err != nil {
				return nil, err
			}
		}
		stayRows, stay := r.x.Stay(w.Layer)
		moved := cols != nil
		if !byColumns(m.pattern) {
			moved, stay = rows != nil, stayRows
		}
		switch {
		case r.why[w.Layer] != "":
			l.Why = r.why[w.Layer]
		case moved:
		case stay != "":
			l.Why = "channels keep their order: " + stay
		default:
			l.Why = "no order of channels was found that keeps more"
		}
		out = append(out, l)
	}
	return out, nil
}

// retained is the share of squared saliency that the pattern keeps of a weight in another order.
func (r *run) retained(m *matrix, rows, cols []int) (float64, error) {
	l := prune.Layer{Name: r.plan.Use(m.Layer).Node.String(), Rows: m.rows, Cols: m.cols, Sparsity: &m.Sparsity, Saliency: make([]float32, len(m.squares))}
	at := func(order []int, i int) int {
		if order == nil {
			return i
		}
		return order[i]
	}
	for i := range m.rows {
		for j := range m.cols {
			l.Saliency[i*m.cols+j] = m.Saliency[at(rows, i)*m.cols+at(cols, j)]
		}
	}
	l.Weights = l.Saliency
	s, err := prune.Select([]prune.Layer{l}, prune.Options{Pattern: m.pattern, Workers: r.Workers})
	if err != nil {
		return 0, err
	}
	kept, all := 0.0, 0.0
	for i := range m.rows {
		for j := range m.cols {
			x := float64(l.Saliency[i*m.cols+j])
			if all += x * x; s.Layers[0].Mask.Keeps(i, j) {
				kept += x * x
			}
		}
	}
	if all == 0 {
		return 0, nil
	}
	return kept / all, nil
}

// order returns an order of a group in which the weights retain more, nil where none is found.
func (r *run) order(g *prune.Group) ([]int, error) {
	terms := r.terms(g)
	if len(terms) == 0 {
		return nil, nil
	}
	cells := r.cells(g, terms)
	order := make([]int, g.Size)
	for k := range order {
		order[k] = k
	}
	changed := false
	for len(cells) > 0 { // in lots, for what the search keeps grows with their square
		n, size := 0, 0
		for n < len(cells) && (n < 2 || size+len(cells[n]) <= most) {
			size += len(cells[n])
			n++
		}
		if n < 2 {
			break
		}
		lot := cells[:n]
		cells = cells[n:]
		best, better, err := r.search(terms, lot)
		if err != nil {
			return nil, err
		}
		if !better {
			continue
		}
		changed = true
		places, from := slices.Concat(lot...), slices.Concat(best...)
		for i, place := range places {
			order[place] = from[i]
		}
		for _, t := range terms {
			if along(t.pattern) {
				t.put(places, from)
			}
		}
	}
	if !changed {
		return nil, nil
	}
	return order, nil
}

// most bounds the channels of one search, work the additions that it takes to compare each of them with each
// other, memory the elements of their vectors, and rounds how many times work a search takes.
const (
	most   = 4096
	work   = 1e9
	memory = 1 << 26
	rounds = 24
)

// search looks for better cells of places.
func (r *run) search(terms []term, cells [][]int) (best [][]int, better bool, err error) {
	places := slices.Concat(cells...)
	index := map[int]int{}
	for i, p := range places {
		index[p] = i
	}
	local := make([][]int, len(cells))
	for i, cell := range cells {
		for _, p := range cell {
			local[i] = append(local[i], index[p])
		}
	}
	o := r.objective(terms, places)
	n := float64(len(places))
	s := &search{objective: o, ctx: r.ctx, workers: r.Workers, budget: rounds * n * n * float64(o.width())}
	best, before, after, err := s.run(local)
	if err != nil || after <= before {
		return nil, false, err
	}
	for _, cell := range best {
		for j, i := range cell {
			cell[j] = places[i]
		}
		if !slices.ContainsFunc(terms, func(t term) bool { return t.phased() }) {
			slices.Sort(cell)
		}
	}
	return best, true, nil
}
