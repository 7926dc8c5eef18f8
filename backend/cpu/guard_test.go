package cpu

import (
	"context"
	"strings"
	"testing"

	"spc/internal/debug"
	"spc/ir/tensor"
	"spc/lower/plan"
)

const guarded = `graph "g"(%x: f32[8,8], %more: bool[]) {
  %a: f32[8,8] = Relu "a" (%x)
  %b: f32[8,8] = Softmax "b" (%a)
  %c: f32[8,8] = Transpose "c" (%a)
  %d: f32[8,8] = If "d" (%more) {then_branch = graph "then"() {
    %e: f32[8,8] = Transpose "e" (%b)
    %f: f32[8,8] = MatMul "f" (%e, %b)
    return %f
  }, else_branch = graph "else"() {
    return %b
  }}
  %h: f32[8,8] = MatMul "h" (%b, %c)
  %y: f32[8,8] = Add "y" (%h, %d)
  return %y
}`

// A plan that gives a value memory which another one has still is found out.
func TestWrongPlansOfMemoryAreFound(t *testing.T) {
	t.Setenv(debug.Variable, debug.Memory)
	x := tensor.New(tensor.F32, 8, 8)
	for i := range x.F32s() {
		x.F32s()[i] = float32(i%5) - 1
	}
	in := []*tensor.Tensor{x, tensor.Scalar(true)}
	for _, c := range []struct{ moved, onto, want string }{
		{"", "", ""},
		{"b", "a", "b (Softmax) changed a, which is still read"},
		{"c", "b", "c (Transpose) changed b, which is still read"},
		{"h", "c", "h (MatMul): output h lies over c"},
		{"e", "c", "d (If): e (Transpose) changed c, which is still read"},
		{"f", "b", "d (If): f (MatMul) changed b, which is still read"},
		{"f", "c", "d (If): f (MatMul) changed c, which is still read"},
	} {
		p := load(t, guarded).(*program)
		s, err := p.specialise(in)
		if err != nil {
			t.Fatal(err)
		}
		number := map[string]int{}
		for i, v := range s.plan.Values {
			number[v.Name] = i
		}
		if c.moved != "" {
			moved, onto := s.plan.Root(number[c.moved]), s.plan.Root(number[c.onto])
			if at := s.plan.Values; at[moved].Place != plan.Arena || at[onto].Place != plan.Arena || moved == onto {
				t.Fatalf("%s and %s have no memory of their own in the arena", c.moved, c.onto)
			}
			s.plan.Values[moved].Offset = s.plan.Values[onto].Offset
		}
		got := ""
		if err := s.run(context.Background(), in, make([]*tensor.Tensor, 1), nil); err != nil {
			got = err.Error()
		}
		if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s where %s is: %q, want %q", c.moved, c.onto, got, c.want)
		}
	}
}

// What a step leaves in memory that no value has is not what the next one finds.
func TestMemoryWithoutAValueIsPoisoned(t *testing.T) {
	t.Setenv(debug.Variable, debug.Memory)
	p := load(t, guarded).(*program)
	in := []*tensor.Tensor{tensor.New(tensor.F32, 8, 8), tensor.Scalar(false)}
	s, err := p.specialise(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.run(context.Background(), in, make([]*tensor.Tensor, 1), nil); err != nil {
		t.Fatal(err)
	}
	x := p.idle.list[0].(*exec)
	y := s.plan.Values[s.plan.Root(s.plan.Number[s.plan.Graph.Outputs[0]])]
	for i, b := range x.arena {
		if value := i >= y.Offset && i < y.Offset+8*8*4; !value && b != poison {
			t.Fatalf("byte %d of the arena is %#x", i, b)
		}
	}
}
