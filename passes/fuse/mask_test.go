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

// masked is the text of a graph that attends over a past and new tokens; body makes %d of the scaled
// scores %s [batch,2,seq,(past+seq)]. It has the sizes and positions that exporters compute.
func masked(body string) string {
	return fmt.Sprintf(`graph "g"(%%q: f32[batch,2,seq,4], %%k0: f32[batch,2,seq,4], %%v0: f32[batch,2,seq,4], %%pk: f32[batch,2,past,4], %%pv: f32[batch,2,past,4], %%pad: i64[batch,(past+seq)], %%see: bool[batch,1,seq,(past+seq)], %%bias: f32[2,seq,(past+seq)]) {
  %%0: i64[] = const {0}
  %%1: i64[] = const {1}
  %%2: i64[] = const {2}
  %%axis0: i64[1] = const {0}
  %%axis1: i64[1] = const {1}
  %%axis2: i64[1] = const {2}
  %%axis3: i64[1] = const {3}
  %%axes: i64[2] = const {0, 1}
  %%column: i64[2] = const {-1, 1}
  %%half: f32[] = const {0.5}
  %%fzero: f32[] = const {0.0}
  %%fone: f32[] = const {1.0}
  %%min: f32[] = const {-3.4028235e+38}
  %%inf: f32[] = const {-inf}
  %%k: f32[*] = Concat "present_key" (%%pk, %%k0) {axis = 2}
  %%v: f32[*] = Concat "present_value" (%%pv, %%v0) {axis = 2}
  %%kt: f32[*] = Transpose "kt" (%%k) {perm = [0, 1, 3, 2]}
  %%qk: f32[*] = MatMul "qk" (%%q, %%kt)
  %%s: f32[*] = Mul "s" (%%qk, %%half)
  %%qs: i64[*] = Shape "qs" (%%q)
  %%S: i64[*] = Gather "S" (%%qs, %%2)
  %%ks: i64[*] = Shape "ks" (%%k)
  %%T: i64[*] = Gather "T" (%%ks, %%2)
  %%P: i64[*] = Sub "P" (%%T, %%S)
  %%S1: i64[*] = Unsqueeze "S1" (%%S, %%axis0)
  %%T1: i64[*] = Unsqueeze "T1" (%%T, %%axis0)
  %%P1: i64[*] = Unsqueeze "P1" (%%P, %%axis0)
  %%rows: i64[*] = Range "rows" (%%0, %%S, %%1)
  %%keys: i64[*] = Range "keys" (%%0, %%T, %%1)
  %%places: i64[*] = Range "places" (%%P, %%T, %%1)
  %%row: i64[*] = Reshape "row" (%%rows, %%column)
  %%place: i64[*] = Reshape "place" (%%places, %%column)
  %%size: i64[*] = Concat "size" (%%S1, %%T1) {axis = 0}
  %s
  %%y: f32[*] = MatMul "y" (%%p, %%v)
  return %%y, %%k, %%v }`, body)
}

// Masks as exporters spell them, and what of them the operator computes.
func TestMasks(t *testing.T) {
	const softmax = `
  %p: f32[*] = Softmax "p" (%d)`
	for name, c := range map[string]struct{ body, want string }{
		// transformers' GPT-2 by TorchScript: a slice of the buffer bias, and torch.where.
		"a slice of a lower triangle": {`
  %tril: bool[1,1,12,12] = const {` + strings.Join(triangle(12), ", ") + `}
  %a: bool[*] = Slice "a" (%tril, %P1, %T1, %axis2, %axis1)
  %b: bool[*] = Slice "b" (%a, %axis0, %T1, %axis3, %axis1)
  %d: f32[*] = Where "d" (%b, %s, %min)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		// transformers 4.38 to 4.47, Llama and others: torch.triu of a full mask, times arange > cache_position.
		"a triangle times later positions": {`
  %full: f32[*] = Expand "full" (%min, %size)
  %triu: f32[*] = Trilu "triu" (%full, %1) {upper = 1}
  %later: bool[*] = Greater "later" (%keys, %place)
  %number: f32[*] = Cast "number" (%later) {to = 1}
  %m: f32[*] = Mul "m" (%triu, %number)
  %m4: f32[*] = Unsqueeze "m4" (%m, %axes)
  %d: f32[*] = Add "d" (%s, %m4)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		// The same without the triangle, as with one token at a time.
		"later positions": {`
  %full: f32[*] = Expand "full" (%min, %size)
  %later: bool[*] = Greater "later" (%keys, %place)
  %number: f32[*] = Cast "number" (%later) {to = 1}
  %m: f32[*] = Mul "m" (%full, %number)
  %m4: f32[*] = Unsqueeze "m4" (%m, %axes)
  %d: f32[*] = Add "d" (%s, %m4)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		// transformers from 4.53: a comparison of positions, zero or the least number.
		"positions up to the query's": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %b4: bool[*] = Unsqueeze "b4" (%b, %axes)
  %m: f32[*] = Where "m" (%b4, %fzero, %min)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		// The same for Mistral, Gemma and others with a sliding window.
		"a sliding window": {`
  %w: i64[] = const {2}
  %far: i64[*] = Sub "far" (%place, %w)
  %near: bool[*] = Greater "near" (%keys, %far)
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %both: bool[*] = And "both" (%near, %b)
  %m: f32[*] = Where "m" (%both, %fzero, %min)
  %d: f32[*] = Add "d" (%m, %s)` + softmax, "(%q, %k, %v) {is_causal = 1, left_window_size = 1, scale = 0.5, spc_aligned = 1}"},
		// torch's scaled_dot_product_attention by the dynamo exporter: a bool mask, which covers padding, too.
		"positions and padding": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %there: bool[*] = Cast "there" (%pad) {to = 9}
  %there4: bool[*] = Unsqueeze "there4" (%there, %column1)
  %both: bool[*] = And "both" (%b, %there4)
  %m: f32[*] = Where "m" (%both, %fzero, %inf)
  %d: f32[*] = Add "d" (%s, %m)
  %p0: f32[*] = Softmax "p0" (%d)
  %nan: bool[*] = IsNaN "nan" (%p0)
  %p: f32[*] = Where "p" (%nan, %fzero, %p0)`, "(%q, %k, %v, %there4) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		// A query that sees padding alone sees all alike where that is the least number.
		"positions and padding of the least number": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %there: bool[*] = Cast "there" (%pad) {to = 9}
  %there4: bool[*] = Unsqueeze "there4" (%there, %column1)
  %both: bool[*] = And "both" (%b, %there4)
  %m: f32[*] = Where "m" (%both, %fzero, %min)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v, %there4) {is_causal = 1, scale = 0.5, spc_aligned = 1, spc_alike = 1}"},
		"what is hidden by order and padding": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %there: bool[*] = Cast "there" (%pad) {to = 9}
  %there4: bool[*] = Unsqueeze "there4" (%there, %column1)
  %both: bool[*] = And "both" (%b, %there4)
  %d: f32[*] = Where "d" (%both, %s, %min)` + softmax, "(%q, %k, %v, %there4) {is_causal = 1, scale = 0.5, spc_aligned = 1, spc_alike = 1}"},
		// Keys that both numbers hide are lost in infinity, so that a query that sees nothing sees those alike that one does.
		"the sum of an order and padding, each of the least number": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %there: bool[*] = Cast "there" (%pad) {to = 9}
  %there4: bool[*] = Unsqueeze "there4" (%there, %column1)
  %order: f32[*] = Where "order" (%b, %fzero, %min)
  %m: f32[*] = Where "m" (%there4, %fzero, %min)
  %both: f32[*] = Add "both" (%order, %m)
  %d: f32[*] = Add "d" (%s, %both)` + softmax, "(%q, %k, %v, %both) {scale = 0.5}"},
		"a small number and padding": {`
  %less: f32[] = const {-10000.0}
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %there: bool[*] = Cast "there" (%pad) {to = 9}
  %there4: bool[*] = Unsqueeze "there4" (%there, %column1)
  %both: bool[*] = And "both" (%b, %there4)
  %m: f32[*] = Where "m" (%both, %fzero, %less)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v, %m) {scale = 0.5}"},
		"padding of the least number alone": {`
  %there: bool[*] = Cast "there" (%pad) {to = 9}
  %there4: bool[*] = Unsqueeze "there4" (%there, %column1)
  %m: f32[*] = Where "m" (%there4, %fzero, %min)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v, %m) {scale = 0.5}"},
		// transformers' BERT: 1 - mask, times the least number, which TorchScript expands.
		"padding": {`
  %there: f32[*] = Cast "there" (%pad) {to = 1}
  %there4: f32[*] = Unsqueeze "there4" (%there, %column1)
  %not: f32[*] = Sub "not" (%fone, %there4)
  %m: f32[*] = Mul "m" (%not, %min)
  %shape: i64[*] = Shape "shape" (%see)
  %wide: f32[*] = Expand "wide" (%m, %shape)
  %d: f32[*] = Add "d" (%s, %wide)` + softmax, "(%q, %k, %v, %m) {scale = 0.5}"},
		// The masked_fill of the inverted mask that older versions repeat.
		"an inverted mask": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %number: f32[*] = Cast "number" (%b) {to = 1}
  %inverted: f32[*] = Sub "inverted" (%fone, %number)
  %hidden: bool[*] = Cast "hidden" (%inverted) {to = 9}
  %m: f32[*] = Where "m" (%hidden, %min, %inverted)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		// GPT-J and GPT-NeoX hide before they scale.
		"hidden before it is scaled": {`
  %b: bool[*] = Greater "b" (%keys, %place)
  %hidden: f32[*] = Where "hidden" (%b, %inf, %s)
  %d: f32[*] = Div "d" (%hidden, %four)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.125, spc_aligned = 1}"},
		// The same order counted from the first key, as is_causal of scaled_dot_product_attention counts.
		"rows from the first key": {`
  %ones: bool[*] = ConstantOfShape "ones" (%size) {value = tensor bool[1] {1}}
  %b: bool[*] = Trilu "b" (%ones) {upper = 0}
  %d: f32[*] = Where "d" (%b, %s, %inf)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.5}"},
		"any mask of bools": {`
  %d: f32[*] = Where "d" (%see, %s, %inf)
  %p0: f32[*] = Softmax "p0" (%d)
  %nan: bool[*] = IsNaN "nan" (%p0)
  %p: f32[*] = Where "p" (%nan, %fzero, %p0)`, "(%q, %k, %v, %see) {scale = 0.5}"},
		"any mask of what is hidden": {`
  %d: f32[*] = Where "d" (%see, %min, %s)` + softmax, "(%q, %k, %v, %y.hides.out) {scale = 0.5}"},
		"a bias and an order": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %e: f32[*] = Add "e" (%s, %bias)
  %d: f32[*] = Where "d" (%b, %e, %inf)` + softmax, "(%q, %k, %v, %bias) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		// A bias may be as large as the number is: the sum stays.
		"a bias and an order of a number": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %e: f32[*] = Add "e" (%s, %bias)
  %d: f32[*] = Where "d" (%b, %e, %min)` + softmax, "(%q, %k, %v, %y.hides.out) {scale = 0.5}"},
		// A query that sees nothing sees all keys alike that the outermost number hides, whatever hid or changed these before.
		"hidden twice by a number": {`
  %hidden: f32[*] = Where "hidden" (%see, %min, %s)
  %there: bool[*] = Cast "there" (%pad) {to = 9}
  %there4: bool[*] = Unsqueeze "there4" (%there, %column1)
  %d: f32[*] = Where "d" (%there4, %hidden, %min)` + softmax, "(%q, %k, %v, %y.hides.out_1) {scale = 0.5}"},
		"hidden and then hidden by a number": {`
  %b: bool[*] = LessOrEqual "b" (%keys, %place)
  %hidden: f32[*] = Where "hidden" (%b, %s, %inf)
  %none: bool[*] = Xor "none" (%see, %see)
  %d: f32[*] = Where "d" (%none, %hidden, %min)` + softmax, "(%q, %k, %v, %y.hides.out_1) {scale = 0.5}"},
		"a mask and then hidden by a number": {`
  %there: f32[*] = Cast "there" (%see) {to = 1}
  %m: f32[*] = Mul "m" (%there, %min)
  %e: f32[*] = Add "e" (%s, %m)
  %none: bool[*] = Xor "none" (%see, %see)
  %d: f32[*] = Where "d" (%none, %e, %min)` + softmax, "(%q, %k, %v, %y.hides.out) {scale = 0.5}"},
		// Near misses: what is off by one is no causal order.
		"positions before the query's": {`
  %b: bool[*] = Less "b" (%keys, %place)
  %m: f32[*] = Where "m" (%b, %fzero, %min)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v, %m) {scale = 0.5}"},
		"one position more": {`
  %next: i64[*] = Add "next" (%place, %1)
  %b: bool[*] = LessOrEqual "b" (%keys, %next)
  %m: f32[*] = Where "m" (%b, %fzero, %min)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v) {right_window_size = 1, scale = 0.5, spc_aligned = 1}"},
		"columns instead of rows": {`
  %q1: i64[*] = Unsqueeze "q1" (%keys, %axis1)
  %b: bool[*] = LessOrEqual "b" (%q1, %places)
  %tt: bool[*] = Transpose "tt" (%b)
  %d: f32[*] = Where "d" (%tt, %s, %inf)` + softmax, "(%q, %k, %v) {is_causal = 1, scale = 0.5, spc_aligned = 1}"},
		"every second key": {`
  %twice: i64[*] = Range "twice" (%0, %T2, %2)
  %b: bool[*] = LessOrEqual "b" (%twice, %place)
  %m: f32[*] = Where "m" (%b, %fzero, %min)
  %d: f32[*] = Add "d" (%s, %m)` + softmax, "(%q, %k, %v, %m) {scale = 0.5}"},
	} {
		t.Run(name, func(t *testing.T) {
			body := `%column1: i64[2] = const {1, 2}
  %four: f32[] = const {4.0}
  %T2: i64[*] = Add "T2" (%T, %T)` + c.body
			attends(t, masked(body), c.want)
		})
	}
}

// What is added before scores are scaled may be as large as the number that hides.
func TestMaskOfScaledBias(t *testing.T) {
	attends(t, `graph "g"(%q: f32[1,1,2,4], %k: f32[1,1,4,2], %v: f32[1,1,2,4]) {
  %bias: f32[2,2] = const {-2000.0, 0.0, 0.0, 0.0}
  %large: f32[] = const {1.0e+06}
  %order: f32[2,2] = const {0.0, -1.0e+09, 0.0, 0.0}
  %s: f32[*] = MatMul "s" (%q, %k)
  %e: f32[*] = Add "e" (%s, %bias)
  %f: f32[*] = Mul "f" (%e, %large)
  %d: f32[*] = Add "d" (%f, %order)
  %p: f32[*] = Softmax "p" (%d)
  %y: f32[*] = MatMul "y" (%p, %v)
  return %y }`, "(%q, %y.k.order.out, %v, %y.masks.out) {scale = 1e+06}")
}

// triangle is the lower triangle of n x n.
func triangle(n int) (bits []string) {
	for i := range n * n {
		bits = append(bits, []string{"0", "1"}[max(0, min(1, i/n-i%n+1))])
	}
	return bits
}

// attends checks that one Attention is made of a graph, with a text, and that it computes the same. An
// empty text is for none.
func attends(t *testing.T, text, want string) {
	t.Helper()
	g := graphtest.Parse(t, text)
	old := g.Clone()
	if _, err := fold.Constants(g); err != nil {
		t.Fatal(err)
	}
	if _, err := fuse.Identities(g); err != nil { // which come before it
		t.Fatal(err)
	}
	fold.Dead(g)
	n, err := fuse.Attentions(g)
	if err != nil || n != 1 && want != "" || n != 0 && want == "" {
		t.Fatalf("%d changes, %v in\n%s", n, err, g)
	}
	fold.Dead(g)
	if err := g.Verify(); err != nil {
		t.Fatalf("%v in\n%s", err, g)
	}
	if text := ir.Print(g); !strings.Contains(text, want) {
		t.Errorf("want %s in\n%s", want, text)
	}
	graphtest.Same(t, old, g, 1e-5)
}
