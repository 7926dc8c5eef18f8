package prune

import (
	"math/rand/v2"
	"testing"
)

// resnet50 has the shapes of ResNet50's prunable convolutions.
func resnet50() []Layer {
	var shapes [][2]int
	in := 64
	for stage, blocks := range []int{3, 4, 6, 3} {
		width := 64 << stage
		for b := range blocks {
			shapes = append(shapes, [2]int{width, in}, [2]int{width, 9 * width}, [2]int{4 * width, width})
			if b == 0 {
				shapes = append(shapes, [2]int{4 * width, in})
			}
			in = 4 * width
		}
	}
	return dense(rand.New(rand.NewPCG(1, 1)), shapes...)
}

func BenchmarkSelectResNet50(b *testing.B) {
	layers := resnet50()
	turned := make([]Layer, len(layers))
	for i, l := range layers {
		turned[i] = transposed(l)
	}
	for _, c := range []struct {
		name    string
		layers  []Layer
		pattern string
		alloc   Allocation
	}{
		{"uniform/global", layers, "uniform", Global},
		{"uniform/layer", layers, "uniform", PerLayer},
		{"uniform/transposed", turned, "uniform", Global},
		{"unstructured/global", layers, "unstructured", Global},
		{"unstructured/layer", layers, "unstructured", PerLayer},
		{"unstructured/transposed", turned, "unstructured", Global},
		{"block4x1/global", layers, "block:4x1", Global},
		{"block32x32/global", layers, "block:32x32", Global},
		{"uniform-block4x1/global", layers, "uniform-block:4x1", Global},
		{"2of4", layers, "2:4", PerLayer},
		{"channel/global", layers, "channel", Global},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			p := mustPattern(b, c.pattern)
			opts := Options{Pattern: p, Sparsity: 0.8, Allocate: c.alloc}
			if p.Kind == NM {
				opts.Sparsity = 0
			}
			for b.Loop() {
				mustSelect(b, c.layers, opts)
			}
		})
	}
}

func BenchmarkRecogniseResNet50(b *testing.B) {
	layers := resnet50()
	res := mustSelect(b, layers, Options{Pattern: Pattern{Kind: Unstructured}, Sparsity: 0.8, Allocate: Global})
	for b.Loop() {
		for _, l := range res.Layers {
			Recognise(l.Mask)
		}
	}
}
