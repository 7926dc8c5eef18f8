package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spc"
)

// What a fit writes is read again, and leads to the same profile.
func TestFitAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures")
	}
	dir := t.TempDir()
	o := FitOptions{Name: "here", Budget: time.Second, Seed: 4, Profiles: dir, Save: dir}
	m, err := Fit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "here.json")
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := spc.FindProfile(path)
	if err != nil || p.Name != "here" || p.CPU != cpuName() {
		t.Errorf("%+v, %v", p, err)
	}
	measured := filepath.Join(dir, "fit-here.json")
	d, err := ReadMeasured(measured)
	if err != nil || len(d.Products) != m.Problems || d.Seed != o.Seed {
		t.Fatalf("%v, %d products, want %d", err, len(d.Products), m.Problems)
	}
	o.From = measured
	if _, err := Fit(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(path); string(again) != string(first) {
		t.Errorf("%s\nand from what was measured\n%s", first, again)
	}
	for name, text := range map[string]string{"damaged": `{"roof": 1}`, "other": `{"seed": 3}`, "empty": ""} {
		o.From = filepath.Join(dir, name)
		if err := os.WriteFile(o.From, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Fit(t.Context(), o); err == nil || !strings.Contains(err.Error(), o.From) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.Products[0].Text = "of others"
	b, _ := json.Marshal(d)
	o.From = filepath.Join(dir, "changed")
	if err := os.WriteFile(o.From, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Fit(t.Context(), o); err == nil {
		t.Error("other products than are drawn are taken")
	}
}
