package cpu

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

func init() {
	cases["reduce"] = func(x *text) (string, string) {
		shape := reduceShape(x)
		if x.rng.IntN(8) == 0 && len(shape) > 1 {
			return []string{"GlobalAveragePool", "GlobalMaxPool"}[x.rng.IntN(2)], ""
		}
		if axes := x.rng.Perm(len(shape))[:x.rng.IntN(len(shape)+1)]; len(axes) > 0 {
			x.ints(axes...)
		}
		return reduceKinds[x.rng.IntN(len(reduceKinds))], fmt.Sprintf("keepdims = %d", x.rng.IntN(2))
	}
	cases["softmax, any axis"] = func(x *text) (string, string) {
		shape := reduceShape(x)
		return []string{"Softmax", "LogSoftmax"}[x.rng.IntN(2)], fmt.Sprintf("axis = %d, coerce_2d = %d", x.rng.IntN(len(shape))-len(shape)*x.rng.IntN(2), x.rng.IntN(2))
	}
}

var reduceKinds = []string{"ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}

// reduceShape adds an input of one to five axes, some of them of one element.
func reduceShape(x *text) []int {
	shape := make([]int, 1+x.rng.IntN(5))
	for i := range shape {
		shape[i] = 1 + x.rng.IntN(7)
	}
	shape[x.rng.IntN(len(shape))] = 1
	shape[x.rng.IntN(len(shape))] = []int{1, 2, 31, 33, 100, 1100, 5000}[x.rng.IntN(7-min(4, max(0, len(shape)-2)))]
	x.input(shape...)
	return shape
}

// Reductions over any axes, and positions of extremes, are those of the operators, for numbers of any size, and where there are
// infinities and NaN.
func TestReductionsOfAnyNumbers(t *testing.T) {
	const seed = 41
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	draws := map[string]func() float32{
		"small":  func() float32 { return float32(rng.NormFloat64() * 1e-25) },
		"large":  func() float32 { return float32(rng.NormFloat64() * 1e38) },
		"ranges": func() float32 { return float32(math.Exp2(float64(rng.IntN(250) - 125))) },
		"ties":   func() float32 { return float32(rng.IntN(3)) },
		"few special": func() float32 {
			if rng.IntN(40) == 0 {
				return []float32{inf, -inf, float32(math.NaN())}[rng.IntN(3)]
			}
			return float32(rng.NormFloat64())
		},
		"minus infinity": func() float32 { return -inf },
		"zeros":          func() float32 { return 0 },
	}
	for round := range 60 {
		for _, name := range slices.Sorted(maps.Keys(draws)) { // one order, so that a seed gives one test
			draw := draws[name]
			x := &text{rng: rng}
			src, g, in := x.node(t, func(x *text) (string, string) {
				shape := reduceShape(x)
				if rng.IntN(2) == 0 {
					return []string{"ArgMax", "ArgMin"}[rng.IntN(2)], fmt.Sprintf("axis = %d, keepdims = %d, select_last_index = %d", rng.IntN(len(shape))-len(shape)*rng.IntN(2), rng.IntN(2), rng.IntN(2))
				}
				if axes := rng.Perm(len(shape))[:rng.IntN(len(shape)+1)]; len(axes) > 0 {
					x.ints(axes...)
				}
				return append(reduceKinds, "ReduceLogSum")[rng.IntN(1+len(reduceKinds))], ""
			}, draw)
			got, want := both(t, src, g, in)
			near := sumScale(name, in[0])
			if strings.Contains(src, "Log") {
				near += 2e-7 // what a rounding of the sum moves its logarithm by, however close to 0 that is
			}
			if got.DType() == tensor.I64 {
				if !got.Equal(want) {
					t.Fatalf("round %d, %s: %v, want %v in\n%s", round, name, got, want, src)
				}
				continue
			}
			for i, w := range want.F32s() {
				v := got.F32s()[i]
				if same := v == w || v != v && w != w; !same && !(math.Abs(float64(v-w)) <= 1e-5*math.Abs(float64(w))+near) {
					t.Fatalf("round %d, %s: element %d is %v, want %v in\n%s", round, name, i, v, w, src)
				}
			}
		}
	}
}

// Sums of integers are exact, and wrap around.
func TestSumsOfIntegers(t *testing.T) {
	const seed = 42
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 60 {
		x := &text{rng: rng}
		shape := reduceShape(x)
		axes, dims := rng.Perm(len(shape))[:1+rng.IntN(len(shape))], make([]string, len(shape))
		for i, n := range shape {
			dims[i] = fmt.Sprint(n)
		}
		src := fmt.Sprintf(`graph "g"(%%x: i64[%s]) {
  %%axes: i64[%d] = const {%s}
  %%y: i64[*] = ReduceSum "y" (%%x, %%axes) {keepdims = %d}
  return %%y }`, strings.Join(dims, ","), len(axes), strings.Trim(strings.ReplaceAll(fmt.Sprint(axes), " ", ", "), "[]"), rng.IntN(2))
		g, err := ir.Parse(src, op.Registry)
		if err == nil {
			err = g.Infer()
		}
		if err != nil {
			t.Fatal(err)
		}
		in := tensor.New(tensor.I64, shape...)
		for i := range tensor.Data[int64](in) {
			tensor.Data[int64](in)[i] = int64(rng.Uint64()) >> rng.IntN(64)
		}
		if got, want := both(t, src, g, []*tensor.Tensor{in}); !got.Equal(want) {
			t.Fatalf("%v, want %v in\n%s", got, want, src)
		}
	}
}

// sumScale is how far off sums of numbers of either sign may be.
func sumScale(name string, x *tensor.Tensor) float64 {
	if name == "ranges" {
		return 0
	}
	sum := 0.0
	for _, v := range x.F32s() {
		if finite(v) {
			sum += math.Abs(float64(v))
		}
	}
	return 1e-6 * sum
}

// both runs a graph of one output by its kernels and by the interpreter.
func both(t *testing.T, src string, g *ir.Graph, in []*tensor.Tensor) (got, want *tensor.Tensor) {
	t.Helper()
	wants, err := ref.Run(context.Background(), g, in)
	if err != nil {
		t.Fatal(err)
	}
	gots, err := run(context.Background(), load(t, src), in)
	if err != nil {
		t.Fatalf("%v in\n%s", err, src)
	}
	if gots[0].String() != wants[0].String() {
		t.Fatalf("%v, want %v in\n%s", gots[0], wants[0], src)
	}
	return gots[0], wants[0]
}
