package e2e

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of many experiments the bound is below the true drop in about one of ten.
func TestBoundsOfDropsCoverThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	const n, experiments = 1000, 2000
	for _, c := range [][2]float64{{0.03, 0.02}, {0.02, 0.02}, {0.05, 0.01}} {
		covered := 0
		for range experiments {
			dense, sparse := make([]float64, n), make([]float64, n)
			for i := range dense {
				switch x := rng.Float64(); {
				case x < c[0]:
					dense[i] = 100
				case x < c[0]+c[1]:
					sparse[i] = 100
				}
			}
			drop, bound, err := compare(dense, sparse)
			if err != nil || bound < drop {
				t.Fatalf("%v, at most %v, %v", drop, bound, err)
			}
			if bound >= 100*(c[0]-c[1]) {
				covered++
			}
		}
		if share := float64(covered) / experiments; share < 0.87 || share > 0.94 {
			t.Errorf("%v: %.3f are covered, want 0.9", c, share)
		}
	}
	if _, _, err := compare([]float64{1}, nil); err == nil {
		t.Error("samples of different models are compared")
	}
}

func TestPromisesAreJudgedByWhatIsMeasured(t *testing.T) {
	p := Promise{Speedup: 1.25, FLOPs: 0.45, Bytes: 900, Drop: 0.5, Bound: 1.2}
	for budget, want := range map[string]string{
		"--speedup 1.2": Kept, "--speedup 1.28": Kept, "--speedup 1.4": "broken: --speedup", "--flops 0.5": Kept, "--flops 0.4": "broken: --flops",
		"--max-drop 1": "broken: --max-drop", "--max-drop 2 --speedup 1.1": Kept, "--max-drop 1 --speedup 2": "broken: --max-drop, --speedup",
		"--latency 3ms": Kept, "--latency 1ms": "broken: --latency", "--size 1000": Kept, "--size 800": "broken: --size", "--max-drop 2 --quantize int8": Kept,
	} {
		p.judge(budget, 2e-3)
		if p.Verdict != want {
			t.Errorf("%s: %s, want %s", budget, p.Verdict, want)
		}
	}
	p.Bound = math.NaN()
	if p.judge("--max-drop 1", 0); p.Verdict == Kept {
		t.Error("a bound that is no number is within a budget")
	}
}

func TestDocumentHoldsThePromises(t *testing.T) {
	r, err := ReadPromises("results/budgets.json")
	if err != nil || len(r.Promises) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	b, err := os.ReadFile("../../docs/results/budgets.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "<!-- "+PromiseMark+" -->\n"+r.Markdown()+"<!-- /"+PromiseMark+" -->") {
		t.Error("docs/results/budgets.md differs from results/budgets.json; go run ./tests/e2e/budgets -run '^$' -save tests/e2e/results/budgets.json -table docs/results/budgets.md writes it")
	}
}

func TestPromisesReplaceThoseOfTheSameBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r, err := ReadPromises(path)
	if err != nil || len(r.Promises) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	kept := PromiseResult{Promise: Promise{Model: "m", Budget: "--speedup 2", Verdict: Kept, Speedup: 2.04, FLOPs: 0.3, Bytes: 1500000}, CPU: "c", Commit: "d", Date: "e"}
	broken := kept
	broken.Verdict, broken.Budget = Broken+": --flops", "--flops 0.2"
	r.Put(broken)
	r.Put(kept)
	broken.Verdict, broken.Why = Cannot, "no"
	r.Put(broken)
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	if r, err = ReadPromises(path); err != nil {
		t.Fatal(err)
	}
	text := r.Markdown()
	for _, want := range []string{"of 2 budgets 1 kept, 1 that cannot be met, 0 broken", "| m | `--speedup 2` | kept | 2.04 | 30% | 1.50 MB |", "| m | `--flops 0.2` | cannot: no | | |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s, want %s in it", text, want)
		}
	}
}
