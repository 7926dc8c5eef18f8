package spc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/cpu"
	"spc/ir"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// failing is a CPU that fails as a GPU may, and counts.
type failing struct {
	load       error
	run        func(call int64) error // the error of a run, after its first step
	loaded     atomic.Int64
	closed     atomic.Int64
	calls      atomic.Int64
	unfinished atomic.Int64 // runs under way when a program was closed
}

func (d *failing) Name() string { return "failing" }

func (d *failing) Load(g *ir.Graph, o backend.Options) (backend.Program, error) {
	if d.load != nil {
		return nil, d.load
	}
	d.loaded.Add(1)
	prog, err := cpu.Device{}.Load(g, o)
	return &failingProgram{Program: prog, device: d}, err
}

type failingProgram struct {
	backend.Program
	device *failing
	runs   atomic.Int64
}

func (p *failingProgram) Trace(ctx context.Context, in, out []*tensor.Tensor, f func(*ir.Node, time.Duration)) error {
	p.runs.Add(1)
	defer p.runs.Add(-1)
	if err := p.device.run(p.device.calls.Add(1)); err != nil {
		if f != nil {
			f(nil, 0)
		}
		return err
	}
	return p.Program.Trace(ctx, in, out, f)
}

func (p *failingProgram) Close() error {
	p.device.closed.Add(1)
	p.device.unfinished.Add(p.runs.Load())
	return p.Program.Close()
}

// A program moves to the second device when the first fails, whoever runs it, and nothing of it is
// left on the first; other errors are the caller's.
func TestFallback(t *testing.T) {
	broken := fmt.Errorf("gpu: fc (MatMul): %w", ErrDevice)
	after := func(n int64, err error) func(int64) error {
		return func(call int64) error {
			if call > n {
				return err
			}
			return nil
		}
	}
	for _, c := range []struct {
		name   string
		first  *failing
		second backend.Device
		want   string // in the error of some run, or of Load
		falls  int64
	}{
		{"works", &failing{run: after(1<<40, nil)}, cpu.Device{}, "", 0},
		{"fails at once", &failing{run: after(0, broken)}, cpu.Device{}, "", 1},
		{"fails later", &failing{run: after(17, broken)}, cpu.Device{}, "", 1},
		{"fails when it loads", &failing{load: broken}, cpu.Device{}, "", 1},
		{"another error", &failing{run: after(3, ErrUnsupported)}, cpu.Device{}, "unsupported", 0},
		{"another error when it loads", &failing{load: ErrCorrupt}, cpu.Device{}, "corrupt file", 0},
		{"both fail", &failing{run: after(0, broken)}, &failing{load: ErrInvalid}, "gpu: fc (MatMul): device failure; failing: invalid model", 0},
		{"a cancelled run", &failing{run: after(3, context.Canceled)}, cpu.Device{}, "context canceled", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graphtest.Parse(t, `graph "g"(%x: f32[n,4]) {
  %w: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %h: f32[n,3] = MatMul "fc" (%x, %w)
  %y: f32[n,3] = Sigmoid "s" (%h)
  return %y
}`)
			in := graphtest.Inputs(g, 1)
			var want []*tensor.Tensor
			reference, err := cpu.Device{}.Load(g, backend.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer reference.Close()
			want = make([]*tensor.Tensor, 1)
			if err := reference.Run(t.Context(), in, want); err != nil {
				t.Fatal(err)
			}

			var falls, closed atomic.Int64
			d := &fallback{c.first, c.second, func(why error) {
				falls.Add(1)
				if !errors.Is(why, ErrDevice) {
					t.Errorf("fell back for %v", why)
				}
			}}
			var mu sync.Mutex
			var errs []error
			failed := func(err error) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
			p, err := d.Load(g, backend.Options{Threads: 1, Closed: func() error { closed.Add(1); return nil }})
			if err != nil {
				failed(err)
			} else {
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for range 10 {
							out := make([]*tensor.Tensor, 1)
							var steps []string
							if err := p.Trace(context.Background(), in, out, func(n *ir.Node, _ time.Duration) {
								if n != nil {
									steps = append(steps, n.Name)
								} else {
									steps = append(steps, "of a failed run")
								}
							}); err != nil {
								failed(err)
								continue
							}
							if !out[0].Equal(want[0]) || !slices.Equal(steps, []string{"fc", "s"}) {
								t.Errorf("%v by the steps %v, want %v", out[0].F32s(), steps, want[0].F32s())
							}
						}
					})
				}
				wg.Wait()
				if c.falls > 0 && c.first.closed.Load() != c.first.loaded.Load() {
					t.Error("the first device's program is not closed before Close")
				}
				if closed.Load() != 0 {
					t.Error("the graph is given up before Close")
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				if closed.Load() != 1 {
					t.Errorf("the graph is given up %d times", closed.Load())
				}
			}
			if c.first.closed.Load() != c.first.loaded.Load() || c.first.unfinished.Load() != 0 {
				t.Errorf("of %d programs of the first device %d are closed, %d runs under way", c.first.loaded.Load(), c.first.closed.Load(), c.first.unfinished.Load())
			}
			if falls.Load() != c.falls {
				t.Errorf("fell back %d times, want %d", falls.Load(), c.falls)
			}
			if (len(errs) > 0) != (c.want != "") || len(errs) > 0 && !strings.Contains(errs[0].Error(), c.want) {
				t.Errorf("errors %v, want %q", errs, c.want)
			}
		})
	}
}
