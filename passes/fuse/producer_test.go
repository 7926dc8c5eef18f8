package fuse_test

import (
	"testing"

	"spc/passes/fuse"
)

func TestScales(t *testing.T) {
	check(t, fuse.Scales, map[string]rewrite{
		"batch normalization into Conv": {`
graph "g"(%x: f32[batch,1,2,2]) {
  %w: f32[2,1,1,1] = const {1.0, 2.0}
  %b: f32[2] = const {0.5, 1.0}
  %s: f32[2] = const {2.0, 3.0}
  %o: f32[2] = const {1.0, 1.0}
  %m: f32[2] = const {0.5, 0.0}
  %v: f32[2] = const {3.0, 0.0}
  %c: f32[batch,2,2,2] = Conv "c" (%x, %w, %b)
  %y: f32[batch,2,2,2] = BatchNormalization "bn" (%c, %s, %o, %m, %v) {epsilon = 1.0}
  return %y
}`, `
graph "g"(%x: f32[batch,1,2,2]) {
  %w: f32[2,1,1,1] = const {1.0, 6.0}
  %c.bias: f32[2] = const {1.0, 4.0}
  %c: f32[batch,2,2,2] = Conv "c" (%x, %w, %c.bias)
  return %c as "y"
}`},
		"into a grouped Conv": {`
graph "g"(%x: f32[1,2,2,2]) {
  %w: f32[2,1,1,1] = const {1.0, 2.0}
  %s: f32[2,1,1] = const {2.0, 3.0}
  %c: f32[1,2,2,2] = Conv "c" (%x, %w) {group = 2}
  %y: f32[1,2,2,2] = Mul "mul" (%s, %c)
  return %y
}`, `
graph "g"(%x: f32[1,2,2,2]) {
  %w: f32[2,1,1,1] = const {2.0, 6.0}
  %c.bias: f32[2] = const {0.0, 0.0}
  %c: f32[1,2,2,2] = Conv "c" (%x, %w, %c.bias) {group = 2}
  return %c as "y"
}`},
		"batch normalization into ConvTranspose": {`
graph "g"(%x: f32[1,2,2,2]) {
  %w: f32[2,2,1,1] = const {1.0, 2.0, 3.0, 4.0}
  %s: f32[2] = const {2.0, 3.0}
  %o: f32[2] = const {1.0, -1.0}
  %m: f32[2] = const {0.0, 0.0}
  %v: f32[2] = const {0.0, 0.0}
  %c: f32[1,2,2,2] = ConvTranspose "c" (%x, %w)
  %y: f32[1,2,2,2] = BatchNormalization "bn" (%c, %s, %o, %m, %v) {epsilon = 1.0}
  return %y
}`, `
graph "g"(%x: f32[1,2,2,2]) {
  %w: f32[2,2,1,1] = const {2.0, 6.0, 6.0, 12.0}
  %c.bias: f32[2] = const {1.0, -1.0}
  %c: f32[1,2,2,2] = ConvTranspose "c" (%x, %w, %c.bias)
  return %c as "y"
}`},
		"batch normalization into Gemm with alpha and beta": {`
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[1,2] = const {1.0, 2.0}
  %s: f32[2] = const {2.0, 3.0}
  %o: f32[2] = const {1.0, -1.0}
  %m: f32[2] = const {0.0, 0.0}
  %v: f32[2] = const {0.0, 0.0}
  %c: f32[batch,2] = Gemm "c" (%x, %w, %b) {alpha = 0.5, beta = 2.0, transB = 1}
  %y: f32[batch,2] = BatchNormalization "bn" (%c, %s, %o, %m, %v) {epsilon = 1.0}
  return %y
}`, `
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {2.0, 4.0, 9.0, 12.0}
  %c.bias: f32[2] = const {5.0, 11.0}
  %c: f32[batch,2] = Gemm "c" (%x, %w, %c.bias) {alpha = 0.5, transB = 1}
  return %c as "y"
}`},
		"a factor and a divisor of MatMul": {`
graph "g"(%x: f32[batch,seq,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %s: f32[2] = const {2.0, 3.0}
  %half: f32[] = const {0.5}
  %c: f32[batch,seq,2] = MatMul "c" (%x, %w)
  %m: f32[batch,seq,2] = Mul "mul" (%c, %s)
  %y: f32[batch,seq,2] = Div "div" (%m, %half)
  return %y
}`, `
graph "g"(%x: f32[batch,seq,2]) {
  %w: f32[2,2] = const {4.0, 12.0, 12.0, 24.0}
  %c.bias_1: f32[2] = const {0.0, 0.0}
  %c: f32[batch,seq,2] = MatMul "c" (%x, %w, %c.bias_1)
  return %c as "y"
}`},
		"a weight that another product reads": {`
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %s: f32[2] = const {2.0, 3.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w)
  %y: f32[batch,2] = Mul "mul" (%c, %s)
  %z: f32[batch,2] = MatMul "d" (%x, %w)
  return %y, %z
}`, `
graph "g"(%x: f32[batch,2]) {
  %w.scaled: f32[2,2] = const {2.0, 6.0, 6.0, 12.0}
  %c.bias: f32[2] = const {0.0, 0.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w.scaled, %c.bias)
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %z: f32[batch,2] = MatMul "d" (%x, %w)
  return %c as "y", %z
}`},
		"a product that others read": {`
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %s: f32[2] = const {2.0, 3.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w)
  %y: f32[batch,2] = Mul "mul" (%c, %s)
  return %y, %c
}`, ""},
		"a product that a subgraph reads": {`
graph "g"(%x: f32[batch,2], %k: bool[]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %s: f32[2] = const {2.0, 3.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w)
  %y: f32[batch,2] = If "if" (%k) {then_branch = graph "t"() {
    %m: f32[batch,2] = Mul "mul" (%c, %s)
    return %m
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`, ""},
		"a product that a subgraph returns": {`
graph "g"(%x: f32[batch,2], %k: bool[]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %s: f32[2] = const {2.0, 3.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w)
  %m: f32[batch,2] = Mul "mul" (%c, %s)
  %y: f32[batch,2] = If "if" (%k) {then_branch = graph "t"() {
    return %c
  }, else_branch = graph "e"() {
    return %m
  }}
  return %y
}`, ""},
		"training": {`
graph "g"(%x: f32[3,1,1]) {
  %w: f32[1,1,1] = const {2.0}
  %p: f32[1] = const {1.0}
  %c: f32[3,1,1] = Conv "c" (%x, %w)
  %y: f32[3,1,1], %m: f32[1], %v: f32[1] = BatchNormalization "bn" (%c, %p, %p, %p, %p) {training_mode = 1}
  return %y
}`, ""},
		"batch normalization of another axis than the product's": {`
graph "g"(%x: f32[2,2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[2] = const {1.0, 2.0}
  %c: f32[2,2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2,2] = BatchNormalization "bn" (%c, %p, %p, %p, %p)
  return %y
}`, ""},
		"a factor along the axis before, as old opsets broadcast": {`
graph "g"(%x: f32[2,2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[2] = const {1.0, 2.0}
  %c: f32[2,2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2,2] = Mul "mul" (%c, %p) {axis = 1}
  return %y
}`, ""},
		"a factor for each row": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[2,1] = const {1.0, 2.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Mul "mul" (%c, %p)
  return %y
}`, ""},
		"a factor that broadcasts the product": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,1] = const {1.0, 2.0}
  %p: f32[3] = const {1.0, 2.0, 3.0}
  %c: f32[2,1] = MatMul "c" (%x, %w)
  %y: f32[2,3] = Mul "mul" (%c, %p)
  return %y
}`, ""},
		"a quotient of a constant": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[2] = const {1.0, 2.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Div "div" (%p, %c)
  return %y
}`, ""},
		"a division by zero": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[2] = const {1.0, 0.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Div "div" (%c, %p)
  return %y
}`, ""},
		"a factor that f32 cannot hold": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1e+30, 2.0, 3.0, 4.0}
  %p: f32[2] = const {1e+30, 1.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Mul "mul" (%c, %p)
  return %y
}`, ""},
		"a bias that is no constant": {`
graph "g"(%x: f32[2,2], %b: f32[2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[2] = const {1.0, 2.0}
  %c: f32[2,2] = Gemm "c" (%x, %w, %b)
  %y: f32[2,2] = Mul "mul" (%c, %p)
  return %y
}`, ""},
		"a bias for each row": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2,1] = const {1.0, 2.0}
  %p: f32[2] = const {1.0, 2.0}
  %c: f32[2,2] = Gemm "c" (%x, %w, %b)
  %y: f32[2,2] = Mul "mul" (%c, %p)
  return %y
}`, ""},
		"a weight that is no constant": {`
graph "g"(%x: f32[2,2], %w: f32[2,2]) {
  %p: f32[2] = const {1.0, 2.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Mul "mul" (%c, %p)
  return %y
}`, ""},
		"f64": {`
graph "g"(%x: f64[2,2]) {
  %w: f64[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %p: f64[2] = const {1.0, 2.0}
  %c: f64[2,2] = MatMul "c" (%x, %w)
  %y: f64[2,2] = Mul "mul" (%c, %p)
  return %y
}`, ""},
	})
}

func TestBiases(t *testing.T) {
	check(t, fuse.Biases, map[string]rewrite{
		"of Conv, twice": {`
graph "g"(%x: f32[1,1,2,2]) {
  %w: f32[2,1,1,1] = const {1.0, 2.0}
  %b: f32[2,1,1] = const {0.5, 1.0}
  %one: f32[] = const {1.0}
  %c: f32[1,2,2,2] = Conv "c" (%x, %w)
  %a: f32[1,2,2,2] = Add "add" (%b, %c)
  %y: f32[1,2,2,2] = Sub "sub" (%a, %one)
  return %y
}`, `
graph "g"(%x: f32[1,1,2,2]) {
  %w: f32[2,1,1,1] = const {1.0, 2.0}
  %c.bias_1: f32[2] = const {-0.5, 0.0}
  %c: f32[1,2,2,2] = Conv "c" (%x, %w, %c.bias_1)
  return %c as "y"
}`},
		"of MatMul of a vector": {`
graph "g"(%x: f32[2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {0.5, 1.0}
  %c: f32[2] = MatMul "c" (%x, %w)
  %y: f32[2] = Add "add" (%c, %b)
  return %y
}`, `
graph "g"(%x: f32[2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c.bias: f32[2] = const {0.5, 1.0}
  %c: f32[2] = MatMul "c" (%x, %w, %c.bias)
  return %c as "y"
}`},
		"a difference from a constant": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {0.5, 1.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Sub "sub" (%b, %c)
  return %y
}`, ""},
		"a constant that is as large as the product": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2,2] = const {0.5, 1.0, 2.0, 3.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Add "add" (%c, %b)
  return %y
}`, ""},
		"a constant of higher rank": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[1,1,2] = const {0.5, 1.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[1,2,2] = Add "add" (%c, %b)
  return %y
}`, ""},
		"after an activation": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {0.5, 1.0}
  %c: f32[2,2] = MatMul "c" (%x, %w) {spc_act = "Relu"}
  %y: f32[2,2] = Add "add" (%c, %b)
  return %y
}`, ""},
	})
}

func TestResiduals(t *testing.T) {
	check(t, fuse.Residuals, map[string]rewrite{
		"an input": {`
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w)
  %y: f32[batch,2] = Add "add" (%x, %c)
  return %y
}`, `
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w, _, %x)
  return %c as "y"
}`},
		"the later of two products, which moves behind what it adds": {`
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %v: f32[2,2] = const {2.0, 2.0, 3.0, 4.0}
  %a: f32[batch,2] = MatMul "a" (%x, %w)
  %b: f32[batch,2] = MatMul "b" (%x, %v)
  %r: f32[batch,2] = Relu "relu" (%a)
  %s: f32[batch,2] = Neg "neg" (%r)
  %y: f32[batch,2] = Add "add" (%s, %b)
  %p: f32[batch,2] = MatMul "p" (%y, %w)
  %q: f32[batch,2] = MatMul "q" (%y, %v)
  %z: f32[batch,2] = Add "z" (%p, %q)
  return %z
}`, `
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %a: f32[batch,2] = MatMul "a" (%x, %w)
  %r: f32[batch,2] = Relu "relu" (%a)
  %s: f32[batch,2] = Neg "neg" (%r)
  %v: f32[2,2] = const {2.0, 2.0, 3.0, 4.0}
  %b: f32[batch,2] = MatMul "b" (%x, %v, _, %s)
  %p: f32[batch,2] = MatMul "p" (%b, %w)
  %q: f32[batch,2] = MatMul "q" (%b, %v, _, %p)
  return %q as "z"
}`},
		"of Gemm, beta being for the bias only": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {1.0, 2.0}
  %c: f32[2,2] = Gemm "c" (%x, %w, %b) {alpha = 2.0, beta = 3.0}
  %y: f32[2,2] = Add "add" (%c, %x)
  return %y
}`, `
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %b: f32[2] = const {1.0, 2.0}
  %c: f32[2,2] = Gemm "c" (%x, %w, %b, %x) {alpha = 2.0, beta = 3.0}
  return %c as "y"
}`},
		"a product and itself": {`
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w)
  %y: f32[batch,2] = Add "add" (%c, %c)
  return %y
}`, ""},
		"what broadcasts": {`
graph "g"(%x: f32[2,2], %r: f32[2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Add "add" (%c, %r)
  return %y
}`, ""},
		"what may broadcast": {`
graph "g"(%x: f32[?1,2], %r: f32[?2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[?1,2] = MatMul "c" (%x, %w)
  %y: f32[?3,2] = Add "add" (%c, %r)
  return %y
}`, ""},
		"a product that the other summand reads": {`
graph "g"(%x: f32[batch,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[batch,2] = MatMul "c" (%x, %w)
  %r: f32[batch,2] = Relu "relu" (%c)
  %y: f32[batch,2] = Add "add" (%c, %r)
  return %y
}`, ""},
		"after an activation": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[2,2] = MatMul "c" (%x, %w) {spc_act = "Relu"}
  %y: f32[2,2] = Add "add" (%c, %x)
  return %y
}`, ""},
	})
}

func TestEpilogues(t *testing.T) {
	check(t, fuse.Epilogues, map[string]rewrite{
		"each activation": {`
graph "g"(%x: f32[1,1,2]) {
  %w: f32[1,1,1] = const {1.0}
  %lo: f32[] = const {-1.0}
  %hi: f32[] = const {1.0}
  %c0: f32[1,1,2] = Conv "c0" (%x, %w)
  %a0: f32[1,1,2] = Relu "a0" (%c0)
  %c1: f32[1,1,2] = Conv "c1" (%a0, %w)
  %a1: f32[1,1,2] = Sigmoid "a1" (%c1)
  %c2: f32[1,1,2] = Conv "c2" (%a1, %w)
  %a2: f32[1,1,2] = Tanh "a2" (%c2)
  %c3: f32[1,1,2] = Conv "c3" (%a2, %w)
  %a3: f32[1,1,2] = Clip "a3" (%c3, %lo, %hi)
  %c4: f32[1,1,2] = Conv "c4" (%a3, %w)
  %a4: f32[1,1,2] = LeakyRelu "a4" (%c4) {alpha = 0.5}
  %c5: f32[1,1,2] = Conv "c5" (%a4, %w)
  %a5: f32[1,1,2] = HardSigmoid "a5" (%c5)
  %c6: f32[1,1,2] = Conv "c6" (%a5, %w)
  %a6: f32[1,1,2] = HardSwish "a6" (%c6)
  %c7: f32[1,1,2] = Conv "c7" (%a6, %w)
  %a7: f32[1,1,2] = Swish "a7" (%c7)
  %c8: f32[1,1,2] = Conv "c8" (%a7, %w)
  %a8: f32[1,1,2] = Gelu "a8" (%c8) {approximate = "tanh"}
  %c9: f32[1,1,2] = Conv "c9" (%a8, %w)
  %a9: f32[1,1,2] = Clip "a9" (%c9, _, %hi)
  return %a9
}`, `
graph "g"(%x: f32[1,1,2]) {
  %w: f32[1,1,1] = const {1.0}
  %c0: f32[1,1,2] = Conv "c0" (%x, %w) {spc_act = "Relu"}
  %c1: f32[1,1,2] = Conv "c1" (%c0, %w) {spc_act = "Sigmoid"}
  %c2: f32[1,1,2] = Conv "c2" (%c1, %w) {spc_act = "Tanh"}
  %c3: f32[1,1,2] = Conv "c3" (%c2, %w) {spc_act = "Clip", spc_act_args = [-1.0, 1.0]}
  %c4: f32[1,1,2] = Conv "c4" (%c3, %w) {spc_act = "LeakyRelu", spc_act_args = [0.5]}
  %c5: f32[1,1,2] = Conv "c5" (%c4, %w) {spc_act = "HardSigmoid", spc_act_args = [0.2, 0.5]}
  %c6: f32[1,1,2] = Conv "c6" (%c5, %w) {spc_act = "HardSwish"}
  %c7: f32[1,1,2] = Conv "c7" (%c6, %w) {spc_act = "Swish", spc_act_args = [1.0]}
  %c8: f32[1,1,2] = Conv "c8" (%c7, %w) {spc_act = "Gelu", spc_act_args = [1.0]}
  %c9: f32[1,1,2] = Conv "c9" (%c8, %w) {spc_act = "Clip", spc_act_args = [-Inf, 1.0]}
  return %c9 as "a9"
}`},
		"after a residual, once": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[2,2] = MatMul "c" (%x, %w, _, %x)
  %a: f32[2,2] = Relu "a" (%c)
  %y: f32[2,2] = Tanh "y" (%a)
  return %y
}`, `
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[2,2] = MatMul "c" (%x, %w, _, %x) {spc_act = "Relu"}
  %y: f32[2,2] = Tanh "y" (%c)
  return %y
}`},
		"in a subgraph": {`
graph "g"(%x: f32[2,2], %k: bool[]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %y: f32[2,2] = If "if" (%k) {then_branch = graph "t"() {
    %c: f32[2,2] = MatMul "c" (%x, %w)
    %a: f32[2,2] = Relu "a" (%c)
    return %a
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`, `
graph "g"(%x: f32[2,2], %k: bool[]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %y: f32[2,2] = If "if" (%k) {then_branch = graph "t"() {
    %c: f32[2,2] = MatMul "c" (%x, %w) {spc_act = "Relu"}
    return %c
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`},
		"bounds that are no constants": {`
graph "g"(%x: f32[2,2], %lo: f32[]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Clip "y" (%c, %lo)
  return %y
}`, ""},
		"a product that others read": {`
graph "g"(%x: f32[2,2]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %y: f32[2,2] = Relu "y" (%c)
  return %y, %c
}`, ""},
		"a product that a subgraph captures": {`
graph "g"(%x: f32[2,2], %k: bool[]) {
  %w: f32[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f32[2,2] = MatMul "c" (%x, %w)
  %r: f32[2,2] = Relu "r" (%c)
  %y: f32[2,2] = If "if" (%k) {then_branch = graph "t"() {
    %n: f32[2,2] = Neg "n" (%c)
    return %n
  }, else_branch = graph "e"() {
    return %r
  }}
  return %y
}`, ""},
		"f64": {`
graph "g"(%x: f64[2,2]) {
  %w: f64[2,2] = const {1.0, 2.0, 3.0, 4.0}
  %c: f64[2,2] = MatMul "c" (%x, %w)
  %y: f64[2,2] = Relu "y" (%c)
  return %y
}`, ""},
	})
}
