package spc

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/budget"
	"spc/passes/fit"
	"spc/passes/prune"
	"spc/passes/quant"
)

// form is what a layer may become: an entry of the database, its weights and activations in floats, or in 8-bit integers.
type form struct {
	entry int
	ints  bool // where the budget chooses types, see BudgetOptions.Mixed
	shown int  // the variant that shows what it takes
	small bool // the weight is stored in the fewest bytes, not for the least time
}

// maxLoss stands for losses that are no numbers, or more.
const maxLoss = math.MaxFloat32

// slot is a layer that a budget chooses for, with its forms, of which the first is the layer as it is.
type slot struct {
	weight string
	layer  *fit.BaseLayer // nil for one that is not pruned, and may have another type alone
	forms  []form
	ints   bool // it may be in integers
	// What its 8-bit integers alone, without zeros, make the outputs diverge, as it was measured, and the mean of that and of what they add to others.
	alone, rounding float64
}

// variant is a model with the same choice for all layers, which shows what these take.
type variant struct {
	choice *fit.Choice // nil for none
	ints   bool
	part   int // of integers: 0 for all layers that may be, or those with places of one parity, 1 or 2
}

// has reports whether the layer with place at among those that may be in integers is.
func (v *variant) has(at int) bool { return v.ints && (v.part == 0 || at%2 == v.part-1) }

// arrange settles what each layer may become, and the variants that show what that takes. Of a budget that chooses types they are first those in floats.
func (s *sizing) arrange(list []fit.Choice) {
	s.variants = []variant{{}}
	shown := map[fit.Choice]int{}
	for i := range list {
		if !s.b.Mixed || slices.Contains(s.b.Patterns, list[i].Pattern) {
			shown[list[i]] = len(s.variants)
			s.variants = append(s.variants, variant{choice: &list[i]})
		}
	}
	integers := map[fit.Choice]int{}
	s.allInts = len(s.variants)
	if s.b.Mixed {
		s.variants = append(s.variants, variant{ints: true}, variant{ints: true, part: 1}, variant{ints: true, part: 2})
		for i := range list {
			if slices.Contains(s.intPatterns, list[i].Pattern) {
				integers[list[i]] = len(s.variants)
				s.variants = append(s.variants, variant{choice: &list[i], ints: true})
			}
		}
	}
	may := map[string]bool{}
	if s.rounder != nil {
		for _, w := range s.rounder.Weights() {
			may[w] = true
		}
		for _, l := range s.dense.report.Layers {
			if ofIntegers(l) { // as the model comes
				delete(may, l.Weight)
			}
		}
	}
	s.slots = nil
	for k := range s.base.Layers {
		l := &s.base.Layers[k]
		t := slot{weight: l.Weight, layer: l, ints: may[l.Weight], forms: []form{{}}}
		delete(may, l.Weight)
		t.forms = append(t.forms, formsOf(l, shown, false)...)
		if t.ints {
			t.forms = append(t.forms, form{ints: true, shown: s.allInts})
			t.forms = append(t.forms, formsOf(l, integers, true)...)
		}
		s.slots = append(s.slots, t)
	}
	if s.rounder != nil {
		for _, w := range s.rounder.Weights() {
			if may[w] {
				s.slots = append(s.slots, slot{weight: w, ints: true, forms: []form{{}, {ints: true, shown: s.allInts}}})
			}
		}
	}
}

// formsOf are the forms of the entries of a layer with zeros, of choices that variants show.
func formsOf(l *fit.BaseLayer, shown map[fit.Choice]int, ints bool) (list []form) {
	for e := 1; e < len(l.Entries); e++ {
		if at, ok := shown[l.Entries[e].Choice]; ok {
			list = append(list, form{entry: e, ints: ints, shown: at})
		}
	}
	return list
}

// entries are those of the database that a combination has.
func (s *sizing) entries(pick []int) []int {
	out := make([]int, len(s.base.Layers))
	for k := range out {
		out[k] = s.slots[k].forms[pick[k]].entry
	}
	return out
}

// integerWeights are the weights that a combination has in integers.
func (s *sizing) integerWeights(pick []int) (list []string) {
	for k, i := range pick {
		if s.slots[k].forms[i].ints {
			list = append(list, s.slots[k].weight)
		}
	}
	return list
}

// smallWeights are the weights that a combination has in the fewest bytes.
func (s *sizing) smallWeights(pick []int) (list []string) {
	for k, i := range pick {
		if s.slots[k].forms[i].small {
			list = append(list, s.slots[k].weight)
		}
	}
	return list
}

// round has a copy of the graph multiply by weights in integers; it is nil for none.
func (s *sizing) round(weights []string) func(g *ir.Graph) error {
	if len(weights) == 0 {
		return nil
	}
	return func(g *ir.Graph) error { return s.rounder.Round(g, weights) }
}

// divergence is that of a combination, as the database has it.
func (s *sizing) divergence(ctx context.Context, pick []int) (float64, error) {
	return s.base.Changed(ctx, s.entries(pick), s.round(s.integerWeights(pick)))
}

// types are the options of a model that has weights in integers, where the budget chooses them.
func (s *sizing) types(integers []string) QuantizeOptions {
	q := s.o.Quantize
	if !s.b.Mixed {
		return q
	}
	if len(integers) == 0 {
		return QuantizeOptions{}
	}
	q.KeepNone = true // what is sensitive the budget knows
	q.only = map[string]bool{}
	for _, w := range integers {
		q.only[w] = true
	}
	return q
}

// keptFloat are globs with which a model of some types has the same ones without the budget.
func (s *sizing) keptFloat(m *Model) []string {
	list := slices.Clone(s.o.Quantize.KeepFloat)
	if q := m.report.Quant; s.b.Mixed && q != nil {
		for _, k := range q.Kept {
			if g := prune.Literal(k.Weight).String(); k.Why == quant.LeftOut && !slices.Contains(list, g) {
				list = append(list, g)
			}
		}
	}
	return list
}

// observeTypes sees what products of integers would read, or has the file of the database tell it.
func (s *sizing) observeTypes(ctx context.Context, g *ir.Graph, q *quant.Options) (err error) {
	if !s.b.Mixed {
		return nil
	}
	name := fmt.Sprintf("read %+v", s.o.Quantize)
	text := s.base.Note(name)
	if s.rounder, err = quant.NewRounder(ctx, g, *q, text); err != nil || text != "" {
		return err
	}
	if text, err = s.rounder.Text(); err != nil {
		return err
	}
	s.base.SetNote(name, text)
	return nil
}

// roundings measures what 8-bit integers in each layer alone do to the outputs, or has the file tell it.
func (s *sizing) roundings(ctx context.Context) error {
	name := fmt.Sprintf("rounding %+v", s.o.Quantize)
	known := map[string]float64{}
	if text := s.base.Note(name); text != "" {
		if err := json.Unmarshal([]byte(text), &known); err != nil {
			return fmt.Errorf("%s: what rounding costs cannot be read: %w", s.cache, ErrCorrupt)
		}
	}
	pick, none, began := make([]int, len(s.slots)), 0.0, false
	for k := range s.slots {
		t := &s.slots[k]
		if !t.ints {
			continue
		}
		d, ok := known[t.weight]
		if !ok {
			s.step("rounding", k, len(s.slots))
			var err error
			if !began {
				if none, err = s.divergence(ctx, pick); err != nil {
					return err
				}
				began = true
			}
			pick[k] = s.firstInts(k)
			d, err = s.divergence(ctx, pick)
			if pick[k] = 0; err != nil {
				return err
			}
			d = min(max(0, d-none), maxLoss)
			known[t.weight] = d
		}
		t.alone, t.rounding = d, d
	}
	b, err := json.Marshal(known)
	if err != nil {
		return err
	}
	s.base.SetNote(name, string(b))
	return nil
}

// firstInts is the form of a slot that is in integers and has no more zeros than the layer.
func (s *sizing) firstInts(k int) int {
	return slices.IndexFunc(s.slots[k].forms, func(f form) bool { return f.ints })
}

// roundingsAmong sets what integers are worth in each layer to the mean of what they do alone, and of what is gained where the layer alone computes in floats among
// layers as a combination has them, as fit.Base.Among does for zeros.
func (s *sizing) roundingsAmong(ctx context.Context, pick []int) error {
	if s.integerWeights(pick) == nil {
		return nil
	}
	all, err := s.divergence(ctx, pick)
	if err != nil {
		return err
	}
	for k := range s.slots {
		s.step("rounding together", k, len(s.slots))
		t := &s.slots[k]
		f := t.forms[pick[k]]
		if t.rounding = t.alone; !f.ints {
			continue
		}
		others := slices.DeleteFunc(s.integerWeights(pick), func(w string) bool { return w == t.weight })
		d, err := s.base.Changed(ctx, s.entries(pick), s.round(others))
		if err != nil {
			return err
		}
		if added := all - d; added > 0 && !math.IsInf(added, 0) {
			t.rounding = (t.alone + added) / 2
		} else if added <= 0 {
			t.rounding = t.alone / 2
		}
	}
	return nil
}

// allIntegers is the combination of which all that may be is in integers, without zeros, where the budget chooses types; else its pick is nil. Layers
// that pass integers to each other take less than each of them by itself says, most of all where there is nothing else.
func (s *sizing) allIntegers(ctx context.Context) (c combination, err error) {
	if !s.b.Mixed {
		return c, nil
	}
	pick := make([]int, len(s.slots))
	for k := range s.slots {
		if s.slots[k].ints {
			pick[k] = s.firstInts(k)
		}
	}
	if slices.Max(pick) == 0 {
		return c, nil
	}
	c.pick = pick
	c.divergence, err = s.divergence(ctx, pick)
	return c, err
}

// loss is what a form costs by the effects as they are known.
func (t *slot) loss(f form) float64 {
	loss := 0.0
	if t.layer != nil && t.layer.Entries[f.entry].Error > 0 {
		loss = t.layer.Effect * t.layer.Entries[f.entry].Error
	}
	if f.ints {
		loss += t.rounding
	}
	return loss
}

// choicesOf are the choices of the programme, by what is known of losses and by what forms use.
func (s *sizing) choicesOf(use []func(k, i int) float64) [][]budget.Choice {
	items := make([][]budget.Choice, len(s.slots))
	for k := range s.slots {
		t := &s.slots[k]
		for i, f := range t.forms {
			c := budget.Choice{Loss: maxLoss}
			if loss := t.loss(f); loss < maxLoss { // not NaN
				c.Loss = loss
			}
			for _, of := range use {
				c.Uses = append(c.Uses, of(k, i))
			}
			items[k] = append(items[k], c)
		}
	}
	return items
}

// variantOptions are the options of a variant.
func (s *sizing) variantOptions(v *variant) CompileOptions {
	o := s.plain()
	o.Open = s.o.Open
	if s.b.Mixed {
		var ints []string
		at := 0
		for _, t := range s.slots {
			if t.ints {
				if v.has(at) {
					ints = append(ints, t.weight)
				}
				at++
			}
		}
		o.Quantize = s.types(ints)
	}
	integers := o.Quantize.Type == tensor.I8
	if integers {
		o.Calibration.Inputs, o.Calibration.Cache = few(o.Calibration.Inputs), ""
	} else {
		o.Calibration = Calibration{}
	}
	if v.choice != nil || len(s.o.Prune.Layers) > 0 {
		o.Prune.Layers, o.Prune.Permute, o.Prune.Method, o.Prune.Allocate, o.Prune.Uncorrected = s.o.Prune.Layers, PermuteNone, Magnitude, PerLayer, integers
	}
	if v.choice != nil {
		o.Prune.Pattern, o.Prune.Sparsity = v.choice.Pattern, v.choice.Sparsity
	}
	return o
}
