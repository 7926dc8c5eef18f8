package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"spc/internal/atomicfile"
)

// grace is how long a command may take to end by itself after a signal. What takes longer,
// such as to read a pipe that nobody writes to, ends with the process.
const grace = 600 * time.Millisecond

// patience is how long the end waits for a file system or a reader of standard error.
const patience = 100 * time.Millisecond

// ending is how the program ends after a signal.
type ending struct {
	status int
	text   string
}

var endings = map[os.Signal]ending{
	os.Interrupt:    {130, "interrupted"},
	syscall.SIGTERM: {143, "terminated"},
}

// signals are those that end the command that runs.
type signals struct {
	stderr io.Writer
	came   chan os.Signal
	over   chan struct{} // closed once the command has ended by itself

	mu    sync.Mutex
	first os.Signal // nil before one has come
	asked bool      // a signal only asks the command to end, see endsWhenAsked

	say sync.Once
}

// catchSignals returns a context that the first signal cancels. After the grace, or a
// second signal, the process ends, whatever it does, and leaves no temporary file.
func catchSignals(stderr io.Writer) (context.Context, *signals) {
	s := &signals{stderr: stderr, came: make(chan os.Signal, 2), over: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), signalsKey{}, s))
	signal.Notify(s.came, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer cancel()
		var first os.Signal
		select {
		case first = <-s.came:
		case <-s.over:
			return
		}
		s.mu.Lock()
		s.first = first
		late := time.After(grace)
		if s.asked {
			late = nil
		}
		s.mu.Unlock()
		cancel()
		select {
		case <-s.came:
			s.mu.Lock()
			s.asked = false
			s.mu.Unlock()
		case <-late:
		case <-s.over:
			return
		}
		within(patience, atomicfile.Abandon)
		os.Exit(s.end())
	}()
	return ctx, s
}

// signalsKey is the key of the signals in the context that catchSignals returns.
type signalsKey struct{}

// endsWhenAsked says that the command of a context ends in its own time after a signal, as a server does, and that this is no failure. A second signal
// ends it as one would another command.
func endsWhenAsked(ctx context.Context) {
	if s, ok := ctx.Value(signalsKey{}).(*signals); ok {
		s.mu.Lock()
		s.asked = true
		s.mu.Unlock()
	}
}

// release gives the signals back to the system.
func (s *signals) release() {
	signal.Stop(s.came)
	close(s.over)
}

// end says which signal has come, and returns the status for it: 0 for none.
func (s *signals) end() int {
	s.mu.Lock()
	first, asked := s.first, s.asked
	s.mu.Unlock()
	if first == nil || asked {
		return 0
	}
	e := endings[first]
	within(patience, func() {
		s.say.Do(func() {
			clear := ""
			if f, ok := s.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
				clear = "\r\x1b[K" // of a bar
			}
			fmt.Fprintf(s.stderr, "%sspc: %s\n", clear, e.text)
		})
	})
	return e.status
}

// within calls f and waits for it, but no longer than d.
func within(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}
