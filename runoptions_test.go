package spc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spc"
	"spc/backend"
	"spc/backend/cpu"
	_ "spc/internal/debug/all"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
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
			m := tiny(t, a.Name, spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5}, Run: spc.RunOptions{Disable: []string{step.Name}}})
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
	m := tiny(t, archs.Tiny[0].Name, spc.CompileOptions{Run: spc.RunOptions{Disable: []string{"cascades"}, DumpDir: dir}})
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
	if m, err = spc.Compile(t.Context(), spc.CompileOptions{Bytes: built.Bytes(), Dims: dims(t, built.Bytes(), 2), Debug: spc.DebugOptions{DumpDir: dir}}); err != nil {
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
	model, err := archs.Tiny[0].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"fold": "cannot run without the lowering step fold",
		"bake": `no lowering step is named "bake"; those that can be left out are batch,`,
	} {
		if _, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: model.Bytes(), Run: spc.RunOptions{Disable: []string{name}}}); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, want %q", name, err, want)
		}
	}
}

// The bytes that runs leave are bounded, and shapes that are named are ready before the first run.
func TestMemoryOfRunsIsBounded(t *testing.T) {
	steps := 0
	count := lowerings(&steps)
	m := tiny(t, "bert", spc.CompileOptions{Run: spc.RunOptions{
		Threads: 1, Device: count, Specialised: 2, Memory: 1, Shapes: []map[string][]int{shapesOf(t, "bert", 2), shapesOf(t, "bert", 3)},
	}})
	defer m.Close()
	if steps != 2 {
		t.Fatalf("lowered %d times when it was compiled, want 2", steps)
	}
	for i, c := range []struct{ size, want int }{{2, 2}, {3, 2}, {4, 3}, {3, 3}, {2, 4}} {
		if _, err := m.Run(t.Context(), randomInputs(m, 1, c.size)); err != nil {
			t.Fatal(err)
		}
		if steps != c.want {
			t.Errorf("run %d, of size %d: lowered %d times, want %d", i, c.size, steps, c.want)
		}
	}
}

// lowered is a CPU that counts the shapes that programs are prepared for, or run on for the first time.
type lowered struct {
	cpu.Device
	count *int
}

func lowerings(count *int) spc.Device { return lowered{count: count} }

func (d lowered) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	o.Lowering.Dump = func(index int, _ string, _ int, _ []lower.Unit) error {
		if index == 0 {
			*d.count++
		}
		return nil
	}
	return d.Device.Load(g, o)
}

// shapesOf are the shapes of a small architecture's inputs.
func shapesOf(t *testing.T, name string, size int) map[string][]int {
	m := tiny(t, name, spc.CompileOptions{})
	defer m.Close()
	shapes := map[string][]int{}
	for name, x := range randomInputs(m, 1, size) {
		shapes[name] = x.Shape()
	}
	return shapes
}

// slow is a device whose runs wait until they are let go.
type slow struct {
	cpu.Device
	begun chan struct{}
	let   chan struct{}
}

type slowly struct {
	backend.Program
	*slow
}

func (d *slow) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	p, err := d.Device.Load(g, o)
	return slowly{p, d}, err
}

func (p slowly) Trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	p.begun <- struct{}{}
	<-p.let
	return p.Program.Trace(ctx, in, out, f)
}

func TestRunsAtOnceAreBounded(t *testing.T) {
	d := &slow{begun: make(chan struct{}, 8), let: make(chan struct{})}
	m := tiny(t, "resnet", spc.CompileOptions{Run: spc.RunOptions{Threads: 1, Device: d, Concurrent: 2}})
	defer m.Close()
	in := randomInputs(m, 1, 1)
	var runs sync.WaitGroup
	for range 4 {
		runs.Go(func() {
			if _, err := m.Run(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
	<-d.begun
	<-d.begun
	// Who waits for a turn can be cancelled.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := m.Run(ctx, in); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v of a run that was cancelled while it waited", err)
	}
	if n := len(d.begun); n != 0 {
		t.Errorf("%d more runs have begun, want none", n)
	}
	close(d.let)
	runs.Wait()
	if n := len(d.begun); n != 2 {
		t.Errorf("%d runs came after the first two, want 2", n)
	}
}

func TestRunOptionsThatCannotBeAreErrors(t *testing.T) {
	model, err := archs.Tiny[0].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]spc.RunOptions{
		"RunOptions.Threads -1: want from 0 to 4096": {Threads: -1},
		"Concurrent -2: want 0 or more":              {Concurrent: -2},
		"Specialised -2: want 0 or more":             {Specialised: -2},
		"RunOptions.Memory -3: want 0 or more":       {Memory: -3},
		"Shapes: no shape for input ":                {Shapes: []map[string][]int{{}}},
		"Shapes: no input is named \"none\"":         {Shapes: []map[string][]int{with(shapesOf(t, archs.Tiny[0].Name, 2), "none", 1)}},
		"Shapes: input ":                             {Shapes: []map[string][]int{with(shapesOf(t, archs.Tiny[0].Name, 2), "", -1)}},
	} {
		if _, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: model.Bytes(), Run: o}); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// with sets the shape of an input, or of all where the name is empty.
func with(shapes map[string][]int, name string, dims ...int) map[string][]int {
	if name != "" {
		shapes[name] = dims
		return shapes
	}
	for n := range shapes {
		shapes[n] = dims
	}
	return shapes
}
