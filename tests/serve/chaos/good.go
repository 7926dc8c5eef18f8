package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"spc/serve/oip/oippb"
)

// patience is how long a good client waits for an answer, or an error. One that comes later counts as lost.
const patience = 30 * time.Second

// client is a good one, with connections of its own.
type client struct {
	random *rand.Rand
	http   *http.Client
	conn   *grpc.ClientConn
	call   oippb.GRPCInferenceServiceClient
	web    string // address of REST
}

func newClient(web, rpc string, random *rand.Rand) (*client, error) {
	c := &client{random: random, web: web, http: &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: patience}).DialContext}}}
	var err error
	c.conn, err = grpc.NewClient(rpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}, MinConnectTimeout: time.Second,
	}))
	if err != nil {
		return nil, err
	}
	c.call = oippb.NewGRPCInferenceServiceClient(c.conn)
	return c, nil
}

func (c *client) close() {
	c.http.CloseIdleConnections()
	c.conn.Close()
}

// ask asks a model something, in one of the ways that there are.
func (c *client) ask(ctx context.Context, list []*model) error {
	m := list[c.random.IntN(len(list))]
	q := &m.asks[c.random.IntN(len(m.asks))]
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var got []float32
	var err error
	switch way := c.random.IntN(10); {
	case way < 5:
		got, err = c.rpc(ctx, m.request(q, false), m)
	case way < 6:
		got, err = c.rpc(ctx, m.request(q, true), m)
	case way < 8:
		body, length := m.binary(q)
		got, err = c.rest(ctx, m, body, length)
	default:
		got, err = c.rest(ctx, m, m.json(q), 0)
	}
	if err != nil {
		return err
	}
	if err := m.right(q, got); err != nil {
		return &wrong{err}
	}
	return nil
}

// wrong is an answer that is not what was asked for, for which there is no excuse.
type wrong struct{ error }

// request is a question over gRPC.
func (m *model) request(q *question, typed bool) *oippb.ModelInferRequest {
	in := &oippb.ModelInferRequest_InferInputTensor{Name: m.input, Datatype: "FP32", Shape: m.shape}
	r := &oippb.ModelInferRequest{ModelName: m.name, Inputs: []*oippb.ModelInferRequest_InferInputTensor{in}}
	if typed {
		in.Contents = &oippb.InferTensorContents{Fp32Contents: q.values}
	} else {
		r.RawInputContents = [][]byte{q.raw}
	}
	return r
}

func (c *client) rpc(ctx context.Context, r *oippb.ModelInferRequest, m *model) ([]float32, error) {
	out, err := c.call.ModelInfer(ctx, r, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	if out.ModelName != m.name || len(out.Outputs) != 1 || out.Outputs[0].Name != m.output {
		return nil, &wrong{fmt.Errorf("an answer of %s: %v", m.name, out)}
	}
	if t := out.Outputs[0].Contents; t != nil {
		return t.Fp32Contents, nil
	}
	if len(out.RawOutputContents) != 1 {
		return nil, &wrong{errors.New("an answer without contents")}
	}
	return floats(out.RawOutputContents[0]), nil
}

func floats(raw []byte) []float32 {
	list := make([]float32, len(raw)/4)
	for i := range list {
		list[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return list
}

// json is a question over REST.
func (m *model) json(q *question) []byte {
	return fmt.Appendf(nil, `{"inputs": [{"name": %q, "datatype": "FP32", "shape": [1, 1, 28, 28], "data": %s}]}`, m.input, q.json)
}

// binary is a question over REST whose bytes follow so much JSON, and which wants bytes.
func (m *model) binary(q *question) (body []byte, length int) {
	body = fmt.Appendf(nil, `{"inputs": [{"name": %q, "datatype": "FP32", "shape": [1, 1, 28, 28], "parameters": {"binary_data_size": %d}}], "parameters": {"binary_data_output": true}}`,
		m.input, len(q.raw))
	return append(body, q.raw...), len(body)
}

// headerLength tells where the JSON of a message ends.
const headerLength = "Inference-Header-Content-Length"

func (c *client) rest(ctx context.Context, m *model, body []byte, length int) ([]float32, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.web+"/v2/models/"+m.name+"/infer", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if length > 0 {
		r.Header.Set(headerLength, strconv.Itoa(length))
	}
	a, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", a.StatusCode, strings.TrimSpace(string(b)))
	}
	text, raw := b, []byte(nil)
	if h := a.Header.Get(headerLength); h != "" {
		n, err := strconv.Atoi(h)
		if err != nil || n > len(b) {
			return nil, &wrong{fmt.Errorf("%s is %q of %d bytes", headerLength, h, len(b))}
		}
		text, raw = b[:n], b[n:]
	}
	var out struct {
		Outputs []struct {
			Name string
			Data []float32
		}
	}
	if err := json.Unmarshal(text, &out); err != nil || len(out.Outputs) != 1 || out.Outputs[0].Name != m.output {
		return nil, &wrong{fmt.Errorf("an answer of %s: %q: %w", m.name, text, err)}
	}
	if raw != nil {
		return floats(raw), nil
	}
	return out.Outputs[0].Data, nil
}
