package quant_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/fold"
	"spc/passes/quant"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

func imported(t *testing.T, a archs.Arch) *ir.Graph {
	t.Helper()
	m, err := a.Build(1)
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := onnx.ImportBytes(m.Bytes(), "", onnx.Options{})
	if err == nil {
		err = g.Infer()
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func interpreted(t *testing.T, g *ir.Graph, in []*tensor.Tensor) []*tensor.Tensor {
	t.Helper()
	out, err := ref.Run(context.Background(), g, in)
	if err != nil {
		t.Fatalf("%v in\n%s", err, g)
	}
	return out
}

// operators counts the operators of a graph but Casts.
func operators(g *ir.Graph) map[string]int {
	m := map[string]int{}
	for _, n := range g.Nodes {
		if k := n.Op.Kind(); k != "Cast" {
			m[k]++
		}
	}
	return m
}

// inHalves lists the nodes that read or make floats of 16 bits, but Casts.
func inHalves(g *ir.Graph) (nodes []string) {
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			for _, v := range slices.Concat(n.Inputs, n.Outputs) {
				if v != nil && n.Op.Kind() != "Cast" && (v.Type.DType == tensor.F16 || v.Type.DType == tensor.BF16) {
					nodes = append(nodes, n.String())
				}
			}
		}
	}
	return nodes
}

// Networks in 16-bit floats become the same nodes as in f32, as near to them as these floats are.
func TestNetworksIn16BitFloatsComputeInF32(t *testing.T) {
	for _, a := range archs.Tiny {
		for dt, tolerance := range map[tensor.DType]float64{tensor.F16: 0.01, tensor.BF16: 0.08} {
			t.Run(a.Name+" "+dt.String(), func(t *testing.T) {
				g, half := imported(t, a), imported(t, a)
				if err := graphtest.Half(half, dt); err != nil {
					t.Fatal(err)
				}
				in := graphtest.Inputs(half, 1)
				wide := make([]*tensor.Tensor, len(in))
				for i, x := range in {
					wide[i] = x.To(g.Inputs[i].Type.DType)
				}
				want, rounded := interpreted(t, g, wide), interpreted(t, half, in)
				for _, h := range []*ir.Graph{g, half} {
					if _, err := quant.WidenFloats(h); err != nil {
						t.Fatal(err)
					}
					if err := fuse(h); err != nil {
						t.Fatal(err)
					}
				}
				if got := inHalves(half); len(got) > 0 {
					t.Errorf("%v are in 16-bit floats", got)
				}
				if got, want := operators(half), operators(g); !maps.Equal(got, want) {
					t.Errorf("operators %v, want %v", got, want)
				}
				for i, y := range interpreted(t, half, in) {
					if y.DType() != rounded[i].DType() {
						t.Fatalf("output %d is %v, want %v", i, y, rounded[i])
					}
					if d := graphtest.Difference(want[i], y.To(want[i].DType())); !(d <= tolerance/2) {
						t.Errorf("output %d differs from f32 by %g", i, d)
					}
					// The interpreter, which rounds between nodes, may be farther.
					r := rounded[i].To(want[i].DType())
					if d, own := graphtest.Difference(r, y.To(want[i].DType())), graphtest.Difference(r, want[i]); !(d <= own+tolerance/2) {
						t.Errorf("output %d differs from the interpreter by %g, f32 by %g", i, d, own)
					}
				}
			})
		}
	}
}

func fuse(g *ir.Graph) error {
	c := &passes.Context{}
	return passes.Run(context.Background(), c, g, passes.Options{StopAfter: "epilogues", Verify: true})
}

// What decides on integers or bools decides on rounded numbers, and control flow, lists and bits keep their types.
func TestWidenedFloatsDecideAsBefore(t *testing.T) {
	for name, text := range map[string]string{
		"comparisons": `graph "g"(%x: f16[4], %k: f16[4]) {
  %p: f16[4] = Mul "p" (%x, %k)
  %i: bool[4] = IsInf "i" (%p)
  %e: bool[4] = Equal "e" (%p, %k)
  %c: i32[4] = Cast "c" (%p) {to = 6}
  %a: i64[1] = ArgMax "a" (%p)
  return %p, %i, %e, %c, %a
}`,
		"branches": `graph "g"(%x: f16[4], %k: f16[4], %b: bool[]) {
  %p: f16[4] = Mul "p" (%x, %k)
  %y: f16[4] = If "if" (%b) {else_branch = graph "n"() {
    %r: f16[4] = Relu "r" (%p)
    return %r
  }, then_branch = graph "t"() {
    return %x
  }}
  return %y
}`,
		"a loop": `graph "g"(%x: f16[4], %k: f16[4]) {
  %n: i64[] = const {3}
  %y: f16[4], %s: f16[3,4] = Loop "l" (%n, _, %x) {body = graph "b"(%i: i64[], %c: bool[], %v: f16[4]) {
    %d: bool[] = Identity "d" (%c)
    %w: f16[4] = Sub "w" (%v, %k)
    return %d, %w, %w
  }}
  return %y, %s
}`,
		"lists and bits": `graph "g"(%x: f16[4], %k: f16[4]) {
  %m: f16[4] = Neg "m" (%x)
  %l: sequence<f16[4]>[2] = SequenceConstruct "l" (%m, %k)
  %z: i64[] = const {0}
  %a: f16[4] = SequenceAt "a" (%l, %z)
  %y: f16[4] = Abs "y" (%a)
  %u: u16[4] = BitCast "u" (%m) {to = 4}
  return %y, %u
}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, text)
			if err := g.Infer(); err != nil {
				t.Fatal(err)
			}
			in := []*tensor.Tensor{
				tensor.From([]float32{300, 0.1, 2.9995, -3}, 4).To(tensor.F16), tensor.From([]float32{300, 1, 1.0005, -2}, 4).To(tensor.F16), tensor.Scalar(false),
			}[:len(g.Inputs)]
			want := interpreted(t, g, in)
			h, err := quant.WidenFloats(g)
			if err == nil {
				err = g.Verify()
			}
			if err != nil || h == nil {
				t.Fatal(h, err)
			}
			for i, y := range interpreted(t, g, in) {
				if !y.Equal(want[i]) {
					t.Errorf("output %d is %v, want %v", i, y.Float64s(), want[i].Float64s())
				}
			}
			// And back.
			if err := h.Narrow(g); err != nil {
				t.Fatal(err)
			}
			for i, y := range interpreted(t, g, in) {
				if !y.Equal(want[i]) {
					t.Errorf("in 16 bits again, output %d is %v, want %v", i, y.Float64s(), want[i].Float64s())
				}
			}
			for sub := range g.All() {
				for _, n := range sub.Nodes {
					for _, v := range n.Outputs {
						if v.Type.DType == tensor.F32 {
							t.Errorf("%v makes f32", n)
						}
					}
				}
			}
		})
	}
}

// Codes with scales of 16-bit floats are numbers of a grid when they are folded, and are widened to 16 bits again where ONNX is written.
func TestCodesWithScalesOf16Bits(t *testing.T) {
	codes := make([]string, 64)
	for i := range codes {
		codes[i] = fmt.Sprint(i*7%16 - 8)
	}
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16} {
		for name, scales := range map[string]string{"blocks": "[2,2] = const {0.3, 0.1, 0.7, 0.011}", "one": "[] = const {0.3}"} {
			attrs := map[string]string{"blocks": "{axis = 0, block_size = 16}"}[name]
			text := fmt.Sprintf(`graph "g"(%%x: f32[2,32]) {
  %%q: i4[32,2] = const {%s}
  %%s: f32%s
  %%w: f32[32,2] = DequantizeLinear "w" (%%q, %%s) %s
  %%y: f32[2,2] = MatMul "y" (%%x, %%w)
  return %%y
}`, strings.Join(codes, ", "), scales, attrs)
			g, folded := graphtest.Parse(t, text), graphtest.Parse(t, text)
			for _, g := range []*ir.Graph{g, folded} {
				if err := graphtest.Half(g, dt); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := quant.WidenFloats(folded); err != nil {
				t.Fatal(err)
			}
			if _, err := fold.Constants(folded); err != nil {
				t.Fatal(err)
			}
			u := folded.WeightUses()[0]
			w := u.View.Matrix(u.Value.Const)
			if u.Value.Grid == nil {
				t.Fatalf("%v, %s: no grid in\n%s", dt, name, folded)
			}
			grid := u.Value.Grid.Matrix(u.View, u.Value.Const.Shape())
			got, ok := grid.Encode(w)
			if !ok || !grid.Decode(got).Equal(w) || grid.Scales.DType() != tensor.F16 {
				t.Errorf("%v, %s: the weight is none of its grid %+v", dt, name, grid)
			}
			h, err := quant.WidenFloats(g)
			if err == nil {
				err = h.Narrow(g)
			}
			if got := inHalves(g); err != nil || len(got) != 5 || len(g.Nodes) != 2 {
				t.Errorf("%v, %s: %v: %v are in 16-bit floats of\n%s", dt, name, err, got, g)
			}
		}
	}
}

// Between nodes nothing is rounded to 16 bits: what is too large for them may become small again.
func TestWidenedFloatsHoldWhatF16DoesNot(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f16[2]) {
  %w: f32[] = const {256.0}
  %k: f16[] = Cast "k" (%w) {to = 10}
  %p: f16[2] = Mul "p" (%x, %k)
  %y: f16[2] = Div "y" (%p, %k)
  return %p, %y
}`)
	if _, err := quant.WidenFloats(g); err != nil {
		t.Fatal(err)
	}
	x := tensor.From([]float32{1000, 1.5}, 2).To(tensor.F16)
	out := interpreted(t, g, []*tensor.Tensor{x})
	if got := out[0].Float64s(); !(got[0] > 65504 && got[1] == 384) {
		t.Errorf("the output is %v, want infinity and 384", got)
	}
	if !out[1].Equal(x) {
		t.Errorf("the output is %v, want %v", out[1].Float64s(), x.Float64s())
	}
}
