package zoo

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/passes"
	"spc/passes/fit"
	"spc/passes/prune"
)

// TestWeightsOfFourBitsKeepTheirCodes follows the weights of MatMulNBits to where formats are chosen, as they are and with zeros: they are still
// numbers of 4 bits times scales.
func TestWeightsOfFourBitsKeepTheirCodes(t *testing.T) {
	for _, sparsity := range []float64{0, 0.5} {
		for _, name := range names(t, FormFolder("4bits")) {
			t.Run(fmt.Sprint(name, sparsity), func(t *testing.T) {
				file, err := Read(FormFolder("4bits"), name)
				if err != nil {
					t.Fatal(err)
				}
				var m onnxpb.ModelProto
				if err := proto.Unmarshal(file.Model, &m); err != nil {
					t.Fatal(err)
				}
				var nodes []string
				for _, n := range m.GetGraph().GetNode() {
					if n.GetOpType() == "MatMulNBits" {
						nodes = append(nodes, n.GetName()+"/")
					}
				}
				g, _, err := onnx.ImportBytes(file.Model, "", onnx.Options{})
				if err != nil {
					t.Fatal(err)
				}
				c := &passes.Context{Prune: fit.Options{GraphOptions: prune.GraphOptions{Options: prune.Options{Sparsity: sparsity}}}}
				if err := passes.Before(t.Context(), c, g, "choose"); err != nil {
					t.Fatal(err)
				}
				have := 0
				for _, u := range g.WeightUses() {
					if !slices.ContainsFunc(nodes, func(n string) bool { return strings.HasPrefix(u.Node.Name, n) }) {
						continue
					}
					have++
					v := u.Value
					if v.Grid == nil {
						t.Errorf("%s has no grid", u.Node)
						continue
					}
					grid := v.Grid.Matrix(u.View, v.Const.Shape())
					if grid == nil || grid.Bits != 4 {
						t.Errorf("%s: grid %+v", u.Node, v.Grid)
						continue
					}
					if _, ok := grid.Encode(u.View.Matrix(v.Const)); !ok {
						t.Errorf("%s: an element is none of its grid", u.Node)
					}
				}
				if have < len(nodes)/2 { // products of constants are gone
					t.Errorf("%d weights of 4 bits, want %d less those that multiply constants", have, len(nodes))
				}
			})
		}
	}
}
