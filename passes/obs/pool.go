package obs

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// each runs do for every task from 0 to n-1 on at most so many workers, 0 for
// GOMAXPROCS. A task knows its worker by number, for memory to work in; what it
// writes must not depend on it. It ends with the context's error.
func each(ctx context.Context, workers, n int, do func(worker, task int)) error {
	workers = min(workerCount(workers), n)
	if workers <= 1 {
		for i := range n {
			if err := ctx.Err(); err != nil {
				return err
			}
			do(0, i)
		}
		return ctx.Err()
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				do(w, i)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

func workerCount(n int) int {
	if n <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}

// slabs cuts n columns into slabs of whole cache lines for parallel work on rows.
func slabs(n int) (count, width int) {
	const least = 64
	width = max(least, (n/16+7)/8*8)
	return (n + width - 1) / width, width
}
