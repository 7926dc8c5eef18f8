package fold_test

import (
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/fold"
	"spc/tests/graphtest"
)

func TestLists(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"unbind": {`
graph "g"(%x: f32[batch,3,4]) {
  %one: i64[] = const {1}
  %last: i64[] = const {-1}
  %s: sequence<f32[batch,4]>[3] = SplitToSequence "unbind" (%x) {axis = 1, keepdims = 0}
  %b: f32[batch,4] = SequenceAt "b" (%s, %one)
  %c: f32[batch,4] = SequenceAt "c" (%s, %last)
  %y: f32[batch,4] = Sub "y" (%b, %c)
  return %y
}`, `
graph "g"(%x: f32[batch,3,4]) {
  %s/0: f32[batch,1,4], %s/1: f32[batch,1,4], %s/2: f32[batch,1,4] = Split "unbind/split" (%x) {axis = 1, num_outputs = 3}
  %s/1/axes: i64[1] = const {1}
  %s/1/squeezed: f32[batch,4] = Squeeze "unbind/1/squeeze" (%s/1, %s/1/axes)
  %s/2/axes: i64[1] = const {1}
  %s/2/squeezed: f32[batch,4] = Squeeze "unbind/2/squeeze" (%s/2, %s/2/axes)
  %y: f32[batch,4] = Sub "y" (%s/1/squeezed, %s/2/squeezed)
  return %y
}`},
		"a few of many pieces are slices": {`
graph "g"(%x: f32[7,batch]) {
  %two: i64[] = const {2}
  %at: i64[] = const {3}
  %s: sequence<f32[?,batch]>[4] = SplitToSequence "split" (%x, %two) {axis = -2}
  %y: f32[1,batch] = SequenceAt "y" (%s, %at)
  return %y
}`, `
graph "g"(%x: f32[7,batch]) {
  %s/3/from: i64[1] = const {6}
  %s/3/to: i64[1] = const {7}
  %s/3/axis: i64[1] = const {-2}
  %s/3: f32[1,batch] = Slice "split/3" (%x, %s/3/from, %s/3/to, %s/3/axis)
  return %s/3 as "y"
}`},
		"pieces of several sizes, joined in another order": {`
graph "g"(%x: f32[5]) {
  %sizes: i64[2] = const {2, 3}
  %zero: i64[] = const {0}
  %s: sequence<f32[?]>[2] = SplitToSequence "split" (%x, %sizes)
  %head: f32[?1] = SequenceAt "head" (%s, %zero)
  %rest: sequence<f32[?]>[1] = SequenceErase "erase" (%s, %zero)
  %turned: sequence<f32[?]>[2] = SequenceInsert "insert" (%rest, %head)
  %y: f32[?2] = ConcatFromSequence "join" (%turned) {axis = 0}
  return %y
}`, `
graph "g"(%x: f32[5]) {
  %s/sizes: i64[2] = const {2, 3}
  %s/0: f32[2], %s/1: f32[3] = Split "split/split" (%x, %s/sizes)
  %y/concat: f32[5] = Concat "join/concat" (%s/1, %s/0)
  return %y/concat as "y"
}`},
		"a map over what another gives": {`
graph "g"(%x: f32[2,b]) {
  %s: sequence<f32[1,b]>[2] = SplitToSequence "split" (%x) {axis = 0}
  %m: sequence<f32[1,b]>[2] = SequenceMap "first" (%s) {body = graph ""(%e: f32[1,b]) {
    %n: f32[1,b] = Neg "neg" (%e)
    return %n
  }}
  %t: sequence<f32[1,b]>[2] = SequenceMap "second" (%s, %m) {body = graph ""(%f: f32[1,b], %h: f32[1,b]) {
    %o: f32[1,b] = Sub "sub" (%f, %h)
    return %o
  }}
  %y: f32[2,b] = ConcatFromSequence "join" (%t) {axis = 0}
  return %y
}`, `
graph "g"(%x: f32[2,b]) {
  %s/0: f32[1,b], %s/1: f32[1,b] = Split "split/split" (%x) {num_outputs = 2}
  %n/0: f32[1,b] = Neg "neg/0" (%s/0)
  %n/1: f32[1,b] = Neg "neg/1" (%s/1)
  %o/0: f32[1,b] = Sub "sub/0" (%s/0, %n/0)
  %o/1: f32[1,b] = Sub "sub/1" (%s/1, %n/1)
  %y/concat: f32[2,b] = Concat "join/concat" (%o/0, %o/1)
  return %y/concat as "y"
}`},
		"a stack": {`
graph "g"(%a: f32[2,b], %c: f32[2,b]) {
  %front: i64[] = const {-2}
  %e: sequence<f32[*]>[0] = SequenceEmpty "empty" ()
  %s: sequence<f32[2,b]>[1] = SequenceInsert "first" (%e, %a)
  %t: sequence<f32[2,b]>[2] = SequenceInsert "second" (%s, %c)
  %u: sequence<f32[2,b]>[3] = SequenceInsert "front" (%t, %c, %front)
  %y: f32[2,b,3] = ConcatFromSequence "stack" (%u) {axis = -1, new_axis = 1}
  return %y
}`, `
graph "g"(%a: f32[2,b], %c: f32[2,b]) {
  %y/0/axes: i64[1] = const {-1}
  %y/0: f32[2,b,1] = Unsqueeze "stack/0" (%c, %y/0/axes)
  %y/1/axes: i64[1] = const {-1}
  %y/1: f32[2,b,1] = Unsqueeze "stack/1" (%a, %y/1/axes)
  %y/2/axes: i64[1] = const {-1}
  %y/2: f32[2,b,1] = Unsqueeze "stack/2" (%c, %y/2/axes)
  %y/concat: f32[2,b,3] = Concat "stack/concat" (%y/0, %y/1, %y/2) {axis = -1}
  return %y/concat as "y"
}`},
		"optionals, also of sequences": {`
graph "g"(%a: f32[2], %c: f32[3]) {
  %one: i64[] = const {1}
  %s: sequence<f32[?]>[2] = SequenceConstruct "s" (%a, %c)
  %o: optional<sequence<f32[?]>[2]>[1] = Optional "o" (%s)
  %p: optional<sequence<f32[?]>[2]>[1] = Identity "p" (%o)
  %e: sequence<f32[?]>[2] = OptionalGetElement "e" (%p)
  %x: f32[?1] = SequenceAt "x" (%e, %one)
  %y: f32[?1] = OptionalGetElement "y" (%x)
  return %y
}`, `
graph "g"(%a: f32[2], %c: f32[3]) {
  return %c as "y"
}`},
		"in a loop, of what it captures": {`
graph "g"(%x: f32[2,3], %n: i64[]) {
  %zero: i64[] = const {0}
  %yes: bool[] = const {1}
  %s: sequence<f32[1,3]>[2] = SplitToSequence "split" (%x)
  %a: f32[1,3] = SequenceAt "a" (%s, %zero)
  %y: f32[1,3] = Loop "loop" (%n, %yes, %a) {body = graph "body"(%i: i64[], %c: bool[], %acc: f32[1,3]) {
    %one: i64[] = const {1}
    %b: f32[1,3] = SequenceAt "b" (%s, %one)
    %next: f32[1,3] = Add "next" (%acc, %b)
    return %c, %next
  }}
  return %y
}`, `
graph "g"(%x: f32[2,3], %n: i64[]) {
  %s/0: f32[1,3], %s/1: f32[1,3] = Split "split/split" (%x) {num_outputs = 2}
  %yes: bool[] = const {1}
  %y: f32[1,3] = Loop "loop" (%n, %yes, %s/0) {body = graph "body"(%i: i64[], %c: bool[], %acc: f32[1,3]) {
    %next: f32[1,3] = Add "next" (%acc, %s/1)
    return %c, %next
  }}
  return %y
}`},
		"a map": {`
graph "g"(%a: f32[2], %c: f32[3], %w: f32[]) {
  %s: sequence<f32[?]>[2] = SequenceConstruct "s" (%a, %c)
  %m: sequence<f32[?]>[2] = SequenceMap "map" (%s, %w) {body = graph "body"(%e: f32[?1], %f: f32[]) {
    %two: f32[] = const {2.0}
    %g: f32[?1] = Mul "twice" (%e, %two)
    %h: f32[?1] = Add "add" (%g, %f)
    return %h
  }}
  %y: f32[?2] = ConcatFromSequence "join" (%m) {axis = 0}
  return %y
}`, `
graph "g"(%a: f32[2], %c: f32[3], %w: f32[]) {
  %two/0: f32[] = const {2.0}
  %g/0: f32[2] = Mul "twice/0" (%a, %two/0)
  %h/0: f32[2] = Add "add/0" (%g/0, %w)
  %two/1: f32[] = const {2.0}
  %g/1: f32[3] = Mul "twice/1" (%c, %two/1)
  %h/1: f32[3] = Add "add/1" (%g/1, %w)
  %y/concat: f32[5] = Concat "join/concat" (%h/0, %h/1)
  return %y/concat as "y"
}`},
		"a loop that makes a list": {`
graph "g"(%x: f32[4,3]) {
  %n: i64[] = const {2}
  %yes: bool[] = const {1}
  %axes: i64[1] = const {0}
  %s: sequence<f32[*]>[0] = SequenceEmpty "s" ()
  %l: sequence<f32[?,3]>[?1], %k: i64[2] = Loop "loop" (%n, %yes, %s) {body = graph "body"(%i: i64[1], %c: bool[], %acc: sequence<f32[?,3]>[?2]) {
    %one: i64[] = const {1}
    %end: i64[1] = Add "end" (%i, %one)
    %r: f32[?3,3] = Slice "r" (%x, %i, %end, %axes)
    %next: sequence<f32[?,3]>[?4] = SequenceInsert "next" (%acc, %r)
    %go: bool[] = Identity "go" (%c)
    %p: i64[] = Squeeze "p" (%i)
    return %go, %next, %p
  }}
  %at: i64[] = const {1}
  %y: f32[?5,3] = SequenceAt "y" (%l, %at)
  return %y, %k
}`, `
graph "g"(%x: f32[4,3]) {
  %i/0: i64[1] = const {0}
  %p/0: i64[] = Squeeze "p/0" (%i/0)
  %loop/0/0/axes: i64[1] = const {0}
  %loop/0/0: i64[1] = Unsqueeze "loop/0/0" (%p/0, %loop/0/0/axes)
  %i/1: i64[1] = const {1}
  %one/1: i64[] = const {1}
  %end/1: i64[1] = Add "end/1" (%i/1, %one/1)
  %axes: i64[1] = const {0}
  %r/1: f32[1,3] = Slice "r/1" (%x, %i/1, %end/1, %axes)
  %p/1: i64[] = Squeeze "p/1" (%i/1)
  %loop/0/1/axes: i64[1] = const {0}
  %loop/0/1: i64[1] = Unsqueeze "loop/0/1" (%p/1, %loop/0/1/axes)
  %loop/0: i64[2] = Concat "loop/0" (%loop/0/0, %loop/0/1)
  return %r/1 as "y", %loop/0 as "k"
}`},
		"a loop of one round, whatever it says of another": {`
graph "g"(%x: f32[2], %z: bool[]) {
  %n: i64[] = const {1}
  %y: f32[2] = Loop "loop" (%n, _, %x) {body = graph "body"(%i: i64[], %c: bool[], %v: f32[2]) {
    %w: f32[2] = Neg "w" (%v)
    return %z, %w
  }}
  return %y
}`, `
graph "g"(%x: f32[2], %z: bool[]) {
  %w/0: f32[2] = Neg "w/0" (%x)
  return %w/0 as "y"
}`},
		"a loop of no rounds": {`
graph "g"(%x: f32[2], %n: i64[]) {
  %no: bool[] = const {0}
  %y: f32[2] = Loop "loop" (%n, %no, %x) {body = graph "body"(%i: i64[], %c: bool[], %v: f32[2]) {
    %w: f32[2] = Neg "w" (%v)
    return %c, %w
  }}
  %z: f32[2] = Abs "z" (%y)
  return %z
}`, `
graph "g"(%x: f32[2], %n: i64[]) {
  %z: f32[2] = Abs "z" (%x)
  return %z
}`},
		"not a loop that may end early": {`
graph "g"(%x: f32[2], %go: bool[]) {
  %n: i64[] = const {2}
  %s: sequence<f32[2]>[2] = SequenceConstruct "s" (%x, %x)
  %y: f32[2] = Loop "loop" (%n, _, %x) {body = graph "body"(%i: i64[], %c: bool[], %v: f32[2]) {
    %e: f32[2] = SequenceAt "e" (%s, %i)
    %w: f32[2] = Add "w" (%v, %e)
    return %go, %w
  }}
  return %y
}`, ""},
		"not a loop of tensors alone": {`
graph "g"(%x: f32[2]) {
  %n: i64[] = const {2}
  %y: f32[2] = Loop "loop" (%n, _, %x) {body = graph "body"(%i: i64[], %c: bool[], %v: f32[2]) {
    %w: f32[2] = Neg "w" (%v)
    return %c, %w
  }}
  return %y
}`, ""},
		"not a position that is not known": {`
graph "g"(%x: f32[2,3], %at: i64[]) {
  %s: sequence<f32[1,3]>[2] = SplitToSequence "split" (%x)
  %y: f32[1,3] = SequenceAt "y" (%s, %at)
  return %y
}`, ""},
		"not a length that is not known": {`
graph "g"(%x: f32[n,3]) {
  %zero: i64[] = const {0}
  %s: sequence<f32[1,3]>[n] = SplitToSequence "split" (%x)
  %y: f32[1,3] = SequenceAt "y" (%s, %zero)
  return %y
}`, ""},
	} {
		t.Run(name, func(t *testing.T) { graphtest.Rewrite(t, fold.Lists, c.before, c.after) })
	}
}

func TestLengthsAreConstant(t *testing.T) {
	graphtest.Rewrite(t, func(g *ir.Graph) (int, error) {
		n, err := fold.Constants(g)
		return n, err
	}, `
graph "g"(%x: f32[2,3]) {
  %s: sequence<f32[2,1]>[3] = SplitToSequence "split" (%x) {axis = 1}
  %o: optional<f32[2,3]>[1] = Optional "o" (%x)
  %n: i64[] = SequenceLength "n" (%s)
  %h: bool[] = OptionalHasElement "h" (%o)
  return %n, %h
}`, `
graph "g"(%x: f32[2,3]) {
  %n.const: i64[] = const {3}
  %h.const: bool[] = const {1}
  return %n.const as "n", %h.const as "h"
}`)
}

// One piece of a list that is far too long to be made is only that piece.
func TestPiecesOfLongLists(t *testing.T) {
	g := graphtest.Parse(t, `
graph "g"(%x: f32[0,1000000000]) {
  %at: i64[] = const {-2}
  %s: sequence<f32[0]>[1000000000] = SplitToSequence "split" (%x) {axis = 1, keepdims = 0}
  %y: f32[0] = SequenceAt "y" (%s, %at)
  return %y
}`)
	if n, err := fold.Lists(g); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	fold.Dead(g)
	if text := ir.Print(g); strings.Contains(text, "sequence<") || len(text) > 1000 {
		t.Error(text)
	}
}
