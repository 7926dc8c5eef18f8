package cpu

import (
	"errors"
	"iter"
	"slices"

	"spc/backend"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/plan"
)

// Prediction says how a node is computed, and how long that is predicted to take.
type Prediction struct {
	Node        *ir.Node
	Interpreted bool    // its operator evaluates it, for want of a kernel
	Seconds     float64 // 0 where its sizes are not known before it runs
	Dense       float64 // what Seconds would be were its weights dense
	Unsized     bool    // its sizes are not known
	Untaken     bool    // it is in a branch that is predicted to be faster than another one
}

// Time is what is known of the product of a weight: what it was predicted to take on one core, once, or what its whole node, with
// all steps of a recurrence, was measured to take on so many threads.
type Time struct {
	Seconds float64
	Threads int // 0 where it was predicted
}

// Product is the time of the product of a weight as it is stored, and dense.
type Product struct{ Chosen, Dense Time }

// Rates are what runs are predicted by.
type Rates struct {
	Profile *machine.Profile
	Threads int // of the runs
	// Products tells what is known of the product of a node's weight, by the names of both, of so many columns; it may be nil.
	Products func(node, weight string, columns int) (p Product, known bool)

	cold bool // the weights leave nothing of what runs are given in the caches
}

// Predict tells how the nodes of a graph and its subgraphs are computed for inputs of the types of in, which need no
// elements. Bodies of loops count as computed once, and of the branches of an If the slowest.
func Predict(g *ir.Graph, in []*tensor.Tensor, o backend.Options, r Rates) (out []Prediction, err error) {
	d, err := Device{}.Load(g, o)
	if err != nil {
		return nil, err
	}
	r.cold = g.ConstantBytes() > r.Profile.Next.Bytes
	p := d.(*program)
	defer func() { err = errors.Join(err, p.Close()) }()
	s, err := p.specialise(in)
	if err != nil {
		return nil, err
	}
	at := map[*step]int{}
	for st := range s.nodes() {
		k := Prediction{Node: st.node, Interpreted: st.interpreted(), Unsized: !static(st.node) && len(ir.Subgraphs(st.node.Op)) == 0}
		if static(st.node) && !st.view {
			k.Seconds, k.Dense = r.of(st)
		}
		at[st] = len(out)
		out = append(out, k)
	}
	s.branch(s.main.steps, out, at)
	return out, s.drop()
}

// branch marks what is in the faster branches of the Ifs among steps, and returns the time of the rest.
func (s *spec) branch(steps []*step, out []Prediction, at map[*step]int) (seconds float64) {
	for _, st := range steps {
		i, ok := at[st]
		if !ok {
			continue
		}
		seconds += out[i].Seconds
		slowest, most := -1, 0.0
		for k, b := range st.plan.Blocks {
			t := s.branch(s.blocks[b.Graph].steps, out, at)
			if st.node.Op.Kind() != "If" {
				seconds += t
				continue
			}
			if slowest < 0 || t > most {
				slowest, most = k, t
			}
		}
		if slowest < 0 {
			continue
		}
		seconds += most
		for k, b := range st.plan.Blocks {
			if k != slowest {
				s.untaken(s.blocks[b.Graph].steps, out, at)
			}
		}
	}
	return seconds
}

// untaken marks steps, and those of their subgraphs.
func (s *spec) untaken(steps []*step, out []Prediction, at map[*step]int) {
	for _, st := range steps {
		if i, ok := at[st]; ok {
			out[i].Untaken = true
			for _, b := range st.plan.Blocks {
				s.untaken(s.blocks[b.Graph].steps, out, at)
			}
		}
	}
}

// nodes yields the steps that are nodes. Cascades are none: their members are.
func (s *spec) nodes() iter.Seq[*step] {
	return func(yield func(*step) bool) {
		for _, st := range s.steps {
			if st.plan != nil && !yield(st) {
				return
			}
		}
	}
}

// Placements tells which nodes are evaluated by their operators, or have subgraphs with such.
func (p *program) Placements(in []*tensor.Tensor) (out []backend.Placement, err error) {
	err = ir.Guard(func() error {
		s, err := p.specialise(in)
		if err != nil {
			return err
		}
		cascade, err := p.cascades(in)
		if err != nil {
			return errors.Join(err, s.drop())
		}
		for st := range s.nodes() {
			out = append(out, backend.Placement{Node: st.node, Interpreted: s.interprets(st), Cascade: cascade[st.node.Name], Spared: 2 * st.spared})
		}
		return s.drop()
	})
	return out, err
}

// cascades numbers the cascades of runs from 1 on, by the names of their nodes.
func (p *program) cascades(in []*tensor.Tensor) (map[string]int, error) {
	held, err := p.specialised(in)
	if err != nil {
		return nil, err
	}
	numbers, count := map[string]int{}, 0
	for _, s := range held.Value().parts() {
		for _, st := range s.main.order {
			if len(st.members) == 0 {
				continue
			}
			count++
			for _, m := range st.members {
				numbers[m.node.Name] = count
			}
		}
	}
	return numbers, p.specs.Release(held)
}

// interpreted reports whether the node's operator evaluates it. What has subgraphs leaves the work to their nodes, what
// is bound when shapes are known is taken to have a kernel, and what has no work, or is arithmetic of a few numbers, as of sizes and
// scales, or of none, needs none.
func (st *step) interpreted() bool {
	return !st.fast() && !st.view && st.dynamic == nil && finders[st.node.Op.Kind()] == nil && len(ir.Subgraphs(st.node.Op)) == 0 &&
		!op.Free(st.node.Op) && !(handful(st.node.Inputs) && handful(st.node.Outputs)) && !empty(st.node.Outputs)
}

// empty reports whether no value has an element.
func empty(values []*ir.Value) bool {
	return !slices.ContainsFunc(values, func(v *ir.Value) bool {
		if v == nil {
			return false
		}
		shape, ok := v.Type.Shape()
		return !ok || prod(shape) > 0
	})
}

// handful reports whether values have few elements.
func handful(values []*ir.Value) bool {
	return !slices.ContainsFunc(values, func(v *ir.Value) bool {
		if v == nil {
			return false
		}
		shape, ok := v.Type.Shape()
		return !ok || prod(shape) > 64
	})
}

// interprets reports whether the operator of a step evaluates it, or that of one in its subgraphs.
func (s *spec) interprets(st *step) bool {
	return st.interpreted() || slices.ContainsFunc(st.plan.Blocks, func(b *plan.Block) bool {
		return slices.ContainsFunc(s.blocks[b.Graph].steps, s.interprets)
	})
}

// The seconds that operators take for want of a kernel: for a floating-point operation of a product, for one of another
// operator, for an element that is read or written, and for one of 16 bits besides. Measured on one core of an AMD EPYC
// (family 26 model 2), 2026-11-25, by BenchmarkInterpreted, which prints what operators take and what this predicts: most
// within a factor of five; Einsum takes eight times as long, and what sorts a hundred.
const (
	productFLOP = 0.7e-9
	otherFLOP   = 5e-9
	readElement = 5e-9
	halfElement = 18e-9

	manyFLOPs = 8    // for each element make a product
	start     = 1e-6 // that a node takes besides
)

// of returns the seconds that a node of known sizes takes, and what they would be were its weights dense.
func (r *Rates) of(st *step) (seconds, dense float64) {
	n := st.node
	in := make([]ir.Type, len(n.Inputs))
	elements, halves, far := 0.0, 0.0, 0.0
	count := func(t ir.Type) (bytes float64) {
		shape, _ := t.Shape()
		k, _ := tensor.Elems(shape)
		if elements += float64(k); t.DType == tensor.F16 || t.DType == tensor.BF16 {
			halves += float64(k)
		}
		return float64(k * t.DType.Size())
	}
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		in[i] = v.Type
		if bytes := count(v.Type); r.cold && st.main && slices.Contains(n.Graph().Inputs, v) {
			far += bytes
		}
	}
	for _, t := range n.OutputTypes() {
		if t.Ranked {
			count(t)
		}
	}
	w := n.Op.Work(in, n.OutputTypes())
	if st.interpreted() {
		seconds = start + w.FLOPs*otherFLOP + elements*readElement + halves*halfElement
		if w.FLOPs > manyFLOPs*elements {
			seconds = start + w.FLOPs*productFLOP
		}
		return seconds, seconds
	}
	rate, speedup := r.Profile.Node(n.Op.Kind()), r.Profile.Speedup(r.Threads)
	if seconds, dense, ok := r.weights(n, rate); ok {
		return seconds, dense
	}
	w.Bytes = max(0, w.Bytes-2*float64(st.spared))
	work := w.FLOPs*rate.FLOP + w.Bytes*rate.Byte
	if _, ok := n.Op.(ir.WeightOp); ok && rate.FLOP == 0 {
		// Nobody knows the operator without a product that is predicted: it takes half of the peak.
		work = 2*w.FLOPs + w.Bytes*r.Profile.Peak/r.Profile.Memory
	}
	seconds = rate.Start + (work/r.Profile.Peak+far*max(0, 1/r.Profile.Memory-rate.Byte/r.Profile.Peak))/speedup
	return seconds, seconds
}

// weights returns the seconds that a node with weights takes, with the steps of a recurrence, and what they would be were its weights dense. It is
// false where its products are not known.
func (r *Rates) weights(n *ir.Node, rate machine.NodeCost) (seconds, dense float64, ok bool) {
	o, ok := n.Op.(ir.WeightOp)
	if !ok || r.Products == nil {
		return 0, 0, false
	}
	var chosen, other nodeTime
	some := false
	for _, w := range o.Weights(n) {
		v := n.Input(w.Input)
		if v == nil || !v.IsConst() {
			continue
		}
		p, known := r.Products(n.Name, v.WeightName(), w.Cols.AtOne())
		if !known {
			return 0, 0, false
		}
		some = true
		times := float64(w.Reuse.AtOne())
		chosen.add(p.Chosen, p.Dense, times)
		other.add(p.Dense, p.Dense, times)
		if w.Input == statesInput {
			shape, _ := v.Type.Shape() // [directions, gates*hidden, hidden]
			steps := times * float64(shape[0])
			besides := steps * (rate.Step + rate.State*float64(w.Cols.AtOne()*shape[2]))
			chosen.parts += besides
			other.parts += besides
		}
	}
	return chosen.of(r, rate), other.of(r, rate), some
}

// statesInput is the input of recurrent operators with the weights of their states; no other operator has a weight there.
const statesInput = 2

// Whole is the time of a node that was measured as a whole: with each of its weights in its form, while the others were dense.
type Whole struct {
	dense float64 // by the first weight, as the second one of a recurrent operator tells its steps apart only where they are fixed
	left  float64 // the share of that which is left with all weights in their forms, as if each saved its share of what the others leave
}

// Add adds the time that was measured for a weight, and that with all weights dense, in some unit.
func (t *Whole) Add(chosen, dense float64) {
	if t.dense == 0 {
		t.dense, t.left = dense, 1
	}
	if dense > 0 {
		t.left *= chosen / dense
	}
}

// Time is that of the node with all weights in their forms.
func (t *Whole) Time() float64 { return t.dense * t.left }

// nodeTime is the time of a node: on one core that of its parts, or on threads all of it, where that was measured.
type nodeTime struct {
	parts   float64
	whole   Whole
	threads int // that whole was measured on; 0 where it was not
}

// add adds the time of the product of a weight that is done so many times.
func (t *nodeTime) add(p, dense Time, times float64) {
	if p.Threads > 0 {
		t.threads = p.Threads
		t.whole.Add(p.Seconds, dense.Seconds)
		return
	}
	t.parts += times * p.Seconds
}

// of is the time on threads.
func (t *nodeTime) of(r *Rates, rate machine.NodeCost) float64 {
	speedup := r.Profile.Speedup(r.Threads)
	if t.threads > 0 {
		return t.whole.Time() * r.Profile.Speedup(t.threads) / speedup
	}
	return rate.Start + t.parts/speedup
}
