package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"spc"
	"spc/internal/claims"
)

func pruneCommand() *cobra.Command {
	var f makeFlags
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use:   "prune MODEL.onnx -o PRUNED.onnx",
		Short: "Prune an ONNX model, and quantise it, into an ONNX model",
		Long: `Prune an ONNX model as compile does, and write it as an ONNX model for other runtimes
and trainers. The file stays as it is but for elements of weights and biases: with its
operator sets, names, order, metadata, external data and batch normalisation. Where that
cannot be, as with channels that are removed and with --quantize, a line says why, and
nodes are written in the form that they have today, in the least operator set from 13 on that
has those forms, with batch normalisation folded into the weights; --opset asks for that. With
--quantize int8, products stand between QuantizeLinear and DequantizeLinear nodes; with fp16
or bf16, weights stand before Cast nodes, and with int8w or int4 before DequantizeLinear nodes
with scales of blocks, which opset 21 has.`,
		Example: `  spc prune model.onnx -o pruned.onnx --sparsity 0.8 --pattern block:4x1
  spc prune model.onnx -o quantized.onnx --quantize int8 --calib photos/ --preprocess imagenet`,
		Args:              usage(1, 1),
		ValidArgsFunction: files(1, "onnx"),
	}
	fs := c.Flags()
	fs.StringVarP(&out, "output", "o", "", "the .onnx `FILE` to write")
	fs.IntVar(&f.o.Opset, "opset", 0, "write nodes anew, in the form that they have in operator set `N`, and batch\nnormalisation folded into the weights; by default the model's file stays as it is but\nfor its weights, and for what is removed")
	f.add(c)
	addConfig(c)
	groupFlags(c)
	jsonFlag(fs, &asJSON)
	complete(c, "output", files(0, "onnx"))
	if err := c.MarkFlagRequired("output"); err != nil {
		panic(err)
	}

	c.RunE = func(c *cobra.Command, args []string) error {
		collectEarly()
		if err := f.of(args[0]); err != nil {
			return err
		}
		if !strings.EqualFold(filepath.Ext(out), ".onnx") {
			return fmt.Errorf("-o %s, want an .onnx file", out)
		}
		files := outputs{model: out, masks: f.masks, cache: f.data.cache}
		if err := files.check(); err != nil {
			return err
		}
		p := newProgress(c)
		defer p.close()
		done, err := f.apply(c)
		if err != nil {
			return err
		}
		defer done()
		p.writes(f.o.Model)
		f.o.Progress, f.o.Plan, f.o.Spool, f.o.Calibration.Spool = p.At, p.Plan, claims.Folder(out), claims.Folder(out)
		pace := begin()
		m, err := spc.Prune(c.Context(), f.o)
		if err != nil {
			return err
		}
		defer m.Close()
		warnOf(c, m.Explain())
		p.At(writeStage, 0, 1)
		if err := files.write(c.Context(), m); err != nil {
			return err
		}
		p.close()
		hintOf(c, m.Explain())
		if asJSON {
			return printReport(c.OutOrStdout(), *m.Explain())
		}
		return errors.Join(printPruned(c.OutOrStdout(), m.Explain(), f.o.Model, out, f.all), pace.tell(c, false, m.Explain()))
	}
	return c
}

// printPruned prints what became of the model in a few lines.
func printPruned(w io.Writer, r *spc.Report, model, out string, all detail) error {
	if _, err := fmt.Fprintf(w, "%s  %s, from %s of %s\n", printable(out), fileSize(out), printable(model), fileSize(model)); err != nil {
		return err
	}
	fmt.Fprintln(w, zeros(r))
	printRebuilt(w, r, "%-9s %s\n", all)
	spilled(w, r)
	if r.Written != nil && len(r.Written.Notes) > 0 {
		fmt.Fprintf(w, "%-9s %s\n", "noted", printable(all.list(r.Written.Notes)))
	}
	return printQuantised(w, r, all)
}
