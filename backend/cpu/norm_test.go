package cpu

import (
	"context"
	"fmt"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// A scale or a bias with as many elements as rows have that lie along another axis, or that differs between rows.
func TestNormsWhoseScaleLiesAlongOtherAxes(t *testing.T) {
	in := tensor.New(tensor.F32, 2, 3, 3)
	for i := range in.F32s() {
		in.F32s()[i] = float32(i * i % 7)
	}
	for _, node := range []string{
		`LayerNormalization "n" (%x, %row, %column)`, `LayerNormalization "n" (%x, %column, %row)`, `LayerNormalization "n" (%x, %row, %first)`,
		`RMSNormalization "n" (%x, %column)`, `RMSNormalization "n" (%x, %first)`,
	} {
		matchesReference(t, node, in, fmt.Sprintf(`graph "g"(%%x: f32[2,3,3]) {
  %%row: f32[1,3] = const {1, 2, 3}
  %%column: f32[3,1] = const {1, 2, 3}
  %%first: f32[2,1,1] = const {1, 2}
  %%y: f32[2,3,3] = %s
  return %%y }`, node))
	}
}

// Sums of elements and squares that float32 does not hold, a mean that dwarfs the deviation, and zeros.
func TestNormsOfExtremes(t *testing.T) {
	rows := [][]float32{{1.5e38, 1.5e38, 1e38, 1.2e38}, {1e-30, -2e-30, 1e-30, 0}, {1000, 1000.25, 999.75, 1000}, {0, 0, 0, 0}, {7, 7, 7, 7}}
	in := tensor.New(tensor.F32, 1, len(rows), 4)
	for i, r := range rows {
		copy(in.F32s()[4*i:], r)
	}
	for _, node := range []string{
		`InstanceNormalization "n" (%x, %w, %w)`, `GroupNormalization "n" (%x, %w, %w) {num_groups = 5}`,
		`LpNormalization "n" (%x) {p = 1}`, `LpNormalization "n" (%x) {p = 2}`,
	} {
		matchesReference(t, node, in, fmt.Sprintf(`graph "g"(%%x: f32[1,5,4]) {
  %%w: f32[5] = const {1.0, 2.0, 1.0, 2.0, 3.0}
  %%y: f32[1,5,4] = %s
  return %%y }`, node))
	}
}

// matchesReference compares what a program makes of the text of a graph and of in with what the interpreter makes of them.
func matchesReference(t *testing.T, name string, in *tensor.Tensor, text string) {
	t.Helper()
	g := graphtest.Parse(t, text)
	want, err := ref.Run(context.Background(), g, []*tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Device{}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got, err := run(context.Background(), p, []*tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, name, got[0], want[0])
}
