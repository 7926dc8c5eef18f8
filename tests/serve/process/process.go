// Package process runs servers as processes, for tests that measure or kill them. It imports no other package of this module.
package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is spc serve as a process.
type Server struct {
	HTTP, GRPC string // its addresses
	cmd        *exec.Cmd
	ended      chan struct{} // closed when the process has ended, with err
	err        error

	mu    sync.Mutex
	lines []string // that it wrote last
	crash []string // those that tell of a crash or a data race, and what follows
}

// kept is how many lines of a server's log are kept.
const kept = 40

// Start starts a program as spc serve, with further arguments, at addresses of the loopback device; :0 takes free ports. It returns once the server
// listens. The end of the context kills it.
func Start(ctx context.Context, program, http, grpc string, args ...string) (*Server, error) {
	s := &Server{ended: make(chan struct{})}
	s.cmd = exec.CommandContext(ctx, program, append([]string{"serve", "--http", http, "--grpc", grpc, "--log-format", "json"}, args...)...)
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	listening := make(chan struct{})
	go func() {
		s.read(log, listening)
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	select {
	case <-listening:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("%s serve: %w\n%s", program, errors.Join(s.err, errors.New("it ended before it listened")), s.Log())
	case <-time.After(time.Minute):
		s.Kill()
		return nil, fmt.Errorf("%s serve does not listen\n%s", program, s.Log())
	}
}

// signs are of lines that a server must not write.
var signs = []string{"WARNING: DATA RACE", "panic", "fatal error:", "SIGSEGV", "SPC_DEBUG"}

// read reads the log, and closes listening when it tells the addresses.
func (s *Server) read(log io.Reader, listening chan struct{}) {
	in := bufio.NewScanner(log)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		s.mu.Lock()
		if s.lines = append(s.lines, line); len(s.lines) > kept {
			s.lines = s.lines[1:]
		}
		bad := slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(line, sign) })
		if (bad || len(s.crash) > 0) && len(s.crash) < kept {
			s.crash = append(s.crash, line)
		}
		s.mu.Unlock()
		var entry struct{ Msg, HTTP, GRPC string }
		if listening != nil && json.Unmarshal(in.Bytes(), &entry) == nil && entry.Msg == "listening" {
			s.HTTP, s.GRPC = entry.HTTP, entry.GRPC
			close(listening)
			listening = nil
		}
	}
	io.Copy(io.Discard, log)
}

// Log is what the server wrote last.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// Crashes are what its log tells of a panic or a data race, empty where there is none.
func (s *Server) Crashes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.crash, "\n")
}

// Kill kills the server, and returns once it is gone.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	<-s.ended
}

// Stop ends the server by a signal, and returns what came of it; one that goes on is killed after a time.
func (s *Server) Stop(within time.Duration) error {
	s.cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.ended:
		return s.err
	case <-time.After(within):
		s.Kill()
		return fmt.Errorf("the server does not end within %v of a signal", within)
	}
}

// Ended tells that the process has ended.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Get asks the server over HTTP, and returns the body of an answer of status 200.
func (s *Server) Get(ctx context.Context, path string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+path, nil)
	if err != nil {
		return "", err
	}
	q.Close = true // which leaves no goroutine of a connection behind
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", path, r.StatusCode, strings.TrimSpace(string(b)))
	}
	return string(b), err
}

// Ready waits until the server has loaded its models.
func (s *Server) Ready(ctx context.Context, within time.Duration) error {
	for end := time.Now().Add(within); ; {
		_, err := s.Get(ctx, "/v2/health/ready")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return fmt.Errorf("the server has ended: %w\n%s", errors.Join(s.err, errors.New("before it was ready")), s.Log())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server is not ready within %v: %w\n%s", within, err, s.Log())
		}
	}
}

// Size is what a server takes.
type Size struct {
	Goroutines int
	Heap, RSS  int64 // bytes: what is reachable on the heap, and what the process has resident
}

func (z Size) String() string {
	return fmt.Sprintf("%d goroutines, %.1f MB reachable, %.1f MB resident", z.Goroutines, float64(z.Heap)/1e6, float64(z.RSS)/1e6)
}

// Size asks a server with --admin what it takes, after a collection of garbage. The goroutines that answer are not counted.
func (s *Server) Size(ctx context.Context) (z Size, err error) {
	heap, err := s.Get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return z, err
	}
	if z.Heap, err = field(heap, "# HeapAlloc = ", ""); err != nil {
		return z, err
	}
	routines, err := s.Get(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return z, err
	}
	n, err := field(routines, "goroutine profile: total ", "")
	if err != nil {
		return z, err
	}
	z.Goroutines = int(n) - 2 // the connection's, and what watches it for its end
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return z, nil // of other systems than Linux
	}
	z.RSS, err = field(string(status), "VmRSS:", "kB")
	z.RSS *= 1024
	return z, err
}

// field reads the number behind a name in a text, and before a unit.
func field(text, name, unit string) (int64, error) {
	_, rest, ok := strings.Cut(text, name)
	if !ok {
		return 0, fmt.Errorf("no %q in what the server tells", name)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, unit)), 10, 64)
}
