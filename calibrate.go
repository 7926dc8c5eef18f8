package spc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"

	"spc/backend"
	"spc/backend/cpu"
	"spc/internal/debug"
	"spc/internal/memory"
	"spc/internal/spool"
	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/calib"
)

// observer sees the calibration samples on the CPU; it is nil where there are none.
// done ends its threads.
func observer(o *CompileOptions, w *weights) (seen *calib.Observer, done func()) {
	if o.Calibration.Inputs == nil {
		return nil, func() {}
	}
	threads := o.Calibration.Threads
	blas := cpu.NewBLAS(threads)
	seen = &calib.Observer{Inputs: calibration(o), Run: calibrator(threads, w), Kernels: blas.Kernels()}
	if folder := o.Calibration.Spool; folder != "" && spool.Nameless {
		seen.Room = calib.NewRoom(int(min(math.MaxInt, cmp.Or(o.Calibration.Memory, defaultMemory()))), folder)
	}
	return seen, func() {
		_ = seen.Room.Close() // which has no name, and is read no more
		blas.Close()
	}
}

// defaultMemory is how much memory samples may take: half of what the machine has left.
func defaultMemory() int64 {
	if free, known := memory.Left(); known {
		return max(1, int64(free/2))
	}
	return calib.DefaultBudget
}

// checkMemory refuses a bound for what is kept of samples that bounds nothing.
func (c *Calibration) checkMemory() error {
	switch {
	case c.Memory < 0:
		return option.Errorf("%v %d: want a number of bytes, or 0 for half of what the machine has left", option.CalibrationMemory, c.Memory)
	case c.Memory > 0 && c.Inputs == nil:
		return option.Errorf("%v has no use without %v, of which values are kept", option.CalibrationMemory, option.Calibration)
	case c.Memory > 0 && c.Spool == "":
		return option.Errorf("%v needs %v, a folder for what does not fit", option.CalibrationMemory, option.CalibrationSpool)
	case c.Memory > 0 && !spool.Nameless:
		return fmt.Errorf("%w: %w", option.Errorf("%v: there are no files without a name on %s", option.CalibrationMemory, runtime.GOOS), ErrUnsupported)
	}
	return nil
}

// keptOf tells what was kept of samples for a compilation that is done; nil where it is not told.
func keptOf(seen *calib.Observer) (*calib.Usage, error) {
	if seen == nil || seen.Room == nil {
		return nil, nil
	}
	if memory, file := seen.Room.Left(); memory+int(file) > 0 && debug.On(debug.Memory) {
		return nil, fmt.Errorf("%d bytes of samples in memory and %d in a file are kept though nothing reads them: %w", memory, file, ir.ErrInvalid)
	}
	u := seen.Room.Usage()
	return &u, nil
}

// calibration yields the samples in the order of a graph's inputs.
func calibration(o *CompileOptions) calib.Inputs {
	return func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		return func(yield func([]*tensor.Tensor, error) bool) {
			done := 0
			samples := o.Calibration.Inputs(ctx, inputs(g))
			if samples == nil {
				yield(nil, option.Errorf("%v: no sequence of samples", option.Calibration))
				return
			}
			for sample, err := range samples {
				in := make([]*tensor.Tensor, len(g.Inputs))
				if err == nil {
					err = arrange(g, in, sample)
				}
				for i, t := range in { // which are read while the next ones are made, perhaps in the same tensors
					if t != nil {
						in[i] = t.Clone()
					}
				}
				if !yield(in, err) || err != nil {
					return
				}
				if done++; o.Progress != nil {
					o.Progress("calibrate", done, done+1)
				}
			}
		}
	}
}

// calibrator evaluates graphs on the CPU, with operators fused as in compiled models.
// Each sample is evaluated on one thread, as many at the same time as there are
// threads: what they give then does not depend on their number.
func calibrator(threads int, w *weights) calib.Runner {
	if threads == 0 {
		threads = cpu.Cores()
	}
	return func(ctx context.Context, g *ir.Graph, in iter.Seq2[[]*tensor.Tensor, error], see func([]*tensor.Tensor) error) error {
		if err := passes.Fuse(g); err != nil {
			return err
		}
		p, err := onLoan(g, w)
		if err != nil {
			return err
		}
		defer p.Close()
		ctx, cancel := context.WithCancel(ctx)
		f := &flight{see: see}
		defer f.wait()
		defer cancel()
		for sample, err := range in {
			if err != nil {
				return cmp.Or(f.all(), err)
			}
			if len(f.runs) == threads {
				if err := f.land(); err != nil {
					return err
				}
			}
			out := f.outputs(len(g.Outputs))
			f.start(out, func() error { return p.Run(ctx, sample, out) })
		}
		return f.all()
	}
}

// onLoan loads a program that weights are lent to until nothing reads them any more.
func onLoan(g *ir.Graph, w *weights) (p backend.Program, err error) {
	back := w.lend()
	defer func() {
		if p == nil {
			err = errors.Join(err, back())
		}
	}()
	return cpu.Device{}.Load(g, backend.Options{Threads: 1, Closed: back})
}

// flight is the samples that are being evaluated, the first one first.
type flight struct {
	see    func([]*tensor.Tensor) error
	runs   []run
	landed int
	free   [][]*tensor.Tensor
}

// run is the evaluation of a sample.
type run struct {
	out  []*tensor.Tensor
	done chan error
}

// outputs returns a place for outputs, with tensors of a sample before where nobody
// has taken them.
func (f *flight) outputs(n int) []*tensor.Tensor {
	if k := len(f.free); k > 0 {
		out := f.free[k-1]
		f.free = f.free[:k-1]
		return out
	}
	return make([]*tensor.Tensor, n)
}

func (f *flight) start(out []*tensor.Tensor, evaluate func() error) {
	r := run{out, make(chan error, 1)}
	f.runs = append(f.runs, r)
	go func() { r.done <- evaluate() }()
}

// land shows the outputs of the first sample once they are there.
func (f *flight) land() error {
	if len(f.runs) == 0 {
		return nil
	}
	r := f.runs[0]
	f.runs = f.runs[1:]
	f.landed++
	if err := <-r.done; err != nil {
		return fmt.Errorf("calibration sample %d: %w", f.landed, err)
	}
	if err := f.see(r.out); err != nil {
		return err
	}
	f.free = append(f.free, r.out)
	// On one processor, two goroutines that wait for each other in turns keep it from all others, as what waits for signals.
	runtime.Gosched()
	return nil
}

// all shows the outputs of all samples that are left.
func (f *flight) all() error {
	for len(f.runs) > 0 {
		if err := f.land(); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when nothing is evaluated any more.
func (f *flight) wait() {
	for _, r := range f.runs {
		<-r.done
	}
}
