package machine

import (
	"testing"

	"spc/backend/format/ukernel"
)

func TestEveryKernelHasARate(t *testing.T) {
	for _, name := range Names() {
		p, err := Known(name)
		if err != nil {
			t.Fatal(err)
		}
		want := []Family{Dense, Dense8, Groups8}
		for _, rows := range ukernel.Blocks {
			want = append(want, OfRows(rows))
		}
		for _, columns := range ukernel.Runs {
			f, _ := OfColumns(columns)
			want = append(want, f)
		}
		for _, f := range want {
			if p.Rates[f].Panel == 0 || kinds[f].blockK == 0 {
				t.Errorf("%s: %q has none", name, f)
			}
		}
		if p.Name != name {
			t.Errorf("%s is called %s", name, p.Name)
		}
	}
}

func TestEfficiencyIsAShareThatGrowsWithTheSteps(t *testing.T) {
	for f := range kinds {
		r := Default.Of(f)
		for _, n := range []int{1, 2, 4, 32, 1000} {
			for _, k := range []int{1, 384, 100_000} {
				last := 0.0
				for steps := 0; steps <= min(k, k/20+64); steps += 1 + k/100 {
					e := r.Efficiency(float64(steps), k, n)
					if !(e > 0 && (e <= 1 || f == Dense8 || f == Groups8)) || e < last {
						t.Fatalf("%s, %d of %d columns, N = %d: %v after %v", f, steps, k, n, e, last)
					}
					last = e
				}
			}
		}
	}
}
