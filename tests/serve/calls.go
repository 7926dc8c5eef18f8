package serve

// Where calls come from.
const (
	Specified = "specification"
	Triton    = "Triton"
	Standard  = "gRPC"
	Own       = "spc"
)

// Call is a row of the table of calls.
type Call struct {
	Name string `json:"name"` // M is a model, with or without /versions/V
	From string `json:"from"`
}

// Calls are those of the Open Inference Protocol (kserve/open-inference-protocol, inference_rest.md and open_inference_grpc.proto), those of
// Triton's extensions that spc serve has (triton-inference-server/server, docs/protocol), and what belongs to a server over gRPC. The last
// row of each is what it does not have.
var Calls = []Call{
	{"GET /v2", Specified}, {"GET /v2/health/live", Specified}, {"GET /v2/health/ready", Specified},
	{"GET /v2/models/M", Specified}, {"GET /v2/models/M/ready", Specified}, {"POST /v2/models/M/infer", Specified},
	{"GET /v2/models/M/config", Triton}, {"GET /v2/models/M/stats", Triton}, {"GET /v2/models/stats", Triton},
	{"POST /v2/repository/index", Triton}, {"POST /v2/repository/models/M/load", Triton}, {"POST /v2/repository/models/M/unload", Triton},
	{"GET /metrics", Own}, {NoPath, ""},

	{"ServerLive", Specified}, {"ServerReady", Specified}, {"ModelReady", Specified},
	{"ServerMetadata", Specified}, {"ModelMetadata", Specified}, {"ModelInfer", Specified},
	{"ModelStreamInfer", Triton}, {"ModelConfig", Triton}, {"ModelStatistics", Triton},
	{"RepositoryIndex", Triton}, {"RepositoryModelLoad", Triton}, {"RepositoryModelUnload", Triton},
	{"Health/Check", Standard}, {"Health/List", Standard}, {"Health/Watch", Standard}, {"ServerReflection", Standard}, {NoMethod, ""},
}

// The calls that there are not, such as those for shared memory, traces and the log.
const (
	NoPath   = "any other path"
	NoMethod = "any other method"
)
