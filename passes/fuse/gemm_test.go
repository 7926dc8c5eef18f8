package fuse_test

import (
	"testing"

	"spc/passes/fuse"
	"spc/tests/graphtest"
)

func TestGemmOfComputedWeights(t *testing.T) {
	graphtest.Rewrite(t, fuse.Gemms, `graph "g"(%x: f32[k,3], %w: f32[k,4], %c: f32[4]) {
  %y: f32[3,4] = Gemm "n" (%x, %w, %c) {transA = 1, alpha = 0.5, beta = 2.0}
  return %y }`, `graph "g"(%x: f32[k,3], %w: f32[k,4], %c: f32[4]) {
  %n.Transpose.out: f32[3,k] = Transpose "n.Transpose" (%x)
  %n.MatMul.out: f32[3,4] = MatMul "n.MatMul" (%n.Transpose.out, %w)
  %n.factor: f32[] = const {0.5}
  %n.Mul.out: f32[3,4] = Mul "n.Mul" (%n.MatMul.out, %n.factor)
  %n.factor_1: f32[] = const {2.0}
  %n.Mul.out_1: f32[4] = Mul "n.Mul_1" (%c, %n.factor_1)
  %n.Add.out: f32[3,4] = Add "n.Add" (%n.Mul.out, %n.Mul.out_1)
  return %n.Add.out as "y"
}`)
	graphtest.Rewrite(t, fuse.Gemms, `graph "g"(%x: f32[n,3], %w: f32[3,4], %c: f32[4]) {
  %y: f32[n,4] = Gemm "n" (%x, %w, %c) {beta = 0.0}
  return %y }`, `graph "g"(%x: f32[n,3], %w: f32[3,4], %c: f32[4]) {
  %n.MatMul.out: f32[n,4] = MatMul "n.MatMul" (%x, %w)
  return %n.MatMul.out as "y"
}`)
}

func TestGemmOfAWeightStays(t *testing.T) {
	graphtest.Rewrite(t, fuse.Gemms, `graph "g"(%x: f32[n,1], %c: f32[2]) {
  %w: f32[1,2] = const {1.0, 2.0}
  %y: f32[n,2] = Gemm "n" (%x, %w, %c)
  return %y }`, "")
	graphtest.Rewrite(t, fuse.Gemms, `graph "g"(%x: f32[n,3], %w: f32[4,3]) {
  %y: f32[n,4] = Gemm "n" (%x, %w) {transB = 1}
  return %y }`, "")
}
