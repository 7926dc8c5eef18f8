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

	problems [][]string                       // by use of a weight and place
	forms    map[*ir.Value][]choose.Candidate // of those that are measured, dense first
	after    map[*ir.Value]int                // variants in which other weights of its nodes have their forms, and it is dense
	variants []*variant
	warm     bool             // some would find their weights in the cache, but for the turns of the others
	times    map[at][]float64 // microseconds, round by round: those of a form are of the first rounds of dense
	known    *Timings
	entries  map[entryKey]*Entry // of Known
	took     time.Duration       // by the last run that was not timed node by node
}

// key is a problem in a form.
type key struct {
	problem string
	form    choose.Form
}

// entryKey is what an entry is of.
type entryKey struct {
	problem, form string
	n             int
}

// at is where times are of.
type at struct {
	number int // of a use of a weight
	form   choose.Form
	place  int
}

// variant is a program in which each weight has a certain one of its forms.
type variant struct {
	forms []choose.Candidate // by use of a weight; without a format where there is nothing to choose, or it is another one's turn
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
	began := time.Now()
	if err := m.build(ctx); err != nil {
		return nil, err
	}
	if len(m.variants) == 0 {
		return m.known, nil
	}
	measured := 0
	for i := range m.Places {
		if i > 0 && time.Now().Add(m.grown(i)).After(m.Until) {
			break
		}
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
		return nil, fmt.Errorf("%w: %v do not suffice to load the model in %d ways and run each %d times", ErrBudget, max(0, m.Until.Sub(began)).Round(time.Millisecond), len(m.variants), 2+leastRounds*m.runs())
	}
	return m.timings(), nil
}

// ErrBudget says that there was too little time to measure anything.
var ErrBudget = errors.New("too little time")

// grown is how long a run at a place may take by the last one that was seen, at the place before: as much longer as there are more elements.
func (m *Measurement) grown(place int) time.Duration {
	return more(m.took, &m.Places[place-1], &m.Places[place])
}

// more is how long something takes at a place that took so long at another, if it takes as much longer as there are more elements.
func more(took time.Duration, from, to *Place) time.Duration {
	return time.Duration(float64(took) * float64(max(1, to.elements())) / float64(max(1, from.elements())))
}

// elements is the number of elements of the inputs.
func (p *Place) elements() (n int) {
	for _, t := range p.In {
		n += t.Len()
	}
	return n
}

// manyRounds is the number of rounds for which there has to be time where manyForms are measured, hastyRuns the number of runs for which there
// has to be where runs are only to find that out.
const manyRounds, hastyRuns = 10, 20

// most is how many forms of a weight are measured beside dense, of which the most take so many variants.
func (m *Measurement) most(ctx context.Context, dense *variant, variants int) (int, error) {
	if m.Most > 0 || len(m.Places) == 0 {
		return m.Most, nil
	}
	all := 0
	for i := range m.Places {
		all += max(1, m.Places[i].elements())
	}
	turns := float64(variants * manyRounds * warmRuns)
	// By the smallest place first, and where by that a few runs at the largest are little of the time, by that one.
	at := &m.Places[0]
	for _, p := range []*Place{at, &m.Places[len(m.Places)-1]} {
		if p == at && m.took > 0 { // there is one place
			break
		}
		if float64(hastyRuns)*more(m.took, at, p).Seconds() > time.Until(m.Until).Seconds() {
			return mostForms, nil
		}
		for range 2 { // the first run makes it ready
			start := time.Now()
			if err := dense.prog.Run(ctx, p.In, dense.out); err != nil {
				return 0, err
			}
			m.took = time.Since(start)
			m.Step()
		}
		at = p
	}
	if turns*m.took.Seconds()*float64(all)/float64(max(1, at.elements())) < time.Until(m.Until).Seconds() {
		return manyForms, nil
	}
	return mostForms, nil
}

// build makes the variants: all weights dense, and then the k-th best of each that is not known.
func (m *Measurement) build(ctx context.Context) error {
	uses := m.Graph.WeightUses()
	m.problems = nil
	for i := range uses {
		var list []string
		for _, p := range m.Places {
			list = append(list, Problem(&m.Layers[i], &p.Weights[i], m.Threads))
		}
		m.problems = append(m.problems, list)
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
			if own := k - m.after[uses[i].Value]; own > 0 && own < len(forms) {
				f = forms[own]
			}
			v.forms = append(v.forms, f)
			if done[u.Value] || f.Format == choose.Dense && f.DType == u.Value.Type.DType.String() {
				continue
			}
			done[u.Value] = true
			if err := choose.Store(u, format.Lookup(f.Format), &f); err != nil {
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
		forms, err := m.most(ctx, v, m.turns(uses))
		if err != nil {
			return err
		}
		for w, list := range m.forms {
			m.forms[w] = list[:min(len(list), 1+forms)]
		}
		most = m.turns(uses)
	}
	return nil
}

// turns finds when the weights have their forms, and the number of variants: a node is timed as a whole, so of two weights of one node one is
// dense while the other has its forms.
func (m *Measurement) turns(uses []ir.WeightUse) (variants int) {
	m.after = map[*ir.Value]int{}
	ends := map[*ir.Node]int{} // forms that weights of a node have had
	for i, u := range uses {
		v := u.Value
		if m.forms[v] == nil || slices.ContainsFunc(uses[:i], func(o ir.WeightUse) bool { return o.Value == v }) {
			continue
		}
		for _, o := range uses {
			if o.Value == v {
				m.after[v] = max(m.after[v], ends[o.Node])
			}
		}
		end := m.after[v] + len(m.forms[v]) - 1
		for _, o := range uses {
			if o.Value == v {
				ends[o.Node] = end
			}
		}
		variants = max(variants, 1+end)
	}
	return variants
}

// find finds the forms that may be measured, and what is known of others.
func (m *Measurement) find(uses []ir.WeightUse) {
	m.entries = map[entryKey]*Entry{}
	if m.Known != nil {
		for i := range m.Known.Entries {
			e := &m.Known.Entries[i]
			m.entries[entryKey{e.Problem, e.Form, e.N}] = e
		}
	}
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

// recall takes what is known of a use of a weight. It reports whether that suffices: for each form that is always measured, at half of the
// places, since there may not have been time for all. Further forms count where they are known at all places at which dense is.
func (m *Measurement) recall(number int, forms []choose.Candidate) bool {
	list := map[key][]sample{}
	var dense []int // the places at which it is known
	for i, f := range forms {
		var places []int
		for at, p := range m.Places {
			k, n := key{m.problems[number][at], form(&f)}, p.Columns[number]
			e := m.entries[entryKey{k.problem, k.form.String(), n}]
			if e == nil {
				continue
			}
			places = append(places, at)
			if slices.ContainsFunc(list[k], func(s sample) bool { return s.n == n }) { // at another place
				continue
			}
			s := sample{n: n, us: e.Us, noise: e.Noise}
			s.predicted, _ = m.Layers[number].Us(&f, n)
			list[k] = append(list[k], s)
		}
		if i == 0 {
			dense = places
		}
		if 2*len(places) >= len(m.Places) && slices.Equal(places, dense) {
			continue
		}
		if i <= cmp.Or(m.Most, mostForms) {
			return false
		}
		maps.DeleteFunc(list, func(k key, _ []sample) bool { return k.form == form(&f) })
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
		for i, v := range live {
			start := time.Now()
			if err := v.prog.Run(ctx, in, v.out); err != nil {
				return false, err
			}
			m.took = time.Since(start)
			if again > 0 {
				round += m.took * time.Duration(m.runs())
			}
			m.Step()
			if last := again > 0 && i == len(live)-1; !last && time.Now().Add(m.took).After(until) {
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

// runs is how often a program runs in its turn.
func (m *Measurement) runs() int {
	if m.warm {
		return warmRuns
	}
	return 1
}

// run gives a variant its turn, and keeps what the node of each of its uses of weights took.
func (m *Measurement) run(ctx context.Context, v *variant, place int) error {
	fastest := map[string]float64{}
	for range m.runs() {
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
		k := of{key{m.problems[a.number][a.place], a.form}, m.Places[a.place].Columns[a.number]}
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
		number := slices.IndexFunc(m.problems, func(list []string) bool { return slices.Contains(list, k.problem) })
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

	problems [][]string // by use of a weight and place
	samples  map[key][]sample
	fresh    []Entry
}

// Fresh is what was measured, for a record.
func (t *Timings) Fresh() []Entry { return t.fresh }

// Problems are those of the uses of weights, by use and place.
func (t *Timings) Problems() [][]string { return t.problems }

// sample is what a node took for n columns.
type sample struct {
	n                    int
	us, noise, predicted float64
}

// Of is choose.Options.Times. What differs in other sizes than the columns, as the steps of a recurrence, counts as their geometric mean. For
// columns that were not measured it is the prediction, scaled as that for the nearest columns would have to be.
func (t *Timings) Of(number int, f choose.Form, n int, predicted float64) choose.Timing {
	var at []sample // of the nearest columns
	nearest := math.Inf(1)
	met := map[string]bool{}
	for _, problem := range t.problems[number] {
		if met[problem] {
			continue
		}
		met[problem] = true
		for _, s := range t.samples[key{problem, f}] {
			if s.n != n && s.predicted <= 0 {
				continue
			}
			d := math.Abs(math.Log(float64(s.n) / float64(max(1, n))))
			if d < nearest {
				nearest, at = d, nil
			}
			if d == nearest {
				at = append(at, s)
			}
		}
	}
	if at == nil {
		return choose.Timing{}
	}
	us, off, noise := 1.0, 1.0, 0.0
	for _, s := range at {
		us *= math.Pow(s.us, 1/float64(len(at)))
		off *= math.Pow(s.us/max(s.predicted, 1e-9), 1/float64(len(at)))
		noise = max(noise, s.noise)
	}
	if at[0].n == n {
		return choose.Timing{Us: us, Noise: noise}
	}
	return choose.Timing{Us: predicted * off, Noise: noise, Scaled: true}
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
