package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"spc/internal/atomicfile"
	"spc/internal/mapped"
)

// Heap takes bytes that are read back into memory. Unlike those of a File they are not mapped, so that nothing goes wrong where they are read
// after they were dropped, and there may be any number of them. It is safe for concurrent use.
type Heap struct {
	mu     sync.Mutex
	folder string
	file   *os.File
	size   int64             // of all places that there were
	free   map[int64][]int64 // places that were given back, by their length
	closed bool
}

// Nameless says whether the system has files without a name: Windows removes none that is open.
const Nameless = runtime.GOOS != "windows"

// page is what places are multiples of: file systems give back whole blocks.
const page = 1 << 12

// NewHeap returns a heap in a folder, where a file without a name is made when something is put.
func NewHeap(folder string) *Heap { return &Heap{folder: folder, free: map[int64][]int64{}} }

// pages rounds up to whole pages.
func pages(n int) int64 { return (int64(n) + page - 1) / page * page }

// Put writes b, and returns the place where it lies. An error names the folder.
func (h *Heap) Put(b []byte) (at int64, err error) {
	f, at, err := h.place(pages(len(b)))
	if err != nil {
		return 0, h.errorf(err)
	}
	if _, err := f.WriteAt(b, at); err != nil {
		h.Drop(at, len(b))
		return 0, h.errorf(err)
	}
	return at, nil
}

// place finds room for n bytes.
func (h *Heap) place(n int64) (f *os.File, at int64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, 0, os.ErrClosed
	}
	if h.file == nil {
		if h.file, err = atomicfile.Temp(h.folder); err != nil {
			return nil, 0, err
		}
	}
	if list := h.free[n]; len(list) > 0 {
		at, h.free[n] = list[len(list)-1], list[:len(list)-1]
		return h.file, at, nil
	}
	at = h.size
	h.size += n
	return h.file, at, nil
}

// Get reads the bytes at a place that Put returned for so many.
func (h *Heap) Get(at int64, b []byte) error {
	h.mu.Lock()
	f := h.file
	h.mu.Unlock()
	if f == nil {
		return h.errorf(os.ErrClosed)
	}
	if _, err := f.ReadAt(b, at); err != nil {
		return h.errorf(err)
	}
	return nil
}

// Drop gives back the place of n bytes, which nothing reads any more.
func (h *Heap) Drop(at int64, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file != nil {
		mapped.Punch(h.file, at, pages(n))
		h.free[pages(n)] = append(h.free[pages(n)], at)
	}
}

// Close gives back all that was put.
func (h *Heap) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.file == nil {
		return nil
	}
	err := h.file.Close()
	h.file, h.free = nil, nil
	if err != nil {
		return h.errorf(err)
	}
	return nil
}

// errorf names the folder in the place of a file that has no name.
func (h *Heap) errorf(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("a file without a name in %s: %w", h.folder, err)
}
