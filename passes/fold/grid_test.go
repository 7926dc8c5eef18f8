package fold_test

import (
	"math/rand/v2"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
)

// dequantised builds a graph of x [n,40] times codes of a type behind DequantizeLinear with attributes and the nodes of through, and a bias.
func dequantised(t *testing.T, r *rand.Rand, dt tensor.DType, attrs map[string]any, shape, scales []int, zero int, through func(g *ir.Graph, w *ir.Value) *ir.Value) *ir.Graph {
	t.Helper()
	random := func(dt tensor.DType, shape []int) *tensor.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		least := map[tensor.DType]int{tensor.I2: -2, tensor.I4: -8, tensor.I8: -128}[dt]
		v := make([]int64, n)
		for i := range v {
			v[i] = int64(least + r.IntN(1<<dt.Bits()))
		}
		return tensor.FromInt64s(dt, v, shape...)
	}
	count := 1
	for _, d := range scales {
		count *= d
	}
	s := make([]float32, count)
	for i := range s {
		s[i] = float32(r.NormFloat64())
	}
	g := ir.NewGraph("g")
	in := []*ir.Value{g.NewConst("codes", random(dt, shape)), g.NewConst("scale", tensor.From(s, scales...))}
	switch zero {
	case 1:
		in = append(in, g.NewConst("zero", random(dt, scales)))
	case 2: // one for all
		in = append(in, g.NewConst("zero", random(dt, nil)))
	}
	w := through(g, node(t, g, "DequantizeLinear", attrs, in...))
	if w.Type.Rank() == 4 {
		g.Outputs = append(g.Outputs, node(t, g, "Conv", nil, g.NewInput("x", ir.Of(tensor.F32, ir.Sym("n"), w.Type.Dims[1], ir.Size(9), ir.Size(9))), w))
	} else {
		g.Outputs = append(g.Outputs, node(t, g, "MatMul", nil, g.NewInput("x", ir.Of(tensor.F32, ir.Sym("n"), w.Type.Dims[0])), w))
	}
	return g
}

func node(t *testing.T, g *ir.Graph, kind string, attrs map[string]any, in ...*ir.Value) *ir.Value {
	t.Helper()
	o, err := op.New(kind)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range attrs {
		if err := ir.SetAttr(o, name, v); err != nil {
			t.Fatal(err)
		}
	}
	n := g.NewNode("", o, in, "")
	if err := n.Infer(); err != nil {
		t.Fatal(err)
	}
	return n.Outputs[0]
}

// TestGridsOfFoldedWeights folds weights of codes and wants grids that their elements are of, or none.
func TestGridsOfFoldedWeights(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	same := func(_ *ir.Graph, w *ir.Value) *ir.Value { return w }
	swap := func(g *ir.Graph, w *ir.Value) *ir.Value {
		return node(t, g, "Transpose", map[string]any{"perm": []int{1, 0}}, w)
	}
	reshape := func(shape ...int) func(g *ir.Graph, w *ir.Value) *ir.Value {
		return func(g *ir.Graph, w *ir.Value) *ir.Value {
			return node(t, g, "Reshape", nil, w, g.NewConst("shape", tensor.Ints(shape...)))
		}
	}
	along := func(axis, block int) map[string]any { return map[string]any{"axis": axis, "block_size": block} }
	for _, c := range []struct {
		name          string
		types         []tensor.DType
		attrs         map[string]any
		shape, scales []int
		through       func(g *ir.Graph, w *ir.Value) *ir.Value
		bits          int // 0 for no grid
	}{
		{"blocks along K", []tensor.DType{tensor.I4, tensor.U4, tensor.I2, tensor.U2}, along(0, 16), []int{40, 3}, []int{3, 3}, same, 4},
		{"blocks of bytes", []tensor.DType{tensor.I8, tensor.U8}, along(0, 32), []int{40, 3}, []int{2, 3}, same, 8},
		{"blocks of a transposed weight", []tensor.DType{tensor.I4, tensor.U4, tensor.U8}, along(-1, 16), []int{3, 40}, []int{3, 3}, swap, -1},
		{"blocks of a convolution", []tensor.DType{tensor.I4, tensor.U4}, along(1, 16), []int{3, 36}, []int{3, 3}, reshape(3, 4, 3, 3), 4},
		{"scales of rows", []tensor.DType{tensor.U4}, map[string]any{"axis": 1}, []int{40, 3}, []int{3}, same, 4},
		{"scales of channels", []tensor.DType{tensor.I8}, map[string]any{"axis": 0}, []int{3, 4, 3, 3}, []int{3}, same, 8},
		{"two reshapes", []tensor.DType{tensor.I4}, along(0, 16), []int{40, 3}, []int{3, 3}, func(g *ir.Graph, w *ir.Value) *ir.Value {
			return reshape(40, 3)(g, reshape(4, 10, 3)(g, w))
		}, 4},
		{"blocks along M", []tensor.DType{tensor.I4}, along(1, 16), []int{40, 20}, []int{40, 2}, same, 0},
		{"small blocks", []tensor.DType{tensor.I4}, along(0, 8), []int{40, 3}, []int{5, 3}, same, 0},
		{"blocks that rows cut", []tensor.DType{tensor.I4}, along(0, 16), []int{40, 3}, []int{3, 3}, reshape(20, 6), 0},
		{"one scale", []tensor.DType{tensor.I4, tensor.U8}, nil, []int{40, 3}, nil, same, -1},
		{"one scale of a transposed weight", []tensor.DType{tensor.U4}, nil, []int{3, 40}, nil, swap, 4},
		{"one scale of a convolution", []tensor.DType{tensor.I8}, nil, []int{3, 36}, []int{1}, reshape(3, 4, 3, 3), 8},
		{"wide codes", []tensor.DType{tensor.I16}, along(0, 16), []int{40, 3}, []int{3, 3}, same, 0},
	} {
		for _, dt := range c.types {
			for zero := range 3 {
				g := dequantised(t, r, dt, c.attrs, c.shape, c.scales, zero, c.through)
				if _, err := fold.Constants(g); err != nil {
					t.Fatal(err)
				}
				u := g.WeightUses()[0]
				var grid *ir.Grid
				if u.Value.Grid != nil {
					grid = u.Value.Grid.Matrix(u.View, u.Value.Const.Shape())
				}
				if bits := c.bits; (grid == nil) != (bits == 0) || bits > 0 && grid.Bits != bits {
					t.Errorf("%s, %v: grid %+v, want one of %d bits", c.name, dt, grid, bits)
				}
				if grid == nil {
					continue
				}
				w := u.View.Matrix(u.Value.Const)
				codes, ok := grid.Encode(w)
				if !ok || !grid.Decode(codes).Equal(w) {
					t.Errorf("seed %d: %s, %v, zero %v: the weight is none of its grid", seed, c.name, dt, zero)
				}
			}
		}
	}
}
