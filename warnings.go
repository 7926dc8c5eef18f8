package spc

import (
	"fmt"
	"strings"

	"spc/passes/choose"
	"spc/passes/fit"
)

// fallShort is how far below the sparsity that was asked for that of the prunable weights
// must be to be worth a warning.
const fallShort = 0.01

// Outputs that are further from the dense model's than this are worth a warning: scores of classes
// by their divergence in nats, others by their squared error in relation to the variance.
const (
	ruinousNats  = 0.25
	ruinousShare = 0.5
)

// ruins says of outputs how far pruning took them, where that is ruinous.
func ruins(p *fit.Result) (out []string) {
	for _, d := range p.Distances {
		runs := fmt.Sprintf("on %d runs of samples", p.Judged)
		switch {
		case d.Broken:
			out = append(out, fmt.Sprintf("pruning ruins output %s: it is not finite %s", d.Output, runs))
		case d.Classes && d.Divergence > ruinousNats:
			out = append(out, fmt.Sprintf("pruning ruins output %s: its classes diverge by %.2g nats from the dense model's %s, of which more than %v is much, and %.0f%% of the first are others", d.Output, d.Divergence, runs, ruinousNats, 100*d.Others))
		case !d.Classes && d.Divergence > ruinousShare:
			out = append(out, fmt.Sprintf("pruning ruins output %s: its squared error is %.2g of its variance %s, of which more than %v is much", d.Output, d.Divergence, runs, ruinousShare))
		}
	}
	return out
}

// Warnings lists what was asked for and was not, or not wholly, done, a line each.
func (r *Report) Warnings() []string {
	var out []string
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p := r.Prune; p != nil {
		if got := p.Prunable.Sparsity(); p.Asks && p.Aim-got > fallShort {
			warn("%.1f%% of the prunable weights are zero, %.1f%% were asked for", 100*got, 100*p.Aim)
		}
		var unseen []string
		for _, l := range p.Layers {
			if l.Unseen != "" {
				unseen = append(unseen, fmt.Sprintf("%s (%s)", l.Node, l.Unseen))
			}
		}
		if len(unseen) > 0 {
			warn("pruned by magnitude, as samples do not show what they see: %s", some(unseen))
		}
		for _, text := range ruins(p) {
			warn("%s", text)
		}
		var blocks []string
		for _, b := range p.Blocks {
			if b.Steps > 0 {
				blocks = nil
				break
			}
			if b.Note != "" {
				blocks = append(blocks, fmt.Sprintf("%s to %s: %s", b.First, b.Last, b.Note))
			}
		}
		if len(blocks) > 0 {
			warn("nothing was reconstructed: %s", some(blocks))
		}
	}
	if t := r.Tuned; t != nil && t.Why != "" {
		are := "as predicted"
		if t.Measured+t.Known > 0 {
			are = "as they were tuned before"
		}
		warn("nothing was measured, formats are %s: %s", are, t.Why)
	}
	if t := r.Tuned; t != nil && t.Unkept != "" {
		warn("what was measured is not kept for other models: %s", t.Unkept)
	}
	if text := r.slow(); text != "" {
		warn("%s", text)
	}
	if q := r.Quant; q != nil && q.Products == 0 {
		var kept []string
		for _, k := range q.Kept {
			kept = append(kept, fmt.Sprintf("%s (%s)", k.Node, k.Why))
		}
		if len(kept) == 0 {
			kept = []string{"it has no products with constant weights"}
		}
		warn("nothing of the model was quantised: %s", some(kept))
	}
	if f := r.Options.Format; f != "auto" {
		var others []string
		for _, l := range r.Layers {
			if l.Format != f {
				others = append(others, fmt.Sprintf("%s (%s)", l.Name, l.Reason))
			}
		}
		if len(others) > 0 && f != choose.Dense {
			warn("not stored as %s: %s", f, some(others))
		}
	}
	return out
}

// some joins the first of some texts and says how many more there are.
func some(texts []string) string {
	const (
		most    = 4
		letters = 240
	)
	long := 0
	for i, s := range texts {
		if long += len(s); i > 0 && (i >= most || long > letters) {
			return fmt.Sprintf("%s and %d more", strings.Join(texts[:i], ", "), len(texts)-i)
		}
	}
	return strings.Join(texts, ", ")
}
