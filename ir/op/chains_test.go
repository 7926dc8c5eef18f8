package op

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/ir"
	"spc/ir/tensor"
)

// inferred parses a graph, infers it, verifies it and returns its outputs' types.
func inferred(t *testing.T, text string) []ir.Type {
	t.Helper()
	g, err := ir.Parse(text, Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	types := make([]ir.Type, len(g.Outputs))
	for i, v := range g.Outputs {
		types[i] = v.Type
	}
	return types
}

// untyped writes ? as a type that inference replaces.
func untyped(text string) string { return strings.ReplaceAll(text, "?", "f32[*]") }

// heads is how exporters split [batch, seq, 64] into heads and join them again.
const heads = `graph "heads"(%x: f32[BATCH,SEQ,64]) {
  %c0: i64[] = const {0}
  %c1: i64[] = const {1}
  %v0: i64[1] = const {0}
  %v4: i64[1] = const {4}
  %v16: i64[1] = const {16}
  %m1: i64[1] = const {-1}
  %rows: i64[2] = const {-1, 64}
  %s: ? = Shape "s" (%x)
  %b: ? = Gather "b" (%s, %c0)
  %n: ? = Gather "n" (%s, %c1)
  %bu: ? = Unsqueeze "bu" (%b, %v0)
  %nu: ? = Unsqueeze "nu" (%n, %v0)
  %split: ? = Concat "split" (%bu, %nu, %v4, %v16) {axis = 0}
  %h: ? = Reshape "h" (%x, %split)
  %ht: ? = Transpose "ht" (%h) {perm = [0, 2, 1, 3]}
  %back: ? = Transpose "back" (%ht) {perm = [0, 2, 1, 3]}
  %join: ? = Concat "join" (%bu, %nu, %m1) {axis = 0}
  %y: ? = Reshape "y" (%back, %join)
  %flat: ? = Reshape "flat" (%y, %rows)
  return %ht, %y, %flat
}`

func TestHeadsKeepBatchAndSequenceSymbolic(t *testing.T) {
	for _, c := range []struct{ batch, seq, want string }{
		{"batch", "seq", "f32[batch,4,seq,16] f32[batch,seq,64] f32[batch*seq,64]"},
		{"batch", "128", "f32[batch,4,128,16] f32[batch,128,64] f32[128*batch,64]"},
		{"2", "128", "f32[2,4,128,16] f32[2,128,64] f32[256,64]"},
	} {
		text := strings.NewReplacer("BATCH", c.batch, "SEQ", c.seq).Replace(untyped(heads))
		wantTypes(t, inferred(t, text), c.want)
	}
}

func wantTypes(t *testing.T, types []ir.Type, want string) {
	t.Helper()
	var s []string
	for _, x := range types {
		s = append(s, x.String())
	}
	if have := strings.Join(s, " "); have != want {
		t.Errorf("inferred %s, want %s", have, want)
	}
}

// pads is how PyTorch exports F.pad: the pads are written last axis first, so
// that they are reshaped to pairs, reversed and transposed.
const pads = `graph "pads"(%x: f32[batch,3,H,W]) {
  %given: i64[4] = const {1, 2, 3, 4}
  %zero4: i64[4] = const {0, 0, 0, 0}
  %pairs: i64[2] = const {-1, 2}
  %m1: i64[1] = const {-1}
  %v0: i64[1] = const {0}
  %min: i64[1] = const {-9223372036854775807}
  %all: ? = Concat "all" (%given, %zero4) {axis = 0}
  %p: ? = Reshape "p" (%all, %pairs)
  %r: ? = Slice "r" (%p, %m1, %min, %v0, %m1)
  %t: ? = Transpose "t" (%r)
  %v: ? = Reshape "v" (%t, %m1)
  %y: ? = Pad "y" (%x, %v)
  return %y
}`

func TestPadsThatAreReversedAndTransposed(t *testing.T) {
	wantTypes(t, inferred(t, untyped(pads)), "f32[batch,3,(H+7),(W+3)]")
}

// tail is how a cache grows: past and present are joined, and the last steps cut.
const tail = `graph "tail"(%past: f32[1,past,8], %x: f32[1,seq,8]) {
  %v0: i64[1] = const {0}
  %v1: i64[1] = const {1}
  %m1: i64[1] = const {-1}
  %max: i64[1] = const {9223372036854775807}
  %all: ? = Concat "all" (%past, %x) {axis = 1}
  %s: ? = Shape "s" (%x) {start = 1, end = 2}
  %last: ? = Slice "last" (%all, %m1, %max, %v1)
  %drop: ? = Slice "drop" (%all, %v0, %m1, %v1)
  %table: f32[1,2,1] = const {1.0, 2.0}
  %head: ? = Slice "head" (%all, %v0, %s, %v1)
  %two: i64[2] = const {2, -1}
  %both: ? = Reshape "both" (%all, %two)
  %l: ?, %r: ? = Split "lr" (%all) {axis = 2, num_outputs = 2}
  %sh: ? = Concat "sh" (%v1, %v1, %s) {axis = 0}
  %e: ? = Expand "e" (%table, %sh)
  return %all, %last, %drop, %head, %both, %l, %r, %e
}`

func TestConcatenatedCachesAddSymbols(t *testing.T) {
	wantTypes(t, inferred(t, untyped(tail)),
		"f32[1,(past+seq),8] f32[1,min((past+seq),1),8] f32[1,(-min((past+seq),1)+past+seq),8] f32[1,seq,8] f32[2,4*(past+seq)]"+
			" f32[1,(past+seq),4] f32[1,(past+seq),4] f32[1,2,seq]")
}

func TestUnknownShapesGiveFreshDimensions(t *testing.T) {
	text := untyped(`graph "g"(%x: f32[batch,6], %shape: i64[2], %n: i64[]) {
  %v0: i64[1] = const {0}
  %v3: i64[1] = const {3}
  %a: ? = Reshape "a" (%x, %shape)
  %nu: ? = Unsqueeze "nu" (%n, %v0)
  %s: ? = Concat "s" (%v3, %nu) {axis = 0}
  %b: ? = Reshape "b" (%x, %s)
  return %a, %b
}`)
	types := inferred(t, text)
	for _, c := range []struct {
		have  ir.Type
		fresh []bool
	}{{types[0], []bool{true, true}}, {types[1], []bool{false, true}}} {
		if len(c.have.Dims) != len(c.fresh) {
			t.Fatalf("inferred %v, want rank %d", c.have, len(c.fresh))
		}
		for i, d := range c.have.Dims {
			if d.Fresh() != c.fresh[i] {
				t.Errorf("inferred %v, want dimension %d unknown: %v", c.have, i, c.fresh[i])
			}
		}
	}
}

func TestInferRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{`Reshape "n" (%x, %v5)`, "n (Reshape): [2 3] has 6 elements, shape [5] has 5"},
		{`Reshape "n" (%x, %twice)`, "n (Reshape): shape [-1 -1] has more than one -1"},
		{`Reshape "n" (%x, %x)`, "n (Reshape): input 1 is f32[2,3], want integers of rank 1"},
		{`Squeeze "n" (%x, %v0)`, "n (Squeeze): dimension 0 of [2 3] is squeezed, want size 1"},
		{`Unsqueeze "n" (%x, %v5)`, "n (Unsqueeze): axis 5 is out of range for rank 3"},
		{`Transpose "n" (%x) {perm = [0, 0]}`, "n (Transpose): permutation [0 0] of rank 2, want each of 0 to 1 once"},
		{`Concat "n" (%x, %y) {axis = 1}`, "n (Concat): input 1 is f32[3,3], want [2 3] along every axis but 1"},
		{`Gather "n" (%x, %v5)`, "n (Gather): index 5 is out of range for axis 0 of 2 elements"},
		{`GatherElements "n" (%x, %last) {axis = -1}`, "n (GatherElements): index 3 is out of range for axis 1 of 3 elements"},
		{`Gather "n" (%x, %x)`, "n (Gather): input 1 is f32[2,3], want integers"},
		{`GatherND "n" (%x, %x)`, "n (GatherND): input 1 is f32[2,3], want integers"},
		{`ScatterND "n" (%x, %x, %x)`, "n (ScatterND): input 1 is f32[2,3], want integers"},
		{`Gather "n" (%x, %v0) {axis = 2}`, "n (Gather): axis 2 is out of range for rank 2"},
		{`Expand "n" (%x, %v5)`, "n (Expand): [2 3] does not broadcast to shape [5]"},
		{`Slice "n" (%x, %v0, %v5, %v5)`, "n (Slice): axis 5 is out of range for rank 2"},
		{`Split "n" (%x, %v5)`, "n (Split): sizes [5], want them to add to 2"},
		{`Split "n" (%x, %v5) {num_outputs = 1}`, "n (Split): sizes and num_outputs are given, want one of them"},
		{`Resize "n" (%x, _, %scales, %sizes)`, "n (Resize): scales and sizes are given, want one of them"},
		{`Resize "n" (%x, _, %scales, %twice)`, "n (Resize): scales and sizes are given, want one of them"},
		{`Einsum "n" (%x, %y) {equation = "...j,...k->jk"}`, `n (Einsum): output "jk" of equation "...j,...k->jk" has no ellipsis, want that of the operands`},
		{`NonMaxSuppression "n" (%boxes, %boxes) {center_point_box = 2}`, "n (NonMaxSuppression): center_point_box is 2, want 0 or 1"},
		{`Pad "n" (%x, %v0)`, "n (Pad): 1 pads for 2 axes, want two for each"},
		{`Pad "n" (%x, %cut)`, "n (Pad): pads [-3 0] of axis 0 remove more than its 2 elements"},
		{`Tile "n" (%x, %v5)`, "n (Tile): 1 repeats for rank 2"},
		{`Flatten "n" (%x) {axis = 3}`, "n (Flatten): axis 3 is out of range for rank 2"},
		{`GatherND "n" (%x, %v5) {batch_dims = 1}`, "n (GatherND): batch_dims is 1, want one from 0 to 0 for data [2 3] and indices [1]"},
		{`GatherND "n" (%x, %sizes) {batch_dims = -1}`, "n (GatherND): batch_dims is -1, want one from 0 to 0 for data [2 3] and indices [2]"},
		{`GatherND "n" (%x, %i3)`, "n (GatherND): indices [3] are vectors of 3 elements, want at most 2 for data [2 3]"},
		{`ScatterND "n" (%x, %one, %y)`, "n (ScatterND): indices are a scalar, want vectors along their last axis"},
		{`Einsum "n" (%x, %y)`, "n (Einsum): equation is missing"},
		{`Resize "n" (%x, _, %scales0)`, "n (Resize): scale 0 of axis 1, want it positive"},
		{`Resize "n" (%x, _, _, %twice)`, "n (Resize): size -1 of axis 0, want 0 or more"},
		{`NonMaxSuppression "n" (%boxes, %scores)`, "n (NonMaxSuppression): scores is f32[1,2,6], want f32[1,?,4]"},
		{`NonMaxSuppression "n" (%boxes, %x)`, "n (NonMaxSuppression): scores is f32[2,3], want f32[1,?,4]"},
	} {
		g, err := ir.Parse(`graph "g"(%x: f32[2,3], %y: f32[3,3], %sizes: i64[2], %boxes: f32[1,4,4], %scores: f32[1,2,6], %i3: i64[3], %one: i64[]) {
  %scales: f32[2] = const {2, 2}
  %scales0: f32[2] = const {2, 0}
  %v0: i64[1] = const {0}
  %v5: i64[1] = const {5}
  %last: i64[1,2] = const {2, 3}
  %twice: i64[2] = const {-1, -1}
  %cut: i64[4] = const {-3, 0, 0, 0}
  %z: f32[*] = `+c.node+`
  return %z
}`, Registry)
		if err != nil {
			t.Fatalf("%s: %v", c.node, err)
		}
		switch err := g.Infer(); {
		case err == nil:
			t.Errorf("%s: inferred %v, want the error %s", c.node, g.Outputs[0].Type, c.want)
		case err.Error() != c.want:
			t.Errorf("%s: error %v, want %s", c.node, err, c.want)
		}
	}
}

// run parses an operator, checks the inputs against it as a graph would, and
// evaluates it.
func run(t *testing.T, node string, outs int, in ...*tensor.Tensor) ([]*tensor.Tensor, error) {
	t.Helper()
	var params, args []string
	for i, x := range in {
		if x == nil {
			args = append(args, "_")
			continue
		}
		args = append(args, "%x"+string(rune('0'+i)))
		params = append(params, args[i]+": "+ir.TypeOf(x).String())
	}
	var decl, names []string
	for i := range outs {
		names = append(names, "%y"+string(rune('0'+i)))
		decl = append(decl, names[i]+": f32[*]")
	}
	kind, attrs, _ := strings.Cut(node, " ")
	g, err := ir.Parse(`graph "g"(`+strings.Join(params, ", ")+`) { `+strings.Join(decl, ", ")+` = `+kind+` "n" (`+
		strings.Join(args, ", ")+`) `+attrs+` return `+strings.Join(names, ", ")+` }`, Registry)
	if err != nil {
		t.Fatalf("%s: %v", node, err)
	}
	if err := g.Infer(); err != nil {
		return nil, err
	}
	res, err := g.Nodes[0].Op.Eval(&ir.Eval{Outputs: outs}, in)
	if err != nil {
		return nil, err
	}
	for i, y := range res[:min(outs, len(res))] {
		if want := g.Outputs[i].Type; y.DType() != want.DType || want.Ranked && want.Rank() != y.Rank() {
			t.Errorf("%s: output %d is %v, inferred %v", node, i, y, want)
		}
	}
	return res, nil
}

func TestMovesEval(t *testing.T) {
	x := tensor.From([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	i := tensor.Ints
	for _, c := range []struct {
		node string
		in   []*tensor.Tensor
		want *tensor.Tensor
	}{
		{"Pad {mode = \"reflect\"}", []*tensor.Tensor{x, i(0, 4, 0, 1)}, tensor.From([]float32{0, 1, 2, 1, 0, 1, 2, 1, 3, 4, 5, 4, 3, 4, 5, 4}, 2, 8)},
		{"Pad {mode = \"wrap\"}", []*tensor.Tensor{x, i(1, 0, 0, 2)}, tensor.From([]float32{3, 4, 5, 3, 4, 0, 1, 2, 0, 1, 3, 4, 5, 3, 4}, 3, 5)},
		{"Pad {mode = \"edge\"}", []*tensor.Tensor{x, i(-1, 2, 0, -1)}, tensor.From([]float32{3, 3, 3, 4}, 1, 4)},
		{"Pad", []*tensor.Tensor{x, i(1, -1), tensor.Scalar(float32(9)), i(-1)}, tensor.From([]float32{9, 0, 1, 9, 3, 4}, 2, 3)},
		{"Slice", []*tensor.Tensor{x, i(-1), i(-9223372036854775808), i(1), i(-2)}, tensor.From([]float32{2, 0, 5, 3}, 2, 2)},
		{"Slice", []*tensor.Tensor{x, i(1, 2), i(5, 2)}, tensor.From([]float32{}, 1, 0)},
		{"Slice", []*tensor.Tensor{x, i(0), i(3), i(1), i(9223372036854775807)}, tensor.From([]float32{0, 3}, 2, 1)},
		{"Gather {axis = 1}", []*tensor.Tensor{x, i(-1, 0)}, tensor.From([]float32{2, 0, 5, 3}, 2, 2)},
		{"GatherElements {axis = 0}", []*tensor.Tensor{x, i(1, 0, -1).Reshape(1, 3)}, tensor.From([]float32{3, 1, 5}, 1, 3)},
		{"GatherND {batch_dims = 1}", []*tensor.Tensor{x, i(2, -3).Reshape(2, 1)}, tensor.From([]float32{2, 3}, 2)},
		{"Tile", []*tensor.Tensor{x, i(1, 2)}, tensor.From([]float32{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, 2, 6)},
		{"Tile", []*tensor.Tensor{x, i(0, 2)}, tensor.From([]float32{}, 0, 6)},
		{"Expand", []*tensor.Tensor{i(1, 2).Reshape(2, 1), i(2, 2)}, tensor.From([]int64{1, 1, 2, 2}, 2, 2)},
		{"Reshape {allowzero = 1}", []*tensor.Tensor{tensor.From([]float32{}, 0, 3), i(3, 0)}, tensor.From([]float32{}, 3, 0)},
		{"Reshape", []*tensor.Tensor{tensor.From([]float32{}, 0, 4), i(0, 2, -1)}, tensor.From([]float32{}, 0, 2, 2)},
		{"Shape {start = -1}", []*tensor.Tensor{x}, i(3)},
		{"Size", []*tensor.Tensor{x}, tensor.Scalar(int64(6))},
		{"Concat {axis = -1}", []*tensor.Tensor{tensor.FromStrings([]string{"a", "b"}, 2, 1), tensor.FromStrings([]string{"c", "d"}, 2, 1)}, tensor.FromStrings([]string{"a", "c", "b", "d"}, 2, 2)},
	} {
		out, err := run(t, c.node, 1, c.in...)
		if err != nil {
			t.Errorf("%s: %v", c.node, err)
		} else if !out[0].Equal(c.want) {
			t.Errorf("%s of %v: %v, want %v", c.node, c.in, out[0], c.want)
		}
	}
}

func TestEvalRefusesBadData(t *testing.T) {
	x := tensor.From([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	i := tensor.Ints
	for _, c := range []struct {
		node string
		in   []*tensor.Tensor
	}{
		{"Reshape", []*tensor.Tensor{x, i(4, -1)}},
		{"Reshape", []*tensor.Tensor{x, i(1<<40, 1<<40)}},
		{"Reshape", []*tensor.Tensor{x, i(1<<40, 1<<40, -1)}},
		{"Gather", []*tensor.Tensor{x, i(2)}},
		{"GatherElements", []*tensor.Tensor{x, i(-3).Reshape(1, 1)}},
		{"GatherND", []*tensor.Tensor{x, i(0, 3).Reshape(1, 2)}},
		{"Expand", []*tensor.Tensor{x, i(1<<40, 1, 1)}},
		{"Expand", []*tensor.Tensor{x, i(4, 3)}},
		{"Tile", []*tensor.Tensor{x, i(-1, 1)}},
		{"Tile", []*tensor.Tensor{x, i(1<<62, 2)}},
		{"Pad", []*tensor.Tensor{x, i(1<<62, 1, 1<<62, 1)}},
		{"Pad", []*tensor.Tensor{x, i(-2, 0, -1, 0)}},
		{"Slice", []*tensor.Tensor{x, i(0), i(1), i(0), i(0)}},
		{"Unsqueeze", []*tensor.Tensor{x, i(0, 0)}},
		{"Squeeze", []*tensor.Tensor{x, i(1)}},
		{"Split", []*tensor.Tensor{x, i(3)}},
	} {
		out, err := run(t, c.node, 1, c.in...)
		if err == nil {
			t.Errorf("%s of %v: %v, want an error", c.node, c.in, out)
		}
	}
}

// squeeze is how PyTorch exports x.squeeze(1): a branch for each outcome.
const squeeze = `graph "squeeze"(%x: f32[N,C], %c: bool[]) {
  %c0: bool[] = const {0}
  %c1: bool[] = const {1}
  %v1: i64[1] = const {1}
  %y: ? = If "if" (COND) {then_branch = graph "then"() {
    %s: ? = Squeeze "s" (%x, %v1)
    return %s
  }, else_branch = graph "else"() {
    return %x
  }}
  return %y
}`

func TestIfTakesTheBranchThatFits(t *testing.T) {
	for _, c := range []struct{ cond, size, want string }{
		{"%c0", "5", "f32[N,5]"},
		{"%c0", "1", "f32[N,1]"},
		{"%c1", "1", "f32[N]"},
		{"%c", "5", "f32[N,5]"},
		{"%c", "1", "f32[*]"},
	} {
		text := strings.NewReplacer("COND", c.cond, "N,C", "N,"+c.size).Replace(untyped(squeeze))
		wantTypes(t, inferred(t, text), c.want)
	}
	g, err := ir.Parse(strings.NewReplacer("COND", "%c1", "N,C", "N,5").Replace(untyped(squeeze)), Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err == nil || err.Error() != "s (Squeeze): dimension 1 of [N 5] is squeezed, want size 1" {
		t.Errorf("error %v of the only branch that is taken", err)
	}
}

func TestRefusedBranchIsAnErrorWhenTaken(t *testing.T) {
	g, err := ir.Parse(strings.NewReplacer("COND", "%c", "N,C", "2,5").Replace(untyped(squeeze)), Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	again, err := ir.Parse(ir.Print(g), Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Verify(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(ir.Print(g), ir.Print(again)); d != "" {
		t.Error("printed and parsed:", d)
	}
	ran := &ir.Eval{Outputs: 1, Run: func(g *ir.Graph, _ []*tensor.Tensor) ([]*tensor.Tensor, error) {
		return one(tensor.FromStrings([]string{g.Name}))
	}}
	out, err := g.Nodes[0].Op.Eval(ran, []*tensor.Tensor{tensor.Scalar(false)})
	if err != nil || out[0].Strings()[0] != "else" {
		t.Errorf("false runs %v, error %v, want the branch else", out, err)
	}
	if out, err := g.Nodes[0].Op.Eval(ran, []*tensor.Tensor{tensor.Scalar(true)}); err == nil {
		t.Errorf("true runs %v, want an error", out)
	}
}
