package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"spc"
	"spc/data"
	"spc/ir/tensor"
)

// verification is what verify prints.
type verification struct {
	Outputs []*comparison `json:"outputs"`
	Pass    bool          `json:"pass"`
}

func verifyCommand() *cobra.Command {
	var inputs inputFlags
	var shapes shapeFlags
	var device deviceFlags
	var seeds int
	var tolerance float64
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify A.{spx,onnx} B.{spx,onnx}",
		Short: "Compare the outputs of two models",
		Long: `Run two models on the same inputs, given or random, and show how far the outputs of
the first lie from those of the second. Inputs not given are made up from the seeds
1 to --seeds; of several runs, the worst counts.

Integers, bools and strings must be equal, and NaN matches only NaN. Where they are
not, or an output's relative l2 error |a-b| / max(|b|, 1e-12) is above --tolerance,
the exit status is 1.`,
		Example: `  spc verify model.onnx model.spx
  spc verify model.spx model.onnx --tolerance 1e-4
  spc verify model.onnx model.spx -i input=cat.npy --json`,
		Args:              usage(cobra.ExactArgs(2)),
		ValidArgsFunction: files(2, "spx", "onnx"),
	}
	inputs.add(c)
	fs := c.Flags()
	fs.IntVar(&seeds, "seeds", 3, "how many random inputs to compare on")
	fs.Float64Var(&tolerance, "tolerance", 0, "the largest relative l2 error that passes; without it any does")
	device.add(c, "the first model")
	shapes.add(fs)
	jsonFlag(fs, &asJSON)
	complete(c, "seeds", cobra.NoFileCompletions)
	complete(c, "tolerance", cobra.NoFileCompletions)

	c.RunE = func(c *cobra.Command, args []string) error {
		if seeds < 1 {
			return fmt.Errorf("--seeds %d, want 1 or more", seeds)
		}
		if !fs.Changed("tolerance") {
			tolerance = -1
		} else if !(tolerance >= 0) {
			return fmt.Errorf("--tolerance %v, want a number from 0", tolerance)
		}
		s, err := shapes.parse()
		if err != nil {
			return err
		}
		var models [2]*spc.Model
		for i, path := range args {
			if models[i], err = loadModel(c, path, s); err != nil {
				return err
			}
			defer models[i].Close()
			if err := device.set(c, models[i]); err != nil {
				return err
			}
			device.device, device.precision, device.libraries = "cpu", "f32", "auto" // of the second
		}
		if err := samePorts(args, models); err != nil {
			return err
		}
		r := request{ports: tighter(models), sizes: s, norm: func() (data.Norm, error) { return inputs.norm.norm(fs) }}
		if r.sources, err = inputs.sources(r.ports); err != nil {
			return fmt.Errorf("%s and %s: %w", args[0], args[1], err)
		}
		if len(r.sources) == len(r.ports) {
			seeds = 1 // nothing is made up
		}
		v := verification{Pass: true}
		for _, p := range models[1].Outputs() {
			v.Outputs = append(v.Outputs, &comparison{Name: p.Name})
		}
		p := newProgress(c)
		for seed := range seeds {
			p.stage("verify", seed, seeds)
			r.missing = &data.Random{Seed: uint64(seed + 1)}
			if err := v.run(c.Context(), args, models, &r); err != nil {
				p.close()
				return err
			}
		}
		p.close()
		for _, o := range v.Outputs {
			v.Pass = v.Pass && o.pass(tolerance)
		}
		if asJSON {
			if err := printJSON(c.OutOrStdout(), v); err != nil {
				return err
			}
		} else {
			v.print(c.OutOrStdout(), tolerance)
		}
		if !v.Pass {
			return errFailed
		}
		return nil
	}
	return c
}

// run compares the models on one set of inputs.
func (v *verification) run(ctx context.Context, paths []string, models [2]*spc.Model, r *request) error {
	in, err := r.tensors()
	if err != nil {
		return fmt.Errorf("%s and %s: %w", paths[0], paths[1], err)
	}
	var out [2]map[string]*tensor.Tensor
	for i, m := range models {
		if out[i], err = m.Run(ctx, in); err != nil {
			return fmt.Errorf("%s: %w", paths[i], err)
		}
	}
	for _, c := range v.Outputs {
		if err := c.add(out[0][c.Name], out[1][c.Name]); err != nil {
			return fmt.Errorf("%s and %s: %w", paths[0], paths[1], err)
		}
	}
	return nil
}

// samePorts checks that the models have inputs and outputs of the same names and
// types.
func samePorts(paths []string, models [2]*spc.Model) error {
	for _, kind := range []struct {
		name string
		of   func(*spc.Model) []spc.Port
	}{{"inputs", (*spc.Model).Inputs}, {"outputs", (*spc.Model).Outputs}} {
		a, b := kind.of(models[0]), kind.of(models[1])
		same := func(a, b []spc.Port) bool {
			for _, p := range a {
				if !slices.ContainsFunc(b, func(q spc.Port) bool { return p.Name == q.Name && p.DType == q.DType }) {
					return false
				}
			}
			return true
		}
		if !same(a, b) || !same(b, a) {
			return fmt.Errorf("%s of %s are %s, those of %s are %s", kind.name, paths[0], describe(a), paths[1], describe(b))
		}
	}
	return nil
}

// tighter returns the inputs, each as the model declares it that knows more of
// its dimensions.
func tighter(models [2]*spc.Model) []spc.Port {
	ports := models[0].Inputs()
	known := func(p spc.Port) int {
		n := 0
		for _, d := range p.Dims {
			if d.Known() {
				n++
			}
		}
		return n
	}
	for _, q := range models[1].Inputs() {
		i := slices.IndexFunc(ports, func(p spc.Port) bool { return p.Name == q.Name })
		if !ports[i].Ranked || known(q) > known(ports[i]) {
			q.Bound = max(q.Bound, ports[i].Bound)
			ports[i] = q
		} else {
			ports[i].Bound = max(ports[i].Bound, q.Bound)
		}
	}
	return ports
}

func (v *verification) print(w io.Writer, tolerance float64) {
	t := newTable(w, "output", "shape", "max abs", "max rel", "rel l2", "cosine", "top-1", "")
	right(t, 3, 4, 5, 6, 7)
	for _, o := range v.Outputs {
		top1, verdict := "-", ""
		if o.Top1 != nil {
			top1 = percent(*o.Top1)
		}
		switch {
		case o.exact != "":
			verdict = o.exact
		case !o.pass(tolerance):
			verdict = fmt.Sprintf("rel l2 above %g", tolerance)
		}
		t.AppendRow([]any{o.Name, shapeText(o.Shape), o.MaxAbs, o.MaxRel, o.RelL2, fmt.Sprintf("%.6f", float64(o.Cosine)), top1, verdict})
	}
	t.Render()
	verdict := "PASS"
	switch {
	case !v.Pass:
		verdict = "FAIL"
	case tolerance < 0:
		verdict = "without --tolerance differences between floats are shown, not judged"
	}
	fmt.Fprintf(w, "\n%s\n", verdict)
}
