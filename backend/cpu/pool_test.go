package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestPoolCallsEachOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		p := NewPool(threads)
		for _, n := range []int{0, 1, 2, 7, 1000} {
			calls := make([]atomic.Int32, n)
			busy := make([]atomic.Int32, threads)
			p.NewTeam().For(n, func(worker, i int) {
				if busy[worker].Add(1) != 1 {
					t.Error("two calls with one worker overlap")
				}
				calls[i].Add(1)
				busy[worker].Add(-1)
			})
			for i := range calls {
				if c := calls[i].Load(); c != 1 {
					t.Fatalf("%d threads: call %d of %d happened %d times", threads, i, n, c)
				}
			}
		}
		p.Close()
	}
}

func TestPoolIsShared(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var wg sync.WaitGroup
	var total atomic.Int64
	for range 10 {
		wg.Go(func() {
			team := p.NewTeam()
			for range 50 {
				team.For(20, func(_, i int) { total.Add(int64(i)) })
			}
		})
	}
	wg.Wait()
	if want := int64(10 * 50 * 190); total.Load() != want {
		t.Errorf("sum %d, want %d", total.Load(), want)
	}
}

// Workers begin with the same ranges in loops of the same length, whoever is late.
func TestLoopsAreSplitAlike(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	team := p.NewTeam()
	for range 200 {
		var first [2]atomic.Int32
		for w := range first {
			first[w].Store(-1)
		}
		team.For(10, func(worker, i int) { first[worker].CompareAndSwap(-1, int32(i)) })
		for w, want := range []int32{0, 5} {
			if f := first[w].Load(); f != -1 && f != want { // -1: it came too late
				t.Fatalf("worker %d began with call %d of 10, want %d", w, f, want)
			}
		}
	}
}

// A worker helps runs in turn, also one whose loop is as long as its run.
func TestNoTeamStarves(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	const want = 20
	var helped [3]atomic.Int32 // loops in which a worker took part
	enough := func() bool {
		for i := range helped {
			if helped[i].Load() < want {
				return false
			}
		}
		return true
	}
	deadline := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	for i := range helped {
		wg.Go(func() {
			team := p.NewTeam()
			for !enough() && time.Now().Before(deadline) {
				var other atomic.Bool
				team.For(8, func(worker, _ int) {
					if worker == 1 {
						other.Store(true)
					}
					time.Sleep(50 * time.Microsecond)
				})
				if other.Load() {
					helped[i].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range helped {
		if n := helped[i].Load(); n < want {
			t.Errorf("run %d was helped %d times", i, n)
		}
	}
}

// More loops than the pool lists, and loops after Close, run on their own.
func TestLoopsRunWithoutWorkers(t *testing.T) {
	p := NewPool(3)
	var wg sync.WaitGroup
	var calls atomic.Int64
	var ready sync.WaitGroup
	ready.Add(openLoops + 10)
	for range openLoops + 10 {
		wg.Go(func() {
			team := p.NewTeam()
			team.For(4, func(_, i int) {
				if calls.Add(1); i == 0 {
					ready.Done()
					ready.Wait() // all loops are open at once
				}
			})
		})
	}
	wg.Wait()
	p.Close()
	p.NewTeam().For(4, func(_, _ int) { calls.Add(1) })
	if got, want := calls.Load(), int64(4*(openLoops+11)); got != want {
		t.Errorf("%d calls, want %d", got, want)
	}
}

func TestCancelledLoopsEnd(t *testing.T) {
	for _, threads := range []int{1, 3} {
		p := NewPool(threads)
		team := p.NewTeam()
		done := make(chan struct{})
		team.Cancel(done)
		var calls atomic.Int64
		team.For(1<<40, func(_, _ int) {
			if calls.Add(1) == 100 {
				close(done)
			}
		})
		if n := calls.Load(); n < 100 || n > 10000 {
			t.Errorf("%d threads: %d calls", threads, n)
		}
		team.Cancel(nil)
		calls.Store(0)
		team.For(50, func(_, _ int) { calls.Add(1) })
		if n := calls.Load(); n != 50 {
			t.Errorf("%d threads: %d calls of a later loop, want 50", threads, n)
		}
		p.Close()
	}
}

// A panic reaches the caller and leaves the pool as it was.
func TestLoopsSurvivePanics(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	team := p.NewTeam()
	for range 20 {
		called := false // the starter, whose panics can be caught
		func() {
			defer func() {
				if called != (recover() != nil) {
					t.Error("the panic is lost")
				}
			}()
			team.For(4, func(worker, _ int) {
				if worker == 0 {
					called = true
					panic("call")
				}
			})
		}()
		var calls atomic.Int32
		team.For(9, func(_, _ int) { calls.Add(1) })
		if calls.Load() != 9 {
			t.Fatalf("%d calls after a panic, want 9", calls.Load())
		}
	}
}

func TestLoopsDoNotAllocate(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	team := p.NewTeam()
	var sum atomic.Int64
	each := func(_, i int) { sum.Add(int64(i)) }
	span := func(lo, hi int) { sum.Add(int64(hi - lo)) }
	if n := testing.AllocsPerRun(200, func() { team.For(9, each); team.Range(3*chunk+1, span) }); n != 0 {
		t.Errorf("%v allocations in two loops", n)
	}
}

// What a loop costs beside its calls.
func BenchmarkLoop(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := NewPool(threads)
			defer p.Close()
			team := p.NewTeam()
			f := func(_, i int) {}
			b.ReportAllocs()
			for b.Loop() {
				team.For(8, f)
			}
		})
	}
}

// A part's loops run on its first workers alone, whichever sleep, and leave those of others theirs.
func TestPartsOfAPool(t *testing.T) {
	whole := NewPool(5)
	defer whole.Close()
	for _, c := range []struct{ asked, threads int }{{0, 5}, {1, 1}, {2, 2}, {9, 5}} {
		p := whole.Part(c.asked)
		if p.Threads() != c.threads {
			t.Fatalf("a part of %d has %d threads, want %d", c.asked, p.Threads(), c.threads)
		}
		var most atomic.Int32
		for range 50 {
			calls := make([]atomic.Int32, 64)
			p.NewTeam().For(len(calls), func(worker, i int) {
				for m := most.Load(); int32(worker) > m && !most.CompareAndSwap(m, int32(worker)); m = most.Load() {
				}
				calls[i].Add(1)
				time.Sleep(10 * time.Microsecond)
			})
			for i := range calls {
				if n := calls[i].Load(); n != 1 {
					t.Fatalf("call %d happened %d times", i, n)
				}
			}
			time.Sleep(time.Millisecond) // workers sleep again
		}
		if n := int(most.Load()); n >= c.threads || c.threads > 1 && n == 0 {
			t.Errorf("the last worker of a part of %d is %d", c.threads, n)
		}
		p.Close()
	}
	if whole.closed.Load() {
		t.Error("a part has closed the pool")
	}
}

// Workers of a shared pool sleep unless a run goes on that leaves a thread; all loops end.
func TestSharedPoolsLeaveProcessors(t *testing.T) {
	p := NewSharedPool(3)
	defer p.Close()
	asleep := func(n int32) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); p.parked.Load() != n; time.Sleep(100 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("%d workers sleep, want %d", p.parked.Load(), n)
			}
		}
	}
	// helped reports whether two calls of one loop meet.
	helped := func(wait time.Duration) bool {
		both := make(chan struct{})
		var first atomic.Bool
		met := true
		p.NewTeam().For(2, func(_, i int) {
			if !first.CompareAndSwap(false, true) {
				close(both)
				return
			}
			select {
			case <-both:
			case <-time.After(wait):
				met = false
			}
		})
		return met
	}
	asleep(2)
	if helped(20 * time.Millisecond) {
		t.Error("a worker helps where no run goes on")
	}
	p.begin()
	if !helped(10 * time.Second) {
		t.Error("no worker helps the only run")
	}
	p.begin()
	p.begin()
	asleep(2)
	if helped(20 * time.Millisecond) {
		t.Error("a worker helps where runs have all threads")
	}
	p.end()
	if !helped(10 * time.Second) {
		t.Error("no worker helps where a run has ended")
	}
	p.end()
	p.end()
	asleep(2)

	var wg sync.WaitGroup
	var total atomic.Int64
	for range 10 {
		wg.Go(func() {
			team := p.NewTeam()
			for range 50 {
				p.begin()
				team.For(20, func(_, i int) { total.Add(int64(i)) })
				p.end()
			}
		})
	}
	wg.Wait()
	if want := int64(10 * 50 * 190); total.Load() != want {
		t.Errorf("sum %d, want %d", total.Load(), want)
	}
}
