package contrib

import (
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// broken is a node on integers with one thing changed.
type broken struct {
	kind  string
	attrs Attrs
	dims  []string // of the first input, where they are open
	in    []*tensor.Tensor
	out   string
	given bool // the inputs of the node are all inputs of the model
}

// with changes input i, nil for an absent one.
func (b broken) with(i int, t *tensor.Tensor) broken {
	b.in = slices.Clone(b.in)
	b.in[i] = t
	return b
}

// set changes an attribute.
func (b broken) set(name string, v any) broken {
	a := Attrs{name: v}
	for k, v := range b.attrs {
		if k != name {
			a[k] = v
		}
	}
	b.attrs = a
	return b
}

func (b broken) make(_ *Maker, c *Case) {
	names := make([]string, len(b.in))
	for i, t := range b.in {
		name := "in" + string(rune('a'+i))
		switch {
		case t == nil:
		case i == 0 || b.given:
			names[i] = c.Input(name, t, b.dims...)
		default:
			names[i] = c.Weight(name, t)
		}
	}
	c.Node(Domain+":"+b.kind, b.attrs, names, b.out)
}

func TestOperatorsOnIntegersAreRefused(t *testing.T) {
	u8 := func(shape ...int) *tensor.Tensor { return tensor.New(tensor.U8, shape...) }
	i8 := func(shape ...int) *tensor.Tensor { return tensor.New(tensor.I8, shape...) }
	f32 := func(shape ...int) *tensor.Tensor { return tensor.New(tensor.F32, shape...) }
	add := broken{kind: "QLinearAdd", in: []*tensor.Tensor{u8(2, 3), f32(), u8(), u8(3), f32(), u8(), f32(), u8()}, out: "y:u8"}
	leaky := broken{kind: "QLinearLeakyRelu", in: add.in[:5:5], out: "y:u8"}.with(3, f32()).with(4, u8())
	concat := broken{kind: "QLinearConcat", attrs: Attrs{"axis": 1}, in: []*tensor.Tensor{f32(), u8(), u8(2, 3), f32(), u8(), u8(2, 4), f32(), u8()}, out: "y:u8"}
	pool := broken{kind: "QLinearAveragePool", attrs: Attrs{"kernel_shape": []int{2, 2}}, in: leaky.with(0, u8(1, 2, 4, 5)).in, out: "y:u8"}
	global := broken{kind: "QLinearGlobalAveragePool", in: pool.in, out: "y:u8"}
	soft := broken{kind: "QLinearSoftmax", attrs: Attrs{"opset": 13}, in: leaky.in, out: "y:u8"}
	where := broken{kind: "QLinearWhere", in: []*tensor.Tensor{tensor.New(tensor.Bool, 2, 3), u8(2, 3), f32(), u8(), u8(3), f32(), u8(), f32(), u8()}, out: "y:u8"}
	conv := broken{kind: "QLinearConv", in: []*tensor.Tensor{u8(1, 3, 4, 5), f32(), u8(), i8(2, 3, 1, 1), f32(2), i8(2), f32(), u8()}, out: "y:u8"}
	product := broken{kind: "MatMulIntegerToFloat", in: []*tensor.Tensor{u8(2, 4), i8(4, 3), f32(), f32(3), u8(), i8(3), f32(3)}, out: "y"}
	dynamic := broken{kind: "DynamicQuantizeMatMul", in: []*tensor.Tensor{f32(2, 4), i8(4, 3), f32(3), i8(3), f32(3)}, out: "y"}
	gemm := broken{kind: "QGemm", in: []*tensor.Tensor{u8(2, 4), f32(), u8(), i8(4, 3), f32(3), i8(3), tensor.New(tensor.I32, 3), f32(), u8()}, out: "y:u8"}
	quantize := broken{kind: "QuantizeLinear", attrs: Attrs{"axis": 1}, in: []*tensor.Tensor{f32(2, 3), f32(3), u8(3)}, out: "y:u8"}
	attention := broken{kind: "QAttention", attrs: Attrs{"num_heads": 2}, out: "y",
		in: []*tensor.Tensor{u8(2, 5, 6), i8(6, 24), f32(24), f32(), f32(), tensor.New(tensor.I32, 2), u8(), i8(), f32(2, 2, 2, 3, 4)}}
	lstm := broken{kind: "DynamicQuantizeLSTM", attrs: Attrs{"hidden_size": 3}, out: "y",
		in: []*tensor.Tensor{f32(4, 2, 5), i8(1, 5, 12), i8(1, 3, 12), nil, nil, nil, nil, nil, f32(1), i8(1), f32(1, 12), i8(1, 12)}}
	embed := broken{kind: "QEmbedLayerNormalization", out: "y", in: []*tensor.Tensor{tensor.New(tensor.I32, 2, 4), nil, u8(7, 8), u8(6, 8), nil, u8(8), u8(8), nil,
		f32(), f32(), nil, f32(), f32(), u8(), u8(), nil, u8(), u8()}}
	open := add.with(1, f32(2))
	open.given = true
	refuses(t, []refusal{
		{"scale of two", add.with(1, f32(2)).make, ir.ErrInvalid, "input 1 is f32[2], want one number"},
		{"scale of two, computed", open.make, ir.ErrInvalid, "input 1 is f32[2], want one number"},
		{"type of a scale", add.with(4, u8()).make, ir.ErrInvalid, "input 4 is u8[], want f32"},
		{"type of a zero point", add.with(2, i8()).make, ir.ErrInvalid, "input 2 is i8[], want u8"},
		{"zero point of two", add.with(7, u8(2)).make, ir.ErrInvalid, "input 7 is u8[2], want one number"},
		{"no second operand", add.with(3, nil).make, ir.ErrInvalid, "input 3 is absent"},
		{"no scale of the result", add.with(6, nil).make, ir.ErrInvalid, "input 6 is absent"},
		{"floats", add.with(0, f32(2, 3)).make, ir.ErrInvalid, "input 0 is f32[2,3], want one of [u8 i8]"},
		{"shapes", add.with(3, u8(2)).make, ir.ErrInvalid, "do not broadcast"},
		{"unknown attribute", add.set("alpha", 1).make, ir.ErrInvalid, "unknown attribute alpha"},
		{"alpha", leaky.set("alpha", "x").make, ir.ErrInvalid, "attribute alpha"},
		{"no axis", broken{kind: "QLinearConcat", in: concat.in, out: "y:u8"}.make, ir.ErrInvalid, "attribute axis is missing"},
		{"axis", concat.set("axis", 2).make, ir.ErrInvalid, "axis"},
		{"a tensor without a quantisation", broken{kind: "QLinearConcat", attrs: concat.attrs, in: concat.in[:6], out: "y:u8"}.make, ir.ErrInvalid, "6 inputs, want"},
		{"tensors of two types", concat.with(5, i8(2, 4)).make, ir.ErrInvalid, "input 5 is i8[2,4], want u8"},
		{"no kernel", pool.set("kernel_shape", []int{}).make, ir.ErrInvalid, "kernel"},
		{"axes of a kernel", pool.set("kernel_shape", []int{2}).make, ir.ErrInvalid, "kernel"},
		{"up and padded", pool.set("ceil_mode", 1).set("count_include_pad", 1).make, ir.ErrUnsupported, "ceil_mode and count_include_pad are both set"},
		{"no image", global.with(0, u8(2, 3)).set("channels_last", 1).make, ir.ErrInvalid, "want rank 3 or more"},
		{"no opset", broken{kind: "QLinearSoftmax", in: soft.in, out: "y:u8"}.make, ir.ErrInvalid, "attribute opset is missing"},
		{"axis of a softmax", soft.set("axis", 3).make, ir.ErrInvalid, "axis"},
		{"condition", where.with(0, u8(2, 3)).make, ir.ErrInvalid, "input 0 is u8[2,3], want bool"},
		{"channels", conv.with(0, u8(1, 2, 4, 5)).make, ir.ErrInvalid, "input has 2 channels, want 3"},
		{"scales of channels", conv.with(4, f32(3)).make, ir.ErrInvalid, "input 4 is f32[3]"},
		{"scale of an image", conv.with(1, f32(3)).make, ir.ErrInvalid, "input 1 is f32[3], want one number"},
		{"rows of a weight", product.with(1, i8(5, 3)).make, ir.ErrInvalid, "4 columns, want 5"},
		{"scales of columns", product.with(3, f32(4)).make, ir.ErrInvalid, "scale is f32[4], want f32[3]"},
		{"scale of rows", product.with(2, f32(2)).make, ir.ErrInvalid, "input 2 is f32[2], want one number"},
		{"zero points of columns", product.with(5, u8(3)).make, ir.ErrInvalid, "input 5 is u8[3], want i8"},
		{"scales of a vector", product.with(1, i8(4)).make, ir.ErrInvalid, "want one number for what is no matrix"},
		{"rank of a bias", product.with(6, f32(1, 3)).make, ir.ErrInvalid, "want rank 1"},
		{"integers to be quantised", dynamic.with(0, u8(2, 4)).make, ir.ErrInvalid, "input 0 is u8[2,4], want f32"},
		{"floats as weights", dynamic.with(1, f32(4, 3)).make, ir.ErrInvalid, "input 1 is f32[4,3], want one of [u8 i8]"},
		{"scale without a zero point", gemm.with(8, nil).make, ir.ErrInvalid, "must come together"},
		{"zero point without a scale", gemm.with(7, nil).make, ir.ErrInvalid, "must come together"},
		{"type of a bias", gemm.with(6, f32(3)).make, ir.ErrInvalid, "input 6 is f32[3], want i32"},
		{"length of a bias", gemm.with(6, tensor.New(tensor.I32, 4)).make, ir.ErrInvalid, "want one number or 3"},
		{"rank of a matrix", gemm.with(0, u8(2, 2, 4)).make, ir.ErrInvalid, "want rank 2"},
		{"scales beside zero points", quantize.with(2, u8(2)).make, ir.ErrInvalid, "want one shape"},
		{"scales along an axis", quantize.with(1, f32(2)).with(2, u8(2)).make, ir.ErrInvalid, "scale is f32[2], want f32[3]"},
		{"heads", attention.set("num_heads", 3).make, ir.ErrInvalid, "want multiples of num_heads, 3"},
		{"no heads", attention.set("num_heads", 0).make, ir.ErrInvalid, "num_heads"},
		{"three parts", attention.with(1, i8(6, 20)).with(2, f32(20)).make, ir.ErrInvalid, "multiple of 3"},
		{"features", attention.with(1, i8(5, 24)).make, ir.ErrInvalid, "want 6 rows"},
		{"elements of a bias", attention.with(2, f32(23)).make, ir.ErrInvalid, "want 24 elements"},
		{"mask", attention.with(5, tensor.New(tensor.I32, 3)).make, ir.ErrInvalid, "fits no batch of 2"},
		{"type of a mask", attention.with(5, tensor.New(tensor.I64, 2)).make, ir.ErrInvalid, "want i32"},
		{"past", attention.with(8, f32(2, 2, 3, 3, 4)).make, ir.ErrInvalid, "past is"},
		{"rotary", attention.set("do_rotary", 1).make, ir.ErrUnsupported, "do_rotary is set"},
		{"scales of gates", lstm.with(8, f32(2)).make, ir.ErrInvalid, "input 8 is f32[2], want [1] or [1 12]"},
		{"zero points of gates", lstm.with(11, i8(1, 3)).make, ir.ErrInvalid, "input 11 is i8[1,3], want [1] or [1 12]"},
		{"type of zero points of gates", lstm.with(9, u8(1)).make, ir.ErrInvalid, "input 9 is u8[1], want i8"},
		{"hidden size", lstm.set("hidden_size", 4).make, ir.ErrInvalid, "W is f32[1,12,5], want f32[1,16,5]"},
		{"rank of gates", lstm.with(1, i8(5, 12)).make, ir.ErrInvalid, "want rank 3"},
		{"direction", lstm.set("direction", "sideways").make, ir.ErrInvalid, "sideways"},
		{"layout", lstm.set("layout", 1).make, ir.ErrInvalid, "unknown attribute layout"},
		{"columns of a table", embed.with(3, u8(6, 7)).make, ir.ErrInvalid, "input 3 is u8[6,7], want 8 columns"},
		{"segments alone", embed.with(1, tensor.New(tensor.I32, 2, 4)).make, ir.ErrInvalid, "must come together"},
		{"gamma", embed.with(5, u8(7)).make, ir.ErrInvalid, "want 8 elements"},
		{"scale of a table", embed.with(8, f32(7)).make, ir.ErrInvalid, "input 8 is f32[7], want one number"},
		{"no table", embed.with(2, nil).make, ir.ErrInvalid, "input 2 is absent"},
	})
	computed := lstm
	computed.given = true
	refuses(t, []refusal{{"weights are computed", computed.make, ir.ErrUnsupported, "input 1 is computed, want a constant"}})
}
