//go:build unix

package repo

import (
	"fmt"
	"io/fs"
	"syscall"
)

// identity tells a file from one that takes its place within the resolution of its time.
func identity(info fs.FileInfo) string {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprint(" ", s.Ino)
	}
	return ""
}
