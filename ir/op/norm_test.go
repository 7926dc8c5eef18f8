package op

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// near fails the test where tensors of one shape differ by more than tol.
func near(t *testing.T, what string, have, want *tensor.Tensor, tol float64) {
	t.Helper()
	if d := far(t, have, want); !(d <= tol) {
		t.Errorf("%s is off by %g, want at most %g: %v, want %v", what, d, tol, have.Float64s(), want.Float64s())
	}
}

// stats returns the mean and variance of values.
func stats(v []float64) (mean, variance float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		variance += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, variance
}

// TestNormalisationsGiveMeanAndVariance checks the statistics of each slice that
// a normalisation is over, with scale s and shift b: mean b and variance
// s*s*var/(var+epsilon).
func TestNormalisationsGiveMeanAndVariance(t *testing.T) {
	const seed = 31
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := noise(r, tensor.F64, 3, 4, 5, 2)
	two, three := tensor.From([]float64{2, 2, 2, 2}, 4), tensor.From([]float64{3, 3, 3, 3}, 4)
	same := func(at []int, axes ...int) func([]int) bool {
		return func(o []int) bool {
			for _, a := range axes {
				if o[a] != at[a] {
					return false
				}
			}
			return true
		}
	}
	for _, c := range []struct {
		node  string
		in    []*tensor.Tensor
		slice func(at []int) func([]int) bool
		mean  float64
		scale float64
		eps   float64
	}{
		{"InstanceNormalization {epsilon = 0.5}", []*tensor.Tensor{x, two, three},
			func(at []int) func([]int) bool { return same(at, 0, 1) }, 3, 2, 0.5},
		{"GroupNormalization {epsilon = 0.5, num_groups = 2}", []*tensor.Tensor{x, two, three},
			func(at []int) func([]int) bool {
				return func(o []int) bool { return o[0] == at[0] && o[1]/2 == at[1]/2 }
			}, 3, 2, 0.5},
		{"GroupNormalization {num_groups = 2, per_group = 1, epsilon = 0}", []*tensor.Tensor{x, tensor.From([]float64{2, 2}, 2), tensor.From([]float64{3, 3}, 2)},
			func(at []int) func([]int) bool {
				return func(o []int) bool { return o[0] == at[0] && o[1]/2 == at[1]/2 }
			}, 3, 2, 0},
		{"LayerNormalization {axis = 2, epsilon = 0.25}", []*tensor.Tensor{x, tensor.From([]float64{2}, 1), tensor.From([]float64{3, 3}, 2)},
			func(at []int) func([]int) bool { return same(at, 0, 1) }, 3, 2, 0.25},
		{"MeanVarianceNormalization", []*tensor.Tensor{x},
			func(at []int) func([]int) bool { return same(at, 1) }, 0, 1, 0},
		{"MeanVarianceNormalization {axes = [-1, 0]}", []*tensor.Tensor{x},
			func(at []int) func([]int) bool { return same(at, 1, 2) }, 0, 1, 0},
		{"BatchNormalization {training_mode = 1, epsilon = 0.125}", []*tensor.Tensor{x, two, three, two, three},
			func(at []int) func([]int) bool { return same(at, 1) }, 3, 2, 0.125},
	} {
		y := evals(t, c.node, 1, c.in...)[0]
		for i := range x.Len() {
			in := c.slice(coords(i, x.Shape()))
			var a, b []float64
			for j, v := range y.Float64s() {
				if in(coords(j, x.Shape())) {
					a, b = append(a, x.Float64s()[j]), append(b, v)
				}
			}
			_, before := stats(a)
			mean, variance := stats(b)
			want := c.scale * c.scale * before / (before + c.eps)
			if math.Abs(mean-c.mean) > 1e-6 || math.Abs(variance-want) > 1e-6 {
				t.Fatalf("%s: a slice has mean %g and variance %g, want %g and %g", c.node, mean, variance, c.mean, want)
			}
		}
	}
}

func TestBatchNormalization(t *testing.T) {
	v := func(x ...float32) *tensor.Tensor { return tensor.From(x, len(x)) }
	x := tensor.From([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, 2)
	mean, variance := v(1, 2), v(4, 9)
	y := evals(t, "BatchNormalization {epsilon = 0}", 1, x, v(2, 3), v(10, 20), mean, variance)[0]
	near(t, "inference", y, tensor.From([]float32{10, 11, 21, 22, 14, 15, 25, 26}, 2, 2, 2), 1e-6)

	out := evals(t, "BatchNormalization {training_mode = 1, momentum = 0.75}", 3, x, v(2, 3), v(10, 20), mean, variance)
	near(t, "running mean", out[1], v(0.75*1+0.25*3.5, 0.75*2+0.25*5.5), 1e-6)
	near(t, "running variance", out[2], v(0.75*4+0.25*4.25, 0.75*9+0.25*4.25), 1e-6)

	per := tensor.From([]float32{0, 1, 2, 3}, 2, 2) // a mean for each element of [C,D]
	ones := tensor.From([]float32{1, 1, 1, 1}, 2, 2)
	y = evals(t, "BatchNormalization {spatial = 0, epsilon = 0}", 1, x, ones, ones, per, ones)[0]
	near(t, "without sharing", y, tensor.From([]float32{2, 2, 2, 2, 6, 6, 6, 6}, 2, 2, 2), 1e-6)
}

func TestLayerNormalizationStatistics(t *testing.T) {
	x := tensor.From([]float32{1, 3, 5, 5}, 2, 2).To(tensor.F16)
	out := evals(t, "LayerNormalization {epsilon = 0.25}", 3, x, tensor.From([]float32{1}, 1).To(tensor.F16))
	near(t, "mean", out[1], tensor.From([]float32{2, 5}, 2, 1), 0)
	near(t, "inverse deviation", out[2], tensor.From([]float32{float32(1 / math.Sqrt(1.25)), 2}, 2, 1), 1e-6)
}

// Scale and B may differ between slices.
func TestNormalisationsScaledAsMulAndAddDo(t *testing.T) {
	const seed = 33
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := noise(r, tensor.F64, 2, 3, 4, 5)
	one := tensor.From([]float64{1}, 1)
	for _, shapes := range [][2][]int{{{4, 5}, {5}}, {{5}, {3, 1, 5}}, {{2, 1, 1, 5}, {3, 4, 1}}, {{4, 1}, {2, 3, 4, 5}}, {{}, {2, 1, 1, 1}}} {
		scale, b := noise(r, tensor.F64, shapes[0]...), noise(r, tensor.F64, shapes[1]...)
		for _, axis := range []string{"-1", "2"} {
			attrs := " {epsilon = 0.25, axis = " + axis + "}"
			plain := evals(t, "LayerNormalization"+attrs, 1, x, one)[0]
			want := evals(t, "Add", 1, evals(t, "Mul", 1, plain, scale)[0], b)[0]
			near(t, fmt.Sprint(shapes, attrs), evals(t, "LayerNormalization"+attrs, 1, x, scale, b)[0], want, 1e-12)

			want = evals(t, "Mul", 1, evals(t, "RMSNormalization"+attrs, 1, x, one)[0], scale)[0]
			near(t, fmt.Sprint(shapes[0], attrs), evals(t, "RMSNormalization"+attrs, 1, x, scale)[0], want, 1e-12)
		}
	}
}

func TestRMSAndLpNormalizationGiveUnitNorms(t *testing.T) {
	const seed = 32
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := noise(r, tensor.F64, 3, 4, 5)
	for _, c := range []struct {
		node string
		in   []*tensor.Tensor
		axes []int // that share a norm
		norm func([]float64) float64
	}{
		{"RMSNormalization {axis = 1, epsilon = 0}", []*tensor.Tensor{x, tensor.From([]float64{1}, 1)}, []int{0}, func(v []float64) float64 {
			m, s := stats(v)
			return m*m + s
		}},
		{"LpNormalization {axis = 1}", []*tensor.Tensor{x}, []int{0, 2}, func(v []float64) float64 {
			m, s := stats(v)
			return (m*m + s) * float64(len(v))
		}},
		{"LpNormalization {p = 1}", []*tensor.Tensor{x}, []int{0, 1}, func(v []float64) float64 {
			s := 0.0
			for _, e := range v {
				s += math.Abs(e)
			}
			return s
		}},
	} {
		y := evals(t, c.node, 1, c.in...)[0].Float64s()
		for i := range y {
			var slice []float64
			for j, v := range y {
				in := true
				for _, a := range c.axes {
					in = in && coords(i, x.Shape())[a] == coords(j, x.Shape())[a]
				}
				if in {
					slice = append(slice, v)
				}
			}
			if n := c.norm(slice); math.Abs(n-1) > 1e-9 {
				t.Fatalf("%s: a slice has norm %g, want 1", c.node, n)
			}
		}
	}
	zero := evals(t, "LpNormalization", 1, tensor.New(tensor.F32, 2, 3))[0]
	near(t, "a zero slice", zero, tensor.New(tensor.F32, 2, 3), 0)
}

func TestLRNSumsNeighbours(t *testing.T) {
	x := tensor.From([]float32{1, 2, 3, 4}, 1, 4, 1)
	for size, sums := range map[int][]float64{1: {1, 4, 9, 16}, 2: {5, 13, 25, 16}, 3: {5, 14, 29, 25}, 9: {30, 30, 30, 30}} {
		y := evals(t, fmt.Sprintf("LRN {size = %d, alpha = 2.0, beta = 0.5, bias = 1.0}", size), 1, x)[0]
		want := make([]float64, 4)
		for i, s := range sums {
			want[i] = float64(i+1) / math.Sqrt(1+2/float64(size)*s)
		}
		near(t, fmt.Sprintf("size %d", size), y, tensor.FromFloat64s(tensor.F32, want, 1, 4, 1), 1e-6)
	}
}

func TestSoftmaxFamily(t *testing.T) {
	const seed = 33
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := noise(r, tensor.F64, 2, 3, 4)
	shifted := x.Clone()
	for i := range shifted.Len() {
		tensor.Data[float64](shifted)[i] += 1000
	}
	for _, axis := range []int{0, 1, 2, -1, -3} {
		attrs := fmt.Sprintf(" {axis = %d}", axis)
		y := evals(t, "Softmax"+attrs, 1, x)[0]
		near(t, "shifted Softmax"+attrs, evals(t, "Softmax"+attrs, 1, shifted)[0], y, 1e-12)
		logs := evals(t, "LogSoftmax"+attrs, 1, x)[0]
		for i := range logs.Len() {
			tensor.Data[float64](logs)[i] = math.Exp(tensor.Data[float64](logs)[i])
		}
		near(t, "exp of LogSoftmax"+attrs, logs, y, 1e-12)
		a := norm(axis, 3)
		hard := evals(t, "Hardmax"+attrs, 1, x)[0]
		place := make([]float64, x.Len())
		for i := range place {
			place[i] = float64(i)
		}
		eachLine(place, x.Dim(a), product(x.Shape()[a+1:]), func(line []float64) {
			sum, ones, best := 0.0, 0.0, math.Inf(-1)
			for _, i := range line {
				at := int(i)
				sum += y.Float64s()[at]
				ones += hard.Float64s()[at]
				best = max(best, x.Float64s()[at])
			}
			if math.Abs(sum-1) > 1e-12 || ones != 1 {
				t.Errorf("axis %d: probabilities sum to %g, ones to %g", axis, sum, ones)
			}
			for _, i := range line {
				at := int(i)
				if hard.Float64s()[at] == 1 {
					if x.Float64s()[at] != best {
						t.Errorf("axis %d: Hardmax is not at the maximum", axis)
					}
					break
				}
				if x.Float64s()[at] == best {
					t.Errorf("axis %d: Hardmax is not at the first maximum", axis)
				}
			}
		})
	}
	flat := evals(t, "Softmax {axis = 1, coerce_2d = 1}", 1, x)[0]
	near(t, "flattened", flat, evals(t, "Softmax {axis = 1}", 1, x.Reshape(2, 12))[0].Reshape(2, 3, 4), 0)
	near(t, "scalar", evals(t, "Softmax", 1, tensor.Scalar(float32(7)))[0], tensor.Scalar(float32(1)), 0)
}

func TestLosses(t *testing.T) {
	x := tensor.From([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2, 3, 2) // [N,C,D]
	labels := tensor.From([]int64{0, 2, -7, 1}, 2, 2)
	weight := tensor.From([]float32{1, 10, 100}, 3)
	for _, c := range []struct {
		attrs string
		in    []*tensor.Tensor
		want  *tensor.Tensor
	}{
		{"reduction = \"none\", ignore_index = -7", []*tensor.Tensor{x, labels}, tensor.From([]float32{-1, -6, 0, -10}, 2, 2)},
		{"reduction = \"sum\", ignore_index = -7", []*tensor.Tensor{x, labels, weight}, tensor.Scalar(float32(-1 - 600 - 100))},
		{"ignore_index = -7", []*tensor.Tensor{x, labels, weight}, tensor.Scalar(float32(-701.0 / 111))},
		{"ignore_index = -7", []*tensor.Tensor{x, labels.To(tensor.I32)}, tensor.Scalar(float32(-17.0 / 3))},
	} {
		near(t, c.attrs, evals(t, "NegativeLogLikelihoodLoss {"+c.attrs+"}", 1, c.in...)[0], c.want, 1e-5)
		logs := evals(t, "LogSoftmax {axis = 1}", 1, x)[0]
		want := evals(t, "NegativeLogLikelihoodLoss {"+c.attrs+"}", 1, append([]*tensor.Tensor{logs}, c.in[1:]...)...)[0]
		out := evals(t, "SoftmaxCrossEntropyLoss {"+c.attrs+"}", 2, c.in...)
		near(t, "cross entropy, "+c.attrs, out[0], want, 1e-4)
		near(t, "logarithms", out[1], logs, 1e-6)
	}
	if _, err := run(t, "NegativeLogLikelihoodLoss", 1, x, labels); err == nil {
		t.Error("a label out of range was taken")
	}
}

func TestNormalisationRefusals(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{`BatchNormalization "n" (%x, %w, %w, %w, %v)`, "n (BatchNormalization): var is f32[3], want f32[4]"},
		{`InstanceNormalization "n" (%x, %v, %w)`, "n (InstanceNormalization): scale is f32[3], want f32[4]"},
		{`GroupNormalization "n" (%x, %w, %w) {num_groups = 3}`, "n (GroupNormalization): 4 channels do not split into 3 groups"},
		{`LayerNormalization "n" (%x, %w)`, "n (LayerNormalization): scale is f32[4], want one that broadcasts to f32[2,4,5]"},
		{`LayerNormalization "n" (%x, %w) {axis = 3}`, "n (LayerNormalization): axis 3 is out of range for rank 3"},
		{`RMSNormalization "n" (%x, %w) {axis = 1}`, "n (RMSNormalization): scale is f32[4], want one that broadcasts to f32[2,4,5]"},
		{`LpNormalization "n" (%x) {p = 3}`, "n (LpNormalization): p is 3, want 1 or 2"},
		{`LRN "n" (%x)`, "n (LRN): size is 0, want one from 1 to 1073741824"},
		{`LRN "n" (%x) {size = 4611686018427387905}`, "n (LRN): size is 4611686018427387905, want one from 1 to 1073741824"},
		{`MeanVarianceNormalization "n" (%x)`, "n (MeanVarianceNormalization): axis 3 is out of range for rank 3"},
		{`Softmax "n" (%x) {axis = 3}`, "n (Softmax): axis 3 is out of range for rank 3"},
		{`NegativeLogLikelihoodLoss "n" (%x, %i)`, "n (NegativeLogLikelihoodLoss): labels is i64[2], want i64[2,5]"},
		{`SoftmaxCrossEntropyLoss "n" (%x, %i) {reduction = "max"}`, "n (SoftmaxCrossEntropyLoss): labels is i64[2], want i64[2,5]"},
	} {
		err := inferError(t, `graph "g"(%x: f32[2,4,5], %w: f32[4], %v: f32[3], %i: i64[2]) { %z: f32[*] = `+c.node+` return %z }`)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.node, err, c.want)
		}
	}
}

func TestUpgradesOfNeuralNetworks(t *testing.T) {
	for _, c := range []struct {
		kind   string
		opset  int
		outs   int
		attrs  map[string]any
		want   string
		refuse bool
	}{
		{kind: "Softmax", opset: 9, outs: 1, want: "map[axis:1 coerce_2d:1]"},
		{kind: "LogSoftmax", opset: 11, outs: 1, attrs: map[string]any{"axis": 2}, want: "map[axis:2 coerce_2d:1]"},
		{kind: "Softmax", opset: 13, outs: 1, want: "map[]"},
		{kind: "Gemm", opset: 6, outs: 1, attrs: map[string]any{"broadcast": 1, "transB": 1}, want: "map[transB:1]"},
		{kind: "BatchNormalization", opset: 6, outs: 1, attrs: map[string]any{"is_test": 1, "spatial": 1, "consumed_inputs": []int{0, 0}}, want: "map[spatial:1]"},
		{kind: "BatchNormalization", opset: 6, outs: 3, attrs: map[string]any{"is_test": 0}, want: "map[training_mode:1]"},
		{kind: "BatchNormalization", opset: 9, outs: 3, want: "map[training_mode:1]"},
		{kind: "BatchNormalization", opset: 15, outs: 1, attrs: map[string]any{"training_mode": 0}, want: "map[training_mode:0]"},
		{kind: "GroupNormalization", opset: 18, outs: 1, want: "map[per_group:1]"},
		{kind: "GroupNormalization", opset: 21, outs: 1, want: "map[]"},
		{kind: "LpPool", opset: 1, outs: 1, attrs: map[string]any{"p": float32(3)}, want: "map[p:3]"},
		{kind: "GlobalLpPool", opset: 1, outs: 1, attrs: map[string]any{"p": float32(1.5)}, refuse: true},
		{kind: "LSTM", opset: 1, outs: 1, attrs: map[string]any{"output_sequence": 1}, want: "map[]"},
	} {
		l := &Legacy{Opset: c.opset, Kind: c.kind, Attrs: c.attrs, Graph: ir.NewGraph(""), Outs: c.outs}
		if l.Attrs == nil {
			l.Attrs = map[string]any{}
		}
		err := Lookup(c.kind).Upgrade(l)
		if (err != nil) != c.refuse {
			t.Errorf("%s of opset %d: %v", c.kind, c.opset, err)
		} else if have := fmt.Sprint(l.Attrs); err == nil && have != c.want {
			t.Errorf("%s of opset %d: %s, want %s", c.kind, c.opset, have, c.want)
		}
	}
}
