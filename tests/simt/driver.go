package simt

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"spc/backend"
	"spc/backend/cuda"
)

// Driver is a GPU that an Emulator plays.
type Driver struct {
	mu      sync.Mutex
	e       *Emulator
	order   int
	kernels []string
}

// Driver returns a GPU whose blocks run on so many OS threads, in an order of Orders.
func (e *Emulator) Driver(order, workers int) *Driver {
	e.workers = workers
	return &Driver{e: e, order: order}
}

// Name says what it is.
func (d *Driver) Name() string { return "emulator" }

// Arch is what the kernels are written for at least, or sm_90 where four warps multiply together.
func (d *Driver) Arch() string { return d.e.arch }

// Kernel finds a kernel among those that were built.
func (d *Driver) Kernel(name string) (cuda.Kernel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ok, err := d.e.has(name)
	if err == nil && !ok {
		err = fmt.Errorf("no kernel is named %s", name)
	}
	d.kernels = append(d.kernels, name)
	return cuda.Kernel(len(d.kernels) - 1), err
}

// Alloc allocates memory of the emulator's process.
func (d *Driver) Alloc(bytes int) (cuda.Pointer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := d.e.alloc(bytes)
	return cuda.Pointer(at), err
}

// Free frees it.
func (d *Driver) Free(p cuda.Pointer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.e.release(uint64(p))
}

// Library returns none.
func (d *Driver) Library() (cuda.Library, error) {
	return nil, errors.New("the emulator has no libraries")
}

// SparseLibrary returns none.
func (d *Driver) SparseLibrary() (cuda.Library, error) { return d.Library() }

// Stream returns a queue whose work is done at once.
func (d *Driver) Stream() (cuda.Stream, error) { return &stream{Driver: d}, nil }

type stream struct {
	*Driver
	capturing bool
	captured  []func() error
}

func (s *stream) Upload(to cuda.Pointer, from []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.e.write(uint64(to), from)
}

func (s *stream) UploadFrom(to cuda.Pointer, n int, read func(part []byte, at int) error) error {
	b := make([]byte, n)
	if err := read(b, 0); err != nil {
		return err
	}
	return s.Upload(to, b)
}

func (s *stream) Download(to []byte, from cuda.Pointer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.e.read(to, uint64(from))
}

func (s *stream) Launch(k cuda.Kernel, g backend.Geometry, cells []cuda.Cell) error {
	run := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.e.launch(s.kernels[k], g, s.order, s.e.workers, cells)
	}
	if s.capturing {
		s.captured = append(s.captured, run)
		return nil
	}
	return run()
}

func (s *stream) Multiply(cuda.Plan, cuda.Pointer, cuda.Pointer, cuda.Pointer, cuda.Pointer, cuda.Pointer) error {
	return errors.New("there is no library")
}

func (s *stream) Compress(cuda.Plan, cuda.Pointer, cuda.Pointer) error {
	return errors.New("there is no library")
}

func (s *stream) Capture(f func() error) (cuda.Graph, error) {
	s.capturing, s.captured = true, nil
	err := f()
	s.capturing = false
	return &graph{s, s.captured}, err
}

func (s *stream) Time(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

func (s *stream) Sync() error  { return nil }
func (s *stream) Close() error { return nil }

type graph struct {
	*stream
	launches []func() error
}

func (g *graph) Launch() error {
	for _, run := range g.launches {
		if err := run(); err != nil {
			return err
		}
	}
	return nil
}
