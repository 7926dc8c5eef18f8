package conformance

// Tally counts results by their status.
type Tally struct{ Passed, Failed, Excluded int }

// Sum is the number of results.
func (t Tally) Sum() int { return t.Passed + t.Failed + t.Excluded }

func (t *Tally) add(s Status) {
	switch s {
	case Passed:
		t.Passed++
	case Failed:
		t.Failed++
	case Excluded:
		t.Excluded++
	}
}

// Counts are the tallies of a run.
type Counts struct {
	Groups map[string]Tally
	Total  Tally
}

// Count counts results by group.
func Count(results []Result) Counts {
	c := Counts{Groups: map[string]Tally{}}
	for _, r := range results {
		g := c.Groups[r.Group]
		g.add(r.Status)
		c.Groups[r.Group] = g
		c.Total.add(r.Status)
	}
	return c
}
