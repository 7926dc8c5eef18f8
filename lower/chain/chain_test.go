package chain_test

import (
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/chain"
	"spc/tests/graphtest"
)

// anything takes all types, as far as there is room, behind a norm, too.
var anything = chain.Rules{
	Takes: func(*ir.Node) bool { return true }, Registers: 3, Operands: 4, Instructions: 6, Load: true,
	Begins: func(n *ir.Node) bool { return n.Op.Kind() == "LayerNormalization" },
}

var graphs = map[string]struct {
	text  string
	nodes int // that are left
}{
	"one value read twice by its chain": {`graph "g"(%x: f32[2,8], %b: f32[8]) {
  %a: f32[2,8] = Add "a" (%x, %b)
  %s: f32[2,8] = Sigmoid "s" (%a)
  %m: f32[2,8] = Mul "m" (%a, %s)
  %n: f32[2,8] = Neg "n" (%m)
  return %n
}`, 1},
	"a value that is an output": {`graph "g"(%x: f32[2,8]) {
  %a: f32[2,8] = Abs "a" (%x)
  %s: f32[2,8] = Sqrt "s" (%a)
  return %a, %s
}`, 2},
	"a value that two chains read": {`graph "g"(%x: f32[2,8]) {
  %e: f32[2,8] = Exp "e" (%x)
  %a: f32[2,8] = Neg "a" (%e)
  %b: f32[2,8] = Abs "b" (%e)
  return %a, %b
}`, 3},
	"a value that is repeated": {`graph "g"(%x: f32[2,8], %b: f32[8]) {
  %e: f32[8] = Exp "e" (%b)
  %a: f32[2,8] = Mul "a" (%x, %e)
  return %a
}`, 2},
	"numbers, one of them read as a tensor, too": {`graph "g"(%x: f32[2,8]) {
  %two: f32[] = const {2.0}
  %a: f32[2,8] = Sub "a" (%two, %x)
  %b: f32[2,8] = Sum "b" (%a, %two, %x)
  %c: f32[2,8] = Div "c" (%b, %two)
  return %c
}`, 1},
	"floats, comparisons and bools": {`graph "g"(%x: f32[2,8], %t: i64[2,8]) {
  %zero: f32[] = const {0.0}
  %f: f32[2,8] = Cast "f" (%t) {to = 1}
  %a: bool[2,8] = Less "a" (%x, %f)
  %b: bool[2,8] = Not "b" (%a)
  %w: f32[2,8] = Where "w" (%b, %x, %zero)
  return %w
}`, 1},
	"floats and integers, which are cut to 32 bits": {`graph "g"(%x: i32[2,8], %y: i32[8]) {
  %a: i32[2,8] = Mul "a" (%x, %y)
  %b: i32[2,8] = Add "b" (%a, %y)
  %f: f32[2,8] = Cast "f" (%b) {to = 1}
  %g: f32[2,8] = Sqrt "g" (%f)
  return %g
}`, 2},
	"a norm, with its constants, and something in front of it": {`graph "g"(%x: f32[2,8], %r: f32[1,2,8]) {
  %w: f32[8] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}
  %b: f32[8] = const {8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0}
  %e: f32[2,8] = Exp "e" (%x)
  %n: f32[2,8] = LayerNormalization "n" (%e, %w, %b)
  %s: f32[2,8] = Sigmoid "s" (%n)
  %m: f32[2,8] = Mul "m" (%n, %s)
  %f: f32[1,2,8] = Neg "f" (%r)
  %y: f32[1,2,8] = Add "y" (%m, %f)
  return %y
}`, 2},
	"more operands than there may be": {`graph "g"(%a: f32[8], %b: f32[8], %c: f32[8], %d: f32[8], %e: f32[8]) {
  %s: f32[8] = Sum "s" (%a, %b, %c)
  %u: f32[8] = Sum "u" (%s, %d, %e)
  return %u
}`, 2},
	"more instructions than there may be": {`graph "g"(%a: f32[8]) {
  %b: f32[8] = Exp "b" (%a)
  %c: f32[8] = Neg "c" (%b)
  %d: f32[8] = Exp "d" (%c)
  %e: f32[8] = Neg "e" (%d)
  %f: f32[8] = Exp "f" (%e)
  %g: f32[8] = Neg "g" (%f)
  %h: f32[8] = Exp "h" (%g)
  return %h
}`, 2},
	"more values at once than there is room for": {`graph "g"(%a: f32[8]) {
  %c: f32[8] = Exp "c" (%a)
  %d: f32[8] = Neg "d" (%a)
  %e: f32[8] = Sin "e" (%a)
  %f: f32[8] = Add "f" (%c, %d)
  %g: f32[8] = Mul "g" (%f, %e)
  %h: f32[8] = Sub "h" (%g, %a)
  return %h
}`, 2},
}

// Chains are made of what one of them alone reads and there is room for, compute the same, and fall apart into what they
// were made of.
func TestChains(t *testing.T) {
	for name, c := range graphs {
		t.Run(name, func(t *testing.T) {
			before := graphtest.Parse(t, c.text)
			g := before.Clone()
			gone := anything.Form(g)
			if len(g.Nodes) != c.nodes || gone != len(before.Nodes)-c.nodes {
				t.Errorf("%d nodes, and %d fewer, want %d nodes in\n%s", len(g.Nodes), gone, c.nodes, ir.Print(g))
			}
			if err := g.Verify(); err != nil {
				t.Fatalf("%v in\n%s", err, ir.Print(g))
			}
			graphtest.Same(t, before, g, 0)
			for _, n := range slices.Clone(g.Nodes) {
				if p := anything.Of(n); p == nil {
					t.Errorf("%v has no program", n)
				} else if len(p.Instructions) > anything.Instructions || len(p.Operands) > anything.Operands || anything.Assign(p) == nil {
					t.Errorf("%v has %d instructions and %d operands", n, len(p.Instructions), len(p.Operands))
				}
				chain.Expand(n)
			}
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
			// What is computed together may come in another order.
			if got, want := slices.Sorted(strings.Lines(ir.Print(g))), slices.Sorted(strings.Lines(ir.Print(before))); !slices.Equal(got, want) {
				t.Errorf("expanded to\n%swant\n%s", ir.Print(g), ir.Print(before))
			}
		})
	}
}

// Axes that operands cross alike are one, in whatever order the result has its axes in memory.
func TestAxes(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[2,3,4,5], %b: f32[3,1,1], %r: f32[5]) {
  %a: f32[2,3,4,5] = Sum "a" (%x, %b, %r)
  return %a
}`)
	p := anything.Of(g.Nodes[0])
	own := func(v *ir.Value) []int {
		s, _ := v.Type.Shape()
		return tensor.Strides(s)
	}
	size, strides := p.Axes([]int{2, 3, 4, 5}, nil, own)
	if !slices.Equal(size, []int{2, 3, 4, 5}) || !slices.Equal(strides[1], []int{0, 1, 0, 0}) {
		t.Errorf("axes %v, strides %v", size, strides)
	}
	p.Operands = p.Operands[:2]
	if size, strides = p.Axes([]int{2, 3, 4, 5}, nil, own); !slices.Equal(size, []int{2, 3, 20}) || !slices.Equal(strides[0], []int{60, 20, 1}) {
		t.Errorf("axes %v, strides %v", size, strides)
	}
	if size, strides = p.Axes([]int{2, 3, 4, 5}, []int{0, 2, 3, 1}, own); !slices.Equal(size, []int{2, 20, 3}) || !slices.Equal(strides[1], []int{0, 0, 1}) {
		t.Errorf("axes %v, strides %v", size, strides)
	}
}

// The text of a graph with chains parses back.
func TestTextOfChains(t *testing.T) {
	for name, c := range graphs {
		g := graphtest.Parse(t, c.text)
		anything.Form(g)
		text := ir.Print(g)
		back, err := ir.Parse(text, chain.Registry)
		if err != nil {
			t.Errorf("%s: %v in\n%s", name, err, text)
			continue
		}
		if got := ir.Print(back); got != text {
			t.Errorf("%s: parsed and printed again\n%swant\n%s", name, got, text)
		}
		graphtest.Same(t, g, back, 0)
	}
}
