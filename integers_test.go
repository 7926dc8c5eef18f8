package spc_test

import (
	"bytes"
	"strings"
	"testing"

	"spc"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/spx"
)

// Weights i8 in a format that has no kernels for them, as a file may hold, are multiplied all the same.
func TestIntegersInEveryFormatRun(t *testing.T) {
	const text = `graph "g"(%x: u8[1,4]) {
  %w: i8[4,2] = stored STORE {PARTS}
  %y: f32[1,2] = MatMul "fc" (%x, %w) {spc_x_scale = 0.5, spc_x_zero = 2, spc_w_scale = [1.0, 2.0]}
  return %y
}`
	x, _ := tensor.FromBytes(tensor.U8, []int{1, 4}, []byte{3, 5, 12, 0})
	// W is 0 1 0 0 over 5 0 -3 0, and x less its zero point 1 3 10 -2.
	want := []float32{0.5 * 3, 0.5 * 2 * (5 - 30)}
	for _, c := range [][2]string{
		{`"ell"("1x1") [1, 0] 1, 2 x 4`, "columns = u16[2,2] {0, 1, 0, 2}, values = i8[2,2,1] {0, 1, 5, -3}"},
		{`"csr"("") [1, 0] 1, 2 x 4`, "rows = u32[3] {0, 1, 3}, columns = u16[3] {1, 0, 2}, values = i8[3] {1, 5, -3}"},
		{`"hyb"("2x1+1") [1, 0] 1, 2 x 4`, "columns = u16[3] {0, 1, 2}, rows = u32[3] {0, 1, 2}, values = i8[4] {0, 5, 1, -3}"},
		{`"dense"("") [1, 0] 1, 2 x 4`, "values = i8[2,4] {0, 1, 0, 0, 5, 0, -3, 0}"},
		{`"nm"("2:4") [1, 0] 1, 2 x 4`, "values = i8[2,2] {0, 1, 5, -3}, positions = u8[2,1] {4, 8}"},
		{`"nm"("1:2") [1, 0] 1, 2 x 4`, "values = i8[2,2] {1, 0, 5, -3}, positions = u8[2,1] {1, 0}"},
		{`"block"("1x4") [1, 0] 1, 2 x 4`, "rows = u32[3] {0, 1, 2}, columns = u16[2] {0, 0}, values = i8[2,4,1] {0, 1, 0, 0, 5, 0, -3, 0}"},
		{`"block"("2x1") [1, 0] 1, 2 x 4`, "rows = u32[2] {0, 3}, columns = u16[3] {0, 1, 2}, values = i8[3,1,2] {0, 5, 1, 0, 0, -3}"},
	} {
		g, err := ir.Parse(strings.NewReplacer("STORE", c[0], "PARTS", c[1]).Replace(text), op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := spx.Write(&file, &spx.File{Graph: g}); err != nil {
			t.Fatal(err)
		}
		m, err := spc.Read(file.Bytes(), spc.RunOptions{})
		if err != nil {
			t.Errorf("%s: %v", c[0], err)
			continue
		}
		out, err := m.Run(t.Context(), map[string]*tensor.Tensor{"x": x})
		if err != nil || !out["y"].Equal(tensor.From(want, 1, 2)) {
			t.Errorf("%s: %v, %v", c[0], out, err)
		}
		m.Close()
	}
}
