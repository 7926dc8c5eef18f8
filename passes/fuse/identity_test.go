package fuse_test

import (
	"testing"

	"spc/ir"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

// rewrite is a graph before a pass and after it, which is empty where the pass must
// not change anything.
type rewrite struct{ before, after string }

func check(t *testing.T, pass graphtest.Pass, cases map[string]rewrite) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { graphtest.Rewrite(t, pass, c.before, c.after) })
	}
}

func TestIdentities(t *testing.T) {
	check(t, fuse.Identities, map[string]rewrite{
		"what returns its input, outputs keeping their names": {`
graph "g"(%x: f32[batch,3]) {
  %i: f32[batch,3] = Identity "identity" (%x)
  %d: f32[batch,3] = Dropout "dropout" (%i)
  %c: f32[batch,3] = Cast "cast" (%d) {to = 1}
  %r: f32[batch,3] = Relu "relu" (%c)
  %j: f32[batch,3] = Identity "j" (%r)
  return %i, %r, %j
}`, `
graph "g"(%x: f32[batch,3]) {
  %r: f32[batch,3] = Relu "relu" (%x)
  return %x as "i", %r, %r as "j"
}`},
		"a sum of two is an Add, of three not": {`
graph "g"(%x: f32[2,3], %y: f32[3]) {
  %a: f32[2,3] = Sum "a" (%x, %y)
  %b: f32[2,3] = Sum "b" (%x, %y, %a)
  return %a, %b
}`, `
graph "g"(%x: f32[2,3], %y: f32[3]) {
  %a: f32[2,3] = Add "a" (%x, %y)
  %b: f32[2,3] = Sum "b" (%x, %y, %a)
  return %a, %b
}`},
		"whole exponents": {`
graph "g"(%x: f32[3], %d: f64[3]) {
  %e: i64[3] = const {2, -3, 16777216}
  %long: i64[] = const {16777217}
  %y: f32[3] = Pow "y" (%x, %e)
  %z: f32[3] = Pow "z" (%x, %long)
  %w: f64[3] = Pow "w" (%d, %e)
  return %y, %z, %w
}`, `
graph "g"(%x: f32[3], %d: f64[3]) {
  %e.float: f32[3] = const {2.0, -3.0, 1.6777216e+07}
  %y: f32[3] = Pow "y" (%x, %e.float)
  %long: i64[] = const {16777217}
  %z: f32[3] = Pow "z" (%x, %long)
  %e: i64[3] = const {2, -3, 16777216}
  %w: f64[3] = Pow "w" (%d, %e)
  return %y, %z, %w
}`},
		"a sum between reshapes of axes that the other has in part": {`
graph "g"(%x: f32[6,2,5], %m: f32[3,1,5]) {
  %wide: i64[4] = const {2, 3, 2, 5}
  %back: i64[3] = const {6, 2, 5}
  %y: f32[2,3,2,5] = Reshape "wide" (%x, %wide)
  %z: f32[2,3,2,5] = Add "add" (%m, %y)
  %r: f32[6,2,5] = Reshape "back" (%z, %back)
  %n: f32[6,2,5] = Neg "neg" (%r)
  return %n
}`, ""},
		"a sum between reshapes of axes that the other has": {`
graph "g"(%x: f32[6,2,5], %m: f32[2,3,1,5]) {
  %wide: i64[4] = const {2, 3, 2, 5}
  %back: i64[3] = const {6, 2, 5}
  %y: f32[2,3,2,5] = Reshape "wide" (%x, %wide)
  %z: f32[2,3,2,5] = Add "add" (%m, %y)
  %r: f32[6,2,5] = Reshape "back" (%z, %back)
  %n: f32[6,2,5] = Neg "neg" (%r)
  return %n
}`, `
graph "g"(%x: f32[6,2,5], %m: f32[2,3,1,5]) {
  %add.other.shape: i64[3] = const {6, 1, 5}
  %add.other.out: f32[6,1,5] = Reshape "add.other" (%m, %add.other.shape)
  %z: f32[6,2,5] = Add "add" (%add.other.out, %x)
  %n: f32[6,2,5] = Neg "neg" (%z)
  return %n
}`},
		"what is repeated anyway": {`
graph "g"(%x: f32[batch,2,5], %m: f32[1,5], %s: i64[3]) {
  %shape: i64[3] = Shape "shape" (%x)
  %e: f32[batch,2,5] = Expand "expand" (%m, %shape)
  %y: f32[batch,2,5] = Div "div" (%x, %e)
  return %y
}`, `
graph "g"(%x: f32[batch,2,5], %m: f32[1,5], %s: i64[3]) {
  %y: f32[batch,2,5] = Div "div" (%x, %m)
  return %y
}`},
		"what is repeated further than by the other operand": {`
graph "g"(%x: f32[1,5], %m: f32[1,5]) {
  %shape: i64[2] = const {3, 5}
  %e: f32[3,5] = Expand "expand" (%m, %shape)
  %y: f32[3,5] = Div "div" (%x, %e)
  return %y
}`, ""},
		"dropout in training": {`
graph "g"(%x: f32[8]) {
  %ratio: f32[] = const {0.5}
  %training: bool[] = const {1}
  %y: f32[8] = Dropout "dropout" (%x, %ratio, %training)
  return %y
}`, ""},
		"dropout that says not to train": {`
graph "g"(%x: f32[8]) {
  %ratio: f32[] = const {0.5}
  %training: bool[] = const {0}
  %y: f32[8] = Dropout "dropout" (%x, %ratio, %training)
  %z: f32[8] = Neg "neg" (%y)
  return %z
}`, `
graph "g"(%x: f32[8]) {
  %z: f32[8] = Neg "neg" (%x)
  return %z
}`},
		"dropout that trains and drops nothing": {`
graph "g"(%x: f32[8]) {
  %ratio: f32[] = const {0}
  %training: bool[] = const {1}
  %y: f32[8] = Dropout "dropout" (%x, %ratio, %training)
  %z: f32[8] = Neg "neg" (%y)
  return %z
}`, `
graph "g"(%x: f32[8]) {
  %z: f32[8] = Neg "neg" (%x)
  return %z
}`},
		"dropout whose mask is read": {`
graph "g"(%x: f32[8]) {
  %y: f32[8], %mask: bool[8] = Dropout "dropout" (%x)
  return %y, %mask
}`, ""},
		"dropouts whose masks are read": {`
graph "g"(%x: f32[8]) {
  %y: f32[8], %mask: bool[8] = Dropout "dropout" (%x)
  %z: f32[8], %more: bool[8] = Dropout "second" (%y)
  return %z, %mask, %more
}`, ""},
		"slices along different axes": {`
graph "g"(%x: f32[2,6,8]) {
  %s: i64[1] = const {1}
  %e: i64[1] = const {9}
  %last: i64[1] = const {-1}
  %two: i64[1] = const {2}
  %a: f32[2,5,8] = Slice "rows" (%x, %s, %e, %s)
  %y: f32[2,5,4] = Slice "cols" (%a, %s, %e, %last, %two)
  return %y, %a
}`, `
graph "g"(%x: f32[2,6,8]) {
  %s: i64[1] = const {1}
  %e: i64[1] = const {9}
  %a: f32[2,5,8] = Slice "rows" (%x, %s, %e, %s)
  %cols.starts: i64[2] = const {1, 1}
  %cols.ends: i64[2] = const {9, 9}
  %cols.axes: i64[2] = const {1, 2}
  %cols.steps: i64[2] = const {1, 2}
  %y: f32[2,5,4] = Slice "cols" (%x, %cols.starts, %cols.ends, %cols.axes, %cols.steps)
  return %y, %a
}`},
		"slices along one axis": {`
graph "g"(%x: f32[2,6,8]) {
  %s: i64[1] = const {1}
  %e: i64[1] = const {9}
  %one: i64[1] = const {-2}
  %a: f32[2,5,8] = Slice "first" (%x, %s, %e, %s)
  %y: f32[2,4,8] = Slice "second" (%a, %s, %e, %one)
  return %y
}`, ""},
		"a cast to another type": {`
graph "g"(%x: f32[8]) {
  %y: f64[8] = Cast "cast" (%x) {to = 11}
  return %y
}`, ""},
		"reshapes to the same shape": {`
graph "g"(%x: f32[batch,3]) {
  %s: i64[2] = const {-1, 3}
  %y: f32[batch,3] = Reshape "reshape" (%x, %s)
  %ones: i64[2] = const {1, 1}
  %z: f32[batch,3] = Expand "expand" (%y, %ones)
  %u: f32[batch,3] = Tile "tile" (%z, %ones)
  %f: f32[batch,3] = Flatten "flatten" (%u)
  %v: f32[batch,3] = Concat "concat" (%f) {axis = 1}
  %w: f32[batch,3] = Max "max" (%v)
  %r: f32[batch,3] = Relu "relu" (%w)
  return %r
}`, `
graph "g"(%x: f32[batch,3]) {
  %r: f32[batch,3] = Relu "relu" (%x)
  return %r
}`},
		"a reshape to an unknown shape": {`
graph "g"(%x: f32[?1,3], %s: i64[2]) {
  %y: f32[?2,?3] = Reshape "reshape" (%x, %s)
  %e: f32[?4,3] = Expand "expand" (%x, %s)
  return %e
}`, ""},
		"an expansion": {`
graph "g"(%x: f32[1,3]) {
  %s: i64[2] = const {2, 1}
  %y: f32[2,3] = Expand "expand" (%x, %s)
  return %y
}`, ""},
		"a slice of everything": {`
graph "g"(%x: f32[batch,3]) {
  %s: i64[1] = const {0}
  %e: i64[1] = const {9}
  %a: i64[1] = const {1}
  %y: f32[batch,3] = Slice "slice" (%x, %s, %e, %a)
  %r: f32[batch,3] = Relu "relu" (%y)
  return %r
}`, `
graph "g"(%x: f32[batch,3]) {
  %r: f32[batch,3] = Relu "relu" (%x)
  return %r
}`},
		"a reversal": {`
graph "g"(%x: f32[4]) {
  %s: i64[1] = const {3}
  %e: i64[1] = const {-5}
  %a: i64[1] = const {0}
  %step: i64[1] = const {-1}
  %y: f32[4] = Slice "slice" (%x, %s, %e, %a, %step)
  return %y
}`, ""},
		"padding by nothing": {`
graph "g"(%x: f32[2,3]) {
  %p: i64[4] = const {0, 0, 0, 0}
  %y: f32[2,3] = Pad "pad" (%x, %p)
  %r: f32[2,3] = Relu "relu" (%y)
  return %r
}`, `
graph "g"(%x: f32[2,3]) {
  %r: f32[2,3] = Relu "relu" (%x)
  return %r
}`},
		"padding that shifts": {`
graph "g"(%x: f32[2,3]) {
  %p: i64[4] = const {0, 1, 0, -1}
  %y: f32[2,3] = Pad "pad" (%x, %p)
  return %y
}`, ""},
		"neutral constants on either side": {`
graph "g"(%x: f32[batch,3]) {
  %zero: f32[] = const {0.0}
  %zeros: f32[3] = const {0.0, 0.0, 0.0}
  %one: f32[1] = const {1.0}
  %a: f32[batch,3] = Add "a" (%x, %zeros)
  %b: f32[batch,3] = Add "b" (%zero, %a)
  %c: f32[batch,3] = Sub "c" (%b, %zero)
  %d: f32[batch,3] = Mul "d" (%one, %c)
  %e: f32[batch,3] = Mul "e" (%d, %one)
  %f: f32[batch,3] = Div "f" (%e, %one)
  %p: f32[batch,3] = Pow "p" (%f, %one)
  %r: f32[batch,3] = Relu "relu" (%p)
  return %r
}`, `
graph "g"(%x: f32[batch,3]) {
  %r: f32[batch,3] = Relu "relu" (%x)
  return %r
}`},
		"neutral integers": {`
graph "g"(%x: i64[2]) {
  %zero: i64[] = const {0}
  %one: i64[] = const {1}
  %a: i64[2] = Add "a" (%x, %zero)
  %b: i64[2] = Mul "b" (%a, %one)
  %r: i64[2] = Neg "neg" (%b)
  return %r
}`, `
graph "g"(%x: i64[2]) {
  %r: i64[2] = Neg "neg" (%x)
  return %r
}`},
		"constants on the side where they are not neutral": {`
graph "g"(%x: f32[3]) {
  %zero: f32[] = const {0.0}
  %one: f32[] = const {1.0}
  %a: f32[3] = Sub "a" (%zero, %x)
  %b: f32[3] = Div "b" (%one, %a)
  %c: f32[3] = Pow "c" (%one, %b)
  return %c
}`, ""},
		"constants that broadcast": {`
graph "g"(%x: f32[3], %s: f32[]) {
  %zeros: f32[2,3] = const {0.0, 0.0, 0.0, 0.0, 0.0, 0.0}
  %one: f32[1,1] = const {1.0}
  %a: f32[2,3] = Add "a" (%x, %zeros)
  %b: f32[1,3] = Mul "b" (%x, %one)
  %c: f32[1,1] = Mul "c" (%s, %one)
  return %a, %b, %c
}`, ""},
		"an unknown dimension that is the same": {`
graph "g"(%x: f32[?1,3]) {
  %zeros: f32[3] = const {0.0, 0.0, 0.0}
  %a: f32[?1,3] = Add "a" (%x, %zeros)
  %r: f32[?1,3] = Relu "r" (%a)
  return %r
}`, `
graph "g"(%x: f32[?1,3]) {
  %r: f32[?1,3] = Relu "r" (%x)
  return %r
}`},
		"dimensions that are not known": {`
graph "g"(%x: f32[?1,3], %u: f32[*]) {
  %zeros: f32[2,3] = const {0.0, 0.0, 0.0, 0.0, 0.0, 0.0}
  %a: f32[2,3] = Add "a" (%x, %zeros)
  return %a
}`, ""},
		"in a subgraph, down to a captured value": {`
graph "g"(%x: f32[3], %c: bool[]) {
  %a: f32[3] = Neg "neg" (%x)
  %y: f32[3] = If "if" (%c) {then_branch = graph "t"() {
    %b: f32[3] = Identity "b" (%a)
    return %b
  }, else_branch = graph "e"() {
    %d: f32[3] = Identity "d" (%x)
    %r: f32[3] = Relu "r" (%d)
    return %r
  }}
  return %y
}`, `
graph "g"(%x: f32[3], %c: bool[]) {
  %a: f32[3] = Neg "neg" (%x)
  %y: f32[3] = If "if" (%c) {then_branch = graph "t"() {
    return %a
  }, else_branch = graph "e"() {
    %r: f32[3] = Relu "r" (%x)
    return %r
  }}
  return %y
}`},
		"an identity whose output a subgraph captures and returns": {`
graph "g"(%x: f32[3], %c: bool[]) {
  %a: f32[3] = Identity "a" (%x)
  %y: f32[3] = If "if" (%c) {then_branch = graph "t"() {
    return %a
  }, else_branch = graph "e"() {
    %r: f32[3] = Relu "r" (%a)
    return %r
  }}
  return %y
}`, `
graph "g"(%x: f32[3], %c: bool[]) {
  %y: f32[3] = If "if" (%c) {then_branch = graph "t"() {
    return %x
  }, else_branch = graph "e"() {
    %r: f32[3] = Relu "r" (%x)
    return %r
  }}
  return %y
}`},
		"the states of a loop": {`
graph "g"(%x: f32[2], %n: i64[]) {
  %yes: bool[] = const {1}
  %y: f32[2] = Loop "loop" (%n, %yes, %x) {body = graph "body"(%i: i64[], %cond: bool[], %acc: f32[2]) {
    %go: bool[] = Identity "go" (%cond)
    %next: f32[2] = Identity "next" (%acc)
    return %go, %next
  }}
  return %y
}`, `
graph "g"(%x: f32[2], %n: i64[]) {
  %yes: bool[] = const {1}
  %y: f32[2] = Loop "loop" (%n, %yes, %x) {body = graph "body"(%i: i64[], %cond: bool[], %acc: f32[2]) {
    return %cond, %acc
  }}
  return %y
}`},
		"the broadcasting of old opsets": {`
graph "g"(%x: f32[2,3,3,3], %w: f32[3]) {
  %b: f32[3] = const {1.0, 2.0, 3.0}
  %y: f32[2,3,3,3] = Add "a" (%x, %b) {axis = 1}
  %z: f32[2,3,3,3] = Mul "m" (%y, %w) {axis = -3}
  %u: f32[2,3,3,3] = Sub "s" (%z, %w) {axis = 3}
  return %u
}`, `
graph "g"(%x: f32[2,3,3,3], %w: f32[3]) {
  %b.aligned: f32[3,1,1] = const {1.0, 2.0, 3.0}
  %y: f32[2,3,3,3] = Add "a" (%x, %b.aligned)
  %m.axes: i64[2] = const {1, 2}
  %w.aligned: f32[3,1,1] = Unsqueeze "m.aligned" (%w, %m.axes)
  %z: f32[2,3,3,3] = Mul "m" (%y, %w.aligned)
  %u: f32[2,3,3,3] = Sub "s" (%z, %w)
  return %u
}`},
	})
}

func TestTransposesAndReshapes(t *testing.T) {
	check(t, fuse.Identities, map[string]rewrite{
		"a transpose in order": {`
graph "g"(%x: f32[2,3], %v: f32[4]) {
  %a: f32[2,3] = Transpose "a" (%x) {perm = [0, 1]}
  %b: f32[2,3] = Relu "b" (%a)
  %c: f32[4] = Transpose "c" (%v)
  %d: f32[4] = Relu "d" (%c)
  return %b, %d
}`, `
graph "g"(%x: f32[2,3], %v: f32[4]) {
  %b: f32[2,3] = Relu "b" (%x)
  %d: f32[4] = Relu "d" (%v)
  return %b, %d
}`},
		"two that cancel, two that do not, one that stays for another reader": {`
graph "g"(%x: f32[batch,2,3,4]) {
  %a: f32[batch,3,4,2] = Transpose "a" (%x) {perm = [0, 2, 3, 1]}
  %b: f32[batch,2,3,4] = Transpose "b" (%a) {perm = [0, 3, 1, 2]}
  %c: f32[3,batch,4,2] = Transpose "c" (%a) {perm = [1, 0, 2, 3]}
  %d: f32[batch,3,4,2] = Relu "d" (%a)
  return %b, %c, %d
}`, `
graph "g"(%x: f32[batch,2,3,4]) {
  %a: f32[batch,3,4,2] = Transpose "a" (%x) {perm = [0, 2, 3, 1]}
  %c: f32[3,batch,4,2] = Transpose "c" (%x) {perm = [2, 0, 3, 1]}
  %d: f32[batch,3,4,2] = Relu "d" (%a)
  return %x as "b", %c, %d
}`},
		"around an activation and around a batch normalization": {`
graph "g"(%x: f32[batch,2,3]) {
  %s: f32[3] = const {1.0, 2.0, 3.0}
  %o: f32[3] = const {0.5, 1.0, -1.0}
  %m: f32[3] = const {1.0, 0.0, 2.0}
  %v: f32[3] = const {3.0, 0.0, 8.0}
  %a: f32[batch,3,2] = Transpose "a" (%x) {perm = [0, 2, 1]}
  %b: f32[batch,3,2] = Relu "b" (%a)
  %c: f32[batch,2,3] = Transpose "c" (%b) {perm = [0, 2, 1]}
  %d: f32[batch,3,2] = Transpose "d" (%c) {perm = [0, 2, 1]}
  %e: f32[batch,3,2] = BatchNormalization "bn" (%d, %s, %o, %m, %v) {epsilon = 1.0}
  %f: f32[batch,2,3] = Transpose "f" (%e) {perm = [0, 2, 1]}
  return %f
}`, `
graph "g"(%x: f32[batch,2,3]) {
  %b: f32[batch,2,3] = Relu "b" (%x)
  %bn.scale: f32[3] = const {0.5, 2.0, 1.0}
  %bn.scale.out: f32[batch,2,3] = Mul "bn.scale" (%b, %bn.scale)
  %bn.shift: f32[3] = const {0.0, 1.0, -3.0}
  %bn.shift.out: f32[batch,2,3] = Add "bn.shift" (%bn.scale.out, %bn.shift)
  return %bn.shift.out as "f"
}`},
		"around an activation that others read": {`
graph "g"(%x: f32[2,3]) {
  %a: f32[3,2] = Transpose "a" (%x)
  %b: f32[3,2] = Relu "b" (%a)
  %c: f32[2,3] = Transpose "c" (%b)
  return %c, %b
}`, ""},
		"around a softmax": {`
graph "g"(%x: f32[2,3]) {
  %a: f32[3,2] = Transpose "a" (%x)
  %b: f32[3,2] = Softmax "b" (%a)
  %c: f32[2,3] = Transpose "c" (%b)
  return %c
}`, ""},
		"reversals, of which one names no permutation": {`
graph "g"(%x: f32[2,3,4]) {
  %a: f32[4,3,2] = Transpose "a" (%x)
  %b: f32[2,3,4] = Transpose "b" (%a) {perm = [2, 1, 0]}
  %c: f32[2,3,4] = Relu "c" (%b)
  return %c
}`, `
graph "g"(%x: f32[2,3,4]) {
  %c: f32[2,3,4] = Relu "c" (%x)
  return %c
}`},
		"a pair across the border of a subgraph": {`
graph "g"(%x: f32[2,3], %c: bool[]) {
  %a: f32[3,2] = Transpose "a" (%x) {perm = [1, 0]}
  %y: f32[2,3] = If "if" (%c) {then_branch = graph "t"() {
    %b: f32[2,3] = Transpose "b" (%a) {perm = [1, 0]}
    return %b
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`, `
graph "g"(%x: f32[2,3], %c: bool[]) {
  %y: f32[2,3] = If "if" (%c) {then_branch = graph "t"() {
    return %x
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`},
		"one that only moves axes of one element": {`
graph "g"(%x: f32[batch,7,1,1]) {
  %y: f32[batch,1,1,7] = Transpose "t" (%x) {perm = [0, 2, 3, 1]}
  return %y
}`, `
graph "g"(%x: f32[batch,7,1,1]) {
  %t.shape: i64[4] = const {0, 1, 1, 7}
  %y: f32[batch,1,1,7] = Reshape "t" (%x, %t.shape)
  return %y
}`},
		"one whose axes may have one element": {`
graph "g"(%x: f32[batch,7]) {
  %y: f32[7,batch] = Transpose "t" (%x) {perm = [1, 0]}
  return %y
}`, ""},
		"reshapes of reshapes": {`
graph "g"(%x: f32[batch,6]) {
  %s: i64[3] = const {-1, 2, 3}
  %back: i64[2] = const {0, 6}
  %three: i64[2] = const {-1, 3}
  %axis: i64[1] = const {1}
  %a: f32[batch,2,3] = Reshape "a" (%x, %s)
  %b: f32[batch,6] = Reshape "b" (%a, %back)
  %c: f32[2*batch,3] = Reshape "c" (%a, %three)
  %d: f32[batch,1,6] = Unsqueeze "d" (%b, %axis)
  %e: f32[batch,6] = Squeeze "e" (%d, %axis)
  %f: f32[batch,6] = Flatten "f" (%a)
  return %b, %c, %d, %e, %f
}`, `
graph "g"(%x: f32[batch,6]) {
  %three: i64[2] = const {-1, 3}
  %c: f32[2*batch,3] = Reshape "c" (%x, %three)
  %axis: i64[1] = const {1}
  %d: f32[batch,1,6] = Unsqueeze "d" (%x, %axis)
  return %x as "b", %c, %d, %x as "e", %x as "f"
}`},
		"a zero that copies a dimension of the reshape before": {`
graph "g"(%x: f32[a,b,2]) {
  %s: i64[2] = const {-1, 2}
  %z: i64[3] = const {0, 2, 1}
  %p: f32[a*b,2] = Reshape "p" (%x, %s)
  %q: f32[a*b,2,1] = Reshape "q" (%p, %z)
  return %q
}`, `
graph "g"(%x: f32[a,b,2]) {
  %q.shape: i64[3] = const {-1, 2, 1}
  %q: f32[a*b,2,1] = Reshape "q" (%x, %q.shape)
  return %q
}`},
		"a shape computed from dimensions that stay": {`
graph "g"(%x: f32[batch,seq,4,8]) {
  %shape: i64[4] = Shape "shape" (%x)
  %s: i64[1] = const {0}
  %e: i64[1] = const {2}
  %lead: i64[2] = Slice "slice" (%shape, %s, %e)
  %rest: i64[1] = const {32}
  %target: i64[3] = Concat "concat" (%lead, %rest)
  %y: f32[batch,seq,32] = Reshape "reshape" (%x, %target)
  return %y
}`, `
graph "g"(%x: f32[batch,seq,4,8]) {
  %reshape.shape: i64[3] = const {0, 0, 32}
  %y: f32[batch,seq,32] = Reshape "reshape" (%x, %reshape.shape)
  return %y
}`},
		"a shape that is not known": {`
graph "g"(%x: f32[batch,seq,4], %s: i64[2]) {
  %y: f32[?1,?2] = Reshape "reshape" (%x, %s)
  return %x
}`, ""},
		"not into the flags of Gemm of integers": {`
graph "g"(%x: u8[3,2]) {
  %b: i8[3,4] = const {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
  %a: u8[2,3] = Transpose "a" (%x) {perm = [1, 0]}
  %y: f32[2,4] = Gemm "gemm" (%a, %b) {spc_x_scale = 0.5, spc_w_scale = [1.0]}
  return %y
}`, ""},
		"into the flags of Gemm": {`
graph "g"(%x: f32[4,2], %b: f32[4,3]) {
  %a: f32[2,4] = Transpose "a" (%x)
  %c: f32[3,4] = Transpose "c" (%b) {perm = [1, 0]}
  %y: f32[2,3] = Gemm "gemm" (%a, %c) {transB = 1}
  return %y
}`, `
graph "g"(%x: f32[4,2], %b: f32[4,3]) {
  %y: f32[2,3] = Gemm "gemm" (%x, %b) {transA = 1}
  return %y
}`},
		"before a flattening, into the matrix": {`
graph "g"(%x: f32[batch,2,1,3]) {
  %w: f32[6,1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %a: f32[batch,3,2,1] = Transpose "a" (%x) {perm = [0, 3, 1, 2]}
  %f: f32[batch,6] = Flatten "f" (%a)
  %y: f32[batch,1] = MatMul "matmul" (%f, %w)
  return %y
}`, `
graph "g"(%x: f32[batch,2,1,3]) {
  %f.shape: i64[2] = const {-1, 6}
  %f: f32[batch,6] = Reshape "f" (%x, %f.shape)
  %w: f32[6,1] = const {1.0, 3.0, 5.0, 2.0, 4.0, 6.0}
  %y: f32[batch,1] = MatMul "matmul" (%f, %w)
  return %y
}`},
		"before a flattening, into the columns of the matrix": {`
graph "g"(%x: f32[batch,2,1,3]) {
  %w: f32[2,6] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0}
  %s: i64[2] = const {-1, 6}
  %a: f32[batch,3,2,1] = Transpose "a" (%x) {perm = [0, 3, 1, 2]}
  %f: f32[batch,6] = Reshape "f" (%a, %s)
  %y: f32[batch,2] = Gemm "gemm" (%f, %w) {transB = 1}
  return %y
}`, `
graph "g"(%x: f32[batch,2,1,3]) {
  %f.shape: i64[2] = const {-1, 6}
  %f: f32[batch,6] = Reshape "f" (%x, %f.shape)
  %w: f32[2,6] = const {1.0, 3.0, 5.0, 2.0, 4.0, 6.0, 7.0, 9.0, 11.0, 8.0, 10.0, 12.0}
  %y: f32[batch,2] = Gemm "gemm" (%f, %w) {transB = 1}
  return %y
}`},
		"before a flattening that somebody else reads": {`
graph "g"(%x: f32[batch,2,1,3]) {
  %w: f32[6,1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %a: f32[batch,3,2,1] = Transpose "a" (%x) {perm = [0, 3, 1, 2]}
  %f: f32[batch,6] = Flatten "f" (%a)
  %y: f32[batch,1] = MatMul "matmul" (%f, %w)
  return %y, %f
}`, ""},
		"a transpose that moves the batch before a flattening": {`
graph "g"(%x: f32[2,batch,3]) {
  %w: f32[6,1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %a: f32[batch,2,3] = Transpose "a" (%x) {perm = [1, 0, 2]}
  %f: f32[batch,6] = Flatten "f" (%a)
  %y: f32[batch,1] = MatMul "matmul" (%f, %w)
  return %y
}`, ""},
	})
}

func TestNodesWithoutInputs(t *testing.T) {
	const text = `graph "g"(%x: f32[2,3]) {
  %r: f32[2,3] = RandomUniform "r" () {shape = [2, 3], seed = 1.0}
  %t: f32[3,2] = Transpose "t" (%r) {perm = [1, 0]}
  %s: f32[2,3] = Add "s" (%r, %x)
  return %t, %s
}
`
	g := graphtest.Parse(t, text)
	before := ir.Print(g)
	if n, err := fuse.Identities(g); n != 0 || err != nil || ir.Print(g) != before {
		t.Errorf("%d changes, error %v in\n%s", n, err, g)
	}
}

func TestReshapeThatOnlyNothingFits(t *testing.T) {
	graphtest.Rewrite(t, fuse.Identities, `
graph "g"(%x: i64[n,1]) {
  %s: i64[2] = Shape "s" (%x)
  %one: i64[2] = const {0, 1}
  %to: i64[2] = Add "a" (%s, %one)
  %y: i64[n,2] = Reshape "r" (%x, %to) {allowzero = 1}
  return %y
}`, "")
}
