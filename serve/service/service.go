// Package service answers the calls of the Open Inference Protocol, however they come: REST and gRPC are forms of it. It imports serve/oip and
// its messages, serve/repo, serve/host, serve/trace and, for its errors, serve/queue.
package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"spc"
	"spc/ir/tensor"
	"spc/serve/host"
	"spc/serve/oip"
	"spc/serve/oip/oippb"
	"spc/serve/queue"
	"spc/serve/repo"
	"spc/serve/trace"
)

// Options of a service.
type Options struct {
	Models *repo.Repository
	Name   string // of the server
	Admin  bool   // clients may load and unload models
	// Concurrent is how many requests to infer there are at most, waiting or running, over all models; 0 for any number.
	Concurrent int
	Timeout    time.Duration // of a request to infer, 0 for none
	Limits     oip.Limits
	Ends       <-chan struct{} // closed when the server is to end; nil for never
}

// Service answers calls. It may be used concurrently.
type Service struct {
	Options
	turns chan struct{} // an element for each request that goes on
}

// New returns a service.
func New(o Options) *Service {
	s := &Service{Options: o}
	if o.Concurrent > 0 {
		s.turns = make(chan struct{}, o.Concurrent)
	}
	return s
}

// Extensions are those of the protocol that there are, by Triton's names.
func (s *Service) Extensions() []string {
	list := []string{"binary_tensor_data", "classification", "model_configuration", "model_repository", "sequence", "statistics"}
	if !s.Admin {
		list = slices.DeleteFunc(list, func(e string) bool { return e == "model_repository" })
	}
	return list
}

// Server describes the server.
func (s *Service) Server() *oippb.ServerMetadataResponse {
	return &oippb.ServerMetadataResponse{Name: s.Name, Version: spc.Version, Extensions: s.Extensions()}
}

// failure is an error of the protocol with what kind of error it is.
func failure(err error, model string) error {
	if err == nil {
		return nil
	}
	var known *oip.Error
	if errors.As(err, &known) {
		return oip.InModel(err, model)
	}
	kind := oip.KindOf(err)
	for _, k := range []struct {
		err  error
		kind oip.Kind
	}{
		{repo.ErrUnknown, oip.NotFound}, {repo.ErrNotReady, oip.Unavailable},
		{queue.ErrFull, oip.Busy}, {queue.ErrExpired, oip.Unavailable}, {queue.ErrClosed, oip.Unavailable},
		{host.ErrSequence, oip.Invalid}, {host.ErrSequences, oip.Busy},
		{spc.ErrInvalid, oip.Invalid}, {spc.ErrUnsupported, oip.Unsupported},
	} {
		if errors.Is(err, k.err) {
			kind = k.kind
			break
		}
	}
	return oip.InModel(oip.Errorf(kind, "%w", err), model)
}

// Infer runs a model. The tensors of the request must not change until the run has ended, which may be after Infer has, where the context ends.
func (s *Service) Infer(ctx context.Context, r *oip.Request) (*oip.Response, error) {
	if s.turns != nil {
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		default:
			return nil, oip.InModel(oip.Errorf(oip.Busy, "%d requests go on already", s.Concurrent), r.ModelName)
		}
	}
	out, err := s.infer(ctx, r)
	return out, failure(err, r.ModelName)
}

func (s *Service) infer(ctx context.Context, r *oip.Request) (*oip.Response, error) {
	trace.Asked(ctx, r.ModelName, r.ModelVersion)
	m, version, done, err := s.Models.Get(r.ModelName, r.ModelVersion)
	if err != nil {
		return nil, err
	}
	defer done()
	trace.Asked(ctx, r.ModelName, version)
	ctx, cancel, err := s.deadline(ctx, r)
	if err != nil {
		return nil, err
	}
	defer cancel()
	in := &host.Request{Inputs: map[string]*tensor.Tensor{}}
	for _, t := range r.Inputs {
		in.Inputs[t.Name] = t.Data
	}
	if in.Sequence, err = sequence(r.Parameters); err != nil {
		return nil, err
	}
	if err := known(m, r); err != nil {
		return nil, err
	}
	values, err := m.Infer(ctx, in)
	if err != nil {
		if errors.Is(err, queue.ErrExpired) || errors.Is(err, queue.ErrClosed) {
			trace.Waited(ctx, in.Times.Queued, err)
		}
		return nil, err
	}
	w := &in.Times
	trace.Ran(ctx, &trace.Run{Queued: w.Queued, Began: w.Began, Input: w.Input, Compute: w.Infer, Output: w.Output, Rows: w.Rows, Batch: w.Batch})
	out := &oip.Response{ModelName: r.ModelName, ModelVersion: version, ID: r.ID}
	if len(r.Outputs) == 0 {
		for _, p := range m.Outputs() {
			out.Outputs = append(out.Outputs, oip.Tensor{Name: p.Name, Data: values[p.Name], Binary: r.WantsBinary(p.Name)})
		}
	}
	for _, o := range r.Outputs {
		t := values[o.Name]
		if o.Classes > 0 {
			rows, _ := m.Batch()
			if t, err = oip.Classify(t, o.Classes, rows > 1); err != nil {
				return nil, err
			}
		}
		out.Outputs = append(out.Outputs, oip.Tensor{Name: o.Name, Data: t, Binary: o.Binary})
	}
	return out, nil
}

// known says which output that is asked for there is not, or has no form in the protocol.
func known(m *host.Model, r *oip.Request) error {
	wanted := map[string]bool{}
	for _, o := range r.Outputs {
		wanted[o.Name] = true
	}
	for _, p := range m.Outputs() {
		if _, ok := oip.Datatype(p.DType); !ok && (len(wanted) == 0 || wanted[p.Name]) {
			return oip.Errorf(oip.Unsupported, "output %s is %v, which the protocol has no type for", p.Name, p)
		}
		delete(wanted, p.Name)
	}
	for _, o := range r.Outputs {
		if wanted[o.Name] {
			return oip.Errorf(oip.Invalid, "no output %s, want %s", o.Name, names(m.Outputs()))
		}
	}
	return nil
}

func names(ports []spc.Port) (s string) {
	for i, p := range ports {
		if i > 0 {
			s += ", "
		}
		s += p.Name
	}
	return s
}

// deadline is that of the server, or of the request's parameter timeout in microseconds, whichever comes first.
func (s *Service) deadline(ctx context.Context, r *oip.Request) (context.Context, context.CancelFunc, error) {
	d := s.Timeout
	us, ok, err := r.Parameters.Int("timeout")
	if err != nil {
		return nil, nil, err
	}
	const most = int64(24 * time.Hour / time.Microsecond)
	if ok && us > 0 && us < most && (d == 0 || time.Duration(us)*time.Microsecond < d) {
		d = time.Duration(us) * time.Microsecond
	}
	if d == 0 {
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, cancel, nil
}

// sequence reads the parameters of a request of a sequence; nil where it is of none.
func sequence(p oip.Parameters) (*host.Sequence, error) {
	id, ok, err := p.Text("sequence_id")
	if err != nil || !ok || id == "" || id == "0" {
		return nil, err
	}
	q := &host.Sequence{ID: id}
	if q.Start, _, err = p.Bool("sequence_start"); err != nil {
		return nil, err
	}
	if q.End, _, err = p.Bool("sequence_end"); err != nil {
		return nil, err
	}
	return q, nil
}

// ModelReady says why a model is not ready, nil where it is.
func (s *Service) ModelReady(name, version string) error {
	_, _, done, err := s.Models.Get(name, version)
	if err != nil {
		return failure(err, name)
	}
	done()
	return nil
}

// model calls a function with a model that is ready.
func (s *Service) model(name, version string, f func(m *host.Model, version string)) error {
	m, version, done, err := s.Models.Get(name, version)
	if err != nil {
		return failure(err, name)
	}
	defer done()
	f(m, version)
	return nil
}

// Use calls a function with a model that is ready, and says of which kind its error is.
func (s *Service) Use(name, version string, f func(m *host.Model, version string) error) error {
	var wrong error
	if err := s.model(name, version, func(m *host.Model, version string) { wrong = f(m, version) }); err != nil {
		return err
	}
	return failure(wrong, name)
}

// Metadata describes a model.
func (s *Service) Metadata(name, version string) (out *oippb.ModelMetadataResponse, err error) {
	err = s.model(name, version, func(m *host.Model, version string) {
		out = &oippb.ModelMetadataResponse{Name: name, Platform: platform, Versions: s.versions(name)}
		for _, p := range m.Inputs() {
			out.Inputs = append(out.Inputs, metadata(p))
		}
		for _, p := range m.Outputs() {
			out.Outputs = append(out.Outputs, metadata(p))
		}
	})
	return out, err
}

// platform is what models are of, and backend what runs them.
const (
	platform = "spc_spx"
	backend  = "spc"
)

func (s *Service) versions(name string) (list []string) {
	for _, e := range s.Models.Index() {
		if e.Name == name && e.State == repo.Ready {
			list = append(list, e.Version)
		}
	}
	return list
}

func metadata(p spc.Port) *oippb.ModelMetadataResponse_TensorMetadata {
	name, ok := oip.Datatype(p.DType)
	if !ok {
		name = p.DType.String()
	}
	return &oippb.ModelMetadataResponse_TensorMetadata{Name: p.Name, Datatype: name, Shape: dims(p)}
}

// dims are the sizes of a port, -1 where they are open.
func dims(p spc.Port) []int64 {
	out := []int64{}
	for _, d := range p.Dims {
		if d.Known() {
			out = append(out, int64(d.Size()))
		} else {
			out = append(out, -1)
		}
	}
	if !p.Ranked {
		out = append(out, -1)
	}
	return out
}

// Index lists the models, or those that are ready.
func (s *Service) Index(ready bool) *oippb.RepositoryIndexResponse {
	out := &oippb.RepositoryIndexResponse{}
	for _, e := range s.Models.Index() {
		if !ready || e.State == repo.Ready {
			out.Models = append(out.Models, &oippb.RepositoryIndexResponse_ModelIndex{Name: e.Name, Version: e.Version, State: string(e.State), Reason: e.Reason})
		}
	}
	return out
}

// Load loads a model anew.
func (s *Service) Load(ctx context.Context, name string) error {
	if err := s.admits(); err != nil {
		return err
	}
	return failure(s.Models.Load(context.WithoutCancel(ctx), name), "")
}

// Unload lets a model go.
func (s *Service) Unload(name string) error {
	if err := s.admits(); err != nil {
		return err
	}
	return failure(s.Models.Unload(name), "")
}

func (s *Service) admits() error {
	if s.Admin {
		return nil
	}
	return oip.Errorf(oip.Unsupported, "models are loaded and unloaded with spc serve --admin alone")
}

// Statistics are those of a version of a model, or where version is empty of all that it has, or where name is empty of all models.
func (s *Service) Statistics(name, version string) (*oippb.ModelStatisticsResponse, error) {
	out := &oippb.ModelStatisticsResponse{}
	for _, e := range s.Models.Index() {
		if e.Version == "" || name != "" && e.Name != name || version != "" && e.Version != version {
			continue
		}
		if x, err := s.Models.Statistics(e.Name, e.Version); err == nil {
			out.ModelStats = append(out.ModelStats, statistics(e, &x))
		}
	}
	if name != "" && len(out.ModelStats) == 0 {
		if _, err := s.Models.Statistics(name, version); err != nil {
			return nil, failure(err, name)
		}
	}
	return out, nil
}

func statistics(e repo.Entry, s *host.Statistics) *oippb.ModelStatistics {
	of := func(d host.Duration) *oippb.StatisticDuration {
		return &oippb.StatisticDuration{Count: uint64(d.Count), Ns: uint64(d.Total)}
	}
	out := &oippb.ModelStatistics{
		Name: e.Name, Version: e.Version, InferenceCount: uint64(s.Rows), ExecutionCount: uint64(s.Runs),
		InferenceStats: &oippb.InferStatistics{
			Success: of(s.Success), Fail: of(s.Fail), Queue: of(s.Queue), ComputeInput: of(s.Input), ComputeInfer: of(s.Infer), ComputeOutput: of(s.Output),
			CacheHit: of(host.Duration{}), CacheMiss: of(host.Duration{}), // there is no cache of responses
		},
	}
	if !s.Last.IsZero() {
		out.LastInference = uint64(s.Last.UnixMilli())
	}
	var sizes []int
	for n := range s.Batches {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	for _, n := range sizes {
		b := s.Batches[n]
		out.BatchStats = append(out.BatchStats, &oippb.InferBatchStatistics{BatchSize: uint64(n), ComputeInput: of(b.Input), ComputeInfer: of(b.Infer), ComputeOutput: of(b.Output)})
	}
	return out
}

// Config says how a model is served.
func (s *Service) Config(name, version string) (out *oippb.ModelConfig, err error) {
	err = s.model(name, version, func(m *host.Model, version string) {
		c, rows := m.Config(), 0
		out = &oippb.ModelConfig{
			Name: name, Platform: platform, Backend: backend,
			VersionPolicy: &oippb.ModelVersionPolicy{PolicyChoice: &oippb.ModelVersionPolicy_All_{All: &oippb.ModelVersionPolicy_All{}}},
		}
		if n, _ := m.Batch(); n > 1 {
			rows = n
			size := uint32(host.DefaultQueue)
			if c.MaxQueueSize != nil {
				size = uint32(*c.MaxQueueSize)
			}
			out.MaxBatchSize = int32(n)
			out.SchedulingChoice = &oippb.ModelConfig_DynamicBatching{DynamicBatching: &oippb.ModelDynamicBatching{
				MaxQueueDelayMicroseconds: uint64(c.MaxQueueDelayMicroseconds),
				DefaultQueuePolicy:        &oippb.ModelQueuePolicy{MaxQueueSize: size, DefaultTimeoutMicroseconds: uint64(c.TimeoutMicroseconds), AllowTimeoutOverride: true},
			}}
		}
		of := func(p spc.Port) ([]int64, oippb.DataType) {
			d := dims(p)
			if rows > 0 {
				d = d[1:]
			}
			return d, datatype(p)
		}
		for _, p := range m.Inputs() {
			d, t := of(p)
			out.Input = append(out.Input, &oippb.ModelInput{Name: p.Name, DataType: t, Dims: d})
		}
		for _, p := range m.Outputs() {
			d, t := of(p)
			out.Output = append(out.Output, &oippb.ModelOutput{Name: p.Name, DataType: t, Dims: d})
		}
		if len(c.States) > 0 {
			out.SchedulingChoice = sequences(&c, m.Inputs())
		}
	})
	return out, err
}

func sequences(c *host.Config, inputs []spc.Port) *oippb.ModelConfig_SequenceBatching {
	b := &oippb.ModelSequenceBatching{MaxSequenceIdleMicroseconds: uint64(host.DefaultSequenceIdle / time.Microsecond)}
	if n := c.MaxSequenceIdleMicroseconds; n > 0 {
		b.MaxSequenceIdleMicroseconds = uint64(n)
	}
	for _, p := range inputs {
		for out, in := range c.States {
			if in == p.Name {
				b.State = append(b.State, &oippb.ModelSequenceBatching_State{InputName: in, OutputName: out, DataType: datatype(p), Dims: dims(p)})
			}
		}
	}
	return &oippb.ModelConfig_SequenceBatching{SequenceBatching: b}
}

// datatype is the type of a port as configurations name it.
func datatype(p spc.Port) oippb.DataType {
	name, ok := oip.Datatype(p.DType)
	if !ok {
		return oippb.DataType_TYPE_INVALID
	}
	if name == "BYTES" {
		return oippb.DataType_TYPE_STRING
	}
	return oippb.DataType(oippb.DataType_value[fmt.Sprint("TYPE_", name)])
}
