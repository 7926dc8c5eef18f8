package atomicfile

import (
	"os"
	"sync"
)

// temporary are the names of files that have not their own yet.
var temporary = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// Abandon removes all files that are not committed, for a process that is about to end.
// No file is begun or committed any more: who tries waits for the end.
func Abandon() {
	temporary.Lock()
	for name := range temporary.names {
		os.Remove(name)
	}
}

// begin notes a temporary name before there is a file of it.
func begin(name string) {
	temporary.Lock()
	temporary.names[name] = true
	temporary.Unlock()
}

// finish ends the life of a temporary name by f, which renames the file or removes it.
func finish(name string, f func() error) error {
	temporary.Lock()
	defer temporary.Unlock()
	err := f()
	if err == nil {
		delete(temporary.names, name)
	}
	return err
}

// forget is finish for a name of which there is no file any more.
func forget(name string) { finish(name, func() error { return nil }) }
