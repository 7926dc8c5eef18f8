package op

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/ir"
	"spc/ir/tensor"
)

const sample = `graph "main"(%x: f32[batch,8], %c: bool[], %"odd name": f32["a b",4*n]) {
  %w: f32[8] = const {0.0, 1.0, 2.5, -3.0, 1e-30, 5.0, 6.0, +Inf}
  %y: f32[batch,8] = Add "add" (%x, %w)
  %z: f32[batch,8] = Add "legacy" (%y, %w) {axis = 1}
  %k: f32[1] = const {9.0}
  %o: f32[batch,8] = If "if" (%c) {then_branch = graph "t"() {
    %big: f32[20] = const base64"AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAADAQAAA4EAAAABBAAAQQQAAIEEAADBBAABAQQAAUEEAAGBBAABwQQAAgEEAAIhBAACQQQAAmEE="
    %s: f32[batch,8] = Add "shared" (%z, %k)
    %r: f32[batch,8] = Relu "relu" (%s)
    return %r
  }, else_branch = graph "e"() {
    %u: f32[batch,8] = Add "again" (%y, %k)
    return %u
  }}
  return %o, %w as "the weights", %x as "in"
}
`

func TestParsePrintRoundTrip(t *testing.T) {
	g, err := ir.Parse(sample, Registry)
	if err != nil {
		t.Fatal(err)
	}
	text := ir.Print(g)
	h, err := ir.Parse(text, Registry)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if d := cmp.Diff(text, ir.Print(h)); d != "" {
		t.Error(d)
	}
	if err := h.Infer(); err != nil {
		t.Fatal(err)
	}
	if err := h.Verify(); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(text, ir.Print(h)); d != "" {
		t.Error("inference changed the types:", d)
	}
}

func TestUnaryEval(t *testing.T) {
	op, err := New("Relu")
	if err != nil {
		t.Fatal(err)
	}
	out, err := op.Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{tensor.From([]float32{-1, 2}, 2)})
	if err != nil || !out[0].Equal(tensor.From([]float32{0, 2}, 2)) {
		t.Errorf("%v, %v", out[0].F32s(), err)
	}
}

func TestOutputsTooLargeAreRefused(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%a: f32[65536,1], %b: f32[1,65536]) {
  %y: f32[*] = Add "sum" (%a, %b)
  return %y
}`, Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "sum (Add): output y: f32[65536,65536] has 4294967296 elements") {
		t.Error(err)
	}
}

func TestUnknownSizesKeepTheirNames(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%x: f32[?1,?7]) {
  %where: i64[*] = NonZero "where" (%x)
  %at: i64[*] = Transpose "at" (%where) {perm = [1, 0]}
  %twice: i64[*] = Concat "twice" (%at, %at) {axis = 0}
  return %twice
}`, Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	first := ir.Print(g)
	if n := g.Nodes[1].Outputs[0].Type.Dims[0]; !n.Fresh() || n == ir.Sym("?1") || n == ir.Sym("?7") {
		t.Errorf("the number of nonzeros is %v, want a size of its own", n)
	}
	h, err := ir.Parse(first, Registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*ir.Graph{g, g.Clone(), h} {
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(first, ir.Print(g)); d != "" {
			t.Error(d)
		}
	}
}

func TestANameFromElsewhereIsNotKept(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%x: f32[?1], %y: f32[?1], %z: f32[?2]) {
  %sum: f32[*] = Add "sum" (%x, %y)
  return %sum
}`, Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	sum := g.Nodes[0]
	sum.SetInput(1, g.Inputs[2])
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	if d := sum.Outputs[0].Type.Dims[0]; d == ir.Sym("?1") || d == ir.Sym("?2") {
		t.Errorf("the sum has size %v, want one of its own", d)
	}
}
