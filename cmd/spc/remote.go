package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/client"
	"spc/internal/regular"
	"spc/ir"
	"spc/ir/tensor"
)

// remoteFlags say how a server is called.
type remoteFlags struct {
	token, ca, cert, key, name string
	timeout                    time.Duration
	typed                      bool
}

func (f *remoteFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.token, "token-file", "", "a `FILE` with a token, its first line, that a server wants")
	fs.StringVar(&f.ca, "tls-ca", "", "a `FILE` with certificates, one of which signs the server's;\nby default the system's")
	fs.StringVar(&f.cert, "tls-cert", "", "a `FILE` with the client's certificate, where a server wants one")
	fs.StringVar(&f.key, "tls-key", "", "a `FILE` with the key of --tls-cert")
	fs.StringVar(&f.name, "tls-name", "", "the `NAME` that the server's certificate has, where it is not the host's")
	choiceVar(fs, &f.timeout, "timeout", "", parseTime, "how long a call to a server takes at most, such as 5s; by default\nany time")
	fs.BoolVar(&f.typed, "typed", false, "send a server no bytes, but JSON over REST and typed contents\nover gRPC")
	for _, name := range []string{"tls-ca", "tls-cert", "tls-key"} {
		complete(c, name, files(0, "pem", "crt", "key"))
	}
	complete(c, "tls-name", cobra.NoFileCompletions)
	complete(c, "timeout", cobra.NoFileCompletions)
}

// remoteNames are the flags of remoteFlags.
var remoteNames = []string{"token-file", "tls-ca", "tls-cert", "tls-key", "tls-name", "timeout", "typed"}

// refuse refuses flags that have no meaning, and says why.
func refuse(fs *pflag.FlagSet, why string, names ...string) error {
	for _, name := range names {
		if fs.Changed(name) {
			return fmt.Errorf("--%s has no meaning %s", name, why)
		}
	}
	return nil
}

// ofServer are flags that say how a model runs, or what is known of one that a server has not.
var ofServer = []string{"device", "precision", "libraries", "threads", "disable", "dump-passes", copyFlag, "reduce"}

// options are those of a client of a server.
func (f *remoteFlags) options(server string) (o client.Options, err error) {
	o = client.Options{Timeout: f.timeout, Typed: f.typed}
	if f.token != "" {
		b, err := regular.ReadFile(f.token)
		if err != nil {
			return o, err
		}
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				o.Token = line
				break
			}
		}
		if o.Token == "" || strings.ContainsAny(o.Token, " \t") {
			return o, fmt.Errorf("--token-file %s: want a token in its first line", f.token)
		}
	}
	if f.ca+f.cert+f.key+f.name == "" {
		return o, nil
	}
	if scheme, _, _ := strings.Cut(server, ":"); !strings.HasPrefix(scheme, "https") && !strings.HasPrefix(scheme, "grpcs") {
		return o, fmt.Errorf("--tls-...: %s has no TLS, want https, grpcs, https+unix or grpcs+unix in its place", server)
	}
	if o.TLS, err = client.ReadTLS(f.ca, f.cert, f.key); err == nil {
		o.TLS.ServerName = f.name
	}
	return o, err
}

// remote is a model that a server has.
type remote struct {
	url             string // of the model
	c               *client.Client
	model, version  string
	inputs, outputs []spc.Port
	request         client.Request // what each has, besides inputs
}

// open asks the server for the model's inputs and outputs. Whoever gets it closes its client.
func (f *remoteFlags) open(ctx context.Context, server, model, version string) (*remote, error) {
	o, err := f.options(server)
	if err != nil {
		return nil, err
	}
	r := &remote{url: server + "/v2/models/" + model, model: model, version: version}
	if version != "" {
		r.url += "/versions/" + version
	}
	r.request = client.Request{Model: model, Version: version}
	if r.c, err = client.New(server, o); err != nil {
		return nil, err
	}
	m, err := r.c.ModelMetadata(ctx, model, version)
	if err != nil {
		err = r.others(ctx, err)
	}
	if err == nil {
		r.inputs, err = r.ports("input", m.Inputs)
	}
	if err == nil {
		r.outputs, err = r.ports("output", m.Outputs)
	}
	if err != nil {
		r.c.Close()
		return nil, err
	}
	return r, nil
}

// openURL is open for the address of a model.
func (f *remoteFlags) openURL(ctx context.Context, url string) (*remote, error) {
	server, model, version, err := client.Model(url)
	if err != nil {
		return nil, err
	}
	return f.open(ctx, server, model, version)
}

// others adds to the error of a model that there is not which there are, where the server tells.
func (r *remote) others(ctx context.Context, err error) error {
	if !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrInvalid) && !errors.Is(err, client.ErrUnavailable) {
		return err
	}
	index, failed := r.c.Index(ctx, false)
	if failed != nil || len(index) == 0 {
		return err
	}
	const most = 20
	var have []string
	for _, m := range index {
		if len(have) > most {
			have[most] = "others"
			break
		}
		if m.Name == r.model && (r.version == "" || m.Version == r.version) && m.State != "READY" && m.Reason != "" {
			if strings.Contains(err.Error(), m.Reason) {
				return err
			}
			return fmt.Errorf("%w; it is %s: %s", err, m.State, m.Reason)
		}
		name := m.Name
		if m.Name == r.model { // another version
			name += " of version " + m.Version
		}
		if m.State != "READY" {
			name += " (" + strings.ToLower(cmp.Or(m.State, "not ready")) + ")"
		}
		if !slices.Contains(have, name) {
			have = append(have, name)
		}
	}
	return fmt.Errorf("%w; the server has %s", err, strings.Join(have, ", "))
}

// ports are the inputs or outputs that a server describes. Of a shape [-1] servers do not tell whether the number of dimensions is open, too.
func (r *remote) ports(what string, list []client.TensorMetadata) ([]spc.Port, error) {
	var ports []spc.Port
	open := 0
	for i, t := range list {
		if slices.ContainsFunc(list[:i], func(o client.TensorMetadata) bool { return o.Name == t.Name }) {
			return nil, fmt.Errorf("%s: two %ss have the name %q", r.url, what, t.Name)
		}
		p := spc.Port{Name: t.Name, DType: t.DType, Ranked: len(t.Shape) != 1 || t.Shape[0] >= 0}
		if p.DType == tensor.Undefined {
			return nil, fmt.Errorf("%s: %s %s is of type %s, which spc infer cannot send or read", r.url, what, t.Name, t.Datatype)
		}
		for _, n := range t.Shape {
			switch {
			case !p.Ranked:
			case n < 0:
				open++
				p.Dims = append(p.Dims, ir.Sym(fmt.Sprint("?", open)))
			default:
				p.Dims = append(p.Dims, ir.Size(n))
			}
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// run sends a request. Its errors name the server and the model.
func (r *remote) run(ctx context.Context, in map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	q := r.request
	q.Inputs = in
	out, err := r.c.Infer(ctx, &q)
	if err != nil {
		return nil, err
	}
	for _, p := range r.outputs {
		if out.Outputs[p.Name] == nil {
			return nil, fmt.Errorf("%s: the answer lacks output %s, which the model's metadata has", r.url, p.Name)
		}
	}
	return out.Outputs, nil
}

// urlHelp says what the address of a model is.
const urlHelp = `A URL is that of a model that a server of the Open Inference Protocol has, such as
spc serve: SERVER/v2/models/MODEL or SERVER/v2/models/MODEL/versions/VERSION, where SERVER is
http://HOST:PORT, grpc://HOST:PORT, unix:PATH (REST), grpc+unix:PATH, or the same with TLS:
https, grpcs, https+unix, grpcs+unix.`
