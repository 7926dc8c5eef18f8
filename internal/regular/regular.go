// Package regular opens regular files and nothing else: a pipe would keep a
// command waiting, a device could feed it for ever.
package regular

import (
	"errors"
	"io"
	"os"

	"spc/internal/claims"
)

// Open opens a regular file and returns its size. A command's outputs do not open (package
// claims).
func Open(path string) (*os.File, int64, error) {
	info, err := os.Stat(path) // before opening, which waits at a pipe
	var missing *os.PathError
	if errors.As(err, &missing) {
		missing.Op = "open"
	}
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil {
		err = claims.Read(path, info)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// ReadFile reads a regular file whole.
func ReadFile(path string) ([]byte, error) {
	f, size, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return b, nil
}
