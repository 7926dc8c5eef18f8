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
	for _, c := range []struct{ arch, ranges string }{{"resnet", "minmax"}, {"mobilenet", "percentile:99"}, {"bert", "mse"}} {
		var first []byte
		for _, threads := range []int{1, 2, 3, 9} {
			m := tiny(t, c.arch, spc.CompileOptions{Quantize: "int8", Ranges: c.ranges, Calibrate: samples(3, nil), Threads: threads})
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
		_, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: model, Quantize: "int8", Calibrate: samples(2, func(i int, in map[string]*tensor.Tensor) {
			for _, x := range in {
				if i == 1 {
					x.F32s()[3] = float32(bad)
				}
			}
		})})
		if !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), "calibration sample 2: value ") || !strings.Contains(err.Error(), "want finite numbers") {
			t.Errorf("%v: error %v, want one that names the sample and the value", bad, err)
		}
	}
}
