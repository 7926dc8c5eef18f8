package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/backend/predict"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/tests/graphtest"
)

// two products, of weights of which a quarter of each row is not zero.
func two(t *testing.T) *ir.Graph {
	w := func(columns int) string {
		return strings.TrimSuffix(strings.Repeat(strings.Repeat("1.0, ", columns)+strings.Repeat("0.0, ", 3*columns), 16), ", ")
	}
	return graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[n,64]) {
  %%a: f32[64,64] = const {%s}
  %%b: f32[64,48] = const {%s}
  %%h: f32[n,64] = MatMul "first" (%%x, %%a)
  %%y: f32[n,48] = MatMul "second" (%%h, %%b)
  return %%y
}`, w(64), w(48)))
}

// fake is a program whose nodes take what a table says by the formats of their weights, and which sleeps as long as all of
// them.
type fake struct {
	graph *ir.Graph
	took  func(node, format string, n int) time.Duration
	open  *atomic.Int64
	err   error
}

func (f *fake) Run(ctx context.Context, in, out []*tensor.Tensor) error {
	total := time.Duration(0)
	err := f.Trace(ctx, in, out, func(_ *ir.Node, d time.Duration) { total += d })
	time.Sleep(total)
	return err
}

func (f *fake) Trace(_ context.Context, in, _ []*tensor.Tensor, tell func(*ir.Node, time.Duration)) error {
	for _, u := range f.graph.WeightUses() {
		name := choose.Dense
		if u.Value.Store != nil {
			name = u.Value.Store.Format
		}
		tell(u.Node, f.took(u.Node.Name, name, in[0].Dim(0)))
	}
	return f.err
}

func (f *fake) Prepare([]*tensor.Tensor) error { return nil }
func (f *fake) Close() error                   { f.open.Add(-1); return nil }

// measurement measures two by fake programs.
func measurement(t *testing.T, took func(node, format string, n int) time.Duration) (*Measurement, *atomic.Int64) {
	t.Helper()
	plain := two(t)
	layers, _, err := choose.Run(plain.Clone(), format.Choices(machine.Default), predict.Of(machine.Default), choose.Options{Sizes: map[string]choose.Sizes{"n": {From: 4, To: 64, Only: []int{4, 64}}}})
	if err != nil {
		t.Fatal(err)
	}
	open := &atomic.Int64{}
	m := &Measurement{Graph: plain, Layers: layers, Until: time.Now().Add(time.Minute), Step: func() {}, Load: func(g *ir.Graph) (backend.Program, error) {
		open.Add(1)
		return &fake{g, took, open, nil}, nil
	}}
	for _, p := range choose.Places(plain, map[string]choose.Sizes{"n": {From: 4, To: 64, Only: []int{4, 64}}}) {
		m.Places = append(m.Places, Place{p, []*tensor.Tensor{tensor.New(tensor.F32, p.Shapes[0]...)}})
	}
	return m, open
}

// What nodes take in each form is told for the columns that were measured, and for others the prediction is scaled.
func TestFormsAreMeasuredInPlace(t *testing.T) {
	m, open := measurement(t, func(node, format string, n int) time.Duration {
		us := 10 * n
		if format == "ell" && node == "first" {
			us = 5 * n
		}
		return time.Duration(us) * time.Microsecond
	})
	timings, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if open.Load() != 0 {
		t.Errorf("%d programs are left open", open.Load())
	}
	config := ""
	for _, c := range m.Layers[0].Candidates {
		if c.Format == "ell" && config == "" {
			config = c.Config
		}
	}
	for _, c := range []struct {
		number int
		form   choose.Form
		n      int
		us     float64
	}{
		{0, choose.Form{Format: choose.Dense}, 4, 40}, {0, choose.Form{Format: choose.Dense}, 64, 640},
		{0, choose.Form{Format: "ell", Config: config}, 4, 20}, {0, choose.Form{Format: "ell", Config: config}, 64, 320},
		{1, choose.Form{Format: "ell", Config: config}, 64, 640}, {0, choose.Form{Format: "ell", Config: "9x9"}, 4, 0},
	} {
		if got := timings.Of(c.number, c.form, c.n, 1); math.Abs(got.Us-c.us) > 1e-6 || (got.Noise > 0) != (c.us > 0 && c.form.Format != choose.Dense) {
			t.Errorf("use %d in %v for %d columns: %+v, want %v us", c.number, c.form, c.n, got, c.us)
		}
	}
	// Of 50 columns it is as far from the prediction as of 64.
	l := &m.Layers[0]
	for i := range l.Candidates {
		if c := &l.Candidates[i]; c.Format == choose.Dense {
			predicted, _ := l.Us(c, 64)
			if got := timings.Of(0, choose.Form{Format: choose.Dense}, 50, 3*predicted); math.Abs(got.Us-3*640) > 0.1 {
				t.Errorf("of 50 columns %v us, want %v", got.Us, 3*640)
			}
		}
	}
	if timings.Measured != 2 || timings.Known != 0 || len(timings.Fresh()) < 8 {
		t.Errorf("%d measured, %d known, %d entries", timings.Measured, timings.Known, len(timings.Fresh()))
	}
}

// Where there is time more forms are measured than always, and a record without the further ones suffices.
func TestFurtherFormsWhereThereIsTime(t *testing.T) {
	took := func(_, format string, n int) time.Duration { return time.Duration(n) * time.Microsecond }
	plenty, _ := measurement(t, took)
	most := len(best(plenty.Layers[0].Candidates, manyForms))
	if most <= 1+mostForms {
		t.Fatalf("only %d forms", most)
	}
	counted := func(m *Measurement) map[string]bool {
		t.Helper()
		timings, err := m.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		forms := map[string]bool{}
		for _, e := range timings.Fresh() {
			if e.Problem == m.problems[0][0] {
				forms[e.Form] = true
			}
		}
		m.Known = &Record{Version: RecordVersion, Machine: "here", Entries: timings.Fresh()}
		return forms
	}
	if got := counted(plenty); len(got) != most {
		t.Errorf("%d forms, want %d", len(got), most)
	}
	run := 5 * time.Millisecond // that any program takes
	little, _ := measurement(t, took)
	load := little.Load
	little.Load = func(g *ir.Graph) (backend.Program, error) {
		p, err := load(g)
		return slow{p, run}, err
	}
	little.Until = time.Now().Add((1 + manyForms) * manyRounds * warmRuns * run / 2)
	if got := counted(little); len(got) != 1+mostForms {
		t.Errorf("in little time %d forms, want %d", len(got), 1+mostForms)
	}
	again, _ := measurement(t, took)
	again.Known = little.Known
	if timings, err := again.Run(t.Context()); err != nil || timings.Measured != 0 {
		t.Errorf("%+v, %v: want nothing measured", timings, err)
	}
}

// slow takes so long to run.
type slow struct {
	backend.Program
	run time.Duration
}

func (s slow) Run(ctx context.Context, in, out []*tensor.Tensor) error {
	time.Sleep(s.run)
	return s.Program.Run(ctx, in, out)
}

// What takes far longer than dense is not measured again, errors end it, and too little time is one.
func TestMeasuringEnds(t *testing.T) {
	runs, loads := map[bool]int{}, 0
	m, _ := measurement(t, func(node, format string, n int) time.Duration {
		dense := format == choose.Dense
		if node == "first" && n == 4 {
			runs[dense]++
		}
		if !dense {
			return 100 * time.Microsecond
		}
		return time.Microsecond
	})
	load := m.Load
	m.Load = func(g *ir.Graph) (backend.Program, error) {
		loads++
		return load(g)
	}
	if _, err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Of the runs that are not timed two at the least place tell what one takes.
	if warm := 2; runs[true] != 2*warm+mostRounds || runs[false] != (loads-1)*(warm+leastRounds) {
		t.Errorf("dense ran %d times, %d hopeless programs %d times", runs[true], loads-1, runs[false])
	}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		change func(m *Measurement)
		want   error
	}{
		"a run":    {func(m *Measurement) { load := m.Load; m.Load = failing(load, broken) }, broken},
		"a load":   {func(m *Measurement) { m.Load = func(*ir.Graph) (backend.Program, error) { return nil, broken } }, broken},
		"the time": {func(m *Measurement) { m.Until = time.Now().Add(3 * time.Millisecond) }, ErrBudget},
	} {
		m, open := measurement(t, func(string, string, int) time.Duration { return time.Millisecond })
		c.change(m)
		if _, err := m.Run(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if open.Load() != 0 {
			t.Errorf("%s: %d programs are left open", name, open.Load())
		}
	}
}

func failing(load func(*ir.Graph) (backend.Program, error), why error) func(*ir.Graph) (backend.Program, error) {
	return func(g *ir.Graph) (backend.Program, error) {
		p, err := load(g)
		p.(*fake).err = why
		return p, err
	}
}

// The earlier of two programs wins unless the later is faster by more than the noise, and nowhere slower than the first.
func TestTheFastestProgramIsKept(t *testing.T) {
	type place = [][]float64
	one := []float64{1, 1, 1}
	noisy := func(mid float64, n int) []float64 {
		var out []float64
		for i := range n {
			out = append(out, mid*[]float64{0.6, 1, 1.7}[i%3])
		}
		return out
	}
	long := make([]float64, 30)
	for i := range long {
		long[i] = 1
	}
	for name, c := range map[string]struct {
		times []place
		want  int
	}{
		"alone":                {[]place{{one}}, 0},
		"a tie":                {[]place{{one, one}}, 0},
		"faster":               {[]place{{one, {0.5, 0.6, 0.5}}}, 1},
		"little and noisy":     {[]place{{one, {0.9, 0.98, 1.2}}}, 0},
		"much and noisy":       {[]place{{long, noisy(0.5, 30)}}, 1},
		"too few rounds":       {[]place{{one, noisy(0.7, 3)}}, 0},
		"slower somewhere":     {[]place{{one, {0.5, 0.5, 0.5}}, {one, {1.1, 1.1, 1.1}}}, 0},
		"as fast somewhere":    {[]place{{one, {0.5, 0.5, 0.5}}, {one, {1.005, 1, 1}}}, 1},
		"the later is faster":  {[]place{{one, {0.5, 0.5, 0.5}, {0.4, 0.4, 0.4}}}, 2},
		"the later is as fast": {[]place{{one, {0.5, 0.5, 0.5}, {0.498, 0.498, 0.498}}}, 1},
		"only the later":       {[]place{{one, {1.2, 1.2, 1.2}, {0.9, 0.9, 0.9}}}, 2},
		"drift":                {[]place{{{1, 2, 3}, {0.5, 1, 1.5}, {0.4, 0.8, 1.2}}}, 2},
	} {
		if got := fastest(c.times); got != c.want {
			t.Errorf("%s: program %d, want %d", name, got, c.want)
		}
	}
}

func TestProgramsAreJudgedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, open := measurement(t, func(_, format string, n int) time.Duration {
			if format == choose.Dense {
				return 2 * time.Millisecond
			}
			return time.Millisecond / 2
		})
		sparse := m.Graph.Clone()
		if _, _, err := choose.Run(sparse, format.Choices(machine.Default), predict.Of(machine.Default), choose.Options{Format: "ell"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			graphs []*ir.Graph
			want   int
		}{{[]*ir.Graph{m.Graph, sparse}, 1}, {[]*ir.Graph{sparse, m.Graph}, 0}} {
			v, err := Judge(t.Context(), c.graphs, m.Places, time.Now().Add(time.Second), 0, m.Load, func() {})
			if err != nil {
				t.Fatal(err)
			}
			if v.Best != c.want || len(v.Ms) != 2 || len(v.Ms[0]) != 2 || open.Load() != 0 {
				t.Errorf("program %d, want %d: %v ms; %d left open", v.Best, c.want, v.Ms, open.Load())
			}
		}
		// Without time only the first place is seen.
		v, err := Judge(t.Context(), []*ir.Graph{m.Graph, sparse}, m.Places, time.Now(), 0, m.Load, func() {})
		if err != nil || len(v.Ms[0]) != 1 {
			t.Errorf("%v, %v", v, err)
		}
	})
}

// recurrent is a node of two weights, of which the second is multiplied by in each of t steps.
const recurrent = `graph "g"(%%x: f32[t,3,64]) {
  %%w: f32[1,256,64] = const {%s}
  %%r: f32[1,256,64] = const {%s}
  %%y: f32[t,1,3,64] = LSTM "cell" (%%x, %%w, %%r) {hidden_size = 64}
  return %%y }`

// A node is timed as a whole, so each of its weights has its forms while the other is dense: what one gains is not taken for the other's.
// What is known of some steps says nothing of others.
func TestWeightsOfOneNodeTakeTurns(t *testing.T) {
	values := strings.TrimSuffix(strings.Repeat(strings.Repeat("1.0, ", 16)+strings.Repeat("0.0, ", 48), 256), ", ")
	g := graphtest.Parse(t, fmt.Sprintf(recurrent, values, values))
	sizes := func(n int) map[string]choose.Sizes { return map[string]choose.Sizes{"t": {From: n, To: n}} }
	layers, _, err := choose.Run(g.Clone(), format.Choices(machine.Default), predict.Of(machine.Default), choose.Options{Sizes: sizes(8)})
	if err != nil {
		t.Fatal(err)
	}
	of := func(n int) *Measurement {
		m := &Measurement{Graph: g, Layers: layers, Until: time.Now().Add(time.Minute), Rounds: 3, Step: func() {}}
		m.Load = func(g *ir.Graph) (backend.Program, error) { return &states{g}, nil }
		for _, p := range choose.Places(g, sizes(n)) {
			m.Places = append(m.Places, Place{p, []*tensor.Tensor{tensor.New(tensor.F32, p.Shapes[0]...)}})
		}
		return m
	}
	m := of(8)
	timings, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range []float64{1000 + 8*100, 1000 - 8*50} { // dense takes 1 ms
		sparse := 0
		for _, c := range m.Layers[number].Candidates {
			f := form(&c)
			got := timings.Of(number, f, m.Places[0].Columns[number], 1)
			if f.Format == choose.Dense || got.Us == 0 {
				continue
			}
			if sparse++; math.Abs(got.Us-want) > 1e-6*want {
				t.Errorf("weight %d in %v takes %v us, want %v", number, f, got.Us, want)
			}
		}
		if sparse == 0 {
			t.Errorf("weight %d was not measured", number)
		}
	}
	// A form that is not known at all places would be compared over other steps than dense.
	less := of(8)
	less.Places = append(less.Places, of(16).Places...)
	all, err := less.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	further := best(m.Layers[1].Candidates, manyForms)[mostForms+1]
	f, n := form(&further), m.Places[0].Columns[1]
	known := of(8)
	known.Places = less.Places
	known.Known = &Record{Entries: slices.DeleteFunc(all.Fresh(), func(e Entry) bool { return e.Form == f.String() && strings.Contains(e.Problem, "16 steps") })}
	if got, err := known.Run(t.Context()); err != nil || got.Known != 2 || got.Of(1, f, n, 1).Us != 0 || all.Of(1, f, n, 1).Us == 0 {
		t.Errorf("%v is known at one place of two, and taken for %v, all are %v: %v", f, got.Of(1, f, n, 1), all.Of(1, f, n, 1), err)
	}
	for n, want := range map[int]int{8: 2, 9: 0} {
		again := of(n)
		again.Known = &Record{Version: RecordVersion, Machine: "here", Entries: timings.Fresh()}
		if got, err := again.Run(t.Context()); err != nil || got.Known != want {
			t.Errorf("of %d steps %d weights are known, want %d: %v", n, got.Known, want, err)
		}
	}
}

// states is a program of recurrent, in which a step takes 100 us more where the first weight is not dense, and 50 us less where the second is not.
type states struct{ graph *ir.Graph }

func (s *states) Run(ctx context.Context, in, out []*tensor.Tensor) error { return nil }

func (s *states) Trace(_ context.Context, in, _ []*tensor.Tensor, tell func(*ir.Node, time.Duration)) error {
	took := time.Millisecond
	for i, u := range s.graph.WeightUses() {
		if u.Value.Store != nil {
			took += time.Duration(in[0].Dim(0)) * []time.Duration{100, -50}[i] * time.Microsecond
		}
	}
	tell(s.graph.Nodes[0], took)
	return nil
}

func (s *states) Prepare([]*tensor.Tensor) error { return nil }
func (s *states) Close() error                   { return nil }

// A record takes all of a problem from what is added, as forms are compared with dense in the same runs.
func TestProblemsAreRecordedWhole(t *testing.T) {
	r := &Record{Entries: []Entry{{"p", "dense", 4, 2, 0}, {"p", "ell", 4, 1, 0}, {"p", "dense", 8, 2, 0}, {"q", "ell", 4, 1, 0}}}
	r.Add(&Record{Entries: []Entry{{"p", "dense", 4, 3, 0}, {"p", "csr", 4, 2, 0}}})
	want := []Entry{{"p", "dense", 8, 2, 0}, {"q", "ell", 4, 1, 0}, {"p", "dense", 4, 3, 0}, {"p", "csr", 4, 2, 0}}
	if !slices.Equal(r.Entries, want) {
		t.Errorf("%v, want %v", r.Entries, want)
	}
}

// Places at which runs would end after the budget, as those of smaller inputs tell, are not begun.
func TestLargePlacesAreNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := measurement(t, func(_, _ string, n int) time.Duration { return time.Duration(n) * time.Second / 4 }) // 2 and 32 s
		began, budget := time.Now(), 20*time.Second
		m.Until = began.Add(budget)
		if _, err := m.Run(t.Context()); err != nil && !errors.Is(err, ErrBudget) {
			t.Fatal(err)
		}
		if took := time.Since(began); took > budget+2*time.Second {
			t.Errorf("measured for %v, want %v", took, budget)
		}
		began = time.Now()
		v, err := Judge(t.Context(), []*ir.Graph{m.Graph, m.Graph}, m.Places, began.Add(time.Minute), 0, m.Load, func() {})
		if took := time.Since(began); err != nil || len(v.Ms[0]) != 1 || took > time.Minute+4*time.Second {
			t.Errorf("judged for %v at %d places, %v", took, len(v.Ms[0]), err)
		}
	})
}

// Programs run for as long as it is unclear which is faster, up to a bound, as a gain in one weight is little of a large program.
func TestCloseProgramsRunLonger(t *testing.T) {
	for _, c := range []struct {
		name         string
		sparse       []time.Duration // in turns; dense takes 1 ms
		rounds, want int
	}{
		{"much faster", []time.Duration{500 * time.Microsecond}, verdictRounds, 1},
		{"slower", []time.Duration{1500 * time.Microsecond, 2 * time.Millisecond}, verdictRounds, 0},
		{"a tie", []time.Duration{time.Millisecond}, verdictRounds, 0},
		{"faster behind noise", []time.Duration{600 * time.Microsecond, 800 * time.Microsecond, 1600 * time.Microsecond}, 4 * verdictRounds, 1},
		{"noise", []time.Duration{500 * time.Microsecond, 990 * time.Microsecond, 2 * time.Millisecond}, mostVerdictRounds, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			turn := 0
			m, _ := measurement(t, func(node, format string, n int) time.Duration {
				if format == choose.Dense {
					return 500 * time.Microsecond // in both nodes
				}
				defer func() { turn++ }()
				return c.sparse[turn/2%len(c.sparse)] / 2
			})
			m.Until = time.Now().Add(time.Hour)
			sparse := m.Graph.Clone()
			if _, _, err := choose.Run(sparse, format.Choices(machine.Default), predict.Of(machine.Default), choose.Options{Format: "ell"}); err != nil {
				t.Fatal(err)
			}
			v, err := Judge(t.Context(), []*ir.Graph{m.Graph, sparse}, m.Places[:1], m.Until, 0, m.Load, func() {})
			if err != nil {
				t.Fatal(err)
			}
			if rounds := turn/2 - 1; v.Best != c.want || rounds != c.rounds {
				t.Errorf("%s: program %d after %d rounds, want %d after %d", c.name, v.Best, rounds, c.want, c.rounds)
			}
		})
	}
}

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		v       []float64
		q, want float64
	}{{[]float64{3}, 0.75, 3}, {[]float64{3, 1}, 0.5, 2}, {[]float64{4, 1, 3, 2, 5}, 0.75, 4}, {[]float64{4, 1, 3, 2, 5}, 1, 5}, {[]float64{4, 1, 3, 2, 5}, 0, 1}} {
		if got := quantile(c.v, c.q); got != c.want {
			t.Errorf("%v of %v is %v, want %v", c.q, c.v, got, c.want)
		}
	}
}

// What a record knows is not measured again; what it lacks is.
func TestWhatIsKnownIsNotMeasured(t *testing.T) {
	took := func(_, format string, n int) time.Duration { return time.Duration(n*len(format)) * time.Microsecond }
	m, _ := measurement(t, took)
	first, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := &Record{Version: RecordVersion, Machine: "here", Entries: first.Fresh()}
	var file bytes.Buffer
	if err := known.Write(&file); err != nil {
		t.Fatal(err)
	}
	if known, err = ReadRecord(file.Bytes(), "here"); err != nil {
		t.Fatal(err)
	}
	again, _ := measurement(t, took)
	again.Known, again.Load = known, func(*ir.Graph) (backend.Program, error) { return nil, errors.New("loaded") }
	second, err := again.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if second.Measured != 0 || second.Known != 2 || second.Fresh() != nil {
		t.Errorf("%d measured, %d known, fresh %v", second.Measured, second.Known, second.Fresh())
	}
	for number := range m.Layers {
		for i := range m.Layers[number].Candidates {
			f := form(&m.Layers[number].Candidates[i])
			for _, n := range []int{4, 50, 64} {
				if a, b := first.Of(number, f, n, 7), second.Of(number, f, n, 7); a != b {
					t.Errorf("use %d in %v for %d columns: %v, and from the record %v", number, f, n, a, b)
				}
			}
		}
	}
	less, _ := measurement(t, took)
	less.Known = &Record{Entries: slices.DeleteFunc(slices.Clone(known.Entries), func(e Entry) bool { return e.Problem == m.problems[1][0] && e.Form != choose.Dense })}
	third, err := less.Run(t.Context())
	if err != nil || third.Measured != 1 || third.Known != 1 {
		t.Errorf("%+v, %v", third, err)
	}
}

func TestRecords(t *testing.T) {
	entry := Entry{"p", "ell", 4, 2, 0.1}
	verdict := Program{"k", Verdict{[][]float64{{1}, {2}}, 1}}
	valid := Record{RecordVersion, "here", []Entry{entry}, []Program{verdict}}
	write := func(r Record) []byte {
		var b bytes.Buffer
		if err := r.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if r, err := ReadRecord(write(valid), "here"); err != nil || fmt.Sprint(*r) != fmt.Sprint(valid) {
		t.Errorf("%v, %v", r, err)
	}
	for name, c := range map[string]struct {
		edit func(r *Record)
		want error
	}{
		"another version":  {func(r *Record) { r.Version++ }, ir.ErrVersion},
		"another machine":  {func(r *Record) { r.Machine = "there" }, ErrElsewhere},
		"no time":          {func(r *Record) { r.Entries = []Entry{{"p", "ell", 4, 0, 0}} }, ir.ErrCorrupt},
		"negative noise":   {func(r *Record) { r.Entries = []Entry{{"p", "ell", 4, 1, -1}} }, ir.ErrCorrupt},
		"no columns":       {func(r *Record) { r.Entries = []Entry{{"p", "ell", 0, 1, 0}} }, ir.ErrCorrupt},
		"no problem":       {func(r *Record) { r.Entries = []Entry{{"", "ell", 4, 1, 0}} }, ir.ErrCorrupt},
		"no such program":  {func(r *Record) { r.Programs = []Program{{"k", Verdict{[][]float64{{1}}, 1}}} }, ir.ErrCorrupt},
		"no program":       {func(r *Record) { r.Programs = []Program{{"k", Verdict{}}} }, ir.ErrCorrupt},
		"uneven places":    {func(r *Record) { r.Programs = []Program{{"k", Verdict{[][]float64{{1}, {1, 2}}, 0}}} }, ir.ErrCorrupt},
		"a negative time":  {func(r *Record) { r.Programs = []Program{{"k", Verdict{[][]float64{{-1}}, 0}}} }, ir.ErrCorrupt},
		"a negative index": {func(r *Record) { r.Programs = []Program{{"k", Verdict{[][]float64{{1}}, -1}}} }, ir.ErrCorrupt},
	} {
		r := valid
		c.edit(&r)
		if _, err := ReadRecord(write(r), "here"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "{", "[]", `{"version": "1"}`, `{"version": 1, "machine": "here", "entries": 3}`} {
		if _, err := ReadRecord([]byte(text), "here"); !errors.Is(err, ir.ErrCorrupt) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Of two that know the same the later counts, and of too many the last are left.
	r := valid
	r.Add(&Record{Entries: []Entry{{"p", "ell", 4, 3, 0.2}, {"q", "ell", 4, 1, 0}}})
	if want := []Entry{{"p", "ell", 4, 3, 0.2}, {"q", "ell", 4, 1, 0}}; !slices.Equal(r.Entries, want) || len(r.Programs) != 1 {
		t.Errorf("%v", r)
	}
	var many []Entry
	for i := range mostEntries {
		many = append(many, Entry{"m", "ell", i + 1, 1, 0})
	}
	if r.Add(&Record{Entries: many}); len(r.Entries) != mostEntries || r.Entries[0].Problem != "m" {
		t.Errorf("%d entries, the first %v", len(r.Entries), r.Entries[0])
	}
}

// counted counts the runs of a program, and those that are timed.
type counted struct {
	*fake
	runs, timed *atomic.Int64
}

func (c *counted) Run(ctx context.Context, in, out []*tensor.Tensor) error {
	c.runs.Add(1)
	return c.fake.Run(ctx, in, out)
}

func (c *counted) Trace(ctx context.Context, in, out []*tensor.Tensor, tell func(*ir.Node, time.Duration)) error {
	c.timed.Add(1)
	return c.fake.Trace(ctx, in, out, tell)
}

// A program whose weights fit the cache runs several times in its turn, since others have run in between, and the fastest counts.
func TestProgramsFindTheirWeightsInTheCache(t *testing.T) {
	count := map[int]int64{}
	for _, cache := range []int{0, 1 << 20} {
		calls := 0
		m, _ := measurement(t, func(node, format string, n int) time.Duration {
			if node != "first" || format != choose.Dense || n != 4 {
				return 50 * time.Microsecond
			}
			if calls++; calls%warmRuns == 0 {
				return 10 * time.Microsecond
			}
			return 90 * time.Microsecond
		})
		runs, timed := &atomic.Int64{}, &atomic.Int64{}
		load := m.Load
		m.Load = func(g *ir.Graph) (backend.Program, error) {
			p, err := load(g)
			return &counted{p.(*fake), runs, timed}, err
		}
		m.Cache, m.Rounds = cache, 3
		timings, err := m.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		count[cache] = timed.Load()
		if made := int64(4 + 2*len(m.variants)*len(m.Places)); runs.Load() != made { // two tell what one takes at the least place and at the largest, two make each ready at each place
			t.Errorf("a cache of %d bytes: %d runs are not timed, want %d", cache, runs.Load(), made)
		}
		i := slices.IndexFunc(m.Layers, func(l choose.Layer) bool { return l.Name == "first" })
		want := 90.
		if cache > 0 {
			want = 10
		}
		if us := timings.Of(i, choose.Form{Format: choose.Dense}, 4, 1).Us; us != want {
			t.Errorf("a cache of %d bytes: %v us, want %v", cache, us, want)
		}
	}
	if count[0] == 0 || count[1<<20] != warmRuns*count[0] {
		t.Errorf("%d runs are timed, and %d where weights fit the cache, want %d times as many", count[0], count[1<<20], warmRuns)
	}
}

// A place at which rounds turn out to last longer than there is time is left out.
func TestPlacesThatTakeTooLongAreNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, open := measurement(t, func(_, _ string, n int) time.Duration { return time.Duration(n*n) * 10 * time.Microsecond })
		v, err := Judge(t.Context(), []*ir.Graph{m.Graph, m.Graph}, m.Places, time.Now().Add(200*time.Millisecond), 0, m.Load, func() {})
		if err != nil || len(v.Ms[0]) != 1 || v.Best != 0 || open.Load() != 0 {
			t.Errorf("%+v, %v, %d programs are open, want one place of %d", v, err, open.Load(), len(m.Places))
		}
	})
}
