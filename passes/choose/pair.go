package choose

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// PairFormat is the name of the format that keeps two forms of a weight, for few columns and for many.
const PairFormat = "pair"

// gain is how much faster two forms must be than the best alone, in the geometric mean over the points.
const gain = 1.1

// Pair is two forms that take turns: the first for products of less columns than the first number of At, the second from there
// on, the first again from the second number on, and so forth.
type Pair struct {
	First, Second Form
	At            []int // ascending
}

// second reports whether products of n columns take the second form.
func (p *Pair) second(n int) bool {
	turns := 0
	for turns < len(p.At) && n >= p.At[turns] {
		turns++
	}
	return turns%2 == 1
}

// For is the form for products of n columns.
func (p *Pair) For(n int) Form {
	if p.second(n) {
		return p.Second
	}
	return p.First
}

// String is the configuration of the format, such as csr<24,ell:4x1 or ell:1x1<7,dense<30,ell:1x1.
func (p Pair) String() string {
	text := ""
	for _, n := range p.At {
		text += fmt.Sprintf("%v<%d,", p.For(n-1), n)
	}
	return text + p.For(math.MaxInt).String()
}

// mostTurns bounds the numbers of a Pair, which are fewer than the points that formats are chosen for.
const mostTurns = 64

// ParsePair is the inverse of Pair.String.
func ParsePair(config string) (p Pair, err error) {
	turns := strings.SplitN(config, ",", mostTurns+2)
	forms := []*Form{&p.First, &p.Second}
	for i, turn := range turns {
		text, below, more := strings.Cut(turn, "<")
		if i < 2 {
			forms[i].Format, forms[i].Config, _ = strings.Cut(text, ":")
		}
		if more {
			n, _ := strconv.Atoi(below)
			p.At = append(p.At, n)
		}
	}
	ascending := slices.IsSorted(p.At) && len(slices.Compact(slices.Clone(p.At))) == len(p.At)
	if len(p.At) == 0 || len(p.At) > mostTurns || p.At[0] < 1 || !ascending || p.First == p.Second || p.String() != config {
		return Pair{}, fmt.Errorf("configuration %q: want FORMAT:CONFIG<COLUMNS,FORMAT:CONFIG with two forms that take turns", config)
	}
	return p, nil
}

// pairing looks for the two best forms of a weight.
type pairing struct {
	*chooser
	uses    []use
	columns []int         // of the products, ascending
	times   [][][]float64 // by candidate, use and point
	forms   []Candidate   // those that all uses have, of all uses together
	dense   int           // among these
}

// pair returns the two forms that are the fastest over the points, nil where they do not pay: in place of best alone they take
// a tenth less time. Each form but dense is faster than dense by the margin where it is used, and at no point are they
// slower by more than that.
func (c *chooser) pair(uses []use, all *Layer, best *Candidate) *Pair {
	if find(c.formats, PairFormat) == nil || len(uses[0].Points) < 2 || c.Format != PairFormat && (c.Format != Auto || c.OneFormat) {
		return nil
	}
	p := &pairing{chooser: c, uses: uses, forms: all.Candidates}
	if all.dense().MeasuredUs > 0 {
		p.forms = slices.DeleteFunc(slices.Clone(p.forms), func(a Candidate) bool { return a.MeasuredUs == 0 })
	}
	p.dense = slices.IndexFunc(p.forms, is(Dense))
	columns := map[int]bool{}
	for _, u := range uses {
		for _, at := range u.Points {
			columns[at.N] = true
		}
	}
	p.columns = slices.Sorted(maps.Keys(columns))
	for i := range p.forms {
		var times [][]float64
		for _, u := range uses {
			times = append(times, u.Candidates[p.forms[i].in(u.Candidates)].PointsUs)
		}
		p.times = append(p.times, times)
	}
	least, first, second := math.Inf(1), 0, 0
	var turns []int
	for i := range p.forms {
		for j := range p.forms[:i] {
			if IsGrid(all.dense().Config) && !IsGrid(p.forms[i].Config) && !IsGrid(p.forms[j].Config) {
				continue
			}
			a, b, at := p.turns(i, j)
			if t, ok := p.time(a, b, at); ok && len(at) > 0 && t < least {
				least, first, second, turns = t, a, b, at
			}
		}
	}
	if len(turns) == 0 || c.Format == Auto && best.time() <= gain*least {
		return nil
	}
	out := &Pair{First: p.forms[first].form(), Second: p.forms[second].form()}
	for _, k := range turns {
		out.At = append(out.At, p.crossing(first, second, p.columns[k-1], p.columns[k]))
		first, second = second, first
	}
	return out
}

// turns says which of two forms comes first, and at which of the columns they take turns, as takes has it. Where they never do,
// they are made to once where pairs are asked for.
func (p *pairing) turns(i, j int) (first, second int, at []int) {
	forms, now := [2]int{i, j}, 0
	for k, n := range p.columns {
		var t [2]float64
		for u := range p.uses {
			for m, point := range p.uses[u].Points {
				if point.N == n {
					t[0] += p.times[i][u][m]
					t[1] += p.times[j][u][m]
				}
			}
		}
		side := 0
		if p.takes(i, j, t[0], t[1]) {
			side = 1
		}
		switch {
		case k == 0:
			first, second = forms[side], forms[1-side]
		case side != now:
			at = append(at, k)
		}
		now = side
	}
	if half := len(p.columns) / 2; at == nil && half > 0 && p.Format == PairFormat {
		at = []int{half}
	}
	return first, second, at
}

// takes reports whether of two forms that take such times the second is used: the faster one, and dense where the other is not
// faster by the margin.
func (p *pairing) takes(first, second int, a, b float64) bool {
	switch p.dense {
	case first:
		return margin*b < a
	case second:
		return margin*a >= b
	}
	return b < a
}

// time is the mean time of two forms; ok is false where one of them does not stand beside dense.
func (p *pairing) time(first, second int, turns []int) (mean float64, ok bool) {
	total := make([]float64, len(p.uses[0].Points))
	dense := make([]float64, len(total))
	forms := [2]int{first, second}
	var logs [2]float64 // of how many times as fast as dense each form is
	for u := range p.uses {
		for i, at := range p.uses[u].Points {
			k, side := slices.Index(p.columns, at.N), 0
			for _, turn := range turns {
				if k >= turn {
					side = 1 - side
				}
			}
			t, d := p.times[forms[side]][u][i], p.times[p.dense][u][i]
			total[i] += t
			dense[i] += d
			logs[side] += math.Log(d/t) - math.Log(margin)
		}
	}
	if p.Format != Auto {
		return geometric(total), true
	}
	for i, t := range total {
		if t > margin*dense[i] {
			return 0, false
		}
	}
	for side, form := range forms {
		if form != p.dense && logs[side] < 0 {
			return 0, false
		}
	}
	return geometric(total), true
}

// crossing is the number of columns from which on the second of two forms is used: more than lo, where the first is, up to hi.
// Of a convolution, whose time does not follow from its columns alone, it is hi.
func (p *pairing) crossing(first, second, lo, hi int) int {
	if slices.ContainsFunc(p.uses, func(u use) bool { return u.Slide != nil }) {
		return hi
	}
	for lo+1 < hi {
		n := (lo + hi) / 2
		if p.takes(first, second, p.at(first, n), p.at(second, n)) {
			hi = n
		} else {
			lo = n
		}
	}
	return hi
}

// at is the time of a form for n columns.
func (p *pairing) at(form, n int) float64 {
	u, f := p.uses[0], p.forms[form]
	for _, cost := range find(p.formats, f.Format).Costs(u.matrix, n) {
		if cost.Config == f.Config {
			predicted, measured, _ := p.predict(cost, u, f.form(), n)
			if measured.Us > 0 {
				return measured.Us
			}
			return predicted
		}
	}
	return math.Inf(1)
}

// candidate is a pair as a candidate of a layer, which has its forms.
func (p *Pair) candidate(l *Layer) Candidate {
	find := func(f Form) *Candidate {
		return &l.Candidates[slices.IndexFunc(l.Candidates, func(c Candidate) bool { return c.form() == f })]
	}
	first, second := find(p.First), find(p.Second)
	c := *find(p.For(l.N))
	c.Format, c.Config, c.Kernel = PairFormat, p.String(), first.Kernel+", "+second.Kernel
	if first.DType != second.DType {
		c.DType = first.DType + ", " + second.DType
	}
	c.StoredBytes, c.PointsUs = first.StoredBytes+second.StoredBytes, slices.Clone(first.PointsUs)
	c.ScaledPoints = nil
	for i, at := range l.Points {
		of := first
		if p.second(at.N) {
			of = second
		}
		if c.PointsUs[i] = of.PointsUs[i]; slices.Contains(of.ScaledPoints, i) {
			c.ScaledPoints = append(c.ScaledPoints, i)
		}
	}
	mean := geometric(c.PointsUs)
	c.PredictedUs, c.MeasuredUs, c.Noise = mean, 0, max(first.Noise, second.Noise)
	if first.MeasuredUs > 0 && second.MeasuredUs > 0 { // which the points are then of
		c.PredictedUs, c.MeasuredUs = min(first.PredictedUs, second.PredictedUs), mean
	} else {
		c.ScaledPoints = nil
	}
	return c
}
