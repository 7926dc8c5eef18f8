// Package chaos runs spc serve as a process among clients that disconnect, send garbage, cancel and stall, while models are replaced, also by damaged
// ones, and the process is killed and started again. Good clients beside them must get the right answer to every request, or while the process is
// down an error; and when all have gone the server must be what it was. A seed chooses what clients do and when.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"spc/internal/atomicfile"
	"spc/tests/serve/process"
)

// Options of a run.
type Options struct {
	Program   string // spc
	Dir       string // for models, which must be empty
	Shared    string // the folder with models/mnist-8; another model is taken where it is missing
	Requests  int    // of good clients, in all
	Good, Bad int    // clients
	Kills     int    // of the process, in the first half of the requests
	Seed      uint64
	Stall     time.Duration // for which a client stalls
	Log       io.Writer
}

// Report is what came of a run.
type Report struct {
	Right, Failed int            // requests of good clients; those that failed did so while the process was down
	Actions       map[string]int // of bad clients
	Replaced      int            // files of models
	Damaged       int            // of these, by what is none
	Kills         int
	Before, After process.Size // once warm, and in the end
	Took          time.Duration
}

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests in %.0f s: %d answered rightly, %d failed as the server was down; it was killed %d times\n", r.Right+r.Failed, r.Took.Seconds(), r.Right, r.Failed, r.Kills)
	fmt.Fprintf(&b, "models were replaced %d times, of these %d by damaged ones\n", r.Replaced, r.Damaged)
	for _, name := range slices.Sorted(maps.Keys(r.Actions)) {
		fmt.Fprintf(&b, "%8d  %s\n", r.Actions[name], name)
	}
	fmt.Fprintf(&b, "once warm: %v\nin the end: %v\n", r.Before, r.After)
	return b.String()
}

// What may be left of a run when its clients have gone: none of their goroutines, and of memory what a collector may keep.
const (
	moreGoroutines = 2
	moreHeap       = 8 << 20
	moreRSS        = 64 << 20
	settleTime     = 90 * time.Second
)

// run is a run that goes on.
type run struct {
	*Options
	models []*model
	random *rand.Rand

	mu     sync.Mutex
	server *process.Server
	epoch  int // of the process, odd while it is down
	errs   []error
	report Report
	fail   context.CancelFunc

	files   sync.Mutex // held while models are replaced
	started atomic.Int64
}

// Run runs it. What is wrong is an error; the report tells the rest.
func Run(ctx context.Context, o Options) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{Options: &o, random: rand.New(rand.NewPCG(o.Seed, 0)), fail: cancel}
	r.report.Actions = map[string]int{}
	var err error
	if r.models, err = models(ctx, o.Shared, r.random); err != nil {
		return nil, err
	}
	if err := r.restore(); err != nil {
		return nil, err
	}
	if err := r.start(ctx, "127.0.0.1:0", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	defer func() { r.server.Kill() }()
	if r.report.Before, err = r.warm(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	r.all(ctx)
	r.report.Took = time.Since(began)
	if len(r.errs) == 0 && ctx.Err() == nil {
		r.settle(ctx)
	}
	if crash := r.server.Crashes(); crash != "" {
		r.errs = append(r.errs, fmt.Errorf("the server says\n%s", crash))
	}
	if len(r.errs) == 0 && ctx.Err() == nil {
		if err := r.server.Stop(time.Minute); err != nil {
			r.errs = append(r.errs, fmt.Errorf("a signal: %w\n%s", err, r.server.Log()))
		}
	}
	if len(r.errs) == 0 {
		r.errs = append(r.errs, ctx.Err())
	}
	return &r.report, errors.Join(r.errs...)
}

// wrong ends the run with an error, of which the first few are told.
func (r *run) wrong(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) < 10 {
		r.errs = append(r.errs, err)
	}
	r.fail()
}

// put puts a file where the server finds it as a model.
func (r *run) put(m *model, file []byte) error {
	return atomicfile.Write(filepath.Join(r.Dir, m.name+".spx"), func(w io.Writer) error {
		_, err := w.Write(file)
		return err
	})
}

// restore puts a good file for each model.
func (r *run) restore() error {
	for _, m := range r.models {
		if err := r.put(m, m.forms[0]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) start(ctx context.Context, web, rpc string) error {
	s, err := process.Start(ctx, r.Program, web, rpc, "--models", r.Dir, "--admin", "--threads", fmt.Sprint(threads), "--poll", "50ms", "--max-body", "8MB", "--idle", "10s")
	if err != nil {
		return err
	}
	if err := s.Ready(ctx, time.Minute); err != nil {
		s.Kill()
		return err
	}
	r.server = s
	return nil
}

// warm asks each model on several connections, and tells what the server takes when these are closed.
func (r *run) warm(ctx context.Context) (z process.Size, err error) {
	var wg sync.WaitGroup
	for i := range r.Good {
		c, err := newClient(r.server.HTTP, r.server.GRPC, rand.New(rand.NewPCG(r.Seed, uint64(1000+i))))
		if err != nil {
			return z, err
		}
		wg.Go(func() {
			defer c.close()
			for range 200 {
				if err := c.ask(ctx, r.models); err != nil {
					r.wrong(fmt.Errorf("while it warms up: %w", err))
					return
				}
			}
		})
	}
	wg.Wait()
	if len(r.errs) > 0 {
		return z, errors.Join(r.errs...)
	}
	return r.steady(ctx)
}

// steady is what the server takes once that has stayed the same for a while.
func (r *run) steady(ctx context.Context) (z process.Size, err error) {
	for range 20 {
		old := z
		if z, err = r.server.Size(ctx); err != nil || z.Goroutines == old.Goroutines && z.Heap < old.Heap+1<<20 {
			return z, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return z, nil
}

// all lets all clients do what they do until the good ones have made their requests.
func (r *run) all(root context.Context) {
	ctx, done := context.WithCancel(root)
	defer done()
	var good, others sync.WaitGroup
	var clients []*client
	for i := range r.Good {
		c, err := newClient(r.server.HTTP, r.server.GRPC, rand.New(rand.NewPCG(r.Seed, uint64(2000+i))))
		if err != nil {
			r.wrong(err)
			return
		}
		clients = append(clients, c)
	}
	for _, c := range clients {
		good.Go(func() {
			defer c.close()
			r.good(ctx, c)
		})
	}
	for i := range r.Bad {
		others.Go(func() { r.bad(ctx, rand.New(rand.NewPCG(r.Seed, uint64(3000+i)))) })
	}
	others.Go(func() { r.replace(ctx, rand.New(rand.NewPCG(r.Seed, 1))) })
	others.Go(func() { r.kills(ctx, root, clients) })
	good.Wait()
	done()
	others.Wait()
	if err := r.restore(); err != nil {
		r.wrong(err)
	}
}

// state is the epoch of the process.
func (r *run) state() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epoch
}

// good makes requests, until all clients together have made enough.
func (r *run) good(ctx context.Context, c *client) {
	for {
		n := r.started.Add(1)
		if n > int64(r.Requests) || ctx.Err() != nil {
			return
		}
		before := r.state()
		err := c.ask(ctx, r.models)
		r.mu.Lock()
		down := before%2 == 1 || r.epoch != before
		if err == nil {
			r.report.Right++
		} else {
			r.report.Failed++
		}
		r.mu.Unlock()
		var mistake *wrong
		if err != nil && ctx.Err() == nil && (!down || errors.As(err, &mistake) || lost(err)) {
			r.wrong(fmt.Errorf("request %d: %w", n, err))
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if step := max(1, r.Requests/20); n%int64(step) == 0 {
			fmt.Fprintf(r.Log, "%d of %d requests\n", n, r.Requests)
		}
	}
}

// lost reports whether an error is that nothing came in time.
func lost(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded // gRPC's is no context's
}

// bad does what the seed says until the context ends.
func (r *run) bad(ctx context.Context, random *rand.Rand) {
	c, err := newClient(r.server.HTTP, r.server.GRPC, random)
	if err != nil {
		r.wrong(err)
		return
	}
	defer c.close()
	b := &bad{client: c, grpc: r.server.GRPC, list: r.models, stall: r.Stall}
	for ctx.Err() == nil {
		a := Actions[random.IntN(len(Actions))]
		err := a.do(b, ctx)
		if err != nil && ctx.Err() == nil {
			r.wrong(fmt.Errorf("%s: %w", a.Name, err))
			return
		}
		r.mu.Lock()
		r.report.Actions[a.Name]++
		r.mu.Unlock()
		time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
	}
}

// replace replaces models, mostly by another form of the same.
func (r *run) replace(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(50+random.IntN(300)) * time.Millisecond):
		}
		m := r.models[random.IntN(len(r.models))]
		file, damaged := m.forms[random.IntN(len(m.forms))], random.IntN(4) == 0
		if damaged {
			file = m.damaged[random.IntN(len(m.damaged))]
		}
		r.files.Lock()
		err := r.put(m, file)
		r.files.Unlock()
		if err != nil {
			r.wrong(err)
			return
		}
		r.mu.Lock()
		r.report.Replaced++
		if damaged {
			r.report.Damaged++
		}
		r.mu.Unlock()
	}
}

// kills kills the process each time that so many more requests have begun, in the first half of them, and starts it again, to live until
// another context ends.
func (r *run) kills(ctx, root context.Context, clients []*client) {
	for i := range r.Kills {
		for at := int64(r.Requests) * int64(i+1) / int64(2*(r.Kills+1)); r.started.Load() < at; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				return
			}
		}
		r.mu.Lock()
		r.epoch++
		r.report.Kills++
		old := r.server
		r.mu.Unlock()
		old.Kill()
		if crash := old.Crashes(); crash != "" {
			r.wrong(fmt.Errorf("before it was killed the server says\n%s", crash))
			return
		}
		r.files.Lock() // a server that starts must find whole files
		err := r.restore()
		if err == nil {
			err = r.start(root, old.HTTP, old.GRPC)
		}
		r.files.Unlock()
		if err != nil {
			if ctx.Err() == nil {
				r.wrong(fmt.Errorf("after kill %d: %w", i+1, err))
			}
			return
		}
		for _, c := range clients {
			c.http.CloseIdleConnections() // those of the old process
		}
		r.mu.Lock()
		r.epoch++
		r.mu.Unlock()
	}
}

// settle waits for the server to be what it was once warm.
func (r *run) settle(ctx context.Context) {
	b := r.report.Before
	most := process.Size{Goroutines: b.Goroutines + moreGoroutines, Heap: b.Heap + moreHeap, RSS: b.RSS + moreRSS}
	for end := time.Now().Add(settleTime); ; time.Sleep(200 * time.Millisecond) {
		z, err := r.server.Size(ctx)
		r.report.After = z
		if err == nil && z.Goroutines <= most.Goroutines && z.Heap <= most.Heap && z.RSS <= most.RSS {
			return
		}
		if err == nil && time.Now().After(end) {
			err = fmt.Errorf("in the end the server has %v, want at most %v", z, most)
			if stacks, serr := r.server.Get(ctx, "/debug/pprof/goroutine?debug=1"); serr == nil && z.Goroutines > most.Goroutines {
				err = fmt.Errorf("%w\n%s", err, stacks)
			}
		}
		if err != nil {
			r.errs = append(r.errs, err)
			return
		}
	}
}
