// Package client calls servers of the Open Inference Protocol, such as spc serve, Triton, KServe and MLServer, over REST and gRPC.
//
//	c, err := client.New("grpc://localhost:9000", client.Options{})
//	defer c.Close()
//	out, err := c.Infer(ctx, &client.Request{Model: "resnet", Inputs: map[string]*tensor.Tensor{"x": x}})
//	y := out.Outputs["y"]
//
// Sources: kserve/open-inference-protocol, specification/protocol/inference_rest.md and open_inference_grpc.proto, and of
// triton-inference-server/server docs/protocol/extension_binary_data.md, extension_model_configuration.md, extension_statistics.md and
// extension_model_repository.md. Servers other than spc's and Triton's lack some of what the last three have.
//
// It imports ir/tensor and serve/oip.
package client

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"spc/ir/tensor"
	"spc/serve/oip"
	"spc/serve/oip/oippb"
)

// Options say how a client calls a server. The zero value is plain REST or gRPC without a deadline.
type Options struct {
	TLS     *tls.Config   // for https and grpcs, see ReadTLS; nil for the system's certificates
	Token   string        // sent with each call as Authorization: Bearer TOKEN; empty for none
	Timeout time.Duration // of a call, beside that of its context; 0 for none
	// Typed is for servers that take no bytes: elements are JSON over REST and typed contents over gRPC. FP16 and BF16 have no such form.
	Typed   bool
	Largest int64 // the most bytes of an answer, and of its tensors; 0 for 1 GiB
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	server  string
	wire    wire
	options Options
}

// wire is a way to call a server. Its errors are of type *Error, without the server and the model.
type wire interface {
	live(ctx context.Context) (bool, error)
	ready(ctx context.Context) (bool, error)
	server(ctx context.Context) (*oippb.ServerMetadataResponse, error)
	modelReady(ctx context.Context, model, version string) (bool, error)
	metadata(ctx context.Context, model, version string) (*oippb.ModelMetadataResponse, error)
	config(ctx context.Context, model, version string) (*oippb.ModelConfig, []byte, error) // also as JSON
	statistics(ctx context.Context, model, version string) (*oippb.ModelStatisticsResponse, error)
	index(ctx context.Context, ready bool) (*oippb.RepositoryIndexResponse, error)
	load(ctx context.Context, model string) error
	unload(ctx context.Context, model string) error
	infer(ctx context.Context, r *oip.Request) (*oip.Response, error)
	close() error
}

// New returns a client of a server, which is not called yet:
//
//	http://HOST[:PORT][/PATH], https://...     REST
//	grpc://HOST:PORT, grpcs://HOST:PORT        gRPC
//	unix:PATH, https+unix:PATH                 REST at a socket
//	grpc+unix:PATH, grpcs+unix:PATH            gRPC at a socket
//
// At a socket the name that a certificate has to have is that of Options.TLS, by default localhost.
func New(server string, o Options) (*Client, error) {
	at, err := parse(server)
	if err != nil {
		return nil, err
	}
	if o.Largest <= 0 {
		o.Largest = 1 << 30
	}
	c := &Client{server: server, options: o}
	if at.grpc {
		c.wire, err = newRPC(at, &c.options)
	} else {
		c.wire = newREST(at, &c.options)
	}
	if err != nil {
		return nil, &Error{Server: server, Message: err.Error(), kind: ErrInvalid, cause: err}
	}
	return c, nil
}

// Server returns the address that the client was made with.
func (c *Client) Server() string { return c.server }

// Close ends its connections, and calls that go on over gRPC.
func (c *Client) Close() error { return c.wire.close() }

// call makes one call, about a model or none, within the client's timeout.
func call[T any](ctx context.Context, c *Client, model string, f func(ctx context.Context) (T, error)) (T, error) {
	if d := c.options.Timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, errOwnTimeout)
		defer cancel()
	}
	v, err := f(ctx)
	if err != nil {
		var none T
		return none, c.failure(ctx, model, err)
	}
	return v, nil
}

// about makes a call about a model, which must have a name.
func about[T any](ctx context.Context, c *Client, model string, f func(ctx context.Context) (T, error)) (T, error) {
	return call(ctx, c, model, func(ctx context.Context) (v T, err error) {
		if model == "" {
			return v, invalid("no model is named")
		}
		return f(ctx)
	})
}

// Live reports whether the server runs.
func (c *Client) Live(ctx context.Context) (bool, error) { return call(ctx, c, "", c.wire.live) }

// Ready reports whether the models that the server is to serve are ready.
func (c *Client) Ready(ctx context.Context) (bool, error) { return call(ctx, c, "", c.wire.ready) }

// ServerMetadata describes the server.
func (c *Client) ServerMetadata(ctx context.Context) (*ServerMetadata, error) {
	return call(ctx, c, "", func(ctx context.Context) (*ServerMetadata, error) {
		p, err := c.wire.server(ctx)
		if err != nil {
			return nil, err
		}
		return &ServerMetadata{p.GetName(), p.GetVersion(), p.GetExtensions()}, nil
	})
}

// ModelReady reports whether a model is ready. Of a model that there is not, some servers say that it is not ready, and others have an error that is
// ErrNotFound. An empty version is the server's choice, here and elsewhere.
func (c *Client) ModelReady(ctx context.Context, model, version string) (bool, error) {
	return about(ctx, c, model, func(ctx context.Context) (bool, error) { return c.wire.modelReady(ctx, model, version) })
}

// ModelMetadata describes a model.
func (c *Client) ModelMetadata(ctx context.Context, model, version string) (*ModelMetadata, error) {
	return about(ctx, c, model, func(ctx context.Context) (*ModelMetadata, error) {
		p, err := c.wire.metadata(ctx, model, version)
		if err != nil {
			return nil, err
		}
		return modelMetadata(p), nil
	})
}

// ModelConfig says how a model is served, by Triton's extension.
func (c *Client) ModelConfig(ctx context.Context, model, version string) (*ModelConfig, error) {
	return about(ctx, c, model, func(ctx context.Context) (*ModelConfig, error) {
		p, text, err := c.wire.config(ctx, model, version)
		if err != nil {
			return nil, err
		}
		return &ModelConfig{p.GetName(), p.GetPlatform(), p.GetBackend(), int(p.GetMaxBatchSize()), text}, nil
	})
}

// ModelStatistics are those of a version of a model, or of all that it has, by Triton's extension.
func (c *Client) ModelStatistics(ctx context.Context, model, version string) ([]ModelStatistics, error) {
	return about(ctx, c, model, func(ctx context.Context) ([]ModelStatistics, error) {
		p, err := c.wire.statistics(ctx, model, version)
		if err != nil {
			return nil, err
		}
		return modelStatistics(p), nil
	})
}

// Index lists the models of the server's repository, or those that are ready, by Triton's extension.
func (c *Client) Index(ctx context.Context, ready bool) ([]ModelState, error) {
	return call(ctx, c, "", func(ctx context.Context) ([]ModelState, error) {
		p, err := c.wire.index(ctx, ready)
		if err != nil {
			return nil, err
		}
		var list []ModelState
		for _, m := range p.GetModels() {
			list = append(list, ModelState{m.GetName(), m.GetVersion(), m.GetState(), m.GetReason()})
		}
		return list, nil
	})
}

// Load has the server load a model, or load it again. Servers may not let clients do so.
func (c *Client) Load(ctx context.Context, model string) error {
	_, err := about(ctx, c, model, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.wire.load(ctx, model) })
	return err
}

// Unload has the server let a model go, as Load has it come.
func (c *Client) Unload(ctx context.Context, model string) error {
	_, err := about(ctx, c, model, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.wire.unload(ctx, model) })
	return err
}

// Infer runs a model once. The tensors of the request are read until it returns, and not after.
func (c *Client) Infer(ctx context.Context, r *Request) (*Response, error) {
	return about(ctx, c, r.Model, func(ctx context.Context) (*Response, error) {
		q, err := r.message(!c.options.Typed)
		if err != nil {
			return nil, err
		}
		p, err := c.wire.infer(ctx, q)
		if err != nil {
			return nil, err
		}
		out := &Response{Model: p.ModelName, Version: p.ModelVersion, ID: p.ID, Parameters: p.Parameters, Outputs: map[string]*tensor.Tensor{}}
		for _, t := range p.Outputs {
			out.Outputs[t.Name] = t.Data
		}
		var missing []string
		for _, name := range r.Outputs {
			if out.Outputs[name] == nil {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return nil, protocol("the answer lacks outputs that were asked for: %s", strings.Join(slices.Compact(missing), ", "))
		}
		return out, nil
	})
}
