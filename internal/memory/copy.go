package memory

import (
	"runtime"
	"unsafe"
)

// part is how many bytes are copied at once.
const part = 1 << 20

// Copy copies src to dst, which has its length and does not overlap it but for being the
// same. Unlike that of the language it lets others run in between: what stops all goroutines,
// as collecting garbage does, waits for a copy to end, and a signal waits for that.
func Copy[T any](dst, src []T) {
	var z T
	each := part / max(int(unsafe.Sizeof(z)), 1)
	for len(src) > each {
		copy(dst[:each], src)
		dst, src = dst[each:], src[each:]
		runtime.Gosched()
	}
	copy(dst, src)
}
