package cpu

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// isExact checks that the kernel of an operator gives the elements that Eval does. Inputs may be nil;
// those behind the first are constants where that is asked for.
func isExact(t *testing.T, o ir.Op, in []*tensor.Tensor, constant bool, threads int) {
	t.Helper()
	ctx := context.Background()
	g := ir.NewGraph("g")
	values, args := make([]*ir.Value, len(in)), []*tensor.Tensor(nil)
	for j, x := range in {
		switch {
		case x == nil:
		case constant && j > 0:
			values[j] = g.NewConst("c", x)
		default:
			values[j] = g.NewInput("x", ir.TypeOf(x))
			args = append(args, x)
		}
	}
	node := g.NewNode("p", o, values, "y")
	g.Outputs = node.Outputs
	if err := node.Infer(); err != nil {
		if strings.Contains(err.Error(), "does not fit") {
			return
		}
		t.Fatal(err)
	}
	want, err := (&ref.Interpreter{}).Run(ctx, g, args)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Device{}.Load(g, backend.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got := make([]*tensor.Tensor, 1)
	for range 2 {
		if err := p.Run(ctx, args, got); err != nil {
			t.Fatal(err)
		}
		if !got[0].Equal(want[0]) {
			t.Fatalf("%v differs for\n%s", got[0], g)
		}
	}
}

func TestMatMulIntegerIsExact(t *testing.T) {
	const seed = 811
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
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
		isExact(t, o, in, i%4 == 0, 1+i%2)
	}
}

func TestConvIntegerIsExact(t *testing.T) {
	const seed = 812
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	for i := range 200 {
		o, err := op.New("ConvInteger")
		if err != nil {
			t.Fatal(err)
		}
		conv := o.(*op.ConvInteger)
		m, c := pick(1, 5, 16, 64, 70), pick(1, 3, 4, 64)
		dt := []tensor.DType{tensor.U8, tensor.I8}[r.IntN(2)]
		x, w := []int{pick(1, 2), c}, []int{m, c}
		for range pick(1, 2, 2) {
			conv.Strides, conv.Dilations = append(conv.Strides, pick(1, 1, 2)), append(conv.Dilations, pick(1, 1, 2))
			conv.Pads = append(conv.Pads, r.IntN(2), r.IntN(2))
			x, w = append(x, pick(6, 9, 13)), append(w, pick(1, 2, 3))
		}
		in := []*tensor.Tensor{octets(r, tensor.U8, x...), octets(r, dt, w...), octets(r, tensor.U8), nil}
		if r.IntN(3) > 0 {
			in[3] = octets(r, dt, [][]int{{}, {m}}[r.IntN(2)]...)
		}
		isExact(t, o, in, i%8 != 0, 1+i%2)
	}
}
