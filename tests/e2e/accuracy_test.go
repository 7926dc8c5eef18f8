package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestEvalReproducesBaselines(t *testing.T) {
	needModels(t)
	spc := filepath.Join(t.TempDir(), "spc")
	if out, err := exec.Command("go", "build", "-o", spc, "../../cmd/spc").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, b := range Baselines {
		if !b.Quick {
			continue // make accuracy measures them all
		}
		t.Run(b.Model, func(t *testing.T) {
			e, err := b.Measure(context.Background(), spc)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %.4f of %d in %.1f s", e.Metric, e.Value, e.N, e.Seconds)
		})
	}
}

func TestDocumentHoldsTheResults(t *testing.T) {
	r, err := ReadPruned("results/pruned.json")
	if err != nil || len(r.Cells) == 0 {
		t.Fatalf("%d cells, %v", len(r.Cells), err)
	}
	b, err := os.ReadFile("../../docs/results/accuracy.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "<!-- "+Mark+" -->\n"+r.Markdown()+"<!-- /"+Mark+" -->") {
		t.Error("docs/results/accuracy.md differs from results/pruned.json; go run ./tests/e2e/accuracy -pruned -run '^$' -save tests/e2e/results/pruned.json -table docs/results/accuracy.md writes it")
	}
}

// Those of former flags have a star in the table. Each command still names all of what made its cell.
func TestResultsNameTheCommandsThatMakeThem(t *testing.T) {
	r, err := ReadPruned("results/pruned.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Cells {
		m := pruned(x.Model)
		if !m.Former(&x) {
			continue
		}
		want := m.flags(x.Cell, x.Reconstruct, Tabled)
		prune, seen, _ := strings.Cut(want, pruneFlags)
		if got := x.Command; !strings.HasPrefix(got, command(prune)) || !strings.HasSuffix(got, strings.ReplaceAll(seen, "@", "")) {
			t.Errorf("%s %s: %s, want what %s was at some time", x.Model, x.Cell, got, command(want))
		}
		if s := m.text(&x); !strings.Contains(s, "*") {
			t.Errorf("%s %s is of former flags (%s) and says %s", x.Model, x.Cell, x.Command, s)
		}
	}
}

func TestResultsKeepOtherCells(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r, err := ReadPruned(path)
	if err != nil {
		t.Fatal(err)
	}
	bar := 59.0
	vit := PrunedResult{Model: "vit-cifar10", Cell: "50", Value: 58.5, Bar: &bar}
	vit.Command = command(pruned(vit.Model).flags(vit.Cell, false, Tabled))
	r.Put(vit)
	r.Put(PrunedResult{Model: "vit-cifar10", Cell: "50", Reconstruct: true, Value: 59.5})
	vit.Value = 57.5
	r.Put(vit)
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	if r, err = ReadPruned(path); err != nil || len(r.Cells) != 2 || r.Cells[0].Value != 57.5 || r.Cells[1].Value != 59.5 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, want := range []string{"| vit-cifar10 | obs | | 57.5 (bar 59) |", "| | and reconstruct | | 59.5* |"} {
		if !strings.Contains(r.Markdown(), want) {
			t.Errorf("no %q in\n%s", want, r.Markdown())
		}
	}
}

func TestCellsOfIntegersAreComparedWithFloatingPoint(t *testing.T) {
	m := pruned("resnet56-cifar10")
	for cell, want := range map[string]string{
		"int8":    "--quantize int8 --calib",
		"50+int8": "--pattern uniform --sparsity 0.50 --keep ends --prune obs --quantize int8 --calib",
		"50":      "--pattern uniform --sparsity 0.50 --keep ends --prune obs --calib",
	} {
		if got := m.flags(cell, false, Tabled); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s ...", cell, got, want)
		}
	}
	r := &PrunedResults{Cells: []PrunedResult{{Model: m.Model, Cell: Whole, Value: 83.1}, {Model: m.Model, Cell: "50", Value: 82.5}}}
	if f := m.flags(Whole, false, Tabled); f != "" {
		t.Errorf("the dense model is compiled with %s", f)
	}
	for _, c := range []struct {
		cell  string
		value float64
		want  string
	}{
		{"int8", 82.1, "reached"}, {"int8", 82.0, Missed}, {"50+int8", 81.5, "reached"}, {"50+int8", 81.4, Missed},
		{"2:4+int8", 10, ""}, {"50", 10, ""},
	} {
		x := PrunedResult{Model: m.Model, Cell: c.cell, Value: c.value}
		if r.Judge(&x); m.Verdict(&x) != c.want {
			t.Errorf("%s %v: %q, want %q", c.cell, c.value, m.Verdict(&x), c.want)
		}
	}
}
