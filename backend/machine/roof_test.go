package machine

import (
	"testing"

	"spc/ir"
)

func TestRoofBoundsByTheScarcest(t *testing.T) {
	p := &Profile{Peak: 100, Memory: 10, Next: Level{Bytes: 1000, Bandwidth: 40}}
	far, near := p.Roof(1, 1001), p.Roof(2, 1000)
	if far.Cached || !near.Cached {
		t.Errorf("weights of 1001 bytes in a cache of 1000: %v, of 1000: %v", far.Cached, near.Cached)
	}
	for _, c := range []struct {
		roof    Roof
		work    ir.Work
		seconds float64
	}{
		{far, ir.Work{FLOPs: 200, Bytes: 10}, 2},
		{far, ir.Work{FLOPs: 200, Bytes: 40}, 4},
		{near, ir.Work{FLOPs: 200, Bytes: 40}, 1},
		{near, ir.Work{FLOPs: 0, Bytes: 160}, 2},
	} {
		if s := c.roof.Seconds(c.work); s != c.seconds {
			t.Errorf("%+v takes %g seconds under %+v, want %g", c.work, s, c.roof, c.seconds)
		}
		if at := c.roof.At(c.work.FLOPs / c.work.Bytes); at*c.seconds != c.work.FLOPs {
			t.Errorf("%+v: %g operations a second under %+v", c.work, at, c.roof)
		}
	}
}
