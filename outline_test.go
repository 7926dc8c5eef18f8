package spc_test

import (
	"fmt"
	"slices"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// An outline names what each node reads, what the bodies of its subgraphs read from outside among it, and has work where
// sizes are known.
func TestOutline(t *testing.T) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: graphtest.ONNX(t, `graph "g"(%x: f32[n,8], %c: bool[]) {
  %w: f32[8,4] = const {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}
  %p: f32[n,4] = MatMul "product" (%x, %w)
  %y: f32[n,4] = If "choice" (%c) {then_branch = graph "then"() {
      %a: f32[n,4] = Softmax "inside" (%p)
      return %a
    }, else_branch = graph "else"() {
      return %p
    }}
  return %y
}`)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, open := range []bool{false, true} {
		inputs := map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, 5, 8), "c": tensor.New(tensor.Bool)}
		if open {
			inputs = nil
		}
		o, err := m.Outline(inputs)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, n := range o.Nodes {
			text += fmt.Sprintf("%s in %d:", n.Name, n.Parent)
			for _, v := range n.Inputs {
				text += fmt.Sprintf(" %s of %d", o.Values[v].Name, o.Values[v].Def)
			}
			text += "\n"
		}
		const want = "product in -1: x of -1\nchoice in -1: c of -1 p of 0\ninside in 1: p of 0\n"
		if text != want {
			t.Errorf("%s\nwant\n%s", text, want)
		}
		if i := slices.IndexFunc(o.Values, func(v spc.OutlineValue) bool { return v.Name == "y" }); len(o.Outputs) != 1 || o.Outputs[0] != (spc.OutlineOutput{Name: "y", Value: i}) {
			t.Errorf("outputs %+v of %+v", o.Outputs, o.Values)
		}
		rows := 5.0
		if open {
			rows = 1
		}
		if got := o.Nodes[0].FLOPs; got != 2*rows*8*4 {
			t.Errorf("%v operations for %v rows", got, rows)
		}
	}
	if _, err := m.Outline(map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, 5, 9), "c": tensor.New(tensor.Bool)}); err == nil {
		t.Error("inputs that do not fit are no error")
	}
}

// Weights are what the formats store: with the zeros and the sizes that layers tell.
func TestWeightsAreThoseOfTheLayers(t *testing.T) {
	for _, name := range []string{"resnet", "bert", "lstm"} {
		m := tiny(t, name, spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.8}})
		defer m.Close()
		layers := map[string]spc.Layer{}
		for _, l := range m.Explain().Layers {
			layers[l.Weight] = l
		}
		err := m.Weights(func(name string, w *tensor.Tensor) error {
			l, ok := layers[name]
			delete(layers, name)
			nonzeros := 0
			for _, x := range w.F32s() {
				if x != 0 {
					nonzeros++
				}
			}
			if !ok || w.Dim(0) != l.Rows || w.Dim(1) != l.Cols || nonzeros != l.Nonzeros {
				t.Errorf("%s is %v with %d nonzeros, its layer %d x %d with %d", name, w.Shape(), nonzeros, l.Rows, l.Cols, l.Nonzeros)
			}
			return nil
		})
		if err != nil || len(layers) > 0 {
			t.Errorf("%s: %v; left out: %v", name, err, layers)
		}
	}
}
