package measure

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"spc/backend"
	"spc/ir"
	"spc/ir/tensor"
)

// Verdict is what whole programs took, in turns. Of two that take as long the earlier one wins.
type Verdict struct {
	Ms   [][]float64 `json:"ms"`   // medians, by program and place
	Best int         `json:"best"` // of the programs
}

// slack is how much longer than the first a program may take at some place: less is not told from nothing.
const slack = 1.01

// Judge runs programs of graphs in turns at places, and finds which is the fastest in the geometric mean over these. One that takes longer
// than the first at one of them is not, nor is one that is faster by no more than the noise. What there is no time for is left
// out, but for the place of the smallest inputs.
func Judge(ctx context.Context, graphs []*ir.Graph, places []Place, until time.Time, load func(g *ir.Graph) (backend.Program, error)) (v *Verdict, err error) {
	progs := make([]backend.Program, len(graphs))
	out := make([][]*tensor.Tensor, len(graphs))
	defer func() {
		for _, p := range progs {
			if p != nil {
				err = errors.Join(err, p.Close())
			}
		}
	}()
	for i, g := range graphs {
		if progs[i], err = load(g); err != nil {
			return nil, err
		}
		out[i] = make([]*tensor.Tensor, len(g.Outputs))
	}
	v = &Verdict{Ms: make([][]float64, len(graphs))}
	ratios := make([][][]float64, len(graphs)) // to the first of the same round, by program and place
	for at, p := range places {
		if at > 0 && time.Now().After(until) {
			break
		}
		share := time.Now().Add(time.Until(until) / time.Duration(len(places)-at))
		ms := make([][]float64, len(graphs))
		for r := -1; r < leastRounds || r < verdictRounds && time.Now().Before(share); r++ {
			for i, prog := range progs {
				start := time.Now()
				if err := prog.Run(ctx, p.In, out[i]); err != nil {
					return nil, err
				}
				if r >= 0 { // the first round makes the programs ready
					ms[i] = append(ms[i], float64(time.Since(start).Nanoseconds())/1e6)
				}
			}
		}
		for i := range graphs {
			v.Ms[i] = append(v.Ms[i], median(ms[i]))
			r := slices.Clone(ms[i])
			for round := range r {
				r[round] /= ms[0][round]
			}
			ratios[i] = append(ratios[i], r)
		}
	}
	v.choose(ratios)
	return v, nil
}

// verdictRounds is the most rounds of whole programs at a place.
const verdictRounds = 40

// choose sets Best, by the ratios of programs' times to those of the first: a later one has to be faster by what is told from
// nothing.
func (v *Verdict) choose(ratios [][][]float64) {
	least := 1.0
	for i, places := range ratios[1:] {
		mean, upper, slower := 0.0, 0.0, false
		for _, r := range places {
			mean += math.Log(median(r)) / float64(len(places))
			upper += math.Log(quantile(r, 0.75)) / float64(len(places))
			slower = slower || median(r) > slack
		}
		if !slower && upper < 0 && slack*math.Exp(mean) < least {
			least, v.Best = math.Exp(mean), i+1
		}
	}
}
