package memory

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// left returns the bytes that the process can still take: of the machine's memory
// without swap, of its limit on address space, and of its control group (version 2).
func left() (int, bool) {
	n, ok := field("/proc/meminfo", "MemAvailable:")
	if !ok {
		return 0, false
	}
	n *= 1024
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &r) == nil && r.Cur < math.MaxInt64 {
		if b, err := os.ReadFile("/proc/self/statm"); err == nil {
			pages, _ := strconv.Atoi(string(bytes.Fields(b)[0]))
			n = min(n, int(r.Cur)-pages*os.Getpagesize())
		}
	}
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		if _, group, ok := strings.Cut(string(b), "0::"); ok {
			dir := filepath.Join("/sys/fs/cgroup", strings.TrimSpace(group))
			limit, ok1 := field(filepath.Join(dir, "memory.max"), "")
			used, ok2 := field(filepath.Join(dir, "memory.current"), "")
			cache, _ := field(filepath.Join(dir, "memory.stat"), "inactive_file")
			if ok1 && ok2 {
				n = min(n, limit-used+cache)
			}
		}
	}
	return n, true
}

// field returns the number after a name in a file, or the one that the file is.
func field(path, name string) (int, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	words := strings.Fields(string(b))
	at := 0
	if name != "" {
		for at < len(words) && words[at] != name {
			at++
		}
		at++
	}
	if at >= len(words) {
		return 0, false
	}
	n, err := strconv.Atoi(words[at])
	return n, err == nil
}

// advise asks for huge pages below b, which begins with one. The last is asked for
// only if b fills it.
func advise(b []byte) {
	_ = unix.Madvise(b[:len(b)/huge*huge], unix.MADV_HUGEPAGE) // where there are none, small pages do
}
