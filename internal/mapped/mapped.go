// Package mapped gives read-only access to files without reading them whole: mapped into
// memory where the system can, read elsewhere.
//
// A mapped file shows what happens to it. Where it is truncated, its pages are gone, and
// the processor faults at them; Guard makes such a fault an error. Bytes that are
// overwritten are read as they are now, which nothing tells. Copy has neither.
package mapped

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"unsafe"

	"spc/internal/memory"
	"spc/internal/regular"
)

// File is the content of a file. Data must not be written to, and not be touched
// after Close.
type File struct {
	Data     []byte
	path     string
	unmap    func() error       // nil where Data is no mapping
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

// fewBytes is the size up to which files are read: mapping them saves nothing, and what is
// left of a truncated page reads as zeros without a fault.
const fewBytes = 1 << 16

// Open maps a regular file. One that is on another machine, which may be out of reach
// while it is in use, is read if there is memory for it.
func Open(path string) (*File, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size <= fewBytes || remote(f) && memory.Check(int(size)) == nil {
		return read(f, path, int(size))
	}
	return open(f, path, int(size))
}

// View maps a regular file that is open, which may be closed then. It returns nil where the
// system cannot, and for files that Open reads.
func View(f *os.File, path string, size int64) *File {
	if !maps || size <= fewBytes || size > math.MaxInt || remote(f) {
		return nil
	}
	m, err := open(f, path, int(size))
	if err != nil {
		return nil
	}
	return m
}

// Has reports whether b lies in the mapping.
func (f *File) Has(b []byte) bool {
	if len(b) == 0 || len(f.Data) == 0 || f.unmap == nil {
		return false
	}
	at, from := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&f.Data[0]))
	return from <= at && at-from < uintptr(len(f.Data))
}

// Copy reads a regular file, which may change afterwards. One for which there is no memory
// is an error.
func Copy(path string) (*File, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := memory.Check(int(size)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return read(f, path, int(size))
}

func read(f *os.File, path string, size int) (*File, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return &File{Data: b, path: path}, nil
}

// Close unmaps the file.
func (f *File) Close() error {
	if f.unmap == nil {
		f.Data = nil
		return nil
	}
	mappings.Lock()
	delete(mappings.files, f)
	mappings.Unlock()
	f.Data = nil
	return f.unmap()
}

// mappings are the files that are mapped, by which faults are told from others.
var mappings = struct {
	sync.Mutex
	files map[*File]span
}{files: map[*File]span{}}

// span is the addresses from..to-1.
type span struct{ from, to uintptr }

// note makes faults in the file known.
func (f *File) note() *File {
	from := uintptr(unsafe.Pointer(&f.Data[0]))
	mappings.Lock()
	mappings.files[f] = span{from, from + uintptr(len(f.Data))}
	mappings.Unlock()
	return f
}
