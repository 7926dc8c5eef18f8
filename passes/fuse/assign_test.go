package fuse_test

import (
	"math/rand/v2"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

func TestAssignments(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"a sum, written twice": {`graph "g"(%x: f32[2,3], %y: f32[1,2]) {
  %from: i64[1] = const {1}
  %to: i64[1] = const {9}
  %axis: i64[1] = const {-1}
  %at: i64[2,2,2] = const {0, 1, 0, 2, 1, 1, 1, 2}
  %p: f32[2,2] = Slice "p" (%x, %from, %to, %axis)
  %s: f32[2,2] = Add "s" (%y, %p)
  %a: f32[2,3] = ScatterND "a" (%x, %at, %s)
  %b: f32[2,3] = ScatterND "b" (%a, %at, %s)
  return %b }`, `graph "g"(%x: f32[2,3], %y: f32[1,2]) {
  %b.size: i64[2] = const {2, 2}
  %b.sized.out: f32[2,2] = Expand "b.sized" (%y, %b.size)
  %b.pads: i64[4] = const {0, 1, 0, 0}
  %b.between.out: f32[2,3] = Pad "b.between" (%b.sized.out, %b.pads)
  %b.sum.out: f32[2,3] = Add "b.sum" (%x, %b.between.out)
  return %b.sum.out as "b"
}`},
		"what is added, by indices that nodes make": {`graph "g"(%x: f32[3,2], %y: f32[2,2]) {
  %rows: i64[2] = const {1, 2}
  %axis: i64[1] = const {1}
  %at: i64[2,1] = Unsqueeze "at" (%rows, %axis)
  %b: f32[3,2] = ScatterND "b" (%x, %at, %y) {reduction = "add"}
  return %b }`, `graph "g"(%x: f32[3,2], %y: f32[2,2]) {
  %b.pads: i64[4] = const {1, 0, 0, 0}
  %b.between.out: f32[3,2] = Pad "b.between" (%y, %b.pads)
  %b.sum.out: f32[3,2] = Add "b.sum" (%x, %b.between.out)
  return %b.sum.out as "b"
}`},
		"runs": {`graph "g"(%x: f32[3,2], %y: f32[1,2]) {
  %at: i64[1,2,2] = const {-1, 0, -1, 1}
  %b: f32[3,2] = ScatterND "b" (%x, %at, %y)
  return %b }`, `graph "g"(%x: f32[3,2], %y: f32[1,2]) {
  %b.runs: i64[1,1] = const {2}
  %b: f32[3,2] = ScatterND "b" (%x, %b.runs, %y)
  return %b
}`},
		"not another order":        {`graph "g"(%x: f32[3,2], %y: f32[2,2]) { %at: i64[2,1] = const {2, 1} %b: f32[3,2] = ScatterND "b" (%x, %at, %y) {reduction = "add"} return %b }`, ""},
		"not what one index names": {`graph "g"(%x: f32[3,2], %y: f32[2,2]) { %at: i64[2,1] = const {1, 1} %b: f32[3,2] = ScatterND "b" (%x, %at, %y) {reduction = "add"} return %b }`, ""},
		"not a small part":         {`graph "g"(%x: f32[3,2], %y: f32[1,2]) { %at: i64[1,1] = const {1} %b: f32[3,2] = ScatterND "b" (%x, %at, %y) {reduction = "add"} return %b }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			graphtest.Rewrite(t, fuse.Assignments, c.before, c.after)
		})
	}
}

// TestAssignmentsAtRandom draws indices, most of them of boxes.
func TestAssignmentsAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	changed := 0
	for i := range 300 {
		shape := []int{1 + r.IntN(4), 1 + r.IntN(4), 1 + r.IntN(4)}
		k := 1 + r.IntN(3)
		var size, from [3]int
		rows := 1
		for a, d := range shape[:k] {
			size[a] = 1 + r.IntN(d)
			from[a] = r.IntN(d - size[a] + 1)
			rows *= size[a]
		}
		at := make([]int, 0, rows*k)
		for row := range rows {
			place := make([]int, k)
			for a, rest := k-1, row; a >= 0; a, rest = a-1, rest/size[a] {
				place[a] = from[a] + rest%size[a]
			}
			at = append(at, place...)
		}
		if r.IntN(4) == 0 {
			a := r.IntN(k)
			at[r.IntN(rows)*k+a] = r.IntN(shape[a])
		}
		prefix := append([]int{}, size[:k]...)
		if r.IntN(3) == 0 {
			prefix = []int{rows}
		}
		how := []string{"none", "add"}[r.IntN(2)]
		g := ir.NewGraph("g")
		x := g.NewInput("x", ir.Of(tensor.F32, ir.Sizes(shape...)...))
		y := g.NewInput("y", ir.Of(tensor.F32, ir.Sizes(append(prefix, shape[k:]...)...)...))
		indices := g.NewConst("at", tensor.Ints(at...).Reshape(append(prefix, k)...))
		n := g.NewNode("n", &op.ScatterND{Reduction: how}, []*ir.Value{x, indices, y}, "z")
		g.Outputs = append(g.Outputs, n.Outputs[0])
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		h := g.Clone()
		count, err := fuse.Assignments(h)
		if err != nil {
			t.Fatalf("graph %d: %v in\n%s", i, err, g)
		}
		changed += count
		if graphtest.Same(t, g, h, 0); t.Failed() {
			t.Fatalf("%v%v", g, h)
		}
	}
	if changed < 60 {
		t.Errorf("%d of 300 graphs were changed", changed)
	}
}
