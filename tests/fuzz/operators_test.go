// Package fuzz checks every operator on inputs and attributes that nobody chose; run.sh
// beside it runs all fuzz targets of the module.
package fuzz

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op/optest"
	"spc/ir/tensor"
	"spc/tests/conformance"
)

// TestEvalTakesWhatInferTakes changes the attributes and inputs of the operators in
// the official suite: what inference accepts is computed, with the types that
// were inferred, or refused with an error.
func TestEvalTakesWhatInferTakes(t *testing.T) {
	archive := filepath.Join(conformance.Shared(), conformance.Archive)
	if _, err := os.Stat(archive); err != nil {
		t.Skipf("suite: %v", err)
	}
	tests, err := conformance.Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	const seed, changes = 5, 8
	t.Logf("seed %d, %d changes a node", seed, changes)
	nodes, taken := 0, 0
	for _, test := range tests {
		c := single(test)
		if c == nil {
			continue
		}
		nodes++
		if ok, err := c.Check(); err != nil || !ok {
			t.Errorf("%s, unchanged: taken: %v, %v", test.Name, ok, err)
		}
		r := rand.New(rand.NewPCG(seed, uint64(nodes)))
		for range changes {
			ok, err := c.Mutate(r).Check()
			if err != nil {
				t.Errorf("%s: %v", test.Name, err)
			}
			if ok {
				taken++
			}
		}
	}
	t.Logf("%d nodes, %d changes taken", nodes, taken)
	if nodes < 900 || taken < nodes*changes/5 {
		t.Errorf("%d nodes and %d changes taken are too few to tell anything", nodes, taken)
	}
}

// single returns the case of a test whose graph is one node without subgraphs,
// nil for any other.
func single(test *conformance.Test) *optest.Case {
	if test.Group != "node" || len(test.Sets) == 0 {
		return nil
	}
	g, _, err := onnx.ImportBytes(test.Model, "", onnx.Options{})
	if err != nil || len(g.Nodes) != 1 || len(ir.Subgraphs(g.Nodes[0].Op)) > 0 || len(g.Inputs) > len(test.Sets[0].In) {
		return nil
	}
	values := map[*ir.Value]*tensor.Tensor{}
	for i, v := range g.Inputs {
		if values[v], err = tensor.DecodeProto(test.Sets[0].In[i], v.Type.DType); err != nil {
			return nil
		}
	}
	n := g.Nodes[0]
	c := &optest.Case{Op: n.Op, Outs: len(n.Outputs)}
	for _, v := range n.Inputs {
		x := values[v]
		if v != nil && v.Const != nil {
			x = v.Const
		}
		c.Inputs, c.Const = append(c.Inputs, x), append(c.Const, true)
	}
	return c
}
