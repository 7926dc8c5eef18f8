package ukernel

import (
	"math"
	"slices"
	"testing"

	"spc/ir/tensor"
)

func TestWideningIsExact(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	kinds := map[string]struct {
		values func(x []uint16) Values
		want   func(h uint16) float32
	}{
		"f16":  {F16[uint16], func(h uint16) float32 { return tensor.Half(h).Float32() }},
		"bf16": {BF16[uint16], func(h uint16) float32 { return tensor.Brain(h).Float32() }},
	}
	for name, k := range kinds {
		for _, kern := range Available() {
			v := k.values(all)
			for _, span := range [][2]int{{0, 1 << 16}, {3, 3}, {5, 6}, {70, 85}, {70, 86}, {31743, 31800}, {1, 40}} {
				lent := v.lend()
				got := kern.widened(lent, v, span[0], span[1])
				if len(got) != span[1]-span[0] {
					t.Fatalf("%s by %s: %d numbers, want %d", name, kern.ISA, len(got), span[1]-span[0])
				}
				for i, f := range got {
					want := k.want(all[span[0]+i])
					if math.Float32bits(f) != math.Float32bits(want) && !(f != f && want != want) {
						t.Fatalf("%s by %s: %#x is %v, want %v", name, kern.ISA, all[span[0]+i], f, want)
					}
				}
				lent.giveBack()
			}
		}
	}
}

func TestValuesAreSlicesOfEitherWidth(t *testing.T) {
	half := F16([]tensor.Half{0x3c00, 0x4000, 0xc200}) // 1, 2, -3
	for _, v := range []Values{F32([]float32{1, 2, -3}), half} {
		w := v.Make(4)
		w.Append(v.Slice(1, 3))
		w.AppendZeros(2)
		if got, want := w.Float32s(), []float32{2, -3, 0, 0}; !slices.Equal(got, want) || w.Len() != 4 || w.Half() != v.Half() {
			t.Errorf("%v of %d values, want %v", got, w.Len(), want)
		}
	}
}
