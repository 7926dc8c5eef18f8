package faults

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"spc"
	_ "spc/internal/debug/all"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// listModels take %x f32[n,2], %at and %count i64[], %yes bool[], a sequence %s and an
// optional %o of f32[?,2], and give outputs whose lists are known at run time only. What
// Exp computes lies in memory that is used again.
var listModels = map[string]string{
	"elements outlive what they were cut from": `
  %e: f32[*] = Exp "e" (%x)
  %l: f32[*] = SequenceInsert "l" (%s, %e, %at)
  %f: f32[*] = Tanh "f" (%e)
  %g: f32[*] = Sin "g" (%f)
  %h: f32[*] = Add "h" (%f, %g)
  %first: i64[] = const {0}
  %k: f32[*] = SequenceAt "k" (%l, %first)
  %i: f32[*] = Neg "i" (%k)
  %y: f32[*] = ConcatFromSequence "y" (%l) {axis = 0}
  return %y, %h, %l, %i`,
	"elements of an input": `
  %t: f32[*] = SequenceInsert "t" (%s, %x)
  %y: f32[*] = SequenceAt "y" (%t, %at)
  %z: f32[*] = Exp "z" (%y)
  %first: i64[] = const {0}
  %k: f32[*] = SequenceAt "k" (%t, %first)
  %l: f32[*] = Neg "l" (%k)
  return %z, %l`,
	"a loop that collects": `
  %none: f32[*] = SequenceEmpty "none" ()
  %y: f32[*], %acc: f32[*], %stack: f32[*] = Loop "loop" (%count, _, %none, %x) {body = graph "body"(%i: i64[], %go: bool[], %l: f32[*], %v: f32[*]) {
    %e: f32[*] = Tanh "e" (%v)
    %m: f32[*] = SequenceInsert "m" (%l, %e, %at)
    %w: f32[*] = Sin "w" (%e)
    return %go, %m, %w, %w
  }}
  %n: f32[*] = SequenceLength "n" (%y)
  return %y, %acc, %stack, %n`,
	"a loop over a sequence": `
  %n: f32[*] = SequenceLength "n" (%s)
  %two: f32[*] = Exp "two" (%x)
  %y: f32[*] = Loop "loop" (%n, _, %two) {body = graph "body"(%i: i64[], %go: bool[], %v: f32[*]) {
    %e: f32[*] = SequenceAt "e" (%s, %i)
    %m: f32[*] = Concat "m" (%v, %e) {axis = 0}
    return %go, %m
  }}
  return %y`,
	"a loop that erases": `
  %y: f32[*] = Loop "loop" (%count, %yes, %s) {body = graph "body"(%i: i64[], %go: bool[], %l: f32[*]) {
    %n: f32[*] = SequenceLength "n" (%l)
    %zero: i64[] = const {0}
    %some: f32[*] = Greater "some" (%n, %zero)
    %m: f32[*] = If "if" (%some) {then_branch = graph "t"() {
      %r: f32[*] = SequenceErase "r" (%l)
      return %r
    }, else_branch = graph "e"() {
      return %l
    }}
    return %go, %m
  }}
  %z: f32[*] = Identity "z" (%y)
  return %z`,
	"a branch": `
  %e: f32[*] = Exp "e" (%x)
  %y: f32[*], %p: f32[*] = If "if" (%yes) {then_branch = graph "t"() {
    %c: f32[*] = SequenceConstruct "c" (%e, %x)
    %q: f32[*] = Optional "q" (%e)
    return %c, %q
  }, else_branch = graph "f"() {
    %d: f32[*] = SequenceInsert "d" (%s, %e)
    return %d, %o
  }}
  %f: f32[*] = Neg "f" (%e)
  %h: f32[*] = OptionalHasElement "h" (%p)
  return %y, %p, %f, %h`,
	"an optional": `
  %h: f32[*] = OptionalHasElement "h" (%o)
  %y: f32[*] = If "if" (%h) {then_branch = graph "t"() {
    %e: f32[*] = OptionalGetElement "e" (%o)
    return %e
  }, else_branch = graph "f"() {
    return %x
  }}
  %z: f32[*] = Exp "z" (%y)
  return %z, %o`,
	"a map": `
  %e: f32[*] = Exp "e" (%x)
  %y: f32[*], %z: f32[*] = SequenceMap "map" (%s, %e, %s) {body = graph "body"(%a: f32[*], %b: f32[*], %c: f32[*]) {
    %t: f32[*] = Tanh "t" (%a)
    %u: f32[*] = Add "u" (%t, %c)
    %d: f32[*] = Concat "d" (%u, %b, %e) {axis = 0}
    return %d, %t
  }}
  return %y, %z`,
	"a split by sizes that are data": `
  %e: f32[*] = Exp "e" (%x)
  %l: f32[*] = SplitToSequence "l" (%e, %count)
  %f: f32[*] = Neg "f" (%e)
  %y: f32[*] = SequenceAt "y" (%l, %at)
  %z: f32[*] = Abs "z" (%y)
  return %l, %z, %f`,
}

// Lists that are known at run time only are what the interpreter computes, on one program
// for inputs of other lengths, whichever tensors the outputs are put into.
func TestLists(t *testing.T) {
	for name, text := range listModels {
		t.Run(name, func(t *testing.T) {
			file := graphtest.ONNX(t, `graph "g"(%x: f32[n,2], %at: i64[], %count: i64[], %yes: bool[], %s: sequence<f32[?,2]>[?1], %o: optional<f32[?,2]>[?2]) {`+text+"\n}")
			m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Debug: spc.DebugOptions{Verify: true}})
			if err != nil {
				t.Fatal(err)
			}
			var saved bytes.Buffer
			if err := m.Write(&saved); err != nil {
				t.Fatal(err)
			}
			if m, err = spc.Read(saved.Bytes(), spc.RunOptions{}); err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			states := map[string]*tensor.Tensor{}
			for round := range 48 {
				in := listInputs(round)
				want, err := m.Interpret(context.Background(), in)
				if err != nil {
					t.Fatal(err)
				}
				have, err := m.Run(context.Background(), in)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if err := m.RunInto(context.Background(), in, states); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				for name, w := range want {
					if !near(have[name], w) || !near(states[name], w) {
						t.Errorf("round %d: output %s is %v and %v, want %v", round, name, have[name], states[name], w)
					}
				}
				for name, x := range listInputs(round) {
					if !x.Equal(in[name]) {
						t.Errorf("round %d: input %s was written to", round, name)
					}
				}
				for name, y := range have {
					for _, x := range in {
						if y.Overlaps(x) {
							t.Errorf("round %d: output %s is memory of an input", round, name)
						}
					}
				}
			}
		})
	}
}

// near reports whether two tensors or lists are equal but for rounding.
func near(a, b *tensor.Tensor) bool {
	if a == nil || a.DType() != b.DType() || fmt.Sprint(a) != fmt.Sprint(b) {
		return false
	}
	if a.DType().IsList() {
		for i, e := range a.Items() {
			if !near(e, b.Items()[i]) {
				return false
			}
		}
		return true
	}
	if a.DType() != tensor.F32 {
		return a.Equal(b)
	}
	for i, v := range a.F32s() {
		if d := v - b.F32s()[i]; !(d <= 1e-4 && d >= -1e-4) && v != b.F32s()[i] {
			return false
		}
	}
	return true
}

// listInputs returns inputs of other lengths in each round, and in every other one of the
// same lengths as in the one before, but with elements of other shapes.
func listInputs(round int) map[string]*tensor.Tensor {
	longer := round % 2
	round /= 2
	rows := func(n int, from float32) *tensor.Tensor {
		x := tensor.New(tensor.F32, n, 2)
		for i := range x.F32s() {
			x.F32s()[i] = from + float32(i)/8
		}
		return x
	}
	var items []*tensor.Tensor
	for i := range round % 4 {
		items = append(items, rows(1+longer+(i+round)%3, float32(i)))
	}
	var there *tensor.Tensor
	if round%3 > 0 {
		there = rows(round%3, -1)
	}
	return map[string]*tensor.Tensor{
		"x":     rows(1+round%5, 0.5),
		"at":    tensor.Scalar(int64(0)),
		"count": tensor.Scalar(int64(1 + round%3)),
		"yes":   tensor.Scalar(round%2 == 0),
		"s":     tensor.NewSequence(tensor.F32, items...),
		"o":     tensor.NewOptional(tensor.F32, there),
	}
}

// A position that is none is an error of one line that names the node and the positions.
func TestBadPositionsAtRunTime(t *testing.T) {
	for node, want := range map[string]string{
		`%y: f32[*] = SequenceAt "pick" (%s, %at)`:              "pick (SequenceAt): position 5 of a sequence of 2, want -2 to 1",
		`%y: f32[*] = SequenceErase "drop" (%s, %at)`:           "drop (SequenceErase): position 5 of a sequence of 2, want -2 to 1",
		`%y: f32[*] = SequenceInsert "put" (%s, %x, %at)`:       "put (SequenceInsert): position 5 of a sequence of 2, want -2 to 2",
		`%y: f32[*] = ConcatFromSequence "cat" (%s) {axis = 0}`: "cat (ConcatFromSequence): element 1 is f32[2,2], ",
	} {
		file := graphtest.ONNX(t, `graph "g"(%x: f32[2], %at: i64[], %s: sequence<f32[*]>[?1]) { `+node+` return %y }`)
		m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file})
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, 2), "at": tensor.Scalar(int64(5)),
			"s": tensor.NewSequence(tensor.F32, tensor.New(tensor.F32, 2), tensor.New(tensor.F32, 2, 2))}
		for _, run := range []func(context.Context, map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error){m.Run, m.Interpret} {
			_, err := run(context.Background(), in)
			if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %s", err, want)
			}
		}
		m.Close()
	}
}

// A loop of no iterations gives what it takes, also where its body fits neither that nor, in
// a run, the elements of a sequence.
func TestLoopsOfNoIterations(t *testing.T) {
	file := graphtest.ONNX(t, `graph "g"(%x: f32[2,1], %s: sequence<f32[*]>[?1]) {
  %none: i64[] = const {0}
  %w: f32[3,4] = const {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
  %e: f32[2,1] = Exp "e" (%x)
  %y: f32[*] = Loop "at" (%none, _, %e) {body = graph "a"(%i: i64[], %c: bool[], %v: f32[*]) {
    %k: f32[*] = SequenceAt "k" (%s, %i)
    %a: f32[*] = Add "add" (%v, %k)
    return %c, %a
  }}
  %z: f32[*] = Loop "join" (%none, _, %e) {body = graph "b"(%j: i64[], %d: bool[], %u: f32[*]) {
    %f: f32[*] = Concat "f" (%u, %w) {axis = 0}
    return %d, %f
  }}
  %n: f32[*] = Neg "n" (%e)
  return %y, %z, %n
}`)
	for _, disable := range [][]string{nil, {"fold", "lists"}} {
		m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Debug: spc.DebugOptions{Verify: true, Disable: disable}})
		if err != nil {
			t.Fatal(err)
		}
		var saved bytes.Buffer
		if err := m.Write(&saved); err != nil {
			t.Fatal(err)
		}
		if m, err = spc.Read(saved.Bytes(), spc.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		in := map[string]*tensor.Tensor{"x": tensor.From([]float32{0, 1}, 2, 1), "s": tensor.NewSequence(tensor.F32, tensor.New(tensor.F32, 4, 3))}
		want := tensor.From([]float32{1, 2.7182817}, 2, 1)
		for range 2 {
			got, err := m.Run(context.Background(), in)
			if err != nil {
				t.Fatal(err)
			}
			if !near(got["y"], want) || !near(got["z"], want) || got["n"].F32s()[0] != -1 {
				t.Errorf("without %v: %v", disable, got)
			}
		}
		m.Close()
	}
}

// A body that does not fit a run's shapes is an error where it runs, and nothing where it
// does not: how often is known at run time only.
func TestBodiesThatDoNotRunNeedNotFit(t *testing.T) {
	file := graphtest.ONNX(t, `graph "g"(%n: i64[], %x: f32[A,B], %l: i64[1], %e: f32[C,D]) {
  %y: f32[*], %all: f32[*], %least: f32[*] = Loop "loop" (%n, _, %x) {body = graph "a"(%i: i64[], %c: bool[], %v: f32[*]) {
    %flat: f32[*] = Reshape "flat" (%v, %l)
    %s: f32[*], %rows: f32[*] = Scan "scan" (%flat, %x) {body = graph "b"(%p: f32[*], %q: f32[*]) {
      %m: f32[*] = Min "min" (%p, %q)
      %r: f32[*] = Neg "neg" (%q)
      return %m, %r
    }, num_scan_inputs = 1}
    %h: f32[*] = ReduceMin "h" (%s) {keepdims = 0}
    return %c, %rows, %rows, %h
  }}
  %ax: i64[1] = const {0}
  %k: f32[*] = ReduceSum "sum" (%x, %ax) {keepdims = 0}
  %z: f32[*], %each: f32[*] = Scan "last" (%k, %e) {body = graph "d"(%t: f32[*], %u: f32[*]) {
    %w: f32[*] = Max "max" (%t, %u)
    return %w, %u
  }, num_scan_inputs = 1}
  return %y, %all, %least, %z, %each
}`)
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Debug: spc.DebugOptions{Verify: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range []struct {
		iterations int64
		x, e       []int
		flat       int64
		want       string // of the error
	}{
		{1, []int{1, 3}, []int{2, 3}, 3, ""},
		{0, []int{2, 3}, []int{0, 3}, 6, ""},
		{1, []int{2, 3}, []int{0, 3}, 6, "min (Min): shapes f32[6] and f32[3] do not broadcast"},
		{0, []int{2, 3}, []int{0, 2}, 1, ""},
		{0, []int{2, 3}, []int{1, 2}, 1, "max (Max): shapes f32[3] and f32[2] do not broadcast"},
	} {
		in := map[string]*tensor.Tensor{"n": tensor.Scalar(c.iterations), "x": tensor.New(tensor.F32, c.x...),
			"l": tensor.From([]int64{c.flat}, 1), "e": tensor.New(tensor.F32, c.e...)}
		want, err := m.Interpret(context.Background(), in)
		if (err == nil) != (c.want == "") {
			t.Fatalf("%v: the interpreter gives %v", c, err)
		}
		for range 2 {
			got, err := m.Run(context.Background(), in)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
				t.Errorf("%v: error %v, want %s", c, err, c.want)
			}
			for name, w := range want {
				if err == nil && !got[name].Equal(w) {
					t.Errorf("%v: %s is %v, want %v", c, name, got[name], w)
				}
			}
		}
	}
}

// What a refused branch reads is not written over before: the plan of the memory, which runs
// check here, knows of it.
func TestRefusedBranchesReadToo(t *testing.T) {
	file := graphtest.ONNX(t, `graph "g"(%x: f32[A,B], %c: bool[]) {
  %e: f32[*] = Exp "e" (%x)
  %f: f32[*] = Softmax "f" (%e) {axis = 1}
  %h: f32[*] = ReduceSum "h" (%f)
  %first: i64[1] = const {0}
  %y: f32[*] = If "if" (%c) {then_branch = graph "a"() {
    %s: f32[*] = Squeeze "s" (%e, %first)
    return %s
  }, else_branch = graph "b"() {
    %r: f32[*] = Relu "r" (%f)
    return %r
  }}
  return %h, %y
}`)
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: file, Debug: spc.DebugOptions{Verify: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x := tensor.From([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	for _, c := range []bool{false, true, false} {
		in := map[string]*tensor.Tensor{"x": x, "c": tensor.Scalar(c)}
		want, wrong := m.Interpret(context.Background(), in)
		got, err := m.Run(context.Background(), in)
		if c != (wrong != nil) || c != (err != nil) || c && !strings.HasPrefix(err.Error(), "s (Squeeze): dimension 0 of [2 3] is squeezed") {
			t.Fatalf("%v: errors %v and %v", c, err, wrong)
		}
		if !c && (!near(got["h"], want["h"]) || !near(got["y"], want["y"])) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
