// Package metrics tells Prometheus what a repository's models did, by the names that Triton has for it. It imports serve/repo.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spc/serve/host"
	"spc/serve/repo"
)

// metric is a row of what is told of each version of a model.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	of         func(s *host.Statistics, waiting int) float64
}

var metrics = []metric{
	{"nv_inference_request_success", "Requests that succeeded.", prometheus.CounterValue, func(s *host.Statistics, _ int) float64 { return float64(s.Success.Count) }},
	{"nv_inference_request_failure", "Requests that failed.", prometheus.CounterValue, func(s *host.Statistics, _ int) float64 { return float64(s.Fail.Count) }},
	{"nv_inference_count", "Rows of requests that succeeded.", prometheus.CounterValue, func(s *host.Statistics, _ int) float64 { return float64(s.Rows) }},
	{"nv_inference_exec_count", "Runs of the model, each of one request or of several together.", prometheus.CounterValue, func(s *host.Statistics, _ int) float64 { return float64(s.Runs) }},
	{"nv_inference_pending_request_count", "Requests that wait to run.", prometheus.GaugeValue, func(_ *host.Statistics, waiting int) float64 { return float64(waiting) }},
	{"nv_inference_request_duration_us", "Time of requests that succeeded, waiting among it.", prometheus.CounterValue, of(func(s *host.Statistics) time.Duration { return s.Success.Total })},
	{"nv_inference_queue_duration_us", "Time for which requests waited.", prometheus.CounterValue, of(func(s *host.Statistics) time.Duration { return s.Queue.Total })},
	{"nv_inference_compute_input_duration_us", "Time to join the inputs of requests.", prometheus.CounterValue, of(func(s *host.Statistics) time.Duration { return s.Input.Total })},
	{"nv_inference_compute_infer_duration_us", "Time of the runs that requests were part of.", prometheus.CounterValue, of(func(s *host.Statistics) time.Duration { return s.Infer.Total })},
	{"nv_inference_compute_output_duration_us", "Time to take outputs apart.", prometheus.CounterValue, of(func(s *host.Statistics) time.Duration { return s.Output.Total })},
}

// latency is the name of the histogram, which Triton has no name for, of the times that nv_inference_request_duration_us adds up.
const latency = "spc_inference_request_duration_seconds"

func of(f func(s *host.Statistics) time.Duration) func(*host.Statistics, int) float64 {
	return func(s *host.Statistics, _ int) float64 { return float64(f(s).Nanoseconds()) / 1e3 }
}

// Collector collects the metrics of a repository's models when they are asked for.
type Collector struct {
	models  *repo.Repository
	descs   []*prometheus.Desc // of metrics
	latency *prometheus.Desc
}

// New returns the collector of a repository.
func New(models *repo.Repository) *Collector {
	labels := []string{"model", "version"}
	c := &Collector{models: models, latency: prometheus.NewDesc(latency, "Times of requests that succeeded, waiting among them.", labels, nil)}
	for _, m := range metrics {
		c.descs = append(c.descs, prometheus.NewDesc(m.name, m.help, labels, nil))
	}
	return c
}

// Describe sends what the metrics are.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
	to <- c.latency
}

// Collect sends the metrics of the versions that there are.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, e := range c.models.Index() {
		if e.Version == "" {
			continue
		}
		s, err := c.models.Statistics(e.Name, e.Version)
		if err != nil { // it has just gone
			continue
		}
		waiting := 0
		if m, _, done, err := c.models.Get(e.Name, e.Version); err == nil {
			waiting = m.Waiting()
			done()
		}
		for i, m := range metrics {
			to <- prometheus.MustNewConstMetric(c.descs[i], m.kind, m.of(&s, waiting), e.Name, e.Version)
		}
		buckets, sum := map[float64]uint64{}, uint64(0)
		for i, bound := range host.LatencyBounds {
			sum += uint64(s.Latency[i])
			buckets[bound.Seconds()] = sum
		}
		to <- prometheus.MustNewConstHistogram(c.latency, uint64(s.Success.Count), s.Success.Total.Seconds(), buckets, e.Name, e.Version)
	}
}
