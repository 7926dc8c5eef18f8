package main

import (
	"os"
	"strings"
	"testing"

	"spc/tests/archs"
)

// stacked is a classifier of three residual branches, two of them of as many weights.
func stacked() (*archs.Model, error) {
	b := archs.New("stacked", 17)
	conv := func(name string, in, out, stride int, x string) string {
		s := b.Scope(name)
		return s.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}, "strides": []int{stride, stride}}, x, s.Weight("weight", archs.He(9*in), out, in, 3, 3))
	}
	x := conv("stem", 3, 8, 1, b.Input("input", archs.Float32, "batch", 3, 16, 16))
	for _, name := range []string{"one", "two", "three"} {
		c := 8
		if name == "three" {
			c = 16
			x = conv("down", 8, c, 2, x)
		}
		y := b.Node("Relu", nil, conv(name+".first", c, c, 1, x))
		x = b.Node("Relu", nil, b.Node("Add", nil, x, conv(name+".second", c, c, 1, y)))
	}
	x = b.Node("Flatten", nil, b.Node("GlobalAveragePool", nil, x))
	b.Output("scores", b.Node("MatMul", nil, x, b.Weight("head", archs.LeCun(16), 16, 10)), archs.Float32, "batch", 10)
	return b.Model(1)
}

// Models without some of their branches are smaller, the same from every command, and compose with what else there is.
func TestDepth(t *testing.T) {
	workspace(t)
	writeModel(t, "stacked.onnx", stacked)
	with := func(command, to string, more ...string) []string {
		return append([]string{command, "stacked.onnx", "-o", to, "--pattern", "depth", "--sparsity", "0.165", "--calib", "photos", "--preprocess", "imagenet"}, more...)
	}
	ok(t, "compile", "stacked.onnx", "-o", "dense.spx")
	dense, err := os.Stat("dense.spx")
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{nil, {"--quantize", "int8"}, {"--reconstruct"}, {"--prune", "wanda", "--uncorrected"}} {
		out := ok(t, with("compile", "a.spx", more...)...)
		if !strings.Contains(out, " of the weights, with whole residual branches; they count as zeros\n") {
			t.Errorf("%v: %s, want what was removed", more, out)
		}
		small, err := os.Stat("a.spx")
		if err != nil {
			t.Fatal(err)
		}
		if small.Size() >= dense.Size() {
			t.Errorf("%v: %d bytes, dense %d", more, small.Size(), dense.Size())
		}
		ok(t, with("prune", "a.onnx", more...)...)
		if more == nil || more[0] != "--quantize" { // which computes in integers
			ok(t, "verify", "a.spx", "a.onnx", "--tolerance", "1e-5")
		}
	}
	fails(t, with("compile", "b.spx", "--sparsity", "0.01"), "--sparsity 0.01: --pattern depth removes whole branches, and the least of the branches has 16.7% of the prunable weights")
	fails(t, []string{"compile", "stacked.onnx", "-o", "b.spx", "--pattern", "depth", "--sparsity", "0.2"}, "--pattern depth needs calibration samples, which --calib gives")
}
