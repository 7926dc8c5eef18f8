package cpu

import (
	"sync"
	"sync/atomic"
)

// Pool is a set of worker goroutines that loops are spread over. Concurrent
// loops share the workers: each loop runs on the goroutine that started it and
// on whichever workers are idle.
type Pool struct {
	threads int
	jobs    chan *job
	close   sync.Once
}

type job struct {
	f    func(worker, i int)
	n    int64
	next atomic.Int64
	slot atomic.Int64 // workers that have joined; the starter is worker 0
	wg   sync.WaitGroup
}

// NewPool starts a pool on which a loop runs on up to threads goroutines.
func NewPool(threads int) *Pool {
	p := &Pool{threads: threads, jobs: make(chan *job)}
	for range threads - 1 {
		go func() {
			for j := range p.jobs {
				j.run(int(j.slot.Add(1)))
				j.wg.Done()
			}
		}()
	}
	return p
}

// Threads is the most goroutines that a loop runs on.
func (p *Pool) Threads() int { return p.threads }

// Close stops the workers once they are idle. No loop may start afterwards.
func (p *Pool) Close() { p.close.Do(func() { close(p.jobs) }) }

func (j *job) run(worker int) {
	for {
		i := j.next.Add(1) - 1
		if i >= j.n {
			return
		}
		j.f(worker, int(i))
	}
}

// For calls f(worker, i) for each i in 0..n-1 and returns when all calls have.
// Calls with the same worker, a number below Threads, do not overlap.
func (p *Pool) For(n int, f func(worker, i int)) {
	if n <= 1 || p.threads == 1 {
		for i := range n {
			f(0, i)
		}
		return
	}
	j := &job{f: f, n: int64(n)}
	for range min(p.threads, n) - 1 {
		j.wg.Add(1)
		select {
		case p.jobs <- j:
			continue
		default:
		}
		j.wg.Done()
		break
	}
	j.run(0)
	j.wg.Wait()
}

// chunk is the number of elements that one call of an elementwise loop handles.
const chunk = 1 << 14

// Range spreads f(lo, hi) over 0..n in chunks.
func (p *Pool) Range(n int, f func(lo, hi int)) {
	p.For((n+chunk-1)/chunk, func(_, i int) {
		f(i*chunk, min(n, (i+1)*chunk))
	})
}
