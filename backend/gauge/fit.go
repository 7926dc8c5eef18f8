package gauge

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/backend/predict"
)

// fit finds the profile by which predictions are the least off: it changes one parameter after the other by some factor, as long as
// that helps, and then by smaller ones (coordinate descent; Hooke and Jeeves, Direct search, 1961). What is minimised is
//
//	sum of w huber(log((predicted + start) / measured)) + prior * sum of log(parameter / its value before)^2
//
// over the forms of all products, of which slow ones weigh less, since which of them is the fastest is what choosing wants to know. Start is what
// a node takes besides, which depends on its operator: a recurrence has its other product, and what each
// step and each element of its states takes. What few products depend on stays by the second
// sum near what it was.
type fit struct {
	samples []*sample
	base    *machine.Profile
	from    []parameter
	values  []float64 // of these, as far as they are fitted
	step    func()
}

// parameter is a number of a profile.
type parameter struct {
	name   string
	value  float64
	most   float64 // 0 where there is no bound
	set    func(p *machine.Profile, v float64)
	beside *beside // what it is of, if it is of NodeCost
}

// beside is a time in seconds that nodes of an operator take besides their products.
type beside struct {
	kind string // of the operator
	each unit
}

// unit says what such a time is of.
type unit string

const (
	perNode  unit = "start"
	perStep  unit = "step"  // of a recurrence
	perState unit = "state" // an element of the states, in each step
)

// denseFormat is that of weights that stay as they are, the first.
var denseFormat = format.Table[0]

// prior is the weight of a parameter's change beside that of a form that is off by the same factor.
const prior = 0.05

func newFit(base *machine.Profile, samples []*sample, step func()) *fit {
	f := &fit{samples: samples, base: base, step: step}
	f.from = parameters(base)
	known := map[string]bool{}
	for _, s := range samples {
		if known[s.kind] {
			continue
		}
		known[s.kind] = true
		add := func(each unit, value, most float64) {
			f.from = append(f.from, parameter{name: string(each) + "." + s.kind, value: value, most: most, beside: &beside{s.kind, each}})
		}
		n := base.Nodes[s.kind] // not those of the default profile, which change
		add(perNode, cmp.Or(n.Start, 1e-6), 1e-5)
		if s.steps > 0 {
			add(perStep, cmp.Or(n.Step, 5e-7), 5e-6)
			add(perState, cmp.Or(n.State, 1e-9), 2e-8)
		}
	}
	for _, p := range f.from {
		f.values = append(f.values, p.value)
	}
	return f
}

// parameters lists what is fitted of a profile.
func parameters(p *machine.Profile) (list []parameter) {
	add := func(name string, value, most float64, set func(p *machine.Profile, v float64)) {
		if value > 0 {
			list = append(list, parameter{name: name, value: value, most: most, set: set})
		}
	}
	for _, f := range machine.Families() {
		r, ok := p.Rates[f]
		if !ok {
			continue
		}
		rate := func(name string, value, most float64, set func(r *machine.Rate, v float64)) {
			add(string(f)+"."+name, value, most, func(p *machine.Profile, v float64) {
				r := p.Rates[f]
				set(&r, v)
				p.Rates[f] = r
			})
		}
		rate("panel", r.Panel, 1.1, func(r *machine.Rate, v float64) { r.Panel = v })
		rate("start", r.Start, 0, func(r *machine.Rate, v float64) { r.Start = v })
		for i := range len(r.Narrow) - 1 {
			rate(fmt.Sprintf("narrow[%d]", i), r.Narrow[i], 1.1, func(r *machine.Rate, v float64) { r.Narrow[i] = v })
		}
		rate("vec", r.Vec, 1.1, func(r *machine.Rate, v float64) { r.Vec = v })
		rate("vec_start", r.VecStart, 0, func(r *machine.Rate, v float64) { r.VecStart = v })
		rate("vec_idle", r.VecIdle, 0, func(r *machine.Rate, v float64) { r.VecIdle = v })
	}
	add("cold", p.Cold, p.Next.Bandwidth, func(p *machine.Profile, v float64) { p.Cold = v })
	add("memory", p.Memory, p.Memory, func(p *machine.Profile, v float64) { p.Memory = v })
	add("tokens", p.Tokens, 0, func(p *machine.Profile, v float64) { p.Tokens = v })
	add("fetch", p.Fetch, 0, func(p *machine.Profile, v float64) { p.Fetch = v })
	add("code", p.Code, 0, func(p *machine.Profile, v float64) { p.Code = v })
	add("images.patch", p.Images.Patch, 0, func(p *machine.Profile, v float64) { p.Images.Patch = v })
	add("images.farther", p.Images.Farther, 0, func(p *machine.Profile, v float64) { p.Images.Farther = v })
	add("images.strip", p.Images.Strip, 0, func(p *machine.Profile, v float64) { p.Images.Strip = v })
	add("images.far", p.Images.Far, 0, func(p *machine.Profile, v float64) { p.Images.Far = v })
	add("images.pad", p.Images.Pad, 0, func(p *machine.Profile, v float64) { p.Images.Pad = v })
	add("images.row", p.Images.Row, 0, func(p *machine.Profile, v float64) { p.Images.Row = v })
	add("images.tap", p.Images.Tap, 0, func(p *machine.Profile, v float64) { p.Images.Tap = v })
	add("images.lay", p.Images.Lay, 0, func(p *machine.Profile, v float64) { p.Images.Lay = v })
	add("images.plane", p.Images.Plane, 0, func(p *machine.Profile, v float64) { p.Images.Plane = v })
	add("images.turn", p.Images.Turn, 0, func(p *machine.Profile, v float64) { p.Images.Turn = v })
	add("images.spill", p.Images.Spill, 0, func(p *machine.Profile, v float64) { p.Images.Spill = v })
	add("images.held", p.Images.Held, 0, func(p *machine.Profile, v float64) { p.Images.Held = v })
	add("winograd.word", p.Winograd.Word, 0, func(p *machine.Profile, v float64) { p.Winograd.Word = v })
	add("winograd.start", p.Winograd.Start, 0, func(p *machine.Profile, v float64) { p.Winograd.Start = v })
	add("winograd.point", p.Winograd.Point, 0, func(p *machine.Profile, v float64) { p.Winograd.Point = v })
	for _, tile := range []int{2, 4} {
		add(fmt.Sprintf("winograd.grid.%d", tile), p.Winograd.Grid[tile], 0, func(p *machine.Profile, v float64) { p.Winograd.Grid[tile] = v })
	}
	return list
}

// state is a profile on the way, and what nodes take besides, in seconds.
type state struct {
	profile *machine.Profile
	model   predict.Analytic
	besides map[beside]float64
}

// state makes a profile of parameters.
func (f *fit) state(values []float64) state {
	s := state{profile: clone(f.base), besides: map[beside]float64{}}
	for i, p := range f.from {
		if p.beside != nil {
			s.besides[*p.beside] = values[i]
			continue
		}
		p.set(s.profile, values[i])
	}
	s.model = predict.Of(s.profile)
	return s
}

// predict is the time that the node of a product is predicted to take in a form, in microseconds.
func (s *state) predict(a *sample, f *formTime) float64 {
	seconds := s.product(a, f.kernels, f.layout) + s.besides[beside{a.kind, perNode}]
	if o := a.other; o != nil {
		seconds += s.product(o, denseFormat.For(o.w.Type), denseFormat.Layouts(o.w)[0])
		seconds += float64(a.steps)*s.besides[beside{a.kind, perStep}] + float64(a.states)*s.besides[beside{a.kind, perState}]
	}
	return 1e6 * seconds
}

// product is the time of a product as often as it is done, in seconds.
func (s *state) product(a *sample, k *backend.Kernels, l backend.Layout) float64 {
	c, _ := k.Cost(s.profile, a.w, a.n, l)
	c.Total, c.Again = a.total, a.times > 1
	seconds, _ := s.model.Predict(c, a.w.Dim(0), a.w.Dim(1), a.n)
	return float64(a.times) * seconds
}

// loss is what a sample adds to the sum.
func (s *state) loss(a *sample) (sum float64) {
	const knee = 0.2
	for i := range a.forms {
		f := &a.forms[i]
		off := math.Abs(math.Log(s.predict(a, f) / f.us))
		if off > knee {
			off = knee * (2*off - knee)
		} else {
			off *= off
		}
		sum += f.weight * off
	}
	return sum
}

// losses are those of all samples.
func (f *fit) losses(values []float64) []float64 {
	s := f.state(values)
	out := make([]float64, len(f.samples))
	for i, a := range f.samples {
		out[i] = s.loss(a)
	}
	return out
}

// run fits until the steps are small, or no longer than until then, if that is not zero.
func (f *fit) run(ctx context.Context, until time.Time) (*machine.Profile, error) {
	for factor := 1.4; factor > 1.01; factor = math.Sqrt(factor) {
		losses := f.losses(f.values)
		for i := range f.from {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if !until.IsZero() && time.Now().After(until) {
				return f.profile(), nil
			}
			f.step()
			f.descend(i, factor, losses)
		}
	}
	return f.profile(), nil
}

// profile is what was fitted so far, with what nodes take besides.
func (f *fit) profile() *machine.Profile {
	s := f.state(f.values)
	for at, seconds := range s.besides {
		n := s.profile.Node(at.kind)
		switch at.each {
		case perNode:
			n.Start = seconds
		case perStep:
			n.Step = seconds
		case perState:
			n.State = seconds
		}
		s.profile.Nodes[at.kind] = n
	}
	return s.profile
}

// descend changes a parameter by a factor, up or down, as long as that helps.
func (f *fit) descend(i int, factor float64, losses []float64) {
	p, values := &f.from[i], f.values
	touched := f.touched(i, factor, losses)
	for _, by := range []float64{factor, 1 / factor} {
		for moved := false; ; moved = true {
			old := values[i]
			next := old * by
			if p.most > 0 && next > p.most {
				break
			}
			values[i] = next
			s := f.state(values)
			change := prior * (square(math.Log(next/p.value)) - square(math.Log(old/p.value)))
			fresh := make([]float64, len(touched))
			for k, at := range touched {
				fresh[k] = s.loss(f.samples[at])
				change += fresh[k] - losses[at]
			}
			if !(change < -1e-9) {
				values[i] = old
				if moved {
					return // the other way is where it came from
				}
				break
			}
			for k, at := range touched {
				losses[at] = fresh[k]
			}
		}
	}
}

// touched lists the samples whose loss depends on a parameter: some that do not when it changes by a factor do when it changes more.
func (f *fit) touched(i int, factor float64, losses []float64) (list []int) {
	old, far := f.values[i], square(square(factor))
	defer func() { f.values[i] = old }()
	f.values[i] = old * far
	up := f.state(f.values)
	f.values[i] = old / far
	down := f.state(f.values)
	for k, a := range f.samples {
		if math.Abs(up.loss(a)-losses[k]) > 1e-12 || math.Abs(down.loss(a)-losses[k]) > 1e-12 {
			list = append(list, k)
		}
	}
	return list
}

// told lists what was fitted.
func (f *fit) told() (list []Parameter) {
	for i, p := range f.from {
		list = append(list, Parameter{p.name, p.value, f.values[i]})
	}
	return list
}

func square(x float64) float64 { return x * x }

// off is the factor by which a profile is off, in the geometric mean, for the form of each product that is the fastest.
func (f *fit) off(p *machine.Profile) float64 {
	s := f.state(f.values)
	s.profile, s.model = p, predict.Of(p)
	sum := 0.0
	for _, a := range f.samples {
		best := slices.MinFunc(a.forms, func(x, y formTime) int { return cmp.Compare(x.us, y.us) })
		sum += math.Abs(math.Log(s.predict(a, &best) / best.us))
	}
	return math.Exp(sum / float64(len(f.samples)))
}
