//go:build unix

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

// maps says that files can be mapped.
const maps = true

func open(f *os.File, path string, size int) (*File, error) {
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	m := &File{
		Data:  data,
		path:  path,
		unmap: func() error { return unix.Munmap(data) },
		drop:  func(from, to int) { unix.Madvise(data[from:to], unix.MADV_DONTNEED) },
	}
	return m.note(), nil
}
