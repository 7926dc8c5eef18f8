package spc_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/backend/cpu"
	_ "spc/internal/debug/all"
	"spc/ir"
	"spc/lower/chain"
	"spc/passes"
	"spc/tests/archs"
)

// Without a step of lowering that can be left out, models compute the same.
func TestOptionalStepsOfLoweringChangeNoResult(t *testing.T) {
	for _, a := range archs.Tiny {
		for _, step := range cpu.Steps {
			if !step.Optional {
				continue
			}
			m := tiny(t, a.Name, spc.CompileOptions{Sparsity: 0.5})
			if err := m.SetLowering(spc.LoweringOptions{Disable: []string{step.Name}}); err != nil {
				t.Fatal(err)
			}
			in := randomInputs(m, 3, 4)
			got, err := m.Run(t.Context(), in)
			if err != nil {
				t.Fatalf("%s without %s: %v", a.Name, step.Name, err)
			}
			want, err := m.Interpret(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			for name, w := range want {
				for i, v := range w.F32s() {
					if d := got[name].F32s()[i] - v; d > 1e-3 || d < -1e-3 {
						t.Fatalf("%s without %s: element %d of %s is %v, want %v", a.Name, step.Name, i, name, got[name].F32s()[i], v)
					}
				}
			}
			m.Close()
		}
	}
}

// A compile and a run write what each step of lowering makes, as text that parses; the plan behind it says
// where values are.
func TestLoweringIsDumped(t *testing.T) {
	dir := t.TempDir()
	m := tiny(t, archs.Tiny[0].Name, spc.CompileOptions{})
	if err := m.SetLowering(spc.LoweringOptions{Disable: []string{"cascades"}, DumpDir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(t.Context(), randomInputs(m, 1, 2)); err != nil {
		t.Fatal(err)
	}
	m.Close()
	var names []string
	for _, step := range cpu.Steps {
		names = append(names, step.Name)
	}
	checkDumps(t, dir, 0, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "cascades" }))

	dir = t.TempDir()
	built, err := archs.Tiny[0].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = spc.Compile(t.Context(), spc.CompileOptions{Bytes: built.Bytes(), Dims: dims(t, built.Bytes(), 2), DumpDir: dir}); err != nil {
		t.Fatal(err)
	}
	m.Close()
	checkDumps(t, dir, len(passes.Pipeline), append(passes.Names(), names...))
}

// checkDumps checks the files of a folder; those from number first on are of lowering.
func checkDumps(t *testing.T, dir string, first int, names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range entries {
		_, name, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".txt"), "-")
		got = append(got, name)
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ir.Parse(string(b), chain.Registry); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
		if placed := strings.Contains(string(b), "an arena of "); i >= first && placed != (name == "arena") {
			t.Errorf("%s says where values are: %v", e.Name(), placed)
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("dumps of %q, want %q", got, names)
	}
}

// dims gives every symbol of a model's inputs a size.
func dims(t *testing.T, onnx []byte, size int) map[string]int {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: onnx})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	sizes := map[string]int{}
	for _, p := range m.Inputs() {
		for _, d := range p.Dims {
			if !d.Known() {
				sizes[d.Symbol()] = size
			}
		}
	}
	return sizes
}

func TestStepsOfLoweringThatMustRun(t *testing.T) {
	m := tiny(t, archs.Tiny[0].Name, spc.CompileOptions{})
	defer m.Close()
	for name, want := range map[string]string{
		"fold": "cannot run without the lowering step fold",
		"bake": `no lowering step is named "bake"; those that can be left out are batch,`,
	} {
		if err := m.SetLowering(spc.LoweringOptions{Disable: []string{name}}); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, want %q", name, err, want)
		}
	}
}
