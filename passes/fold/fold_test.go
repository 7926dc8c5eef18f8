package fold_test

import (
	"fmt"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
	"spc/tests/graphtest"
)

func TestConstants(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"a chain of constants": {`
graph "g"(%x: f32[2]) {
  %a: f32[2] = const {1.0, 2.0}
  %b: f32[2] = const {3.0, 4.0}
  %c: f32[2] = Add "add" (%a, %b)
  %d: f32[2] = Neg "neg" (%c)
  %y: f32[2] = Mul "mul" (%x, %d)
  return %y
}`, `
graph "g"(%x: f32[2]) {
  %d.const: f32[2] = const {-4.0, -6.0}
  %y: f32[2] = Mul "mul" (%x, %d.const)
  return %y
}`},
		"what is small again behind what is large": {`
graph "g"(%x: f32[2]) {
  %a: f32[1] = const {2.0}
  %wide: i64[2] = const {300, 300}
  %b: f32[300,300] = Expand "expand" (%a, %wide)
  %c: f32[300,300] = Neg "neg" (%b)
  %d: f32[1,1] = ReduceMean "mean" (%c)
  %y: f32[1,2] = Mul "mul" (%x, %d)
  return %y
}`, `
graph "g"(%x: f32[2]) {
  %d.const: f32[1,1] = const {-2.0}
  %y: f32[1,2] = Mul "mul" (%x, %d.const)
  return %y
}`},
		"what is large": {`
graph "g"(%x: f32[300,300]) {
  %a: f32[1] = const {2.0}
  %wide: i64[2] = const {300, 300}
  %b: f32[300,300] = Expand "expand" (%a, %wide)
  %y: f32[300,300] = Mul "mul" (%x, %b)
  return %y
}`, ""},
		"shape arithmetic": {`
graph "g"(%x: f32[batch,3,4]) {
  %i: i64[] = const {2}
  %shape: i64[3] = Shape "shape" (%x)
  %n: i64[] = Gather "gather" (%shape, %i)
  %f: f32[] = Cast "cast" (%n) {to = 1}
  %r: f32[] = Sqrt "sqrt" (%f)
  %y: f32[batch,3,4] = Div "div" (%x, %r)
  return %y
}`, `
graph "g"(%x: f32[batch,3,4]) {
  %r.const: f32[] = const {2.0}
  %y: f32[batch,3,4] = Div "div" (%x, %r.const)
  return %y
}`},
		"a comparison of sizes picks a branch": {`
graph "g"(%x: f32[batch,3]) {
  %i: i64[] = const {1}
  %three: i64[] = const {3}
  %shape: i64[2] = Shape "shape" (%x)
  %n: i64[] = Gather "gather" (%shape, %i)
  %c: bool[] = Equal "equal" (%n, %three)
  %y: f32[*] = If "if" (%c) {then_branch = graph "t"() {
    %w: f32[3] = const {1.0, 2.0, 3.0}
    %a: f32[batch,3] = Mul "scale" (%x, %w)
    return %a
  }, else_branch = graph "e"() {
    %b: f32[batch,3] = Relu "relu" (%x)
    return %b
  }}
  %z: f32[*] = Neg "neg" (%y)
  return %z
}`, `
graph "g"(%x: f32[batch,3]) {
  %w: f32[3] = const {1.0, 2.0, 3.0}
  %a: f32[batch,3] = Mul "scale" (%x, %w)
  %z: f32[batch,3] = Neg "neg" (%a)
  return %z
}`},
		"a branch within a branch": {`
graph "g"(%x: f32[3], %c: bool[]) {
  %yes: bool[] = const {1}
  %y: f32[3] = If "if" (%c) {then_branch = graph "t"() {
    %a: f32[3] = If "inner" (%yes) {then_branch = graph "tt"() {
      %p: f32[3] = Relu "p" (%x)
      return %p
    }, else_branch = graph "te"() {
      %q: f32[3] = Neg "q" (%x)
      return %q
    }}
    return %a
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`, `
graph "g"(%x: f32[3], %c: bool[]) {
  %y: f32[3] = If "if" (%c) {then_branch = graph "t"() {
    %p: f32[3] = Relu "p" (%x)
    return %p
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`},
		"in a loop, and what it captures": {`
graph "g"(%x: f32[2], %n: i64[]) {
  %one: f32[] = const {1.0}
  %two: f32[] = const {2.0}
  %yes: bool[] = const {1}
  %three: f32[] = Add "outer" (%one, %two)
  %y: f32[2] = Loop "loop" (%n, %yes, %x) {body = graph "body"(%i: i64[], %cond: bool[], %acc: f32[2]) {
    %four: f32[] = Add "inner" (%three, %one)
    %next: f32[2] = Mul "mul" (%acc, %four)
    return %cond, %next
  }}
  return %y
}`, `
graph "g"(%x: f32[2], %n: i64[]) {
  %yes: bool[] = const {1}
  %y: f32[2] = Loop "loop" (%n, %yes, %x) {body = graph "body"(%i: i64[], %cond: bool[], %acc: f32[2]) {
    %four.const: f32[] = const {4.0}
    %next: f32[2] = Mul "mul" (%acc, %four.const)
    return %cond, %next
  }}
  return %y
}`},
		"an output keeps its name": {`
graph "g"(%x: f32[2,3]) {
  %shape: i64[2] = Shape "shape" (%x)
  return %shape, %x
}`, `
graph "g"(%x: f32[2,3]) {
  %shape.const: i64[2] = const {2, 3}
  return %shape.const as "shape", %x
}`},
		"only the outputs that are read": {`
graph "g"(%x: f32[2]) {
  %a: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[2], %q: f32[2] = Split "split" (%a) {num_outputs = 2}
  %y: f32[2] = Add "add" (%x, %q)
  return %y
}`, `
graph "g"(%x: f32[2]) {
  %q.const: f32[2] = const {3.0, 4.0}
  %y: f32[2] = Add "add" (%x, %q.const)
  return %y
}`},
		"what is not an integer stays": {`
graph "g"(%x: f32[batch,3]) {
  %shape: i64[2] = Shape "shape" (%x)
  return %shape
}`, ""},
		"no large tensors out of small ones": {`
graph "g"(%x: f32[1]) {
  %shape: i64[3] = const {300, 300, 300}
  %zeros: f32[300,300,300] = ConstantOfShape "fill" (%shape)
  %axes: i64[3] = const {0, 1, 2}
  %sum: f32[] = ReduceSum "sum" (%zeros, %axes) {keepdims = 0}
  %y: f32[1] = Add "add" (%x, %sum)
  return %y
}`, ""},
		"an error in a branch that may not be taken": {`
graph "g"(%x: f32[2], %c: bool[]) {
  %s: string[2] = const {"one", "two"}
  %y: f32[2] = If "if" (%c) {then_branch = graph "t"() {
    %a: f32[2] = Cast "cast" (%s) {to = 1}
    return %a
  }, else_branch = graph "e"() {
    return %x
  }}
  return %x
}`, ""},
	} {
		t.Run(name, func(t *testing.T) { graphtest.Rewrite(t, fold.Constants, c.before, c.after) })
	}
}

func TestTheBranchThatIsNotPickedMayBeInError(t *testing.T) {
	g, err := ir.Parse(`
graph "g"(%x: f32[2,3]) {
  %c: bool[] = const {0}
  %y: f32[2,3] = If "if" (%c) {then_branch = graph "t"() {
    %w: f32[5] = const {1.0, 2.0, 3.0, 4.0, 5.0}
    %a: f32[2,3] = Mul "scale" (%x, %w)
    return %a
  }, else_branch = graph "e"() {
    return %x
  }}
  %z: f32[2,3] = Neg "neg" (%y)
  return %z
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := fold.Constants(g); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := g.Verify(); err != nil {
		t.Error(err)
	}
	if len(g.Nodes) != 1 || g.Nodes[0].Inputs[0] != g.Inputs[0] {
		t.Errorf("%v, want the negative of the input", g)
	}
}

func TestAnErrorOutsideBranchesIsReported(t *testing.T) {
	g := graphtest.Parse(t, `
graph "g"(%x: f32[1]) {
  %s: string[1] = const {"one"}
  %a: f32[1] = Cast "cast" (%s) {to = 1}
  %y: f32[1] = Add "add" (%x, %a)
  return %y
}`)
	if _, err := fold.Constants(g); err == nil || !strings.HasPrefix(err.Error(), "cast (Cast): ") {
		t.Errorf("error %v, want one that names the node", err)
	}
}

// Nodes that nobody reads, and those that stay, know what was folded before them.
func TestTypesFollowWhatIsFolded(t *testing.T) {
	for _, stays := range []bool{false, true} {
		g, err := ir.Parse(`
graph "g"(%x: f32[1]) {
  %a: i64[1] = const {2}
  %n: i64[1] = Add "add" (%a, %a)
  %z: f32[?1] = Expand "expand" (%x, %n)
  %y: f32[1] = Neg "neg" (%x)
  return %y`+map[bool]string{true: ", %z"}[stays]+`
}`, op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fold.ConstantsBut(g, func(n *ir.Node) bool { return n.Op.Kind() == "Expand" }); err != nil {
			t.Fatal(err)
		}
		if have := g.Nodes[0].Outputs[0].Type.String(); have != "f32[4]" {
			t.Errorf("stays %v: %s", stays, have)
		}
	}
}

func TestDead(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"a chain that nobody reads": {`
graph "g"(%x: f32[2]) {
  %a: f32[2] = Neg "a" (%x)
  %b: f32[2] = Neg "b" (%a)
  %c: f32[2] = Neg "c" (%b)
  %y: f32[2] = Relu "y" (%a)
  return %y
}`, `
graph "g"(%x: f32[2]) {
  %a: f32[2] = Neg "a" (%x)
  %y: f32[2] = Relu "y" (%a)
  return %y
}`},
		"a value that a live branch captures stays, one that only a dead node of it reads goes": {`
graph "g"(%x: f32[2], %c: bool[]) {
  %a: f32[2] = Neg "a" (%x)
  %b: f32[2] = Neg "b" (%x)
  %d: f32[2] = Neg "d" (%x)
  %y: f32[2] = If "if" (%c) {then_branch = graph "t"() {
    %r: f32[2] = Relu "r" (%a)
    %s: f32[2] = Relu "s" (%b)
    return %r
  }, else_branch = graph "e"() {
    return %d
  }}
  return %y
}`, `
graph "g"(%x: f32[2], %c: bool[]) {
  %a: f32[2] = Neg "a" (%x)
  %d: f32[2] = Neg "d" (%x)
  %y: f32[2] = If "if" (%c) {then_branch = graph "t"() {
    %r: f32[2] = Relu "r" (%a)
    return %r
  }, else_branch = graph "e"() {
    return %d
  }}
  return %y
}`},
		"a dead node with subgraphs": {`
graph "g"(%x: f32[2], %c: bool[]) {
  %a: f32[2] = Neg "a" (%x)
  %y: f32[2] = If "if" (%c) {then_branch = graph "t"() {
    %r: f32[2] = Relu "r" (%a)
    return %r
  }, else_branch = graph "e"() {
    return %a
  }}
  return %x
}`, `
graph "g"(%x: f32[2], %c: bool[]) {
  return %x
}`},
		"nothing": {`
graph "g"(%x: f32[4]) {
  %p: f32[2], %q: f32[2] = Split "split" (%x) {num_outputs = 2}
  return %p
}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			graphtest.Rewrite(t, func(g *ir.Graph) (int, error) { return fold.Dead(g), nil }, c.before, c.after)
		})
	}
}

// chain is a graph of n nodes that all read one constant.
func chain(t testing.TB, n int) *ir.Graph {
	var b strings.Builder
	b.WriteString("graph \"g\"(%v0: f32[2]) {\n%one: f32[] = const {1.0}\n")
	for i := range n {
		fmt.Fprintf(&b, "%%v%d: f32[2] = Add \"n%d\" (%%v%d, %%one)\n", i+1, i, i)
	}
	fmt.Fprintf(&b, "return %%v%d }", n)
	g, err := ir.Parse(b.String(), op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func BenchmarkConstants(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		g := chain(b, 10_000)
		b.StartTimer()
		if _, err := fold.Constants(g); err != nil {
			b.Fatal(err)
		}
		g.Outputs[0] = g.Inputs[0]
		fold.Dead(g)
	}
}

// What folding tells of a branch may refuse it, which is an error where it is picked.
func TestFoldingMayRefuseABranch(t *testing.T) {
	const text = `
graph "g"(%x: f32[2,3], %c: bool[]) {
  %y: f32[*] = If "if" (%c) {then_branch = graph "t"() {
    %v: f32[4] = const {1.0, 2.0, 3.0, 5.0}
    %k: f32[4] = Neg "neg" (%v)
    %f: f32[*] = ReduceMin "min" (%k) {keepdims = 0}
    %i: i64[*] = Cast "cast" (%f) {to = 7}
    %one: i64[1] = const {-1}
    %s: i64[*] = Reshape "vector" (%i, %one)
    %m: i64[*] = Neg "minus" (%s)
    %a: f32[*] = Reshape "reshape" (%x, %m)
    return %a
  }, else_branch = graph "e"() {
    %b: f32[*] = Relu "relu" (%x)
    return %b
  }}
  %z: f32[*] = Neg "last" (%y)
  return %z
}`
	for picked, want := range map[bool]string{false: "", true: "reshape (Reshape): [2 3] has 6 elements, shape [5] has 5"} {
		g := graphtest.Parse(t, text)
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		if _, err := fold.Constants(g); err != nil {
			t.Fatal(err)
		}
		if err := g.Verify(); err != nil {
			t.Fatal(err)
		}
		x := tensor.From([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
		out, err := ref.Run(t.Context(), g, []*tensor.Tensor{x, tensor.Scalar(picked)})
		if picked != (err != nil) || picked && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", picked, err, want)
		}
		if err == nil && !out[0].Equal(tensor.From([]float32{-1, -2, -3, -4, -5, -6}, 2, 3)) {
			t.Errorf("%v", out[0])
		}
	}
}

// A large constant is kept where there is room and something reads it that is not constant, and what it is made of is not.
func TestAllKeepsLargeConstants(t *testing.T) {
	const text = `
graph "g"(%x: f32[300,300]) {
  %a: f32[1] = const {2.0}
  %wide: i64[2] = const {300, 300}
  %b: f32[300,300] = Expand "expand" (%a, %wide)
  %c: f32[300,300] = Neg "neg" (%b)
  %y: f32[300,300] = Mul "mul" (%x, %c)
  %s: f32[300,300] = Add "sum" (%c, %y)
  return %s, %c
}`
	for room, nodes := range map[int]int{300*300 - 1: 4, 300 * 300: 2} {
		g := graphtest.Parse(t, text)
		old := g.Clone()
		if err := fold.All(g, room); err != nil {
			t.Fatal(err)
		}
		if err := g.Verify(); err != nil {
			t.Error(err)
		}
		if len(g.Nodes) != nodes {
			t.Errorf("room for %d: %d nodes, want %d:\n%s", room, len(g.Nodes), nodes, g)
		}
		graphtest.Same(t, old, g, 0)
	}
}
