package serve

import (
	"net"
	"syscall"
	"testing"
)

// busy listens at a socket where no more connections are taken.
func busy(t *testing.T, path string) (end func()) {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(s, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(s, 0); err != nil {
		t.Fatal(err)
	}
	var waiting []net.Conn
	for range 100 {
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		waiting = append(waiting, c)
	}
	return func() {
		for _, c := range waiting {
			c.Close()
		}
		syscall.Close(s)
	}
}
