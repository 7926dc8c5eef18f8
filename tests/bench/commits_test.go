package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program is one that takes a time for every model, or fails.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spc")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func says(ms float64) string { return fmt.Sprintf(`echo '{"ms":{"min":%g,"p50":%g}}'`, ms, 1.5*ms) }

func TestCommitsAreComparedInTurns(t *testing.T) {
	models := t.TempDir()
	small(t, models, "resnet", "resnet50")
	rows := []Row{{Name: "row", Model: "resnet50", Dims: batch1, Pattern: "uniform", Sparsity: 0.5}, {Name: "start", Model: "resnet50", Start: FromProcess}}
	b := &Bench{Program: program(t, says(100)), Models: models, Scratch: t.TempDir(), Threads: []int{1, 2}}
	got, err := b.RunCommits(t.Context(), program(t, says(120)), rows)
	if err != nil || len(got) != 2 || got[0].Old != 120 || got[0].New != 100 || got[1].Threads != 2 || got[0].Ratio.Median != 1.2 || got[0].Ratio.Max != 1.2 {
		t.Errorf("%+v, %v", got, err)
	}
	var out bytes.Buffer
	if err := PrintCommits(&out, got); err != nil || !strings.Contains(out.String(), "over 2 rows: 1.2000") {
		t.Errorf("%v, %s", err, out.String())
	}
	for text, want := range map[string]string{"echo no model >&2; exit 1": "no model", "echo '{}'": "tells no times", "echo '{'": "JSON"} {
		if got, err = b.RunCommits(t.Context(), program(t, text), rows[:1]); err != nil || !strings.Contains(got[0].Error, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if PrintCommits(&out, got) == nil {
			t.Errorf("%s: a measurement that failed is no error", text)
		}
	}
}
