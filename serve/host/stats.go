package host

import (
	"slices"
	"sync"
	"time"
)

// times are those of a task, of what the run did that it was part of.
type times struct {
	queue, input, infer, output time.Duration
	began                       time.Time
	rows                        int
}

// Duration is how often something happened, and how long it took in all.
type Duration struct {
	Count int64
	Total time.Duration
}

func (d *Duration) add(t time.Duration) {
	d.Count++
	d.Total += t
}

// Statistics are those of Triton's statistics extension: of requests, how long they took in all, failed or not, waited, and the runs that they were
// part of took; of runs, by the number of rows.
type Statistics struct {
	Requests, Runs, Rows int64 // of requests that did not fail: how many, in how many runs, of how many rows
	Last                 time.Time
	Success, Fail        Duration
	Queue                Duration
	Input, Infer, Output Duration // to join inputs, to run, to split outputs
	Latency              Latency  // of requests that did not fail, as Success
	Batches              map[int]*BatchStatistics
}

// Latency counts requests by how long they took: element i those up to LatencyBounds[i] and above the bound before it, the last those above all.
type Latency [36]int64

// LatencyBounds are the bounds of Latency, in the steps of Renard's series R5: five for each power of ten, 10 us to 63 s.
var LatencyBounds = latencyBounds()

func latencyBounds() []time.Duration {
	var bounds []time.Duration
	for power := time.Microsecond; power <= time.Second; power *= 10 {
		for _, n := range []time.Duration{10, 16, 25, 40, 63} {
			bounds = append(bounds, n*power)
		}
	}
	return bounds
}

func (l *Latency) add(t time.Duration) {
	i, _ := slices.BinarySearch(LatencyBounds, t)
	l[i]++
}

// BatchStatistics are those of runs of one number of rows.
type BatchStatistics struct{ Input, Infer, Output Duration }

// mostBatches is how many numbers of rows are told apart: clients choose them.
const mostBatches = 512

// Counter is what Statistics are counted in, so that they go on where another model takes the place of one. The zero value counts from nothing.
type Counter struct {
	mu sync.Mutex
	s  Statistics
}

// add counts a request.
func (s *Counter) add(t *task, rows int, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.s.Fail.add(took)
		return
	}
	s.s.Last = time.Now()
	s.s.Requests++
	s.s.Rows += int64(rows)
	s.s.Success.add(took)
	s.s.Latency.add(took)
	s.s.Queue.add(t.times.queue)
	s.s.Input.add(t.times.input)
	s.s.Infer.add(t.times.infer)
	s.s.Output.add(t.times.output)
}

// ran counts a run.
func (s *Counter) ran(rows int, input, infer, output time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Runs++
	if s.s.Batches == nil {
		s.s.Batches = map[int]*BatchStatistics{}
	}
	b := s.s.Batches[rows]
	if b == nil && len(s.s.Batches) == mostBatches {
		return
	}
	if b == nil {
		b = new(BatchStatistics)
		s.s.Batches[rows] = b
	}
	b.Input.add(input)
	b.Infer.add(infer)
	b.Output.add(output)
}

// Statistics returns what was counted so far.
func (s *Counter) Statistics() Statistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.s
	out.Batches = map[int]*BatchStatistics{}
	for n, b := range s.s.Batches {
		c := *b
		out.Batches[n] = &c
	}
	return out
}

// Statistics returns what was counted so far.
func (h *Model) Statistics() Statistics { return h.stats.Statistics() }
