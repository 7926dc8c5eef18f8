// Package queue decides which requests run next, and which of them together. Requests wait in a queue for each model; a scheduler has a number
// of slots, in each of which one run goes on, and gives a free one to the queue that has had the least time of them. It knows nothing of
// models: what a run does is a function.
package queue

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// What becomes of requests that do not run.
var (
	ErrFull    = errors.New("the queue is full")
	ErrExpired = errors.New("the request has waited for longer than the queue allows")
	ErrClosed  = errors.New("the queue is closed")
)

// Options of a queue.
type Options struct {
	// MaxBatch is the most rows that requests have which run together; 0 or 1 where each runs alone. One request may have more.
	MaxBatch int
	// Delay is how long a request waits at most, while a slot is free, for others that run with it.
	Delay time.Duration
	// Size is the number of requests that wait at most, 0 for any number.
	Size int
	// Timeout is how long a request waits at most, 0 for any time.
	Timeout time.Duration
}

// Request is what waits and runs.
type Request struct {
	Key   string // those of another key do not run together with it
	Rows  int    // that it adds to a batch, 1 or more
	Value any    // for the function that runs it

	Queued, Began time.Time // when it came, and when it ran
	Err           error     // set by the function that runs it

	at   *list.Element // nil where it does not wait
	done chan struct{}
	run  *run
}

// run is requests that run together.
type run struct {
	cancel context.CancelFunc
	left   int // requests that somebody waits for
}

// Scheduler gives slots to queues. The zero value is of no use: see New.
type Scheduler struct {
	mu     sync.Mutex
	free   int
	queues map[*Queue]bool // that have requests waiting
	time   time.Duration   // that the queue had which got a slot last
	timer  *time.Timer
}

// New returns a scheduler in which so many runs go on at the same time, at least one.
func New(slots int) *Scheduler {
	return &Scheduler{free: max(1, slots), queues: map[*Queue]bool{}}
}

// Queue is the requests of a model.
type Queue struct {
	s       *Scheduler
	o       Options
	run     func(ctx context.Context, batch []*Request)
	waiting list.List     // of *Request
	time    time.Duration // of slots that it has had, or would have had, had it not been empty
	running int
	closed  bool
	idle    chan struct{} // closed when it is, and nothing waits or runs
}

// NewQueue returns a queue whose requests run by a function, which is called with requests of one key, in the order in which they came. The
// context ends when nobody waits for any of them any more.
func (s *Scheduler) NewQueue(o Options, run func(ctx context.Context, batch []*Request)) *Queue {
	return &Queue{s: s, o: o, run: run, idle: make(chan struct{})}
}

// Waiting is the number of requests that wait.
func (q *Queue) Waiting() int {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return q.waiting.Len()
}

// Do waits for a request to have run, and returns its error: ErrFull, ErrExpired, ErrClosed, or the context's, after which what it holds may be
// read for a while.
func (q *Queue) Do(ctx context.Context, r *Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := q.add(r); err != nil {
		return err
	}
	var expired <-chan time.Time
	if q.o.Timeout > 0 {
		t := time.NewTimer(q.o.Timeout)
		defer t.Stop()
		expired = t.C
	}
	for {
		select {
		case <-r.done:
			return r.Err
		case <-ctx.Done():
			q.leave(r)
			return ctx.Err()
		case <-expired:
			if q.leaveQueue(r) {
				return ErrExpired
			}
			expired = nil // it runs
		}
	}
}

func (q *Queue) add(r *Request) error {
	s := q.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.o.Size > 0 && q.waiting.Len() >= q.o.Size:
		return ErrFull
	}
	if q.waiting.Len() == 0 {
		q.time = max(q.time, s.time)
	}
	r.Queued, r.Rows, r.done = time.Now(), max(1, r.Rows), make(chan struct{})
	r.at = q.waiting.PushBack(r)
	s.queues[q] = true
	s.dispatch()
	return nil
}

// leaveQueue takes a request out of the queue, unless it runs.
func (q *Queue) leaveQueue(r *Request) bool {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if r.at == nil {
		return false
	}
	q.remove(r)
	return true
}

// leave says that nobody waits for a request.
func (q *Queue) leave(r *Request) {
	if q.leaveQueue(r) {
		return
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if r.run.left--; r.run.left == 0 && r.run.cancel != nil {
		r.run.cancel()
	}
}

func (q *Queue) remove(r *Request) {
	q.waiting.Remove(r.at)
	if r.at = nil; q.waiting.Len() == 0 {
		delete(q.s.queues, q)
		q.settle()
	}
}

// settle tells who closes the queue that nothing is left.
func (q *Queue) settle() {
	if q.closed && q.running == 0 && q.waiting.Len() == 0 {
		select {
		case <-q.idle:
		default:
			close(q.idle)
		}
	}
}

// dispatch fills the slots that are free.
func (s *Scheduler) dispatch() {
	for s.free > 0 {
		now := time.Now()
		var best *Queue
		wake := time.Duration(-1)
		for q := range s.queues {
			if left := q.patience(now); left > 0 {
				if wake < 0 || left < wake {
					wake = left
				}
			} else if best == nil || q.time < best.time {
				best = q
			}
		}
		if best == nil {
			if wake >= 0 {
				s.wakeIn(wake)
			}
			return
		}
		best.running++ // before it may be found idle
		batch := best.take()
		for _, r := range batch {
			r.Began = now
		}
		s.free--
		s.time = best.time
		go s.execute(best, batch, now)
	}
}

func (s *Scheduler) wakeIn(d time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dispatch()
		})
		return
	}
	s.timer.Reset(d)
}

// patience is how long the queue's requests may still wait for others.
func (q *Queue) patience(now time.Time) time.Duration {
	first := q.waiting.Front().Value.(*Request)
	if q.closed || q.o.Delay <= 0 || q.o.MaxBatch < 2 {
		return 0
	}
	rows := 0
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		r := e.Value.(*Request)
		if rows += r.Rows; rows >= q.o.MaxBatch || r.Key != first.Key { // those behind it may not run before it
			return 0
		}
	}
	return q.o.Delay - now.Sub(first.Queued)
}

// take takes what runs next out of the queue: its first request, and those of the same key behind it, as far as a number of rows goes that Sizes lists.
func (q *Queue) take() []*Request {
	var batch []*Request
	rows, best := 0, 1
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		r := e.Value.(*Request)
		if len(batch) > 0 && (r.Key != batch[0].Key || rows+r.Rows > q.o.MaxBatch) {
			break
		}
		batch = append(batch, r)
		if rows += r.Rows; listed(rows) {
			best = len(batch)
		}
	}
	batch = batch[:best]
	work := &run{left: len(batch)}
	for _, r := range batch {
		q.remove(r)
		r.run = work
	}
	return batch
}

// execute runs a batch in a slot.
func (s *Scheduler) execute(q *Queue, batch []*Request, began time.Time) {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	work := batch[0].run
	if work.cancel = cancel; work.left == 0 {
		cancel()
	}
	s.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			for _, r := range batch {
				r.Err = fmt.Errorf("panic: %v", p)
			}
		}
		cancel()
		for _, r := range batch {
			close(r.done)
		}
		s.mu.Lock()
		q.time += time.Since(began)
		q.running--
		s.free++ // before who waits for the queue to end goes on
		q.settle()
		s.dispatch()
		s.mu.Unlock()
	}()
	q.run(ctx, batch)
}

// Close takes no more requests, and returns when those that wait have run, or with its error when the context ends: then they end with ErrClosed, and
// so does Close, once what runs has ended.
func (q *Queue) Close(ctx context.Context) error {
	q.s.mu.Lock()
	q.closed = true
	q.settle()
	q.s.dispatch()
	q.s.mu.Unlock()
	select {
	case <-q.idle:
		return nil
	case <-ctx.Done():
	}
	q.s.mu.Lock()
	for e := q.waiting.Front(); e != nil; e = q.waiting.Front() {
		r := e.Value.(*Request)
		q.remove(r)
		r.Err = ErrClosed
		close(r.done)
	}
	q.s.mu.Unlock()
	<-q.idle
	return ctx.Err()
}

// steps are the numbers of rows that batches have, times powers of two from 8 on: a program is made ready for each number of rows that it meets, so that
// these are few, and hardly any row waits for the next run that could have been in this one.
var steps = []int{1, 2, 3, 4, 6}

// listed reports whether batches have so many rows.
func listed(rows int) bool {
	for rows > 6 && rows%2 == 0 {
		rows /= 2
	}
	return slices.Contains(steps, rows)
}

// Sizes lists the numbers of rows that batches of at most so many have.
func Sizes(most int) (list []int) {
	for n := 1; n <= most; n++ {
		if listed(n) {
			list = append(list, n)
		}
	}
	return list
}
