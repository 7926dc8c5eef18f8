package cpu

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spc/internal/mapped"
)

// Pool is a set of worker goroutines that the loops of concurrent runs share. A
// loop runs on the goroutine that starts it and on whichever workers are idle
// then or become so; a worker that is done with one loop takes the next open one
// in turn, so that no run keeps the workers for itself. Idle workers watch for
// loops for spinTime, then park; those of a shared pool at once, unless a run goes on that
// they could help.
type Pool struct {
	threads int
	part    bool // of another's workers
	*crew
}

// crew is the workers of a pool.
type crew struct {
	_      [64]byte
	posts  atomic.Uint32 // changes with each loop that opens
	closed atomic.Bool
	shared bool
	most   int // goroutines that compute in a shared pool, for which there are processors
	runs   atomic.Int32
	_      [64]byte
	open   [openLoops]atomic.Pointer[job]
	_      [64]byte
	parked atomic.Int32 // len(asleep)

	mu     sync.Mutex
	asleep []*worker
}

// openLoops is the number of loops that workers see. Further ones run on the
// goroutines that started them.
const openLoops = 64

const (
	// spinTime is how long a worker without work, and a loop that waits for its
	// last calls, keep their processor: longer than the gaps between the loops of
	// a run, so that these do not wait for the scheduler.
	spinTime = 200 * time.Microsecond
	// pauses is the number of pause instructions between two looks at the clock.
	pauses = 16
	// yieldTime is the time after which one that spins lets other goroutines run.
	yieldTime = 100 * time.Microsecond
)

type worker struct {
	index int // its number in every loop: the goroutine that starts a loop is 0
	turn  int // where it looks for the next open loop
	wake  chan struct{}
}

// NewPool starts a pool on which a loop runs on up to threads goroutines.
func NewPool(threads int) *Pool {
	p := &Pool{threads: threads, crew: &crew{asleep: make([]*worker, 0, threads)}}
	p.start()
	return p
}

func (p *Pool) start() {
	for i := 1; i < p.threads; i++ {
		go p.work(&worker{index: i, turn: i, wake: make(chan struct{}, 1)})
	}
}

// NewSharedPool starts a pool for many runs at the same time, between which its workers leave
// the processors to others. Workers help only as far as runs leave threads.
func NewSharedPool(threads int) *Pool {
	p := &Pool{threads: threads, crew: &crew{asleep: make([]*worker, 0, threads), shared: true, most: threads}}
	p.start()
	return p
}

// Part returns a pool of the same workers on which a loop runs on up to threads goroutines, 0 or more than p's for as many as on p. Its Close does nothing.
func (p *Pool) Part(threads int) *Pool {
	if threads <= 0 || threads > p.threads {
		threads = p.threads
	}
	return &Pool{threads: threads, part: true, crew: p.crew}
}

// Threads is the most goroutines that a loop runs on.
func (p *Pool) Threads() int { return p.threads }

// Close stops the workers once they are idle. Loops that start afterwards run on
// the goroutines that start them.
func (p *Pool) Close() {
	if p.part {
		return
	}
	p.closed.Store(true)
	p.posts.Add(1)
	p.wake(math.MaxInt, math.MaxInt)
}

// wake unparks up to n workers whose index is below a number.
func (p *crew) wake(n, below int) {
	if p.parked.Load() == 0 || !p.useful() && !p.closed.Load() {
		return
	}
	p.mu.Lock()
	for i := len(p.asleep) - 1; i >= 0 && n > 0; i-- {
		if w := p.asleep[i]; w.index < below {
			w.wake <- struct{}{}
			p.asleep = slices.Delete(p.asleep, i, i+1)
			p.parked.Add(-1)
			n--
		}
	}
	p.mu.Unlock()
}

func (p *crew) work(w *worker) {
	mapped.Faults()
	for {
		seen := p.posts.Load()
		if p.help(w) {
			continue
		}
		if p.closed.Load() {
			return
		}
		if !spin(func() bool { return p.posts.Load() != seen || !p.useful() }) || p.posts.Load() == seen {
			p.park(w, seen)
		}
	}
}

// begin and end are called around a run.
func (p *crew) begin() { p.runs.Add(1) }
func (p *crew) end()   { p.runs.Add(-1) }

// useful reports whether a worker may have to do: in a shared pool where a run goes on, and leaves a thread.
func (p *crew) useful() bool {
	if !p.shared {
		return true
	}
	n := int(p.runs.Load())
	return n > 0 && n < p.most
}

// help joins one open loop that has work left.
func (p *crew) help(w *worker) bool {
	for k := range p.open {
		at := (w.turn + k) % openLoops
		j := p.open[at].Load()
		if j == nil || j.drained.Load() || !j.enter(w.index) {
			continue
		}
		w.turn = at + 1
		if !j.drained.Load() {
			p.wake(1, len(j.ranges)) // one wakes the next while there is work
		}
		j.help(w.index)
		return true
	}
	return false
}

// park sleeps until a loop opens after the one that was seen last.
func (p *crew) park(w *worker, seen uint32) {
	p.mu.Lock()
	p.asleep = append(p.asleep, w)
	p.parked.Add(1)
	// Whoever posts from here on sees that the worker sleeps.
	if p.posts.Load() != seen {
		p.asleep = p.asleep[:len(p.asleep)-1]
		p.parked.Add(-1)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	<-w.wake
}

// spin waits up to spinTime for done.
func spin(done func() bool) bool {
	for range pauses {
		if done() {
			return true
		}
		pause()
	}
	start := time.Now()
	yield := yieldTime
	for {
		for range pauses {
			if done() {
				return true
			}
			pause()
		}
		t := time.Since(start)
		if t > spinTime {
			return false
		}
		if t > yield {
			runtime.Gosched()
			yield = t + yieldTime
		}
	}
}

// Team runs loops on the workers of a pool, one at a time: every run in progress
// has its own. A loop allocates nothing, but a function literal that it is given
// is allocated where it captures variables; a kernel that makes its literals once
// (bound.prepare) therefore allocates nothing when it runs.
type Team struct {
	pool *Pool
	job  job
	slot int // where the last loop was listed

	n     int // of Range
	spans func(lo, hi int)
	body  func(worker, i int)
}

// NewTeam returns a team. It takes no goroutines of its own.
func (p *Pool) NewTeam() *Team {
	t := &Team{pool: p}
	t.job.ranges = make([]span, p.threads)
	t.job.done = make(chan struct{}, 1)
	t.job.gate.Store(gateClosed)
	t.job.drained.Store(true)
	t.body = func(_, i int) { t.spans(i*chunk, min(t.n, (i+1)*chunk)) }
	return t
}

// Threads is the most goroutines that a loop runs on.
func (t *Team) Threads() int { return t.pool.threads }

// For calls f(worker, i) for each i in 0..n-1 and returns when all calls have.
// Calls with the same worker, a number below Threads, do not overlap. Worker w
// begins with the w-th of Threads equal ranges of 0..n-1, so that loops over the
// same pixels or rows find them in the same caches; who is done takes calls from
// the ends of the other ranges. f must not start a loop of the same team. After
// Cancel, calls that have not begun are left out. A fault of a mapped file that a call
// meets becomes a panic of For.
func (t *Team) For(n int, f func(worker, i int)) {
	if n <= 1 || t.pool.threads == 1 {
		for i := range n {
			if t.job.cancelled() {
				return
			}
			f(0, i)
		}
		return
	}
	for base := 0; base < n; base += math.MaxInt32 {
		t.loop(base, min(n-base, math.MaxInt32), f)
	}
}

// chunk is the number of elements that one call of an elementwise loop handles.
const chunk = 1 << 14

// Range spreads f(lo, hi) over 0..n in chunks.
func (t *Team) Range(n int, f func(lo, hi int)) {
	t.n, t.spans = n, f
	t.For((n+chunk-1)/chunk, t.body)
}

// Cancel makes loops leave out the calls that have not begun once a channel is
// closed; nil lets all be called. It must not be called during a loop.
func (t *Team) Cancel(done <-chan struct{}) { t.job.cancel = done }

func (t *Team) loop(base, n int, f func(worker, i int)) {
	j := &t.job
	j.f, j.base = f, base
	parts := len(j.ranges)
	for w := range j.ranges {
		j.ranges[w].store(w*n/parts, (w+1)*n/parts)
	}
	j.drained.Store(false)
	j.gate.Store(0)
	defer t.finish() // also where f panics
	if t.list() {
		t.pool.posts.Add(1)
		t.pool.wake(1, len(j.ranges))
	}
	j.run(0)
}

// list shows the loop to the workers where there is room for it.
func (t *Team) list() bool {
	for range openLoops {
		if t.pool.open[t.slot].CompareAndSwap(nil, &t.job) {
			return true
		}
		t.slot = (t.slot + 1) % openLoops
	}
	return false
}

// finish waits for the workers that are in the loop, and panics with a fault of theirs.
func (t *Team) finish() {
	j := &t.job
	t.pool.open[t.slot].CompareAndSwap(j, nil)
	j.drained.Store(true)
	j.close()
	j.f = nil
	if f := j.fault.Load(); f != nil {
		j.fault.Store(nil)
		panic(f)
	}
}

// job is a loop. It is used again when all who entered have left.
type job struct {
	f      func(worker, i int)
	base   int
	cancel <-chan struct{}
	ranges []span // the calls of each worker

	_       [64]byte
	drained atomic.Bool  // no call is left
	gate    atomic.Int32 // workers inside, and gateClosed when no more may enter
	waiting atomic.Bool  // who started the loop is parked
	done    chan struct{}
	fault   atomic.Pointer[mapped.Fault] // that a worker met
}

const gateClosed = 1 << 30

// enter makes the job stay as it is until leave, unless it is closed or not for worker w.
func (j *job) enter(w int) bool {
	for {
		g := j.gate.Load()
		if g&gateClosed != 0 {
			return false
		}
		if j.gate.CompareAndSwap(g, g+1) {
			break
		}
	}
	if w < len(j.ranges) {
		return true
	}
	j.leave()
	return false
}

// help is run for a worker that has entered, which then leaves.
func (j *job) help(w int) {
	defer j.leave()
	defer func() {
		if p := recover(); p != nil {
			j.fault.Store(mapped.FaultOf(p))
		}
	}()
	j.run(w)
}

func (j *job) leave() {
	if j.gate.Add(-1) == gateClosed && j.waiting.CompareAndSwap(true, false) {
		j.done <- struct{}{}
	}
}

// close returns when nobody is inside.
func (j *job) close() {
	if j.gate.Or(gateClosed) == 0 {
		return
	}
	if spin(j.empty) {
		return
	}
	for {
		j.waiting.Store(true)
		if j.empty() && j.waiting.CompareAndSwap(true, false) {
			return
		}
		// The token may be that of one who left an earlier loop last.
		<-j.done
		if j.empty() {
			return
		}
	}
}

func (j *job) empty() bool { return j.gate.Load() == gateClosed }

func (j *job) cancelled() bool {
	select {
	case <-j.cancel:
		return true
	default:
		return false
	}
}

// run makes the calls of worker w's range, then those left of others.
func (j *job) run(w int) {
	for {
		i, ok := j.ranges[w].first()
		if !ok {
			break
		}
		if j.cancelled() {
			j.drained.Store(true)
			return
		}
		j.f(w, j.base+i)
	}
	for k := 1; k < len(j.ranges); k++ {
		r := &j.ranges[(w+k)%len(j.ranges)]
		for {
			i, ok := r.last()
			if !ok {
				break
			}
			if j.cancelled() {
				break
			}
			j.f(w, j.base+i)
		}
	}
	j.drained.Store(true)
}

// span is a range lo..hi-1 from both of whose ends calls are taken.
type span struct {
	v atomic.Uint64 // lo in the low half, hi in the high half
	_ [56]byte
}

func (s *span) store(lo, hi int) { s.v.Store(uint64(hi)<<32 | uint64(lo)) }

func (s *span) first() (int, bool) {
	for {
		v := s.v.Load()
		lo, hi := uint32(v), uint32(v>>32)
		if lo >= hi {
			return 0, false
		}
		if s.v.CompareAndSwap(v, uint64(hi)<<32|uint64(lo+1)) {
			return int(lo), true
		}
	}
}

func (s *span) last() (int, bool) {
	for {
		v := s.v.Load()
		lo, hi := uint32(v), uint32(v>>32)
		if lo >= hi {
			return 0, false
		}
		if s.v.CompareAndSwap(v, uint64(hi-1)<<32|uint64(lo)) {
			return int(hi - 1), true
		}
	}
}
