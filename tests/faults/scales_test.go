package faults

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"spc"
	"spc/backend/ref"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// Products of 8 bits give what the interpreter does of the model as it is imported, also where
// products and quotients of their scales overflow or become zero in floats.
func TestScalesBeyondFloats(t *testing.T) {
	forms := map[string]string{
		"QDQ": `
  %d: f32[1,2] = DequantizeLinear "d" (%q, %sx, %mid)
  %f: f32[2,2] = DequantizeLinear "f" (%w, %sw, %no)
  %m: f32[1,2] = MatMul "m" (%d, %f)
  %p: u8[1,2] = QuantizeLinear "p" (%m, %sy, %mid)`,
		"QDQ with a residual": `
  %d: f32[1,2] = DequantizeLinear "d" (%q, %sx, %mid)
  %f: f32[2,2] = DequantizeLinear "f" (%w, %sw, %no)
  %one: f32[] = const {1}
  %qr: u8[1,2] = QuantizeLinear "qr" (%x, %one, %mid)
  %r: f32[1,2] = DequantizeLinear "r" (%qr, %sy, %mid)
  %n: f32[1,2] = MatMul "n" (%d, %f)
  %m: f32[1,2] = Add "m" (%n, %r)
  %p: u8[1,2] = QuantizeLinear "p" (%m, %sy, %mid)`,
		"QLinearMatMul": `
  %p: u8[1,2] = QLinearMatMul "p" (%q, %sx, %mid, %w, %sw, %no, %sy, %mid)`,
	}
	for _, s := range [][3]string{ // of x, the weight and y
		{"0.5", "0.25", "2"},
		{"1e20", "1e20", "0.05"}, {"1e20", "1e20", "1e30"}, {"1e20", "1e16", "3e38"}, {"1e37", "1", "1e35"}, {"1e37", "1e-3", "1e34"}, {"1", "1e37", "1e37"}, {"1e-3", "1e37", "1e34"},
		{"1e20", "1", "1e-30"},
		{"1e-25", "1e-25", "0.05"}, {"1e-25", "1e-25", "1e-44"}, {"1e-20", "1e-20", "1e-42"}, {"1e37", "1e-45", "1e-9"}, {"1e-40", "1e30", "1e-10"}, {"1e-40", "1e10", "1e-30"},
		{"1", "1", "1e-40"}, {"1", "1", "1e-44"}, {"1e-20", "1e-18", "1e20"},
	} {
		for form, text := range forms {
			file := graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%%x: f32[1,2]) {
  %%sx: f32[] = const {%s}
  %%sw: f32[] = const {%s}
  %%sy: f32[] = const {%s}
  %%mid: u8[] = const {128}
  %%w: i8[2,2] = const {1, -1, 100, -100}
  %%no: i8[] = const {0}
  %%q: u8[1,2] = QuantizeLinear "q" (%%x, %%sx, %%mid)
  %s
  return %%p
}`, s[0], s[1], s[2], text))
			g, _, err := onnx.ImportBytes(file, "", onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Debug: spc.DebugOptions{Verify: true}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for _, v := range [][]float32{{0, 0}, {1e20, 0}, {2e20, 2e20}, {3e38, 3e38}, {-3e38, -3e38}, {1e-25, 0}, {1, 1}, {7, 9}, {3e-25, 1e-24}, {1e-40, 1e-39}} {
				x := tensor.From(v, 1, 2)
				want, err := ref.Run(context.Background(), g, []*tensor.Tensor{x})
				if err != nil {
					t.Fatal(err)
				}
				got, err := m.Run(context.Background(), map[string]*tensor.Tensor{"x": x})
				if err != nil {
					t.Fatal(err)
				}
				if !got["p"].Equal(want[0]) {
					t.Errorf("%s, scales %v: %v becomes %v, want %v", form, s, v, got["p"].Bytes(), want[0].Bytes())
				}
			}
		}
	}
}

// A bias with which sums leave 32 bits does not make them wrap around.
func TestSumsBeyondTheirBias(t *testing.T) {
	for _, bias := range []string{"2147483647", "-2147483648"} {
		file := graphtest.ONNX(t, `graph "g"(%x: u8[1,1,1,2]) {
  %one: f32[] = const {1}
  %zero: u8[] = const {0}
  %no: i8[] = const {0}
  %mid: u8[] = const {20}
  %w: i8[2,1,1,1] = const {1, -1}
  %sy: f32[] = const {1e7}
  %b: i32[2] = const {`+bias+`, `+bias+`}
  %y: u8[1,2,1,2] = QLinearConv "y" (%x, %one, %zero, %w, %one, %no, %sy, %mid, %b)
  return %y
}`)
		want := []byte{235, 235, 235, 235}
		if bias[0] == '-' {
			want = []byte{0, 0, 0, 0}
		}
		g, _, err := onnx.ImportBytes(file, "", onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Debug: spc.DebugOptions{Verify: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		x := tensor.From([]uint8{0, 255}, 1, 1, 1, 2)
		interpreted, err := ref.Run(context.Background(), g, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := m.Run(context.Background(), map[string]*tensor.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		for what, y := range map[string]*tensor.Tensor{"interpreted": interpreted[0], "compiled": compiled["y"]} {
			if !bytes.Equal(y.Bytes(), want) {
				t.Errorf("%s, bias %s: %v, want %v", what, bias, y.Bytes(), want)
			}
		}
	}
}
