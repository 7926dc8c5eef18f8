package recon

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// conv is a network of two residual blocks and a classifier, of which WEIGHTS are to be
// filled in.
const conv = `graph "conv"(%x: f32[n,3,6,6]) {
  WEIGHTS
  %a: f32[n,4,6,6] = Conv "a" (%x, %w1, %b1) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}
  %ar: f32[n,4,6,6] = Relu "ar" (%a)
  %b: f32[n,4,6,6] = Conv "b" (%ar, %w2, %b2) {kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 4}
  %bc: f32[n,4,6,6] = Tanh "bc" (%b)
  %c: f32[n,4,6,6] = Conv "c" (%bc, %w3) {kernel_shape = [1, 1]}
  %s: f32[n,4,6,6] = Add "s" (%ar, %c)
  %d: f32[n,4,3,3] = Conv "d" (%s, %w4, %b4) {kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]}
  %dr: f32[n,4,3,3] = ACT "dr" (%d)
  %p: f32[n,4,1,1] = GlobalAveragePool "p" (%dr)
  %f: f32[n,4] = Flatten "f" (%p)
  %y: f32[n,5] = Gemm "y" (%f, %w5, %b5) {transB = 1}
  return %y
}
`

var convShapes = [][]int{{4, 3, 3, 3}, {4}, {4, 1, 3, 3}, {4}, {4, 4, 1, 1}, {4, 4, 3, 3}, {4}, {5, 4}, {5}}
var convNames = []string{"w1", "b1", "w2", "b2", "w3", "w4", "b4", "w5", "b5"}

// block is a transformer block on five tokens.
const transformer = `graph "transformer"(%x: f32[n,5,8]) {
  WEIGHTS
  %axis: i64[1] = const {-1}
  %two: f32[] = const {2.0}
  %eps: f32[] = const {0.001}
  %half: f32[] = const {0.5}
  %heads: i64[4] = const {0, 5, 2, 4}
  %joined: i64[3] = const {0, 5, 8}
  %sq: f32[n,5,8] = Pow "sq" (%x, %two)
  %ms: f32[n,5,1] = ReduceMean "ms" (%sq, %axis)
  %me: f32[n,5,1] = Add "me" (%ms, %eps)
  %rt: f32[n,5,1] = Sqrt "rt" (%me)
  %nx: f32[n,5,8] = Div "nx" (%x, %rt)
  %sx: f32[n,5,8] = Mul "sx" (%nx, %g)
  %q: f32[n,5,8] = MatMul "q" (%sx, %wq, %bq)
  %k: f32[n,5,8] = MatMul "k" (%sx, %wk)
  %v: f32[n,5,8] = MatMul "v" (%sx, %wv)
  %qh: f32[n,5,2,4] = Reshape "qh" (%q, %heads)
  %kh: f32[n,5,2,4] = Reshape "kh" (%k, %heads)
  %vh: f32[n,5,2,4] = Reshape "vh" (%v, %heads)
  %qt: f32[n,2,5,4] = Transpose "qt" (%qh) {perm = [0, 2, 1, 3]}
  %kt: f32[n,2,4,5] = Transpose "kt" (%kh) {perm = [0, 2, 3, 1]}
  %vt: f32[n,2,5,4] = Transpose "vt" (%vh) {perm = [0, 2, 1, 3]}
  %qk: f32[n,2,5,5] = MatMul "qk" (%qt, %kt)
  %sc: f32[n,2,5,5] = Mul "sc" (%qk, %half)
  %pr: f32[n,2,5,5] = Softmax "pr" (%sc)
  %at: f32[n,2,5,4] = MatMul "at" (%pr, %vt)
  %ab: f32[n,5,2,4] = Transpose "ab" (%at) {perm = [0, 2, 1, 3]}
  %aj: f32[n,5,8] = Reshape "aj" (%ab, %joined)
  %o: f32[n,5,8] = MatMul "o" (%aj, %wo)
  %r: f32[n,5,8] = Add "r" (%x, %o)
  %ln: f32[n,5,8] = LayerNormalization "ln" (%r, %g2, %h2)
  %up: f32[n,5,12] = MatMul "up" (%ln, %wu, %bu)
  %sg: f32[n,5,12] = Sigmoid "sg" (%up)
  %sw: f32[n,5,12] = Mul "sw" (%up, %sg)
  %dn: f32[n,5,8] = MatMul "dn" (%sw, %wd)
  %y: f32[n,5,8] = Add "yy" (%r, %dn)
  return %y
}
`

var transformerShapes = [][]int{{8}, {8, 8}, {8}, {8, 8}, {8, 8}, {8, 8}, {8}, {8}, {8, 12}, {12}, {12, 8}}
var transformerNames = []string{"g", "wq", "bq", "wk", "wv", "wo", "g2", "h2", "wu", "bu", "wd"}

const seed = 11

// network reads a text with random weights.
func network(t *testing.T, text, act string, names []string, shapes [][]int, dtype string) *ir.Graph {
	t.Helper()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var weights []string
	for i, name := range names {
		n, scale := 1, 1.0
		for k, d := range shapes[i] {
			if n *= d; k > 0 {
				scale *= float64(d)
			}
		}
		var v []string
		for range n {
			v = append(v, fmt.Sprintf("%.4f", r.NormFloat64()/math.Sqrt(scale)))
		}
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(shapes[i]), "[]"), " ", ",")
		weights = append(weights, fmt.Sprintf("%%%s: f32[%s] = const {%s}", name, shape, strings.Join(v, ", ")))
	}
	text = strings.NewReplacer("WEIGHTS", strings.Join(weights, "\n  "), "ACT", act).Replace(text)
	return graphtest.Parse(t, strings.ReplaceAll(text, "f32", dtype))
}

func convNet(t *testing.T, act string) *ir.Graph {
	return network(t, conv, act, convNames, convShapes, "f32")
}

// halve sets every other element of the weights of products to zero.
func halve(g *ir.Graph) {
	for _, u := range g.WeightUses() {
		w := u.Value.Const.Clone()
		for i := range w.F32s() {
			if i%2 == 0 {
				w.F32s()[i] = 0
			}
		}
		u.Value.SetConst(w)
	}
}

// observer sees random samples of a shape through the interpreter.
func observer(samples int, shape ...int) *calib.Observer {
	return &calib.Observer{
		Inputs: func(context.Context, *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
			return func(yield func([]*tensor.Tensor, error) bool) {
				r := rand.New(rand.NewPCG(seed, 1))
				for range samples {
					x := tensor.New(tensor.F32, shape...)
					for i := range x.F32s() {
						x.F32s()[i] = float32(r.NormFloat64())
					}
					if !yield([]*tensor.Tensor{x}, nil) {
						return
					}
				}
			}
		},
		Run: graphtest.Run,
	}
}

func TestGradientsOfWholeBlocksAreThoseOfFiniteDifferences(t *testing.T) {
	for _, c := range []struct {
		text   string
		names  []string
		shapes [][]int
		in     []int
	}{
		{conv, convNames, convShapes, []int{2, 3, 6, 6}},
		{transformer, transformerNames, transformerShapes, []int{2, 5, 8}},
	} {
		g := network(t, c.text, "Softplus", c.names, c.shapes, "f32")
		wide := network(t, c.text, "Softplus", c.names, c.shapes, "f64")
		t.Run(g.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			x := tensor.New(tensor.F32, c.in...)
			for i := range x.F32s() {
				x.F32s()[i] = float32(r.NormFloat64())
			}
			params := parameters(g.Nodes, func(string) bool { return false })
			if len(params) != len(c.names) {
				t.Fatalf("%d parameters, want %d", len(params), len(c.names))
			}
			p, err := newPiece(g.Nodes, g.Outputs, params)
			if err != nil {
				t.Fatal(err)
			}
			s := newPass(p, (&calib.Observer{}).Loops())
			s.check = true
			if err := s.forward([]*tensor.Tensor{x}); err != nil {
				t.Fatal(err)
			}
			y := s.value(g.Outputs[0])
			target := tensor.New(tensor.F32, y.Shape()...)
			for i := range target.F32s() {
				target.F32s()[i] = float32(r.NormFloat64())
			}
			l := loss{value: g.Outputs[0], weight: 1, power: 1}
			grad := s.c.New(y.Shape()...)
			l.eval(y, target, 2, grad.F32s(), 0.5)
			if err := s.backward(func(add func(*ir.Value, *tensor.Tensor)) { add(l.value, grad) }); err != nil {
				t.Fatal(err)
			}
			consts := map[string]*ir.Value{}
			for _, v := range wide.Constants() {
				consts[v.Name] = v
			}
			mean := func() float64 {
				out, err := ref.Run(context.Background(), wide, []*tensor.Tensor{x.To(tensor.F64)})
				if err != nil {
					t.Fatal(err)
				}
				sum := 0.0
				for i, v := range out[0].Float64s() {
					d := v - float64(target.F32s()[i])
					sum += d * d
				}
				return sum / float64(target.Len())
			}
			for i, q := range params {
				w := tensor.Data[float64](consts[q.value.Name].Const)
				for _, k := range []int{0, len(w) / 2, len(w) - 1} {
					const h = 1e-5
					at := w[k]
					w[k] = at + h
					up := mean()
					w[k] = at - h
					want := (up - mean()) / (2 * h)
					w[k] = at
					if have := float64(s.grads[i].F32s()[k]); math.Abs(have-want) > 1e-5+1e-3*math.Abs(want) {
						t.Errorf("gradient by element %d of %s is %v, want %v", k, q.value.Name, have, want)
					}
				}
			}
		})
	}
}

// bent returns a network of which every other weight is zero, and a copy whose other
// weights and biases are off, so that they can be found again.
func bent(g *ir.Graph) (dense, off *ir.Graph) {
	halve(g)
	off = g.Clone()
	r := rand.New(rand.NewPCG(seed, 4))
	for _, v := range off.Constants() {
		if v.Type.DType != tensor.F32 || v.Const.Len() == 1 {
			continue
		}
		w := v.Const.Clone()
		for i := range w.F32s() {
			w.F32s()[i] *= float32(1 + 0.3*r.NormFloat64())
		}
		v.SetConst(w)
	}
	return g, off
}

// reconstructed runs a reconstruction and returns the graph.
func reconstructed(t *testing.T, dense, g *ir.Graph, o *calib.Observer, opt Options) (*ir.Graph, *Report) {
	t.Helper()
	g = g.Clone()
	rep, err := Run(context.Background(), o, g, dense, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	return g, rep
}

var some = Options{Epochs: 30, Rate: 0.03, Warmup: 0.1, Batch: 8, Workers: 1, Seed: 3}

func TestReconstructionComesNearerTheDenseModel(t *testing.T) {
	for _, c := range []struct {
		text   string
		names  []string
		shapes [][]int
		in     []int
		blocks int
	}{
		{conv, convNames, convShapes, []int{1, 3, 6, 6}, 5},
		{transformer, transformerNames, transformerShapes, []int{1, 5, 8}, 4},
	} {
		dense, off := bent(network(t, c.text, "Relu", c.names, c.shapes, "f32"))
		t.Run(dense.Name, func(t *testing.T) {
			whole := some
			whole.WholeEpochs, whole.WholeRate, whole.Inside = 8, 0.01, 0.5
			g, rep := reconstructed(t, dense, off, observer(48, c.in...), whole)
			if len(rep.Blocks) != c.blocks {
				t.Errorf("%d blocks, want %d: %+v", len(rep.Blocks), c.blocks, rep.Blocks)
			}
			for _, b := range rep.Blocks {
				if b.Note != "" || b.After > b.Before || b.Steps == 0 || b.Samples != 48 {
					t.Errorf("%+v", b)
				}
			}
			if a, b := rep.Blocks[0].After, rep.Blocks[0].Before; a > b/10 {
				t.Errorf("the first block's loss went from %v to %v, want a tenth of it", b, a)
			}
			if a, b := distance(t, dense, g, c.in), distance(t, dense, off, c.in); a > b/10 {
				t.Errorf("outputs of unseen samples are off by %v, want a tenth of the %v before", a, b)
			}
			before := map[string]*tensor.Tensor{}
			for _, u := range off.WeightUses() {
				before[u.Value.Name] = u.Value.Const
			}
			for _, u := range g.WeightUses() {
				for i, v := range u.Value.Const.F32s() {
					if (v == 0) != (before[u.Value.Name].F32s()[i] == 0) {
						t.Fatalf("element %d of %s became %v", i, u.Value.Name, v)
					}
				}
			}
		})
	}
}

// distance is the mean squared difference of two graphs' outputs on new samples.
func distance(t *testing.T, a, b *ir.Graph, shape []int) float64 {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	shape = append([]int{32}, shape[1:]...)
	x := tensor.New(tensor.F32, shape...)
	for i := range x.F32s() {
		x.F32s()[i] = float32(r.NormFloat64())
	}
	ya, err := ref.Run(context.Background(), a, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	yb, err := ref.Run(context.Background(), b, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, v := range ya[0].F32s() {
		d := float64(v - yb[0].F32s()[i])
		sum += d * d
	}
	return sum
}

func TestResultsDoNotDependOnTheNumberOfWorkersNorOnHowSamplesCome(t *testing.T) {
	dense, off := bent(convNet(t, "Relu"))
	opt := some
	opt.Epochs, opt.GainEpochs, opt.GainRate, opt.WholeEpochs, opt.WholeRate, opt.Augment = 2, 2, 0.01, 2, 0.01, true
	want, _ := reconstructed(t, dense, off, observer(40, 1, 3, 6, 6), opt)
	opt.Workers = 3
	have, _ := reconstructed(t, dense, off, observer(40, 1, 3, 6, 6), opt)
	same(t, "one worker and three", want, have)

	// Blocks hold out what comes together, the whole model single samples.
	opt.Epochs = 0
	single, _ := reconstructed(t, dense, off, observer(40, 1, 3, 6, 6), opt)
	joined, _ := reconstructed(t, dense, off, observer(10, 4, 3, 6, 6), opt)
	same(t, "samples one by one and four at a time", single, joined)
}

// same checks that constants of two graphs are equal.
func same(t *testing.T, between string, a, b *ir.Graph) {
	t.Helper()
	for i, v := range a.Constants() {
		if !v.Const.Equal(b.Constants()[i].Const) {
			t.Errorf("%s differs between %s", v.Name, between)
		}
	}
}

// numbered sees samples [1,4] all of whose elements are their number.
func numbered(samples int) *calib.Observer {
	o := observer(samples, 1, 4)
	see := o.Inputs
	o.Inputs = func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
		return func(yield func([]*tensor.Tensor, error) bool) {
			i := 0
			for in, err := range see(ctx, g) {
				for k := range in[0].F32s() {
					in[0].F32s()[k] = float32(i)
				}
				if i++; !yield(in, err) {
					return
				}
			}
		}
	}
	return o
}

func TestBlocksHoldOutTheSameSamples(t *testing.T) {
	dense := network(t, `graph "g"(%x: f32[n,4]) {
  WEIGHTS
  %y: f32[n,3] = MatMul "y" (%x, %w)
  return %y
}
`, "", []string{"w"}, [][]int{{4, 3}}, "f32")
	for samples, want := range map[int]string{64: "[7 15 23 31 39 47 55 63]", 20: "[7 15]", 7: "[]"} {
		for _, share := range []int{1, 2, 3} { // of the samples that fit the budget
			g := dense.Clone()
			r := &runner{Options: Options{Budget: samples * (1 + (4+3)*4) / share}, o: numbered(samples), g: g, dense: dense}
			if err := r.pair(); err != nil {
				t.Fatal(err)
			}
			r.front = r.o.Frontier(r.twins.Graph, 0)
			if err := r.aim(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, err := newPiece(g.Nodes, g.Outputs, parameters(g.Nodes, r.fixed))
			if err != nil {
				t.Fatal(err)
			}
			all, err := r.collect(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			held, seen := []int{}, []int{}
			for _, s := range all {
				if i := int(s.in[0].F32s()[0]); s.held {
					held = append(held, i)
				} else {
					seen = append(seen, i)
				}
			}
			if share == 1 {
				if fmt.Sprint(held) != want || len(all) < samples-1 {
					t.Errorf("%d samples: %v of %d are held out, want %s of all", samples, held, len(all), want)
				}
				continue
			}
			if n := samples / HeldOut; n > 0 && len(held) != max(1, n/share) || len(seen) < (samples-n)/share-2 || len(all) > samples/share+1 {
				t.Errorf("%d samples, %d in the budget: %v are held out, %v are seen", samples, samples/share, held, seen)
			}
			for _, i := range held {
				if !isHeld(i) {
					t.Errorf("%d samples: sample %d is held out", samples, i)
				}
			}
			if want != "[]" && slices.ContainsFunc(seen, isHeld) {
				t.Errorf("%d samples: of %v some are to be held out", samples, seen)
			}
		}
	}
}

func TestABlockThatMakesOutputsNoBetterStays(t *testing.T) {
	// What the first block is off by, no output depends on.
	dense := convNet(t, "Relu")
	slice(dense, "w4", 1, 1, func(float32) float32 { return 0 })
	other := dense.Clone()
	slice(other, "w3", 0, 1, func(x float32) float32 { return x + 1 })
	g, rep := reconstructed(t, dense, other, observer(32, 1, 3, 6, 6), some)
	if b := rep.Blocks[1]; b.Last != "s" || !(b.After < b.Before) || b.Share != 0 {
		t.Errorf("%+v, want a block that got better and was not kept", b)
	}
	if constOf(g, "w3") != constOf(other, "w3") {
		t.Error("w3 is another tensor")
	}
	if rep.Before != rep.After || rep.Before > negligible {
		t.Errorf("outputs go from %v to %v away, want no difference", rep.Before, rep.After)
	}
	// What the second one is off by, they do.
	slice(other, "w3", 0, 2, func(x float32) float32 { return x + 1 })
	g, rep = reconstructed(t, dense, other, observer(32, 1, 3, 6, 6), some)
	if !(rep.After < rep.Before/2) {
		t.Errorf("outputs go from %v to %v away, want half", rep.Before, rep.After)
	}
	if b := rep.Blocks[1]; b.Share == 0 || constOf(g, "w3").Equal(constOf(other, "w3")) {
		t.Errorf("%+v, want a block that was kept", b)
	}
}

func TestGainsChangeTheSizesOfRows(t *testing.T) {
	dense, off := bent(convNet(t, "Relu"))
	for _, u := range off.WeightUses() { // rows of the dense weights, at other sizes
		var w *tensor.Tensor
		if w = constOf(dense, u.Value.Name).Clone(); u.Value.Name == "w5" {
			for i := range w.F32s() {
				w.F32s()[i] *= 1 + 0.1*float32(i/4)
			}
		}
		u.Value.SetConst(w)
	}
	opt := Options{GainEpochs: 40, GainRate: 0.02, Warmup: 0.1, Batch: 8, Workers: 1, Seed: 3}
	g, rep := reconstructed(t, dense, off, observer(48, 1, 3, 6, 6), opt)
	if b := rep.Blocks[0]; len(rep.Blocks) != 1 || b.Of != OfGains || b.After > b.Before/10 || rep.Before != 0 {
		t.Errorf("%+v, want a tenth of the loss", rep.Blocks)
	}
	changed := false
	for _, u := range off.WeightUses() {
		before, after := u.View.Matrix(u.Value.Const), u.View.Matrix(constOf(g, u.Value.Name))
		rows, cols := u.View.Dims(u.Value.Const.Shape())
		a, b := tensor.Data[float32](before), tensor.Data[float32](after)
		for r := range rows {
			gain := float32(0)
			for c := range cols {
				switch x, y := a[r*cols+c], b[r*cols+c]; {
				case x == 0:
					if y != 0 {
						t.Errorf("a zero of %s became %v", u.Value.Name, y)
					}
				case gain == 0:
					gain = y / x
					changed = changed || gain != 1
				case math.Abs(float64(y/x/gain-1)) > 1e-5:
					t.Errorf("row %d of %s changed by %v and %v", r, u.Value.Name, gain, y/x)
				}
			}
		}
	}
	if !changed {
		t.Error("no row changed")
	}
}

func TestBlocksWithoutGradientStayAndAreNamed(t *testing.T) {
	dense, off := bent(convNet(t, "Round"))
	opt := some
	opt.Epochs, opt.WholeEpochs = 2, 1
	g, rep := reconstructed(t, dense, off, observer(16, 1, 3, 6, 6), opt)
	noted := 0
	for _, b := range rep.Blocks {
		if strings.Contains(b.Note, "dr (Round): no gradient") {
			noted++
		}
	}
	if noted != 2 || len(rep.Blocks) != 5 {
		t.Errorf("%+v, want the block of Round and the whole model to have no gradient", rep.Blocks)
	}
	for _, name := range []string{"w4", "b4"} {
		if !constOf(g, name).Equal(constOf(off, name)) {
			t.Errorf("%s changed", name)
		}
	}
	if constOf(g, "w1").Equal(constOf(off, "w1")) {
		t.Error("w1 did not change")
	}
}

func constOf(g *ir.Graph, name string) *tensor.Tensor {
	for _, v := range g.Constants() {
		if v.Name == name {
			return v.Const
		}
	}
	return nil
}

func TestFixedConstantsStay(t *testing.T) {
	dense := convNet(t, "Relu")
	off := dense.Clone()
	for _, name := range []string{"w1", "w4", "b4"} {
		slice(off, name, 0, 2, func(x float32) float32 { return x + 1 })
	}
	opt := some
	opt.Epochs, opt.Fixed = 2, []string{"a", "w4"}
	g, _ := reconstructed(t, dense, off, observer(16, 1, 3, 6, 6), opt)
	for _, name := range []string{"w1", "b1", "w4"} {
		if !constOf(g, name).Equal(constOf(off, name)) {
			t.Errorf("%s changed", name)
		}
	}
	if constOf(g, "b4").Equal(constOf(off, "b4")) {
		t.Error("b4 did not change")
	}
}

// slice calls change with the elements of slice k along an axis of a constant, and sets
// them to what it returns.
func slice(g *ir.Graph, name string, axis, k int, change func(x float32) float32) {
	for _, v := range g.Constants() {
		if v.Name != name {
			continue
		}
		w, inner := v.Const.Clone(), 1
		for _, d := range w.Shape()[axis+1:] {
			inner *= d
		}
		for i, x := range w.F32s() {
			if i/inner%w.Dim(axis) == k {
				w.F32s()[i] = change(x)
			}
		}
		v.SetConst(w)
	}
}

func TestWhatNothingDependsOnDoesNotCount(t *testing.T) {
	// No weight reads channel 1 of the first stage.
	const k = 1
	dense := convNet(t, "Relu")
	for _, name := range []string{"w3", "w4"} {
		slice(dense, name, 1, k, func(float32) float32 { return 0 })
	}
	makers := []string{"w1", "b1", "w2", "b2", "w3"}
	other := dense.Clone()
	for _, name := range makers {
		slice(other, name, 0, k, func(x float32) float32 { return 3 * x })
	}
	opt := some
	opt.Epochs, opt.WholeEpochs, opt.WholeRate, opt.Inside = 3, 3, 0.01, 1
	o := observer(16, 1, 3, 6, 6)
	_, rep := reconstructed(t, dense, other, o, opt)
	if rep.Blocks[0].Before < 0.1 {
		t.Fatalf("%+v, want what channel %d has to count without Gone", rep.Blocks[0], k)
	}
	opt.Gone = func(v *ir.Value) (int, []bool) {
		if strings.Contains(" a ar b bc c s ", " "+v.Name+" ") {
			return 1, []bool{false, true, false, false}
		}
		return 0, nil
	}
	_, rep = reconstructed(t, dense, other, o, opt)
	for _, b := range rep.Blocks {
		if b.Before > negligible || b.Steps > 0 {
			t.Errorf("%+v, want no loss", b)
		}
	}

	// Elements that count train as ever, and those of the channel stay.
	_, off := bent(dense.Clone())
	g, rep := reconstructed(t, dense, off, o, opt)
	for _, name := range makers {
		var before, after []float32
		same := func(to *[]float32) func(x float32) float32 {
			return func(x float32) float32 {
				*to = append(*to, x)
				return x
			}
		}
		slice(off, name, 0, k, same(&before))
		slice(g, name, 0, k, same(&after))
		if !slices.Equal(before, after) {
			t.Errorf("channel %d of %s became %v, was %v", k, name, after, before)
		}
		if constOf(g, name).Equal(constOf(off, name)) {
			t.Errorf("%s did not change", name)
		}
	}
	if b := rep.Blocks[0]; b.After >= b.Before {
		t.Errorf("%+v, want a smaller loss", b)
	}
	// Without the channel, the loss is relative to what is left.
	l := loss{weight: 1, power: 2, axis: 1, gone: []bool{false, true, false}}
	y, z := tensor.From([]float32{1, 9, 7, 7, 3, 9}, 1, 3, 2), tensor.New(tensor.F32, 1, 3, 2)
	grad := slices.Repeat([]float32{5}, 6)
	if have, want := l.eval(y, z, 1, grad, 1), (1.0+81+9+81)/4/2; math.Abs(have-want) > 1e-9 {
		t.Errorf("loss %v, want %v", have, want)
	}
	if want := []float32{0.25, 2.25, 0, 0, 0.75, 2.25}; !slices.Equal(grad, want) {
		t.Errorf("gradient %v, want %v", grad, want)
	}
}

func TestOtherGraphsAreRefused(t *testing.T) {
	dense, other := convNet(t, "Relu"), convNet(t, "Tanh")
	if _, err := Run(context.Background(), observer(4, 1, 3, 6, 6), other, dense, some); err == nil || !strings.Contains(err.Error(), "dr (Tanh)") {
		t.Errorf("error %v, want one that names the node", err)
	}
}

func TestRateRisesAndFallsToZero(t *testing.T) {
	const n, peak = 100, 0.5
	if r := rate(0, n, peak, 0.1); r <= 0 || r > peak/9 {
		t.Errorf("the first rate is %v", r)
	}
	if r := rate(10, n, peak, 0.1); r != peak {
		t.Errorf("the rate after the warm-up is %v, want %v", r, peak)
	}
	for i := 11; i < n; i++ {
		if rate(i, n, peak, 0.1) >= rate(i-1, n, peak, 0.1) {
			t.Errorf("the rate does not fall at step %d", i)
		}
	}
	if r := rate(n-1, n, peak, 0.1); r <= 0 || r > peak/1000 {
		t.Errorf("the last rate is %v", r)
	}
}

// A model without gradients to follow stays as it is, and the report says why.
func TestNothingToReconstruct(t *testing.T) {
	weight := "%w: f32[4,2] = const {1.0, 0.0, -2.0, 0.5, 0.0, 3.0, 1.0, 0.0}"
	for name, text := range map[string]string{
		"no output of f32": `graph "g"(%x: f32[n,4]) {
  ` + weight + `
  %h: f32[n,2] = MatMul "fc" (%x, %w)
  %y: i64[n] = ArgMax "best" (%h) {axis = 1, keepdims = 0}
  return %y
}`,
		"no input": `graph "g"() {
  %c: f32[1,4] = const {1.0, 2.0, 3.0, 4.0}
  ` + weight + `
  %y: f32[1,2] = MatMul "fc" (%c, %w)
  return %y
}`,
		"weights of f64": `graph "g"(%x: f64[n,4]) {
  ` + strings.ReplaceAll(weight, "f32", "f64") + `
  %y: f64[n,2] = MatMul "fc" (%x, %w)
  return %y
}`,
		"no node": `graph "g"(%x: f32[n,4]) {
  return %x
}`,
	} {
		g := graphtest.Parse(t, text)
		dense := g.Clone()
		o := observer(4, 2, 4)
		if len(g.Inputs) == 0 || g.Inputs[0].Type.DType == tensor.F64 {
			see := o.Inputs
			o.Inputs = func(ctx context.Context, g *ir.Graph) iter.Seq2[[]*tensor.Tensor, error] {
				return func(yield func([]*tensor.Tensor, error) bool) {
					for in, err := range see(ctx, g) {
						if in = in[:len(g.Inputs)]; len(in) > 0 {
							in[0] = in[0].To(tensor.F64)
						}
						if !yield(in, err) {
							return
						}
					}
				}
			}
		}
		r, err := Run(t.Context(), o, g, dense, Options{Epochs: 2, Rate: 0.1, WholeEpochs: 2, WholeRate: 0.1, Inside: 1, Augment: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, b := range r.Blocks {
			if b.Note == "" || b.Steps > 0 {
				t.Errorf("%s: %+v, want the reason why nothing was done", name, b)
			}
		}
		if len(r.Blocks) == 0 && len(g.Nodes) > 0 || ir.Print(g) != ir.Print(dense) {
			t.Errorf("%s: %d blocks in\n%s", name, len(r.Blocks), g)
		}
	}
}

func TestABiasThatLayersShareIsEachTwinsOwn(t *testing.T) {
	dense := network(t, `graph "g"(%x: f32[n,2,3,3]) {
  WEIGHTS
  %a: f32[n,2,3,3] = Conv "a" (%x, %w1, %b)
  %y: f32[n,2,3,3] = Conv "y" (%a, %w2, %b)
  return %y
}
`, "", []string{"w1", "w2", "b"}, [][]int{{2, 2, 1, 1}, {2, 2, 1, 1}, {2}}, "f32")
	g := dense.Clone()
	for i, n := range g.Nodes {
		n.SetInput(2, g.NewConst(n.Name+".b", tensor.From([]float32{float32(i), 2}, 2)))
	}
	r := &runner{g: g, dense: dense}
	if err := r.pair(); err != nil {
		t.Fatal(err)
	}
	for i, n := range g.Nodes {
		if have := r.twins.PrunedNode(dense.Nodes[i]).Input(2).Const.F32s(); have[0] != float32(i) {
			t.Errorf("the twin of %s adds %v, want %v", n.Name, have, n.Input(2).Const.F32s())
		}
	}
}

func TestOutputsThatAreNoScoresAreComparedByTheirSquares(t *testing.T) {
	// Off by the same everywhere, which a distribution over the last axis would not show.
	dense := network(t, `graph "g"(%x: f32[n,5,4]) {
  WEIGHTS
  %h: f32[n,5,4] = MatMul "h" (%x, %w1)
  %r: f32[n,5,4] = Relu "r" (%h)
  %y: f32[n,5,4] = MatMul "y" (%r, %w2, %b)
  return %y
}
`, "", []string{"w1", "w2", "b"}, [][]int{{4, 4}, {4, 4}, {4}}, "f32")
	g := dense.Clone()
	b := slices.Clone(g.Nodes[2].Input(2).Const.F32s())
	for i := range b {
		b[i] += 7
	}
	g.Nodes[2].SetInput(2, g.NewConst("off", tensor.From(b, 4)))
	opt := some
	opt.Epochs, opt.WholeEpochs, opt.WholeRate = 3, 3, 0.05
	_, rep := reconstructed(t, dense, g, observer(32, 1, 5, 4), opt)
	for _, b := range rep.Blocks[1:] {
		if !(b.Before > 0.1 && b.After < b.Before) {
			t.Errorf("%+v, want the shift to count", b)
		}
	}
}
