package bench

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"spc"
)

func TestRegretOf(t *testing.T) {
	l := &spc.Layer{Format: "ell", Config: "1x1", N: 9, Sparsity: 0.8}
	measured := []spc.Candidate{
		{Format: "ell", Config: "1x1", MeasuredUs: 6, PredictedUs: 3}, {Format: "csr", MeasuredUs: 4, PredictedUs: 5}, {Format: "dense", MeasuredUs: 8}, {Format: "nm", PredictedUs: 1},
	}
	r, ok := regretOf(l, measured)
	if want := (Regret{Sparsity: 0.8, Columns: 9, Chosen: "ell 1x1", Best: "csr", Forms: 3, Us: 6, BestUs: 4, Predicted: 0.5}); !ok || r != want || r.Ratio() != 1.5 {
		t.Errorf("%+v, want %+v", r, want)
	}
	if _, ok := regretOf(l, measured[1:]); ok {
		t.Error("a chosen format that was not measured counts")
	}
	if _, ok := regretOf(l, measured[:1]); ok {
		t.Error("where there is nothing to choose there is regret")
	}
}

// The same seed draws the same problems, of all kinds, and they are measured and printed.
func TestRegret(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	kinds := map[string]bool{}
	a, b := rand.New(rand.NewPCG(seed, 22)), rand.New(rand.NewPCG(seed, 22))
	for i := range 100 {
		p, q := newProblem(a, i), newProblem(b, i)
		if p.text != q.text || p.sparsity != q.sparsity || !(p.sparsity >= 0.3 && p.sparsity <= 0.95) {
			t.Errorf("%s at %v, and %s at %v", p.text, p.sparsity, q.text, q.sparsity)
		}
		kinds[strings.Fields(p.text)[0]] = true
	}
	if len(kinds) != 4 {
		t.Errorf("problems of kinds %v", kinds)
	}
	bench := Bench{Threads: []int{1}}
	for _, tuned := range []bool{false, true} {
		list, err := bench.RunRegret(t.Context(), 8, seed, tuned)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) < 5 {
			t.Errorf("%d weights", len(list))
		}
		for _, r := range list {
			if r.Ratio() < 1 || r.Forms < 2 || r.Problem == "" || r.Pattern != "uniform" || r.Tuned != tuned || !(r.BestUs > 0) {
				t.Errorf("%+v", r)
			}
		}
		var out bytes.Buffer
		(&Results{Regret: list}).Print(&out)
		if !strings.Contains(out.String(), "geometric mean ") || strings.Contains(out.String(), "tuned, by a second measurement") != tuned {
			t.Errorf("printed as\n%s", out.String())
		}
	}
}
