package op_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/op/optest"
)

func TestEvalTakesWhatInferTakes(t *testing.T) {
	const seed, rounds = 11, 100
	t.Logf("seed %d, %d cases an operator", seed, rounds)
	for i := range op.Table {
		d := &op.Table[i]
		if len(ir.Subgraphs(d.Op)) > 0 {
			continue
		}
		t.Run(strings.ReplaceAll(d.Kind, ":", "_"), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			for range rounds {
				if _, err := optest.Random(r, d).Check(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
