package spc_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"spc"
	"spc/ir/tensor"
)

// Compile prunes 80% of the weights of the demo's model and saves the program.
func ExampleCompile() {
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Model: "demo/model.onnx", Prune: spc.PruneOptions{Sparsity: 0.8}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dir, err := os.MkdirTemp("", "spc")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := m.Save(filepath.Join(dir, "model.spx")); err != nil {
		log.Fatal(err)
	}
	t := m.Explain().Totals
	fmt.Printf("%.0f%% of %d prunable weights are zero\n", 100*float64(t.PrunableZeros)/float64(t.Prunable), t.Prunable)
	// Output: 80% of 236032 prunable weights are zero
}

// Open maps a program; Run evaluates it on inputs by name.
func ExampleModel_Run() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "spc")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.spx")
	compiled, err := spc.Compile(ctx, spc.CompileOptions{Model: "demo/model.onnx"})
	if err != nil {
		log.Fatal(err)
	}
	if err := compiled.Save(path); err != nil {
		log.Fatal(err)
	}

	m, err := spc.Open(path, spc.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Println(m.Inputs()[0].Name, m.Inputs()[0])
	images := tensor.New(tensor.F32, 2, 1, 28, 28)
	out, err := m.Run(ctx, map[string]*tensor.Tensor{"image": images})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out["logits"])
	// Output:
	// image f32[batch,1,28,28]
	// f32[2,36]
}

// A loop that keeps its tensors allocates nothing from the second run on.
func ExampleModel_RunInto() {
	ctx := context.Background()
	m, err := spc.Compile(ctx, spc.CompileOptions{Model: "demo/model.onnx"})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	image := tensor.New(tensor.F32, 1, 1, 28, 28)
	inputs, outputs := map[string]*tensor.Tensor{"image": image}, map[string]*tensor.Tensor{}
	for frame := range 3 {
		for i := range image.F32s() {
			image.F32s()[i] = float32(frame)
		}
		if err := m.RunInto(ctx, inputs, outputs); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(outputs["logits"])
	// Output: f32[1,36]
}

// Explain says how each weight is stored, and why.
func ExampleModel_Explain() {
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Model: "demo/model.onnx", Prune: spc.PruneOptions{Pattern: spc.Pattern{Kind: spc.NM, N: 2, M: 4}}})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range m.Explain().Layers[:3] {
		fmt.Printf("%s %dx%d, %.0f%% zeros (%s)\n", l.Name, l.Rows, l.Cols, 100*l.Sparsity, l.Pattern)
	}
	// Output:
	// conv1 16x9, 0% zeros (dense)
	// conv2 32x144, 50% zeros (2:4)
	// conv3 64x288, 50% zeros (2:4)
}
