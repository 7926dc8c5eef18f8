package spc_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// samples yields some random inputs of a model; edit may change them.
func samples(n int, edit func(i int, in map[string]*tensor.Tensor)) func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(_ context.Context, ports []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			for i := range n {
				in := randomOf(ports, uint64(i), 2)
				if edit != nil {
					edit(i, in)
				}
				if !yield(in, nil) {
					return
				}
			}
		}
	}
}

func TestQuantisedModelsDoNotDependOnThreads(t *testing.T) {
	for _, c := range []struct {
		arch   string
		ranges spc.Ranges
	}{{"resnet", spc.Ranges{Method: spc.MinMax}}, {"mobilenet", spc.Ranges{Method: spc.Percentile, Percentile: 99}}, {"bert", spc.Ranges{}}} {
		var first []byte
		for _, threads := range []int{1, 2, 3, 9} {
			m := tiny(t, c.arch, spc.CompileOptions{Quantize: spc.QuantizeOptions{Type: tensor.I8, Ranges: c.ranges}, Calibration: spc.Calibration{Inputs: samples(3, nil), Threads: threads}})
			var b bytes.Buffer
			if err := m.Write(&b); err != nil {
				t.Fatal(err)
			}
			q := m.Explain().Quant
			if q == nil || q.Products == 0 || !(q.Divergence > 0) {
				t.Fatalf("%s: quantised %+v, want products, and by how much outputs diverge", c.arch, q)
			}
			if first == nil {
				first = b.Bytes()
			} else if !bytes.Equal(b.Bytes(), first) {
				t.Errorf("%s, %s: %d threads give another model than 1", c.arch, c.ranges, threads)
			}
		}
	}
}

func TestQuantiseRefusesSamplesThatAreNotFinite(t *testing.T) {
	var model []byte
	for _, a := range archs.Tiny {
		if a.Name == "mobilenet" {
			m, err := a.Build(1)
			if err != nil {
				t.Fatal(err)
			}
			model = m.Bytes()
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: model, Quantize: spc.QuantizeOptions{Type: tensor.I8}, Calibration: spc.Calibration{Inputs: samples(2, func(i int, in map[string]*tensor.Tensor) {
			for _, x := range in {
				if i == 1 {
					x.F32s()[3] = float32(bad)
				}
			}
		})}})
		if !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), "calibration sample 2: value ") || !strings.Contains(err.Error(), "want finite numbers") {
			t.Errorf("%v: error %v, want one that names the sample and the value", bad, err)
		}
	}
}

func TestHalfWeightsTakeHalfTheBytes(t *testing.T) {
	for _, arch := range []string{"resnet", "mobilenet", "bert", "vit", "encoder", "lstm"} {
		for _, sparsity := range []float64{0, 0.8} {
			full := tiny(t, arch, spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: sparsity}})
			want := weightBytes(full)
			for _, q := range []tensor.DType{tensor.F16, tensor.BF16} {
				var file bytes.Buffer
				if err := tiny(t, arch, spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: sparsity}, Quantize: spc.QuantizeOptions{Type: q}}).Write(&file); err != nil {
					t.Fatal(err)
				}
				m, err := spc.Read(file.Bytes(), spc.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				got := weightBytes(m)
				if got == nil || len(got) != len(want) {
					t.Fatalf("%s %s: %d weights are stored, want %d", arch, q, len(got), len(want))
				}
				for name, n := range got {
					if n > want[name]*3/4 { // indices keep their size
						t.Errorf("%s %s: %s takes %d bytes, %d in f32", arch, q, name, n, want[name])
					}
				}
				for _, batch := range []int{1, 3} {
					in := randomInputs(m, 5, batch)
					exact, err := m.Interpret(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					out, err := m.Run(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					if e := relL2(t, out, exact); !(e < 1e-4) {
						t.Errorf("%s %s, sparsity %g: relative l2 error %g", arch, q, sparsity, e)
					}
					float, err := full.Run(context.Background(), in)
					if err != nil {
						t.Fatal(err)
					}
					if e := relL2(t, out, float); !(e < 0.03) {
						t.Errorf("%s %s, sparsity %g: relative l2 error %g against f32", arch, q, sparsity, e)
					}
				}
				m.Close()
			}
			full.Close()
		}
	}
}

// weightBytes is the storage of the weights that formats may store, by name.
func weightBytes(m *spc.Model) map[string]int {
	out := map[string]int{}
	for _, l := range m.Explain().Layers {
		if len(l.Candidates) > 0 {
			out[l.Weight] = l.StoredBytes
		}
	}
	return out
}
