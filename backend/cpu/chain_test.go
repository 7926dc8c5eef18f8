package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/plan"
)

// Chains of convolutions compute what their members do one by one, with residuals
// from outside and inside of the chain, and results that others read.
func TestChainsAgreeWithTheirMembers(t *testing.T) {
	const seed = 30
	t.Logf("seed %d", seed)
	chained := 0
	for round := range 60 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		images, c, h, w := 1+r.IntN(3), 1+r.IntN(9), 1+r.IntN(20), 1+r.IntN(20)
		m1, m2, m3 := 1+r.IntN(90), c, 1+r.IntN(70)
		kernel, stride := 1+2*r.IntN(2), 1
		constant := func(name string, shape ...int) string {
			v := make([]string, prod(shape))
			for i := range v {
				v[i] = fmt.Sprintf("%.3f", r.NormFloat64())
			}
			return fmt.Sprintf("  %%%s: f32%s = const {%s}\n", name, dims(shape), strings.Join(v, ", "))
		}
		act := func() string {
			if a := activationTexts[r.IntN(len(activationTexts))]; a != "" {
				return ", " + a
			}
			return ""
		}
		x := dims([]int{images, c, h, w})
		var b strings.Builder
		fmt.Fprintf(&b, "graph \"g\"(%%x: f32%s) {\n", x)
		b.WriteString(constant("w1", m1, c, kernel, kernel) + constant("b1", m1) + constant("w2", m2, m1, 1, 1) + constant("w3", m3, m2, 1, 1))
		fmt.Fprintf(&b, "  %%a: f32[*] = Tanh \"a\" (%%x)\n")
		fmt.Fprintf(&b, "  %%p: f32[*] = Conv \"p\" (%%a, %%w1, %%b1) {strides = [%d, %d], pads = [%d, %d, %d, %d]%s}\n", stride, stride, kernel/2, kernel/2, kernel/2, kernel/2, act())
		residual := []string{"", ", _, %a"}[r.IntN(2)]
		fmt.Fprintf(&b, "  %%q: f32[*] = Conv \"q\" (%%p, %%w2%s) {strides = [1, 1]%s}\n", residual, act())
		fmt.Fprintf(&b, "  %%r: f32[*] = Conv \"r\" (%%q, %%w3) {strides = [1, 1]%s}\n", act())
		outputs := []string{"%r", "%r, %p", "%r, %q", "%r, %a"}[r.IntN(4)]
		fmt.Fprintf(&b, "  return %s\n}", outputs)
		src := b.String()
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatalf("%v in\n%s", err, src)
		}
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		in := tensor.New(tensor.F32, images, c, h, w)
		for i := range in.F32s() {
			in.F32s()[i] = float32(r.NormFloat64())
		}
		want, err := ref.Run(context.Background(), g, []*tensor.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := Device{}.Load(plan.New(g), backend.Options{Threads: 1 + round%2})
		if err != nil {
			t.Fatal(err)
		}
		p := dev.(*program)
		for _, traced := range []bool{false, true, false} {
			got := make([]*tensor.Tensor, len(g.Outputs))
			var trace func(*ir.Node, time.Duration)
			if traced {
				trace = func(*ir.Node, time.Duration) {}
			}
			if err := p.Trace(context.Background(), []*tensor.Tensor{in}, got, trace); err != nil {
				t.Fatalf("%v in\n%s", err, src)
			}
			for i := range want {
				var diff, size float64
				for j, w := range want[i].F32s() {
					d := float64(got[i].F32s()[j]) - float64(w)
					diff, size = diff+d*d, size+float64(w)*float64(w)
				}
				if !(diff <= 1e-10*size) {
					t.Fatalf("output %d, traced %v: relative l2 error %g in\n%.3000s", i, traced, math.Sqrt(diff/size), src)
				}
			}
		}
		s, err := p.specialise([]*tensor.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range s.main.order {
			if len(st.members) > 1 {
				chained++
			}
		}
		p.Close()
	}
	if chained < 20 {
		t.Errorf("%d chains in 60 rounds", chained)
	}
}
