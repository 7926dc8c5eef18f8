package spc_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// Codes that have one scale for all keep it where prune writes them, whichever way round a product reads them.
func TestPruneWritesCodesOfOneScale(t *testing.T) {
	for name, node := range map[string]string{
		"MatMul": `%y: f32[2,3] = MatMul "p" (%x, %w)`,
		"Gemm":   `%y: f32[2,3] = Gemm "p" (%x, %w)`,
	} {
		for _, zero := range []string{"u8[] = const {0}", "u8[] = const {99}"} {
			file := graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%%x: f32[2,2]) {
  %%c: u8[2,3] = const {105, 99, 94, 87, 101, 120}
  %%s: f32[] = const {0.125}
  %%z: %s
  %%w: f32[2,3] = DequantizeLinear "w" (%%c, %%s, %%z)
  %s
  return %%y
}`, zero, node))
			p, err := spc.Prune(context.Background(), spc.CompileOptions{Bytes: file, Quantize: spc.QuantizeOptions{Type: tensor.I8, Block: 16}})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := p.Write(&out); err != nil {
				t.Fatal(err)
			}
			in := map[string]*tensor.Tensor{"x": tensor.From([]float32{1, -2, 0.5, 3}, 2, 2)}
			var y [2][]float32
			for i, b := range [][]byte{file, out.Bytes()} {
				m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: b})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				y[i] = outputOf(t, m, in)
			}
			for i := range y[0] {
				if d := math.Abs(float64(y[0][i] - y[1][i])); !(d <= 1e-4) {
					t.Errorf("%s, %s: element %d is %v in what prune writes, want %v", name, zero, i, y[1][i], y[0][i])
				}
			}
		}
	}
}
