package data

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
)

// Ranking counts how often the true class of an image ranks first, or among the
// first five, by a model's scores. Scores of the classes in Skip are ignored, and
// the classes above move down by one: with Skip 0, label 0 is score 1.
type Ranking struct {
	Skip       []int
	N          int
	Top1, Top5 int
}

// Add counts one image. NaN ranks above every number, so that a model whose
// scores are NaN is right about nothing.
func (r *Ranking) Add(scores []float32, label int) error {
	if len(r.Skip) > 0 {
		all := scores
		scores = make([]float32, 0, len(all))
		for i, s := range all {
			if !slices.Contains(r.Skip, i) {
				scores = append(scores, s)
			}
		}
		if want := len(all) - len(r.Skip); len(scores) != want {
			return fmt.Errorf("skipped classes %v of %d, want different ones of them: %w", r.Skip, len(all), ir.ErrInvalid)
		}
	}
	if label < 0 || label >= len(scores) {
		return fmt.Errorf("label %d, want one of %d classes: %w", label, len(scores), ir.ErrInvalid)
	}
	r.N++
	truth := scores[label]
	if truth != truth {
		return nil
	}
	above := 0
	for i, s := range scores {
		if s > truth || s != s || s == truth && i < label {
			above++
		}
	}
	if above < 1 {
		r.Top1++
	}
	if above < 5 {
		r.Top5++
	}
	return nil
}

// Perplexity is exp of the mean negative log-likelihood of tokens.
type Perplexity struct {
	N   int // scored tokens
	sum float64
}

// Add scores tokens 1 to t-1 of a sequence: the probability of token p is the
// softmax of row p-1 of scores, which are logits of shape [t,v].
func (m *Perplexity) Add(scores []float32, tokens []int64) error {
	if len(tokens) < 2 || len(scores)%len(tokens) != 0 || len(scores) == 0 {
		return fmt.Errorf("%d scores for %d tokens, want some for each of two or more: %w", len(scores), len(tokens), ir.ErrInvalid)
	}
	v := len(scores) / len(tokens)
	for p := 1; p < len(tokens); p++ {
		id := tokens[p]
		if id < 0 || id >= int64(v) {
			return fmt.Errorf("token %d at position %d, the model scores %d: %w", id, p, v, ir.ErrInvalid)
		}
		row := scores[(p-1)*v : p*v]
		top := float64(slices.Max(row))
		sum := 0.0
		for _, s := range row {
			sum += math.Exp(float64(s) - top)
		}
		m.sum += math.Log(sum) + top - float64(row[id])
		m.N++
	}
	return nil
}

// Value returns the perplexity of what was added.
func (m *Perplexity) Value() float64 { return math.Exp(m.sum / float64(m.N)) }
