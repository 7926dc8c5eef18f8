package bench

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

func TestOthersAreWhatIsLeftOfTheBusyTime(t *testing.T) {
	from := machineUse("cpu  100 20 30 1000 50 1 2 7 3 4\ncpu0 1 1 1 1\n")
	if from.all != 1210 || from.busy != 160 {
		t.Errorf("%+v, want 1210 in all, 160 busy", from)
	}
	from.own = processUse("42 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 30 5 2 1 20 0")
	if from.own != 38 {
		t.Errorf("own %g, want 38", from.own)
	}
	to := usage{busy: from.busy + 150, all: from.all + 200, own: from.own + 100}
	if got := others(from, to); math.Abs(got-0.25) > 1e-12 {
		t.Errorf("others %g, want 0.25", got)
	}
	if got := others(to, from); got != 0 {
		t.Errorf("others %g of no time, want 0", got)
	}
}

func TestWarningCountsMeasurements(t *testing.T) {
	if s := warning([]float64{0.01, 0.05}); s != "" {
		t.Errorf("%q, want nothing", s)
	}
	if s := warning([]float64{0.01, 0.5, 0.31}); !strings.Contains(s, "up to 50% of the processors during 2 of 3") {
		t.Errorf("%q", s)
	}
}

func TestUseCountsThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip(err)
	}
	from := use(os.Getpid())
	for start := time.Now(); time.Since(start) < 100*time.Millisecond; {
	}
	to := use(os.Getpid())
	if to.own <= from.own || to.all <= from.all {
		t.Errorf("%+v, then %+v", from, to)
	}
	if got := use(-1); got != (usage{}) {
		t.Errorf("%+v with a process that does not exist", got)
	}
}
