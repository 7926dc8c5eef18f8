package chaos

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spc/serve/oip/oippb"
)

// bad is a client that does what clients should not.
type bad struct {
	*client
	grpc  string // address of gRPC
	list  []*model
	stall time.Duration // for which it stalls
}

// Actions are what bad clients do. An error is of the server: what comes of them otherwise is theirs.
var Actions = []struct {
	Name string
	do   func(b *bad, ctx context.Context) error
}{
	{"disconnect over HTTP", (*bad).leaveHTTP},
	{"disconnect over gRPC", (*bad).leaveGRPC},
	{"cancel over HTTP", (*bad).cancelHTTP},
	{"cancel over gRPC", (*bad).cancelGRPC},
	{"abandon a stream", (*bad).abandonStream},
	{"stall over HTTP", (*bad).stallHTTP},
	{"stall over gRPC", (*bad).stallGRPC},
	{"garbage for HTTP", (*bad).garbageHTTP},
	{"garbage for HTTP/2", (*bad).garbageHTTP2},
	{"frames of HTTP/2", (*bad).frames},
	{"a message of gRPC that is not", (*bad).garbageMessage},
	{"a body that is not", (*bad).garbageBody},
	{"harmed bytes of a request", (*bad).harmed},
	{"another call", (*bad).others},
}

// tcp connects. It is closed at the latest when the time is over.
func (b *bad) tcp(address string, d time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err == nil {
		c.SetDeadline(time.Now().Add(d))
	}
	return c, err
}

// drop closes a connection, now and then without a farewell.
func (b *bad) drop(c net.Conn) {
	if b.random.IntN(2) == 0 {
		c.(*net.TCPConn).SetLinger(0)
	}
	c.Close()
}

func (b *bad) pick() (*model, *question) {
	m := b.list[b.random.IntN(len(b.list))]
	return m, &m.asks[b.random.IntN(len(m.asks))]
}

// post is a request over HTTP as bytes, with headers that are added.
func (b *bad) post(path string, body []byte, headers string) []byte {
	return append(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s\r\n", path, b.web, len(body), headers), body...)
}

func (b *bad) some(m *model, q *question) []byte {
	if b.random.IntN(2) == 0 {
		return b.post("/v2/models/"+m.name+"/infer", m.json(q), "")
	}
	body, length := m.binary(q)
	return b.post("/v2/models/"+m.name+"/infer", body, fmt.Sprintf("%s: %d\r\n", headerLength, length))
}

func (b *bad) leaveHTTP(context.Context) error {
	c, err := b.tcp(b.web, patience)
	if err != nil {
		return nil
	}
	defer b.drop(c)
	m, q := b.pick()
	x := b.some(m, q)
	if b.random.IntN(3) > 0 { // else all of it
		x = x[:b.random.IntN(len(x))]
	}
	c.Write(x)
	return nil
}

// frame is one of HTTP/2 (RFC 9113, section 4.1).
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	h := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(h, flags), stream), payload...)
}

// The kinds and flags of frames that are used.
const (
	data, headers, settings = 0, 1, 4
	endStream, endHeaders   = 1, 4
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// fields are headers as literals (RFC 7541, section 6.2.2), of names and values in turn.
func fields(list ...string) (b []byte) {
	for i := 0; i < len(list); i += 2 {
		b = append(b, 0, byte(len(list[i])))
		b = append(append(b, list[i]...), byte(len(list[i+1])))
		b = append(b, list[i+1]...)
	}
	return b
}

// begun is a call of gRPC up to its message.
func (b *bad) begun(stream uint32, more ...string) []byte {
	h := fields(append([]string{":method", "POST", ":scheme", "http", ":path", "/inference.GRPCInferenceService/ModelInfer", ":authority", b.grpc,
		"content-type", "application/grpc", "te", "trailers"}, more...)...)
	return frame(headers, endHeaders, stream, h)
}

func opening() []byte { return append([]byte(preface), frame(settings, 0, 0, nil)...) }

// message is one of gRPC.
func message(payload []byte, compressed byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{compressed}, uint32(len(payload))), payload...)
}

// wire is a request in protocol buffers, by hand: a model's name, an input, and its bytes.
func (m *model) wire(q *question) []byte {
	put := func(b []byte, field byte, v []byte) []byte {
		return append(binary.AppendUvarint(append(b, field<<3|2), uint64(len(v))), v...)
	}
	var shape []byte
	for _, n := range m.shape {
		shape = binary.AppendUvarint(shape, uint64(n))
	}
	in := put(put(put(nil, 1, []byte(m.input)), 2, []byte("FP32")), 3, shape)
	return put(put(put(nil, 1, []byte(m.name)), 5, in), 7, q.raw)
}

func (b *bad) leaveGRPC(context.Context) error {
	c, err := b.tcp(b.grpc, patience)
	if err != nil {
		return nil
	}
	defer b.drop(c)
	m, q := b.pick()
	x := append(opening(), b.begun(1)...)
	x = append(x, frame(data, endStream, 1, message(m.wire(q), 0))...)
	if b.random.IntN(3) > 0 {
		x = x[:b.random.IntN(len(x))]
	}
	c.Write(x)
	return nil
}

// soon is a context that ends within two milliseconds or so.
func (b *bad) soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(b.random.IntN(2000))*time.Microsecond)
}

func (b *bad) cancelHTTP(ctx context.Context) error {
	ctx, cancel := b.soon(ctx)
	defer cancel()
	m, q := b.pick()
	got, err := b.rest(ctx, m, m.json(q), 0)
	if err != nil {
		return nil
	}
	return m.right(q, got)
}

func (b *bad) cancelGRPC(ctx context.Context) error {
	ctx, cancel := b.soon(ctx)
	defer cancel()
	m, q := b.pick()
	got, err := b.rpc(ctx, m.request(q, b.random.IntN(4) == 0), m)
	if err != nil {
		return nil
	}
	return m.right(q, got)
}

// abandonStream sends requests in a stream, reads some answers, and goes.
func (b *bad) abandonStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := b.call.ModelStreamInfer(ctx)
	if err != nil {
		return nil
	}
	m, q := b.pick()
	n := 1 + b.random.IntN(20)
	for range n {
		if s.Send(m.request(q, false)) != nil {
			return nil
		}
	}
	for range b.random.IntN(n + 1) {
		r, err := s.Recv()
		if err != nil || r.ErrorMessage != "" {
			return nil
		}
		if err := m.right(q, floats(r.InferResponse.RawOutputContents[0])); err != nil {
			return err
		}
	}
	return nil
}

// drip sends some bytes of x one at a time, until the stall is over.
func (b *bad) drip(ctx context.Context, c net.Conn, x []byte) {
	defer b.drop(c)
	at := b.random.IntN(len(x))
	c.Write(x[:at])
	end := time.Now().Add(b.stall)
	for ; at < len(x) && time.Now().Before(end) && ctx.Err() == nil; at++ {
		if _, err := c.Write(x[at : at+1]); err != nil {
			return
		}
		time.Sleep(b.stall / 10)
	}
}

func (b *bad) stallHTTP(ctx context.Context) error {
	c, err := b.tcp(b.web, patience)
	if err != nil {
		return nil
	}
	b.drip(ctx, c, b.some(b.pick()))
	return nil
}

func (b *bad) stallGRPC(ctx context.Context) error {
	c, err := b.tcp(b.grpc, patience)
	if err != nil {
		return nil
	}
	m, q := b.pick()
	b.drip(ctx, c, append(append(opening(), b.begun(1)...), frame(data, endStream, 1, message(m.wire(q), 0))...))
	return nil
}

func (b *bad) noise(most int) []byte {
	x := make([]byte, 1+b.random.IntN(most))
	for i := range x {
		x[i] = byte(b.random.Uint32())
	}
	return x
}

// exchange sends bytes, and reads some of what comes back for a moment.
func (b *bad) exchange(address string, x []byte) string {
	c, err := b.tcp(address, 50*time.Millisecond)
	if err != nil {
		return ""
	}
	defer b.drop(c)
	c.Write(x)
	var answer [4096]byte
	n, _ := c.Read(answer[:])
	return string(answer[:n])
}

// refused says where an answer over HTTP is neither an error of the client nor none.
func refused(what, answer string) error {
	if answer == "" || strings.HasPrefix(answer, "HTTP/1.1 4") || strings.HasPrefix(answer, "HTTP/1.1 503") || strings.HasPrefix(answer, "HTTP/1.1 501") ||
		strings.HasPrefix(answer, "HTTP/1.1 505") || strings.HasPrefix(answer, "HTTP/1.1 100") || !strings.HasPrefix(answer, "HTTP/1.1") {
		return nil
	}
	return fmt.Errorf("%s is answered with %q", what, answer)
}

func (b *bad) garbageHTTP(context.Context) error {
	m, q := b.pick()
	good := b.some(m, q)
	path := "/v2/models/" + m.name + "/infer"
	list := [][]byte{
		b.noise(2000),
		append([]byte("POST "), b.noise(500)...),
		[]byte("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n{"),
		[]byte("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}"),
		[]byte("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
		[]byte("POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}"),
		[]byte("POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}"),
		[]byte("POST " + path + " HTTP/1.1\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 100) + "\r\n"),
		[]byte("BREW " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"),
		bytes.Replace(good, []byte("Content-Length: "), []byte("Content-Length: 9"), 1),
	}
	i := b.random.IntN(len(list))
	return refused(fmt.Sprintf("garbage %d", i), b.exchange(b.web, list[i]))
}

func (b *bad) garbageHTTP2(context.Context) error {
	x := b.noise(3000)
	switch b.random.IntN(3) {
	case 0:
		x = append([]byte(preface), x...)
	case 1:
		x = append(opening(), x...)
	}
	b.exchange(b.grpc, x)
	return nil
}

// frames sends frames that are whole, of any kind, flags and stream.
func (b *bad) frames(context.Context) error {
	x := opening()
	for range 1 + b.random.IntN(30) {
		switch b.random.IntN(4) {
		case 0:
			x = append(x, b.begun(uint32(b.random.IntN(8)))...)
		case 1:
			m, q := b.pick()
			x = append(x, frame(data, byte(b.random.IntN(2)), uint32(b.random.IntN(8)), message(m.wire(q), 0))...)
		default:
			x = append(x, frame(byte(b.random.IntN(12)), byte(b.random.Uint32()), uint32(b.random.IntN(8)), b.noise(100))...)
		}
	}
	b.exchange(b.grpc, x)
	return nil
}

func gzipped(x []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(x)
	w.Close()
	return out.Bytes()
}

// bomb is few bytes that become many.
var bomb = sync.OnceValue(func() []byte { return gzipped(bytes.Repeat([]byte(" "), 32<<20)) })

// garbageMessage sends a call whose message has a wrong length, is not compressed as it says, or is none.
func (b *bad) garbageMessage(context.Context) error {
	m, q := b.pick()
	w := m.wire(q)
	z := gzipped(w)
	list := []struct {
		message []byte
		gzip    bool
	}{
		{[]byte{0, 0xff, 0xff, 0xff, 0xff, 1}, false}, // 4 GB
		{[]byte{0, 0x7f, 0xff, 0xff, 0xff, 1}, false}, // 2 GB
		{message(w, 1), false},
		{message(z[:len(z)/2], 1), true},
		{message(w, 1), true},
		{message(bomb(), 1), true},
		{message(b.noise(500), 0), false},
		{message(w[:len(w)-1], 0), false},
		{message(w, 0)[:len(w)-7], false},
		{append(message(w, 0), message(w, 0)...), false},
	}
	i := b.random.IntN(len(list))
	var more []string
	if list[i].gzip {
		more = []string{"grpc-encoding", "gzip"}
	}
	x := append(opening(), b.begun(1, more...)...)
	for p := list[i].message; len(p) > 0; { // of the most that a frame has
		n := min(len(p), 16<<10)
		flags := byte(0)
		if n == len(p) {
			flags = endStream
		}
		x, p = append(x, frame(data, flags, 1, p[:n])...), p[n:]
	}
	b.exchange(b.grpc, x)
	return nil
}

// garbageBody sends a request that HTTP has nothing against.
func (b *bad) garbageBody(context.Context) error {
	m, q := b.pick()
	path := "/v2/models/" + m.name + "/infer"
	input := func(shape, data string) []byte {
		return fmt.Appendf(nil, `{"inputs": [{"name": %q, "datatype": "FP32", "shape": %s, "data": %s}]}`, m.input, shape, data)
	}
	z := gzipped(m.json(q))
	long, length := m.binary(q)
	list := [][]byte{
		b.post(path, nil, ""),
		b.post(path, []byte("null"), ""),
		b.post(path, m.json(q)[:200], ""),
		b.post(path, []byte(strings.Repeat("[", 100000)), ""),
		b.post(path, fmt.Appendf(nil, `{"inputs": %s`, strings.Repeat(`{"a":`, 50000)), ""),
		b.post(path, input("[2147483648, 1, 28, 28]", "[1]"), ""),
		b.post(path, input("[4294967296, 4294967296]", "[]"), ""),
		b.post(path, input("[1, 1, 28, -28]", "[1]"), ""),
		b.post(path, input("[1, 1, 28, 28]", "[1, 2, 3]"), ""),
		b.post(path, input("[1, 1, 28, 27]", string(q.json)), ""),
		b.post(path, input("[1, 1, 28, 28]", `["a"]`), ""),
		b.post(path, input("[1, 1, 28, 28]", "[1e999]"), ""),
		b.post(path, z[:len(z)/2], "Content-Encoding: gzip\r\n"),
		b.post(path, m.json(q), "Content-Encoding: gzip\r\n"),
		b.post(path, bomb(), "Content-Encoding: gzip\r\n"),
		b.post(path, long, fmt.Sprintf("%s: %d\r\n", headerLength, length-1)),
		b.post(path, long, headerLength+": 18446744073709551616\r\n"),
		b.post(path, long[:len(long)-4], fmt.Sprintf("%s: %d\r\n", headerLength, length)),
		b.post("/v2/models/nobody/infer", m.json(q), ""),
		b.post("/v2/models/%2e%2e%2f/infer", m.json(q), ""),
		b.post("/v2/models/"+m.name+"/versions/99999999999999999999/infer", m.json(q), ""),
	}
	i := b.random.IntN(len(list))
	return refused(fmt.Sprintf("body %d", i), b.exchange(b.web, list[i]))
}

// harmed sends a request with some bytes changed, of which nothing is known but that it does no harm.
func (b *bad) harmed(context.Context) error {
	m, q := b.pick()
	address, x := b.web, b.some(m, q)
	if b.random.IntN(2) == 0 {
		address, x = b.grpc, append(append(opening(), b.begun(1)...), frame(data, endStream, 1, message(m.wire(q), 0))...)
	}
	for range 1 + b.random.IntN(10) {
		x[b.random.IntN(len(x))] ^= byte(1 << b.random.IntN(8))
	}
	b.exchange(address, x)
	return nil
}

// others makes calls that ask of the server, or want a model loaded: its file may be damaged right now.
func (b *bad) others(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, _ := b.pick()
	paths := []string{"/v2", "/v2/health/live", "/v2/models/" + m.name, "/v2/models/" + m.name + "/stats", "/v2/models/" + m.name + "/config", "/metrics", "/nowhere"}
	switch i := b.random.IntN(len(paths) + 3); {
	case i < len(paths):
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.web+paths[i], nil)
		if err != nil {
			return err
		}
		a, err := b.http.Do(r)
		if err != nil {
			return nil
		}
		defer a.Body.Close()
		io.Copy(io.Discard, a.Body)
		if a.StatusCode != 200 && a.StatusCode != 404 && a.StatusCode != 503 {
			return fmt.Errorf("%s is answered with %d", paths[i], a.StatusCode)
		}
	case i == len(paths):
		b.call.RepositoryIndex(ctx, &oippb.RepositoryIndexRequest{})
	case i == len(paths)+1:
		if _, err := b.call.ModelStatistics(ctx, &oippb.ModelStatisticsRequest{}); status.Code(err) == codes.Internal {
			return err
		}
	default:
		b.call.RepositoryModelLoad(ctx, &oippb.RepositoryModelLoadRequest{ModelName: m.name})
	}
	return nil
}
