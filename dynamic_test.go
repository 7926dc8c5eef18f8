package spc_test

import (
	"fmt"
	"regexp"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/tests/archs"
)

// Models whose activations are quantised as they run compute in kernels what the interpreter makes of
// them, dense and pruned.
func TestDynamicallyQuantisedModels(t *testing.T) {
	groups, err := spc.ParsePattern("block:1x4")
	if err != nil {
		t.Fatal(err)
	}
	left := regexp.MustCompile(`= (MatMulInteger|ConvInteger) `)
	for i, a := range archs.Tiny {
		if a.Name == "lstm" { // has no products with weights
			continue
		}
		m, err := a.Build(1)
		if err != nil {
			t.Fatal(err)
		}
		for k := range 4 {
			d := archs.Dynamic{Unsigned: k%2 == 1, PerRow: k > 1}
			name := fmt.Sprintf("%s %+v", a.Name, d)
			b, err := proto.Marshal(archs.QuantizeDynamic(m.Proto(), d))
			if err != nil {
				t.Fatal(err)
			}
			var prune spc.PruneOptions
			if (i+k)%2 == 0 {
				prune = spc.PruneOptions{Sparsity: 0.6, Pattern: groups}
			}
			c, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: b, Prune: prune, Debug: spc.DebugOptions{Verify: true}})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if s := left.FindString(c.Graph()); s != "" {
				t.Errorf("%s: there is a node%s", name, s)
			}
			in := randomInputs(c, uint64(i), 3)
			got, err := c.Run(t.Context(), in)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want, err := c.Interpret(t.Context(), in)
			if prune.Sparsity == 0 {
				o, failed := spc.Import(t.Context(), spc.ImportOptions{Bytes: b})
				if failed != nil {
					t.Fatal(failed)
				}
				want, err = o.Interpret(t.Context(), in)
			} else if totals := c.Explain().Totals; float64(totals.PrunableZeros) < 0.5*float64(totals.Prunable) {
				t.Errorf("%s: %d zeros of %d", name, totals.PrunableZeros, totals.Prunable)
			}
			if err != nil {
				t.Fatal(err)
			}
			// An activation that rounding moves by a step moves others.
			if e := relL2(t, got, want); !(e <= 0.05) {
				t.Errorf("%s: relative error %v", name, e)
			}
			c.Close()
		}
	}
}
