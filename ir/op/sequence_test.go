package op

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// small01 returns numbers between -1 and 1, for functions that saturate.
func small01(r *rand.Rand, shape ...int) *tensor.Tensor {
	x := tensor.New(tensor.F64, shape...)
	for i := range x.Len() {
		tensor.Data[float64](x)[i] = 2*r.Float64() - 1
	}
	return x
}

// crop returns x[from:to] along an axis.
func crop(t *testing.T, x *tensor.Tensor, axis, from, to int) *tensor.Tensor {
	t.Helper()
	return evals(t, "Slice", 1, x, tensor.Ints(from), tensor.Ints(to), tensor.Ints(axis))[0]
}

// chain concatenates along an axis.
func chain(t *testing.T, axis int, x ...*tensor.Tensor) *tensor.Tensor {
	t.Helper()
	return evals(t, fmt.Sprintf("Concat {axis = %d}", axis), 1, x...)[0]
}

// backwards reverses the first n of each column of steps [seq, batch, ...].
func backwards(x *tensor.Tensor, lengths []int) *tensor.Tensor {
	y := x.Clone()
	inner := product(x.Shape()[2:])
	for b, n := range lengths {
		for s := range n {
			at := func(s int) int { return (s*len(lengths) + b) * inner }
			copy(tensor.Data[float64](y)[at(s):][:inner], tensor.Data[float64](x)[at(n-1-s):][:inner])
		}
	}
	return y
}

type recurrentCase struct {
	kind          string
	gates, states int
}

var recurrentCases = []recurrentCase{{"RNN", 1, 1}, {"GRU", 3, 1}, {"LSTM", 4, 2}}

// weights returns W, R and B for inputs of 3 and states of 5 elements.
func (c recurrentCase) weights(r *rand.Rand, dirs int) (w, rec, b *tensor.Tensor) {
	return small01(r, dirs, c.gates*5, 3), small01(r, dirs, c.gates*5, 5), small01(r, dirs, 2*c.gates*5)
}

func TestRecurrentStatesCarryOver(t *testing.T) {
	const seed = 41
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, c := range recurrentCases {
		w, rec, b := c.weights(r, 1)
		x := small01(r, 7, 2, 3)
		node := c.kind + " {hidden_size = 5}"
		all := evals(t, node, 1+c.states, x, w, rec, b)
		head := evals(t, node, 1+c.states, crop(t, x, 0, 0, 4), w, rec, b)
		tail := evals(t, node, 1+c.states, append([]*tensor.Tensor{crop(t, x, 0, 4, 7), w, rec, b, nil}, head[1:]...)...)
		near(t, c.kind+" in two parts", chain(t, 0, head[0], tail[0]), all[0], 1e-12)
		near(t, c.kind+" last state", tail[1], all[1], 1e-12)
		near(t, c.kind+" last output", all[1].Reshape(2, 5), crop(t, all[0], 0, 6, 7).Reshape(2, 5), 0)
	}
}

func TestRecurrentDirectionsLengthsAndLayouts(t *testing.T) {
	const seed = 42
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, c := range recurrentCases {
		w, rec, b := c.weights(r, 2)
		x := small01(r, 6, 3, 3)
		lengths := []int{6, 0, 4}
		lens := tensor.From([]int32{6, 0, 4}, 3)
		half := func(t2 *tensor.Tensor, d int) *tensor.Tensor { return crop(t, t2, 0, d, d+1) }
		both := evals(t, c.kind+" {direction = \"bidirectional\"}", 1+c.states, x, w, rec, b, lens)
		forward := evals(t, c.kind, 1+c.states, x, half(w, 0), half(rec, 0), half(b, 0), lens)
		reverse := evals(t, c.kind+" {direction = \"reverse\"}", 1+c.states, x, half(w, 1), half(rec, 1), half(b, 1), lens)
		mirror := evals(t, c.kind, 1+c.states, backwards(x, lengths), half(w, 1), half(rec, 1), half(b, 1), lens)
		near(t, c.kind+" reversed", reverse[0].Reshape(6, 3, 5), backwards(mirror[0].Reshape(6, 3, 5), lengths), 1e-12)
		near(t, c.kind+" both outputs", both[0], chain(t, 1, forward[0], reverse[0]), 1e-12)
		near(t, c.kind+" both states", both[1], chain(t, 0, forward[1], reverse[1]), 1e-12)
		for i, v := range both[0].Float64s() {
			if at := coords(i, both[0].Shape()); at[0] >= lengths[at[2]] && v != 0 {
				t.Fatalf("%s: output %v after the end is %g, want 0", c.kind, at, v)
			}
		}
		batched := evals(t, c.kind+" {direction = \"bidirectional\", layout = 1}", 1+c.states, x.Permute(1, 0, 2), w, rec, b, lens)
		near(t, c.kind+" batch first", batched[0], both[0].Permute(2, 0, 1, 3), 0)
		near(t, c.kind+" states, batch first", batched[1], both[1].Permute(1, 0, 2), 0)
		if _, err := run(t, c.kind, 1, x, half(w, 0), half(rec, 0), half(b, 0), tensor.From([]int32{6, 7, 4}, 3)); err == nil {
			t.Errorf("%s: a length beyond the sequence was taken", c.kind)
		}
	}
}

// TestRecurrentSteps checks one step of each cell against its equations.
func TestRecurrentSteps(t *testing.T) {
	f := func(v ...float64) *tensor.Tensor { return tensor.From(v, 1, len(v)) }
	sig := sigmoid
	x := tensor.From([]float64{0.5}, 1, 1, 1)
	h, c := tensor.From([]float64{0.25}, 1, 1, 1), tensor.From([]float64{-0.75}, 1, 1, 1)
	col := func(v ...float64) *tensor.Tensor { return tensor.From(v, 1, len(v), 1) }

	y := evals(t, `RNN {activations = ["Affine"], activation_alpha = [2.0], activation_beta = [3.0]}`, 2, x, col(4), col(8), f(1, 2), nil, h)
	near(t, "RNN", y[0].Reshape(1), tensor.From([]float64{2*(4*0.5+8*0.25+3) + 3}, 1), 1e-12)
	y = evals(t, `RNN {activations = ["Affine"], clip = 1.5}`, 2, x, col(4), col(8), f(1, 2), nil, h)
	near(t, "clipped RNN", y[0].Reshape(1), tensor.From([]float64{1.5}, 1), 0)

	w, r, b := col(1, 2, 3), col(4, 5, 6), f(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
	z := sig(0.5*1 + 0.25*4 + 0.1 + 0.4)
	rs := sig(0.5*2 + 0.25*5 + 0.2 + 0.5)
	before := math.Tanh(0.5*3 + rs*0.25*6 + 0.3 + 0.6)
	after := math.Tanh(0.5*3 + 0.3 + rs*(0.25*6+0.6))
	for attrs, n := range map[string]float64{"": before, " {linear_before_reset = 1}": after} {
		y = evals(t, "GRU"+attrs, 2, x, w, r, b, nil, h)
		near(t, "GRU"+attrs, y[1].Reshape(1), tensor.From([]float64{(1-z)*n + z*0.25}, 1), 1e-12)
	}

	w, r = col(1, 2, 3, 4), col(5, 6, 7, 8)
	p := f(0.1, 0.2, 0.3)
	i := sig(0.5*1 + 0.25*5 - 0.75*0.1)
	forget := sig(0.5*3 + 0.25*7 - 0.75*0.3)
	for attrs, fg := range map[string]float64{"": forget, " {input_forget = 1}": 1 - i} {
		cell := fg*-0.75 + i*math.Tanh(0.5*4+0.25*8)
		out := sig(0.5*2+0.25*6+cell*0.2) * math.Tanh(cell)
		y = evals(t, "LSTM"+attrs, 3, x, w, r, nil, nil, h, c, p)
		near(t, "LSTM"+attrs, y[1].Reshape(1), tensor.From([]float64{out}, 1), 1e-12)
		near(t, "LSTM cell"+attrs, y[2].Reshape(1), tensor.From([]float64{cell}, 1), 1e-12)
	}
}

func TestRecurrentActivations(t *testing.T) {
	one := tensor.From([]float64{1}, 1, 1, 1)
	zero := tensor.New(tensor.F64, 1, 1, 1)
	for name, f := range map[string]func(x float64) float64{
		"Relu":            func(x float64) float64 { return max(x, 0) },
		"Sigmoid":         sigmoid,
		"LeakyRelu":       func(x float64) float64 { return leaky(x, 0.01) },
		"ThresholdedRelu": func(x float64) float64 { return map[bool]float64{true: x}[x > 1] },
		"ScaledTanh":      math.Tanh,
		"HardSigmoid":     func(x float64) float64 { return min(max(0.2*x+0.5, 0), 1) },
		"Elu":             func(x float64) float64 { return map[bool]float64{true: x, false: math.Expm1(x)}[x > 0] },
		"softsign":        func(x float64) float64 { return x / (1 + math.Abs(x)) },
		"Softplus":        func(x float64) float64 { return math.Log(1 + math.Exp(x)) },
	} {
		for _, x := range []float64{-3, -0.5, 0.5, 3} {
			y := evals(t, fmt.Sprintf("RNN {activations = [%q]}", name), 1, tensor.From([]float64{x}, 1, 1, 1), one, zero)[0]
			if d := math.Abs(y.Float64s()[0] - f(x)); d > 1e-7 {
				t.Errorf("%s(%g) is off by %g", name, x, d)
			}
		}
	}
}

func TestAttentionSharesHeadsAndCaches(t *testing.T) {
	const seed = 43
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	q, k, v := small01(r, 2, 4, 6, 8), small01(r, 2, 2, 6, 8), small01(r, 2, 2, 6, 5)
	// repeated key heads
	twice := func(x *tensor.Tensor) *tensor.Tensor {
		s := x.Shape()
		return x.Reshape(s[0], s[1], 1, s[2], s[3]).Expand(s[0], s[1], 2, s[2], s[3]).Reshape(s[0], 2*s[1], s[2], s[3])
	}
	for _, attrs := range []string{"", "is_causal = 1", "softcap = 0.5", "left_window_size = 1", "scale = 0.125, is_causal = 1, left_window_size = 2"} {
		node := "Attention {" + attrs + "}"
		y := evals(t, node, 1, q, k, v)[0]
		near(t, node+" with repeated heads", evals(t, node, 1, q, twice(k), twice(v))[0], y, 1e-12)

		packed := func(x *tensor.Tensor) *tensor.Tensor {
			return x.Permute(0, 2, 1, 3).Reshape(x.Dim(0), x.Dim(2), x.Dim(1)*x.Dim(3))
		}
		three := "Attention {q_num_heads = 4, kv_num_heads = 2}"
		if attrs != "" {
			three = "Attention {q_num_heads = 4, kv_num_heads = 2, " + attrs + "}"
		}
		near(t, node+" of rank 3", evals(t, three, 1, packed(q), packed(k), packed(v))[0], packed(y), 1e-12)

		qkv := chain(t, 2, packed(q), packed(k), packed(k))
		near(t, node+" of parts of one input", evals(t, strings.Replace(three, "{", "{spc_packed = 1, ", 1), 1, qkv, qkv, qkv)[0],
			evals(t, three, 1, packed(q), packed(k), packed(k))[0], 1e-12)

		// The last two queries with the other keys as their past; only where no
		// query sees beyond the tokens before it.
		step := evals(t, node, 3, crop(t, q, 2, 4, 6), crop(t, k, 2, 4, 6), crop(t, v, 2, 4, 6), nil, crop(t, k, 2, 0, 4), crop(t, v, 2, 0, 4))
		near(t, node+" with a past", step[0], crop(t, y, 2, 4, 6), 1e-12)
		near(t, "present keys", step[1], k, 0)
		near(t, "present values", step[2], v, 0)

		// The same where the keys begin with the past.
		aligned := strings.Replace(strings.Replace(node, "{", "{spc_aligned = 1, ", 1), ", }", "}", 1)
		near(t, aligned, evals(t, aligned, 1, crop(t, q, 2, 4, 6), k, v)[0], crop(t, y, 2, 4, 6), 1e-12)

		// The same with a cache of 9 of which 6 are there.
		pad := func(x *tensor.Tensor) *tensor.Tensor {
			return chain(t, 2, x, small01(r, x.Dim(0), x.Dim(1), 3, x.Dim(3)))
		}
		cached := evals(t, node, 1, crop(t, q, 2, 4, 6), pad(k), pad(v), nil, nil, nil, tensor.Ints(6, 6))[0]
		near(t, node+" with a padded cache", cached, crop(t, y, 2, 4, 6), 1e-12)
	}
}

func TestAttentionScoresByStage(t *testing.T) {
	const seed = 44
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	q, k, v := small01(r, 1, 1, 3, 4), small01(r, 1, 1, 3, 4), small01(r, 1, 1, 3, 2)
	mask := small01(r, 3, 2) // one key short: the last is masked
	raw := evals(t, "MatMul", 1, q, k.Permute(0, 1, 3, 2))[0].Float64s()
	for i := range raw {
		raw[i] *= 0.5
	}
	stages := [][]float64{raw, make([]float64, 9), make([]float64, 9), make([]float64, 9)}
	for i, x := range raw {
		stages[1][i] = 2 * math.Tanh(x/2)
		stages[2][i] = math.Inf(-1)
		if i%3 < 2 {
			stages[2][i] = stages[1][i] + mask.Float64s()[i/3*2+i%3]
		}
	}
	copy(stages[3], stages[2])
	for i := range 3 {
		softmax(stages[3][3*i:][:3])
	}
	want := evals(t, "MatMul", 1, tensor.From(stages[3], 1, 1, 3, 3), v)[0]
	for stage, s := range stages {
		out := evals(t, fmt.Sprintf("Attention {softcap = 2.0, qk_matmul_output_mode = %d}", stage), 4, q, k, v, mask)
		near(t, "output", out[0], want, 1e-7)
		for i, x := range out[3].Float64s() {
			if math.Abs(x-s[i]) > 1e-7 {
				t.Errorf("stage %d: score %d is %g, want %g", stage, i, x, s[i])
			}
		}
	}
	none := tensor.From(make([]bool, 9), 3, 3)
	near(t, "a query without keys", evals(t, "Attention", 1, q, k, v, none)[0], tensor.New(tensor.F64, 1, 1, 3, 2), 0)
}

func TestLinearAttentionStatesCarryOver(t *testing.T) {
	const seed = 45
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	q, k, v := small01(r, 2, 5, 4*3), small01(r, 2, 5, 2*3), small01(r, 2, 5, 2*4)
	for _, c := range []struct {
		rule        string
		decay, beta *tensor.Tensor
	}{
		{"linear", nil, nil},
		{"gated", small01(r, 2, 5, 2), nil},
		{"gated", small01(r, 2, 5, 6), nil},
		{"delta", nil, small01(r, 2, 5, 2)},
		{"gated_delta", small01(r, 2, 5, 2), small01(r, 2, 5, 1)},
	} {
		node := fmt.Sprintf("LinearAttention {q_num_heads = 4, kv_num_heads = 2, update_rule = %q}", c.rule)
		part := func(from, to int, state *tensor.Tensor) []*tensor.Tensor {
			in := []*tensor.Tensor{q, k, v, nil, c.decay, c.beta}
			for i, x := range in {
				if x != nil {
					in[i] = crop(t, x, 1, from, to)
				}
			}
			in[3] = state
			for in[len(in)-1] == nil {
				in = in[:len(in)-1]
			}
			return evals(t, node, 2, in...)
		}
		all, head := part(0, 5, nil), part(0, 2, nil)
		tail := part(2, 5, head[1])
		near(t, node+" in two parts", chain(t, 1, head[0], tail[0]), all[0], 1e-12)
		near(t, node+" state", tail[1], all[1], 1e-12)
	}
	// Without decay and correction it is attention without a softmax.
	y := evals(t, `LinearAttention {q_num_heads = 1, kv_num_heads = 1, update_rule = "linear", scale = 1.0}`, 1,
		crop(t, q, 2, 0, 3), crop(t, k, 2, 0, 3), crop(t, v, 2, 0, 4))[0]
	scores := evals(t, "MatMul", 1, crop(t, q, 2, 0, 3), crop(t, k, 2, 0, 3).Permute(0, 2, 1))[0]
	for i := range scores.Len() {
		if at := coords(i, scores.Shape()); at[2] > at[1] {
			tensor.Data[float64](scores)[i] = 0
		}
	}
	near(t, "linear attention", y, evals(t, "MatMul", 1, scores, crop(t, v, 2, 0, 4))[0], 1e-12)
}

func TestCausalConvStatesCarryOver(t *testing.T) {
	const seed = 46
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x, w, b := small01(r, 2, 3, 6), small01(r, 3, 1, 4), small01(r, 3)
	for _, act := range []string{"none", "silu", "swish"} {
		node := fmt.Sprintf("CausalConvWithState {activation = %q}", act)
		all := evals(t, node, 2, x, w, b)
		head := evals(t, node, 2, crop(t, x, 2, 0, 1), w, b)
		tail := evals(t, node, 2, crop(t, x, 2, 1, 6), w, b, head[1])
		near(t, node+" in two parts", chain(t, 2, head[0], tail[0]), all[0], 1e-12)
		near(t, node+" state", all[1], crop(t, x, 2, 3, 6), 0)
		if act == "none" {
			near(t, "as a padded Conv", all[0], evals(t, "Conv {group = 3, pads = [3, 0]}", 1, x, w, b)[0], 1e-12)
		}
	}
}

func TestRotaryEmbeddingTurnsByPosition(t *testing.T) {
	const seed = 47
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const heads, depth, positions = 2, 6, 9
	cos, sin := tensor.New(tensor.F64, positions, depth/2), tensor.New(tensor.F64, positions, depth/2)
	for i := range cos.Len() {
		a := float64(i/3) * math.Pow(0.1, float64(i%3))
		tensor.Data[float64](cos)[i], tensor.Data[float64](sin)[i] = math.Cos(a), math.Sin(a)
	}
	x, z := small01(r, 1, heads, 1, depth), small01(r, 1, heads, 1, depth)
	for _, attrs := range []string{"", " {interleaved = 1}"} {
		turn := func(x *tensor.Tensor, p int) *tensor.Tensor {
			return evals(t, "RotaryEmbedding"+attrs, 1, x, cos, sin, tensor.Ints(p).Reshape(1, 1))[0]
		}
		dot := func(a, b *tensor.Tensor) float64 {
			s := 0.0
			for i, v := range a.Float64s() {
				s += v * b.Float64s()[i]
			}
			return s
		}
		near(t, "position 0"+attrs, turn(x, 0), x, 0)
		if a, b := dot(turn(x, 7), turn(z, 5)), dot(turn(x, 3), turn(z, 1)); math.Abs(a-b) > 1e-12 {
			t.Errorf("%s: products at equal distances are %g and %g", attrs, a, b)
		}
	}
	part := evals(t, "RotaryEmbedding {rotary_embedding_dim = 4}", 1, x, crop(t, cos, 1, 0, 2), crop(t, sin, 1, 0, 2), tensor.Ints(4).Reshape(1, 1))[0]
	near(t, "elements that stay", crop(t, part, 3, 4, 6), crop(t, x, 3, 4, 6), 0)
	packed := evals(t, "RotaryEmbedding {num_heads = 2}", 1, x.Reshape(1, 1, heads*depth), cos, sin, tensor.Ints(4).Reshape(1, 1))[0]
	direct := evals(t, "RotaryEmbedding", 1, x, crop(t, cos, 0, 4, 5).Reshape(1, 1, 3), crop(t, sin, 0, 4, 5).Reshape(1, 1, 3))[0]
	near(t, "packed heads", packed.Reshape(x.Shape()...), direct, 0)
	both := evals(t, "RotaryEmbedding", 1, chain(t, 0, x, x), crop(t, cos, 0, 4, 5).Reshape(1, 1, 3), crop(t, sin, 0, 4, 5).Reshape(1, 1, 3))[0]
	near(t, "two samples with one cache", both, chain(t, 0, direct, direct), 0)
	if _, err := run(t, "RotaryEmbedding", 1, x, cos, sin, tensor.Ints(9).Reshape(1, 1)); err == nil {
		t.Error("a position out of range was taken")
	}
}

func TestSwiGLU(t *testing.T) {
	a, b := tensor.From([]float32{-1, 0, 2}, 3), tensor.From([]float32{3, 5, 7}, 3)
	want := tensor.From([]float32{float32(-3 * sigmoid(-0.5)), 0, float32(14 * sigmoid(1))}, 3)
	near(t, "SwiGLU", evals(t, "SwiGLU {alpha = 0.5}", 1, a, b)[0], want, 1e-6)
}

func TestSequencesKeepSymbols(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{`%z: f32[*], %h: f32[*], %c: f32[*] = LSTM "n" (%x, %w, %r) {direction = "bidirectional"} return %z, %h, %c`,
			"f32[seq,2,batch,5] f32[2,batch,5] f32[2,batch,5]"},
		{`%z: f32[*], %h: f32[*], %c: f32[*] = LSTM "n" (%x, %w, %r) {direction = "bidirectional", layout = 1} return %z, %h, %c`,
			"f32[seq,batch,2,5] f32[seq,2,5] f32[seq,2,5]"},
		{`%z: f32[*], %h: f32[*], %c: f32[*], %s: f32[*] = Attention "n" (%q, %k, %k, _, %p, %p) return %z, %h, %c, %s`,
			"f32[batch,8,seq,64] f32[batch,2,(past+seq),64] f32[batch,2,(past+seq),64] f32[batch,8,seq,(past+seq)]"},
		{`%z: f32[*], %h: f32[*] = LinearAttention "n" (%y, %y, %y) {update_rule = "linear", q_num_heads = 2, kv_num_heads = 2} return %z, %h`,
			"f32[batch,seq,64] f32[batch,2,32,32]"},
		{`%z: f32[*], %h: f32[*] = CausalConvWithState "n" (%y, %f) return %z, %h`, "f32[batch,seq,64] f32[batch,seq,3]"},
	} {
		wantTypes(t, inferred(t, `graph "g"(%x: f32[seq,batch,3], %w: f32[2,20,3], %r: f32[2,20,5], %y: f32[batch,seq,64], %f: f32[seq,1,4],
  %q: f32[batch,8,seq,64], %k: f32[batch,2,seq,64], %p: f32[batch,2,past,64]) { `+c.node+` }`), c.want)
	}
}

func TestSequenceRefusals(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{`LSTM "n" (%x, %w, %w)`, "n (LSTM): W is f32[1,20,3], want f32[1,12,3]"},
		{`LSTM "n" (%x, %w, %r) {hidden_size = 4}`, "n (LSTM): W is f32[1,20,3], want f32[1,16,3]"},
		{`GRU "n" (%x, %w, %r)`, "n (GRU): W is f32[1,20,3], want f32[1,15,3]"},
		{`RNN "n" (%x, %w, %r) {activations = ["Tanh", "Relu"]}`, "n (RNN): 2 activations, want 1"},
		{`RNN "n" (%x, %w, %r) {activations = ["Sine"]}`, `n (RNN): unknown activation "Sine"`},
		{`LSTM "n" (%x, %w, %r) {direction = "both"}`, `n (LSTM): direction is "both", want forward, reverse or bidirectional`},
		{`Attention "n" (%q, %k, %v)`, "n (Attention): 4 query heads are no multiple of 3 key heads"},
		{`Attention "n" (%q, %q, %k)`, "n (Attention): Q is f32[2,4,5,8], K f32[2,4,5,8] and V f32[2,3,5,8]: key heads of 4 and 3"},
		{`Attention "n" (%x, %x, %x)`, "n (Attention): q_num_heads is missing or not within 1 and 65536, which Q of rank 3 needs"},
		{`Attention "n" (%q, %q, %q, %x)`, "n (Attention): mask is f32[7,2,3], want one that broadcasts to f32[2,4,5,5]"},
		{`Attention "n" (%q, %q, %q, _, %q)`, "n (Attention): past_key and past_value must come together"},
		{`Attention "n" (%q, %q, %q) {qk_matmul_output_mode = 4}`, "n (Attention): qk_matmul_output_mode is 4, want 0 to 3"},
		{`LinearAttention "n" (%x, %x, %x) {q_num_heads = 1, kv_num_heads = 1}`,
			"n (LinearAttention): update_rule gated_delta has decay: false and beta: false, want true and true"},
		{`LinearAttention "n" (%x, %x, %x) {update_rule = "linear"}`, "n (LinearAttention): 0 query heads and 0 key heads, want a multiple of at most 65536"},
		{`RotaryEmbedding "n" (%x, %w, %w)`, "n (RotaryEmbedding): num_heads is missing or not within 1 and 65536, which input of rank 3 needs"},
		{`RotaryEmbedding "n" (%q, %q, %q)`, "n (RotaryEmbedding): cos_cache is f32[2,4,5,8], want f32[2,5,4]"},
		{`SwiGLU "n" (%q, %k)`, "n (SwiGLU): B is f32[2,3,5,8], want f32[2,4,5,8]"},
		{`CausalConvWithState "n" (%x, %w)`, "n (CausalConvWithState): weight is f32[1,20,3], want f32[2,1,3]"},
	} {
		err := inferError(t, `graph "g"(%x: f32[7,2,3], %w: f32[1,20,3], %r: f32[1,20,5], %q: f32[2,4,5,8], %k: f32[2,3,5,8], %v: f32[2,3,5,8]) { %z: f32[*] = `+c.node+` return %z }`)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.node, err, c.want)
		}
	}
}

// TestNeuralNetworkWork checks that the work of products counts multiply-adds twice.
func TestNeuralNetworkWork(t *testing.T) {
	for _, c := range []struct {
		node string
		want float64
	}{
		{`Conv "n" (%x, %w) {group = 2}`, 2 * 8 * 36 * 2 * 9},
		{`ConvTranspose "n" (%x, %u)`, 2 * 64 * 4 * 3 * 9},
		{`MatMul "n" (%x, %m)`, 2 * 4 * 64 * 5},
		{`Gemm "n" (%m, %m) {transA = 1}`, 2 * 5 * 5 * 8},
		{`MaxPool "n" (%x) {kernel_shape = [3, 3]}`, 4 * 36 * 9},
		{`RNN "n" (%s, %k, %r)`, 2 * 14 * (5*3 + 5*5)},
		{`Attention "n" (%x, %x, %x)`, 2 * 2 * 4 * 64 * 8},
	} {
		g, err := ir.Parse(`graph "g"(%x: f32[1,4,8,8], %w: f32[8,2,3,3], %u: f32[4,3,3,3], %m: f32[8,5], %s: f32[7,2,3], %k: f32[1,5,3], %r: f32[1,5,5]) {
  %y: f32[*] = `+c.node+`
  return %y
}`, Registry)
		if err == nil {
			err = g.Infer()
		}
		if err != nil {
			t.Fatal(err)
		}
		n := g.Nodes[0]
		var in []ir.Type
		for _, v := range n.Inputs {
			in = append(in, v.Type)
		}
		if w := n.Op.Work(in, []ir.Type{n.Outputs[0].Type}); w.FLOPs != c.want || w.Bytes <= 0 {
			t.Errorf("%s: work %+v, want %g operations", c.node, w, c.want)
		}
	}
}

// TestPickingWork checks that of a table only the rows count that are read.
func TestPickingWork(t *testing.T) {
	for _, c := range []struct {
		node string
		want float64
	}{
		{`Gather "n" (%x, %i)`, 4 * (3*8*2 + 2*3)},
		{`Slice "n" (%x, %a, %b)`, 4*5*8*2 + 8*2},
		{`Gather "n" (%y, %i)`, 4 * (2 + 3 + 2*3)},
	} {
		g, err := ir.Parse(`graph "g"(%x: f32[1000,8], %y: f32[2], %i: i64[3]) {
  %a: i64[1] = const {5}
  %b: i64[1] = const {10}
  %z: f32[*] = `+c.node+`
  return %z
}`, Registry)
		if err == nil {
			err = g.Infer()
		}
		if err != nil {
			t.Fatal(err)
		}
		w, known := g.Nodes[0].Work()
		if !known || w.Bytes != c.want {
			t.Errorf("%s: work %+v, known %v, want %g bytes", c.node, w, known, c.want)
		}
	}
}

func TestFlexAttentionModifiers(t *testing.T) {
	const seed = 48
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	q, k, v := small01(r, 2, 4, 3, 8), small01(r, 2, 2, 5, 8), small01(r, 2, 2, 5, 6)
	plain := evals(t, "Attention", 1, q, k, v)[0]
	eval := func(attrs string, run func(g *ir.Graph, x *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
		t.Helper()
		g, err := ir.Parse(`graph "g"(%q: f64[b,4,s,8], %k: f64[b,2,t,8], %v: f64[b,2,t,6]) {
  %y: f64[*] = ai.onnx.preview:FlexAttention "n" (%q, %k, %v) `+attrs+`
  return %y
}`, Registry)
		if err == nil {
			err = g.Infer()
		}
		if err == nil {
			err = g.Verify()
		}
		if err != nil {
			t.Fatal(err)
		}
		wantTypes(t, []ir.Type{g.Outputs[0].Type}, "f64[b,4,s,6]")
		out, err := g.Nodes[0].Op.Eval(&ir.Eval{Outputs: 1, Run: func(g *ir.Graph, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			return []*tensor.Tensor{run(g, in[0])}, nil
		}}, []*tensor.Tensor{q, k, v})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	near(t, "without modifiers", eval("", nil), plain, 1e-12)
	double := func(g *ir.Graph, x *tensor.Tensor) *tensor.Tensor {
		two := tensor.Scalar(2.0)
		return evals(t, "Mul", 1, x, two)[0]
	}
	const mod = `graph "mod"(%x: f64[*]) { %z: f64[*] = Add "add" (%x, %x) return %z }`
	want := evals(t, "Attention {scale = 0.75}", 1, q, k, v)[0]
	near(t, "doubled scores", eval("{scale = 0.375, score_mod = "+mod+"}", double), want, 1e-12)
	near(t, "doubled probabilities", eval("{prob_mod = "+mod+"}", double), double(nil, plain), 1e-12)

	for _, c := range []struct{ attrs, want string }{
		{`{prob_mod = graph "m"(%x: f64[*]) { %z: f64[*] = ReduceSum "s" (%x) return %z }}`, "subgraph m gives f64[1,1,1,1], want f64[2,4,5,5]"},
		{`{prob_mod = graph "m"(%x: f64[*]) { return %x, %x }}`, "subgraph m has 1 inputs and 2 outputs, want 1 and 1"},
	} {
		err := inferError(t, `graph "g"(%q: f64[2,4,5,8]) { %y: f64[*] = ai.onnx.preview:FlexAttention "n" (%q, %q, %q) `+c.attrs+` return %y }`)
		if want := "n (ai.onnx.preview:FlexAttention): " + c.want; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestEmptyInputsOfHugeDimensions evaluates operators on tensors without elements
// whose other dimensions no loop could run over.
func TestEmptyInputsOfHugeDimensions(t *testing.T) {
	const huge = 1 << 40
	e := func(shape ...int) *tensor.Tensor { return tensor.New(tensor.F32, shape...) }
	for _, c := range []struct {
		node string
		in   []*tensor.Tensor
		want []int
	}{
		{"Conv", []*tensor.Tensor{e(huge, 2, 0), e(3, 2, 1)}, []int{huge, 3, 0}},
		{"ConvTranspose", []*tensor.Tensor{e(huge, 2, 0), e(2, 3, 1)}, []int{huge, 3, 0}},
		{"MaxPool {kernel_shape = [2]}", []*tensor.Tensor{e(0, huge, 5)}, []int{0, huge, 4}},
		{"AveragePool {kernel_shape = [1]}", []*tensor.Tensor{e(huge, 4, 0)}, []int{huge, 4, 0}},
		{"GlobalAveragePool", []*tensor.Tensor{e(0, huge, 5)}, []int{0, huge, 1}},
		{"MatMul", []*tensor.Tensor{e(huge, 0, 3), e(3, 2)}, []int{huge, 0, 2}},
		{"Gemm", []*tensor.Tensor{e(0, huge), e(huge, 0)}, []int{0, 0}},
		{"Softmax", []*tensor.Tensor{e(huge, 0, 3)}, []int{huge, 0, 3}},
		{"BatchNormalization", []*tensor.Tensor{e(huge, 1, 0), e(1), e(1), e(1), e(1)}, []int{huge, 1, 0}},
		{"LayerNormalization", []*tensor.Tensor{e(0, huge, 2), e(2)}, []int{0, huge, 2}},
		{"LRN {size = 1}", []*tensor.Tensor{e(0, huge, 2)}, []int{0, huge, 2}},
		{"LSTM", []*tensor.Tensor{e(0, huge, 3), e(1, 0, 3), e(1, 0, 0)}, []int{0, 1, huge, 0}},
		{"Attention", []*tensor.Tensor{e(huge, 1, 0, 2), e(huge, 1, 0, 2), e(huge, 1, 0, 2)}, []int{huge, 1, 0, 2}},
		{"LinearAttention {q_num_heads = 1, kv_num_heads = 1, update_rule = \"linear\"}", []*tensor.Tensor{e(huge, 0, 0), e(huge, 0, 0), e(huge, 0, 2)}, []int{huge, 0, 2}},
		{"RotaryEmbedding", []*tensor.Tensor{e(huge, 1, 0, 2), e(huge, 0, 1), e(huge, 0, 1)}, []int{huge, 1, 0, 2}},
		{"CausalConvWithState", []*tensor.Tensor{e(huge, 0, 3), e(0, 1, 2)}, []int{huge, 0, 3}},
		{"SwiGLU", []*tensor.Tensor{e(huge, 0), e(huge, 0)}, []int{huge, 0}},
	} {
		if y := evals(t, c.node, 1, c.in...)[0]; !ir.TypeOf(y).Equal(ir.Shaped(tensor.F32, c.want...)) {
			t.Errorf("%s: %v, want %v", c.node, y, c.want)
		}
	}
}

func TestNegativeHiddenSizeIsRefused(t *testing.T) {
	err := inferError(t, `graph "g"(%x: f32[s,1,3], %w: f32[1,n,3], %r: f32[1,n,h]) { %y: f32[*] = GRU "n" (%x, %w, %r) {hidden_size = -1} return %y }`)
	if err == nil {
		t.Error("no error")
	}
}

func TestRankIsBounded(t *testing.T) {
	ones := func(rank int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", rank), ",") + "]" }
	gather := func(rank int) error {
		return inferError(t, `graph "g"(%x: f32`+ones(40)+`, %i: i64`+ones(rank-39)+`) { %y: f32[*] = Gather "n" (%x, %i) {axis = 0} return %y }`)
	}
	if err := gather(tensor.MaxRank); err != nil {
		t.Errorf("an output of %d dimensions: %v", tensor.MaxRank, err)
	}
	if gather(tensor.MaxRank+1) == nil {
		t.Errorf("an output of %d dimensions is accepted", tensor.MaxRank+1)
	}
	if _, err := ir.Parse(`graph "g"(%x: f32`+ones(tensor.MaxRank+1)+`) { return %x }`, Registry); err == nil {
		t.Errorf("a declaration of %d dimensions is parsed", tensor.MaxRank+1)
	}
}
