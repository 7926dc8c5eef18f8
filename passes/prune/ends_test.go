package prune_test

import (
	"fmt"
	"slices"
	"testing"

	"spc/passes/prune"
)

func TestWhatStaysDenseByDefault(t *testing.T) {
	const image = "%x: f32[1,3,8,8]"
	for name, c := range map[string]struct {
		inputs, weights, body string
		want                  []string // what stays
	}{
		"a small classifier behind pooling": {image, "w1[8,3,3,3] d[8,1,3,3] w2[16,8,1,1] w3[10,16]", `
  %a: f32[*] = Conv "stem" (%x, %w1) {pads = [1, 1, 1, 1]}
  %b: f32[*] = Conv "depthwise" (%a, %d) {pads = [1, 1, 1, 1], group = 8}
  %c: f32[*] = Conv "pointwise" (%b, %w2)
  %p: f32[*] = GlobalAveragePool "pool" (%c)
  %f: f32[*] = Flatten "flat" (%p)
  %y: f32[*] = Gemm "classifier" (%f, %w3) {transB = 1}
  return %y`, []string{"stem: the first convolution (input channels: 3)", "depthwise: 8 groups", "classifier: the last weight-bearing operator (1.9% of the multiply-adds)"}},
		"a classifier that is a large convolution in front of pooling": {image, "w1[8,3,3,3] w2[8,8,3,3] w3[40,8,1,1]", `
  %a: f32[*] = Conv "stem" (%x, %w1) {pads = [1, 1, 1, 1]}
  %b: f32[*] = Conv "expand" (%a, %w2) {pads = [1, 1, 1, 1]}
  %c: f32[*] = Conv "classifier" (%b, %w3)
  %y: f32[*] = GlobalAveragePool "pool" (%c)
  return %y`, []string{"stem: the first convolution (input channels: 3)"}},
		"the second of two bidirectional LSTMs": {"%x: f32[5,1,4]", "w1[2,16,4] r1[2,16,4] w2[2,16,8] r2[2,16,4]", `
  %s: i64[3] = const {0, 0, -1}
  %a: f32[*] = LSTM "layer1" (%x, %w1, %r1) {hidden_size = 4, direction = "bidirectional"}
  %t: f32[*] = Transpose "t" (%a) {perm = [0, 2, 1, 3]}
  %u: f32[*] = Reshape "u" (%t, %s)
  %y: f32[*] = LSTM "layer2" (%u, %w2, %r2) {hidden_size = 4, direction = "bidirectional"}
  return %y`, nil},
		"a tagger behind an LSTM of open length": {"%x: f32[n,b,4]", "w1[1,32,4] r1[1,32,8] w2[8,3]", `
  %axis: i64[1] = const {1}
  %a: f32[*] = LSTM "lstm" (%x, %w1, %r1) {hidden_size = 8}
  %s: f32[*] = Squeeze "s" (%a, %axis)
  %y: f32[*] = MatMul "tagger" (%s, %w2)
  return %y`, []string{"tagger: the last weight-bearing operator (5.9% of the multiply-adds)"}},
		"a last product of few columns where images are of open size": {"%x: f32[n,3,h,w]", "w1[4,3,3,3] w2[6,4,1,1] w3[40,6]", `
  %a: f32[*] = Conv "stem" (%x, %w1)
  %b: f32[*] = Conv "body" (%a, %w2)
  %p: f32[*] = GlobalAveragePool "pool" (%b)
  %f: f32[*] = Flatten "flat" (%p)
  %y: f32[*] = Gemm "classifier" (%f, %w3) {transB = 1}
  return %y`, []string{"stem: the first convolution (input channels: 3)", "classifier: the last weight-bearing operator (1.1% of the multiply-adds)"}},
		"convolutions over the embeddings of words": {"%x: i64[1,9]", "e[50,6] w1[8,1,3,6] w2[2,8]", `
  %one: i64[1] = const {1}
  %v: f32[*] = Gather "embedding" (%e, %x)
  %i: f32[*] = Unsqueeze "u" (%v, %one)
  %a: f32[*] = Conv "words" (%i, %w1)
  %p: f32[*] = GlobalMaxPool "pool" (%a)
  %f: f32[*] = Flatten "flat" (%p)
  %y: f32[*] = Gemm "classifier" (%f, %w2) {transB = 1}
  return %y`, []string{"classifier: the last weight-bearing operator (1.6% of the multiply-adds)"}},
		"a first convolution of many channels": {"%x: f32[1,12,4,4]", "w1[8,12,1,1] w2[8,8,1,1]", `
  %a: f32[*] = Conv "stem" (%x, %w1)
  %y: f32[*] = Conv "body" (%a, %w2)
  return %y`, nil},
		"a first convolution behind a transpose and a normalisation": {"%x: f32[1,8,8,4], %mean: f32[4]", "w1[8,4,1,1] w2[8,8,1,1]", `
  %c: f32[*] = Sub "centre" (%x, %mean)
  %i: f32[*] = Transpose "t" (%c) {perm = [0, 3, 1, 2]}
  %a: f32[*] = Conv "stem" (%i, %w1)
  %y: f32[*] = Conv "body" (%a, %w2)
  return %y`, []string{"stem: the first convolution (input channels: 4)"}},
		"convolutions of few channels behind others": {image, "w1[4,3,1,1] w2[8,4,3,3] w3[2,8,1,1] w4[8,2,1,1]", `
  %a: f32[*] = Conv "stem" (%x, %w1)
  %b: f32[*] = Conv "c2" (%a, %w2)
  %c: f32[*] = Conv "c3" (%b, %w3)
  %y: f32[*] = Conv "c4" (%c, %w4)
  return %y`, []string{"stem: the first convolution (input channels: 3)", "c4: the last weight-bearing operator (5.0% of the multiply-adds)"}},
		"one for each of two inputs": {image + ", %z: f32[1,1,8,8]", "w1[4,3,1,1] w2[4,1,1,1] w3[8,8,1,1]", `
  %a: f32[*] = Conv "image" (%x, %w1)
  %b: f32[*] = Conv "depth" (%z, %w2)
  %c: f32[*] = Concat "join" (%a, %b) {axis = 1}
  %y: f32[*] = Conv "body" (%c, %w3)
  return %y`, []string{"image: the first convolution (input channels: 3)", "depth: the first convolution (input channels: 1)"}},
		"a twin that shares its weights": {image + ", %z: f32[1,3,8,8]", "w1[8,3,1,1] w2[8,8,1,1] w3[8,512]", `
  %a: f32[*] = Conv "stem1" (%x, %w1)
  %b: f32[*] = Conv "stem2" (%z, %w1)
  %c: f32[*] = Conv "body1" (%a, %w2)
  %d: f32[*] = Conv "body2" (%b, %w2)
  %e: f32[*] = Sub "difference" (%c, %d)
  %f: f32[*] = Flatten "flat" (%e)
  %y: f32[*] = Gemm "score" (%f, %w3) {transB = 1}
  return %y`, []string{"stem1: the first convolution (input channels: 3)"}},
		"heads that are small together": {image, "w1[8,3,1,1] w2[32,8,1,1] w3[1,32,1,1] w4[1,8,1,1]", `
  %a: f32[*] = Conv "stem" (%x, %w1)
  %b: f32[*] = Conv "body" (%a, %w2)
  %y: f32[*] = Conv "classes" (%b, %w3) {strides = [2, 2]}
  %z: f32[*] = Conv "boxes" (%a, %w4)
  return %y, %z`, []string{"stem: the first convolution (input channels: 3)", "classes: one of the last 2 weight-bearing operators (together 5.9% of the multiply-adds)", "boxes: one of the last 2 weight-bearing operators (together 5.9% of the multiply-adds)"}},
		"heads that are not": {image, "w1[8,3,1,1] w2[32,8,1,1] w3[1,32,1,1] w4[1,8,1,1]", `
  %a: f32[*] = Conv "stem" (%x, %w1)
  %b: f32[*] = Conv "body" (%a, %w2)
  %y: f32[*] = Conv "classes" (%b, %w3)
  %z: f32[*] = Conv "boxes" (%a, %w4)
  return %y, %z`, []string{"stem: the first convolution (input channels: 3)"}},
		"a head tied to the embedding": {"%i: i64[5]", "e[6,8] w1[8,8] w2[8,8]", `
  %x: f32[*] = Gather "embed" (%e, %i)
  %a: f32[*] = MatMul "m1" (%x, %w1)
  %b: f32[*] = MatMul "m2" (%a, %w2)
  %y: f32[*] = Gemm "head" (%b, %e) {transB = 1}
  return %y`, []string{"head: read by other operators too"}},
		"a weight of the last node that an earlier one reads counts as often": {"%x: f32[2,8]", "w1[8,32] w2[32,8] w3[8,4] w4[4,8]", `
  %p: f32[*] = MatMul "shared1" (%x, %w3)
  %q: f32[*] = MatMul "m1" (%p, %w4)
  %a: f32[*] = MatMul "m2" (%q, %w1)
  %b: f32[*] = MatMul "m3" (%a, %w2)
  %y: f32[*] = MatMul "shared2" (%b, %w3)
  return %y`, nil},
		"ends in the body of a loop": {"%x: f32[1,3,4,4], %m: i64[]", "w1[8,3,1,1] w2[3,8,1,1]", `
  %k: bool[] = const {1}
  %y: f32[*] = Loop "loop" (%m, %k, %x) {body = graph "b"(%i: i64[], %c: bool[], %s: f32[1,3,4,4]) {
    %a: f32[*] = Conv "stem" (%s, %w1)
    %n: f32[*] = Conv "end" (%a, %w2)
    return %c, %n
  }}
  return %y`, []string{"stem: the first convolution (input channels: 3)"}},
		"what comes before and after a branch": {image + ", %k: bool[]", "w1[8,3,1,1] w2[8,8,1,1] w3[1,8,1,1] w4[3,3,1,1]", `
  %a: f32[*] = Conv "stem" (%x, %w1)
  %b: f32[*] = If "if" (%k) {then_branch = graph "t"() {
    %c: f32[*] = Conv "body" (%a, %w2)
    return %c
  }, else_branch = graph "e"() {
    return %a
  }}
  %y: f32[*] = Conv "end" (%b, %w3) {strides = [2, 2]}
  return %y`, []string{"stem: the first convolution (input channels: 3)", "end: the last weight-bearing operator (3.0% of the multiply-adds)"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := network(t, 1, c.inputs, c.weights, c.body)
			o := options(t, "uniform", 0.5)
			o.KeepEnds = false
			p, err := prune.NewPlan(g, o)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, l := range p.Layers {
				if l.Why != "" {
					have = append(have, fmt.Sprintf("%s: %s", l.Node, l.Why))
				}
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("what stays is\n%q, want\n%q", have, c.want)
			}
		})
	}
}

// What the user keeps does not make the last layer a larger part.
func TestKeptLayersCountAsPrunable(t *testing.T) {
	g := network(t, 1, "%x: f32[2,8]", "w1[8,64] w2[64,8] w3[8,4]", threeProducts)
	o := options(t, "uniform", 0.5)
	o.KeepEnds, o.Keep = false, []prune.Glob{glob(t, "m1")}
	r, err := prune.Graph(g, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"m1 w1: kept by m1", "m2 w2", "last w3: the last weight-bearing operator"}; !slices.Equal(verdicts(r), want) {
		t.Errorf("have %q, want %q", verdicts(r), want)
	}
}
