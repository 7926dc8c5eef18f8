package prune_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/prune"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

// draw replaces constants that a text gives as zeros by random weights.
func draw(g *ir.Graph, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	for _, v := range g.Constants() {
		if v.Const.DType() != tensor.F32 || slices.ContainsFunc(v.Const.F32s(), func(w float32) bool { return w != 0 }) {
			continue
		}
		t := v.Const.Clone()
		for i := range t.F32s() {
			t.F32s()[i] = float32(0.5 + r.Float64())
			if r.IntN(2) == 0 {
				t.F32s()[i] *= -1
			}
		}
		v.SetConst(t)
	}
}

// network reads a graph from lines, in which %name[shape] after "weights" stands for
// random constants.
func network(t *testing.T, seed uint64, inputs, weights, body string) *ir.Graph {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "graph \"g\"(%s) {\n", inputs)
	for _, w := range strings.Fields(weights) {
		name, shape, _ := strings.Cut(w, "[")
		n := 1
		for _, d := range strings.Split(strings.TrimSuffix(shape, "]"), ",") {
			var k int
			fmt.Sscan(d, &k)
			n *= k
		}
		g := ir.NewGraph("")
		v := g.NewConst("w", tensor.New(tensor.F32, n))
		g.Outputs = []*ir.Value{v}
		text := ir.Print(g)
		_, elems, _ := strings.Cut(text, "const ")
		elems, _, _ = strings.Cut(elems, "\n")
		fmt.Fprintf(&b, "%%%s: f32[%s = const %s\n", name, shape, elems)
	}
	b.WriteString(body + "\n}")
	g, err := ir.Parse(b.String(), op.Registry)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	draw(g, seed)
	if err := g.Infer(); err != nil {
		t.Fatalf("%v in\n%s", err, g)
	}
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	return g
}

func channelOptions(sparsity float64) prune.GraphOptions {
	return prune.GraphOptions{Options: prune.Options{Pattern: prune.Pattern{Kind: prune.Channel}, Sparsity: sparsity, Allocate: prune.PerLayer}}
}

// checkChannels prunes the channels of g and compares the result with g in which
// nothing reads these channels. It returns the result and the smaller graph, nil where
// no channel can go.
func checkChannels(t *testing.T, g *ir.Graph, o prune.GraphOptions) (*prune.GraphResult, *ir.Graph, error) {
	t.Helper()
	checkExchanges(t, g)
	small, silent := g.Clone(), g.Clone()
	r, err := prune.Graph(small, o)
	if err != nil {
		return nil, nil, err
	}
	if err := small.Verify(); err != nil {
		t.Errorf("%v in\n%s", err, small)
	}
	if _, err := prune.SilenceChannels(silent, o); err != nil {
		t.Fatal(err)
	}
	before, _ := count(g)
	after, nonzeros := count(small)
	removed := 0
	for _, l := range r.Layers {
		removed += l.Removed
	}
	if want := (prune.Tally{Weights: before, Zeros: before - nonzeros}); r.Weights != want || removed != before-after {
		t.Errorf("the report counts %v and %d removed, want %v and %d", r.Weights, removed, want, before-after)
	}
	graphtest.Same(t, silent, small, 1e-5)
	checkSteps(t, g.Clone(), silent, o)
	return r, small, nil
}

// checkSteps decides which channels of g go, changes constants, and removes them. What
// Gone says makes of g what silent is, and the channels go with biases that are new.
func checkSteps(t *testing.T, g, silent *ir.Graph, o prune.GraphOptions) {
	t.Helper()
	p, err := prune.NewPlan(g, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SelectChannels(o.Allocate, nil); err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	for i := range p.Layers {
		rows, cols := p.Gone(i)
		if use := p.Use(i); rows != nil || cols != nil {
			w := use.View.Matrix(use.Value.Const).Clone()
			if rows != nil && len(rows) != w.Dim(0) || cols != nil && len(cols) != w.Dim(1) {
				t.Fatalf("%s: %d rows, %d columns, want %v", use.Value.Name, len(rows), len(cols), w)
			}
			for k := range w.F32s() {
				if cols != nil && cols[k%len(cols)] {
					w.F32s()[k] = 0
				} else if rows == nil || !rows[k/w.Dim(1)] {
					left[use.Value.Name]++
				}
			}
			p.Set(i, w.F32s())
		}
	}
	graphtest.Same(t, silent, g, 1e-5)
	for i := range p.Layers {
		use := p.Use(i)
		if n := use.Node; n.Input(2) == nil && use.Groups == 1 && use.Input == 1 && strings.Contains("Conv ConvTranspose Gemm MatMul", n.Op.Kind()) {
			rows, _ := use.View.Dims(use.Value.Const.Shape())
			n.SetInput(2, n.Graph().NewConst(n.Name+".bias", tensor.New(tensor.F32, rows)))
		}
	}
	draw(g, 7)
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	whole := g.Clone()
	type track struct {
		axis int
		gone []bool
	}
	tracks := map[*ir.Value]track{}
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if axis, gone := p.GoneOf(v); gone != nil {
				tracks[v] = track{axis, gone}
			}
		}
	}
	if err := p.Shrink(); err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(); err != nil {
		t.Errorf("%v in\n%s", err, g)
	}
	graphtest.Same(t, whole, g, 1e-5)
	for i := range p.Layers {
		v := p.Use(i).Value
		if n, ok := left[v.Name]; ok && v.Const.Len() != n {
			t.Errorf("%s is %v, want %d elements", v.Name, v.Const, n)
		}
	}
	for v, k := range tracks {
		n := 0
		for _, gone := range k.gone {
			if !gone {
				n++
			}
		}
		if d := v.Type.Dims[k.axis]; d.Known() && d != ir.Size(n) {
			t.Errorf("%s is %v, want %d channels", v.Name, v.Type, n)
		}
	}
}

// count returns the weights of g, each once, and how many are not zero.
func count(g *ir.Graph) (all, nonzeros int) {
	seen := map[*ir.Value]bool{}
	for _, u := range g.WeightUses() {
		if seen[u.Value] {
			continue
		}
		seen[u.Value] = true
		for _, w := range u.Value.Const.F32s() {
			if all++; w != 0 {
				nonzeros++
			}
		}
	}
	return all, nonzeros
}

// weightShapes prints the shapes of the weights by name.
func weightShapes(g *ir.Graph) string {
	var out []string
	for _, u := range g.WeightUses() {
		out = append(out, fmt.Sprintf("%s%v", u.Value.Name, u.Value.Const.Shape()))
	}
	return strings.Join(out, " ")
}

func TestChannels(t *testing.T) {
	const image = "%x: f32[batch,3,6,6]"
	for name, c := range map[string]struct {
		inputs, weights, body string
		want                  string // the shapes of the weights where half of the channels go; any, or empty where none can
		why                   string // part of a note, or of the error
	}{
		"a chain: the first outputs and the last rows stay": {image, "a[4,3,1,1] b[6,4,3,3] c[8,6,1,1] d[5,8,1,1] bias[6]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b, %bias) {pads = [1, 1, 1, 1], spc_act = "Relu"}
  %r: f32[*] = Conv "c" (%q, %c)
  %s: f32[*] = Sigmoid "s" (%r)
  %y: f32[*] = Conv "d" (%s, %d)
  return %y`, "a[4 3 1 1] b[3 4 3 3] c[4 3 1 1] d[5 4 1 1]", ""},
		"a list of sizes keeps the channels that it names": {image, "a[4,3,1,1] b[6,4,1,1] c[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %n: i64[4] = const {1, 6, 12, 12}
  %r: f32[*] = Resize "resize" (%q, _, _, %n)
  %y: f32[*] = Conv "c" (%r, %c)
  return %y`, "", "resize (Resize) reads them"},
		"a zero point for each channel beside one scale": {image, "a[4,3,1,1] b[6,4,1,1] c[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %s: f32[] = const {0.125}
  %z: u8[6] = const {100, 110, 120, 130, 140, 150}
  %u: u8[*] = QuantizeLinear "quantize" (%q, %s, %z)
  %r: f32[*] = DequantizeLinear "dequantize" (%u, %s, %z)
  %y: f32[*] = Conv "c" (%r, %c)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[5 3 1 1]", ""},
		"a reader without outputs": {"%x: f32[2,1,3]", "a[3,4] b[4,6] c[6,5] w[1,8,6] r[1,8,2]", `
  %p: f32[*] = MatMul "a" (%x, %a)
  %q: f32[*] = MatMul "b" (%p, %b)
  _ = LSTM "lstm" (%q, %w, %r) {hidden_size = 2}
  %y: f32[*] = MatMul "c" (%q, %c)
  return %y`, "a[3 2] b[2 6] w[1 8 6] r[1 8 2] c[6 5]", ""},
		"an operator of other axes": {image, "a[4,3,1,1] b[6,4,1,1] c[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %i: i64[2] = const {3, 1}
  %r: f32[*] = Gather "gather" (%q, %i) {axis = 2}
  %y: f32[*] = Conv "c" (%r, %c)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[5 3 1 1]", ""},
		"a residual ties its producers": {image, "a[4,3,1,1] b[6,4,1,1] c[6,4,1,1] d[6,6,1,1] e[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = Conv "c" (%p, %c, _, %q) {spc_act = "Relu"}
  %s: f32[*] = Conv "d" (%r, %d)
  %t: f32[*] = Add "add" (%s, %r)
  %y: f32[*] = Conv "e" (%t, %e)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[3 4 1 1] d[3 3 1 1] e[5 3 1 1]", ""},
		"a residual of the first convolution stays": {image, "a[4,3,1,1] b[4,4,1,1] e[5,4,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b, _, %p)
  %y: f32[*] = Conv "e" (%q, %e)
  return %y`, "", "its channels stay: the first convolution"},
		"a residual of an input stays": {"%x: f32[batch,3,6,6], %z: f32[batch,4,6,6]", "a[4,3,1,1] b[4,4,1,1] e[5,4,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b, _, %z)
  %y: f32[*] = Conv "e" (%q, %e)
  return %y`, "", "b (Conv) adds z, whose channels stay"},
		"a depthwise convolution shrinks with what it reads": {image, "a[4,3,1,1] b[6,4,1,1] dw[6,1,3,3] c[5,6,1,1] v[6]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b) {spc_act = "HardSwish"}
  %r: f32[*] = Conv "dw" (%q, %dw, %v) {group = 6, pads = [1, 1, 1, 1]}
  %y: f32[*] = Conv "c" (%r, %c)
  return %y`, "a[4 3 1 1] b[3 4 1 1] dw[3 1 3 3] c[5 3 1 1]", ""},
		"a depthwise convolution with a multiplier": {image, "a[4,3,1,1] b[6,4,1,1] dw[12,1,3,3] c[5,12,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = Conv "dw" (%q, %dw) {group = 6}
  %y: f32[*] = Conv "c" (%r, %c)
  return %y`, "a[4 3 1 1] b[3 4 1 1] dw[6 1 3 3] c[5 6 1 1]", ""},
		"a grouped convolution is not followed": {image, "a[4,3,1,1] b[6,4,1,1] gr[6,3,3,3] c[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = Conv "gr" (%q, %gr) {group = 2}
  %y: f32[*] = Conv "c" (%r, %c)
  return %y`, "", "its channels stay: gr (Conv) reads them"},
		"concatenation, its parts and what is not pruned": {image, "a[4,3,1,1] b[6,4,1,1] c[4,4,1,1] d[5,14,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = Conv "c" (%p, %c)
  %s: f32[*] = Concat "cat" (%r, %p, %q) {axis = 1}
  %t: f32[*] = Relu "relu" (%s)
  %y: f32[*] = Conv "d" (%t, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[2 4 1 1] d[5 9 1 1]", ""},
		"concatenation along the width": {image, "a[4,3,1,1] b[6,4,1,1] c[6,4,1,1] d[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = Conv "c" (%p, %c)
  %s: f32[*] = Concat "cat" (%r, %q) {axis = 3}
  %y: f32[*] = Conv "d" (%s, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[3 4 1 1] d[5 3 1 1]", ""},
		"concatenation with an input": {"%x: f32[batch,3,6,6], %z: f32[batch,2,6,6]", "a[4,3,1,1] b[6,4,1,1] d[5,8,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %s: f32[*] = Concat "cat" (%z, %q) {axis = -3}
  %y: f32[*] = Conv "d" (%s, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] d[5 5 1 1]", ""},
		"a split into unequal parts": {image, "a[4,3,1,1] b[8,4,1,1] c[2,4,1,1] d[5,4,1,1] e[7,7,1,1]", `
  %sizes: i64[2] = const {4, 4}
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %l: f32[*], %r: f32[*] = Split "split" (%q, %sizes) {axis = 1}
  %s: f32[*] = Conv "c" (%l, %c)
  %t: f32[*] = Conv "d" (%r, %d)
  %u: f32[*] = Concat "cat" (%s, %t) {axis = 1}
  %y: f32[*] = Conv "e" (%u, %e)
  return %y`, "any", ""},
		"a split into equal parts, gated": {image, "a[4,3,1,1] b[8,4,1,1] d[5,4,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %l: f32[*], %r: f32[*] = Split "split" (%q) {axis = 1, num_outputs = 2}
  %s: f32[*] = Sigmoid "s" (%r)
  %m: f32[*] = Mul "m" (%l, %s)
  %y: f32[*] = Conv "d" (%m, %d)
  return %y`, "a[4 3 1 1] b[4 4 1 1] d[5 2 1 1]", ""},
		"pooling, flattening and Gemm": {image, "a[4,3,1,1] b[6,4,1,1] c[54,8] d[8,10] cb[8]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %m: f32[*] = MaxPool "pool" (%q) {kernel_shape = [2, 2], strides = [2, 2]}
  %f: f32[*] = Flatten "flat" (%m)
  %g: f32[*] = Gemm "c" (%f, %c, %cb)
  %y: f32[*] = MatMul "d" (%g, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[27 4] d[4 10]", ""},
		"a reshape that names the columns": {image, "a[4,3,1,1] b[6,4,1,1] c[8,216] d[8,10]", `
  %shape: i64[2] = const {-1, 216}
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %f: f32[*] = Reshape "flat" (%q, %shape)
  %g: f32[*] = Gemm "c" (%f, %c) {transB = 1}
  %y: f32[*] = MatMul "d" (%g, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[4 108] d[4 10]", ""},
		"global pooling and squeezing": {image, "a[4,3,1,1] b[6,4,1,1] c[6,8] d[8,10]", `
  %axes: i64[2] = const {2, -1}
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %m: f32[*] = GlobalAveragePool "pool" (%q)
  %f: f32[*] = Squeeze "squeeze" (%m, %axes)
  %g: f32[*] = Gemm "c" (%f, %c)
  %y: f32[*] = MatMul "d" (%g, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[3 4] d[4 10]", ""},
		"a mean over the image": {image, "a[4,3,1,1] b[6,4,1,1] d[6,10]", `
  %axes: i64[2] = const {2, 3}
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %m: f32[*] = ReduceMean "mean" (%q, %axes) {keepdims = 0}
  %y: f32[*] = MatMul "d" (%m, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] d[3 10]", ""},
		"squeeze and excitation": {image, "a[4,3,1,1] b[6,4,1,1] s1[2,6,1,1] s2[6,2,1,1] d[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %m: f32[*] = GlobalAveragePool "pool" (%q)
  %e: f32[*] = Conv "s1" (%m, %s1) {spc_act = "Relu"}
  %f: f32[*] = Conv "s2" (%e, %s2) {spc_act = "HardSigmoid", spc_act_args = [0.2, 0.5]}
  %z: f32[*] = Mul "scale" (%f, %q)
  %y: f32[*] = Conv "d" (%z, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] s1[1 3 1 1] s2[3 1 1 1] d[5 3 1 1]", ""},
		"what batch normalization leaves, and factors": {image, "a[4,3,1,1] b[6,4,1,1] s[6] o[6] m[6] f[6,1,1] d[5,6,1,1]", `
  %one: f32[6] = const {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}
  %half: f32[1] = const {0.5}
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b) {spc_act = "Relu"}
  %n: f32[*] = BatchNormalization "bn" (%q, %s, %o, %m, %one)
  %i: f32[*] = InstanceNormalization "in" (%n, %s, %o)
  %r: f32[*] = Mul "mul" (%f, %i)
  %t: f32[*] = Add "add" (%r, %half)
  %y: f32[*] = Conv "d" (%t, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] d[5 3 1 1]", ""},
		"statistics over channels": {image, "a[4,3,1,1] b[6,4,1,1] s[6] d[6,10]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %t: f32[*] = Transpose "t" (%q) {perm = [0, 2, 3, 1]}
  %n: f32[*] = LayerNormalization "ln" (%t, %s)
  %y: f32[*] = MatMul "d" (%n, %d)
  return %y`, "", "its channels stay: ln (LayerNormalization) reads them"},
		"channels that move to the end": {image, "a[4,3,1,1] b[6,4,1,1] c[6,8] d[8,10] v[8]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %t: f32[*] = Transpose "t" (%q) {perm = [0, 2, 3, 1]}
  %u: f32[*] = MatMul "c" (%t, %c, %v) {spc_act = "Gelu", spc_act_args = [0.0]}
  %y: f32[*] = MatMul "d" (%u, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[3 4] d[4 10]", ""},
		"softmax over the image, padding and resizing": {image, "a[4,3,1,1] b[6,4,1,1] d[5,6,1,1]", `
  %pads: i64[8] = const {0, 0, 1, 1, 0, 0, 1, 1}
  %scales: f32[4] = const {1.0, 1.0, 2.0, 2.0}
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %s: f32[*] = Softmax "soft" (%q) {axis = 2}
  %t: f32[*] = Pad "pad" (%s, %pads)
  %u: f32[*] = Resize "resize" (%t, _, %scales)
  %y: f32[*] = Conv "d" (%u, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] d[5 3 1 1]", ""},
		"softmax over the channels": {image, "a[4,3,1,1] b[6,4,1,1] d[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %s: f32[*] = Softmax "soft" (%q) {axis = 1}
  %y: f32[*] = Conv "d" (%s, %d)
  return %y`, "", "soft (Softmax) reads them"},
		"transposed convolutions": {image, "a[4,3,1,1] b[4,6,2,2] c[6,8,1,1] d[5,8,1,1] v[6]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = ConvTranspose "b" (%p, %b, %v) {strides = [2, 2]}
  %r: f32[*] = ConvTranspose "c" (%q, %c)
  %y: f32[*] = Conv "d" (%r, %d)
  return %y`, "a[4 3 1 1] b[4 3 2 2] c[3 4 1 1] d[5 4 1 1]", ""},
		"the feed-forward part of a transformer": {"%x: f32[batch,seq,4]", "q[4,4] k[4,4] f1[4,8] b1[8] f2[8,4] b2[4] d[4,10]", `
  %p: f32[*] = MatMul "q" (%x, %q)
  %r: f32[*] = MatMul "k" (%x, %k)
  %t: f32[*] = Transpose "t" (%r) {perm = [0, 2, 1]}
  %s: f32[*] = MatMul "scores" (%p, %t)
  %a: f32[*] = Softmax "soft" (%s)
  %m: f32[*] = MatMul "mix" (%a, %x)
  %h: f32[*] = MatMul "f1" (%m, %f1, %b1) {spc_act = "Gelu", spc_act_args = [1.0]}
  %o: f32[*] = MatMul "f2" (%h, %f2, %b2, %m)
  %y: f32[*] = MatMul "d" (%o, %d)
  return %y`, "q[4 4] k[4 4] f1[4 4] f2[4 4] d[4 10]", "scores (MatMul) reads them"},
		"an output of the model": {image, "a[4,3,1,1] b[6,4,1,1] d[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %y: f32[*] = Conv "d" (%q, %d)
  return %y, %q`, "", "they are an output of the model"},
		"a branch reads them": {image + ", %k: bool[]", "a[4,3,1,1] b[6,4,1,1] d[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = If "if" (%k) {then_branch = graph "t"() {
    return %q
  }, else_branch = graph "e"() {
    %n: f32[*] = Neg "neg" (%q)
    return %n
  }}
  %y: f32[*] = Conv "d" (%r, %d)
  return %y`, "", "they are an output of if (If)"},
		"a weight read twice": {image, "a[4,3,1,1] b[4,4,1,1] d[5,4,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = Conv "c" (%q, %b)
  %y: f32[*] = Conv "d" (%r, %d)
  return %y`, "", "several operators read the weight"},
		"a bias that another layer shares": {image, "a[4,3,1,1] b[6,4,1,1] c[6,6,1,1] d[5,6,1,1] v[6]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b, %v)
  %r: f32[*] = Conv "c" (%q, %c, %v)
  %y: f32[*] = Conv "d" (%r, %d)
  return %y`, "a[4 3 1 1] b[3 4 1 1] c[3 3 1 1] d[5 3 1 1]", ""},
		"a shape that is read": {image, "a[4,3,1,1] b[6,4,1,1] d[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %s: i64[4] = Shape "shape" (%q)
  %y: f32[*] = Conv "d" (%q, %d)
  return %y, %s`, "", "shape (Shape) reads them"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				g := network(t, seed, c.inputs, c.weights, c.body)
				o := channelOptions(0)
				all, _ := prune.ParseGlob("*")
				o.Targets = []prune.LayerTarget{{Glob: all, Sparsity: 0.5}}
				r, small, err := checkChannels(t, g, o)
				if c.want == "" {
					if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), c.why) {
						t.Errorf("error %v, want one that says %q", err, c.why)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if have := weightShapes(small); have != c.want && !(c.want == "any") {
					t.Errorf("weights %s, want %s", have, c.want)
				}
				if !slices.ContainsFunc(r.Layers, func(l prune.GraphLayer) bool { return strings.Contains(l.Note+l.Why, c.why) }) {
					t.Errorf("no layer says %q: %+v", c.why, r.Layers)
				}
				for _, s := range []float64{0.2, 0.4, 0.7, 0.95} {
					for _, a := range []prune.Allocation{prune.PerLayer, prune.Global} {
						o := channelOptions(s)
						o.Allocate, o.KeepNone = a, s > 0.6
						if _, _, err := checkChannels(t, g, o); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
}

// fuse runs the pipeline up to pruning.
func fuse(t *testing.T, g *ir.Graph) *ir.Graph {
	t.Helper()
	if err := passes.Run(context.Background(), &passes.Context{}, g, passes.Options{StopAfter: "epilogues"}); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestChannelsOfArchitectures(t *testing.T) {
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
			g = fuse(t, g)
			for _, s := range []float64{0.3, 0.6} {
				for _, allocate := range []prune.Allocation{prune.PerLayer, prune.Global} {
					o := channelOptions(s)
					o.Allocate = allocate
					r, _, err := checkChannels(t, g, o)
					if a.Name == "lstm" {
						if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "its channels are not followed") {
							t.Errorf("error %v, want one that says why no channel can go", err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%s %.2f: %.4f of the prunable weights, %.4f of all", allocate, s, r.Prunable.Sparsity(), r.Weights.Sparsity())
					if strings.Contains("resnet mobilenet", a.Name) && math.Abs(r.Prunable.Sparsity()-s) > 0.01 {
						t.Errorf("%s: %.4f of the prunable weights are gone, want %.2f", allocate, r.Prunable.Sparsity(), s)
					}
				}
			}
		})
	}
}

// Trained models split, join, pad, flatten and shuffle channels in more ways.
func TestChannelsOfTrainedModels(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing of it runs at once")
	}
	root := os.Getenv("SPC_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(root, "models")); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	for name, shapes := range map[string]map[string][]int{
		"resnet20-cifar10":       nil,
		"mobilenetv2-imagenet":   {"t0": {1, 3, 64, 64}},
		"mnist-8":                nil,
		"squeezenet1.1-imagenet": {"data": {1, 3, 64, 64}},
		"mnist-opt":              nil,
		"ppocr-cls":              {"x": {1, 3, 48, 64}},
		"stories260k":            nil,
		"vit-cifar10":            nil,
		"silero-vad-ifless":      {"input": {1, 576}, "state": {2, 1, 128}},
		"ultraface-rfb-320":      nil,
		"ppocrv3-det":            {"x": {1, 3, 64, 64}},
	} {
		t.Run(name, func(t *testing.T) {
			g, _, err := onnx.Import(filepath.Join(root, "models", name, "model.onnx"), onnx.Options{Shapes: shapes})
			if err != nil {
				t.Fatal(err)
			}
			r, _, err := checkChannels(t, fuse(t, g), channelOptions(0.4))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.4f of the prunable weights, %.4f of all", r.Prunable.Sparsity(), r.Weights.Sparsity())
		})
	}
}

const twoConvs = `graph "g"(%x: f32[4,2,4,4]) {
  %w0: f32[4,2,1,1] = const {1, 2, 3, 4, 5, 6, 7, 8}
  %a: f32[4,4,4,4] = Conv "first" (%x, %w0)
  %w1: f32[4,4,1,1] = const {9, 9, 9, 9, 1, 1, 1, 1, 8, 8, 8, 8, 2, 2, 2, 2}
  %b1: f32[4] = const {1, 2, 3, 4}
  %b: f32[4,4,4,4] = Conv "middle" (%a, %w1, %b1)
  %r: f32[4,4,4,4] = Relu "relu" (%b)
  %w2: f32[3,4,1,1] = const {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
  %y: f32[4,3,4,4] = Conv "last" (%r, %w2)
  return %y
}`

func TestTheWeakestChannelsGoWithTheirBiasAndReaders(t *testing.T) {
	g := graphtest.Parse(t, twoConvs)
	r, err := prune.Graph(g, channelOptions(0.5))
	if err != nil {
		t.Fatal(err)
	}
	text := ir.Print(g)
	for _, want := range []string{
		"%w1: f32[2,4,1,1] = const {9.0, 9.0, 9.0, 9.0, 8.0, 8.0, 8.0, 8.0}",
		"%b1: f32[2] = const {1.0, 3.0}",
		"%w2: f32[3,2,1,1] = const {1.0, 3.0, 5.0, 7.0, 9.0, 11.0}",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	var got []string
	for _, l := range r.Layers {
		got = append(got, fmt.Sprintf("%s %v %d-%d %s: %s", l.Node, l.Prunable, l.Weights, l.Removed, l.Why, l.Note))
	}
	want := []string{
		"first false 8-0 the first convolution (input channels: 2): ",
		"middle true 16-8 : 2 of 4 output channels are gone",
		"last true 12-6 : 2 of 4 columns are gone; output channels stay: they are an output of the model",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKeptReadersKeepWhatTheyRead(t *testing.T) {
	glob, err := prune.ParseGlob("last")
	if err != nil {
		t.Fatal(err)
	}
	o := channelOptions(0.5)
	o.Keep = []prune.Glob{glob}
	_, err = prune.Graph(graphtest.Parse(t, twoConvs), o)
	if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "last (Conv) is kept by last") {
		t.Errorf("error %v, want one that says who keeps the channels", err)
	}
}

func TestALayersOwnShareOfChannels(t *testing.T) {
	o := channelOptions(0)
	target, err := prune.ParseLayerTarget("mid*=0.75")
	if err != nil {
		t.Fatal(err)
	}
	o.Targets = []prune.LayerTarget{target}
	r, err := prune.Graph(graphtest.Parse(t, twoConvs), o)
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Layers[1]; l.Removed != 12 {
		t.Errorf("%s lost %d of its 16 weights, want 12", l.Node, l.Removed)
	}
}

func TestOneChannelStays(t *testing.T) {
	r, small, err := checkChannels(t, graphtest.Parse(t, twoConvs), channelOptions(0.99))
	if err != nil {
		t.Fatal(err)
	}
	if l := r.Layers[1]; l.Removed != 12 || l.Bounded != 1 || weightShapes(small) != "w0[4 2 1 1] w1[1 4 1 1] w2[3 1 1 1]" {
		t.Errorf("%+v: weights %s, want one channel left and the bound named", l, weightShapes(small))
	}
}

func TestLayersThatLoseTheSameChannelsNeedOneSparsity(t *testing.T) {
	g := network(t, 1, "%x: f32[1,3,2,2]", "a[4,3,1,1] b[6,4,1,1] c[6,4,1,1] e[5,6,1,1]", `
  %p: f32[*] = Conv "a" (%x, %a)
  %q: f32[*] = Conv "b" (%p, %b)
  %r: f32[*] = Conv "c" (%p, %c, _, %q)
  %y: f32[*] = Conv "e" (%r, %e)
  return %y`)
	o := channelOptions(0)
	for _, s := range []string{"b=0.5", "c=0.25"} {
		target, err := prune.ParseLayerTarget(s)
		if err != nil {
			t.Fatal(err)
		}
		o.Targets = append(o.Targets, target)
	}
	if _, err := prune.Graph(g, o); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), "b and c lose the same channels") {
		t.Errorf("error %v, want one that names both layers", err)
	}
}
