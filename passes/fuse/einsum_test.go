package fuse_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

func TestEinsumWithAWeight(t *testing.T) {
	graphtest.Rewrite(t, fuse.Einsums, `graph "g"(%x: f32[batch,seq,4]) {
  %w: f32[4,1,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}
  %y: f32[batch,seq,1,2] = Einsum "heads" (%x, %w) {equation = "bsd,dhk->bshk"}
  return %y }`, `graph "g"(%x: f32[batch,seq,4]) {
  %w: f32[4,1,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}
  %heads.axes: i64[2] = const {4, 2}
  %heads.Reshape.out: f32[4,2] = Reshape "heads.Reshape" (%w, %heads.axes)
  %heads.MatMul.out: f32[batch,seq,2] = MatMul "heads.MatMul" (%x, %heads.Reshape.out)
  %heads.axes_1: i64[4] = const {0, 0, 1, 2}
  %heads.Reshape.out_1: f32[batch,seq,1,2] = Reshape "heads.Reshape_1" (%heads.MatMul.out, %heads.axes_1)
  return %heads.Reshape.out_1 as "y"
}`)
}

// A mixture of experts: the weight is one matrix once the gates have been multiplied.
func TestEinsumTakesConstantsLate(t *testing.T) {
	graphtest.Rewrite(t, fuse.Einsums, `graph "g"(%x: f32[5,2,3], %gate: f32[5,2]) {
  %w: f32[2,3,1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %y: f32[5,1] = Einsum "n" (%x, %w, %gate) {equation = "tef,efd,te->td"}
  return %y }`, `graph "g"(%x: f32[5,2,3], %gate: f32[5,2]) {
  %n.axes: i64[1] = const {2}
  %n.Unsqueeze.out: f32[5,2,1] = Unsqueeze "n.Unsqueeze" (%gate, %n.axes)
  %n.Mul.out: f32[5,2,3] = Mul "n.Mul" (%x, %n.Unsqueeze.out)
  %n.axes_1: i64[2] = const {5, 6}
  %n.Reshape.out: f32[5,6] = Reshape "n.Reshape" (%n.Mul.out, %n.axes_1)
  %w: f32[2,3,1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %n.axes_2: i64[2] = const {6, 1}
  %n.Reshape.out_1: f32[6,1] = Reshape "n.Reshape_1" (%w, %n.axes_2)
  %n.MatMul.out: f32[5,1] = MatMul "n.MatMul" (%n.Reshape.out, %n.Reshape.out_1)
  return %n.MatMul.out as "y"
}`)
}

func TestEinsumStays(t *testing.T) {
	for _, text := range []string{
		`%y: f32[batch,4] = Einsum "n" (%x, %v) {equation = "bii,i->bi"}`,      // a diagonal
		`%y: f32[batch,4] = Einsum "n" (%x, %one) {equation = "bij,j->bi"}`,    // one is broadcast, and summed
		`%y: f32[batch,4,7] = Einsum "n" (%x, %o) {equation = "bij,bkj->bik"}`, // rows has another symbol
	} {
		graphtest.Rewrite(t, fuse.Einsums, `graph "g"(%x: f32[batch,4,4], %o: f32[rows,7,4]) {
  %v: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %one: f32[1] = const {2.0}
  `+text+`
  return %y }`, "")
	}
}

// TestEinsums draws equations, sizes, and which operands are constant. Where all sizes are known, no Einsum may be left.
func TestEinsums(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	gone := 0
	for i := range 600 {
		g, equation, open := randomEinsum(t, r)
		h := g.Clone()
		n, err := fuse.Einsums(h)
		if err != nil {
			t.Fatalf("graph %d: %v in\n%s", i, err, g)
		}
		if err := h.Verify(); err != nil {
			t.Fatalf("graph %d: %v in\n%s", i, err, h)
		}
		if n == 0 && !open {
			t.Errorf("graph %d: %s stays in\n%s", i, equation, g)
		}
		gone += n
		if graphtest.SameOn(t, graphtest.Integers, g, h, 0); t.Failed() {
			t.Fatalf("graph %d:\n%s\n%s", i, g, h)
		}
	}
	if gone < 400 {
		t.Errorf("%d of 600 were rewritten", gone)
	}
}

// randomEinsum makes a graph of one Einsum and reports whether a size is open.
func randomEinsum(t *testing.T, r *rand.Rand) (g *ir.Graph, equation string, open bool) {
	const letters = "abcde"
	dims := map[byte]ir.Dim{}
	for i := range letters {
		dims[letters[i]] = ir.Size(1 + r.IntN(4))
		if r.IntN(8) == 0 {
			dims[letters[i]], open = ir.Sym(letters[i:i+1]), true
		}
	}
	dt := []tensor.DType{tensor.F32, tensor.F32, tensor.F64, tensor.I64}[r.IntN(4)]
	g = ir.NewGraph("random")
	var in []*ir.Value
	var terms []string
	used := ""
	for i := range 1 + r.IntN(3) {
		term := ""
		var own []ir.Dim
		shape := []int{}
		for _, k := range r.Perm(len(letters))[:r.IntN(5)] {
			term += letters[k : k+1]
			own = append(own, dims[letters[k]])
			shape = append(shape, own[len(own)-1].Size())
		}
		used += term
		terms = append(terms, term)
		if r.IntN(3) > 0 || slices.ContainsFunc(own, func(d ir.Dim) bool { return !d.Known() }) {
			in = append(in, g.NewInput(fmt.Sprintf("x%d", i), ir.Of(dt, own...)))
			continue
		}
		w := tensor.New(tensor.F64, shape...)
		for j := range w.Len() {
			tensor.Data[float64](w)[j] = float64(r.IntN(9) - 4)
		}
		in = append(in, g.NewConst("w", w.To(dt)))
	}
	out := ""
	for _, k := range r.Perm(len(letters)) {
		if l := letters[k : k+1]; strings.Contains(used, l) && r.IntN(3) > 0 {
			out += l
		}
	}
	equation = strings.Join(terms, ",") + "->" + out
	n := g.NewNode("n", &op.Einsum{Equation: equation}, in, "y")
	if err := n.Infer(); err != nil {
		t.Fatalf("%s: %v", equation, err)
	}
	g.Outputs = n.Outputs
	return g, equation, open
}
