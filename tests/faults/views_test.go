// Package faults holds the smallest forms of classes of faults: of each class, every
// member that could be thought of, against results that are obviously right.
package faults

import (
	"context"
	"fmt"
	"testing"

	"spc"
	"spc/internal/debug"
	_ "spc/internal/debug/all"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// keepers are nodes that make %l of %v, f32[1,2,3,4], and may return its memory: their
// elements are those of %v in the same order. Other operands are inputs, so that they are
// known only at run time.
var keepers = []struct{ name, inputs, node string }{
	{"Reshape", "%k: i64[2]", `Reshape "op" (%v, %k)`},
	{"ReshapeToData", "%k: i64[1]", `Reshape "op" (%v, %k)`},
	{"Squeeze", "%k: i64[1]", `Squeeze "op" (%v, %k)`},
	{"Unsqueeze", "%k: i64[1]", `Unsqueeze "op" (%v, %k)`},
	{"Expand", "%k: i64[4]", `Expand "op" (%v, %k)`},
	{"Tile", "%k: i64[4]", `Tile "op" (%v, %k)`},
	{"Pad", "%k: i64[8]", `Pad "op" (%v, %k)`},
	{"Slice", "%k: i64[1], %end: i64[1]", `Slice "op" (%v, %k, %end)`},
	{"Gather", "%k: i64[1]", `Gather "op" (%v, %k) {axis = 0}`},
	{"GatherElements", "%k: i64[1,2,3,4]", `GatherElements "op" (%v, %k) {axis = 0}`},
	{"Compress", "%k: bool[1]", `Compress "op" (%v, %k) {axis = 0}`},
	{"Resize", "%k: i64[4]", `Resize "op" (%v, _, _, %k) {mode = "nearest"}`},
	{"CenterCropPad", "%k: i64[4]", `CenterCropPad "op" (%v, %k)`},
	{"ReverseSequence", "%k: i64[2]", `ReverseSequence "op" (%v, %k) {batch_axis = 1, time_axis = 0}`},
	{"Trilu", "%k: i64[]", `Trilu "op" (%v, %k) {upper = 1}`},
	{"ScatterND", "%k: i64[0,1], %upd: f32[0,2,3,4]", `ScatterND "op" (%v, %k, %upd)`},
	{"ScatterElements", "%k: i64[0,2,3,4], %upd: f32[0,2,3,4]", `ScatterElements "op" (%v, %k, %upd)`},
	{"Dropout", "%k: bool[]", `Dropout "op" (%v, %none, %k)`},
	{"Identity", "", `Identity "op" (%v)`},
	{"Loop", "%k: i64[]", `Loop "op" (%k, %yes, %v) {body = graph "body"(%i: i64[], %go: bool[], %state: f32[1,2,3,4]) {
    %t: f32[1,2,3,4] = Exp "t" (%state)
    return %go, %t
  }}`},
	{"If", "%k: bool[]", `If "op" (%k) {then_branch = graph "then"() {
    return %v
  }, else_branch = graph "else"() {
    %t: f32[1,2,3,4] = Exp "t" (%v)
    return %t
  }}`},
	{"Scan", "%k: f32[1,0]", `Scan "op" (%v, %k) {body = graph "body"(%state: f32[1,2,3,4], %e: f32[1]) {
    %t: f32[1,2,3,4] = Exp "t" (%state)
    return %t
  }, num_scan_inputs = 1, scan_input_axes = [1]}`},
	{"Where", "%k: bool[1]", `Where "op" (%k, %v, %v)`},
	{"ReduceSum", "%k: i64[0]", `ReduceSum "op" (%v, %k) {noop_with_empty_axes = 1}`},
	{"ReduceMax", "%k: i64[1]", `ReduceMax "op" (%v, %k) {keepdims = 1}`},
}

// operands returns what makes the elements of %l those of %v.
func operands(name string) map[string]*tensor.Tensor {
	ints := tensor.Ints
	zeros := tensor.New(tensor.I64, 1, 2, 3, 4)
	empty := tensor.New(tensor.F32, 0, 2, 3, 4)
	yes := tensor.From([]bool{true}, 1)
	return map[string]map[string]*tensor.Tensor{
		"Reshape": {"k": ints(6, -1)}, "ReshapeToData": {"k": ints(-1)}, "Squeeze": {"k": ints(0)}, "Unsqueeze": {"k": ints(2)},
		"Expand": {"k": ints(1, 1, 3, 1)}, "Tile": {"k": ints(1, 1, 1, 1)}, "Pad": {"k": ints(0, 0, 0, 0, 0, 0, 0, 0)},
		"Slice": {"k": ints(0), "end": ints(1 << 40)}, "Gather": {"k": ints(0)}, "GatherElements": {"k": zeros},
		"Compress": {"k": yes}, "Resize": {"k": ints(1, 2, 3, 4)}, "CenterCropPad": {"k": ints(1, 2, 3, 4)},
		"ReverseSequence": {"k": ints(1, 1)}, "Trilu": {"k": tensor.Scalar[int64](-9)},
		"ScatterND": {"k": tensor.New(tensor.I64, 0, 1), "upd": empty}, "ScatterElements": {"k": tensor.New(tensor.I64, 0, 2, 3, 4), "upd": empty},
		"Dropout": {"k": tensor.Scalar(true)}, "Identity": {}, "Loop": {"k": tensor.Scalar[int64](0)}, "If": {"k": tensor.Scalar(true)},
		"Scan": {"k": tensor.New(tensor.F32, 1, 0)}, "Where": {"k": yes}, "ReduceSum": {"k": tensor.New(tensor.I64, 0)}, "ReduceMax": {"k": ints(0)},
	}[name]
}

// after lists what is done with %v, whose last use it may be, and with %l, and what the
// outputs are for an element of x.
var after = []struct {
	name, nodes, outputs string
	want                 []func(v, x float32) float32
}{
	{"in place", `  %r: f32[*] = Neg "r" (%v)
`, "%l, %r", []func(v, x float32) float32{
		func(v, x float32) float32 { return v },
		func(v, x float32) float32 { return -v },
	}},
	{"in place, and the view is read later", `  %r: f32[*] = Neg "r" (%v)
  %s: f32[*] = Mul "s" (%r, %two)
  %y: f32[*] = Mul "y" (%l, %two)
`, "%s, %y", []func(v, x float32) float32{
		func(v, x float32) float32 { return -2 * v },
		func(v, x float32) float32 { return 2 * v },
	}},
	{"its memory is given to others", `  %a: f32[*] = Mul "a" (%x, %two)
  %b: f32[*] = Neg "b" (%a)
  %f: f32[*] = Reshape "f" (%b, %all)
  %g: f32[*] = Reshape "g" (%l, %all)
  %y: f32[*] = Sub "y" (%g, %f)
`, "%y", []func(v, x float32) float32{func(v, x float32) float32 { return v + 2*x }}},
	{"views of the view", `  %u: f32[*] = Reshape "u" (%l, %all)
  %w: f32[*] = Unsqueeze "w" (%u, %one)
  %r: f32[*] = Abs "r" (%v)
  %s: f32[*] = Neg "s" (%r)
`, "%w, %s, %u", []func(v, x float32) float32{
		func(v, x float32) float32 { return v },
		func(v, x float32) float32 { return -v },
		func(v, x float32) float32 { return v },
	}},
	{"twice", `  %r: f32[*] = Add "r" (%v, %v)
  %s: f32[*] = Neg "s" (%l)
`, "%r, %s", []func(v, x float32) float32{
		func(v, x float32) float32 { return 2 * v },
		func(v, x float32) float32 { return -v },
	}},
}

// What an operator returns of its input's memory stays as it is, whoever has that memory
// next.
func TestViewsKeepTheirElements(t *testing.T) {
	x := tensor.New(tensor.F32, 1, 2, 3, 4)
	for i := range x.F32s() {
		x.F32s()[i] = float32(i%7) - 2.5
	}
	for _, k := range keepers {
		for _, a := range after {
			t.Run(k.name+"/"+a.name, func(t *testing.T) {
				inputs := "%x: f32[1,2,3,4]"
				if k.inputs != "" {
					inputs += ", " + k.inputs
				}
				m := graphtest.ONNX(t, fmt.Sprintf(`graph "g"(%s) {
  %%two: f32[1] = const {2.0}
  %%none: f32[] = const {0.0}
  %%yes: bool[] = const {1}
  %%all: i64[1] = const {-1}
  %%one: i64[1] = const {1}
  %%v: f32[1,2,3,4] = Relu "v" (%%x)
  %%l: f32[*] = %s
%s  return %s
}
`, inputs, k.node, a.nodes, a.outputs))
				in := operands(k.name)
				in["x"] = x
				for _, checks := range []string{debug.Memory, ""} {
					t.Setenv(debug.Variable, checks)
					run(t, m, in, x, a.want)
				}
			})
		}
	}
}

// run compiles the model and compares its outputs with what is wanted of the elements of
// x, twice: the second run has the memory of the first.
func run(t *testing.T, file []byte, in map[string]*tensor.Tensor, x *tensor.Tensor, want []func(v, x float32) float32) {
	t.Helper()
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Debug: spc.DebugOptions{Verify: true}, Run: spc.RunOptions{Threads: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 2 {
		out, err := m.Run(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range m.Outputs() {
			got := out[p.Name].F32s()
			if len(got) != x.Len() {
				t.Fatalf("output %s is %v, want %d elements", p.Name, out[p.Name], x.Len())
			}
			for j, x := range x.F32s() {
				if w := want[i](max(x, 0), x); got[j] != w {
					t.Fatalf("output %s: element %d is %g, want %g", p.Name, j, got[j], w)
				}
			}
		}
	}
}
