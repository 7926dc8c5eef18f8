package fuse_test

import (
	"testing"

	"spc/passes/fuse"
)

func TestPads(t *testing.T) {
	check(t, fuse.Pads, map[string]rewrite{
		"in front of a convolution": {`
graph "g"(%x: f32[n,2,5,h], %w: f32[4,2,3,3]) {
  %pads: i64[8] = const {0, 0, 1, 2, 0, 0, 3, 0}
  %p: f32[n,2,9,h+2] = Pad "p" (%x, %pads)
  %y: f32[n,4,9,h+2] = Conv "y" (%p, %w) {pads = [1, 1, 1, 1]}
  return %y
}`, `
graph "g"(%x: f32[n,2,5,h], %w: f32[4,2,3,3]) {
  %y: f32[n,4,9,(h+2)] = Conv "y" (%x, %w) {pads = [2, 3, 4, 1]}
  return %y
}`},
		"along some axes, in front of several that read them": {`
graph "g"(%x: f32[1,2,5,5], %w: f32[4,2,1,1]) {
  %pads: i64[2] = const {1, 1}
  %axes: i64[1] = const {-1}
  %zero: f32[] = const {0.0}
  %p: f32[1,2,5,7] = Pad "p" (%x, %pads, %zero, %axes)
  %y: f32[1,4,5,7] = Conv "y" (%p, %w)
  %z: f32[1,2,5,6] = AveragePool "z" (%p) {kernel_shape = [1, 2]}
  return %y, %z
}`, `
graph "g"(%x: f32[1,2,5,5], %w: f32[4,2,1,1]) {
  %y: f32[1,4,5,7] = Conv "y" (%x, %w) {pads = [0, 1, 0, 1]}
  %z: f32[1,2,5,6] = AveragePool "z" (%x) {kernel_shape = [1, 2], pads = [0, 1, 0, 1], count_include_pad = 1}
  return %y, %z
}`},
		"not of ones":     {`graph "g"(%x: f32[1,2,5], %w: f32[4,2,3]) { %q: i64[6] = const {0, 0, 1, 0, 0, 1} %one: f32[] = const {1.0} %p: f32[1,2,7] = Pad "p" (%x, %q, %one) %y: f32[1,4,5] = Conv "y" (%p, %w) return %y }`, ""},
		"not of edges":    {`graph "g"(%x: f32[1,2,5], %w: f32[4,2,3]) { %q: i64[6] = const {0, 0, 1, 0, 0, 1} %p: f32[1,2,7] = Pad "p" (%x, %q) {mode = "edge"} %y: f32[1,4,5] = Conv "y" (%p, %w) return %y }`, ""},
		"not of channels": {`graph "g"(%x: f32[1,2,5], %w: f32[4,3,3]) { %q: i64[6] = const {0, 1, 0, 0, 0, 0} %p: f32[1,3,5] = Pad "p" (%x, %q) %y: f32[1,4,3] = Conv "y" (%p, %w) return %y }`, ""},
		"not what cuts":   {`graph "g"(%x: f32[1,2,5], %w: f32[4,2,3]) { %q: i64[6] = const {0, 0, -1, 0, 0, 1} %p: f32[1,2,5] = Pad "p" (%x, %q) %y: f32[1,4,3] = Conv "y" (%p, %w) return %y }`, ""},
		"not around what counts no zeros": {`graph "g"(%x: f32[1,2,5]) { %q: i64[6] = const {0, 0, 1, 0, 0, 0} %p: f32[1,2,6] = Pad "p" (%x, %q)
  %y: f32[1,2,7] = AveragePool "y" (%p) {kernel_shape = [2], pads = [1, 1]} return %y }`, ""},
		"not as wide as a pool": {`graph "g"(%x: f32[1,2,5]) { %q: i64[6] = const {0, 0, 2, 0, 0, 0} %p: f32[1,2,7] = Pad "p" (%x, %q)
  %y: f32[1,2,6] = AveragePool "y" (%p) {kernel_shape = [2]} return %y }`, ""},
		"not where the window pads by itself": {`graph "g"(%x: f32[1,2,5], %w: f32[4,2,3]) { %q: i64[6] = const {0, 0, 1, 0, 0, 0} %p: f32[1,2,6] = Pad "p" (%x, %q)
  %y: f32[1,4,6] = Conv "y" (%p, %w) {auto_pad = "SAME_UPPER"} return %y }`, ""},
	})
}
