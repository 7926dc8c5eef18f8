package cpu

import (
	"context"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Planes of more sums than are finished together, with lines left over, lines of more than that, and planes of few of which many are.
func TestDepthwiseConvolutionsOfIntegersMatchTheOperator(t *testing.T) {
	const seed = 811
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct {
		x, w             []int
		strides, pads    []int
		act              string
		outU8, residual8 bool
	}{
		{x: []int{2, 3, 71, 90}, w: []int{3, 1, 3, 3}, pads: []int{1, 1, 1, 1}, act: "Relu", outU8: true},
		{x: []int{1, 2, 71, 90}, w: []int{2, 1, 5, 3}, pads: []int{9, 1, 8, 1}, act: "Swish", outU8: true, residual8: true},
		{x: []int{1, 2, 140, 133}, w: []int{2, 1, 3, 3}, strides: []int{2, 2}, pads: []int{1, 1, 1, 1}, residual8: true},
		{x: []int{1, 3, 9001}, w: []int{3, 1, 7}, strides: []int{2}, pads: []int{3, 3}, outU8: true},
		{x: []int{1, 2, 3, 9001}, w: []int{2, 1, 3, 3}, pads: []int{1, 1, 1, 1}},
		{x: []int{2, 150, 7, 7}, w: []int{150, 1, 3, 3}, pads: []int{1, 1, 1, 1}, outU8: true, residual8: true},
		{x: []int{1, 150, 7, 7}, w: []int{150, 1, 7, 7}, outU8: true},
	} {
		g := ir.NewGraph("q")
		o, err := op.New("Conv")
		if err != nil {
			t.Fatal(err)
		}
		conv := o.(*op.Conv)
		conv.Group, conv.Strides, conv.Pads = c.w[0], c.strides, c.pads
		conv.XScale, conv.XZero, conv.WScale = 0.02, 77, []float32{0.01}
		conv.Act = c.act
		if c.act == "Swish" {
			conv.ActArgs = []float32{1}
		}
		if c.outU8 {
			conv.YScale, conv.YZero = 0.1, 9
		}
		x := octets(r, tensor.U8, c.x...)
		inputs, args := []*ir.Value{g.NewInput("x", ir.TypeOf(x)), g.NewConst("w", octets(r, tensor.I8, c.w...)), nil, nil}, []*tensor.Tensor{x}
		n := g.NewNode("p", o, inputs, "y")
		g.Outputs = n.Outputs
		if err := n.Infer(); err != nil {
			t.Fatal(err)
		}
		if c.residual8 {
			shape, _ := n.Outputs[0].Type.Shape()
			res := octets(r, tensor.U8, shape...)
			conv.RScale, conv.RZero = 0.05, 100
			n.SetInput(op.Residual, g.NewInput("r", ir.TypeOf(res)))
			args = append(args, res)
			if err := n.Infer(); err != nil {
				t.Fatal(err)
			}
		}
		want, err := (&ref.Interpreter{}).Run(context.Background(), g, args)
		if err != nil {
			t.Fatal(err)
		}
		for _, threads := range []int{1, 3} {
			p, err := Device{}.Load(g, backend.Options{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			if b, err := bindIntegerDepthwise(p.(*program), g.Nodes[0], conv); b == nil || err != nil {
				t.Errorf("%v by %v: no kernel, %v", c.x, c.w, err)
			}
			got := make([]*tensor.Tensor, 1)
			for range 2 {
				if err := p.Run(context.Background(), args, got); err != nil {
					t.Fatal(err)
				}
				if err := close8(got[0], want[0]); err != nil {
					t.Errorf("%v by %v, %d threads: %v", c.x, c.w, threads, err)
				}
			}
			p.Close()
		}
	}
}
