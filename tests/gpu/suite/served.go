package suite

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"spc"
	"spc/backend/cuda"
	"spc/data"
	"spc/ir/tensor"
	"spc/serve"
	"spc/serve/host"
	"spc/serve/queue"
	"spc/tests/archs"
)

// classifier is a convolution, a pooling and a product, and an operator that a GPU leaves to the CPU.
func classifier(b *archs.Builder) {
	x := b.Input("x", archs.Float32, "n", 3, 8, 8)
	x = b.Node("Relu", nil, b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, b.Weight("c", archs.He(27), 8, 3, 3, 3)))
	x = b.Node("CumSum", nil, b.Node("Flatten", nil, b.Node("GlobalAveragePool", nil, x)), b.Index(1))
	b.Output("y", b.Node("Gemm", nil, x, b.Weight("w", archs.He(8), 8, 5)), archs.Float32, "n", 5)
}

// Served tests that requests of many clients, joined and two runs at a time as a server runs them on a GPU, are answered as the CPU answers each.
func Served(t *testing.T, driver cuda.Driver) {
	b := archs.New("model", 17)
	classifier(b)
	a, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := a.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	shared, err := spc.NewSharedCPU(2)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	counted := &Counted{Driver: driver}
	open := func(d spc.Device) *spc.Model {
		m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: file.Bytes(), Run: spc.RunOptions{Device: d, Specialised: 16}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	alone := open(nil)
	defer alone.Close()
	slots := queue.New(serve.DeviceRuns)
	h, err := host.New(t.Context(), open(cuda.Device{Driver: counted, Host: shared.Device}), host.Config{Batch: 8}, slots, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rows, why := h.Batch(); rows != 8 {
		t.Errorf("%d rows run together: %s", rows, why)
	}
	const clients, requests = 12, 5
	var wg sync.WaitGroup
	free := occupy(t, &wg, slots)
	errs := make(chan error, clients*requests)
	for c := range clients {
		wg.Go(func() {
			for i := range requests {
				errs <- same(t.Context(), h, alone, 1+(c+i)%3, uint64(1+c*requests+i))
			}
		})
	}
	for until := time.Now().Add(time.Minute); h.Waiting() < clients; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Errorf("%d requests wait, want %d", h.Waiting(), clients)
			break
		}
	}
	free()
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if n := h.Statistics().Runs; n >= clients*requests {
		t.Errorf("%d runs for %d requests: none were joined", n, clients*requests)
	}
	if err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if n := counted.held.Load(); n != 0 || counted.launches.Load() == 0 {
		t.Errorf("%d launches, %d allocations are left", counted.launches.Load(), n)
	}
}

// occupy takes every slot of a server, so that requests wait and are joined, until free is called.
func occupy(t *testing.T, wg *sync.WaitGroup, slots *queue.Scheduler) (free func()) {
	busy, release := make(chan bool), make(chan bool)
	others := slots.NewQueue(queue.Options{}, func(context.Context, []*queue.Request) {
		busy <- true
		<-release
	})
	for range serve.DeviceRuns {
		wg.Go(func() {
			if err := others.Do(t.Context(), &queue.Request{Rows: 1}); err != nil {
				t.Error(err)
			}
		})
		<-busy
	}
	return func() { close(release) }
}

// same compares the answer to a request of random rows with what a model gives for them.
func same(ctx context.Context, h *host.Model, m *spc.Model, rows int, seed uint64) error {
	x, err := data.Random{Seed: seed}.Tensor("x", tensor.F32, []int{rows, 3, 8, 8}, 0)
	if err != nil {
		return err
	}
	in := map[string]*tensor.Tensor{"x": x}
	want, err := m.Run(ctx, in)
	if err != nil {
		return err
	}
	got, err := h.Infer(ctx, &host.Request{Inputs: in})
	if err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	d, n := 0.0, 0.0
	for i, v := range tensor.Data[float32](want["y"]) {
		e := float64(tensor.Data[float32](got["y"])[i]) - float64(v)
		d, n = d+e*e, n+float64(v)*float64(v)
	}
	if !(d <= 1e-10*n) {
		return fmt.Errorf("seed %d, %d rows: relative l2 error squared %.2g", seed, rows, d/n)
	}
	return nil
}
