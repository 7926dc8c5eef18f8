package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spc/tests/serve/process"
)

var program string // spc, built

func TestMain(m *testing.M) { os.Exit(tests(m)) }

func tests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "spc-chaos-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "spc")
	if out, err := exec.Command("go", "build", "-o", program, "spc/cmd/spc").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s", err, out)
		return 1
	}
	return m.Run()
}

// No request of a good client is answered wrongly or lost, whatever others do, and nothing is left of them.
func TestChaos(t *testing.T) {
	o := Options{
		Program: program, Dir: t.TempDir(), Shared: os.Getenv("SPC_SHARED"), Requests: 30000, Good: 8, Bad: 8, Kills: 3, Seed: rand.Uint64(), Stall: time.Second, Log: t.Output(),
	}
	if testing.Short() {
		o.Requests = 3000
	}
	t.Logf("seed %d", o.Seed)
	r, err := Run(t.Context(), o)
	if r != nil {
		t.Log(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Right+r.Failed != o.Requests || r.Right < o.Requests*9/10 || r.Kills != o.Kills || r.Replaced == 0 {
		t.Errorf("%d right and %d failed of %d, %d kills", r.Right, r.Failed, o.Requests, r.Kills)
	}
	for _, a := range Actions {
		if r.Actions[a.Name] == 0 && !testing.Short() {
			t.Errorf("nobody did: %s", a.Name)
		}
	}
}

// What is wrong with answers is told.
func TestWrongAnswersAreTold(t *testing.T) {
	q := &question{answers: [][]float32{{1, 2, 3}, {3, 2, 1}}}
	alone, together := &model{name: "m", alone: true, tolerance: 1e-4}, &model{name: "m", tolerance: 1e-4}
	nan := float32(0)
	nan /= nan
	for _, c := range []struct {
		got             []float32
		alone, together bool // it is right
	}{
		{[]float32{1, 2, 3}, true, true}, {[]float32{3, 2, 1}, true, true}, {[]float32{1, 2, 3.0001}, false, true},
		{[]float32{1, 2, 3.1}, false, false}, {[]float32{1, 2}, false, false}, {nil, false, false}, {[]float32{1, 2, nan}, false, false},
	} {
		if err := alone.right(q, c.got); (err == nil) != c.alone {
			t.Errorf("%v alone: %v", c.got, err)
		}
		if err := together.right(q, c.got); (err == nil) != c.together {
			t.Errorf("%v together: %v", c.got, err)
		}
	}
	for answer, ok := range map[string]bool{
		"": true, "HTTP/1.1 400 Bad Request\r\n": true, "HTTP/1.1 503 Service Unavailable\r\n": true, "HTTP/1.1 200 OK\r\n": false, "HTTP/1.1 500 Internal Server Error\r\n": false,
	} {
		if err := refused("something", answer); (err == nil) != ok {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// A request that no one answers is lost, over HTTP and over gRPC.
func TestLostRequestsAreTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // who connects waits
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := newClient(l.Addr().String(), l.Addr().String(), rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	m := &model{name: "m", input: "x"}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, web := c.rest(ctx, m, []byte("{}"), 0)
	_, rpc := c.rpc(ctx, m.request(&question{}, false), m)
	if !lost(web) || !lost(rpc) {
		t.Errorf("%v and %v are not told as lost", web, rpc)
	}
	if refused := status.Error(codes.Unavailable, "down"); lost(refused) || lost(io.ErrUnexpectedEOF) {
		t.Error("errors while the server is down are told as lost")
	}
}

// A server that does not start, or ends, is told with what it wrote.
func TestServersThatFailAreTold(t *testing.T) {
	if _, err := process.Start(t.Context(), program, "127.0.0.1:0", "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "no models") {
		t.Errorf("without models: %v", err)
	}
	s, err := process.Start(t.Context(), program, "127.0.0.1:0", "127.0.0.1:0", "--models", t.TempDir(), "--admin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "/nowhere"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("/nowhere: %v", err)
	}
	if z, err := s.Size(t.Context()); err != nil || z.Goroutines < 1 || z.Heap < 1000 {
		t.Errorf("%v (%v)", z, err)
	}
	s.Kill()
	if err := s.Ready(t.Context(), time.Second); err == nil {
		t.Error("a server that was killed is ready")
	}
}
