// Package rpc is the Open Inference Protocol over gRPC. It imports serve/service, serve/oip and its messages, and serve/trace.
package rpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"spc/serve/oip"
	"spc/serve/oip/oippb"
	"spc/serve/service"
	"spc/serve/trace"
)

// Register adds the calls of the protocol to a server, with reflection and the standard health service.
func Register(g *grpc.Server, s *service.Service) {
	oippb.RegisterGRPCInferenceServiceServer(g, &server{s: s})
	healthpb.RegisterHealthServer(g, &healthServer{s: s})
	reflection.Register(g)
}

// Codec is the option of a server that takes and gives the bytes of tensors as they are.
func Codec() grpc.ServerOption { return grpc.ForceServerCodecV2(newCodec()) }

// Transport are the options of a server for messages of a body's most bytes, with times for a connection to begin, and that it may be idle.
func Transport(body int64, begin, idle time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(int(min(body, 1<<31-1))), grpc.MaxSendMsgSize(1<<31 - 1), // which a message of gRPC cannot exceed
		grpc.MaxConcurrentStreams(1024), grpc.ConnectionTimeout(begin),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: max(idle, time.Minute), Time: time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		// A window that a request of some hundred KB fits in, so that it does not wait for the client to hear of it.
		grpc.InitialWindowSize(1 << 20), grpc.InitialConnWindowSize(4 << 20),
	}
}

// Status is the status of an error.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Code(oip.KindOf(err).GRPC()), err.Error())
}

type server struct {
	oippb.UnsafeGRPCInferenceServiceServer // a call without a method here does not compile
	s                                      *service.Service
}

func (r *server) ServerLive(context.Context, *oippb.ServerLiveRequest) (*oippb.ServerLiveResponse, error) {
	return &oippb.ServerLiveResponse{Live: true}, nil
}

func (r *server) ServerReady(context.Context, *oippb.ServerReadyRequest) (*oippb.ServerReadyResponse, error) {
	return &oippb.ServerReadyResponse{Ready: r.s.Models.Ready()}, nil
}

// ModelReady is an error for a model that there is not, and false for one that is not ready.
func (r *server) ModelReady(_ context.Context, q *oippb.ModelReadyRequest) (*oippb.ModelReadyResponse, error) {
	err := r.s.ModelReady(q.Name, q.Version)
	if err != nil && oip.KindOf(err) != oip.Unavailable {
		return nil, Status(err)
	}
	return &oippb.ModelReadyResponse{Ready: err == nil}, nil
}

func (r *server) ServerMetadata(context.Context, *oippb.ServerMetadataRequest) (*oippb.ServerMetadataResponse, error) {
	return r.s.Server(), nil
}

func (r *server) ModelMetadata(_ context.Context, q *oippb.ModelMetadataRequest) (*oippb.ModelMetadataResponse, error) {
	m, err := r.s.Metadata(q.Name, q.Version)
	return m, Status(err)
}

func (r *server) ModelConfig(_ context.Context, q *oippb.ModelConfigRequest) (*oippb.ModelConfigResponse, error) {
	c, err := r.s.Config(q.Name, q.Version)
	if err != nil {
		return nil, Status(err)
	}
	return &oippb.ModelConfigResponse{Config: c}, nil
}

func (r *server) ModelStatistics(_ context.Context, q *oippb.ModelStatisticsRequest) (*oippb.ModelStatisticsResponse, error) {
	s, err := r.s.Statistics(q.Name, q.Version)
	return s, Status(err)
}

func (r *server) RepositoryIndex(_ context.Context, q *oippb.RepositoryIndexRequest) (*oippb.RepositoryIndexResponse, error) {
	return r.s.Index(q.Ready), nil
}

func (r *server) RepositoryModelLoad(ctx context.Context, q *oippb.RepositoryModelLoadRequest) (*oippb.RepositoryModelLoadResponse, error) {
	if len(q.Parameters) > 0 {
		return nil, status.Error(codes.Unimplemented, "parameters of load: what a model is comes from its files alone")
	}
	if err := r.s.Load(ctx, oip.LoadName(q)); err != nil {
		return nil, Status(err)
	}
	return &oippb.RepositoryModelLoadResponse{}, nil
}

func (r *server) RepositoryModelUnload(_ context.Context, q *oippb.RepositoryModelUnloadRequest) (*oippb.RepositoryModelUnloadResponse, error) {
	if err := r.s.Unload(oip.LoadName(q)); err != nil {
		return nil, Status(err)
	}
	return &oippb.RepositoryModelUnloadResponse{}, nil
}

// answerTime is how long before its deadline a call ends, at most a tenth of its time. At the deadline grpc-go resets the stream, and clients of
// gRPC's C core and of grpc-js, whose clock may be behind by a little, would take that for a call that was cancelled.
const answerTime = 5 * time.Millisecond

func (r *server) ModelInfer(ctx context.Context, q *oippb.ModelInferRequest) (*oippb.ModelInferResponse, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-min(answerTime, time.Until(end)/10)))
		defer cancel()
	}
	m, err := r.infer(ctx, q)
	return m, Status(err)
}

// errEnds is what a stream ends with that nothing comes from when the server ends.
var errEnds = status.Error(codes.Unavailable, "the server ends")

// lastRequest is how long after the server was told to end a stream is waited for.
const lastRequest = 500 * time.Millisecond

type inferStream = grpc.BidiStreamingServer[oippb.ModelInferRequest, oippb.ModelStreamInferResponse]

// received is what a stream had next.
type received struct {
	q   *oippb.ModelInferRequest
	err error
}

// receive sends on what comes, until an error, or the end of the stream.
func receive(stream inferStream, to chan<- received) {
	for {
		q, err := stream.Recv()
		select {
		case to <- received{q, err}:
		case <-stream.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// next is what comes next, unless the server or the stream ends.
func (r *server) next(ctx context.Context, from <-chan received) (*oippb.ModelInferRequest, error) {
	select {
	case x := <-from:
		return x.q, x.err
	case <-ctx.Done(): // receive may not say so
		return nil, Status(ctx.Err())
	case <-r.s.Ends:
	}
	select {
	case x := <-from:
		return x.q, x.err
	case <-ctx.Done():
		return nil, Status(ctx.Err())
	case <-time.After(lastRequest):
		return nil, errEnds
	}
}

// ModelStreamInfer answers the requests of a stream in their order. An error of one is told in its answer, and the stream goes on.
func (r *server) ModelStreamInfer(stream inferStream) error {
	from := make(chan received)
	go receive(stream, from)
	for {
		q, err := r.next(stream.Context(), from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		ctx, end := trace.Part(stream.Context(), "infer")
		m, err := r.infer(ctx, q)
		end(err)
		if ctx := stream.Context(); ctx.Err() != nil {
			return Status(ctx.Err())
		}
		out := &oippb.ModelStreamInferResponse{InferResponse: m}
		if err != nil {
			out.ErrorMessage, out.InferResponse = err.Error(), &oippb.ModelInferResponse{Id: q.Id, ModelName: q.ModelName}
		}
		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

// infer answers with contents as the request has them: bytes, or typed ones where all outputs have a type for it.
func (r *server) infer(ctx context.Context, p *oippb.ModelInferRequest) (*oippb.ModelInferResponse, error) {
	q, err := oip.FromRequest(p, r.s.Limits)
	if err != nil {
		return nil, oip.InModel(err, p.ModelName)
	}
	out, err := r.s.Infer(ctx, q)
	if err != nil {
		return nil, err
	}
	typed := len(p.RawInputContents) == 0 && !slices.ContainsFunc(out.Outputs, func(t oip.Tensor) bool {
		name, _ := oip.Datatype(t.Data.DType())
		return name == "FP16" || name == "BF16"
	})
	return out.Message(typed)
}

// healthServer is the standard health service: of the server, and of models as services by their names.
type healthServer struct {
	healthpb.UnsafeHealthServer
	s *service.Service
}

func (h *healthServer) Check(_ context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	ok := h.s.Models.Ready()
	if q.Service != "" && q.Service != oippb.GRPCInferenceService_ServiceDesc.ServiceName {
		err := h.s.ModelReady(q.Service, "")
		if err != nil && oip.KindOf(err) == oip.NotFound {
			return nil, Status(err)
		}
		ok = err == nil
	}
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if ok {
		state = healthpb.HealthCheckResponse_SERVING
	}
	return &healthpb.HealthCheckResponse{Status: state}, nil
}

// List tells of the server, by the empty name and its own, and of each model.
func (h *healthServer) List(ctx context.Context, _ *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	out := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	names := []string{"", oippb.GRPCInferenceService_ServiceDesc.ServiceName}
	for _, e := range h.s.Models.Index() {
		names = append(names, e.Name)
	}
	for _, name := range names {
		if r, err := h.Check(ctx, &healthpb.HealthCheckRequest{Service: name}); err == nil { // a model that has just gone is an error
			out.Statuses[name] = r
		}
	}
	return out, nil
}

// watchEvery is how often Watch looks.
const watchEvery = 200 * time.Millisecond

// Watch tells of a service now, and again whenever that changes; one that there is not is unknown, and may come.
func (h *healthServer) Watch(q *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	told := healthpb.HealthCheckResponse_ServingStatus(-1)
	for {
		r, err := h.Check(stream.Context(), q)
		if err != nil {
			r = &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVICE_UNKNOWN}
		}
		if r.Status != told {
			if err := stream.Send(r); err != nil {
				return err
			}
			told = r.Status
		}
		select {
		case <-stream.Context().Done():
			return Status(stream.Context().Err())
		case <-h.s.Ends:
			return errEnds
		case <-time.After(watchEvery):
		}
	}
}
