package fuse_test

import (
	"fmt"
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/fold"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

// attending is the text of a graph whose body makes q [B,2,S,3], kt [B,2,3,T] and v
// [B,2,T,3] of its inputs, attention of them after that, and the result %y.
func attending(body, middle, end string) string {
	return fmt.Sprintf(`graph "g"(%%a: f32[batch,seq,6], %%b: f32[batch,keys,6], %%c: f32[batch,keys,6], %%mask: f32[batch,1,1,keys], %%full: f32[seq,keys]) {
  %%split: i64[4] = const {0, 0, 2, 3}
  %%join: i64[3] = const {0, 0, 6}
  %%two: f32[] = const {2.0}
  %%half: f32[1] = const {0.5}
  %s
  %s
  %s
  return %%y }`, body, middle, end)
}

const (
	headSplit = `
  %q0: f32[*] = Reshape "q0" (%a, %split)
  %q: f32[*] = Transpose "q" (%q0) {perm = [0, 2, 1, 3]}
  %k0: f32[*] = Reshape "k0" (%b, %split)
  %kt: f32[*] = Transpose "k" (%k0) {perm = [0, 2, 3, 1]}
  %v0: f32[*] = Reshape "v0" (%c, %split)
  %v: f32[*] = Transpose "v" (%v0) {perm = [0, 2, 1, 3]}`
	headJoin = `
  %o: f32[*] = MatMul "o" (%p, %v)
  %t: f32[*] = Transpose "t" (%o) {perm = [0, 2, 1, 3]}
  %y: f32[*] = Reshape "y" (%t, %join)`
	signature = `graph "g"(%a: f32[batch,seq,6], %b: f32[batch,keys,6], %c: f32[batch,keys,6], %mask: f32[batch,1,1,keys], %full: f32[seq,keys]) {`
)

func TestAttention(t *testing.T) {
	for name, c := range map[string]struct{ middle, inputs, attrs string }{
		"plain": {`
  %s: f32[*] = MatMul "s" (%q, %kt)
  %p: f32[*] = Softmax "p" (%s)`, "%a, %b, %c", "scale = 1.0"},
		"divided, masked by key": {`
  %m: f32[*] = MatMul "m" (%q, %kt)
  %s: f32[*] = Div "s" (%m, %two)
  %d: f32[*] = Add "d" (%s, %mask)
  %p: f32[*] = Softmax "p" (%d) {axis = 3}`, "%a, %b, %c, %mask", "scale = 0.5"},
		"both sides scaled, masked on the left": {`
  %q1: f32[*] = Mul "q1" (%q, %half)
  %k1: f32[*] = Mul "k1" (%half, %kt)
  %m: f32[*] = MatMul "m" (%q1, %k1)
  %d: f32[*] = Add "d" (%full, %m)
  %p: f32[*] = Softmax "p" (%d) {axis = 3, coerce_2d = 1}`, "%a, %b, %c, %full", "scale = 0.25"},
	} {
		t.Run(name, func(t *testing.T) {
			graphtest.Rewrite(t, fuse.Attentions, attending(headSplit, c.middle, headJoin), signature+`
  %o.fused.out: f32[batch,seq,6] = Attention "o.fused" (`+c.inputs+`) {q_num_heads = 2, kv_num_heads = 2, `+c.attrs+`}
  return %o.fused.out as "y"
}`)
		})
	}
}

// Other forms keep their results, and no products are left.
func TestAttentionForms(t *testing.T) {
	softmax := `
  %s: f32[*] = MatMul "s" (%q, %kt)
  %p: f32[*] = Softmax "p" (%s)`
	for name, c := range map[string]struct {
		text, attrs string
		transposes  int
	}{
		"key heads are repeated": {`graph "g"(%a: f32[batch,5,12], %b: f32[batch,5,6], %c: f32[batch,5,6]) {
  %four: i64[4] = const {0, 0, 4, 3}
  %split: i64[4] = const {0, 0, 2, 3}
  %wide: i64[5] = const {1, 1, 2, 1, 1}
  %flat: i64[4] = const {-1, 4, 5, 3}
  %axis: i64[1] = const {2}
  %q0: f32[*] = Reshape "q0" (%a, %four)
  %q: f32[*] = Transpose "q" (%q0) {perm = [0, 2, 1, 3]}
  %k0: f32[*] = Reshape "k0" (%b, %split)
  %k1: f32[*] = Transpose "k1" (%k0) {perm = [0, 2, 1, 3]}
  %k2: f32[*] = Unsqueeze "k2" (%k1, %axis)
  %k3: f32[*] = Expand "k3" (%k2, %wide)
  %k4: f32[*] = Reshape "k4" (%k3, %flat)
  %kt: f32[*] = Transpose "k" (%k4) {perm = [0, 1, 3, 2]}
  %v0: f32[*] = Reshape "v0" (%c, %split)
  %v1: f32[*] = Transpose "v1" (%v0) {perm = [0, 2, 1, 3]}
  %v2: f32[*] = Unsqueeze "v2" (%v1, %axis)
  %v3: f32[*] = Expand "v3" (%v2, %wide)
  %v: f32[*] = Reshape "v4" (%v3, %flat)` + softmax + `
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "q_num_heads = 4, kv_num_heads = 2", 1},
		"parts of one product": {`graph "g"(%a: f32[batch,7,18]) {
  %split: i64[5] = const {0, 7, 3, 2, 3}
  %join: i64[3] = const {0, 7, 6}
  %0: i64[] = const {0}
  %1: i64[] = const {1}
  %2: i64[] = const {2}
  %x: f32[*] = Reshape "x" (%a, %split)
  %qkv: f32[*] = Transpose "qkv" (%x) {perm = [2, 0, 3, 1, 4]}
  %q: f32[*] = Gather "q" (%qkv, %0) {axis = 0}
  %k: f32[*] = Gather "k" (%qkv, %1) {axis = 0}
  %v: f32[*] = Gather "v" (%qkv, %2) {axis = 0}
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}` + softmax + `
  %o: f32[*] = MatMul "o" (%p, %v)
  %t: f32[*] = Transpose "t" (%o) {perm = [0, 2, 1, 3]}
  %y: f32[*] = Reshape "y" (%t, %join)
  return %y }`, "(%a, %a, %a) {q_num_heads = 2, kv_num_heads = 2, scale = 1.0, spc_packed = 1}", 0},
		"parts split off and squeezed, in another order": {`graph "g"(%a: f32[batch,7,18]) {
  %split: i64[5] = const {0, 7, 3, 2, 3}
  %0: i64[1] = const {0}
  %x: f32[*] = Reshape "x" (%a, %split)
  %all: f32[*] = Transpose "all" (%x) {perm = [2, 0, 3, 1, 4]}
  %k0: f32[*], %q0: f32[*], %v0: f32[*] = Split "s3" (%all) {axis = 0, num_outputs = 3}
  %q: f32[*] = Squeeze "q" (%q0, %0)
  %k: f32[*] = Squeeze "k" (%k0, %0)
  %v: f32[*] = Squeeze "v" (%v0, %0)
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}` + softmax + `
  %o: f32[*] = MatMul "o" (%p, %v)
  %y: f32[*] = Transpose "t" (%o) {perm = [0, 2, 1, 3]}
  return %y }`, "{q_num_heads = 2, kv_num_heads = 2, scale = 1.0}", 0},
		"heads first, keys as they are multiplied": {`graph "g"(%q: f32[batch,2,seq,3], %kt: f32[batch,2,3,keys], %v: f32[batch,2,keys,5]) {` + softmax + `
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "{scale = 1.0}", 1},
		"without heads": {`graph "g"(%q: f32[batch,seq,3], %k: f32[batch,keys,3], %v: f32[batch,keys,5], %mask: f32[batch,seq,keys]) {
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 2, 1]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %d: f32[*] = Add "d" (%s, %mask)
  %p: f32[*] = Softmax "p" (%d)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "{q_num_heads = 1, kv_num_heads = 1, scale = 1.0}", 0},
		"causal": {`graph "g"(%q: f32[batch,2,3,4], %k: f32[batch,2,3,4], %v: f32[batch,2,3,4]) {
  %m: f32[1,3,3] = const {0.0, -inf, -1e9, 0.0, 0.0, -inf, 0.0, 0.0, 0.0}
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %d: f32[*] = Add "d" (%s, %m)
  %p: f32[*] = Softmax "p" (%d)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "(%q, %k, %v) {is_causal = 1, scale = 1.0}", 0},
		"a mask that hides less is none of order": {`graph "g"(%q: f32[batch,2,3,4], %k: f32[batch,2,3,4], %v: f32[batch,2,3,4]) {
  %m: f32[3,3] = const {0.0, -inf, -5.0, 0.0, 0.0, -inf, 0.0, 0.0, 0.0}
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %d: f32[*] = Add "d" (%s, %m)
  %p: f32[*] = Softmax "p" (%d)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "(%q, %k, %v, %m) {scale = 1.0}", 0},
		"a factor of each head and a bias": {`graph "g"(%q: f32[batch,2,3,4], %k: f32[batch,2,3,4], %v: f32[batch,2,3,4], %f: f32[2,1,1], %m: f32[1,2,3,3]) {
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %c: f32[*] = Mul "c" (%s, %f)
  %d: f32[*] = Add "d" (%c, %m)
  %p: f32[*] = Softmax "p" (%d)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "(%y.rows.out, %k, %v, %m) {scale = 1.0}", 0},
		"two masks": {`graph "g"(%q: f32[batch,2,3,4], %k: f32[batch,2,3,4], %v: f32[batch,2,3,4], %m: f32[1,2,3,3], %l: f32[batch,1,1,3]) {
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %c: f32[*] = Add "c" (%m, %s)
  %d: f32[*] = Add "d" (%c, %l)
  %p: f32[*] = Softmax "p" (%d)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "(%q, %k, %v, %y.masks.out) {scale = 1.0}", 0},
		"windows with tokens by heads and a bias": {`graph "g"(%x: f32[2,3,7,12], %b: f32[2,7,7]) {
  %split: i64[5] = const {2, 3, 7, 2, 2}
  %join: i64[4] = const {2, 3, 7, 4}
  %q0: f32[2,3,7,4], %k0: f32[2,3,7,4], %v0: f32[2,3,7,4] = Split "parts" (%x) {axis = 3, num_outputs = 3}
  %q1: f32[*] = Reshape "q1" (%q0, %split)
  %q: f32[*] = Transpose "q" (%q1) {perm = [0, 1, 3, 2, 4]}
  %k1: f32[*] = Reshape "k1" (%k0, %split)
  %kt: f32[*] = Transpose "kt" (%k1) {perm = [0, 1, 3, 4, 2]}
  %v1: f32[*] = Reshape "v1" (%v0, %split)
  %v: f32[*] = Transpose "v" (%v1) {perm = [0, 1, 3, 2, 4]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %d: f32[*] = Add "d" (%s, %b)
  %p: f32[*] = Softmax "p" (%d)
  %o: f32[*] = MatMul "o" (%p, %v)
  %t: f32[*] = Transpose "t" (%o) {perm = [0, 1, 3, 2, 4]}
  %y: f32[*] = Reshape "y" (%t, %join)
  return %y }`, "{q_num_heads = 2, kv_num_heads = 2, scale = 1.0}", 0},
		"windows with heads first and a bias": {`graph "g"(%q: f32[2,3,2,5,4], %k: f32[2,3,2,6,4], %v: f32[2,3,2,6,4], %b: f32[1,2,5,6]) {
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 2, 4, 3]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %d: f32[*] = Add "d" (%s, %b)
  %p: f32[*] = Softmax "p" (%d)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, ") {scale = 1.0}", 0},
		"windows between reshapes for a mask": {`graph "g"(%q: f32[6,2,5,4], %k: f32[6,2,5,4], %v: f32[6,2,5,4], %b: f32[1,2,5,5], %m: f32[1,6,1,5,5]) {
  %wide: i64[5] = const {1, 6, 2, 5, 5}
  %back: i64[4] = const {-1, 2, 5, 5}
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %c: f32[*] = Add "c" (%s, %b)
  %c1: f32[*] = Reshape "c1" (%c, %wide)
  %d: f32[*] = Add "d" (%c1, %m)
  %d1: f32[*] = Reshape "d1" (%d, %back)
  %p: f32[*] = Softmax "p" (%d1)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "(%q, %k, %v, %y.masks.out) {scale = 1.0}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, c.text)
			old := g.Clone()
			if _, err := fuse.Identities(g); err != nil { // which comes before it
				t.Fatal(err)
			}
			if n, err := fuse.Attentions(g); n != 1 || err != nil {
				t.Fatalf("%d changes, %v in\n%s", n, err, g)
			}
			fold.Dead(g)
			if err := g.Verify(); err != nil {
				t.Fatalf("%v in\n%s", err, g)
			}
			text := ir.Print(g)
			if strings.Contains(text, "MatMul") || strings.Count(text, " = Transpose") != c.transposes || !strings.Contains(text, c.attrs) {
				t.Errorf("want %d transposes and Attention with %s in\n%s", c.transposes, c.attrs, text)
			}
			graphtest.Same(t, old, g, 1e-5)
		})
	}
}

// What only looks like attention stays.
func TestNoAttention(t *testing.T) {
	for name, middle := range map[string]string{
		"the scores are read elsewhere": `
  %s: f32[*] = MatMul "s" (%q, %kt)
  %p: f32[*] = Softmax "p" (%s)
  %y2: f32[*] = Relu "y2" (%s)`,
		"another axis": `
  %s: f32[*] = MatMul "s" (%q, %kt)
  %p: f32[*] = Softmax "p" (%s) {axis = 2}`,
		"the mask is scaled too": `
  %s: f32[*] = MatMul "s" (%q, %kt)
  %d: f32[*] = Add "d" (%s, %mask)
  %e: f32[*] = Mul "e" (%d, %two)
  %p: f32[*] = Softmax "p" (%e)`,
		"factors of keys": `
  %s: f32[*] = MatMul "s" (%q, %kt)
  %e: f32[*] = Mul "e" (%s, %mask)
  %p: f32[*] = Softmax "p" (%e)`,
		"a mask before factors": `
  %f: f32[2,1,1] = const {1.0, 2.0}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %d: f32[*] = Add "d" (%s, %mask)
  %e: f32[*] = Mul "e" (%d, %f)
  %p: f32[*] = Softmax "p" (%e)`,
		"a negative scale": `
  %minus: f32[] = const {-1.0}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %e: f32[*] = Mul "e" (%s, %minus)
  %p: f32[*] = Softmax "p" (%e)`,
		"a mask of one key is repeated": `
  %one: f32[1,1] = const {3.0}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %e: f32[*] = Add "e" (%s, %one)
  %p: f32[*] = Softmax "p" (%e)`,
	} {
		t.Run(name, func(t *testing.T) {
			text := attending(headSplit, middle, headJoin)
			if strings.Contains(middle, "%y2") {
				text = strings.Replace(text, "return %y", "return %y, %y2", 1)
			}
			graphtest.Rewrite(t, fuse.Attentions, text, "")
		})
	}
}

// Weights of products that look like those of attention stay weights.
func TestNoAttentionOfWeights(t *testing.T) {
	for name, text := range map[string]string{
		"of keys": `graph "g"(%a: f32[1,1,seq,3], %v: f32[1,1,2,4]) {
  %w: f32[1,1,3,2] = const {1.0, -2.0, 0.5, 3.0, 0.25, -1.0}
  %s: f32[*] = MatMul "s" (%a, %w)
  %p: f32[*] = Softmax "p" (%s)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`,
		"of values": `graph "g"(%a: f32[1,1,seq,3], %b: f32[1,1,3,2]) {
  %w: f32[1,1,2,3] = const {1.0, -2.0, 0.5, 3.0, 0.25, -1.0}
  %s: f32[*] = MatMul "s" (%a, %b)
  %p: f32[*] = Softmax "p" (%s)
  %y: f32[*] = MatMul "y" (%p, %w)
  return %y }`,
	} {
		t.Run(name, func(t *testing.T) { graphtest.Rewrite(t, fuse.Attentions, text, "") })
	}
}

// A constant behind a value need not be an index.
func TestAttentionOfScaledValues(t *testing.T) {
	g := graphtest.Parse(t, attending(headSplit, `
  %s: f32[*] = MatMul "s" (%q, %kt)
  %p: f32[*] = Softmax "p" (%s)
  %scaled: f32[*] = Mul "scaled" (%v, %half)`, strings.ReplaceAll(headJoin, "(%p, %v)", "(%p, %scaled)")))
	h := g.Clone()
	if n, err := fuse.Attentions(h); n != 1 || err != nil {
		t.Fatalf("%d changes, %v", n, err)
	}
	graphtest.Same(t, g, h, 1e-5)
}

// An Attention of the pieces of some features reads these.
func TestAttentionOfPieces(t *testing.T) {
	const text = `graph "g"(%%a: f32[batch,seq,%[1]d], %%mask: f32[seq,seq]) {
  %%sizes: i64[3] = const {%[2]s}
  %%q: f32[*], %%k: f32[*], %%v: f32[*] = Split "split" (%%a, %%sizes) {axis = -1}
  %%y: f32[*] = Attention "y" (%[3]s, %%mask) {q_num_heads = %[4]d, kv_num_heads = 2, is_causal = 1}
  return %%y }`
	for _, c := range []struct {
		name, sizes, inputs string
		all, heads          int
		packed              bool
	}{
		{"of one size", "6, 6, 6", "%q, %k, %v", 18, 2, true},
		{"key heads are shared", "12, 6, 6", "%q, %k, %v", 24, 4, true},
		{"in another order", "6, 6, 6", "%k, %q, %v", 18, 2, false},
		{"wider values", "6, 6, 8", "%q, %k, %v", 20, 2, false},
		{"two are the same", "6, 6, 6", "%q, %k, %k", 18, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graphtest.Parse(t, fmt.Sprintf(text, c.all, c.sizes, c.inputs, c.heads))
			old := g.Clone()
			n, err := fuse.Attentions(g)
			if err != nil || n > 1 || (n == 1) != c.packed {
				t.Fatalf("%d changes, %v", n, err)
			}
			fold.Dead(g)
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
			if has := !strings.Contains(ir.Print(g), "Split"); has != c.packed {
				t.Errorf("the features are read: %v, want %v, in\n%s", has, c.packed, g)
			}
			graphtest.Same(t, old, g, 1e-5)
		})
	}
}
