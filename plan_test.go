package spc_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"spc"
	"spc/ir/tensor"
)

// Stages are planned under the names by which they are told, in their order, whatever is asked for. Steps of a stage never go back.
func TestStagesArePlanned(t *testing.T) {
	some := spc.Calibration{Inputs: samples(3, nil), Count: 3}
	cached := some
	cached.Cache, cached.Identity = filepath.Join(t.TempDir(), "cache"), "random"
	prune := func(change func(o *spc.PruneOptions)) spc.CompileOptions {
		o := spc.CompileOptions{Calibration: some, Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}}
		if change != nil {
			change(&o.Prune)
		}
		return o
	}
	cases := map[string]spc.CompileOptions{
		"nothing":   {},
		"magnitude": {Prune: spc.PruneOptions{Sparsity: 0.5}},
		"halves":    {Quantize: spc.QuantizeOptions{Type: tensor.F16}},
		"integers":  {Quantize: spc.QuantizeOptions{Type: tensor.I8}, Calibration: some},
		"all":       {Quantize: spc.QuantizeOptions{Type: tensor.I8, KeepNone: true}, Calibration: some},
		"both":      {Quantize: spc.QuantizeOptions{Type: tensor.I8}, Calibration: some, Prune: spc.PruneOptions{Sparsity: 0.5}},
		"auto":      prune(nil),
		"cached":    {Calibration: cached, Prune: spc.PruneOptions{Sparsity: 0.5}},
		"taylor":    prune(func(o *spc.PruneOptions) { o.Method = spc.Taylor }),
		"gates":     prune(func(o *spc.PruneOptions) { o.Allocate, o.Method = spc.PerLayer, spc.Gates }),
		"channels":  prune(func(o *spc.PruneOptions) { o.Pattern = spc.Pattern{Kind: spc.Channel} }),
		"slopes of channels": prune(func(o *spc.PruneOptions) {
			o.Pattern, o.Method = spc.Pattern{Kind: spc.Channel}, spc.Taylor
		}),
		"2:4": prune(func(o *spc.PruneOptions) { o.Pattern, o.Sparsity = spc.Pattern{Kind: spc.NM, N: 2, M: 4}, 0 }),
		"refined": prune(func(o *spc.PruneOptions) {
			o.Allocate, o.Method, o.Refine = spc.PerLayer, spc.Magnitude, "swaps,snows"
		}),
		"reconstructed": prune(func(o *spc.PruneOptions) {
			o.Allocate, o.Reconstruct = spc.PerLayer, spc.Recipe{"blocks": 1, "gains": 1, "model": 1}
		}),
	}
	for _, a := range spc.Allocations() {
		for _, m := range []spc.Method{spc.Magnitude, spc.Wanda} {
			cases[fmt.Sprintf("%s by %s", m, a)] = prune(func(o *spc.PruneOptions) { o.Allocate, o.Method = a, m })
		}
	}
	if testing.Short() { // what runs at once is the same in all
		maps.DeleteFunc(cases, func(name string, _ spc.CompileOptions) bool {
			return name != "magnitude" && name != "integers"
		})
	}
	// What the whole of a compilation may tell besides: what comes before there is a plan, and each sample that is read.
	besides := []string{"import", "infer", "calibrate"}
	for name, o := range cases {
		var plan []spc.Stage
		last, done, told, steps := "", 0, 0, 0.0
		at := func(stage string) int {
			return slices.IndexFunc(plan, func(s spc.Stage) bool { return s.Name == stage })
		}
		o.Plan = func(stages []spc.Stage) {
			plan, last = stages, ""
			for _, s := range stages {
				for _, x := range append(s.Steps, s.Rest) {
					if steps += x; !(x >= 0 && x < 1e6) {
						t.Errorf("%s: stage %s has a step of %g seconds", name, s.Name, x)
					}
				}
			}
		}
		o.Progress = func(stage string, d, total int) {
			if slices.Contains(besides, stage) {
				return
			}
			i := at(stage)
			switch {
			case i < 0:
				t.Errorf("%s: %q is not planned in %v", name, stage, plan)
			case last != "" && i < at(last):
				t.Errorf("%s: %q comes after %q, planned are %v", name, stage, last, plan)
			case d < 0 || d > total || stage == last && d < done:
				t.Errorf("%s: %d of %d steps of %q, after %d", name, d, total, stage, done)
			}
			last, done, told = stage, d, told+1
		}
		m := tiny(t, "resnet", o)
		if told < 20 || last != "choose" || steps == 0 {
			t.Errorf("%s: %d steps are told, the last one of %q; planned are %g seconds", name, told, last, steps)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
