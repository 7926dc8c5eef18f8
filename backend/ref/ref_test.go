package ref

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

const branches = `graph "main"(%c: bool[], %x: f32[n]) {
  %h: f32[n] = Relu "relu" (%x)
  %w: f32[1] = const {10.0}
  %y: f32[n] = If "if" (%c) {then_branch = graph "t"() {
    %a: f32[n] = Add "add" (%h, %w)
    %b: f32[n] = If "inner" (%c) {then_branch = graph "tt"() {
      %z: f32[n] = Add "deep" (%a, %x)
      return %z
    }, else_branch = graph "te"() {
      return %w
    }}
    return %b
  }, else_branch = graph "e"() {
    return %h
  }}
  return %y
}
`

func parse(t *testing.T, text string, reg ir.Registry) *ir.Graph {
	t.Helper()
	g, err := ir.Parse(text, reg)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSubgraphsReadOuterValues(t *testing.T) {
	g := parse(t, branches, op.Registry)
	x := tensor.From([]float32{-1, 2}, 2)
	var wg sync.WaitGroup
	for range 4 { // a graph serves concurrent runs
		for c, want := range map[bool]*tensor.Tensor{
			true:  tensor.From([]float32{9, 14}, 2),
			false: tensor.From([]float32{0, 2}, 2),
		} {
			wg.Go(func() {
				out, err := Run(context.Background(), g, []*tensor.Tensor{tensor.Scalar(c), x})
				if err != nil || !out[0].Equal(want) {
					t.Errorf("condition %v: %v, %v, want %v", c, out, err, want.F32s())
				}
			})
		}
	}
	wg.Wait()
}

// What a loop stacks has the sizes that the inputs tell also where it makes no round.
func TestStacksOfNoRoundsHaveTheSizesOfTheInputs(t *testing.T) {
	g := parse(t, `graph "g"(%x: f32[b,3], %e: f32[n,b], %n: i64[]) {
  %yes: bool[] = const {1}
  %l: f32[b,3], %s: f32[?1,b,3], %p: i64[?1,2,?2] = Loop "loop" (%n, %yes, %x) {body = graph "body"(%i: i64[], %c: bool[], %v: f32[b,3]) {
    %w: f32[b,3] = Add "add" (%v, %x)
    %z: i64[2,?3] = NonZero "nonzero" (%w)
    return %c, %w, %w, %z
  }}
  %m: f32[b,3], %t: f32[2*b,n,3] = Scan "scan" (%x, %e) {num_scan_inputs = 1, scan_output_axes = [1], body = graph "body"(%v2: f32[b,3], %row: f32[b]) {
    %u: f32[2*b,3] = Concat "concat" (%v2, %v2) {axis = 0}
    return %v2, %u
  }}
  return %s, %p, %t
}`, op.Registry)
	out, err := Run(context.Background(), g, []*tensor.Tensor{tensor.New(tensor.F32, 2, 3), tensor.New(tensor.F32, 0, 2), tensor.Scalar(int64(0))})
	if got := fmt.Sprint(out); err != nil || got != "[f32[0,2,3] i64[0,2,0] f32[4,0,3]]" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestInputsAreChecked(t *testing.T) {
	g := parse(t, `graph "g"(%a: f32[n,2], %b: f32[n]) {
  %y: f32[n,2] = Relu "r" (%a)
  return %y
}`, op.Registry)
	f32 := func(shape ...int) *tensor.Tensor { return tensor.New(tensor.F32, shape...) }
	for _, test := range []struct {
		in   []*tensor.Tensor
		want string
	}{
		{[]*tensor.Tensor{f32(3, 2)}, "1 inputs, want 2: a, b"},
		{[]*tensor.Tensor{f32(3, 2), nil}, "input b is missing"},
		{[]*tensor.Tensor{f32(3, 2), tensor.New(tensor.I64, 3)}, "input b is i64[3], want f32[n]"},
		{[]*tensor.Tensor{f32(3, 3), f32(3)}, "input a is f32[3,3], want f32[n,2]"},
		{[]*tensor.Tensor{f32(3), f32(3)}, "input a is f32[3], want f32[n,2]"},
		{[]*tensor.Tensor{f32(3, 2), f32(4)}, "n = 3"},
	} {
		_, err := Run(context.Background(), g, test.in)
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.in, err, test.want)
		}
	}
}

// probe is an operator made of functions, for tests.
type probe struct {
	infer func(c *ir.Infer) error
	eval  func(in []*tensor.Tensor) (*tensor.Tensor, error)
}

func (*probe) Kind() string                   { return "Probe" }
func (*probe) Work(in, out []ir.Type) ir.Work { return ir.Work{} }

func (p *probe) Infer(c *ir.Infer) error {
	if p.infer != nil {
		return p.infer(c)
	}
	c.Set(0, c.In(0))
	return nil
}

func (p *probe) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	t, err := p.eval(in)
	return []*tensor.Tensor{t}, err
}

// line returns a graph x: f32[n] -> probes in a row.
func line(t *testing.T, probes ...*probe) *ir.Graph {
	t.Helper()
	g := ir.NewGraph("g")
	v := g.NewInput("x", ir.Of(tensor.F32, ir.Sym("n")))
	for i, p := range probes {
		v = g.NewNode(fmt.Sprintf("p%d", i), p, []*ir.Value{v}, "").Outputs[0]
	}
	g.Outputs = []*ir.Value{v}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestValuesAreFreedAfterTheirLastUse(t *testing.T) {
	var first weak.Pointer[tensor.Tensor]
	freed := false
	g := line(t,
		&probe{eval: func(in []*tensor.Tensor) (*tensor.Tensor, error) {
			y := in[0].Clone()
			first = weak.Make(y)
			return y, nil
		}},
		&probe{eval: func(in []*tensor.Tensor) (*tensor.Tensor, error) { return in[0].Clone(), nil }},
		&probe{eval: func(in []*tensor.Tensor) (*tensor.Tensor, error) {
			runtime.GC()
			freed = first.Value() == nil
			return in[0], nil
		}},
	)
	if _, err := Run(context.Background(), g, []*tensor.Tensor{tensor.New(tensor.F32, 100)}); err != nil || !freed {
		t.Errorf("freed: %v, %v", freed, err)
	}
}

func TestErrorsNameTheNode(t *testing.T) {
	keep := func(in []*tensor.Tensor) (*tensor.Tensor, error) { return in[0], nil }
	short := func(c *ir.Infer) error {
		if d := c.In(0).Dims[0]; d.Known() && d.Size() > 2 {
			return c.Errorf("%v is too long", c.In(0))
		}
		c.Set(0, c.In(0))
		return nil
	}
	x := []*tensor.Tensor{tensor.New(tensor.F32, 3)}
	check := &Interpreter{Check: true}
	for _, test := range []struct {
		name string
		it   *Interpreter
		p    *probe
		want string
	}{
		{"an error of Eval", new(Interpreter), &probe{eval: func([]*tensor.Tensor) (*tensor.Tensor, error) { return nil, errors.New("broken") }}, "p0 (Probe): broken"},
		{"no output", new(Interpreter), &probe{eval: func([]*tensor.Tensor) (*tensor.Tensor, error) { return nil, nil }}, "p0 (Probe): output v1 was not computed"},
		{"an input that only its size shows to be wrong", new(Interpreter), &probe{infer: short, eval: keep}, "p0 (Probe): f32[3] is too long"},
		{"another type than inferred", check, &probe{eval: func([]*tensor.Tensor) (*tensor.Tensor, error) { return tensor.Scalar(int8(1)), nil }}, "p0 (Probe): output v1: i8[] was computed, f32[n] is inferred"},
		{"another size than its symbol's", check, &probe{eval: func([]*tensor.Tensor) (*tensor.Tensor, error) { return tensor.New(tensor.F32, 4), nil }}, "p0 (Probe): output v1: f32[4] was computed, f32[n] is inferred"},
		{"another size than that of the expression", check, &probe{
			infer: func(c *ir.Infer) error {
				c.Set(0, ir.Of(tensor.F32, ir.Add(ir.Mul(ir.Size(2), c.In(0).Dims[0]), 1)))
				return nil
			},
			eval: func([]*tensor.Tensor) (*tensor.Tensor, error) { return tensor.New(tensor.F32, 6), nil },
		}, "p0 (Probe): output v1: f32[6] was computed, f32[(2*n+1)] is inferred"},
	} {
		_, err := test.it.Run(context.Background(), line(t, test.p), x)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}

func TestStoredConstantsAreUnpackedOnce(t *testing.T) {
	g := ir.NewGraph("g")
	x := g.NewInput("x", ir.Shaped(tensor.F32, 1))
	w := g.NewStored("w", ir.Shaped(tensor.F32, 1), &ir.Store{Format: "ell"})
	add, err := op.New("Add")
	if err != nil {
		t.Fatal(err)
	}
	h := g.NewNode("a", add, []*ir.Value{x, w}, "h")
	y := g.NewNode("b", add, []*ir.Value{h.Outputs[0], w}, "y")
	g.Outputs = y.Outputs
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	in := []*tensor.Tensor{tensor.From([]float32{1}, 1)}
	if _, err := Run(context.Background(), g, in); !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), "a (Add): constant w is stored in format ell") {
		t.Error(err)
	}
	calls := 0
	it := &Interpreter{Unpack: func(v *ir.Value) (*tensor.Tensor, error) {
		calls++
		return tensor.From([]float32{10}, 1), nil
	}}
	out, err := it.Run(context.Background(), g, in)
	if err != nil || calls != 1 || out[0].F32s()[0] != 21 {
		t.Errorf("%v, %d calls, %v", out, calls, err)
	}
}

func TestCancellationStopsARun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	g := line(t,
		&probe{eval: func(in []*tensor.Tensor) (*tensor.Tensor, error) { cancel(); return in[0], nil }},
		&probe{eval: func(in []*tensor.Tensor) (*tensor.Tensor, error) { t.Error("ran on"); return in[0], nil }},
	)
	if _, err := Run(ctx, g, []*tensor.Tensor{tensor.New(tensor.F32, 1)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestCancellationStopsAGraphWithoutNodes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g := ir.NewGraph("g")
	g.Outputs = []*ir.Value{g.NewInput("x", ir.Shaped(tensor.F32, 1))}
	if _, err := Run(ctx, g, []*tensor.Tensor{tensor.New(tensor.F32, 1)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
