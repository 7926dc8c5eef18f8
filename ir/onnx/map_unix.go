//go:build unix

package onnx

import (
	"os"

	"golang.org/x/sys/unix"
)

// pageStep is how many bytes of the mapping are given back at a time.
const pageStep = 16 << 20

// readFile maps a file of size bytes. Pages before the argument of release are
// no longer needed; after unmap the bytes must not be touched.
func readFile(f *os.File, size int) (data []byte, release func(n int), unmap func(), err error) {
	if size == 0 {
		return nil, nil, func() {}, nil
	}
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, nil, &os.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	released := 0
	release = func(n int) {
		if n-released >= pageStep {
			n -= n % pageStep
			unix.Madvise(data[released:n], unix.MADV_DONTNEED)
			released = n
		}
	}
	return data, release, func() { unix.Munmap(data) }, nil
}
