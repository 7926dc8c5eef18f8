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

// ONNX Runtime makes matrices of tokens to have the bias in the product.
func TestGemmBetweenReshapesIsAProductOfTensors(t *testing.T) {
	graphtest.Rewrite(t, fuse.Gemms, `graph "g"(%x: f32[b,2,3], %sizes: i64[3]) {
  %w: f32[3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %c: f32[2] = const {1.0, 2.0}
  %flat: i64[2] = const {-1, 3}
  %back: i64[3] = const {-1, 2, 2}
  %m: f32[2*b,3] = Reshape "a" (%x, %flat)
  %h: f32[2*b,2] = Gemm "n" (%m, %w, %c)
  %y: f32[b,2,2] = Reshape "z" (%h, %back)
  return %y }`, `graph "g"(%x: f32[b,2,3], %sizes: i64[3]) {
  %w: f32[3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %c: f32[2] = const {1.0, 2.0}
  %h_1: f32[b,2,2] = MatMul "n" (%x, %w, %c)
  return %h_1 as "y"
}`)
}

// Heads are joined and tokens flattened at once.
func TestGemmOfJoinedHeadsIsAProductOfTensors(t *testing.T) {
	graphtest.Rewrite(t, fuse.Gemms, `graph "g"(%x: f32[b,4,3,1]) {
  %w: f32[3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %flat: i64[2] = const {-1, 3}
  %back: i64[3] = const {-1, 4, 2}
  %m: f32[4*b,3] = Reshape "a" (%x, %flat)
  %h: f32[4*b,2] = Gemm "n" (%m, %w)
  %y: f32[b,4,2] = Reshape "z" (%h, %back)
  return %y }`, `graph "g"(%x: f32[b,4,3,1]) {
  %n.tensor.shape: i64[3] = const {-1, 4, 3}
  %n.tensor.out: f32[b,4,3] = Reshape "n.tensor" (%x, %n.tensor.shape)
  %w: f32[3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %h_1: f32[b,4,2] = MatMul "n" (%n.tensor.out, %w)
  return %h_1 as "y"
}`)
}

func TestGemmOfOtherReshapesStays(t *testing.T) {
	const weight = `
  %w: f32[3,2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %flat: i64[2] = const {-1, 3}`
	for name, text := range map[string]string{
		"rows that were not rows": `graph "g"(%x: f32[2,3,4]) {` + weight + `
  %back: i64[3] = const {4, 4, 1}
  %m: f32[8,3] = Reshape "a" (%x, %flat)
  %h: f32[8,2] = Gemm "n" (%m, %w)
  %y: f32[4,4,1] = Reshape "z" (%h, %back)
  return %y }`,
		"a matrix that is read": `graph "g"(%x: f32[b,2,3]) {` + weight + `
  %back: i64[3] = const {-1, 2, 2}
  %m: f32[2*b,3] = Reshape "a" (%x, %flat)
  %h: f32[2*b,2] = Gemm "n" (%m, %w)
  %y: f32[b,2,2] = Reshape "z" (%h, %back)
  %r: f32[2*b,2] = Relu "r" (%h)
  return %y, %r }`,
		"a factor": `graph "g"(%x: f32[b,2,3]) {` + weight + `
  %back: i64[3] = const {-1, 2, 2}
  %m: f32[2*b,3] = Reshape "a" (%x, %flat)
  %h: f32[2*b,2] = Gemm "n" (%m, %w) {alpha = 2.0}
  %y: f32[b,2,2] = Reshape "z" (%h, %back)
  return %y }`,
	} {
		t.Run(name, func(t *testing.T) { graphtest.Rewrite(t, fuse.Gemms, text, "") })
	}
}
