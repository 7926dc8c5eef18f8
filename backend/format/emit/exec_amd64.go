//go:build linux && amd64 && !noasm

package emit

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"spc/backend/format/ukernel"
	"spc/internal/isa"
)

// Available reports whether this machine runs generated code.
var Available = sync.OnceValue(func() bool {
	if !isa.AVX512() {
		return false
	}
	m, err := writable(1)
	if err != nil {
		return false
	}
	if m, err = executable(m, 1); err != nil {
		return false
	}
	release(m)
	return true
})

// run calls the code of groups: x in r8, y from the call's first row on in r9, the
// number of granules in rcx.
//
//go:noescape
func run(text *byte, calls *call, n, granules int, x, y *float32)

// runLast calls the code of groups of the last block for one granule after the other, and stores their sums, in y, or
// to f, which is then changed.
//
//go:noescape
func runLast(text *byte, calls *call, n, granules int, x, y *float32, f *ukernel.FinishArgs)

// huge is the size of a huge page.
const huge = 2 << 20

// writable returns memory for n bytes of code, of whole pages, which are huge if they
// are filled well and the system has some. It takes what is written to only.
func writable(n int) ([]byte, error) {
	page := unix.Getpagesize()
	if n >= huge/2 {
		page = huge
	}
	n = (n + page - 1) / page * page
	whole, err := unix.MmapPtr(-1, 0, nil, uintptr(n+page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	// The rest of the mapping before the first whole page and behind the last goes.
	skip := int(-uintptr(whole) % uintptr(page))
	first := unsafe.Add(whole, skip)
	if skip > 0 {
		release(unsafe.Slice((*byte)(whole), skip))
	}
	if skip < page {
		release(unsafe.Slice((*byte)(unsafe.Add(first, n)), page-skip))
	}
	m := unsafe.Slice((*byte)(first), n)
	if page == huge {
		_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // where there are none, small pages do
	}
	return m, nil
}

// executable makes the first n bytes of writable memory executable and read-only,
// gives back the pages behind them, and returns what is left, which has an element.
func executable(m []byte, n int) ([]byte, error) {
	page := unix.Getpagesize()
	if len(m) >= huge {
		page = huge
	}
	if n = max(1, (n+page-1)/page) * page; n < len(m) {
		release(m[n:])
		m = m[:n]
	}
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		release(m)
		return nil, err
	}
	return m, nil
}

// release gives memory back.
func release(m []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(m)), uintptr(len(m))) // fails only for what is no mapping
}
