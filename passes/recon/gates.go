package recon

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"spc/ir"
)

// Gates say which elements of a weight may be zero. Each gate is open with a probability that
// is learnt, and lets the elements pass that belong to it: the hard concrete distribution of
// Louizos et al., "Learning sparse neural networks through L0 regularization" (2018), section
// 2.2. What they pay for open gates is here a constraint: after each step the probabilities are
// moved by one amount in all logits of a group so that their sum stays what it was, in the manner of
// Zhou et al., "Effective sparsification of neural networks with global sparsity constraint"
// (ProbMask, 2021), section 3.3.
type Gates struct {
	Weight *ir.Value // a constant of the graph that Run gets
	Unit   []int32   // by element of the weight, its gate, -1 where it is zero for good
	Group  []int32   // by gate, its group; as many gates of a group stay open as are in Open
	Value  []float32 // by element, what it is where its gate opens, to begin with
	Open   []bool    // by gate: those to begin with, and, after Run, those that were kept
	// Trained is set by Run where its parameters have the weight. They have not where something else reads it in
	// another block, and where it is fixed.
	Trained bool
	// Harden picks the gates that stay open by their probabilities. Run calls it on one
	// goroutine at a time.
	Harden func(p []float32) ([]bool, error)
}

// The hard concrete distribution is a logistic one that is squashed by a temperature, stretched
// from (0, 1) to an interval around it, and cut off at 0 and 1: those of section 4 of the paper.
const (
	temperature            = 2.0 / 3
	stretchFrom, stretchTo = -0.1, 1.1
)

// opening is the logit of an open gate to begin with, minus that of one that is closed. Logits further than farLogit from zero are
// brought back there: probabilities close to 0 and 1 have no gradients by which to return.
const (
	opening  = 8.0
	farLogit = 8.0
)

// concrete returns the gate of a logit for a uniform draw from (0, 1), and its derivative by the logit.
func concrete(logit, u float64) (z, slope float64) {
	s := sigmoid((math.Log(u/(1-u)) + logit) / temperature)
	z = s*(stretchTo-stretchFrom) + stretchFrom
	switch {
	case z <= 0:
		return 0, 0
	case z >= 1:
		return 1, 0
	}
	return z, (stretchTo - stretchFrom) * s * (1 - s) / temperature
}

// passing is the probability that the gate of a logit is not zero (equation 12).
func passing(logit float64) float64 {
	return sigmoid(logit - temperature*math.Log(-stretchFrom/stretchTo))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// gating is what a parameter with gates has besides.
type gating struct {
	*Gates
	seed    uint64
	travel  float64   // Options.GateTravel
	step    float64   // of a logit, relative to the rate of the weights
	weights []float32 // what passes through open gates
	logit   []float64
	z       []float32 // of the last draw
	slope   []float64
	grad    []float64
	m       []float64
	v       float64   // of the squares of grad, their mean
	members [][]int32 // of groups in which there is a choice
	want    []float64 // by group of members, the sum of probabilities
	hard    bool      // gates are as Harden picks them, and learn no more
	open    []bool    // as it last picked them
	best    []bool    // where param.best is
}

// gate gives a parameter gates.
func (p *param) gate(g *Gates, travel float64, seed uint64) error {
	n := p.tensor.Len()
	if len(g.Unit) != n || len(g.Value) != n || len(g.Open) != len(g.Group) {
		return fmt.Errorf("%s: gates of %d elements, %d values, %d groups and %d openings, want %d elements: %w", p.value.Name, len(g.Unit), len(g.Value), len(g.Group), len(g.Open), n, ir.ErrInvalid)
	}
	k := len(g.Open)
	q := &gating{Gates: g, seed: seed, travel: travel, weights: slices.Clone(g.Value), logit: make([]float64, k), z: make([]float32, k), slope: make([]float64, k),
		grad: make([]float64, k), m: make([]float64, k), open: slices.Clone(g.Open), best: slices.Clone(g.Open)}
	groups := 0
	for _, i := range g.Group {
		groups = max(groups, int(i)+1)
	}
	members, open := make([][]int32, groups), make([]float64, groups)
	for i, at := range g.Group {
		members[at] = append(members[at], int32(i))
		q.logit[i] = -opening / 2
		if g.Open[i] {
			open[at]++
			q.logit[i] = opening / 2
		}
	}
	for at, list := range members {
		if open[at] > 0 && open[at] < float64(len(list)) {
			q.members, q.want = append(q.members, list), append(q.want, open[at])
			continue
		}
		for _, i := range list { // there is no choice
			q.logit[i] *= 1e6
		}
	}
	q.project()
	g.Trained = true
	p.gating = q
	p.byGates()
	return nil
}

// byGates makes the steps of elements as long as those of their rows, of open and of closed ones.
func (p *param) byGates() {
	rows := int(slices.Max(p.row)) + 1
	sum, count := make([]float64, rows), make([]float64, rows)
	for i, w := range p.gating.weights {
		if w != 0 {
			sum[p.row[i]] += float64(w) * float64(w)
			count[p.row[i]]++
		}
	}
	least := rms(p.gating.weights) / 100
	for i, u := range p.gating.Unit {
		p.scale[i] = 0
		if r := p.row[i]; u >= 0 && p.gating.weights[i] != 0 {
			p.scale[i] = max(float32(math.Sqrt(sum[r]/count[r])), least)
		}
	}
}

// draw sets the parameter to what passes in step t.
func (p *param) draw(t int) {
	g := p.gating
	if g.hard {
		p.pass()
		return
	}
	rng := rand.New(rand.NewPCG(g.seed, uint64(t)))
	for i, l := range g.logit {
		u := (float64(rng.Uint64()>>11) + 0.5) / (1 << 53)
		z, slope := concrete(l, u)
		g.z[i], g.slope[i] = float32(z), slope
	}
	p.pass()
}

// pass multiplies the weights by the gates.
func (p *param) pass() {
	g := p.gating
	for i, u := range g.Unit {
		v := float32(0)
		if u >= 0 {
			v = g.weights[i] * g.z[u]
		}
		p.tensor.F32s()[i] = v
	}
}

// harden sets the parameter to what passes where gates are open or closed.
func (p *param) harden() error {
	g := p.gating
	if !g.hard {
		probability := make([]float32, len(g.logit))
		for i, l := range g.logit {
			probability[i] = float32(passing(l))
		}
		var err error
		if g.open, err = g.Harden(probability); err != nil {
			return err
		}
	}
	for i, open := range g.open {
		g.z[i] = 0
		if open {
			g.z[i] = 1
		}
	}
	p.pass()
	return nil
}

// keep notes the parameter as it is, after harden, as the best.
func (p *param) keep() {
	copy(p.best, p.tensor.F32s())
	if p.gating != nil {
		copy(p.gating.best, p.gating.open)
	}
}

// adam makes step t of the gates and of the weights that pass them; p.grad is by what passed.
func (g *gating) adam(p *param, t int, rate float64) {
	if !g.hard {
		g.learn(p, t, rate*g.step)
	}
	c1, c2 := float32(rate/(1-math.Pow(beta1, float64(t)))), float32(1/(1-math.Pow(beta2, float64(t))))
	for i, u := range g.Unit {
		s := p.scale[i]
		if s == 0 {
			continue
		}
		d := p.grad[i] * g.z[u]
		m, v := beta1*p.m[i]+(1-beta1)*d, beta2*p.v[i]+(1-beta2)*d*d
		p.m[i], p.v[i] = m, v
		if next := g.weights[i] - c1*s*m/(float32(math.Sqrt(float64(v*c2)))+tiny); next != 0 {
			g.weights[i] = next
		}
	}
}

// longest is the longest step of a logit.
const longest = 1.0

// learn makes a step of the logits: Adam's, with one second moment for all gates of the weight. One for each would
// make the steps of gates that hardly matter as long as those of the others, in directions that draws decide.
func (g *gating) learn(p *param, t int, rate float64) {
	g.slopes(p.grad)
	sum := 0.0
	for _, d := range g.grad {
		sum += d * d
	}
	g.v = beta2*g.v + (1-beta2)*sum/float64(len(g.grad))
	c1, c2 := rate/(1-math.Pow(beta1, float64(t))), 1/(1-math.Pow(beta2, float64(t)))
	scale := c1 / (math.Sqrt(g.v*c2) + tiny)
	for i, d := range g.grad {
		g.m[i] = beta1*g.m[i] + (1-beta1)*d
		g.logit[i] -= min(max(scale*g.m[i], -longest), longest)
	}
	g.project()
}

// slopes computes the gradient by the logits from that by what passed.
func (g *gating) slopes(grad []float32) {
	clear(g.grad)
	for i, u := range g.Unit {
		if u >= 0 {
			g.grad[u] += float64(grad[i]) * float64(g.weights[i])
		}
	}
	for i, s := range g.slope {
		g.grad[i] *= s
	}
}

// project moves the logits of each group by one amount so that their probabilities have the sum that they should have.
func (g *gating) project() {
	for k, list := range g.members {
		shift := balance(g.logit, list, g.want[k])
		for _, i := range list {
			g.logit[i] = min(max(g.logit[i]+shift, -farLogit), farLogit)
		}
	}
}

// balance finds, by Newton's method between bounds, what to add to the logits so that their
// probabilities add up to want, which is above 0 and below their number.
func balance(logit []float64, list []int32, want float64) float64 {
	lo, hi, shift := -4*farLogit, 4*farLogit, 0.0
	for range 60 {
		sum, slope := -want, 0.0
		for _, i := range list {
			p := passing(logit[i] + shift)
			sum += p
			slope += p * (1 - p)
		}
		if math.Abs(sum) < 1e-4 {
			break
		}
		if sum > 0 {
			hi = shift
		} else {
			lo = shift
		}
		if shift -= sum / slope; !(shift > lo && shift < hi) {
			shift = (lo + hi) / 2
		}
	}
	return shift
}

// gateParams gives the parameters that Options.Gates name their gates, and returns those that are trained.
func (r *runner) gateParams(params []*param) ([]*param, error) {
	if r.Gates == nil {
		return params, nil
	}
	any := false
	for i := range params {
		p := params[i]
		at := slices.IndexFunc(r.Gates, func(g *Gates) bool { return g.Weight == p.value })
		if at < 0 || !p.weight {
			continue
		}
		any = true
		if err := p.gate(r.Gates[at], r.GateTravel, r.Seed<<16+uint64(at)); err != nil {
			return nil, err
		}
	}
	if !any {
		return nil, nil
	}
	return params, nil
}

// keepGates writes which gates were kept into Options.Gates.
func keepGates(params []*param) {
	for _, p := range params {
		if p.gating != nil {
			copy(p.gating.Open, p.gating.best)
		}
	}
}

// gated reports whether gates are trained. What they are in the end is kept: whether it is better only those can
// tell who know what becomes of the weights.
func (t *trainer) gated() bool {
	return slices.ContainsFunc(t.piece.params, func(q *param) bool { return q.gating != nil })
}

// paceGates spreads the way of logits over so many steps whose rates rise to a peak and fall to zero.
func (t *trainer) paceGates(steps int, peak float64) {
	for _, q := range t.piece.params {
		if q.gating != nil {
			q.gating.step = 2 * q.gating.travel / (peak * float64(steps))
		}
	}
}

// hardened is the share of the steps after which gates are what they are and only the weights learn.
const hardened = 0.75

// look puts parameters with gates into the form in which they will be kept, and returns the loss of the samples held out.
func (t *trainer) look(ctx context.Context) (float64, error) {
	for _, q := range t.piece.params {
		if q.gating != nil {
			if err := q.harden(); err != nil {
				return 0, err
			}
		}
	}
	return t.mean(ctx, t.held)
}

// drawGates sets parameters with gates to what passes in step k of total.
func (t *trainer) drawGates(k, total int) error {
	for _, q := range t.piece.params {
		if q.gating == nil {
			continue
		}
		if !q.gating.hard && float64(k) > hardened*float64(total) {
			if err := q.harden(); err != nil {
				return err
			}
			q.gating.hard = true
		}
		q.draw(k)
	}
	return nil
}
