package client

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"spc/serve/oip"
	"spc/serve/oip/oippb"
)

// rpc calls a server over gRPC.
type rpc struct {
	conn *grpc.ClientConn
	c    oippb.GRPCInferenceServiceClient
	o    *Options
}

func newRPC(at address, o *Options) (*rpc, error) {
	secure := insecure.NewCredentials()
	if at.tls {
		secure = credentials.NewTLS(o.TLS) // which takes a copy, and nil
	}
	size := int(min(o.Largest, math.MaxInt32)) // which a message cannot exceed
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure), grpc.WithUserAgent(userAgent), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(size), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		// A window that an answer of some hundred KB fits in, so that it does not wait for the server to hear of it.
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
	}
	target := "dns:///" + at.host
	if at.socket != "" {
		target = "passthrough:///localhost"
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "unix", at.socket)
		}))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, err
	}
	return &rpc{conn, oippb.NewGRPCInferenceServiceClient(conn), o}, nil
}

func (r *rpc) close() error { return r.conn.Close() }

// invoke makes a call.
func invoke[Q, P any](ctx context.Context, r *rpc, f func(context.Context, Q, ...grpc.CallOption) (P, error), q Q) (p P, err error) {
	if r.o.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.o.Token)
	}
	var by peer.Peer
	if p, err = f(ctx, q, grpc.Peer(&by)); err == nil {
		return p, nil
	}
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && by.Addr == nil {
		return p, &Error{Message: dialing(s.Message()), kind: ErrUnreachable, cause: err}
	}
	e := answered(0, s.Code(), s.Message())
	e.cause = err
	return p, e
}

// dialing takes what a message says of a connection that failed out of the library's words for it.
func dialing(message string) string {
	_, text, ok := strings.Cut(message, "connection error: desc = ")
	if quoted, err := strconv.QuotedPrefix(text); ok && err == nil {
		if text, err = strconv.Unquote(quoted); err == nil {
			return strings.TrimPrefix(strings.TrimPrefix(text, "transport: "), "Error while dialing: ")
		}
	}
	return message
}

func (r *rpc) live(ctx context.Context) (bool, error) {
	p, err := invoke(ctx, r, r.c.ServerLive, &oippb.ServerLiveRequest{})
	return p.GetLive(), err
}

func (r *rpc) ready(ctx context.Context) (bool, error) {
	p, err := invoke(ctx, r, r.c.ServerReady, &oippb.ServerReadyRequest{})
	return p.GetReady(), err
}

func (r *rpc) server(ctx context.Context) (*oippb.ServerMetadataResponse, error) {
	return invoke(ctx, r, r.c.ServerMetadata, &oippb.ServerMetadataRequest{})
}

func (r *rpc) modelReady(ctx context.Context, model, version string) (bool, error) {
	p, err := invoke(ctx, r, r.c.ModelReady, &oippb.ModelReadyRequest{Name: model, Version: version})
	return p.GetReady(), err
}

func (r *rpc) metadata(ctx context.Context, model, version string) (*oippb.ModelMetadataResponse, error) {
	return invoke(ctx, r, r.c.ModelMetadata, &oippb.ModelMetadataRequest{Name: model, Version: version})
}

func (r *rpc) config(ctx context.Context, model, version string) (*oippb.ModelConfig, []byte, error) {
	p, err := invoke(ctx, r, r.c.ModelConfig, &oippb.ModelConfigRequest{Name: model, Version: version})
	if err != nil {
		return nil, nil, err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(p.GetConfig())
	var one bytes.Buffer
	if err == nil {
		err = json.Compact(&one, text) // whose spaces are random
	}
	if err != nil {
		return nil, nil, protocol("%v", err)
	}
	return p.GetConfig(), one.Bytes(), nil
}

func (r *rpc) statistics(ctx context.Context, model, version string) (*oippb.ModelStatisticsResponse, error) {
	return invoke(ctx, r, r.c.ModelStatistics, &oippb.ModelStatisticsRequest{Name: model, Version: version})
}

func (r *rpc) index(ctx context.Context, ready bool) (*oippb.RepositoryIndexResponse, error) {
	return invoke(ctx, r, r.c.RepositoryIndex, &oippb.RepositoryIndexRequest{Ready: ready})
}

// kserve is the extension that servers name which have the model of Load and Unload in field 1, as KServe has; Triton has it in field 2.
const kserve = "model_repository_extension"

// names returns in which of the two fields the server has the name of a model.
func (r *rpc) names(ctx context.Context, model string) (first, second string, err error) {
	p, err := r.server(ctx)
	if err != nil {
		return "", "", err
	}
	if slices.Contains(p.GetExtensions(), kserve) {
		return model, "", nil
	}
	return "", model, nil
}

func (r *rpc) load(ctx context.Context, model string) error {
	first, second, err := r.names(ctx, model)
	if err == nil {
		_, err = invoke(ctx, r, r.c.RepositoryModelLoad, &oippb.RepositoryModelLoadRequest{RepositoryName: first, ModelName: second})
	}
	return err
}

func (r *rpc) unload(ctx context.Context, model string) error {
	first, second, err := r.names(ctx, model)
	if err == nil {
		_, err = invoke(ctx, r, r.c.RepositoryModelUnload, &oippb.RepositoryModelUnloadRequest{RepositoryName: first, ModelName: second})
	}
	return err
}

func (r *rpc) infer(ctx context.Context, q *oip.Request) (*oip.Response, error) {
	m, err := q.Message(r.o.Typed)
	if err != nil {
		return nil, unsent(err)
	}
	if size := proto.Size(m); size > math.MaxInt32 {
		return nil, &Error{Message: "the inputs have more than the 2 GB that a message of gRPC may have", kind: ErrTooLarge}
	}
	p, err := invoke(ctx, r, r.c.ModelInfer, m)
	if err != nil {
		return nil, err
	}
	out, err := oip.FromResponse(p, limits(r.o))
	if err != nil {
		return nil, unreadable(err)
	}
	return out, nil
}
