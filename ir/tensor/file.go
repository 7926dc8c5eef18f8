package tensor

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// WriteFile writes a file that appears whole or not at all; see WriteFileFunc.
func WriteFile(path string, data []byte) error {
	return WriteFileFunc(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteFileFunc writes what fill writes to a file that appears whole or not at
// all: under another name in the same folder first, synchronised, then renamed.
// A symbolic link keeps pointing to the file. Where path is a device or a pipe,
// the bytes go to it directly.
func WriteFileFunc(path string, fill func(io.Writer) error) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeTo(path, os.O_WRONLY, fill)
	}
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x", filepath.Base(path), rand.Uint64()))
	if err = writeTo(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fill); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		if pe, ok := err.(*fs.PathError); ok {
			pe.Path = path // the name that the caller knows
		}
	}
	return err
}

func writeTo(path string, flag int, fill func(io.Writer) error) error {
	f, err := os.OpenFile(path, flag, 0o666)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil && flag&os.O_CREATE != 0 {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
