// Package oip holds the messages of the Open Inference Protocol: requests and responses of
// inference as Go values, which are read from and written to what REST carries (JSON, with the
// binary tensor data extension of NVIDIA's Triton) and what gRPC carries (package oippb). A server
// reads requests and writes responses, and a client does the reverse. There is no network in it,
// and no model.
//
// Sources: kserve/open-inference-protocol, specification/protocol/inference_rest.md and
// open_inference_grpc.proto; triton-inference-server/server,
// docs/protocol/extension_binary_data.md.
//
// Elements are shared, not copied, wherever they lie as a tensor has them. Tensors that were read
// share the body or the message that they came in, so whoever reads must leave both alone, and
// may not reuse a buffer, while the tensors are in use. What is written shares the tensors, which
// must stay as they are until it is sent.
//
// Memory that reading takes is bounded by what was sent, never by what a message says of itself,
// and by Limits. Errors are of type *Error.
//
// It imports ir/tensor and the generated messages, and may change in any version.
package oip

import (
	"slices"

	"spc/ir/tensor"
)

// Request asks for one run of a model.
type Request struct {
	ModelName    string // REST has it in the path too, and most clients only there
	ModelVersion string // empty for the server's choice
	ID           string
	Parameters   Parameters
	Inputs       []Tensor
	Outputs      []RequestedOutput // none asks for all
	BinaryOutput bool              // outputs that Outputs does not list are wanted as bytes; always so over gRPC
}

// WantsBinary reports whether an output is wanted as bytes.
func (r *Request) WantsBinary(output string) bool {
	if i := slices.IndexFunc(r.Outputs, func(o RequestedOutput) bool { return o.Name == output }); i >= 0 {
		return r.Outputs[i].Binary
	}
	return r.BinaryOutput
}

// Response is what a model made of a request.
type Response struct {
	ModelName    string
	ModelVersion string
	ID           string // that of the request
	Parameters   Parameters
	Outputs      []Tensor
}

// Tensor is an input or an output.
type Tensor struct {
	Name       string
	Parameters Parameters // without those that say how Data is sent
	Data       *tensor.Tensor
	Binary     bool // sent as bytes, or to be: not as JSON, and not as typed contents of gRPC
}

// RequestedOutput is an output that a request asks for.
type RequestedOutput struct {
	Name       string
	Parameters Parameters // without those below
	Binary     bool       // wanted as bytes; always so over gRPC
	Classes    int        // wanted in place of the output: as many of its largest values, see Classify
}

// DefaultTensors is Limits.Tensors where that is 0.
const DefaultTensors = 1024

// Limits bound what is read. A field of 0 stands for its default.
type Limits struct {
	Tensors int   // inputs or outputs of a message, requested outputs and parameters; DefaultTensors
	Bytes   int64 // of all elements in memory, where each string counts 16 beside its own bytes; 1 GiB
	Depth   int   // of nested JSON, the message itself included; 72, which a tensor of 64 dimensions fits in
}

// withDefaults fills the fields that are 0.
func (l Limits) withDefaults() Limits {
	if l.Tensors == 0 {
		l.Tensors = DefaultTensors
	}
	if l.Bytes == 0 {
		l.Bytes = 1 << 30
	}
	if l.Depth == 0 {
		l.Depth = 72
	}
	return l
}

// The parameters that say how a tensor is sent, or ask for a form. They have fields of their own.
const (
	sizeParameter    = "binary_data_size"   // of an input or an output: its bytes follow the JSON
	binaryParameter  = "binary_data"        // of a requested output: whether it is wanted as bytes
	outputsParameter = "binary_data_output" // of a request: binary_data of outputs that do not say
	classesParameter = "classification"     // of a requested output: how many classes
	sharedParameter  = "shared_memory_region"
)

// stringHeader is what a string takes in memory beside its bytes.
const stringHeader = 16
