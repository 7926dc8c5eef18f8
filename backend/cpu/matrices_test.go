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

func TestMatMulIntegerIsExact(t *testing.T) {
	const seed = 811
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	ctx := context.Background()
	for i := range 300 {
		m, k, n := pick(1, 3, 17, 64, 65, 130), pick(1, 3, 4, 7, 64, 70), pick(1, 5, 16, 63, 64, 65, 130)
		lead := [][2][]int{{{}, {}}, {{2}, {}}, {{}, {2}}, {{3, 1}, {2}}, {{2}, {2}}, {{1}, {1, 1}}}[r.IntN(6)]
		types := []tensor.DType{tensor.U8, tensor.I8}
		adt, bdt := types[r.IntN(2)], types[r.IntN(2)]
		in := []*tensor.Tensor{
			octets(r, adt, append(append([]int{}, lead[0]...), m, k)...), octets(r, bdt, append(append([]int{}, lead[1]...), k, n)...), nil, nil,
		}
		if r.IntN(3) > 0 {
			in[2] = octets(r, adt, [][]int{{}, {1}, {m}}[r.IntN(3)]...)
		}
		if r.IntN(3) > 0 {
			in[3] = octets(r, bdt, [][]int{{}, {1}, {n}}[r.IntN(3)]...)
		}
		o, err := op.New("MatMulInteger")
		if err != nil {
			t.Fatal(err)
		}
		g := ir.NewGraph("g")
		values, args := make([]*ir.Value, len(in)), []*tensor.Tensor(nil)
		for j, x := range in {
			if x != nil {
				values[j] = g.NewInput("x", ir.TypeOf(x))
				args = append(args, x)
			}
		}
		node := g.NewNode("p", o, values, "y")
		g.Outputs = node.Outputs
		if err := node.Infer(); err != nil {
			t.Fatal(err)
		}
		want, err := (&ref.Interpreter{}).Run(ctx, g, args)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Device{}.Load(g, backend.Options{Threads: 1 + i%2})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]*tensor.Tensor, 1)
		for range 2 {
			if err := p.Run(ctx, args, got); err != nil {
				t.Fatal(err)
			}
			if !got[0].Equal(want[0]) {
				t.Fatalf("%d: %v differs for\n%s", i, got[0], g)
			}
		}
		p.Close()
	}
}
