package cpu

import (
	"context"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// What a loop lengthens in each round is not bound anew in each.
func TestLoopsThatJoin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	g, err := ir.Parse(`graph "g"(%n: i64[], %x: f32[2,1,3]) {
  %yes: bool[] = const {1}
  %y: f32[2,?l,3] = Loop "loop" (%n, %yes, %x) {body = graph "body"(%i: i64[], %go: bool[], %v: f32[2,?k,3]) {
    %big: i64[1] = const {1000}
    %one: i64[1] = const {1}
    %at: i64[1] = Reshape "at" (%i, %one)
    %part: f32[2,?p,3] = Slice "slice" (%v, %at, %big, %one)
    %w: f32[2,?m,3] = Concat "concat" (%v, %part) {axis = 1}
    return %go, %w
  }}
  return %y
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Device{}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		in := []*tensor.Tensor{tensor.Scalar(int64(n)), tensor.New(tensor.F32, 2, 1, 3)}
		for i := range in[1].F32s() {
			in[1].F32s()[i] = float32(r.NormFloat64())
		}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]*tensor.Tensor, 1)
		if err := p.Run(context.Background(), in, got); err != nil {
			t.Fatal(err)
		}
		if !got[0].Equal(want[0]) {
			t.Errorf("%d rounds: %v, want %v", n, got[0], want[0])
		}
	}
	s, err := p.(*program).specialise(headers(g))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, b := range s.blocks {
		for _, st := range b.steps {
			if kind := st.node.Op.Kind(); kind == "Concat" || kind == "Slice" {
				if seen++; st.dynamic != nil {
					t.Errorf("%v is bound for each size", st.node)
				}
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d nodes, want a Concat and a Slice", seen)
	}
	if err := s.drop(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
