package ukernel

import (
	"math"
	"math/rand/v2"
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

// A product of rows of 16 bits with a vector is that of the widened rows, to the bit.
func TestMulVecOfHalvesIsThatOfTheirRows(t *testing.T) {
	const seed = 6
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	for _, kern := range Available() {
		for _, m := range []int{0, 1, 3, 4, 5, 11} {
			for _, k := range []int{0, 1, 7, 8, 16, 17, 31, 32, 33, 48, 700, 5000} {
				bits := make([]uint16, m*k)
				for i := range bits {
					bits[i] = uint16(rng.Uint32())&^0x4000 | uint16(rng.IntN(2))<<13 // finite, of all signs
				}
				x := make([]float32, k)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				for name, v := range map[string]Values{"f16": F16(bits), "bf16": BF16(bits)} {
					got, want := make([]float32, m+1), make([]float32, m+1)
					kern.MulVecOf(m, k, v, x, got)
					kern.MulVec(m, k, v.Float32s(), k, x, want)
					if !slices.Equal(got, want) {
						t.Fatalf("%s by %s, %d x %d: %v, want %v", name, kern.ISA, m, k, got, want)
					}
				}
			}
		}
	}
}

// What is fetched ahead changes no bit, of weights small and large.
func TestMulVecOnceIsMulVecOf(t *testing.T) {
	for _, size := range [][2]int{{7, 40}, {131, 4201}} {
		m, k := size[0], size[1]
		bits, wide, x := make([]uint16, m*k), make([]float32, m*k), make([]float32, k)
		for i := range bits {
			bits[i] = uint16(0x3c00 + i%97)
			wide[i] = float32(i % 89)
		}
		for i := range x {
			x[i] = float32(i%13) - 6
		}
		for _, kern := range Available() {
			for _, v := range []Values{F32(wide), F16(bits), BF16(bits)} {
				const from = 2
				got, want := make([]float32, m-from), make([]float32, m-from)
				kern.MulVecOnce(from, m, k, v, x, got)
				kern.MulVecOf(m-from, k, v.Slice(from*k, m*k), x, want)
				if !slices.Equal(got, want) {
					t.Errorf("%s, %d x %d: %v, want %v", kern.ISA, m, k, got, want)
				}
			}
		}
	}
}

func TestNarrowingRoundsToEven(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	src := []float32{65519.996, 65520, -65520, 0x1p-25, 0x1.8p-24, float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(1 << 31)}
	for h := range 1 << 16 { // the numbers themselves, and what lies between two of them
		v := tensor.Half(h).Float32()
		src = append(src, v, (v+tensor.Half(h+1).Float32())/2, math.Float32frombits(rng.Uint32()))
	}
	for _, kern := range Available() {
		for _, n := range []int{len(src), 0, 3, 15, 16, 17, 40} {
			got := make([]tensor.Half, n)
			NarrowF16(kern, got, src[:n], tensor.ToHalf)
			for i, h := range got {
				if want := tensor.ToHalf(src[i]); h != want && !(src[i] != src[i] && h.Float32() != h.Float32()) {
					t.Fatalf("%s: %v of %d numbers is %#x, want %#x", kern.ISA, src[i], n, h, want)
				}
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
