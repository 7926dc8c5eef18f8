package spc_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"spc"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

// tinyHalf is a network of archs.Tiny in 16-bit floats, in ONNX.
func tinyHalf(t *testing.T, arch string, dt tensor.DType) []byte {
	t.Helper()
	at := slices.IndexFunc(archs.Tiny, func(a archs.Arch) bool { return a.Name == arch })
	m, err := archs.Tiny[at].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	g := importedFrom(t, m.Bytes())
	if err := graphtest.Half(g, dt); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := onnx.Export(&b, g, "test", ""); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func importedFrom(t *testing.T, model []byte) *ir.Graph {
	t.Helper()
	g, _, err := onnx.ImportBytes(model, "", onnx.Options{})
	if err == nil {
		err = g.Infer()
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Models in 16-bit floats are pruned and quantised as those in f32 are, keep their inputs, outputs and weights in 16 bits,
// and are written as ONNX with all of their types.
func TestModelsIn16BitFloats(t *testing.T) {
	prune := spc.PruneOptions{Sparsity: 0.6}
	seen := spc.Calibration{Inputs: samples(4, nil)}
	for i, arch := range []string{"resnet", "bert"} {
		if testing.Short() && i == 0 { // what runs at once is the same in both
			continue
		}
		for dt, tolerance := range map[tensor.DType]float64{tensor.F16: 0.01, tensor.BF16: 0.08} {
			model := tinyHalf(t, arch, dt)
			for name, o := range map[string]spc.CompileOptions{
				"dense":               {},
				"pruned":              {Prune: prune},
				"pruned with samples": {Prune: spc.PruneOptions{Sparsity: 0.6, Allocate: spc.PerLayer}, Calibration: seen},
				"8 bits":              {Quantize: spc.QuantizeOptions{Type: tensor.I8, KeepNone: true}, Calibration: seen},
			} {
				t.Run(fmt.Sprintf("%s in %v, %s", arch, dt, name), func(t *testing.T) {
					o.Bytes, o.Run.Threads, o.Debug.Verify = model, 1, true
					m, err := spc.Compile(context.Background(), o)
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					pruned, err := spc.Prune(context.Background(), o)
					if err != nil {
						t.Fatal(err)
					}
					var b bytes.Buffer
					if err := pruned.Write(&b); err != nil {
						t.Fatal(err)
					}
					if a, b := m.Explain().Totals.PrunableZeros, pruned.Explain().Totals.PrunableZeros; o.Prune.Sparsity > 0 && (a != b || a == 0) {
						t.Errorf("compile makes %d zeros, prune %d", a, b)
					}
					integers := o.Quantize.Type == tensor.I8
					if q := m.Explain().Quant; integers && q.Products == 0 {
						t.Errorf("no product is quantised: %+v", q)
					}
					for _, l := range m.Explain().Layers {
						if !integers && l.DType != dt.String() {
							t.Errorf("weight %s is stored as %s: %s", l.Weight, l.DType, l.Reason)
						}
					}
					g := importedFrom(t, b.Bytes())
					for _, n := range g.Nodes {
						for _, v := range slices.Concat(n.Inputs, n.Outputs) {
							if v != nil && v.Type.DType == tensor.F32 && !integers {
								t.Errorf("%v of the written model has %s in f32", n, v.Name)
							}
						}
					}
					in := randomOf(m.Inputs(), 3, 2)
					got, err := m.Run(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					written, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: b.Bytes(), Run: o.Run})
					if err != nil {
						t.Fatal(err)
					}
					defer written.Close()
					want, err := written.Run(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					for _, p := range m.Outputs() {
						if p.DType != dt {
							t.Errorf("output %s is %v, want %v", p.Name, p.DType, dt)
						}
						if integers {
							continue // what rounds biases otherwise
						}
						if d := graphtest.Difference(want[p.Name].To(tensor.F32), got[p.Name].To(tensor.F32)); !(d <= tolerance) {
							t.Errorf("output %s differs by %g from that of the model that prune writes", p.Name, d)
						}
					}
				})
			}
		}
	}
}
