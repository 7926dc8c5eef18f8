package rate

import (
	"testing"

	"spc/backend/format/ikernel"
	"spc/backend/format/ukernel"
)

func TestEveryKernelHasARate(t *testing.T) {
	for _, rows := range ukernel.Blocks {
		if _, ok := Blocks[rows]; !ok {
			t.Errorf("blocks of %d rows have none", rows)
		}
	}
	for _, columns := range ukernel.Runs {
		if _, ok := Runs[columns]; !ok {
			t.Errorf("blocks of %d columns have none", columns)
		}
	}
	if len(Blocks) != len(ukernel.Blocks) || len(Runs) != len(ukernel.Runs) {
		t.Errorf("%d and %d rates, want %d and %d", len(Blocks), len(Runs), len(ukernel.Blocks), len(ukernel.Runs))
	}
}

func TestEverySetOfIntegerKernelsHasRates(t *testing.T) {
	for _, k := range ikernel.Available() {
		r, ok := Integers[k.ISA]
		if !ok {
			t.Errorf("%s has none", k.ISA)
		}
		for _, n := range []int{0, 1, 16, 49, 64, 3136} {
			if r.Dense.Efficiency(64, 256, n) < 0 || n > 0 && (r.Dense.Efficiency(64, 256, n) == 0 || r.Groups.Efficiency(13, 256, n) == 0) {
				t.Errorf("%s has no rate for %d columns", k.ISA, n)
			}
		}
	}
}

func TestEfficiencyIsAShareThatGrowsWithTheSteps(t *testing.T) {
	rates := map[int]Rate{0: Dense, -1: Generated}
	for rows, r := range Blocks {
		rates[rows] = r
	}
	for columns, r := range Runs {
		rates[-columns] = r
	}
	for rows, r := range rates {
		for _, n := range []int{0, 1, 2, 4, 32, 1000} {
			for _, k := range []int{1, 384, 100_000} {
				last := 0.0
				for steps := 0; steps <= min(k, k/20+64); steps += 1 + k/100 {
					e := r.Efficiency(float64(steps), k, n)
					if !(e > 0 && e <= 1) || e < last {
						t.Fatalf("blocks of %d rows, %d of %d columns, N = %d: %v after %v", rows, steps, k, n, e, last)
					}
					last = e
				}
			}
		}
	}
}
