package cpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"spc/backend"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
)

// model loads a real model, compiled without pruning, with its sample inputs.
func model(t *testing.T, name string, threads int) (*program, []*tensor.Tensor) {
	t.Helper()
	root := os.Getenv("SPC_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	dir := filepath.Join(root, "models", name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no shared model %s", name)
	}
	g, _, err := onnx.Import(filepath.Join(dir, "model.onnx"), onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := passes.Run(context.Background(), &passes.Context{}, g, passes.Options{Disable: []string{"prune", "choose"}}); err != nil {
		t.Fatal(err)
	}
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i := range in {
		if in[i], _, err = tensor.ReadTensorProto(filepath.Join(dir, fmt.Sprintf("input_%d.pb", i))); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Device{}.Load(g, backend.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p.(*program), in
}

// No arena is much larger than what is in use at once.
func TestArenasOfRealModelsAreNearTheirLowerBound(t *testing.T) {
	for _, name := range []string{
		"basic-pitch", "mobilenetv2-imagenet", "ppocr-cls", "ppocrv3-det", "resnet56-cifar10", "shufflenetv2-imagenet",
		"squeezenet1.1-imagenet", "stories260k", "super-resolution", "ultraface-rfb-320", "vit-cifar10", "yolox-nano",
	} {
		t.Run(name, func(t *testing.T) {
			p, in := model(t, name, 1)
			s, err := p.specialise(in)
			if err != nil {
				t.Fatal(err)
			}
			if float64(s.plan.Bytes) > 1.1*float64(s.plan.Peak) {
				t.Errorf("an arena of %d bytes, of which %d are in use at once", s.plan.Bytes, s.plan.Peak)
			}
			t.Logf("arena %d, in use at once %d", s.plan.Bytes, s.plan.Peak)
		})
	}
}
