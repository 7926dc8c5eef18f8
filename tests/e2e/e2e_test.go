package e2e

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"spc"
	_ "spc/internal/debug/all"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/conformance"
)

func needModels(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(Root()); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
}

func TestModelsReproduceStoredOutputs(t *testing.T) {
	needModels(t)
	var results []Result
	for _, m := range Models {
		for _, p := range conformance.Pipelines {
			t.Run(m+"/"+p.Name, func(t *testing.T) {
				r := Evaluate(context.Background(), p, m, Tolerance)
				if r.Err != nil {
					t.Error(r.Err)
				}
				results = append(results, r)
			})
		}
	}
	t.Log("\n" + Table(results))
}

// prepare returns a model of the shared folder, ready to run, and its stored
// inputs and outputs.
func prepare(t *testing.T, p conformance.Pipeline, model string) (run conformance.Run, in, out []*tensor.Tensor) {
	t.Helper()
	dir := filepath.Join(Root(), model)
	b, err := os.ReadFile(filepath.Join(dir, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if run, err = p.Prepare(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if in, err = Stored(dir, "input"); err != nil {
		t.Fatal(err)
	}
	if out, err = Stored(dir, "output"); err != nil {
		t.Fatal(err)
	}
	return run, in, out
}

// part returns a copy of a box of t that begins at its first element.
func part(t *tensor.Tensor, shape ...int) *tensor.Tensor {
	out := tensor.New(t.DType(), shape...)
	tensor.Copy(out, t, shape, 0, tensor.Strides(shape), 0, tensor.Strides(t.Shape()))
	return out
}

// TestUniformRowsOfMobileNet prunes by the published rule. Two layers come with a
// row of zeros, which stays one.
func TestUniformRowsOfMobileNet(t *testing.T) {
	needModels(t)
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Model: filepath.Join(Root(), "mobilenetv2-imagenet", "model.onnx"), Prune: spc.PruneOptions{Allocate: "global", Sparsity: 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := m.Explain()
	if s := float64(r.Totals.PrunableZeros) / float64(r.Totals.Prunable); math.Abs(s-0.5) > 0.005 {
		t.Errorf("sparsity %.4f over prunable weights, want 0.50", s)
	}
	rows := map[string]int{}
	for _, l := range r.Layers {
		rows[l.Weight] = l.Rows
	}
	pruned, dead := 0, 0
	for _, l := range r.Prune.Layers {
		if !l.Prunable || l.Zeros == 0 {
			continue
		}
		pruned++
		missing := l.RowMax*rows[l.Weight] - (l.Weights - l.Zeros)
		switch {
		case l.RowMin == l.RowMax:
		case l.RowMin == 0 && missing%l.RowMax == 0:
			dead += missing / l.RowMax
		default:
			t.Errorf("%s: rows have %d to %d nonzeros", l.Node, l.RowMin, l.RowMax)
		}
	}
	if pruned < 30 || dead > 2 {
		t.Errorf("%d layers are pruned, %d rows are zero", pruned, dead)
	}
}

func TestPrunedModelsAgreeWithInterpreter(t *testing.T) {
	needModels(t)
	for _, m := range Sparse {
		for _, o := range Prunings {
			if !Suits(m, o) {
				continue
			}
			t.Run(m+"/"+o.Pattern.String()+string(o.Allocate), func(t *testing.T) {
				if r := EvaluateSparse(context.Background(), m, o); r.Err != nil {
					t.Error(r.Err)
				}
			})
		}
	}
}

// TestSequenceIsChosenAtEachRun compiles a decoder for any sequence. It is causal:
// the logits of a part are those of the whole.
func TestSequenceIsChosenAtEachRun(t *testing.T) {
	needModels(t)
	dir := filepath.Join(Root(), "stories260k")
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Model: filepath.Join(dir, "model.onnx"), Shapes: map[string][]int{"input_ids": {spc.AnySize, spc.AnySize}}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	in, err := Stored(dir, "input")
	if err != nil {
		t.Fatal(err)
	}
	out, err := Stored(dir, "output")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range [][]int{{1, 1}, {2, 17}, {1, 100}} {
		got, err := m.Run(context.Background(), map[string]*tensor.Tensor{"input_ids": part(in[0], size...)})
		if err != nil {
			t.Fatalf("%v: %v", size, err)
		}
		want := part(out[0], size[0], size[1], out[0].Dim(2))
		if _, err := Compare([]*tensor.Tensor{got["logits"]}, []*tensor.Tensor{want}, Tolerance); err != nil {
			t.Errorf("%v: %v", size, err)
		}
	}
}

func TestBatchIsChosenAtEachRun(t *testing.T) {
	needModels(t)
	for _, p := range conformance.Pipelines {
		t.Run(p.Name, func(t *testing.T) {
			run, in, out := prepare(t, p, "stories260k")
			for _, n := range []int{1, 2} {
				got, err := run(context.Background(), []*tensor.Tensor{part(in[0], n, in[0].Dim(1))})
				if err != nil {
					t.Fatalf("batch %d: %v", n, err)
				}
				if _, err := Compare(got, []*tensor.Tensor{part(out[0], n, out[0].Dim(1), out[0].Dim(2))}, Tolerance); err != nil {
					t.Errorf("batch %d: %v", n, err)
				}
			}
		})
	}
}

// TestBatchAndSequenceAreChosenAtEachRun runs a small BERT on a short sequence
// alone, and padded and masked beside a longer one.
func TestBatchAndSequenceAreChosenAtEachRun(t *testing.T) {
	m, err := archs.BERT(archs.BERTConfig{Layers: 2, Hidden: 32, Heads: 4, FF: 64, Vocabulary: 50, Positions: 16, Types: 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range conformance.Pipelines {
		t.Run(p.Name, func(t *testing.T) {
			run, err := p.Prepare(context.Background(), m.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			eval := func(batch, sequence int, ids, mask []int64) []*tensor.Tensor {
				t.Helper()
				out, err := run(context.Background(), []*tensor.Tensor{
					tensor.From(ids, batch, sequence), tensor.From(mask, batch, sequence), tensor.New(tensor.I64, batch, sequence)})
				if err != nil {
					t.Fatalf("batch %d, sequence %d: %v", batch, sequence, err)
				}
				return out
			}
			alone := eval(1, 3, []int64{7, 8, 9}, []int64{1, 1, 1})
			beside := eval(2, 5, []int64{7, 8, 9, 0, 0, 1, 2, 3, 4, 5}, []int64{1, 1, 1, 0, 0, 1, 1, 1, 1, 1})
			if _, err := Compare([]*tensor.Tensor{part(beside[0], 1, 3, 32), part(beside[1], 1, 32)}, alone, Tolerance); err != nil {
				t.Error(err)
			}
			eval(3, 16, make([]int64, 48), make([]int64, 48))
		})
	}
}

// TestSpeechDetectorKeepsItsState runs both exports of one network, with nested
// branches and without, over several windows, each state feeding the next.
func TestSpeechDetectorKeepsItsState(t *testing.T) {
	needModels(t)
	for _, p := range conformance.Pipelines {
		t.Run(p.Name, func(t *testing.T) {
			nested, a, _ := prepare(t, p, "silero-vad")      // input, state, sr
			flat, b, _ := prepare(t, p, "silero-vad-ifless") // input, sr, state
			for window := range 4 {
				x, err := nested(context.Background(), a)
				if err != nil {
					t.Fatal(err)
				}
				y, err := flat(context.Background(), b)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := Compare(x, y, Tolerance); err != nil {
					t.Fatalf("window %d: %v", window, err)
				}
				a[1], b[2] = x[1], y[1]
			}
		})
	}
}
