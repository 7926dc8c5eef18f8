package op

import (
	"errors"
	"math"
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

func TestQuantizeRoundsAndSaturates(t *testing.T) {
	inf := float32(math.Inf(1))
	x := tensor.From([]float32{-inf, -300, -1.25, -0.75, 0.25, 0.75, 1.25, 300, inf}, 9)
	scale := tensor.Scalar(float32(0.5))
	for dt, want := range map[tensor.DType][]int64{
		tensor.U8: {0, 0, 8, 8, 10, 12, 12, 255, 255},
		tensor.I8: {-128, -128, 8, 8, 10, 12, 12, 127, 127},
		tensor.U4: {0, 0, 8, 8, 10, 12, 12, 15, 15},
		tensor.I2: {-2, -2, -1, -1, 1, 1, 1, 1, 1},
	} {
		zero := tensor.FromInt64s(dt, []int64{10})
		if dt == tensor.I2 {
			zero = tensor.FromInt64s(dt, []int64{1})
		}
		out, err := evalOp(t, "QuantizeLinear", nil, x, scale, zero)
		if err != nil || !slices.Equal(out[0].Int64s(), want) {
			t.Errorf("%v: %v, %v, want %v", dt, out[0].Int64s(), err, want)
		}
	}
	// -1.25/0.5 = -2.5 and so on round to even before the zero point is added.
	out, err := evalOp(t, "QuantizeLinear", nil, x, scale)
	if err != nil || !slices.Equal(out[0].Int64s(), []int64{0, 0, 0, 0, 0, 2, 2, 255, 255}) {
		t.Errorf("without a zero point: %v, %v", out[0].Int64s(), err)
	}
}

func TestQuantizeGranularities(t *testing.T) {
	x := ramp([]int{2, 3, 2})
	for _, c := range []struct {
		name  string
		attrs map[string]any
		scale *tensor.Tensor
		at    func(i, j, k int) float32
	}{
		{"axis 1", nil, tensor.From([]float32{1, 2, 4}, 3), func(_, j, _ int) float32 { return []float32{1, 2, 4}[j] }},
		{"axis -3", map[string]any{"axis": -3}, tensor.From([]float32{1, 2}, 2), func(i, _, _ int) float32 { return []float32{1, 2}[i] }},
		{"blocks", map[string]any{"axis": 1, "block_size": 2}, ramp([]int{2, 2, 2}),
			func(i, j, k int) float32 { return float32(i*4 + j/2*2 + k + 1) }},
	} {
		q, err := evalOp(t, "QuantizeLinear", c.attrs, x, c.scale)
		if err != nil {
			t.Fatal(err)
		}
		y, err := evalOp(t, "DequantizeLinear", c.attrs, q[0], c.scale)
		if err != nil {
			t.Fatal(err)
		}
		for n, v := range y[0].F32s() {
			s := c.at(n/6, n/2%3, n%2)
			if want := float32(math.RoundToEven(float64(x.F32s()[n]/s))) * s; v != want {
				t.Errorf("%s: element %d is %v, want %v", c.name, n, v, want)
			}
		}
	}
	for name, scale := range map[string]*tensor.Tensor{"length": ramp([]int{2}), "rank": ramp([]int{2, 3, 1})} {
		if _, err := evalOp(t, "QuantizeLinear", nil, x, scale); !errors.Is(err, ir.ErrInvalid) {
			t.Errorf("a scale of another %s: %v", name, err)
		}
	}
}

func TestIntegerProductsAreExact(t *testing.T) {
	a := tensor.FromInt64s(tensor.U8, []int64{255, 0, 3, 7, 255, 255}, 2, 3)
	b := tensor.FromInt64s(tensor.I8, []int64{-128, 1, 127, -128, 5, 127}, 3, 2)
	za, zb := tensor.FromInt64s(tensor.U8, []int64{1, 250}, 2), tensor.FromInt64s(tensor.I8, []int64{-3, 4}, 2)
	out, err := evalOp(t, "MatMulInteger", nil, a, b, za, zb)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]int64, 4)
	for i := range 2 {
		for j := range 2 {
			for k := range 3 {
				want[i*2+j] += (a.Int64s()[i*3+k] - za.Int64s()[i]) * (b.Int64s()[k*2+j] - zb.Int64s()[j])
			}
		}
	}
	if !slices.Equal(out[0].Int64s(), want) {
		t.Errorf("%v, want %v", out[0].Int64s(), want)
	}
}

func TestQLinearAgreesWithDequantised(t *testing.T) {
	x := tensor.New(tensor.U8, 1, 2, 4, 4)
	w := tensor.New(tensor.I8, 4, 1, 3, 3)
	for i, b := range []*tensor.Tensor{x, w} {
		for k := range b.Bytes() {
			b.Bytes()[k] = byte(k*37*(i+1) + k*k)
		}
	}
	sx, zx := tensor.Scalar(float32(0.02)), tensor.Scalar(uint8(120))
	sw, zw := tensor.From([]float32{0.01, 0.02, 0.03, 0.04}, 4), tensor.From([]int8{0, 1, -2, 3}, 4)
	sy, zy := tensor.Scalar(float32(0.5)), tensor.Scalar(uint8(128))
	bias := tensor.From([]int32{100, -200, 0, 7}, 4)
	attrs := map[string]any{"group": 2, "pads": []int{1, 1, 1, 1}}
	got, err := evalOp(t, "QLinearConv", attrs, x, sx, zx, w, sw, zw, sy, zy, bias)
	if err != nil {
		t.Fatal(err)
	}
	dx, err := evalOp(t, "DequantizeLinear", nil, x, sx, zx)
	if err != nil {
		t.Fatal(err)
	}
	dw, err := evalOp(t, "DequantizeLinear", map[string]any{"axis": 0}, w, sw, zw)
	if err != nil {
		t.Fatal(err)
	}
	db := make([]float32, 4)
	for i, b := range bias.Int64s() {
		db[i] = float32(b) * 0.02 * sw.F32s()[i]
	}
	y, err := evalOp(t, "Conv", attrs, dx[0], dw[0], tensor.From(db, 4))
	if err != nil {
		t.Fatal(err)
	}
	want, err := evalOp(t, "QuantizeLinear", nil, y[0], sy, zy)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got[0].Int64s() {
		if d := v - want[0].Int64s()[i]; d < -1 || d > 1 {
			t.Errorf("element %d is %d, want %d within one", i, v, want[0].Int64s()[i])
		}
	}
	if !slices.Equal(got[0].Shape(), []int{1, 4, 4, 4}) {
		t.Errorf("shape %v", got[0].Shape())
	}
}
