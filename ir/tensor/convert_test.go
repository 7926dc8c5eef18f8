package tensor

import (
	"math"
	"math/rand/v2"
	"testing"
)

var narrowTypes = []DType{F8E4M3FN, F8E4M3UZ, F8E5M2, F8E5M2UZ, F4E2M1}

// finite returns the codes of the finite magnitudes of a type, in ascending order.
func finite(dt DType) []int {
	var codes []int
	for b := range narrows[dt].sign() {
		if v := narrowTable(dt)[b]; v-v == 0 {
			codes = append(codes, b)
		}
	}
	return codes
}

func TestNarrowExtremes(t *testing.T) {
	for dt, want := range map[DType][2]float64{
		F8E4M3FN: {0x1p-9, 448}, F8E4M3UZ: {0x1p-10, 240}, F8E5M2: {0x1p-16, 57344}, F8E5M2UZ: {0x1p-17, 57344},
		F4E2M1: {0.5, 6},
	} {
		codes := finite(dt)
		if got := narrowTable(dt)[codes[1]]; got != want[0] {
			t.Errorf("%v: smallest %v, want %v", dt, got, want[0])
		}
		if got := narrowTable(dt)[codes[len(codes)-1]]; got != want[1] {
			t.Errorf("%v: largest %v, want %v", dt, got, want[1])
		}
	}
	if narrowTable(F8E8M0)[0] != 0x1p-127 || narrowTable(F8E8M0)[254] != 0x1p127 || !math.IsNaN(narrowTable(F8E8M0)[255]) {
		t.Error("f8e8m0: wrong values")
	}
}

func TestToNarrowRoundsToNearestEven(t *testing.T) {
	for _, dt := range narrowTypes {
		f := narrows[dt]
		codes := finite(dt)
		for i, b := range codes {
			v := narrowTable(dt)[b]
			for _, sign := range []int{0, f.sign()} {
				s := 1 - 2*float64(sign/f.sign())
				check := func(x float64, code int) {
					want := byte(sign | code)
					if code == 0 && f.zeroNaN {
						want = 0
					}
					if got := ToNarrow(dt, math.Copysign(x, s), true); got != want {
						t.Errorf("%v: %v becomes %#x, want %#x", dt, s*x, got, want)
					}
				}
				check(v, b)
				if i+1 == len(codes) {
					continue
				}
				mid := (v + narrowTable(dt)[codes[i+1]]) / 2
				check(math.Nextafter(mid, 0), b)
				check(mid, b+b&1)
				check(math.Nextafter(mid, math.Inf(1)), b+1)
			}
		}
	}
}

func TestToNarrowOutOfRange(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		dt       DType
		v        float64
		saturate bool
		want     byte
	}{
		{F8E4M3FN, inf, true, 0x7e}, {F8E4M3FN, -inf, true, 0xfe}, {F8E4M3FN, inf, false, 0x7f}, {F8E4M3FN, -500, false, 0xff},
		{F8E4M3FN, 464, false, 0x7e}, {F8E4M3FN, 464.1, false, 0x7f}, {F8E4M3FN, nan, true, 0x7f}, {F8E4M3FN, 1e300, true, 0x7e},
		{F8E4M3UZ, inf, false, 0x80}, {F8E4M3UZ, -inf, true, 0xff}, {F8E4M3UZ, nan, true, 0x80}, {F8E4M3UZ, math.Copysign(0, -1), true, 0},
		{F8E4M3UZ, -1e-9, true, 0}, {F8E5M2, inf, false, 0x7c}, {F8E5M2, -1e6, false, 0xfc}, {F8E5M2, 1e6, true, 0x7b},
		{F8E5M2, 61439, false, 0x7b}, {F8E5M2, 61440, false, 0x7c}, {F8E5M2, nan, false, 0x7e},
		{F8E5M2UZ, -inf, false, 0x80}, {F8E5M2UZ, -1e6, true, 0xff},
		{F4E2M1, inf, false, 7}, {F4E2M1, -7, false, 15}, {F4E2M1, nan, true, 8}, {F4E2M1, math.SmallestNonzeroFloat64, true, 0},
	} {
		if got := ToNarrow(c.dt, c.v, c.saturate); got != c.want {
			t.Errorf("%v: %v becomes %#x, want %#x (saturate %v)", c.dt, c.v, got, c.want, c.saturate)
		}
	}
}

func TestToScale(t *testing.T) {
	for _, c := range []struct {
		v                   float64
		nearest, up, down   byte
		unsaturated, signed bool
	}{
		{1, 127, 127, 127, true, false},
		{1.4999, 127, 128, 127, true, false},
		{1.5, 128, 128, 127, true, false},
		{1.75, 128, 128, 127, true, false},
		{0x1p127, 254, 254, 254, true, false},
		{0, 0, 0, 0, false, false},
		{0x1p-130, 0, 0, 0, false, false},
		{0x1p128, 254, 254, 254, false, false},
		{math.Inf(1), 254, 254, 254, false, false},
		{-1, 255, 255, 255, false, true},
		{math.NaN(), 255, 255, 255, false, true},
	} {
		for r, want := range map[Rounding]byte{RoundNearest: c.nearest, RoundUp: c.up, RoundDown: c.down} {
			if got := ToScale(c.v, r, true); got != want {
				t.Errorf("%v becomes %d, want %d (rounding %d)", c.v, got, want, r)
			}
			if !c.unsaturated {
				want = 255
			}
			if got := ToScale(c.v, r, false); got != want {
				t.Errorf("%v becomes %d, want %d (rounding %d, not saturated)", c.v, got, want, r)
			}
		}
	}
}

// nearestBits returns the bits of the value of a 16 bit type that is nearest to
// x, ties to even, found by search.
func nearestBits(dt DType, x float64) uint16 {
	value := func(b uint16) float64 {
		if dt == F16 {
			return float64(Half(b).Float32())
		}
		return float64(Brain(b).Float32())
	}
	a := math.Abs(x)
	lo, hi := uint16(0), uint16(0x7c00)
	if dt == BF16 {
		hi = 0x7f80
	}
	inf := hi
	for lo+1 < hi {
		if mid := lo + (hi-lo)/2; value(mid) <= a {
			lo = mid
		} else {
			hi = mid
		}
	}
	next := value(hi)
	if hi == inf { // as if the range went on
		next = 2*value(lo) - value(lo-1)
	}
	if mid := (value(lo) + next) / 2; a > mid || a == mid && lo&1 == 1 {
		lo = hi
	}
	if math.Signbit(x) {
		lo |= 0x8000
	}
	return lo
}

func TestFromFloat64sRoundsHalvesOnce(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := []float64{0, 65519, 65520, 65520.000001, 1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-40, -(1 + 0x1p-8 + 0x1p-45), 1 + 0x1p-8,
		0x1p-24, 0x1p-25, 0x1p-25 + 0x1p-60, 1e-300, 1e300, -1e300, math.MaxFloat32, 3.3961e38}
	for range 5000 {
		// Values near midpoints of 16 bit types, off by little.
		v := math.Ldexp(math.Round(math.Ldexp(1+r.Float64(), 1+r.IntN(13))), r.IntN(50)-40)
		x = append(x, v*(1+float64(r.IntN(3)-1)*0x1p-45), v*r.NormFloat64())
	}
	for _, dt := range []DType{F16, BF16} {
		got := FromFloat64s(dt, x, len(x)).BitsAs(U16).Int64s()
		for i, v := range x {
			if want := nearestBits(dt, v); uint16(got[i]) != want {
				t.Errorf("%v: %v becomes %#x, want %#x", dt, v, got[i], want)
			}
		}
	}
}

func TestToConverts(t *testing.T) {
	f := From([]float32{-1.9, 2.5, 300, float32(math.NaN()), 1e20, float32(math.Inf(-1))}, 6)
	for dt, want := range map[DType][]int64{
		I64:  {-1, 2, 300, 0, math.MaxInt64, math.MinInt64},
		I8:   {-1, 2, 44, 0, -1, 0},
		U8:   {255, 2, 44, 0, 255, 0},
		I4:   {-1, 2, -4, 0, -1, 0},
		U2:   {3, 2, 0, 0, 3, 0},
		Bool: {1, 1, 1, 1, 1, 1},
	} {
		got := f.To(dt)
		if w := FromInt64s(dt, want, 6); !got.Equal(w) {
			t.Errorf("%v: %v, want %v", dt, got.Int64s(), want)
		}
	}
	u := From([]float64{1 << 63, 1.5e19, 1e30, -3}, 4).To(U64)
	if w := From([]uint64{1 << 63, 15000000000000000000, math.MaxUint64, math.MaxUint64 - 2}, 4); !u.Equal(w) {
		t.Errorf("u64: %v", Data[uint64](u))
	}
	n := int64(1)<<53 + 1<<29 + 1 // rounds up to f32 at once, down by way of f64
	if got := From([]int64{n}, 1).To(F32).F32s()[0]; got != float32(n) {
		t.Errorf("%d becomes %v", n, got)
	}
	for dt := F32; dt <= I2; dt++ {
		if dt == String || dt == C64 || dt == C128 || dt == F8E8M0 {
			continue
		}
		x := From([]int64{0, 1}, 2).To(dt)
		if got := x.To(F64).To(I64).Int64s(); got[0] != 0 || got[1] != 1 {
			t.Errorf("0 and 1 by way of %v become %v", dt, got)
		}
	}
}
