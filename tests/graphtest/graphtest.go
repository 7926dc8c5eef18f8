// Package graphtest helps to test passes: graphs come as text, run through a pass,
// are verified and compared with text, and evaluate to the same outputs before and
// after. It imports the reference interpreter, and only tests import it.
package graphtest

import (
	"bytes"
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
	"spc/passes/prune"
)

// Pass is a rewrite of a graph, and returns how much it changed.
type Pass func(g *ir.Graph) (int, error)

// Parse reads a graph, infers its types and verifies it.
func Parse(t testing.TB, text string) *ir.Graph {
	t.Helper()
	g, err := ir.Parse(text, op.Registry)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := g.Infer(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := g.Verify(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return g
}

// ONNX returns the bytes of an ONNX model of a graph as text.
func ONNX(t testing.TB, text string) []byte {
	t.Helper()
	g, err := ir.Parse(text, op.Registry)
	if err == nil {
		err = g.Infer()
	}
	var file bytes.Buffer
	if err == nil {
		err = onnx.Export(&file, g, "test", "")
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return file.Bytes()
}

// Rewrite checks that the pass turns the graph before, a text, into the graph after,
// nodes that nobody reads removed, that the result verifies, and that both compute
// the same. An empty after is for a pass that changes nothing.
func Rewrite(t *testing.T, pass Pass, before, after string) {
	t.Helper()
	g := Parse(t, before)
	old, text := g.Clone(), ir.Print(g)
	n, err := pass(g)
	if err != nil {
		t.Fatalf("%v in\n%s", err, before)
	}
	if (n == 0) != (after == "") {
		t.Errorf("%d changes", n)
	}
	if after == "" {
		after = text
	} else {
		fold.Dead(g)
	}
	if err := g.Verify(); err != nil {
		t.Errorf("%v in\n%s", err, g)
	}
	if d := cmp.Diff(tidy(after), tidy(ir.Print(g))); d != "" {
		t.Errorf("-want +have:\n%s", d)
	}
	Same(t, old, g, 1e-5)
}

// tidy strips lines of surrounding space.
func tidy(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// Same checks that two graphs with the same inputs give the same outputs, in a few
// draws of inputs and of sizes for symbols.
func Same(t testing.TB, want, have *ir.Graph, tolerance float64) {
	t.Helper()
	SameOn(t, Inputs, want, have, tolerance)
}

// SameOn is Same on what draw makes of seeds.
func SameOn(t testing.TB, draw func(g *ir.Graph, seed uint64) []*tensor.Tensor, want, have *ir.Graph, tolerance float64) {
	t.Helper()
	for seed := range uint64(3) {
		in := draw(want, seed)
		a, errA := ref.Run(context.Background(), want, in)
		b, errB := ref.Run(context.Background(), have, in)
		if (errA == nil) != (errB == nil) {
			t.Errorf("seed %d: error %v, want %v in\n%s", seed, errB, errA, have)
		}
		if errA != nil || errB != nil {
			continue
		}
		if len(a) != len(b) {
			t.Errorf("%d outputs, want %d", len(b), len(a))
			return
		}
		for i := range a {
			if w, h := want.OutputName(i), have.OutputName(i); w != h {
				t.Errorf("output %d is called %s, want %s", i, h, w)
			}
			if d := Difference(a[i], b[i]); !(d <= tolerance) {
				t.Errorf("seed %d: output %s differs by %g (relative l2): %v, want %v", seed, want.OutputName(i), d, b[i], a[i])
			}
		}
	}
}

// Difference is the relative l2 error of b against a: 0 for equal tensors, infinite
// where types or shapes differ, or NaNs and infinities stand in other places. Of lists it
// is the largest of their elements.
func Difference(a, b *tensor.Tensor) float64 {
	if a.DType() != b.DType() || !cmp.Equal(a.Shape(), b.Shape()) {
		return math.Inf(1)
	}
	if a.DType().IsList() {
		most := 0.0
		for i, e := range a.Items() {
			most = max(most, Difference(e, b.Items()[i]))
		}
		return most
	}
	if !a.DType().IsFloat() {
		if a.Equal(b) {
			return 0
		}
		return math.Inf(1)
	}
	var diff, norm float64
	x, y := a.Float64s(), b.Float64s()
	for i := range x {
		switch {
		case math.IsNaN(x[i]) && math.IsNaN(y[i]), x[i] == y[i]:
		case math.IsInf(x[i], 0):
			return math.Inf(1)
		default:
			diff += (x[i] - y[i]) * (x[i] - y[i])
		}
		if !math.IsNaN(x[i]) && !math.IsInf(x[i], 0) {
			norm += x[i] * x[i]
		}
	}
	if math.IsNaN(diff) {
		return math.Inf(1)
	}
	return math.Sqrt(diff) / max(math.Sqrt(norm), 1e-6)
}

// Inputs draws tensors for the inputs of a graph: floats standard normal, integers
// and bools 0 or 1, a size from 1 to 4 for each symbol, a scalar for an unknown rank.
func Inputs(g *ir.Graph, seed uint64) []*tensor.Tensor {
	r := rand.New(rand.NewPCG(seed, 1))
	sizes := map[string]int{}
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		shape := make([]int, max(v.Type.Rank(), 0))
		for k, d := range v.Type.Dims {
			if shape[k] = d.Size(); d.Known() {
				continue
			}
			for _, symbol := range d.Symbols() {
				if sizes[symbol] == 0 {
					sizes[symbol] = 1 + r.IntN(4)
				}
			}
			shape[k], _ = d.At(sizes)
		}
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float64, n)
		for k := range x {
			x[k] = r.NormFloat64()
			if !v.Type.DType.IsFloat() {
				x[k] = float64(r.IntN(2))
			}
		}
		if v.Type.DType.IsFloat() {
			in[i] = tensor.FromFloat64s(v.Type.DType, x, shape...)
			continue
		}
		ints := make([]int64, n)
		for k := range x {
			ints[k] = int64(x[k])
		}
		in[i] = tensor.FromInt64s(v.Type.DType, ints, shape...)
	}
	return in
}

// Integers rounds the floats of Inputs, so that sums of their products are exact in any order.
func Integers(g *ir.Graph, seed uint64) []*tensor.Tensor {
	in := Inputs(g, seed)
	for i, x := range in {
		if x.DType().IsFloat() {
			elems := x.Float64s()
			for k, v := range elems {
				elems[k] = math.Round(v)
			}
			in[i] = tensor.FromFloat64s(x.DType(), elems, x.Shape()...)
		}
	}
	return in
}

// Run evaluates g on each of the inputs with the interpreter, as a calib.Runner does.
func Run(ctx context.Context, g *ir.Graph, in iter.Seq2[[]*tensor.Tensor, error], see func([]*tensor.Tensor) error) error {
	for sample, err := range in {
		if err != nil {
			return err
		}
		out, err := ref.Run(ctx, g, sample)
		if err != nil {
			return err
		}
		if err := see(out); err != nil {
			return err
		}
	}
	return nil
}

// Pattern reads a pattern of zeros, which must be one.
func Pattern(s string) prune.Pattern {
	p, err := prune.ParsePattern(s)
	if err != nil {
		panic(err)
	}
	return p
}
