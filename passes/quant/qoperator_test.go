package quant_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir/tensor"
	"spc/passes/quant"
	"spc/tests/graphtest"
)

// Two convolutions, the second with scales by channel, u8 weights and a bias, and a
// product, all in the forms of QOperator models.
const qoperators = `graph "g"(%x: f32[n,2,4,4]) {
  %s: f32[1] = const {0.02}
  %z: u8[] = const {100}
  %w1: i8[3,2,1,1] = const {100, -100, 50, 25, -128, 127}
  %s1: f32[] = const {0.01}
  %z1: i8[] = const {0}
  %ys: f32[] = const {0.03}
  %yz: u8[1] = const {120}
  %w2: u8[2,3,2,2] = const {128, 129, 0, 255, 1, 2, 3, 200, 210, 220, 17, 18, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140}
  %s2: f32[2] = const {0.01, 0.02}
  %z2: u8[2] = const {ZERO, 128}
  %b2: i32[2] = const {1000, -3000}
  %y2s: f32[] = const {0.2}
  %w3: i8[32,2] = const DATA
  %s3: f32[2] = const {0.01, 0.03}
  %z3: i8[2] = const {0, 0}
  %q: u8[n,2,4,4] = QuantizeLinear "q" (%x, %s, %z)
  %a: u8[n,3,4,4] = QLinearConv "a" (%q, %s, %z, %w1, %s1, %z1, %ys, %yz)
  %b: u8[n,2,4,4] = QLinearConv "b" (%a, %ys, %yz, %w2, %s2, %z2, %y2s, %yz, %b2) {pads = [0, 0, 1, 1]}
  %f: u8[n,32] = Flatten "f" (%b)
  %m: u8[n,2] = QLinearMatMul "m" (%f, %y2s, %yz, %w3, %s3, %z3, %y2s, %yz)
  %y: f32[n,2] = DequantizeLinear "y" (%m, %y2s, %yz)
  return %y
}`

func TestQOperatorsBecomeProductsOfIntegers(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	data := strings.TrimSuffix("{"+strings.Repeat("3, -7, 1, 9, ", 16), ", ") + "}"
	for _, c := range []struct{ zero, want string }{
		{"128", "QuantizeLinear:u8 Conv:u8 Conv:u8 Flatten:u8 MatMul:u8 DequantizeLinear:f32"},
		// Weights that are not symmetric are multiplied in floating point.
		{"127", "QuantizeLinear:u8 Conv:u8 DequantizeLinear:f32 DequantizeLinear:f32 DequantizeLinear:f32 Conv:f32 QuantizeLinear:u8 Flatten:u8 MatMul:u8 DequantizeLinear:f32"},
	} {
		zero, want := c.zero, c.want
		text := strings.NewReplacer("ZERO", zero, "DATA", data).Replace(qoperators)
		g := graphtest.Parse(t, text)
		before := g.Clone()
		if n, err := quant.Products(g, true); err != nil || n == 0 {
			t.Fatalf("%d products, %v", n, err)
		}
		if _, err := quant.Fuse(g); err != nil {
			t.Fatal(err)
		}
		if err := g.Verify(); err != nil {
			t.Fatalf("%v in\n%s", err, g)
		}
		if got := kinds(g); got != want {
			t.Errorf("zero point %s: %s, want %s", zero, got, want)
		}
		x := tensor.New(tensor.F32, 5, 2, 4, 4)
		for i := range x.F32s() {
			x.F32s()[i] = float32(2*rng.NormFloat64()) + 1
		}
		it := &ref.Interpreter{}
		y, err := it.Run(context.Background(), g, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		z, err := it.Run(context.Background(), before, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range z[0].F32s() {
			// A sum that rounds the other way moves a step, which the last product adds up.
			if d := y[0].F32s()[i] - v; d > 0.21 || d < -0.21 {
				t.Errorf("zero point %s: element %d is %v, want %v", zero, i, y[0].F32s()[i], v)
			}
		}
	}
}

func TestQOperatorsOfOtherWeightsStay(t *testing.T) {
	const text = `graph "g"(%x: u8[2,3], %w: i8[3,2]) {
  %s: f32[] = const {0.02}
  %z: u8[] = const {100}
  %i: i8[] = const {0}
  %m: u8[2,2] = QLinearMatMul "m" (%x, %s, %z, %w, %s, %i, %s, %z)
  return %m
}`
	g := graphtest.Parse(t, text)
	if n, err := quant.Products(g, true); err != nil || n != 0 {
		t.Fatalf("%d products, %v", n, err)
	}
	if got, want := kinds(g), "QLinearMatMul:u8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A Dropout that drops nothing moves its elements, but of floats alone: it stays between the nodes that
// quantise.
func TestDropoutKeepsTheFloat(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[2,4]) {
  %s: f32[] = const {0.5}
  %z: u8[] = const {3}
  %q: u8[2,4] = QuantizeLinear "q" (%x, %s, %z)
  %f: f32[2,4] = DequantizeLinear "d" (%q, %s, %z)
  %m: f32[2,4] = Dropout "dropout" (%f)
  %r: u8[2,4] = QuantizeLinear "r" (%m, %s, %z)
  %y: f32[2,4] = DequantizeLinear "y" (%r, %s, %z)
  return %y
}`)
	whole := g.Clone()
	if _, err := quant.Fuse(g); err != nil {
		t.Fatal(err)
	}
	graphtest.Same(t, whole, g, 0)
}

// A product becomes one of integers where floats hold the scales of its sums; rows of which
// nothing can be seen beside the others do not matter.
func TestScalesOfSumsAreNormal(t *testing.T) {
	const fused, split = "QuantizeLinear:u8 MatMul:u8 DequantizeLinear:f32", "QuantizeLinear:u8 MatMul:f32 QuantizeLinear:u8 DequantizeLinear:f32"
	const floats = "QuantizeLinear:u8 DequantizeLinear:f32 DequantizeLinear:f32 MatMul:f32 QuantizeLinear:u8 DequantizeLinear:f32"
	for _, c := range []struct{ x, w, y, want string }{
		{"0.5", "0.25, 0.125", "2", fused},
		{"0.5", "0.25, 1e-44", "2", fused},
		{"1e20", "1e20, 1", "2", floats},
		{"1e20", "1, 1e20", "2", floats},
		{"1e-20", "1e-20, 1e-10", "2", floats},
		{"1e-25", "1e-25, 1e-25", "2", floats},
		{"1e20", "1, 1", "1e-10", split},
		{"1e-20", "1e-15, 1e-15", "1e-37", fused},
		{"1e37", "1, 1", "1e30", floats},
		{"1", "1, 1", "1e37", split},
		{"1", "1, 1", "1e-40", split},
	} {
		g := graphtest.Parse(t, strings.NewReplacer("SX", c.x, "SW", c.w, "SY", c.y).Replace(`graph "g"(%x: f32[1,2]) {
  %sx: f32[] = const {SX}
  %sw: f32[2] = const {SW}
  %sy: f32[] = const {SY}
  %z: u8[] = const {128}
  %w: i8[2,2] = const {1, -1, 100, -100}
  %q: u8[1,2] = QuantizeLinear "q" (%x, %sx, %z)
  %d: f32[1,2] = DequantizeLinear "d" (%q, %sx, %z)
  %f: f32[2,2] = DequantizeLinear "f" (%w, %sw) {axis = 1}
  %m: f32[1,2] = MatMul "m" (%d, %f)
  %p: u8[1,2] = QuantizeLinear "p" (%m, %sy, %z)
  %y: f32[1,2] = DequantizeLinear "y" (%p, %sy, %z)
  return %y
}`))
		if _, err := quant.Products(g, true); err != nil {
			t.Fatal(err)
		}
		if _, err := quant.Fuse(g); err != nil {
			t.Fatal(err)
		}
		if err := g.Verify(); err != nil {
			t.Fatalf("%v in\n%s", err, g)
		}
		if got := kinds(g); got != c.want {
			t.Errorf("scales %s, %s and %s: %s, want %s", c.x, c.w, c.y, got, c.want)
		}
	}
}
