package oip_test

import (
	"math"
	"testing"

	"spc/ir/tensor"
	"spc/serve/oip"
)

func TestClassesAreTheLargestValues(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		in      *tensor.Tensor
		n       int
		batched bool
		want    *tensor.Tensor
	}{
		{tensor.From([]float32{1.1, 3.3, 0.5, 2.4}, 4), 2, false, tensor.FromStrings([]string{"3.3:1", "2.4:3"}, 2)},
		{tensor.From([]int64{1, 5, 10, 4}, 1, 4), 9, true, tensor.FromStrings([]string{"10:2", "5:1", "4:3", "1:0"}, 1, 4)},
		{tensor.From([]float32{nan, -1, 7, 7, nan, 0}, 2, 3), 2, true, tensor.FromStrings([]string{"7:2", "-1:1", "7:0", "0:2"}, 2, 2)},
		{tensor.From([]float32{nan, -1, 7, 7, nan, 0}, 2, 3), 2, false, tensor.FromStrings([]string{"7:2", "7:3"}, 2)},
		{tensor.From([]tensor.Half{0x3c00, 0x3800}, 2), 1, false, tensor.FromStrings([]string{"1:0"}, 1)},
		{tensor.From([]uint8{}, 0, 3), 2, true, tensor.FromStrings([]string{}, 0, 0)},
		{tensor.From([]float32{2}), 1, true, tensor.FromStrings([]string{"2:0"}, 1)},
	} {
		got, err := oip.Classify(c.in, c.n, c.batched)
		if err != nil || !got.Equal(c.want) {
			t.Errorf("%v, %d of %v: %v %v (%v), want %v %v", c.in, c.n, c.batched, got, got.Strings(), err, c.want, c.want.Strings())
		}
	}
	if _, err := oip.Classify(tensor.From([]bool{true}, 1), 1, false); err == nil {
		t.Error("truth values were put in order")
	}
}
