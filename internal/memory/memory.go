// Package memory tells whether the machine has the memory for something large, so
// that it can be refused with an error: Go ends a process that asks for too much.
package memory

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
)

// small is what needs no look at the machine.
const small = 64 << 20

// Check returns an error unless n more bytes fit into 7/8 of the memory that is
// left to the process, by the machine, its limits and its control group. Where
// that cannot be told, everything fits.
func Check(n int) error {
	if n <= small {
		return nil
	}
	free, known := left()
	if known && n > free-free/8 {
		debug.FreeOSMemory() // garbage counts as taken
		free, known = left()
	}
	if known && n > free-free/8 {
		return fmt.Errorf("%.1f GB of memory are needed, %.1f GB are left", float64(n)/1e9, float64(max(free, 0))/1e9)
	}
	return nil
}

// Left returns how many bytes the process can still take, where that can be told.
func Left() (n int, known bool) {
	n, known = left()
	return max(n, 0), known
}

// dropped is what has become garbage since it was last given back.
var dropped atomic.Int64

// dropStep is how much garbage is given back at once.
const dropStep = 128 << 20

// Dropped says that large memory of n bytes has just become garbage. It is given back before as much again
// as is in use is taken, which the language's collector waits for.
func Dropped(n int) {
	if have := dropped.Add(int64(n)); have >= dropStep && dropped.CompareAndSwap(have, 0) {
		debug.FreeOSMemory()
	}
}

// CollectEarly has garbage collected before it takes the last eighth of the memory
// that is left, unless the environment sets GOMEMLIMIT. It is for programs, once.
func CollectEarly() {
	if free, known := left(); known && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(max(free-free/8, small)))
	}
}
