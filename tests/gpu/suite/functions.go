package suite

import (
	"testing"

	"spc/backend"
	"spc/backend/cuda"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/chain"
	"spc/tests/graphtest"
)

// Functions tests each function of chains by the operator of its name, if there is one.
func Functions(t *testing.T, driver cuda.Driver) {
	floats := []float32{0.125, 0.25, 0.5, 0.75, 0.875, 0.9375, 0.03125, 0.625}
	above := make([]float32, len(floats)) // where what is not defined below 1 is
	for i, v := range floats {
		above[i] = 1 + v
	}
	x, high := tensor.From(floats, len(floats)), tensor.From(above, len(above))
	bools := tensor.From([]bool{true, false, true, true, false, false, true, false}, 8)
	tried := 0
	for _, f := range chain.Functions() {
		o, err := op.New(f.String())
		if err != nil {
			continue // another operator's, for some of its attributes
		}
		var g *ir.Graph
		var in []*tensor.Tensor
		for _, in = range [][]*tensor.Tensor{{x}, {high}, {bools}, {x, high}, {bools, bools}, {bools, x, high}} {
			if f == chain.Acosh && in[0] != high {
				continue
			}
			if g = functionGraph(o, in); g != nil {
				break
			}
		}
		if g == nil {
			continue // it is one of integers, or of several nodes
		}
		tried++
		t.Run(f.String(), func(t *testing.T) {
			d := &Counted{Driver: driver}
			p, err := cuda.Device{Driver: d}.Load(g, backend.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			have := make([]*tensor.Tensor, 1)
			if err := p.Run(t.Context(), in, have); err != nil {
				t.Fatal(err)
			}
			if err := graphtest.Run(t.Context(), g, one(in), func(want []*tensor.Tensor) error {
				if d := graphtest.Difference(want[0], have[0]); !(d < 1e-5) {
					t.Errorf("%v is off by %v", have[0], d)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if d.launches.Load() == 0 {
				t.Error("it ran on the CPU")
			}
		})
	}
	if tried < 50 {
		t.Errorf("%d of %d functions were tried", tried, len(chain.Functions()))
	}
}

// functionGraph is an operator on inputs of these types, between two that make it a chain, nil where it does not take them.
func functionGraph(o ir.Op, in []*tensor.Tensor) *ir.Graph {
	g := ir.NewGraph("g")
	var args []*ir.Value
	for i, x := range in {
		args = append(args, g.NewInput(string(rune('x'+i)), ir.TypeOf(x)))
	}
	n := g.NewNode("f", o, args, "y")
	g.Outputs = n.Outputs
	if n.Infer() != nil {
		return nil
	}
	return g
}
