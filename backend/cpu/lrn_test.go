package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// compared runs a graph with a kernel for each node on inputs, and returns its output and that of the interpreter.
func compared(t *testing.T, text string, threads int, in ...*tensor.Tensor) (got, want *tensor.Tensor) {
	t.Helper()
	g, err := ir.Parse(text, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Device{}.Load(g, backend.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wants, err := ref.Run(context.Background(), g, in)
	if err != nil {
		t.Fatal(err)
	}
	gots := make([]*tensor.Tensor, 1)
	if err := p.Run(context.Background(), in, gots); err != nil {
		t.Fatal(err)
	}
	allFast(t, p, g)
	return gots[0], wants[0]
}

// Windows of every size over channels, and planes of several blocks, are normalised as the interpreter does it.
func TestLRN(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{1, 2, 3, 4, 5, 8, 40} {
		for _, shape := range [][]int{{2, 7, 5, 3}, {1, 12, 70, 31}, {3, 1, 9}, {2, 6}} {
			beta := []float64{0.5, 0.75, 1, -2}[r.IntN(4)]
			text := fmt.Sprintf(`graph "g"(%%x: f32[%[1]s]) { %%y: f32[%[1]s] = LRN "n" (%%x) {size = %d, alpha = 0.3, beta = %v, bias = 1.5} return %%y }`, joined(shape), size, beta)
			x := tensor.New(tensor.F32, shape...)
			for i := range x.F32s() {
				x.F32s()[i] = float32(4 * r.NormFloat64())
			}
			got, want := compared(t, text, 1+r.IntN(2), x)
			for i, v := range got.F32s() {
				if w := want.F32s()[i]; !(math.Abs(float64(v-w)) <= 2e-6*math.Abs(float64(w))) {
					t.Fatalf("%s: element %d is %v, want %v", text, i, v, w)
				}
			}
		}
	}
}

// Elements are shortened as the interpreter does it.
func TestShrink(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{0, 1, 31, 3*chunk + 5} {
		got, want := compared(t, fmt.Sprintf(`graph "g"(%%x: f32[%[1]d]) { %%y: f32[%[1]d] = Shrink "n" (%%x) {lambd = 1.5, bias = 0.25} return %%y }`, n), 2, whole(r, tensor.F32, []int{n}))
		if !got.Equal(want) {
			t.Fatalf("of %d elements: %v, want %v", n, got, want)
		}
	}
}

func joined(shape []int) string {
	s := fmt.Sprint(shape[0])
	for _, n := range shape[1:] {
		s += fmt.Sprintf(",%d", n)
	}
	return s
}
