// Package atomicfile writes files that appear whole or not at all.
//
// Until a file is complete it has no name, where the system can give it one afterwards
// (O_TMPFILE of Linux), else a temporary one in the folder of its own. A process that is
// killed leaves at most a file of a temporary name; the next write to the folder removes
// it. That it is still being written to shows in a lock that its writer holds.
package atomicfile

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"spc/internal/claims"
)

// Write creates or replaces the file at path with what write produces, synchronised
// first. On an error nothing is left behind, and an older file stays as it was. A new file
// has the permissions that the umask leaves, one that takes the place of an older those of
// that. A symbolic link keeps pointing to the file, also where that is only made by
// this; where path is a device or a pipe, the bytes go to it directly. A file that the
// command has read is not replaced (package claims).
func Write(path string, write func(w io.Writer) error) error {
	s, err := Stage(path, write)
	if err != nil {
		return err
	}
	return s.Commit()
}

// Staged is a file that is complete and has not its name yet. Several that belong together
// are staged first and then committed. It holds an open file until it is committed or
// discarded.
type Staged struct {
	file *os.File // with the lock; nil where nothing is left to do
	temp string   // the temporary name; empty where the file has none
	path string   // what it is to be, links followed
}

// Stage is Write without the last step.
func Stage(path string, write func(w io.Writer) error) (*Staged, error) {
	target, err := claims.Target(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(target); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		err = fill(f, write)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return &Staged{}, err
	}
	if err := claims.Replace(target); err != nil {
		return nil, err
	}
	sweep(claims.Folder(target))
	s, err := create(target)
	if err != nil {
		return nil, err
	}
	if err = fill(s.file, write); err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return nil, s.undo(err)
	}
	return s, nil
}

// Commit gives the file its name, in place of an older one.
func (s *Staged) Commit() error {
	if s.file == nil {
		return nil
	}
	if err := s.commit(); err != nil {
		return s.undo(err)
	}
	claims.Written(s.path)
	syncFolder(claims.Folder(s.path))
	s.temp = "" // is its own by now
	s.Discard()
	return nil
}

func (s *Staged) commit() error {
	if err := claims.Replace(s.path); err != nil {
		return err
	}
	if old, err := os.Stat(s.path); err == nil {
		if now, err := s.file.Stat(); err != nil {
			return err
		} else if old.Mode().Perm() != now.Mode().Perm() {
			if err := s.file.Chmod(old.Mode().Perm()); err != nil {
				return err
			}
		}
	}
	if s.temp == "" {
		done, err := s.name()
		if done || err != nil {
			return err
		}
	}
	if closeFirst {
		if err := s.file.Close(); err != nil {
			return err
		}
	}
	return finish(s.temp, func() error { return os.Rename(s.temp, s.path) })
}

// name gives a file without a name that of its path, or where there is one already, a
// temporary one. Where the system does not let it, the bytes are copied.
func (s *Staged) name() (done bool, err error) {
	err = finish("", func() error { return link(s.file, s.path) })
	if err == nil {
		return true, nil
	}
	for range attempts {
		if !os.IsExist(err) {
			break
		}
		temp := tempName(claims.Folder(s.path))
		begin(temp)
		if err = link(s.file, temp); err == nil {
			s.temp = temp
			return false, nil
		}
		forget(temp)
	}
	named, err := createNamed(s.path)
	if err != nil {
		return false, err
	}
	unnamed := s.file
	defer unnamed.Close()
	*s = *named
	if info, err := unnamed.Stat(); err != nil {
		return false, err
	} else if err := s.file.Chmod(info.Mode().Perm()); err != nil {
		return false, err
	}
	if _, err := unnamed.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	if _, err := io.Copy(s.file, unnamed); err != nil {
		return false, err
	}
	return false, s.file.Sync()
}

// Discard removes the file unless it was committed.
func (s *Staged) Discard() {
	if s == nil || s.file == nil {
		return
	}
	if s.temp != "" && !closeFirst {
		os.Remove(s.temp) // while the lock is held
	}
	s.file.Close()
	if s.temp != "" && closeFirst {
		os.Remove(s.temp)
	}
	forget(s.temp)
	s.file = nil
}

// undo discards the file and returns the error with the name that the caller knows.
func (s *Staged) undo(err error) error {
	if pe, ok := err.(*fs.PathError); ok && (pe.Path == s.temp || pe.Path == s.file.Name()) {
		pe.Path = s.path
	}
	if le, ok := err.(*os.LinkError); ok {
		err = &fs.PathError{Op: le.Op, Path: s.path, Err: le.Err}
	}
	s.Discard()
	return err
}

// Check reports before long work what would keep Write from making the file: a folder
// of that name, one around it that is missing or cannot be written to, or a name that
// the file system does not take.
func Check(path string) error {
	target, err := claims.Target(path)
	if err != nil {
		return err
	}
	fail := func(err error) error {
		if pe, ok := err.(*fs.PathError); ok {
			err = pe.Err
		}
		return &fs.PathError{Op: "create", Path: path, Err: err}
	}
	switch info, err := os.Stat(target); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a folder, want a file", path)
	case err == nil && !info.Mode().IsRegular():
		return nil
	case err != nil && !os.IsNotExist(err):
		return fail(err)
	}
	s, err := create(target)
	if err != nil {
		return fail(err)
	}
	s.Discard()
	return nil
}

// create makes a file that is to become the one at path.
func create(path string) (*Staged, error) {
	if f := unnamed(path); f != nil {
		return &Staged{file: f, path: path}, nil
	}
	return createNamed(path)
}

// attempts bounds how often another temporary name is tried.
const attempts = 100

func createNamed(path string) (*Staged, error) {
	var err error
	for range attempts {
		var f *os.File
		temp := tempName(claims.Folder(path))
		begin(temp)
		if f, err = os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
			if hold(f) && is(f, temp) {
				return &Staged{f, temp, path}, nil
			}
			f.Close() // a sweep has come before the lock, and removes it
			forget(temp)
			continue
		}
		forget(temp)
		if !os.IsExist(err) {
			break
		}
	}
	if pe, ok := err.(*fs.PathError); ok {
		pe.Path = path
	}
	if err == nil {
		err = &fs.PathError{Op: "open", Path: path, Err: fs.ErrExist}
	}
	return nil, err
}

// is reports whether a path still names an open file.
func is(f *os.File, path string) bool {
	a, erra := f.Stat()
	b, errb := os.Lstat(path)
	return erra == nil && errb == nil && os.SameFile(a, b)
}

// Temporary names are short, however long the file's own is.
var tempPattern = regexp.MustCompile(`^\.spc-[0-9a-f]{16}\.tmp$`)

func tempName(dir string) string {
	return claims.In(dir, fmt.Sprintf(".spc-%016x.tmp", rand.Uint64()))
}

// swept is the folder that was swept last, and when, so that one of many outputs is not
// listed for each.
var swept struct {
	sync.Mutex
	dir  string
	when time.Time
}

const sweepEvery = time.Second

// sweep removes what killed processes left in a folder: files of temporary names that
// nobody holds. What cannot be removed stays.
func sweep(dir string) {
	swept.Lock()
	recent := swept.dir == dir && time.Since(swept.when) < sweepEvery
	swept.dir, swept.when = dir, time.Now()
	swept.Unlock()
	if recent {
		return
	}
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1 << 10)
		for _, name := range names {
			if tempPattern.MatchString(name) {
				removeStale(claims.In(dir, name))
			}
		}
		if err != nil {
			return
		}
	}
}

func fill(f *os.File, write func(w io.Writer) error) error {
	b := bufio.NewWriterSize(f, 1<<20)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}

// Temp makes a file in a folder that has no name, and is gone when it is closed.
func Temp(folder string) (*os.File, error) {
	s, err := create(filepath.Join(folder, "temporary"))
	if err != nil {
		return nil, err
	}
	if s.temp != "" {
		if err := finish(s.temp, func() error { return os.Remove(s.temp) }); err != nil { // Windows removes no open files
			s.Discard()
			return nil, err
		}
	}
	return s.file, nil
}
