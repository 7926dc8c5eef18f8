package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spc"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/passes/recon"
)

func inspectCommand() *cobra.Command {
	var layer string
	var compares, asJSON bool
	var page pageFlags
	var picture plotFlags
	var all detail
	c := &cobra.Command{
		Use:   "inspect MODEL.{spx,onnx} [OTHER.{spx,onnx}] [--plot PICTURE FILE.{png,svg}]",
		Short: "Show how each weight is stored, and why",
		Long: `Show a row for each weight: its operator, its size as a matrix M x K, its zeros,
the format that it is stored in, and the reason; and the nodes that are interpreted,
as the CPU has no kernel for them, with the share of the time that they are predicted
to take where sizes are known. With --layer, show every way in
which that layer's weight could have been stored, and why it was not. With --diff, show
what differs between two compiles: layers, totals and options.
With --html or --serve, show all of that as a page, of one model or of two beside each
other, with the graph and with times, which runs on random inputs tell unless -i gives
others. --serve :8090 serves it until an interrupt, and runs the model again when it is
asked to.`,
		Example: `  spc inspect model.spx
  spc inspect model.spx --layer '*conv_3*'
  spc inspect --diff model.spx model.onnx
  spc inspect model.spx --plot layers layers.svg
  spc inspect model.spx --json
  spc inspect model.spx --html report.html
  spc inspect model.spx model.onnx --html both.html`,
		Args:              usage(1, 2),
		ValidArgsFunction: files(2, "spx", "onnx"),
	}
	fs := c.Flags()
	fs.StringVar(&layer, "layer", "", "the `NAME` or glob of a layer or weight whose candidates to show")
	fs.BoolVar(&compares, "diff", false, "compare two models")
	page.add(c)
	picture.add(c)
	all.add(fs)
	addModelFlags(fs)
	jsonFlag(fs, &asJSON)
	complete(c, "layer", cobra.NoFileCompletions)

	c.RunE = func(c *cobra.Command, args []string) error {
		if compares {
			return printDiff(c, args, asJSON)
		}
		switch asked, err := page.asked(c, args); {
		case err != nil:
			return err
		case asked:
			return page.run(c, args)
		}
		args, err := picture.take(args, 1)
		if err != nil {
			return err
		}
		m, err := loadModel(c, args[0], sizes{}, spc.RunOptions{})
		if err != nil {
			return err
		}
		defer m.Close()
		if err := picture.draw(args[0], func() (*figure, error) { return foretold(args[0], m) }); err != nil {
			return err
		}
		return printInspected(c.OutOrStdout(), args[0], m, layer, all, asJSON)
	}
	return c
}

// printInspected prints the layers, of that name or glob unless it is empty.
func printInspected(w io.Writer, path string, m *spc.Model, layer string, all detail, asJSON bool) error {
	r := *m.Explain()
	f, err := m.Forecast(1, nil)
	if err != nil {
		return err
	}
	r.Interpreted, r.Predicted = f.Interpreted, f.Predicted
	if layer != "" {
		var err error
		if r.Layers, err = pickLayers(r.Layers, layer); err != nil {
			return err
		}
		if len(r.Layers) == 0 {
			return fmt.Errorf("%s: no layer or weight is named %q, see spc inspect %[1]s", path, layer)
		}
	}
	switch {
	case asJSON:
		return printReport(w, r)
	case layer != "":
		printCandidates(w, &r)
	default:
		printLayers(w, &r, all)
	}
	return nil
}

// pickLayers returns the layers of that very name, else those that it matches as a
// glob.
func pickLayers(layers []spc.Layer, name string) ([]spc.Layer, error) {
	keep := func(match func(string) bool) []spc.Layer {
		var out []spc.Layer
		for _, l := range layers {
			if match(l.Name) || match(l.Weight) {
				out = append(out, l)
			}
		}
		return out
	}
	if out := keep(func(s string) bool { return s == name }); len(out) > 0 {
		return out, nil
	}
	glob, err := prune.ParseGlob(name)
	if err != nil {
		return nil, fmt.Errorf("--layer: %w", err)
	}
	return keep(glob.Match), nil
}

func matrix(l *spc.Layer) string { return fmt.Sprintf("%d x %d", l.Rows, l.Cols) }

func withConfig(format, config string) string {
	if config == "" {
		return format
	}
	return format + " " + config
}

// rowNames names each row after its node, and where a node has several weights, as
// recurrent ones do, after the weight too.
func rowNames(layers []spc.Layer) []string {
	rows := map[string]int{}
	for _, l := range layers {
		rows[l.Name]++
	}
	names := make([]string, len(layers))
	for i, l := range layers {
		if names[i] = l.Name; rows[l.Name] > 1 {
			names[i] += " " + l.Weight
		}
	}
	return names
}

func printLayers(w io.Writer, r *spc.Report, all detail) {
	t := newTable(w, "name", "operator", "M x K", "zeros", "pattern", "format", "dtype", "dense", "stored", "reason")
	right(t, 3, 4, 8, 9)
	names := rowNames(r.Layers)
	for i := range r.Layers {
		l := &r.Layers[i]
		t.AppendRow([]any{names[i], l.Op, matrix(l), percent(l.Sparsity), l.Pattern, withConfig(l.Format, l.Config),
			l.DType, size(int64(l.DenseBytes)), size(int64(l.StoredBytes)), l.Reason})
	}
	t.Render()
	n := r.Totals
	fmt.Fprintf(w, "\n%d weights, %d not zero (%s zeros); %d prunable (%s zeros); %s stored, %s dense\n",
		n.Weights, n.Nonzeros, percent(share(n.Weights-n.Nonzeros, n.Weights)),
		n.Prunable, percent(share(n.PrunableZeros, n.Prunable)),
		size(int64(n.StoredBytes)), size(int64(n.DenseBytes)))
	printRemoved(w, r, "%s ", "these totals count them as zeros and in dense bytes, the rows do not")
	if r.Options.Quantize == "int8" && slices.ContainsFunc(r.Layers, func(l spc.Layer) bool { return l.DType == tensor.I8.String() || l.DType == tensor.U8.String() }) {
		fmt.Fprintln(w, "the rows count zeros that rounding to 8 bits made, these totals do not")
	}
	printTimes(w, r)
	printTuned(w, r)
	printInterpreted(w, r, all)
	printRecognised(w, r, all)
	printTransposes(w, r, all)
	printRebuilt(w, r, "%s %s\n", all)
	if len(r.Options.Command) > 0 {
		tuned := ""
		if r.Tuned != nil && !slices.Contains(r.Options.Command, "--tune") {
			tuned = ", and spc tune"
		}
		fmt.Fprintf(w, "made by %s%s\n", printable(shell(r.Options.Command)), tuned)
	}
}

// printInterpreted lists the operators that have no kernel, with their nodes and the time that they are predicted to take.
func printInterpreted(w io.Writer, r *spc.Report, all detail) {
	for _, k := range r.Interpreted {
		time := ""
		if k.Share > 0 {
			time = fmt.Sprintf(", about %s of the time", percent(k.Share))
		}
		fmt.Fprintf(w, "interpreted %s%s: %s\n", plural(len(k.Nodes), k.Op+" node"), time, all.list(printables(k.Nodes)))
	}
}

// fitted says how the model was pruned on samples; it is empty where it was not.
func fitted(r *spc.Report) string {
	if r.Prune == nil || r.Prune.Samples == 0 {
		return ""
	}
	p := r.Prune
	seen := plural(p.Samples, "calibration sample")
	switch p.Runs {
	case p.Samples:
	case 0:
		seen = plural(p.Samples, "run") + " of calibration samples"
	default:
		seen += " in " + plural(p.Runs, "run")
	}
	method := p.Method
	if p.Dropped != "" {
		method = fmt.Sprintf("%s, as %s would lose more,", spc.OBS, p.Method)
	}
	s := fmt.Sprintf("by %s on %s, allocation %s", method, seen, p.Allocate)
	for i, t := range p.Trials {
		switch {
		case len(p.Trials) == 1 && t.Allocate == p.Allocate:
		case len(p.Trials) == 1: // nothing to compare
			s += ": " + t.Allocate
		case i == 0:
			s += fmt.Sprintf(": %s, divergence %s", t.Allocate, nats(t.Divergence, 3))
		default:
			s += fmt.Sprintf(", not %s, %s", t.Allocate, nats(t.Divergence, 3))
		}
	}
	return s
}

// reconstructed says what gradients did; it is empty where nothing was trained.
func reconstructed(r *spc.Report, all detail) string {
	if r.Prune == nil || len(r.Prune.Blocks) == 0 {
		return ""
	}
	// Of the blocks that pruning changed anything in, those that were kept, those that did
	// not come nearer by themselves, and those that moved the model's outputs away.
	blocks, kept, stuck, away := 0, 0, 0, 0
	var whole, not []string
	for _, b := range r.Prune.Blocks {
		if b.Note != "" {
			not = append(not, fmt.Sprintf("%s to %s: %s", printable(b.First), printable(b.Last), printable(b.Note)))
		}
		what, of := map[string]string{recon.OfGains: "sizes of rows", recon.OfModel: "the whole model"}[b.Of]
		switch {
		case b.Steps == 0: // nothing was off, or there is a note
		case of && b.Share > 0:
			whole = append(whole, fmt.Sprintf("%s, loss %.3g to %.3g", what, b.Before, b.After))
		case of:
			whole = append(whole, what+" no better")
		default:
			switch blocks++; {
			case b.Share > 0:
				kept++
			case b.After < b.Before:
				away++
			default:
				stuck++
			}
		}
	}
	var said []string
	if blocks > 0 {
		said = append(said, fmt.Sprintf("%d of %s kept", kept, plural(blocks, "block")))
	}
	if away > 0 {
		said = append(said, fmt.Sprintf("%d left as they moved the model's outputs away", away))
	}
	if stuck > 0 {
		said = append(said, fmt.Sprintf("%d came no nearer", stuck))
	}
	said = append(said, whole...)
	if d := r.Prune.Rebuilt; d[0] > 0 {
		said = append(said, fmt.Sprintf("divergence on samples held out %s to %s", nats(d[0], 3), nats(d[1], 3)))
	}
	if len(not) > 0 {
		said = append(said, "not "+all.list(not))
	}
	return strings.Join(said, "; ")
}

func printCandidates(w io.Writer, r *spc.Report) {
	how := map[string]string{}
	if r.Prune != nil {
		for _, l := range r.Prune.Layers {
			how[l.Weight] = l.How
		}
	}
	layers := r.Layers
	for i := range layers {
		l := &layers[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s), weight %s: %s, %s zeros, %s\n%s: %s\n",
			printable(l.Name), l.Op, printable(l.Weight), matrix(l), percent(l.Sparsity), predictedFor(l), withConfig(l.Format, l.Config), l.Reason)
		if h := how[l.Weight]; h != "" {
			fmt.Fprintf(w, "pruned by %s\n", h)
		}
		if len(l.Candidates) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if len(l.Points) > 0 {
			printPoints(w, l)
			continue
		}
		t := newTable(w, "", "format", "kernel", "dtype", "stored", "work", "peak", "efficiency", "predicted", "measured", "why")
		right(t, 5, 6, 7, 8, 9, 10)
		t.SuppressEmptyColumns() // of times, where none was measured
		for _, c := range l.Candidates {
			mark, measured := "", ""
			if c.Chosen {
				mark = "*"
			}
			if c.MeasuredUs > 0 {
				measured = fmt.Sprintf("%.4g us", c.MeasuredUs)
				if c.Noise > 0 {
					measured += fmt.Sprintf(" ± %.0f%%", 100*c.Noise)
				}
			}
			t.AppendRow([]any{mark, withConfig(c.Format, c.Config), c.Kernel, c.DType, size(int64(c.StoredBytes)),
				fmt.Sprintf("%.4g MFLOP", c.Work/1e6), fmt.Sprintf("%.4g GFLOP/s", c.Peak/1e9), percent(c.Efficiency),
				fmt.Sprintf("%.4g us", c.PredictedUs), measured, c.Why})
		}
		t.Render()
	}
}
