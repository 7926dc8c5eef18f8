package suite

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/backend/cuda"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/e2e"
	"spc/tests/graphtest"
)

// integers is a program of 8-bit integers: products that take and give u8 and floats, with
// residuals of both, operators that move u8, and u8 that goes to the CPU and comes from there.
func integers() string {
	rng := rand.New(rand.NewPCG(seed, 9))
	list := func(n, from, to int) string {
		var s []string
		for range n {
			s = append(s, fmt.Sprint(from+rng.IntN(to-from)))
		}
		return "{" + strings.Join(s, ", ") + "}"
	}
	return `graph "g"(%x: f32[n,5,9,7], %t: f32[n,3,20]) {
  %s: f32[] = const {0.02}
  %z: u8[] = const {117}
  %s2: f32[5] = const {0.02, 0.05, 0.01, 0.03, 0.04}
  %z2: u8[5] = const {128, 0, 255, 7, 100}
  %w1: i8[8,5,1,1] = const ` + list(40, -128, 128) + `
  %w3: i8[6,8,3,3] = const ` + list(432, -128, 128) + `
  %b3: f32[6] = const {0.1, -0.5, 2.0, 0.0, -3.0, 1.25}
  %wm: i8[20,7] = const ` + list(140, -128, 128) + `
  %wg: i8[9,7] = const ` + list(63, -128, 128) + `
  %w9: i8[4,5,9,7] = const ` + list(1260, -128, 128) + `
  %w4: i8[3,4,1,1] = const ` + list(12, -128, 128) + `
  %wd: i8[8,1,3,3] = const ` + list(72, -128, 128) + `
  %b4: f32[3] = const {400.0, -300.0, 500.0}
  %bm: f32[7] = const {0.5, 0.25, -1.0, 0.0, 3.0, -0.125, 1.0}
  %at: i64[3] = const {4, 0, -1}
  %one: i64[1] = const {1}
  %six: i64[1] = const {12}
  %three: i64[1] = const {3}
  %four: i64[1] = const {4}
  %flat: i64[2] = const {-1, 7}
  %q: u8[n,5,9,7] = QuantizeLinear "quantize" (%x, %s, %z)
  %p: u8[n,5,9,7] = QuantizeLinear "by channel" (%x, %s2, %z2)
  %d: f32[n,5,9,7] = DequantizeLinear "of channels" (%p, %s2, %z2)
  %c: u8[n,8,9,7] = Conv "pixels" (%q, %w1) {spc_act = "Relu", spc_w_scale = [0.01], spc_x_scale = 0.02, spc_x_zero = 117, spc_y_scale = 0.03}
  %f: f32[n,8,9,7] = Conv "to floats" (%q, %w1) {spc_w_scale = [0.01], spc_x_scale = 0.02, spc_x_zero = 117}
  %v: u8[n,6,5,4] = Conv "patches" (%c, %w3, %b3) {pads = [1, 1, 1, 1], spc_w_scale = [0.01, 0.02, 0.004, 0.01, 0.01, 0.03], spc_x_scale = 0.03, spc_y_scale = 0.2, spc_y_zero = 120, strides = [2, 2]}
  %r: u8[n,6,5,4] = Conv "residual" (%c, %w3, _, %v) {pads = [1, 1, 1, 1], spc_r_scale = 0.2, spc_r_zero = 120, spc_w_scale = [0.01], spc_x_scale = 0.03, spc_y_scale = 0.4, spc_y_zero = 100, strides = [2, 2]}
  %g: f32[n,8,9,7] = Conv "sum" (%q, %w1, _, %f) {spc_act = "Clip", spc_act_args = [-1.0, 5.0], spc_w_scale = [0.02], spc_x_scale = 0.02, spc_x_zero = 117}
  %m: u8[n,8,4,3] = MaxPool "pool" (%c) {kernel_shape = [3, 2], strides = [2, 2]}
  %k: u8[n,12,5,4] = Concat "concat" (%v, %r) {axis = 1}
  %tr: u8[n,5,4,12] = Transpose "transpose" (%k) {perm = [0, 2, 3, 1]}
  %sl: u8[n,5,4,3] = Slice "slice" (%tr, %one, %six, %three, %four)
  %ga: u8[n,3,4,12] = Gather "gather" (%tr, %at) {axis = 1}
  %y1: f32[n,8,4,3] = DequantizeLinear "pooled" (%m, %s)
  %y2: f32[n,5,4,3] = DequantizeLinear "sliced" (%sl, %s, %z)
  %y3: f32[n,3,4,12] = DequantizeLinear "gathered" (%ga, %s, %z)
  %tq: u8[n,3,20] = QuantizeLinear "tokens" (%t, %s, %z)
  %h: u8[n,3,7] = MatMul "matmul" (%tq, %wm, %bm) {spc_act = "LeakyRelu", spc_act_args = [0.25], spc_w_scale = [0.01], spc_x_scale = 0.02, spc_x_zero = 117, spc_y_scale = 0.05, spc_y_zero = 30}
  %fl: u8[tokens,7] = Reshape "view" (%h, %flat)
  %y4: f32[tokens,9] = Gemm "gemm" (%fl, %wg) {spc_w_scale = [0.01], spc_x_scale = 0.05, spc_x_zero = 30, transB = 1}
  %cast: f32[n,8,9,7] = Cast "leaves" (%c) {to = 1}
  %y5: f32[n,8,9,7] = Mul "returns" (%cast, %g)
  %dq: u8[n,8,9,7], %ds: f32[], %dz: u8[] = DynamicQuantizeLinear "dynamic" (%g)
  %y6: f32[n,8,9,7] = DequantizeLinear "computed" (%dq, %ds, %dz)
  %px: u8[n,4,1,1] = Conv "pixel" (%q, %w9) {spc_w_scale = [0.01], spc_x_scale = 0.02, spc_x_zero = 117, spc_y_scale = 0.5, spc_y_zero = 99}
  %y7: f32[n,3,1,1] = Conv "pixel by pixel" (%px, %w4, %b4) {spc_w_scale = [0.02], spc_x_scale = 0.5, spc_x_zero = 99}
  %dw: u8[n,8,9,7] = Conv "depthwise" (%c, %wd) {group = 8, pads = [1, 1, 1, 1], spc_w_scale = [0.01], spc_x_scale = 0.03, spc_y_scale = 0.2, spc_y_zero = 110}
  %y8: f32[n,8,9,7] = DequantizeLinear "from the CPU" (%dw, %s)
  return %d, %g, %y1, %y2, %y3, %y4, %y5, %y6, %y7, %y8
}`
}

// Quantised tests models in 8-bit integers, with weights in each of the formats, against the
// interpreter: that they give the same, and stay on the GPU. Where floats lie between integers, sums
// in another order round a few elements to the neighbouring integer, and results may be twice
// as far off as the CPU's, or 1e-5.
func Quantised(t *testing.T, driver cuda.Driver) {
	build := func(arch string) func(t *testing.T) ([]byte, []*tensor.Tensor) {
		return func(t *testing.T) ([]byte, []*tensor.Tensor) {
			i := slices.IndexFunc(archs.Tiny, func(a archs.Arch) bool { return a.Name == arch })
			m, err := archs.Tiny[i].Build(1)
			if err != nil {
				t.Fatal(err)
			}
			return m.Bytes(), nil
		}
	}
	stored := func(name string) func(t *testing.T) ([]byte, []*tensor.Tensor) {
		return func(t *testing.T) ([]byte, []*tensor.Tensor) {
			dir := filepath.Join(e2e.Root(), name)
			if _, err := os.Stat(dir); err != nil {
				t.Skipf("shared data missing: %v", err)
			}
			model, err := os.ReadFile(filepath.Join(dir, "model.onnx"))
			if err != nil {
				t.Fatal(err)
			}
			in, err := e2e.Stored(dir, "input")
			if err != nil {
				t.Fatal(err)
			}
			return model, in
		}
	}
	for _, c := range []struct {
		name     string
		load     func(t *testing.T) ([]byte, []*tensor.Tensor)
		pattern  string
		sparsity float64
		format   spc.Format
		between  bool  // floats lie between integers
		parts    int64 // of the GPU
	}{
		{"resnet", build("resnet"), "uniform", 0, "dense", false, 1},
		{"resnet in groups", build("resnet"), "block:1x4", 0.6, "block", false, 1},
		{"resnet 2:4", build("resnet"), "2:4", 0.5, "nm", false, 1},
		{"mobilenet", build("mobilenet"), "uniform", 0, "dense", true, 1},
		{"vit", build("vit"), "uniform", 0, "dense", true, 1},
		{"resnet20-cifar10", stored("resnet20-cifar10"), "uniform", 0, "", false, 1},
		{"squeezenet1.1-imagenet", stored("squeezenet1.1-imagenet"), "uniform", 0, "", false, 1},
		{"mobilenetv2-imagenet", stored("mobilenetv2-imagenet"), "uniform", 0, "", true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			model, in := c.load(t)
			inputs := func(ports []spc.Port, seed uint64) map[string]*tensor.Tensor {
				rng := rand.New(rand.NewPCG(seed, 4))
				all := map[string]*tensor.Tensor{}
				for i, p := range ports {
					if in != nil {
						all[p.Name] = in[i]
						continue
					}
					shape := make([]int, len(p.Dims))
					for k, d := range p.Dims {
						if shape[k] = 2; d.Known() {
							shape[k] = d.Size()
						}
					}
					all[p.Name] = draw(rng, tensor.F32, shape...)
				}
				return all
			}
			d := &Counted{Driver: driver}
			m, err := spc.Compile(t.Context(), spc.CompileOptions{
				Bytes: model, Format: c.format, Target: spc.CUDA,
				Prune:    spc.PruneOptions{Pattern: graphtest.Pattern(c.pattern), Sparsity: c.sparsity, Method: spc.Magnitude, Allocate: spc.PerLayer},
				Quantize: spc.QuantizeOptions{Type: tensor.I8, KeepNone: true},
				Calibration: spc.Calibration{Inputs: func(_ context.Context, ports []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
					return func(yield func(map[string]*tensor.Tensor, error) bool) { yield(inputs(ports, 1), nil) }
				}},
				Run: spc.RunOptions{Threads: 1, Device: cuda.Device{Driver: d}},
			})
			if err != nil {
				t.Fatal(err)
			}
			x := inputs(m.Inputs(), 2)
			want, err := m.Interpret(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			limit := 1e-5
			if c.between {
				file := filepath.Join(t.TempDir(), "cpu.spx")
				if err := m.Save(file); err != nil {
					t.Fatal(err)
				}
				host, err := spc.Open(file, spc.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				limit = max(limit, 2*quantisedError(t, host, x, want))
				if err := host.Close(); err != nil {
					t.Fatal(err)
				}
			}
			off := quantisedError(t, m, x, want)
			t.Logf("relative l2 error %.1e, limit %.1e, %d products, %d launches, %d parts", off, limit, m.Explain().Quant.Products, d.launches.Load(), d.replays.Load())
			if !(off <= limit) {
				t.Errorf("relative l2 error %.1e, want at most %.1e", off, limit)
			}
			if d.replays.Load() > c.parts {
				t.Errorf("%d parts of the GPU, want %d", d.replays.Load(), c.parts)
			}
			if err := m.Close(); err != nil || d.held.Load() != 0 {
				t.Errorf("%d allocations are left after Close: %v", d.held.Load(), err)
			}
		})
	}
}

// quantisedError runs a model and returns the largest relative l2 error of its outputs.
func quantisedError(t *testing.T, m *spc.Model, x, want map[string]*tensor.Tensor) (worst float64) {
	t.Helper()
	have, err := m.Run(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		off, err := e2e.RelL2(have[name], want[name])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		worst = max(worst, off)
	}
	return worst
}
