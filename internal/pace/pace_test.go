package pace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// clock is a time that tests set.
type clock struct {
	sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.at
}

func (c *clock) pass(seconds float64) {
	c.Lock()
	c.at = c.at.Add(time.Duration(seconds * 1e9))
	c.Unlock()
}

func newClock() *clock { return &clock{at: time.Unix(1e9, 0)} }

// work does what stages plan, with steps that take factors of what was planned, and looks at the state every so often.
func work(c *clock, t *Tracker, stages []Stage, factor func(kind string) float64, every float64, look func(s State)) {
	wait := func(seconds float64) {
		for ; seconds > 0; seconds -= every {
			c.pass(min(every, seconds))
			look(t.State())
		}
	}
	for _, s := range stages {
		for i, x := range s.Steps {
			t.At(s.Name, i, len(s.Steps))
			wait(x * factor(s.kind()))
		}
		t.At(s.Name, len(s.Steps), len(s.Steps))
		wait(s.Rest * factor(s.kind()))
	}
}

// Whatever machines take for stages, the fraction never falls, and the time that is left is about right when a stage of each kind has
// begun, within a factor of two long before.
func TestTimeLeftIsAboutRight(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 50 {
		var stages []Stage
		total := 0.0
		factors := map[string]float64{}
		factor := func(kind string) float64 {
			if factors[kind] == 0 {
				factors[kind] = 0.5 + 1.5*r.Float64()
			}
			return factors[kind]
		}
		for i := range 2 + r.IntN(6) {
			s := Stage{Name: fmt.Sprint("stage ", i), Kind: fmt.Sprint(r.IntN(3)), Rest: 3 * r.Float64() * float64(r.IntN(2))}
			for range 1 + r.IntN(30) {
				s.Steps = append(s.Steps, 10*r.Float64()*r.Float64())
			}
			stages = append(stages, s)
			total += s.whole() * factor(s.kind())
		}
		c := newClock()
		tr := New(c.now)
		tr.Plan(stages)
		shown, off, looks := 0.0, 0.0, 0
		work(c, tr, stages, factor, 0.5, func(s State) {
			if s.Fraction < shown || s.Fraction >= 1 || !s.Planned {
				t.Errorf("round %d: %+v after a fraction of %g", round, s, shown)
			}
			shown = s.Fraction
			left := total - s.Elapsed.Seconds()
			if s.Left.Seconds() > 4*left+5 || s.Left.Seconds() < left/4-5 {
				t.Errorf("round %d: %v left after %v, want %.1f s", round, s.Left, s.Elapsed, left)
			}
			if s.Elapsed.Seconds() > 0.75*total {
				looks++
				off += max(s.Left.Seconds()-left, left-s.Left.Seconds()) / total
			}
		})
		if off/float64(max(1, looks)) > 0.1 {
			t.Errorf("round %d: in the last quarter %.0f%% off", round, 100*off/float64(looks))
		}
		if shown < 0.95 {
			t.Errorf("round %d: a fraction of %g at the end", round, shown)
		}
	}
}

// A step that takes much longer than planned is not done, nor does the time left stay what it was.
func TestALongStepGoesOn(t *testing.T) {
	c := newClock()
	tr := New(c.now)
	tr.Plan([]Stage{Even("a", 4, 1), Even("b", 1, 1)})
	tr.At("a", 0, 4)
	before := 0.0
	for range 100 {
		c.pass(5)
		s := tr.State()
		if s.Fraction < before || s.Fraction > 0.7 || s.Stage != "a" || s.Done != 0 || s.Total != 4 {
			t.Fatalf("%+v after a fraction of %g", s, before)
		}
		before = s.Fraction
	}
	if s := tr.State(); s.Left < 500*time.Second {
		t.Errorf("%v left where the first step of four has taken 500 s", s.Left)
	}
}

// A later plan takes the place of an earlier one, and what comes after both stays; stages may be left out.
func TestPlansChange(t *testing.T) {
	c := newClock()
	tr := New(c.now)
	tr.Then(Even("write", 1, 2))
	tr.At("import", 0, 1)
	c.pass(1)
	if s := tr.State(); s.Planned || s.Fraction != 0 || s.Stage != "import" || s.Elapsed != time.Second {
		t.Errorf("%+v before there is a plan", s)
	}
	tr.Plan([]Stage{Even("fold", 1, 1), Even("prune", 1, 1)})
	c.pass(1)
	first := tr.State()
	tr.Plan([]Stage{Even("survey", 10, 10), Even("effects", 5, 1), Even("prune", 10, 10)})
	for i := range 10 {
		c.pass(10)
		tr.At("survey", i+1, 10)
		if s := tr.State(); s.Fraction < first.Fraction {
			t.Errorf("%+v after %+v", s, first)
		}
	}
	tr.At("nothing", 1, 2)
	if s := tr.State(); s.Stage != "survey" {
		t.Errorf("%+v is not planned", s)
	}
	tr.At("prune", 0, 10) // without effects
	if s := tr.State(); s.Left < 80*time.Second || s.Left > 125*time.Second || s.Fraction < 0.4 {
		t.Errorf("%+v, want 100 s and 2 s", s)
	}
	tr.At("write", 0, 1)
	if s := tr.State(); s.Left < time.Second || s.Left > 4*time.Second || s.Fraction < 0.9 {
		t.Errorf("%+v, want 2 s", s)
	}
}

// Many may tell, and look.
func TestTrackersAreForMany(t *testing.T) {
	tr := New(time.Now)
	tr.Plan([]Stage{Even("a", 100, 1e-3), Even("b", 100, 1e-3)})
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 100 {
				tr.At([]string{"a", "b"}[k%2], i, 100)
				tr.State()
				if i == 50 {
					tr.Plan([]Stage{Even("b", 100, 1e-3)})
				}
			}
		})
	}
	all.Wait()
}

// The first steps of a stage tell how long the others take, however far off the plan was.
func TestPlansMayBeFarOff(t *testing.T) {
	for _, seconds := range []float64{1e-5, 100} {
		c := newClock()
		tr := New(c.now)
		tr.Plan([]Stage{Even("runs", 20, seconds)})
		for i := range 20 {
			tr.At("runs", i, 20)
			left := float64(20-i) * 3
			if s := tr.State(); i >= 5 && (s.Left.Seconds() < 0.8*left || s.Left.Seconds() > 1.25*left) {
				t.Errorf("planned were %g s a step: %v left after %d of 20, want %g s", seconds, s.Left, i, left)
			}
			c.pass(3)
		}
	}
}

// A plan of any number of like steps is small, and takes as long as they do.
func TestManyStepsAreFew(t *testing.T) {
	for _, n := range []int{1, 7, 1000, 1001, 1 << 40} {
		s := Even("s", n, 0.5)
		if whole := s.whole(); len(s.Steps) > 1000 || math.Abs(whole/(0.5*float64(n))-1) > 1e-9 {
			t.Errorf("%d steps: planned as %d of %v seconds in all", n, len(s.Steps), whole)
		}
	}
}
