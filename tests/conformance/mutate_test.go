package conformance

import (
	"math/rand/v2"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op/optest"
	"spc/ir/tensor"
)

// TestMutatedNodes changes attributes and inputs of the suite's models of one node
// and checks that operators compute or refuse what they are given.
func TestMutatedNodes(t *testing.T) {
	const seed, rounds = 5, 8
	t.Logf("seed %d, %d changes a node", seed, rounds)
	nodes, cases, taken := 0, 0, 0
	for _, test := range suite(t) {
		c := single(test)
		if c == nil {
			continue
		}
		nodes++
		r := rand.New(rand.NewPCG(seed, uint64(nodes)))
		if ok, err := c.Check(); err != nil || !ok {
			t.Errorf("%s: taken: %v, %v", test.Name, ok, err)
		}
		for range rounds {
			cases++
			ok, err := c.Mutate(r).Check()
			if err != nil {
				t.Errorf("%s: %v", test.Name, err)
			}
			if ok {
				taken++
			}
		}
	}
	t.Logf("%d nodes, %d of %d cases taken", nodes, taken, cases)
	if nodes < 900 || taken < cases/5 {
		t.Errorf("%d nodes and %d of %d cases taken are too few to tell anything", nodes, taken, cases)
	}
}

// single returns the case of a test whose graph is one node without subgraphs,
// nil for any other.
func single(test *Test) *optest.Case {
	if test.Group != "node" || len(test.Sets) == 0 {
		return nil
	}
	g, _, err := onnx.ImportBytes(test.Model, "", onnx.Options{})
	if err != nil || len(g.Nodes) != 1 || len(ir.Subgraphs(g.Nodes[0].Op)) > 0 {
		return nil
	}
	n := g.Nodes[0]
	at := map[*ir.Value]*tensor.Tensor{}
	in, err := test.inputs(test.Sets[0])
	if err != nil || len(in) != len(g.Inputs) {
		return nil
	}
	for i, v := range g.Inputs {
		at[v] = in[i]
	}
	c := &optest.Case{Op: n.Op, Outs: len(n.Outputs)}
	for _, v := range n.Inputs {
		var x *tensor.Tensor
		if v != nil {
			if x = v.Const; x == nil {
				x = at[v]
			}
		}
		c.Inputs, c.Const = append(c.Inputs, x), append(c.Const, true)
	}
	return c
}
