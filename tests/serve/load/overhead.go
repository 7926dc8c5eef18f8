package load

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"spc"
	"spc/ir/tensor"
	"spc/serve/oip/oippb"
	"spc/tests/archs"
	"spc/tests/serve/process"
)

// Overhead is what the server adds for one client whose inputs and outputs have some 150 KB.
type Overhead struct {
	Where
	Bytes    int               `json:"bytes"`
	Calls    int               `json:"calls"` // of each side in a sitting
	Sittings []OverheadSitting `json:"sittings"`
}

// OverheadSitting is the latency of the same calls to an echo and to the server, and the median time of a run of spc bench, all in microseconds.
type OverheadSitting struct {
	Echo   Latency `json:"echo_us"`
	Server Latency `json:"server_us"`
	Bench  float64 `json:"bench_us"`
}

// MostOverhead is the bar, in microseconds at the median.
const MostOverhead = 150

// Added is the difference of medians of each sitting.
func (r *Overhead) Added() (us []float64) {
	for _, s := range r.Sittings {
		us = append(us, s.Server.P50-s.Echo.P50)
	}
	return us
}

// image is the shape of the inputs: 150,528 bytes.
var image = []int{1, 3, 112, 112}

// relu is a model that gives back what is not negative.
func relu() (*archs.Model, error) {
	b := archs.New("relu", 17)
	b.Output("y", b.Node("Relu", nil, b.Input("x", archs.Float32, "n", image[1], image[2], image[3])), archs.Float32, "n", image[1], image[2], image[3])
	return b.Model(1)
}

// Overhead measures what the server adds.
func (o *Options) Overhead(ctx context.Context) (*Overhead, error) {
	m, err := relu()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(o.Dir, "relu.onnx")
	if err := os.WriteFile(path, m.Bytes(), 0o666); err != nil {
		return nil, err
	}
	x := tensor.New(tensor.F32, image...)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range x.F32s() {
		x.F32s()[i] = random.Float32()
	}
	own, err := spc.Compile(ctx, spc.CompileOptions{Model: path})
	if err != nil {
		return nil, err
	}
	defer own.Close()
	y, err := own.Run(ctx, map[string]*tensor.Tensor{"x": x})
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(y["y"].Bytes(), x.Bytes()) {
		return nil, fmt.Errorf("what spc computes is not its input, from %v to %v", x.F32s()[0], y["y"].F32s()[0])
	}
	out := &Overhead{Where: Here(), Bytes: len(x.Bytes()), Calls: o.Calls * o.Turns}
	for i := range o.Sittings {
		s, err := o.overheadSitting(ctx, path, x)
		if err != nil {
			return nil, err
		}
		out.Sittings = append(out.Sittings, *s)
		o.logf("overhead, sitting %d of %d: echo %.0f us, server %.0f us, %+.0f us; a run alone %.0f us", i+1, o.Sittings, s.Echo.P50, s.Server.P50, s.Server.P50-s.Echo.P50, s.Bench)
	}
	return out, nil
}

func (o *Options) overheadSitting(ctx context.Context, path string, x *tensor.Tensor) (*OverheadSitting, error) {
	_, us, err := o.bench(ctx, path, 1)
	if err != nil {
		return nil, err
	}
	s, err := process.Start(ctx, o.Program, "none", "127.0.0.1:0", path)
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	at, stop, err := startEcho(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	var calls [2][]time.Duration
	var sides [2]func(n int) error
	for i, address := range []string{at, s.GRPC} {
		conn, client, err := dial(address)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		sides[i] = func(n int) error {
			q := &oippb.ModelInferRequest{
				ModelName: "relu", RawInputContents: [][]byte{x.Bytes()},
				Inputs: []*oippb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1, 3, 112, 112}}},
			}
			for range n {
				began := time.Now()
				r, err := client.ModelInfer(ctx, q)
				took := time.Since(began)
				if err != nil {
					return err
				}
				if len(r.RawOutputContents) != 1 || !bytes.Equal(r.RawOutputContents[0], x.Bytes()) {
					return fmt.Errorf("%s answers with other bytes: %v", address, r.Outputs)
				}
				calls[i] = append(calls[i], took)
			}
			return nil
		}
	}
	if err := await(ctx, s.GRPC, "relu"); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.Log())
	}
	for turn := -1; turn < o.Turns; turn++ {
		for i := range sides {
			if turn == 0 { // what went before was to warm up
				calls[i] = nil
			}
			if err := sides[i](o.Calls); err != nil {
				return nil, err
			}
		}
	}
	return &OverheadSitting{Echo: latency(calls[0]), Server: latency(calls[1]), Bench: us}, nil
}

// await waits until a model is ready.
func await(ctx context.Context, address, model string) error {
	conn, client, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, err := client.ModelReady(ctx, &oippb.ModelReadyRequest{Name: model})
		if err == nil && r.Ready {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("%s is not ready: %v", model, err)
		}
	}
}
