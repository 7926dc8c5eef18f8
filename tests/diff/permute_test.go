package diff

import (
	"context"
	"math/rand/v2"
	"testing"

	"spc/backend/ref"
	"spc/ir/onnx"
	"spc/ir/tensor"
	pipeline "spc/passes"
	"spc/passes/prune"
	"spc/tests/graphtest"
)

// Channels that may change places do so at random, in graphs as they are imported and as they are when
// they are pruned, and the interpreter gives what it gave: in as many graphs as it takes to see enough of
// them, since what few graphs hold changes with every operator that Generate learns.
func TestChannelsInAnotherOrder(t *testing.T) {
	const seed, least, most, enough = 31, 500, 5000, 20
	t.Logf("seed %d", seed)
	groups := 0
	for i := uint64(0); i < least || groups < enough && i < most; i++ {
		c, err := Generate(seed, i)
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.oracle(c.Model, c.Runs[0].Inputs, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, stop := range []string{"infer", "biases"} {
			o := onnx.Options{Shapes: map[string][]int{}}
			for name, x := range c.Runs[0].Inputs {
				if !x.DType().IsList() {
					o.Shapes[name] = x.Shape()
				}
			}
			g, _, err := onnx.ImportBytes(c.Model, "", o)
			if err == nil {
				err = pipeline.Run(context.Background(), &pipeline.Context{}, g, pipeline.Options{StopAfter: stop})
			}
			if err != nil {
				t.Fatalf("graph %d: %v", i, err)
			}
			p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern("2:4")}})
			if err != nil {
				t.Fatalf("graph %d: %v", i, err)
			}
			x, r := p.Exchanges(nil), rand.New(rand.NewPCG(seed, i))
			var orders [][]int
			for _, group := range x.Groups {
				orders = append(orders, r.Perm(group.Size))
			}
			if groups += len(orders); len(orders) == 0 {
				continue
			}
			if err := x.Apply(orders); err != nil {
				t.Fatalf("graph %d: %v", i, err)
			}
			in := c.Runs[0].Inputs
			list := make([]*tensor.Tensor, len(g.Inputs))
			for k, v := range g.Inputs {
				list[k] = in[v.Name]
			}
			got, err := ref.Run(context.Background(), g, list)
			if err != nil {
				t.Fatalf("graph %d after %s: %v", i, stop, err)
			}
			for k, y := range got {
				if class, detail := want[g.OutputName(k)].differs(y); class != "" {
					t.Errorf("graph %d after %s: output %s: %s: %s", i, stop, g.OutputName(k), class, detail)
				}
			}
		}
	}
	if groups < enough {
		t.Errorf("%d groups of channels in %d graphs, want %d", groups, most, enough)
	}
}
