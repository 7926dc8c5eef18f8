//go:build linux && amd64 && !noasm

package emit

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"spc/internal/mapped"
)

// A fault in code that the runtime does not know, called from assembly, is a panic that can
// be recovered, with the stack moved and the garbage collected on the way.
func TestAFaultInGeneratedCodeIsAnError(t *testing.T) {
	m, err := writable(1)
	if err != nil {
		t.Fatal(err)
	}
	n := copy(m, []byte{
		0x49, 0x8b, 0x00, // mov rax, [r8]
		0x49, 0x89, 0x01, // mov [r9], rax
		0xc3, // ret
	})
	if m, err = executable(m, n); err != nil {
		t.Skip(err)
	}
	defer release(m)
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, []byte(strings.Repeat("abcdefgh", 1<<17)), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	call := []call{{}}
	var y [2]float32
	read := func(at int) error {
		return mapped.Guard(func() error {
			defer grow(64)
			run(&m[0], &call[0], 1, 1, (*float32)(unsafe.Pointer(&f.Data[at])), &y[0])
			return nil
		})
	}
	if err := read(1 << 19); err != nil || string(unsafe.Slice((*byte)(unsafe.Pointer(&y)), 8)) != "abcdefgh" {
		t.Fatalf("%v, and the code has read %v", err, y)
	}
	if err := os.Truncate(path, 8); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		done := make(chan error)
		go func() { done <- read(1 << 19) }() // on a small stack
		if err := <-done; err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, want an error that names the file", err)
		}
	}
	if err := read(0); err != nil {
		t.Errorf("%v, but the bytes are there", err)
	}
}

// grow makes the stack of the goroutine grow, and the collector look at it.
func grow(n int) int {
	var room [1 << 10]byte
	if n == 0 {
		runtime.GC()
		return 0
	}
	room[n] = byte(n)
	return grow(n-1) + int(room[n])
}
