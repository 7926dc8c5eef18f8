package data

import (
	"fmt"
	"strconv"
	"strings"
)

// Samples chooses some of a set: from First, up to Last if that is not negative,
// every Step-th.
type Samples struct{ First, Last, Step int }

// ParseSamples reads all, even, odd or A:B:STEP, in which each part may be left
// out as in Python: B is not included and may lie beyond the end.
func ParseSamples(s string) (Samples, error) {
	switch s {
	case "all":
		return Samples{0, -1, 1}, nil
	case "even":
		return Samples{0, -1, 2}, nil
	case "odd":
		return Samples{1, -1, 2}, nil
	}
	out := Samples{0, -1, 1}
	parts := strings.Split(s, ":")
	ok := len(parts) == 2 || len(parts) == 3
	for i, p := range parts {
		if !ok || p == "" {
			continue
		}
		n, err := strconv.Atoi(p)
		ok = err == nil && n >= 0 && (i < 2 || n > 0)
		switch i {
		case 0:
			out.First = n
		case 1:
			out.Last = n
		case 2:
			out.Step = n
		}
	}
	if !ok {
		return Samples{}, fmt.Errorf("samples %q, want all, even, odd or A:B:STEP", s)
	}
	return out, nil
}

// Of returns the chosen indices among n samples.
func (s Samples) Of(n int) []int {
	last := n
	if s.Last >= 0 {
		last = min(n, s.Last)
	}
	var index []int
	for i := s.First; i < last; i += s.Step {
		index = append(index, i)
		if i > last-s.Step { // the next sum might overflow
			break
		}
	}
	return index
}
