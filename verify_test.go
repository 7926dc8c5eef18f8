package spc_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/backend"
	"spc/backend/cpu"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// faulty is a device on which an activation, or an operator, computes another. It is right
// where a program has more outputs than most allows, if that is not 0: faults in what
// memory a value gets vanish where values are kept.
type faulty struct {
	node string
	most int
}

func (faulty) Name() string { return "faulty" }

func (d faulty) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	g = g.Clone()
	for _, n := range g.Nodes {
		if n.Name != d.node || d.most > 0 && len(g.Outputs) > d.most {
			continue
		}
		if f, ok := n.Op.(op.Fusable); ok {
			n.Op = ir.CloneOp(f)
			e := n.Op.(op.Fusable).Fused()
			e.Act, e.ActArgs = "Tanh", nil
		} else {
			n.Op = must(op.Registry.New("Abs"))
		}
	}
	return cpu.Device{}.Load(g, o)
}

func must(o ir.Op, err error) ir.Op {
	if err != nil {
		panic(err)
	}
	return o
}

// tinyBytes returns the ONNX file of one of the small architectures.
func tinyBytes(t *testing.T, name string) []byte {
	t.Helper()
	for _, a := range archs.Tiny {
		if a.Name == name {
			m, err := a.Build(1)
			if err != nil {
				t.Fatal(err)
			}
			return m.Bytes()
		}
	}
	t.Fatalf("no architecture %s", name)
	return nil
}

// nodeOf returns a node of m, by an operator and how many of these come before it.
func nodeOf(t *testing.T, m *spc.Model, kind string, skip int) string {
	t.Helper()
	for _, line := range strings.Split(m.Graph(), "\n") {
		if _, after, ok := strings.Cut(line, "= "+kind+" \""); ok {
			if skip--; skip < 0 {
				name, _, _ := strings.Cut(after, `"`)
				return name
			}
		}
	}
	t.Fatalf("no %s in\n%s", kind, m.Graph())
	return ""
}

// TestLocateNamesTheNodeThatADeviceComputesWrongly, and Reduce leaves it alone.
func TestLocateNamesTheNodeThatADeviceComputesWrongly(t *testing.T) {
	for _, test := range []struct {
		model, kind string
		skip, most  int
		options     spc.CompileOptions
	}{
		{"resnet", "Conv", 3, 0, spc.CompileOptions{}},
		{"resnet", "Conv", 3, 2, spc.CompileOptions{}},
		{"resnet", "Conv", 5, 0, spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.7}}},
		{"bert", "LayerNormalization", 1, 0, spc.CompileOptions{}},
		{"bert", "MatMul", 2, 8, spc.CompileOptions{Prune: spc.PruneOptions{Pattern: spc.Pattern{Kind: spc.NM, N: 2, M: 4}}}},
	} {
		t.Run(test.model+" "+test.kind, func(t *testing.T) {
			ctx := t.Context()
			b := tinyBytes(t, test.model)
			o := test.options
			o.Bytes = b
			m, err := spc.Compile(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			node := nodeOf(t, m, test.kind, test.skip)
			o.Run.Device = faulty{node, test.most}
			if m, err = spc.Compile(ctx, o); err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			original, err := spc.Import(ctx, spc.ImportOptions{Bytes: b})
			if err != nil {
				t.Fatal(err)
			}
			ref, err := m.Reference(ctx, original)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: spc.WithWeights, false: spc.AsImported}[m.Altered() != ""]; ref.Kind != want {
				t.Fatalf("reference %s (%s), want %s", ref.Kind, ref.About, want)
			}
			in := randomInputs(m, 1, 4)
			f, err := ref.Locate(ctx, in, 1e-4, nil)
			if err != nil || f == nil || f.Node != node || f.Stage != "run" {
				t.Fatalf("%v, %v, want node %s", f, err, node)
			}
			made, err := ref.Reduce(ctx, f, in, 1e-4, nil)
			if err != nil || made == nil {
				t.Fatalf("%v, %v", made, err)
			}
			if n := len(made.Graph.Nodes); n > 12 || !strings.Contains(made.Graph.String(), `"`+strings.TrimSuffix(node, ".fused")+`"`) {
				t.Errorf("%d nodes, without %s or too many:\n%s", n, node, made.Graph)
			}
			// What is written still differs on the device, and not on another.
			path := filepath.Join(t.TempDir(), "repro.onnx")
			if err := spc.SaveCase(path, made); err != nil {
				t.Fatal(err)
			}
			for _, d := range []backend.Device{faulty{node, test.most}, cpu.Device{}} {
				c, err := spc.Compile(ctx, spc.CompileOptions{Model: path, Run: spc.RunOptions{Device: d}})
				if err != nil {
					t.Fatal(err)
				}
				inputs := map[string]*tensor.Tensor{}
				for i, p := range c.Inputs() {
					inputs[p.Name] = made.In[i]
				}
				out, err := c.Run(ctx, inputs)
				if err != nil {
					t.Fatal(err)
				}
				same := true
				for i, p := range c.Outputs() {
					same = same && near(out[p.Name], made.Out[i])
				}
				if same != (d.Name() == "cpu") {
					t.Errorf("on %s the outputs agree: %v", d.Name(), same)
				}
				c.Close()
			}
		})
	}
}

// near reports whether two tensors are within a thousandth of each other.
func near(a, b *tensor.Tensor) bool {
	x, y := a.Float64s(), b.Float64s()
	return slices.EqualFunc(x, y, func(u, v float64) bool { return u-v < 1e-3 && v-u < 1e-3 })
}

// TestReferences is about what a compiled model is compared with.
func TestReferences(t *testing.T) {
	ctx := t.Context()
	calibrate := spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: "layer"}, Calibration: spc.Calibration{Inputs: samples(3, nil)}}
	integers := spc.CompileOptions{Quantize: spc.QuantizeOptions{Type: tensor.I8}, Calibration: spc.Calibration{Inputs: samples(3, nil)}}
	for _, test := range []struct {
		name, model, kind, about string
		o                        spc.CompileOptions
	}{
		{"dense", "resnet", spc.AsImported, "the ONNX model as imported", spc.CompileOptions{}},
		{"pruned", "resnet", spc.WithWeights, "after the passes up to biases, with the weights of the pruned model", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5}}},
		{"calibrated", "resnet", spc.WithWeights, "with the weights of the pruned model", calibrate},
		{"half", "encoder", spc.WithWeights, "with the weights of the quantised model", spc.CompileOptions{Quantize: spc.QuantizeOptions{Type: tensor.BF16}}},
		{"recurrent", "lstm", spc.WithWeights, "with the weights of the pruned model", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}}},
		{"channels", "resnet", spc.WithWeights, "with the weights of the pruned model", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.4, Pattern: spc.Pattern{Kind: spc.Channel}}}},
		{"channels in groups", "mobilenet", spc.WithWeights, "with the weights of the pruned model", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.4, Pattern: spc.Pattern{Kind: spc.Channel}}}},
		{"integers", "resnet", spc.OwnGraph, "the graph of the quantised model itself", integers},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := tinyBytes(t, test.model)
			test.o.Bytes = b
			compiled, err := spc.Compile(ctx, test.o)
			if err != nil {
				t.Fatal(err)
			}
			var file bytes.Buffer
			if err := compiled.Write(&file); err != nil {
				t.Fatal(err)
			}
			m, err := spc.Read(file.Bytes(), spc.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			original, err := spc.Import(ctx, spc.ImportOptions{Bytes: b})
			if err != nil {
				t.Fatal(err)
			}
			ref, err := m.Reference(ctx, original)
			if err != nil {
				t.Fatal(err)
			}
			if ref.Kind != test.kind || !strings.Contains(ref.About, test.about) {
				t.Errorf("%s: %s, want %s: %s", ref.Kind, ref.About, test.kind, test.about)
			}
			in := randomInputs(m, 1, 4)
			got, err := m.Run(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			want, err := ref.Interpret(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			if d := relL2(t, got, want); !(d <= m.Tolerance().RelL2) {
				t.Errorf("relative l2 error %v", d)
			}
			own, err := original.Interpret(ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			passed, err := ref.Passed(ctx, in)
			if err != nil || (passed == nil) != (test.kind == spc.AsImported) {
				t.Fatalf("%v, %v", passed, err)
			}
			if passed == nil {
				return
			}
			if d := relL2(t, passed, own); !(d <= 1e-5) {
				t.Errorf("the passes: relative l2 error %v", d)
			}
		})
	}
}

// BenchmarkInterpretResNet50 is the time of one image.
func BenchmarkInterpretResNet50(b *testing.B) {
	m, err := archs.ResNet(archs.ResNet50, 1)
	if err != nil {
		b.Fatal(err)
	}
	o, err := spc.Import(b.Context(), spc.ImportOptions{Bytes: m.Bytes()})
	if err != nil {
		b.Fatal(err)
	}
	in := randomOf(o.Inputs(), 1, 1)
	for b.Loop() {
		if _, err := o.Interpret(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}
