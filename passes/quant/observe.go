package quant

import (
	"context"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
)

// observed is what quantising needs to know beside the graph.
type observed struct {
	ranges  map[string]calib.Range // by the names of values
	means   map[string]*means      // by the names of products, of what they read
	weights map[rowsOf]*quantised
	shifts  map[string][]float64 // by the names of products, see means.shift
}

// again is what was observed, for copies of the graph whose weights may differ.
func (o *observed) again() *observed {
	return &observed{ranges: o.ranges, means: o.means, weights: map[rowsOf]*quantised{}, shifts: map[string][]float64{}}
}

// shift is what is added to the bias of p.
func (o *observed) shift(p product) []float64 {
	d := o.shifts[p.Name]
	if d == nil {
		d = o.means[p.Name].shift(p, o.weight(p))
		o.shifts[p.Name] = d
	}
	return d
}

// rowsOf is a weight, by its name, whose rows lie along an axis.
type rowsOf struct {
	name string
	axis int
}

// quantised is a weight in integers.
type quantised struct {
	ints   *tensor.Tensor
	scales []float32
}

// weight returns the weight of p in integers.
func (o *observed) weight(p product) *quantised {
	key := rowsOf{p.Inputs[1].Name, p.axis}
	w := o.weights[key]
	if w == nil {
		w = &quantised{}
		w.ints, w.scales = weight(p.Inputs[1].Const, p.axis)
		o.weights[key] = w
	}
	return w
}

// observe evaluates the graph on the samples, once for the ranges of the values to
// quantise and once for what depends on these and for the means of what products read.
func (s *inserter) observe(ctx context.Context) (*observed, error) {
	o := (&observed{ranges: map[string]calib.Range{}, means: map[string]*means{}}).again()
	values := s.values()
	ranges, err := s.Observer.Ranges(ctx, s.g, values)
	if err != nil {
		return nil, err
	}
	var hists []*calib.Histogram
	if s.Ranges.Method != MinMax {
		for _, r := range ranges {
			hists = append(hists, calib.NewHistogram(r))
		}
	}
	read := map[*ir.Value][]*means{}
	for _, p := range s.order {
		m := newMeans(p)
		o.means[p.Name], read[p.Inputs[0]] = m, append(read[p.Inputs[0]], m)
	}
	err = s.Observer.See(ctx, s.g, values, func(i int, t *tensor.Tensor) error {
		if hists != nil {
			hists[i].Add(t.F32s())
		}
		for _, m := range read[values[i]] {
			m.add(t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, v := range values {
		r := ranges[i]
		if hists != nil {
			r = s.Ranges.of(hists[i])
		}
		o.ranges[v.Name] = r
	}
	return o, nil
}
