package quant

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"spc/ir"
	"spc/passes/calib"
)

// Rounder quantises some of the products of copies of a graph, by what all of them read on the samples.
type Rounder struct {
	o        *Options
	seen     *observed
	products map[string][]string // those of each weight
	shared   []string
}

// NewRounder observes the products of g that Insert would quantise were All set. Where text is that of a Rounder of the same graph, samples and
// options it tells what they read.
func NewRounder(ctx context.Context, g *ir.Graph, o Options, text string) (*Rounder, error) {
	names, err := o.chosen(g, &Result{})
	if err != nil {
		return nil, err
	}
	r := &Rounder{o: &o, products: map[string][]string{}}
	s := o.inserter(g, names)
	for _, p := range s.order {
		switch w := p.Inputs[1]; {
		case s.shared(w, p.axis):
			if !slices.Contains(r.shared, w.Name) {
				r.shared = append(r.shared, w.Name)
			}
		default:
			r.products[w.Name] = append(r.products[w.Name], p.Name)
		}
	}
	if text != "" {
		r.seen, err = s.recall(text)
		return r, err
	}
	o.report(rangesStage, 0, 1)
	r.seen, err = s.observe(ctx)
	return r, err
}

// Weights are the weights of products that Round may quantise, and Shared those of others that Insert would quantise, which other nodes read, too.
func (r *Rounder) Weights() []string { return slices.Sorted(maps.Keys(r.products)) }

// Shared is told of at Weights.
func (r *Rounder) Shared() []string { return r.shared }

// Round quantises the products of weights in a copy of the graph, whose weights may differ, and has them compute in integers as
// the passes that follow Insert do.
func (r *Rounder) Round(g *ir.Graph, weights []string) error {
	var names []string
	for _, w := range weights {
		if r.products[w] == nil {
			return fmt.Errorf("weight %s: it has no product of integers: %w", w, ir.ErrInvalid)
		}
		names = append(names, r.products[w]...)
	}
	return r.o.round(g, names, r.seen.again())
}

// round quantises some products of a graph, and has them compute in integers.
func (o *Options) round(g *ir.Graph, names []string, seen *observed) error {
	inside := *o
	inside.Portable = false // which would leave nodes between integers
	if err := inside.inserter(g, names).insert(seen); err != nil {
		return err
	}
	if _, err := Products(g, o.Depthwise); err != nil {
		return err
	}
	_, err := Fuse(g)
	return err
}

// notedMeans and noted are what Rounder.Text keeps.
type notedMeans struct {
	Sum   []float64
	Count float64
}

type noted struct {
	Ranges map[string][2]float32
	Means  map[string]notedMeans
}

// Text tells what the products read, to NewRounder.
func (r *Rounder) Text() (string, error) {
	n := noted{map[string][2]float32{}, map[string]notedMeans{}}
	for name, v := range r.seen.ranges {
		n.Ranges[name] = [2]float32{v.Lo, v.Hi}
	}
	for name, m := range r.seen.means {
		n.Means[name] = notedMeans{m.sum, m.count}
	}
	b, err := json.Marshal(n)
	return string(b), err
}

// recall is observe by a text.
func (s *inserter) recall(text string) (*observed, error) {
	var n noted
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return nil, fmt.Errorf("what products read cannot be read: %w", ir.ErrCorrupt)
	}
	o := (&observed{ranges: map[string]calib.Range{}, means: map[string]*means{}}).again()
	for _, v := range s.values() {
		r, ok := n.Ranges[v.Name]
		if !ok || !(r[0] <= r[1]) {
			return nil, fmt.Errorf("the range %v of %s: %w", r, v.Name, ir.ErrCorrupt)
		}
		o.ranges[v.Name] = calib.Range{Lo: r[0], Hi: r[1]}
	}
	for _, p := range s.order {
		m, kept := newMeans(p), n.Means[p.Name]
		if len(kept.Sum) != len(m.sum) || !(kept.Count >= 0) {
			return nil, fmt.Errorf("%d means of what %s reads, want %d: %w", len(kept.Sum), p.Name, len(m.sum), ir.ErrCorrupt)
		}
		m.sum, m.count = kept.Sum, kept.Count
		o.means[p.Name] = m
	}
	return o, nil
}
