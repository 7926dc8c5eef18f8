//go:build !unix || aix || solaris

package atomicfile

import (
	"os"
	"runtime"
	"time"
)

// closeFirst is whether a file must be closed before it can be renamed or removed.
const closeFirst = true

// young is the age up to which a file may be one that was closed to be renamed.
const young = time.Minute

// hold has nothing to do: Windows does not remove files that are open.
func hold(*os.File) bool { return true }

// removeStale removes a file that nobody has open.
func removeStale(path string) {
	if info, err := os.Lstat(path); runtime.GOOS == "windows" && err == nil && time.Since(info.ModTime()) > young {
		os.Remove(path)
	}
}

func syncFolder(string) {}
