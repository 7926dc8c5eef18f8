package spc_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/graphtest"
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

// Quantising must not put anything into the interpreter that has a kernel in floating point.
func TestQuantisedModelsHaveKernels(t *testing.T) {
	for name, body := range map[string]string{
		"MaxPool over three axes": `%a: f32[*] = MaxPool "m" (%v) {kernel_shape = [2, 2, 2], strides = [2, 2, 2]}`,
		"MaxPool over two axes": `%s: i64[4] = const {1, 6, 4, 16}
  %u: f32[*] = Reshape "u" (%v, %s)
  %a: f32[*] = MaxPool "m" (%u) {kernel_shape = [2, 2], strides = [2, 2]}`,
		"MaxPool over one axis": `%s: i64[3] = const {1, 6, 64}
  %u: f32[*] = Reshape "u" (%v, %s)
  %a: f32[*] = MaxPool "m" (%u) {kernel_shape = [2], strides = [2]}`,
		"Transpose": `%a: f32[*] = Transpose "m" (%v) {perm = [0, 2, 1, 4, 3]}`,
		"Tile": `%s: i64[5] = const {1, 2, 1, 3, 1}
  %a: f32[*] = Tile "m" (%v, %s)`,
		"Gather": `%s: i64[2] = const {3, 1}
  %a: f32[*] = Gather "m" (%v, %s) {axis = 1}`,
		"Slice": `%s: i64[1] = const {3}
  %e: i64[1] = const {0}
  %ax: i64[1] = const {4}
  %st: i64[1] = const {-2}
  %a: f32[*] = Slice "m" (%v, %s, %e, %ax, %st)`,
		"Concat": `%a: f32[*] = Concat "m" (%v, %v) {axis = 2}`,
		"Expand": `%s: i64[5] = const {2, 6, 4, 4, 4}
  %a: f32[*] = Expand "m" (%v, %s)`,
		"Resize": `%s: f32[5] = const {1, 1, 2, 2, 2}
  %a: f32[*] = Resize "m" (%v, _, %s) {coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"}`,
		"Resize of two axes": `%r: i64[4] = const {1, 6, 4, 16}
  %u: f32[*] = Reshape "u" (%v, %r)
  %s: f32[4] = const {1, 1, 2, 2}
  %a: f32[*] = Resize "m" (%u, _, %s) {coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"}`,
		"DepthToSpace": `%s: i64[4] = const {1, 24, 4, 4}
  %u: f32[*] = Reshape "u" (%v, %s)
  %a: f32[*] = DepthToSpace "m" (%u) {blocksize = 2}`,
		"SpaceToDepth": `%s: i64[4] = const {1, 6, 16, 4}
  %u: f32[*] = Reshape "u" (%v, %s)
  %a: f32[*] = SpaceToDepth "m" (%u) {blocksize = 2}`,
		"Split": `%a: f32[*], %d: f32[*] = Split "m" (%v) {axis = 1, num_outputs = 2}`,
		"Pad": `%s: i64[10] = const {0, 0, 1, 1, 1, 0, 0, 1, 1, 1}
  %a: f32[*] = Pad "m" (%v, %s)`,
	} {
		t.Run(name, func(t *testing.T) {
			model := graphtest.ONNX(t, `graph "g"(%x: f32[1,6,4,4,4]) {
  %w: f32[6,6,1,1,1] = const {`+strings.Repeat(", 0.25", 36)[2:]+`}
  %k: f32[4,4] = const {`+strings.Repeat(", 0.5", 16)[2:]+`}
  %h: f32[4,5] = const {`+strings.Repeat(", 0.5", 20)[2:]+`}
  %t: f32[1,6,4,4,4] = Conv "conv" (%x, %w)
  %v: f32[1,6,4,4,4] = MatMul "first" (%t, %k)
  `+body+`
  %five: i64[2] = const {-1, 4}
  %b: f32[*] = Reshape "flat" (%a, %five)
  %y: f32[*] = MatMul "last" (%b, %h)
  return %y
}`)
			var interpreted []string
			for _, dt := range []tensor.DType{tensor.Undefined, tensor.I8} {
				o := spc.CompileOptions{Bytes: model, Quantize: spc.QuantizeOptions{Type: dt}}
				if dt == tensor.I8 {
					o.Quantize.KeepNone, o.Calibration = true, spc.Calibration{Inputs: samples(2, nil)}
				}
				m, err := spc.Compile(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if q := m.Explain().Quant; dt == tensor.I8 && (q.Products != 2 || len(q.Kept) != 1 || q.Kept[0].Why != "a convolution over 3 axes has no kernel of integers") {
					t.Errorf("quantised %+v, want two products, and the convolution kept with its reason", q)
				}
				for _, k := range m.Interpreted() {
					interpreted = append(interpreted, k.Op+" "+dt.String())
				}
			}
			if slices.ContainsFunc(interpreted, func(s string) bool { return strings.HasSuffix(s, "i8") }) {
				t.Errorf("interpreted: %q", interpreted)
			}
		})
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
	thorough(t)
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

// Totals count the zeros that rounding to codes makes, too, as layers do.
func TestTotalsCountZerosOfRounding(t *testing.T) {
	for name, o := range map[string]spc.PruneOptions{"none": {}, "half": {Sparsity: 0.5, KeepNone: true}} {
		m := tiny(t, "bert", spc.CompileOptions{Prune: o, Quantize: spc.QuantizeOptions{Type: tensor.I4}})
		r := m.Explain()
		nonzeros, all, seen := 0, 0, map[string]bool{}
		for _, l := range r.Layers {
			if !seen[l.Weight] {
				seen[l.Weight] = true
				nonzeros, all = nonzeros+l.Nonzeros, all+l.Rows*l.Cols
			}
		}
		if r.Totals.Nonzeros != nonzeros || r.Totals.Weights != all || nonzeros >= all {
			t.Errorf("%s: %d of %d weights are not zero, of the layers %d of %d", name, r.Totals.Nonzeros, r.Totals.Weights, nonzeros, all)
		}
		if zeros := r.Totals.PrunableZeros; zeros > all-nonzeros || name == "none" && zeros == 0 {
			t.Errorf("%s: %d of the prunable ones are zero, of all %d", name, zeros, all-nonzeros)
		}
	}
}
