//go:build unix

package spc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"spc"
	"spc/internal/verify"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/large"
)

// wide returns a model of products that stream their weights, one of which an operator
// without a kernel evaluates.
func wide(t *testing.T) []byte {
	t.Helper()
	const n = 256
	b := archs.New("wide", 17)
	x := b.Input("x", archs.Float32, 1, n)
	for _, name := range []string{"a", "b", "c"} {
		x = b.Node("Relu", nil, b.Node("MatMul", nil, x, b.Weight(name, archs.He(n), n, n)))
	}
	rows := make([]byte, 0, 8*n*n)
	for i := range n * n {
		rows = binary.LittleEndian.AppendUint64(rows, math.Float64bits(float64(i%7)/n))
	}
	w := b.Initializer("d", &onnxpb.TensorProto{DataType: int32(onnxpb.TensorProto_DOUBLE), Dims: []int64{n, n}, RawData: rows})
	y := b.Node("MatMul", nil, b.Node("Cast", archs.Attrs{"to": int(onnxpb.TensorProto_DOUBLE)}, x), w)
	b.Output("y", b.Node("Cast", archs.Attrs{"to": int(archs.Float32)}, y), archs.Float32, 1, n)
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	return m.Bytes()
}

// stored are ways to store the weights of a model.
func stored(t *testing.T) map[string]spc.CompileOptions {
	samples := func(_ context.Context, ports []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			for seed := range uint64(4) {
				if !yield(randomOf(ports, seed, 1), nil) {
					return
				}
			}
		}
	}
	model := wide(t)
	return map[string]spc.CompileOptions{
		"dense":   {Bytes: model},
		"csr":     {Bytes: model, Prune: spc.PruneOptions{Sparsity: 0.7, Pattern: spc.Pattern{Kind: spc.Unstructured}}, Format: "csr"},
		"block":   {Bytes: model, Prune: spc.PruneOptions{Sparsity: 0.7, Pattern: spc.Pattern{Kind: spc.Block, R: 4, C: 1}}, Format: "block"},
		"float16": {Bytes: model, Quantize: spc.QuantizeOptions{Type: tensor.F16}},
		"int8":    {Bytes: model, Quantize: spc.QuantizeOptions{Type: tensor.I8}, Calibration: spc.Calibration{Inputs: samples}},
	}
}

// saved writes a compiled model to a file.
func saved(t *testing.T, o spc.CompileOptions) string {
	t.Helper()
	m, err := spc.Compile(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.spx")
	if err := m.Save(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// another copies a file.
func another(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "model.spx")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func truncate(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
}

// changed checks that an error says that the file is no longer what it was.
func changed(t *testing.T, what string, err error, path string) {
	t.Helper()
	if !errors.Is(err, spc.ErrCorrupt) || !strings.Contains(err.Error(), path+" was changed or truncated while in use") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: error %v, want one that wraps ErrCorrupt and says that %s changed", what, err, path)
	}
}

// Once the file is truncated nothing of the model runs, and everything else does.
func TestATruncatedFileIsAnErrorOfItsModel(t *testing.T) {
	for name, o := range stored(t) {
		sound := saved(t, o)
		for _, threads := range []int{1, 3} {
			path := another(t, sound)
			m, err := spc.Open(path, spc.RunOptions{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			other, err := spc.Open(sound, spc.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			held, err := spc.Open(path, spc.RunOptions{Copy: true})
			if err != nil {
				t.Fatal(err)
			}
			in := randomInputs(m, 1, 1)
			want, err := other.Run(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			truncate(t, path)
			var again error
			for i, run := range []func() error{
				func() error { _, err := m.Run(t.Context(), in); return err },
				func() error { _, err := m.Run(context.Background(), in); return err },
				func() error { _, _, err := m.Profile(t.Context(), in); return err },
				func() error { _, err := m.Interpret(t.Context(), in); return err },
				func() error { return m.Write(io.Discard) },
			} {
				err := run()
				if changed(t, name, err, path); i > 0 && err != again {
					t.Errorf("%s: use %d: %v, want the error of before: %v", name, i, err, again)
				}
				again = err
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			for what, good := range map[string]*spc.Model{"another model": other, "a copy": held} {
				got, err := good.Run(t.Context(), in)
				if err != nil {
					t.Errorf("%s: %s: %v", name, what, err)
				} else if e := relL2(t, got, want); e > 1e-6 {
					t.Errorf("%s: %s: relative l2 error %g", name, what, e)
				}
				if err := good.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Each use of a model meets the fault by itself, whatever the others do.
func TestEveryUseOfATruncatedFileIsAnError(t *testing.T) {
	o := stored(t)["dense"]
	original, err := spc.Import(t.Context(), spc.ImportOptions{Bytes: o.Bytes})
	if err != nil {
		t.Fatal(err)
	}
	o.Prune.Sparsity = 0.5
	whole := saved(t, o)
	for name, use := range map[string]func(m *spc.Model) error{
		"interpret": func(m *spc.Model) error {
			_, err := m.Interpret(t.Context(), randomInputs(m, 1, 1))
			return err
		},
		"profile": func(m *spc.Model) error { _, _, err := m.Profile(t.Context(), randomInputs(m, 1, 1)); return err },
		"write":   func(m *spc.Model) error { return m.Write(io.Discard) },
		"reference": func(m *spc.Model) error {
			r, err := m.Reference(t.Context(), nil)
			if err != nil {
				return err
			}
			_, err = r.Interpret(t.Context(), randomInputs(m, 1, 1))
			return err
		},
		"locate": func(m *spc.Model) error {
			_, err := m.Unaltered(original).Locate(t.Context(), randomInputs(m, 1, 1), 1e-4, nil)
			return err
		},
		"reduce": func(m *spc.Model) error {
			f := &spc.Fault{Stage: verify.InWeights}
			_, err := m.Unaltered(original).Reduce(t.Context(), f, randomInputs(m, 1, 1), 1e-4, nil)
			return err
		},
		"difference": func(m *spc.Model) error {
			_, err := spc.FirstDifference(t.Context(), original, m, randomInputs(m, 1, 1), 1e-4)
			return err
		},
	} {
		path := another(t, whole)
		m, err := spc.Open(path, spc.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		truncate(t, path)
		changed(t, name, use(m), path)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := use(m); !errors.Is(err, spc.ErrInvalid) || err.Error() != "the model is closed: invalid model" {
			t.Errorf("%s of a closed model: %v", name, err)
		}
	}
}

// What the interpreter returns is the caller's, also where it is a constant in the file or
// an input.
func TestInterpretedOutputsAreTheCallers(t *testing.T) {
	b := archs.New("constant", 1)
	w := b.Weight("w", archs.He(64), 512, 64)
	x := b.Input("x", archs.Float32, 64)
	b.Output("constant", w, archs.Float32, 512, 64)
	b.Output("same", x, archs.Float32, 64)
	model, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := spc.Open(saved(t, spc.CompileOptions{Bytes: model.Bytes()}), spc.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := randomInputs(m, 1, 1)
	out, err := m.Interpret(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	before := in["x"].Clone()
	for _, y := range out {
		clear(y.F32s())
	}
	if !in["x"].Equal(before) {
		t.Error("an output is the input itself")
	}
}

// Runs in progress end with the error, those of kernels in assembly that read the weights
// in the file, and of operators on goroutines of their own, too.
func TestTruncatingDuringRuns(t *testing.T) {
	for name, o := range stored(t) {
		path := saved(t, o)
		m, err := spc.Open(path, two)
		if err != nil {
			t.Fatal(err)
		}
		in := randomInputs(m, 1, 1)
		want, err := m.Run(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		var begun, ended sync.WaitGroup
		errs, start := make([]error, 4), time.Now()
		for i := range errs {
			begun.Add(1)
			ended.Go(func() {
				for k := 0; errs[i] == nil && time.Since(start) < time.Minute; k++ {
					var got map[string]*tensor.Tensor
					if got, errs[i] = m.Run(t.Context(), in); errs[i] == nil {
						if e := relL2(t, got, want); e > 1e-6 {
							t.Errorf("%s: relative l2 error %g", name, e)
						}
					}
					if k == 0 {
						begun.Done()
					}
				}
			})
		}
		begun.Wait()
		truncate(t, path)
		ended.Wait()
		for _, err := range errs {
			if changed(t, name, err, path); err != errs[0] {
				t.Errorf("%s: %v, want the error of other runs: %v", name, err, errs[0])
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Where external data are truncated while samples show what weights do, that is the error, whatever reads them.
func TestTruncatedWeightsAreAnErrorWithSamples(t *testing.T) {
	thorough(t)
	pruned := func(o spc.PruneOptions) spc.CompileOptions {
		o.Sparsity, o.Allocate, o.KeepNone = 0.5, spc.PerLayer, true
		return spc.CompileOptions{Prune: o}
	}
	for name, o := range map[string]spc.CompileOptions{
		"obs":         pruned(spc.PruneOptions{}),
		"wanda":       pruned(spc.PruneOptions{Method: "wanda"}),
		"taylor":      pruned(spc.PruneOptions{Method: "taylor"}),
		"gates":       pruned(spc.PruneOptions{Method: "gates"}),
		"snows":       pruned(spc.PruneOptions{Refine: "snows"}),
		"reconstruct": pruned(spc.PruneOptions{Reconstruct: spc.Recipe{"model": 1, "blocks": 1}}),
		"int4":        {Quantize: spc.QuantizeOptions{Type: tensor.I4}},
		"int8":        {Quantize: spc.QuantizeOptions{Type: tensor.I8}},
	} {
		// At the third sample of those that are counted, and the second of those that are run, which has others in flight beside it.
		for threads, at := range map[int]int{1: 3, 3: 6} {
			dir := t.TempDir()
			m := large.Model{Layers: 2, Width: 512, Seed: 5, External: "w.bin"} // which are views of it from 1 MB on
			o.Model, o.Spool = filepath.Join(dir, "m.onnx"), dir
			if err := m.Write(o.Model); err != nil {
				t.Fatal(err)
			}
			o.Calibration.Threads = threads
			seen := 0
			o.Calibration.Inputs = func(_ context.Context, ports []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
				return func(yield func(map[string]*tensor.Tensor, error) bool) {
					for seed := range uint64(4) {
						if seen++; seen == at {
							truncate(t, filepath.Join(dir, "w.bin"))
						}
						if !yield(randomOf(ports, seed, 1), nil) {
							return
						}
					}
				}
			}
			c, err := spc.Compile(t.Context(), o)
			if err == nil {
				c.Close()
			}
			if seen >= at || threads == 1 { // what reads samples once keeps them
				changed(t, name, err, filepath.Join(dir, "w.bin"))
			}
		}
	}
}
