package lent_test

import (
	"runtime"
	"sync"
	"testing"

	"spc/internal/lent"
)

func TestPoolKeepsWhatItLends(t *testing.T) {
	made := 0
	p := lent.NewPool(func() *int { made++; return new(int) })
	a, b := p.Get(), p.Get()
	if a == b || made != 2 {
		t.Fatalf("lent %p and %p, made %d", a, b, made)
	}
	p.Put(a)
	runtime.GC()
	runtime.GC() // a sync.Pool is empty now
	if c := p.Get(); c != a || made != 2 {
		t.Errorf("got %p, want %p again; made %d", c, a, made)
	}
	if d := p.Get(); d == a || d == b || made != 3 {
		t.Errorf("got %p after %p and %p; made %d", d, a, b, made)
	}
}

func TestPoolLendsToOneAtATime(t *testing.T) {
	p := lent.NewPool(func() *int { return new(int) })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				v := p.Get()
				*v++ // the race detector sees two users
				p.Put(v)
			}
		})
	}
	wg.Wait()
}
