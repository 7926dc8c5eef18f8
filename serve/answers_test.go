package serve

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A client that reads nothing of a large answer is not waited for; one that comes again on its connection has all the time again.
func TestAnswersThatNobodyReads(t *testing.T) {
	const patience = 700 * time.Millisecond
	wrote := make(chan error, 1)
	s := httptest.NewServer(logged(slog.New(slog.NewTextHandler(io.Discard, nil)), patience, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, err := w.Write(make([]byte, 64<<20))
			wrote <- err
		}
	})))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /large HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-wrote:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the answer: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the server waits")
	}
	r, err := s.Client().Get(s.URL + "/small")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	time.Sleep(patience * 5 / 4)
	if r, err = s.Client().Get(s.URL + "/large"); err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if n, err := io.Copy(io.Discard, r.Body); n != 64<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A socket is replaced only where nobody listens, which a server that is busy does.
func TestSocketsOfBusyServers(t *testing.T) {
	dir, err := os.MkdirTemp("", "spc") // whose name is short enough
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	defer busy(t, path)()
	if l, err := listen("unix:" + path); err == nil {
		l.Close()
		t.Error("the socket of a server that listens is taken")
	}
}
