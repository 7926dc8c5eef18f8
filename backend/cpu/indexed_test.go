package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// indexedNode draws a node that gathers or scatters, the shapes of its inputs, and of what its indices are positions.
func indexedNode(rng *rand.Rand) (kind, attrs string, shapes [][]int, sizes func(i int) int) {
	shape := make([]int, 1+rng.IntN(4))
	for i := range shape {
		shape[i] = 1 + rng.IntN(6)
	}
	last := len(shape) - 1
	if rng.IntN(6) == 0 {
		axis := rng.IntN(len(shape))
		sizes = func(int) int { return shape[axis] }
		if other := (axis + 1) % len(shape); other != axis && rng.IntN(4) == 0 {
			shape[other] = 0 // indices are to be in range of nothing, too
		}
		return "Gather", fmt.Sprintf("axis = %d", axis-len(shape)*rng.IntN(2)), [][]int{shape, [][]int{{}, {1}, {2, 5}}[rng.IntN(3)]}, sizes
	}
	shape[last] = []int{1, 3, 40, 300}[rng.IntN(4)]
	if rng.IntN(2) == 0 {
		axis := rng.IntN(len(shape))
		at := slices.Clone(shape)
		for i := range at {
			at[i] = 1 + rng.IntN(at[i])
		}
		at[axis] = 1 + rng.IntN(9)
		attrs = fmt.Sprintf("axis = %d", axis-len(shape)*rng.IntN(2))
		sizes = func(int) int { return shape[axis] }
		if rng.IntN(2) == 0 {
			return "GatherElements", attrs, [][]int{shape, at}, sizes
		}
		return "ScatterElements", attrs + reductionOf(rng), [][]int{shape, at, at}, sizes
	}
	gather := rng.IntN(2) == 0
	batch := 0
	if gather {
		batch = rng.IntN(len(shape))
	}
	k := 1 + rng.IntN(len(shape)-batch)
	if batch+k <= last && rng.IntN(4) == 0 {
		shape[last] = 0
	}
	at := slices.Clone(shape[:batch])
	for range 1 + rng.IntN(2) {
		at = append(at, 1+rng.IntN(9))
	}
	sizes = func(i int) int { return shape[batch+i%k] }
	if at = append(at, k); gather {
		return "GatherND", fmt.Sprintf("batch_dims = %d", batch), [][]int{shape, at}, sizes
	}
	return "ScatterND", strings.TrimPrefix(reductionOf(rng), ","), [][]int{shape, at, slices.Concat(at[:len(at)-1], shape[k:])}, sizes
}

func reductionOf(rng *rand.Rand) string {
	return fmt.Sprintf(", reduction = %q", []string{"none", "add", "mul", "max", "min"}[rng.IntN(5)])
}

// What indices name is what the operators find there, of any type, and an index that names nothing is refused as they do.
func TestIndexedAgreesWithOperators(t *testing.T) {
	const seed = 47
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	types := []string{"f32", "f32", "f32", "f64", "i32", "i64", "u8", "i8", "f16", "bool"}
	for round := range 600 {
		kind, attrs, shapes, sizes := indexedNode(rng)
		dt, index := types[rng.IntN(len(types))], []string{"i64", "i32"}[rng.IntN(2)]
		if dt == "bool" && !strings.Contains(attrs, "none") {
			dt = "u8"
		}
		ports := []string{"%x: " + dt + dims(shapes[0]), "%i: " + index + dims(shapes[1])}
		args := "%x, %i"
		if len(shapes) > 2 {
			ports, args = append(ports, "%u: "+dt+dims(shapes[2])), args+", %u"
		}
		src := fmt.Sprintf("graph \"g\"(%s) {\n  %%y: %s[*] = %s \"n\" (%s) {%s}\n  return %%y\n}", strings.Join(ports, ", "), dt, kind, args, strings.TrimSpace(attrs))
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatalf("%v in\n%s", err, src)
		}
		var in []*tensor.Tensor
		for i, v := range g.Inputs {
			e := make([]float64, prod(shapes[i]))
			for k := range e {
				if i == 1 {
					e[k] = float64(rng.IntN(2*sizes(k)) - sizes(k))
				} else if e[k] = float64(rng.IntN(5)); dt == "bool" {
					e[k] = float64(rng.IntN(2))
				}
			}
			in = append(in, tensor.From(e, shapes[i]...).To(v.Type.DType))
		}
		p, err := Device{}.Load(g, backend.Options{Threads: 1 + round%3})
		if err != nil {
			t.Fatal(err)
		}
		check := func() {
			want, wantErr := ref.Run(context.Background(), g, in)
			got, err := run(context.Background(), p, in)
			if wantErr != nil {
				if !errors.Is(err, ir.ErrInvalid) || !strings.HasSuffix(wantErr.Error(), err.Error()[strings.Index(err.Error(), "index"):]) {
					t.Fatalf("error %v, want %v in\n%s", err, wantErr, src)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, src)
			}
			if got[0].String() != want[0].String() || string(got[0].Bytes()) != string(want[0].Bytes()) {
				t.Fatalf("%v, want %v in\n%s", got[0], want[0], src)
			}
		}
		check()
		i := rng.IntN(in[1].Len())
		list := in[1].Int64s()
		list[i] = int64(sizes(i) - round%2*(2*sizes(i)+1))
		if j := rng.IntN(len(list)); round%3 == 0 {
			list[j] = int64(1000 + j)
		}
		in[1] = tensor.FromInt64s(in[1].DType(), list, in[1].Shape()...)
		check()
		p.Close()
		if find := finders[kind]; find != nil {
			want, wantErr := ref.Run(context.Background(), g, in)
			got, err := find(g.Nodes[0], in)
			if (err != nil) != (wantErr != nil) || err == nil && (got[0].String() != want[0].String() || string(got[0].Bytes()) != string(want[0].Bytes())) {
				t.Fatalf("%v (%v), want %v (%v) in\n%s", got, err, want, wantErr, src)
			}
		}
	}
}

// Elements that are not zero are listed as the operator lists them.
func TestNonZeroListsWhatTheOperatorLists(t *testing.T) {
	const seed = 61
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		shape := make([]int, rng.IntN(4))
		for i := range shape {
			shape[i] = rng.IntN(7)
		}
		v := make([]float64, prod(shape))
		for i := range v {
			v[i] = float64(rng.IntN(2))
			if rng.IntN(9) == 0 {
				v[i] = math.Copysign(0, -1)
			}
		}
		x := tensor.From(v, shape...).To([]tensor.DType{tensor.Bool, tensor.F32, tensor.I64, tensor.I32, tensor.F64, tensor.U8}[rng.IntN(6)])
		o := &op.NonZero{}
		want, err := o.Eval(&ir.Eval{Outputs: 1}, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		got, err := nonZero(&ir.Node{Op: o}, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].String() != want[0].String() || !got[0].Equal(want[0]) {
			t.Fatalf("%v of %v, want %v", got[0], x, want[0])
		}
	}
}
