package quant_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/quant"
)

// A weight that was widened has the codes that it had where nobody changed it, whatever
// the types of codes and scales round, and codes of zero where it was made zero.
func TestNarrowWeightsKeepTheirCodes(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	ranges := map[tensor.DType][2]float64{
		tensor.I8: {-128, 127}, tensor.U8: {0, 255}, tensor.I16: {-32768, 32767}, tensor.U16: {0, 65535},
		tensor.I4: {-8, 7}, tensor.U4: {0, 15}, tensor.F8E4M3FN: {-448, 448}, tensor.F8E5M2: {-57344, 57344},
	}
	scales := []tensor.DType{tensor.F32, tensor.F16, tensor.BF16}
	for _, dt := range slices.Sorted(maps.Keys(ranges)) {
		span := ranges[dt]
		for i := range 150 {
			shape := []int{1 + r.IntN(6), 1 + r.IntN(6)}
			draw := func(dt tensor.DType, f func() float64, shape ...int) *tensor.Tensor {
				v := make([]float64, tensor.New(tensor.Bool, shape...).Len())
				for i := range v {
					v[i] = f()
				}
				return tensor.FromFloat64s(tensor.F64, v, shape...).To(dt)
			}
			code := func() float64 {
				if v := span[0] + r.Float64()*(span[1]-span[0]+1); dt.IsInt() {
					return math.Floor(v)
				}
				return math.Exp(r.NormFloat64())
			}
			o, err := op.Registry.New("DequantizeLinear")
			if err != nil {
				t.Fatal(err)
			}
			d := o.(*op.DequantizeLinear)
			d.Axis = r.IntN(2)
			var along []int // of the scales
			switch i % 3 {
			case 1:
				along = []int{shape[d.Axis]}
			case 2:
				d.BlockSize, along = 2, slices.Clone(shape)
				along[d.Axis] = (along[d.Axis] + 1) / 2
			}
			w := draw(dt, code, shape...)
			g := ir.NewGraph("g")
			in := []*ir.Value{
				g.NewConst("w", w),
				g.NewConst("scale", draw(scales[i%len(scales)], func() float64 { return math.Exp(3 * r.NormFloat64()) }, along...)),
			}
			if r.IntN(2) == 0 && dt.IsInt() {
				in = append(in, g.NewConst("zero", draw(dt, code, along...)))
			}
			n := g.NewNode("dequantize", d, in, "wide")
			if err := n.Infer(); err != nil {
				t.Fatal(err)
			}
			product, err := op.Registry.New("MatMul")
			if err != nil {
				t.Fatal(err)
			}
			x := g.NewInput("x", ir.Shaped(n.Outputs[0].Type.DType, 2, shape[0]))
			g.Outputs = g.NewNode("product", product, []*ir.Value{x, n.Outputs[0]}, "y").Outputs
			if err := g.Infer(); err != nil {
				t.Fatal(err)
			}
			all, err := quant.Widen(g)
			if err != nil || len(all) != 1 {
				t.Fatalf("%d weights, %v", len(all), err)
			}
			pruned := all[0].Weight.Const.To(tensor.F32).Clone()
			gone := r.IntN(pruned.Len())
			pruned.F32s()[gone] = 0
			all[0].Weight.SetConst(pruned.To(all[0].Weight.Type.DType))
			if err := quant.Restore(g, all); err != nil {
				t.Fatal(err)
			}
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
			out, err := g.Nodes[0].Op.Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{g.Nodes[0].Inputs[0].Const, in[1].Const, constant(g.Nodes[0].Input(2))})
			if err != nil {
				t.Fatal(err)
			}
			if v := out[0].Float64s()[gone]; v != 0 && !math.IsNaN(v) { // a scale may have become infinite
				t.Errorf("%v, scales of %v: a zero became %v", w, in[1].Type, v)
			}
			got, size := g.Nodes[0].Inputs[0].Const, dt.Size()
			if got.DType() != dt {
				t.Fatalf("%v, want %v", got, w)
			}
			for k := range w.Len() {
				if a, b := got.Bytes()[k*size:][:size], w.Bytes()[k*size:][:size]; k != gone && string(a) != string(b) {
					t.Fatalf("%v, scales of %v: element %d has the code %v, want %v", w, in[1].Type, k, a, b)
				}
			}
		}
	}
}

func constant(v *ir.Value) *tensor.Tensor {
	if v == nil {
		return nil
	}
	return v.Const
}
