//go:build cuda && linux && amd64

package driver

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"gorgonia.org/cu"

	"spc/backend"
	"spc/backend/cuda"
	"spc/backend/cuda/image"
)

// Devices lists the GPUs of the machine.
func Devices() ([]Info, error) {
	if err := load(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, noDevice("%v", err)
	}
	if n == 0 {
		return nil, noDevice("the driver finds no GPU")
	}
	all := make([]Info, n)
	for i := range all {
		if all[i], err = info(i); err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
	}
	return all, nil
}

func info(ordinal int) (Info, error) {
	d, err := cu.GetDevice(ordinal)
	if err != nil {
		return Info{}, err
	}
	i := Info{Ordinal: ordinal}
	var errs [5]error
	var major, minor int
	i.Name, errs[0] = d.Name()
	i.Memory, errs[1] = d.TotalMem()
	i.Multiprocessors, errs[2] = d.Attribute(cu.MultiprocessorCount)
	major, errs[3] = d.Attribute(cu.ComputeCapabilityMajor)
	minor, errs[4] = d.Attribute(cu.ComputeCapabilityMinor)
	v := cu.Version()
	i.Arch, i.Driver = fmt.Sprintf("sm_%d%d", major, minor), fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	return i, errors.Join(errs[:]...)
}

// oldest is the first compute capability for which the images have code.
const oldest = 8

var (
	opening sync.Mutex
	opened  = map[int]*device{}
)

// Open returns a GPU by its ordinal, with the kernels loaded. A GPU stays open until the
// process ends.
func Open(ordinal int) (cuda.Driver, error) {
	all, err := Devices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= len(all) {
		return nil, noDevice("there is no GPU %d; there are %d, numbered from 0", ordinal, len(all))
	}
	opening.Lock()
	defer opening.Unlock()
	if d := opened[ordinal]; d != nil {
		return d, nil
	}
	d := &device{info: all[ordinal], known: map[string]cuda.Kernel{}}
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name(), err)
	}
	opened[ordinal] = d
	return d, nil
}

// device is a GPU with its primary context.
type device struct {
	info    Info
	context cu.CUContext
	modules []cu.Module
	memory  cu.Stream // on which memory is allocated
	pools   bool      // allocation is ordered by streams

	mu        sync.RWMutex
	known     map[string]cuda.Kernel
	functions []*function
}

// function is a kernel of the image.
type function struct {
	cu.Function
	mu     sync.Mutex
	shared int // bytes of dynamic shared memory that it may have
}

// Shared memory that a launch may have without being asked for beforehand.
const plainShared = 48 << 10

// Attributes that gorgonia.org/cu has no names for.
const memoryPoolsSupported cu.DeviceAttribute = 115

func (d *device) open() error {
	dev, err := cu.GetDevice(d.info.Ordinal)
	if err != nil {
		return err
	}
	major, err := dev.Attribute(cu.ComputeCapabilityMajor)
	if err != nil {
		return err
	}
	if major < oldest {
		return noDevice("%s: kernels need sm_%d0 or newer", d.info.Arch, oldest)
	}
	if d.context, err = dev.RetainPrimaryCtx(); err != nil {
		return err
	}
	return d.do(func() error {
		if pools, err := dev.Attribute(memoryPoolsSupported); err == nil {
			d.pools = pools == 1
		}
		if d.memory, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return err
		}
		for name, text := range image.All() {
			m, err := cu.LoadFatBinary(text)
			if err != nil {
				return fmt.Errorf("image %s: %w", name, err)
			}
			d.modules = append(d.modules, m)
		}
		return nil
	})
}

// do calls f on an OS thread whose current context is the device's.
func (d *device) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return fmt.Errorf("cuCtxSetCurrent: %w", err)
	}
	return f()
}

// Name names the GPU as the command line does, and its model.
func (d *device) Name() string { return fmt.Sprintf("cuda:%d (%s)", d.info.Ordinal, d.info.Name) }

// Arch is the GPU's architecture.
func (d *device) Arch() string { return d.info.Arch }

// Kernel finds a kernel in the images.
func (d *device) Kernel(name string) (cuda.Kernel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k, ok := d.known[name]; ok {
		return k, nil
	}
	err := fmt.Errorf("no image has a kernel named %s", name)
	err = d.do(func() error {
		for _, m := range d.modules {
			if f, failed := m.Function(name); failed == nil {
				d.functions = append(d.functions, &function{Function: f, shared: plainShared})
				d.known[name] = cuda.Kernel(len(d.functions) - 1)
				return nil
			}
		}
		return err
	})
	return d.known[name], err
}

// Alloc allocates device memory. Nothing waits for work under way on the device.
func (d *device) Alloc(bytes int) (at cuda.Pointer, err error) {
	err = d.do(func() error {
		if !d.pools {
			p, err := cu.MemAlloc(int64(bytes))
			at = cuda.Pointer(p)
			return err
		}
		p, err := allocAsync(bytes, d.memory)
		if err != nil {
			return err
		}
		at = cuda.Pointer(p)
		return d.memory.Synchronize()
	})
	if err != nil {
		err = fmt.Errorf("%d bytes on %s: %w", bytes, d.Name(), err)
	}
	return at, err
}

// Free frees memory that no work under way uses.
func (d *device) Free(p cuda.Pointer) error {
	return d.do(func() error {
		if !d.pools {
			return cu.MemFree(cu.DevicePtr(p))
		}
		return freeAsync(uint64(p), d.memory)
	})
}

// Stream makes a stream.
func (d *device) Stream() (cuda.Stream, error) {
	s := &stream{device: d}
	err := d.do(func() (err error) {
		s.queue, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	return s, err
}

// stream is a queue, and pinned memory through which copies go.
type stream struct {
	*device
	queue   cu.Stream
	staging pinned
	used    int // bytes of it that copies under way still read
}

// maxStaging is the most pinned memory that a stream has: larger copies go piece by piece.
const maxStaging = 32 << 20

// room returns an offset in pinned memory where n bytes, at most maxStaging, are free.
func (s *stream) room(n int) (int, error) {
	if s.used+n > s.staging.bytes {
		if err := s.wait(); err != nil {
			return 0, err
		}
	}
	if n > s.staging.bytes {
		if s.staging.bytes > 0 {
			if err := s.staging.free(); err != nil {
				return 0, err
			}
			s.staging = pinned{}
		}
		size := 64 << 10
		for size < n {
			size *= 2
		}
		var err error
		if s.staging, err = hostAlloc(size); err != nil {
			s.staging = pinned{}
			return 0, err
		}
	}
	at := s.used
	s.used += (n + 63) &^ 63
	return at, nil
}

// wait waits for all that was queued; pinned memory is free then.
func (s *stream) wait() error {
	s.used = 0
	if err := s.queue.Synchronize(); err != nil {
		return fmt.Errorf("cuStreamSynchronize: %w", err)
	}
	return nil
}

func (s *stream) Upload(to cuda.Pointer, from []byte) error {
	return s.do(func() error {
		for len(from) > 0 {
			n := min(len(from), maxStaging)
			at, err := s.room(n)
			if err != nil {
				return err
			}
			copy(s.staging.slice(at, n), from)
			if err := s.staging.upload(uint64(to), at, n, s.queue); err != nil {
				return err
			}
			from, to = from[n:], to+cuda.Pointer(n)
		}
		return nil
	})
}

func (s *stream) Download(to []byte, from cuda.Pointer) error {
	return s.do(func() error {
		for len(to) > 0 {
			n := min(len(to), maxStaging)
			at, err := s.room(n)
			if err != nil {
				return err
			}
			if err := s.staging.download(at, uint64(from), n, s.queue); err != nil {
				return err
			}
			if err := s.wait(); err != nil {
				return err
			}
			copy(to, s.staging.slice(at, n))
			to, from = to[n:], from+cuda.Pointer(n)
		}
		return s.wait()
	})
}

func (s *stream) Launch(k cuda.Kernel, g backend.Geometry, cells []uint64) error {
	s.mu.RLock()
	f := s.functions[k]
	s.mu.RUnlock()
	return s.do(func() error {
		if err := f.allow(g.Shared); err != nil {
			return err
		}
		return launch(f.Function, g, s.queue, cells)
	})
}

// allow lets a kernel have so much dynamic shared memory.
func (f *function) allow(bytes int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes <= f.shared {
		return nil
	}
	if err := maxDynamicShared(f.Function, bytes); err != nil {
		return fmt.Errorf("%d bytes of shared memory: %w", bytes, err)
	}
	f.shared = bytes
	return nil
}

func (s *stream) Capture(f func() error) (cuda.Graph, error) {
	g := &graph{stream: s}
	err := s.do(func() error {
		if err := beginCapture(s.queue); err != nil {
			return err
		}
		failed := f()
		exec, err := endCapture(s.queue)
		if err == nil && failed != nil {
			err = destroyGraph(exec)
		}
		g.exec = exec
		return errors.Join(failed, err)
	})
	return g, err
}

func (s *stream) Time(f func() error) (time.Duration, error) {
	var took float64
	err := s.do(func() error {
		var events [2]cu.Event
		for i := range events {
			var err error
			if events[i], err = cu.MakeEvent(cu.DefaultEvent); err != nil {
				return err
			}
			defer cu.DestroyEvent(&events[i])
		}
		if err := events[0].Record(s.queue); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		if err := events[1].Record(s.queue); err != nil {
			return err
		}
		if err := s.wait(); err != nil {
			return err
		}
		var err error
		took, err = events[0].Elapsed(events[1])
		return err
	})
	return time.Duration(took * float64(time.Millisecond)), err
}

func (s *stream) Sync() error { return s.do(s.wait) }

func (s *stream) Close() error {
	return s.do(func() error {
		errs := []error{s.wait()}
		if s.staging.bytes > 0 {
			errs = append(errs, s.staging.free())
		}
		return errors.Join(append(errs, s.queue.Destroy())...)
	})
}

type graph struct {
	*stream
	exec execGraph
}

func (g *graph) Launch() error { return g.do(func() error { return launchGraph(g.exec, g.queue) }) }
func (g *graph) Close() error  { return g.do(func() error { return destroyGraph(g.exec) }) }
