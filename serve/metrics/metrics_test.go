package metrics_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"spc"
	"spc/ir/tensor"
	"spc/serve/host"
	"spc/serve/metrics"
	"spc/serve/queue"
	"spc/serve/repo"
	"spc/tests/archs"
)

func TestMetricsCountRequests(t *testing.T) {
	b := archs.New("relu", 17)
	b.Output("y", b.Node("Relu", nil, b.Input("x", archs.Float32, "n", 2)), archs.Float32, "n", 2)
	a, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var onnx bytes.Buffer
	if _, err := a.WriteTo(&onnx); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"relu.onnx", "broken.onnx"} {
		if err := os.WriteFile(filepath.Join(dir, name), onnx.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	r, err := repo.Open(repo.Options{
		Dir: dir, Scheduler: queue.New(1), Drain: time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Load: func(ctx context.Context, path string, c host.Config) (*spc.Model, error) {
			if strings.Contains(path, "broken") {
				return nil, spc.ErrCorrupt
			}
			return spc.Compile(ctx, spc.CompileOptions{Model: path})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for !r.Ready() {
		time.Sleep(time.Millisecond)
	}
	m, _, done, err := r.Get("relu", "")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, cols := range []int{2, 2, 3} {
		m.Infer(t.Context(), &host.Request{Inputs: map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, 5, cols)}})
	}
	c := metrics.New(r)
	if problems, err := testutil.CollectAndLint(c); err != nil {
		t.Errorf("%v, %v", problems, err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	want := `
# HELP nv_inference_count Rows of requests that succeeded.
# TYPE nv_inference_count counter
nv_inference_count{model="broken",version="1"} 0
nv_inference_count{model="relu",version="1"} 10
# HELP nv_inference_exec_count Runs of the model, each of one request or of several together.
# TYPE nv_inference_exec_count counter
nv_inference_exec_count{model="broken",version="1"} 0
nv_inference_exec_count{model="relu",version="1"} 2
# HELP nv_inference_pending_request_count Requests that wait to run.
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="broken",version="1"} 0
nv_inference_pending_request_count{model="relu",version="1"} 0
# HELP nv_inference_request_failure Requests that failed.
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="broken",version="1"} 0
nv_inference_request_failure{model="relu",version="1"} 1
# HELP nv_inference_request_success Requests that succeeded.
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="broken",version="1"} 0
nv_inference_request_success{model="relu",version="1"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "nv_inference_count", "nv_inference_exec_count", "nv_inference_pending_request_count",
		"nv_inference_request_failure", "nv_inference_request_success"); err != nil {
		t.Error(err)
	}
	all, err := registry.Gather()
	if err != nil || len(all) != 11 {
		t.Fatalf("%d families, %v", len(all), err)
	}
	last := all[len(all)-1] // they are sorted by their names, and the second of its models is relu
	if name := last.GetName(); name != "spc_inference_request_duration_seconds" {
		t.Fatalf("the last family is %s", name)
	}
	h := last.Metric[1].GetHistogram()
	if sum := h.GetSampleSum(); h.GetSampleCount() != 2 || sum <= 0 || sum > 60 || len(h.Bucket) != len(host.LatencyBounds) {
		t.Errorf("the histogram of relu has %d requests, %v s, %d buckets", h.GetSampleCount(), sum, len(h.Bucket))
	}
	for i, b := range h.Bucket {
		if i > 0 && b.GetCumulativeCount() < h.Bucket[i-1].GetCumulativeCount() || b.GetUpperBound() != host.LatencyBounds[i].Seconds() {
			t.Errorf("bucket %d: %v", i, b)
		}
	}
	if n := h.Bucket[len(h.Bucket)-1].GetCumulativeCount(); n != 2 {
		t.Errorf("%d requests took up to a minute, want 2", n)
	}
	total := map[string]float64{}
	for _, f := range all {
		for _, m := range f.Metric {
			if m.Label[0].GetValue() == "relu" && m.Counter != nil {
				total[f.GetName()] = m.Counter.GetValue()
			}
		}
	}
	if run, whole := total["nv_inference_compute_infer_duration_us"], total["nv_inference_request_duration_us"]; run <= 0 || whole < run || whole > 60e6 {
		t.Errorf("%v us in runs, of %v", run, whole)
	}
}
