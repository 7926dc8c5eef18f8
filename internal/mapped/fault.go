package mapped

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Fault is the error that a page of a mapped file could not be read: the file was
// truncated, or its device failed.
type Fault struct{ Path string }

func (f *Fault) Error() string { return f.Path + " was changed or truncated while in use" }

// Guard returns what f does, or the Fault where f meets one: on the goroutine that calls
// Guard, or on others that hand it over, as those of a Group do. Other panics go on.
func Guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = FaultOf(p)
		}
	}()
	return f()
}

// Raise returns err, or panics with it where it is a Fault that a Guard inside of another
// has kept: on another goroutine, or for all who wait for the same.
func Raise(err error) error {
	if f, ok := err.(*Fault); ok {
		panic(f)
	}
	return err
}

// FaultOf returns the fault that a recovered value is of a goroutine on which Faults was called,
// and panics with any other.
func FaultOf(p any) *Fault {
	switch p := p.(type) {
	case *Fault:
		return p
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		at := p.Addr()
		mappings.Lock()
		defer mappings.Unlock()
		for f, s := range mappings.files {
			if s.from <= at && at < s.to {
				return &Fault{f.path}
			}
		}
	}
	panic(p)
}

// Faults makes faults panics on the goroutine that calls it, for good. Without it they end
// the process.
func Faults() { debug.SetPanicOnFault(true) }

// Group is a sync.WaitGroup whose functions may read mapped files.
type Group struct {
	wait  sync.WaitGroup
	fault atomic.Pointer[Fault]
}

// Go calls f on a goroutine of its own.
func (g *Group) Go(f func()) {
	g.wait.Go(func() {
		Faults()
		defer func() {
			if p := recover(); p != nil {
				g.fault.CompareAndSwap(nil, FaultOf(p))
			}
		}()
		f()
	})
}

// Wait waits for all functions, and panics with the fault that one of them met.
func (g *Group) Wait() {
	g.wait.Wait()
	if f := g.fault.Load(); f != nil {
		panic(f)
	}
}
