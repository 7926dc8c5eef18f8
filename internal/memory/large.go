package memory

import "unsafe"

// huge is the size and the alignment of a huge page.
const huge = 2 << 20

// Floats returns zeros, in huge pages if they fill some and the system has them for
// the asking: a large table that is read in order then needs fewer translations of
// addresses.
func Floats(n int) []float32 {
	if 4*n < huge {
		return make([]float32, n)
	}
	f := make([]float32, n+huge/4)
	from := int(-uintptr(unsafe.Pointer(&f[0])) % huge / 4)
	f = f[from : from+n : from+n]
	advise(unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), 4*n))
	return f
}
