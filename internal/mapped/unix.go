//go:build unix

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

// maps says that files can be mapped.
const maps = true

func open(f *os.File, path string, size int) (*File, error) {
	return part(f, path, 0, size, unix.MAP_PRIVATE)
}

// part maps bytes of a file from a multiple of the page size on.
func part(f *os.File, path string, at int64, size, how int) (*File, error) {
	data, err := unix.Mmap(int(f.Fd()), at, size, unix.PROT_READ, how)
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

// Part maps bytes of a file that was written to, which may be closed then. They begin at a multiple of every page size. It returns nil
// where the system cannot.
func Part(f *os.File, path string, at int64, size int) *File {
	m, err := part(f, path, at, size, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return m
}
