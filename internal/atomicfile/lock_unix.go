//go:build unix && !aix && !solaris

package atomicfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// closeFirst is whether a file must be closed before it can be renamed or removed.
const closeFirst = false

// hold takes the lock of a file, and reports whether another has it. On file systems
// without locks nobody has one, and nothing is stale.
func hold(f *os.File) bool {
	return !errors.Is(lock(f), unix.EWOULDBLOCK)
}

func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err
		}
	}
}

// removeStale removes a file whose lock it gets.
func removeStale(path string) {
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK // which does not wait at a pipe
	f, err := os.OpenFile(path, os.O_RDWR|flags, 0) // NFS has locks for writers alone
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(path, os.O_RDONLY|flags, 0)
	}
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && lock(f) == nil && is(f, path) {
		os.Remove(path)
	}
}

// syncFolder makes the names in a folder last; where that fails they mostly do, and the
// files are whole either way.
func syncFolder(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()
		d.Close()
	}
}
