package ref

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// TestProductsAgreeWithEval evaluates random products twice.
func TestProductsAgreeWithEval(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	seen := map[string]int{}
	for i := range 600 {
		kind, attrs, shapes := randomProduct(r)
		o, err := op.Registry.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%s %v %v", kind, attrs, shapes)
		for name, v := range attrs {
			if err := ir.SetAttr(o, name, v); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		g := ir.NewGraph("g")
		var values []*ir.Value
		var in []*tensor.Tensor
		for _, s := range shapes {
			if s == nil {
				values, in = append(values, nil), append(in, nil)
				continue
			}
			x := tensor.New(tensor.F32, s...)
			for j := range x.F32s() {
				x.F32s()[j] = float32(r.NormFloat64())
			}
			in = append(in, x)
			values = append(values, g.NewInput("", ir.TypeOf(x)))
		}
		n := g.NewNode("n", o, values, "y")
		if err := n.Infer(); err != nil {
			continue // a kernel that does not fit
		}
		want, err := o.Eval(&ir.Eval{Outputs: 1}, in)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, err := product(context.Background(), n, in)
		if err != nil || got == nil {
			t.Fatalf("%s: %v, %v", text, got, err)
		}
		if got.String() != want[0].String() {
			t.Fatalf("%s: %v, want %v", text, got, want[0])
		}
		for j, v := range got.F32s() {
			if w := want[0].F32s()[j]; math.Abs(float64(v-w)) > 1e-5*max(1, math.Abs(float64(w))) {
				t.Fatalf("graph %d, %s: element %d is %v, want %v", i, text, j, v, w)
			}
		}
		seen[kind]++
	}
	for kind := range products {
		if seen[kind] < 80 {
			t.Errorf("%s was compared %d times", kind, seen[kind])
		}
	}
}

// randomProduct draws an operator, its attributes and the shapes of its inputs, nil for
// an absent one. Some are larger than the tiles.
func randomProduct(r *rand.Rand) (kind string, attrs map[string]any, shapes [][]int) {
	size := func(most int) int {
		if r.IntN(8) == 0 {
			most *= 16
		}
		return 1 + r.IntN(most)
	}
	pick := func(a, b []int) []int {
		if r.IntN(2) == 0 {
			return a
		}
		return b
	}
	switch r.IntN(3) {
	case 0:
		m, k, n := size(20), size(20), size(20)
		a, b := []int{m, k}, []int{k, n}
		if r.IntN(8) == 0 {
			a = []int{k}
		} else {
			a = append([][]int{{}, {3}, {1}, {2, 1}, {2, 3}}[r.IntN(5)], a...)
		}
		if r.IntN(8) == 0 {
			b = []int{k}
		} else {
			b = append([][]int{{}, {3}, {1}, {2, 3}, {2, 1}}[r.IntN(5)], b...)
		}
		return "MatMul", nil, [][]int{a, b}
	case 1:
		m, k, n := size(20), size(20), size(20)
		ta, tb := r.IntN(2), r.IntN(2)
		a, b := []int{m, k}, []int{k, n}
		if ta > 0 {
			a = []int{k, m}
		}
		if tb > 0 {
			b = []int{n, k}
		}
		c := [][]int{nil, {}, {1}, {n}, {m, 1}, {1, n}, {m, n}}[r.IntN(7)]
		return "Gemm", map[string]any{"transA": ta, "transB": tb, "alpha": float32(r.NormFloat64()), "beta": float32(r.NormFloat64())}, [][]int{a, b, c}
	}
	rank, groups := 1+r.IntN(3), 1+r.IntN(3)
	c, m := groups*(1+r.IntN(3)), groups*(1+r.IntN(4))
	x, w := []int{1 + r.IntN(2), c}, []int{m, c / groups}
	var strides, dilations, pads []int
	for range rank {
		x, w = append(x, 1+r.IntN(12)), append(w, 1+r.IntN(3))
		strides, dilations = append(strides, 1+r.IntN(3)), append(dilations, 1+r.IntN(2))
		pads = append(pads, r.IntN(3), r.IntN(3))
	}
	attrs = map[string]any{"group": groups, "strides": strides, "dilations": dilations}
	if auto := []string{"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}[r.IntN(4)]; auto != "NOTSET" {
		attrs["auto_pad"] = auto
	} else {
		attrs["pads"] = pads
	}
	return "Conv", attrs, [][]int{x, w, pick(nil, []int{m})}
}

func TestProductsOfOtherPassesAreLeftToEval(t *testing.T) {
	g := parse(t, `graph "g"(%x: f32[2,2], %r: f32[2,2]) {
  %w: f32[2,2] = const {1, -2, 3, -4}
  %a: f32[2,2] = MatMul "a" (%x, %w) {spc_act = "Relu"}
  %b: f32[2,2] = Gemm "b" (%a, %w, _, %r)
  return %b
}`, op.Registry)
	one := tensor.From([]float32{1, 1, 1, 1}, 2, 2)
	out, err := Run(context.Background(), g, []*tensor.Tensor{one, one})
	if want := tensor.From([]float32{5, -7, 5, -7}, 2, 2); err != nil || !out[0].Equal(want) {
		t.Errorf("%v, %v, want %v", out[0].F32s(), err, want.F32s())
	}
}

func TestAProductEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	g := parse(t, `graph "g"(%x: f32[n,512]) {
  %y: f32[n,n] = Gemm "b" (%x, %x) {transB = 1}
  return %y
}`, op.Registry)
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	if _, err := Run(ctx, g, []*tensor.Tensor{tensor.New(tensor.F32, 6000, 512)}); err != context.Canceled {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it ended after %v", d)
	}
}
