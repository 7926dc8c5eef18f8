package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// log keeps what ran.
type log struct {
	mu  sync.Mutex
	ran [][]string
}

func (l *log) run(took time.Duration) func(context.Context, []*Request) {
	return func(ctx context.Context, batch []*Request) {
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
		var names []string
		for _, r := range batch {
			names = append(names, r.Value.(string))
			r.Err = ctx.Err()
		}
		l.mu.Lock()
		l.ran = append(l.ran, names)
		l.mu.Unlock()
	}
}

// send has requests wait in turn, each after what is left of the ones before has settled.
func send(t *testing.T, wg *sync.WaitGroup, q *Queue, name string, want error, r *Request) {
	t.Helper()
	r.Value = name
	wg.Go(func() {
		if err := q.Do(t.Context(), r); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	})
	synctest.Wait()
}

func TestRequestsRunTogether(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		rows []int
		keys string // a letter for each
		want [][]string
	}{
		"alone":                       {Options{}, []int{1, 1, 1}, "", [][]string{{"0"}, {"1"}, {"2"}}},
		"what waits while one runs":   {Options{MaxBatch: 4}, []int{1, 1, 1, 1}, "", [][]string{{"0"}, {"1", "2", "3"}}},
		"as many as are allowed":      {Options{MaxBatch: 2}, []int{1, 1, 1, 1, 1}, "", [][]string{{"0"}, {"1", "2"}, {"3", "4"}}},
		"rows of a listed number":     {Options{MaxBatch: 8}, []int{1, 1, 1, 1, 1, 1}, "", [][]string{{"0"}, {"1", "2", "3", "4"}, {"5"}}},
		"requests of several rows":    {Options{MaxBatch: 8}, []int{1, 3, 3, 3}, "", [][]string{{"0"}, {"1", "2"}, {"3"}}},
		"one that is larger than any": {Options{MaxBatch: 4}, []int{1, 9, 1, 1}, "", [][]string{{"0"}, {"1"}, {"2", "3"}}},
		"of one key":                  {Options{MaxBatch: 8}, []int{1, 1, 1, 1}, "aaab", [][]string{{"0"}, {"1", "2"}, {"3"}}},
		"in the order of arrival":     {Options{MaxBatch: 8}, []int{1, 1, 1, 1}, "aaba", [][]string{{"0"}, {"1"}, {"2"}, {"3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l log
				q := New(1).NewQueue(c.o, l.run(time.Second))
				var wg sync.WaitGroup
				for i, n := range c.rows {
					r := &Request{Rows: n}
					if c.keys != "" {
						r.Key = c.keys[i : i+1]
					}
					send(t, &wg, q, fmt.Sprint(i), nil, r)
				}
				wg.Wait()
				if !slices.EqualFunc(l.ran, c.want, slices.Equal) {
					t.Errorf("%v ran, want %v", l.ran, c.want)
				}
			})
		})
	}
}

func TestRequestsWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		q := New(2).NewQueue(Options{MaxBatch: 4, Delay: time.Second}, l.run(0))
		var wg sync.WaitGroup
		began := time.Now()
		send(t, &wg, q, "a", nil, &Request{})
		time.Sleep(900 * time.Millisecond)
		send(t, &wg, q, "b", nil, &Request{})
		wg.Wait()
		if d := time.Since(began); d != time.Second {
			t.Errorf("two ran after %v, want as long as the first may wait", d)
		}
		began = time.Now()
		for _, n := range []string{"c", "d", "e", "f"} {
			send(t, &wg, q, n, nil, &Request{})
		}
		wg.Wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("a full batch waited for %v", d)
		}
		if want := [][]string{{"a", "b"}, {"c", "d", "e", "f"}}; !slices.EqualFunc(l.ran, want, slices.Equal) {
			t.Errorf("%v ran, want %v", l.ran, want)
		}
	})
}

func TestQueuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		q := New(1).NewQueue(Options{Size: 2, Timeout: time.Second}, l.run(700*time.Millisecond))
		var wg sync.WaitGroup
		send(t, &wg, q, "runs", nil, &Request{})
		send(t, &wg, q, "waits", nil, &Request{})
		send(t, &wg, q, "waits too long", ErrExpired, &Request{})
		send(t, &wg, q, "is one too many", ErrFull, &Request{})
		began := time.Now()
		wg.Wait()
		if d := time.Since(began); d != 1400*time.Millisecond {
			t.Errorf("all took %v", d)
		}
		if want := [][]string{{"runs"}, {"waits"}}; !slices.EqualFunc(l.ran, want, slices.Equal) {
			t.Errorf("%v ran, want %v", l.ran, want)
		}
	})
}

func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 9)
		q := New(1).NewQueue(Options{MaxBatch: 4}, func(ctx context.Context, batch []*Request) {
			<-ctx.Done()
			ended <- ctx.Err()
		})
		ask := func() (cancel func()) {
			ctx, cancel := context.WithCancel(t.Context())
			go q.Do(ctx, &Request{})
			synctest.Wait()
			return cancel
		}
		first := ask()
		others := []func(){ask(), ask(), ask()}
		others[1]() // waits
		synctest.Wait()
		if n := q.Waiting(); n != 2 {
			t.Errorf("%d wait, want 2", n)
		}
		first()
		synctest.Wait() // the two run
		if n := len(ended); n != 1 {
			t.Fatalf("%d runs have ended, want the first", n)
		}
		others[0]()
		synctest.Wait()
		if n := len(ended); n != 1 {
			t.Error("a run ended while somebody waited for it")
		}
		others[2]()
		synctest.Wait()
		if n := len(ended); n != 2 {
			t.Error("a run that nobody waits for goes on")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Do(ctx, &Request{}); !errors.Is(err, context.Canceled) {
			t.Errorf("a request that came too late: %v", err)
		}
	})
}

// Each queue that has requests gets as much of the slots, however many requests it has and however long they take.
func TestQueuesAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		var had [3]atomic.Int64
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i, c := range []struct {
			clients int
			took    time.Duration
		}{{1, 10 * time.Millisecond}, {20, 10 * time.Millisecond}, {20, 90 * time.Millisecond}} {
			q := s.NewQueue(Options{}, func(context.Context, []*Request) {
				time.Sleep(c.took)
				had[i].Add(int64(c.took))
			})
			for range max(2, c.clients) {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							q.Do(t.Context(), &Request{})
						}
					}
				})
			}
		}
		time.Sleep(time.Minute)
		close(stop)
		wg.Wait()
		for i := range had {
			if d := time.Duration(had[i].Load()); d < 36*time.Second || d > 44*time.Second {
				t.Errorf("queue %d had the slots for %v of 2 minutes, want a third", i, d)
			}
		}
	})
}

func TestClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		s := New(1)
		q := s.NewQueue(Options{}, l.run(time.Second))
		var wg sync.WaitGroup
		for _, n := range []string{"a", "b", "c"} {
			send(t, &wg, q, n, nil, &Request{})
		}
		if err := q.Close(t.Context()); err != nil || len(l.ran) != 3 {
			t.Errorf("closing: %v, %v ran", err, l.ran)
		}
		if err := q.Do(t.Context(), &Request{}); !errors.Is(err, ErrClosed) {
			t.Errorf("after it was closed: %v", err)
		}
		wg.Wait()
		q = s.NewQueue(Options{}, l.run(time.Second))
		send(t, &wg, q, "d", nil, &Request{})
		send(t, &wg, q, "e", ErrClosed, &Request{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := q.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || len(l.ran) != 4 {
			t.Errorf("closing in a hurry: %v, %v ran", err, l.ran)
		}
		wg.Wait()
		if err := s.NewQueue(Options{}, l.run(0)).Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAPanicIsAnError(t *testing.T) {
	q := New(1).NewQueue(Options{}, func(context.Context, []*Request) { panic("ouch") })
	for range 2 {
		if err := q.Do(t.Context(), &Request{}); err == nil || err.Error() != "panic: ouch" {
			t.Errorf("got %v", err)
		}
	}
}

// Whatever happens to requests, each ends, each runs once at most, and slots are neither lost nor made.
func TestRequestsAtRandom(t *testing.T) {
	const seed = 24
	t.Logf("seed %d", seed)
	const slots = 3
	s := New(slots)
	var busy, most atomic.Int32
	var queues []*Queue
	for i := range 3 {
		queues = append(queues, s.NewQueue(Options{MaxBatch: []int{0, 4, 16}[i], Delay: time.Duration(i) * 100 * time.Microsecond, Size: 20, Timeout: 2 * time.Millisecond},
			func(ctx context.Context, batch []*Request) {
				if n := busy.Add(1); n > slots {
					t.Errorf("%d runs at a time", n)
				} else if n > most.Load() {
					most.Store(n)
				}
				for _, r := range batch {
					if r.Value.(*atomic.Int32).Add(1) != 1 {
						t.Error("a request ran twice")
					}
				}
				time.Sleep(100 * time.Microsecond)
				busy.Add(-1)
			}))
	}
	var wg sync.WaitGroup
	var ran, failed atomic.Int32
	for c := range 16 {
		rng := rand.New(rand.NewPCG(seed, uint64(c)))
		wg.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Microsecond)
				var n atomic.Int32
				err := queues[rng.IntN(3)].Do(ctx, &Request{Key: string('a' + rune(rng.IntN(2))), Rows: 1 + rng.IntN(3), Value: &n})
				cancel()
				if err == nil {
					ran.Add(1)
					if n.Load() != 1 {
						t.Error("a request has ended that did not run")
					}
				} else {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for _, q := range queues {
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if s.free != slots || len(s.queues) != 0 {
		t.Errorf("%d slots are free, want %d; %d queues wait", s.free, slots, len(s.queues))
	}
	if ran.Load() == 0 || failed.Load() == 0 || most.Load() < 2 {
		t.Errorf("%d ran, %d failed, %d at a time: this shows nothing", ran.Load(), failed.Load(), most.Load())
	}
}

func TestSizes(t *testing.T) {
	if got, want := Sizes(40), []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
