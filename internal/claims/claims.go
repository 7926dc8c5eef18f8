// Package claims keeps the files that a command reads apart from those that it writes: no
// output takes the place of a file that was read or of another output, and no file is read
// whose place an output is to take. Files are known by their identity, so that links and
// other spellings of a path are seen. Whatever opens a file tells it to Read, and
// atomicfile asks Replace before it gives a file its name. Nothing is kept, and nothing
// refused, but between Begin and its end.
package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// place is where an output lies or will lie.
type place struct {
	path string
	name string      // as messages say it: the path after its flag
	file fs.FileInfo // nil where there is no file yet
	dir  fs.FileInfo // nil where there is no folder either
	base string
}

// ledger is what one command has read, is to write and has written.
type ledger struct {
	mu       sync.Mutex
	read     map[string]fs.FileInfo // by path, as it was opened
	promised []place
	written  []place
}

var current atomic.Pointer[ledger]

// Begin keeps claims until the function that it returns is called.
func Begin() (end func()) {
	before := current.Swap(&ledger{read: map[string]fs.FileInfo{}})
	return func() { current.Store(before) }
}

// Read says that the file at path, which info describes, is read or is going to be. It is
// an error where an output is to take its place.
func Read(path string, info fs.FileInfo) error {
	l := current.Load()
	if l == nil || special(info) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.promised {
		if p.file != nil && os.SameFile(p.file, info) {
			return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%s would replace it", p.name)}
		}
	}
	l.read[path] = info
	return nil
}

// Write says that the command is to write the file at path, for a flag that messages
// name. It is an error where the command has read that file, or is to write it for
// another flag.
func Write(flag, path string) error {
	l := current.Load()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := placeOf(path)
	p.name = strings.TrimSpace(flag + " " + path)
	if special(p.file) {
		return nil
	}
	if err := l.refuse(p); err != nil {
		return err
	}
	for _, q := range l.promised {
		if p.same(q) {
			return fmt.Errorf("%s is also the file of %s", p.name, q.name)
		}
	}
	l.promised = append(l.promised, p)
	return nil
}

// Again says that the file at path, where this command has written it, is to be written anew.
func Again(path string) {
	forget(path, func(l *ledger, is func(fs.FileInfo) bool) {
		l.written = slices.DeleteFunc(l.written, func(p place) bool { return p.file != nil && is(p.file) })
	})
}

// Update says that the file at path, which this command has read, is to be written anew, with more than it had.
func Update(path string) {
	forget(path, func(l *ledger, is func(fs.FileInfo) bool) {
		maps.DeleteFunc(l.read, func(_ string, read fs.FileInfo) bool { return is(read) })
	})
}

// forget calls drop with what tells the file at path from others, where there is one.
func forget(path string, drop func(l *ledger, is func(fs.FileInfo) bool)) {
	l := current.Load()
	if l == nil {
		return
	}
	info, err := os.Stat(path)
	if err != nil {
		return // there is none
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	drop(l, func(other fs.FileInfo) bool { return os.SameFile(other, info) })
}

// Replace is asked right before a file is written to path: an error where what is there
// was read, or is another output.
func Replace(path string) error {
	l := current.Load()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := placeOf(path)
	if special(p.file) {
		return nil
	}
	return l.refuse(p)
}

// Written says that the file at path has been written, and may be read now.
func Written(path string) {
	l := current.Load()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := placeOf(path)
	for i, q := range l.promised {
		if p.same(q) {
			p.name = q.name
			l.promised = append(l.promised[:i:i], l.promised[i+1:]...)
			break
		}
	}
	l.written = append(l.written, p)
}

// refuse returns the error where a file that was read or written lies at p.
func (l *ledger) refuse(p place) error {
	if p.file == nil {
		return nil
	}
	for path, info := range l.read {
		if os.SameFile(p.file, info) {
			if path == p.path {
				return fmt.Errorf("%s is a file that this command reads, want another", p.name)
			}
			return fmt.Errorf("%s is the file %s, which this command reads, want another", p.name, path)
		}
	}
	for _, q := range l.written {
		if q.file != nil && os.SameFile(p.file, q.file) {
			return fmt.Errorf("%s is also the file of %s", p.name, q.name)
		}
	}
	return nil
}

// special reports whether a file keeps nothing that a write would destroy, as devices and
// pipes do, which may be written to twice.
func special(info fs.FileInfo) bool {
	return info != nil && !info.Mode().IsRegular()
}

func placeOf(path string) place {
	target, err := Target(path)
	if err != nil {
		target = path
	}
	p := place{path: path, name: path, base: filepath.Base(target)}
	// The identity of what is missing is nil.
	p.file, _ = os.Stat(target)
	p.dir, _ = os.Stat(Folder(target))
	return p
}

// same reports whether two outputs lie, or would lie, at one place.
func (p place) same(q place) bool {
	if p.file != nil && q.file != nil && os.SameFile(p.file, q.file) {
		return true
	}
	if p.dir == nil || q.dir == nil || !os.SameFile(p.dir, q.dir) {
		return false
	}
	// Where names differ in case alone, file systems of these take them for one.
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		return strings.EqualFold(p.base, q.base)
	}
	return p.base == q.base
}

// Folder returns the folder that a path lies in. It takes out no .. as filepath.Dir does,
// since one after a folder that is a link goes up from where that points.
func Folder(path string) string {
	dir, _ := filepath.Split(path)
	if dir == "" {
		return "."
	}
	return dir
}

// In returns the path of a name in a folder as Folder gives it.
func In(folder, name string) string {
	if folder == "." {
		return name
	}
	if !os.IsPathSeparator(folder[len(folder)-1]) {
		folder += string(filepath.Separator)
	}
	return folder + name
}

// maxLinks is how many symbolic links Target follows.
const maxLinks = 40

// Target returns the path of the file that a path stands for: it follows symbolic links in
// the last place, also where they name a file that is not there yet. A device or a pipe
// stands for itself: the text of a link such as /dev/stdout may be no path to it.
func Target(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && special(info) {
		return path, nil
	}
	at := path
	for range maxLinks {
		info, err := os.Lstat(at)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return at, nil // what is wrong is found where it is opened
		}
		to, err := os.Readlink(at)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = In(Folder(at), to)
		}
		at = to
	}
	return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("too many symbolic links")}
}
