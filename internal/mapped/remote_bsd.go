//go:build darwin || freebsd

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

func remote(f *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &s) == nil && s.Flags&unix.MNT_LOCAL == 0
}
