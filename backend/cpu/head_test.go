package cpu

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/chain"
	"spc/tests/graphtest"
)

// constantText is a constant of n random elements.
func constantText(r *rand.Rand, n int) string {
	var s []string
	for range n {
		s = append(s, fmt.Sprint(float32(r.NormFloat64())))
	}
	return fmt.Sprintf("f32[%d] = const {%s}", n, strings.Join(s, ", "))
}

// apart is the k-th element of what a norm is tested on, which lies apart from its neighbours: a group of two near equal elements has
// a variance of the order of epsilon, and its quotient the rounding of a mean times 300.
func apart(r *rand.Rand, k int) float32 { return float32((0.5 + r.ExpFloat64()) * float64(2*(k%2)-1)) }

// What normalises is one node with the elementwise operators that alone read it, and gives what the interpreter gives,
// whatever these read beside it and wherever rows and planes are cut.
func TestNormsBeginChains(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	norms := []string{
		`LayerNormalization "n" (%x, %row, %shift)`, `RMSNormalization "n" (%x, %row)`, `LpNormalization "n" (%x) {p = 1}`, `LpNormalization "n" (%x)`,
		`Softmax "n" (%x)`, `LogSoftmax "n" (%x)`, `Hardmax "n" (%x)`, `InstanceNormalization "n" (%x, %scale, %bias)`,
		`GroupNormalization "n" (%x, %scale, %bias) {num_groups = 2}`, `GroupNormalization "n" (%x, %slope, %bias) {num_groups = 3}`,
	}
	tails := map[string][]string{
		"Relu":       {`Relu "a" (%n)`},
		"Leaky":      {`LeakyRelu "a" (%n) {alpha = 0.2}`},
		"SiLU":       {`Swish "a" (%n)`},
		"GELU":       {`Gelu "a" (%n)`},
		"HardSwish":  {`HardSwish "a" (%n)`},
		"the input":  {`Add "a" (%n, %x)`},
		"a residual": {`Tanh "a" (%n)`, `Mul "b" (%a, %res)`, `Add "c" (%b, %n)`},
		"broadcasts": {`Add "a" (%n, %plane)`, `Sub "b" (%line, %a)`, `Max "c" (%b, %res)`},
		"a cast":     {`Cast "a" (%whole) {to = 1}`, `Where "b" (%which, %n, %a)`},
		"a constant": {`Mul "a" (%n, %row)`},
	}
	for _, shape := range [][]int{{2, 6, 1030}, {1, 6, 5}, {2, 6, 7, 9}, {1, 6, 1, 2}, {1, 6, 17, 131}, {1, 6, 4501}}[:rounds(6)] {
		c, w := shape[1], shape[len(shape)-1]
		ones := strings.Repeat(",1", len(shape)-2)
		for _, norm := range norms {
			for _, name := range slices.Sorted(maps.Keys(tails)) { // one order, so that a seed gives one test
				tail := tails[name]
				threads := 1 + r.IntN(3)
				lines := append([]string{norm}, tail...)
				text := fmt.Sprintf("graph \"g\"(%%raw: f32%[1]s, %%res: f32%[1]s, %%plane: f32[%[2]d%[3]s], %%line: f32[%[4]d], %%whole: i32%[1]s, %%which: bool%[1]s, %%slope: f32[%[2]d]) {\n",
					dims(shape), c, ones, w)
				text += fmt.Sprintf("%%row: %s\n%%shift: %s\n%%scale: %s\n%%bias: %s\n", constantText(r, w), constantText(r, w), constantText(r, c), constantText(r, c))
				text += "%x: f32[*] = Neg \"x\" (%raw)\n" // whose place results may take
				last := "%x"
				for _, l := range lines {
					last = "%" + strings.Split(l, `"`)[1]
					text += last + ": f32[*] = " + l + "\n"
				}
				g := graphtest.Parse(t, text+"return "+last+"\n}")
				in := make([]*tensor.Tensor, len(g.Inputs))
				for i, v := range g.Inputs {
					f := tensor.New(tensor.F32, shapeOf(v)...)
					for k := range f.F32s() {
						f.F32s()[k] = apart(r, k)
					}
					in[i] = f.To(v.Type.DType)
				}
				want, err := ref.Run(context.Background(), g, in)
				if err != nil {
					t.Fatal(err)
				}
				got, nodes := runChained(t, g, in, backend.Options{Threads: threads})
				what := fmt.Sprintf("%s, %s, %v, %d threads", lines[0], name, shape, threads)
				compare(t, what, got[0], want[0])
				if own := name == "a constant" && strings.Contains(norm, "row"); (len(nodes) == 2) == own {
					t.Errorf("%s: %d nodes, of which the last is\n%v", what, len(nodes), nodes[len(nodes)-1])
				} else if !own && chain.Head(nodes[1]) == nil {
					t.Errorf("%s: no chain that begins with it", what)
				}
			}
		}
	}
}

// A norm stays a node where others read its value, and where the elementwise operator that reads it has another shape.
func TestNormsThatBeginNoChain(t *testing.T) {
	for _, text := range []string{
		`%n: f32[2,3,4] = Softmax "n" (%x)  %y: f32[2,3,4] = Relu "y" (%n)  return %y, %n }`,
		`%n: f32[2,3,4] = Softmax "n" (%x)  %y: f32[5,2,3,4] = Add "y" (%n, %z)  return %y }`,
		`%n: f32[2,3,4] = Softmax "n" (%x)  %t: f32[2,4,3] = Transpose "t" (%n) {perm = [0, 2, 1]}  %y: f32[2,3,4] = Relu "y" (%n)  return %y, %t }`,
		`%n: f32[2,3,4] = Softmax "n" (%x) {axis = 1}  %y: f32[2,3,4] = Relu "y" (%n)  return %y }`,
		`%n: f32[2,3,4] = Softmax "n" (%x)  %y: bool[2,3,4] = Less "y" (%n, %x)  return %y }`,
	} {
		text = `graph "g"(%x: f32[2,3,4], %z: f32[5,2,3,4]) { ` + strings.ReplaceAll(text, "  ", "\n")
		g := graphtest.Parse(t, text)
		in := []*tensor.Tensor{tensor.New(tensor.F32, 2, 3, 4), tensor.New(tensor.F32, 5, 2, 3, 4)}
		for i := range in[0].F32s() {
			in[0].F32s()[i] = float32(i%5) - 2
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		got, nodes := runChained(t, g, in, backend.Options{Threads: 1})
		for i := range want {
			compare(t, text, got[i].To(tensor.F32), want[i].To(tensor.F32))
		}
		for _, n := range nodes {
			if chain.Head(n) != nil {
				t.Errorf("%v begins with a norm in\n%s", n, ir.Print(g))
			}
		}
	}
}
