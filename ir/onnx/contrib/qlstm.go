package contrib

import (
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// The inputs of DynamicQuantizeLSTM: those of LSTM, whose W and R are [directions, inputs, 4*hidden], and the scales and
// zero points of these.
const (
	qlstmX = iota
	qlstmW
	qlstmR
	qlstmScaleW = iota + 5
	qlstmZeroW
	qlstmScaleR
	qlstmZeroR
)

// dynamicQuantizeLSTM is an LSTM of weights of integers, which are constants. X is rounded to 8 bits as ONNX Runtime rounds it.
// ONNX Runtime rounds what goes from one step to the next, too, which LSTM does not.
func dynamicQuantizeLSTM(c *call) []*ir.Value {
	var a struct {
		op.Recurrent
		InputForget bool `attr:"input_forget,0"`
	}
	c.attrs(&a)
	if a.BatchFirst {
		c.invalid("unknown attribute layout")
	}
	in := make([]*ir.Value, 8)
	copy(in, c.Inputs)
	c.dims(qlstmX, 3)
	in[qlstmX] = c.rounded(qlstmX)
	in[qlstmW] = c.gates(qlstmW, qlstmScaleW, qlstmZeroW)
	in[qlstmR] = c.gates(qlstmR, qlstmScaleR, qlstmZeroR)
	for in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	return c.add(&op.LSTM{Recurrent: a.Recurrent, InputForget: a.InputForget}, 3, in...)
}

// gates returns the weights in input i, integers [directions, inputs, gates*hidden], as LSTM has them: floats
// [directions, gates*hidden, inputs]. Their scales and zero points are [directions] or [directions, gates*hidden].
func (c *call) gates(i, scale, zero int) *ir.Value {
	dt := c.typed(i, bytes8...).Type.DType
	c.dims(i, 3)
	w := c.fixed(i)
	dirs, in, out := w.Dim(0), w.Dim(1), w.Dim(2)
	param := func(i int, dt tensor.DType) *tensor.Tensor {
		c.typed(i, dt)
		t := c.fixed(i)
		if r := t.Rank(); r != 1 && r != 2 || t.Dim(0) != dirs || r == 2 && t.Dim(1) != out {
			c.invalid("input %d is %v, want %v or %v", i, t, []int{dirs}, []int{dirs, out})
		}
		return t
	}
	scales, zeros := param(scale, tensor.F32).F32s(), param(zero, dt).Ints()
	t := tensor.New(tensor.F32, dirs, out, in)
	for d := range dirs {
		for k := range out {
			s, z := scales[(d*out+k)*len(scales)/(dirs*out)], zeros[(d*out+k)*len(zeros)/(dirs*out)]
			row := t.F32s()[(d*out+k)*in:][:in]
			for j := range row {
				q := int(w.Bytes()[(d*in+j)*out+k])
				if dt == tensor.I8 {
					q = int(int8(q))
				}
				row[j] = s * float32(q-z)
			}
		}
	}
	return c.named(i, t)
}
