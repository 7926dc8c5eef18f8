package passes_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/backend/predict"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/fit"
	"spc/passes/prune"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

func newContext() *passes.Context {
	return &passes.Context{
		Prune:   fit.Options{GraphOptions: prune.GraphOptions{Options: prune.Options{Pattern: prune.Pattern{Kind: prune.Uniform}}}, Allocate: prune.PerLayer},
		Formats: format.Choices(machine.Default),
		Model:   predict.Of(machine.Default),
	}
}

// subject is a graph with inputs and what the interpreter makes of them.
type subject struct {
	graph *ir.Graph
	in    []*tensor.Tensor
	out   []*tensor.Tensor
}

func newSubject(t *testing.T, g *ir.Graph, seed uint64) *subject {
	t.Helper()
	s := &subject{graph: g, in: graphtest.Inputs(g, seed)}
	// Operators' types are those of the text or the model until the pass infer.
	h := g.Clone()
	if err := h.Infer(); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.out, err = ref.Run(context.Background(), h, s.in); err != nil {
		t.Fatalf("%v in\n%s", err, g)
	}
	return s
}

// check runs the pipeline on a copy, compares its outputs with those of the graph as
// it came, and returns the report.
func (s *subject) check(t *testing.T, o passes.Options) (r passes.Report) {
	t.Helper()
	g, c := s.graph.Clone(), newContext()
	o.Verify = true
	what := fmt.Sprintf("stop after %q, without %q", o.StopAfter, o.Disable)
	if err := passes.Run(context.Background(), c, g, o); err != nil {
		t.Errorf("%s: %v", what, err)
		return r
	}
	it := ref.Interpreter{Unpack: func(v *ir.Value) (*tensor.Tensor, error) { return format.Unpack(v.Store, v.Type) }}
	out, err := it.Run(context.Background(), g, s.in)
	if err != nil {
		t.Errorf("%s: %v in\n%s", what, err, g)
		return r
	}
	for i, want := range s.out {
		if a, b := s.graph.OutputName(i), g.OutputName(i); a != b {
			t.Errorf("%s: output %d is called %s, want %s", what, i, b, a)
		}
		if d := graphtest.Difference(want, out[i]); !(d <= 1e-5) {
			t.Errorf("%s: output %s differs by %g (relative l2)\nbefore %s\nafter %s", what, g.OutputName(i), d, s.graph, g)
		}
	}
	return c.Report
}

// everyPrefixAndGap runs every prefix of the pipeline, and the pipeline without each
// of its passes.
func (s *subject) everyPrefixAndGap(t *testing.T) {
	t.Helper()
	for _, name := range passes.Names() {
		s.check(t, passes.Options{StopAfter: name})
		s.check(t, passes.Options{Disable: []string{name}})
	}
	s.check(t, passes.Options{Disable: passes.Names()[1:]})
}

func TestArchitecturesKeepTheirFunction(t *testing.T) {
	for _, a := range archs.Tiny {
		t.Run(a.Name, func(t *testing.T) {
			m, err := a.Build(1)
			if err != nil {
				t.Fatal(err)
			}
			g, _, err := onnx.ImportBytes(m.Bytes(), "", onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			newSubject(t, g, 1).everyPrefixAndGap(t)
		})
	}
}

func TestRandomGraphsKeepTheirFunction(t *testing.T) {
	count := uint64(60)
	if testing.Short() {
		count = 10
	}
	changes := map[string]int{}
	for seed := range count {
		g, err := randomGraph(seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := g.Verify(); err != nil {
			t.Fatalf("seed %d: %v in\n%s", seed, err, g)
		}
		s := newSubject(t, g, seed)
		for _, p := range s.check(t, passes.Options{}).Passes {
			changes[p.Name] += p.Changes
		}
		s.everyPrefixAndGap(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("seeds 0 to %d, changes %v", count-1, changes)
	for _, name := range passes.Names()[1:] {
		if slices.Contains([]string{"floats", "spell", "quantized", "narrow", "round", "quantize", "halves", "integers"}, name) {
			continue // are for graphs of other numbers; package quant tests them
		}
		if changes[name] == 0 {
			t.Errorf("pass %s changed nothing in %d graphs", name, count)
		}
	}
}

func TestRandomGraphsOnTheCPU(t *testing.T) {
	for seed := range uint64(60) {
		g, err := randomGraph(seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		s := newSubject(t, g, seed)
		if err := passes.Run(context.Background(), newContext(), g, passes.Options{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		p, err := cpu.Device{}.Load(g, backend.Options{Threads: 2})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		out := make([]*tensor.Tensor, len(g.Outputs))
		if err := p.Run(context.Background(), s.in, out); err != nil {
			t.Errorf("seed %d: %v in\n%s", seed, err, g)
		}
		for i := range out {
			if d := graphtest.Difference(s.out[i], out[i]); !(d <= 1e-4) {
				t.Errorf("seed %d: output %d differs by %g (relative l2) in\n%s", seed, i, d, g)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// builder makes a random graph: a chain of the motifs that passes look for, each on
// the value that the one before made, in root graphs and in subgraphs.
type builder struct {
	*rand.Rand
	g   *ir.Graph
	err error
}

func randomGraph(seed uint64) (*ir.Graph, error) {
	b := &builder{Rand: rand.New(rand.NewPCG(seed, 7)), g: ir.NewGraph("random")}
	x := b.g.NewInput("x", ir.Of(tensor.F32, ir.Sym("batch"), ir.Size(3), ir.Size(4), ir.Size(4)))
	flag := b.g.NewInput("flag", ir.Shaped(tensor.Bool))
	v := x
	for range 4 + b.IntN(6) {
		v = b.motif(v)
		if b.IntN(4) == 0 {
			b.g.Outputs = append(b.g.Outputs, v)
		}
	}
	if b.IntN(2) == 0 {
		v = b.branches(v, flag)
	}
	if b.IntN(2) == 0 {
		v = b.flatten(v)
	}
	b.g.Outputs = append(b.g.Outputs, v)
	return b.g, b.err
}

// node adds a node and infers its type.
func (b *builder) node(kind string, attrs map[string]any, in ...*ir.Value) *ir.Value {
	o, err := op.New(kind)
	for k, v := range attrs {
		if err == nil {
			err = ir.SetAttr(o, k, v)
		}
	}
	if b.err == nil {
		b.err = err
	}
	if b.err != nil {
		return in[0]
	}
	n := b.g.NewNode("", o, in, "")
	b.err = n.Infer()
	return n.Outputs[0]
}

func (b *builder) weights(shape ...int) *ir.Value {
	t := tensor.New(tensor.F32, shape...)
	for i := range t.F32s() {
		t.F32s()[i] = float32(b.NormFloat64()) / 2
	}
	return b.g.NewConst("", t)
}

func (b *builder) positive(n int) *ir.Value {
	v := b.weights(n)
	for i, w := range v.Const.F32s() {
		v.Const.F32s()[i] = 0.5 + w*w
	}
	return v
}

func (b *builder) scalar(x float32) *ir.Value {
	return b.g.NewConst("", tensor.From([]float32{x}))
}

func (b *builder) ints(v ...int) *ir.Value { return b.g.NewConst("", tensor.Ints(v...)) }

// swap orders the inputs of a commutative operator at random.
func (b *builder) swap(kind string, x, y *ir.Value) *ir.Value {
	if b.IntN(2) == 0 {
		x, y = y, x
	}
	return b.node(kind, nil, x, y)
}

// motif adds one of the motifs to a value [batch,C,H,W]; the result has the same
// rank.
func (b *builder) motif(x *ir.Value) *ir.Value {
	dims := x.Type.Dims
	c, w := dims[1].Size(), dims[3]
	perm := []int{0, 1, 2, 3}
	switch b.IntN(30) {
	case 0, 1:
		return b.conv(x, c)
	case 2:
		m := 1 + b.IntN(4)
		return b.node("Conv", map[string]any{"pads": []int{1, 1, 1, 1}}, x, b.weights(m, c, 3, 3))
	case 3:
		return b.node("Conv", map[string]any{"group": c}, x, b.weights(c, 1, 1, 1), b.weights(c))
	case 4:
		return b.node("ConvTranspose", nil, x, b.weights(c, 2, 1, 1))
	case 27:
		padded := b.node("Pad", nil, x, b.ints(0, 0, b.IntN(3), b.IntN(3), 0, 0, b.IntN(3), b.IntN(3)))
		if b.IntN(2) == 0 {
			return b.node("AveragePool", map[string]any{"kernel_shape": []int{2, 3}}, padded)
		}
		return b.node("Conv", map[string]any{"pads": []int{0, 1, 1, 0}}, padded, b.weights(c, c, 1, 2))
	case 5:
		return b.node("BatchNormalization", nil, b.conv(x, c), b.weights(c), b.weights(c), b.weights(c), b.positive(c))
	case 6:
		return b.swap("Add", b.conv(x, c), x)
	case 7:
		return b.swap("Add", b.conv(x, c), b.conv(x, c))
	case 8:
		return b.swap([]string{"Add", "Mul"}[b.IntN(2)], b.conv(x, c), b.weights(c, 1, 1))
	case 9:
		return b.node([]string{"Sub", "Div", "Add"}[b.IntN(3)], map[string]any{"axis": 1}, b.conv(x, c), b.positive(c))
	case 10:
		return b.node([]string{"Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Gelu", "Swish", "HardSigmoid"}[b.IntN(8)], nil, b.conv(x, c))
	case 11:
		return b.node("Clip", nil, b.conv(x, c), b.scalar(-0.5), b.scalar(0.5))
	case 12:
		return b.swap("Mul", x, b.node("Sigmoid", nil, x))
	case 13:
		e := b.node("Erf", nil, b.node("Div", nil, x, b.scalar(1.4142135)))
		return b.swap("Mul", b.scalar(0.5), b.swap("Mul", x, b.swap("Add", e, b.scalar(1))))
	case 14:
		return b.swap("Mul", x, b.node("Div", nil, b.node("Clip", nil, b.swap("Add", x, b.scalar(3)), b.scalar(0), b.scalar(6)), b.scalar(6)))
	case 15:
		b.Shuffle(4, func(i, j int) {
			if i > 0 && j > 0 {
				perm[i], perm[j] = perm[j], perm[i]
			}
		})
		back := make([]int, 4)
		for i, p := range perm {
			back[p] = i
		}
		x = b.node("Transpose", map[string]any{"perm": perm}, x)
		if b.IntN(2) == 0 {
			x = b.node("Relu", nil, x)
		}
		return b.node("Transpose", map[string]any{"perm": back}, x)
	case 16:
		flat := b.node("Reshape", nil, x, b.ints(0, -1))
		return b.node("Reshape", nil, flat, b.ints(0, c, dims[2].Size(), w.Size()))
	case 17:
		return b.node([]string{"Identity", "Dropout"}[b.IntN(2)], nil, b.swap("Add", x, b.scalar(0)))
	case 18:
		return b.layerNorm(x, w.Size())
	case 19:
		return b.attention(b.layerNorm(x, w.Size()))
	case 20:
		return b.rotary(x)
	case 21, 22:
		return b.lists(x, c)
	case 23:
		return b.node("Einsum", map[string]any{"equation": "bchw,cm->bmhw"}, x, b.weights(c, 1+b.IntN(4)))
	case 24:
		y := b.node("Einsum", map[string]any{"equation": "b...hw,b...vw->b...hv"}, x, x)
		return b.node("Einsum", map[string]any{"equation": "bchv,bcvw->bchw"}, b.node("Softmax", nil, y), x)
	case 28:
		y := b.node("Conv", nil, b.node("ReduceMax", nil, x, b.ints(1)), b.weights(c, 1, 1, w.Size()))
		return b.node("Add", nil, x, y)
	case 26:
		row := b.node("Reshape", nil, b.node("ReduceSum", nil, x, b.ints(1)), b.ints(-1, w.Size()))
		y := b.node("Softmax", nil, b.node("Gemm", map[string]any{"transA": 1}, row, row, b.weights(w.Size())))
		return b.node("Add", nil, x, b.node("ReduceSum", map[string]any{"keepdims": 0}, y, b.ints(0)))
	case 25:
		return b.swap("Add", x, b.assigned(b.node("ReduceMax", nil, x, b.ints(0)), c, dims[2].Size()))
	}
	size := b.node("Cast", map[string]any{"to": int(tensor.F32)}, b.node("Gather", nil, b.node("Shape", nil, x), b.ints(1)))
	return b.node("Div", nil, x, size)
}

// assigned adds rows of each channel of an image to themselves, as in x[:, :, 1:] += x[:, :, 1:].
func (b *builder) assigned(x *ir.Value, c, h int) *ir.Value {
	var at []int
	for i := range c * (h - 1) {
		at = append(at, 0, i/(h-1), 1+i%(h-1))
	}
	rows := b.node("Slice", nil, x, b.ints(1), b.ints(h), b.ints(2))
	return b.node("ScatterND", nil, x, b.node("Reshape", nil, b.ints(at...), b.ints(1, c, h-1, 3)), b.swap("Add", rows, rows))
}

// lists takes the channels apart and puts them together in another order.
func (b *builder) lists(x *ir.Value, c int) *ir.Value {
	drop := b.IntN(2)
	s := b.node("SplitToSequence", map[string]any{"axis": 1 - 4*b.IntN(2), "keepdims": 1 - drop}, x)
	if b.IntN(2) == 0 {
		s = b.node("OptionalGetElement", nil, b.node("Optional", nil, s))
	}
	channel := b.node("SequenceAt", nil, s, b.g.NewConst("", tensor.Scalar(int64(b.IntN(2*c)-c))))
	if b.IntN(2) == 0 {
		s = b.node("SequenceErase", nil, s, b.g.NewConst("", tensor.Scalar(int64(b.IntN(c)))))
	}
	s = b.node("SequenceInsert", nil, s, b.node("Relu", nil, channel), b.ints(0))
	return b.node("ConcatFromSequence", map[string]any{"axis": 1, "new_axis": drop}, s)
}

// conv is a convolution that keeps the shape.
func (b *builder) conv(x *ir.Value, c int) *ir.Value {
	if b.IntN(2) == 0 {
		return b.node("Conv", nil, x, b.weights(c, c, 1, 1))
	}
	return b.node("Conv", map[string]any{"pads": []int{1, 1, 1, 1}}, x, b.weights(c, c, 3, 3), b.weights(c))
}

func (b *builder) layerNorm(x *ir.Value, n int) *ir.Value {
	d := b.node("Sub", nil, x, b.node("ReduceMean", nil, x, b.ints(-1)))
	if b.IntN(2) == 0 {
		d = x
	}
	square := b.node("Pow", nil, d, b.scalar(2))
	root := b.node("Sqrt", nil, b.swap("Add", b.node("ReduceMean", nil, square, b.ints(-1)), b.scalar(0.01)))
	y := b.swap("Mul", b.node("Div", nil, d, root), b.weights(n))
	return b.swap("Add", y, b.weights(n))
}

// attention attends over the rows of each channel, its heads.
func (b *builder) attention(x *ir.Value) *ir.Value {
	s := b.node("MatMul", nil, x, b.node("Transpose", map[string]any{"perm": []int{0, 1, 3, 2}}, x))
	if b.IntN(2) == 0 {
		s = b.swap("Mul", s, b.scalar(0.5))
	}
	if h := x.Type.Dims[2]; b.IntN(2) == 0 && h.Known() {
		s = b.swap("Add", s, b.weights(h.Size(), h.Size()))
	}
	// Drawn of another source, so that the motifs of a seed stay what they are.
	c := &builder{Rand: rand.New(rand.NewPCG(uint64(len(b.g.Nodes)), 11)), g: b.g, err: b.err}
	if c.IntN(2) == 0 {
		s = c.hidden(s)
	}
	b.err = c.err
	return b.node("MatMul", nil, b.node("Softmax", nil, s), x)
}

// hidden hides from each row of scores the columns before it, or behind it, or those from one or two further on.
func (b *builder) hidden(s *ir.Value) *ir.Value {
	at := func(axis int) *ir.Value {
		i := func(n int64) *ir.Value { return b.g.NewConst("", tensor.Scalar(n)) }
		size := b.node("Gather", nil, b.node("Shape", nil, s), i(int64(axis)))
		return b.node("Range", nil, i(0), size, i(1))
	}
	rows := b.node("Add", nil, b.node("Unsqueeze", nil, at(2), b.ints(1)), b.ints(b.IntN(2)))
	// Earlier columns may be all there are: minus infinity would make NaN of a row.
	kind, least := "GreaterOrEqual", b.scalar([]float32{-3e38, -2e9}[b.IntN(2)])
	if b.IntN(2) == 0 {
		kind, least = "LessOrEqual", b.scalar(float32(math.Inf(-1)))
	}
	sees := b.node(kind, nil, b.node("Sub", nil, at(3), b.ints(b.IntN(2))), rows)
	if b.IntN(2) == 0 {
		return b.node("Where", nil, sees, s, least)
	}
	return b.swap("Add", s, b.node("Where", nil, sees, b.scalar(0), least))
}

// rotary turns pairs of pixels of a row, by the row, where that can be split.
func (b *builder) rotary(x *ir.Value) *ir.Value {
	d := x.Type.Dims
	if b.err != nil || !d[2].Known() || d[3].Size()%2 != 0 {
		return x
	}
	pairs := d[3].Size() / 2
	p := b.node("Reshape", nil, x, b.ints(0, 0, 0, pairs, 2))
	var parts [2]*ir.Value
	for i := range parts {
		parts[i] = b.node("Gather", map[string]any{"axis": 4}, p, b.g.NewConst("", tensor.Scalar(int64(i))))
	}
	cos, sin := b.weights(d[2].Size(), pairs), b.weights(d[2].Size(), pairs)
	re := b.node("Sub", nil, b.swap("Mul", parts[0], cos), b.swap("Mul", parts[1], sin))
	im := b.swap("Add", b.swap("Mul", parts[0], sin), b.swap("Mul", parts[1], cos))
	y := b.node("Concat", map[string]any{"axis": -1}, b.node("Unsqueeze", nil, re, b.ints(4)), b.node("Unsqueeze", nil, im, b.ints(4)))
	return b.node("Reshape", nil, y, b.ints(0, d[1].Size(), d[2].Size(), d[3].Size()))
}

// branches adds an If whose branches read outer values.
func (b *builder) branches(x, flag *ir.Value) *ir.Value {
	o := new(op.If)
	outer := b.g
	for _, sub := range []**ir.Graph{&o.Then, &o.Else} {
		*sub = outer.NewSubgraph("branch")
		b.g = *sub
		y := x
		if b.IntN(4) > 0 {
			y = b.swap("Add", b.conv(x, x.Type.Dims[1].Size()), x)
		}
		b.g.Outputs = append(b.g.Outputs, y)
	}
	b.g = outer
	if b.err != nil {
		return x
	}
	n := b.g.NewNode("", o, []*ir.Value{flag}, "")
	b.err = n.Infer()
	return n.Outputs[0]
}

// flatten adds a product of all of an image, perhaps with its axes moved before.
func (b *builder) flatten(x *ir.Value) *ir.Value {
	if b.err != nil || !x.Type.Ranked {
		return x
	}
	k := 1
	for _, d := range x.Type.Dims[1:] {
		k *= d.Size()
	}
	if b.IntN(2) == 0 {
		x = b.node("Transpose", map[string]any{"perm": []int{0, 2, 3, 1}}, x)
	}
	x = b.node("Flatten", nil, x)
	if b.IntN(2) == 0 {
		return b.node("Softmax", nil, b.swap("Add", b.node("MatMul", nil, x, b.weights(k, 3)), b.weights(3)))
	}
	x = b.node("Gemm", map[string]any{"transB": 1, "alpha": float32(0.5), "beta": float32(2)}, x, b.weights(3, k), b.weights(3))
	return b.node("BatchNormalization", nil, x, b.weights(3), b.weights(3), b.weights(3), b.positive(3))
}

func TestEveryPassFindsWhatItNeeds(t *testing.T) {
	var have passes.Fact
	for _, p := range passes.Pipeline {
		if missing := p.Needs &^ have; missing != 0 {
			t.Errorf("pass %s needs %v", p.Name, missing)
		}
		if p.Name == "" || p.Doc == "" {
			t.Errorf("pass %q: %q, want a name and what it does", p.Name, p.Doc)
		}
		have = have&^p.Breaks | p.Makes
	}
	if want := passes.Typed | passes.Folded | passes.Fused | passes.Pruned | passes.Integer | passes.Stored; have != want {
		t.Errorf("the pipeline establishes %v, want %v", have, want)
	}
}

func TestUnknownPassesAreRefused(t *testing.T) {
	for choice, o := range map[string]passes.Options{
		"Debug.Disable":   {Disable: []string{"fold", "fodl"}},
		"Debug.StopAfter": {StopAfter: "fodl"},
	} {
		g := graphtest.Parse(t, `graph "g"(%x: f32[2]) { return %x }`)
		err := passes.Run(context.Background(), newContext(), g, o)
		if !errors.Is(err, ir.ErrInvalid) || !strings.HasPrefix(err.Error(), choice+": no pass is named \"fodl\"") ||
			!strings.Contains(err.Error(), strings.Join(passes.Names(), ", ")) {
			t.Errorf("%s: error %v, want one that lists the passes", choice, err)
		}
	}
}

// An unbind is as good as what else exporters write: attention over queries, keys and
// values that one product makes becomes the same nodes.
func TestUnbindIsAsGoodAsSplit(t *testing.T) {
	const text = `
graph "g"(%x: f32[batch,6,4], %w: f32[4,12]) {
  %five: i64[5] = const {0, 6, 3, 2, 2}
  %three: i64[3] = const {0, 6, 4}
  %p: f32[batch,6,12] = MatMul "p" (%x, %w)
  %r: f32[batch,6,3,2,2] = Reshape "r" (%p, %five)
  %t: f32[3,batch,2,6,2] = Transpose "t" (%r) {perm = [2, 0, 3, 1, 4]}
  PARTS
  %kt: f32[batch,2,2,6] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}
  %s: f32[batch,2,6,6] = MatMul "s" (%q, %kt)
  %a: f32[batch,2,6,6] = Softmax "a" (%s)
  %o: f32[batch,2,6,2] = MatMul "o" (%a, %v)
  %ot: f32[batch,6,2,2] = Transpose "ot" (%o) {perm = [0, 2, 1, 3]}
  %y: f32[batch,6,4] = Reshape "y" (%ot, %three)
  return %y
}`
	parts := map[string]string{
		"split": `%zero: i64[1] = const {0}
  %q1: f32[1,batch,2,6,2], %k1: f32[1,batch,2,6,2], %v1: f32[1,batch,2,6,2] = Split "split" (%t) {num_outputs = 3}
  %q: f32[batch,2,6,2] = Squeeze "q" (%q1, %zero)
  %k: f32[batch,2,6,2] = Squeeze "k" (%k1, %zero)
  %v: f32[batch,2,6,2] = Squeeze "v" (%v1, %zero)`,
		"unbind": `%i: i64[] = const {0}
  %j: i64[] = const {1}
  %l: i64[] = const {-1}
  %u: sequence<f32[batch,2,6,2]>[3] = SplitToSequence "unbind" (%t) {keepdims = 0}
  %q: f32[batch,2,6,2] = SequenceAt "q" (%u, %i)
  %k: f32[batch,2,6,2] = SequenceAt "k" (%u, %j)
  %v: f32[batch,2,6,2] = SequenceAt "v" (%u, %l)`,
	}
	kinds := map[string]string{}
	for name, part := range parts {
		g := graphtest.Parse(t, strings.Replace(text, "PARTS", part, 1))
		newSubject(t, g, 1).check(t, passes.Options{})
		if err := passes.Run(context.Background(), newContext(), g, passes.Options{}); err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			kinds[name] += n.Op.Kind() + " "
		}
	}
	if kinds["unbind"] != kinds["split"] || !strings.Contains(kinds["unbind"], "Attention") {
		t.Errorf("%v", kinds)
	}
}

// Lists disappear also where they hold what is made of other lists.
func TestListsOfWhatListsMakeDisappear(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[4,2]) {
  %zero: i64[] = const {0}
  %s: sequence<f32[1,2]>[4] = SplitToSequence "split" (%x)
  %c: f32[4,2] = ConcatFromSequence "join" (%s) {axis = 0}
  %l: sequence<f32[4,2]>[2] = SequenceConstruct "pair" (%c, %x)
  %a: f32[4,2] = SequenceAt "first" (%l, %zero)
  %b: sequence<f32[1,2]>[4] = SplitToSequence "again" (%a)
  %d: f32[1,2] = SequenceAt "row" (%b, %zero)
  %y: f32[1,2] = Neg "y" (%d)
  return %y
}`)
	newSubject(t, g, 1).check(t, passes.Options{})
	if err := passes.Run(context.Background(), newContext(), g, passes.Options{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(g.String(), "sequence<") {
		t.Errorf("%s", g)
	}
}

func TestStopAndDisable(t *testing.T) {
	var seen []string
	o := passes.Options{
		StopAfter: "identity",
		Disable:   []string{"dead"},
		Progress:  func(pass string, _, _ int) { seen = append(seen, pass) },
	}
	g := graphtest.Parse(t, `graph "g"(%x: f32[2]) { %y: f32[2] = Identity "i" (%x) return %y }`)
	c := newContext()
	if err := passes.Run(context.Background(), c, g, o); err != nil {
		t.Fatal(err)
	}
	if want := []string{"infer", "floats", "spell", "quantized", "fold", "dead", "lists", "einsum", "spans", "identity"}; !slices.Equal(seen, want) {
		t.Errorf("progress of %v, want %v", seen, want)
	}
	var ran []string
	for _, p := range c.Report.Passes {
		ran = append(ran, fmt.Sprintf("%s:%d:%d", p.Name, p.Changes, p.Nodes))
	}
	if want := []string{"infer:0:1", "floats:0:1", "spell:0:1", "quantized:0:1", "fold:0:1", "lists:0:1", "einsum:0:1", "spans:0:1", "identity:1:0"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}

func TestCancelledRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := newContext()
	g := graphtest.Parse(t, `graph "g"(%x: f32[2]) { return %x }`)
	err := passes.Run(ctx, c, g, passes.Options{Progress: func(pass string, _, _ int) {
		if pass == "fold" {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || len(c.Report.Passes) != 5 {
		t.Errorf("%v after %d passes, want to stop after five", err, len(c.Report.Passes))
	}
}

// BenchmarkLongGraph runs the pipeline on a graph of about 10,000 nodes.
func BenchmarkLongGraph(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		r := &builder{Rand: rand.New(rand.NewPCG(1, 7)), g: ir.NewGraph("long")}
		v := r.g.NewInput("x", ir.Of(tensor.F32, ir.Sym("batch"), ir.Size(3), ir.Size(4), ir.Size(4)))
		for len(r.g.Nodes) < 10_000 {
			v = r.motif(v)
		}
		r.g.Outputs = []*ir.Value{v}
		if r.err != nil {
			b.Fatal(r.err)
		}
		b.StartTimer()
		if err := passes.Run(context.Background(), newContext(), r.g, passes.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
