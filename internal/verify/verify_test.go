package verify_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spc/internal/verify"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

func TestToleranceIsThatOfTheLeastExactType(t *testing.T) {
	for _, test := range []struct{ text, precision, want string }{
		{`graph "g"(%x: f32[2]) {
  %y: f32[2] = Relu "r" (%x)
  return %y
}`, "", "f32"},
		{`graph "g"(%x: f32[2]) {
  %y: f32[2] = Relu "r" (%x)
  return %y
}`, "bf16", "bf16"},
		{`graph "g"(%x: f16[2]) {
  %y: f16[2] = Relu "r" (%x)
  %z: f32[2] = Cast "c" (%y) {to = 1}
  return %z
}`, "f32", "f16"},
		{`graph "g"(%x: f32[2]) {
  %s: f32[] = const {0.5}
  %q: u8[2] = QuantizeLinear "q" (%x, %s)
  %y: f32[2] = DequantizeLinear "d" (%q, %s)
  return %y
}`, "f16", "int8"},
		{`graph "g"(%x: u8[2]) {
  %y: i64[2] = Cast "c" (%x) {to = 7}
  return %y
}`, "", "f32"},
	} {
		got := verify.ToleranceOf(test.precision, graphtest.Parse(t, test.text))
		if got.For != test.want {
			t.Errorf("%s, %q: %v, want that of %s", test.text, test.precision, got, test.want)
		}
	}
	for i, x := range verify.Tolerances[1:] {
		if x.RelL2 >= verify.Tolerances[i].RelL2 {
			t.Errorf("%v is not below %v", x, verify.Tolerances[i])
		}
	}
}

func TestCompareMeasuresTheError(t *testing.T) {
	a, b := tensor.From([]float32{3, 4.5}, 2), tensor.From([]float32{3, 4}, 2)
	d := verify.Compare(a, b)
	if d.RelL2 != 0.1 || d.MaxAbs != 0.5 || d.MaxRel != 0.125 || d.Unequal != "" || !d.Within(0.1) || d.Within(0.09) || !d.Within(-1) {
		t.Errorf("%+v", d)
	}
	nan := tensor.From([]float32{3, float32(math.NaN())}, 2)
	if d := verify.Compare(nan, b); d.Within(-1) || !math.IsInf(d.RelL2, 1) {
		t.Errorf("%+v", d)
	}
	if d := verify.Compare(nan, nan); !d.Within(0) {
		t.Errorf("%+v", d)
	}
}

const small = `graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1, -2, 3, -4}
  %u: f32[2,2] = const {0.5, 1, 1.5, 2}
  %a: f32[2,2] = MatMul "first" (%x, %w)
  %b: f32[2,2] = Relu "relu" (%a)
  %c: f32[2,2] = MatMul "second" (%b, %u)
  %d: f32[2,2] = Sigmoid "third" (%c)
  return %d
}`

func swap(t *testing.T, g *ir.Graph, node, kind string) {
	t.Helper()
	o, err := op.Registry.New(kind)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes {
		if n.Name == node {
			n.Op = o
			return
		}
	}
	t.Fatalf("no node %s", node)
}

// TestOfPassNamesThePassAndTheNode has passes that mean to change nothing, of which one
// does.
func TestOfPassNamesThePassAndTheNode(t *testing.T) {
	g := graphtest.Parse(t, small)
	in := []*tensor.Tensor{tensor.From([]float32{1, 2, -3, 4}, 2, 2)}
	b := &verify.Bench{Tolerance: 1e-4}
	for _, bad := range []bool{true, false} {
		f, err := b.OfPass(context.Background(), g, in, func(g *ir.Graph, each func(string, *ir.Graph) error) error {
			if err := each("nothing", g); err != nil {
				return err
			}
			if bad {
				swap(t, g, "relu", "Abs")
			}
			if err := each("wrong", g); err != nil {
				return err
			}
			return each("later", g)
		})
		switch {
		case err != nil:
			t.Fatal(err)
		case !bad && f != nil:
			t.Errorf("%v, want no fault", f)
		case bad && (f == nil || f.Stage != verify.InPass || f.Pass != "wrong" || f.Node != "relu" || f.Output != "b"):
			t.Errorf("%+v", f)
		}
	}
}

func TestOfGraphNamesTheNodeWithAnotherConstant(t *testing.T) {
	g := graphtest.Parse(t, small)
	other := graphtest.Parse(t, strings.Replace(small, "{0.5, 1, 1.5, 2}", "{0.7, 1, 1.5, 2}", 1))
	in := []*tensor.Tensor{tensor.From([]float32{1, 2, 3, 4}, 2, 2)}
	b := &verify.Bench{Tolerance: 1e-4}
	var e [2]*verify.Evaluated
	for i, g := range []*ir.Graph{g, other} {
		var err error
		if e[i], err = b.Evaluate(context.Background(), g, in); err != nil {
			t.Fatal(err)
		}
	}
	f := b.OfGraph(e[1], e[0])
	if f == nil || f.Node != "second" || !slices.Equal(f.Constants, []string{"u"}) || f.Stage != verify.InWeights {
		t.Errorf("%+v", f)
	}
	if f := b.OfGraph(e[0], e[0]); f != nil {
		t.Errorf("%+v", f)
	}
}

// Of a graph without the names of the reference each value is compared with those that are as
// long, not with all.
func TestOfGraphComparesFewValues(t *testing.T) {
	const nodes, size = 300, 10
	text := func(names string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "graph \"g\"(%%x: f32[%d]) {\n  %%one: f32[] = const {1}\n  %%%s0: f32[%d] = Relu \"r\" (%%x)\n", size, names, size)
		for i := range nodes {
			fmt.Fprintf(&b, "  %%%s%d: f32[%d] = Add \"n%d\" (%%%s%d, %%one)\n", names, i+1, size, i, names, i)
		}
		fmt.Fprintf(&b, "  return %%%s%d\n}", names, nodes)
		return b.String()
	}
	b := &verify.Bench{Tolerance: 1e-4}
	var e []*verify.Evaluated
	for _, names := range []string{"v", "v", "w"} {
		one, err := b.Evaluate(t.Context(), graphtest.Parse(t, text(names)), []*tensor.Tensor{tensor.New(tensor.F32, size)})
		if err != nil {
			t.Fatal(err)
		}
		e = append(e, one)
	}
	for _, other := range e[1:] {
		before := b.Compared()
		if f := b.OfGraph(other, e[0]); f != nil {
			t.Errorf("%v", f)
		}
		if n := b.Compared() - before; n != nodes+1 {
			t.Errorf("%d values were compared %d times", nodes+1, n)
		}
	}
}

func TestWithWeightsTakesThoseOfTheOtherGraph(t *testing.T) {
	dense := graphtest.Parse(t, small)
	unpack := func(*ir.Value) (*tensor.Tensor, error) { return nil, nil }
	own := strings.NewReplacer("{0.5, 1, 1.5, 2}", "{0, 1, 1.5, 0}", `Relu "relu" (%a)`, `Abs "other" (%a)`).Replace(small)
	own = strings.Replace(own, `"second" (%b, %u)`, `"second" (%b, %u, %bias)`, 1)
	own = strings.Replace(own, "  %a:", "  %bias: f32[2] = const {7, 8}\n  %a:", 1)
	own = strings.ReplaceAll(own, "%w", "%renamed")
	g, err := verify.WithWeights(dense, graphtest.Parse(t, own), dense, unpack)
	if err != nil {
		t.Fatal(err)
	}
	if text := g.String(); !strings.Contains(text, "{0.0, 1.0, 1.5, 0.0}") || !strings.Contains(text, "Relu") || !strings.Contains(text, "const {7.0, 8.0}") {
		t.Errorf("%s", text)
	}
	if strings.Contains(dense.String(), "0.0, 1.0") {
		t.Error("the dense graph was changed")
	}
	rearranged := graphtest.Parse(t, strings.Replace(small, "{0.5, 1, 1.5, 2}", "{0.5, 1.5, 1, 2}", 1))
	for _, test := range []struct {
		own   string
		fused *ir.Graph
		want  string
	}{
		{small, rearranged, "later passes rearrange constant u"},
		{strings.NewReplacer(`"second"`, `"other"`, "{0.5, ", "{0, ").Replace(small), dense, "constant u of node other (MatMul) has no place in it"},
		{`graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1, -2, 3, -4}
  %a: f32[2,2] = MatMul "first" (%x, %w)
  return %a
}`, dense, "weight u of node second (MatMul) is not in the compiled model"},
	} {
		_, err := verify.WithWeights(dense, graphtest.Parse(t, test.own), test.fused, unpack)
		if err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}
