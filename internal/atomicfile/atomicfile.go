// Package atomicfile writes files that appear whole or not at all.
package atomicfile

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write creates or replaces the file at path with what write produces: under
// another name in the same folder first, synchronised, then renamed. On an error
// nothing is left behind, and an older file stays as it was. A symbolic link
// keeps pointing to the file; where path is a device or a pipe, the bytes go to
// it directly.
func Write(path string, write func(w io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fill(path, os.O_WRONLY, write)
	}
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x", filepath.Base(path), rand.Uint64()))
	err := fill(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, write)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		if pe, ok := err.(*fs.PathError); ok && pe.Path == temp {
			pe.Path = path // the name that the caller knows
		}
	}
	return err
}

// Check reports before long work what would keep Write from making the file: a folder
// of that name, or one around it that is missing or cannot be written to.
func Check(path string) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder, want a file", path)
	case err == nil && !info.Mode().IsRegular():
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".*")
	if err != nil {
		if pe, ok := err.(*fs.PathError); ok {
			err = pe.Err
		}
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	f.Close()
	return os.Remove(f.Name())
}

func fill(path string, flag int, write func(w io.Writer) error) error {
	f, err := os.OpenFile(path, flag, 0o666)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil && flag&os.O_CREATE != 0 {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
