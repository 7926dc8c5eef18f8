// Package mapped gives read-only access to files without reading them whole:
// mapped into memory where the system can, read elsewhere.
package mapped

import (
	"unsafe"

	"spc/internal/regular"
)

// File is the content of a file. Data must not be written to, and not be touched
// after Close.
type File struct {
	Data     []byte
	unmap    func() error
	drop     func(from, to int) // gives back the memory of some pages; may be nil
	released int
}

// releaseStep is how many bytes are given back at a time: a multiple of every
// page size.
const releaseStep = 16 << 20

// Release says that the first n bytes are not needed soon, so that they need no
// memory.
func (f *File) Release(n int) {
	if n -= n % releaseStep; f.drop != nil && n > f.released {
		f.drop(f.released, n)
		f.released = n
	}
}

// Drop says that the bytes b of Data are not needed soon, so that they need no
// memory.
func (f *File) Drop(b []byte) {
	if f.drop == nil || len(b) == 0 {
		return
	}
	const page = 1 << 16 // a multiple of every page size
	at := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&f.Data[0])))
	if from, to := (at+page-1)/page*page, (at+len(b))/page*page; at >= 0 && at+len(b) <= len(f.Data) && from < to {
		f.drop(from, to)
	}
}

// Open maps a regular file.
func Open(path string) (*File, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size == 0 {
		return &File{unmap: func() error { return nil }}, nil
	}
	return open(f, int(size))
}

// Close unmaps the file.
func (f *File) Close() error {
	f.Data = nil
	return f.unmap()
}
