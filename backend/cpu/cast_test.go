package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

func TestCastsOf16BitFloats(t *testing.T) {
	const seed = 8
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16} {
		for _, n := range []int{0, 1, 15, 16, 41, 3*chunk + 5} {
			g, err := ir.Parse(fmt.Sprintf(`graph "g"(%%x: f32[%[1]d]) {
  %%h: %[2]v[%[1]d] = Cast "narrow" (%%x) {to = %[3]d}
  %%y: f32[%[1]d] = Cast "widen" (%%h) {to = 1}
  return %%h, %%y
}`, n, dt, int(dt)), op.Registry)
			if err != nil {
				t.Fatal(err)
			}
			for _, node := range g.Nodes {
				if b, err := bindCast(nil, node); b == nil || err != nil {
					t.Errorf("%v: no kernel, %v", node, err)
				}
			}
			x := tensor.New(tensor.F32, n)
			for i := range x.F32s() {
				x.F32s()[i] = float32(rng.NormFloat64() * 3e4)
			}
			want, err := ref.Run(context.Background(), g, []*tensor.Tensor{x})
			if err != nil {
				t.Fatal(err)
			}
			p, err := Device{}.Load(g, backend.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			got := make([]*tensor.Tensor, 2)
			if err := p.Run(context.Background(), []*tensor.Tensor{x}, got); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if !got[i].Equal(want[i]) {
					t.Errorf("%d numbers through %v: output %d differs", n, dt, i)
				}
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
