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

// rotating is the text of a graph that rotates the pairs of %p [batch,3,2,2,2], which
// body makes of %x, by angles of a shape.
func rotating(signature, body, angles, re, im, end string) string {
	return fmt.Sprintf(`graph "g"(%%x: %s) {
  %%0: i64[] = const {0}
  %%1: i64[] = const {1}
  %%axis: i64[1] = const {-1}
  %%cos: f32%s = const {1.0, 0.5, 0.25, 0.125, 2.0, 3.0}
  %%sin: f32%s = const {0.5, 0.75, 1.0, 1.25, 1.5, 1.75}
  %s
  %%a: f32[*] = Gather "a" (%%p, %%0) {axis = -1}
  %%b: f32[*] = Gather "b" (%%p, %%1) {axis = 4}
  %%ac: f32[*] = Mul "ac" (%%a, %%cos)
  %%bs: f32[*] = Mul "bs" (%%sin, %%b)
  %%as: f32[*] = Mul "as" (%%a, %%sin)
  %%bc: f32[*] = Mul "bc" (%%b, %%cos)
  %%re: f32[*] = %s
  %%im: f32[*] = %s
  %%re1: f32[*] = Unsqueeze "re1" (%%re, %%axis)
  %%im1: f32[*] = Unsqueeze "im1" (%%im, %%axis)
  %%c: f32[*] = Concat "c" (%%re1, %%im1) {axis = -1}
  %s
  return %%y }`, signature, angles, angles, body, re, im, end)
}

func TestRotary(t *testing.T) {
	const re, im, mi = `Sub "re" (%ac, %bs)`, `Add "im" (%as, %bc)`, `Add "im" (%bc, %as)`
	tokens := `
  %split: i64[5] = const {0, 3, 2, 2, 2}
  %p: f32[*] = Reshape "p" (%x, %split)`
	join := `
  %join: i64[3] = const {0, 3, 8}
  %y: f32[*] = Reshape "y" (%c, %join)`
	graphtest.Rewrite(t, fuse.Rotaries, rotating("f32[batch,3,8]", tokens, "[3,1,2]", re, mi, join), `
graph "g"(%x: f32[batch,3,8]) {
  %c.cos: f32[1,3,2] = const {1.0, 0.5, 0.25, 0.125, 2.0, 3.0}
  %c.sin: f32[1,3,2] = const {0.5, 0.75, 1.0, 1.25, 1.5, 1.75}
  %c.fused.out: f32[batch,3,8] = RotaryEmbedding "c.fused" (%x, %c.cos, %c.sin) {interleaved = 1, num_heads = 2}
  return %c.fused.out as "y"
}`)
	heads := `
  %split: i64[5] = const {0, 0, 3, 2, 2}
  %p: f32[*] = Reshape "p" (%x, %split)`
	join = `
  %join: i64[4] = const {0, 0, 3, 4}
  %y: f32[*] = Reshape "y" (%c, %join)`
	graphtest.Rewrite(t, fuse.Rotaries, rotating("f32[batch,5,3,4]", heads, "[3,2]", re, im, join), `
graph "g"(%x: f32[batch,5,3,4]) {
  %c.cos: f32[1,3,2] = const {1.0, 0.5, 0.25, 0.125, 2.0, 3.0}
  %c.sin: f32[1,3,2] = const {0.5, 0.75, 1.0, 1.25, 1.5, 1.75}
  %c.fused.out: f32[batch,5,3,4] = RotaryEmbedding "c.fused" (%x, %c.cos, %c.sin) {interleaved = 1}
  return %c.fused.out as "y"
}`)
	for name, text := range map[string]string{
		"angles of heads":    rotating("f32[batch,3,2,2,2]", `%p: f32[*] = Relu "p" (%x)`, "[3,2,1]", re, im, `%y: f32[*] = Relu "y" (%c)`),
		"turned back":        rotating("f32[batch,3,2,2,2]", `%p: f32[*] = Relu "p" (%x)`, "[3,1,2]", `Sub "re" (%bs, %ac)`, im, `%y: f32[*] = Relu "y" (%c)`),
		"another difference": rotating("f32[batch,3,2,2,2]", `%p: f32[*] = Relu "p" (%x)`, "[3,1,2]", `Sub "re" (%ac, %bc)`, im, `%y: f32[*] = Relu "y" (%c)`),
	} {
		t.Run(name, func(t *testing.T) { graphtest.Rewrite(t, fuse.Rotaries, text, "") })
	}
}

// Rotary embeddings of halves as exporters spell them, and what looks like one.
func TestRotaryOfHalves(t *testing.T) {
	const (
		// rotate_half of transformers.
		half = `
  %lo: f32[*] = Slice "lo" (%h, %from0, %to2, %last)
  %hi: f32[*] = Slice "hi" (%h, %to2, %end, %last)
  %minus: f32[*] = Neg "minus" (%hi)
  %turned: f32[*] = Concat "turned" (%minus, %lo) {axis = -1}`
		sum = `
  %xc: f32[*] = Mul "xc" (%h, %cos)
  %rs: f32[*] = Mul "rs" (%turned, %sin)
  %y: f32[*] = Add "y" (%xc, %rs)`
		// cos and sin of LlamaRotaryEmbedding, for heads that come first.
		computed = `
  %freqs: f32[*] = MatMul "freqs" (%position, %inverse)
  %emb: f32[*] = Concat "emb" (%freqs, %freqs) {axis = -1}
  %c0: f32[*] = Cos "c0" (%emb)
  %s0: f32[*] = Sin "s0" (%emb)
  %c1: f32[*] = Mul "c1" (%c0, %factor)
  %s1: f32[*] = Mul "s1" (%factor, %s0)
  %cos: f32[*] = Unsqueeze "cos" (%c1, %AXIS)
  %sin: f32[*] = Unsqueeze "sin" (%s1, %AXIS)`
		// The tables of older versions, gathered by position_ids.
		gathered = `
  %c0: f32[*] = Gather "c0" (%table, %ids)
  %s0: f32[*] = Gather "s0" (%table2, %ids)
  %cos: f32[*] = Unsqueeze "cos" (%c0, %AXIS)
  %sin: f32[*] = Unsqueeze "sin" (%s0, %AXIS)`
	)
	first, second := strings.NewReplacer("%AXIS", "%one"), strings.NewReplacer("%AXIS", "%two")
	heads := `
  %h: f32[*] = Transpose "h" (%x) {perm = [0, 2, 1, 3]}`
	tokens := `
  %h: f32[*] = Identity "h" (%x)`
	for name, c := range map[string]struct{ body, want string }{
		"angles that are computed": {heads + first.Replace(computed) + half + sum,
			`(%y.x.out, %y.cos.half.out, %y.sin.half.out) {num_heads = 3}`},
		"tables that are gathered": {heads + first.Replace(gathered) + half + sum,
			`(%y.x.out, %y.cos.half.out, %y.sin.half.out) {num_heads = 3}`},
		"tokens first": {tokens + second.Replace(gathered) + half + sum,
			`(%y.x.out, %y.cos.half.out, %y.sin.half.out) {num_heads = 3}`},
		"halves that are split": {tokens + second.Replace(gathered) + `
  %lo: f32[*], %hi: f32[*] = Split "halves" (%h) {axis = -1, num_outputs = 2}
  %minus: f32[*] = Neg "minus" (%hi)
  %turned: f32[*] = Concat "turned" (%minus, %lo) {axis = 3}` + sum,
			`(%y.x.out, %y.cos.half.out, %y.sin.half.out) {num_heads = 3}`},
		// As torchtune, GPT-OSS and ONNX Runtime's exporters turn each half.
		"each half": {tokens + `
  %c0: f32[*] = Gather "c0" (%small, %ids)
  %s0: f32[*] = Gather "s0" (%small2, %ids)
  %cos: f32[*] = Unsqueeze "cos" (%c0, %two)
  %sin: f32[*] = Unsqueeze "sin" (%s0, %two)
  %lo: f32[*], %hi: f32[*] = Split "halves" (%h) {axis = -1, num_outputs = 2}
  %lc: f32[*] = Mul "lc" (%lo, %cos)
  %hs: f32[*] = Mul "hs" (%hi, %sin)
  %hc: f32[*] = Mul "hc" (%hi, %cos)
  %ls: f32[*] = Mul "ls" (%lo, %sin)
  %re: f32[*] = Sub "re" (%lc, %hs)
  %im: f32[*] = Add "im" (%hc, %ls)
  %y: f32[*] = Concat "y" (%re, %im) {axis = -1}`, `(%y.x.out, %c0, %s0) {num_heads = 3}`},
		"heads that nothing moves": {`
  %h: f32[*] = Relu "h" (%hx)` + first.Replace(gathered) + half + sum,
			`= RotaryEmbedding "y.fused" (%h, %y.cos.half.out, %y.sin.half.out)`},
		// Near misses.
		"the other half is negated": {heads + first.Replace(gathered) + `
  %lo: f32[*] = Slice "lo" (%h, %from0, %to2, %last)
  %hi: f32[*] = Slice "hi" (%h, %to2, %end, %last)
  %minus: f32[*] = Neg "minus" (%lo)
  %turned: f32[*] = Concat "turned" (%hi, %minus) {axis = -1}` + sum, ""},
		"quarters": {heads + first.Replace(gathered) + `
  %lo: f32[*] = Slice "lo" (%h, %from0, %to1, %last)
  %hi: f32[*] = Slice "hi" (%h, %to1, %end, %last)
  %minus: f32[*] = Neg "minus" (%hi)
  %turned: f32[*] = Concat "turned" (%minus, %lo) {axis = -1}` + sum, ""},
		"angles of halves that differ": {heads + strings.ReplaceAll(first.Replace(gathered), "%table2", "%table3") + half + sum, ""},
		"angles of heads": {heads + `
  %cos: f32[*] = Identity "cos" (%ofheads)
  %sin: f32[*] = Identity "sin" (%ofheads)` + half + sum, ""},
		"a sum with another value": {heads + first.Replace(gathered) + half + `
  %xc: f32[*] = Mul "xc" (%hx, %cos)
  %rs: f32[*] = Mul "rs" (%turned, %sin)
  %y: f32[*] = Add "y" (%xc, %rs)`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := `graph "g"(%x: f32[batch,seq,3,4], %hx: f32[batch,3,seq,4], %ids: i64[batch,seq], %position: f32[batch,seq,1]) {
  %one: i64[1] = const {1}
  %two: i64[1] = const {2}
  %from0: i64[1] = const {0}
  %to1: i64[1] = const {1}
  %to2: i64[1] = const {2}
  %last: i64[1] = const {3}
  %end: i64[1] = const {9223372036854775807}
  %inverse: f32[1,2] = const {1.0, 0.25}
  %factor: f32[] = const {1.5}
  %table: f32[2,4] = const {0.5, 0.25, 0.5, 0.25, 1.0, -0.5, 1.0, -0.5}
  %table2: f32[2,4] = const {0.75, 2.0, 0.75, 2.0, -1.0, 0.5, -1.0, 0.5}
  %table3: f32[2,4] = const {0.75, 2.0, 0.75, 2.0, -1.0, 0.5, -1.0, 0.75}
  %small: f32[2,2] = const {0.5, 0.25, 1.0, -0.5}
  %small2: f32[2,2] = const {0.75, 2.0, -1.0, 0.5}
  %ofheads: f32[3,1,4] = const {1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 6.0, 5.0, 6.0}` + c.body + `
  return %y }`
			g := graphtest.Parse(t, text)
			old := g.Clone()
			if _, err := fuse.Identities(g); err != nil {
				t.Fatal(err)
			}
			if n, err := fuse.Rotaries(g); err != nil || n != min(1, len(c.want)) {
				t.Fatalf("%d changes, %v in\n%s", n, err, g)
			}
			fold.Dead(g)
			if err := g.Verify(); err != nil {
				t.Fatalf("%v in\n%s", err, g)
			}
			if text := ir.Print(g); !strings.Contains(text, c.want) {
				t.Errorf("want %s in\n%s", c.want, text)
			}
			graphtest.Same(t, old, g, 1e-5)
		})
	}
}

// Cosines that all samples share, and sines of each, or the other way around, are not tables that the operator takes.
func TestRotaryOfOneSample(t *testing.T) {
	for _, batch := range [][2]string{{"1", "2"}, {"2", "1"}, {"1", "batch"}, {"batch", "1"}} {
		text := fmt.Sprintf(`graph "g"(%%h: f32[%[3]s,2,3,4], %%cos: f32[%[1]s,1,3,2], %%sin: f32[%[2]s,1,3,2]) {
  %%lo: f32[*], %%hi: f32[*] = Split "halves" (%%h) {axis = -1, num_outputs = 2}
  %%lc: f32[*] = Mul "lc" (%%lo, %%cos)
  %%hs: f32[*] = Mul "hs" (%%hi, %%sin)
  %%hc: f32[*] = Mul "hc" (%%hi, %%cos)
  %%ls: f32[*] = Mul "ls" (%%lo, %%sin)
  %%re: f32[*] = Sub "re" (%%lc, %%hs)
  %%im: f32[*] = Add "im" (%%hc, %%ls)
  %%y: f32[*] = Concat "y" (%%re, %%im) {axis = -1}
  return %%y }`, batch[0], batch[1], strings.Replace(batch[0]+batch[1], "1", "", 1))
		g := graphtest.Parse(t, text)
		if n, err := fuse.Rotaries(g); n != 0 || err != nil {
			t.Errorf("cosines of %s samples and sines of %s: %d changes, %v", batch[0], batch[1], n, err)
		}
	}
}
