package prune_test

import (
	"slices"
	"strings"
	"testing"

	"spc/passes/prune"
)

// A branch is what one summand is computed from the other by, whatever its form; what others read stays.
func TestBranches(t *testing.T) {
	const down = `
  %a: f32[2,4,6,6] = Conv "stem" (%x, %w0) {pads = [1, 1, 1, 1]}
  %b: f32[2,4,6,6] = Conv "one" (%a, %w1) {pads = [1, 1, 1, 1]}
  %c: f32[2,4,6,6] = Relu "relu" (%b)
  %d: f32[2,4,6,6] = Conv "two" (%c, %w2) {pads = [1, 1, 1, 1]}
  %e: f32[2,4,6,6] = Add "sum" (%d, %a)
  %f: f32[2,8,3,3] = Conv "three" (%e, %w3) {pads = [1, 1, 1, 1], strides = [2, 2]}
  %g: f32[2,8,3,3] = Conv "project" (%e, %w4) {strides = [2, 2]}
  %h: f32[2,8,3,3] = Add "joint" (%f, %g)
  %y: f32[2,8,3,3] = Conv "last" (%h, %w5)
  return %y`
	const downShapes = "w0[4,3,3,3] w1[4,4,3,3] w2[4,4,3,3] w3[8,4,3,3] w4[8,4,1,1] w5[8,8,1,1]"
	const block = `
  %a: f32[2,5,8] = MatMul "embed" (%x, %w0)
  %n: f32[2,5,8] = LayerNormalization "norm" (%a, %s, %s)
  %q: f32[2,5,8] = MatMul "query" (%n, %w1)
  %k: f32[2,5,8] = MatMul "key" (%n, %w2)
  %kt: f32[2,8,5] = Transpose "turn" (%k) {perm = [0, 2, 1]}
  %p: f32[2,5,5] = MatMul "scores" (%q, %kt)
  %z: f32[2,5,5] = Softmax "softmax" (%p)
  %v: f32[2,5,8] = MatMul "value" (%n, %w3)
  %o: f32[2,5,8] = MatMul "attend" (%z, %v)
  %r: f32[2,5,8] = MatMul "out" (%o, %w4)
  %b: f32[2,5,8] = Add "first" (%a, %r)
  %m: f32[2,5,8] = LayerNormalization "again" (%b, %s, %s)
  %u: f32[2,5,16] = MatMul "up" (%m, %w5)
  %g: f32[2,5,16] = Relu "gate" (%u)
  %d: f32[2,5,8] = MatMul "down" (%g, %w6)
  %c: f32[2,5,8] = Add "second" (%b, %d)
  %y: f32[2,5,3] = MatMul "last" (%c, %w7)
  return %y`
	const blockShapes = "w0[8,8] w1[8,8] w2[8,8] w3[8,8] w4[8,8] w5[8,16] w6[16,8] w7[8,3] s[8]"
	const image, tokens = "%x: f32[2,3,6,6]", "%x: f32[2,5,8]"
	for name, c := range map[string]struct {
		inputs, shapes, body string
		keep                 []string
		want                 []string // sum: axis, layers
		why                  string   // of an error, or of a layer as "node: why"
	}{
		"of convolutions, and a projection stays":  {image, downShapes, down, nil, []string{"sum: 1 one two"}, "project: its branch stays: neither summand"},
		"of attention and of what follows are two": {tokens, blockShapes, block, nil, []string{"first: 2 query key value out", "second: 2 up down"}, "embed: it is in no residual branch"},
		"with a layer that is kept stay":           {tokens, blockShapes, block, []string{"key"}, []string{"second: 2 up down"}, "query: its branch stays: key (MatMul) stays, kept by key"},
		"one of which is an output stays":          {tokens, blockShapes, strings.Replace(block, "return %y", "return %y, %d", 1), nil, []string{"first: 2 query key value out"}, "up: its branch stays: d is read by others"},
		"inside of which others read stay":         {image, downShapes, strings.Replace(down, "(%e, %w4) {strides", "(%c, %w4) {strides", 1), nil, nil, "sum (Add): what one (Conv) gives is read outside of the branch, too"},
		"of two projections are none": {image, "w1[4,3,3,3] w2[4,3,3,3]", `
  %a: f32[2,4,6,6] = Conv "one" (%x, %w1) {pads = [1, 1, 1, 1]}
  %b: f32[2,4,6,6] = Conv "two" (%x, %w2) {pads = [1, 1, 1, 1]}
  %y: f32[2,4,6,6] = Add "sum" (%a, %b)
  return %y`, nil, nil, "no residual branch of the model can be removed, want another pattern (sum (Add): neither summand is computed from the other)"},
		"that broadcast are none": {tokens, "w1[8,1]", `
  %a: f32[2,5,1] = MatMul "one" (%x, %w1)
  %y: f32[2,5,8] = Add "sum" (%a, %x)
  return %y`, nil, nil, "it has no sum of two values of one shape"},
		"without weights are none": {tokens, "w1[8,8]", `
  %a: f32[2,5,8] = MatMul "one" (%x, %w1)
  %b: f32[2,5,8] = Relu "relu" (%a)
  %y: f32[2,5,8] = Add "sum" (%a, %b)
  return %y`, nil, nil, "it has no sum of two values of one shape"},
		"inside of others go by themselves, too": {tokens, "w1[8,8] w2[8,8] w3[8,8]", `
  %a: f32[2,5,8] = MatMul "one" (%x, %w1)
  %b: f32[2,5,8] = MatMul "two" (%a, %w2)
  %c: f32[2,5,8] = Add "inner" (%a, %b)
  %d: f32[2,5,8] = MatMul "three" (%c, %w3)
  %y: f32[2,5,8] = Add "outer" (%d, %x)
  return %y`, nil, []string{"inner: 2 two", "outer: 2 one two three"}, ""},
		"of a model that is quantised are found": {tokens, "w1[8,8] w2[8,3]", `
  %s: f32[] = const {0.1}
  %q: u8[2,5,8] = QuantizeLinear "q" (%x, %s)
  %f: f32[2,5,8] = DequantizeLinear "f" (%q, %s)
  %g: f32[2,5,8] = DequantizeLinear "g" (%q, %s)
  %a: f32[2,5,8] = MatMul "one" (%f, %w1)
  %b: f32[2,5,8] = Add "sum" (%g, %a)
  %y: f32[2,5,3] = MatMul "last" (%b, %w2)
  return %y`, nil, []string{"sum: 2 one"}, "last: it is in no residual branch"},
		"whose weights others read go without them": {tokens, "w1[8,8] w2[8,8]", `
  %a: f32[2,5,8] = MatMul "one" (%x, %w1)
  %b: f32[2,5,8] = MatMul "two" (%a, %w2)
  %c: f32[2,5,8] = Add "sum" (%b, %x)
  %y: f32[2,5,8] = MatMul "shared" (%c, %w1)
  return %y`, nil, []string{"sum: 2 two"}, "one: it is in no residual branch"},
	} {
		t.Run(name, func(t *testing.T) {
			g := network(t, 1, c.inputs, c.shapes, c.body)
			o := options(t, "depth", 0.5)
			o.KeepEnds, o.KeepNone = false, true
			for _, k := range c.keep {
				o.Keep = append(o.Keep, glob(t, k))
			}
			p, err := prune.NewPlan(g, o)
			if err != nil {
				t.Fatal(err)
			}
			branches, err := p.Branches()
			if c.want == nil {
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Fatalf("%v, want %s", err, c.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, b := range branches {
				text := b.Sum.Name + ": " + string(rune('0'+b.Axis))
				for _, i := range b.Layers {
					text += " " + p.Use(i).Node.Name
				}
				have = append(have, text)
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("%q, want %q", have, c.want)
			}
			if node, why, ok := strings.Cut(c.why, ": "); ok {
				i := slices.IndexFunc(p.Layers, func(l prune.GraphLayer) bool { return l.Node == node })
				if !strings.HasPrefix(p.Layers[i].Why, why) || p.Layers[i].Prunable {
					t.Errorf("%s: %q, want %q", node, p.Layers[i].Why, why)
				}
			}
		})
	}
}

func TestDepthWithoutSamplesIsAnError(t *testing.T) {
	g := network(t, 1, "%x: f32[2,8]", "w1[8,8] w2[8,8]", `
  %a: f32[2,8] = MatMul "one" (%x, %w1)
  %y: f32[2,8] = MatMul "two" (%a, %w2)
  return %y`)
	if _, err := prune.Graph(g, options(t, "depth", 0.5)); err == nil || !strings.Contains(err.Error(), "depth needs calibration samples") {
		t.Errorf("error %v", err)
	}
	for _, layer := range []string{"one=0.5", "one=0.5,depth"} {
		if _, err := prune.NewPlan(g, options(t, "depth", 0.5, layer)); err == nil || !strings.Contains(err.Error(), "removes branches as a whole") {
			t.Errorf("%s: error %v", layer, err)
		}
	}
}
