package client

import (
	"math"
	"slices"
	"time"

	"spc/ir/tensor"
	"spc/serve/oip"
	"spc/serve/oip/oippb"
)

// Request asks for one run of a model.
type Request struct {
	Model, Version string
	ID             string // which the response has, too
	Inputs         map[string]*tensor.Tensor
	Outputs        []string // by name; none asks for all
	// Parameters are those of the request that the server knows, such as timeout, in microseconds, of types bool, string, and those of integers and floats.
	Parameters map[string]any
	Sequence   *Sequence // nil where the request is of none
}

// Sequence says of which sequence of requests one is, for models with a state.
type Sequence struct {
	ID         any  // a string, or an integer, as Triton's models with a configuration of integers want it
	Start, End bool // it is the first, the last
}

// Response is what a model made of a request.
type Response struct {
	Model, Version string
	ID             string
	Parameters     map[string]any // of types bool, int64, uint64, string and float64
	Outputs        map[string]*tensor.Tensor
}

// message is the request as it is sent, with inputs as bytes or not.
func (r *Request) message(binary bool) (*oip.Request, error) {
	q := &oip.Request{ModelName: r.Model, ModelVersion: r.Version, ID: r.ID, BinaryOutput: binary && len(r.Outputs) == 0}
	names := make([]string, 0, len(r.Inputs))
	for name := range r.Inputs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if r.Inputs[name] == nil {
			return nil, invalid("input %q is nil", name)
		}
		q.Inputs = append(q.Inputs, oip.Tensor{Name: name, Data: r.Inputs[name], Binary: binary})
	}
	for _, name := range r.Outputs { // Triton wants each to say so, and so does its own client
		q.Outputs = append(q.Outputs, oip.RequestedOutput{Name: name, Binary: binary})
	}
	all := map[string]any{}
	for name, v := range r.Parameters {
		all[name] = v
	}
	if s := r.Sequence; s != nil {
		all["sequence_id"], all["sequence_start"], all["sequence_end"] = s.ID, s.Start, s.End
	}
	for name, v := range all {
		v, ok := parameter(v)
		if !ok {
			return nil, invalid("parameter %s is a %T, want a bool, a string, an integer or a float", name, v)
		}
		all[name] = v
	}
	q.Parameters = all
	return q, nil
}

// parameter is a value of the types that messages have.
func parameter(v any) (any, bool) {
	unsigned := func(n uint64) (any, bool) {
		if n <= math.MaxInt64 {
			return int64(n), true
		}
		return n, true
	}
	switch n := v.(type) {
	case bool, string, int64, float64:
		return n, true
	case int:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint:
		return unsigned(uint64(n))
	case uint32:
		return int64(n), true
	case uint64:
		return unsigned(n)
	case float32:
		return float64(n), true
	}
	return v, false
}

// ServerMetadata describes a server.
type ServerMetadata struct {
	Name, Version string
	Extensions    []string // of the protocol
}

// ModelMetadata describes a model.
type ModelMetadata struct {
	Name            string
	Versions        []string
	Platform        string
	Inputs, Outputs []TensorMetadata
}

// TensorMetadata describes an input or an output.
type TensorMetadata struct {
	Name     string
	Datatype string       // the protocol's name of its type, such as FP32
	DType    tensor.DType // the same, Undefined for other names
	Shape    []int        // -1 where a size is open
}

// ModelConfig says how a model is served.
type ModelConfig struct {
	Name, Platform, Backend string
	MaxBatchSize            int    // 0 where the server joins no requests
	JSON                    []byte // all of it, with Triton's names (model_config.proto)
}

// ModelState is an entry of a repository's index.
type ModelState struct {
	Name, Version string
	State         string // such as READY, LOADING, UNAVAILABLE
	Reason        string // for it
}

// ModelStatistics are those of a version of a model since it was loaded.
type ModelStatistics struct {
	Name, Version string
	Rows          int // elements of batches
	Runs          int // each of one request or of several
	Success, Fail Duration
	// What requests that succeeded spent in the queue, and for what was done of inputs, of the model and of outputs.
	Queue, Input, Infer, Output Duration
}

// Duration is how often something was done, and how long that took in all.
type Duration struct {
	Count int
	Total time.Duration
}

func modelMetadata(p *oippb.ModelMetadataResponse) *ModelMetadata {
	of := func(list []*oippb.ModelMetadataResponse_TensorMetadata) (out []TensorMetadata) {
		for _, t := range list {
			m := TensorMetadata{Name: t.GetName(), Datatype: t.GetDatatype(), Shape: []int{}}
			if dt, ok := oip.DType(m.Datatype); ok {
				m.DType = dt
			}
			for _, n := range t.GetShape() {
				m.Shape = append(m.Shape, int(max(n, -1)))
			}
			out = append(out, m)
		}
		return out
	}
	return &ModelMetadata{p.GetName(), p.GetVersions(), p.GetPlatform(), of(p.GetInputs()), of(p.GetOutputs())}
}

func modelStatistics(p *oippb.ModelStatisticsResponse) (list []ModelStatistics) {
	of := func(d *oippb.StatisticDuration) Duration {
		return Duration{int(d.GetCount()), time.Duration(d.GetNs())}
	}
	for _, s := range p.GetModelStats() {
		i := s.GetInferenceStats()
		list = append(list, ModelStatistics{
			Name: s.GetName(), Version: s.GetVersion(), Rows: int(s.GetInferenceCount()), Runs: int(s.GetExecutionCount()),
			Success: of(i.GetSuccess()), Fail: of(i.GetFail()),
			Queue: of(i.GetQueue()), Input: of(i.GetComputeInput()), Infer: of(i.GetComputeInfer()), Output: of(i.GetComputeOutput()),
		})
	}
	return list
}
