package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/internal/debug"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// listGraph draws the text of a graph of sequences that loops carry, branches pick and
// views are put into. All tensors are f32[2,2].
type listGraph struct {
	r       *rand.Rand
	text    strings.Builder
	count   *int
	depth   int
	tensors []string
	lists   map[int][]string // by how many elements they have at least, up to two
	last    string           // the list that was made last
}

const (
	someTensor = "f32[2,2]"
	someList   = "sequence<f32[2,2]>[?0]"
)

func (g *listGraph) add(typ, kind, inputs, attrs string) string {
	*g.count++
	name := fmt.Sprintf("%%v%d", *g.count)
	fmt.Fprintf(&g.text, "%s: %s = %s \"n%d\" (%s) {%s}\n", name, typ, kind, *g.count, inputs, attrs)
	return name
}

func (g *listGraph) one(names []string) string { return names[g.r.IntN(len(names))] }

// list returns a list of at least so many elements, and how many it has at least.
func (g *listGraph) list(least int) (name string, n int) {
	for n = least + g.r.IntN(3-least); len(g.lists[n]) == 0; n = least + (n-least+1)%(3-least) {
	}
	return g.one(g.lists[n]), n
}

func (g *listGraph) keep(name string, n int) {
	g.lists[min(n, 2)], g.last = append(g.lists[min(n, 2)], name), name
}

// body draws a subgraph of some inputs, the last of which may be a tensor and a list.
func (g *listGraph) body(inputs, tensors, lists []string, outputs func(*listGraph) string) string {
	b := &listGraph{r: g.r, count: g.count, depth: g.depth + 1, tensors: slices.Clone(g.tensors), lists: map[int][]string{}}
	for n, names := range g.lists {
		b.lists[n] = slices.Clone(names)
	}
	for range 3 { // so that they are drawn more often
		b.tensors = append(b.tensors, tensors...)
		b.lists[1] = append(b.lists[1], lists...)
	}
	for range 1 + g.r.IntN(6) {
		b.step()
	}
	*g.count++
	out := outputs(b)
	return fmt.Sprintf("graph \"b%d\"(%s) {\n%sreturn %s\n}", *g.count, strings.Join(inputs, ", "), b.text.String(), out)
}

func (g *listGraph) step() {
	tensor := func() string { return g.one(g.tensors) }
	switch k := g.r.IntN(12); {
	case k < 3:
		g.tensors = append(g.tensors, g.add(someTensor, g.one([]string{"Relu", "Neg", "Sigmoid", "Transpose"}), tensor(), ""))
	case k < 5:
		g.tensors = append(g.tensors, g.add(someTensor, "Reshape", tensor()+", %shape", ""), g.add(someTensor, "Add", tensor()+", "+tensor(), ""))
	case k == 5:
		g.keep(g.add(someList, "SequenceConstruct", tensor()+", "+tensor(), ""), 2)
	case k < 8:
		l, n := g.list(0)
		g.keep(g.add(someList, "SequenceInsert", l+", "+tensor()+g.one([]string{"", ", %first"}), ""), n+1)
	case k == 8:
		l, n := g.list(1)
		g.keep(g.add(someList, "SequenceErase", l+g.one([]string{"", ", %first"}), ""), n-1)
	case k == 9:
		l, _ := g.list(1)
		g.tensors = append(g.tensors, g.add(someTensor, "SequenceAt", l+g.one([]string{", %first", ", %last"}), ""))
	case g.depth == 2:
	case k == 10:
		pick := func(b *listGraph) string { l, _ := b.list(1); return l }
		g.keep(g.add(someList, "If", "%yes", "then_branch = "+g.body(nil, nil, nil, pick)+", else_branch = "+g.body(nil, nil, nil, pick)), 1)
	default:
		*g.count++
		l, _ := g.list(1)
		in := fmt.Sprintf("%d", *g.count)
		body := g.body([]string{"%i" + in + ": i64[]", "%c" + in + ": bool[]", "%t" + in + ": " + someTensor, "%l" + in + ": " + someList}, []string{"%t" + in}, []string{"%l" + in},
			func(b *listGraph) string {
				l, _ := b.list(1)
				if b.r.IntN(2) == 0 {
					view := b.add(someTensor, "Reshape", "%t"+in+", %shape", "")
					l = b.add(someList, "SequenceInsert", "%l"+in+", "+view, "")
				}
				return "%c" + in + ", " + b.one(b.tensors) + ", " + l
			})
		out := "%o" + in
		fmt.Fprintf(&g.text, "%s: %s, %sl: %s = Loop \"n%s\" (%%n, _, %s, %s) {body = %s}\n", out, someTensor, out, someList, in, tensor(), l, body)
		g.tensors = append(g.tensors, out)
		g.keep(out+"l", 1)
	}
}

// Sequences that loops and branches make are those of the interpreter, whatever memory
// their elements lay in, and in every run.
func TestRandomListsAreThoseOfTheInterpreter(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks find faults that outputs may hide, and stop there
	const seed = 3
	t.Logf("seed %d", seed)
	for k := range uint64(rounds(1500)) {
		r := rand.New(rand.NewPCG(seed, k))
		g := &listGraph{r: r, count: new(int), tensors: []string{"%x", "%y"}, lists: map[int][]string{}}
		g.keep(g.add(someList, "SequenceConstruct", "%x", ""), 1)
		for range 4 + r.IntN(12) {
			g.step()
		}
		text := "graph \"g\"(%x: f32[2,2], %y: f32[2,2], %n: i64[], %yes: bool[]) {\n%first: i64[] = const {0}\n%last: i64[] = const {-1}\n%shape: i64[2] = const {-1, 2}\n" +
			g.text.String() + "return " + g.one(g.tensors) + ", " + g.last + "\n}"
		main, err := ir.Parse(text, op.Registry)
		if err == nil {
			err = main.Infer()
		}
		if err != nil {
			t.Fatalf("graph %d: %v\n%s", k, err, text)
		}
		p, err := Device{}.Load(main.Clone(), backend.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		for count := range 4 {
			in := []*tensor.Tensor{tensor.New(tensor.F32, 2, 2), tensor.New(tensor.F32, 2, 2), tensor.Scalar(int64(count)), tensor.Scalar(r.IntN(2) == 0)}
			for _, x := range in[:2] {
				for i := range x.F32s() {
					x.F32s()[i] = float32(r.IntN(9) - 4)
				}
			}
			want, err := (&ref.Interpreter{Check: true}).Run(context.Background(), main, in)
			if err != nil {
				t.Fatalf("graph %d: %v\n%s", k, err, text)
			}
			got := make([]*tensor.Tensor, 2)
			if err := p.Run(context.Background(), in, got); err != nil {
				t.Fatalf("graph %d: %v\n%s", k, err, text)
			}
			for i := range got {
				if !nearLists(got[i], want[i]) {
					t.Fatalf("graph %d, %d rounds: output %d differs\n%s", k, count, i, text)
				}
			}
		}
		p.Close()
	}
}

func nearLists(a, b *tensor.Tensor) bool {
	if !a.DType().IsList() {
		return slices.EqualFunc(a.F32s(), b.F32s(), func(x, y float32) bool {
			return x == y || x-y < 1e-5*max(1, y, -y) && y-x < 1e-5*max(1, y, -y)
		})
	}
	return slices.EqualFunc(a.Items(), b.Items(), nearLists)
}
