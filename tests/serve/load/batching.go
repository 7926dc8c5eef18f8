package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"spc"
	"spc/ir/tensor"
	"spc/serve/oip/oippb"
	"spc/tests/archs"
	"spc/tests/bench"
	"spc/tests/serve/process"
)

// Subject is a model that many clients ask, each for one row.
type Subject struct {
	Name, About string
	Gain        float64                                      // the bar: throughput with batching over the best without
	write       func(o *Options, path string) error          // writes it as ONNX
	inputs      func(r *rand.Rand) map[string]*tensor.Tensor // of a client
	bench       []string                                     // flags of spc bench
}

// length is that of what MiniLM reads.
const length = 32

// Subjects are measured.
var Subjects = []Subject{
	{"resnet20", "ResNet-20 of CIFAR-10, trained", 1, func(o *Options, path string) error {
		b, err := os.ReadFile(filepath.Join(o.Shared, "models", "resnet20-cifar10", "model.onnx"))
		if err != nil {
			return err
		}
		return os.WriteFile(path, b, 0o666)
	}, pixels(3, 32, 32), nil},
	{"minilm", fmt.Sprintf("MiniLM-L6-H384, random weights, length %d", length), 1.2, arch(func() (*archs.Model, error) { return archs.BERT(archs.MiniLM, 1) }),
		words(archs.MiniLM.Vocabulary, length), []string{"--dim", fmt.Sprintf("sequence=%d", length)}},
}

// Tiny is for a trial run.
var Tiny = Subject{"tiny", "BERT of 1 layer", 0, arch(func() (*archs.Model, error) {
	return archs.BERT(archs.BERTConfig{Layers: 1, Hidden: 32, Heads: 4, FF: 64, Vocabulary: 50, Positions: 16, Types: 2}, 1)
}), words(50, 8), []string{"--dim", "sequence=8"}}

func arch(build func() (*archs.Model, error)) func(*Options, string) error {
	return func(_ *Options, path string) error {
		m, err := build()
		if err != nil {
			return err
		}
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = m.WriteTo(f)
		return err
	}
}

func pixels(shape ...int) func(*rand.Rand) map[string]*tensor.Tensor {
	return func(r *rand.Rand) map[string]*tensor.Tensor {
		x := tensor.New(tensor.F32, append([]int{1}, shape...)...)
		for i := range x.F32s() {
			x.F32s()[i] = float32(r.NormFloat64())
		}
		return map[string]*tensor.Tensor{"": x} // whatever the only input is called
	}
}

func words(vocabulary, length int) func(*rand.Rand) map[string]*tensor.Tensor {
	return func(r *rand.Rand) map[string]*tensor.Tensor {
		list := func(f func() int64) *tensor.Tensor {
			v := make([]int64, length)
			for i := range v {
				v[i] = f()
			}
			return tensor.From(v, 1, length)
		}
		return map[string]*tensor.Tensor{
			"input_ids":      list(func() int64 { return r.Int64N(int64(vocabulary)) }),
			"attention_mask": list(func() int64 { return 1 }),
			"token_type_ids": list(func() int64 { return 0 }),
		}
	}
}

// Batching is the throughput of a model under many clients, in several settings of the server.
type Batching struct {
	Where
	Model    string    `json:"model"`
	Clients  int       `json:"clients"`
	Seconds  float64   `json:"seconds"` // of a setting in a sitting
	Settings []Setting `json:"settings"`
	Bench    []float64 `json:"bench_rows_a_second"` // of spc bench --batch 16, by sitting
}

// Setting is a way to serve the model, with what came of it in each sitting.
type Setting struct {
	Name     string    `json:"name"`
	Together bool      `json:"together"` // requests run together
	Threads  int       `json:"threads"`  // of a run
	Config   string    `json:"config"`   // config.yaml
	Rates    []float64 `json:"rows_a_second"`
	Latency  []Latency `json:"latency_us"`
	Rows     []float64 `json:"rows_a_run"`
}

func settings() []Setting {
	list := []Setting{{Name: "together", Together: true, Threads: runtime.NumCPU()}}
	for _, n := range threads() {
		list = append(list, Setting{Name: fmt.Sprintf("alone-%d", n), Threads: n, Config: fmt.Sprintf("max_batch_size: 1\nthreads: %d\n", n)})
	}
	return list
}

// Rate is the best of a setting's sittings.
func (s *Setting) Rate() float64 { return slices.Max(s.Rates) }

// Together is the setting in which requests run together, and Alone the best of those in which they do not.
func (r *Batching) Together() *Setting { return r.best(true) }

// Alone is the best setting in which requests run alone.
func (r *Batching) Alone() *Setting { return r.best(false) }

func (r *Batching) best(together bool) (best *Setting) {
	for i := range r.Settings {
		if s := &r.Settings[i]; s.Together == together && (best == nil || s.Rate() > best.Rate()) {
			best = s
		}
	}
	return best
}

// Gain is the best throughput with batching over the best without, and OfBench over that of spc bench --batch 16.
func (r *Batching) Gain() float64 { return r.Together().Rate() / r.Alone().Rate() }

// OfBench is the best throughput with batching over the best of spc bench --batch 16.
func (r *Batching) OfBench() float64 { return r.Together().Rate() / slices.Max(r.Bench) }

// LeastOfBench is the bar of OfBench, of models whose runs take most of the time: of others, what the clients compute on the same processors decides.
const LeastOfBench = 0.85

// Misses says which bars are missed. That batching does not cost anything counts as missed only where quartiles are apart.
func (r *Batching) Misses() (list []string) {
	i := slices.IndexFunc(Subjects, func(s Subject) bool { return s.Name == r.Model })
	if i < 0 {
		return nil
	}
	bar := Subjects[i].Gain
	with, without := bench.Describe(r.Together().Rates), bench.Describe(r.Alone().Rates)
	if g := r.Gain(); g < bar && (bar > 1 || with.Q3 < without.Q1) {
		list = append(list, fmt.Sprintf("%s: %.2f of the throughput without batching, want %.2f", r.Model, g, bar))
	}
	if g := r.OfBench(); bar > 1 && g < LeastOfBench {
		list = append(list, fmt.Sprintf("%s: %.2f of the throughput of spc bench, want %.2f", r.Model, g, LeastOfBench))
	}
	return list
}

// client is one of many: its request, and the right answer, of runs on some threads, whose last bits depend on these.
type client struct {
	request *oippb.ModelInferRequest
	want    map[int][]float32
	output  string
	call    oippb.GRPCInferenceServiceClient
}

// clients makes requests, each of one row, and what spc answers to each alone.
func (o *Options) clients(ctx context.Context, s *Subject, model string) (list []*client, tolerance float64, err error) {
	models := map[int]*spc.Model{}
	for _, n := range threads() {
		if models[n], err = spc.Open(model, spc.RunOptions{Threads: n}); err != nil {
			return nil, 0, err
		}
		defer models[n].Close()
	}
	m := models[1]
	for i := range o.Clients {
		in := s.inputs(rand.New(rand.NewPCG(uint64(i), 7)))
		if x, ok := in[""]; ok {
			in = map[string]*tensor.Tensor{m.Inputs()[0].Name: x}
		}
		c := &client{request: &oippb.ModelInferRequest{}, output: m.Outputs()[0].Name, want: map[int][]float32{}}
		for n, m := range models {
			out, err := m.Run(ctx, in)
			if err != nil {
				return nil, 0, err
			}
			c.want[n] = out[c.output].F32s()
		}
		for _, p := range m.Inputs() {
			t := in[p.Name]
			var shape []int64
			for _, d := range t.Shape() {
				shape = append(shape, int64(d))
			}
			kind := map[tensor.DType]string{tensor.F32: "FP32", tensor.I64: "INT64"}[t.DType()]
			c.request.Inputs = append(c.request.Inputs, &oippb.ModelInferRequest_InferInputTensor{Name: p.Name, Datatype: kind, Shape: shape})
			c.request.RawInputContents = append(c.request.RawInputContents, t.Bytes())
		}
		list = append(list, c)
	}
	return list, m.Tolerance().RelL2, nil
}

// Batching measures a model.
func (o *Options) Batching(ctx context.Context, s *Subject) (*Batching, error) {
	dir := filepath.Join(o.Dir, s.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	onnx, model := filepath.Join(o.Dir, s.Name+".onnx"), filepath.Join(o.Dir, s.Name+".spx")
	if err := s.write(o, onnx); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, o.Program, "compile", onnx, "-o", model, "--quiet").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("spc compile: %w: %s", err, out)
	}
	r := &Batching{Where: Here(), Model: s.Name, Clients: o.Clients, Seconds: o.Turn.Seconds(), Settings: settings()}
	for _, x := range r.Settings {
		at := filepath.Join(dir, x.Name)
		if err := os.MkdirAll(filepath.Join(at, "1"), 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(at, "config.yaml"), []byte(x.Config), 0o666); err != nil {
			return nil, err
		}
		if err := os.Link(model, filepath.Join(at, "1", "model.spx")); err != nil {
			return nil, err
		}
	}
	clients, tolerance, err := o.clients(ctx, s, model)
	if err != nil {
		return nil, err
	}
	for i := range o.Sittings {
		if err := o.batchingSitting(ctx, r, dir, clients, tolerance); err != nil {
			return nil, err
		}
		rate, _, err := o.bench(ctx, model, 16, s.bench...)
		if err != nil {
			return nil, err
		}
		r.Bench = append(r.Bench, rate)
		for _, x := range r.Settings {
			o.logf("%s, sitting %d of %d, %-9s %6.0f rows/s, median %.1f ms, 99%% %.1f ms, %.1f rows a run",
				s.Name, i+1, o.Sittings, x.Name, x.Rates[i], x.Latency[i].P50/1e3, x.Latency[i].P99/1e3, x.Rows[i])
		}
		o.logf("%s, sitting %d of %d, spc bench --batch 16 %.0f rows/s", s.Name, i+1, o.Sittings, rate)
	}
	return r, nil
}

// batchingSitting measures each setting, of one server that serves the model in all of them.
func (o *Options) batchingSitting(ctx context.Context, r *Batching, dir string, clients []*client, tolerance float64) error {
	s, err := process.Start(ctx, o.Program, "none", "127.0.0.1:0", "--models", dir)
	if err != nil {
		return err
	}
	defer s.Kill()
	for _, c := range clients {
		var conn *grpc.ClientConn
		if conn, c.call, err = dial(s.GRPC); err != nil {
			return err
		}
		defer conn.Close()
	}
	for i := range r.Settings {
		x := &r.Settings[i]
		if err := await(ctx, s.GRPC, x.Name); err != nil {
			return fmt.Errorf("%w\n%s", err, s.Log())
		}
		if err := o.turn(ctx, x, clients, tolerance); err != nil {
			return fmt.Errorf("%s: %w\n%s", x.Name, err, s.Log())
		}
	}
	return nil
}

// turn lets all clients ask for a time, the first quarter of which does not count.
func (o *Options) turn(ctx context.Context, x *Setting, clients []*client, tolerance float64) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	runs, rows, err := count(ctx, clients[0].call, x.Name)
	if err != nil {
		return err
	}
	begin := time.Now().Add(o.Turn / 4)
	end := begin.Add(o.Turn)
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			mine, err := c.ask(ctx, x, begin, end, tolerance)
			if err != nil {
				stop(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	nowRuns, nowRows, err := count(ctx, clients[0].call, x.Name)
	if err != nil {
		return err
	}
	x.Rates = append(x.Rates, float64(len(all))/o.Turn.Seconds())
	x.Latency = append(x.Latency, latency(all))
	x.Rows = append(x.Rows, (nowRows-rows)/max(1, nowRuns-runs))
	return nil
}

// ask asks again and again, and returns how long the calls took that ended between two times.
func (c *client) ask(ctx context.Context, x *Setting, begin, end time.Time, tolerance float64) (calls []time.Duration, err error) {
	q := &oippb.ModelInferRequest{ModelName: x.Name, Inputs: c.request.Inputs, RawInputContents: c.request.RawInputContents}
	for {
		began := time.Now()
		r, err := c.call.ModelInfer(ctx, q)
		now := time.Now()
		if err != nil {
			return nil, err
		}
		if err := c.right(r, x, tolerance); err != nil {
			return nil, err
		}
		if now.After(end) {
			return calls, nil
		}
		if now.After(begin) {
			calls = append(calls, now.Sub(began))
		}
	}
}

// right says what is wrong with an answer: that of a request that ran alone has the same bits.
func (c *client) right(r *oippb.ModelInferResponse, x *Setting, tolerance float64) error {
	want := c.want[x.Threads]
	for i, o := range r.Outputs {
		if o.Name != c.output || i >= len(r.RawOutputContents) {
			continue
		}
		raw := r.RawOutputContents[i]
		got := make([]float32, len(raw)/4)
		same := len(got) == len(want)
		for i := range got {
			got[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			same = same && math.Float32bits(got[i]) == math.Float32bits(want[i])
		}
		if same {
			return nil
		}
		if d := process.Distance(got, want); !x.Together || !(d <= tolerance) {
			return fmt.Errorf("a wrong answer: %s is off by %.2g of its norm, want %.2g", o.Name, d, tolerance)
		}
		return nil
	}
	return fmt.Errorf("no output %s in an answer", c.output)
}

// count asks for how many runs there have been of a model, and of how many rows.
func count(ctx context.Context, c oippb.GRPCInferenceServiceClient, model string) (runs, rows float64, err error) {
	r, err := c.ModelStatistics(ctx, &oippb.ModelStatisticsRequest{Name: model})
	if err != nil {
		return 0, 0, err
	}
	for _, m := range r.ModelStats {
		runs += float64(m.ExecutionCount)
		rows += float64(m.InferenceCount)
	}
	return runs, rows, nil
}
