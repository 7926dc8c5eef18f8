package spc

import (
	"fmt"
	"strings"

	"spc/passes/calib"
	"spc/passes/choose"
	"spc/passes/fit"
)

// fallShort is how far below the sparsity that was asked for that of the prunable weights
// must be to be worth a warning.
const fallShort = 0.01

// Outputs that are further from the dense model's than this are worth a warning: scores of classes
// by their divergence in nats, others by their squared error in relation to the variance. So are points lost of which nobody said how many may be.
const (
	ruinousNats   = 0.25
	ruinousShare  = 0.5
	ruinousPoints = 10
)

// far says how far outputs are, whose divergence is in a unit of calib, and from what on that is much; text is empty where it is not.
func far(divergence float64, unit string) (text string, much float64) {
	text, much = fmt.Sprintf("its classes diverge by %.2g nats from the dense model's", divergence), ruinousNats
	switch unit {
	case calib.Variances:
		text, much = fmt.Sprintf("its squared error is %.2g of its variance", divergence), ruinousShare
	case calib.Either: // of which it is not known which it is
		text, much = fmt.Sprintf("an output diverges by %.2g %s", divergence, unit), ruinousShare
	}
	if !(divergence > much) {
		text = ""
	}
	return text, much
}

// ruins says of outputs how far pruning took them, where that is ruinous.
func ruins(p *fit.Result) (out []string) {
	for _, d := range p.Distances {
		runs := fmt.Sprintf("on %d runs of samples", p.Judged)
		unit, others := calib.Variances, ""
		if d.Classes {
			unit, others = calib.Nats, fmt.Sprintf(", and %.0f%% of the first are others", 100*d.Others)
		}
		text, much := far(d.Divergence, unit)
		switch {
		case d.Broken:
			out = append(out, fmt.Sprintf("pruning ruins output %s: it is not finite %s", d.Output, runs))
		case text != "":
			out = append(out, fmt.Sprintf("pruning ruins output %s: %s %s, of which more than %v is much%s", d.Output, text, runs, much, others))
		}
	}
	if text := ruinsHeld(p); text != "" && len(out) == 0 {
		out = append(out, text)
	}
	return out
}

// ruinsHeld is a line of ruins for samples that were held out: of reconstruction, else of the allocation that was chosen among several. The
// samples that weights were solved for flatter them.
func ruinsHeld(p *fit.Result) string {
	held, classes := p.Rebuilt[1], 0
	if p.Rebuilt[0] == 0 && len(p.Trials) > 1 {
		held = p.Trials[0].Divergence
	}
	for _, d := range p.Distances {
		if d.Classes {
			classes++
		}
	}
	unit := map[int]string{0: calib.Variances, len(p.Distances): calib.Nats}[classes]
	if unit == "" {
		unit = calib.Either
	}
	text, much := far(held, unit)
	if text == "" || len(p.Distances) == 0 {
		return ""
	}
	return fmt.Sprintf("pruning ruins the model: %s on samples held out, of which more than %v is much", text, much)
}

// ruins says how far a budget took a model, where that is ruinous. known is set where it was measured.
func (b *BudgetReport) ruins() (text string, known bool) {
	if b == nil || len(b.Tried) == 0 || b.Tried[len(b.Tried)-1].Drop == nil {
		return "", false
	}
	p := &b.Tried[len(b.Tried)-1]
	if b.Judge != "divergence" {
		if b.MaxDrop == nil && p.Drop.Points > ruinousPoints {
			text = fmt.Sprintf("the budget ruins the model: it loses %.1f points on %d samples, of which more than %d is much", p.Drop.Points, p.Drop.N, ruinousPoints)
		}
		return text, true
	}
	text, much := far(p.Drop.Points/100, p.Unit)
	if text != "" {
		text = fmt.Sprintf("the budget ruins the model: %s on %d runs of samples held out, of which more than %v is much", text, p.Drop.N, much)
	}
	return text, true
}

// Warnings lists what was asked for and was not, or not wholly, done, a line each.
func (r *Report) Warnings() []string {
	var out []string
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	ruined, judged := r.Budget.ruins()
	if ruined != "" {
		warn("%s", ruined)
	}
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
		if p.Dropped != "" {
			warn("pruned by obs, as %s brought the outputs no nearer on samples held out: %s", p.Method, p.Dropped)
		}
		if !judged {
			out = append(out, ruins(p)...)
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
