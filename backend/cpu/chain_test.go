package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/chain"
)

// elementwiseText is a graph of random elementwise operators, each of which reads what one before it gave.
func elementwiseText(r *rand.Rand) string {
	shape := [][]int{{3, 5, 700}, {2, 3, 4, 5}, {40, 9, 7}, {17000}, {7, 1}, {1}, {6, 33}, {3, 70, 20, 6}}[r.IntN(8)]
	x := &text{rng: r}
	kinds := map[string]string{} // of values, f32 or bool
	give := func(dt string) string {
		s := slices.Clone(shape)
		switch r.IntN(5) {
		case 0:
			for i := range s { // some axes are repeated
				if r.IntN(2) == 0 {
					s[i] = 1
				}
			}
		case 1:
			s = s[len(s)-1:]
		}
		if dt == "f32" && r.IntN(4) == 0 {
			x.constant(1)
			return x.args[len(x.args)-1]
		}
		name := fmt.Sprintf("%%x%d", len(x.args))
		x.inputs = append(x.inputs, fmt.Sprintf("%s: %s%s", name, dt, dims(s)))
		x.args = append(x.args, name)
		return name
	}
	x.inputs = append(x.inputs, "%x: f32"+dims(shape))
	last := "%x"
	kinds[last] = "f32"
	var functions []string
	for _, f := range chain.Functions() {
		if _, err := op.New(f.String()); err == nil && f != chain.Clip && f != chain.Celu {
			functions = append(functions, f.String())
		}
	}
	functions = append(functions, "Relu", "Sum", "Mean", "SwiGLU", "Cast")
	values := []string{last}
	for n, i := 2+r.IntN(6), 0; len(values) <= n; i++ {
		kind := functions[r.IntN(len(functions))]
		want, gives, attrs := "f32", "f32", ""
		in := []string{last}
		other := func(dt string) string {
			for _, v := range values {
				if kinds[v] == dt && r.IntN(3) == 0 {
					return v
				}
			}
			return give(dt)
		}
		f := slices.IndexFunc(chain.Functions(), func(f chain.Function) bool { return f.String() == kind })
		switch {
		case slices.Contains([]string{"And", "Or", "Xor", "Not"}, kind):
			want, gives = "bool", "bool"
		case slices.Contains([]string{"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf"}, kind):
			gives = "bool"
		case kind == "Mod":
			attrs = "fmod = 1"
		case kind == "Cast":
			gives = []string{"f32", "bool"}[r.IntN(2)]
			attrs = fmt.Sprintf("to = %d", map[string]int{"f32": 1, "bool": 9}[gives])
			want = kinds[last]
		}
		if kind == "Where" {
			in = []string{other("bool"), other("f32"), other("f32")}
			in[map[string]int{"bool": 0, "f32": 1 + r.IntN(2)}[kinds[last]]] = last
		} else if kinds[last] != want {
			continue
		}
		switch {
		case slices.Contains([]string{"Sum", "Mean", "Max", "Min"}, kind):
			for range r.IntN(3) {
				in = append(in, other(want))
			}
		case kind == "SwiGLU":
			v := values[r.IntN(len(values))]
			if kinds[v] != "f32" {
				continue
			}
			in = append(in, v)
		case f >= 0 && chain.Functions()[f].Inputs() == 2:
			in = append(in, other(want))
		}
		if kind != "PRelu" && kind != "SwiGLU" && len(in) == 2 && r.IntN(2) == 0 {
			slices.Reverse(in)
		}
		y := fmt.Sprintf("%%y%d", i)
		x.lines = append(x.lines, fmt.Sprintf("  %s: %s[*] = %s \"n%d\" (%s) {%s}", y, gives, kind, i, strings.Join(in, ", "), attrs))
		last, kinds[y] = y, gives
		values = append(values, y)
	}
	return fmt.Sprintf("graph \"g\"(%s) {\n%s\n  return %s\n}", strings.Join(x.inputs, ", "), strings.Join(x.lines, "\n"), last)
}

// elementwiseInputs draws inputs, some of whose elements are not finite.
func elementwiseInputs(r *rand.Rand, g *ir.Graph) []*tensor.Tensor {
	special := []float32{inf, -inf, float32(math.NaN()), 0, negativeZero}
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		f := tensor.New(tensor.F32, shapeOf(v)...)
		for k := range f.F32s() {
			if f.F32s()[k] = float32(r.NormFloat64()); v.Type.DType == tensor.Bool {
				f.F32s()[k] = float32(r.IntN(2))
			} else if r.IntN(20) == 0 {
				f.F32s()[k] = special[r.IntN(len(special))]
			}
		}
		in[i] = f.To(v.Type.DType)
	}
	return in
}

// runChained runs a graph and returns its outputs, and the nodes that ran.
func runChained(t *testing.T, g *ir.Graph, in []*tensor.Tensor, o backend.Options) ([]*tensor.Tensor, []*ir.Node) {
	t.Helper()
	p, err := Device{}.Load(g, o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got, err := run(context.Background(), p, in)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.(*program).specialise(in)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*ir.Node
	for _, st := range s.main.steps {
		if nodes = append(nodes, st.node); !st.fast() {
			t.Errorf("%v is evaluated by its operator in\n%v", st.node, ir.Print(g))
		}
	}
	return got, nodes
}

// Elementwise operators compute what their Eval does of the same inputs, and chains bit by bit what the operators
// do one by one, whatever is broadcast, also where results take the place of operands, and where elements
// are NaN or infinite.
func TestChainsAgreeWithOperators(t *testing.T) {
	const seed = 44
	t.Logf("seed %d", seed)
	rounds := rounds(120)
	formed, seen := 0, map[string]bool{}
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		src := elementwiseText(r)
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatalf("%v in\n%s", err, src)
		}
		if g.Infer() != nil || g.Outputs[0].Def == nil { // a SwiGLU of other shapes, say, or no operator
			continue
		}
		in := elementwiseInputs(r, g)
		o := backend.Options{Threads: 1 + round%3}
		chained, nodes := runChained(t, g, in, o)
		for _, n := range nodes {
			if _, ok := n.Op.(*chain.Chain); ok {
				formed++
			}
		}
		for _, n := range g.Nodes { // each value is an output, so that nothing is in a chain
			if v := n.Outputs[0]; !v.IsOutput() {
				g.Outputs = append(g.Outputs, v)
			}
		}
		alone, _ := runChained(t, g, in, o)
		if !sameBits(chained[0], alone[0]) {
			t.Errorf("a chain does not compute what its operators do in\n%s", src)
		}
		values := map[*ir.Value]*tensor.Tensor{}
		for i, v := range g.Inputs {
			values[v] = in[i]
		}
		for i, v := range g.Outputs {
			values[v] = alone[i]
		}
		for _, n := range g.Nodes {
			args := make([]*tensor.Tensor, len(n.Inputs))
			for i, v := range n.Inputs {
				if args[i] = v.Const; args[i] == nil {
					args[i] = values[v]
				}
			}
			want, err := n.Op.Eval(&ir.Eval{Outputs: 1}, args)
			if err != nil {
				t.Fatal(err)
			}
			seen[n.Op.Kind()] = true
			nearEach(t, fmt.Sprintf("%v of\n%s", n, src), values[n.Outputs[0]].To(tensor.F32).F32s(), want[0].To(tensor.F32).F32s())
		}
	}
	if formed < rounds/4 {
		t.Errorf("only %d chains in %d graphs", formed, rounds)
	}
	for _, f := range chain.Functions() {
		if _, err := op.New(f.String()); err == nil && f != chain.Clip && f != chain.Celu && !seen[f.String()] && !testing.Short() {
			t.Errorf("no graph has %v", f)
		}
	}
}

func sameBits(a, b *tensor.Tensor) bool {
	if a.String() != b.String() {
		return false
	}
	other := b.To(tensor.F32).F32s()
	for i, v := range a.To(tensor.F32).F32s() {
		if w := other[i]; v != w && !(v != v && w != w) {
			return false
		}
	}
	return true
}

// nearEach wants elements that are NaN and infinite where others are, and near to them elsewhere.
func nearEach(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, w := range want {
		v := got[i]
		if v != w && !(v != v && w != w) && !(math.Abs(float64(v-w)) <= 1e-7+3e-6*math.Abs(float64(w))) {
			t.Fatalf("element %d of %s is %g, want %g", i, what, v, w)
		}
	}
}

// Functions with kernels of their own compute what their operators say, and those without can be asked of them.
func TestFunctionsOfOneValueAreTheirOperators(t *testing.T) {
	x := []float32{-2.5, -1, -0.25, 0, 0.25, 0.75, 1, 3}
	found := 0
	for _, f := range chain.Functions() {
		a, b := float32(0.75), float32(1.5)
		scalar := op.Scalar(f.String(), f.Args(), a, b)
		o, err := op.New(f.String())
		if _, plain := o.(*op.Unary); err != nil || scalar == nil || !plain && f.Args() == nil {
			continue // or the parameters are not attributes as they are
		}
		found++
		y := make([]float32, len(x))
		unaryOf(f, a, b)(y, x, a, b)
		for i, v := range x {
			want := float32(scalar(float64(v)))
			if d := float64(y[i] - want); math.Abs(d) > 1e-6*max(1, math.Abs(float64(want))) && (want == want || y[i] == y[i]) {
				t.Errorf("%v of %v with %v = %v, %v is %v, want %v", f, v, f.Args(), a, b, y[i], want)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d functions have an operator that tells them", found)
	}
}

// Powers by one exponent are those of math.Pow, to the last bit but one.
func TestPowers(t *testing.T) {
	inf := float32(math.Inf(1))
	x := []float32{0, float32(math.Copysign(0, -1)), 1, -1, inf, -inf, float32(math.NaN()), 1e-38, -3e38, 3e38, 0.3, 7.25, -2.5}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		x = append(x, float32(r.NormFloat64()*math.Exp(10*r.NormFloat64())))
	}
	y := make([]float32, len(x))
	for e := float32(-1); e < 5; e += 0.125 {
		for _, sx := range []int{0, 1} {
			powers(y, x, []float32{e}, sx, 0)
			for i := range y {
				v := x[i*sx]
				want := float32(math.Pow(float64(v), float64(e)))
				if got := y[i]; got != want && got != math.Nextafter32(want, inf) && got != math.Nextafter32(want, -inf) && (got == got || want == want) {
					t.Fatalf("%g to the power of %g is %g, want %g", v, e, got, want)
				}
			}
		}
	}
}

// BenchmarkFunctions tells how long each function takes for an element, of rows and of what is a single element on the right.
func BenchmarkFunctions(b *testing.B) {
	const n = 1 << 16
	r := rand.New(rand.NewPCG(1, 0))
	var x [3][]float32
	for k := range x {
		x[k] = make([]float32, n)
		for i := range x[k] {
			x[k][i] = float32(r.NormFloat64())
		}
	}
	y := make([]float32, n)
	time := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
		})
	}
	for _, f := range chain.Functions() {
		switch f.Inputs() {
		case 1:
			u := unaryOf(f, 0.75, 1.5)
			if u == nil { // a conversion
				continue
			}
			time(f.String(), func() { u(y, x[0], 0.75, 1.5) })
		case 2:
			time(f.String(), func() { binaries[f](y, x[0], x[1], 1, 1) })
			time(f.String()+"/scalar", func() { binaries[f](y, x[0], x[1], 1, 0) })
		default:
			time(f.String(), func() { selects(y, x[0], x[1], x[2], 1, 1, 1) })
		}
	}
	positive := make([]float32, n)
	for i, v := range x[0] {
		positive[i] = v*v + 0.01
	}
	time("Pow/positive", func() { powers(y, positive, []float32{0.75}, 1, 0) })
}
