package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend/format"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// oneConv is a graph of a convolution, or a transposed one, with Relu and, if add is set, a residual.
func oneConv(r *rand.Rand, kind string, x, w []int, groups int, strides, dilations, pads []int, add bool) (*ir.Graph, []*tensor.Tensor, error) {
	random := func(shape ...int) *tensor.Tensor {
		t := tensor.New(tensor.F32, shape...)
		for i := range t.F32s() {
			t.F32s()[i] = float32(r.NormFloat64())
		}
		return t
	}
	g := ir.NewGraph("g")
	in := []*tensor.Tensor{random(x...)}
	weight := random(w...)
	m := w[0]
	args := []*ir.Value{g.NewInput("x", ir.TypeOf(in[0])), g.NewConst("w", weight)}
	window := op.Window{Strides: strides, Dilations: dilations, Pads: pads}
	epilogue := op.Epilogue{Act: "Relu"}
	var o ir.Op = &op.Conv{Window: window, Epilogue: epilogue, Group: groups}
	out := func() (shape []int, err error) { _, shape, err = o.(*op.Conv).Geometry(x, w); return }
	if kind == "ConvTranspose" {
		o, m = &op.ConvTranspose{Window: window, Epilogue: epilogue, Group: groups}, w[1]*groups
		out = func() (shape []int, err error) { _, shape, err = o.(*op.ConvTranspose).Geometry(x[2:], w[2:]); return }
	}
	for i := range weight.F32s() {
		if r.IntN(3) > 0 {
			weight.F32s()[i] = 0
		}
	}
	args = append(args, g.NewConst("b", random(m)))
	if add {
		shape, err := out()
		if err != nil {
			return nil, nil, err
		}
		res := random(append([]int{x[0], m}, shape...)...)
		in = append(in, res)
		args = append(args, g.NewInput("r", ir.TypeOf(res)))
	}
	n := g.NewNode("conv", o, args, "y")
	g.Outputs = []*ir.Value{n.Outputs[0]}
	return g, in, g.Infer()
}

// Convolutions by weights that a run computes compute what their operator does, with those of each run.
func TestConvolutionsByComputedWeights(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 100 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		axes, groups := 1+r.IntN(3), max(1, r.IntN(8)-4)
		x := []int{1 + r.IntN(2), groups * (1 + r.IntN(5))}
		kind, w := "Conv", []int{groups * (1 + r.IntN(20)), x[1] / groups}
		if round%2 == 1 {
			kind, w = "ConvTranspose", []int{x[1], 1 + r.IntN(40)}
		}
		var strides, dilations, pads []int
		for range axes {
			x, w = append(x, 1+r.IntN(9)), append(w, 1+r.IntN(3))
			strides, dilations, pads = append(strides, 1+r.IntN(2)), append(dilations, 1+r.IntN(2)), append(pads, r.IntN(2), r.IntN(2))
		}
		g, in, err := oneConv(r, kind, x, w, groups, strides, dilations, pads, r.IntN(2) == 0)
		if err != nil {
			continue // a window larger than the image, or pads that leave nothing
		}
		n := g.Nodes[0]
		weight := n.Inputs[1].Const
		n.SetInput(1, g.NewInput("w", ir.TypeOf(weight)))
		p := loadGraph(t, g, 1+round%2)
		in = append(in, weight)
		for range 2 {
			want, err := ref.Run(context.Background(), g, in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := run(context.Background(), p, in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("round %d: %v", round, g), got[0], want[0])
			weight = weight.Clone()
			for i := range weight.F32s() {
				weight.F32s()[i] = float32(r.NormFloat64())
			}
			in[len(in)-1] = weight
		}
		s, err := p.(*program).specialise(in)
		if err != nil {
			t.Fatal(err)
		}
		if size, _ := g.Outputs[0].Type.Shape(); !slices.Contains(size, 0) && s.main.steps[0].bound == nil {
			t.Fatalf("no kernel for %v", g)
		}
	}
}

// Convolutions over three axes compute what their operator does, whatever the kernels, strides, dilations and
// pads, by tiles and by patches, in groups, and with stored weights.
func TestConvolutionsOfVolumesAgreeWithTheOperator(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	sliced, tiled := 0, 0
	for round := range 200 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		groups := max(1, r.IntN(8)-4)
		x := []int{1 + r.IntN(2), groups * (1 + r.IntN(5)), 1 + r.IntN(5), 1 + r.IntN(9), 1 + r.IntN(9)}
		w := []int{groups * (1 + r.IntN(20)), x[1] / groups, 1 + r.IntN(3), 1 + r.IntN(3), 1 + r.IntN(3)}
		strides, dilations, pads := []int{1, 1, 1}, []int{1, 1, 1}, make([]int, 6)
		tile := 0
		if round%3 == 0 {
			tile = 2 + round%2*2
			if x[1] = 16 * (1 + r.IntN(2)); r.IntN(4) == 0 {
				x[1]--
			}
			groups, w[1], w[3], w[4] = 1, x[1], 3, 3
			strides[0], dilations[0] = 1+r.IntN(2), 1+r.IntN(2)
		} else {
			for i := range 3 {
				strides[i], dilations[i] = 1+r.IntN(2), 1+r.IntN(2)
			}
		}
		for i := range pads {
			pads[i] = r.IntN(3)
		}
		if r.IntN(4) == 0 { // neighbours are one axis
			w[3], strides[1], dilations[1], pads[1], pads[4] = 1, 1, 1, 0, 0
		}
		if r.IntN(4) == 0 {
			w[4], strides[2], dilations[2], pads[2], pads[5] = 1, 1, 1, 0, 0
		}
		g, in, err := oneConv(r, "Conv", x, w, groups, strides, dilations, pads, r.IntN(2) == 0)
		if err != nil {
			continue // a window larger than the volume
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		if f := [][2]string{{"dense", ""}, {"csr", ""}, {"ell", "4x1"}, {"block", "8x1"}}[r.IntN(4)]; groups == 1 && f[0] != "dense" {
			store(t, g, f)
		}
		withTiles(tile, func() {
			p := loadGraph(t, g, 1+round%2)
			got, err := run(context.Background(), p, in)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("round %d: %v", round, g), got[0], want[0])
			s, err := p.(*program).specialise(in)
			if err != nil {
				t.Fatal(err)
			}
			if s.main.steps[0].bound == nil {
				t.Fatalf("no kernel for %v", g)
			}
		})
		if len(g.Outputs[0].Type.Dims) == 5 {
			if sliced++; tile > 0 {
				tiled++
			}
		}
	}
	if sliced < 80 || tiled < 25 {
		t.Errorf("%d convolutions, %d of them by tiles", sliced, tiled)
	}
}

// store packs the weights of g in a format.
func store(t *testing.T, g *ir.Graph, f [2]string) {
	for _, use := range g.WeightUses() {
		mat := use.View.Matrix(use.Value.Const)
		parts, err := format.Lookup(f[0]).Pack(mat, f[1])
		if err != nil {
			t.Fatal(err)
		}
		use.Value.Store = &ir.Store{Format: f[0], Config: f[1], View: use.View, Rows: mat.Dim(0), Cols: mat.Dim(1), Parts: parts}
		use.Value.Const = nil
	}
}
