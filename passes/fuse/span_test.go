package fuse_test

import (
	"testing"

	"spc/passes/fuse"
	"spc/tests/graphtest"
)

func TestKernelAsWideAsTheImage(t *testing.T) {
	graphtest.Rewrite(t, fuse.Spans, `graph "g"(%x: f32[n,1,8,2], %b: f32[1]) {
  %w: f32[1,1,3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %y: f32[n,1,4,1] = Conv "n" (%x, %w, %b) {kernel_shape = [3, 2], pads = [1, 0, 2, 0], strides = [2, 3], dilations = [2, 1]}
  return %y }`, `graph "g"(%x: f32[n,1,8,2], %b: f32[1]) {
  %n.columns.out: f32[n,2,1,8] = Transpose "n.columns" (%x) {perm = [0, 3, 1, 2]}
  %w: f32[1,2,1,3] = const {1.0, 3.0, 5.0, 2.0, 4.0, 6.0}
  %n.conv.out: f32[n,1,1,4] = Conv "n" (%n.columns.out, %w, %b) {kernel_shape = [1, 3], strides = [1, 2], dilations = [1, 2], pads = [0, 1, 0, 2]}
  %n.rows.out: f32[n,1,4,1] = Transpose "n.rows" (%n.conv.out) {perm = [0, 1, 3, 2]}
  return %n.rows.out as "y"
}`)
}

func TestOtherKernelsStay(t *testing.T) {
	for _, text := range []string{
		`{pads = [0, 1, 0, 0]}`,
		`{auto_pad = "SAME_UPPER"}`,
		`{dilations = [3, 1]}`, // one row of outputs
	} {
		graphtest.Rewrite(t, fuse.Spans, `graph "g"(%x: f32[1,1,7,2]) {
  %w: f32[1,1,3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %y: f32[*] = Conv "n" (%x, %w) `+text+`
  return %y }`, "")
	}
}
