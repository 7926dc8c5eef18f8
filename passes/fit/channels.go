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
	switch {
	case f.Allocate == Curves && !f.solves():
		return option.Errorf("%v %s: layers have no error curves by channels with %v %s, want layer, global, normalised or auto", option.Allocate, f.Allocate, option.Method, f.Method)
	case f.Allocate == Joint:
		return option.Errorf("%v %s: channels of layers are not seen together, want another", option.Allocate, f.Allocate)
	}
	if err := f.open(); err != nil {
		return err
	}
	out.Runs, out.Samples = f.samples, f.samples
	if err := f.pick(out); err != nil {
		return err
	}
	best, err := f.built("prune", make([]float64, len(f.layers)), f.learning())
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

// solves reports whether the method has what is left of a layer make up for what goes.
func (o *Options) solves() bool { return o.Method == OBS || o.Method == ALPS }

// channelRules lists the allocations of channels to build and compare.
func (o *Options) channelRules() []prune.Allocation {
	switch {
	case o.Allocate != Auto:
		return []prune.Allocation{o.Allocate}
	case o.solves():
		return []prune.Allocation{Curves, Normalised}
	}
	return []prune.Allocation{Normalised}
}

// pick decides which channels go, and lists the layers of which something does.
func (f *fitter) pick(out *Result) error {
	names := f.channelRules()
	var losses [][]float64
	choose := func(name prune.Allocation) (err error) {
		f.list()
		if a := prune.Global; f.solves() && f.readable() && (name == Curves || name == prune.PerLayer) {
			if name == prune.PerLayer {
				a = name
			}
			if losses == nil {
				groups, err := f.plan.Bundles()
				if err != nil {
					return err
				}
				if losses, err = f.bundleLosses(groups, name == Curves); err != nil {
					return err
				}
			}
			err = f.plan.SelectBundles(a, losses)
		} else {
			err = f.rankRows(name)
		}
		if err != nil {
			return err
		}
		f.layers = f.left()
		return nil
	}
	for _, name := range names {
		if err := choose(name); err != nil {
			return err
		}
		if len(names) == 1 {
			return nil
		}
		t := Trial{Allocate: string(name)}
		var err error
		if _, t.Divergence, err = f.try(string(name), make([]float64, len(f.layers))); err != nil {
			return err
		}
		at := 0
		for at < len(out.Trials) && !t.less(&out.Trials[at]) {
			at++
		}
		out.Trials = slices.Insert(out.Trials, at, t)
	}
	if best := prune.Allocation(out.Trials[0].Allocate); best != names[len(names)-1] {
		return choose(best)
	}
	return nil
}

// readable reports whether all weights are such as bundleLosses sees.
func (f *fitter) readable() bool {
	for i := range f.plan.Layers {
		if v := f.plan.Use(i).Value; v.Const == nil || v.Const.DType() != tensor.F32 {
			return false
		}
	}
	return true
}

// rankRows decides by what ranks the rows of layers.
func (f *fitter) rankRows(name prune.Allocation) error {
	a, rank := prune.Global, normalised
	switch name {
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
			s = tensor.From(s, l.rows, l.cols).Permute(1, 0).F32s()
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
		l.positions = float64(f.samples) * float64(l.Columns()) * float64(max(1, l.Reuse.AtOne()))
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
