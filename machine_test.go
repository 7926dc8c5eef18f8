package spc_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/backend/cpu"
	"spc/backend/format/ukernel"
)

// A profile is found again, as this machine's and as a file; what is damaged, of another version, or of another machine is
// refused.
func TestFindProfile(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	path, err := spc.NativeProfile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spc.FindProfile(spc.Native); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), "devices --measure") {
		t.Errorf("without a profile: %v", err)
	}
	native := *spc.DefaultProfile()
	native.Name, native.CPU, native.ISA, native.Peak = spc.Native, cpu.Model(), ukernel.Best().ISA, 12345
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := spc.WriteProfile(path, &native); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{spc.Native, path} {
		if p, err := spc.FindProfile(name); err != nil || p.Peak != native.Peak || p.Name != spc.Native {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range spc.Profiles() {
		if p, err := spc.FindProfile(name); err != nil || p.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, old, new string
		want           error
	}{
		{"cut.json", string(text[100:]), "", spc.ErrCorrupt},
		{"version.json", `"version": 1`, `"version": 99`, spc.ErrVersion},
		{"slow.json", `"peak": `, `"peak": -`, spc.ErrCorrupt},
		{"none.json", string(text), "{}", spc.ErrVersion},
	} {
		file := filepath.Join(cache, x.name)
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), x.old, x.new, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := spc.FindProfile(file); !errors.Is(err, x.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
	other := native
	other.CPU = "another"
	if err := spc.WriteProfile(path, &other); err != nil {
		t.Fatal(err)
	}
	if _, err := spc.FindProfile(spc.Native); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("of another machine: %v", err)
	}
	if _, err := spc.FindProfile(path); err != nil {
		t.Errorf("as a file: %v", err)
	}
}

func TestMeasureProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("measuring takes seconds, and under the race detector minutes")
	}
	last := 0
	m, err := spc.MeasureProfile(t.Context(), spc.ProfileOptions{Budget: time.Second, Progress: func(_ string, done, total int) {
		if done < last || done > total {
			t.Errorf("%d of %d steps after %d", done, total, last)
		}
		last = done
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Profile.Check(); err != nil || m.Profile.Name != spc.Native || last == 0 {
		t.Errorf("%+v, %v", m.Profile, err)
	}
	if _, err := spc.MeasureProfile(t.Context(), spc.ProfileOptions{Budget: -1}); !errors.Is(err, spc.ErrInvalid) {
		t.Errorf("a budget below 0: %v", err)
	}
}

// Formats are chosen by the profile that is given, which the file keeps for whoever tunes it; a GPU has none.
func TestCompileByAProfile(t *testing.T) {
	slow := *spc.DefaultProfile() // at everything but dense products
	slow.Name, slow.Rates = "slow", map[spc.Family]spc.Rate{}
	for f, r := range spc.DefaultProfile().Rates {
		if f != "dense" {
			r.Panel, r.Vec = r.Panel/100, r.Vec/100
		}
		slow.Rates[f] = r
	}
	o := spc.CompileOptions{Bytes: openModel(t), Prune: spc.PruneOptions{Sparsity: 0.9, KeepNone: true}}
	formats := map[*spc.Profile]int{}
	for _, p := range []*spc.Profile{nil, &slow} {
		o.Profile = p
		m, err := spc.Compile(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m.spx")
		if err := m.Save(path); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		m, err = spc.Open(path, spc.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range m.Explain().Layers {
			if l.Format != "dense" {
				formats[p]++
			}
		}
		a, _ := json.Marshal(p)
		if b, _ := json.Marshal(m.Explain().Options.Profile); string(a) != string(b) {
			t.Errorf("the file has the profile %s, want %s", b, a)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if formats[nil] == 0 || formats[&slow] != 0 {
		t.Errorf("%d sparse weights by default, %d where sparse kernels are slow", formats[nil], formats[&slow])
	}
	o.Target = spc.CUDA
	if _, err := spc.Compile(t.Context(), o); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), "Profile slow") {
		t.Errorf("a profile for a GPU: %v", err)
	}
}
