package bench

import (
	"context"
	"math"
	"slices"
	"time"
)

// Side is one of the contestants: it runs n times and returns the time of each run
// in milliseconds.
type Side func(ctx context.Context, n int) ([]float64, error)

// Turns says how sides take turns.
type Turns struct {
	Rounds int           // at most; each side has a turn in each
	Least  int           // rounds that are done however long they take
	Runs   int           // in a turn; 0 fills Turn
	Turn   time.Duration // how long a turn lasts, but for runs that take longer
	Budget time.Duration // no round beyond Least starts after it; 0 is without end
}

// Defaults keep the whole table at one thread under half an hour.
var Defaults = Turns{Rounds: 11, Least: 3, Turn: 150 * time.Millisecond, Budget: 20 * time.Second}

// Times are what a side took.
type Times struct {
	Turns []float64 // the median of each turn, by round
	Best  float64   // the fastest run of all
}

// add adds the turns of another sitting.
func (t *Times) add(x Times) {
	if len(t.Turns) == 0 || x.Best < t.Best {
		t.Best = x.Best
	}
	t.Turns = append(t.Turns, x.Turns...)
}

// cold is how long a run takes, in milliseconds, to which it matters nothing that
// caches still hold what the others left: filling them takes a few.
const cold = 1000

// Play lets the sides take turns. The first run of a turn is not counted: caches
// then still hold what the others left. A run of more than a second counts.
func (t Turns) Play(ctx context.Context, sides ...Side) ([]Times, error) {
	runs, warm := make([]int, len(sides)), make([]int, len(sides))
	out := make([]Times, len(sides))
	for i, s := range sides {
		if _, err := s(ctx, 1); err != nil { // which may bind kernels
			return nil, err
		}
		warm[i] = 1
		if runs[i] = t.Runs; runs[i] > 0 {
			continue
		}
		ms, err := s(ctx, 1)
		if err != nil {
			return nil, err
		}
		runs[i] = int(min(max(1, t.Turn.Seconds()*1e3/ms[0]), 1000))
		if ms[0] > cold {
			warm[i] = 0
		}
	}
	start := time.Now()
	for round := range t.Rounds {
		if round >= t.Least && t.Budget > 0 && time.Since(start) > t.Budget {
			break
		}
		for i, s := range sides {
			ms, err := s(ctx, runs[i]+warm[i])
			if err != nil {
				return nil, err
			}
			if best := slices.Min(ms[warm[i]:]); round == 0 || best < out[i].Best {
				out[i].Best = best
			}
			out[i].Turns = append(out[i].Turns, Median(ms[warm[i]:]))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Spread describes a sample.
type Spread struct {
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"` // quartiles
	Q3     float64 `json:"q3"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Describe returns the spread of a sample of at least one.
func Describe(v []float64) Spread {
	s := slices.Sorted(slices.Values(v))
	return Spread{quantile(s, 0.5), quantile(s, 0.25), quantile(s, 0.75), s[0], s[len(s)-1]}
}

// Median returns the median of at least one value.
func Median(v []float64) float64 { return quantile(slices.Sorted(slices.Values(v)), 0.5) }

// quantile interpolates between the two closest ranks of sorted values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	lo := int(at)
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}

// Ratios returns a[i]/b[i].
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// GeoMean returns the geometric mean of at least one positive value.
func GeoMean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(v)))
}
