// Package spool keeps what is large and wanted later in a file without a name instead of in memory: mapped (File), or read back in pieces (Heap).
package spool

import (
	"os"
	"sync"
	"unsafe"

	"spc/internal/atomicfile"
	"spc/internal/mapped"
)

// File takes bytes until it is closed. A nil File takes none. It is safe for concurrent use.
type File struct {
	mu     sync.Mutex
	folder string
	file   *os.File
	size   int64
	failed bool
	parts  map[*byte]*part
}

// part is what Put was given, by the address that it has now.
type part struct {
	*mapped.File
	at, n int64
}

// mostParts is how many mappings there may be at a time: systems have bounds for all of a process.
const mostParts = 1 << 14

// align is a multiple of every page size.
const align = 1 << 16

// New returns a file in a folder, which is made when something is put.
func New(folder string) *File { return &File{folder: folder, parts: map[*byte]*part{}} }

// Put returns a copy of b that lies in the file and must not be written to. It returns nil where there can be none: files are not
// mapped here, the disk is full, the folder is not for writing, or there are too many.
func (f *File) Put(b []byte) []byte {
	if f == nil || len(b) == 0 {
		return nil
	}
	at, ok := f.reserve(int64(len(b)))
	if !ok {
		return nil
	}
	_, err := f.file.WriteAt(b, at)
	var m *mapped.File
	if err == nil {
		m = mapped.Part(f.file, f.folder, at, len(b))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m == nil {
		f.failed = true
		return nil
	}
	f.parts[&m.Data[0]] = &part{m, at, int64(len(b))}
	return m.Data
}

// reserve finds the place of n bytes.
func (f *File) reserve(n int64) (at int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil && !f.failed {
		var err error
		f.file, err = atomicfile.Temp(f.folder)
		f.failed = err != nil
	}
	at = f.size
	f.size += (n + align - 1) / align * align
	return at, !f.failed && len(f.parts) < mostParts
}

// Has reports whether b is what Put returned.
func (f *File) Has(b []byte) bool {
	if f == nil || len(b) == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parts[unsafe.SliceData(b)] != nil
}

// Drop gives back what Put returned: nothing reads it any more.
func (f *File) Drop(b []byte) {
	if f == nil || len(b) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parts[unsafe.SliceData(b)]
	if p == nil {
		return
	}
	delete(f.parts, unsafe.SliceData(b))
	p.Close()
	mapped.Punch(f.file, p.at, (p.n+align-1)/align*align)
}

// Close gives back all that was put.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for at, p := range f.parts {
		if e := p.Close(); err == nil {
			err = e
		}
		delete(f.parts, at)
	}
	if f.file != nil {
		if e := f.file.Close(); err == nil {
			err = e
		}
	}
	f.file, f.failed = nil, true
	return err
}
