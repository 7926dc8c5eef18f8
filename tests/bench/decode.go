package bench

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Decode is how long a compiled decoder takes for a step of one token, beside the first decoder that it was measured with.
type Decode struct {
	File    string  `json:"file"`
	Threads int     `json:"threads"`
	Median  float64 `json:"median_ms"` // of the medians of rounds
	Best    float64 `json:"best_ms"`   // the fastest step of all rounds
	// Ratio is that of the first decoder's median to this one's, by round.
	Ratio     Spread  `json:"ratio"`
	BestRatio float64 `json:"best_ratio"`
}

// RunDecode measures compiled decoders in b.Turns.Rounds rounds, in each of which every one has a process that decodes as spc bench
// --decode does; rounds begin with one after the other.
func (b *Bench) RunDecode(ctx context.Context, decode string, files []string) ([]Decode, error) {
	var out []Decode
	for k, threads := range b.Threads {
		best, medians := make([]float64, len(files)), make([][]float64, len(files))
		for i := range best {
			best[i] = math.Inf(1)
		}
		for round := range b.Turns.Rounds {
			for turn := range files {
				i := (turn + round) % len(files)
				b.progress(files[i], (k*b.Turns.Rounds+round)*len(files)+turn, len(b.Threads)*b.Turns.Rounds*len(files))
				told, err := spcBench(ctx, b.Program, files[i], "--decode", decode, "--threads", fmt.Sprint(threads))
				if err != nil {
					return out, err
				}
				best[i] = min(best[i], told.MS.Min)
				medians[i] = append(medians[i], told.MS.Median)
			}
		}
		for i, file := range files {
			out = append(out, Decode{file, threads, Median(medians[i]), best[i], Describe(Ratios(medians[0], medians[i])), best[0] / best[i]})
		}
	}
	return out, nil
}

func (r *Results) printDecode(w io.Writer) {
	fmt.Fprintln(w, "\nMilliseconds of a step of one token: medians of rounds, and the fastest step. Ratios are the first file's time to each one's,\nby round with their quartiles and range, and of the fastest steps.")
	fmt.Fprintln(w)
	t := newTable(w, "file", "threads", "ms", "best ms", "ratio", "quartiles", "range", "best")
	right(t, 2, 3, 4, 5, 6, 7, 8)
	for _, x := range r.Decode {
		t.AppendRow(table.Row{x.File, x.Threads, fmt.Sprintf("%.4g", x.Median), fmt.Sprintf("%.4g", x.Best), times(x.Ratio.Median),
			times(x.Ratio.Q1) + "-" + times(x.Ratio.Q3), times(x.Ratio.Min) + "-" + times(x.Ratio.Max), times(x.BestRatio)})
	}
	t.Render()
}
