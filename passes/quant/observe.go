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
	weights map[rowsOf]*quantised
	shifts  map[string][]float64 // by the names of products, see shift
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
	o := &observed{ranges: map[string]calib.Range{}, weights: map[rowsOf]*quantised{}, shifts: map[string][]float64{}}
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
	of := map[*ir.Node]*means{}
	for _, p := range s.order {
		of[p.Node] = newMeans(p)
		read[p.Inputs[0]] = append(read[p.Inputs[0]], of[p.Node])
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
	for _, p := range s.order {
		o.shifts[p.Name] = of[p.Node].shift(p, o.weight(p))
	}
	return o, nil
}
