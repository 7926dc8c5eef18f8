package measure

import (
	"context"
	"errors"
	"math"
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

// slack is how much longer than the first a program may take at some place, and how much faster a later one has to be: less is
// not told from nothing.
const slack = 1.01

// Judge runs programs of graphs in turns at places, and finds which is the fastest in the geometric mean over these. One that takes longer
// than the first at one of them is not, nor is one that is faster than an earlier one by no more than the noise. What there is no
// time for is left out, but for the place of the smallest inputs. Where the weights of any fit a cache of so many bytes the fastest of some runs
// in a turn counts, as by itself that program would find them there.
func Judge(ctx context.Context, graphs []*ir.Graph, places []Place, until time.Time, cache int, load func(g *ir.Graph) (backend.Program, error), step func()) (v *Verdict, err error) {
	progs := make([]backend.Program, len(graphs))
	warm := false
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
		warm = warm || g.ConstantBytes() <= cache
	}
	v = &Verdict{Ms: make([][]float64, len(graphs))}
	var times [][][]float64 // milliseconds, by place, program and round
	var took time.Duration  // by the last round
	for at, p := range places {
		if at > 0 && time.Now().Add((1+leastRounds)*more(took, &places[at-1], &places[at])).After(until) {
			break
		}
		share := time.Now().Add(time.Until(until) / time.Duration(len(places)-at))
		ms := make([][]float64, len(graphs))
		round := func(timed bool) error {
			for i, prog := range progs {
				runs, best := 1, math.Inf(1)
				if timed && warm {
					runs = warmRuns
				}
				for range runs {
					start := time.Now()
					if err := prog.Run(ctx, p.In, out[i]); err != nil {
						return err
					}
					best = min(best, float64(time.Since(start).Nanoseconds())/1e6)
				}
				if timed {
					ms[i] = append(ms[i], best)
				}
			}
			step()
			return nil
		}
		if err := round(false); err != nil { // which makes the programs ready
			return nil, err
		}
		start, most := time.Now(), verdictRounds
		for r := 0; r < leastRounds || r < most && time.Now().Before(share); r++ {
			if at > 0 && r == 1 && time.Now().Add((leastRounds-1)*time.Since(start)).After(until) {
				return v.of(times), nil
			}
			began := time.Now()
			if err := round(true); err != nil {
				return nil, err
			}
			took = time.Since(began)
			if r+1 == most && most < mostVerdictRounds && unclear(ms) {
				most *= 2
			}
		}
		times = append(times, ms)
		for i := range graphs {
			v.Ms[i] = append(v.Ms[i], median(ms[i]))
		}
	}
	return v.of(times), nil
}

// of is the verdict by the times of all by place, program and round.
func (v *Verdict) of(times [][][]float64) *Verdict {
	v.Best = fastest(times)
	return v
}

// verdictRounds is the most rounds of whole programs at a place, where it is clear by then whether any is faster than the first; else they
// are doubled up to mostVerdictRounds.
const verdictRounds, mostVerdictRounds = 40, 320

// unclear reports whether a program is faster than the first one, by its times by program and round, but by less than the noise.
func unclear(times [][]float64) bool {
	for _, ms := range times[1:] {
		r := ratios(ms, times[0])
		if mid := math.Log(median(r)); mid < 0 && mid+uncertainty(r) >= 0 {
			return true
		}
	}
	return false
}

// fastest finds a program by the times of all by place, program and round.
func fastest(times [][][]float64) (best int) {
	for i := 1; i < len(times[0]); i++ {
		slower := false
		for _, ms := range times {
			slower = slower || median(ratios(ms[i], ms[0])) > slack
		}
		if !slower && beats(times, i, best) {
			best = i
		}
	}
	return best
}

// beats reports whether a program is faster than another in the geometric mean over the places, by more than the noise and,
// unless the other is the first one, by more than is told from nothing.
func beats(times [][][]float64, a, b int) bool {
	mean, variance := 0.0, 0.0
	for _, ms := range times {
		r := ratios(ms[a], ms[b])
		mean += math.Log(median(r)) / float64(len(times))
		variance += math.Pow(uncertainty(r)/float64(len(times)), 2)
	}
	most := 0.0
	if b > 0 {
		most = -math.Log(slack)
	}
	return mean+math.Sqrt(variance) < most
}
