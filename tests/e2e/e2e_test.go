package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"spc/ir/tensor"
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
				r := Evaluate(context.Background(), p, m)
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

func TestBatchAndSequenceAreChosenAtEachRun(t *testing.T) {
	needModels(t)
	for _, p := range conformance.Pipelines {
		t.Run(p.Name, func(t *testing.T) {
			run, in, out := prepare(t, p, "stories260k")
			vocabulary := out[0].Dim(-1)
			for _, size := range [][2]int{{1, 1}, {2, 7}, {1, 128}, {2, 64}} {
				got, err := run(context.Background(), []*tensor.Tensor{part(in[0], size[0], size[1])})
				if err != nil {
					t.Fatalf("batch %d, sequence %d: %v", size[0], size[1], err)
				}
				// The model is causal: what comes later changes nothing.
				if _, err := Compare(got, []*tensor.Tensor{part(out[0], size[0], size[1], vocabulary)}); err != nil {
					t.Errorf("batch %d, sequence %d: %v", size[0], size[1], err)
				}
			}
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
				if _, err := Compare(x, y); err != nil {
					t.Fatalf("window %d: %v", window, err)
				}
				a[1], b[2] = x[1], y[1]
			}
		})
	}
}
