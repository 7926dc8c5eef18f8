package faults

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// variants are ways in which a user compiles a model; those that lose digits have a bound
// of their own.
var variants = []struct {
	name    string
	options spc.CompileOptions
	bound   float64
}{
	{"dense", spc.CompileOptions{}, 1e-6},
	{"csr", spc.CompileOptions{Format: "csr"}, 1e-6},
	{"block", spc.CompileOptions{Format: "block"}, 1e-6},
	{"fp16", spc.CompileOptions{Quantize: spc.QuantizeOptions{Type: tensor.F16}}, 1e-6},
	{"bf16", spc.CompileOptions{Quantize: spc.QuantizeOptions{Type: tensor.BF16}}, 1e-6},
	{"int8", spc.CompileOptions{Quantize: spc.QuantizeOptions{Type: tensor.I8, KeepNone: true}}, 0.1},
	{"obs that finds all zeros", spc.CompileOptions{Prune: spc.PruneOptions{Layers: []spc.LayerSparsity{{Glob: "*"}}, KeepNone: true}}, 1e-6},
	{"obs in 8 bits", spc.CompileOptions{Prune: spc.PruneOptions{Layers: []spc.LayerSparsity{{Glob: "*"}}, KeepNone: true}, Quantize: spc.QuantizeOptions{Type: tensor.I8, KeepNone: true}}, 0.1},
}

// calibrated gives options that need them samples of an input.
func calibrated(o spc.CompileOptions, name string, x *tensor.Tensor) spc.CompileOptions {
	if o.Quantize.Type == tensor.I8 || o.Prune.Layers != nil {
		o.Calibration.Inputs = func(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
			return func(yield func(map[string]*tensor.Tensor, error) bool) {
				for range 4 {
					if !yield(map[string]*tensor.Tensor{name: x}, nil) {
						return
					}
				}
			}
		}
	}
	return o
}

// A Gemm adds a C of every shape that broadcasts, however it is compiled.
func TestGemmAddsWhatBroadcasts(t *testing.T) {
	for _, n := range []int{1, 3} {
		for _, c := range []string{"f32[] = const {0.5}", "f32[1] = const {0.5}", "f32[1,1] = const {0.5}", fmt.Sprintf("f32[%d] = const {%s}", n, numbers(n, func() string { return "0.5" })),
			fmt.Sprintf("f32[1,%d] = const {%s}", n, numbers(n, func() string { return "0.5" })), "f32[2,1] = const {0.5, 0.5}", fmt.Sprintf("f32[2,%d] = const {%s}", n, numbers(2*n, func() string { return "0.5" }))} {
			file := graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%%x: f32[2,4]) {
  %%w: f32[4,%d] = const {%s}
  %%c: %s
  %%y: f32[2,%d] = Gemm "gemm" (%%x, %%w, %%c)
  return %%y
}`, n, numbers(4*n, func() string { return "0.25" }), c, n))
			x := tensor.From([]float32{1, -2, 3, 0.5, -1, 2, 4, -0.5}, 2, 4)
			for _, v := range variants {
				o := calibrated(v.options, "x", x)
				o.Bytes = file
				m, err := spc.Compile(context.Background(), o)
				if err != nil {
					t.Errorf("%s, C %s: %v", v.name, c, err)
					continue
				}
				out, err := m.Run(context.Background(), map[string]*tensor.Tensor{"x": x})
				m.Close()
				if err != nil {
					t.Errorf("%s, C %s: %v", v.name, c, err)
					continue
				}
				for i, y := range out["y"].F32s() {
					want := 0.5
					for _, e := range x.F32s()[i/n*4:][:4] {
						want += 0.25 * float64(e)
					}
					if d := math.Abs(float64(y) - want); !(d <= v.bound) {
						t.Errorf("%s, C %s: element %d is %g, want %g", v.name, c, i, y, want)
					}
				}
			}
		}
	}
}

// A weight on the left is the weight only while the other operand is none: that may become
// constant where operands known at run time turn out not to matter.
func TestBothOperandsMayBecomeConstant(t *testing.T) {
	file := graphtest.ONNX(t, `graph "g"(%k: i64[1]) {
  %v: f32[2,1] = const {0.5, 2.0}
  %u: f32[*] = Unsqueeze "u" (%v, %k)
  %s: i64[2] = const {1, 2}
  %b: f32[*] = Reshape "b" (%u, %s)
  %a: f32[2,1] = Relu "a" (%v)
  %y: f32[*] = MatMul "y" (%a, %b)
  return %y
}`)
	for _, v := range variants {
		if v.options.Prune.Layers != nil || v.options.Quantize.Type == tensor.I8 {
			continue // nothing to see
		}
		o := v.options
		o.Bytes = file
		m, err := spc.Compile(context.Background(), o)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		out, err := m.Run(context.Background(), map[string]*tensor.Tensor{"k": tensor.Ints(1)})
		m.Close()
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		for i, want := range []float32{0.25, 1, 1, 4} {
			if y := out["y"].F32s()[i]; y != want {
				t.Errorf("%s: element %d is %g, want %g", v.name, i, y, want)
			}
		}
	}
}

// What a QuantizeLinear node cuts off is gone, also where a sum reads the result: with the
// zero point 0 that is all below zero.
func TestSaturationBeforeASumStays(t *testing.T) {
	for _, zero := range []int{0, 128, 255} {
		file := graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%%x: f32[1,2], %%r: f32[1,2]) {
  %%one: f32[] = const {1.0}
  %%mid: u8[] = const {128}
  %%w: i8[2,2] = const {1, -1, 100, -100}
  %%no: i8[] = const {0}
  %%z: u8[] = const {%d}
  %%q: u8[1,2] = QuantizeLinear "q" (%%x, %%one, %%mid)
  %%d: f32[1,2] = DequantizeLinear "d" (%%q, %%one, %%mid)
  %%f: f32[2,2] = DequantizeLinear "f" (%%w, %%one, %%no)
  %%m: f32[1,2] = MatMul "m" (%%d, %%f)
  %%p: u8[1,2] = QuantizeLinear "p" (%%m, %%one, %%z)
  %%e: f32[1,2] = DequantizeLinear "e" (%%p, %%one, %%z)
  %%y: f32[1,2] = Add "y" (%%e, %%r)
  return %%y
}`, zero))
		m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for _, x := range [][]float32{{1, 0}, {-5, 0}, {2, 4}, {0, -7}} {
			out, err := m.Run(context.Background(), map[string]*tensor.Tensor{"x": tensor.From(x, 1, 2), "r": tensor.From([]float32{10, 20}, 1, 2)})
			if err != nil {
				t.Fatal(err)
			}
			sum := x[0] + 100*x[1]
			for i, v := range []float32{sum, -sum} {
				want := min(max(v, float32(-zero)), float32(255-zero)) + []float32{10, 20}[i]
				if y := out["y"].F32s()[i]; y != want {
					t.Errorf("zero point %d: element %d for %v is %g, want %g", zero, i, x, y, want)
				}
			}
		}
	}
}

// NaN becomes the lowest code of an integer type, in the interpreter and in every kernel.
func TestNaNBecomesOneCode(t *testing.T) {
	const n = 70 // more than any kernel takes at once
	nan := float32(math.NaN())
	for dt, lowest := range map[string]float32{"u8": 0, "i8": -128} {
		file := graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%%x: f32[1,%d]) {
  %%s: f32[] = const {0.5}
  %%z: %s[] = const {3}
  %%w: i8[%d,2] = const {%s}
  %%no: i8[] = const {0}
  %%q: %s[1,%d] = QuantizeLinear "q" (%%x, %%s, %%z)
  %%d: f32[1,%d] = DequantizeLinear "d" (%%q, %%s, %%z)
  %%f: f32[%d,2] = DequantizeLinear "f" (%%w, %%s, %%no)
  %%y: f32[1,2] = MatMul "m" (%%d, %%f)
  return %%y, %%d
}`, n, dt, n, numbers(2*n, func() string { return "2" }), dt, n, n, n))
		x := tensor.New(tensor.F32, 1, n)
		for i := range x.F32s() {
			x.F32s()[i] = float32(i%5) - 1
			if i%3 == 0 {
				x.F32s()[i] = nan
			}
		}
		m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		out, err := m.Run(context.Background(), map[string]*tensor.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		sum := float32(0)
		for i, v := range x.F32s() {
			want := v
			if i%3 == 0 {
				want = 0.5 * (lowest - 3)
			}
			if d := out["d"].F32s()[i]; d != want {
				t.Errorf("%s: element %d is %g, want %g", dt, i, d, want)
			}
			sum += want
		}
		for i, y := range out["y"].F32s() {
			if y != sum {
				t.Errorf("%s: sum %d is %g, want %g", dt, i, y, sum)
			}
		}
	}
}
