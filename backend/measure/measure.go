// Package measure finds what the nodes of weights take in some formats, in their places in a network on a CPU, keeps that in records, and
// compares whole programs. It imports backend and its formats.
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"spc/backend"
	"spc/backend/format"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Place is what a program is measured on.
type Place struct {
	choose.Place
	In []*tensor.Tensor // of such shapes
}

// Measurement measures what the nodes of weights take in the forms that are predicted to be the fastest, each in its place in the
// network: whole programs run, one with every weight dense and others with every weight in its first, second, ... best form, in
// turns, and are timed node by node.
type Measurement struct {
	// Graph has the weights as constants; Layers have the candidates of its uses of weights, in their order.
	Graph   *ir.Graph
	Layers  []choose.Layer
	Places  []Place
	Load    func(g *ir.Graph) (backend.Program, error)
	Threads int       // that the programs run on
	Most    int       // forms of a weight beside dense; 0 for mostForms, or manyForms where the time suffices
	Rounds  int       // at most; 0 for mostRounds
	Cache   int       // bytes of the largest cache, in which weights stay from run to run
	Known   *Record   // what need not be measured again; may be nil
	Until   time.Time // no round of runs begins that would end later
	Step    func()    // is called now and then

	problems []string                         // of the uses of weights
	forms    map[*ir.Value][]choose.Candidate // of those that are measured, dense first
	variants []*variant
	warm     bool             // some would find their weights in the cache, but for the turns of the others
	times    map[at][]float64 // microseconds, round by round: those of a form are of the first rounds of dense
	known    *Timings
}

// key is a problem in a form.
type key struct {
	problem string
	form    choose.Form
}

// at is where times are of.
type at struct {
	number int // of a use of a weight
	form   choose.Form
	place  int
}

// variant is a program in which each weight has a certain one of its forms.
type variant struct {
	forms []choose.Candidate // by use of a weight; without a format where there is nothing to choose
	nodes []string           // these are of
	prog  backend.Program
	out   []*tensor.Tensor
}

// How many forms of a weight are measured beside dense unless that is said, how many rounds, and up to which multiple of dense's time a form is
// measured again.
const (
	mostForms   = 4
	manyForms   = 10
	leastRounds = 3
	mostRounds  = 25
	hopeless    = 1.5
)

// Run measures, and returns what it found. It is an error where the time does not suffice for any place.
func (m *Measurement) Run(ctx context.Context) (t *Timings, err error) {
	defer func() {
		for _, v := range m.variants {
			if v.prog != nil {
				err = errors.Join(err, v.prog.Close())
			}
		}
	}()
	slices.SortStableFunc(m.Places, func(a, b Place) int { return cmp.Compare(a.elements(), b.elements()) })
	m.times = map[at][]float64{}
	if err := m.build(ctx); err != nil {
		return nil, err
	}
	if len(m.variants) == 0 {
		return m.known, nil
	}
	measured := 0
	began := time.Now()
	for i := range m.Places {
		// Places share the time that is left.
		share := time.Until(m.Until) / time.Duration(len(m.Places)-i)
		ok, err := m.measure(ctx, i, time.Now().Add(share))
		if err != nil {
			return nil, err
		}
		if ok {
			measured++
		}
	}
	if measured == 0 {
		return nil, fmt.Errorf("%w: %v do not suffice to run the model %d times in each of %d ways", ErrBudget, m.Until.Sub(began).Round(time.Millisecond), leastRounds+2, len(m.variants))
	}
	return m.timings(), nil
}

// ErrBudget says that there was too little time to measure anything.
var ErrBudget = errors.New("too little time")

// elements is the number of elements of the inputs.
func (p *Place) elements() (n int) {
	for _, t := range p.In {
		n += t.Len()
	}
	return n
}

// manyRounds is the number of rounds for which there has to be time where manyForms are measured.
const manyRounds = 10

// most is how many forms of a weight are measured beside dense.
func (m *Measurement) most(ctx context.Context, dense *variant) (int, error) {
	if m.Most > 0 || len(m.Places) == 0 {
		return m.Most, nil
	}
	var took time.Duration
	last, all := &m.Places[len(m.Places)-1], 0
	for range 2 { // the first run makes it ready
		start := time.Now()
		if err := dense.prog.Run(ctx, last.In, dense.out); err != nil {
			return 0, err
		}
		took = time.Since(start)
		m.Step()
	}
	for i := range m.Places {
		all += max(1, m.Places[i].elements())
	}
	turns := float64((1 + manyForms) * manyRounds * warmRuns)
	if turns*took.Seconds()*float64(all)/float64(max(1, last.elements())) < time.Until(m.Until).Seconds() {
		return manyForms, nil
	}
	return mostForms, nil
}

// build makes the variants: all weights dense, and then the k-th best of each that is not known.
func (m *Measurement) build(ctx context.Context) error {
	uses := m.Graph.WeightUses()
	m.problems = nil
	for i := range uses {
		m.problems = append(m.problems, Problem(&m.Layers[i], &uses[i].Weight, m.Threads))
	}
	m.known = &Timings{problems: m.problems, samples: map[key][]sample{}}
	m.forms = map[*ir.Value][]choose.Candidate{}
	if m.find(uses); len(m.forms) == 0 {
		return nil
	}
	for k, most := 0, 1; k < most; k++ {
		v := &variant{}
		g := m.Graph.Clone()
		done := map[*ir.Value]bool{}
		for i, u := range g.WeightUses() {
			v.nodes = append(v.nodes, u.Node.Name)
			forms := m.forms[uses[i].Value]
			if len(forms) == 0 {
				v.forms = append(v.forms, choose.Candidate{})
				continue
			}
			f := forms[0]
			if k < len(forms) {
				f = forms[k]
			}
			v.forms = append(v.forms, f)
			if done[u.Value] || f.Format == choose.Dense && f.DType == u.Value.Type.DType.String() {
				continue
			}
			done[u.Value] = true
			dt, err := tensor.ParseDType(f.DType)
			if err != nil {
				return err
			}
			if err := choose.Store(u, format.Lookup(f.Format), f.Config, dt); err != nil {
				return err
			}
		}
		p, err := m.Load(g)
		if err != nil {
			return err
		}
		v.prog, v.out = p, make([]*tensor.Tensor, len(g.Outputs))
		m.warm = m.warm || g.ConstantBytes() <= m.Cache
		m.variants = append(m.variants, v)
		if k > 0 {
			continue
		}
		forms, err := m.most(ctx, v)
		if err != nil {
			return err
		}
		for w, list := range m.forms {
			m.forms[w] = list[:min(len(list), 1+forms)]
			most = max(most, len(m.forms[w]))
		}
	}
	return nil
}

// find finds the forms that may be measured, and what is known of others.
func (m *Measurement) find(uses []ir.WeightUse) {
	main := map[string]bool{} // nodes that are timed
	for _, n := range m.Graph.Nodes {
		main[n.Name] = true
	}
	for i, u := range uses {
		if !main[u.Node.Name] || m.Layers[i].Candidates == nil {
			continue
		}
		forms := best(m.Layers[i].Candidates, cmp.Or(m.Most, manyForms))
		if len(forms) == 1 {
			continue // there is nothing to choose
		}
		if m.recall(i, forms) {
			m.known.Known++
			continue
		}
		if _, met := m.forms[u.Value]; !met {
			m.forms[u.Value] = forms
		}
	}
}

// recall takes what is known of a use of a weight. It reports whether that suffices: for each form that is always measured and half of the
// numbers of columns at the places, since there may not have been time for all.
func (m *Measurement) recall(number int, forms []choose.Candidate) bool {
	if m.Known == nil {
		return false
	}
	list := map[key][]sample{}
	for i, f := range forms {
		k := key{m.problems[number], form(&f)}
		known := map[int]bool{}
		for _, e := range m.Known.of(k.problem, k.form) {
			s := sample{n: e.N, us: e.Us, noise: e.Noise}
			s.predicted, _ = m.Layers[number].Us(&f, e.N)
			list[k] = append(list[k], s)
			known[e.N] = true
		}
		columns, both := map[int]bool{}, 0
		for _, p := range m.Places {
			if n := p.Columns[number]; !columns[n] {
				if columns[n] = true; known[n] {
					both++
				}
			}
		}
		if 2*both < len(columns) && i <= cmp.Or(m.Most, mostForms) {
			return false
		}
	}
	maps.Copy(m.known.samples, list)
	return true
}

// best lists dense and so many forms of a weight that are predicted to be the fastest.
func best(all []choose.Candidate, most int) []choose.Candidate {
	list := slices.DeleteFunc(slices.Clone(all), func(c choose.Candidate) bool { return c.Format == choose.Dense || c.Format == choose.PairFormat })
	slices.SortStableFunc(list, func(a, b choose.Candidate) int { return cmp.Compare(a.PredictedUs, b.PredictedUs) })
	dense := slices.IndexFunc(all, func(c choose.Candidate) bool { return c.Format == choose.Dense })
	return append([]choose.Candidate{all[dense]}, list[:min(len(list), most)]...)
}

// measure runs the variants in turns at a place. It reports false where there is no time for that.
func (m *Measurement) measure(ctx context.Context, place int, until time.Time) (bool, error) {
	in, live := m.Places[place].In, slices.Clone(m.variants)
	round := time.Duration(0)
	// The first round makes the programs ready, the second shows what one takes.
	for again := range 2 {
		for _, v := range live {
			start := time.Now()
			if err := v.prog.Run(ctx, in, v.out); err != nil {
				return false, err
			}
			took := time.Since(start)
			if again == 0 {
				took = 0
			} else if m.warm {
				took *= warmRuns
			}
			round += took
			m.Step()
			if time.Now().After(until) {
				return false, nil
			}
		}
	}
	if time.Until(until) < leastRounds*round {
		return false, nil
	}
	for r := range cmp.Or(m.Rounds, mostRounds) {
		if r >= leastRounds && time.Now().Add(round).After(until) {
			break
		}
		for _, v := range live {
			if err := m.run(ctx, v, place); err != nil {
				return false, err
			}
			m.Step()
		}
		if r+1 == leastRounds {
			live = slices.DeleteFunc(live, func(v *variant) bool { return v != m.variants[0] && m.hopeless(v, place) })
		}
	}
	return true, nil
}

// warmRuns is how often a program runs in its turn where some would find their weights in the cache but for the others: the fastest run of each node
// counts. One whose weights do not fit runs as often, or of two that are alike it would seem the slower one.
const warmRuns = 3

// run gives a variant its turn, and keeps what the node of each of its uses of weights took.
func (m *Measurement) run(ctx context.Context, v *variant, place int) error {
	runs := 1
	if m.warm {
		runs = warmRuns
	}
	fastest := map[string]float64{}
	for range runs {
		took := map[string]float64{}
		err := v.prog.Trace(ctx, m.Places[place].In, v.out, func(n *ir.Node, d time.Duration) { took[n.Name] += float64(d.Nanoseconds()) / 1e3 })
		if err != nil {
			return err
		}
		for n, us := range took {
			if old, ok := fastest[n]; !ok || us < old {
				fastest[n] = us
			}
		}
	}
	for i, f := range v.forms {
		if f.Format == "" || f.Format == choose.Dense && v != m.variants[0] {
			continue
		}
		a := at{i, form(&f), place}
		m.times[a] = append(m.times[a], fastest[v.nodes[i]])
	}
	return nil
}

// hopeless reports whether all forms of a variant take far longer than dense.
func (m *Measurement) hopeless(v *variant, place int) bool {
	for i, f := range v.forms {
		if f.Format != "" && f.Format != choose.Dense && median(m.ratios(at{i, form(&f), place})) < hopeless {
			return false
		}
	}
	return true
}

// form is that of a candidate.
func form(c *choose.Candidate) choose.Form { return choose.Form{Format: c.Format, Config: c.Config} }

// dense are the times of dense where those of another form are.
func (m *Measurement) dense(a at) []float64 {
	a.form = form(&m.variants[0].forms[a.number])
	return m.times[a]
}

// ratios are the times of a form over those of dense in the same rounds.
func (m *Measurement) ratios(a at) []float64 { return ratios(m.times[a], m.dense(a)) }

// ratios divides times by others of the same rounds, of which there may be more.
func ratios(a, b []float64) []float64 {
	out := slices.Clone(a)
	for r := range out {
		out[r] /= max(b[r], 1e-6)
	}
	return out
}

// uncertainty is the share by which the median of some ratios may be off: twice its standard error, which of values that are
// distributed normally is 0.93 times the distance of their quartiles over the root of their number.
func uncertainty(r []float64) float64 {
	return 2 * 0.93 * (quantile(r, 0.75) - quantile(r, 0.25)) / (median(r) * math.Sqrt(float64(len(r))))
}

// leastNoise is the share by which a measurement may always be off.
const leastNoise = 0.02

// timings are what was measured, beside what is known.
func (m *Measurement) timings() *Timings {
	type of struct {
		key
		n int
	}
	ratios, dense := map[of][]float64{}, map[of][]float64{}
	for a := range m.times {
		k := of{key{m.problems[a.number], a.form}, m.Places[a.place].Columns[a.number]}
		ratios[k] = append(ratios[k], m.ratios(a)...)
		dense[k] = append(dense[k], m.dense(a)...)
	}
	t := m.known
	for k := range ratios {
		s := sample{n: k.n, us: median(dense[k])}
		if k.form.Format != choose.Dense {
			mid := median(ratios[k])
			s.us *= mid
			s.noise = max(leastNoise, uncertainty(ratios[k]))
		}
		number := slices.Index(m.problems, k.problem)
		l := &m.Layers[number]
		if i := slices.IndexFunc(l.Candidates, func(c choose.Candidate) bool { return c.Format == k.form.Format && c.Config == k.form.Config }); i >= 0 {
			s.predicted, _ = l.Us(&l.Candidates[i], k.n)
		}
		if s.us >= least && s.us <= most && s.noise <= most {
			t.samples[k.key] = append(t.samples[k.key], s)
			t.fresh = append(t.fresh, Entry{k.problem, k.form.String(), k.n, s.us, s.noise})
		}
	}
	for _, f := range m.variants[0].forms {
		if f.Format != "" {
			t.Measured++
		}
	}
	t.fresh = sorted(t.fresh)
	return t
}

// Timings are what the nodes of weights took.
type Timings struct {
	Measured, Known int // uses of weights that were measured, and of which all forms were known

	problems []string
	samples  map[key][]sample
	fresh    []Entry
}

// Fresh is what was measured, for a record.
func (t *Timings) Fresh() []Entry { return t.fresh }

// Problems are those of the uses of weights.
func (t *Timings) Problems() []string { return t.problems }

// sample is what a node took for n columns.
type sample struct {
	n                    int
	us, noise, predicted float64
}

// Of is choose.Options.Times. For columns that were not measured it is the prediction, scaled as that for the nearest columns would have
// to be.
func (t *Timings) Of(number int, f choose.Form, n int, predicted float64) choose.Timing {
	var at *sample
	nearest := math.Inf(1)
	for i := range t.samples[key{t.problems[number], f}] {
		s := &t.samples[key{t.problems[number], f}][i]
		if d := math.Abs(math.Log(float64(s.n) / float64(max(1, n)))); d < nearest && (s.n == n || s.predicted > 0) {
			nearest, at = d, s
		}
	}
	switch {
	case at == nil:
		return choose.Timing{}
	case at.n == n:
		return choose.Timing{Us: at.us, Noise: at.noise}
	}
	return choose.Timing{Us: predicted * at.us / at.predicted, Noise: at.noise, Scaled: true}
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quantile is that of some values, between two of them where it falls there.
func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	at := q * float64(len(v)-1)
	k := min(int(at), len(v)-2)
	if k < 0 {
		return v[0]
	}
	return v[k] + (at-float64(k))*(v[k+1]-v[k])
}
