package main

import (
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
)

// Budgets of floats whose programs lose something name integers.
func TestBudgetsHintAtIntegers(t *testing.T) {
	for want, change := range map[string]func(b *spc.BudgetReport, p *spc.BudgetPoint, l *spc.Layer){
		"--quantize auto": func(*spc.BudgetReport, *spc.BudgetPoint, *spc.Layer) {},
		"--quantize int8": func(_ *spc.BudgetReport, p *spc.BudgetPoint, _ *spc.Layer) { p.Drop = nil },
		"types":           func(b *spc.BudgetReport, _ *spc.BudgetPoint, _ *spc.Layer) { b.Types = "mixed" },
		"dense":           func(_ *spc.BudgetReport, p *spc.BudgetPoint, _ *spc.Layer) { p.Sparsity = 0 },
		"loses nothing":   func(_ *spc.BudgetReport, p *spc.BudgetPoint, _ *spc.Layer) { p.Drop.Points = 0 },
		"is of integers":  func(_ *spc.BudgetReport, _ *spc.BudgetPoint, l *spc.Layer) { l.DType = tensor.I8.String() },
	} {
		p, l := spc.BudgetPoint{Sparsity: 0.5, Drop: &spc.Drop{Points: 2}}, spc.Layer{DType: tensor.F32.String()}
		b := &spc.BudgetReport{Types: "f32"}
		change(b, &p, &l)
		b.Tried = []spc.BudgetPoint{p}
		text := integersInstead(&spc.Report{Budget: b, Layers: []spc.Layer{l}})
		if hints := strings.HasPrefix(want, "--"); hints && !strings.Contains(text, want) || !hints && text != "" {
			t.Errorf("%s: %q", want, text)
		}
	}
	if text := integersInstead(&spc.Report{}); text != "" {
		t.Errorf("%q without a budget", text)
	}
}

// Hints are on standard error, and --quiet hides them.
func TestHintsAreOnStandardError(t *testing.T) {
	workspace(t)
	loud := budgeted("-o", "half.spx", "--flops", "0.3", "--pattern", "uniform", "--search", "0")
	for i, a := range loud {
		if a == "--quiet" {
			loud = append(loud[:i:i], loud[i+1:]...)
			break
		}
	}
	if r := spcRun(loud...); r.status != 0 || strings.Count(r.errors, "spc: hint: 8-bit integers were not tried") != 1 || strings.Contains(r.out, "hint") {
		t.Errorf("%+v, want a hint", r)
	}
	if r := spcRun(append(loud, "--quiet")...); r.status != 0 || strings.Contains(r.errors, "hint") {
		t.Errorf("%+v, want no hint", r)
	}
}
