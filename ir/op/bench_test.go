package op

import (
	"testing"

	"spc/ir/tensor"
)

func BenchmarkEval(b *testing.B) {
	x, bias := ramp([]int{1, 64, 128, 128}), ramp([]int{64, 1, 1})
	for _, c := range []struct {
		name, kind string
		in         []*tensor.Tensor
	}{
		{"Add", "Add", []*tensor.Tensor{x, x}},
		{"AddBroadcast", "Add", []*tensor.Tensor{x, bias}},
		{"AddHalf", "Add", []*tensor.Tensor{x.To(tensor.F16), x.To(tensor.F16)}},
		{"Relu", "Relu", []*tensor.Tensor{x}},
		{"Sigmoid", "Sigmoid", []*tensor.Tensor{x}},
		{"Clip", "Clip", []*tensor.Tensor{x, tensor.Scalar(float32(0)), tensor.Scalar(float32(6))}},
		{"ReduceMeanLast", "ReduceMean", []*tensor.Tensor{x, tensor.Ints(2, 3)}},
		{"ReduceMeanFirst", "ReduceMean", []*tensor.Tensor{x, tensor.Ints(1)}},
		{"Quantize", "QuantizeLinear", []*tensor.Tensor{x, tensor.Scalar(float32(0.1))}},
	} {
		b.Run(c.name, func(b *testing.B) {
			o, err := New(c.kind)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(4 * x.Len()))
			for b.Loop() {
				if _, err := o.Eval(nil, c.in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
