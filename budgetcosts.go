package spc

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"spc/backend/cpu"
	"spc/ir/tensor"
)

// costs are what the entries of layers take, as it was measured.
type costs struct {
	dense    float64 // the seconds of a run of the dense model
	restTime float64 // seconds of all that is no layer of the database
	time     [][]float64
	bytes    [][]float64
	work     []float64 // multiply-adds of a sample with the first entry

	restBytes         float64 // of the .spx
	allWork, restWork float64 // multiply-adds of a sample

	byWeight map[string][]taken // for each variant
	wholes   []float64          // the seconds of the model, for each variant
	start    taken              // of the model of the first variant: all of it
}

// taken is what a layer, or a model, takes.
type taken struct {
	Seconds, Bytes, Work float64
	Gives                float64 `json:",omitzero"` // elements for a sample, of a layer
	// In the fewest bytes, where these are fewer: what it takes then, by the times that are predicted for both.
	SmallSeconds float64 `json:",omitzero"`
	SmallBytes   float64 `json:",omitzero"`
}

// noted are the costs that the file of a database keeps.
type noted struct {
	Dense    float64
	Start    taken
	ByWeight map[string][]taken
	Wholes   []float64 `json:",omitempty"`
}

// noteName names costs by what they depend on besides what the database does: the machine and the build, and how the model is compiled for what shapes.
func (s *sizing) noteName() (string, error) {
	id, err := cpu.Machine()
	if err != nil {
		return "", err
	}
	o := &s.o
	profile := ""
	if o.Profile != nil {
		b, err := json.Marshal(o.Profile)
		if err != nil {
			return "", err
		}
		profile = string(b)
	}
	shapes := map[string]string{}
	for name, t := range s.inputs {
		shapes[name] = fmt.Sprint(t.DType(), t.Shape())
	}
	mixed := ""
	if s.b.Mixed {
		mixed = fmt.Sprint(" mixed ", s.b.Patterns, s.intPatterns)
	}
	text := mixed + fmt.Sprintf("%q %d %v %+v %+v %v %v %q", id, o.Run.Threads, shapes, o.Quantize, o.Open, o.Format, o.OneFormat, profile)
	return fmt.Sprintf("costs and fewest bytes %x", sha256.Sum256([]byte(text))), nil
}

// know takes the costs from the file of the database, or measures them and has it keep them.
func (s *sizing) know(ctx context.Context) error {
	name, err := s.noteName()
	if err != nil {
		return err
	}
	c := &s.costs
	var n noted
	if text := s.base.Note(name); text != "" {
		if err := json.Unmarshal([]byte(text), &n); err != nil || !(n.Dense > 0) {
			return fmt.Errorf("%s: what was measured cannot be read: %w", s.cache, ErrCorrupt)
		}
		c.dense, c.start, c.byWeight, c.wholes = n.Dense, n.Start, n.ByWeight, n.Wholes
	} else {
		if err := s.measure(ctx); err != nil {
			return err
		}
		b, err := json.Marshal(noted{c.dense, c.start, c.byWeight, c.wholes})
		if err != nil {
			return err
		}
		s.base.SetNote(name, string(b))
	}
	if s.b.Mixed && len(c.wholes) != len(s.variants) {
		return fmt.Errorf("%s: %d models were measured, want %d: %w", s.cache, len(c.wholes), len(s.variants), ErrCorrupt)
	}
	s.settle()
	s.report.Amdahl = c.dense / max(c.restTime, leastSeconds)
	return nil
}

// count counts what is written.
type count int64

func (c *count) Write(b []byte) (int, error) {
	*c += count(len(b))
	return len(b), nil
}

// sizeOf is the size of the .spx of a model.
func sizeOf(m *Model) (int64, error) {
	var n count
	err := m.Write(io.MultiWriter(&n))
	return int64(n), err
}

// few yields the first inputs, which suffice for times.
func few(all func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error]) func(context.Context, []Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	const inputs = 2
	return func(ctx context.Context, ports []Port) iter.Seq2[map[string]*tensor.Tensor, error] {
		return func(yield func(map[string]*tensor.Tensor, error) bool) {
			i := 0
			for in, err := range all(ctx, ports) {
				if !yield(in, err) || err != nil {
					return
				}
				if i++; i == inputs {
					return
				}
			}
		}
	}
}

// measure compiles the model of each variant, by magnitude, which times do not depend on, and measures what each layer takes in its place.
func (s *sizing) measure(ctx context.Context) error {
	c := &s.costs
	c.byWeight = map[string][]taken{}
	for i := range s.variants {
		s.step("times", i, len(s.variants))
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := Compile(ctx, s.variantOptions(&s.variants[i]))
		if err != nil {
			return err
		}
		whole, err := s.profile(ctx, m, i)
		if err == nil && i == 0 {
			c.start = whole
			var size int64
			size, err = sizeOf(m)
			c.start.Bytes = float64(size)
		}
		m.Close()
		if err != nil {
			return err
		}
		if s.b.Mixed {
			c.wholes = append(c.wholes, whole.Seconds)
		}
	}
	s.step("times", len(s.variants), len(s.variants))
	return nil
}

// The rounds of runs in which layers are measured, and the seconds that these take where they are more than the least.
const (
	leastRounds  = 5
	mostRounds   = 25
	roundSeconds = 0.8
)

// leastSeconds stands for times that a clock shows as nothing.
const leastSeconds = 1e-9

// profile measures the layers of a model, variant i, in turns with the dense model, by whose time at first those that follow are scaled.
func (s *sizing) profile(ctx context.Context, m *Model, i int) (whole taken, err error) {
	var dense, runs, sums []float64
	nodes := map[string][]float64{}
	began := time.Now()
	for round := 0; round < leastRounds || round < mostRounds && time.Since(began).Seconds() < roundSeconds; round++ {
		took := [2]float64{}
		for k, model := range []*Model{s.dense, m} {
			at := time.Now()
			if _, err := model.Run(ctx, s.inputs); err != nil {
				return whole, err
			}
			took[k] = time.Since(at).Seconds()
		}
		_, times, err := m.Profile(ctx, s.inputs)
		if err != nil {
			return whole, err
		}
		if round == 0 { // which makes models ready
			continue
		}
		dense, runs = append(dense, took[0]), append(runs, took[1])
		sum := 0.0
		for _, t := range times {
			nodes[t.Node] = append(nodes[t.Node], t.Time.Seconds())
			sum += t.Time.Seconds()
		}
		sums = append(sums, sum)
	}
	c := &s.costs
	now := max(quick(dense), leastSeconds)
	if i == 0 {
		c.dense = now
	}
	scale := c.dense / now
	whole.Seconds = quick(runs) * scale
	// What is computed together in runs is not in profiles.
	scale *= quick(runs) / max(quick(sums), leastSeconds)
	whole.Work = s.take(m, i, func(node string) float64 { return quick(nodes[node]) * scale })
	return whole, nil
}

// take notes what the weights of a model, variant i, take, and returns the multiply-adds of all.
func (s *sizing) take(m *Model, i int, seconds func(node string) float64) (work float64) {
	c := &s.costs
	dense, readers := map[string]float64{}, map[string]int{}
	for _, l := range m.report.Layers {
		dense[l.Name] += float64(l.DenseBytes)
		readers[l.Weight]++
	}
	seen := map[string]bool{}
	for _, l := range m.report.Layers {
		share := 1.0
		if d := dense[l.Name]; d > 0 {
			share = float64(l.DenseBytes) / d
		}
		list := c.byWeight[l.Weight]
		for len(list) <= i {
			list = append(list, taken{})
		}
		t := &list[i]
		t.Seconds += share * seconds(l.Name)
		if !seen[l.Weight] {
			t.Bytes = float64(l.StoredBytes)
		}
		seen[l.Weight] = true
		if readers[l.Weight] == 1 {
			t.inFewestBytes(&l, t.Seconds)
		}
		t.Work += float64(l.Nonzeros) * float64(max(1, l.N))
		if s.b.Mixed {
			t.Gives += float64(l.Rows) * float64(max(1, l.N))
		}
		work += float64(l.Nonzeros) * float64(max(1, l.N))
		c.byWeight[l.Weight] = list
	}
	return work
}

// inFewestBytes notes what a layer that took so many seconds takes where its weight is stored in the fewest bytes.
func (t *taken) inFewestBytes(l *Layer, seconds float64) {
	const fewer = 0.99 // of the bytes that are worth another form
	at := slices.IndexFunc(l.Candidates, func(c Candidate) bool { return c.Chosen })
	small := l.Smallest()
	if at < 0 || small == nil || float64(small.StoredBytes) > fewer*float64(l.StoredBytes) {
		return
	}
	t.SmallBytes = float64(small.StoredBytes)
	t.SmallSeconds = seconds * small.PredictedUs / max(l.Candidates[at].PredictedUs, 1e-6)
}

// settle sorts what was measured by slots and their forms.
func (s *sizing) settle() {
	c := &s.costs
	c.restTime, c.restBytes, c.restWork = c.start.Seconds, c.start.Bytes, 0
	c.allWork = c.start.Work
	lists, mine := make([][]taken, len(s.slots)), 0.0
	for k, t := range s.slots {
		list := slices.Clone(c.byWeight[t.weight])
		if len(list) == 0 {
			list = []taken{{}}
		}
		for len(list) < len(s.variants) { // what no compilation shows changes nothing
			list = append(list, list[0])
		}
		lists[k] = list
		c.restTime, c.restBytes = c.restTime-list[0].Seconds, c.restBytes-list[0].Bytes
		c.work, mine = append(c.work, list[0].Work), mine+list[0].Work
	}
	rims := s.rims(lists)
	for k := range s.slots {
		t := &s.slots[k]
		if s.b.Size > 0 && s.o.Format == "" { // else the fastest storage is the best
			for _, f := range t.forms {
				if lists[k][f.shown].SmallBytes > 0 {
					f.small = true
					t.forms = append(t.forms, f)
				}
			}
		}
		var seconds, bytes []float64
		for _, f := range t.forms {
			took := lists[k][f.shown]
			if f.small {
				took.Seconds, took.Bytes = took.SmallSeconds, took.SmallBytes
			}
			if f.ints {
				took.Seconds += rims[k]
			}
			seconds, bytes = append(seconds, took.Seconds), append(bytes, took.Bytes)
		}
		c.time, c.bytes = append(c.time, seconds), append(c.bytes, bytes)
	}
	c.restWork = c.allWork - mine
	c.restTime, c.restBytes = max(c.restTime, 0), max(c.restBytes, 0)
}

// rims are what integers in each slot take beside the layer's own time, mostly to become integers and floats again: the mean of what that is among layers
// in integers and among others in floats, by lists of what variants take of slots. What models take more beside their layers than those in floats is spread over the
// layers in integers by the elements that they give.
func (s *sizing) rims(lists [][]taken) []float64 {
	out := make([]float64, len(s.slots))
	if !s.b.Mixed {
		return out
	}
	// beside is what a variant takes but for its layers, by what these take in floats and in integers.
	beside := func(v, floats, ints int) float64 {
		t, at := s.costs.wholes[v], 0
		for k, list := range lists {
			if s.slots[k].ints && s.variants[v].has(at) {
				t -= list[ints].Seconds
			} else {
				t -= list[floats].Seconds
			}
			if s.slots[k].ints {
				at++
			}
		}
		return t
	}
	var floats []float64
	for v := range s.allInts { // several, since each is of little and noisy
		floats = append(floats, beside(v, v, v))
	}
	for v := s.allInts; v < s.allInts+3; v++ {
		extra, gives, at := max(0, beside(v, 0, s.allInts)-median(floats)), 0.0, 0
		var in []int
		for k := range s.slots {
			if !s.slots[k].ints {
				continue
			}
			if s.variants[v].has(at) {
				in, gives = append(in, k), gives+lists[k][0].Gives
			}
			at++
		}
		for _, k := range in {
			out[k] += extra * lists[k][0].Gives / max(gives, 1) / 2
		}
	}
	return out
}

func median(v []float64) float64 { return quantile(v, 0.5) }

// quick is the time of a run that little disturbs.
func quick(v []float64) float64 { return quantile(v, 0.2) }

func quantile(v []float64, share float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[int(share*float64(len(v)))]
}
