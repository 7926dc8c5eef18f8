package zoo

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
	_ "spc/internal/debug/all"
	"spc/ir/tensor"
	"spc/tests/e2e"
)

func TestEveryMemberHasAGraphAndOutputs(t *testing.T) {
	members, err := Members("list")
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := ReadOutputs(Graphs)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range members {
		listed = append(listed, m.Name)
		if len(outputs[m.Name]) == 0 {
			t.Errorf("%s has no outputs in %s", m.Name, outputsFile(Graphs))
		}
	}
	slices.Sort(listed)
	graphs := names(t, Graphs)
	if !slices.Equal(listed, graphs) {
		t.Errorf("the list and the graphs are not of the same members:\n%v\n%v", listed, graphs)
	}
	if len(outputs) != len(listed) {
		t.Errorf("there are outputs of %d members, %d are listed", len(outputs), len(listed))
	}
}

func TestGraphsAgreeWithONNXRuntime(t *testing.T) { agreeWithONNXRuntime(t, Graphs) }

// agreeWithONNXRuntime compiles the graphs of a folder dense.
func agreeWithONNXRuntime(t *testing.T, folder string) {
	outputs, err := ReadOutputs(folder)
	if err != nil {
		t.Fatal(err)
	}
	eachGraph(t, folder, spc.PruneOptions{}, func(t *testing.T, c *compiled) {
		want := outputs[c.name]
		if len(c.got) != len(want) {
			t.Errorf("%d outputs, want %d", len(c.got), len(want))
		}
		for output, s := range want {
			x := c.got[output]
			if x == nil || x.String() != s.Type {
				t.Errorf("output %s is %v, want %s", output, x, s.Type)
				continue
			}
			report(t, output, SampleOf(output, x).Differ(s))
		}
	})
}

func TestPrunedGraphsAgreeWithInterpreter(t *testing.T) { agreeWithInterpreter(t, Graphs, 0.8) }

// agreeWithInterpreter compiles the graphs of a folder pruned.
func agreeWithInterpreter(t *testing.T, folder string, sparsity float64) {
	eachGraph(t, folder, spc.PruneOptions{Sparsity: sparsity}, func(t *testing.T, c *compiled) {
		if c.model.Explain().Totals.PrunableZeros == 0 {
			t.Error("nothing is pruned")
		}
		o, err := spc.Import(t.Context(), spc.ImportOptions{Bytes: c.graph.Model})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.model.Reference(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != spc.WithWeights {
			t.Errorf("it is compared with %s", r.About)
		}
		want, err := r.Interpret(t.Context(), c.inputs)
		if err != nil {
			t.Fatal(err)
		}
		for output, x := range c.got {
			e, err := e2e.RelL2(x, want[output])
			if err != nil {
				t.Errorf("output %s: %v", output, err)
			}
			report(t, output, e)
		}
	})
}

// names lists the graphs of a folder.
func names(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s holds no graphs: %v", folder, err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), suffix)
	}
	return files
}

func report(t *testing.T, output string, e float64) {
	t.Helper()
	t.Logf("output %s: relative l2 error %.1e", output, e)
	if !(e <= e2e.Tolerance) {
		t.Errorf("output %s: relative l2 error %.3g, want at most %.0e", output, e, e2e.Tolerance)
	}
}

// compiled is a graph that was compiled and run.
type compiled struct {
	name        string
	graph       *Graph
	model       *spc.Model
	inputs, got map[string]*tensor.Tensor // the outputs that are compared
}

// eachGraph compiles each graph of a folder, runs what is read back from the compiled file, and calls check with the compared outputs.
func eachGraph(t *testing.T, folder string, o spc.PruneOptions, check func(t *testing.T, c *compiled)) {
	for _, name := range names(t, folder) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := Read(folder, name)
			if err != nil {
				t.Fatal(err)
			}
			inputs, err := g.Inputs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: g.Model, Prune: o})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var file bytes.Buffer
			if err := m.Write(&file); err != nil {
				t.Fatal(err)
			}
			read, err := spc.Read(file.Bytes(), spc.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			got, err := read.Run(t.Context(), inputs)
			if err == nil {
				got, err = g.Compared(got)
			}
			if err != nil {
				t.Fatal(err)
			}
			check(t, &compiled{name, g, m, inputs, got})
		})
	}
}
