package zoo

import (
	"math/rand/v2"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/prune"
	"spc/tests/graphtest"
)

// interpreted is what the interpreter makes of a graph of the member, of the outputs that are compared.
func interpreted(t *testing.T, member *Graph, g *ir.Graph, inputs map[string]*tensor.Tensor) map[string]*tensor.Tensor {
	t.Helper()
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		in[i] = inputs[v.Name]
	}
	list, err := ref.Run(t.Context(), g, in)
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]*tensor.Tensor{}
	for i, x := range list {
		outputs[g.OutputName(i)] = x
	}
	if outputs, err = member.Compared(outputs); err != nil {
		t.Fatal(err)
	}
	return outputs
}

// Channels that may change places do so at random, and the interpreter gives what it gave.
func TestGraphsWithChannelsInAnotherOrder(t *testing.T) {
	members, err := Members("list")
	if err != nil {
		t.Fatal(err)
	}
	const seed = 21
	moved := make(chan int, len(members))
	t.Run("members", func(t *testing.T) {
		for _, member := range members {
			t.Run(member.Name, func(t *testing.T) {
				t.Parallel()
				read, err := Read(Graphs, member.Name)
				if err != nil {
					t.Fatal(err)
				}
				g, _, err := onnx.ImportBytes(read.Model, "", onnx.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := passes.Run(t.Context(), &passes.Context{}, g, passes.Options{StopAfter: "biases"}); err != nil {
					t.Fatal(err)
				}
				before := g.Clone()
				p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern("2:4")}})
				if err != nil {
					t.Fatal(err)
				}
				x, r := p.Exchanges(nil), rand.New(rand.NewPCG(seed, 0))
				var orders [][]int
				for _, group := range x.Groups {
					orders = append(orders, r.Perm(group.Size))
				}
				moved <- len(orders)
				if len(orders) == 0 {
					return
				}
				if err := x.Apply(orders); err != nil {
					t.Fatal(err)
				}
				inputs, err := read.Inputs(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				want, have := interpreted(t, read, before, inputs), interpreted(t, read, g, inputs)
				for output, x := range want {
					report(t, output, graphtest.Difference(x, have[output]))
				}
			})
		}
	})
	close(moved)
	groups, with := 0, 0
	for n := range moved {
		if groups += n; n > 0 {
			with++
		}
	}
	if t.Logf("seed %d: %d groups in %d of %d members", seed, groups, with, len(members)); with < len(members)/2 {
		t.Errorf("channels of %d of %d members may change places, want half of them", with, len(members))
	}
}
