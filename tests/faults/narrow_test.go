package faults

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"spc"
	"spc/backend/format"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/lower/spx"
	"spc/tests/graphtest"
)

// narrow are models with weights of narrow types, drawn from r: f32[4,32] to f32[4,32] by
// two weights, of which the second stays by default. Each has the type that the first is
// to have in the ONNX model and in the compiled one, and the element that stands for 0.
var narrow = []struct {
	name            string
	exported, bound tensor.DType
	zero            int64
	text            func(r *rand.Rand) string
}{
	{"i8, symmetric, by channel", tensor.I8, tensor.I8, 0, func(r *rand.Rand) string {
		return activations + scales(r) + codes(r, tensor.I8, "w", -127, 127) + codes(r, tensor.I8, "last", -127, 127) + `
  %f: f32[32,32] = DequantizeLinear "f" (%w, %s, %noshift) {axis = 1}
  %a: f32[4,32] = MatMul "a" (%d, %f)` + second
	}},
	{"i8, behind a Transpose", tensor.I8, tensor.I8, 0, func(r *rand.Rand) string {
		return activations + scales(r) + codes(r, tensor.I8, "w", -127, 127) + codes(r, tensor.I8, "last", -127, 127) + `
  %g: f32[32,32] = DequantizeLinear "g" (%w, %s, %noshift) {axis = 0}
  %f: f32[32,32] = Transpose "f" (%g) {perm = [1, 0]}
  %a: f32[4,32] = MatMul "a" (%d, %f)` + second
	}},
	{"i8, as a Gemm with a bias", tensor.I8, tensor.I8, 0, func(r *rand.Rand) string {
		return activations + scales(r) + codes(r, tensor.I8, "w", -127, 127) + codes(r, tensor.I8, "last", -127, 127) + `
  %bias: f32[32] = const {` + strings.Repeat("0.5, ", 31) + `0.25}
  %f: f32[32,32] = DequantizeLinear "f" (%w, %s, %noshift) {axis = 0}
  %a: f32[4,32] = Gemm "a" (%d, %f, %bias) {transB = 1}` + second
	}},
	{"u8 with a shift, by tensor", tensor.U8, tensor.F32, 117, func(r *rand.Rand) string {
		return activations + scales(r) + codes(r, tensor.U8, "w", 0, 255) + codes(r, tensor.I8, "last", -127, 127) + `
  %z: u8[] = const {117}
  %f: f32[32,32] = DequantizeLinear "f" (%w, %one, %z)
  %a: f32[4,32] = MatMul "a" (%d, %f)` + second
	}},
	{"u8 around 128", tensor.U8, tensor.I8, 128, func(r *rand.Rand) string {
		return activations + scales(r) + codes(r, tensor.U8, "w", 1, 255) + codes(r, tensor.I8, "last", -127, 127) + `
  %z: u8[] = const {128}
  %f: f32[32,32] = DequantizeLinear "f" (%w, %one, %z)
  %a: f32[4,32] = MatMul "a" (%d, %f)` + second
	}},
	{"i4 in blocks, activations in floats", tensor.I4, tensor.F32, 0, func(r *rand.Rand) string {
		return activations + scales(r) + codes(r, tensor.I4, "w", -7, 7) + codes(r, tensor.I8, "last", -127, 127) + `
  %b: f32[4,32] = const {` + numbers(128, func() string { return fmt.Sprintf("%.4f", 0.01+r.Float64()/8) }) + `}
  %f: f32[32,32] = DequantizeLinear "f" (%w, %b) {axis = 0, block_size = 8}
  %a: f32[4,32] = MatMul "a" (%x, %f)` + second
	}},
	{"as QLinearMatMul", tensor.I8, tensor.I8, 0, func(r *rand.Rand) string {
		return activations + scales(r) + codes(r, tensor.I8, "w", -127, 127) + codes(r, tensor.I8, "last", -127, 127) + `
  %q2: u8[4,32] = QLinearMatMul "a" (%q, %sx, %zx, %w, %one, %scalar, %sx, %zx)
  %a: f32[4,32] = DequantizeLinear "d2" (%q2, %sx, %zx)` + second
	}},
	{"f16 behind a Cast", tensor.F16, tensor.F32, 0, func(r *rand.Rand) string {
		return activations + scales(r) + floats(r, tensor.F16, "w") + codes(r, tensor.I8, "last", -127, 127) + `
  %f: f32[32,32] = Cast "f" (%w) {to = 1}
  %a: f32[4,32] = MatMul "a" (%x, %f)` + second
	}},
	{"f16 throughout", tensor.F16, tensor.F32, 0, func(r *rand.Rand) string {
		return floats(r, tensor.F16, "w") + floats(r, tensor.F16, "last") + `
  %h: f16[4,32] = Cast "h" (%x) {to = 10}
  %a: f16[4,32] = MatMul "a" (%h, %w)
  %b: f16[4,32] = MatMul "b" (%a, %last)
  %y: f32[4,32] = Cast "y" (%b) {to = 1}`
	}},
	{"bf16 throughout", tensor.BF16, tensor.F32, 0, func(r *rand.Rand) string {
		return floats(r, tensor.BF16, "w") + floats(r, tensor.BF16, "last") + `
  %h: bf16[4,32] = Cast "h" (%x) {to = 16}
  %a: bf16[4,32] = MatMul "a" (%h, %w)
  %b: bf16[4,32] = MatMul "b" (%a, %last)
  %y: f32[4,32] = Cast "y" (%b) {to = 1}`
	}},
}

const activations = `
  %sx: f32[] = const {0.03}
  %zx: u8[] = const {131}
  %one: f32[] = const {0.02}
  %scalar: i8[] = const {0}
  %q: u8[4,32] = QuantizeLinear "q" (%x, %sx, %zx)
  %d: f32[4,32] = DequantizeLinear "d" (%q, %sx, %zx)`

const second = `
  %l: f32[32,32] = DequantizeLinear "l" (%last, %one, %scalar)
  %y: f32[4,32] = MatMul "b" (%a, %l)`

func numbers(n int, next func() string) string {
	v := make([]string, n)
	for i := range v {
		v[i] = next()
	}
	return strings.Join(v, ", ")
}

func codes(r *rand.Rand, dt tensor.DType, name string, lo, hi int) string {
	return matrix(dt, name, func() float64 { return float64(lo + r.IntN(hi-lo+1)) })
}

func floats(r *rand.Rand, dt tensor.DType, name string) string {
	return matrix(dt, name, func() float64 { return float64(r.IntN(255)-127) / 64 })
}

func matrix(dt tensor.DType, name string, next func() float64) string {
	v := make([]float64, 1024)
	for i := range v {
		v[i] = next()
	}
	t := tensor.FromFloat64s(tensor.F64, v, 32, 32).To(dt)
	return fmt.Sprintf("\n  %%%s: %v = const base64\"%s\"", name, t, base64.StdEncoding.EncodeToString(t.Bytes()))
}

// scales draws scales of channels that differ widely.
func scales(r *rand.Rand) string {
	return "\n  %s: f32[32] = const {" + numbers(32, func() string { return fmt.Sprintf("%.5f", 0.002+r.Float64()/10) }) + "}" +
		"\n  %noshift: i8[32] = const {" + numbers(32, func() string { return "0" }) + "}"
}

// Weights of narrow types are pruned as others are, to the same zeros by compile and by
// prune, and stay as narrow as they are.
func TestNarrowWeightsArePrunedAndStayNarrow(t *testing.T) {
	const seed = 60
	t.Logf("seed %d", seed)
	for i, c := range narrow {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			file := graphtest.ONNX(t, "graph \"g\"(%x: f32[4,32]) {"+c.text(r)+"\n  return %y\n}")
			old := weight(t, file)
			for _, pattern := range []string{"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:4x1"} {
				o := spc.CompileOptions{Bytes: file, Prune: spc.PruneOptions{Pattern: graphtest.Pattern(pattern), Sparsity: 0.5, KeepEnds: true}, Debug: spc.DebugOptions{Verify: true}, Run: spc.RunOptions{Threads: 1}}
				p, err := spc.Prune(context.Background(), o)
				if err != nil {
					t.Fatalf("%s: %v", pattern, err)
				}
				m, err := spc.Compile(context.Background(), o)
				if err != nil {
					t.Fatalf("%s: %v", pattern, err)
				}
				defer m.Close()
				var out bytes.Buffer
				if err := p.Write(&out); err != nil {
					t.Fatal(err)
				}
				now := weight(t, out.Bytes())
				if now.DType() != c.exported || old.DType() != c.exported {
					t.Fatalf("%s: %v became %v, want %v", pattern, old, now, c.exported)
				}
				zeros, before := 0, old.Permute(perm(old, now)...).Float64s()
				for i, v := range now.Float64s() {
					switch {
					case int64(v) == c.zero && v == float64(c.zero):
						zeros++
					case v != before[i]:
						t.Fatalf("%s: element %d became %g, was %g", pattern, i, v, before[i])
					}
				}
				if zeros < 512 || zeros > 550 {
					t.Errorf("%s: %d of 1024 elements are zero, want about half", pattern, zeros)
				}
				for what, report := range map[string]*spc.Report{"prune": p.Explain(), "compile": m.Explain()} {
					if n := report.Totals; n.Prunable != 1024 || n.PrunableZeros < 512 || n.PrunableZeros > 550 {
						t.Errorf("%s: %s reports %d zeros of %d prunable weights", pattern, what, n.PrunableZeros, n.Prunable)
					}
				}
				compiled := bound(t, m)
				if compiled.DType() != c.bound {
					t.Fatalf("%s: the compiled weight is %v, want %v", pattern, compiled, c.bound)
				}
				if got, want := places(compiled, 0), places(now.Permute(perm(now, compiled)...), c.zero); got != want {
					t.Errorf("%s: compile and prune leave other weights", pattern)
				}
				// The exported model computes what the compiled one does.
				again, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: out.Bytes(), Run: spc.RunOptions{Threads: 1}})
				if err != nil {
					t.Fatal(err)
				}
				defer again.Close()
				x := tensor.New(tensor.F32, 4, 32)
				for i := range x.F32s() {
					x.F32s()[i] = float32(r.IntN(200)-100) * 0.03
				}
				var y [2]*tensor.Tensor
				for i, m := range []*spc.Model{m, again} {
					out, err := m.Run(context.Background(), map[string]*tensor.Tensor{"x": x})
					if err != nil {
						t.Fatal(err)
					}
					y[i] = out["y"]
				}
				if !y[0].Equal(y[1]) {
					t.Errorf("%s: the model that prune writes computes something else", pattern)
				}
			}
		})
	}
}

// perm tells whether the one is the other transposed: they are square.
func perm(a, b *tensor.Tensor) []int {
	if a.Rank() != 2 || b.Rank() != 2 {
		return nil
	}
	for _, p := range [][]int{{0, 1}, {1, 0}} {
		x, same, y := a.Permute(p...).Float64s(), 0, b.Float64s()
		for i := range x {
			if x[i] == y[i] {
				same++
			}
		}
		if same > len(x)/3 {
			return p
		}
	}
	return []int{0, 1}
}

// places tells where a weight has zeros.
func places(w *tensor.Tensor, zero int64) string {
	b := make([]byte, w.Len())
	for i, v := range w.Float64s() {
		if v == float64(zero) {
			b[i] = 1
		}
	}
	return string(b)
}

// weight returns the first weight of an ONNX model.
func weight(t *testing.T, file []byte) *tensor.Tensor {
	t.Helper()
	g, _, err := onnx.ImportBytes(file, "", onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return named(t, g)
}

func named(t *testing.T, g *ir.Graph) *tensor.Tensor {
	t.Helper()
	for _, v := range g.Constants() {
		if v.Name != "w" {
			continue
		}
		if v.Store == nil {
			return v.Const
		}
		w, err := format.Unpack(v.Store, v.Type)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	t.Fatalf("no weight is named w in\n%.2000s", g)
	return nil
}

// bound returns the first weight of a compiled model.
func bound(t *testing.T, m *spc.Model) *tensor.Tensor {
	t.Helper()
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		t.Fatal(err)
	}
	f, err := spx.Read(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return named(t, f.Graph)
}

// Channels have scales of their own, which cannot go with them.
func TestChannelsOfQuantisedWeightsStay(t *testing.T) {
	file := graphtest.ONNX(t, "graph \"g\"(%x: f32[4,32]) {"+narrow[0].text(rand.New(rand.NewPCG(1, 0)))+"\n  return %y\n}")
	_, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Prune: spc.PruneOptions{Pattern: spc.Pattern{Kind: spc.Channel}, Sparsity: 0.5}})
	if !errors.Is(err, spc.ErrUnsupported) || !strings.Contains(err.Error(), "weight w has scales of its channels") {
		t.Errorf("error %v", err)
	}
}
