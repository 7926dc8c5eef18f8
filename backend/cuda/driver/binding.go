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
	"spc/ir"
)

// Devices lists the GPUs of the machine.
func Devices() ([]Info, error) {
	if err := load(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, unusable{noDevice("%v", called("cuDeviceGetCount", err))}
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

// oldest is the first compute capability for which the images have code.
const oldest = 8

func info(ordinal int) (Info, error) {
	d, err := cu.GetDevice(ordinal)
	if err != nil {
		return Info{}, called("cuDeviceGet", err)
	}
	i := Info{Ordinal: ordinal}
	var errs [5]error
	var major, minor int
	i.Name, errs[0] = d.Name()
	i.Memory, errs[1] = d.TotalMem()
	i.Multiprocessors, errs[2] = d.Attribute(cu.MultiprocessorCount)
	major, errs[3] = d.Attribute(cu.ComputeCapabilityMajor)
	minor, errs[4] = d.Attribute(cu.ComputeCapabilityMinor)
	for _, err := range errs {
		if err != nil {
			return i, called("cuDeviceGetAttribute", err)
		}
	}
	v, least := cu.Version(), image.CUDA()/1000*1000
	i.Arch, i.Driver = fmt.Sprintf("sm_%d%d", major, minor), versionText(v)
	switch {
	case major < oldest:
		i.Problem = i.unusable("it is %s, and kernels need sm_%d0 or newer", i.Arch, oldest)
	case v < least:
		i.Problem = i.unusable("the driver knows CUDA %s, and kernels need %s or newer", i.Driver, versionText(least))
	}
	return i, nil
}

// unusable is the ErrNoDevice of a GPU, or a driver, that there is but that kernels do not run
// on, and an ErrDevice.
type unusable struct{ error }

func (unusable) Is(target error) bool { return target == ir.ErrDevice }
func (u unusable) Unwrap() error      { return u.error }

func versionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// device names the GPU as the command line does, and its model.
func (i *Info) device() string { return fmt.Sprintf("cuda:%d (%s)", i.Ordinal, i.Name) }

func (i *Info) unusable(format string, args ...any) error {
	return unusable{noDevice("%s: %s", i.device(), fmt.Sprintf(format, args...))}
}

var (
	opening sync.Mutex
	opened  = map[int]*device{}
)

// Open returns a GPU by its ordinal, with the kernels loaded. A GPU stays open until the
// process ends, or until it is lost: then Open opens it anew.
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
		if !d.isLost() {
			return d, nil
		}
		<-d.gone // once the calls under way have failed
		delete(opened, ordinal)
	}
	d := &device{info: all[ordinal], known: map[string]cuda.Kernel{}, gone: make(chan struct{})}
	if err := d.open(); err != nil {
		return nil, err
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

	library shared[*lt]
	sparse  shared[*sp]

	mu        sync.RWMutex
	known     map[string]cuda.Kernel
	functions []*function

	life  sync.Mutex
	calls int           // of do, under way
	lost  *cuda.Error   // why no call succeeds
	gone  chan struct{} // closed when the context of a lost device is given back
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
	if d.info.Problem != nil {
		return d.info.Problem
	}
	dev, err := cu.GetDevice(d.info.Ordinal)
	if err != nil {
		return d.named(called("cuDeviceGet", err))
	}
	before := held(d.info.Ordinal)
	if d.context, err = dev.RetainPrimaryCtx(); err != nil {
		return d.named(called("cuDevicePrimaryCtxRetain", err))
	}
	err = d.do(func() error {
		if pools, err := dev.Attribute(memoryPoolsSupported); err == nil {
			d.pools = pools == 1
		}
		if d.memory, err = makeStream(); err != nil {
			return err
		}
		for name, text := range image.All() {
			m, err := cu.LoadFatBinary(text)
			if err != nil {
				return fmt.Errorf("image %s: %w", name, called("cuModuleLoadFatBinary", err))
			}
			d.modules = append(d.modules, m)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	failed := &cuda.Error{}
	errors.As(err, &failed)
	d.lose(failed)
	switch {
	case failed.Lost && before:
		return d.named(fmt.Errorf("%w; something else in the process, such as a library, has its context, which may stay lost until the process ends", err))
	case oldDriver(failed.Code):
		return d.info.unusable("%v; the driver knows CUDA %s, and kernels need %s or newer on %s", err, d.info.Driver, versionText(image.CUDA()), d.info.Arch)
	case otherImage(failed.Code):
		return d.info.unusable("%v; kernels have no code for %s", err, d.info.Arch)
	}
	return d.named(err)
}

func (d *device) named(err error) error { return fmt.Errorf("%s: %w", d.Name(), err) }

// do calls f on an OS thread whose current context is the device's. What f fails with may lose
// the device.
func (d *device) do(f func() error) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := called("cuCtxSetCurrent", cu.SetCurrentContext(d.context))
	if err == nil {
		err = f()
	}
	if e := (*cuda.Error)(nil); errors.As(err, &e) {
		d.diagnose(e)
		if e.Lost {
			d.lose(e)
		}
	}
	return err
}

// diagnose finds out whether a call of a library has failed because the device is lost, which its
// status does not say: a call of the driver fails then, too. The stream is one that nobody captures.
func (d *device) diagnose(e *cuda.Error) {
	if e.Code != 0 {
		return
	}
	if now := (*cuda.Error)(nil); errors.As(query(d.memory), &now) && now.Lost {
		e.Code, e.Reason, e.Lost = now.Code, e.Reason+"; "+now.Error(), true
	}
}

// free is do for an f that frees something, which a lost device does not hold any more.
func (d *device) free(f func() error) error {
	err := d.do(f)
	if e := (*cuda.Error)(nil); errors.As(err, &e) && e.Lost {
		return nil
	}
	return err
}

func (d *device) enter() error {
	d.life.Lock()
	defer d.life.Unlock()
	if d.lost != nil {
		return &cuda.Error{Code: d.lost.Code, Call: "the device was lost", Reason: d.lost.Error(), Lost: true}
	}
	d.calls++
	return nil
}

func (d *device) leave() {
	d.life.Lock()
	defer d.life.Unlock()
	if d.calls--; d.lost != nil {
		d.giveBack()
	}
}

// lose lets later calls fail.
func (d *device) lose(why *cuda.Error) {
	d.life.Lock()
	defer d.life.Unlock()
	if d.lost == nil {
		d.lost = why
		d.giveBack()
	}
}

func (d *device) isLost() bool {
	d.life.Lock()
	defer d.life.Unlock()
	return d.lost != nil
}

// giveBack gives the context of a lost device back when no call is under way on it. It is
// destroyed then, with all that it holds, unless someone else in the process has it as well.
func (d *device) giveBack() {
	if d.calls > 0 {
		return
	}
	if dev, err := cu.GetDevice(d.info.Ordinal); err == nil {
		dev.ReleasePrimaryCtx() // where that fails, opening the device again does, too
	}
	close(d.gone)
}

// Name names the GPU.
func (d *device) Name() string { return d.info.device() }

// Arch is the GPU's architecture.
func (d *device) Arch() string { return d.info.Arch }

// Kernel finds a kernel in the images.
func (d *device) Kernel(name string) (cuda.Kernel, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k, ok := d.known[name]; ok {
		return k, nil
	}
	err := d.do(func() error {
		for _, m := range d.modules {
			f, err := m.Function(name)
			if err == nil {
				d.functions = append(d.functions, &function{Function: f, shared: plainShared})
				d.known[name] = cuda.Kernel(len(d.functions) - 1)
				return nil
			}
			if err != cu.NotFound {
				return called("cuModuleGetFunction", err)
			}
		}
		return fmt.Errorf("no image has a kernel named %s", name)
	})
	return d.known[name], err
}

// Alloc allocates device memory. Nothing waits for work under way on the device.
func (d *device) Alloc(bytes int) (at cuda.Pointer, err error) {
	err = d.do(func() error {
		if !d.pools {
			p, err := cu.MemAlloc(int64(bytes))
			at = cuda.Pointer(p)
			return called("cuMemAlloc", err)
		}
		p, err := allocAsync(bytes, d.memory)
		if err != nil {
			return err
		}
		at = cuda.Pointer(p)
		return called("cuStreamSynchronize", d.memory.Synchronize())
	})
	if err != nil {
		err = fmt.Errorf("%d bytes: %w", bytes, err)
	}
	return at, err
}

// Free frees memory that no work under way uses.
func (d *device) Free(p cuda.Pointer) error {
	return d.free(func() error {
		if !d.pools {
			return called("cuMemFree", cu.MemFree(cu.DevicePtr(p)))
		}
		if err := freeAsync(uint64(p), d.memory); err != nil {
			return err
		}
		return called("cuStreamSynchronize", d.memory.Synchronize()) // gives the memory back to the system
	})
}

// Stream makes a stream.
func (d *device) Stream() (cuda.Stream, error) {
	s := &stream{device: d}
	err := d.do(func() (err error) {
		s.queue, err = makeStream()
		return err
	})
	return s, err
}

func makeStream() (cu.Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return s, called("cuStreamCreate", err)
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
	return called("cuStreamSynchronize", s.queue.Synchronize())
}

func (s *stream) Upload(to cuda.Pointer, from []byte) error {
	return s.UploadFrom(to, len(from), func(part []byte, at int) error {
		copy(part, from[at:])
		return nil
	})
}

func (s *stream) UploadFrom(to cuda.Pointer, bytes int, read func(part []byte, at int) error) error {
	return s.do(func() error {
		for done := 0; done < bytes; {
			n := min(bytes-done, maxStaging)
			at, err := s.room(n)
			if err != nil {
				return err
			}
			if err := read(s.staging.slice(at, n), done); err != nil {
				return err
			}
			if err := s.staging.upload(uint64(to)+uint64(done), at, n, s.queue); err != nil {
				return err
			}
			done += n
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

func (s *stream) Launch(k cuda.Kernel, g backend.Geometry, cells []cuda.Cell) error {
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
		var err error
		g.exec, err = endCapture(s.queue)
		if failed == nil {
			return err
		}
		if err == nil {
			destroyGraph(g.exec)
		}
		return failed
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
				return called("cuEventCreate", err)
			}
			defer cu.DestroyEvent(&events[i])
		}
		if err := events[0].Record(s.queue); err != nil {
			return called("cuEventRecord", err)
		}
		if err := f(); err != nil {
			return err
		}
		if err := events[1].Record(s.queue); err != nil {
			return called("cuEventRecord", err)
		}
		if err := s.wait(); err != nil {
			return err
		}
		var err error
		took, err = events[0].Elapsed(events[1])
		return called("cuEventElapsedTime", err)
	})
	return time.Duration(took * float64(time.Millisecond)), err
}

func (s *stream) Sync() error { return s.do(s.wait) }

func (s *stream) Close() error {
	return s.free(func() error {
		errs := []error{s.wait()}
		if s.staging.bytes > 0 {
			errs = append(errs, s.staging.free())
		}
		return errors.Join(append(errs, called("cuStreamDestroy", s.queue.Destroy()))...)
	})
}

type graph struct {
	*stream
	exec execGraph
}

func (g *graph) Launch() error { return g.do(func() error { return launchGraph(g.exec, g.queue) }) }
func (g *graph) Close() error  { return g.free(func() error { return destroyGraph(g.exec) }) }
