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

func formsCommand() *cobra.Command {
	var folder, ort string
	c := &cobra.Command{
		Use:   "forms",
		Short: "the transformers of the zoo as ONNX Runtime's optimiser saves them and with weights of 4 bits, without their weights, and samples of what ONNX Runtime makes of them",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return forms(c.Context(), folder, ort) },
	}
	c.Flags().StringVar(&folder, "zoo", "tests/zoo", "the `folder` of the list, and of the graphs")
	c.Flags().StringVar(&ort, "ort", "out/ort", "the `folder` of ONNX Runtime")
	return c
}

func forms(ctx context.Context, folder, ort string) error {
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
	for _, form := range append([]string{zoo.Nchwc}, zoo.Forms...) {
		if err := os.RemoveAll(filepath.Join(folder, zoo.FormFolder(form))); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(folder, zoo.FormFolder(form)), 0o777); err != nil {
			return err
		}
	}
	f := &former{w, folder, scratch}
	for _, form := range zoo.Forms {
		outputs := zoo.Outputs{}
		for _, m := range members {
			if !m.Transformer {
				continue
			}
			if err := f.form(ctx, form, m.Name, outputs); err != nil {
				return fmt.Errorf("%s as %s: %w", m.Name, form, err)
			}
		}
		if err := outputs.Write(filepath.Join(folder, zoo.FormFolder(form))); err != nil {
			return err
		}
	}
	return nil
}

// former makes forms.
type former struct {
	ort             *bench.Worker
	folder, scratch string
}

// form makes one of a member, and adds samples of its outputs.
func (f *former) form(ctx context.Context, form, name string, outputs zoo.Outputs) error {
	g, err := zoo.Read(filepath.Join(f.folder, zoo.Graphs), name)
	if err != nil {
		return err
	}
	model, made := filepath.Join(f.scratch, "plain.onnx"), filepath.Join(f.scratch, "form.onnx")
	if err := os.WriteFile(model, g.Model, 0o666); err != nil {
		return err
	}
	if form == "4bits" {
		b, err := zoo.FourBits(g.Model)
		if b == nil || err != nil {
			return err
		}
		if err := os.WriteFile(made, b, 0o666); err != nil {
			return err
		}
	} else if err := f.ort.Optimise(model, form, made); err != nil {
		return err
	}
	b, err := os.ReadFile(made)
	if err != nil {
		return err
	}
	nchwc, err := zoo.HasNchwc(b)
	if err != nil {
		return err
	}
	if nchwc {
		return zoo.WriteUnscaled(filepath.Join(f.folder, zoo.FormFolder(zoo.Nchwc)), name, made)
	}
	to := filepath.Join(f.folder, zoo.FormFolder(form))
	if err := zoo.Write(ctx, to, name, made); err != nil {
		return err
	}
	if outputs[name], err = evaluate(ctx, f.ort, to, name, f.scratch); err != nil {
		return err
	}
	fmt.Println(form, name)
	return nil
}
