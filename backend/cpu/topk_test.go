package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// The largest and the smallest elements are those that the operator finds, equal ones in its order, of any type.
func TestTopKFindsThoseOfTheOperator(t *testing.T) {
	const seed = 43
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	special := []float64{float64(inf), float64(-inf), math.NaN(), 0, float64(negativeZero)}
	for range 300 {
		shape := []int{1 + rng.IntN(4), 1 + rng.IntN(9), 1 + rng.IntN(5)}
		axis := rng.IntN(3)
		shape[axis] = 1 + rng.IntN(900)
		dt := []tensor.DType{tensor.F32, tensor.F32, tensor.I8, tensor.I16, tensor.I32, tensor.U8, tensor.U16, tensor.U32, tensor.I64, tensor.I64, tensor.U64, tensor.F16}[rng.IntN(12)]
		values := 1 + rng.IntN([]int{2, 200, 1e6}[rng.IntN(3)])
		v := make([]float64, prod(shape))
		for i := range v {
			if v[i] = float64(rng.IntN(values)); dt.Size() < 4 {
				v[i] = float64(rng.IntN(min(values, 200)))
			}
			if dt.IsSigned() {
				v[i] -= float64(min(values, 200) / 2)
			}
			if dt.IsFloat() && rng.IntN(9) == 0 {
				v[i] = special[rng.IntN(len(special))]
			}
		}
		if dt.Size() == 8 && rng.IntN(2) == 0 {
			v[rng.IntN(len(v))] = 1 << 40
		}
		x := tensor.From(v, shape...).To(dt)
		k := rng.IntN(shape[axis] + 1)
		src := fmt.Sprintf("graph \"g\"(%%x: %v%s) {\n  %%k: i64[1] = const {%d}\n  %%y: %v[*], %%i: i64[*] = TopK \"n\" (%%x, %%k) {axis = %d, largest = %d}\n  return %%y, %%i\n}",
			dt, dims(shape), k, dt, axis-3*rng.IntN(2), rng.IntN(2))
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ref.Run(context.Background(), g, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		got, err := run(context.Background(), load(t, src), []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i].String() != want[i].String() || string(got[i].Bytes()) != string(want[i].Bytes()) {
				t.Fatalf("output %d is %v, want %v in\n%s", i, got[i], want[i], src)
			}
		}
	}
}
