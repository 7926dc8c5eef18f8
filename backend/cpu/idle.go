package cpu

import (
	"slices"
	"sync"
)

// idle is the memory that runs of a program have left for others, what was left last at the end.
type idle struct {
	mu    sync.Mutex
	most  int // bytes that may wait, 0 for any
	bytes int // that wait
	list  []room
}

// room is the memory of a run.
type room interface {
	owner() any // runs of this may use it
	size() int  // bytes
}

// take returns memory for a run of an owner, nil where none is left.
func (l *idle) take(owner any) room {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.list) - 1; i >= 0; i-- {
		if r := l.list[i]; r.owner() == owner {
			l.list = slices.Delete(l.list, i, i+1)
			l.bytes -= r.size()
			return r
		}
	}
	return nil
}

// put leaves memory to later runs. Beyond the bound, that goes which was left longest ago.
func (l *idle) put(r room) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r)
	l.bytes += r.size()
	for l.most > 0 && l.bytes > l.most {
		l.bytes -= l.list[0].size()
		l.list = slices.Delete(l.list, 0, 1)
	}
}

// drop lets go of the memory of an owner that runs no more.
func (l *idle) drop(owner any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(r room) bool {
		if r.owner() != owner {
			return false
		}
		l.bytes -= r.size()
		return true
	})
}
