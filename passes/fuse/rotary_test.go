package fuse_test

import (
	"fmt"
	"testing"

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
