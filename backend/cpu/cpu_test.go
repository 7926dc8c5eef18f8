package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/ref"
	"spc/internal/debug"
	_ "spc/internal/debug/all"
	"spc/internal/memory"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// text is a graph of one node whose constants are random.
type text struct {
	rng    *rand.Rand
	inputs []string
	lines  []string
	args   []string
}

func dims(shape []int) string { return strings.ReplaceAll(fmt.Sprint(shape), " ", ",") }

func (x *text) input(shape ...int) {
	name := fmt.Sprintf("%%x%d", len(x.args))
	x.inputs = append(x.inputs, name+": f32"+dims(shape))
	x.args = append(x.args, name)
}

func (x *text) constant(shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	v := make([]string, n)
	for i := range v {
		v[i] = fmt.Sprintf("%.3f", x.rng.NormFloat64())
	}
	name := fmt.Sprintf("%%c%d", len(x.args))
	x.lines = append(x.lines, fmt.Sprintf("  %s: f32%s = const {%s}", name, dims(shape), strings.Join(v, ", ")))
	x.args = append(x.args, name)
}

func (x *text) absent() { x.args = append(x.args, "_") }

func (x *text) graph(kind, attrs string) string {
	return fmt.Sprintf("graph \"g\"(%s) {\n%s\n  %%y: f32[*] = %s \"n\" (%s) {%s}\n  return %%y\n}",
		strings.Join(x.inputs, ", "), strings.Join(x.lines, "\n"), kind, strings.Join(x.args, ", "), attrs)
}

// node builds a node and its inputs, of elements that draw returns. The graph is nil
// where the shapes do not go together.
func (x *text) node(t *testing.T, build func(*text) (kind, attrs string), draw func() float32) (src string, g *ir.Graph, in []*tensor.Tensor) {
	t.Helper()
	src = x.graph(build(x))
	g, err := ir.Parse(src, op.Registry)
	if err != nil {
		t.Fatalf("%v in\n%s", err, src)
	}
	if g.Infer() != nil {
		return src, nil, nil
	}
	for _, v := range g.Inputs {
		a := tensor.New(tensor.F32, shapeOf(v)...)
		for i := range a.F32s() {
			a.F32s()[i] = draw()
		}
		in = append(in, a)
	}
	return src, g, in
}

var activationTexts = []string{
	"", `spc_act = "Relu"`, `spc_act = "Clip", spc_act_args = [-0.5, 0.75]`, `spc_act = "Swish", spc_act_args = [1.0]`,
	`spc_act = "Gelu", spc_act_args = [0.0]`, `spc_act = "Gelu", spc_act_args = [1.0]`, `spc_act = "HardSwish"`,
	`spc_act = "HardSigmoid", spc_act_args = [0.2, 0.5]`, `spc_act = "LeakyRelu", spc_act_args = [0.1]`, `spc_act = "Tanh"`, `spc_act = "Sigmoid"`,
}

// cases makes random nodes of the operators that have kernels.
var cases = map[string]func(x *text) (kind, attrs string){
	"conv": func(x *text) (string, string) {
		r := x.rng
		groups := []int{1, 1, 1, 2, 3}[r.IntN(5)]
		c, m := groups*(1+r.IntN(4)), groups*(1+r.IntN(40))
		kh, kw := 1+r.IntN(3), 1+r.IntN(3)
		h, w := kh+r.IntN(9), kw+r.IntN(12)
		n, s := 1+r.IntN(2), 1+r.IntN(3)
		x.input(n, c, h, w)
		x.constant(m, c/groups, kh, kw)
		return convTail(x, "Conv", m, fmt.Sprintf("group = %d, strides = [%d, %d], pads = [%d, %d, %d, %d]", groups, s, 1+r.IntN(2), r.IntN(kh), r.IntN(kw), r.IntN(kh), r.IntN(kw)))
	},
	"pointwise": func(x *text) (string, string) {
		r := x.rng
		c, m := 1+r.IntN(70), 1+r.IntN(70)
		x.input(1+r.IntN(2), c, 1+r.IntN(9), 1+r.IntN(9))
		x.constant(m, c, 1, 1)
		return convTail(x, "Conv", m, "")
	},
	"flat": func(x *text) (string, string) { // the patch is the image
		r := x.rng
		c, m, kh, kw := 1+r.IntN(20), 1+r.IntN(150), 1+r.IntN(3), 1+r.IntN(3)
		x.input(1+r.IntN(3), c, kh, kw)
		x.constant(m, c, kh, kw)
		return convTail(x, "Conv", m, "")
	},
	"single": func(x *text) (string, string) { // the patch is a corner of the image
		r := x.rng
		c, m, kh, kw := 1+r.IntN(20), 1+r.IntN(150), 1+r.IntN(3), 1+r.IntN(3)
		h, w := kh+r.IntN(3), kw+1+r.IntN(3)
		x.input(1+r.IntN(3), c, h, w)
		x.constant(m, c, kh, kw)
		return convTail(x, "Conv", m, fmt.Sprintf("strides = [%d, %d]", h, w))
	},
	"depthwise": func(x *text) (string, string) {
		r := x.rng
		c, k := 2+r.IntN(6), 1+r.IntN(5)
		x.input(1+r.IntN(2), c, k+r.IntN(9), k+r.IntN(9))
		x.constant(c, 1, k, k)
		return convTail(x, "Conv", c, fmt.Sprintf("group = %d, strides = [%d, %d], dilations = [1, 1], pads = [%d, %d, 0, 0]", c, 1+r.IntN(2), 1+r.IntN(2), r.IntN(k), r.IntN(k)))
	},
	"depthwise, three axes": func(x *text) (string, string) {
		r := x.rng
		c, t, k := 2+r.IntN(6), 1+r.IntN(3), 1+r.IntN(5)
		x.input(1+r.IntN(2), c, 2*t+r.IntN(4), k+r.IntN(9), k+r.IntN(9))
		x.constant(c, 1, t, k, k)
		s := 1 + r.IntN(2)
		return convTail(x, "Conv", c, fmt.Sprintf("group = %d, strides = [%d, %d, %d], dilations = [%d, 1, 1], pads = [%d, %d, %d, %d, 0, 0]",
			c, 1+r.IntN(3), s, s, 1+r.IntN(2), r.IntN(2*t), r.IntN(k), r.IntN(k), r.IntN(t)))
	},
	"conv1d": func(x *text) (string, string) {
		r := x.rng
		c, m, k := 1+r.IntN(5), 1+r.IntN(9), 1+r.IntN(4)
		x.input(1+r.IntN(2), c, 2*k+r.IntN(80))
		x.constant(m, c, k)
		return convTail(x, "Conv", m, fmt.Sprintf("strides = [%d], dilations = [%d], pads = [%d, 0]", 1+r.IntN(3), 1+r.IntN(2), r.IntN(3)))
	},
	"convtranspose": func(x *text) (string, string) {
		r := x.rng
		c, m, k, s := 1+r.IntN(5), 1+r.IntN(9), 1+r.IntN(4), 1+r.IntN(3)
		x.input(1+r.IntN(2), c, 2+r.IntN(7), 2+r.IntN(7))
		x.constant(c, m, k, k)
		return convTail(x, "ConvTranspose", m, fmt.Sprintf("strides = [%d, %d], dilations = [1, %d], pads = [%d, 0, 0, %d]", s, 1+r.IntN(3), 1+r.IntN(2), r.IntN(k), r.IntN(k)))
	},
	"conv, taps beyond the image": func(x *text) (string, string) {
		r := x.rng
		c, m, k := 1+r.IntN(5), 1+r.IntN(9), 1+2*r.IntN(3)
		d := 1 + r.IntN(12)
		pad := d * (k / 2)
		x.input(1+r.IntN(2), c, 1+r.IntN(9), 1+r.IntN(9))
		x.constant(m, c, k, k)
		return convTail(x, "Conv", m, fmt.Sprintf("strides = [1, %d], dilations = [%d, %d], pads = [%d, %d, %d, %d]", 1+r.IntN(2), d, d, pad, pad+r.IntN(3), pad, pad))
	},
	"convtranspose, phases": func(x *text) (string, string) {
		r := x.rng
		c, m, sh, sw := 1+r.IntN(5), 1+r.IntN(9), 1+r.IntN(3), 2+r.IntN(3)
		kh, kw := sh+r.IntN(4), sw+r.IntN(5)
		x.input(1+r.IntN(2), c, 2+r.IntN(7), 2+r.IntN(20))
		x.constant(c, m, kh, kw)
		return convTail(x, "ConvTranspose", m, fmt.Sprintf("strides = [%d, %d], pads = [%d, %d, %d, %d], output_padding = [%d, %d]",
			sh, sw, r.IntN(kh), r.IntN(kw), r.IntN(kh), r.IntN(kw), r.IntN(sh), r.IntN(sw)))
	},
	"convtranspose 1d": func(x *text) (string, string) {
		r := x.rng
		c, m, s := 1+r.IntN(5), 1+r.IntN(9), 1+r.IntN(8)
		n := 2 + r.IntN(40)
		x.input(1+r.IntN(2), c, n)
		x.constant(c, m, s+r.IntN(9))
		if r.IntN(2) == 0 {
			return convTail(x, "ConvTranspose", m, fmt.Sprintf(`strides = [%d], auto_pad = "SAME_UPPER"`, s))
		}
		return convTail(x, "ConvTranspose", m, fmt.Sprintf("strides = [%d], output_shape = [%d]", s, n*s+r.IntN(3)))
	},
	"linear": func(x *text) (string, string) {
		r := x.rng
		t, k, m := []int{1, 3, 4, 5, 31, 32, 33, 70}[r.IntN(8)], 1+r.IntN(70), 1+r.IntN(70)
		x.input(2, t, k)
		x.constant(k, m)
		if r.IntN(2) == 0 {
			x.constant(m)
		} else {
			x.absent()
		}
		if r.IntN(2) == 0 {
			x.input(2, t, m)
		}
		return "MatMul", activationTexts[r.IntN(len(activationTexts))]
	},
	"constant left": func(x *text) (string, string) {
		r := x.rng
		k, m, n := 1+r.IntN(40), 1+r.IntN(40), 1+r.IntN(70)
		x.constant(m, k)
		x.input(k, n)
		return "MatMul", activationTexts[r.IntN(len(activationTexts))]
	},
	"batched": func(x *text) (string, string) {
		r := x.rng
		m, k, n, b := 1+r.IntN(40), 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(3)
		x.input([][]int{{2, b, m, k}, {b, m, k}, {2, 1, m, k}}[r.IntN(3)]...)
		x.input([][]int{{2, b, k, n}, {b, k, n}, {1, k, n}}[r.IntN(3)]...)
		return "MatMul", ""
	},
	"few rows, or one column": func(x *text) (string, string) {
		r := x.rng
		m, k, n, b := 1+r.IntN(fewRows+1), 1+r.IntN(40), []int{1, 2, 17, 64, 65, 1023, 1025, 1100}[r.IntN(8)], 1+r.IntN(3)
		if r.IntN(3) == 0 {
			m, n = 1+r.IntN(150), 1
		}
		x.input(2, b, m, k)
		x.input([][]int{{2, b, k, n}, {b, k, n}, {1, k, n}, {k, n}}[r.IntN(4)]...)
		x.absent()
		if r.IntN(2) == 0 {
			x.input(2, b, m, n)
		}
		return "MatMul", activationTexts[r.IntN(len(activationTexts))]
	},
	"gemm": func(x *text) (string, string) {
		r := x.rng
		t, k, m := []int{1, 4, 5, 33}[r.IntN(4)], 1+r.IntN(40), 1+r.IntN(40)
		ta, tb := r.IntN(2), r.IntN(2)
		x.input([][]int{{t, k}, {k, t}}[ta]...)
		x.constant([][]int{{k, m}, {m, k}}[tb]...)
		switch r.IntN(5) {
		case 0:
			x.constant(m)
		case 1:
			x.constant(t, 1)
		case 2:
			x.input(t, m)
		case 3:
			x.constant(1)
		}
		return "Gemm", fmt.Sprintf("transA = %d, transB = %d, alpha = %.1f, beta = %.1f", ta, tb, []float64{1, 0.5}[r.IntN(2)], []float64{1, 2, 0}[r.IntN(3)])
	},
	"pool": func(x *text) (string, string) {
		r := x.rng
		k := 1 + r.IntN(3)
		x.input(1+r.IntN(2), 1+r.IntN(3), k+r.IntN(9), k+r.IntN(9))
		return []string{"MaxPool", "AveragePool"}[r.IntN(2)], fmt.Sprintf("kernel_shape = [%d, %d], strides = [%d, 2], pads = [%d, 0, 0, %d], ceil_mode = %d", k, k, 1+r.IntN(3), r.IntN(k), r.IntN(k), r.IntN(2))
	},
	"binary": func(x *text) (string, string) {
		shapes := [][]int{{3, 5, 4}, {1}, {4}, {5, 1}, {3, 1, 4}, {3, 5, 1}, {1, 1, 1}, {2, 3, 5, 4}}
		x.input(shapes[x.rng.IntN(len(shapes))]...)
		x.input(shapes[x.rng.IntN(len(shapes))]...)
		return []string{"Add", "Sub", "Mul", "Div"}[x.rng.IntN(4)], ""
	},
	"unary": func(x *text) (string, string) {
		x.input(1+x.rng.IntN(40), 1+x.rng.IntN(40))
		return []string{"Relu", "Sigmoid", "Tanh", "HardSwish", "Exp", "Erf", "Neg", "Abs", "Gelu", "Swish", "Softmax"}[x.rng.IntN(11)], ""
	},
	"attention": func(x *text) (string, string) {
		r := x.rng
		sizes := []int{1, 2, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200}
		b, kv, group := 1+r.IntN(2), 1+r.IntN(2), 1+r.IntN(2)
		s, t, d, dv := sizes[r.IntN(len(sizes))], sizes[r.IntN(len(sizes))], 1+r.IntN(24), 1+r.IntN(24)
		attrs := fmt.Sprintf("is_causal = %d", r.IntN(2))
		for _, side := range []string{"left", "right"} {
			if r.IntN(4) == 0 {
				attrs += fmt.Sprintf(", %s_window_size = %d", side, r.IntN(t+2))
			}
		}
		lengths := r.IntN(4) == 0
		if !lengths {
			attrs += fmt.Sprintf(", spc_aligned = %d", r.IntN(2))
		}
		switch r.IntN(3) {
		case 0:
			x.input(b, kv*group, s, d)
			x.input(b, kv, t, d)
			x.input(b, kv, t, dv)
		case 1:
			x.input(b, s, kv*group*d)
			x.input(b, t, kv*d)
			x.input(b, t, kv*dv)
			attrs += fmt.Sprintf(", q_num_heads = %d, kv_num_heads = %d, scale = 0.3", kv*group, kv)
		default:
			t = s
			x.input(b, s, kv*(group+2)*d)
			x.args = append(x.args, x.args[0], x.args[0])
			attrs += fmt.Sprintf(", q_num_heads = %d, kv_num_heads = %d, spc_packed = 1", kv*group, kv)
		}
		switch r.IntN(6) {
		case 0:
			x.input(b, 1, 1, t)
		case 1:
			x.input(s, t)
		case 2:
			x.input(kv*group, 1, t)
		case 3:
			x.input(1, kv*group, s, max(1, t-3)) // the rest is hidden
		}
		if lengths {
			for len(x.args) < 6 {
				x.absent()
			}
			var n []string
			for range b {
				n = append(n, strconv.Itoa(r.IntN(t+1)))
			}
			x.lines = append(x.lines, fmt.Sprintf("  %%n: i64[%d] = const {%s}", b, strings.Join(n, ", ")))
			x.args = append(x.args, "%n")
		}
		return "Attention", attrs
	},
	"norm": func(x *text) (string, string) {
		n := 1 + x.rng.IntN(70)
		x.input(1+x.rng.IntN(4), 1+x.rng.IntN(9), n)
		x.constant(n)
		if x.rng.IntN(2) == 0 {
			return "RMSNormalization", "epsilon = 0.001"
		}
		x.constant(n)
		return "LayerNormalization", "epsilon = 0.001"
	},
	"norm of channels": func(x *text) (string, string) {
		groups, per := 1+x.rng.IntN(3), 1+x.rng.IntN(3)
		shape := []int{1 + x.rng.IntN(2), groups * per, 1 + x.rng.IntN(40), 1 + x.rng.IntN(200)}
		x.input(shape[:2+x.rng.IntN(3)]...)
		kind, attrs, factors := "InstanceNormalization", "epsilon = 0.001", groups*per
		switch x.rng.IntN(4) {
		case 0:
			kind, attrs = "GroupNormalization", fmt.Sprintf("epsilon = 0.001, num_groups = %d", groups)
		case 1:
			kind, attrs, factors = "GroupNormalization", fmt.Sprintf("epsilon = 0.001, num_groups = %d, per_group = 1", groups), groups
		}
		x.constant(factors)
		x.constant(factors)
		return kind, attrs
	},
	"Lp norm": func(x *text) (string, string) {
		x.input(1+x.rng.IntN(4), 1+x.rng.IntN(9), 1+x.rng.IntN(5000))
		return "LpNormalization", fmt.Sprintf("p = %d", 1+x.rng.IntN(2))
	},
}

func convTail(x *text, kind string, m int, attrs string) (string, string) {
	if x.rng.IntN(2) == 0 {
		x.constant(m)
	}
	if a := activationTexts[x.rng.IntN(len(activationTexts))]; a != "" {
		attrs = strings.TrimPrefix(attrs+", "+a, ", ")
	}
	return kind, attrs
}

// Every kernel computes what its operator's Eval does, whatever the shape.
func TestKernelsAgreeWithOperators(t *testing.T) {
	const seed = 20
	t.Logf("seed %d", seed)
	rounds := 60
	if testing.Short() {
		rounds = 8
	}
	products := pieceProducts
	defer func() { pieceProducts = products }()
	for name, build := range cases {
		t.Run(name, func(t *testing.T) {
			bound := 0
			for round := range rounds {
				// Small convolutions are computed in pieces, as large ones are, in half of the rounds.
				pieceProducts = products * (round % 2)
				x := &text{rng: rand.New(rand.NewPCG(seed, uint64(round)))}
				src, g, in := x.node(t, build, func() float32 { return float32(x.rng.NormFloat64()) })
				if g == nil {
					continue
				}
				want, err := ref.Run(context.Background(), g, in)
				if err != nil {
					t.Fatal(err)
				}
				p, err := Device{}.Load(g, backend.Options{Threads: 1 + round%3})
				if err != nil {
					t.Fatal(err)
				}
				got, err := run(context.Background(), p, in)
				if err != nil {
					t.Fatalf("%v in\n%s", err, src)
				}
				s, err := p.(*program).specialise(in)
				if err != nil {
					t.Fatal(err)
				}
				if s.main.steps[0].fast() {
					bound++
				}
				p.Close()
				compare(t, src, got[0], want[0])
			}
			if bound < rounds/4 {
				t.Errorf("a kernel was bound in only %d of %d rounds", bound, rounds)
			}
		})
	}
}

// Every kernel gives NaN and infinities where its operator's Eval does, and nowhere
// else, but for one exception: that of Attention does not multiply the values of keys by zero that its attributes hide.
func TestKernelsAgreeOnWhatIsNotFinite(t *testing.T) {
	const seed = 21
	t.Logf("seed %d", seed)
	rounds := 16
	if testing.Short() {
		rounds = 4
	}
	products := pieceProducts
	defer func() { pieceProducts = products }()
	special := []float32{inf, -inf, float32(math.NaN()), 0}
	for name, build := range cases {
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				// Small convolutions are computed in pieces, as large ones are, in half of the rounds.
				pieceProducts = products * (round % 2)
				x := &text{rng: rand.New(rand.NewPCG(seed, uint64(round)))}
				src, g, in := x.node(t, build, func() float32 {
					if x.rng.IntN(20) == 0 {
						return special[x.rng.IntN(len(special))]
					}
					return float32(x.rng.NormFloat64())
				})
				if g == nil || strings.Contains(src, "is_causal = 1") || strings.Contains(src, "_window_size") || strings.Contains(src, "%n)") {
					continue
				}
				want, err := ref.Run(context.Background(), g, in)
				if err != nil {
					t.Fatal(err)
				}
				got, err := run(context.Background(), load(t, src), in)
				if err != nil {
					t.Fatalf("%v in\n%s", err, src)
				}
				for i, w := range want[0].F32s() {
					v := got[0].F32s()[i]
					if near := math.Abs(float64(v-w)) <= 1e-4*(1+math.Abs(float64(w))); v != w && !near && !(v != v && w != w) {
						t.Fatalf("element %d is %g, want %g in\n%s", i, v, w, src)
					}
				}
			}
		})
	}
}

func compare(t *testing.T, src string, got, want *tensor.Tensor) {
	t.Helper()
	if got.String() != want.String() {
		t.Fatalf("%v, want %v in\n%s", got, want, src)
	}
	norm := 0.0
	for _, v := range want.F32s() {
		norm = max(norm, math.Abs(float64(v)))
	}
	for i, w := range want.F32s() {
		d := math.Abs(float64(got.F32s()[i] - w))
		if same := got.F32s()[i] == w || got.F32s()[i] != got.F32s()[i] && w != w; !same && !(d <= 2e-6*(norm+1)+1e-5*math.Abs(float64(w))) {
			t.Fatalf("element %d is %g, want %g in\n%s", i, got.F32s()[i], w, src)
		}
	}
}

// run evaluates a program into new tensors.
func run(ctx context.Context, p backend.Program, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	out := make([]*tensor.Tensor, len(p.(*program).graph.Outputs))
	return out, p.Run(ctx, in, out)
}

func load(t *testing.T, src string) backend.Program {
	t.Helper()
	g, err := ir.Parse(src, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	p, err := Device{}.Load(g, backend.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// What a round of a loop puts into a sequence stays what it is in the next ones, also a
// view of a value that varies.
func TestListsKeepViewsOfEveryRound(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks see it, too
	p := load(t, `graph "g"(%x: f32[2], %n: i64[]) {
  %yes: bool[] = const {1}
  %row: i64[2] = const {1, 2}
  %e: sequence<f32[*]>[0] = SequenceEmpty "empty" ()
  %all: sequence<f32[1,2]>[?0], %last: f32[2] = Loop "loop" (%n, %yes, %e, %x) {body = graph "body"(%i: i64[], %c: bool[], %s: sequence<f32[1,2]>[?1], %v: f32[2]) {
    %r: f32[1,2] = Reshape "view" (%v, %row)
    %t: sequence<f32[1,2]>[?2] = SequenceInsert "insert" (%s, %r)
    %w: f32[2] = Add "add" (%v, %x)
    return %c, %t, %w
  }}
  %y: f32[?3,2] = ConcatFromSequence "join" (%all) {axis = 0}
  return %y
}`)
	for range 2 {
		out := make([]*tensor.Tensor, 1)
		if err := p.Run(context.Background(), []*tensor.Tensor{tensor.From([]float32{1, 2}, 2), tensor.Scalar(int64(3))}, out); err != nil {
			t.Fatal(err)
		}
		if want := tensor.From([]float32{1, 2, 2, 4, 3, 6}, 3, 2); !out[0].Equal(want) {
			t.Errorf("%v, want %v", out[0].F32s(), want.F32s())
		}
	}
}

// A value whose shape depends on data is computed by the same kernels.
func TestShapesThatDependOnData(t *testing.T) {
	p := load(t, `graph "g"(%x: f32[n]) {
  %i: i64[1,k] = NonZero "nonzero" (%x)
  %two: i64[2] = const {-1, 1}
  %c: i64[k,1] = Reshape "reshape" (%i, %two)
  %f: f32[k,1] = Cast "cast" (%c) {to = 1}
  %w: f32[1,3] = const {1.0, 10.0, 100.0}
  %y: f32[k,3] = MatMul "matmul" (%f, %w)
  %z: f32[k,3] = Relu "relu" (%y)
  return %z
}`)
	for _, n := range []int{0, 1, 5} {
		x := make([]float32, 7)
		for i := range n {
			x[i+1] = 1
		}
		out, err := run(context.Background(), p, []*tensor.Tensor{tensor.From(x, 7)})
		if err != nil {
			t.Fatal(err)
		}
		if out[0].Dim(0) != n {
			t.Fatalf("%v for %d nonzeros", out[0], n)
		}
		for i := range n {
			if got := out[0].F32s()[3*i+1]; got != float32(10*(i+1)) {
				t.Errorf("row %d: %g", i, got)
			}
		}
	}
}

// Inputs are not written to, and outputs are not shared with later runs.
func TestRunOwnsNothingOfTheCaller(t *testing.T) {
	p := load(t, `graph "g"(%x: f32[3]) {
  %a: f32[3] = Relu "a" (%x)
  %b: f32[3] = Neg "b" (%a)
  return %b, %x as "same"
}`)
	x := tensor.From([]float32{1, -2, 3}, 3)
	first, err := run(context.Background(), p, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(context.Background(), p, []*tensor.Tensor{tensor.From([]float32{7, 8, 9}, 3)}); err != nil {
		t.Fatal(err)
	}
	if !x.Equal(tensor.From([]float32{1, -2, 3}, 3)) {
		t.Errorf("the input became %v", x.F32s())
	}
	if first[0].F32s()[0] != -1 || first[0].F32s()[2] != -3 || &first[1].F32s()[0] == &x.F32s()[0] {
		t.Errorf("outputs %v, %v", first[0].F32s(), first[1].F32s())
	}
}

func TestRunStopsWhenCancelled(t *testing.T) {
	p := load(t, `graph "g"(%x: f32[1]) {
  %m: i64[] = const {1000000000}
  %c: bool[] = const {1}
  %y: f32[1] = Loop "loop" (%m, %c, %x) {body = graph "b"(%i: i64[], %go: bool[], %v: f32[1]) {
    %w: f32[1] = Add "add" (%v, %v)
    return %go, %w
  }}
  return %y
}`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := run(ctx, p, []*tensor.Tensor{tensor.From([]float32{1}, 1)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
}

// Nothing in the body looks at the context.
func TestEmptyLoopsStopWhenCancelled(t *testing.T) {
	p := load(t, `graph "g"(%x: f32[1]) {
  %m: i64[] = const {1000000000}
  %c: bool[] = const {1}
  %y: f32[1] = Loop "loop" (%m, %c, %x) {body = graph "b"(%i: i64[], %go: bool[], %v: f32[1]) {
    return %go, %v
  }}
  return %y
}`)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := run(ctx, p, []*tensor.Tensor{tensor.From([]float32{1}, 1)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
}

// The values of a run, 2 TB here, are refused before any is computed.
func TestRunsThatMemoryDoesNotHoldAreRefused(t *testing.T) {
	if memory.Check(1<<40) == nil {
		t.Skip("this machine has the memory, or does not tell")
	}
	var b, outs strings.Builder
	b.WriteString("graph \"g\"(%x: f32[46000,1], %y: f32[1,46000]) {\n")
	for i := range 260 {
		fmt.Fprintf(&b, "  %%z%d: f32[46000,46000] = Add \"outer%d\" (%%x, %%y)\n", i, i)
		fmt.Fprintf(&outs, ", %%z%d", i)
	}
	fmt.Fprintf(&b, "  return %s\n}", outs.String()[2:])
	p := load(t, b.String())
	_, err := run(context.Background(), p, []*tensor.Tensor{tensor.New(tensor.F32, 46000, 1), tensor.New(tensor.F32, 1, 46000)})
	if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "(Add)") || !strings.Contains(err.Error(), "GB are left") {
		t.Errorf("error %v, want one that names a node and what memory is left", err)
	}
}

// slow is an operator that waits to be let go.
type slow struct {
	begun, end chan struct{}
	read       *tensor.Tensor
}

func (*slow) Kind() string                { return "Slow" }
func (*slow) Infer(c *ir.Infer) error     { c.Set(0, c.In(0)); return nil }
func (*slow) Work(_, _ []ir.Type) ir.Work { return ir.Work{FLOPs: 1e12} }
func (s *slow) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	close(s.begun)
	<-s.end
	s.read = in[0].Clone()
	return []*tensor.Tensor{s.read}, nil
}

// A cancelled run does not wait for an operator, which keeps what it reads.
func TestCancelledRunsLeaveOperatorsBehind(t *testing.T) {
	s := &slow{begun: make(chan struct{}), end: make(chan struct{})}
	g := ir.NewGraph("g")
	x := g.NewInput("x", ir.TypeOf(tensor.New(tensor.F32, 3)))
	exp, err := op.Registry.New("Exp")
	if err != nil {
		t.Fatal(err)
	}
	h := g.NewNode("exp", exp, []*ir.Value{x}, "h") // in the arena
	y := g.NewNode("slow", s, h.Outputs, "y")
	g.Outputs = y.Outputs
	if err := g.Infer(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	p, err := Device{}.Load(g, backend.Options{Threads: 2, Closed: func() error { close(closed); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-s.begun
		cancel()
	}()
	if _, err := run(ctx, p, []*tensor.Tensor{tensor.New(tensor.F32, 3)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-closed:
		t.Error("the program is closed while an operator reads its weights")
	default:
	}
	close(s.end)
	<-closed
	if want := tensor.From([]float32{1, 1, 1}, 3); !s.read.Equal(want) {
		t.Errorf("the operator has read %v, want %v", s.read.F32s(), want.F32s())
	}
}

func TestCasts(t *testing.T) {
	for _, from := range []tensor.DType{tensor.Bool, tensor.U8, tensor.I8, tensor.I32, tensor.I64} {
		x := tensor.From([]bool{false, true, true, false, true}, 5)
		if from != tensor.Bool {
			x = tensor.From([]float64{0, 1, 7, 127, 100}, 5).To(from)
		}
		if from == tensor.I64 {
			tensor.Data[int64](x)[1] = -1<<53 - 1
		}
		p := load(t, fmt.Sprintf("graph \"g\"(%%x: %v[5]) {\n  %%y: f32[5] = Cast \"cast\" (%%x) {to = 1}\n  return %%y\n}", from))
		got, err := run(context.Background(), p, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		if want := x.To(tensor.F32); !got[0].Equal(want) {
			t.Errorf("%v: %v, want %v", from, got[0].F32s(), want.F32s())
		}
	}
}

// A convolution may write over its residual, but not where that is its input, too.
func TestResidualsInPlace(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	weights := make([]string, 3*3*5*5)
	for i := range weights {
		weights[i] = fmt.Sprintf("%.3f", rng.NormFloat64())
	}
	src := fmt.Sprintf(`graph "g"(%%x: f32[1,3,40,40]) {
  %%w: f32[3,3,5,5] = const {%s}
  %%a: f32[1,3,40,40] = Tanh "a" (%%x)
  %%b: f32[1,3,40,40] = Conv "own" (%%a, %%w, _, %%a) {pads = [2, 2, 2, 2]}
  %%c: f32[1,3,40,40] = Tanh "c" (%%b)
  %%d: f32[1,3,40,40] = Conv "other" (%%c, %%w, _, %%b) {pads = [2, 2, 2, 2]}
  %%e: f32[1,3,40,40] = Neg "e" (%%d)
  return %%e
}`, strings.Join(weights, ", "))
	p := load(t, src).(*program)
	x := tensor.New(tensor.F32, 1, 3, 40, 40)
	for i := range x.F32s() {
		x.F32s()[i] = float32(rng.NormFloat64())
	}
	want, err := ref.Run(context.Background(), p.graph, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	got, err := run(context.Background(), p, []*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, src, got[0], want[0])
	s, err := p.specialise([]*tensor.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	root := func(name string) int {
		for v, k := range s.plan.Number {
			if v.Name == name {
				return s.plan.Root(k)
			}
		}
		t.Fatalf("no value %s", name)
		return -1
	}
	if root("b") == root("a") || root("d") != root("b") {
		t.Errorf("storage of a, b, d: %d, %d, %d, want that of d to be b's and no other's", root("a"), root("b"), root("d"))
	}
}

// rounds is how many of n rounds of a kind a test has: a few where it is to be short, since what runs at once is the same in all.
func rounds(n int) int {
	if testing.Short() {
		return max(1, n/8)
	}
	return n
}
