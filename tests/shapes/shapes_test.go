// Package shapes checks shape inference on whole models, as exporters write them.
package shapes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/tests/conformance"
)

// models lists shapes that a model's inputs are bound to, and the types that its
// outputs then have.
var models = []struct {
	name    string
	shapes  map[string][]int
	dims    map[string]int
	outputs string
}{
	{name: "basic-pitch", outputs: "f32[unk__749,172,88] f32[unk__749,172,88] f32[unk__749,172,264]"},
	{name: "basic-pitch", dims: map[string]int{"unk__749": 2}, outputs: "f32[2,172,88] f32[2,172,88] f32[2,172,264]"},
	{name: "gtcrn", outputs: "f32[1,257,1,2] f32[2,1,16,16,33] f32[2,3,1,1,16] f32[2,1,33,16]"},
	{name: "ppocrv3-det", shapes: map[string][]int{"x": {2, 3, 96, 64}}, outputs: "f32[2,1,96,64]"},
	{name: "resnet20-cifar10", outputs: "f32[N,10]"},
	{name: "shufflenetv2-imagenet", outputs: "f32[1,1000]"},
	{name: "silero-vad", shapes: map[string][]int{"input": {1, 576}, "state": {2, 1, 128}}, outputs: "f32[1,1] f32[2,1,128]"},
	{name: "silero-vad", shapes: map[string][]int{"input": {1, 288}, "state": {2, 1, 128}}, outputs: "f32[1,1] f32[2,1,128]"},
	{name: "silero-vad-ifless", dims: map[string]int{"sequence": 576}, outputs: "f32[batch,1] f32[2,batch,128]"},
	{name: "stories260k", outputs: "f32[N,128,512]"},
	{name: "stories260k", dims: map[string]int{"N": 3}, outputs: "f32[3,128,512]"},
	{name: "super-resolution", outputs: "f32[batch_size,1,672,672]"},
	{name: "ultraface-rfb-320", outputs: "f32[1,4420,2] f32[1,4420,4]"},
	{name: "vit-cifar10", outputs: "f32[batch_size,10]"},
	{name: "vit-cifar10", dims: map[string]int{"batch_size": 4}, outputs: "f32[4,10]"},
}

func TestModelsInferTheirOutputs(t *testing.T) {
	for _, c := range models {
		path := filepath.Join(conformance.Shared(), "models", c.name, "model.onnx")
		if _, err := os.Stat(path); err != nil {
			t.Skipf("model %s: %v", c.name, err)
		}
		g, _, err := onnx.Import(path, onnx.Options{Shapes: c.shapes, Dims: c.dims})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var have []string
		for _, v := range g.Outputs {
			have = append(have, v.Type.String())
		}
		if h := strings.Join(have, " "); h != c.outputs {
			t.Errorf("%s: inferred %s, want %s", c.name, h, c.outputs)
		}
		if err := g.Verify(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		wantClosed(t, c.name, g)
	}
}

// wantClosed reports values that have dimensions beside sizes and the symbols of
// the inputs.
func wantClosed(t *testing.T, model string, g *ir.Graph) {
	for sub := range g.All() {
		if refused(sub) {
			continue
		}
		for _, n := range sub.Nodes {
			for _, v := range n.Outputs {
				if v == nil {
					continue
				}
				open := !v.Type.Ranked
				for _, d := range v.Type.Dims {
					open = open || d.Fresh()
				}
				if open {
					t.Errorf("%s: %v: %s is %v", model, n, v.Name, v.Type)
				}
			}
		}
	}
}

// refused reports whether g lies in a branch that inference refuses.
func refused(g *ir.Graph) bool {
	for g.Refused == nil {
		if g.Owner == nil {
			return false
		}
		g = g.Owner.Graph()
	}
	return true
}
