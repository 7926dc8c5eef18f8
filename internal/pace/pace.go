// Package pace tells how far work is that goes through stages, one after the other: the part that is done, and the time that is left.
// Plans say how long steps would take; how long they do take corrects what is said of those to come.
package pace

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// Stage is a part of the work.
type Stage struct {
	Name string
	// Kind is shared by stages of which one takes longer than planned where another does; empty for none but the name.
	Kind  string
	Steps []float64 // the seconds that each step is planned to take
	Rest  float64   // and what comes after the last of them
}

// manySteps is how many steps a plan tells apart that are alike: more of them are planned together, however many a caller may ask for.
const manySteps = 1000

// Even is a stage of steps that all take the same time.
func Even(name string, steps int, seconds float64) Stage {
	steps = max(1, steps)
	apart := min(steps, manySteps)
	return Stage{Name: name, Steps: slices.Repeat([]float64{seconds * float64(steps) / float64(apart)}, apart)}
}

func (s *Stage) kind() string {
	if s.Kind != "" {
		return s.Kind
	}
	return s.Name
}

// planned is how long the first steps are planned to take, a fraction of the next among them.
func (s *Stage) planned(steps float64) (seconds float64) {
	for i, x := range s.Steps {
		seconds += x * min(1, max(0, steps-float64(i)))
	}
	return seconds
}

func (s *Stage) whole() float64 { return s.planned(float64(len(s.Steps))) + s.Rest }

// Whole is how long stages are planned to take, in seconds.
func Whole(stages []Stage) (seconds float64) {
	for i := range stages {
		seconds += stages[i].whole()
	}
	return seconds
}

// State is how far the work is.
type State struct {
	Stage       string
	Done, Total int     // steps of the stage, as they were told
	Fraction    float64 // of the time that all takes, below 1; it never falls
	Elapsed     time.Duration
	Left        time.Duration
	Planned     bool // the fraction and what is left are known
}

// took is how long something took, and was planned to take, in seconds.
type took struct{ real, planned float64 }

func (t *took) add(o took) { t.real, t.planned = t.real+o.real, t.planned+o.planned }

// Tracker follows work. It may be used concurrently.
type Tracker struct {
	now func() time.Time

	mu      sync.Mutex
	began   time.Time
	stages  []Stage // the first one goes on, or has just ended
	then    []Stage // after all that is planned
	planned bool
	name    string // of what was told last
	done    int
	total   int
	steps   float64         // of the first stage that are done
	since   time.Time       // the first stage goes on
	last    time.Time       // a step of it ended
	past    map[string]took // of stages that have ended, by kind
	shown   float64
}

// New follows work that begins now, by a clock.
func New(now func() time.Time) *Tracker {
	t := &Tracker{now: now, began: now(), past: map[string]took{}}
	t.since, t.last = t.began, t.began
	return t
}

// Then says what comes after all that is planned, in the place of what it was told before.
func (t *Tracker) Then(stages ...Stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.then = stages
}

// Plan says what is to come, the first of which begins now, in the place of what was planned before.
func (t *Tracker) Plan(stages []Stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.end(now)
	t.stages, t.planned = slices.Concat(stages, t.then), true
	t.begin(now)
}

// end keeps how long the first stage took.
func (t *Tracker) end(now time.Time) {
	if t.planned && len(t.stages) > 0 {
		s := &t.stages[0]
		p := t.past[s.kind()]
		p.add(took{now.Sub(t.since).Seconds(), s.whole()})
		t.past[s.kind()] = p
	}
}

func (t *Tracker) begin(now time.Time) { t.since, t.last, t.steps = now, now, 0 }

// At says that so many of a stage's steps are done. What is planned before it has ended then. A stage that is not planned changes nothing but
// what is shown where no plan is left. On one processor whatever shows the state has its turn then.
func (t *Tracker) At(name string, done, total int) {
	defer runtime.Gosched()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	i := slices.IndexFunc(t.stages, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		if len(t.stages) == 0 {
			t.name, t.done, t.total = name, done, total
		}
		return
	}
	t.name, t.done, t.total = name, done, total
	if i > 0 {
		t.end(now)
		t.stages = t.stages[i:]
		t.begin(now)
	}
	if steps := float64(done) / float64(max(1, total)) * float64(len(t.stages[0].Steps)); steps > t.steps {
		t.steps, t.last = steps, now
	}
}

// prior is the part of what is planned, of all and of a kind, that counts as if it had taken as long as planned, or as others do, so that the
// first steps do not decide all.
const prior = 1. / 50

// paces returns how much longer than planned stages of a kind take, of which the first one has some steps that are not in the past.
func (t *Tracker) paces(here took) func(kind string) float64 {
	past, planned, total := map[string]took{}, map[string]float64{}, 1e-9
	all := here
	for kind, p := range t.past {
		past[kind], planned[kind] = p, p.planned
		all.add(p)
		total += p.planned
	}
	for i := range t.stages {
		s := t.stages[i].whole()
		planned[t.stages[i].kind()] += s
		total += s
	}
	if len(t.stages) > 0 {
		kind := t.stages[0].kind()
		p := past[kind]
		p.add(here)
		past[kind] = p
	}
	general := (all.real + prior*total) / (all.planned + prior*total)
	return func(kind string) float64 {
		p, some := past[kind], prior*planned[kind]+1e-12
		return (p.real + general*some) / (p.planned + some)
	}
}

// step is how long what goes on of the first stage is planned to take: its next step, or what comes after the last.
func (t *Tracker) step() float64 {
	s := &t.stages[0]
	if k := int(t.steps); k < len(s.Steps) {
		return s.planned(float64(k+1)) - s.planned(t.steps)
	}
	return s.Rest
}

// left is the time that is left.
func (t *Tracker) left(now time.Time) float64 {
	if len(t.stages) == 0 {
		return 0
	}
	s := &t.stages[0]
	done := took{t.last.Sub(t.since).Seconds(), s.planned(t.steps)}
	pace := t.paces(done)
	next, gone := t.step(), now.Sub(t.last).Seconds()
	if gone > next*pace(s.kind()) { // the step tells that it is slow before it ends
		done.add(took{gone, next})
		pace = t.paces(done)
	}
	here := pace(s.kind())
	seconds := max(next*here-gone, gone/10)
	seconds += (s.whole() - s.planned(t.steps) - next) * here
	for i := range t.stages[1:] {
		s := &t.stages[i+1]
		seconds += s.whole() * pace(s.kind())
	}
	return max(0, seconds)
}

// State says how far the work is.
func (t *Tracker) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	elapsed := now.Sub(t.began)
	s := State{Stage: t.name, Done: t.done, Total: t.total, Elapsed: elapsed, Planned: t.planned && len(t.stages) > 0}
	if s.Planned {
		if left := t.left(now); elapsed > 0 {
			t.shown = max(t.shown, min(0.999, elapsed.Seconds()/(elapsed.Seconds()+left)))
			s.Left = time.Duration(left * 1e9)
		}
		if s.Stage == "" {
			s.Stage = t.stages[0].Name
		}
	}
	s.Fraction = t.shown
	return s
}
