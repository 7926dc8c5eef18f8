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
	"spc/passes/fit"
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

	byWeight map[string][]taken // for each choice, the first of which is none
	start    taken              // of the model with none: all of it
}

// taken is what a layer, or a model, takes.
type taken struct{ Seconds, Bytes, Work float64 }

// noted are the costs that the file of a database keeps.
type noted struct {
	Dense    float64
	Start    taken
	ByWeight map[string][]taken
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
	text := fmt.Sprintf("%q %d %v %+v %+v %v %v %q", id, o.Run.Threads, shapes, o.Quantize, o.Open, o.Format, o.OneFormat, profile)
	return fmt.Sprintf("costs %x", sha256.Sum256([]byte(text))), nil
}

// know takes the costs from the file of the database, or measures them and has it keep them.
func (s *sizing) know(ctx context.Context, list []fit.Choice) error {
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
		c.dense, c.start, c.byWeight = n.Dense, n.Start, n.ByWeight
	} else {
		if err := s.measure(ctx, list); err != nil {
			return err
		}
		b, err := json.Marshal(noted{c.dense, c.start, c.byWeight})
		if err != nil {
			return err
		}
		s.base.SetNote(name, string(b))
	}
	c.settle(s.base)
	s.report.Amdahl = c.dense / max(c.restTime, 1e-9)
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

// measure compiles the model with each choice for all layers at once, by magnitude, which times do not depend on, and measures
// what each layer takes in its place.
func (s *sizing) measure(ctx context.Context, list []fit.Choice) error {
	c := &s.costs
	c.byWeight = map[string][]taken{}
	o := s.plain()
	o.Open = s.o.Open
	o.Prune.Layers, o.Prune.Permute = s.o.Prune.Layers, PermuteNone
	if o.Quantize.Type == tensor.I8 {
		o.Calibration.Inputs, o.Calibration.Cache = few(o.Calibration.Inputs), ""
		o.Prune.Uncorrected = true
	} else {
		o.Calibration = Calibration{}
	}
	for i := range 1 + len(list) {
		s.step("times", i, 1+len(list))
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 {
			o.Prune.Permute = PermuteNone
			o.Prune.Pattern, o.Prune.Sparsity = list[i-1].Pattern, list[i-1].Sparsity
		}
		o.Prune.Method, o.Prune.Allocate = Magnitude, PerLayer
		if i == 0 && len(o.Prune.Layers) == 0 {
			o.Prune = s.plain().Prune
		}
		m, err := Compile(ctx, o)
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
		if i == 0 {
			o.Prune.Uncorrected = o.Quantize.Type == tensor.I8
		}
	}
	s.step("times", 1+len(list), 1+len(list))
	return nil
}

// The rounds of runs in which layers are measured, and the seconds that these take where they are more than the least.
const (
	leastRounds  = 5
	mostRounds   = 25
	roundSeconds = 0.8
)

// profile measures the layers of a model with choice i in turns with the dense model, by whose time at first those that follow are scaled.
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
	now := quick(dense)
	if i == 0 {
		c.dense = now
	}
	scale := c.dense / now
	whole.Seconds = quick(runs) * scale
	// What is computed together in runs is not in profiles.
	scale *= quick(runs) / quick(sums)
	whole.Work = s.take(m, i, func(node string) float64 { return quick(nodes[node]) * scale })
	return whole, nil
}

// take notes what the weights of a model with choice i take, and returns the multiply-adds of all.
func (s *sizing) take(m *Model, i int, seconds func(node string) float64) (work float64) {
	c := &s.costs
	dense := map[string]float64{}
	for _, l := range m.report.Layers {
		dense[l.Name] += float64(l.DenseBytes)
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
		t.Work += float64(l.Nonzeros) * float64(max(1, l.N))
		work += float64(l.Nonzeros) * float64(max(1, l.N))
		c.byWeight[l.Weight] = list
	}
	return work
}

// settle sorts what was measured by the layers of the database.
func (c *costs) settle(b *fit.Base) {
	c.restTime, c.restBytes, c.restWork = c.start.Seconds, c.start.Bytes, 0
	c.allWork = c.start.Work
	mine := 0.0
	for _, l := range b.Layers {
		list := c.byWeight[l.Weight]
		if len(list) == 0 {
			list = []taken{{}}
		}
		for len(list) < len(l.Entries) { // what no compilation shows changes nothing
			list = append(list, list[0])
		}
		var seconds, bytes []float64
		for _, t := range list[:len(l.Entries)] {
			seconds, bytes = append(seconds, t.Seconds), append(bytes, t.Bytes)
		}
		c.time, c.bytes = append(c.time, seconds), append(c.bytes, bytes)
		c.restTime, c.restBytes = c.restTime-list[0].Seconds, c.restBytes-list[0].Bytes
		c.work, mine = append(c.work, list[0].Work), mine+list[0].Work
	}
	c.restWork = c.allWork - mine
	c.restTime, c.restBytes = max(c.restTime, 0), max(c.restBytes, 0)
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
