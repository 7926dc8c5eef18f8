package atomicfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"spc/internal/claims"
)

// unnamed makes a file without a name in the folder of path, nil where the file system
// has none or nothing could name it later. It and link are variables for tests.
var unnamed = func(path string) *os.File {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return nil
	}
	for {
		fd, err := unix.Open(claims.Folder(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil // one with a name tells what is wrong
		}
		f := os.NewFile(uintptr(fd), path)
		hold(f) // before it has a name, which a sweep could find
		return f
	}
}

// link names a file.
var link = func(f *os.File, path string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}
