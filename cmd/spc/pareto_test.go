package main

import (
	"testing"

	"spc"
)

func TestBeatenPoints(t *testing.T) {
	point := func(speedup, lost float64) spc.BudgetPoint {
		return spc.BudgetPoint{Speedup: speedup, Drop: &spc.Drop{Points: lost}}
	}
	front := []spc.BudgetPoint{{Speedup: 1}, point(1.2, 1), point(1.1, 2), point(1.5, 3), point(1.5, 4), point(0.9, -1), point(1.2, 1)}
	for i, want := range []bool{false, false, true, false, true, false, false} {
		if beaten(front, i) != want {
			t.Errorf("point %d: %v, want %v", i, !want, want)
		}
	}
}
