// Package load measures spc serve as a process, by clients over gRPC that share no code with it but the generated messages: what the server adds to
// a bare echo of the same bytes, and what it gains by running the requests of many clients together. Ratios are of turns that alternate; a sitting
// starts all processes anew.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"spc/serve/oip/oippb"
	"spc/tests/bench"
)

// Options say what is measured with, and for how long.
type Options struct {
	Program  string        // spc
	Dir      string        // for models, which are made
	Shared   string        // the folder with models/resnet20-cifar10
	Sittings int           // in each of which all sides are measured
	Calls    int           // of one client in a turn, for what the server adds
	Turns    int           // of each side in a sitting, for what the server adds
	Clients  int           // at the same time, for what is gained by running together
	Turn     time.Duration // of each side in a sitting, for that
	Runs     int           // of spc bench
	Log      io.Writer     // for progress
}

// Where tells when, where and of which commit something was measured.
type Where struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
}

// Here is this machine, now.
func Here() Where {
	h := bench.Here()
	return Where{Date: time.Now().UTC().Format(time.DateOnly), Commit: h.Commit, CPU: h.Machine.CPU, Cores: h.Machine.Cores}
}

// Latency is of calls, in microseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func latency(calls []time.Duration) (l Latency) {
	if len(calls) == 0 {
		return l
	}
	slices.Sort(calls)
	at := func(q float64) float64 { return float64(calls[int(q*float64(len(calls)-1))].Nanoseconds()) / 1e3 }
	return Latency{at(0.5), at(0.99)}
}

func (o *Options) logf(format string, args ...any) { fmt.Fprintf(o.Log, format+"\n", args...) }

// dial connects a client, whose connection is its own.
func dial(address string) (*grpc.ClientConn, oippb.GRPCInferenceServiceClient, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, nil, err
	}
	return conn, oippb.NewGRPCInferenceServiceClient(conn), nil
}

// bench asks spc bench for the rows a second and the median time in microseconds of runs of a model.
func (o *Options) bench(ctx context.Context, model string, rows int, args ...string) (rate, us float64, err error) {
	args = append([]string{"bench", model, "--json", "--quiet", "--batch", fmt.Sprint(rows), "--runs", fmt.Sprint(o.Runs)}, args...)
	out, err := exec.CommandContext(ctx, o.Program, args...).Output()
	if err != nil {
		return 0, 0, fmt.Errorf("%s %v: %w", o.Program, args, err)
	}
	var told struct {
		MS         struct{ P50 float64 }
		Throughput float64
	}
	if err := json.Unmarshal(out, &told); err != nil {
		return 0, 0, err
	}
	return told.Throughput, told.MS.P50 * 1e3, nil
}

// threads are the numbers of threads of a run that make sense where as many are shared as there are cores.
func threads() (list []int) {
	for n := 1; n < runtime.NumCPU(); n *= 2 {
		list = append(list, n)
	}
	return append(list, runtime.NumCPU())
}
