package ukernel

import (
	"math"
	"unsafe"

	"spc/internal/lent"
)

// Values are the values of a weight: f32, or numbers of 16 bits that are widened strip
// by strip, right before a kernel reads them, into memory that stays in the caches.
type Values struct {
	f32  []float32
	half []uint16
	kind halfKind
}

// halfKind says what numbers of 16 bits are.
type halfKind uint8

const (
	full  halfKind = iota // there are none, values are f32
	ieee                  // f16
	brain                 // bf16
	halfKinds
)

// F32 are values as they are. The slice is kept, as by F16 and BF16.
func F32(x []float32) Values { return Values{f32: x} }

// F16 are the values of which these are the bits as IEEE 754 binary16.
func F16[T ~uint16](x []T) Values { return Values{half: bits(x), kind: ieee} }

// BF16 are the values of which these are the bits as bfloat16.
func BF16[T ~uint16](x []T) Values { return Values{half: bits(x), kind: brain} }

func bits[T ~uint16](x []T) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// Len is the number of values.
func (v Values) Len() int { return max(len(v.f32), len(v.half)) }

// Half reports whether a value takes 16 bits.
func (v Values) Half() bool { return v.kind != full }

// Slice returns the values from to to-1.
func (v Values) Slice(from, to int) Values {
	if v.kind == full {
		return Values{f32: v.f32[from:to]}
	}
	return Values{half: v.half[from:to], kind: v.kind}
}

// Ahead returns the f32 values from i on, none where there are none.
func (v Values) Ahead(i int) []float32 { return v.f32[min(i, len(v.f32)):] }

// Make returns room for so many values of the type of v, and none yet.
func (v Values) Make(room int) Values {
	if v.kind == full {
		return Values{f32: make([]float32, 0, room)}
	}
	return Values{half: make([]uint16, 0, room), kind: v.kind}
}

// Append appends values of the same type.
func (v *Values) Append(w Values) {
	v.f32 = append(v.f32, w.f32...)
	v.half = append(v.half, w.half...)
}

// AppendAt appends the values of w, of the same type, that are at the given places, and zeros for negative ones.
func (v *Values) AppendAt(w Values, at []int) {
	for _, i := range at {
		if i < 0 {
			v.AppendZeros(1)
		} else {
			v.Append(w.Slice(i, i+1))
		}
	}
}

// AppendZeros appends n zeros.
func (v *Values) AppendZeros(n int) {
	for range n {
		if v.kind == full {
			v.f32 = append(v.f32, 0)
		} else {
			v.half = append(v.half, 0)
		}
	}
}

// Float32s returns the values as f32, the slice itself where they are.
func (v Values) Float32s() []float32 {
	if v.kind == full {
		return v.f32
	}
	out := make([]float32, len(v.half))
	portable.widen[v.kind](out, v.half)
	return out
}

// Bits are those of values that take 16 each.
func (v Values) Bits() []uint16 { return v.half }

// Widen returns the values as f32, once and for all.
func (kern *Kernels) Widen(v Values) Values {
	if v.kind == full {
		return v
	}
	out := make([]float32, len(v.half))
	kern.WidenTo(out, v)
	return Values{f32: out}
}

// WidenTo writes values of 16 bits as f32 to dst, which is as long.
func (kern *Kernels) WidenTo(dst []float32, v Values) { kern.widen[v.kind](dst, v.half) }

// strip is memory for widened values.
type strip struct{ buf []float32 }

// stripLen is the number of values that are widened at a time where that is anyone's
// choice: what they become takes little of a level 1 cache.
const stripLen = 2048

// strips lends the memory.
var strips = lent.NewPool(func() *strip { return &strip{make([]float32, 2*stripLen)} })

// lend returns memory for values of the type of v, nil where they need none.
func (v Values) lend() *strip {
	if v.kind == full {
		return nil
	}
	return strips.Get()
}

// giveBack takes what lend returned.
func (s *strip) giveBack() {
	if s != nil {
		strips.Put(s)
	}
}

// widened returns the values from to to-1 as f32, in s where they have to be widened.
func (kern *Kernels) widened(s *strip, v Values, from, to int) []float32 {
	if v.kind == full {
		return v.f32[from:to]
	}
	if len(s.buf) < to-from {
		s.buf = make([]float32, to-from)
	}
	out := s.buf[:to-from]
	kern.widen[v.kind](out, v.half[from:to])
	return out
}

// Widened calls f with the values from to to-1 as f32, which are lent until it returns.
func (kern *Kernels) Widened(w Values, from, to int, f func(w []float32)) {
	lent := w.lend()
	defer lent.giveBack()
	f(kern.widened(lent, w, from, to))
}

// Rearrange returns n values made of those of v: by f32 where they are that, else by
// half of their bits.
func (v Values) Rearrange(n int, f32 func(dst, src []float32), half func(dst, src []uint16)) Values {
	out := Values{kind: v.kind}
	if v.kind == full {
		out.f32 = make([]float32, n)
		f32(out.f32, v.f32)
	} else {
		out.half = make([]uint16, n)
		half(out.half, v.half)
	}
	return out
}

// widenF16 and widenBF16 write src as f32 to dst, which is as long.
func widenF16(dst []float32, src []uint16) {
	for i, h := range src {
		sign, exp, man := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&1023)
		switch exp {
		case 0:
			dst[i] = math.Float32frombits(sign | math.Float32bits(float32(man)*0x1p-24))
		case 31:
			if man != 0 {
				man |= 512 // processors make NaNs quiet
			}
			dst[i] = math.Float32frombits(sign | 255<<23 | man<<13)
		default:
			dst[i] = math.Float32frombits(sign | (exp+112)<<23 | man<<13)
		}
	}
}

func widenBF16(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}

// widening is a function for each kind of 16-bit numbers.
type widening [halfKinds]func(dst []float32, src []uint16)

// inBlocks lets a kernel that converts blocks of 16 convert any number: the last block
// overlaps the one before it. few converts fewer than 16.
func inBlocks[D, S any](block func(blocks int, src *S, dst *D), few func(dst []D, src []S)) func(dst []D, src []S) {
	return func(dst []D, src []S) {
		n := len(src)
		if n < 16 {
			few(dst, src)
			return
		}
		need("converted values", len(dst), n)
		block(n/16, &src[0], &dst[0])
		if n%16 > 0 {
			block(1, &src[n-16], &dst[n-16])
		}
	}
}

// NarrowF16 writes src to dst, which is as long, as bits of f16, rounded to the nearest, ties to even: by round
// where there are no instructions for it, and of fewer than 16.
func NarrowF16[T ~uint16](kern *Kernels, dst []T, src []float32, round func(float32) T) {
	if kern.narrow != nil && len(src) >= 16 {
		kern.narrow(bits(dst), src)
		return
	}
	for i, v := range src {
		dst[i] = round(v)
	}
}
