package spc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"spc/internal/pace"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes/budget"
	"spc/passes/calib"
)

// mostTries is how many models are built for one target.
const mostTries = 5

// made is a combination as it was built.
type made struct {
	model *Model
	pick  []int
	point BudgetPoint
	dense bool // it is the model that others are compared with
	draft bool // see sizing.make
	at    int  // in BudgetReport.Tried
}

func (m *made) close() {
	if m != nil && m.model != nil {
		m.model.Close()
	}
}

// make builds a combination and measures it. A draft is not reconstructed, which changes no time and no size, and its drop is not measured.
func (s *sizing) make(ctx context.Context, pick []int, divergence float64, draft bool) (*made, error) {
	if s.o.Plan == nil {
		s.step("candidates", s.builds, max(s.planned(), s.builds+1))
	}
	s.builds++
	o := s.o
	if o.Plan != nil { // the stages of the compilation are told in the place of what is one of this
		o.Plan = func(stages []Stage) {
			s.ahead(append(slices.Clone(stages), pace.Even("measure", 1, s.measuring(draft)))...)
		}
	}
	o.Quantize, o.small = s.types(s.integerWeights(pick)), map[string]bool{}
	for _, w := range s.smallWeights(pick) {
		o.small[w] = true
	}
	if draft {
		o.Prune.Reconstruct = nil
	}
	bare := slices.Max(s.entries(pick)) == 0 && len(s.o.Prune.Layers) == 0
	if bare {
		o.Prune = s.plain().Prune
		if o.Quantize.Type != tensor.I8 {
			o.Calibration = Calibration{}
		}
	} else {
		o.Prune.Pattern, o.Prune.Sparsity, o.Prune.Allocate, o.Prune.unjudged = Pattern{}, 0, PerLayer, true
		o.Prune.Layers = s.layers(pick)
	}
	m, err := Compile(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &made{model: m, pick: pick, draft: draft, point: s.point(pick, divergence), dense: bare && o.Quantize.Type == 0}
	if out.point.Integers > 0 {
		out.point.KeepFloat = s.keptFloat(m)
	}
	s.step("measure", 0, 1)
	if err := s.gauge(ctx, out); err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

// gauge measures what a model takes and loses.
func (s *sizing) gauge(ctx context.Context, m *made) (err error) {
	p := &m.point
	p.Divergence = min(p.Divergence, math.MaxFloat32)
	if err := s.race(ctx, m); err != nil {
		return err
	}
	work := 0.0
	for _, l := range m.model.report.Layers {
		work += float64(l.Nonzeros) * float64(max(1, l.N))
	}
	if dense := s.denseWork(); dense > 0 { // all weights may be zero, of which nothing is left
		p.FLOPs = work / dense
	}
	if r := m.model.report.Prune; r != nil {
		p.Sparsity = r.Prunable.Sparsity()
	}
	switch {
	case s.scores == nil || m.draft:
	case m.dense: // of which no sample needs to tell that it loses nothing
		if p.Drop, err = dropOf(s.scores, s.scores, 0); err != nil {
			return err
		}
	default:
		scores, err := s.evaluate(ctx, m.model)
		if err != nil {
			return err
		}
		least := 1.0
		if s.b.Evaluate != nil {
			least = rightOrWrong
		}
		if p.Drop, err = dropOf(s.scores, scores, least); err != nil {
			return err
		}
	}
	if p.Size, err = s.sizeWith(m); err != nil {
		return err
	}
	p.Unmet = s.b.Budget.unmet(p)
	return nil
}

// sizeWith is the size of the .spx of a model with a report of it alone, and of the front that was asked for.
func (s *sizing) sizeWith(m *made) (int64, error) {
	r := s.report
	r.Tried = []BudgetPoint{m.point}
	if s.b.Size == 0 { // of a front the sizes without it are of use
		r.Front = nil
	}
	r.Tried[0].Size = math.MaxInt32 // as many digits as there may be
	m.model.report.Budget = &r
	defer func() { m.model.report.Budget = nil }()
	return sizeOf(m.model)
}

// unmet lists what a point exceeds.
func (b *Budget) unmet(p *BudgetPoint) (list []Unmet) {
	add := func(bad bool, what string, want, have float64) {
		if bad {
			list = append(list, Unmet{what, want, have})
		}
	}
	add(b.Speedup > 0 && p.Speedup < b.Speedup, "speedup", b.Speedup, p.Speedup)
	add(b.Latency > 0 && p.Median > 1e3*b.Latency.Seconds(), "latency", 1e3*b.Latency.Seconds(), p.Median)
	add(b.Size > 0 && p.Size > b.Size, "size", float64(b.Size), float64(p.Size))
	add(b.FLOPs > 0 && p.FLOPs > b.FLOPs, "flops", b.FLOPs, p.FLOPs)
	if b.MaxDrop != nil && p.Drop != nil {
		add(!(p.Drop.Bound <= *b.MaxDrop), "max-drop", *b.MaxDrop, p.Drop.Bound)
	}
	return list
}

// The sittings in which two models run in turns, the least and the most rounds of each, and the seconds that these take between.
const (
	sittings       = 3
	leastSitting   = 7
	mostSitting    = 200
	sittingSeconds = 0.4
)

// race runs a model and the dense one in turns.
func (s *sizing) race(ctx context.Context, m *made) error {
	best := [2]float64{math.Inf(1), math.Inf(1)}
	var all []float64 // of the model
	models := [2]*Model{s.dense, m.model}
	for _, model := range models {
		if _, err := model.Run(ctx, s.inputs); err != nil {
			return err
		}
	}
	for range sittings {
		var times [2][]float64
		began := time.Now()
		for round := 0; round < leastSitting || round < mostSitting && time.Since(began).Seconds() < sittingSeconds; round++ {
			for k, model := range models {
				at := time.Now()
				if _, err := model.Run(ctx, s.inputs); err != nil {
					return err
				}
				times[k] = append(times[k], time.Since(at).Seconds())
			}
		}
		for k := range models {
			best[k] = min(best[k], max(slices.Min(times[k]), leastSeconds))
		}
		all = append(all, times[1]...)
	}
	p := &m.point
	p.DenseMs, p.Ms, p.Median = 1e3*best[0], 1e3*best[1], max(1e3*median(all), 1e3*best[1])
	p.Speedup = best[0] / best[1]
	return nil
}

// evaluate scores a model.
func (s *sizing) evaluate(ctx context.Context, m *Model) (scores []float64, err error) {
	if s.b.Evaluate != nil {
		return s.b.Evaluate(ctx, m)
	}
	if m == s.dense {
		n, none := 0, "comes in fewer than 4 inputs, of which none can be held out: give more samples, or"
		for _, err := range s.heldOut(ctx) {
			if err != nil {
				return nil, err
			}
			n++
		}
		if !calib.NewDivergence(s.dense.graph).Counts() {
			n, none = 0, "shows nothing of outputs that are no floats: give"
		}
		if n == 0 && s.b.MaxDrop == nil && s.b.Front == 0 {
			return nil, nil // so that no drop is told
		}
		if n == 0 {
			return nil, option.Errorf("%v %s %v", option.Calibration, none, option.Evaluate)
		}
		return make([]float64, n), nil
	}
	for in, err := range s.heldOut(ctx) {
		if err != nil {
			return nil, err
		}
		var outs [2][]*tensor.Tensor
		for k, model := range []*Model{s.dense, m} {
			out, err := model.Run(ctx, in)
			if err != nil {
				return nil, err
			}
			for _, p := range model.Outputs() {
				outs[k] = append(outs[k], out[p.Name])
			}
		}
		d := calib.NewDivergence(s.dense.graph)
		if err := d.Add(outs[0], outs[1]); err != nil {
			return nil, err
		}
		scores = append(scores, -100*min(d.Value(), math.MaxFloat32))
	}
	return scores, nil
}

// heldOut are the inputs that no search sees.
func (s *sizing) heldOut(ctx context.Context) func(yield func(map[string]*tensor.Tensor, error) bool) {
	return heldInputs(s.all, true)(ctx, s.dense.Inputs())
}

// quantile90 is the point below which nine tenths of a normal distribution lie.
const quantile90 = 1.2815515655446004

// rightOrWrong is the difference in points of a sample that is right or wrong.
const rightOrWrong = 100

// worstScore stands for scores that are no numbers, or less.
const worstScore = -1e9

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}

// dropOf compares scores of the same samples. The bound is that of the mean of paired differences, with one difference each way added as in
// Agresti and Min, "Simple improved confidence intervals for comparing matched proportions" (2005), as large as the largest, or
// as so many points where there is none.
func dropOf(dense, model []float64, none float64) (*Drop, error) {
	if len(dense) != len(model) || len(dense) == 0 {
		return nil, fmt.Errorf("%d scores of samples, and %d of the dense model: %w", len(model), len(dense), ErrInvalid)
	}
	sum, squares, largest := 0.0, 0.0, 0.0
	known := func(x float64) float64 {
		if !(x > worstScore) { // NaN among them
			return worstScore
		}
		return min(x, -worstScore)
	}
	for i, d := range dense {
		x := known(d) - known(model[i])
		sum, squares, largest = sum+x, squares+x*x, max(largest, math.Abs(x))
	}
	n := float64(len(dense))
	if largest == 0 {
		largest = none
	}
	out := &Drop{Points: sum / n, N: len(dense), Dense: known(mean(dense))}
	m := sum / (n + 2)
	variance := (squares+2*largest*largest)/(n+2) - m*m
	out.Bound = max(out.Points, m+quantile90*math.Sqrt(variance/(n+2)))
	return out, nil
}

// walk builds the combinations of a front for the report.
func (s *sizing) walk(ctx context.Context, front []combination) error {
	for _, c := range s.thinned(front, s.b.Front) {
		m, err := s.make(ctx, c.pick, c.divergence, false)
		if err != nil {
			return err
		}
		m.close()
		s.report.Front = append(s.report.Front, m.point)
	}
	return nil
}

// reach looks for the least loss within what is limited, and corrects what the layers alone predict by what is measured.
func (s *sizing) reach(ctx context.Context, front []combination) (*Model, error) {
	var found *made
	var built [][]int
	defer func() { found.close() }()
	adjust := make([]float64, len(s.limit)) // by what is measured: a factor of a time, and what is taken off other limits
	for i, w := range s.what {
		if w == "time" {
			adjust[i] = timeMargin
		}
	}
	for tries := mostTries; ; {
		err := s.search(ctx, adjust, &tries, &built, &found)
		if err != nil {
			return nil, err
		}
		if found, err = s.orIntegers(ctx, found, built); err != nil {
			return nil, err
		}
		if found == nil || !found.draft {
			break
		}
		if err := s.finish(ctx, &found); err != nil {
			return nil, err
		}
		if s.within(&found.point) || tries == 0 {
			break
		}
		s.adjust(adjust, found, false) // what is measured again may be found slower than its draft
		found.close()
		found = nil
	}
	switch {
	case found == nil || !s.within(&found.point):
		return s.unmet(ctx, front, "no program that was built is within it")
	case len(found.point.Unmet) > 0:
		return s.unmet(ctx, front, "what is fast and small enough loses too much")
	}
	return s.keep(&found), nil
}

// search builds combinations, at most as many as there are tries left, until one is within the limits and hardly any better than that. One that is not,
// though others were, is what was loosened too much: the next lies between.
func (s *sizing) search(ctx context.Context, adjust []float64, tries *int, built *[][]int, found **made) error {
	for again := 2 * mostTries; *tries > 0 && again > 0; again-- {
		limits := make([]float64, len(s.limit))
		for i, l := range s.limit {
			if limits[i] = l - adjust[i]; s.what[i] == "time" {
				limits[i] = (l+s.rest(i))*adjust[i] - s.rest(i)
			}
		}
		pick, ok, err := s.solve(ctx, limits)
		if err != nil {
			return err
		}
		if !ok { // perhaps the least there is does, as it is measured
			pick = s.least()
		}
		pick, divergence, err := s.evolve(ctx, limits, pick, len(*built) == 0)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(*built, func(p []int) bool { return slices.Equal(p, pick) }) {
			if !ok || *found != nil && slices.Equal((*found).pick, pick) {
				return nil
			}
			s.tighten(adjust, pick) // until another comes
			continue
		}
		*built = append(*built, pick)
		*tries--
		m, err := s.make(ctx, pick, divergence, s.drafts())
		if err != nil {
			return err
		}
		s.try(m)
		met := s.within(&m.point)
		before := *found
		if met && (before == nil || m.point.Divergence < before.point.Divergence) {
			before.close()
			*found = m
		} else if m.close(); met { // and is no better
			return nil
		}
		if !s.adjust(adjust, m, met) {
			return nil
		}
	}
	return nil
}

// orIntegers is what was found or, where that is within what is limited and diverges less, the program with integers wherever they may be.
func (s *sizing) orIntegers(ctx context.Context, found *made, built [][]int) (*made, error) {
	c, err := s.allIntegers(ctx)
	if err != nil || c.pick == nil || found != nil && c.divergence >= found.point.Divergence || slices.ContainsFunc(built, func(p []int) bool { return slices.Equal(p, c.pick) }) {
		return found, err
	}
	m, err := s.make(ctx, c.pick, c.divergence, false)
	if err != nil {
		return found, err
	}
	s.try(m)
	if !s.within(&m.point) {
		m.close()
		return found, nil
	}
	found.close()
	return m, nil
}

// drafts reports whether what is tried is not yet what is written.
func (s *sizing) drafts() bool { return s.o.Prune.Reconstruct != nil }

// finish makes a program of a draft, in whose place it is measured.
func (s *sizing) finish(ctx context.Context, draft **made) error {
	m, err := s.make(ctx, (*draft).pick, (*draft).point.Divergence, false)
	if err != nil {
		return err
	}
	if !s.within(&m.point) && m.point.Size == (*draft).point.Size { // the same program, so that more runs tell more
		if err := s.gauge(ctx, m); err != nil {
			m.close()
			return err
		}
	}
	s.try(m)
	(*draft).close()
	*draft = m
	return nil
}

// solve is the better of what the effects of layers alone suggest within limits, and those among others.
func (s *sizing) solve(ctx context.Context, limits []float64) (best []int, ok bool, err error) {
	least := math.Inf(1)
	for _, items := range [][][]budget.Choice{s.items, s.joint} {
		pick, found := budget.Solve(items, limits)
		if !found {
			continue
		}
		d, err := s.divergence(ctx, pick)
		if err != nil {
			return nil, false, err
		}
		if best == nil || d < least {
			best, least = pick, d
		}
	}
	return best, best != nil, nil
}

// least is the combination that takes the least of what is the hardest to keep within its limit.
func (s *sizing) least() []int {
	worst, at := math.Inf(-1), 0
	for i, l := range s.limit {
		share := budget.Uses(s.items, budget.Frugal(s.items, i))[i] / max(l, 1e-12)
		if share > worst {
			worst, at = share, i
		}
	}
	return budget.Frugal(s.items, at)
}

// try notes a model that was built.
func (s *sizing) try(m *made) {
	s.report.Amdahl = max(s.report.Amdahl, m.point.Speedup) // it is of times of layers, which noise has its part in
	m.at = len(s.report.Tried)
	s.report.Tried = append(s.report.Tried, m.point)
}

// tighten has limits exclude a combination.
func (s *sizing) tighten(adjust []float64, pick []int) {
	uses := budget.Uses(s.items, pick)
	for i := range adjust {
		if math.IsInf(s.limit[i], 1) {
			continue
		}
		if s.what[i] == "time" {
			adjust[i] = min(adjust[i], (uses[i]*0.995+s.rest(i))/(s.limit[i]+s.rest(i)))
		} else {
			adjust[i] = max(adjust[i], s.limit[i]-uses[i]*0.995)
		}
	}
}

// timeMargin is what is left for noise of a time that is aimed at, and slackShare how much better than asked for a model may be
// before one that loses less is looked for.
const (
	timeMargin = 0.98
	slackShare = 0.05
)

// rest is what is used of limit i by all but the layers.
func (s *sizing) rest(i int) float64 {
	switch s.what[i] {
	case "time":
		return s.costs.restTime
	case "size":
		return s.costs.restBytes
	}
	return s.costs.restWork
}

// within reports whether a point meets all but the drop.
func (s *sizing) within(p *BudgetPoint) bool {
	return !slices.ContainsFunc(p.Unmet, func(u Unmet) bool { return u.What != "max-drop" })
}

// adjust corrects the limits by what was measured of a combination, and reports whether another should be tried.
func (s *sizing) adjust(adjust []float64, m *made, met bool) (again bool) {
	uses := budget.Uses(s.items, m.pick)
	b, p := s.b.Budget, &m.point
	for i, w := range s.what {
		var ratio, more float64 // of what is allowed to what is taken, and what is taken more than was predicted
		switch w {
		case "time":
			ratio = math.Inf(1)
			if b.Speedup > 0 {
				ratio = p.Speedup / b.Speedup
			}
			if b.Latency > 0 {
				ratio = min(ratio, 1e3*b.Latency.Seconds()/p.Median)
			}
		case "size":
			ratio, more = float64(b.Size)/float64(p.Size), float64(p.Size)-s.rest(i)-uses[i]
		default:
			ratio, more = b.FLOPs/p.FLOPs, p.FLOPs*s.denseWork()-s.rest(i)-uses[i]
		}
		worth := ratio < 1 || met && ratio > 1+slackShare && !math.IsInf(ratio, 1)
		again = again || worth
		switch {
		case w != "time" && worth:
			adjust[i] = more
		case worth && ratio < 1:
			adjust[i] *= ratio * 0.99
		case worth:
			adjust[i] *= 1 + 0.8*(ratio-1)
		}
	}
	return again
}

// evolve refines a combination by the outputs of the whole.
func (s *sizing) evolve(ctx context.Context, limits []float64, pick []int, first bool) ([]int, float64, error) {
	n := s.b.Search
	if !first { // near what was found
		n /= 4
	}
	if n == 0 {
		d, err := s.divergence(ctx, pick)
		return pick, d, err
	}
	const offspring = 8
	s.ahead(pace.Even("search", n, s.differ))
	return budget.Evolve(ctx, s.items, limits, pick, budget.Search{
		Generations: max(1, n/offspring), Offspring: min(offspring, n), Seed: 1, Measure: s.divergence,
		Step: func(done, total int) { s.step("search", done, total) },
	})
}

// fastest looks for the fastest combination that loses no more than it may. Models from the safest on are compared with the dense one until one
// loses too much: as the order was known before, the bound of each holds though several were looked at (fixed sequence testing;
// Angelopoulos et al., "Learn then Test" (2021), section 4.2).
func (s *sizing) fastest(ctx context.Context, front []combination) (*Model, error) {
	const gain = 0.97 // of a time that is worth another model
	var best *made
	defer func() { best.close() }()
	integers, err := s.allIntegers(ctx)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(front)
	if integers.pick != nil { // in the order in which programs are safe
		at := slices.IndexFunc(list, func(c combination) bool { return c.divergence > integers.divergence })
		if at < 0 {
			at = len(list)
		}
		list = slices.Insert(list, at, integers)
	}
	last := math.Inf(1)
	for i, c := range list {
		t := s.seconds(c.pick)
		if i > 0 && t > last*gain && !slices.Equal(c.pick, integers.pick) {
			continue
		}
		m, err := s.make(ctx, c.pick, c.divergence, false)
		if err != nil {
			return nil, err
		}
		last = min(last, t)
		s.try(m)
		if len(m.point.Unmet) > 0 {
			m.close()
			break
		}
		best = faster(best, m)
	}
	if best == nil {
		return s.unmet(ctx, front, "even the first program loses too much, or the samples are too few to tell")
	}
	return s.keep(&best), nil
}

// faster keeps one of two, of which a may be nil, and closes the other.
func faster(a, b *made) *made {
	if a != nil && a.point.Ms <= b.point.Ms {
		b.close()
		return a
	}
	a.close()
	return b
}

// keep is the model of what was found, with the report of how.
func (s *sizing) keep(m **made) *Model {
	found := (*m).model
	p := s.report.Tried[(*m).at] // the one that is taken is the last
	s.report.Tried = append(slices.Delete(s.report.Tried, (*m).at, (*m).at+1), p)
	*m = nil
	s.sign(found)
	return found
}

// sign has a model tell what was tried, the last of which it is.
func (s *sizing) sign(found *Model) {
	r := s.report
	r.Tried = slices.Clone(r.Tried)
	for i := range r.Tried[:len(r.Tried)-1] { // which --layer does not need to name
		r.Tried[i].Layers, r.Tried[i].KeepFloat, r.Tried[i].Small = nil, nil, nil
	}
	found.report.Budget = &r
	if s.b.Size > 0 { // which a list of what was tried may exceed
		if n, err := sizeOf(found); err != nil || n > s.b.Size {
			r.Tried = r.Tried[len(r.Tried)-1:]
		}
	}
}

// unmet is the error for a budget that is not met, with the two points that are nearest: of those built, the one that exceeds the budget
// least, and one that exceeds something else, where there is one. Where a drop and more is limited, the fastest program that loses no more than
// it may is among them, and it is no error where that meets the rest.
func (s *sizing) unmet(ctx context.Context, front []combination, why string) (*Model, error) {
	if m, err := s.alternative(ctx, front); m != nil || err != nil {
		return m, err
	}
	quantised, err := s.quantised(ctx)
	if err != nil {
		return nil, err
	}
	e := &BudgetError{BudgetReport: s.report, Quantised: quantised, Why: why}
	excess := func(p *BudgetPoint) float64 {
		sum := 0.0
		for _, u := range p.Unmet {
			switch {
			case u.What == "speedup":
				sum += u.Want/u.Have - 1
			case u.Want > 0:
				sum += u.Have/u.Want - 1
			default:
				sum += u.Have
			}
		}
		return sum
	}
	list := slices.DeleteFunc(slices.Clone(s.report.Tried), func(p BudgetPoint) bool { return len(p.Unmet) == 0 }) // drafts of what was measured then
	slices.SortStableFunc(list, func(p, q BudgetPoint) int {
		switch a, b := excess(&p), excess(&q); {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	if len(list) > 0 {
		e.Nearest = list[:1]
		for _, p := range list[1:] {
			if !slices.EqualFunc(p.Unmet, list[0].Unmet, func(a, b Unmet) bool { return a.What == b.What }) {
				e.Nearest = append(e.Nearest, p)
				break
			}
		}
		if len(e.Nearest) == 1 && len(list) > 1 {
			e.Nearest = append(e.Nearest, list[1])
		}
	}
	return nil, e
}

// quantised measures the model without zeros in 8-bit integers, which may do what zeros cannot; nil where products have a type already, or cannot have that.
func (s *sizing) quantised(ctx context.Context) (*BudgetPoint, error) {
	if s.o.Quantize.Type != 0 || s.integers() || s.other {
		return nil, nil
	}
	s.step("8-bit integers", 0, 1)
	o := s.plain()
	o.Quantize.Type = tensor.I8
	model, err := Compile(ctx, o)
	if err != nil {
		return nil, ctx.Err()
	}
	m := &made{model: model, pick: make([]int, len(s.items))}
	defer m.close()
	if err := s.gauge(ctx, m); err != nil { // what is not known of it is no error of the budget
		return nil, ctx.Err()
	}
	return &m.point, nil
}

// alternative adds to what was tried the fastest program that loses no more than it may, where a drop and more is limited, and returns it where it
// meets the rest, too.
func (s *sizing) alternative(ctx context.Context, front []combination) (*Model, error) {
	if s.b.MaxDrop == nil || !s.b.limited() {
		return nil, nil
	}
	other := *s
	other.other = true
	other.b.Budget, other.report.Tried = Budget{MaxDrop: s.b.MaxDrop}, nil
	m, err := other.fastest(ctx, front)
	s.builds = other.builds
	if errors.Is(err, ErrUnmet) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := m.report.Budget.Tried[len(m.report.Budget.Tried)-1]
	p.Unmet = s.b.Budget.unmet(&p)
	s.report.Tried = append(s.report.Tried, p)
	if len(p.Unmet) == 0 {
		s.sign(m)
		return m, nil
	}
	return nil, m.Close()
}
