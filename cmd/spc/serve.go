package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"spc"
	"spc/backend/cpu"
	"spc/serve"
	"spc/serve/host"
	"spc/serve/oip"
	"spc/serve/repo"
	"spc/serve/trace"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	o             serve.Options
	device        deviceFlags
	batch, queue  int
	delay         time.Duration
	mmap, logJSON bool
	level         slog.Level
}

func serveCommand() *cobra.Command {
	f := &serveFlags{level: slog.LevelInfo}
	c := &cobra.Command{
		Use:   "serve [NAME=]MODEL... | --models DIR",
		Short: "Serve models by the Open Inference Protocol, over HTTP and gRPC",
		Long: `Serve models by the Open Inference Protocol, which clients of KServe and Triton speak:
REST and gRPC. A MODEL is an .spx file, an .onnx file, which is compiled first, or a folder
with one of them, or with folders of versions, 1, 2 and so on, that have one. DIR has such
files and folders, which are served by their names.

Requests for one model run together where its first axis is open and runs on random inputs have
shown that rows do not depend on each other. Files that come, change or go are seen
every --poll. config.yaml in a model's folder says how it is served:

  max_batch_size: 16                 # rows that run together; 1 for none
  max_queue_delay_microseconds: 500  # that a request waits for others while it might run
  max_queue_size: 1024               # requests that wait
  timeout_microseconds: 1000000      # that one waits
  threads: 2                         # of a run, of those of --threads
  states: {OUTPUT: INPUT}            # what comes of a request of a sequence, and goes into the next
  compile: {sparsity: 0.5}           # flags of spc compile, for .onnx

A signal ends the server once the requests that go on have ended, or --drain is over.`,
		Example: `  spc serve model.spx
  spc serve resnet=model.spx --http :8000 --grpc :8001
  spc serve --models models/ --admin
  spc serve --models models/ --tokens tokens.txt --max-queue-delay 500us`,
		ValidArgsFunction: files(-1, "spx", "onnx"),
		RunE:              f.run,
	}
	f.add(c)
	return c
}

// add adds the flags.
func (f *serveFlags) add(c *cobra.Command) {
	fs, o := c.Flags(), &f.o
	f.device.addDevice(c, "a model")
	fs.StringVar(&o.Dir, "models", "", "a `DIR` of models")
	fs.StringVar(&o.Name, "name", "spc", "the server's name, as clients ask for it")
	fs.StringVar(&o.HTTP, "http", ":8080", "the address of REST: HOST:PORT, unix:PATH, or none")
	fs.StringVar(&o.GRPC, "grpc", ":9000", "the address of gRPC")
	fs.StringVar(&o.Cert, "tls-cert", "", "a `FILE` with the server's certificate, and those that sign it, for TLS; read again when it changes")
	fs.StringVar(&o.Key, "tls-key", "", "a `FILE` with the key of --tls-cert")
	fs.StringVar(&o.ClientCA, "tls-client-ca", "", "a `FILE` with certificates, one of which has to sign a client's")
	fs.StringVar(&o.Tokens, "tokens", "", "a `FILE` with a token in each line; calls but those of probes need one, as Authorization: Bearer TOKEN")
	fs.BoolVar(&o.Admin, "admin", false, "let clients load and unload models, and profile the server at /debug/pprof/")
	choiceVar(fs, &o.Body, "max-body", "256MB", parseBody, "the most bytes of a request")
	fs.IntVar(&o.Tensors, "max-tensors", oip.DefaultTensors, "the most inputs, outputs and parameters that a request may have, each")
	fs.IntVar(&o.Concurrent, "max-requests", serve.DefaultConcurrent, "the most requests that run or wait, of all models; more are refused")
	choiceVar(fs, &o.Timeout, "timeout", "", parseTime, "how long a request takes at most, such as 5s; by default any time")
	choiceVar(fs, &o.Idle, "idle", "2m", parseTime, "how long a connection may be idle, or a request may take to arrive")
	choiceVar(fs, &o.Drain, "drain", "30s", parseTime, "how long requests have to end when the server does")
	choiceVar(fs, &o.Poll, "poll", "2s", parsePoll, "how often files are looked at; none: only when a client loads a model")
	fs.IntVar(&o.Threads, "threads", 0, "threads of all models together; 0: one for each physical core")
	fs.IntVar(&o.Runs, "max-runs", 0, fmt.Sprintf("runs that go on at the same time, of all models; 0: as many as --threads,\nor %d on a GPU", serve.DeviceRuns))
	fs.IntVar(&f.batch, "max-batch-size", host.DefaultBatch, "rows that run together of models whose config.yaml does not say; 1 for none")
	choiceVar(fs, &f.delay, "max-queue-delay", "", parseTime, "how long their requests wait for others while they might run, such as 500us; by default they do not")
	fs.IntVar(&f.queue, "max-queue-size", host.DefaultQueue, "their requests that wait at most, each")
	fs.BoolVar(&f.mmap, "mmap", false, "map the weights of .spx files, which must then be replaced by others and not overwritten")
	choiceVar(fs, &f.level, "log-level", "info", parseLevel, "debug, with each call; info, warn or error")
	choiceVar(fs, &f.logJSON, "log-format", "text", func(s string) (bool, error) {
		if s != "text" && s != "json" {
			return false, fmt.Errorf("%q, want text or json", s)
		}
		return s == "json", nil
	}, "of the lines on standard error: text or json")
	complete(c, "models", folders)
	complete(c, "log-level", values("debug", "info", "warn", "error"))
	complete(c, "log-format", values("text", "json"))
	for _, name := range []string{"tls-cert", "tls-key", "tls-client-ca"} {
		complete(c, name, files(0, "pem", "crt", "key"))
	}
	for _, name := range []string{"name", "http", "grpc", "max-body", "max-tensors", "max-requests", "timeout", "idle", "drain", "poll", "threads", "max-runs", "max-batch-size", "max-queue-delay", "max-queue-size"} {
		complete(c, name, cobra.NoFileCompletions)
	}
}

// parseTime reads a time above 0.
func parseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > 24*time.Hour {
		return 0, fmt.Errorf("%q, want a time such as 5s or 500us, up to 24h", s)
	}
	return d, nil
}

// parseBody reads a number of bytes.
func parseBody(s string) (int64, error) {
	n, err := parseSize(s)
	if err != nil {
		return 0, fmt.Errorf("%q, want a size such as 10MB or 800KB", s)
	}
	return n, nil
}

// parsePoll reads a time, or none, which is below 0, as serve.Options has it.
func parsePoll(s string) (time.Duration, error) {
	if s == none {
		return -1, nil
	}
	return parseTime(s)
}

func parseLevel(s string) (l slog.Level, err error) {
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("%q, want debug, info, warn or error", s)
	}
	return l, nil
}

// run runs the command.
func (f *serveFlags) run(c *cobra.Command, args []string) error {
	o := &f.o
	if len(args) == 0 && o.Dir == "" {
		return fmt.Errorf("no models: want [NAME=]MODEL or --models DIR")
	}
	for _, at := range []*string{&o.HTTP, &o.GRPC} {
		if *at == none {
			*at = ""
		}
	}
	for _, a := range args {
		m, err := modelOf(a)
		if err != nil {
			return err
		}
		o.Models = append(o.Models, m)
	}
	o.Config = host.Config{Batch: max(1, f.batch), MaxQueueSize: &f.queue, MaxQueueDelayMicroseconds: int(f.delay.Microseconds())}
	options := &slog.HandlerOptions{Level: f.level}
	if f.logJSON {
		o.Log = slog.New(slog.NewJSONHandler(c.ErrOrStderr(), options))
	} else {
		o.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), options))
	}
	var err error
	if o.Trace, err = trace.FromEnv(o.Log, o.Name, spc.Version); err != nil {
		return err
	}
	o.Load = f.load
	o.Device = func(cpu *spc.SharedCPU) (spc.Device, error) {
		f.device.gpu.CPU = cpu
		err := f.device.openOr(func(why string) { o.Log.Warn(why) })
		return f.device.run.Device, err
	}
	o.Listening = func(http, grpc net.Addr) {
		line := []any{}
		if http != nil {
			line = append(line, "http", http.String())
		}
		if grpc != nil {
			line = append(line, "grpc", grpc.String())
		}
		o.Log.Info("listening", line...)
	}
	endsWhenAsked(c.Context())
	return serve.Run(c.Context(), *o)
}

// modelOf is the model that an argument names: NAME=PATH, where NAME has no slash, or a path, whose last part is the name, without .spx or .onnx.
func modelOf(a string) (m repo.Source, err error) {
	name, path, named := strings.Cut(a, "=")
	if !named || strings.Contains(name, "/") {
		path = a
		whole, err := filepath.Abs(a) // of .
		if err != nil {
			return m, err
		}
		name = filepath.Base(whole)
		if ext := filepath.Ext(name); strings.EqualFold(ext, ".spx") || strings.EqualFold(ext, ".onnx") {
			name = strings.TrimSuffix(name, ext)
		}
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, filepath.Separator) || path == "" {
		return m, fmt.Errorf("%s: want [NAME=]MODEL", a)
	}
	return repo.Source{Name: name, Path: path}, nil
}

// load opens or compiles a model.
func (f *serveFlags) load(ctx context.Context, path string, c host.Config, d spc.Device) (*spc.Model, error) {
	run := spc.RunOptions{Device: d, Threads: c.Threads, Copy: !f.mmap, Specialised: c.Sizes()}
	spx, err := isSPX(path)
	if err != nil {
		return nil, err
	}
	if spx {
		if len(c.Compile) > 0 {
			return nil, fmt.Errorf("config.yaml: compile has no use with %s, which is compiled", filepath.Base(path))
		}
		return spc.Open(path, run)
	}
	text, err := yaml.Marshal(c.Compile)
	if err != nil {
		return nil, err
	}
	var flags compileFlags
	as := flags.command()
	as.SetContext(ctx)
	at := filepath.Join(filepath.Dir(path), "config.yaml: compile")
	if err := setConfig(as.Flags(), at, text); err != nil {
		return nil, err
	}
	if err := as.Flags().Set("quiet", "true"); err != nil {
		return nil, err
	}
	for _, name := range commandOnly {
		if as.Flags().Changed(name) {
			return nil, fmt.Errorf("%s: %s is for spc compile alone", at, name)
		}
	}
	if err := checkFlags(as, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	if err := flags.of(path); err != nil {
		return nil, err
	}
	done, err := flags.apply(as)
	if err != nil {
		return nil, err
	}
	defer done()
	if d.Name() != (cpu.Device{}).Name() && !as.Flags().Changed("target") { // a GPU, also one whose place the CPU may take
		flags.o.Target = spc.CUDA
	}
	flags.o.Run = run
	return spc.Compile(ctx, flags.o)
}
