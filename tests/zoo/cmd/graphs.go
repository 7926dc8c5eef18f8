package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"spc/tests/bench"
	"spc/tests/zoo"
)

func graphsCommand() *cobra.Command {
	var models, folder, ort string
	c := &cobra.Command{
		Use:   "graphs",
		Short: "the graphs of the zoo without their weights, and samples of what ONNX Runtime makes of them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return graphs(c.Context(), models, folder, ort)
		},
	}
	c.Flags().StringVar(&models, "models", "out/zoo/small", "the `folder` of the small models that tests/zoo/export writes")
	c.Flags().StringVar(&folder, "zoo", "tests/zoo", "the `folder` of the list, and of the graphs")
	c.Flags().StringVar(&ort, "ort", "out/ort", "the `folder` of ONNX Runtime")
	return c
}

func graphs(ctx context.Context, models, folder, ort string) error {
	members, err := zoo.Members(filepath.Join(folder, "list"))
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "zoo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	found, err := bench.FindORT(ort, scratch)
	if err != nil {
		return err
	}
	w, err := found.Start(ctx, 1)
	if err != nil {
		return err
	}
	defer w.Close()
	to := filepath.Join(folder, zoo.Graphs)
	outputs := zoo.Outputs{}
	for _, m := range members {
		if err := zoo.Write(ctx, to, m.Name, filepath.Join(models, m.Name+".onnx")); err != nil {
			return err
		}
		if outputs[m.Name], err = evaluate(ctx, w, to, m.Name, scratch); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		fmt.Println(m.Name)
	}
	return outputs.Write(to)
}

// evaluate samples what ONNX Runtime makes of a graph with the weights and inputs that tests draw.
func evaluate(ctx context.Context, w *bench.Worker, folder, name, scratch string) (map[string]zoo.Sample, error) {
	g, err := zoo.Read(folder, name)
	if err != nil {
		return nil, err
	}
	inputs, err := g.Inputs(ctx)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(scratch, "model.onnx")
	if err := os.WriteFile(path, g.Model, 0o666); err != nil {
		return nil, err
	}
	all, err := w.Evaluate(path, inputs)
	if err == nil {
		all, err = g.Compared(all)
	}
	if err != nil {
		return nil, err
	}
	samples := map[string]zoo.Sample{}
	for output, x := range all {
		samples[output] = zoo.SampleOf(output, x)
	}
	return samples, nil
}
