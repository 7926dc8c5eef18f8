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
}

// Product is what the product of a weight takes on one core, once, in seconds: as it is stored, and dense.
type Product struct{ Seconds, Dense float64 }

// Products tells what is known of the product of a node's weight, by the names of both, of so many columns.
type Products func(node, weight string, columns int) (p Product, known bool)

// Predict tells how the nodes of a graph and its subgraphs are computed for inputs of the types of in, which need no
// elements, on a machine as a profile describes it. Bodies of loops count as
// computed once.
func Predict(g *ir.Graph, in []*tensor.Tensor, o backend.Options, on *machine.Profile, products Products) (out []Prediction, err error) {
	d, err := Device{}.Load(g, o)
	if err != nil {
		return nil, err
	}
	p := d.(*program)
	defer func() { err = errors.Join(err, p.Close()) }()
	s, err := p.specialise(in)
	if err != nil {
		return nil, err
	}
	f := forecast{on, products, on.Speedup(o.Threads)}
	for st := range s.nodes() {
		k := Prediction{Node: st.node, Interpreted: st.interpreted(), Unsized: !static(st.node)}
		if !k.Unsized && !st.view {
			k.Seconds, k.Dense = f.of(st)
		}
		out = append(out, k)
	}
	return out, s.drop()
}

// forecast is what predictions are made with.
type forecast struct {
	on       *machine.Profile
	products Products
	speedup  float64 // of the threads
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
			out = append(out, backend.Placement{Node: st.node, Interpreted: s.interprets(st), Cascade: cascade[st.node.Name]})
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
func (f *forecast) of(st *step) (seconds, dense float64) {
	n := st.node
	in := make([]ir.Type, len(n.Inputs))
	elements, halves := 0.0, 0.0
	count := func(t ir.Type) {
		shape, _ := t.Shape()
		k, _ := tensor.Elems(shape)
		if elements += float64(k); t.DType == tensor.F16 || t.DType == tensor.BF16 {
			halves += float64(k)
		}
	}
	for i, v := range n.Inputs {
		if v != nil {
			in[i] = v.Type
			count(v.Type)
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
	rate := f.on.Node(n.Op.Kind())
	if seconds, dense, ok := f.weights(n, rate); ok {
		return rate.Start + seconds/f.speedup, rate.Start + dense/f.speedup
	}
	seconds = rate.Start + (w.FLOPs*rate.FLOP+w.Bytes*rate.Byte)/f.on.Peak/f.speedup
	return seconds, seconds
}

// weights returns the seconds that the products of a node's weights take on one core, with the steps of a recurrence. It is false where they
// are not known.
func (f *forecast) weights(n *ir.Node, rate machine.Node) (seconds, dense float64, ok bool) {
	o, ok := n.Op.(ir.WeightOp)
	if !ok || f.products == nil {
		return 0, 0, false
	}
	some := false
	for _, w := range o.Weights(n) {
		v := n.Input(w.Input)
		if v == nil || !v.IsConst() {
			continue
		}
		p, known := f.products(n.Name, v.Name, w.Cols.AtOne())
		if !known {
			return 0, 0, false
		}
		some = true
		times := float64(w.Reuse.AtOne())
		seconds, dense = seconds+times*p.Seconds, dense+times*p.Dense
		if w.Reuse == ir.Size(1) {
			continue
		}
		shape, _ := v.Type.Shape()
		_, hidden := w.View.Dims(shape)
		besides := times * (rate.Step + rate.State*float64(w.Cols.AtOne()*hidden))
		seconds, dense = seconds+besides, dense+besides
	}
	return seconds, dense, some
}
