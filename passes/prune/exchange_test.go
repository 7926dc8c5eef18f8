package prune_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/prune"
	"spc/tests/graphtest"
)

// shuffled puts the channels of every group of g in a random order, and returns what it did.
func shuffled(t *testing.T, g *ir.Graph, seed uint64) *prune.Exchanges {
	t.Helper()
	p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern("2:4")}})
	if err != nil {
		t.Fatal(err)
	}
	x, r := p.Exchanges(nil), rand.New(rand.NewPCG(seed, 9))
	var orders [][]int
	for _, group := range x.Groups {
		orders = append(orders, r.Perm(group.Size))
	}
	if err := x.Apply(orders); err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Errorf("%v in\n%s", err, g)
	}
	return x
}

// checkExchanges compares g with what it is with its channels in another order, and what
// Moved says with the weights.
func checkExchanges(t *testing.T, g *ir.Graph) *prune.Exchanges {
	t.Helper()
	moved := g.Clone()
	x := shuffled(t, moved, 1)
	graphtest.Same(t, g, moved, 1e-4)
	o := prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern("2:4")}}
	before, err := prune.NewPlan(g, o)
	if err != nil {
		t.Fatal(err)
	}
	after, err := prune.NewPlan(moved, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range before.Layers {
		if before.Use(i).Value.Const == nil {
			continue
		}
		a, b := before.Matrix(i), after.Matrix(i)
		at := func(l *prune.Layer, r, c int) float32 {
			if l.Transposed {
				return l.Weights[c*l.Rows+r]
			}
			return l.Weights[r*l.Cols+c]
		}
		rows, cols := x.Moved(i)
		for r := range a.Rows {
			for c := range a.Cols {
				from, of := r, c
				if rows != nil {
					from = rows[r]
				}
				if cols != nil {
					of = cols[c]
				}
				if x, y := at(&a, from, of), at(&b, r, c); x != y && before.Use(i).Groups == 1 {
					t.Fatalf("%s: [%d,%d] is %v, want %v, which was [%d,%d]", a.Name, r, c, y, x, from, of)
				}
			}
		}
	}
	return x
}

func TestChannelsThatEndInTheSameTensorsChangePlaces(t *testing.T) {
	const image = "%x: f32[2,3,4,4]"
	for name, c := range map[string]struct {
		weights, body string
		sizes         []int
		stay          string
	}{
		"a chain": {"a[4,3,1,1] d[8,1,3,3] e[5,8,1,1] b[4]", `
  %p: f32[*] = Conv "a" (%x, %a, %b)
  %q: f32[*] = Conv "d" (%p, %d) {group = 4}
  %y: f32[*] = Conv "e" (%q, %e)
  return %y`, []int{4}, "they are an output of the model"},
		"parts of a concatenation": {"a[4,3,1,1] c[6,3,1,1] e[5,10,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "c" (%x, %c)
  %j: f32[*] = Concat "join" (%p, %q) {axis = 1}
  %y: f32[*] = Conv "e" (%j, %e)
  return %y`, []int{4, 6}, ""},
		"a sum": {"a[4,3,1,1] c[4,3,1,1] e[5,4,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "c" (%x, %c)
  %s: f32[*] = Add "sum" (%p, %q)
  %y: f32[*] = Conv "e" (%s, %e)
  return %y`, []int{4}, ""},
		"halves that are multiplied": {"a[8,3,1,1] e[5,4,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %s: f32[*], %r: f32[*] = Split "halves" (%p) {axis = 1}
  %m: f32[*] = Mul "gate" (%s, %r)
  %y: f32[*] = Conv "e" (%m, %e)
  return %y`, []int{4}, ""},
		"halves in different places of a sum": {"a[8,3,1,1] e[5,8,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %s: f32[*], %r: f32[*] = Split "halves" (%p) {axis = 1}
  %j: f32[*] = Concat "swap" (%r, %s) {axis = 1}
  %m: f32[*] = Add "both" (%p, %j)
  %y: f32[*] = Conv "e" (%m, %e)
  return %y`, []int{4}, ""},
		"a pixel shuffle": {"a[8,3,1,1] e[5,2,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %m: f32[*] = DepthToSpace "shuffle" (%p) {blocksize = 2}
  %y: f32[*] = Conv "e" (%m, %e)
  return %y`, nil, "shuffle (DepthToSpace) reads them"},
	} {
		t.Run(name, func(t *testing.T) {
			g := network(t, 3, image, c.weights, c.body)
			x := checkExchanges(t, g)
			var sizes []int
			for _, group := range x.Groups {
				sizes = append(sizes, group.Size)
			}
			if !slices.Equal(sizes, c.sizes) {
				t.Errorf("groups of %v channels, want %v", sizes, c.sizes)
			}
			last := len(g.WeightUses()) - 1
			said := ""
			for i := range last + 1 {
				rows, cols := x.Stay(i)
				said += rows + "; " + cols + "; "
			}
			if !strings.Contains(said, c.stay) {
				t.Errorf("reasons %q, want %q among them", said, c.stay)
			}
		})
	}
}

func TestChannelsOfKeptWeightsStay(t *testing.T) {
	g := graphtest.Parse(t, twoConvs)
	glob, err := prune.ParseGlob("middle")
	if err != nil {
		t.Fatal(err)
	}
	p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern("2:4")}, Keep: []prune.Glob{glob}})
	if err != nil {
		t.Fatal(err)
	}
	if x := p.Exchanges(nil); len(x.Groups) > 0 {
		t.Errorf("groups %v, want none beside a kept weight", x.Groups)
	}
	p, err = prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern("2:4")}})
	if err != nil {
		t.Fatal(err)
	}
	x := p.Exchanges(func(v *ir.Value) string {
		if v.Name == "w1" {
			return "it has scales"
		}
		return ""
	})
	rows, cols := x.Stay(1)
	if len(x.Groups) > 0 || rows != "it has scales" || cols != "it has scales" {
		t.Errorf("groups %v, reasons %q and %q", x.Groups, rows, cols)
	}
	x = p.Exchanges(nil)
	if err := x.Apply([][]int{{0, 1, 2, 2}, nil}); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("error %v, want one that refuses an order that drops a channel", err)
	}
}
