package main

import (
	"testing"
	"time"
)

func TestWhatBoundsWork(t *testing.T) {
	for _, c := range []struct {
		took, busy time.Duration
		want       string
	}{
		{10 * time.Second, 0, "disk or the processors"},
		{10 * time.Second, 3 * time.Second, "disk"},
		{10 * time.Second, 9 * time.Second, "processors"},
		{10 * time.Second, 19 * time.Second, "processors"},
	} {
		if got := boundOf(c.took, c.busy); got != c.want {
			t.Errorf("%v of %v: the %s, want the %s", c.busy, c.took, got, c.want)
		}
	}
	start := begin()
	for time.Since(start.start) < 50*time.Millisecond {
	}
	if busy := busyTime() - start.busy; busyTime() != 0 && boundOf(time.Since(start.start), busy) != "processors" {
		t.Errorf("%v of 50ms are counted of a loop", busy)
	}
}
