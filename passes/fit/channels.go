package fit

import (
	"slices"
	"strconv"

	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes/prune"
)

// channels removes channels by what they add to the variance of their layer's outputs,
// which normalised and auto compare between layers, too, or by Taylor's importance, which
// is comparable as it is. The layers that read them make up for it before they go: until
// then these see what they lose.
func (f *fitter) channels(out *Result) error {
	if r := find(f.Allocate); r != nil && r.curves {
		return option.Errorf("%v %s: layers have no error curves by channels, want layer, global, normalised or auto", option.Allocate, f.Allocate)
	}
	if err := f.open(); err != nil {
		return err
	}
	out.Runs, out.Samples = f.samples, f.samples
	if err := f.pick(); err != nil {
		return err
	}
	f.layers = f.left()
	best, _, err := f.build("prune", make([]float64, len(f.layers)), f.Observer)
	if err != nil {
		return err
	}
	if err := f.adopt(best, out); err != nil {
		return err
	}
	if err := f.plan.Shrink(); err != nil {
		return err
	}
	ranked := "channels ranked by " + string(f.Method) + " on " + strconv.Itoa(f.samples) + " runs of samples"
	for k, l := range f.layers {
		p := &f.plan.Layers[l.at]
		if p.How = best.edits[k].how; p.Prunable {
			p.How = note(ranked, p.How)
		}
	}
	return nil
}

// pick decides which channels go.
func (f *fitter) pick() error {
	a, rank := prune.Global, normalised
	switch f.Allocate {
	case prune.PerLayer:
		a, rank = prune.PerLayer, f.rank
	case prune.Global:
		rank = f.rank
	}
	if f.method().sees == seesSlopes {
		rank = f.rank
		if err := f.slopes(); err != nil {
			return err
		}
	} else if f.surveys() {
		if err := f.survey("survey", false); err != nil {
			return err
		}
	}
	at := map[int][]float32{}
	for _, l := range f.layers {
		s := rank(l)
		if s != nil && f.plan.Matrix(l.at).Transposed {
			s = transposed(s, l.cols, l.rows)
		}
		at[l.at] = s
	}
	return f.plan.SelectChannels(a, func(i int) []float32 { return at[i] })
}

// left lists the layers whose channels may go, and those that read channels that do.
// Rows that go are still computed: for the layers that read them they are what is to be
// made up for.
func (f *fitter) left() []*layer {
	prunable := f.plan.Prunable()
	var out []*layer
	for i := range f.plan.Layers {
		v := f.plan.Use(i).Value
		if v.Const == nil || v.Const.DType() != tensor.F32 {
			continue
		}
		rows, cols := f.plan.Gone(i)
		if cols == nil && !slices.Contains(prunable, i) {
			continue
		}
		l := f.layer(i)
		l.stays, l.gone = prune.NewMask(l.rows, l.cols), rows
		for r := range l.rows {
			for c := range l.cols {
				if cols == nil || !cols[c] {
					l.stays.Set(r, c)
				}
			}
		}
		out = append(out, l)
	}
	return out
}

// silenced is w with zeros in the rows that will be removed.
func (l *layer) silenced(w []float32) []float32 {
	if l.gone == nil {
		return w
	}
	w = slices.Clone(w)
	for r, gone := range l.gone {
		if gone {
			clear(w[r*l.cols : (r+1)*l.cols])
		}
	}
	return w
}
