package onnxgo

import (
	"testing"

	gorgonia "gorgonia.org/tensor"

	"spc/ir/tensor"
)

func TestTensorsRoundTrip(t *testing.T) {
	for _, x := range []*tensor.Tensor{
		tensor.From([]float32{1, 2, 3, 4, 5, 6}, 2, 3),
		tensor.From([]float64{1, 2}, 2),
		tensor.From([]int8{-1, 2}, 2),
		tensor.From([]int16{-1, 2}, 2),
		tensor.From([]int32{-1, 2}, 2),
		tensor.From([]int64{-1, 2}, 2),
		tensor.From([]uint8{1, 255}, 2),
		tensor.From([]uint16{1, 2}, 2),
		tensor.From([]uint32{1, 2}, 2),
		tensor.From([]uint64{1, 2}, 2),
		tensor.From([]bool{true, false}, 2),
		tensor.From([]complex64{1i, 2}, 2),
		tensor.From([]complex128{1i, 2}, 2),
		tensor.FromStrings([]string{"a", "b"}, 2),
		tensor.Scalar(float32(3)),
		tensor.From([]float32{3}, 1),
		tensor.From([]float32{3}, 1, 1),
		tensor.New(tensor.F32, 0),
		tensor.New(tensor.I64, 2, 0, 3),
	} {
		g, err := toGorgonia(x)
		if err != nil {
			t.Errorf("%v: %v", x, err)
			continue
		}
		back, err := fromGorgonia(g)
		if err != nil || !back.Equal(x) {
			t.Errorf("%v comes back as %v, %v", x, back, err)
		}
	}
	if _, err := toGorgonia(tensor.New(tensor.F16, 2)); err == nil {
		t.Error("f16 has no type in gorgonia, want an error")
	}
}

// span is a gorgonia.Slice.
type span [2]int

func (s span) Start() int { return s[0] }
func (s span) End() int   { return s[1] }
func (s span) Step() int  { return 1 }

func TestViewsAreReadInTheirOrder(t *testing.T) {
	base := func() *gorgonia.Dense {
		return gorgonia.New(gorgonia.WithShape(2, 3), gorgonia.WithBacking([]float32{0, 1, 2, 3, 4, 5}))
	}
	transposed := base()
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	column, err := base().Slice(nil, span{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	columns, err := base().Slice(nil, span{1, 3})
	if err != nil {
		t.Fatal(err)
	}
	row, err := base().Slice(span{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		in   gorgonia.Tensor
		want *tensor.Tensor
	}{
		"transposed":   {transposed, tensor.From([]float32{0, 3, 1, 4, 2, 5}, 3, 2)},
		"column":       {column, tensor.From([]float32{1, 4}, 2)},
		"columns":      {columns, tensor.From([]float32{1, 2, 4, 5}, 2, 2)},
		"row":          {row, tensor.From([]float32{3, 4, 5}, 3)},
		"column-major": {gorgonia.New(gorgonia.AsFortran(nil), gorgonia.WithShape(2, 3), gorgonia.WithBacking([]float32{0, 1, 2, 3, 4, 5})), tensor.From([]float32{0, 2, 4, 1, 3, 5}, 2, 3)},
		"int":          {gorgonia.New(gorgonia.WithShape(2), gorgonia.WithBacking([]int{7, -8})), tensor.Ints(7, -8)},
	} {
		got, err := fromGorgonia(test.in)
		if err != nil || !got.Equal(test.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, test.want)
		}
	}
}

func TestDeclaredTypesChangeNoNumber(t *testing.T) {
	for _, test := range []struct {
		x    *tensor.Tensor
		want *tensor.Tensor // nil where refused
	}{
		{tensor.From([]float32{7, -1}, 2), tensor.From([]int64{7, -1}, 2)},
		{tensor.From([]int32{7}, 1), tensor.From([]int64{7}, 1)},
		{tensor.From([]float32{7.5}, 1), nil},
		{tensor.From([]float32{1e30}, 1), nil},
		{tensor.From([]bool{true}, 1), nil},
		{tensor.From([]complex64{1}, 1), nil},
	} {
		got, err := exactly(test.x, gorgonia.Int64)
		if (err == nil) != (test.want != nil) || err == nil && !got.Equal(test.want) {
			t.Errorf("%v %v: %v, %v, want %v", test.x, test.x.Bytes(), got, err, test.want)
		}
	}
}
