package prune_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/passes"
	"spc/passes/prune"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

// prepared runs the passes before pruning.
func prepared(t *testing.T, g *ir.Graph) *ir.Graph {
	t.Helper()
	c := &passes.Context{Context: context.Background()}
	if err := passes.Run(c, g, passes.Options{StopAfter: "epilogues"}); err != nil {
		t.Fatal(err)
	}
	return g
}

func channelOptions(sparsity float64, allocate prune.Allocation) prune.GraphOptions {
	return prune.GraphOptions{Options: prune.Options{Pattern: prune.Pattern{Kind: prune.Channel}, Sparsity: sparsity, Allocate: allocate}}
}

// removes checks that removing channels computes what zero columns compute where
// they are read.
func removes(t *testing.T, g *ir.Graph, o prune.GraphOptions) *prune.GraphResult {
	t.Helper()
	silent := g.Clone()
	n, err := prune.SilenceChannels(silent, o)
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Fatal("no channel goes")
	}
	r, err := prune.Channels(g, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	graphtest.Same(t, silent, g, 1e-5)
	removed := 0
	for _, l := range r.Layers {
		removed += l.Removed
	}
	if removed == 0 || r.Prunable.Zeros == 0 {
		t.Errorf("%d weights removed, %d zeros of %d", removed, r.Prunable.Zeros, r.Prunable.Weights)
	}
	return r
}

func TestRemovedChannelsAreThoseThatNobodyReads(t *testing.T) {
	for _, a := range archs.Tiny {
		if a.Name == "lstm" {
			continue // its weights make no channels
		}
		for _, allocate := range []prune.Allocation{prune.PerLayer, prune.Global} {
			t.Run(fmt.Sprintf("%s/%s", a.Name, allocate), func(t *testing.T) {
				m, err := a.Build(1)
				if err != nil {
					t.Fatal(err)
				}
				g, _, err := onnx.ImportBytes(m.Bytes(), "", onnx.Options{})
				if err != nil {
					t.Fatal(err)
				}
				r := removes(t, prepared(t, g), channelOptions(0.5, allocate))
				if s := r.Prunable.Sparsity(); s < 0.4 || s > 0.6 {
					t.Errorf("%.3f of the prunable weights are gone, want about 0.5", s)
				}
			})
		}
	}
}

// Trained models split, join, pad, flatten and shuffle channels in more ways.
func TestRemovedChannelsOfTrainedModels(t *testing.T) {
	root := os.Getenv("SPC_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(root, "models")); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	for _, m := range []string{"resnet20-cifar10", "mobilenetv2-imagenet", "mnist-8", "mnist-opt", "ppocr-cls", "stories260k", "vit-cifar10", "silero-vad-ifless", "ultraface-rfb-320"} {
		t.Run(m, func(t *testing.T) {
			path := filepath.Join(root, "models", m, "model.onnx")
			o := onnx.Options{}
			switch m {
			case "mobilenetv2-imagenet":
				o.Shapes = map[string][]int{"t0": {1, 3, 64, 64}}
			case "ppocr-cls":
				o.Shapes = map[string][]int{"x": {1, 3, 48, 64}}
			case "silero-vad-ifless":
				o.Shapes = map[string][]int{"input": {1, 576}, "state": {2, 1, 128}}
			}
			g, _, err := onnx.Import(path, o)
			if err != nil {
				t.Fatal(err)
			}
			removes(t, prepared(t, g), channelOptions(0.4, prune.PerLayer))
		})
	}
}

const twoConvs = `graph "g"(%x: f32[4,2,4,4]) {
  %w0: f32[4,2,1,1] = const {1, 2, 3, 4, 5, 6, 7, 8}
  %a: f32[4,4,4,4] = Conv "first" (%x, %w0)
  %w1: f32[4,4,1,1] = const {9, 9, 9, 9, 1, 1, 1, 1, 8, 8, 8, 8, 2, 2, 2, 2}
  %b1: f32[4] = const {1, 2, 3, 4}
  %b: f32[4,4,4,4] = Conv "middle" (%a, %w1, %b1)
  %r: f32[4,4,4,4] = Relu "relu" (%b)
  %w2: f32[3,4,1,1] = const {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
  %y: f32[4,3,4,4] = Conv "last" (%r, %w2)
  return %y
}`

func TestChannelsGoWithTheirBiasAndReaders(t *testing.T) {
	g := graphtest.Parse(t, twoConvs)
	r, err := prune.Channels(g, channelOptions(0.5, prune.PerLayer))
	if err != nil {
		t.Fatal(err)
	}
	text := ir.Print(g)
	for _, want := range []string{
		"%w1: f32[2,4,1,1] = const {9.0, 9.0, 9.0, 9.0, 8.0, 8.0, 8.0, 8.0}",
		"%b1: f32[2] = const {1.0, 3.0}",
		"%w2: f32[3,2,1,1] = const {1.0, 3.0, 5.0, 7.0, 9.0, 11.0}",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	var got []string
	for _, l := range r.Layers {
		got = append(got, fmt.Sprintf("%s %v %d-%d %s", l.Node, l.Prunable, l.Weights, l.Removed, l.Why))
	}
	want := "[first false 8-0 the first convolution middle true 16-8  last false 12-6 the last weight-bearing operator]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestChannelsStayWhereTheyMust(t *testing.T) {
	glob, err := prune.ParseGlob("last")
	if err != nil {
		t.Fatal(err)
	}
	kept := channelOptions(0.5, prune.PerLayer)
	kept.Keep = []prune.Glob{glob}
	for what, c := range map[string]struct {
		text string
		o    prune.GraphOptions
	}{
		"an output":         {strings.Replace(twoConvs, "return %y", "return %y, %r", 1), channelOptions(0.5, prune.PerLayer)},
		"a kept reader":     {twoConvs, kept},
		"a softmax":         {strings.Replace(twoConvs, "Relu", "Softmax", 1), channelOptions(0.5, prune.PerLayer)},
		"a weight read too": {strings.Replace(twoConvs, "Relu \"relu\" (%b)", "Add \"relu\" (%b, %w1)", 1), channelOptions(0.5, prune.PerLayer)},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := prune.Channels(graphtest.Parse(t, c.text), c.o)
			if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "no channel") {
				t.Errorf("error %v, want one that says that no channel can be removed", err)
			}
		})
	}
}

func TestLayersOwnShareOfChannels(t *testing.T) {
	g := graphtest.Parse(t, twoConvs)
	o := channelOptions(0, prune.PerLayer)
	target, err := prune.ParseLayerTarget("mid*=0.75")
	if err != nil {
		t.Fatal(err)
	}
	o.Targets = []prune.LayerTarget{target}
	r, err := prune.Channels(g, o)
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Layers[1]; l.Removed != 12 {
		t.Errorf("%s lost %d of its 16 weights, want 12", l.Node, l.Removed)
	}
}
