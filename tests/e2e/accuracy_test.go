package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestEvalReproducesBaselines(t *testing.T) {
	needModels(t)
	spc := filepath.Join(t.TempDir(), "spc")
	if out, err := exec.Command("go", "build", "-o", spc, "spc/cmd/spc").CombinedOutput(); err != nil {
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
