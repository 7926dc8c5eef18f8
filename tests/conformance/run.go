package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Status is how a test went.
type Status int

// The ways that a test can go.
const (
	Passed Status = iota
	Failed
	Excluded
)

func (s Status) String() string { return [...]string{"passed", "failed", "excluded"}[s] }

// Result is how a test went in a pipeline.
type Result struct {
	*Test
	Status Status
	Reason string // of a failure or an exclusion
	Time   time.Duration
}

// Options choose how tests are run.
type Options struct {
	Workers int           // tests at a time
	Budget  time.Duration // for a test, after which it fails at its next node; light tests have none
	All     bool          // run excluded tests too
}

// RunAll runs tests through p and returns their results in order. The light
// models, large as they are, come after the others, one at a time. Each result
// is also given to done, from one goroutine at a time, as soon as it is there.
func RunAll(ctx context.Context, p Pipeline, tests []*Test, o Options, done func(Result)) []Result {
	results := make([]Result, len(tests))
	var mu sync.Mutex
	one := func(i int) {
		r := runOne(ctx, p, tests[i], o)
		mu.Lock()
		defer mu.Unlock()
		results[i] = r
		if done != nil {
			done(r)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(o.Workers, 1))
	for i, t := range tests {
		if t.Group == "light" {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			one(i)
			<-slots
		})
	}
	wg.Wait()
	for i, t := range tests {
		if t.Group == "light" {
			one(i)
		}
	}
	return results
}

// ReasonFor returns why a test is excluded, empty where it is not.
func ReasonFor(t *Test) string {
	for _, e := range Excludes {
		if e.Pattern.MatchString(t.Group + "/" + t.Name) {
			return e.Reason
		}
	}
	return ""
}

func runOne(ctx context.Context, p Pipeline, t *Test, o Options) Result {
	if why := ReasonFor(t); why != "" && !o.All {
		return Result{t, Excluded, why, 0}
	}
	if o.Budget > 0 && t.Group != "light" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Budget)
		defer cancel()
	}
	start := time.Now()
	err := attempt(ctx, p, t)
	r := Result{t, Passed, "", time.Since(start)}
	if err != nil {
		r.Status, r.Reason = Failed, err.Error()
	}
	return r
}

// attempt runs t. A panic is a failure that says where it came from.
func attempt(ctx context.Context, p Pipeline, t *Test) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("panic: %v at %s", x, panicked(string(debug.Stack())))
		}
	}()
	run, err := p.Prepare(ctx, t.Model)
	if err != nil {
		return err
	}
	if len(t.Sets) == 0 {
		return errors.New("the test has no data")
	}
	for i, s := range t.Sets {
		if err := t.check(ctx, run, s); err != nil {
			return fmt.Errorf("set %d: %w", i, err)
		}
	}
	return nil
}

// panicked returns the line of a stack trace where the panic began.
func panicked(stack string) string {
	_, after, ok := strings.Cut(stack, "panic.go:")
	if !ok {
		return "unknown"
	}
	for _, line := range strings.Split(after, "\n")[1:] {
		if s := strings.TrimSpace(line); strings.Contains(s, ".go:") && !strings.Contains(s, "/src/runtime/") {
			s, _, _ = strings.Cut(s, " +0x")
			return s
		}
	}
	return "unknown"
}

func (t *Test) check(ctx context.Context, run Run, s Set) error {
	in, err := t.inputs(s)
	if err != nil {
		return err
	}
	got, err := run(ctx, in)
	if err != nil {
		return err
	}
	if len(got) != len(s.Out) {
		return fmt.Errorf("%d outputs, want %d", len(got), len(s.Out))
	}
	for i, b := range s.Out {
		want, err := tensor.DecodeProto(b, elemType(t.graph.GetOutput()[i].GetType()))
		if err != nil {
			return fmt.Errorf("output %d of the test: %w", i, err)
		}
		if err := Compare(got[i], want); err != nil {
			return fmt.Errorf("output %s: %w", t.graph.GetOutput()[i].GetName(), err)
		}
	}
	return nil
}

func (t *Test) inputs(s Set) ([]*tensor.Tensor, error) {
	if t.Group == "light" {
		return t.ramps()
	}
	in := make([]*tensor.Tensor, len(s.In))
	for i, b := range s.In {
		var err error
		if in[i], err = tensor.DecodeProto(b, elemType(t.graph.GetInput()[i].GetType())); err != nil {
			return nil, fmt.Errorf("input %d of the test: %w", i, err)
		}
	}
	return in, nil
}

// elemType returns the element type that a declared type tells.
func elemType(p *onnxpb.TypeProto) tensor.DType {
	switch {
	case p.GetOptionalType() != nil:
		return tensor.OptionalOf(elemType(p.GetOptionalType().GetElemType()))
	case p.GetSequenceType() != nil:
		return tensor.SequenceOf(elemType(p.GetSequenceType().GetElemType()))
	}
	return tensor.DType(p.GetTensorType().GetElemType())
}

// ramps returns the inputs of a light test: element i of n is i/n.
func (t *Test) ramps() ([]*tensor.Tensor, error) {
	var in []*tensor.Tensor
	for _, v := range t.graph.GetInput() {
		if slices.ContainsFunc(t.graph.GetInitializer(), func(w *onnxpb.TensorProto) bool { return w.GetName() == v.GetName() }) {
			continue
		}
		shape := []int{}
		for _, d := range v.GetType().GetTensorType().GetShape().GetDim() {
			shape = append(shape, max(int(d.GetDimValue()), 1))
		}
		x := tensor.New(tensor.F32, shape...)
		for i := range x.F32s() {
			x.F32s()[i] = float32(float64(i) / float64(x.Len()))
		}
		in = append(in, x)
	}
	return in, nil
}

// Select returns the tests for which keep is true.
func Select(tests []*Test, keep func(*Test) bool) []*Test {
	return slices.DeleteFunc(slices.Clone(tests), func(t *Test) bool { return !keep(t) })
}
