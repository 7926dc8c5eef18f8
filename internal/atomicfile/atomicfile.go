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
	s, err := Stage(path, write)
	if err != nil {
		return err
	}
	return s.Commit()
}

// Staged is a file that is complete and has not its name yet. Several that belong together
// are staged first and then committed.
type Staged struct{ temp, path string }

// Stage is Write without the last step.
func Stage(path string, write func(w io.Writer) error) (*Staged, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &Staged{}, fill(path, os.O_WRONLY, write)
	}
	s := &Staged{filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%016x", filepath.Base(path), rand.Uint64())), path}
	if err := fill(s.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, write); err != nil {
		return nil, s.undo(err)
	}
	return s, nil
}

// Commit gives the file its name, in place of an older one.
func (s *Staged) Commit() error {
	if s.temp == "" {
		return nil
	}
	if err := os.Rename(s.temp, s.path); err != nil {
		return s.undo(err)
	}
	return nil
}

// Discard removes the file unless it was committed.
func (s *Staged) Discard() {
	if s != nil && s.temp != "" {
		os.Remove(s.temp)
	}
}

// undo discards the file and returns the error with the name that the caller knows.
func (s *Staged) undo(err error) error {
	s.Discard()
	if pe, ok := err.(*fs.PathError); ok && pe.Path == s.temp {
		pe.Path = s.path
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
