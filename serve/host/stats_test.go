package host

import (
	"math"
	"slices"
	"testing"
	"time"
)

// Each time is counted once, between the bounds that it lies between, and bounds grow by the fifth root of ten.
func TestLatencyBounds(t *testing.T) {
	if n := len(LatencyBounds); n+1 != len(Latency{}) || LatencyBounds[0] != 10*time.Microsecond || LatencyBounds[n-1] != 63*time.Second {
		t.Fatalf("%d bounds for %d counts: %v", n, len(Latency{}), LatencyBounds)
	}
	for i, b := range LatencyBounds {
		if want := math.Pow(10, 1+float64(i)/5); math.Abs(float64(b)/1e3/want-1) > 0.01 {
			t.Errorf("bound %d is %v, want about %.3g us", i, b, want)
		}
	}
	for _, c := range []struct {
		took time.Duration
		at   int
	}{{0, 0}, {10 * time.Microsecond, 0}, {10*time.Microsecond + 1, 1}, {16 * time.Microsecond, 1}, {time.Millisecond, 10}, {1001 * time.Microsecond, 11}, {63 * time.Second, 34}, {time.Hour, 35}} {
		var l Latency
		l.add(c.took)
		if l[c.at] != 1 || slices.Max(l[:]) != 1 {
			t.Errorf("%v is counted as %v, want at %d", c.took, l, c.at)
		}
	}
}
