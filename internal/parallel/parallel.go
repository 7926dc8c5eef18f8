// Package parallel runs tasks on several cores.
package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"spc/internal/mapped"
)

// Each runs do for every task from 0 to n-1 on at most so many workers, 0 for
// GOMAXPROCS. A task knows its worker by number, for memory to work in; what it
// writes must not depend on it. It ends with the context's error.
func Each(ctx context.Context, workers, n int, do func(worker, task int)) error {
	workers = min(Workers(workers), n)
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
	var wg mapped.Group
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

// Bounded is Each for tasks of sizes, which begin in order: one begins when it and those that run together have at most so much of
// size, or when none runs.
func Bounded(ctx context.Context, workers, most int, sizes []int, do func(task int)) error {
	var mu sync.Mutex
	done := sync.NewCond(&mu)
	next, running := 0, 0
	return Each(ctx, workers, len(sizes), func(int, int) {
		mu.Lock()
		for running > 0 && running+sizes[next] > most {
			done.Wait()
		}
		task := next
		next++
		running += sizes[task]
		mu.Unlock()
		defer func() {
			mu.Lock()
			running -= sizes[task]
			mu.Unlock()
			done.Broadcast()
		}()
		do(task)
	})
}

// Workers is how many workers n stands for, 0 for GOMAXPROCS.
func Workers(n int) int {
	if n <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}
