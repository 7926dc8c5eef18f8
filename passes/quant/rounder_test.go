package quant_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/quant"
)

// A Rounder makes of copies what the passes make of the graph, whether it saw the samples or was told of them.
func TestRounderDoesAsInsertDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	g := outlier(t, rng)
	var samples []*tensor.Tensor
	for range 5 {
		x := tensor.New(tensor.F32, 4, 8)
		for i := range x.F32s() {
			x.F32s()[i] = float32(rng.NormFloat64())
		}
		samples = append(samples, x)
	}
	o := quant.Options{Type: tensor.I8, Observer: observer(samples...), KeepFloat: globs(t, "m3")}
	ctx := context.Background()
	seen, err := quant.NewRounder(ctx, g, o, "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := seen.Text()
	if err != nil {
		t.Fatal(err)
	}
	blind := o
	blind.Observer = nil
	told, err := quant.NewRounder(ctx, g, blind, text)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"m0.w", "m1.w", "m2.w", "m4.w"}; !slices.Equal(seen.Weights(), want) || !slices.Equal(told.Weights(), want) || len(told.Shared()) > 0 {
		t.Fatalf("the weights %q and %q, want %q", seen.Weights(), told.Weights(), want)
	}
	for _, kept := range []string{"", "m1"} {
		weights, inside := seen.Weights(), o
		if inside.All = true; kept != "" {
			weights = slices.DeleteFunc(weights, func(w string) bool { return w == kept+".w" })
			inside.KeepFloat = globs(t, "m3", kept)
		}
		want := g.Clone()
		if _, err := quant.Insert(ctx, want, inside); err != nil {
			t.Fatal(err)
		}
		if _, err := quant.Products(want, true); err != nil {
			t.Fatal(err)
		}
		if _, err := quant.Fuse(want); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*quant.Rounder{seen, told} {
			have := g.Clone()
			if err := r.Round(have, weights); err != nil {
				t.Fatal(err)
			}
			if ir.Print(have) != ir.Print(want) {
				t.Errorf("without %q:\n%s\nwant\n%s", kept, ir.Print(have), ir.Print(want))
			}
		}
	}
	// Copies may have other weights.
	other := g.Clone()
	for _, u := range other.WeightUses() {
		w := u.Value.Const.Clone()
		for i := range w.F32s() {
			w.F32s()[i] *= 2
		}
		u.Value.SetConst(w)
	}
	once := g.Clone()
	for _, c := range []*ir.Graph{once, other} {
		if err := seen.Round(c, []string{"m0.w"}); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := ir.Print(once), ir.Print(other); a == b {
		t.Error("other weights are rounded to the same")
	}
	if err := seen.Round(g.Clone(), []string{"m3.w"}); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("a weight that is kept: %v", err)
	}
	for _, bad := range []string{"{", "{}", strings.Replace(text, `"Sum":[`, `"Sum":[1,`, 1)} {
		if _, err := quant.NewRounder(ctx, g, blind, bad); !errors.Is(err, ir.ErrCorrupt) {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
}
