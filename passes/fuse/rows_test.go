package fuse_test

import (
	"testing"

	"spc/passes/fuse"
	"spc/tests/graphtest"
)

func TestWholeRows(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"scattered": {`graph "g"(%x: f32[batch,2,3], %y: f32[1,2,3]) {
  %at: i64[1,1,1] = const {0}
  %size: i64[3] = const {1, 2, 3}
  %w: i64[1,2,3] = Expand "w" (%at, %size)
  %z: f32[batch,2,3] = ScatterElements "z" (%x, %w, %y) {reduction = "add"}
  return %z }`, `graph "g"(%x: f32[batch,2,3], %y: f32[1,2,3]) {
  %at: i64[1,1,1] = const {0}
  %z.rows.shape: i64[2] = const {0, 1}
  %z.rows.out: i64[1,1] = Reshape "z.rows" (%at, %z.rows.shape)
  %z.fused: f32[batch,2,3] = ScatterND "z.fused" (%x, %z.rows.out, %y) {reduction = "add"}
  return %z.fused as "z"
}`},
		"gathered from each of a batch, by indices that may be broadcast": {`graph "g"(%x: f32[2,5,3]) {
  %at: i64[2,1,1] = const {4, 1}
  %size: i64[3] = const {2, 3, 3}
  %w: i64[2,3,3] = Expand "w" (%at, %size)
  %z: f32[2,3,3] = GatherElements "z" (%x, %w) {axis = -2}
  return %z }`, `graph "g"(%x: f32[2,5,3]) {
  %at: i64[2,1,1] = const {4, 1}
  %z.rows.shape: i64[3] = const {0, 0, 1}
  %z.rows.out: i64[2,1,1] = Reshape "z.rows" (%at, %z.rows.shape)
  %size: i64[3] = const {2, 3, 3}
  %z.first.from: i64[1] = const {0}
  %z.first.to: i64[1] = const {2}
  %z.first.out: i64[2] = Slice "z.first" (%size, %z.first.from, %z.first.to)
  %z.one: i64[1] = const {1}
  %z.size.out: i64[3] = Concat "z.size" (%z.first.out, %z.one)
  %z.all.out: i64[2,3,1] = Expand "z.all" (%z.rows.out, %z.size.out)
  %z.fused: f32[2,3,3] = GatherND "z.fused" (%x, %z.all.out) {batch_dims = 1}
  return %z.fused as "z"
}`},
		"not a part of rows": {`graph "g"(%x: f32[4,3]) {
  %at: i64[2,1] = const {3, 1}
  %size: i64[2] = const {2, 2}
  %w: i64[2,2] = Expand "w" (%at, %size)
  %z: f32[2,2] = GatherElements "z" (%x, %w) {axis = 0}
  return %z }`, ""},
		"not rows of nothing, of which no index is read": {`graph "g"(%x: f32[1,0], %at: i64[1,1]) {
  %size: i64[2] = const {1, 0}
  %w: i64[1,0] = Expand "w" (%at, %size)
  %z: f32[1,0] = GatherElements "z" (%x, %w) {axis = 0}
  return %z }`, ""},
		"not along the last axis": {`graph "g"(%x: f32[2,3]) {
  %at: i64[1,3] = const {2, 1, 0}
  %size: i64[2] = const {2, 3}
  %w: i64[2,3] = Expand "w" (%at, %size)
  %z: f32[2,3] = GatherElements "z" (%x, %w) {axis = 1}
  return %z }`, ""},
	} {
		t.Run(name, func(t *testing.T) { graphtest.Rewrite(t, fuse.Assignments, c.before, c.after) })
	}
}
